"""Recovery of a table before a write: it finishes undos, and undoes the writes of dead writers.

Call it under the table's lock. `lakeformat.transaction.undo.rollback` carries out the rollbacks of dead writers,
`lakeformat.transaction.undo.commit_undo` those of completed commits.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import partial
from itertools import compress
from typing import Final

from lakeformat.concurrency import run_all, run_both
from lakeformat.errors import CorruptTableError
from lakeformat.model.instant import COMMIT_ACTIONS, REPLACE_ACTIONS, Action, Instant, State
from lakeformat.model.table_config import TableConfig
from lakeformat.storage.port import Clock, FileInfo, is_remote, own_path
from lakeformat.timeline.lost_commits import check_no_lost_commits, find_lost_commits
from lakeformat.timeline.store import TimelineStore, put_once
from lakeformat.timeline.timeline import Timeline
from lakeformat.transaction.order import claims
from lakeformat.transaction.order.commit_order import order_of
from lakeformat.transaction.order.conflict import PendingActionError, conflict_of
from lakeformat.transaction.order.decisions import (
    DecisionState,
    Kind,
    OvertakenError,
    aside_path,
    encode_void_commit,
    make_moving_error,
    read_state,
    settle,
)
from lakeformat.transaction.order.foreign_writes import is_left_alone
from lakeformat.transaction.undo.commit_undo import CommitUndo, finish_restores, give_up_or_finish
from lakeformat.transaction.undo.rollback import finish_rollback, revert_run, roll_back, was_rolled_back
from lakeformat.transaction.undo.traces import Moment, Traces, list_files_of
from lakeformat.transaction.upkeep.metadata_commits import drop_metadata_table, take_back_late

__all__ = ["recover"]

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
    allows_lost: bool = False,
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
        allows_lost: whether commits that have lost their completed files are left alone; if not, they are an error.

    Raises:
        CorruptTableError: a commit has lost its completed file. It is not undone unasked.
        WriteConflictError: a restore or the rollback of a completed commit is running or is another program's, or the
            table is being moved to another version. A write would read commits that go. Or a file that is needed was
            deleted, because another process recovers or archives at the same time.
    """
    try:
        return _recover(store, config, clock, kept_plan, restore_target, claimed, allows_lost=allows_lost)
    except FileNotFoundError as error:
        raise conflict_of(store.storage.location, error) from None


def _recover(
    store: TimelineStore,
    config: TableConfig,
    clock: Clock,
    kept_plan: str | None,
    restore_target: str | None,
    claimed: Sequence[FileInfo] | None,
    *,
    allows_lost: bool,
) -> tuple[DecisionState, Timeline]:
    claimed = claims.list_claims(store.storage) if claimed is None else claimed
    # On remote storage, one listing of the heartbeats shows most writers to be alive, and saves two requests for each.
    is_beside = bool(claimed) and is_remote(store.storage)
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
    has_undos = timeline.is_being_undone
    timeline = _finish_undos(store, config, clock, timeline, restore_target)
    if not allows_lost:
        check_no_lost_commits(store, timeline)
    lost = find_lost_commits(store, timeline) if allows_lost else ()
    undoable = [i for i in timeline.pending if i.action in _UNDOABLE_ACTIONS and i not in lost]
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
    if order_of(store).is_alone or store.storage.location not in _CLEARED:
        _CLEARED.add(store.storage.location)
        _clear_old_files(store, state, clock)
        claims.forget_heartbeats(store.storage, state, timeline, clock)
    return state, timeline


def _remove_stale_claim(
    store: TimelineStore, state: DecisionState, timeline: Timeline, time: str, claim: claims.Claim
) -> None:
    """Remove a claim whose instant is not pending, with its markers and its stage folder, unless its writer is slow."""
    if order_of(store).forbid(time, state, timeline):
        Traces(store=store, time=time, write_id=claim.write_id).take_back(Moment.FILES, Moment.CLAIM)


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
        if claim is not None and not order_of(store).take_over(instant, clock):
            if claim.undoes:
                raise PendingActionError(f"{store.path(instant)} is running in {store.storage.location}; wait for it")
            continue
        if claim is not None and claim.undoes:
            give_up_or_finish(CommitUndo(store, config, clock), instant)
        else:
            finish_rollback(store, instant, clock, deletes_stage=True)
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


def _void_overtaken_commit(store: TimelineStore, clock: Clock) -> None:
    """Undo the last decided commit, which was not completed before Hudi completed another commit.

    The commit was not checked against Hudi's commit. A void commit takes the name of its completed file, so that a
    late request cannot create that file. Then its data files are deleted.
    """
    last = read_state(store.storage)[0].last
    if last is None or last.kind is not Kind.COMMIT:
        return
    _LOG.warning("undoing commit %s in %s, which was decided but never completed", last.instant_time, last.path)
    traces = Traces(store=store, time=last.instant_time)
    traces.take_back(Moment.RECORDS)
    try:
        put_once(store.storage, last.path, encode_void_commit(store, last.path, last.data))
    except FileExistsError:
        drop_metadata_table(store, clock)  # It may lack the commit, which a late request has completed.
        return
    files = [file.path for file in list_files_of(store, {last.instant_time})]
    replace(traces, files=files).take_back(Moment.FILES)


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


def _is_dead(store: TimelineStore, instant: Instant, clock: Clock) -> bool:
    claim = claims.read_claim(store.storage, instant.time)
    if claim is not None:
        return not claims.is_alive(store, instant, claim, clock)
    if instant.action is Action.COMPACTION:
        return False  # Another program's compaction, planned or running, does not conflict with other writes.
    if instant.action in REPLACE_ACTIONS and instant.state is State.REQUESTED:
        return False  # A planned clustering that has not started is not a failed write.
    return not claims.has_live_heartbeat(store, instant, clock, grace_ms=claims.FOREIGN_GRACE_MS)


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
