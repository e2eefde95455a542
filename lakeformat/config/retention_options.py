"""Cleaning and archiving: how much of the past a table keeps, and when the rest goes.

Partitions that expire: when, and whether after every write.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import Any, Final, Protocol

from lakeformat.config.option import Effect, Option, count, fields, flag, one_of, positive
from lakeformat.errors import InvalidInputError

__all__ = [
    "ARCHIVES",
    "ARCHIVE_BATCH",
    "BEYOND_SAVEPOINT",
    "BLOCKED_BY_CLEAN",
    "CLEANS",
    "CLEAN_AFTER",
    "CLEAN_INCREMENTALLY",
    "CLEAN_POLICY",
    "COMMITS_RETAINED",
    "HISTORY_BATCH",
    "HISTORY_BYTES",
    "HOURS_RETAINED",
    "KEPT_MANIFESTS",
    "LIFE_OPTIONS",
    "MAX_COMMITS",
    "MIN_COMMITS",
    "TTL_OPTIONS",
    "VERSIONS_RETAINED",
    "Expiry",
    "Strategy",
    "Values",
    "expires_inline",
    "expiry_of",
]

CLEANS: Final = "hoodie.clean.automatic"
CLEAN_POLICY: Final = "hoodie.clean.policy"
COMMITS_RETAINED: Final = "hoodie.clean.commits.retained"
HOURS_RETAINED: Final = "hoodie.clean.hours.retained"
VERSIONS_RETAINED: Final = "hoodie.clean.fileversions.retained"
CLEAN_AFTER: Final = "hoodie.clean.trigger.max.commits"
CLEAN_INCREMENTALLY: Final = "hoodie.clean.incremental.enabled"
ARCHIVES: Final = "hoodie.archive.automatic"
MIN_COMMITS: Final = "hoodie.keep.min.commits"
MAX_COMMITS: Final = "hoodie.keep.max.commits"
ARCHIVE_BATCH: Final = "hoodie.commits.archival.batch"
BEYOND_SAVEPOINT: Final = "hoodie.archive.beyond.savepoint"
BLOCKED_BY_CLEAN: Final = "hoodie.archive.block.on.latest.clean.ectr"
HISTORY_BATCH: Final = "hoodie.timeline.compaction.batch.size"
HISTORY_BYTES: Final = "hoodie.timeline.compaction.target.file.max.bytes"
KEPT_MANIFESTS: Final = "hoodie.timeline.manifest.retained.versions"

LIFE_OPTIONS: Final[tuple[Option, ...]] = (
    Option(CLEANS, "After a write, delete files that only older versions of the table need.", Effect.WRITE, flag, True),
    Option(
        CLEAN_POLICY,
        "What cleaning keeps: KEEP_LATEST_COMMITS, KEEP_LATEST_BY_HOURS or KEEP_LATEST_FILE_VERSIONS.",
        Effect.WRITE,
        one_of("KEEP_LATEST_COMMITS", "KEEP_LATEST_BY_HOURS", "KEEP_LATEST_FILE_VERSIONS"),
        "KEEP_LATEST_COMMITS",
        ("hoodie.cleaner.policy",),
    ),
    Option(
        COMMITS_RETAINED,
        "KEEP_LATEST_COMMITS: so many commits can be read as they were.",
        Effect.WRITE,
        positive,
        10,
        ("hoodie.cleaner.commits.retained",),
    ),
    Option(
        HOURS_RETAINED,
        "KEEP_LATEST_BY_HOURS: commits of so many hours can be read as they were.",
        Effect.WRITE,
        positive,
        24,
        ("hoodie.cleaner.hours.retained",),
    ),
    Option(
        VERSIONS_RETAINED,
        "KEEP_LATEST_FILE_VERSIONS: of each file group so many versions stay.",
        Effect.WRITE,
        positive,
        3,
        ("hoodie.cleaner.fileversions.retained",),
    ),
    Option(
        "hoodie.clean.trigger.strategy", "What makes cleaning due.", Effect.WRITE, one_of("NUM_COMMITS"), "NUM_COMMITS"
    ),
    Option(
        CLEAN_AFTER,
        "Commits from one automatic clean to the next.",
        Effect.WRITE,
        positive,
        1,
        ("hoodie.clean.max.commits",),
    ),
    Option(
        CLEAN_INCREMENTALLY,
        "Look only at partitions that have changed since the last clean.",
        Effect.WRITE,
        flag,
        True,
        ("hoodie.cleaner.incremental.mode",),
    ),
    Option(ARCHIVES, "After a write, move old commits from the timeline into the archive.", Effect.WRITE, flag, True),
    Option(MIN_COMMITS, "Commits that archiving leaves on the timeline.", Effect.WRITE, positive, 20),
    Option(
        MAX_COMMITS,
        "With more commits, cleans and rollbacks on the timeline, some are archived.",
        Effect.WRITE,
        positive,
        30,
    ),
    Option(ARCHIVE_BATCH, "Instants in a block of the archive (table version 6).", Effect.WRITE, positive, 10),
    Option(
        BEYOND_SAVEPOINT,
        "Archive commits after a savepoint, too: only the savepointed ones themselves stay on the timeline.",
        Effect.WRITE,
        flag,
        False,
    ),
    Option(
        BLOCKED_BY_CLEAN,
        "Archive only commits older than the oldest one that the last clean has kept whole.",
        Effect.WRITE,
        flag,
        False,
    ),
    Option(
        HISTORY_BATCH,
        "Files of one level of the archive that are put together (table versions 8 and 9).",
        Effect.WRITE,
        positive,
        10,
    ),
    Option(
        HISTORY_BYTES,
        "Bytes of files of the archive that are put together, at most (table versions 8 and 9).",
        Effect.WRITE,
        positive,
        1048576000,
    ),
    Option(
        KEPT_MANIFESTS,
        "Older manifests of the archive that stay for readers (table versions 8 and 9).",
        Effect.WRITE,
        count,
        3,
    ),
)


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
