"""Completed files of cleans, rollbacks, restores and savepoints that are damaged: they are written again.

No row depends on them. A clean, a rollback and a restore are written from their plans, a savepoint from the files of
its commit. What only the damaged file held is lost: seconds, failed files, and a savepoint's comment.
"""

from __future__ import annotations

from collections.abc import Mapping

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
from lakeformat.model.instant import Action, Instant
from lakeformat.timeline.store import TimelineStore

__all__ = ["make_completed", "read_completed"]


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


def make_completed(
    store: TimelineStore, instant: Instant, saved_files: Mapping[str, tuple[str, ...]], now_ms: int
) -> bytes:
    """Return the bytes of the completed file, from the action's plan.

    Args:
        saved_files: the files of a savepoint: partition path to bare names.
        now_ms: the time of a savepoint.

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
