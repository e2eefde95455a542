"""A last check of the timeline after a commit, for storage whose lock does not exclude other processes.

Between the last check and the completed file another writer may have published a commit that was made of the same
files. Neither commit can be undone then, because others may have read both. So both are named: in an error if the other
commit hides our rows, in the log if we hide the other's.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Final

from lakeformat.errors import CommitStateUnknownError, WriteConflictError
from lakeformat.model.clustering import ClusteringPlan
from lakeformat.model.commit import CommitMetadata
from lakeformat.model.compaction import CompactionPlan
from lakeformat.model.files import FileGroupId
from lakeformat.model.instant import Action, Instant
from lakeformat.storage.port import Storage
from lakeformat.timeline.store import TimelineStore
from lakeformat.timeline.timeline import Timeline
from lakeformat.transaction.lost_writes import LostWrite, Sources, Taken, lost_writes, overlaps, sources_of

__all__ = ["look_again", "plan_sources", "warn_of_writers"]

_LOG: Final = logging.getLogger("lakeformat.write")
#: Most file groups that a message names.
_NAMED: Final = 5
#: Locations of the tables that this process has warned of.
_WARNED: Final[set[str]] = set()


def warn_of_writers(storage: Storage) -> None:
    """Log once per table that its storage is for one writer at a time, if its lock does not exclude other processes."""
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
    """Compare our commit with the commits that completed since its last check. Log the other's loss, raise for ours.

    Args:
        seen: the timeline that our commit was checked against.

    Raises:
        CommitStateUnknownError: another commit hides our files; our commit stays on the timeline.
    """
    now = store.load()
    late = [instant for instant in now.commits if instant.time not in {*seen.commit_times, ours.time}]
    if not late:
        return
    by_name = not store.layout.tells_completion
    commits = {i.time: (i, metadata if i.time == ours.time else store.commit(i)) for i in now.commits}
    late_times = {instant.time for instant in late}
    found = lost_writes(commits.values(), plan_sources(store, now, late_times), by_name=by_name)
    lost = [each for each in found if {each.lost, each.kept} & late_times]
    beside = [commits[instant.time] for instant in late if _began_before(store, instant, ours, seen)]
    for other in beside:
        mine = commits[ours.time]
        lost += [*overlaps(mine, other, by_name=by_name), *overlaps(other, mine, by_name=by_name)]
    location = store.storage.location
    for time in sorted({each.lost for each in lost if each.kept == ours.time}):
        _LOG.error("%s", _loss_message(location, time, ours.time, [each for each in lost if each.lost == time]))
    if check_new_keys is not None and beside:
        try:
            check_new_keys([(instant.time, other) for instant, other in beside])
        except WriteConflictError as error:
            _LOG.error("%s: commit %s was published beside another: %s; check() names them", location, ours.time, error)
    hidden = [each for each in lost if each.lost == ours.time]
    if hidden:
        raise CommitStateUnknownError(_loss_message(location, ours.time, hidden[0].kept, hidden))


def _began_before(store: TimelineStore, other: Instant, ours: Instant, seen: Timeline) -> bool:
    """Tell whether another commit was requested before ours was completed, so that it may not have read ours."""
    if any(instant.time == other.time for instant in seen.pending):
        return True
    done = store.info(ours)
    began = [info for request in store.layout.requests(other) if (info := store.info(request)) is not None]
    return done is not None and any(info.modified_ms <= done.modified_ms for info in began)


def plan_sources(store: TimelineStore, timeline: Timeline, times: Collection[str]) -> Sources:
    """Return the slices that the completed plans of these times have read."""
    found: dict[str, Mapping[FileGroupId, Taken]] = {}
    for instant in (*timeline.commits, *timeline.plans):
        if instant.time not in times:
            continue
        with suppress(FileNotFoundError):
            if instant.action is Action.REPLACE_COMMIT:
                requested = store.requested_replace(instant)
                plan: ClusteringPlan | CompactionPlan | None = requested.plan if requested is not None else None
            else:
                plan = store.compaction_plan(instant) if instant.action is Action.COMPACTION else None
            if plan is not None:
                found[instant.time] = sources_of(plan)
    return found


def _loss_message(location: str, lost: str, kept: str, found: Iterable[LostWrite]) -> str:
    groups = sorted({each.group for each in found})
    named = ", ".join(group.file_id for group in groups[:_NAMED]) + (", ..." if len(groups) > _NAMED else "")
    return (
        f"commits {lost} and {kept} of {location} were made at the same time from the same files, and {kept} hides "
        f"what {lost} wrote to {len(groups)} file group(s) ({named}): this storage is for one writer at a time; stop "
        f"the other writer, then write the rows of commit {lost} again (check() names its files)"
    )
