"""Conflict checks between commits (Hudi: ``SimpleConcurrentFileWritesConflictResolutionStrategy``)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace

from lakeformat.errors import WriteConflictError
from lakeformat.model.commit import CommitMetadata, WriteStat
from lakeformat.model.files import FileGroupId, LogFileName

__all__ = [
    "OverlapError",
    "check_conflicts",
    "check_plans",
    "list_touched_groups",
    "reduce_compactions",
    "would_be_hidden",
]


class OverlapError(WriteConflictError):
    """A completed commit changed the same file groups, so files made from their old versions cannot be published."""


def list_touched_groups(metadata: CommitMetadata) -> frozenset[FileGroupId]:
    """Return the file groups that a commit wrote or replaced."""
    written = {FileGroupId(stat.partition_path, stat.file_id) for stat in metadata.all_stats()}
    replaced = {FileGroupId(partition, id_) for partition, ids in metadata.replaced.items() for id_ in ids}
    return frozenset(written | replaced)


def would_be_hidden(stat: WriteStat, time: str, compacted: str, *, by_name: bool) -> bool:
    """Tell whether a compaction hides the rows of a file.

    The compaction is assumed not to have read the file.

    Args:
        stat: statistics of the file.
        time: instant time of the commit that wrote the file.
        compacted: the compaction's instant time.
        by_name: whether the name of a log file gives its slice (timeline layout 1). If not, a log file that is written
            while the compaction runs belongs to the slice that the compaction opens.
    """
    log = LogFileName.match(stat.path.rpartition("/")[2])
    return time < compacted if log is None else by_name and log.instant_time < compacted


def reduce_compactions(
    time: str, ours: CommitMetadata, others: Iterable[tuple[str, CommitMetadata]], *, by_name: bool
) -> list[tuple[str, CommitMetadata]]:
    """Return the other commits. Of a compaction, return only the files that would hide files of our commit.

    All other files of a compaction hold the same rows as before, so they conflict with no write.

    Args:
        time: instant time of our commit.
        ours: metadata of our commit.
        others: (instant time, metadata) of the other commits.
        by_name: see `would_be_hidden`.
    """
    return [
        (other, _reduce_to_hiding(metadata, other, time, ours, by_name=by_name) if metadata.compacted else metadata)
        for other, metadata in others
    ]


def _reduce_to_hiding(
    compaction: CommitMetadata, compacted: str, time: str, ours: CommitMetadata, *, by_name: bool
) -> CommitMetadata:
    """Return the compaction with only the files that hide files of our commit."""
    hidden = {
        FileGroupId(stat.partition_path, stat.file_id)
        for stat in ours.all_stats()
        if would_be_hidden(stat, time, compacted, by_name=by_name)
    }
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
    """Refuse to publish over another writer's commit.

    Args:
        ours: our instant time, for the message.
        touched: file groups that we wrote a new version of, or replace; new groups cannot conflict.
        others: commits completed since we started, whatever their instant time.
        overwritten: partitions whose whole contents we replace; None if we replace none.

    Raises:
        OverlapError: the message names both instants.
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


def check_plans(
    touched: frozenset[FileGroupId], planned: Mapping[FileGroupId, str], advise: Callable[[str], str]
) -> None:
    """Refuse to change file groups that a pending clustering is going to rewrite.

    Args:
        touched: file groups that the write has rows for, or replaces.
        planned: file groups that pending clusterings are going to replace -> the plan's instant.
        advise: returns advice about a pending plan.

    Raises:
        WriteConflictError: the message names the plan's instant.
    """
    waiting = touched & planned.keys()
    if waiting:
        first = min(waiting)
        raise WriteConflictError(
            f"the write touches {len(waiting)} file group(s), e.g. {first.file_id}, that the pending clustering "
            f"{planned[first]} is going to rewrite; {advise(planned[first])}",
            file_ids={group.file_id for group in waiting},
        )
