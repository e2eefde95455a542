"""Did another commit touch what we touch? (Hudi: ``SimpleConcurrentFileWritesConflictResolutionStrategy``.)"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from lakeformat.errors import WriteConflictError
from lakeformat.model.commit import CommitMetadata
from lakeformat.model.files import FileGroupId

__all__ = ["OverlapError", "check_conflicts", "touched_groups"]


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
    planned: Mapping[FileGroupId, str],
    overwritten: frozenset[str] | None,
) -> None:
    """Refuse to publish over somebody else's work.

    Args:
        ours: our instant time, for the message.
        touched: file groups we wrote a new version of, or replace; new groups cannot conflict.
        others: commits completed since we started, whatever their time.
        planned: file groups that pending clusterings are going to replace -> the plan's instant.
        overwritten: partitions whose whole contents we replace; None if we replace none.

    Raises:
        OverlapError: a completed commit; names both instants.
        WriteConflictError: a pending clustering; names both instants.
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
    waiting = touched & planned.keys()
    if waiting:
        first = min(waiting)
        raise WriteConflictError(
            f"commit {ours} touches {len(waiting)} file group(s) that the pending clustering {planned[first]} is going "
            f"to rewrite, e.g. {first.file_id}; run or cancel that clustering first"
        )
