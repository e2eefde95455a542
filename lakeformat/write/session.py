"""Steps 3 to 8 of a write, from the lock to the table services. `lakeformat.write` lists the steps.

Plain Python's writes and Spark's ``commit()`` both run here. The session holds the lock from its first read of the
timeline until the completed file exists. If a writer dies, the next writer rolls it back.

`write_direct` is the direct write in one process: plain Python's bulk_insert, insert and overwrites. It skips step 4.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Final, TypeAlias

import pyarrow as pa

from lakeformat.concurrency import thread_pool
from lakeformat.display import FILES, progress
from lakeformat.errors import WriteConflictError
from lakeformat.file_system_view.context import TableContext
from lakeformat.file_system_view.snapshot import Snapshot
from lakeformat.files.base_file import ROW_GROUP_ROWS
from lakeformat.keys.partition_paths import match_partitions
from lakeformat.model.files import join_path
from lakeformat.model.operation import Operation
from lakeformat.transaction.commit import NewKeyCheck, OpenCommit
from lakeformat.transaction.conflict import OverlapError
from lakeformat.transaction.hooks import Hooks, hooks_of
from lakeformat.transaction.markers import marker_kind, prepare_partition, put_marker
from lakeformat.transaction.publish import Outcome
from lakeformat.transaction.result import WriteResult
from lakeformat.transaction.transaction import BatchWrittenError, Transaction
from lakeformat.transaction.written_file import WrittenFile, stage_folder
from lakeformat.write.handles.append_handle import append, log_file_name
from lakeformat.write.handles.base_file_handles import HandleSettings, create, merge
from lakeformat.write.handles.direct import (
    DirectSettings,
    DirectWriter,
    choose_small_files,
    read_files_back,
    write_rows,
)
from lakeformat.write.plan.job import WriteJob
from lakeformat.write.tagging.key_checks import make_commit_check, warn_of_moved_keys
from lakeformat.write.tagging.steps import check_new_partitions, plan_buckets
from lakeformat.write.workload.buckets import Bucket, tail_bytes
from lakeformat.write.workload.profile import BucketPlan, count_false_positives, workload_profile

__all__ = ["AFTER_TASKS", "PartitionChoice", "WriteSession", "find_closed_partitions", "write_direct"]

#: A function that takes a snapshot and returns the partition paths to delete.
PartitionChoice: TypeAlias = Callable[[Snapshot], frozenset[str]]

_LOG: Final = logging.getLogger("lakeformat.write")
#: Task number of the first bucket that the driver writes if tasks have also written files. The task number is part of
#: file names and sequence numbers, so the driver must not reuse the numbers of the tasks.
AFTER_TASKS: Final = 1 << 20


class WriteSession:
    """The execution of one `WriteJob`: it writes the files and publishes the commit."""

    def __init__(self, context: TableContext, job: WriteJob, hooks: Hooks | None = None) -> None:
        self.context, self.job = context, job
        self.storage = context.storage
        self.transaction = Transaction(
            context, job.transaction_settings, hooks if hooks is not None else hooks_of(job.options)
        )
        self._threads = max(1, pa.cpu_count())

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
            known_commits, is_first = known if is_first else None, False
            return self._run_staged_once(rows, input_rows, known_commits, planned_snapshot, plans)

        result = self.transaction.retry(attempt)
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
        schema = self.job.final_schema(snapshot)
        with self.transaction.report.step("match") as counted:
            named = () if callable(partitions) else self.job.named_partitions
            wanted = partitions(snapshot) if callable(partitions) else named or sorted(partitions)
            if not wanted and callable(partitions):
                return self.transaction.skip(snapshot, "no partition is to go any more")
            found, unmatched = match_partitions(wanted, snapshot.slices, wildcards=bool(named))
            counted.update(partitions=len(found), unmatched=list(unmatched))
        if unmatched:
            _LOG.warning("no partition matches %s", ", ".join(unmatched))
        with self.transaction.run_unlocked(snapshot.timeline.commit_times, snapshot.timeline) as begun:
            self.transaction.report.rows["incoming"] = input_rows
            profile = workload_profile(self.job.operation, (), ())
            commit = self.transaction.move_to_inflight(begun, profile, snapshot, found)
            outcome = Outcome(schema=schema, written=(), snapshot=snapshot, overwritten=found)
            self.transaction.publish(commit, outcome)
        return self.transaction.close(commit)

    def _run_staged_once(
        self,
        rows: Mapping[str, pa.Table],
        input_rows: int,
        known: frozenset[str] | None,
        planned_snapshot: Snapshot | None,
        plans: list[tuple[BucketPlan, Snapshot]],
    ) -> WriteResult:
        """Make one attempt of `run_staged`. Append its bucket plan and the snapshot of the plan to ``plans``."""
        snapshot = self.context.snapshot_since(planned_snapshot)
        if (skipped := self.transaction.skip_known_batch(snapshot)) is not None:
            return skipped
        schema = self.job.final_schema(snapshot)
        if known is None or not self.job.operation.is_overwrite:
            known = snapshot.timeline.commit_times
        with self.transaction.run_unlocked(known, snapshot.timeline) as begun:
            self.transaction.report.rows["incoming"] = input_rows
            plan = plan_buckets(self.storage, self.job, rows, snapshot, schema, self.transaction.report)
            overwritten = self.transaction.list_overwritten(plan.rows, snapshot)
            profile = workload_profile(self.job.operation, plan.buckets, ())
            commit = self.transaction.move_to_inflight(begun, profile, snapshot, overwritten)
            handles = HandleSettings.of(self.job, commit.time, schema)
            with self.transaction.report.step("write") as counted:
                written = self.write_buckets(plan, handles)
                counted.update(buckets=len(plan.buckets), **count_false_positives(self.job, written))
            check = make_commit_check(self.storage, self.job, plan)
            outcome = Outcome(
                schema=schema, written=written, snapshot=snapshot, overwritten=overwritten, check_new_keys=check
            )
            self.transaction.publish(commit, outcome)
        plans.append((plan, snapshot))
        return self.transaction.close(commit)

    # --- step 6: write files --------------------------------------------------------------------------

    def write_buckets(self, plan: BucketPlan, handles: HandleSettings, first_task: int = 0) -> list[WrittenFile]:
        """Write every bucket of the plan to a file, with one thread per core."""
        for partition in sorted({bucket.partition_path for bucket in plan.buckets}):
            prepare_partition(self.storage, partition, handles.instant_time)

        # In timeline layout 1 the name of a log file does not hold the commit's instant, so two writers could choose
        # the same name and overwrite each other's files. If the storage has no lock to exclude this, the last digits of
        # the instant go into the name.
        name_mark = "0" if self.storage.has_lock else handles.instant_time[-9:]
        handles = replace(handles, idle_cores=len(plan.buckets) < self._threads, mark=name_mark)

        def write_bucket(at: int) -> WrittenFile | None:
            bucket, task = plan.buckets[at], first_task + at
            rewrites = bucket.base is not None if bucket.log_place is None else bucket.log_place.merging is not None
            if rewrites and (logged := handles.change_data_path(bucket, task)) is not None:
                self._put_marker(handles.instant_time, logged, merges=False)
            rows = plan.rows[bucket.partition_path]
            if bucket.log_place is not None:
                name = log_file_name(bucket, bucket.log_place, task, handles)
                self._put_marker(handles.instant_time, join_path(bucket.partition_path, name), merges=False)
                if bucket.log_place.merging is not None:  # `append` may write a base file, which needs a marker too.
                    path = handles.path_of(bucket, handles.file_name(bucket, task))
                    self._put_marker(handles.instant_time, path, merges=True)
                return append(self.storage, bucket, bucket.log_place, rows, task, handles)
            path = handles.path_of(bucket, handles.file_name(bucket, task))
            self._put_marker(handles.instant_time, path, merges=bucket.base is not None)
            if bucket.base is None:
                return create(self.storage, bucket, rows, task, handles)
            return merge(self.storage, bucket, bucket.base, rows, task, handles)

        # Write large buckets first, so that no thread starts a large bucket at the end.
        order = sorted(range(len(plan.buckets)), key=lambda at: -_weight(plan.buckets[at]))
        with (
            progress(self.job.operation.value, len(order), FILES) as shown,
            thread_pool(self._threads) as pool,
        ):

            def write_and_advance(at: int) -> WrittenFile | None:
                if (written := write_bucket(at)) is None:
                    shown.advance(1)
                else:
                    shown.advance(1, rows=written.stat.num_writes, size_bytes=written.stat.size_bytes)
                return written

            return [written for written in pool.map(write_and_advance, order) if written is not None]

    def _put_marker(self, instant_time: str, path: str, *, merges: bool) -> None:
        kind = marker_kind(path, self.context.store.layout, merges=merges)
        put_marker(self.storage, instant_time, path, kind)

    def place_files(self, commit: OpenCommit, written: Iterable[WrittenFile]) -> list[WrittenFile]:
        """Move the tasks' finished files into their partitions. Create the marker of each file before moving it."""
        placed: list[WrittenFile] = []
        prepared: set[str] = set()
        for file in written:
            if file.stat.partition_path not in prepared:
                prepare_partition(self.storage, file.stat.partition_path, commit.time)
                prepared.add(file.stat.partition_path)
            self._put_marker(commit.time, file.stat.path, merges=file.stat.prev_commit is not None)
            # If a log file with this name exists, another writer has created it, and moving this one would replace it.
            # This can happen because both writers may use the same version number. Base files are not checked: their
            # names hold the instant, so they are unique.
            if file.stat.log_names and self.storage.info(file.stat.path) is not None:
                raise WriteConflictError(f"another writer has appended {file.stat.path} meanwhile; run the write again")
            for path, _ in file.stat.cdc_stats:
                self._put_marker(commit.time, path, merges=False)
                self.storage.move(join_path(file.staged_path.rpartition("/")[0], path.rpartition("/")[2]), path)
            self.storage.move(file.staged_path, file.stat.path)
            placed.append(replace(file, staged_path=file.stat.path))
        return placed

    def run_direct(
        self,
        commit: OpenCommit,
        written: Sequence[WrittenFile],
        tails: Mapping[str, pa.Table],
        input_rows: int,
    ) -> WriteResult:
        """Write the remaining rows to files, and publish these together with base files that are already written.

        If it fails, the caller rolls back the commit. The stage folder is deleted in any case.

        Args:
            written: finished base files in the stage folder.
            tails: for each partition path the rows that were too few for a file; they are written here.
        """
        try:
            snapshot = self.context.snapshot()
            if (skipped := self.transaction.skip_known_batch(snapshot)) is not None:
                self.transaction.undo(commit)
                self.transaction.delete_stage()
                return skipped
            self._run_direct(commit, written, tails, input_rows, snapshot)
        except BatchWrittenError as error:
            self.transaction.undo(commit)
            self.transaction.delete_stage()
            return self.transaction.skip(snapshot, str(error))
        except BaseException:
            self.transaction.delete_stage()
            raise
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
            counted.update(placed=len(written), buckets=len(plan.buckets))
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
    ) -> WriteResult:
        """Move finished files into their partitions and publish the commit.

        If it fails, the caller rolls back the commit.

        Args:
            overwritten: partition paths of this write's rows. If the operation overwrites partitions, the old files of
                these partitions are hidden from readers.
        """
        with self.transaction.report.step("place") as counted:
            written = self.place_files(commit, written)
            counted["files"] = len(written)
        hidden = self.transaction.list_overwritten(overwritten, snapshot)
        outcome = Outcome(
            schema=schema, written=written, snapshot=snapshot, overwritten=hidden, check_new_keys=check_new_keys
        )
        self.transaction.publish(commit, outcome)
        return self.transaction.close(commit)

    def _repack(
        self, written: Sequence[WrittenFile], tails: Mapping[str, pa.Table], snapshot: Snapshot
    ) -> tuple[Sequence[WrittenFile], Mapping[str, pa.Table]]:
        options = self.job.options
        with self.transaction.report.step("repack") as counted:
            chosen = choose_small_files(
                written,
                tails,
                snapshot,
                small_bytes=options.write.small_bytes,
                at_most_bytes=options.write.buffer_bytes,
            )
            counted.update(files=len(chosen), bytes=sum(file.stat.size_bytes for file in chosen))
            tails = read_files_back(self.storage, chosen, tails, self.job.prepare.prepared_schema)
        return [file for file in written if file not in chosen], tails


