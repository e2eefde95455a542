"""The clustering plans that stand on the timeline."""

from __future__ import annotations

from collections.abc import Mapping

from lakeformat.errors import CorruptTableError
from lakeformat.model.clustering import ClusteringPlan
from lakeformat.model.instant import REPLACE_ACTIONS, Instant
from lakeformat.timeline.store import TimelineStore
from lakeformat.timeline.timeline import Timeline

__all__ = ["clustered_by", "may_cluster", "pending_plans"]


def pending_plans(store: TimelineStore, timeline: Timeline) -> dict[str, tuple[Instant, ClusteringPlan]]:
    """Instant time -> instant and plan of every clustering that is planned or runs, oldest first."""
    found = {}
    for instant in timeline.pending:
        if instant.action in REPLACE_ACTIONS:
            requested = store.requested_replace(instant)
            if requested is not None and requested.plan is not None:
                found[instant.time] = instant, requested.plan
    return found


def clustered_by(store: TimelineStore, timeline: Timeline, instant_time: str) -> Mapping[str, str] | None:
    """The params by which the commit of this time clustered; None if it did not, or has left the timeline."""
    instant = timeline.find(instant_time)
    if instant is None or instant.action not in REPLACE_ACTIONS:
        return None
    requested = store.requested_replace(instant)
    return requested.plan.params if requested is not None and requested.plan is not None else None


def may_cluster(store: TimelineStore, instant: Instant) -> bool:
    """Whether a pending instant is a clustering, or may be one: its plan cannot be read."""
    if instant.action not in REPLACE_ACTIONS:
        return False
    try:
        requested = store.requested_replace(instant)
    except CorruptTableError:
        return True
    return requested is not None and requested.plan is not None
