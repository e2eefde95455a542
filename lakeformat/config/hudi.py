"""Apache Hudi's own options, as ``tools/hudi_options.py`` lists them from its config classes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

__all__ = ["HudiOption", "hudi_names", "hudi_options"]


@dataclass(frozen=True, slots=True)
class HudiOption:
    """One ``ConfigProperty``.

    Attributes:
        default: as text, ``""`` for none.
        others: older names, which Hudi still takes.
        release: the last release that has it.
    """

    key: str
    default: str
    others: tuple[str, ...]
    release: str


@cache
def hudi_options() -> tuple[HudiOption, ...]:
    """All, by key."""
    text = files(__package__).joinpath("hudi_options.tsv").read_text(encoding="utf-8")
    rows = (line.split("\t") for line in text.splitlines()[1:])
    return tuple(HudiOption(key, default, tuple(filter(None, o.split(","))), last) for key, default, o, last in rows)


@cache
def hudi_names() -> Mapping[str, HudiOption]:
    """Every name in lower case, the older ones included; a name of two options is its namesake's."""
    older = {name.lower(): option for option in hudi_options() for name in option.others}
    return {**older, **{option.key.lower(): option for option in hudi_options()}}