def _weight(bucket: Bucket) -> int:
    return (bucket.base.size_bytes if bucket.base else 0) + len(bucket.rows) * ROW_GROUP_ROWS // 1024


def write_direct(session: WriteSession, rows: Iterable[pa.RecordBatch]) -> WriteResult:
    """Stream rows into base files, and publish them.

    Memory: twice the write buffer, one row group per open file, and the keys of open files.

    Raises:
        SchemaMismatchError, InvalidInputError: if the rows cannot be written. Nothing was published.
        WriteConflictError, LockTimeoutError: if another writer interfered. A retry is safe.
    """
    context, job, transaction = session.context, session.job, session.transaction
    snapshot = context.snapshot()
    if (skipped := transaction.skip_known_batch(snapshot)) is not None:
        return skipped
    schema = job.final_schema(snapshot)
    closed = find_closed_partitions(session, snapshot)
    with (
        transaction.run_unlocked(snapshot.timeline.commit_times, snapshot.timeline) as commit,
        thread_pool(max(1, pa.cpu_count())) as pool,
    ):
        settings = DirectSettings(
            folder=stage_folder(job.write_id),
            instant_time=commit.time,
            write_id=job.write_id,
            task=0,
            write_token="0-0-0",  # noqa: S106  Part of a file name, not a secret.
            tail_bytes=tail_bytes(job, tasks=False),
            buffer_bytes=job.options.write.buffer_bytes * 2,
            closed_partitions=closed,
        )
        writer = DirectWriter(context.storage, job.prepare, job.files(schema), settings, pool)
        try:
            with transaction.report.step("encode") as counted:
                write_rows(writer, rows, job.layout)
                written, tails = writer.finish()
                counted["files"] = len(written)
        except BaseException:
            writer.abandon()
            transaction.delete_stage()
            raise
        return session.run_direct(commit, written, tails, writer.rows)


def find_closed_partitions(session: WriteSession, snapshot: Snapshot) -> Mapping[str, str]:
    """Return the partition paths that an overwrite must not write to, each with an error message that says why.

    The reason is a pending clustering that rewrites files of the partition: when it completes, it would bring back rows
    that the overwrite has replaced. If the operation is not an overwrite, the mapping is empty.

    Raises:
        WriteConflictError: if the whole table is to be replaced and any partition is closed.
    """
    if not session.job.operation.is_overwrite:
        return {}
    closed = session.transaction.find_closed_partitions(snapshot)
    if closed and session.job.operation is Operation.INSERT_OVERWRITE_TABLE:
        raise WriteConflictError(next(iter(closed.values())))
    return closed
