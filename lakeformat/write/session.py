"""Steps 3 to 8 of a write, from the lock to the table services. `lakeformat.write` lists the steps.

Plain Python's writes and Spark's ``commit()`` both run here. The lock is held to begin and to publish, not while keys
are looked up and files are made. If a writer dies, the next writer rolls it back.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import count
from typing import Final, TypeAlias

import pyarrow as pa

from lakeformat.concurrency import run_all, thread_pool
from lakeformat.display import FILES, progress
from lakeformat.file_system_view.context import TableContext
from lakeformat.file_system_view.snapshot import Snapshot
from lakeformat.keys.partition_paths import match_partitions
from lakeformat.model.commit import WriteStat
from lakeformat.model.files import FileGroupId, LogFileName, join_path
from lakeformat.model.operation import Operation
from lakeformat.storage.port import Storage
from lakeformat.transaction.commit.completed_file import OpenCommit
from lakeformat.transaction.commit.hooks import Hooks, hooks_of
from lakeformat.transaction.commit.pending_plans import list_closed_partitions
from lakeformat.transaction.commit.publish import BatchWrittenError
from lakeformat.transaction.commit.result import WriteResult
from lakeformat.transaction.commit.transaction import Transaction
from lakeformat.transaction.order.conflict import OverlapError, PendingActionError
from lakeformat.transaction.order.outcome import NewKeyCheck, Outcome
from lakeformat.transaction.order.written_file import WrittenFile, count_copies
from lakeformat.transaction.undo.markers import MarkerKind, marker_kind, prepare_partition, put_markers
from lakeformat.write.handles.append_handle import append, log_file_name
from lakeformat.write.handles.base_file_handles import HandleSettings, create, make_token, merge
from lakeformat.write.handles.direct import (
    choose_small_files,
    read_files_back,
)
from lakeformat.write.kept_files import keep_small_files
from lakeformat.write.plan.job import WriteJob
from lakeformat.write.rows.bad_rows import BadRows
from lakeformat.write.tagging.key_checks import (
    join_checks,
    list_appended_groups,
    make_append_check,
    make_commit_check,
    warn_of_moved_keys,
)
from lakeformat.write.tagging.steps import check_new_partitions, plan_buckets
from lakeformat.write.workload.buckets import Bucket
from lakeformat.write.workload.profile import BucketPlan, count_false_positives, workload_profile

__all__ = ["AFTER_TASKS", "PartitionChoice", "WriteSession", "find_closed_partitions"]

#: A function that takes a snapshot and returns the partition paths to delete.
PartitionChoice: TypeAlias = Callable[[Snapshot], frozenset[str]]

_LOG: Final = logging.getLogger("lakeformat.write")
#: Task number of the first bucket that the driver writes if tasks have also written files. The task number is part of
#: file names and sequence numbers, so the driver must not reuse the numbers of the tasks.
AFTER_TASKS: Final = 1 << 20
#: A snapshot is used again without a look at the timeline for this many milliseconds after the session was made.
_FRESH_MS: Final = 1000
#: Number of files that are moved at the same time.
_MOVE_THREADS: Final = 8


class WriteSession:
    """The execution of one `WriteJob`: it writes the files and publishes the commit.

    Attributes:
        duplicates: collects the rows that the duplicate policy refuses; None if they refuse the write.
        count_bad_rows: returns the number of input rows that were found to be bad.
    """

    def __init__(self, context: TableContext, job: WriteJob, hooks: Hooks | None = None) -> None:
        self.context, self.job = context, job
        self.storage = context.storage
        self.transaction = Transaction(
            context, job.transaction_settings, hooks if hooks is not None else hooks_of(job.options)
        )
        self._threads = max(1, pa.cpu_count())
        self._marker_numbers = count()
        self._markers: Sequence[str] = ()
        self._made_ms = context.clock.now_ms()
        self.duplicates = BadRows(context.storage) if job.collects_duplicates else None
        self.count_bad_rows: Callable[[], int] = lambda: 0

    def run_staged(
        self,
        rows: Mapping[str, pa.Table],
        input_rows: int,
        known: frozenset[str] | None = None,
        planned_snapshot: Snapshot | None = None,
    ) -> WriteResult:
        """Merge prepared rows into the table and publish.

        Args:
            rows: prepared rows by partition path, in memory or from mapped stage files.
            input_rows: number of input rows before any rows were combined, for the report.
            known: instants of the commits completed when the user's write began; only overwrites use them.
            planned_snapshot: the snapshot from which the job was planned. If the table has not changed since, the
                snapshot is reused.

        Raises:
            WriteConflictError: if the write still conflicts after the number of tries that the options allow.
        """
        is_first = True
        plans: list[tuple[BucketPlan, Snapshot]] = []

        def attempt() -> WriteResult:
            nonlocal is_first
            # In the first attempt of an overwrite, commits that are not in ``known`` may be conflicts. A retry reads
            # the table again, so only commits that complete after this may be.
            known_commits, planned = (known, planned_snapshot) if is_first else (None, None)
            is_first = False
            return self._run_staged_once(rows, input_rows, known_commits, planned, plans)

        result: WriteResult = self.transaction.retry(attempt)
        for plan, snapshot in plans[-1:]:
            warn_of_moved_keys(self.storage, self.job, plan, snapshot)
        return result

    def run_delete_partitions(self, partitions: frozenset[str] | PartitionChoice, input_rows: int) -> WriteResult:
        """Hide all file groups of some partitions: a commit that writes no data (Hudi: ``DELETE_PARTITION``).

        Args:
            partitions: the partition paths to delete, taken from the input's rows; if the options name partitions,
                those are deleted instead. Or a function that returns the partition paths to delete from the
                snapshot; if it returns none, nothing is written.
            input_rows: number of input rows, for the report.

        Raises:
            InvalidInputError: if a path is invalid, or if no partition of the table matches.
            WriteConflictError: if the write still conflicts after the number of tries that the options allow.
        """
        return self.transaction.retry(lambda: self._delete_partitions(partitions, input_rows))

    def _delete_partitions(self, partitions: frozenset[str] | PartitionChoice, input_rows: int) -> WriteResult:
        snapshot = self.context.snapshot()
        if (skipped := self.transaction.skip_known_batch(snapshot)) is not None:
            return skipped
        schema = self.job.at(snapshot).final_schema(snapshot)
        with self.transaction.report.step("match") as counted:
            named = () if callable(partitions) else self.job.named_partitions
            chosen = partitions(snapshot) if callable(partitions) else named or sorted(partitions)
            if not chosen and callable(partitions):
                return self.transaction.skip(snapshot, "no partition is to go any more")
            matched, unmatched = match_partitions(chosen, snapshot.slices, wildcards=bool(named))
            counted.update(partitions=len(matched), unmatched=list(unmatched))
        if unmatched:
            _LOG.warning("no partition matches %s", ", ".join(unmatched))
        with self.transaction.run_unlocked(snapshot.timeline.commit_times, snapshot.timeline) as begun:
            self.transaction.report.rows["incoming"] = input_rows
            profile = workload_profile(self.job.operation, (), ())
            commit = self.transaction.move_to_inflight(begun, profile, snapshot, matched)
            outcome = Outcome(schema=schema, written=(), snapshot=snapshot, overwritten=matched)
            self.transaction.publish(commit, outcome)
        return self.transaction.close(commit)

    def _run_staged_once(
        self,
        rows: Mapping[str, pa.Table],
        input_rows: int,
        known_commits: frozenset[str] | None,
        planned_snapshot: Snapshot | None,
        plans: list[tuple[BucketPlan, Snapshot]],
    ) -> WriteResult:
        """Make one attempt of `run_staged`. Append its bucket plan and the snapshot of the plan to ``plans``."""
        snapshot = self.refresh(planned_snapshot)
        if (skipped := self.transaction.skip_known_batch(snapshot)) is not None:
            return skipped
        self.job = self.job.at(snapshot)
        schema = self.job.final_schema(snapshot)
        if known_commits is None or not self.job.operation.is_overwrite:
            known_commits = snapshot.timeline.commit_times
        with self.transaction.run_unlocked(known_commits, snapshot.timeline) as begun:
            self.transaction.report.rows["incoming"] = input_rows
            storage = keep_small_files(self.storage)
            plan = plan_buckets(
                storage, self.job, rows, snapshot, schema, self.transaction.report, duplicates=self.duplicates
            )
            overwritten = self.transaction.list_overwritten(plan.rows, snapshot)
            profile = workload_profile(self.job.operation, plan.buckets, ())
            commit = self.transaction.move_to_inflight(begun, profile, snapshot, overwritten)
            handles = HandleSettings.of(self.job, commit.time, schema)
            with self.transaction.report.step("write") as counted:
                written = self.write_buckets(plan, handles, storage=storage)
                counted.update(buckets=len(plan.buckets), **count_false_positives(self.job, written))
                counted.update(count_copies(written))
            appended = list_appended_groups(self.job, plan.buckets)
            checks = [make_append_check(appended, self.job, commit.time)] if appended else []
            checks += [check] if (check := make_commit_check(self.storage, self.job, plan)) is not None else []
            outcome = Outcome(
                schema=schema,
                written=written,
                snapshot=snapshot,
                overwritten=overwritten,
                appended=appended,
                check_new_keys=join_checks(checks),
            )
            self.transaction.publish(commit, outcome)
        plans.append((plan, snapshot))
        return self.transaction.close(commit, has_stage=False, markers=self._markers)

    def refresh(self, snapshot: Snapshot | None) -> Snapshot:
        """Return the table's present state: ``snapshot`` itself if it is new, or if the table has not changed since.

        A snapshot is new if this session was made less than a second ago. If another writer has committed since, the
        conflict check finds it.
        """
        return snapshot if snapshot is not None and self._is_new() else self.context.snapshot_since(snapshot)

    def _is_new(self) -> bool:
        """Tell whether this session was made less than `_FRESH_MS` ago."""
        return self.context.clock.now_ms() - self._made_ms < _FRESH_MS

    # --- step 6: write files --------------------------------------------------------------------------

    def write_buckets(
        self, plan: BucketPlan, handles: HandleSettings, first_task: int = 0, storage: Storage | None = None
    ) -> list[WrittenFile]:
        """Write every bucket of the plan to a file, with one thread per core.

        Args:
            storage: the storage from which base files are read, if it is not the table's.
        """
        storage = self.storage if storage is None else storage
        handles = replace(handles, idle_cores=len(plan.buckets) < self._threads)
        self._prepare_partitions(((b.partition_path, b.opened_at) for b in plan.buckets), handles.instant_time)
        kinds: dict[str, MarkerKind] = {}
        for number, bucket in enumerate(plan.buckets):
            kinds |= self._marker_kinds(bucket, first_task + number, handles)
        self._markers = put_markers(self.storage, handles.instant_time, kinds, next(self._marker_numbers))

        def write_bucket(place: int) -> WrittenFile | None:
            bucket, task = plan.buckets[place], first_task + place
            rows = plan.rows[bucket.partition_path]
            if bucket.log_place is not None:
                return append(storage, bucket, bucket.log_place, rows, task, handles)
            if bucket.base is None:
                return create(storage, bucket, rows, task, handles)
            return merge(storage, bucket, bucket.base, rows, task, handles)

        # Write large buckets first, so that no thread starts a large bucket at the end.
        order = sorted(range(len(plan.buckets)), key=lambda place: -plan.buckets[place].weight)
        with (
            progress(self.job.operation.value, len(order), FILES) as shown,
            thread_pool(self._threads) as pool,
        ):

            def write_and_advance(place: int) -> WrittenFile | None:
                if (written := write_bucket(place)) is None:
                    shown.advance(1)
                else:
                    shown.advance(1, rows=written.stat.num_writes, size_bytes=written.stat.size_bytes)
                return written

            return [written for written in pool.map(write_and_advance, order) if written is not None]

    def _marker_kinds(self, bucket: Bucket, task: int, handles: HandleSettings) -> Mapping[str, MarkerKind]:
        """Return the kinds of the markers of all files that a bucket's handle may write."""
        kind_of = partial(marker_kind, layout=self.context.store.layout)
        kinds: dict[str, MarkerKind] = {}
        place, path = bucket.log_place, handles.path_of(bucket, handles.file_name(bucket, task))
        rewrites = bucket.base is not None if place is None else place.merging is not None
        if rewrites and (logged := handles.change_data_path(bucket, task)) is not None:
            kinds[logged] = kind_of(logged, merges=False)
        if place is not None:
            log = join_path(bucket.partition_path, log_file_name(bucket, place, task, handles))
            kinds[log] = kind_of(log, merges=False)
        if place is None or place.merging is not None:  # `append` may write a base file instead of the log file.
            kinds[path] = kind_of(path, merges=place is not None or bucket.base is not None)
        return kinds

    def _prepare_partitions(self, opened: Iterable[tuple[str, str | None]], instant_time: str) -> None:
        """Create the partition metadata file in the folders of partitions that have no file group yet.

        Args:
            opened: for each file, its partition path and the instant that opened its file slice; None if it is new.
        """
        is_known: dict[str, bool] = {}
        for path, time in opened:
            is_known[path] = is_known.get(path, False) or time not in {None, instant_time}
        new = sorted(path for path, is_old in is_known.items() if not is_old)
        run_all(lambda path: prepare_partition(self.storage, path, instant_time), new, threads=_MOVE_THREADS)

    def place_files(self, commit: OpenCommit, written: Iterable[WrittenFile]) -> list[WrittenFile]:
        """Move the tasks' finished files into their partitions. Create the markers of all files before."""
        layout = self.context.store.layout
        files = _name_logs(written, commit.time) if not layout.has_completion_times else list(written)
        self._prepare_partitions(((f.stat.partition_path, f.stat.prev_commit) for f in files), commit.time)
        kinds: dict[str, MarkerKind] = {}
        for stat in (file.stat for file in files):
            kinds[stat.path] = marker_kind(stat.path, layout, merges=stat.prev_commit is not None)
            kinds |= {path: marker_kind(path, layout, merges=False) for path, _ in stat.cdc_stats}
        put_markers(self.storage, commit.time, kinds, next(self._marker_numbers))

        def place(file: WrittenFile) -> WrittenFile:
            if file.staged_path == file.stat.path:
                return file
            folder = file.staged_path.rpartition("/")[0]
            for path, _ in file.stat.cdc_stats:
                self.storage.move(join_path(folder, path.rpartition("/")[2]), path)
            self.storage.move(file.staged_path, file.stat.path)
            return replace(file, staged_path=file.stat.path)

        return run_all(place, files, threads=_MOVE_THREADS)

    def run_direct(
        self,
        commit: OpenCommit,
        written: Sequence[WrittenFile],
        tails: Mapping[str, pa.Table],
        input_rows: int,
        begun_snapshot: Snapshot | None = None,
    ) -> WriteResult:
        """Write the remaining rows to files, and publish these together with base files that are already written.

        If it fails, the caller rolls back the commit. The stage folder is deleted, unless the commit may be visible.

        Args:
            written: finished base files in the stage folder.
            tails: for each partition path the rows that were too few for a file; they are written here.
            begun_snapshot: the snapshot from which the commit began. It is used again while it is new.
        """
        with self.transaction.staging():
            # Later the timeline has this commit at least, so that a comparison would only read it once more.
            snapshot = begun_snapshot if begun_snapshot is not None and self._is_new() else self.context.snapshot()
            if (skipped := self.transaction.skip_known_batch(snapshot)) is not None:
                self.transaction.undo(commit)
                return skipped
            try:
                self._run_direct(commit, written, tails, input_rows, snapshot)
            except BatchWrittenError as error:
                return self.transaction.skip_published_batch(commit, snapshot, error)
        return self.transaction.close(commit)

    def _run_direct(
        self,
        commit: OpenCommit,
        written: Sequence[WrittenFile],
        tails: Mapping[str, pa.Table],
        input_rows: int,
        snapshot: Snapshot,
    ) -> None:
        schema = self.job.final_schema(snapshot)
        self.transaction.report.rows["incoming"] = input_rows
        if self.job.uses_existing_groups:
            written, tails = self._repack(written, tails, snapshot)
        plan = plan_buckets(self.storage, self.job, tails, snapshot, schema, self.transaction.report)
        check_new_partitions(self.storage, snapshot, plan.buckets, written)
        partitions = {*plan.rows, *(file.stat.partition_path for file in written)}
        profile = workload_profile(self.job.operation, plan.buckets, [file.stat for file in written])
        commit = self.transaction.move_to_inflight(
            commit, profile, snapshot, self.transaction.list_overwritten(partitions, snapshot)
        )
        handles = HandleSettings.of(self.job, commit.time, schema)
        with self.transaction.report.step("write") as counted:
            added = self.write_buckets(plan, handles, AFTER_TASKS)
            placed = self.place_files(commit, written)
            counted.update(placed=len(written), buckets=len(plan.buckets), **count_copies(added))
        partitions = {file.stat.partition_path for file in (*added, *placed)}
        hidden = self.transaction.list_overwritten(partitions, snapshot)
        outcome = Outcome(schema=schema, written=[*added, *placed], snapshot=snapshot, overwritten=hidden)
        if hidden is not None:
            self.transaction.publish(commit, outcome)
            return
        try:
            self.transaction.publish(replace(commit, known=snapshot.timeline.commit_times), outcome)
        except OverlapError as error:
            _LOG.warning("%s; the rows go into new files", error)
            self._publish_as_new_files(commit, added, placed, tails)

    def _publish_as_new_files(
        self,
        commit: OpenCommit,
        added: Sequence[WrittenFile],
        placed: Sequence[WrittenFile],
        tails: Mapping[str, pa.Table],
    ) -> None:
        """Write the remaining rows into new file groups, with which no other writer can conflict, and publish.

        Args:
            added: files with the remaining rows, in file groups that another writer has changed meanwhile.
            placed: the other files of the write.
            tails: the remaining rows by partition path.
        """
        for stat in (file.stat for file in added):
            for path in (stat.path, *(path for path, _ in stat.cdc_stats)):
                self.storage.delete(path)
        snapshot = self.context.snapshot()
        schema = self.job.final_schema(snapshot)
        options = self.job.options.with_values(**{"hoodie.parquet.small.file.limit": 0})
        job = replace(self.job, options=options)
        plan = plan_buckets(self.storage, job, tails, snapshot, schema, self.transaction.report)
        added = self.write_buckets(plan, HandleSettings.of(self.job, commit.time, schema), AFTER_TASKS)
        outcome = Outcome(schema=schema, written=[*added, *placed], snapshot=snapshot)
        self.transaction.publish(replace(commit, known=snapshot.timeline.commit_times), outcome)

    def publish_written(
        self,
        commit: OpenCommit,
        schema: pa.Schema,
        written: Sequence[WrittenFile],
        snapshot: Snapshot,
        overwritten: Iterable[str],
        check_new_keys: NewKeyCheck | None,
        appended: frozenset[FileGroupId] = frozenset(),
    ) -> WriteResult:
        """Move finished files into their partitions and publish the commit.

        If it fails, the caller rolls back the commit.

        Args:
            overwritten: partition paths of this write's rows. If the operation overwrites partitions, the old files of
                these partitions are hidden from readers.
            appended: file groups to which this write appends, even if other writers append to them at the same time.
        """
        with self.transaction.report.step("place") as counted:
            written = self.place_files(commit, written)
            counted["files"] = len(written)
        hidden = self.transaction.list_overwritten(overwritten, snapshot)
        outcome = Outcome(
            schema=schema,
            written=written,
            snapshot=snapshot,
            overwritten=hidden,
            appended=appended,
            check_new_keys=check_new_keys,
        )
        self.transaction.publish(commit, outcome)
        return self.transaction.close(commit)

    def _repack(
        self, written: Sequence[WrittenFile], tails: Mapping[str, pa.Table], snapshot: Snapshot
    ) -> tuple[Sequence[WrittenFile], Mapping[str, pa.Table]]:
        with self.transaction.report.step("repack") as counted:
            chosen = choose_small_files(
                written,
                tails,
                snapshot,
                self.job.options,
            )
            counted.update(files=len(chosen), bytes=sum(file.stat.size_bytes for file in chosen))
            schema = self.job.prepare.prepared_schema
            tails = read_files_back(self.storage, chosen, tails, schema, self.job.shape)
        return [file for file in written if file not in chosen], tails


