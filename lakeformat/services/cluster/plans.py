"""The clustering plans that stand on the timeline."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Final

from lakeformat.errors import CorruptTableError
from lakeformat.model.clustering import ClusteringPlan
from lakeformat.model.instant import REPLACE_ACTIONS, Instant
from lakeformat.storage.port import Storage, own_path
from lakeformat.table_state.snapshot import Snapshot
from lakeformat.timeline.store import TimelineStore
from lakeformat.timeline.timeline import Timeline

__all__ = ["clustered_by", "may_cluster", "note_clusterings", "pending_plans", "stale_file"]


_NOTE: Final = own_path("clustered")
#: Archived clusterings that are remembered.
_NOTED: Final = 200


def pending_plans(store: TimelineStore, timeline: Timeline) -> dict[str, tuple[Instant, ClusteringPlan]]:
    """Instant time -> instant and plan of every clustering that is planned or runs, oldest first."""
    found = {}
    for instant in timeline.pending:
        if instant.action in REPLACE_ACTIONS:
            requested = store.requested_replace(instant)
            if requested is not None and requested.plan is not None:
                found[instant.time] = instant, requested.plan
    return found


def stale_file(plan: ClusteringPlan, snapshot: Snapshot, store: TimelineStore) -> str | None:
    """Why a plan cannot be carried out any more; None if its slices are the table's, and as they were.

    A log file that no commit names is no change: a rollback wrote it, or a writer that died or still runs.
    """
    live = {piece.group: piece for piece in snapshot.each_slice()}
    later: set[str] = set()
    for one in (one for group in plan.groups for one in group.slices):
        piece = live.get(one.group)
        there = {str(log.name): log.path for log in piece.logs} if piece else {}
        if piece is None or (str(piece.base.name) if piece.base else "") != one.name:
            return f"was planned for {one.name or one.file_id}, which is not the table's any more"
        gone = next((name for name in one.log_names if name not in there), None)
        if gone is not None:
            return f"was planned for {gone}, which is not the table's any more"
        later.update(path for name, path in there.items() if name not in one.log_names)
    commits = (store.commit(instant) for instant in snapshot.timeline.commits) if later else ()
    for commit in commits:
        written = next((stat.path for stat in commit.all_stats() if stat.path in later), None)
        if written is not None:
            return f"was planned before {written} was written to its file groups"
    return None


def clustered_by(store: TimelineStore, timeline: Timeline, instant_time: str) -> Mapping[str, str] | None:
    """The params by which the commit of this time clustered; None if it did not, or nobody knows any more."""
    instant = timeline.find(instant_time)
    if instant is None:
        return _noted(store.storage).get(instant_time)
    if instant.action not in REPLACE_ACTIONS:
        return None
    requested = store.requested_replace(instant)
    return requested.plan.params if requested is not None and requested.plan is not None else None


def note_clusterings(store: TimelineStore, timeline: Timeline, leaving: Iterable[Instant]) -> None:
    """Note in our own corner by what the clusterings among these went, before they are archived.

    Their files are then not taken for ones that nobody has clustered. The newest few are kept: the note may be lost.
    """
    found = {
        instant.time: dict(params)
        for instant in leaving
        if instant.action in REPLACE_ACTIONS and (params := clustered_by(store, timeline, instant.time)) is not None
    }
    if found:
        noted = {**_noted(store.storage), **found}
        newest = dict(sorted(noted.items())[-_NOTED:])
        store.storage.replace(_NOTE, json.dumps(newest).encode())


def _noted(storage: Storage) -> dict[str, dict[str, str]]:
    try:
        found = json.loads(storage.read(_NOTE))
    except (FileNotFoundError, ValueError, RecursionError):
        return {}
    return {time: params for time, params in found.items() if isinstance(params, dict)} if type(found) is dict else {}


def may_cluster(store: TimelineStore, instant: Instant) -> bool:
    """Whether a pending instant is a clustering, or may be one: its plan cannot be read."""
    if instant.action not in REPLACE_ACTIONS:
        return False
    try:
        requested = store.requested_replace(instant)
    except CorruptTableError:
        return True
    return requested is not None and requested.plan is not None
