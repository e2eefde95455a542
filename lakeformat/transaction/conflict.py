"""Did another commit touch what we touch? (Hudi: ``SimpleConcurrentFileWritesConflictResolutionStrategy``.)"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from lakeformat.errors import WriteConflictError
from lakeformat.model.commit import CommitMetadata
from lakeformat.model.files import FileGroupId

__all__ = ["OverlapError", "check_conflicts", "check_plans", "touched_groups"]


class OverlapError(WriteConflictError):
    """A commit that has completed changed the same file groups: what was made of the old ones is worth nothing."""


def touched_groups(metadata: CommitMetadata) -> frozenset[FileGroupId]:
    """File groups a commit wrote or replaced."""
    written = {FileGroupId(stat.partition_path, stat.file_id) for stat in metadata.all_stats()}
    replaced = {FileGroupId(partition, id_) for partition, ids in metadata.replaced.items() for id_ in ids}
    return frozenset(written | replaced)


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
                f"run the write again, it will start from {time}"
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
            f"{planned[first]} is going to rewrite; {way_past(planned[first])}"
        )
