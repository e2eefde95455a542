"""Partitions that expire: when, and whether after every write."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import Any, Final, Protocol

from lakeformat.config.option import Effect, Option, fields, flag, one_of, positive
from lakeformat.errors import InvalidInputError

__all__ = ["TTL_OPTIONS", "Expiry", "Strategy", "Values", "expires_inline", "expiry_of"]

_INLINE: Final = "hoodie.partition.ttl.inline"
_TYPE: Final = "hoodie.partition.ttl.management.strategy.type"
_CLASS: Final = "hoodie.partition.ttl.strategy.class"
_DAYS: Final = "hoodie.partition.ttl.strategy.days.retain"
_PARTITIONS: Final = "hoodie.partition.ttl.strategy.partition.selected"
_MOST: Final = "hoodie.partition.ttl.strategy.max.delete.partitions"


def _ttl_class(text: str) -> str:
    """Hudi's two strategies by their classes; others are refused."""
    names = {"": "", "KeepByTimeStrategy": "KEEP_BY_TIME", "KeepByCreationTimeStrategy": "KEEP_BY_CREATION_TIME"}
    found = names.get(text.strip().rpartition(".")[2])
    if found is None:
        raise ValueError("a Java class cannot run here; write KeepByTimeStrategy or KeepByCreationTimeStrategy")
    return found


def _days(text: str) -> int:
    """A whole number; -1 is never."""
    try:
        return int(text.strip())
    except ValueError:
        raise ValueError("write a whole number of days, -1 for never") from None


TTL_OPTIONS: Final[tuple[Option, ...]] = (
    Option(_INLINE, "After a write, delete partitions that have expired.", Effect.WRITE, flag, False),
    Option(
        _TYPE,
        "What a partition's age is counted from: KEEP_BY_TIME (its newest commit) or KEEP_BY_CREATION_TIME.",
        Effect.WRITE,
        one_of("KEEP_BY_TIME", "KEEP_BY_CREATION_TIME"),
        "KEEP_BY_TIME",
    ),
    Option(_CLASS, "The same by Hudi's class; it goes before.", Effect.WRITE, _ttl_class, ""),
    Option(_DAYS, "Days after which a partition expires; none does with -1.", Effect.WRITE, _days, -1),
    Option(_PARTITIONS, "Partition paths that may expire; all by default.", Effect.WRITE, fields, ()),
    Option(_MOST, "So many partitions expire at once, the oldest first.", Effect.WRITE, positive, 1000),
)


class Values(Protocol):
    """What options are here: `Options` itself is made of this module's."""

    def __getitem__(self, key: str) -> Any: ...


class Strategy(enum.Enum):
    """What a partition's age is counted from: its newest commit, or the commit that made it."""

    LAST_WRITE = "KEEP_BY_TIME"
    CREATION = "KEEP_BY_CREATION_TIME"


@dataclass(frozen=True, slots=True)
class Expiry:
    """When partitions expire.

    Attributes:
        days: how long they stay; with 0 and fewer none goes.
        most: of one go.
        partitions: only these; all, if there is none.
    """

    strategy: Strategy
    days: int
    most: int
    partitions: tuple[str, ...] = ()


def expiry_of(options: Values, days: int | None = None) -> Expiry:
    """What the options say, or with so many days.

    Raises:
        InvalidInputError: fewer days than one.
    """
    if days is not None and days < 1:
        raise InvalidInputError(f"partitions stay at least 1 day, not {days}; give a number from 1 up")
    strategy = Strategy(options[_CLASS] or options[_TYPE])
    return Expiry(strategy, options[_DAYS] if days is None else days, options[_MOST], options[_PARTITIONS])


def expires_inline(options: Values) -> bool:
    """Whether partitions expire after writes."""
    return bool(options[_INLINE])
