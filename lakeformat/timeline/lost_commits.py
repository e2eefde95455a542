"""Commits whose completed files are gone: they look like writes that are under way.

A writer of lakeformat releases its claim only after its instant has completed, was rolled back, or is a plan again. So
an inflight file of lakeformat, which has a checksum, is never without a claim while its write is under way. And no
commit builds on files of a write that has not completed, whichever program writes.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Final

from lakeformat.codec.timeline_files.commit import CHECKSUM_KEY
from lakeformat.errors import CorruptTableError
from lakeformat.model.instant import REPLACE_ACTIONS, WRITE_ACTIONS, Action, Instant, State
from lakeformat.storage.port import is_remote, own_path
from lakeformat.timeline.damaged_commits import read_commit_if_whole
from lakeformat.timeline.store import TimelineStore
from lakeformat.timeline.timeline import Timeline

__all__ = ["CLAIMS", "check_no_commit_is_skipped", "check_no_lost_commits", "find_lost_commits"]

#: Folder of the files that mark pending instants of lakeformat.
CLAIMS: Final = own_path("pending")
#: A compaction is not among them: its plan opens slices, to which other writers may append before it has run.
_ACTIONS: Final = WRITE_ACTIONS - {Action.COMPACTION, Action.LOG_COMPACTION}


def find_lost_commits(store: TimelineStore, timeline: Timeline, *, by_checksum: bool = True) -> tuple[Instant, ...]:
    """Return the commits whose completed files are gone: those of lakeformat, and those on which later ones rest.

    Args:
        by_checksum: whether an inflight file of lakeformat without a claim is enough. On storage without locks it may
            have been delivered late, after its write was undone.
    """
    newest = max(timeline.commit_times, default="")
    pending = [i for i in timeline.pending if i.action in _ACTIONS]
    suspects = [i for i in pending if i.state is State.INFLIGHT or i.time < newest]
    if not suspects:
        return ()
    claimed = {entry.name for entry in store.storage.list(CLAIMS)}
    suspects = [i for i in suspects if i.time not in claimed]
    suspects = [i for i in suspects if (by_checksum and _has_checksum(store, i)) or _is_built_on(store, timeline, i)]
    if not suspects:
        return ()
    still_pending = frozenset(store.load().pending)  # One may have completed before the claims were listed.
    return tuple(instant for instant in suspects if instant in still_pending)


def _has_checksum(store: TimelineStore, instant: Instant) -> bool:
    """Tell whether the instant has an inflight file, and lakeformat wrote it."""
    if instant.state is not State.INFLIGHT:
        return False
    with suppress(FileNotFoundError):
        return CHECKSUM_KEY.encode() in store.read(instant)
    return False


def _is_built_on(store: TimelineStore, timeline: Timeline, instant: Instant) -> bool:
    """Tell whether a later commit builds on files of the instant.

    The plan of a clustering that splits or merges buckets opens slices, to which other writers may append before it has
    run. So log files tell nothing there.
    """
    with_logs = instant.action not in REPLACE_ACTIONS
    later = (read_commit_if_whole(store, commit) for commit in timeline.commits if commit.time > instant.time)
    stats = (stat for metadata in later if metadata is not None for stat in metadata.all_stats())
    return any(stat.base_instant == instant.time and (with_logs or stat.log_file is None) for stat in stats)


def check_no_lost_commits(store: TimelineStore, timeline: Timeline) -> None:
    """Check that no commit has lost its completed file: a write would start from the table without its rows.

    Raises:
        CorruptTableError: a commit has lost its file.
    """
    for lost in find_lost_commits(store, timeline):
        raise CorruptTableError(_describe(store, lost))


def check_no_commit_is_skipped(store: TimelineStore, timeline: Timeline) -> None:
    """Check that no commit before the newest has lost its completed file: a read would have some of its rows only.

    Without the newest commit, a read has the rows of the commit before, as while that commit was being made. While
    commits are undone, they have no completed files, and later ones may exist.

    Raises:
        CorruptTableError: a commit between others has lost its file.
    """
    newest = max(timeline.commit_times, default="")
    if any(i.action in _ACTIONS and i.time < newest for i in timeline.pending) and not timeline.is_being_undone:
        for lost in find_lost_commits(store, timeline, by_checksum=not is_remote(store.storage)):
            if lost.time < newest:
                raise CorruptTableError(f"{_describe(store, lost)}; reads as of a commit before it are right")


def _describe(store: TimelineStore, lost: Instant) -> str:
    return (
        f"{store.storage.location}: commit {lost.time} has completed, but its completed file in {store.layout.folder} "
        "is gone; restore that file from a copy, or give the commit up: lakeformat check says whether rollback or "
        "restore does"
    )
