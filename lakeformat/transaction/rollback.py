"""Rollback of dead writers (Hudi: ``ListingBasedRollbackStrategy``). Each step may be run again.

Call these functions under the table's lock. A rollback first stores its plan on the timeline. Then it checks that the
instant to undo, called the victim, has not completed. Only then does it delete files.

`lakeformat.transaction.log_rollback` takes back log files.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import compress
from typing import Final

from lakeformat.codec.timeline_files.recovery import (
    RollbackMetadata,
    RollbackPartition,
    RollbackPlan,
    RollbackRequest,
    decode_rollback_plan,
    encode_rollback_plan,
)
from lakeformat.concurrency import run_all, run_both
from lakeformat.errors import CorruptTableError, WriteConflictError
from lakeformat.file_system_view.file_groups import list_files
from lakeformat.model.files import join_path
from lakeformat.model.instant import COMMIT_ACTIONS, REPLACE_ACTIONS, Action, Instant, State
from lakeformat.model.table_config import TableConfig
from lakeformat.storage.port import Clock, FileInfo, check_path, own_path
from lakeformat.timeline.store import TimelineStore, put_once
from lakeformat.timeline.timeline import Timeline
from lakeformat.transaction import claims
from lakeformat.transaction.conflict import conflict_of
from lakeformat.transaction.decisions import (
    Decision,
    DecisionState,
    Kind,
    OvertakenError,
    aside_path,
    decide,
    encode_void_commit,
    make_moving_error,
    prepare_removal,
    read_state,
    settle,
)
from lakeformat.transaction.foreign_writes import is_left_alone
from lakeformat.transaction.log_rollback import cancel_blocks, log_rollback_requests, logs_that_stay
from lakeformat.transaction.markers import remove_markers
from lakeformat.transaction.metadata_commits import add_files, drop_metadata_table, take_back, take_back_late
from lakeformat.transaction.undo import CommitUndo, finish_restores, give_up_or_finish
from lakeformat.transaction.written_file import stage_folder

__all__ = [
    "cancel_blocks",
    "delete_files_of",
    "log_rollback_requests",
    "recover",
    "revert_run",
    "roll_back",
    "was_rolled_back",
]

_LOG: Final = logging.getLogger("lakeformat.write")
#: Actions that are undone if their writer is dead. A compaction's plan stays; only the files of its run are deleted.
_UNDOABLE_ACTIONS: Final = COMMIT_ACTIONS | REPLACE_ACTIONS | {Action.COMPACTION}
_PLAN_ACTIONS: Final = REPLACE_ACTIONS | {Action.COMPACTION}
_STAGE_LIFETIME_MS: Final = 24 * 3600 * 1000
#: Maximum number of pending instants whose claims and heartbeats are read at once.
_THREADS: Final = 8
#: Locations of the tables from which this process has removed old temporary files. Without locks it is done once,
#: because a listing is a request.
_CLEARED: Final[set[str]] = set()


def recover(
    store: TimelineStore,
    config: TableConfig,
    clock: Clock,
    *,
    kept_plan: str | None = None,
    restore_target: str | None = None,
    claimed: Sequence[FileInfo] | None = None,
) -> tuple[DecisionState, Timeline]:
    """Finish pending restores and rollbacks, undo the writes of dead writers, and remove leftover files.

    Return the state of the decisions as it was before, and the newest timeline. Only the undone writes in the state are
    those of now, because no new instant may have the time of an undone one.

    Args:
        kept_plan: instant time of a clustering that the caller wants to run. If an earlier run of it has died, the plan
            stays on the timeline.
        restore_target: the instant to which the caller wants to restore. A pending restore of another program to this
            instant is finished, too.
        claimed: the result of `claims.list_claims`; None to call it.

    Raises:
        WriteConflictError: a restore or the rollback of a completed commit is running or is another program's, or the
            table is being moved to another version. A write would read commits that go. Or a file that is needed was
            deleted, because another process recovers or archives at the same time.
    """
    try:
        return _recover(store, config, clock, kept_plan, restore_target, claimed)
    except FileNotFoundError as error:
        raise conflict_of(store.storage.location, error) from None


def _recover(
    store: TimelineStore,
    config: TableConfig,
    clock: Clock,
    kept_plan: str | None,
    restore_target: str | None,
    claimed: Sequence[FileInfo] | None,
) -> tuple[DecisionState, Timeline]:
    claimed = claims.list_claims(store.storage) if claimed is None else claimed
    # Without locks, one listing of the heartbeats shows most writers to be alive, and saves two requests for each.
    is_beside = bool(claimed) and not store.storage.has_lock
    look = partial(claims.list_fresh_heartbeats, store.storage, clock) if is_beside else frozenset[str]
    try:  # `settle` lists the whole timeline, so load it again only after changes.
        alive, (state, _, timeline) = run_both(look, partial(settle, store), at_once=is_beside)
    except OvertakenError:
        _void_overtaken_commit(store, clock)
        alive, (state, _, timeline) = look(), settle(store)
    if state.moving:
        raise make_moving_error(store.storage.location)
    timeline = _erase_late_files(store, state, timeline)
    voids = frozenset(void.time for void in timeline.voids)
    take_back_late(store, state.undone_times - timeline.taken_times | voids)
    has_undos = any(instant.action in {Action.RESTORE, Action.ROLLBACK} for instant in timeline.pending)
    timeline = _finish_undos(store, config, clock, timeline, restore_target)
    undoable = [instant for instant in timeline.pending if instant.action in _UNDOABLE_ACTIONS]
    are_dead = run_all(
        lambda instant: instant.time not in alive and _is_dead(store, instant, clock), undoable, threads=_THREADS
    )
    any_dead = any(are_dead)
    for instant in compress(undoable, are_dead):
        _settle_dead_write(store, config, clock, instant, is_wanted=instant.time == kept_plan)
    _remove_dead_savepoints(store, timeline, clock)
    timeline = store.load() if any_dead else timeline
    stale = claims.choose_stale_claims(store.storage, claimed, timeline, clock)
    for time, claim in stale.items():
        _remove_stale_claim(store, state, timeline, time, claim)
    if has_undos or any_dead or stale:
        after, _, timeline = settle(store)
        state = replace(state, undone=after.undone)
    if store.storage.has_lock or store.storage.location not in _CLEARED:
        _CLEARED.add(store.storage.location)
        _clear_old_files(store, state, clock)
        claims.forget_heartbeats(store.storage, state, timeline, clock)
    return state, timeline


def _remove_stale_claim(
    store: TimelineStore, state: DecisionState, timeline: Timeline, time: str, claim: claims.Claim
) -> None:
    """Remove a claim whose instant is not pending, with its markers and its stage folder.

    On storage without locks the writer of an instant that is not on the timeline may only be slow. Therefore it is
    decided that the instant cannot begin any more.
    """
    if not store.storage.has_lock and time not in timeline.taken_times and time not in state.undone:

        def check(_: DecisionState, now: Timeline) -> Decision | None:
            return None if time in now.taken_times else Decision(kind=Kind.REMOVE, instant_time=time, undoes=time)

        if decide(store, check) is None:  # The writer lives.
            return
    remove_markers(store.storage, time)
    _delete_stage(store, claim)
    claims.release(store.storage, time)


def _finish_undos(
    store: TimelineStore, config: TableConfig, clock: Clock, timeline: Timeline, restore_target: str | None
) -> Timeline:
    """Finish pending restores and rollbacks whose processes died. Return the newest timeline: no restore is pending.

    While a restore is inflight, the commits that it undoes look like writes of dead writers. On storage without locks
    one may begin while rollbacks are finished here.

    Raises:
        WriteConflictError: a restore or the rollback of a completed commit is running.
    """
    while True:
        restores = [instant for instant in timeline.pending if instant.action is Action.RESTORE]
        if restores:
            finish_restores(CommitUndo(store, config, clock), restores, restore_target=restore_target)
            timeline = store.load()
        timeline = _finish_rollbacks(store, config, clock, timeline)
        if not any(instant.action is Action.RESTORE for instant in timeline.pending):
            return timeline


def _finish_rollbacks(store: TimelineStore, config: TableConfig, clock: Clock, timeline: Timeline) -> Timeline:
    """Finish pending rollbacks whose processes died. Return the newest timeline.

    Raises:
        WriteConflictError: the rollback of a completed commit is running.
    """
    rollbacks = [instant for instant in timeline.pending if instant.action is Action.ROLLBACK]
    for instant in rollbacks:
        if is_left_alone(store, timeline, instant, clock):
            continue
        claim = claims.read_claim(store.storage, instant.time)
        if claim is not None and not _may_finish(store, instant, clock):
            if claim.undoes:
                raise WriteConflictError(f"{store.path(instant)} is running in {store.storage.location}; wait for it")
            continue
        if claim is not None and claim.undoes:
            give_up_or_finish(CommitUndo(store, config, clock), instant)
        else:
            _finish_rollback(store, instant, clock, deletes_stage=True)
    return store.load() if rollbacks else timeline


def _erase_late_files(store: TimelineStore, state: DecisionState, timeline: Timeline) -> Timeline:
    """Erase the pending files of undone instants, which late requests have created again. Return the newest timeline.

    If the instant is a plan that stays on the timeline, only its inflight file is erased; a plan that a rollback has
    removed does not stay. A claim shows that another run of the plan has begun; the claim of an instant that is undone
    for good is itself late.
    """
    undone_times = state.undone_times
    late = [
        instant
        for instant in timeline.pending
        if instant.time in state.undone
        or (instant.time in undone_times and claims.read_claim(store.storage, instant.time) is None)
    ]
    for instant in late:
        is_gone = instant.time in state.undone or not _has_requested_plan(store, instant)
        if is_gone or was_rolled_back(store, timeline, instant.time):
            store.erase(instant)
        elif instant.state is State.INFLIGHT and not state.is_shared:  # Hudi may run a plan of ours.
            store.revert(instant)
    return store.load() if late else timeline


def _has_requested_plan(store: TimelineStore, instant: Instant) -> bool:
    return instant.action in _PLAN_ACTIONS and store.info(instant.at(State.REQUESTED)) is not None


def _may_finish(store: TimelineStore, rollback: Instant, clock: Clock) -> bool:
    """Tell whether this process may finish a pending rollback: its process has died, and no other writer finishes it.

    On storage with locks the caller holds the lock, so no other process can be carrying it out.
    """
    if store.storage.has_lock:
        return True
    return claims.take_over_claim(store, rollback, clock, token=f"{rollback.time}-{clock.now_ms()}")


def _void_overtaken_commit(store: TimelineStore, clock: Clock) -> None:
    """Undo the last decided commit, which was not completed before Hudi completed another commit.

    The commit was not checked against Hudi's commit. A void commit takes the name of its completed file, so that a
    late request cannot create that file. Then its data files are deleted.
    """
    last = read_state(store.storage)[0].last
    if last is None or last.kind is not Kind.COMMIT:
        return
    _LOG.warning("undoing commit %s in %s, which was decided but never completed", last.instant_time, last.path)
    take_back(store, last.instant_time)
    try:
        put_once(store.storage, last.path, encode_void_commit(store, last.path, last.data))
    except FileExistsError:
        drop_metadata_table(store, clock)  # It may lack the commit, which a late request has completed.
        return
    _delete_files(store, _list_files_of(store, last.instant_time, logs=True))
    remove_markers(store.storage, last.instant_time)


def _settle_dead_write(
    store: TimelineStore, config: TableConfig, clock: Clock, instant: Instant, *, is_wanted: bool
) -> None:
    """Undo a dead writer's write. If the writer ran a plan that stays on the timeline, undo only the run of the plan.

    Args:
        is_wanted: whether the caller is going to run the instant's plan; if so, the plan stays on the timeline.
    """
    path, location = store.path(instant), store.storage.location
    claim = claims.read_claim(store.storage, instant.time)
    if _keeps_plan(store, instant, claim, is_wanted=is_wanted):
        _LOG.warning("undoing the run of %s in %s, whose process died; its plan stays", path, location)
        revert_run(store, instant)
        return
    if roll_back(store, config, clock, instant):
        _LOG.warning("rolled back %s in %s, whose writer died", path, location)


def _remove_dead_savepoints(store: TimelineStore, timeline: Timeline, clock: Clock) -> None:
    """Remove pending savepoints that dead processes left: they would stop the archiving of later instants.

    A savepoint has no claim, so its age decides. If it is younger than `FOREIGN_GRACE_MS`, it stays, because another
    program may be creating it. lakeformat creates savepoints only under the lock, which the caller holds.
    """
    for instant in timeline.pending:
        is_savepoint = instant.action is Action.SAVEPOINT
        if is_savepoint and not claims.has_live_heartbeat(store, instant, clock, grace_ms=claims.FOREIGN_GRACE_MS):
            _LOG.warning(
                "removing savepoint %s of %s, which was never completed or was partly deleted",
                store.path(instant),
                store.storage.location,
            )
            store.erase(instant)


def _keeps_plan(store: TimelineStore, instant: Instant, claim: claims.Claim | None, *, is_wanted: bool) -> bool:
    """Tell whether an instant's plan stays on the timeline when a dead writer's run of the plan is undone.

    The plan of a compaction always stays: other writers may have written log files to the slices that the plan opened.
    In timeline layout 1, the names of these log files contain the compaction's instant.
    """
    if instant.action is Action.COMPACTION:
        return True
    return claim is not None and (claim.keeps_plan or (is_wanted and _has_plan(store, instant)))


def _has_plan(store: TimelineStore, instant: Instant) -> bool:
    try:
        requested = store.read_requested_replace(instant) if instant.action in REPLACE_ACTIONS else None
    except CorruptTableError:
        return False
    return requested is not None and requested.plan is not None


def _delete_stage(store: TimelineStore, claim: claims.Claim | None) -> None:
    """Remove the stage folder of a dead write. Call it before the claim, which has the folder's name, is removed."""
    if claim is not None and claim.write_id is not None:
        store.storage.delete_folder(stage_folder(claim.write_id))