def _name_logs(written: Iterable[WrittenFile], instant_time: str) -> list[WrittenFile]:
    """Give the tasks' log files names that no other write uses, and that keep their order (timeline layout 1).

    The tokens of tasks are unique within one job only.
    """
    files = [*written]
    logs = {
        logged: name
        for logged, file in enumerate(files)
        if (name := LogFileName.match(_name_of(file.stat))) is not None
    }
    for number, position in enumerate(sorted(logs, key=lambda at: logs[at].order)):
        stat, old = files[position].stat, _name_of(files[position].stat)
        new = str(replace(logs[position], write_token=make_token(f"{number:010d}", instant_time)))
        named = tuple(new if name == old else name for name in stat.log_names)
        files[position] = replace(
            files[position], stat=replace(stat, path=join_path(stat.partition_path, new), log_names=named)
        )
    return files


def _name_of(stat: WriteStat) -> str:
    return stat.path.rpartition("/")[2]


def find_closed_partitions(session: WriteSession, snapshot: Snapshot) -> Mapping[str, str]:
    """Return the partition paths that an overwrite must not write to, each with an error message that says why.

    The reason is a pending clustering that rewrites files of the partition: when it completes, it would bring back rows
    that the overwrite has replaced. If the operation is not an overwrite, the mapping is empty.

    Raises:
        WriteConflictError: if the whole table is to be replaced and any partition is closed, or if a partition is
            closed that the options name to be replaced.
    """
    if not session.job.operation.is_overwrite:
        return {}
    closed = list_closed_partitions(session.context.store, snapshot)
    if closed and session.job.operation is Operation.INSERT_OVERWRITE_TABLE:
        raise PendingActionError(next(iter(closed.values())))
    for path in session.job.transaction_settings.overwritten.intersection(closed):
        raise PendingActionError(closed[path])
    return closed
