"""One transaction: begin, work while a thread renews the heartbeat, publish under the lock; undo and retry on failure.

Every writer and every service uses it. It holds the lock only to begin and to publish, so writers work at the same
time. If a writer dies, the next writer rolls it back.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from dataclasses import replace
from typing import Final, TypeVar

from lakeformat.codec.timeline_files.service_plans import encode_requested_replace
from lakeformat.concurrency import Attempts
from lakeformat.errors import (
    CommitStateUnknownError,
    LakeformatError,
    StorageError,
    TableNotFoundError,
    WriteConflictError,
)
from lakeformat.file_system_view.context import TableContext
from lakeformat.file_system_view.snapshot import Snapshot
from lakeformat.files.missing_files import CleanedFileError
from lakeformat.model.commit import CommitMetadata
from lakeformat.model.instant import Action, State
from lakeformat.model.operation import Operation
from lakeformat.timeline.timeline import Timeline
from lakeformat.timeline.write_report import Report
from lakeformat.transaction.commit.completed_file import OpenCommit
from lakeformat.transaction.commit.hooks import Hooks
from lakeformat.transaction.commit.pending_plans import check_pending_clusterings, make_plan_check
from lakeformat.transaction.commit.publish import BatchWrittenError, Publisher
from lakeformat.transaction.commit.result import WriteResult
from lakeformat.transaction.commit.writer_lock import StaleBaseError, WriterLock
from lakeformat.transaction.order import claims
from lakeformat.transaction.order.batch_ids import read_last_batches
from lakeformat.transaction.order.claims import PROCESS, keep_alive
from lakeformat.transaction.order.commit_order import order_of
from lakeformat.transaction.order.conflict import (
    StalePlanError,
    conflict_of,
    is_stuck,
)
from lakeformat.transaction.order.outcome import Outcome
from lakeformat.transaction.order.settings import TransactionSettings
from lakeformat.transaction.order.written_file import stage_folder
from lakeformat.transaction.undo.rollback import roll_back
from lakeformat.transaction.undo.traces import Moment, Traces

__all__ = ["Transaction"]

_LOG: Final = logging.getLogger("lakeformat.write")
_Result = TypeVar("_Result")


class Transaction:
    """One write, which becomes visible as a whole or not at all.

    Attributes:
        report: steps and counts of the current attempt; `retry` begins a new report for each attempt.
    """

    def __init__(self, context: TableContext, settings: TransactionSettings, hooks: Hooks) -> None:
        self.context, self.settings, self.hooks = context, settings, hooks
        self.storage, self.store = context.storage, context.store
        self.report = self._make_report()
        self.publisher, self.lock = Publisher(context, settings, hooks), WriterLock(context, settings)

    def _make_report(self) -> Report:
        return Report(self.context.clock, self.settings.operation.value, self.storage.location)

    @contextmanager
    def hold_lock(self, *, kept_plan: str | None = None) -> Iterator[None]:
        """Hold the table's lock during the block. Before a write has begun, first undo the writes of dead writers.

        On storage without locks there is a lock only if Hudi writes to the table, too. If this transaction holds the
        lock already, this does nothing. If the block published a commit, call the listeners after the lock is released.

        Args:
            kept_plan: instant time of a clustering whose plan stays even if a run of it has died.
        """
        if self.lock.is_held:
            yield
            return
        with self.lock.hold(kept_plan):
            yield
        self.publisher.call_after_release()

    def retry(self, attempt: Callable[[], _Result]) -> _Result:
        """Run an attempt. After a conflict run it again, for as long as the settings say.

        If a file that the attempt reads was deleted meanwhile, that is a conflict, too.
        On storage with locks a late attempt holds the lock throughout, so no other writer of lakeformat can conflict.

        Raises:
            StalePlanError: the write must be planned again.
            WriteConflictError: the last attempt had a conflict.
        """
        attempts = Attempts(self.settings.patience, self.context.ids.token)
        while True:
            self.lock.has_begun = False
            try:
                if order_of(self.store).is_alone and attempts.is_late:
                    with self.hold_lock():
                        return attempt()
                return attempt()
            except (BatchWrittenError, StaleBaseError):
                pass  # The next attempt skips the batch, or reads the table after the undo.
            except (TableNotFoundError, StalePlanError) as error:
                self.report.end(error=error)
                raise
            except (WriteConflictError, CleanedFileError, FileNotFoundError) as error:
                self.report.end(error=error)
                if not attempts.wait(error, is_stuck=is_stuck(error)):
                    raise conflict_of(self.storage.location, error) from None
                self.report = self._make_report()
            except Exception as error:
                self.report.end(error=error)
                raise

    def skip_known_batch(self, snapshot: Snapshot) -> WriteResult | None:
        """Return a skipped write's result if the batch is in the table already, else None.

        Before a write is skipped, what it has staged is removed, and the leftovers of dead writers: the batch's own
        writer may have died.
        """
        batch = self.settings.batch
        last = read_last_batches(self.store, snapshot.timeline, batch.app).get(batch.app) if batch else None
        if batch is None or last is None or batch.id > last:
            return None
        with self.hold_lock():
            pass
        self.delete_stage()
        return self.skip(snapshot, f"batch {batch.id} of {batch.app!r} is in the table already, its last one is {last}")

    def skip_published_batch(self, commit: OpenCommit, snapshot: Snapshot, error: BatchWrittenError) -> WriteResult:
        """Undo a write whose batch another run has published. Return the result of a skipped write."""
        self.undo(commit)
        self.delete_stage()
        return self.skip(snapshot, str(error))

    def skip(self, snapshot: Snapshot, why: str) -> WriteResult:
        """Return the result of a write that has nothing to do, and log it. ``why`` is the reason."""
        report = self.report.end(skipped=why)
        result = WriteResult(snapshot.instant_time or "", self.settings.operation.value, report, why)
        _LOG.info("%s: %s", self.storage.location, result)
        return result

    # --- begin ----------------------------------------------------------------------------------------

    def begin(self, known: frozenset[str], *, claim_kind: str = PROCESS, plan: bytes | None = None) -> OpenCommit:
        """Claim the next instant. Call it under the lock.

        If the kind of the claim is ``process``, enter `keep_alive` before the lock is released.

        Args:
            known: times of the commits that the write starts from.
            claim_kind: ``process`` if this process carries out the whole write, else ``heartbeat``.
            plan: content of the requested file; None for the content that an instant of the action has without a plan.
        """
        settings, action = self.settings, self.settings.operation.action
        if settings.operation is Operation.CLUSTER:
            action = self.store.layout.clustering
        elif action is Action.COMMIT and settings.config.takes_logs:
            action = Action.DELTA_COMMIT
        data = encode_requested_replace() if action is Action.REPLACE_COMMIT else b""
        instant = claims.claim_instant(
            self.store,
            settings.config,
            self.context.clock,
            action,
            claims.Claim(claim_kind, settings.write_id, dead_after_ms=settings.dead_after_ms),
            data=data if plan is None else None,
            seen=self.lock.seen,
        )
        if plan is not None:
            check = make_plan_check(self.store, instant, plan, known, self.lock.decisions)
            claims.decide_claimed(self.store, instant, check, self.lock.lease)
        self.lock.has_begun = True
        return OpenCommit(instant, settings.write_id, known, self.lock.decisions)

    def move_to_inflight(
        self,
        commit: OpenCommit,
        profile: CommitMetadata,
        snapshot: Snapshot,
        overwritten: Iterable[str] | None = None,
        *,
        is_certain: bool = True,
    ) -> OpenCommit:
        """Check that no pending clustering will rewrite the touched file groups, then move the instant to inflight.

        Call it before the file groups are rewritten.

        Args:
            profile: the workload profile; its write stats name the touched file groups.
            snapshot: the table's snapshot when the write started.
            overwritten: partitions whose file groups are replaced.
            is_certain: False if the write may turn out to change nothing in the file groups of the profile. Then only
                the file groups of ``overwritten`` are checked.

        Raises:
            WriteConflictError: a pending clustering is going to rewrite a touched file group.
        """
        touched = {stat.group for stat in profile.all_stats() if stat.file_id}
        replaced = {piece.group for path in overwritten or () for piece in snapshot.slices.get(path, ())}
        checked = frozenset(replaced | touched if is_certain else replaced)
        check_pending_clusterings(self.store, snapshot.timeline, checked)
        return self.start(commit, profile)

    def start(self, commit: OpenCommit, profile: CommitMetadata | None) -> OpenCommit:
        """Move the instant from requested to inflight.

        Args:
            profile: the workload profile, stored in the inflight file in Hudi's form; None for a clustering.

        Raises:
            WriteConflictError: another writer has moved the instant to inflight.
        """
        try:
            instant = self.store.start(commit.instant, profile)
        except FileExistsError:
            raise WriteConflictError(
                f"instant {commit.time} of {self.storage.location} was taken over by another writer; "
                "run the write again"
            ) from None
        return replace(commit, instant=instant)

    def list_overwritten(self, partitions: Iterable[str], snapshot: Snapshot) -> frozenset[str] | None:
        """Return the partitions whose contents the write replaces; None if its operation does not overwrite.

        Args:
            partitions: partitions that the write has rows for.
        """
        if not self.settings.operation.is_overwrite:
            return None
        if self.settings.operation is Operation.INSERT_OVERWRITE_TABLE:
            return frozenset({*snapshot.slices, *partitions})
        named = self.settings.overwritten if self.settings.operation is Operation.INSERT_OVERWRITE else frozenset()
        return named or frozenset(partitions)

    # --- work -----------------------------------------------------------------------------------------

    @contextmanager
    def resume(self, commit: OpenCommit) -> Iterator[None]:
        """Go on with an instant that another process has begun. If the block raises, undo the write."""
        self.lock.has_begun = True
        with self.keep_alive(commit), self.undo_on_failure(lambda _: self.undo(commit)):
            yield

    @contextmanager
    def run_unlocked(self, known: frozenset[str] | None = None, base: Timeline | None = None) -> Iterator[OpenCommit]:
        """Begin an instant, and renew its heartbeat while the block runs unlocked. If the block raises, undo the write.

        Args:
            known: times of the commits that the write starts from; by default those completed now.
            base: the timeline of the snapshot that the write has read; None if it has read none.
        """
        self.lock.has_begun = False
        with ExitStack() as life:
            with self.hold_lock():
                known = known if known is not None else self.store.load().commit_times
                self.lock.check_base(base)
                commit = self.begin(known)
                life.enter_context(self.keep_alive(commit))
            with self.undo_on_failure(lambda _: self.undo(commit)):
                yield commit

    @contextmanager
    def undo_on_failure(self, undo: Callable[[BaseException], None]) -> Iterator[None]:
        """Undo the write if the block raises, unless the commit may be visible.

        If the undo fails, the next writer undoes the write.

        Args:
            undo: called with the error, under the lock.
        """
        try:
            yield
        except CommitStateUnknownError:
            raise
        except BaseException as error:
            self.report.end(error=error)
            with suppress(LakeformatError, OSError), self.hold_lock():
                undo(error)
            raise

    def keep_alive(self, commit: OpenCommit) -> AbstractContextManager[None]:
        """Keep the write's claim locked and its heartbeat fresh while the block runs."""
        return keep_alive(self.storage, commit.time, self.settings.heartbeat_seconds)

    def undo(self, commit: OpenCommit, *, keeps_stage: bool = True) -> None:
        """Roll back this writer's failed write, but no completed one, under the lock. Keep staged files if asked."""
        with self.hold_lock():
            is_undone = roll_back(
                self.store,
                self.settings.config,
                self.context.clock,
                commit.instant,
                keeps_stage=keeps_stage,
                keeps_rollback=self._was_seen(commit),
            )
            if not is_undone:
                current = self.store.load().find(commit.time)
                if current is not None and current.state is State.COMPLETED:
                    self._tidy(commit)
        self.lock.has_begun = False

    def _was_seen(self, commit: OpenCommit) -> bool:
        """Tell whether another writer may have noted this write as pending, so that it looks for a rollback of it."""
        is_alone = claims.is_only_claim(self.storage, commit.time)
        return not is_alone or bool(self.store.load().completed_since(commit.known))

    # --- publish --------------------------------------------------------------------------------------

    def publish(self, commit: OpenCommit, outcome: Outcome) -> None:
        """Validate the write, publish it under the lock, and call the listeners.

        Raises:
            ValidationFailedError, WriteConflictError: nothing was published; the caller must undo the write.
            CommitStateUnknownError: the commit may or may not be visible; the caller must delete nothing.
        """
        with self.hold_lock():
            self.publisher.publish(commit, outcome, self.report, self.lock.lease)

    def close(self, commit: OpenCommit, *, has_stage: bool = True, markers: Sequence[str] | None = None) -> WriteResult:
        """Remove the leftovers of the commit. Return the result of the write, and log it.

        Args:
            has_stage: whether this write may have a stage folder that its caller does not remove.
            markers: the paths of the markers; None if they are not known.
        """
        self._tidy(commit, has_stage=has_stage, markers=markers)
        result = WriteResult(commit.time, self.settings.operation.value, self.report.end(commit.time))
        _LOG.info("%s: %s", self.storage.location, result)
        return result

    def _tidy(self, commit: OpenCommit, *, has_stage: bool = True, markers: Sequence[str] | None = None) -> None:
        """Remove markers, stage folder and claim after the commit. If storage fails, the next writer removes them."""
        traces = Traces(
            store=self.store,
            time=commit.time,
            markers=None if self.storage.has_folders else markers,
            write_id=commit.token if has_stage else None,
        )
        try:
            traces.take_back(Moment.FILES, Moment.CLAIM)
        except StorageError as error:
            _LOG.warning(
                "leftovers of commit %s in %s stay until the next write: %s", commit.time, self.storage.location, error
            )

    # --- the stage ------------------------------------------------------------------------------------

    def delete_stage(self) -> None:
        """Remove the write's stage folder. If that fails, a later write removes it."""
        with suppress(LakeformatError, OSError):
            self.storage.delete_folder(stage_folder(self.settings.write_id))

    @contextmanager
    def staging(self, *, is_whole: bool = False) -> Iterator[None]:
        """Remove the stage folder if the block raises, unless the commit may be visible.

        Args:
            is_whole: whether nothing is staged any more when the block ends, so that the folder goes then, too.
        """
        try:
            yield
        except CommitStateUnknownError:
            raise
        except BaseException:
            self.delete_stage()
            raise
        if is_whole:
            self.delete_stage()
