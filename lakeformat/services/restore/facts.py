"""Checks before a restore or rollback: the resulting state, and whether all of its files exist."""

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
    """Return the times of pending clustering plans."""
    return frozenset(store.pending_clustering(timeline).values())


def state_at(engine: Engine, config: TableConfig, timeline: Timeline, target: Instant, *, doing: str) -> Snapshot:
    """Return the snapshot without all writes that came after a commit.

    Lists the table twice. Memory: one object per file.

    Raises:
        InstantNotAvailableError: files of that state have been cleaned, or commits after it have been archived.
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
    """Return the snapshot without some writes. Errors as in `state_at`."""
    store, location = engine.store, engine.storage.location
    metadatas = [(instant, store.commit(instant)) for instant in undone if instant.state is State.COMPLETED]
    missing = missing_before(metadatas, list_files(engine.storage), location)
    if missing is not None:
        raise InstantNotAvailableError(f"cannot {doing}: {missing}; choose a later instant")
    left = timeline.without(frozenset(instant.time for instant in undone))
    return list_snapshot(store, config, left, travelling=True)
