"""One transaction: begin, work while a thread renews the heartbeat, publish under the lock; undo and retry on failure.

Every writer and every service uses it. It holds the lock only to begin and to publish, so writers work at the same
time. If a writer dies, the next writer rolls it back.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from dataclasses import replace
from functools import partial
from typing import Final, TypeVar

from lakeformat.codec.timeline_files.service_plans import encode_requested_replace
from lakeformat.concurrency import Attempts, run_both
from lakeformat.errors import (
    CommitStateUnknownError,
    LakeformatError,
    StorageError,
    TableNotFoundError,
    WriteConflictError,
)
from lakeformat.file_system_view.context import TableContext
from lakeformat.file_system_view.file_index.load import undone_times
from lakeformat.file_system_view.snapshot import Snapshot
from lakeformat.files.missing_files import CleanedFileError
from lakeformat.locks import excludes_writers, lock_table
from lakeformat.model.commit import CommitMetadata
from lakeformat.model.files import FileGroupId
from lakeformat.model.instant import WRITE_ACTIONS, Action, Instant, State
from lakeformat.model.operation import Operation
from lakeformat.storage.port import Lease, is_remote
from lakeformat.timeline.timeline import Timeline
from lakeformat.timeline.write_report import Report
from lakeformat.transaction.commit.commit_listeners import (
    Callbacks,
    CommitListener,
    FileIndexUpdater,
    HashingMetadataWriter,
    MetadataTableWriter,
    PublishedCommit,
    SchemaHistoryWriter,
)
from lakeformat.transaction.commit.completed_file import OpenCommit, put_completed
from lakeformat.transaction.commit.hooks import CommitMessage, Hooks
from lakeformat.transaction.commit.pending_plans import check_pending_clusterings, make_plan_check
from lakeformat.transaction.commit.publish import (
    changed_columns,
    count_rows,
    make_commit_metadata,
    make_publish_check,
    read_other_writes,
    validate_write,
)
from lakeformat.transaction.commit.result import WriteResult
from lakeformat.transaction.order import claims
from lakeformat.transaction.order.batch_ids import make_batches_entry, read_last_batches
from lakeformat.transaction.order.claims import PROCESS, keep_alive
from lakeformat.transaction.order.commit_order import order_of
from lakeformat.transaction.order.conflict import (
    StalePlanError,
    check_conflicts,
    check_opened_slices,
    conflict_of,
    is_stuck,
    reduce_compactions,
)
from lakeformat.transaction.order.decisions import DecisionState, warn_of_single_writer
from lakeformat.transaction.order.foreign_writes import check_foreign_writes, wait_for_begun_writes
from lakeformat.transaction.order.outcome import NewKeyCheck, Outcome
from lakeformat.transaction.order.properties_file import add_properties
from lakeformat.transaction.order.settings import TransactionSettings
from lakeformat.transaction.order.written_file import stage_folder
from lakeformat.transaction.undo.recovery import recover
from lakeformat.transaction.undo.rollback import roll_back
from lakeformat.transaction.undo.traces import Moment, Traces
from lakeformat.transaction.upkeep.metadata_creation import make_missing_partitions

__all__ = ["BatchWrittenError", "Transaction"]

_LOG: Final = logging.getLogger("lakeformat.write")
_Result = TypeVar("_Result")
_UNDOS: Final = frozenset({Action.ROLLBACK, Action.RESTORE})


class BatchWrittenError(WriteConflictError):
    """Another run of the same batch was published while this one was running."""


class _StaleBaseError(WriteConflictError):
    """The snapshot that the write has read contains a write that was undone since."""


class Transaction:
    """One write, which becomes visible as a whole or not at all.

    Attributes:
        report: steps and counts of the current attempt; `retry` begins a new report for each attempt.
    """

    def __init__(self, context: TableContext, settings: TransactionSettings, hooks: Hooks) -> None:
        self.context, self.settings, self.hooks = context, settings, hooks
        self.storage, self.store = context.storage, context.store
        self.report = self._make_report()
        self.listeners: tuple[CommitListener, ...] = (
            MetadataTableWriter(context, settings.metadata.compact_commits),
            SchemaHistoryWriter(context),
            HashingMetadataWriter(context, settings.first_buckets),
            *([FileIndexUpdater(context, settings.index)] if settings.keeps_index else []),
            Callbacks(hooks.callbacks),
        )
        self._published: PublishedCommit | None = None
        self._lease: Lease | None = None
        self._seen: tuple[DecisionState, Timeline] | None = None
        self._has_begun = self._is_locked = False

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
        if self._is_locked:
            yield
            return
        warn_of_single_writer(self.storage)
        clock, find = self.context.clock, partial(claims.list_claims, self.storage)
        with lock_table(self.storage, self.settings.lock, clock=clock) as lease:
            self._lease = lease if excludes_writers(self.storage, self.settings.lock) else None
            if not self._has_begun:
                _, claimed = run_both(self._check_version, find, at_once=is_remote(self.storage))
                self._seen = recover(self.store, self.settings.config, clock, kept_plan=kept_plan, claimed=claimed)
                add_properties(self.store, clock, self.settings.lacking)
                make_missing_partitions(self.store, clock, self.settings, lease, self._seen[1])
            elif self._lease is not None:
                self._check_version()  # Without locks, a change of the version is a barrier for writes that have begun.
            self._is_locked = True
            try:
                yield
            finally:
                self._is_locked = False
        published, self._published = self._published, None
        if published is not None:
            for listener in self.listeners:
                listener.after_release(published)

    @property
    def decisions(self) -> int:
        """Return the number of decisions that others had made when the lock was taken."""
        return self._seen[0].number if self._seen is not None else 0

    def _check_version(self) -> None:
        planned, found = self.settings.config.version, self.store.config().version
        if planned != found:
            raise StalePlanError(
                f"{self.storage.location} was moved from table version {planned} to {found} meanwhile; run the write "
                "again"
            )

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
            self._has_begun = False
            try:
                if order_of(self.store).is_alone and attempts.is_late:
                    with self.hold_lock():
                        return attempt()
                return attempt()
            except (BatchWrittenError, _StaleBaseError):
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
            seen=self._seen,
        )
        if plan is not None:
            check = make_plan_check(self.store, instant, plan, known, self.decisions)
            claims.decide_claimed(self.store, instant, check, self._lease)
        self._has_begun = True
        return OpenCommit(instant, settings.write_id, known, self.decisions)

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
        touched = {one.group for one in profile.all_stats() if one.file_id}
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
        self._has_begun = True
        with self.keep_alive(commit), self.undo_on_failure(lambda _: self.undo(commit)):
            yield

    @contextmanager
    def run_unlocked(self, known: frozenset[str] | None = None, base: Timeline | None = None) -> Iterator[OpenCommit]:
        """Begin an instant, and renew its heartbeat while the block runs unlocked. If the block raises, undo the write.

        Args:
            known: times of the commits that the write starts from; by default those completed now.
            base: the timeline of the snapshot that the write has read; None if it has read none.
        """
        self._has_begun = False
        with ExitStack() as life:
            with self.hold_lock():
                known = known if known is not None else self.store.load().commit_times
                self._check_base(base)
                commit = self.begin(known)
                life.enter_context(self.keep_alive(commit))
            with self.undo_on_failure(lambda _: self.undo(commit)):
                yield commit

    def _check_base(self, base: Timeline | None) -> None:
        """Check that none of the writes on the timeline of the write's snapshot was undone since.

        The snapshot may contain files of a pending write, too: log files, which readers skip block by block.

        Raises:
            _StaleBaseError: one of them was undone, so its files may be gone.
        """
        if base is None or self._seen is None:
            return
        known = {i.time for i in base.instants if i.action in _UNDOS and i.state is State.COMPLETED}
        now = (i for i in self._seen[1].instants if i.action in _UNDOS and i.state is State.COMPLETED)
        undone = undone_times(self.store, (i for i in now if i.time not in known))
        undone &= {i.time for i in base.instants if i.action in WRITE_ACTIONS}
        if undone:
            raise _StaleBaseError(
                f"commit {min(undone)} of {self.storage.location} was undone while this write began; run the write "
                "again"
            )

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
        self._has_begun = False

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
            self._publish(commit, outcome)

    def _publish(self, commit: OpenCommit, outcome: Outcome) -> None:
        for listener in self.listeners:
            listener.add_counts(self.report)
        stats, replaced = outcome.stats, outcome.replaced_ids
        opened = [stat for stat in stats if stat.prev_commit in {None, commit.time}]
        count_rows(self.settings.operation, self.report, stats, len(opened), replaced)
        self.report.columns = changed_columns(outcome)
        validate_write(self.context, self.settings, self.hooks, self.report, commit, outcome.schema, stats, replaced)
        changed = [] if self.settings.operation.allows_appends else stats
        merged = {s.group for s in changed} - {s.group for s in opened}
        hidden = {FileGroupId(partition, id_) for partition, ids in replaced.items() for id_ in ids}
        metadata = make_commit_metadata(self.settings, self.hooks, self.report, outcome, commit.time, stats, replaced)
        check_new_keys = make_publish_check(outcome, frozenset(stat.partition_path for stat in opened))
        with self.report.step("publish"):
            instant, batches = self._put_completed(
                commit, metadata, frozenset(merged | hidden), outcome, check_new_keys
            )
        published = PublishedCommit(
            commit=commit,
            instant=instant,
            schema=outcome.schema,
            written=outcome.written,
            base=outcome.snapshot,
            hidden=frozenset(hidden),
            message=CommitMessage(
                commit.time,
                self.settings.config.name,
                self.context.storage.location,
                instant.action.value,
                self.settings.operation.value,
                tuple(metadata.all_stats()),
                {**self.hooks.extra_metadata, **batches},
            ),
        )
        for listener in self.listeners:
            listener.after_publish(published)
        self._published = published

    def _put_completed(
        self,
        commit: OpenCommit,
        metadata: CommitMetadata,
        touched: frozenset[FileGroupId],
        outcome: Outcome,
        check_new_keys: NewKeyCheck,
    ) -> tuple[Instant, Mapping[str, str]]:
        """Check for conflicts with commits completed since the write began, then create the completed file.

        Return the completed instant and the extra metadata entry with the batch ids.

        Args:
            touched: file groups that the write changes or hides.
        """
        bases = (stat.prev_commit or "" for stat in metadata.all_stats() if stat.is_base)
        newest = max((time for time in bases if time.isdigit()), default="")
        batches: dict[str, str] = {}
        is_shared, has_checked = self.settings.lock.is_shared, False

        def check(timeline: Timeline) -> CommitMetadata:
            nonlocal has_checked
            if newest > commit.time:
                raise WriteConflictError(
                    f"commit {commit.time} of {self.storage.location} has read commit {newest}, which began later and "
                    "would hide it; run the write again"
                )
            if excludes_writers(self.storage, self.settings.lock) and wait_for_begun_writes(
                self.store, timeline, commit.time, touched, self.context.clock
            ):
                timeline = self.store.load()
            checks_foreign = not is_shared and not has_checked
            has_checked = True  # Once: without a common lock it cannot be made sure anyway.
            completed, running = read_other_writes(self.store, timeline, commit, looks_for_running=checks_foreign)
            by_name = not self.store.layout.has_completion_times
            others = reduce_compactions(commit.time, metadata, completed, by_name=by_name)
            check_conflicts(commit.time, touched - outcome.appended, others, outcome.overwritten)
            check_pending_clusterings(self.store, timeline, touched, ours=commit.time)
            if by_name:
                check_opened_slices(metadata.all_stats(), self.store.read_compaction_groups(timeline))
            check_foreign_writes(self.store, running, touched, self.context.clock)
            if others:
                check_new_keys(others)
            batches.update(self._make_batches_entry(timeline))
            return replace(metadata, extra={**metadata.extra, **batches})

        def call_before_publish() -> None:
            for listener in self.listeners:
                listener.before_publish(commit, metadata, outcome)

        instant = put_completed(
            self.store, self.context.clock, commit, check=check, before_put=call_before_publish, lease=self._lease
        )
        return instant, batches

    def _make_batches_entry(self, timeline: Timeline) -> Mapping[str, str]:
        """Return the entry with the last batch id of each app, this write's included.

        Raises:
            BatchWrittenError: another run of this batch has been published meanwhile.
        """
        batch = self.settings.batch
        last = read_last_batches(self.store, timeline, batch.app if batch else None)
        if batch is not None and (stored := last.get(batch.app)) is not None and batch.id <= stored:
            raise BatchWrittenError(
                f"batch {batch.id} of {batch.app!r} was written to {self.storage.location} by another run meanwhile; "
                "run the write again, it will be skipped"
            )
        return make_batches_entry(last, batch)

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
