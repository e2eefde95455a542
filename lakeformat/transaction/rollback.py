"""Rollback of dead writers (Hudi: ``ListingBasedRollbackStrategy``). Each step may be run again.

Call these functions under the table's lock. A rollback first stores its plan on the timeline. Then it checks that the
instant to undo, called the victim, has not completed. Only then does it delete files.

`lakeformat.transaction.log_rollback` takes back log files.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial

from lakeformat.codec.timeline_files.recovery import (
    RollbackMetadata,
    RollbackPartition,
    RollbackPlan,
    RollbackRequest,
    decode_rollback_plan,
    encode_rollback_plan,
)
from lakeformat.errors import CorruptTableError, WriteConflictError
from lakeformat.file_system_view.file_groups import list_files
from lakeformat.model.files import LogFileName, join_path
from lakeformat.model.instant import REPLACE_ACTIONS, Action, Instant, State
from lakeformat.model.table_config import TableConfig
from lakeformat.storage.port import Clock, check_path
from lakeformat.timeline.store import TimelineStore
from lakeformat.timeline.timeline import Timeline
from lakeformat.transaction import claims
from lakeformat.transaction.decisions import (
    Decision,
    DecisionState,
    Kind,
    decide,
    prepare_removal,
)
from lakeformat.transaction.hashing_undo import take_back_rings
from lakeformat.transaction.log_rollback import cancel_blocks, log_rollback_requests, logs_that_stay
from lakeformat.transaction.markers import remove_markers
from lakeformat.transaction.metadata_commits import add_files, take_back
from lakeformat.transaction.written_file import stage_folder

__all__ = [
    "delete_files",
    "delete_files_of",
    "delete_stage",
    "finish_rollback",
    "list_files_of",
    "revert_run",
    "roll_back",
    "was_rolled_back",
]


def roll_back(
    store: TimelineStore,
    config: TableConfig,
    clock: Clock,
    victim: Instant,
    *,
    keeps_stage: bool = False,
    keeps_rollback: bool = True,
) -> bool:
    """Plan, decide and carry out the rollback of one pending instant.

    Return whether the instant is undone. It is not if it has completed, or if another writer is undoing it.

    Args:
        keeps_stage: whether the staged files stay, because the caller may write them again.
        keeps_rollback: whether the completed rollback stays on the timeline. It stays anyway if log files were written:
            readers may have listed them already.
    """
    timeline, claim = store.load(), claims.read_claim(store.storage, victim.time)
    claim_of_stage = None if keeps_stage else claim
    current = timeline.find(victim.time)
    if current is None:
        delete_stage(store, claim_of_stage)
        prepare_removal(store, victim.time)
        # On storage without locks the table may have moved to another version without a rollback of the write.
        if not store.storage.has_lock or was_rolled_back(store, timeline, victim.time):
            _delete_late_files(store, victim)
        claims.release(store.storage, victim.time)
        return True
    if current.state is State.COMPLETED or _is_being_rolled_back(store, timeline, victim.time):
        return False
    rollback = claims.claim_instant(
        store, config, clock, Action.ROLLBACK, kind=claims.PROCESS, token=victim.time, data=None
    )
    with claims.keep_alive(store.storage, rollback.time):
        if not _decide_rollback(store, rollback, victim, claim):
            claims.release(store.storage, rollback.time)
            return False
        delete_stage(store, claim_of_stage)
        completed, has_logs = finish_rollback(store, rollback, clock)
        if not keeps_rollback and not has_logs:
            prepare_removal(store, rollback.time)
            store.remove(completed)
    return True


def _decide_rollback(store: TimelineStore, rollback: Instant, victim: Instant, claim: claims.Claim | None) -> bool:
    """Decide that an instant is undone, and create the rollback's requested file. Return False if it may not be."""

    def check(state: DecisionState, timeline: Timeline) -> Decision | None:
        current = timeline.find(victim.time)
        if current is None or current.state is State.COMPLETED or claims.was_given_up(state, rollback):
            return None
        if _is_being_rolled_back(store, timeline, victim.time):
            return None
        plan = RollbackPlan(victim.time, victim.action.value, _make_requests(store, victim))
        return Decision(
            kind=Kind.UNDO,
            instant_time=rollback.time,
            path=store.path(rollback.at(State.REQUESTED)),
            data=encode_rollback_plan(plan),
            undoes=victim.time if claim is None or claim.write_id is None else f"{victim.time}/{claim.write_id}",
        )

    return decide(store, check) is not None


