"""The one answer to each option of Hudi's: obeyed, ignored (with or without a warning), or refused."""

from __future__ import annotations

import enum
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from functools import cache, lru_cache
from typing import Final

from lakeformat.config.answer_table import OPEN, PASSED, REFUSED, TOLD
from lakeformat.config.hudi import hudi_names
from lakeformat.config.option import Option
from lakeformat.config.registry import OPTIONS

__all__ = ["BY_NAME", "TIMESTAMP_PREFIXES", "Answer", "Kind", "answer_to", "open_families"]

#: Options of the timestamp-based key generator, read by `TimestampSettings.from_options`.
TIMESTAMP_PREFIXES: Final = ("hoodie.keygen.timebased.", "hoodie.deltastreamer.keygen.timebased.")

#: Our options by each of their names, in lower case.
BY_NAME: Final[Mapping[str, Option]] = {
    name.lower(): option for option in OPTIONS for name in (option.key, *option.aliases)
}
#: Values that switch off or ask for nothing.
_OFF: Final = frozenset({"", "false", "none", "-1"})


class Kind(enum.Enum):
    """What is done about an option."""

    OBEYED = "obeyed"
    PASSED = "ignored"
    TOLD = "ignored, with a warning"
    REFUSED = "refused"


@dataclass(frozen=True, slots=True)
class Answer:
    """What becomes of an option.

    Attributes:
        says: what it does, what is so instead, or why it is refused.
        cure: what to do about a refusal, beyond leaving the option out.
        harmless: values, in lower case, that are taken without a word although others are refused or told of.
    """

    kind: Kind
    says: str
    cure: str = ""
    harmless: frozenset[str] = frozenset()


def _rows() -> Iterator[tuple[str, Answer]]:
    for kind, table in ((Kind.TOLD, TOLD), (Kind.PASSED, PASSED)):
        for says, names in table.items():
            answer = Answer(kind, says, harmless=_OFF)
            yield from ((name, answer) for name in names.split())
    for name, (why, cure, fine) in REFUSED.items():
        yield name, Answer(Kind.REFUSED, why, cure, frozenset(fine.lower().split()))


@cache
def _table() -> tuple[tuple[str, Answer], ...]:
    return tuple(sorted(_rows(), key=lambda row: (-len(row[0]), row[0])))


@lru_cache(maxsize=4096)
def answer_to(name: str) -> Answer | None:
    """The answer to an option by any of its names, in lower case; None if nobody knows it.

    >>> answer_to("hoodie.upsert.shuffle.parallelism").kind
    <Kind.PASSED: 'ignored'>
    """
    ours, theirs = BY_NAME.get(name), hudi_names().get(name)
    if ours is not None:
        return Answer(Kind.OBEYED, ours.doc)
    if name.startswith(TIMESTAMP_PREFIXES):
        return Answer(Kind.OBEYED, "Part of the timestamp-based key generator.") if theirs else None
    if theirs is None and not any(fnmatchcase(name, family) for family in OPEN.split()):
        return None
    key = theirs.key.lower() if theirs else name
    answer = next((answer for pattern, answer in _table() if fnmatchcase(key, pattern)), None)
    if answer is None or answer.kind is not Kind.REFUSED:
        return answer
    default = theirs.default.lower() if theirs else ""
    return replace(answer, harmless=answer.harmless | {"", default})


def open_families() -> list[tuple[str, Answer]]:
    """`OPEN` with what becomes of its names that Hudi does not list."""
    answers = ((family, answer_to(family.replace("*", "..."))) for family in sorted(OPEN.split()))
    return [(family, answer) for family, answer in answers if answer]