def _is_dead(store: TimelineStore, instant: Instant, clock: Clock) -> bool:
    claim = claims.read_claim(store.storage, instant.time)
    if claim is not None:
        return not claims.is_alive(store, instant, claim, clock)
    if instant.action is Action.COMPACTION:
        return False  # Another program's compaction, planned or running, does not conflict with other writes.
    if instant.action in REPLACE_ACTIONS and instant.state is State.REQUESTED:
        return False  # A planned clustering that has not started is not a failed write.
    return not claims.has_live_heartbeat(store, instant, clock, grace_ms=claims.FOREIGN_GRACE_MS)


def roll_back(
    store: TimelineStore, config: TableConfig, clock: Clock, victim: Instant, *, keeps_stage: bool = False
) -> bool:
    """Plan, decide and carry out the rollback of one pending instant.

    Return whether the instant is undone. It is not if it has completed, or if another writer is undoing it.

    Args:
        keeps_stage: whether the staged files stay, because the caller may write them again.
    """
    timeline, claim = store.load(), claims.read_claim(store.storage, victim.time)
    claim_of_stage = None if keeps_stage else claim
    current = timeline.find(victim.time)
    if current is None:
        _delete_stage(store, claim_of_stage)
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
        _delete_stage(store, claim_of_stage)
        _finish_rollback(store, rollback, clock)
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
    # Log files whose names contain a compaction's time were written by other commits, so they stay.
    is_delta = victim.action is Action.DELTA_COMMIT
    deletes = (
        RollbackRequest(partition, files_to_delete=tuple(f"{store.storage.location}/{path}" for path in paths))
        for partition, paths in _list_files_of(store, victim.time, logs=is_delta).items()
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
        store.revert(instant)
    _delete_stage(store, claim)  # A dead or completed run needs no staged files.
    files = _list_files_of(store, time) if runs else {}
    if claims.read_claim(storage, time) != claim:
        return
    if runs and _is_pending(store, time):
        _delete_files(store, files)
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


def _delete_files(store: TimelineStore, files: Mapping[str, Sequence[str]]) -> None:
    for paths in files.values():
        for path in paths:
            store.storage.delete(path)


def _list_files_of(store: TimelineStore, instant_time: str, *, logs: bool = False) -> dict[str, list[str]]:
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


def _finish_rollback(store: TimelineStore, rollback: Instant, clock: Clock, *, deletes_stage: bool = False) -> None:
    """Carry out a planned rollback. If an earlier run died, do only the steps that are left.

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
    _take_step(store, rollback, partial(store.complete, rollback, metadata, clock))
    if victim is not None and victim.state is not State.COMPLETED:
        store.erase(victim)
    if deletes_stage:
        _delete_stage(store, claims.read_claim(storage, plan.instant_time))
    claims.release(storage, plan.instant_time)
    claims.release(storage, rollback.time)


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


def _clear_old_files(store: TimelineStore, state: DecisionState, clock: Clock) -> None:
    """Remove temporary files, stage folders and files of earlier decisions that have not changed for 24 hours.

    If a job died before it claimed an instant, no rollback removes its stage folder.
    """
    now = clock.now_ms()
    for folder in store.storage.list(own_path("stage")):
        files: Iterable[int] = [e.modified_ms for e in store.storage.list(folder.path)] or [folder.modified_ms]
        if now - max(files) > _STAGE_LIFETIME_MS:
            store.storage.delete_folder(folder.path)
    kept = aside_path(state.aside)
    for entry in store.storage.list(own_path("tmp")):
        is_old = now - entry.modified_ms > _STAGE_LIFETIME_MS
        if not entry.is_folder and is_old and entry.path != kept:
            store.storage.delete(entry.path)
