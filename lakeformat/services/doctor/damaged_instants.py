"""Damaged files of cleans, rollbacks, restores and savepoints, and damaged plans: no row depends on them.

A completed clean, rollback or restore is written again from its plan, a savepoint from the files of its commit. What
only the damaged file held is lost: seconds, failed files, and a savepoint's comment. If the plan cannot be read either,
or if it is that of a pending action, the instant leaves the timeline. Then a clean or a service is planned anew, and
the write that a rollback was to undo is rolled back anew.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress

from lakeformat.codec.timeline_files.clean import CleanMetadata, CleanPartition, encode_clean
from lakeformat.codec.timeline_files.recovery import (
    CompletedRestore,
    RollbackMetadata,
    RollbackPartition,
    SavepointMetadata,
    decode_restore,
    decode_rollback,
    encode_restore,
    encode_rollback,
    encode_savepoint,
)
from lakeformat.errors import CorruptTableError
from lakeformat.model.instant import COMPLETES_AS, WRITE_ACTIONS, Action, Instant, State
from lakeformat.timeline.store import TimelineStore
from lakeformat.transaction.order.decisions import Decision, Kind, decide, read_state

__all__ = ["find_decided", "how_mended", "is_mendable", "mend_instant", "read_completed", "read_plan"]


def is_mendable(instant: Instant) -> bool:
    """Tell whether rows do not depend on a damaged file of an instant, which is not a commit, and no restore runs."""
    if instant.state is State.COMPLETED:
        return instant.action not in WRITE_ACTIONS
    is_replace_plan = instant.action is Action.REPLACE_COMMIT and instant.state is State.REQUESTED
    return is_replace_plan or instant.action in {Action.CLEAN, Action.ROLLBACK, *COMPLETES_AS}


def read_completed(store: TimelineStore, instant: Instant) -> object:
    """Read the completed file of an action that is not a write; return None for other actions.

    Raises:
        CorruptTableError: the file is damaged.
    """
    name = f"{store.storage.location}/{store.path(instant)}"
    match instant.action:
        case Action.CLEAN:
            return store.read_clean(instant)
        case Action.ROLLBACK:
            return decode_rollback(store.read(instant), name=name)
        case Action.RESTORE:
            return decode_restore(store.read(instant), name=name)
        case Action.SAVEPOINT:
            return store.read_savepoint(instant)
    return None


def read_plan(store: TimelineStore, instant: Instant) -> object:
    """Read the plan of a pending action; return None for actions without a plan.

    Raises:
        CorruptTableError: the plan is damaged, or that of a rollback is gone.
    """
    match instant.action:
        case Action.CLEAN:
            return store.read_clean_plan(instant)
        case Action.ROLLBACK:
            if (plan := store.read_rollback_plan(instant)) is None:
                raise CorruptTableError(f"{store.path(instant.at(State.REQUESTED))} is gone; restore it from a copy")
            return plan
        case Action.COMPACTION:
            return store.read_compaction_plan(instant)
        case Action.REPLACE_COMMIT | Action.CLUSTERING:
            return store.read_requested_replace(instant)
    return None


def find_decided(store: TimelineStore, instant: Instant) -> Decision | None:
    """Return the decision that made a file of an instant, if it was the last one. On storage with locks there is none.

    A savepoint has the time of its commit, so the action is compared, too.
    """
    last = read_state(store.storage)[0].last
    action = COMPLETES_AS.get(instant.action, instant.action).value
    is_its = last is not None and last.instant_time == instant.time and last.path.endswith(f".{action}")
    return last if is_its else None


def how_mended(store: TimelineStore, instant: Instant) -> str:
    """Return the end of a sentence: what a repair does about a damaged file."""
    if instant.action is Action.SAVEPOINT:
        return "writes it again"
    with suppress(CorruptTableError):
        if instant.state is State.COMPLETED and _make_completed(store, instant, {}, 0):
            return "writes it again"
    return "takes it off the timeline"


def mend_instant(
    store: TimelineStore, instant: Instant, saved_files: Mapping[str, tuple[str, ...]], now_ms: int
) -> None:
    """Write a damaged completed file again, or take the instant off the timeline. Call it under the table's lock.

    Args:
        saved_files: the files of a savepoint: partition path to bare names.
        now_ms: the time of a savepoint.
    """
    path = store.path(instant)
    with suppress(CorruptTableError):
        if instant.state is State.COMPLETED:
            store.storage.replace(path, _make_completed(store, instant, saved_files, now_ms))
            return
    decide(store, lambda *_: Decision(kind=Kind.REMOVE, instant_time=instant.time))
    if instant.state is State.COMPLETED:
        store.storage.delete(path)
    store.erase(instant)


def _make_completed(
    store: TimelineStore, instant: Instant, saved_files: Mapping[str, tuple[str, ...]], now_ms: int
) -> bytes:
    """Return the bytes of the completed file, from the action's plan.

    Raises:
        CorruptTableError: the plan is damaged or gone, too.
    """
    match instant.action:
        case Action.CLEAN:
            plan = store.read_clean_plan(instant)
            parts = (CleanPartition(path, names, (), path in plan.partitions) for path, names in plan.files.items())
            earliest = plan.earliest[0] if plan.earliest else ""
            return encode_clean(
                CleanMetadata(instant.time, earliest, plan.last_completed, 0, plan.policy, tuple(parts), plan.extra)
            )
        case Action.ROLLBACK:
            undo = store.read_rollback_plan(instant)
            if undo is not None:
                deleted = tuple(RollbackPartition(r.partition_path, r.files_to_delete) for r in undo.requests)
                done = ((undo.instant_time, undo.action),)
                return encode_rollback(
                    RollbackMetadata(start_time=instant.time, time_taken_ms=0, instants=done, partitions=deleted)
                )
        case Action.RESTORE:
            restore = store.read_restore_plan(instant)
            if restore is not None:
                return encode_restore(CompletedRestore(instant.time, 0, restore, {}))
        case Action.SAVEPOINT:
            return encode_savepoint(SavepointMetadata("", now_ms, "", saved_files))
    raise CorruptTableError(f"{store.storage.location}/{store.path(instant)} has no plan; restore it from a copy")
