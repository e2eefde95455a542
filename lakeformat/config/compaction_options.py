"""The options of compaction: when log files are merged into base files, and which file slices are chosen."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final

from lakeformat.config.option import (
    Effect,
    Option,
    declare,
    make_choice_parser,
    options_of,
    parse_count,
    parse_flag,
    parse_pattern,
    parse_positive,
    values_of,
)

__all__ = [
    "COMPACTION_COMMITS",
    "COMPACTION_OPTIONS",
    "DAYS",
    "INLINE",
    "INLINE_SECONDS",
    "LOG_COUNT",
    "LOG_SIZE",
    "OUTGROWN",
    "PARTITION_PATTERN",
    "SCHEDULE_INLINE",
    "STRATEGIES",
    "STRATEGY",
    "TARGET_IO",
    "TRIGGER",
    "UNBOUNDED",
    "AutoCompaction",
]

INLINE: Final = "hoodie.compact.inline"
COMPACTION_COMMITS: Final = "hoodie.compact.inline.max.delta.commits"
INLINE_SECONDS: Final = "hoodie.compact.inline.max.delta.seconds"
TRIGGER: Final = "hoodie.compact.inline.trigger.strategy"
SCHEDULE_INLINE: Final = "hoodie.compact.schedule.inline"
STRATEGY: Final = "hoodie.compaction.strategy"
TARGET_IO: Final = "hoodie.compaction.target.io"
LOG_SIZE: Final = "hoodie.compaction.logfile.size.threshold"
LOG_COUNT: Final = "hoodie.compaction.logfile.num.threshold"
DAYS: Final = "hoodie.compaction.daybased.target.partitions"
PARTITION_PATTERN: Final = "hoodie.compaction.partition.path.regex"

#: Name of the strategy that chooses all file slices with log files.
UNBOUNDED: Final = "UnBoundedCompactionStrategy"
#: Name of the strategy of automatic compaction, which Hudi does not have. Users cannot set it by an option.
OUTGROWN: Final = "outgrown"
#: Names of Hudi's strategies: class names without package.
STRATEGIES: Final = (
    "LogFileSizeBasedCompactionStrategy",
    "LogFileNumBasedCompactionStrategy",
    "BoundedIOCompactionStrategy",
    UNBOUNDED,
    "DayBasedCompactionStrategy",
    "BoundedPartitionAwareCompactionStrategy",
    "UnBoundedPartitionAwareCompactionStrategy",
    "PartitionRegexBasedCompactionStrategy",
)
_PACKAGE: Final = "org.apache.hudi.table.action.compact.strategy."


def _parse_strategy(text: str) -> str:
    """Parse the class name of a strategy of Hudi, with or without package. Return it without package."""
    name = text.strip().removeprefix(_PACKAGE)
    if name not in STRATEGIES:
        raise ValueError(f"that class cannot run here; write one of {', '.join(STRATEGIES)}")
    return name


#: Hudi's options that decide when to compact. If the user sets one of them, automatic compaction is off.
_HUDIS_RULE: Final = (INLINE, SCHEDULE_INLINE, TRIGGER, COMPACTION_COMMITS, INLINE_SECONDS)


_entry: Final = partial(Option, Effect.WRITE)
_option: Final = partial(declare, Effect.WRITE)


@dataclass(frozen=True, slots=True)
class AutoCompaction:
    """The typed options of automatic compaction. It is off if an option of Hudi says when to compact."""

    is_on: bool = _option(
        "lakeformat.compact.auto",
        "After a write, compact the file slices of a merge-on-read table that have outgrown their base files: they "
        "have many log files, or log files larger than the base file and than 64 MB. This is done only on storage with "
        "locks, if no other program writes, and if no option of Hudi says when to compact.",
        parse_flag,
        True,
    )
    log_files: int = _option(
        "lakeformat.compact.auto.log.files", "Number of log files of a slice that count as many.", parse_positive, 32
    )
    megabytes: int = _option(
        "lakeformat.compact.auto.megabytes",
        "Megabytes that an automatic compaction reads and writes; the file slice that exceeds the limit is its last.",
        parse_positive,
        2048,
    )

    @classmethod
    def of(cls, value: Callable[[str], Any], given: Callable[[str], bool]) -> AutoCompaction:
        """Return the typed options.

        Args:
            value: Function that returns the value of an option key, or its default.
            given: Function that tells whether the user set an option key.
        """
        options = cls(**values_of(cls, value))
        return replace(options, is_on=options.is_on and not any(map(given, _HUDIS_RULE)))

    def as_options(self) -> Mapping[str, Any]:
        """Return the compaction options that an automatic compaction uses, by key: its strategy and its limits."""
        return {STRATEGY: OUTGROWN, LOG_COUNT: self.log_files, TARGET_IO: self.megabytes}


COMPACTION_OPTIONS: Final[tuple[Option, ...]] = (
    *options_of(AutoCompaction),
    _entry(
        INLINE,
        "Compact a merge-on-read table after a write when a compaction is due; pending plans are run first.",
        parse_flag,
        False,
    ),
    _entry(
        SCHEDULE_INLINE,
        "Plan a compaction after a write when it is due, unless one is pending, without running it.",
        parse_flag,
        False,
    ),
    _entry(
        TRIGGER,
        "When a compaction is due: NUM_COMMITS, NUM_COMMITS_AFTER_LAST_REQUEST, TIME_ELAPSED, NUM_AND_TIME or "
        "NUM_OR_TIME.",
        make_choice_parser(
            "NUM_COMMITS", "NUM_COMMITS_AFTER_LAST_REQUEST", "TIME_ELAPSED", "NUM_AND_TIME", "NUM_OR_TIME"
        ),
        "NUM_COMMITS",
    ),
    _entry(COMPACTION_COMMITS, "Deltacommits from one compaction to the next.", parse_positive, 5),
    _entry(INLINE_SECONDS, "Seconds from one compaction to the next.", parse_positive, 3600),
    _entry(
        STRATEGY,
        "Hudi's class that chooses and orders the file slices of a compaction, with or without its package.",
        _parse_strategy,
        STRATEGIES[0],
    ),
    _entry(
        TARGET_IO,
        "Megabytes that one compaction reads and writes; the file slice that exceeds the limit is its last.",
        parse_count,
        500 * 1024,
    ),
    _entry(
        LOG_SIZE,
        "LogFileSizeBasedCompactionStrategy: bytes of log files from which a file slice is compacted.",
        parse_count,
        0,
    ),
    _entry(
        LOG_COUNT,
        "LogFileNumBasedCompactionStrategy: number of log files from which a file slice is compacted.",
        parse_count,
        0,
    ),
    _entry(
        DAYS,
        "Strategies by day: number of partitions (DayBased), or of days back from today (partition-aware).",
        parse_positive,
        10,
    ),
    _entry(
        PARTITION_PATTERN,
        "PartitionRegexBasedCompactionStrategy: a regular expression for whole partition paths.",
        parse_pattern,
    ),
)
