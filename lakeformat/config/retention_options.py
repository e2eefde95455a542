"""The options of cleaning, archiving and expiry: which old files, instants and partitions are removed."""

from __future__ import annotations

import enum
import re
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, Protocol

from lakeformat.config.option import (
    Effect,
    Option,
    make_choice_parser,
    parse_count,
    parse_flag,
    parse_names,
    parse_pattern,
    parse_positive,
)
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
    "AgeStart",
    "CleanedPartitions",
    "Expiry",
    "Values",
    "expires_inline",
    "make_expiry",
]

CLEANS: Final = "hoodie.clean.automatic"
CLEAN_POLICY: Final = "hoodie.clean.policy"
COMMITS_RETAINED: Final = "hoodie.clean.commits.retained"
HOURS_RETAINED: Final = "hoodie.clean.hours.retained"
VERSIONS_RETAINED: Final = "hoodie.clean.fileversions.retained"
CLEAN_AFTER: Final = "hoodie.clean.trigger.max.commits"
CLEAN_INCREMENTALLY: Final = "hoodie.clean.incremental.enabled"
_CLEAN_PARTITIONS: Final = "hoodie.clean.partition.filter.selected"
_CLEAN_PATTERN: Final = "hoodie.clean.partition.filter.regex"
ARCHIVES: Final = "hoodie.archive.automatic"
MIN_COMMITS: Final = "hoodie.keep.min.commits"
MAX_COMMITS: Final = "hoodie.keep.max.commits"
ARCHIVE_BATCH: Final = "hoodie.commits.archival.batch"
BEYOND_SAVEPOINT: Final = "hoodie.archive.beyond.savepoint"
BLOCKED_BY_CLEAN: Final = "hoodie.archive.block.on.latest.clean.ectr"
HISTORY_BATCH: Final = "hoodie.timeline.compaction.batch.size"
HISTORY_BYTES: Final = "hoodie.timeline.compaction.target.file.max.bytes"
KEPT_MANIFESTS: Final = "hoodie.timeline.manifest.retained.versions"

_entry: Final = partial(Option, Effect.WRITE)
LIFE_OPTIONS: Final[tuple[Option, ...]] = (
    _entry(CLEANS, "After a write, delete files that only older versions of the table need.", parse_flag, True),
    _entry(
        CLEAN_POLICY,
        "What cleaning keeps: KEEP_LATEST_COMMITS, KEEP_LATEST_BY_HOURS or KEEP_LATEST_FILE_VERSIONS.",
        make_choice_parser("KEEP_LATEST_COMMITS", "KEEP_LATEST_BY_HOURS", "KEEP_LATEST_FILE_VERSIONS"),
        "KEEP_LATEST_COMMITS",
        ("hoodie.cleaner.policy",),
    ),
    _entry(
        COMMITS_RETAINED,
        "KEEP_LATEST_COMMITS: number of commits that time travel can still read.",
        parse_positive,
        10,
        ("hoodie.cleaner.commits.retained",),
    ),
    _entry(
        HOURS_RETAINED,
        "KEEP_LATEST_BY_HOURS: number of hours whose commits time travel can still read.",
        parse_positive,
        24,
        ("hoodie.cleaner.hours.retained",),
    ),
    _entry(
        VERSIONS_RETAINED,
        "KEEP_LATEST_FILE_VERSIONS: number of versions of each file group that stay.",
        parse_positive,
        3,
        ("hoodie.cleaner.fileversions.retained",),
    ),
    _entry(
        "hoodie.clean.trigger.strategy",
        "Rule by which a clean is due.",
        make_choice_parser("NUM_COMMITS"),
        "NUM_COMMITS",
    ),
    _entry(
        CLEAN_AFTER, "Commits from one automatic clean to the next.", parse_positive, 1, ("hoodie.clean.max.commits",)
    ),
    _entry(
        CLEAN_INCREMENTALLY,
        "Look only at partitions that have changed since the last clean.",
        parse_flag,
        True,
        ("hoodie.cleaner.incremental.mode",),
    ),
    _entry(
        _CLEAN_PARTITIONS,
        "Partition paths that are cleaned, separated by commas; by default all.",
        parse_names,
        (),
        ("hoodie.cleaner.partition.filter.selected",),
    ),
    _entry(
        _CLEAN_PATTERN,
        "Regular expression that the whole path of a partition must match to be cleaned, unless paths are named.",
        parse_pattern,
        None,
        ("hoodie.cleaner.partition.filter.regex",),
    ),
    _entry(ARCHIVES, "After a write, move old commits from the timeline into the archive.", parse_flag, True),
    _entry(MIN_COMMITS, "Least number of commits that archiving leaves on the timeline.", parse_positive, 20),
    _entry(
        MAX_COMMITS,
        "Archiving starts if the timeline has more commits, cleans and rollbacks than this.",
        parse_positive,
        30,
    ),
    _entry(ARCHIVE_BATCH, "Instants in a block of the archive (table version 6).", parse_positive, 10),
    _entry(
        BEYOND_SAVEPOINT,
        "Also archive commits after a savepoint: only the savepointed commits themselves stay on the timeline.",
        parse_flag,
        False,
    ),
    _entry(
        BLOCKED_BY_CLEAN,
        "Archive only commits older than the oldest commit that the last clean kept completely.",
        parse_flag,
        False,
    ),
    _entry(
        HISTORY_BATCH,
        "Number of files of one level of the archive that are merged into one (table versions 8 and 9).",
        parse_positive,
        10,
    ),
    _entry(
        HISTORY_BYTES,
        "Most bytes of archive files that are merged into one (table versions 8 and 9).",
        parse_positive,
        1048576000,
    ),
    _entry(
        KEPT_MANIFESTS,
        "Number of older manifests of the archive that are kept for readers (table versions 8 and 9).",
        parse_count,
        3,
    ),
)