def _is_being_rolled_back(store: TimelineStore, timeline: Timeline, instant_time: str) -> bool:
    pending = [instant for instant in timeline.of_action(Action.ROLLBACK) if instant.state is not State.COMPLETED]
    plans = (store.read_rollback_plan(rollback) for rollback in pending)
    return any(plan is not None and plan.instant_time == instant_time for plan in plans)


def _make_requests(store: TimelineStore, victim: Instant) -> tuple[RollbackRequest, ...]:
    """Return the rollback requests that undo an instant."""
    # Log files whose names contain a compaction's time were written by other commits, so they stay. Those with the time
    # of a plan that resizes buckets were, too, but only to new buckets, which will not be.
    is_delta = victim.action is Action.DELTA_COMMIT
    deletes = (
        RollbackRequest(partition, files_to_delete=tuple(f"{store.storage.location}/{path}" for path in paths))
        for partition, paths in list_files_of(
            store, victim.time, logs=is_delta or victim.action in REPLACE_ACTIONS
        ).items()
    )
    if not is_delta or store.layout.has_completion_times:
        return tuple(deletes)
    is_ours = claims.read_claim(store.storage, victim.time) is not None
    return (*deletes, *log_rollback_requests(store.storage, victim.time, by_markers=is_ours))


def revert_run(store: TimelineStore, instant: Instant) -> None:
    """Undo the run of a plan but leave the plan on the timeline. Call it under the table's lock.

    Hudi: ``rollbackInflightClustering``. If the run has completed, only its stage folder, markers and claim are
    removed. Else the steps are:

    1. Decide that this run may not publish any more. Remove the inflight file.
    2. List the run's files, then read the claim again. If the claim has changed, stop: on storage without a lock,
       another process may have undone the run and begun a new one, whose files must not be deleted.
    3. Delete the listed files and the markers.
    4. Remove the claim. If this process crashes before, the next writer sees the claim and undoes the run again.
    """
    storage, time = store.storage, instant.time
    claim = claims.read_claim(storage, time)
    if claim is None:  # Another writer has undone the run already.
        return
    runs = _is_pending(store, time)
    if runs:
        if not _decide_end_of_run(store, time, claim):
            return
        take_back(store, time)
        take_back_rings(store, time)
        store.revert(instant)
    delete_stage(store, claim)  # A dead or completed run needs no staged files.
    files = list_files_of(store, time) if runs else {}
    if claims.read_claim(storage, time) != claim:
        return
    if runs and _is_pending(store, time):
        delete_files(store, files)
    remove_markers(storage, time)
    claims.release(storage, time)


def _decide_end_of_run(store: TimelineStore, instant_time: str, claim: claims.Claim) -> bool:
    """Decide that the run of a plan that has this claim may not publish. Return False if it has published."""

    def check(state: DecisionState, timeline: Timeline) -> Decision | None:
        current = timeline.find(instant_time)
        if current is None or current.state is State.COMPLETED:
            return None
        return Decision(kind=Kind.UNDO, instant_time=instant_time, undoes=f"{instant_time}/{claim.write_id or ''}")

    return decide(store, check) is not None


def _is_pending(store: TimelineStore, instant_time: str) -> bool:
    current = store.load().find(instant_time)
    return current is not None and current.state is not State.COMPLETED


def was_rolled_back(store: TimelineStore, timeline: Timeline, instant_time: str) -> bool:
    """Tell whether a pending or completed rollback on the timeline undoes this instant."""
    for rollback in timeline.of_action(Action.ROLLBACK):
        # An older rollback cannot undo this instant, and it may have no plan, so do not read its plan.
        if rollback.time > instant_time:
            plan = store.read_rollback_plan(rollback)
            if plan is not None and plan.instant_time == instant_time:
                return True
    return False


def _delete_late_files(store: TimelineStore, victim: Instant) -> None:
    """Delete files that a writer wrote after it was rolled back.

    The plan of the rollback does not name these files. If they stayed, they would become visible later: once an instant
    is older than the active timeline, readers treat its files as files of an archived commit.
    """
    for request in _make_requests(store, victim):
        _carry_out(store, request, victim.time, victim.time)
    remove_markers(store.storage, victim.time)


def delete_files_of(store: TimelineStore, instant_times: frozenset[str]) -> None:
    """Delete all base, log and change data files whose names contain one of these instants."""
    listing = list_files(store.storage)
    for file in (*listing.bases, *listing.logs, *listing.change_data):
        if file.name.instant_time in instant_times:
            store.storage.delete(file.path)


def delete_files(store: TimelineStore, files: Mapping[str, Sequence[str]]) -> None:
    """Delete files, given by their folders. Those that do not exist are passed over."""
    for paths in files.values():
        for path in paths:
            store.storage.delete(path)


