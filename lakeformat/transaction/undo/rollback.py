"""Rollback of dead writers. Each step may be run again.

The markers of a write name its files, because each writer of lakeformat makes the marker of a file before the file. So
no folder of data is listed (Hudi: ``MarkerBasedRollbackStrategy``). The folders are listed (Hudi:
``ListingBasedRollbackStrategy``) if there is no marker, for instants of other programs, and for runs of plans, whose
instant may have had a run before.

Call these functions under the table's lock. A rollback first stores its plan on the timeline. Then it checks that the
instant to undo, called the victim, has not completed. Only then does it delete files.

`lakeformat.transaction.undo.log_rollback` takes back log files.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Final

from lakeformat.codec.timeline_files.recovery import (
    RollbackMetadata,
    RollbackPartition,
    RollbackPlan,
    RollbackRequest,
    decode_rollback_plan,
    encode_rollback_plan,
)
from lakeformat.concurrency import run_all
from lakeformat.errors import CorruptTableError, WriteConflictError
from lakeformat.model.files import LogFileName, match_data_file
from lakeformat.model.instant import REPLACE_ACTIONS, Action, Instant, State
from lakeformat.model.table_config import TableConfig
from lakeformat.storage.port import Clock, Storage
from lakeformat.timeline.store import TimelineStore
from lakeformat.timeline.timeline import Timeline
from lakeformat.transaction.order import claims
from lakeformat.transaction.order.commit_order import order_of
from lakeformat.transaction.order.decisions import Decision, DecisionState, Kind, decide, prepare_removal
from lakeformat.transaction.undo.log_rollback import cancel_blocks, log_rollback_requests, logs_that_stay
from lakeformat.transaction.undo.markers import list_marked
from lakeformat.transaction.undo.traces import Moment, Traces, list_files_of, planned_files
from lakeformat.transaction.upkeep.metadata_commits import add_files

__all__ = [
    "finish_rollback",
    "join_by_partition",
    "revert_run",
    "roll_back",
    "was_rolled_back",
]

#: Actions of writes that have one run for each instant.
_MARKED: Final = frozenset({Action.COMMIT, Action.DELTA_COMMIT})
#: Maximum number of files that are looked for at once.
_THREADS: Final = 8


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
    current = timeline.find(victim.time)
    if current is None:
        traces = Traces(store=store, time=victim.time, write_id=None if keeps_stage else claim and claim.write_id)
        prepare_removal(store, victim.time)
        # On storage without locks the table may have moved to another version without a rollback of the write.
        if order_of(store).late_ms or was_rolled_back(store, timeline, victim.time):
            # The plan of the rollback does not name files that the writer wrote after it was rolled back. If they
            # stayed, they would become visible once the instant is archived.
            _take_back_files(traces, _make_requests(store, victim, by_markers=False), victim.time)
        traces.take_back(Moment.CLAIM)
        return True
    if current.state is State.COMPLETED or _is_being_rolled_back(store, timeline, victim.time):
        return False
    rollback = claims.claim_instant(
        store, config, clock, Action.ROLLBACK, claims.Claim(claims.PROCESS, victim.time), data=None
    )
    with claims.keep_alive(store.storage, rollback.time):
        if not _decide_rollback(store, rollback, victim, claim):
            claims.release(store.storage, rollback.time)
            return False
        completed, has_logs = finish_rollback(store, rollback, clock, deletes_stage=not keeps_stage)
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
        requests = _make_requests(store, victim, by_markers=claim is not None)
        plan = RollbackPlan(victim.time, victim.action.value, requests)
        return Decision(
            kind=Kind.UNDO,
            instant_time=rollback.time,
            path=store.path(rollback.at(State.REQUESTED)),
            data=encode_rollback_plan(plan),
            undoes=victim.time if claim is None or claim.write_id is None else f"{victim.time}/{claim.write_id}",
        )

    return decide(store, check) is not None


def _is_being_rolled_back(store: TimelineStore, timeline: Timeline, instant_time: str) -> bool:
    return any(rollback.state is not State.COMPLETED for rollback in _rollbacks_of(store, timeline, instant_time))


def _make_requests(store: TimelineStore, victim: Instant, *, by_markers: bool) -> tuple[RollbackRequest, ...]:
    """Return the rollback requests that undo an instant.

    Args:
        by_markers: whether the instant's writer made a marker before each file, and none was removed since.
    """
    # Log files whose names contain a compaction's time were written by other commits, so they stay. Those with the time
    # of a plan that resizes buckets were, too, but only to new buckets, which will not be.
    is_delta = victim.action is Action.DELTA_COMMIT
    marked = [*list_marked(store.storage, victim.time)] if by_markers and victim.action in _MARKED else None
    if marked:
        own = _choose_own_files(store.storage, victim, [path for path, _ in marked])
    else:
        files = list_files_of(store, {victim.time}, logs=is_delta or victim.action in REPLACE_ACTIONS)
        own = [file.path for file in files]
    paths: dict[str, list[str]] = {}
    for path in sorted(own):
        paths.setdefault(path.rpartition("/")[0], []).append(f"{store.storage.location}/{path}")
    deletes = (RollbackRequest(partition, files_to_delete=tuple(deleted)) for partition, deleted in paths.items())
    if not is_delta or store.layout.has_completion_times:
        return tuple(deletes)
    return (*deletes, *log_rollback_requests(store.storage, victim.time, marked))


def _choose_own_files(storage: Storage, victim: Instant, paths: Sequence[str]) -> list[str]:
    """Return the paths of the files that exist and have the instant in their names."""
    parsed = ((path, match_data_file(path.rpartition("/")[2])) for path in paths)
    own = [path for path, name in parsed if name is not None and name.instant_time == victim.time]
    infos = run_all(storage.info, own, threads=_THREADS)
    return [path for path, info in zip(own, infos, strict=True) if info is not None]


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
        Traces(store=store, time=time, action=instant.action).take_back(Moment.RECORDS)
        store.revert(instant)
    files = list_files_of(store, {time}, logs=False) if runs else ()
    if claims.read_claim(storage, time) != claim:
        return
    gone = [file.path for file in files] if runs and _is_pending(store, time) else ()
    # A dead or completed run needs no staged files.
    traces = Traces(store=store, time=time, files=gone, write_id=claim.write_id)
    traces.take_back(Moment.FILES, Moment.CLAIM)


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
    return any(_rollbacks_of(store, timeline, instant_time))


def _rollbacks_of(store: TimelineStore, timeline: Timeline, instant_time: str) -> Iterator[Instant]:
    for rollback in timeline.of_action(Action.ROLLBACK):
        # An older rollback cannot undo this instant, and it may have no plan, so do not read its plan.
        if rollback.time > instant_time:
            plan = store.read_rollback_plan(rollback)
            if plan is not None and plan.instant_time == instant_time:
                yield rollback


def finish_rollback(
    store: TimelineStore, rollback: Instant, clock: Clock, *, deletes_stage: bool = False
) -> tuple[Instant, bool]:
    """Carry out a planned rollback. If an earlier run died, do only the steps that are left.

    Return the completed rollback, and whether it has deleted or cancelled log files.

    Args:
        deletes_stage: whether to delete the staged files of the undone write. If it undoes itself, it needs them again.
    """
    started = clock.now_ms()
    requested = rollback.at(State.REQUESTED)
    data = store.read(requested)
    if not data:
        raise CorruptTableError(f"{store.path(requested)} is empty; delete it and run again")
    plan = decode_rollback_plan(data, name=store.path(requested))
    if rollback.state is State.REQUESTED:
        rollback = _take_step(store, rollback, partial(store.start, rollback))
    claim = claims.read_claim(store.storage, plan.instant_time) if deletes_stage else None
    traces = Traces(store=store, time=plan.instant_time, action=plan.action, write_id=claim and claim.write_id)
    victim = store.load().find(plan.instant_time)
    partitions: tuple[RollbackPartition, ...] = ()
    if victim is None or victim.state is not State.COMPLETED:
        traces.take_back(Moment.RECORDS)
        partitions = _take_back_files(traces, plan.requests, rollback.time)
        if logs := [entry for part in partitions for entry in logs_that_stay(part)]:
            add_files(store, clock, rollback.time, logs)
    metadata = RollbackMetadata(
        start_time=rollback.time,
        time_taken_ms=clock.now_ms() - started,
        instants=((plan.instant_time, plan.action),),
        partitions=partitions,
    )
    completed = _take_step(store, rollback, partial(store.complete, rollback, metadata, clock))
    if victim is not None and victim.state is not State.COMPLETED:
        store.erase(victim)
    traces.take_back(Moment.CLAIM)
    claims.release(store.storage, rollback.time)
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


def _take_back_files(
    traces: Traces, requests: Sequence[RollbackRequest], rollback_time: str
) -> tuple[RollbackPartition, ...]:
    """Cancel blocks of log files that stay, then delete the other files and the markers. Return what was done."""
    done = [cancel_blocks(traces.store.storage, request, traces.time, rollback_time) for request in requests]
    replace(traces, files=planned_files(requests)).take_back(Moment.FILES)
    return join_by_partition(replace(part, deleted_files=of.names) for part, of in zip(done, requests, strict=True))


def join_by_partition(done: Iterable[RollbackPartition]) -> tuple[RollbackPartition, ...]:
    """Join the results of rollback requests to one result per partition, for the rollback's completed file."""
    joined: dict[str, RollbackPartition] = {}
    for part in done:
        so_far = joined.setdefault(part.partition_path, RollbackPartition(part.partition_path))
        joined[part.partition_path] = replace(
            so_far,
            deleted_files=(*so_far.deleted_files, *part.deleted_files),
            rollback_log_files={**so_far.rollback_log_files, **part.rollback_log_files},
            log_files_of_failed_commit={**so_far.log_files_of_failed_commit, **part.log_files_of_failed_commit},
        )
    return tuple(joined.values())