_INLINE: Final = "hoodie.partition.ttl.inline"
_TYPE: Final = "hoodie.partition.ttl.management.strategy.type"
_CLASS: Final = "hoodie.partition.ttl.strategy.class"
_DAYS: Final = "hoodie.partition.ttl.strategy.days.retain"
_PARTITIONS: Final = "hoodie.partition.ttl.strategy.partition.selected"
_MOST: Final = "hoodie.partition.ttl.strategy.max.delete.partitions"


def _parse_ttl_class(text: str) -> str:
    """Parse the class name of one of Hudi's two expiry strategies. Return the name of its type, as in `AgeStart`."""
    names = {"": "", "KeepByTimeStrategy": "KEEP_BY_TIME", "KeepByCreationTimeStrategy": "KEEP_BY_CREATION_TIME"}
    strategy = names.get(text.strip().rpartition(".")[2])
    if strategy is None:
        raise ValueError("a Java class cannot run here; write KeepByTimeStrategy or KeepByCreationTimeStrategy")
    return strategy


def _parse_days(text: str) -> int:
    """Parse a whole number of days; -1 means never."""
    try:
        return int(text.strip())
    except ValueError:
        raise ValueError("write a whole number of days, -1 for never") from None


TTL_OPTIONS: Final[tuple[Option, ...]] = (
    _entry(_INLINE, "After a write, delete partitions that have expired.", parse_flag, False),
    _entry(
        _TYPE,
        "Start of a partition's age: KEEP_BY_TIME (its newest commit) or KEEP_BY_CREATION_TIME (its first commit).",
        make_choice_parser("KEEP_BY_TIME", "KEEP_BY_CREATION_TIME"),
        "KEEP_BY_TIME",
    ),
    _entry(_CLASS, "The same by Hudi's class; it takes precedence.", _parse_ttl_class, ""),
    _entry(_DAYS, "Days after which a partition expires; -1 for never.", _parse_days, -1),
    _entry(_PARTITIONS, "Partition paths that may expire; all by default.", parse_names, ()),
    _entry(_MOST, "Most partitions that expire at once, the oldest first.", parse_positive, 1000),
)


class Values(Protocol):
    """A protocol for `Options`, which this module cannot import because `Options` depends on this module."""

    def __getitem__(self, key: str) -> Any: ...


@dataclass(frozen=True, slots=True)
class CleanedPartitions:
    """The partitions that a clean may look at.

    Attributes:
        selected: Paths of the partitions; empty for all.
        pattern: Regular expression of whole paths, if none is selected; "" for all.
    """

    selected: tuple[str, ...]
    pattern: str

    @classmethod
    def of(cls, options: Values) -> CleanedPartitions:
        """Return the partitions that the options name."""
        return cls(options[_CLEAN_PARTITIONS], options[_CLEAN_PATTERN] or "")

    @property
    def are_all(self) -> bool:
        """Tell whether no partition is left out."""
        return not (self.selected or self.pattern)

    def __contains__(self, path: str) -> bool:
        if self.selected:
            return path in self.selected
        return not self.pattern or re.fullmatch(self.pattern, path) is not None


class AgeStart(enum.Enum):
    """The commit from which the age of a partition is counted: its newest commit, or its first commit."""

    LAST_WRITE = "KEEP_BY_TIME"
    CREATION = "KEEP_BY_CREATION_TIME"


@dataclass(frozen=True, slots=True)
class Expiry:
    """The rule by which partitions expire.

    Attributes:
        strategy: The commit from which the age of a partition is counted.
        days: Age in days at which a partition expires. If it is 0 or less, no partition expires.
        most_partitions: Maximum number of partitions that expire at once.
        partitions: Paths of the partitions that may expire; empty for all.
    """

    strategy: AgeStart
    days: int
    most_partitions: int
    partitions: tuple[str, ...] = ()


def make_expiry(options: Values, days: int | None = None) -> Expiry:
    """Return the expiry rule that the options define. If ``days`` is not None, it replaces the option of the days.

    Raises:
        InvalidInputError: ``days`` is less than 1.
    """
    if days is not None and days < 1:
        raise InvalidInputError(f"partitions stay at least 1 day, not {days}; give a number from 1 up")
    strategy = AgeStart(options[_CLASS] or options[_TYPE])
    return Expiry(strategy, options[_DAYS] if days is None else days, options[_MOST], options[_PARTITIONS])


def expires_inline(options: Values) -> bool:
    """Tell whether each write ends with deleting expired partitions."""
    return bool(options[_INLINE])