def list_files_of(store: TimelineStore, instant_time: str, *, logs: bool = False) -> dict[str, list[str]]:
    """Return a mapping of partition path to the paths of the files whose names contain an instant.

    Args:
        logs: whether to return log files in addition to base files and change data files.
    """
    found: dict[str, list[str]] = {}
    listing = list_files(store.storage)
    for file in (*listing.bases, *listing.change_data, *(listing.logs if logs else ())):
        if file.name.instant_time == instant_time:
            found.setdefault(file.partition_path, []).append(file.path)
    return found


def finish_rollback(
    store: TimelineStore, rollback: Instant, clock: Clock, *, deletes_stage: bool = False
) -> tuple[Instant, bool]:
    """Carry out a planned rollback. If an earlier run died, do only the steps that are left.

    Return the completed rollback, and whether it has deleted or cancelled log files.

    Args:
        deletes_stage: whether to delete the staged files of the undone write. If it undoes itself, it needs them again.
    """
    storage = store.storage
    started = clock.now_ms()
    requested = rollback.at(State.REQUESTED)
    data = store.read(requested)
    if not data:
        raise CorruptTableError(f"{store.path(requested)} is empty; delete it and run again")
    plan = decode_rollback_plan(data, name=store.path(requested))
    if rollback.state is State.REQUESTED:
        rollback = _take_step(store, rollback, partial(store.start, rollback))
    victim = store.load().find(plan.instant_time)
    partitions: tuple[RollbackPartition, ...] = ()
    if victim is None or victim.state is not State.COMPLETED:
        take_back(store, plan.instant_time)
        if any(plan.action == action.value for action in REPLACE_ACTIONS):
            take_back_rings(store, plan.instant_time)
        done = (_carry_out(store, request, plan.instant_time, rollback.time) for request in plan.requests)
        partitions = _join_by_partition(done)
        if logs := [entry for part in partitions for entry in logs_that_stay(part)]:
            add_files(store, clock, rollback.time, logs)
        remove_markers(storage, plan.instant_time)
    action = plan.action
    metadata = RollbackMetadata(
        start_time=rollback.time,
        time_taken_ms=clock.now_ms() - started,
        instants=((plan.instant_time, action),),
        partitions=partitions,
    )
    completed = _take_step(store, rollback, partial(store.complete, rollback, metadata, clock))
    if victim is not None and victim.state is not State.COMPLETED:
        store.erase(victim)
    if deletes_stage:
        delete_stage(store, claims.read_claim(storage, plan.instant_time))
    claims.release(storage, plan.instant_time)
    claims.release(storage, rollback.time)
    deleted = (name for part in partitions for name in part.deleted_files)
    has_logs = any(part.rollback_log_files for part in partitions) or any(map(LogFileName.match, deleted))
    return completed, has_logs


def _take_step(store: TimelineStore, rollback: Instant, step: Callable[[], Instant]) -> Instant:
    try:
        return step()
    except FileExistsError:
        raise WriteConflictError(
            f"another writer is carrying out {store.path(rollback)} in {store.storage.location}; run the write again"
        ) from None


def _carry_out(store: TimelineStore, request: RollbackRequest, victim: str, rollback_time: str) -> RollbackPartition:
    cancelled = cancel_blocks(store.storage, request, victim, rollback_time)
    return replace(cancelled, deleted_files=_delete(store, request))


def _join_by_partition(done: Iterable[RollbackPartition]) -> tuple[RollbackPartition, ...]:
    """Join the results of rollback requests to one result per partition, for the rollback's completed file."""
    found: dict[str, RollbackPartition] = {}
    for part in done:
        known = found.setdefault(part.partition_path, RollbackPartition(part.partition_path))
        found[part.partition_path] = replace(
            known,
            deleted_files=(*known.deleted_files, *part.deleted_files),
            rollback_log_files={**known.rollback_log_files, **part.rollback_log_files},
            log_files_of_failed_commit={**known.log_files_of_failed_commit, **part.log_files_of_failed_commit},
        )
    return tuple(found.values())


def _delete(store: TimelineStore, request: RollbackRequest) -> tuple[str, ...]:
    """Delete the files that a rollback request names, and return their bare names.

    Only the partition and the bare names in the request are used: it may come from another machine and is not trusted.
    """
    names = [name.rpartition("/")[2] for name in request.files_to_delete]
    for name in names:
        store.storage.delete(check_path(join_path(request.partition_path, name)))
    return tuple(names)


def delete_stage(store: TimelineStore, claim: claims.Claim | None) -> None:
    """Remove the stage folder of a dead write. Call it before the claim, which has the folder's name, is removed."""
    if claim is not None and claim.write_id is not None:
        store.storage.delete_folder(stage_folder(claim.write_id))
