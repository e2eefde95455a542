"""What is looked at before anybody goes back: the state that would be had, and whether all of it is there."""

from __future__ import annotations

from collections.abc import Sequence

from lakeformat.errors import InstantNotAvailableError
from lakeformat.model.instant import Instant, State
from lakeformat.model.table_config import TableConfig
from lakeformat.services.restore.plan import after
from lakeformat.table_state.engine import Engine
from lakeformat.table_state.file_groups import list_files, missing_before
from lakeformat.table_state.snapshot import Snapshot, list_snapshot
from lakeformat.timeline.store import TimelineStore
from lakeformat.timeline.timeline import Timeline

__all__ = ["clustering_plans", "state_at", "state_before"]


def clustering_plans(store: TimelineStore, timeline: Timeline) -> frozenset[str]:
    """Times of pending clustering plans."""
    return frozenset(store.pending_clustering(timeline).values())


def state_at(engine: Engine, config: TableConfig, timeline: Timeline, target: Instant, *, doing: str) -> Snapshot:
    """The table as it would be without all that came after a commit.

    Two listings of the table; memory: an object a file.

    Raises:
        InstantNotAvailableError: files of that state have been cleaned away, or commits after it archived.
    """
    store, location = engine.store, engine.storage.location
    archived = store.archived().completed_in(target.completed_at)
    newer = [instant for instant in archived if instant.time not in timeline.commit_times]
    if newer:
        raise InstantNotAvailableError(
            f"{location}: cannot {doing}: commit {newer[0].time}, which came after {target.time}, has been archived, "
            "and what it did cannot be undone any more"
        )
    undone = after(timeline, target, clustering_plans(store, timeline))
    return state_before(engine, config, timeline, undone, doing=doing)


def state_before(
    engine: Engine, config: TableConfig, timeline: Timeline, undone: Sequence[Instant], *, doing: str
) -> Snapshot:
    """The table as it would be without some writes; errors as of `state_at`."""
    store, location = engine.store, engine.storage.location
    told = [(instant, store.commit(instant)) for instant in undone if instant.state is State.COMPLETED]
    missing = missing_before(told, list_files(engine.storage), location)
    if missing is not None:
        raise InstantNotAvailableError(f"cannot {doing}: {missing}; choose a later instant")
    left = timeline.without(frozenset(instant.time for instant in undone))
    return list_snapshot(store, config, left, travelling=True)
