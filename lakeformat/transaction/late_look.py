"""Look at the timeline once more after a commit, where the lock excludes no other process.

Between the last check and the completed file another writer may have published a commit that was made of the same
files. Nothing can be taken back then: others may have read both. So both are named: in an error if our rows are the
hidden ones, in the log if we hide those of others.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from typing import Final

from lakeformat.errors import CommitStateUnknownError, WriteConflictError
from lakeformat.model.commit import CommitMetadata
from lakeformat.model.instant import Instant
from lakeformat.storage.port import Storage
from lakeformat.timeline.store import TimelineStore
from lakeformat.timeline.timeline import Timeline
from lakeformat.transaction.lost_writes import LostWrite, lost_writes, overlaps

__all__ = ["look_again", "warn_of_writers"]

_LOG: Final = logging.getLogger("lakeformat.write")
#: File groups that a message names.
_NAMED: Final = 5
#: Locations of the tables that this process has warned of.
_WARNED: Final[set[str]] = set()


def warn_of_writers(storage: Storage) -> None:
    """Log once for each table that its storage is for one writer at a time, if the lock excludes no other process."""
    if not storage.has_lock and storage.location not in _WARNED:
        _WARNED.add(storage.location)
        _LOG.warning(
            "%s is on storage without a lock between processes, which is for one writer at a time: write to it from "
            "one process only; if another writes at the same moment, rows may be lost, which an error or check() names",
            storage.location,
        )


def look_again(
    store: TimelineStore,
    ours: Instant,
    metadata: CommitMetadata,
    seen: Timeline,
    check_new_keys: Callable[[Sequence[tuple[str, CommitMetadata]]], None] | None,
) -> None:
    """Compare our commit with those that completed since it was checked last.

    Args:
        seen: the timeline that it was checked against.

    Raises:
        CommitStateUnknownError: another commit hides files of ours; the commit stands.
    """
    now = store.load()
    late = [instant for instant in now.commits if instant.time not in {*seen.commit_times, ours.time}]
    if not late:
        return
    said = {instant.time: store.commit(instant) for instant in late}
    began_before = {instant.time for instant in seen.pending}
    beside = [(time, other) for time, other in said.items() if time in began_before]
    by_name = not store.layout.tells_completion
    commits = [(i, metadata if i.time == ours.time else store.commit(i)) for i in now.commits]
    lost = [each for each in lost_writes(commits, {}, by_name=by_name) if {each.lost, each.kept} & said.keys()]
    for time, other in beside if by_name else ():
        lost += [LostWrite(group, ours.time, time, stat) for group, stat in overlaps(metadata, other)]
        lost += [LostWrite(group, time, ours.time, stat) for group, stat in overlaps(other, metadata)]
    location = store.storage.location
    for time in sorted({each.lost for each in lost if each.kept == ours.time}):
        _LOG.error("%s", _told(location, time, ours.time, [each for each in lost if each.lost == time]))
    if check_new_keys is not None and beside:
        try:
            check_new_keys(beside)
        except WriteConflictError as error:
            _LOG.error("%s: commit %s stands beside another: %s; check() names the keys", location, ours.time, error)
    hidden = [each for each in lost if each.lost == ours.time]
    if hidden:
        raise CommitStateUnknownError(_told(location, ours.time, hidden[0].kept, hidden))


def _told(location: str, lost: str, kept: str, found: Iterable[LostWrite]) -> str:
    groups = sorted({each.group for each in found})
    named = ", ".join(group.file_id for group in groups[:_NAMED]) + (", ..." if len(groups) > _NAMED else "")
    return (
        f"commits {lost} and {kept} of {location} were made at the same time from the same files, and {kept} hides "
        f"what {lost} wrote to {len(groups)} file group(s) ({named}): this storage is for one writer at a time; stop "
        f"the other writer, then write the rows of commit {lost} again (check() names its files)"
    )
