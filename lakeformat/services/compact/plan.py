"""The choice of file slices to compact (Hudi: ``HoodieCompactionPlanGenerator`` and its strategies). Pure.

Automatic compaction after a write chooses slices that have outgrown their base file: slices with at least
`lakeformat.compact.auto.log.files` log files, or with log files larger than both the base file and 64 MB. To find
such slices, the table must be listed. After most commits it is not listed, because the write stats of the newest commit
give no sign of such a slice.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from typing import Final, TypeAlias

from lakeformat.config.compaction_options import (
    DAYS,
    LOG_COUNT,
    LOG_SIZE,
    OUTGROWN,
    PARTITION_PATTERN,
    STRATEGY,
    TARGET_IO,
    AutoCompaction,
)
from lakeformat.config.resolve import Options
from lakeformat.model.commit import CommitMetadata
from lakeformat.model.files import FileGroupId, FileSlice
from lakeformat.model.instant import Action, Instant, State
from lakeformat.model.service_plans import CompactionOperation, CompactionPlan

__all__ = ["CompactLimits", "are_all_marked", "may_run", "may_show_outgrown", "plan_compaction"]

_MEGABYTE: Final = 1 << 20
#: Minimum bytes of a slice's log files to count as large. If the base file is larger, its size is the minimum.
_LARGE_LOG_BYTES: Final = 64 << 20
_LOG_FILES: Final = "TOTAL_LOG_FILES"
_LOG_BYTES: Final = "TOTAL_LOG_FILES_SIZE"
_IO: Final = "TOTAL_IO_MB"


@dataclass(frozen=True, slots=True)
class CompactLimits:
    """Limits of one compaction plan.

    Attributes:
        strategy: simple name of Hudi's strategy class.
        target_io_mb: target for the megabytes that a plan reads and writes. Slices are added to the plan until their
            total reaches this number.
        least_log_bytes: minimum bytes of a slice's log files, for the strategy by size.
        least_log_files: minimum number of a slice's log files, for the strategies by number and by growth.
        days: number of days, for strategies by day.
        pattern: regular expression of partition paths, for the strategy by pattern; None for all.
        today: the current date in the table's time zone.
        file_bytes: bytes that are assumed to be written for a slice without base file.
    """

    strategy: str
    target_io_mb: int
    least_log_bytes: int
    least_log_files: int
    days: int
    pattern: str | None
    today: date
    file_bytes: int

    @classmethod
    def of_options(cls, options: Options, today: date) -> CompactLimits:
        """Return the limits that the options set."""
        return cls(
            options[STRATEGY],
            options[TARGET_IO],
            options[LOG_SIZE],
            options[LOG_COUNT],
            options[DAYS],
            options[PARTITION_PATTERN],
            today,
            options["hoodie.parquet.max.file.size"],
        )


def plan_compaction(
    slices: Iterable[FileSlice], closed_groups: Collection[FileGroupId], limits: CompactLimits
) -> CompactionPlan | None:
    """Plan a compaction. Return None if there is no slice to compact.

    Args:
        slices: the newest file slice of each file group.
        closed_groups: file groups of pending compactions, log compactions and clusterings, which are left out.
    """
    operations = [_plan_operation(piece, limits) for piece in slices if piece.logs and piece.group not in closed_groups]
    chosen = _STRATEGIES[limits.strategy](operations, limits)
    return CompactionPlan(tuple(chosen), limits.strategy == OUTGROWN) if chosen else None


def _plan_operation(piece: FileSlice, limits: CompactLimits) -> CompactionOperation:
    return CompactionOperation(
        piece.group.partition_path,
        piece.group.file_id,
        piece.base_instant,
        str(piece.base.name) if piece.base else "",
        tuple(str(log.name) for log in piece.logs),
        _metrics(piece, limits.file_bytes),
    )


def _metrics(piece: FileSlice, file_bytes: int) -> Mapping[str, float]:
    """Return Hudi's metrics of a slice (``FileSliceMetricUtils``). Those with MB in the name are whole megabytes."""
    logs = sum(log.size_bytes for log in piece.logs)
    base = piece.base.size_bytes if piece.base else 0
    read, written = (base + logs) // _MEGABYTE, (base or file_bytes) // _MEGABYTE
    return {
        _LOG_FILES: float(len(piece.logs)),
        _IO: float(read + written),
        "TOTAL_IO_READ_MB": float(read),
        _LOG_BYTES: float(logs),
        "TOTAL_IO_WRITE_MB": float(written),
    }


# --- strategies -------------------------------------------------------------------------------------------

_Operations: TypeAlias = Sequence[CompactionOperation]
_Strategy: TypeAlias = Callable[[_Operations, CompactLimits], _Operations]


def _cut_to_target(operations: _Operations, limits: CompactLimits) -> _Operations:
    remaining_mb, chosen = limits.target_io_mb, []
    for operation in operations:
        remaining_mb -= int(operation.metrics[_IO])
        chosen.append(operation)
        if remaining_mb <= 0:
            break
    return chosen


def _choose_by_size(operations: _Operations, limits: CompactLimits) -> _Operations:
    large = (operation for operation in operations if operation.metrics[_LOG_BYTES] >= limits.least_log_bytes)
    return _cut_to_target(sorted(large, key=lambda operation: -operation.metrics[_LOG_BYTES]), limits)


