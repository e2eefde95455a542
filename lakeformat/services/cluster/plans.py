"""Clustering plans on the timeline."""

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
#: How many archived clusterings are noted.
_NOTED: Final = 200


def pending_plans(store: TimelineStore, timeline: Timeline) -> dict[str, tuple[Instant, ClusteringPlan]]:
    """Return instant time -> instant and plan of every pending clustering, requested or inflight, oldest first."""
    plans = {}
    for instant in timeline.pending:
        if instant.action in REPLACE_ACTIONS:
            requested = store.requested_replace(instant)
            if requested is not None and requested.plan is not None:
                plans[instant.time] = instant, requested.plan
    return plans


def stale_file(plan: ClusteringPlan, snapshot: Snapshot, store: TimelineStore) -> str | None:
    """Return why a plan can no longer be run; None if its slices are unchanged in the table.

    A log file that no commit names is not a change: it comes from a rollback, or from a writer that died or still runs.
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
    """Return the parameters of the clustering that committed at this time; None if it was not one, or is unknown."""
    instant = timeline.find(instant_time)
    if instant is None:
        return _read_note(store.storage).get(instant_time)
    if instant.action not in REPLACE_ACTIONS:
        return None
    requested = store.requested_replace(instant)
    return requested.plan.params if requested is not None and requested.plan is not None else None


def note_clusterings(store: TimelineStore, timeline: Timeline, leaving: Iterable[Instant]) -> None:
    """Note the parameters of the clusterings among these instants in lakeformat's folder, before they are archived.

    The next plan then recognises files that they wrote. Only the newest are kept. The note may be lost.
    """
    params_of = {
        instant.time: dict(params)
        for instant in leaving
        if instant.action in REPLACE_ACTIONS and (params := clustered_by(store, timeline, instant.time)) is not None
    }
    if params_of:
        noted = {**_read_note(store.storage), **params_of}
        newest = dict(sorted(noted.items())[-_NOTED:])
        store.storage.replace(_NOTE, json.dumps(newest).encode())


def _read_note(storage: Storage) -> dict[str, dict[str, str]]:
    try:
        found = json.loads(storage.read(_NOTE))
    except (FileNotFoundError, ValueError, RecursionError):
        return {}
    return {time: params for time, params in found.items() if isinstance(params, dict)} if type(found) is dict else {}


def may_cluster(store: TimelineStore, instant: Instant) -> bool:
    """Tell whether a pending instant is a clustering, or may be one because its plan cannot be read."""
    if instant.action not in REPLACE_ACTIONS:
        return False
    try:
        requested = store.requested_replace(instant)
    except CorruptTableError:
        return True
    return requested is not None and requested.plan is not None
