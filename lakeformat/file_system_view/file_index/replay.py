"""The changes of a table since a snapshot of the file index, and the proof that no change is missed.

A snapshot of the index covers a set of completed commits. To bring it up to date with a later timeline, the completed
commits on the timeline that it does not cover are replayed, including those of other programs. This misses no change if
all of these conditions hold:

- Every commit that the snapshot covers is still active: none was rolled back, undone by a restore, or archived.
- The archive has not changed since the snapshot. Otherwise a commit could have completed and been archived since, and
  would be missing on the timeline. (Hudi's ``HoodieTimelineArchiver`` writes the archive before it removes instants
  from the timeline.)
- Each write that was pending at the snapshot is on the timeline, pending or completed, or was rolled back by a rollback
  that is on the timeline.
- No commit that is replayed was archived before the snapshot was made. Such a commit can be on a timeline that was
  listed while commits were being archived. It is older than a commit that the snapshot covers, was not pending at the
  snapshot, and its file is gone.

If one of the conditions does not hold, the snapshot is not used. If no snapshot can be used, the folders are listed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

import pyarrow as pa

from lakeformat.file_system_view.file_index.stored import CoveredTimeline, group_key
from lakeformat.model.commit import CommitMetadata
from lakeformat.model.files import BaseFile, BaseFileName, FileGroupId, join_path
from lakeformat.model.instant import WRITE_ACTIONS, Instant
from lakeformat.storage.port import check_path
from lakeformat.timeline.timeline import Timeline

__all__ = ["IndexChanges", "cover_timeline", "files_of_commit", "find_missing_commits", "replaced_group_keys"]


@dataclass(frozen=True)
class IndexChanges:
    """The changes of commits: files that they wrote, and file groups that they replaced.

    Attributes:
        files: the files written, one table per commit.
        replaced: the `group_key` (a text of partition path and file id) of each replaced file group.
    """

    files: tuple[pa.Table, ...]
    replaced: pa.Array

    @property
    def is_empty(self) -> bool:
        """Tell whether nothing changed."""
        return not len(self.replaced) and not any(table.num_rows for table in self.files)


def cover_timeline(timeline: Timeline) -> CoveredTimeline:
    """Return the commits, pending writes and archive state of a timeline, for storage in a new index snapshot."""
    pending = frozenset(instant.time for instant in timeline.pending if instant.action in WRITE_ACTIONS)
    return CoveredTimeline(timeline.commit_times, pending, timeline.archive)


def find_missing_commits(
    covered: CoveredTimeline,
    whole: Timeline,
    as_of: str | None,
    rolled_back: Callable[[], frozenset[str]],
    is_on_timeline: Callable[[Instant], bool],
) -> tuple[Instant, ...] | None:
    """Return the commits that must be replayed to bring an index snapshot up to date with an instant, oldest first.

    Return None if the index snapshot cannot be brought up to date.

    Args:
        whole: all active instants, with `Timeline.archive` loaded.
        as_of: the instant; None for now.
        rolled_back: returns the times of the commits that rollbacks on the timeline have undone.
        is_on_timeline: tells whether a commit of ``whole`` is still on the timeline. It is called for the commits that
            may have been archived since ``whole`` was listed.
    """
    cut = whole if as_of is None else whole.as_of(as_of)
    if not covered.commits or not covered.commits <= cut.commit_times:
        return None
    if whole.archive is None or whole.archive != covered.archive:
        return None
    times = {instant.time for instant in whole.instants if instant.action in WRITE_ACTIONS}
    gone = covered.pending - times
    if gone and not gone <= rolled_back():
        return None
    missing = tuple(instant for instant in cut.commits if instant.time not in covered.commits)
    last = max(covered.commits)
    old = (instant for instant in missing if instant.time < last and instant.time not in covered.pending)
    return missing if all(map(is_on_timeline, old)) else None


def files_of_commit(metadata: CommitMetadata, measure: Callable[[str], int | None]) -> list[BaseFile] | None:
    """Return the base files that a commit wrote; None if its write stats do not name them, or a file is missing.

    Args:
        measure: returns the size in bytes of the file at a path, or None if the file is missing. It is called if the
            write stats do not give the size.

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


def replaced_group_keys(groups: Iterable[FileGroupId]) -> pa.Array:
    """Return the sorted keys (`group_key`) of file groups as an array of texts."""
    return pa.array(sorted(map(group_key, groups)), pa.string())
