"""What has become of the table since a snapshot of the index: a proof that we know all of it, and the changes.

A snapshot of the index stands for a set of completed commits. It may be carried on to a later timeline if

- every commit it covers is still active: none was rolled back or restored away;
- the archive is as it was: nothing that came since can have been archived unseen (Hudi's ``HoodieTimelineArchiver``
  writes the archive before it takes instants off the timeline);
- whatever was pending then is pending still, has completed (and is then replayed, old as its time may be), or was
  rolled back by a rollback that is on the timeline.

The commits that it does not cover are replayed, whoever made them. No proof, no index: the folders are listed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

import pyarrow as pa

from lakeformat.model.commit import CommitMetadata
from lakeformat.model.files import BaseFile, BaseFileName, FileGroupId, join_path
from lakeformat.model.instant import WRITE_ACTIONS, Instant
from lakeformat.storage.port import check_path
from lakeformat.table_state.file_index.columns import key_of
from lakeformat.table_state.file_index.stored import Covered
from lakeformat.timeline.timeline import Timeline

__all__ = ["Changes", "covered_by", "files_of", "replaced_keys", "to_replay"]


@dataclass(frozen=True)
class Changes:
    """What commits did since: files they wrote, and keys of the groups that are replaced.

    Attributes:
        files: one table a commit.
    """

    files: tuple[pa.Table, ...]
    replaced: pa.Array

    @property
    def is_empty(self) -> bool:
        """Whether nothing changed."""
        return not len(self.replaced) and not any(table.num_rows for table in self.files)


def covered_by(timeline: Timeline) -> Covered:
    """What a snapshot made at this timeline stands for."""
    pending = frozenset(instant.time for instant in timeline.pending if instant.action in WRITE_ACTIONS)
    return Covered(timeline.commit_times, pending, timeline.archive)


def to_replay(
    covered: Covered, whole: Timeline, as_of: str | None, rolled_back: Callable[[], frozenset[str]]
) -> tuple[Instant, ...] | None:
    """The commits that the snapshot lacks at an instant, oldest first; None if it cannot be carried on to there.

    Args:
        whole: the timeline, not cut, loaded with the mark of its archive.
        rolled_back: times of the commits that rollbacks on the timeline have undone.
    """
    cut = whole if as_of is None else whole.as_of(as_of)
    if not covered.commits or not covered.commits <= cut.commit_times:
        return None
    if whole.archive is None or whole.archive != covered.archive:
        return None
    known = {instant.time for instant in whole.instants if instant.action in WRITE_ACTIONS}
    gone = covered.pending - known
    if gone and not gone <= rolled_back():
        return None
    return tuple(instant for instant in cut.commits if instant.time not in covered.commits)


def files_of(metadata: CommitMetadata, measure: Callable[[str], int | None]) -> list[BaseFile] | None:
    """The file versions a commit wrote; None if its statistics do not tell.

    Args:
        measure: bytes of a file that the commit gives no size of; None if it is not there.

    Raises:
        CorruptTableError: a path leads out of the table.
    """
    files = []
    for stat in metadata.all_stats():
        if not stat.path:
            continue
        name = BaseFileName.match(stat.path.rpartition("/")[2])
        if name is None or name.file_id != stat.file_id:
            return None
        path = check_path(join_path(stat.partition_path, str(name)))
        size_bytes = stat.size_bytes or measure(path)
        if not size_bytes:
            return None
        files.append(BaseFile(stat.partition_path, name, size_bytes))
    return files


def replaced_keys(groups: Iterable[FileGroupId]) -> pa.Array:
    """`key_of` each group."""
    return pa.array(sorted(map(key_of, groups)), pa.string())
