"""Did another commit touch what we touch? (Hudi: ``SimpleConcurrentFileWritesConflictResolutionStrategy``.)"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace

from lakeformat.errors import WriteConflictError
from lakeformat.model.commit import CommitMetadata, WriteStat
from lakeformat.model.files import FileGroupId, LogFileName

__all__ = ["OverlapError", "beside_compactions", "check_conflicts", "check_plans", "is_hidden", "touched_groups"]


class OverlapError(WriteConflictError):
    """A commit that has completed changed the same file groups: what was made of the old ones is worth nothing."""


def touched_groups(metadata: CommitMetadata) -> frozenset[FileGroupId]:
    """File groups a commit wrote or replaced."""
    written = {FileGroupId(stat.partition_path, stat.file_id) for stat in metadata.all_stats()}
    replaced = {FileGroupId(partition, id_) for partition, ids in metadata.replaced.items() for id_ in ids}
    return frozenset(written | replaced)


def is_hidden(stat: WriteStat, time: str, compacted: str, *, by_name: bool) -> bool:
    """Whether a file of the commit of this time would be hidden by base files of a compaction that does not know it.

    Args:
        compacted: the compaction's instant time.
        by_name: whether names of log files tell their slice (timeline layout 1); else a log file that is written
            while the compaction runs belongs to the slice that it opens.
    """
    log = LogFileName.match(stat.path.rpartition("/")[2])
    return time < compacted if log is None else by_name and log.instant_time < compacted


def beside_compactions(
    time: str, ours: CommitMetadata, others: Iterable[tuple[str, CommitMetadata]], *, by_name: bool
) -> list[tuple[str, CommitMetadata]]:
    """The others, and of the compactions among them only what would hide our files: else they change no rows.

    Args:
        time: of our commit.
        by_name: see `is_hidden`.
    """
    return [
        (other, _hiding(metadata, other, time, ours, by_name=by_name) if metadata.compacted else metadata)
        for other, metadata in others
    ]


def _hiding(
    compaction: CommitMetadata, compacted: str, time: str, ours: CommitMetadata, *, by_name: bool
) -> CommitMetadata:
    """Of a compaction what hides files of ours."""
    hidden = {
        FileGroupId(stat.partition_path, stat.file_id)
        for stat in ours.all_stats()
        if is_hidden(stat, time, compacted, by_name=by_name)
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
    """Refuse to publish over somebody else's commit.

    Args:
        ours: our instant time, for the message.
        touched: file groups we wrote a new version of, or replace; new groups cannot conflict.
        others: commits completed since we started, whatever their time.
        overwritten: partitions whose whole contents we replace; None if we replace none.

    Raises:
        OverlapError: names both instants.
    """
    for time, metadata in others:
        theirs = touched_groups(metadata)
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
    touched: frozenset[FileGroupId], planned: Mapping[FileGroupId, str], way_past: Callable[[str], str]
) -> None:
    """Refuse to change what somebody is going to rewrite.

    Args:
        touched: file groups that the write has rows for, or replaces.
        planned: file groups that pending clusterings are going to replace -> the plan's instant.
        way_past: tells what to do about a pending plan.

    Raises:
        WriteConflictError: names the plan's instant.
    """
    waiting = touched & planned.keys()
    if waiting:
        first = min(waiting)
        raise WriteConflictError(
            f"the write touches {len(waiting)} file group(s), e.g. {first.file_id}, that the pending clustering "
            f"{planned[first]} is going to rewrite; {way_past(planned[first])}",
            file_ids={group.file_id for group in waiting},
        )
