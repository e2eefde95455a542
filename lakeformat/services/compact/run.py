"""Scheduling, running and cancelling compactions (Hudi: ``HoodieCompactor``, ``ScheduleCompactionActionExecutor``).

The lock is held to plan and to publish, not while files are rewritten. Meanwhile other writers append log files to the
new slices that the plan has opened. If the run of a plan fails, the plan stays on the timeline. Without it, log files
of timeline layout 1 in the new slices would belong to no slice, because their names contain the plan's instant time.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from datetime import datetime
from typing import Final, TypeAlias

from lakeformat.codec.timeline_files.service_plans import encode_compaction_plan
from lakeformat.config.resolve import Options
from lakeformat.errors import CorruptTableError, WriteConflictError
from lakeformat.file_system_view.context import TableContext
from lakeformat.file_system_view.file_groups import list_files
from lakeformat.file_system_view.live_files import ListedSlices
from lakeformat.file_system_view.snapshot import Snapshot
from lakeformat.model.commit import CommitMetadata, WriteStat
from lakeformat.model.files import FileGroupId, FileSlice, LogFile, LogFileName
from lakeformat.model.instant import COMMIT_ACTIONS, Action, Instant, State, VisibleInstants
from lakeformat.model.operation import Operation
from lakeformat.model.service_plans import CompactionOperation, CompactionPlan
from lakeformat.services.compact.plan import CompactLimits, plan_compaction
from lakeformat.services.compact.rewrite import Compactor, CompactSettings, SliceToCompact, compact_in_process
from lakeformat.services.plan_sources import name_compacted_sources
from lakeformat.services.scheduled_service import (
    ScheduledService,
    find_newest_schema_text,
    list_planned_groups,
    not_pending_error,
)
from lakeformat.timeline.store import TimelineStore
from lakeformat.timeline.timeline import Timeline
from lakeformat.transaction.commit.completed_file import OpenCommit
from lakeformat.transaction.commit.hooks import Hooks
from lakeformat.transaction.commit.result import WriteResult
from lakeformat.transaction.order import claims
from lakeformat.transaction.order.claims import keep_alive
from lakeformat.transaction.order.conflict import would_be_hidden
from lakeformat.transaction.order.decisions import Decision, DecisionState, Kind, decide
from lakeformat.transaction.order.outcome import Outcome
from lakeformat.transaction.order.written_file import count_copies, stage_folder
from lakeformat.write.plan.job import rewrite_job
from lakeformat.write.session import WriteSession

__all__ = ["CompactSession", "check_late_files", "compact", "find_slice_to_merge", "list_pending_compactions"]


def list_pending_compactions(store: TimelineStore, timeline: Timeline) -> dict[str, tuple[Instant, CompactionPlan]]:
    """Return a mapping of instant time to instant and plan, for every pending compaction, oldest first.

    Raises:
        CorruptTableError: a plan cannot be read.
    """
    pending = {}
    for instant in timeline.pending:
        if instant.action is Action.COMPACTION and (plan := store.read_compaction_plan(instant)) is not None:
            pending[instant.time] = instant, plan
    return pending


def find_slice_to_merge(
    operation: CompactionOperation,
    live: Mapping[FileGroupId, FileSlice],
    replaced: Collection[FileGroupId],
    instant_time: str,
    *,
    by_name: bool,
) -> FileSlice | None:
    """Return the files to merge for an operation of a compaction plan.

    Return None if the operation's file group was replaced or has a newer base file.

    In timeline layout 1, the result may also contain log files of the old slice that the plan does not name. Their
    commit began before the plan was made and completed later. The new base file hides the old slice, so their rows
    would be lost if they were not merged into it.

    Args:
        live: the newest slice of each file group; if a pending compaction has opened a slice, the one before it.
        replaced: file groups that commits have replaced.
        instant_time: instant time of the plan.
        by_name: whether log files are named after their slice (timeline layout 1).

    Raises:
        CorruptTableError: a file of the plan is missing or not the newest of its group.
    """
    piece = live.get(operation.group)
    if operation.group in replaced or (piece and piece.base and piece.base.name.instant_time > instant_time):
        return None
    if piece is None or (str(piece.base.name) if piece.base else "") != operation.base_name:
        raise CorruptTableError(_is_missing(instant_time, operation, operation.base_name or operation.log_names[0]))
    log_of = {str(log.name): log for log in piece.logs}
    missing = next((name for name in operation.log_names if name not in log_of), None)
    if missing is not None:
        raise CorruptTableError(_is_missing(instant_time, operation, missing))
    logs = [log_of[name] for name in operation.log_names]
    if by_name:
        log_names = set(operation.log_names)
        logs += [log for log in piece.logs if str(log.name) not in log_names and log.name.instant_time < instant_time]
    return FileSlice(operation.group, operation.base_instant, piece.base, _sort_logs(logs))


def _sort_logs(logs: Sequence[LogFile]) -> tuple[LogFile, ...]:
    return tuple(sorted(logs, key=lambda log: log.name.order))


def _is_missing(instant_time: str, operation: CompactionOperation, name: str) -> str:
    where = f" in partition {operation.partition_path!r}" if operation.partition_path else ""
    return (
        f"compaction {instant_time} names {name}{where}, which the table does not have as the newest version of its "
        f"file group; restore the file from a copy, or cancel_compaction({instant_time!r}) and schedule another"
    )


def check_late_files(
    merged: Mapping[FileGroupId, FileSlice],
    instant_time: str,
    others: Iterable[tuple[str, CommitMetadata]],
    *,
    by_name: bool,
) -> None:
    """Check that the new base files hide no file that another commit has added to the merged slices meanwhile.

    The rows of such a file are not in the new base file, so they would be lost.

    Args:
        merged: maps each file group of the plan to the slice that was merged.
        others: instant time and metadata of the commits completed since the run began.
        by_name: whether log files are named after their slice (timeline layout 1).

    Raises:
        WriteConflictError: a file would be hidden; the message names its commit. The next run merges the file.
    """
    for time, metadata in others:
        for stat in metadata.all_stats():
            piece = merged.get(stat.group)
            log_names = {log.name for log in piece.logs} if piece else set()
            if (
                piece
                and would_be_hidden(stat, time, instant_time, by_name=by_name)
                and _log_name(stat) not in log_names
            ):
                raise WriteConflictError(
                    f"compaction {instant_time} has not merged {stat.path}, which commit {time} has added to its file "
                    "group meanwhile; run the compaction again"
                )


def _log_name(stat: WriteStat) -> LogFileName | None:
    return LogFileName.match(stat.path.rpartition("/")[2])


_LOG: Final = logging.getLogger("lakeformat.services")
_NAME: Final = "compaction"
#: Maps each file group of a plan to the slice that the run merges.
_Merged: TypeAlias = Mapping[FileGroupId, FileSlice]


class CompactSession:
    """Schedules, runs and cancels compactions of one table.

    Raises from the constructor:
        UnsupportedTableError, TableNotFoundError: the table cannot be compacted.
    """

    def __init__(self, context: TableContext, options: Options, compactor: Compactor | None = None) -> None:
        location = context.storage.location
        config = context.store.config()
        config.check_compactable(location)
        snapshot = context.snapshot(config=config)
        self.context, self._compactor = context, compactor or compact_in_process
        # Drop the batch id of the preceding write. With it, this commit would be skipped as a repeat of that batch.
        self.options = options.with_values(**{"lakeformat.batch.app": None, "lakeformat.batch.id": None})
        self._by_name = not context.store.layout.has_completion_times
        job = rewrite_job(snapshot, self.options, Operation.COMPACT, context.ids.token())
        self.session = WriteSession(context, job, Hooks())
        self.transaction = self.session.transaction
        self.service = ScheduledService(self.transaction, _NAME)

    # --- planning -------------------------------------------------------------------------------------

    def plan(self, snapshot: Snapshot) -> CompactionPlan | None:
        """Plan a compaction of the snapshot by the options. Return None if there is nothing to compact."""
        now = self.context.clock.now_ms() // 1000
        limits = CompactLimits.of_options(self.options, datetime.fromtimestamp(now, snapshot.config.zone).date())
        return plan_compaction(
            _each_slice(snapshot), list_planned_groups(self.context.store, snapshot.timeline), limits
        )

    def schedule(self) -> str | None:
        """Write a plan to the timeline for a later run. Return its instant time; None if there is nothing to do.

        Raises:
            WriteConflictError: a running write may append log files that the plan would miss.
        """
        return self.service.plan_again(self._schedule)

    def _schedule(self) -> str | None:
        with self.transaction.hold_lock():
            opened = self._put_plan(self.context.snapshot())
            if opened is None:
                return None
            commit, _ = opened
            self.service.release(commit)
        return commit.time

    def _put_plan(self, snapshot: Snapshot) -> tuple[OpenCommit, CompactionPlan] | None:
        plan = self.plan(snapshot)
        if plan is None:
            return None
        self._check_no_writer(snapshot.timeline, None)
        layout = self.context.store.layout
        plan = name_compacted_sources(self.context.storage, plan)
        data = encode_compaction_plan(plan, missing_partitions=layout.has_completion_times)
        commit = self.service.begin(snapshot.timeline, data)
        _LOG.info("compaction %s scheduled: %d file slices", commit.time, len(plan.operations))
        return commit, plan

    def _check_no_writer(self, timeline: Timeline, before: str | None) -> None:
        """Check, in timeline layout 1, that no pending write may append to the slices to merge.

        In this layout log files are named after their slice, so those of a running write would be lost with the old
        slice. In layout 2 nothing is checked.

        Args:
            before: check only writes that began before this instant time (later ones know the plan); None for all.

        Raises:
            WriteConflictError: such a write is pending; the message names it.
        """
        if not self._by_name:
            return
        # Clusterings write new file groups, so they append to no existing slice.
        clusterings = frozenset(self.context.store.read_clustering_groups(timeline).values())
        for instant in timeline.pending_writes:
            appends = instant.action in COMMIT_ACTIONS and instant.time not in clusterings
            if appends and (before is None or instant.time < before):
                raise WriteConflictError(
                    f"{self.context.store.path(instant)} is pending in {self.context.storage.location}, and may write "
                    f"to the file slices of the compaction; wait for it"
                )

    # --- running --------------------------------------------------------------------------------------

    def run(self, instant_time: str | None = None, *, plans: bool = False) -> WriteResult:
        """Run a pending plan, made by this or another writer; by default the oldest that can be run.

        Args:
            instant_time: instant time of the plan; None for the oldest pending plan that can be run.
            plans: whether to make and run a new plan if none is pending.

        Raises:
            InvalidInputError: no such plan is pending.
            WriteConflictError: another process is running the plan, or other writers have added files to the slices
                that it merges; the plan stays.
            CorruptTableError: a file of the plan is missing.
        """
        with ExitStack() as life:
            snapshot, claimed = self.service.plan_again(lambda: self._begin(instant_time, life, plans=plans))
            if claimed is None:
                why = "no file slice is to be compacted" if plans else "no compaction is pending"
                return self.transaction.skip(snapshot, why)
            commit, merged = claimed
            with self.service.undo_on_failure(commit, keeps_plan=True):
                return self._execute(commit, merged, snapshot)

    def _begin(
        self, instant_time: str | None, life: ExitStack, *, plans: bool
    ) -> tuple[Snapshot, tuple[OpenCommit, _Merged] | None]:
        """Start a pending plan or a new one. Return the snapshot, and the commit and slices if there is such a plan.

        Args:
            life: the block in which the run is kept alive.
        """
        with self.transaction.report.step("plan") as counted, self.transaction.hold_lock():
            snapshot = self.context.snapshot()
            claimed = self._claim_plan(snapshot, instant_time) or (self._begin_new_plan(snapshot) if plans else None)
            if claimed is not None:
                commit, merged = claimed
                life.enter_context(keep_alive(self.context.storage, commit.time))
                counted.update(slices=len(merged), log_files=sum(len(piece.logs) for piece in merged.values()))
        return snapshot, claimed

    def _begin_new_plan(self, snapshot: Snapshot) -> tuple[OpenCommit, _Merged] | None:
        opened = self._put_plan(snapshot)
        if opened is None:
            return None
        commit, plan = opened
        merged = self._slices_of_plan(plan, snapshot, commit.time)
        return self.service.start(commit, keeps_plan=True), merged

    def _claim_plan(self, snapshot: Snapshot, instant_time: str | None) -> tuple[OpenCommit, _Merged] | None:
        def check(instant: Instant, plan: CompactionPlan) -> _Merged:
            self._check_no_writer(snapshot.timeline, instant.time)
            return self._slices_of_plan(plan, snapshot, instant.time)

        pending = list_pending_compactions(self.context.store, snapshot.timeline)
        return self.service.claim_one(pending, instant_time, snapshot.timeline, check)

    def _slices_of_plan(self, plan: CompactionPlan, snapshot: Snapshot, time: str) -> _Merged:
        live = {piece.group: piece for piece in _each_slice(snapshot)}
        replaced = _replaced_groups(self.context, snapshot.timeline)
        pieces = (
            find_slice_to_merge(operation, live, replaced, time, by_name=self._by_name) for operation in plan.operations
        )
        return {piece.group: piece for piece in pieces if piece is not None}

    def _execute(self, commit: OpenCommit, merged: _Merged, snapshot: Snapshot) -> WriteResult:
        session, transaction = self.session, self.transaction
        location = self.context.storage.location
        schema = snapshot.columns(location)
        settings = CompactSettings(
            commit.time,
            stage_folder(session.job.write_id),
            session.job.files(schema),
            names_base=not self._by_name,
            buffer_bytes=self.options.write.buffer_bytes,
            copies_groups=self.options.write.copy_row_groups,
        )
        visible = _list_visible_to(snapshot.timeline, None if self._by_name else commit.time)
        slices = [
            SliceToCompact(number, piece, replace(snapshot.merge_rules(piece), visible=visible.since(piece.earliest)))
            for number, piece in enumerate(merged.values())
        ]
        with transaction.report.step("rewrite") as counted:
            written = self._compactor(self.context, slices, settings)
            counted.update(files=len(written), **count_copies(written))
        with transaction.hold_lock(kept_plan=commit.time):
            self.service.check_claim(commit)
            with transaction.report.step("place") as counted:
                placed = session.place_files(commit, written)
                counted["files"] = len(placed)
            # Publish the newest table schema: another write may have changed it since the plan's snapshot.
            now = self.context.snapshot()

            def check(others: Sequence[tuple[str, CommitMetadata]]) -> None:
                check_late_files(merged, commit.time, others, by_name=self._by_name)

            self._check_no_writer(now.timeline, commit.time)
            outcome = Outcome(
                schema=now.columns(location),
                written=placed,
                snapshot=snapshot,
                check_new_keys=check,
                schema_text=find_newest_schema_text(self.context, now),
                files_schema=schema,
            )
            transaction.publish(commit, outcome)
            return transaction.close(commit)

    # --- cancelling -----------------------------------------------------------------------------------

    def cancel(self, instant_time: str) -> None:
        """Remove a pending compaction plan from the timeline.

        Raises:
            InvalidInputError: no plan of this time is pending.
            WriteConflictError: the plan is running, or log files exist in a slice that it opened (timeline layout 1).
        """
        store, storage = self.context.store, self.context.storage
        with self.transaction.hold_lock(kept_plan=instant_time):
            timeline = store.load()
            pending = {instant.time: instant for instant in timeline.pending if instant.action is Action.COMPACTION}
            if instant_time not in pending:
                raise not_pending_error(_NAME, instant_time, pending)
            instant = pending[instant_time]
            if instant.state is not State.REQUESTED or claims.read_claim(storage, instant_time) is not None:
                raise self.service.runs_elsewhere_error(instant)
            self._check_no_writer(timeline, None)
            if self._by_name and (log := _find_log(self.context, instant_time)) is not None:
                raise WriteConflictError(
                    f"{log} has been written for a file slice that compaction {instant_time} has opened; run it"
                )
            self._decide_removal(instant)
            store.erase(instant)

    def _decide_removal(self, plan: Instant) -> None:
        """Decide that a plan is removed, so that no process can run or restore it any more.

        Raises:
            WriteConflictError: another process has begun to run the plan.
        """

        def check(_: DecisionState, timeline: Timeline) -> Decision:
            if plan not in timeline.pending:
                raise self.service.runs_elsewhere_error(plan)
            return Decision(kind=Kind.REMOVE, instant_time=plan.time, undoes=plan.time)

        decide(self.context.store, check)


def compact(session: Callable[[], CompactSession]) -> WriteResult:
    """Run the pending plans, then make and run another plan. Return the result of the last run that did something.

    Args:
        session: returns a new session; called once for each run.
    """
    done = None
    while not (result := session().run()).skipped:
        done = result
    result = session().run(plans=True)
    return done if done is not None and result.skipped else result


def _each_slice(snapshot: Snapshot) -> Iterator[FileSlice]:
    """Yield the newest slice of each file group, with or without log files."""
    live = snapshot.live
    if isinstance(live, ListedSlices):
        yield from live.slices
    else:
        for file in snapshot.each_file():
            yield FileSlice(file.group, file.name.instant_time, file)


def _replaced_groups(context: TableContext, timeline: Timeline) -> frozenset[FileGroupId]:
    commits = (
        context.store.read_commit(instant) for instant in timeline.commits if instant.action is Action.REPLACE_COMMIT
    )
    return frozenset(group for commit in commits for group in commit.replaced_groups)


def _list_visible_to(timeline: Timeline, plan_time: str | None) -> VisibleInstants:
    """Return the instants whose log blocks a plan's run merges: those that had completed when the plan was made.

    In timeline layout 2, log files of commits that complete later belong to the new slice.

    Args:
        plan_time: instant time of the plan. None in timeline layout 1: then the blocks of all committed instants
            are merged.
    """
    seen = timeline.visible(None)
    if plan_time is None:
        return seen
    times = frozenset(instant.time for instant in timeline.commits if instant.completed_at <= plan_time)
    return VisibleInstants(times, min(seen.before, plan_time))


def _find_log(context: TableContext, instant_time: str) -> str | None:
    """Return the path of a log file in a slice that the plan of this instant time opened; None if there is none."""
    logs = (log.path for log in list_files(context.storage).logs if log.name.instant_time == instant_time)
    return next(logs, None)
