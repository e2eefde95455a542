"""The undo of completed commits: of one (a rollback), or of all after an instant (a restore).

Call these functions under the table's lock. The steps of an undo are:

1. Store the plan on the timeline.
2. Write a deltacommit of the undo's time into the metadata table. No reader counts it while the undo is pending.
3. Delete the completed file of the commit, or replace it by a void commit. After that no reader sees the commit's
   rows. Remove the commit's deltacommit from the metadata table.
4. Delete the commit's data files.
5. Delete the commit's other files on the timeline.

If the process of a rollback dies before step 3, the next writer gives the rollback up; if it dies later, the next
writer finishes it. On storage without locks a rollback is finished once it is inflight. If the process of a restore
dies while the restore is requested, the next writer gives it up; if it is inflight, the next writer finishes it. While
a restore is inflight, lakeformat's readers already see the table as it will be after the restore
(`TimelineStore.load`).
Sources: Hudi's ``CopyOnWriteRollbackActionExecutor`` and ``BaseRestoreActionExecutor``.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Final

from lakeformat.codec.timeline_files.recovery import (
    CompletedRestore,
    RestorePlan,
    RollbackMetadata,
    RollbackPartition,
    RollbackPlan,
    RollbackRequest,
    decode_rollback,
    encode_rollback_plan,
)
from lakeformat.errors import CorruptTableError, UnsupportedTableError
from lakeformat.file_system_view.file_groups import Listing, list_files
from lakeformat.model.commit import CommitMetadata
from lakeformat.model.files import LogFileName, join_path, match_data_file
from lakeformat.model.instant import WRITE_ACTIONS, Action, Instant, State
from lakeformat.model.table_config import TableConfig
from lakeformat.storage.port import Clock, check_path
from lakeformat.timeline.damaged_commits import read_commit_if_whole
from lakeformat.timeline.store import TimelineStore
from lakeformat.timeline.timeline import Timeline
from lakeformat.timeline.void_commits import is_void
from lakeformat.transaction.order import claims
from lakeformat.transaction.order.claims import keep_alive
from lakeformat.transaction.order.commit_order import check_requested, order_of
from lakeformat.transaction.order.conflict import PendingActionError
from lakeformat.transaction.order.decisions import Decision, DecisionState, Kind, prepare_removal
from lakeformat.transaction.undo.log_rollback import list_own_logs
from lakeformat.transaction.undo.rollback import join_by_partition
from lakeformat.transaction.undo.traces import Moment, Traces, planned_files
from lakeformat.transaction.upkeep.metadata_undo import record_undo

__all__ = ["CommitUndo", "choose_files", "files_to_undo", "finish_restores", "give_up_or_finish", "list_remaining_logs"]

_LOG: Final = logging.getLogger("lakeformat.services")


def files_to_undo(
    victim: Instant, metadata: CommitMetadata | None, listing: Listing, kept_paths: frozenset[str]
) -> Mapping[str, tuple[str, ...]]:
    """Return a mapping of partition path to the bare names of the files to delete when an instant is undone.

    These are the files in its commit metadata, and all files with its time in their names: files of failed or repeated
    task attempts, and log files of a slice that it opened.

    Args:
        metadata: metadata of the instant's commit; None if the instant has not completed.
        kept_paths: paths of the log files in the metadata of commits that stay.

    Raises:
        UnsupportedTableError: the instant has appended to a log file of a remaining commit.
    """
    named: set[tuple[str, str]] = set()
    for stat in metadata.all_stats() if metadata else ():
        for path in (stat.path, *(path for path, _ in stat.cdc_stats)):
            if not path:
                continue
            folder, _, name = check_path(path).rpartition("/")
            if path in kept_paths:
                raise UnsupportedTableError(
                    f"commit {victim.time} has appended to {path}, which holds rows of commits that stay; use Apache "
                    "Hudi to go back"
                )
            if match_data_file(name):
                named.add((folder, name))
    named.update(
        (file.partition_path, str(file.name))
        for file in (*listing.bases, *listing.logs, *listing.change_data)
        if file.name.instant_time == victim.time
    )
    names_of: dict[str, list[str]] = {}
    for partition, name in sorted(named):
        names_of.setdefault(partition, []).append(name)
    return {partition: tuple(names) for partition, names in names_of.items()}


def choose_files(
    store: TimelineStore, victim: Instant, listing: Listing, kept_paths: frozenset[str]
) -> Mapping[str, tuple[str, ...]]:
    """Return the result of `files_to_undo`, even if the commit's completed file is damaged or gone.

    Then the names of the files show what the commit wrote; for log files of layout 1, the headers of their blocks do.
    """
    metadata = read_commit_if_whole(store, victim)
    files = files_to_undo(victim, metadata, listing, kept_paths)
    if metadata is not None or store.layout.has_completion_times or victim.action is not Action.DELTA_COMMIT:
        return files
    appended = (log for log in listing.logs if log.path not in kept_paths)
    named = {(path, name) for path, names in files.items() for name in names}
    named.update((log.partition_path, str(log.name)) for log in list_own_logs(store.storage, appended, victim.time))
    return {path: tuple(sorted(name for folder, name in named if folder == path)) for path, _ in sorted(named)}


def list_remaining_logs(store: TimelineStore, timeline: Timeline, undone: frozenset[str]) -> frozenset[str]:
    """Return the paths of the log files in the metadata of all commits whose times are not in ``undone``."""
    return frozenset(
        stat.path
        for commit in timeline.commits
        if commit.time not in undone
        for stat in store.read_commit(commit).all_stats()
        if LogFileName.match(stat.path.rpartition("/")[2])
    )


@dataclass(frozen=True)
class CommitUndo:
    """Rolls back and restores completed commits of one table."""

    store: TimelineStore
    config: TableConfig
    clock: Clock

    # --- a rollback -----------------------------------------------------------------------------------

    def begin(
        self,
        victim: Instant,
        files: Mapping[str, Sequence[str]],
        check: Callable[[DecisionState, Timeline], object] | None = None,
    ) -> Instant:
        """Decide a commit's rollback: create its requested file, which contains the plan. No file is deleted yet.

        No write that has begun before may be published afterwards, because it may have read the commit.

        Args:
            check: raises an error if the rollback conflicts with the decisions or the newest timeline.
        """
        location = self.store.storage.location
        requests = tuple(
            RollbackRequest(partition, "", "", tuple(f"{location}/{join_path(partition, name)}" for name in names))
            for partition, names in files.items()
        )
        plan = RollbackPlan(victim.time, victim.action.value, requests)
        rollback = claims.claim_instant(
            self.store, self.config, self.clock, Action.ROLLBACK,
            claims.Claim(claims.PROCESS, None, undoes=True), data=None,
        )  # fmt: skip
        decision = Decision(
            kind=Kind.UNDO,
            instant_time=rollback.time,
            path=self.store.path(rollback),
            data=encode_rollback_plan(plan),
            undoes=victim.time,
            is_barrier=True,
        )

        def check_and_decide(state: DecisionState, timeline: Timeline) -> Decision:
            if check is not None:
                check(state, timeline)
            return decision

        claims.decide_claimed(self.store, rollback, check_and_decide)
        return rollback

    def roll_back(self, rollback: Instant, *, is_recorded: bool = False) -> RollbackMetadata:
        """Carry out a planned rollback. If an earlier run died, do only the steps that are left.

        Args:
            is_recorded: whether a restore has noted in the metadata table what goes.

        Raises:
            CorruptTableError: the plan is missing.
        """
        started = self.clock.now_ms()
        store = self.store
        plan = self._plan(rollback)
        if rollback.state is State.REQUESTED:
            rollback = order_of(store).start(rollback)
        victims = self._instants_at(plan.instant_time)
        if victims and not is_recorded:
            record_undo(store, self.config, self.clock, rollback.time, dict.fromkeys(victims, plan.names))
        for victim in victims:
            if self._is_visible(victim):
                order_of(store).hide(victim, rollback)
        paths = planned_files(plan.requests)
        traces = Traces(store=store, time=plan.instant_time, action=plan.action, files=paths)
        traces.take_back(Moment.RECORDS, Moment.FILES)
        metadata = RollbackMetadata(
            start_time=rollback.time,
            time_taken_ms=self.clock.now_ms() - started,
            instants=((plan.instant_time, plan.action),),
            partitions=join_by_partition(RollbackPartition(r.partition_path, r.files_to_delete) for r in plan.requests),
        )
        # Before the rollback completes, remove the commit's timeline files and claim: a pending instant without a claim
        # would be treated as another program's write.
        for victim in self._instants_at(plan.instant_time):
            if victim.state is not State.COMPLETED:  # Else it is a void commit, which keeps the name.
                store.erase(victim)
        traces.take_back(Moment.CLAIM)
        with suppress(FileExistsError):
            store.complete(rollback, metadata, self.clock)
        claims.release(store.storage, rollback.time)
        return metadata

    def give_up(self, undo: Instant) -> None:
        """Remove from the timeline a rollback or restore that has not begun, and release its claim.

        Raises:
            WriteConflictError: its process lives and has moved it to inflight.
        """
        prepare_removal(self.store, undo.time, partial(check_requested, self.store, undo))
        traces = Traces(store=self.store, time=undo.time, action=undo.action)
        traces.take_back(Moment.RECORDS)
        self.store.erase(undo)
        traces.take_back(Moment.CLAIM)

    def has_begun(self, rollback: Instant) -> bool:
        """Tell whether a rollback has deleted the completed file of its commit, or may do so at any time.

        On storage without locks its process may still be alive. Therefore a rollback that is inflight has begun.
        """
        if order_of(self.store).may_act(rollback):
            return True
        plan = self.store.read_rollback_plan(rollback)
        instants = self._instants_at(plan.instant_time) if plan else ()
        return not any(self._is_visible(victim) for victim in instants)

    def _is_visible(self, victim: Instant) -> bool:
        metadata = read_commit_if_whole(self.store, victim)
        return victim.state is State.COMPLETED and (metadata is None or not is_void(metadata))

    def _plan(self, rollback: Instant) -> RollbackPlan:
        plan = self.store.read_rollback_plan(rollback)
        if plan is None:
            path = self.store.path(rollback.at(State.REQUESTED))
            raise CorruptTableError(f"{self.store.storage.location}/{path} is gone; restore it from a copy")
        if any(request.log_blocks_to_delete for request in plan.requests):
            raise UnsupportedTableError(
                f"{self.store.path(rollback)} is another program's and cancels blocks of log files; finish it there"
            )
        return plan

    def _instants_at(self, time: str) -> tuple[Instant, ...]:
        """Return the stored writes with this time, as void commits too, and the plans that completed as commits."""
        timeline = self.store.load(as_stored=True)
        instants = (*timeline.instants, *timeline.voids, *timeline.plans)
        return tuple(i for i in instants if i.time == time and i.action in WRITE_ACTIONS)

    # --- a restore ------------------------------------------------------------------------------------

    def restore(self, restore: Instant, plan: RestorePlan) -> None:
        """Carry out a restore: roll back each instant, newest first. If an earlier run died, do only what is left.

        The restore's completed file lists the files that all its rollbacks deleted. So the rollbacks stay on the
        timeline until the restore is complete: after a crash, the next run reads the deleted files from them. Then the
        rollbacks are removed. Memory: one object per file of the table.
        """
        started, store = self.clock.now_ms(), self.store
        if restore.state is State.REQUESTED:
            restore = order_of(store).start(restore)
        done: dict[str, RollbackMetadata] = {}
        begun = self._list_rollbacks(restore, plan)
        victims = [
            candidates for time, _ in plan.instants if time not in begun for candidates in self._instants_at(time)[:1]
        ]
        files_of = self._choose_files(victims, plan)
        if not begun:  # Else the run before has done it.
            record_undo(store, self.config, self.clock, restore.time, files_of)
        victims_by_time = {victim.time: victim for victim in victims}
        for time, _ in plan.instants:
            if time in begun:
                done[time] = self._finish_rollback(begun[time])
            elif time in victims_by_time:
                done[time] = self._finish_rollback(self.begin(victims_by_time[time], files_of[victims_by_time[time]]))
        metadata = CompletedRestore(restore.time, self.clock.now_ms() - started, plan, done)
        with suppress(FileExistsError):
            store.complete(restore, metadata, self.clock)
        for rollback in self._list_rollbacks(restore, plan).values():
            prepare_removal(store, rollback.time)
            store.remove(rollback)
        claims.release(store.storage, restore.time)

    def _choose_files(
        self, victims: Sequence[Instant], plan: RestorePlan
    ) -> Mapping[Instant, Mapping[str, tuple[str, ...]]]:
        """Return the files that go with each of the instants: a mapping of partition path to bare names."""
        if not victims:
            return {}
        store = self.store
        listing, kept = list_files(store.storage), list_remaining_logs(store, store.load(as_stored=True), plan.times)
        return {victim: choose_files(store, victim, listing, kept) for victim in victims}

    def _finish_rollback(self, rollback: Instant) -> RollbackMetadata:
        if rollback.state is not State.COMPLETED:
            return self.roll_back(rollback, is_recorded=True)
        claims.release(self.store.storage, rollback.time)
        return decode_rollback(self.store.read(rollback), name=self.store.path(rollback))

    def _list_rollbacks(self, restore: Instant, plan: RestorePlan) -> dict[str, Instant]:
        """Return a mapping of undone instant time to rollback, for the rollbacks that the restore has begun.

        Later rollbacks of other commits are not among them: if this process slept, another one may have finished the
        restore long ago.
        """
        rollbacks: dict[str, Instant] = {}
        for rollback in self.store.load(as_stored=True).of_action(Action.ROLLBACK):
            undone = self.store.read_rollback_plan(rollback) if rollback.time > restore.time else None
            if undone is not None and undone.instant_time in plan.times:
                rollbacks[undone.instant_time] = rollback
        return rollbacks


def give_up_or_finish(undoing: CommitUndo, rollback: Instant) -> None:
    """Give up or finish the rollback of a completed commit after the process of the rollback died.

    If the rollback has not begun, remove it; if it has, finish it.
    """
    if undoing.has_begun(rollback):
        _LOG.warning("finishing rollback %s in %s, whose process died", rollback.time, undoing.store.storage.location)
        undoing.roll_back(rollback)
    else:
        undoing.give_up(rollback)


def _take_over(store: TimelineStore, restore: Instant, claim: claims.Claim | None, clock: Clock) -> bool:
    """Claim a restore whose process died. Return False if another process finishes it."""
    if claim is None:
        try:
            claims.claim_plan(store.storage, restore.time, token="")
        except FileExistsError:
            return False
        return True
    return order_of(store).take_over(restore, clock)


def finish_restores(undoing: CommitUndo, restores: Iterable[Instant], *, restore_target: str | None = None) -> None:
    """Finish restores whose process died. Give up those that have changed nothing yet.

    Args:
        restore_target: an instant. A pending restore of another program to this instant is finished, too.

    Raises:
        WriteConflictError: a restore is running, or belongs to another program. No process may write until it ends.
    """
    store, storage = undoing.store, undoing.store.storage
    for restore in restores:
        claim = claims.read_claim(storage, restore.time)
        plan = store.read_restore_plan(restore)
        if claim is None and (plan is None or plan.target != restore_target):
            to = f"restore('{plan.target}')" if plan and plan.target else "the same restore"
            raise PendingActionError(
                f"another program's {store.path(restore)} is pending in {storage.location}; wait for it, or run {to} "
                "again to finish it"
            )
        if claim is not None:
            lives = claims.is_alive(store, restore, claim, undoing.clock)
        else:
            lives = claims.has_live_heartbeat(store, restore, undoing.clock, grace_ms=claims.FOREIGN_GRACE_MS)
        if lives:
            raise PendingActionError(f"{store.path(restore)} is running in {storage.location}; wait for it")
        if plan is None or (restore.state is State.REQUESTED and claim is not None):
            undoing.give_up(restore)
            continue
        if not _take_over(store, restore, claim, undoing.clock):
            raise PendingActionError(f"{store.path(restore)} is running in {storage.location}; wait for it")
        _LOG.warning(
            "finishing restore %s to %s in %s, whose process died", restore.time, plan.target, storage.location
        )
        with keep_alive(storage, restore.time):
            undoing.restore(restore, plan)