def _choose_by_number(operations: _Operations, limits: CompactLimits) -> _Operations:
    many = (operation for operation in operations if operation.metrics[_LOG_FILES] >= limits.least_log_files)
    return _cut_to_target(sorted(many, key=lambda operation: -operation.metrics[_LOG_FILES]), limits)


def _choose_outgrown(operations: _Operations, limits: CompactLimits) -> _Operations:
    """Choose slices with many or large log files.

    If any slice reaches the limit of log files or of bytes, the slices with at least half the limit of log files are
    chosen, too, because they would soon need a compaction of their own. Otherwise, no slice is chosen.
    """
    if not any(_has_many(operation, limits.least_log_files) or _has_large(operation) for operation in operations):
        return ()
    chosen = (
        operation
        for operation in operations
        if _has_many(operation, -(-limits.least_log_files // 2)) or _has_large(operation)
    )
    return _cut_to_target(
        sorted(chosen, key=lambda operation: (-operation.metrics[_LOG_FILES], -operation.metrics[_LOG_BYTES])), limits
    )


def _has_many(operation: CompactionOperation, least: int) -> bool:
    return operation.metrics[_LOG_FILES] >= least


def _has_large(operation: CompactionOperation) -> bool:
    """Tell whether the log files have at least `_LARGE_LOG_BYTES` and at least as many bytes as the base file."""
    logs = operation.metrics[_LOG_BYTES]
    written = operation.metrics["TOTAL_IO_WRITE_MB"] * _MEGABYTE if operation.base_name else 0.0
    return logs >= max(written, _LARGE_LOG_BYTES)


def _choose_newest_days(operations: _Operations, limits: CompactLimits) -> _Operations:
    days = sorted({_parse_day(operation) for operation in operations}, reverse=True)[: limits.days]
    chosen = (operation for operation in operations if _parse_day(operation) in days)
    return sorted(chosen, key=_parse_day, reverse=True)


def _choose_since_days(operations: _Operations, limits: CompactLimits) -> _Operations:
    """Choose the slices whose partition's date is at most ``limits.days`` days before today."""
    first = limits.today - timedelta(days=limits.days)
    return sorted(
        (operation for operation in operations if _parse_day(operation) >= first), key=_parse_day, reverse=True
    )


def _choose_before_days(operations: _Operations, limits: CompactLimits) -> _Operations:
    """Choose the slices whose partition has an older date than `_choose_since_days` allows, or no date."""
    first = limits.today - timedelta(days=limits.days)
    return sorted(
        (operation for operation in operations if _parse_day(operation) < first), key=_parse_day, reverse=True
    )


def _parse_day(operation: CompactionOperation) -> date:
    """Parse the date in a partition path (``2025/11/20``, ``2025-11-20``, either with ``name=`` before a part).

    Return `date.min` if the path contains no date.
    """
    values = [part.rpartition("=")[2] for part in operation.partition_path.split("/")]
    for form, count in (("%Y/%m/%d", 3), ("%Y-%m-%d", 1)):
        try:
            return datetime.strptime("/".join(values[:count]), form).date()
        except ValueError:
            continue
    return date.min


def _choose_matching(operations: _Operations, limits: CompactLimits) -> _Operations:
    if limits.pattern is None:
        return operations
    whole = re.compile(limits.pattern)
    return [operation for operation in operations if whole.fullmatch(operation.partition_path)]


_STRATEGIES: Final[Mapping[str, _Strategy]] = {
    "LogFileSizeBasedCompactionStrategy": _choose_by_size,
    "LogFileNumBasedCompactionStrategy": _choose_by_number,
    "BoundedIOCompactionStrategy": _cut_to_target,
    "UnBoundedCompactionStrategy": lambda operations, _: operations,
    "DayBasedCompactionStrategy": _choose_newest_days,
    "BoundedPartitionAwareCompactionStrategy": _choose_since_days,
    "UnBoundedPartitionAwareCompactionStrategy": _choose_before_days,
    "PartitionRegexBasedCompactionStrategy": _choose_matching,
    OUTGROWN: _choose_outgrown,
}


#: If a commit appends at least this many bytes to one slice, the table is searched for slices with large log files.
_LARGE_APPEND_BYTES: Final = 4 << 20


def may_show_outgrown(commit: CommitMetadata, auto: AutoCompaction) -> bool:
    """Tell whether a slice that the commit appended to may have outgrown its base file."""
    return any(
        len(stat.log_names) >= auto.log_files or (stat.log_names and stat.size_bytes >= _LARGE_APPEND_BYTES)
        for stat in commit.all_stats()
    )


def may_run(pending: Iterable[tuple[Instant, CompactionPlan | None]]) -> bool:
    """Tell whether an automatic compaction may run: only automatic compaction plans are pending, and none is running.

    Args:
        pending: all pending instants; each compaction with its plan, any other with None.
    """
    return all(
        instant.action is Action.COMPACTION and instant.state is State.REQUESTED and plan is not None and plan.is_auto
        for instant, plan in pending
    )


def are_all_marked(commits: Iterable[CommitMetadata], mark: str) -> bool:
    """Tell whether lakeformat made all of the commits.

    Args:
        mark: the key in the extra metadata of every commit that lakeformat makes.
    """
    return all(mark in commit.extra for commit in commits)
