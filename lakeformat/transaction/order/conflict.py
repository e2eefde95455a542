"""Conflict checks between commits (Hudi: ``SimpleConcurrentFileWritesConflictResolutionStrategy``)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import TypeVar

from lakeformat.concurrency import Attempts
from lakeformat.errors import LakeformatError, TableNotFoundError, WriteConflictError
from lakeformat.model.commit import CommitMetadata, WriteStat
from lakeformat.model.files import FileGroupId, LogFileName

__all__ = [
    "OverlapError",
    "PendingActionError",
    "StalePlanError",
    "check_conflicts",
    "check_opened_slices",
    "check_plans",
    "conflict_of",
    "is_stuck",
    "list_touched_groups",
    "reduce_compactions",
    "repeat_after",
    "would_be_hidden",
]


_Result = TypeVar("_Result")


class OverlapError(WriteConflictError):
    """A completed commit changed file groups that our write changes, too.

    Our files were made without that commit's rows. They must not be published, because they would hide these rows.
    """


class PendingActionError(WriteConflictError):
    """A pending action prevents the write until its process, or anybody, ends it. So few repetitions are worth it."""


class StalePlanError(WriteConflictError):
    """The table's columns or version have changed since the write was planned. It must be planned again."""


def is_stuck(error: Exception) -> bool:
    """Tell whether repetition alone ends a conflict hardly ever: an action is pending, or a file is not there."""
    return isinstance(error, (PendingActionError, FileNotFoundError))


def repeat_after(
    conflicts: type[Exception] | tuple[type[Exception], ...],
    action: Callable[[], _Result],
    attempts: Attempts,
    before_repetition: Callable[[], object] = lambda: None,
) -> _Result:
    """Call an action, and again after each conflict while attempts are left.

    Args:
        conflicts: the errors after which the action is called again.
        before_repetition: called before each repetition, such as to forget what the last attempt has read.

    Raises:
        Exception: the error of the last attempt.
    """
    while True:
        try:
            return action()
        except conflicts as error:
            if not attempts.wait(error, is_stuck=is_stuck(error)):
                raise
            before_repetition()


def conflict_of(location: str, error: Exception) -> Exception:
    """Return the error for an attempt that another process has disturbed: a conflict, whatever the attempt raised."""
    if isinstance(error, (WriteConflictError, TableNotFoundError)):
        return error
    if isinstance(error, LakeformatError):
        return WriteConflictError(str(error))
    return WriteConflictError(f"a file of {location} was deleted by another process meanwhile ({error}); run it again")


def list_touched_groups(metadata: CommitMetadata) -> frozenset[FileGroupId]:
    """Return the file groups that a commit wrote or replaced."""
    return frozenset((*(stat.group for stat in metadata.all_stats()), *metadata.replaced_groups))


def would_be_hidden(stat: WriteStat, time: str, compacted: str, *, by_name: bool) -> bool:
    """Tell whether a compaction that has not read a file would hide the file's rows.

    It hides a base file with an earlier instant. It hides a log file only in timeline layout 1, and only if the instant
    in the log file's name is earlier.

    Args:
        stat: the file's write stat.
        time: instant time of the commit that wrote the file.
        compacted: the compaction's instant time.
        by_name: True if the instant in a log file's name is that of its file slice (timeline layout 1). If False, a
            log file that is written while the compaction runs belongs to the slice that the compaction opens.
    """
    log = LogFileName.match(stat.path.rpartition("/")[2])
    return time < compacted if log is None else by_name and log.instant_time < compacted


def reduce_compactions(
    time: str, ours: CommitMetadata, others: Iterable[tuple[str, CommitMetadata]], *, by_name: bool
) -> list[tuple[str, CommitMetadata]]:
    """Return the other commits. Leave out the files of compactions that would hide no file of our commit.

    A file of a compaction contains the same rows as the slice that it merged. So it conflicts with our commit only if
    it hides a file of our commit that the compaction has not read.

    Args:
        time: instant time of our commit.
        ours: metadata of our commit.
        others: (instant time, metadata) of the other commits.
        by_name: whether the instant in a log file's name is that of its slice (timeline layout 1).
    """
    return [
        (other, _reduce_to_hiding(metadata, other, time, ours, by_name=by_name) if metadata.compacted else metadata)
        for other, metadata in others
    ]


