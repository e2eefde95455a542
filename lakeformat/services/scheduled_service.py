"""Steps shared by clustering and compaction, which run plans: planning, claiming, starting and undoing a run.

A plan waits on the timeline until a process claims it and runs it. The claim is a file outside the timeline. The lock
is held to plan, to claim and to publish, not while files are rewritten. Claim and inflight file are written without
releasing the lock in between. So another writer finds both or neither, unless the process has died between the two
steps. If the process of a run has died, the next writer undoes the run. Depending on the claim, the plan then stays, to
be run again, or is removed, too (`lakeformat.transaction.undo.recovery.recover`).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Final, TypeVar

from lakeformat.concurrency import Attempts
from lakeformat.errors import InvalidInputError, LakeformatError, WriteConflictError
from lakeformat.file_system_view.context import TableContext
from lakeformat.file_system_view.snapshot import Snapshot
from lakeformat.model.files import FileGroupId
from lakeformat.model.instant import Action, Instant, State
from lakeformat.model.record import COMMIT_TIME
from lakeformat.timeline.store import TimelineStore
from lakeformat.timeline.timeline import Timeline
from lakeformat.transaction.commit.completed_file import OpenCommit
from lakeformat.transaction.commit.transaction import Transaction
from lakeformat.transaction.order import claims
from lakeformat.transaction.order.claims import advise_to_wait
from lakeformat.transaction.order.conflict import OverlapError, PendingActionError, conflict_of, repeat_after
from lakeformat.transaction.undo.rollback import revert_run

__all__ = [
    "PlanOvertakenError",
    "ScheduledService",
    "find_newest_schema_text",
    "list_planned_groups",
    "not_pending_error",
]

_LOG: Final = logging.getLogger("lakeformat.services")
_COMPACTIONS: Final = frozenset({Action.COMPACTION, Action.LOG_COMPACTION})
_Plan = TypeVar("_Plan")
_Checked = TypeVar("_Checked")
_Result = TypeVar("_Result")


class PlanOvertakenError(WriteConflictError):
    """A plan was not decided, because another process has changed or planned some of its file groups first."""


def not_pending_error(service: str, instant_time: str, pending: Collection[str]) -> InvalidInputError:
    """Return the error for an instant that is not a pending plan."""
    pending_text = f"pending are {', '.join(pending)}" if pending else "none is pending"
    return InvalidInputError(f"no {service} {instant_time} is pending; {pending_text}")


def list_planned_groups(store: TimelineStore, timeline: Timeline) -> frozenset[FileGroupId]:
    """Return the file groups of pending compactions, log compactions and clusterings.

    Raises:
        CorruptTableError: a plan cannot be read.
    """
    groups = set(store.read_clustering_groups(timeline))
    for instant in timeline.pending:
        if instant.action in _COMPACTIONS and (plan := store.read_compaction_plan(instant)) is not None:
            groups.update(operation.group for operation in plan.operations)
    return frozenset(groups)


@dataclass(frozen=True)
class ScheduledService:
    """Steps of a run that do not depend on the kind of the plan.

    Attributes:
        transaction: transaction that begins, publishes and undoes the run's commit.
        name: name of the service, for messages.
    """

    transaction: Transaction
    name: str

    @property
    def _token(self) -> str:
        return self.transaction.settings.write_id

    def begin(self, timeline: Timeline, plan: bytes) -> OpenCommit:
        """Write a requested plan to the timeline, with a claim for this process. Call under the lock.

        Raises:
            PlanOvertakenError: another process was first; plan again.
        """
        try:
            return self.transaction.begin(timeline.commit_times, plan=plan)
        except PendingActionError:
            raise
        except WriteConflictError as error:
            raise PlanOvertakenError(str(error)) from None

    def plan_again(self, attempt: Callable[[], _Result]) -> _Result:
        """Run an attempt to plan, and again if another process was first or has archived a commit: planning is cheap.

        Raises:
            WriteConflictError: the last attempt failed, too.
        """
        attempts = Attempts(self.transaction.settings.patience, self.transaction.context.ids.token, level=logging.INFO)
        try:
            return repeat_after((PlanOvertakenError, FileNotFoundError), attempt, attempts)
        except FileNotFoundError as error:
            raise conflict_of(self.transaction.storage.location, error) from None

    def release(self, commit: OpenCommit) -> None:
        """Release the claim of a plan that `begin` wrote, so that any process may run the plan. Call under the lock."""
        claims.release(self.transaction.storage, commit.time)

    # --- claiming -------------------------------------------------------------------------------------

    def claim_one(
        self,
        pending: Mapping[str, tuple[Instant, _Plan]],
        instant_time: str | None,
        timeline: Timeline,
        check: Callable[[Instant, _Plan], _Checked],
    ) -> tuple[OpenCommit, _Checked] | None:
        """Claim and start a plan: the one named, else the oldest that can be run. Call under the lock.

        Another program, such as Hudi, may have begun to run a plan without a claim, and may have no recent heartbeat.
        If the caller names such a plan, that run is undone and the plan is started again. If the caller names no plan,
        such plans are skipped, because the other program may only be slow.

        Args:
            pending: maps instant time to instant and plan, oldest first.
            instant_time: instant time of the named plan; None names no plan.
            check: called with instant and plan. It raises an error if the plan cannot be run; else it returns what the
                run needs.

        Returns:
            The started commit and the result of ``check``; None if no plan waits to be run.

        Raises:
            InvalidInputError: the named plan is not pending.
            LakeformatError: the named plan cannot be run. If no plan is named and none can be run, this is the error
                of the oldest plan.
        """
        if instant_time is not None and instant_time not in pending:
            raise not_pending_error(self.name, instant_time, pending)
        refusals: list[LakeformatError] = []
        for instant, plan in pending.values():
            if instant.time != (instant_time or instant.time):
                continue
            if instant_time is None and instant.state is not State.REQUESTED:
                continue
            try:
                checked = check(instant, plan)
                self._claim(instant)
                known_commits = timeline.commit_times
                commit = OpenCommit(
                    instant.at(State.REQUESTED), self._token, known_commits, self.transaction.lock.decisions
                )
                return self.start(commit, keeps_plan=True), checked
            except LakeformatError as error:
                if instant_time is not None:
                    raise
                _LOG.warning("%s", error)
                refusals.append(error)
        if refusals:
            raise refusals[0]
        return None

    def _claim(self, instant: Instant) -> None:
        if instant.state is not State.REQUESTED and not self._take_over(instant):
            raise self.runs_elsewhere_error(instant)
        try:
            claims.claim_plan(self.transaction.storage, instant.time, token=self._token)
        except FileExistsError:
            raise self.runs_elsewhere_error(instant) from None

    def _take_over(self, instant: Instant) -> bool:
        """Undo another program's run of a plan if the run has no recent heartbeat. Return whether it was undone."""
        transaction = self.transaction
        storage, store, clock = transaction.storage, transaction.store, transaction.context.clock
        if claims.read_claim(storage, instant.time) is not None:
            return False
        if claims.has_live_heartbeat(store, instant, clock, grace_ms=claims.FOREIGN_GRACE_MS):
            return False
        _LOG.warning("undoing the run of %s, whose program shows no life; its plan stays", store.path(instant))
        with suppress(FileExistsError):
            claims.claim_plan(storage, instant.time, token=self._token)
            revert_run(store, instant)
            return True
        return False

    def start(self, commit: OpenCommit, *, keeps_plan: bool) -> OpenCommit:
        """Make a claimed plan inflight. Call before the lock under which the plan was claimed is released.

        Otherwise another writer could find a plan that is claimed but not inflight.

        Args:
            keeps_plan: whether the plan stays on the timeline if this fails.

        Raises:
            WriteConflictError: another program, which does not use claims, has begun to run the plan; its run
                continues.
        """
        try:
            return self.transaction.start(commit, None)
        except WriteConflictError:
            claims.release(self.transaction.storage, commit.time)
            raise self.runs_elsewhere_error(commit.instant) from None
        except BaseException:
            with suppress(LakeformatError, OSError):  # If the undo fails too, the next writer undoes the run.
                self._undo(commit, keeps_plan=keeps_plan)
            raise

    def runs_elsewhere_error(self, instant: Instant) -> WriteConflictError:
        """Return the error for a plan that another process is running."""
        storage = self.transaction.storage
        claim = claims.read_claim(storage, instant.time)
        how = advise_to_wait(storage, claim)
        if claim is None:
            minutes = claims.FOREIGN_GRACE_MS // 60_000
            how += f", or, if that program has died, run it by name {minutes} minutes after it began"
        return WriteConflictError(f"{self.name} {instant.time} runs in another process; {how}")

    # --- running --------------------------------------------------------------------------------------

    def check_claim(self, commit: OpenCommit) -> None:
        """Check that no other writer has undone this run. Call under the lock, before new files enter partitions.

        Raises:
            WriteConflictError: another writer considered this run dead, and has undone it.
        """
        if not self._is_ours(commit):
            raise self._make_undone_error(commit)

    def _make_undone_error(self, commit: OpenCommit) -> WriteConflictError:
        return WriteConflictError(
            f"{self.name} {commit.time} of {self.transaction.storage.location} was undone by another writer, which "
            "took it for dead; run it again"
        )

    def _is_ours(self, commit: OpenCommit) -> bool:
        claim = claims.read_claim(self.transaction.storage, commit.time)
        return claim is not None and claim.write_id == commit.token

    @contextmanager
    def undo_on_failure(self, commit: OpenCommit, *, keeps_plan: bool) -> Iterator[None]:
        """Undo the run if the block raises an error. Unless ``keeps_plan``, remove the plan too.

        Raises:
            WriteConflictError: a file is missing because another process has deleted it.
        """
        is_ours = True

        def undo(error: BaseException) -> None:
            nonlocal is_ours
            is_ours = self._is_ours(commit)
            if is_ours:
                # OverlapError: files of the plan have changed, so it can never be run. Remove it.
                self._undo(commit, keeps_plan=keeps_plan and not isinstance(error, OverlapError))

        try:
            with self.transaction.staging(), self.transaction.undo_on_failure(undo):
                yield
        except FileNotFoundError as error:
            if not is_ours:
                raise self._make_undone_error(commit) from None
            raise conflict_of(self.transaction.storage.location, error) from None

    def _undo(self, commit: OpenCommit, *, keeps_plan: bool) -> None:
        if keeps_plan:
            revert_run(self.transaction.store, commit.instant)
        else:
            self.transaction.undo(commit, keeps_stage=False)


def find_newest_schema_text(context: TableContext, snapshot: Snapshot) -> str:
    """Return the schema text of the newest commit that stores a schema; "" if none does, or if it has meta columns."""
    for instant in reversed(snapshot.timeline.commits):
        text = context.store.read_commit(instant).schema_text
        if text:
            return "" if COMMIT_TIME in text else text
    return ""
