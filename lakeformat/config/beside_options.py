"""Options that keep metadata of other table formats beside a table."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from lakeformat.config.option import Effect, declare, options_of, parse_flag, parse_names, values_of
from lakeformat.errors import nearest

__all__ = ["BESIDE", "BESIDE_OPTIONS", "FORMATS", "BesideOptions"]

BESIDE: Final = "lakeformat.beside"
#: Names of the formats whose metadata can lie beside a table.
FORMATS: Final = ("delta",)


def _parse_formats(text: str) -> tuple[str, ...]:
    names = tuple(dict.fromkeys(name.lower() for name in parse_names(text)))
    for name in names:
        if name not in FORMATS:
            raise ValueError(f"write {' or '.join(FORMATS)}{nearest(name, FORMATS)}")
    return names


@dataclass(frozen=True, slots=True, kw_only=True)
class BesideOptions:
    """What follows the table after each write.

    Attributes:
        formats: the formats whose metadata follows.
        fails: whether an error is raised if it cannot follow.
    """

    formats: tuple[str, ...] = declare(
        Effect.WRITE,
        BESIDE,
        "Formats whose metadata follows each write, so that their readers can read the table: delta.",
        _parse_formats,
        (),
    )
    fails: bool = declare(
        Effect.WRITE,
        "lakeformat.beside.fail_on_error",
        "A write whose metadata of another format cannot follow raises SyncError, although its commit is visible. By "
        "default a warning is logged.",
        parse_flag,
        False,
    )

    @classmethod
    def of(cls, get: Callable[[str], Any]) -> BesideOptions:
        """Make the typed form of the options."""
        return cls(**values_of(cls, get))


BESIDE_OPTIONS: Final = options_of(BesideOptions)