def _reduce_to_hiding(
    compaction: CommitMetadata, compacted: str, time: str, ours: CommitMetadata, *, by_name: bool
) -> CommitMetadata:
    """Return the compaction's metadata with only the files that would hide files of our commit.

    The base file that a compaction writes starts a new file slice of its file group. Readers use only the newest slice,
    so they no longer read the group's files of older slices. This loses rows of our commit if the compaction has not
    read our file. `would_be_hidden` tells which of our files are in an older slice.

    Args:
        compaction: metadata of the compaction.
        compacted: the compaction's instant time.
        time: instant time of our commit.
        ours: metadata of our commit.
        by_name: whether the instant in a log file's name is that of its slice (timeline layout 1).
    """
    hidden = {stat.group for stat in ours.all_stats() if would_be_hidden(stat, time, compacted, by_name=by_name)}
    kept = (
        (path, tuple(stat for stat in stats if FileGroupId(path, stat.file_id) in hidden))
        for path, stats in compaction.stats.items()
    )
    return replace(compaction, stats={path: stats for path, stats in kept if stats})


def check_conflicts(
    ours: str,
    touched: frozenset[FileGroupId],
    others: Iterable[tuple[str, CommitMetadata]],
    overwritten: frozenset[str] | None,
) -> None:
    """Raise an error if another writer's commit changed file groups or partitions that we change.

    Args:
        ours: our instant time, for the message.
        touched: existing file groups that we rewrote or replace. File groups that we created cannot conflict.
        others: (instant time, metadata) of the commits completed since we started, even if their time is earlier.
        overwritten: partitions whose whole contents we replace; None if we replace none.

    Raises:
        OverlapError: such a commit exists; the message names both instants.
    """
    for time, metadata in others:
        theirs = list_touched_groups(metadata)
        shared = touched & theirs
        if overwritten is not None:
            shared |= {group for group in theirs if group.partition_path in overwritten}
        if shared:
            raise OverlapError(
                f"commit {ours} overlaps commit {time} in {len(shared)} file group(s), e.g. {min(shared).file_id}; "
                f"run the write again, it will start from {time}",
                file_ids={group.file_id for group in shared},
            )


def check_opened_slices(stats: Iterable[WriteStat], planned: Mapping[FileGroupId, str]) -> None:
    """Check that no log file was added to a slice that a pending compaction has ended (timeline layout 1).

    The plan does not name the log file. If another program runs the plan, the log file's rows are lost.

    Args:
        stats: the write stats of our files.
        planned: maps file group to the instant time of the pending compaction that opened a slice in it.

    Raises:
        WriteConflictError: there is such a file, because the write did not know the plan.
    """
    for stat in stats:
        name = LogFileName.match(stat.path.rpartition("/")[2])
        time = planned.get(stat.group)
        if name is not None and not name.is_cdc and time is not None and name.instant_time < time:
            raise WriteConflictError(
                f"compaction {time} was planned for file group {stat.file_id} while this write began; run the write "
                "again"
            )


def check_plans(
    touched: frozenset[FileGroupId], planned: Mapping[FileGroupId, str], advise: Callable[[str], str]
) -> None:
    """Raise an error if a pending clustering is going to rewrite file groups that the write changes.

    Args:
        touched: file groups that the write has rows for, or replaces.
        planned: maps each file group that a pending clustering is going to replace to that clustering's instant time.
        advise: returns, for the instant time of a pending clustering, what the user can do; the message ends with it.

    Raises:
        PendingActionError: there is such a file group; the message names the clustering's instant.
    """
    waiting = touched & planned.keys()
    if waiting:
        first = min(waiting)
        raise PendingActionError(
            f"the write touches {len(waiting)} file group(s), e.g. {first.file_id}, that the pending clustering "
            f"{planned[first]} is going to rewrite; {advise(planned[first])}",
            file_ids={group.file_id for group in waiting},
        )
