"""The batch writers of the data source, one class for each kind of operation.

Spark calls ``write`` in tasks, which write stage files or data files, and then ``commit`` in a process of the driver,
which completes the files and publishes the commit. If a task fails, Spark calls ``abort`` instead of ``commit``.
"""

from __future__ import annotations

import logging
from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import cache
from typing import Final

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from lakeformat.config.resolve import Options
from lakeformat.errors import InvalidOptionError, LakeformatError
from lakeformat.file_system_view.context import TableContext
from lakeformat.file_system_view.snapshot import Snapshot
from lakeformat.keys.partition_paths import distinct_partitions
from lakeformat.model.operation import Operation
from lakeformat.services.after_write import Executors, check_services, run_services_after_write
from lakeformat.services.bad_rows import put_aside
from lakeformat.services.job_check import check_job
from lakeformat.spark.host import plain_errors, requested_context
from lakeformat.spark.settings import OVERWRITE_MODE, is_dynamic
from lakeformat.spark.types import arrow_schema
from lakeformat.timeline.path_probe import check_free
from lakeformat.transaction.commit.completed_file import OpenCommit
from lakeformat.transaction.commit.result import WriteResult
from lakeformat.transaction.order import claims
from lakeformat.transaction.order.claims import HeartbeatThread
from lakeformat.transaction.order.written_file import WrittenFile, stage_folder
from lakeformat.write.append_session import find_bucket_places, publish_appended
from lakeformat.write.handles.base_file_handles import HandleSettings
from lakeformat.write.handles.bucket_tasks import BucketPlaces, append_in_task, task_folder
from lakeformat.write.handles.direct import DirectSettings, DirectWriter, stage_runs, write_rows, write_runs
from lakeformat.write.intake import create_table, open_existing, open_or_create, plan_job
from lakeformat.write.plan.job import WriteJob
from lakeformat.write.rows.arrow_pool import reuse_memory
from lakeformat.write.rows.bad_rows import BadRows, StagedBadRows
from lakeformat.write.rows.bulk_insert_order import Layout
from lakeformat.write.rows.schema import incoming_schema
from lakeformat.write.rows.stage import StagedTask, StageReader, StageWriter
from lakeformat.write.session import WriteSession, find_closed_partitions
from lakeformat.write.workload.buckets import tail_bytes

__all__ = [
    "AppendingWriter",
    "DirectSparkWriter",
    "PartitionDeleter",
    "SkippedWriter",
    "StagedWriter",
    "TableWriter",
    "make_writer",
    "plan_writer",
]

_LOG: Final = logging.getLogger("lakeformat.spark")
#: If more rows than this are staged, a warning is logged, because the driver merges all of them alone.
_LARGE_STAGE_ROWS: Final = 50_000_000
_OPERATION: Final = "hoodie.datasource.write.operation"
_OVERWRITE_MODE: Final = "hoodie.datasource.overwrite.mode"


def make_writer(options: Mapping[str, str], schema: StructType, overwrite: bool) -> TableWriter:
    """Return the writer for the operation of these options, after all checks that need no rows.

    Args:
        overwrite: whether the mode is ``overwrite``.
    """
    writer, _ = plan_writer(options, schema, "overwrite" if overwrite else "append")
    writer.asks_tasks = overwrite
    return writer


def plan_writer(
    options: Mapping[str, str], schema: StructType, mode: str, *, dynamic: bool = False
) -> tuple[TableWriter, Snapshot]:
    """Return the writer for the operation of these options, and the snapshot of the table from which it is planned.

    Args:
        mode: Spark's save mode: ``append``, ``overwrite``, ``errorifexists`` or ``ignore``.
        dynamic: whether the session says that an overwrite replaces only the partitions of the rows. As for Parquet, it
            means nothing for a table without partitions.

    Raises:
        InvalidOptionError: an option is refused, or the table exists in mode ``errorifexists``.
    """
    with plain_errors():
        context, resolved = requested_context(options)
        check_job(resolved)
        rows = arrow_schema(schema)
        removes_partitions = resolved.write.operation == "delete_partition"
        must_be_new, exists = mode in {"errorifexists", "ignore"}, context.store.exists()
        if must_be_new and exists and context.store.load().has_writes:
            skipped = _skip_existing(context, resolved, mode)
            return SkippedWriter(context, skipped), context.snapshot()
        if removes_partitions:  # delete_partition never creates a table.
            config = open_existing(context.store, resolved)
        elif must_be_new and not exists:
            check_free(context.storage)
            config = create_table(context.store, resolved, incoming_schema(rows), context.clock, must_be_new=True)
        else:
            config = open_or_create(context.store, resolved, incoming_schema(rows), context.clock)
        snapshot = context.snapshot(config=config)
        if mode == "overwrite" and not resolved.is_set(_OPERATION) and config.record_fields:
            resolved = resolved.with_values(**{"hoodie.combine.before.insert": True})
        if dynamic and config.partition_fields and not resolved.is_set(_OVERWRITE_MODE):
            resolved = resolved.with_values(**{_OVERWRITE_MODE: "dynamic"})
        job = plan_job(context.store, snapshot, resolved, rows, context.ids, overwrite=mode == "overwrite")
        check_services(context.storage, resolved, snapshot, job.final_schema(snapshot))
        if (skipped_batch := WriteSession(context, job).transaction.skip_known_batch(snapshot)) is not None:
            return SkippedWriter(context, skipped_batch), snapshot
        return _choose_writer(context, job, snapshot), snapshot


def _choose_writer(context: TableContext, job: WriteJob, snapshot: Snapshot) -> TableWriter:
    if job.operation is Operation.DELETE_PARTITION:
        return PartitionDeleter(context, job)
    if job.needs_staging:
        known_commits = snapshot.timeline.commit_times
        return _appending_writer(context, job, snapshot) or StagedWriter(context, job, known_commits)
    session = WriteSession(context, job)
    table, closed = job.final_schema(snapshot), find_closed_partitions(session, snapshot)
    with session.transaction.hold_lock():
        commit = session.transaction.begin(snapshot.timeline.commit_times, claim_kind="heartbeat")
    return DirectSparkWriter(context, job, commit, table, closed)


def _skip_existing(context: TableContext, options: Options, mode: str) -> WriteResult:
    location = context.storage.location
    if mode == "errorifexists":
        raise InvalidOptionError(
            f"a table is at {location} already, and the save mode is errorifexists, Spark's default; write "
            '.mode("append") to run the operation on it, or .mode("overwrite") to replace its contents'
        )
    why = "the table exists already, and the save mode is ignore"
    _LOG.info("%s: nothing is written: %s", location, why)
    return WriteResult(context.snapshot().instant_time or "", options.write.operation or "upsert", {}, why)


class TableWriter(DataSourceArrowWriter):
    """The base of the batch writers: `write` runs in tasks, `finish` in the process that publishes the commit.

    Attributes:
        asks_tasks: whether only tasks can tell the session's settings, because Spark's data source makes the writer.
    """

    context: TableContext
    job: WriteJob
    asks_tasks: bool = False

    def check_session(self) -> None:
        """Refuse, in a task, to replace the whole table where the session says to replace partitions.

        Raises:
            InvalidOptionError: the setting says so, and no option contradicts it.
        """
        task, options = TaskContext.get(), self.job.options
        if not self.asks_tasks or task is None or not self.job.config.partition_fields:
            return
        if options.is_set(_OPERATION) or options.is_set(_OVERWRITE_MODE):
            return
        if is_dynamic({OVERWRITE_MODE: task.getLocalProperty(OVERWRITE_MODE) or ""}):
            raise InvalidOptionError(
                f'{OVERWRITE_MODE}=dynamic does not reach format("lakehouse") here; call '
                f'lakeformat.spark.register(spark), or write .option("{_OVERWRITE_MODE}", "dynamic")'
            )

    def bad_rows(self, messages: Sequence[WriterCommitMessage | None]) -> list[StagedBadRows]:
        """Return the bad rows of the tasks, ordered by the number of the task."""
        done = sorted((m for m in messages if isinstance(m, _TaskMessage)), key=lambda m: m.task)
        return [m.bad_rows for m in done if m.bad_rows is not None]

    def open_session(self, messages: Sequence[WriterCommitMessage | None]) -> WriteSession:
        """Return a session that publishes the rows of the tasks, the bad ones included."""
        session = WriteSession(self.context, self.job)
        put_aside(session, lambda: self.bad_rows(messages))
        return session

    @abstractmethod
    def finish(self, messages: Sequence[WriterCommitMessage | None]) -> WriteResult:
        """Complete the files of the tasks and publish the commit in this process. Return the result of the write."""

    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Publish the commit, then run the table services that are due. Spark calls this after the last task."""
        _name_faster_save()
        with plain_errors():
            self.end(self.finish(messages))

    def end(self, result: WriteResult, executors: Executors | None = None) -> WriteResult:
        """Run the table services that are due after the write. Return its result with their results added."""
        return run_services_after_write(result, self.context, self.job.options, executors)


@cache
def _name_faster_save() -> None:
    """Log once in this process how the same rows are saved by executors."""
    _LOG.info(
        'format("lakehouse") is saved by the Python data source, which merges rows and publishes in one process; after '
        "lakeformat.spark.register(spark), executors merge large saves"
    )


@dataclass
class _TaskMessage(WriterCommitMessage):
    """The result of one task.

    Attributes:
        task: number of the task.
        bad_rows: its bad rows; None if bad rows are refused.
    """

    task: int
    bad_rows: StagedBadRows | None


def _collector(context: TableContext, job: WriteJob, task: int, attempt: int) -> BadRows | None:
    """Return a collector for the bad rows of a task; None if bad rows are refused."""
    if not job.puts_bad_rows_aside:
        return None
    return BadRows(context.storage, f"{stage_folder(job.write_id)}/bad-{task}-{attempt}.arrow", task)


def _finish(bad_rows: BadRows | None) -> StagedBadRows | None:
    return None if bad_rows is None else bad_rows.finish(in_file=True)


@dataclass
class _StagedMessage(_TaskMessage):
    staged: StagedTask


class SkippedWriter(TableWriter):
    """The writer of a save that has nothing to do, such as a batch that the table has already. It ignores the rows."""

    def __init__(self, context: TableContext, result: WriteResult) -> None:
        self.context, self.result = context, result

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Return an empty message without reading the rows."""
        return WriterCommitMessage()

    def finish(self, messages: Sequence[WriterCommitMessage | None]) -> WriteResult:
        """Return the result, which says why the save is skipped."""
        return self.result

    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Do nothing: there is nothing to publish, and no service becomes due."""

    def abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Do nothing: there is nothing to undo."""


class StagedWriter(TableWriter):
    """The writer for operations whose rows are staged before files are written, such as upsert and delete.

    Stored keys must be searched, rows of the same key combined, or the buckets of a bucket index filled.

    Tasks write prepared rows to stage files. `finish` tags these rows and merges them into files, in one process. A
    registered ``save`` may let tasks merge them instead.
    """

    def __init__(self, context: TableContext, job: WriteJob, known: frozenset[str]) -> None:
        self.context, self.job, self.known = context, job, known

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Prepare the rows of a task, and write them to a stage file."""
        with plain_errors(), reuse_memory():
            self.check_session()
            task, attempt = _task()
            path = f"{stage_folder(self.job.write_id)}/{task}-{attempt}.arrow"
            buffer = self.job.options.write.buffer_bytes
            settings, combined = self.job.prepare, self.job.needs_combining
            bad_rows = _collector(self.context, self.job, task, attempt)
            with StageWriter(
                self.context.storage, path, settings, combined=combined, buffer_bytes=buffer, bad_rows=bad_rows
            ) as stage:
                for batch in iterator:
                    stage.append(batch)
                staged = stage.finish()
            return _StagedMessage(task, _finish(bad_rows), staged)

    def staged(self, messages: Sequence[WriterCommitMessage | None]) -> list[StagedTask]:
        """Return the tasks' stage files, ordered by the number of the task."""
        tasks = sorted((m for m in messages if isinstance(m, _StagedMessage)), key=lambda m: m.task)
        return [m.staged for m in tasks]

    def finish(self, messages: Sequence[WriterCommitMessage | None]) -> WriteResult:
        """Merge the staged rows into the table's file groups, and publish the commit."""
        with reuse_memory():
            tasks = self.staged(messages)
            arrived = sum(task.rows for task in tasks)
            if arrived > _LARGE_STAGE_ROWS:
                verb = self.job.operation.value
                _LOG.warning("%d rows are merged by one driver; LakehouseTable.%s spreads the work", arrived, verb)
            session = self.open_session(messages)
            with (
                session.transaction.staging(is_whole=True),
                StageReader(self.context.storage, tasks, self.job.prepare) as reader,
            ):
                return session.run_staged(reader.read_partitions(), arrived, self.known)

    def abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Delete the stage files. There is nothing else to undo: a ``commit`` that fails undoes its own changes."""
        WriteSession(self.context, self.job).transaction.delete_stage()


@dataclass
class _DirectMessage(_TaskMessage):
    rows: int
    written: tuple[WrittenFile, ...]
    staged: StagedTask | None


class DirectSparkWriter(TableWriter):
    """The writer for operations in which each task can write its own files, such as bulk_insert and insert.

    Tasks write full base files, and stage the rows that are too few to fill a file. ``commit`` packs the staged rows
    into files.

    If the layout arranges the rows of all tasks together, that needs a shuffle, which a Spark writer cannot do. Then
    tasks write all rows to stage files as sorted runs, and ``commit`` merges the runs into base files in one process,
    in bounded memory.
    """

    def __init__(
        self,
        context: TableContext,
        job: WriteJob,
        commit: OpenCommit,
        schema: pa.Schema,
        closed: Mapping[str, str],
    ) -> None:
        self.context, self.job, self.open_commit, self.schema = context, job, commit, schema
        self._closed = closed

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Write base files to the stage folder, and rows that are too few to fill a file to a stage file."""
        alive = HeartbeatThread(self.context.storage, self.open_commit.time)
        with plain_errors(), reuse_memory(), alive, ThreadPoolExecutor(1) as pool:
            self.check_session()
            task, attempt = _task()
            task_context = TaskContext.get()
            stage = task_context.stageId() if task_context else 0
            job, storage = self.job, self.context.storage
            folder = f"{stage_folder(job.write_id)}/{task}-{attempt}"
            settings = self.settings(folder, task, f"{task}-{stage}-{attempt}")
            bad_rows = _collector(self.context, job, task, attempt)
            if job.layout is not None and job.layout.across_tasks:
                path = f"{folder}/runs.arrow"
                runs = stage_runs(storage, path, job.prepare, settings, iterator, job.layout, bad_rows)
                return _DirectMessage(task, _finish(bad_rows), runs.rows, (), runs)
            writer = self.writer(settings, pool, bad_rows)
            try:
                write_rows(writer, iterator, job.layout)
                written, tails = writer.finish()
            except BaseException:
                writer.abandon()
                raise
            staged = None
            if tails:
                path = f"{folder}/tails.arrow"
                with StageWriter(storage, path, job.prepare, combined=False, buffer_bytes=0) as stage_writer:
                    stage_writer.append_prepared(tails)
                    staged = stage_writer.finish()
            return _DirectMessage(task, _finish(bad_rows), writer.rows, written, staged)

    def settings(self, folder: str, task: int, write_token: str) -> DirectSettings:
        """Return the settings with which one task writes its base files.

        Args:
            folder: where the task writes.
            task: number of the task.
            write_token: part of the file names, unique for each attempt.
        """
        job = self.job
        return DirectSettings(
            folder=folder,
            instant_time=self.open_commit.time,
            write_id=job.write_id,
            task=task,
            write_token=write_token,
            tail_bytes=tail_bytes(job, tasks=True),
            buffer_bytes=job.options.write.buffer_bytes,
            closed_partitions=self._closed,
        )

    def writer(self, settings: DirectSettings, pool: Executor, bad_rows: BadRows | None = None) -> DirectWriter:
        """Return a writer of base files for one task, which uses threads of ``pool``.

        Args:
            bad_rows: collects the rows that cannot be written; None refuses them.
        """
        files = self.job.files(self.schema)
        return DirectWriter(self.context.storage, self.job.prepare, files, settings, pool, bad_rows)

    def _merge_runs(self, runs: Sequence[StagedTask], layout: Layout) -> tuple[WrittenFile, ...]:
        """Merge the sorted runs of all tasks into base files. Memory: a block of rows of each run, and a row group."""
        rows = sum(task.rows for task in runs)
        if rows > _LARGE_STAGE_ROWS:
            _LOG.warning("%d rows are sorted by one driver; LakehouseTable.bulk_insert spreads the work", rows)
        settings = self.settings(f"{stage_folder(self.job.write_id)}/driver", 0, "0-0-0")
        with ThreadPoolExecutor(max(1, pa.cpu_count())) as pool:
            writer = self.writer(settings, pool)
            try:
                write_runs(writer, runs, layout)
                return writer.finish()[0]
            except BaseException:
                writer.abandon()
                raise

    def written(
        self, messages: Sequence[WriterCommitMessage | None]
    ) -> tuple[list[WrittenFile], list[StagedTask], int]:
        """Return the tasks' base files, their stage files, and the number of input rows."""
        done = sorted((m for m in messages if isinstance(m, _DirectMessage)), key=lambda m: m.task)
        staged = [m.staged for m in done if m.staged is not None]
        return [file for m in done for file in m.written], staged, sum(m.rows for m in done)

    def finish(self, messages: Sequence[WriterCommitMessage | None]) -> WriteResult:
        """Write the staged rows to base files, move all files to their partitions, and publish the commit."""
        with reuse_memory():
            written, staged, arrived = self.written(messages)
            claims.renew_heartbeat(self.context.storage, self.open_commit.time)
            session = self.open_session(messages)
            layout = self.job.layout
            with session.transaction.resume(self.open_commit):
                if layout is not None and layout.across_tasks:
                    with session.transaction.report.step("sort") as counted:
                        written += self._merge_runs(staged, layout)
                        counted.update(runs=sum(len(task.runs) for task in staged), files=len(written))
                    staged = []
                with StageReader(self.context.storage, staged, self.job.prepare) as reader:
                    return session.run_direct(self.open_commit, written, reader.read_partitions(), arrived)

    def abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Undo the commit and delete the stage files, unless the timeline has the completed commit."""
        _undo(self.context, self.job, self.open_commit)


@dataclass
class _AppendedMessage(_TaskMessage):
    rows: int
    written: tuple[WrittenFile, ...]


def _appending_writer(context: TableContext, job: WriteJob, snapshot: Snapshot) -> AppendingWriter | None:
    """Return a writer whose tasks append their rows to log files; None if the table does not allow this.

    Tasks can append only in a merge-on-read table with a bucket index, where a row's key determines its file group.
    """
    if not (job.config.takes_logs and job.index_settings.has_buckets):
        return None
    session = WriteSession(context, job)
    places = find_bucket_places(context.storage, job, snapshot)
    if places is None:
        return None
    schema = job.final_schema(snapshot)
    with session.transaction.hold_lock():
        commit = session.transaction.begin(snapshot.timeline.commit_times, claim_kind="heartbeat")
    return AppendingWriter(context, job, commit, schema, places)


class AppendingWriter(TableWriter):
    """The writer of upsert, insert and delete for merge-on-read tables with a bucket index.

    Tasks write log files to the stage folder. ``commit`` moves the log files of successful attempts to their partitions
    and publishes the commit. Files of other attempts are deleted with the stage folder.
    """

    def __init__(
        self, context: TableContext, job: WriteJob, commit: OpenCommit, schema: pa.Schema, places: BucketPlaces
    ) -> None:
        self.context, self.job, self.open_commit, self._schema = context, job, commit, schema
        self._places = places

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Write a log file for each bucket to which rows of the task belong."""
        with plain_errors(), reuse_memory(), HeartbeatThread(self.context.storage, self.open_commit.time):
            task, attempt = _task()
            handles = HandleSettings.of(self.job, self.open_commit.time, self._schema)
            handles = replace(handles, folder=task_folder(self.job))
            storage = self.context.storage
            bad_rows = _collector(self.context, self.job, task, attempt)
            done = append_in_task(storage, self.job, handles, self._places, iterator, task, attempt, bad_rows)
            return _AppendedMessage(task, _finish(bad_rows), *done)

    def finish(self, messages: Sequence[WriterCommitMessage | None]) -> WriteResult:
        """Move the log files to their partitions, and publish the commit."""
        done = sorted((m for m in messages if isinstance(m, _AppendedMessage)), key=lambda m: m.task)
        claims.renew_heartbeat(self.context.storage, self.open_commit.time)
        session = self.open_session(messages)
        written = [file for m in done for file in m.written]
        arrived = sum(m.rows for m in done)
        with session.transaction.resume(self.open_commit):
            return publish_appended(session, self.open_commit, self._schema, self._places, written, arrived)

    def abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Undo the commit and delete the stage files, unless the timeline has the completed commit."""
        _undo(self.context, self.job, self.open_commit)


def _undo(context: TableContext, job: WriteJob, commit: OpenCommit) -> None:
    session = WriteSession(context, job)
    try:
        with session.transaction.hold_lock():
            session.transaction.undo(commit)
    except LakeformatError as error:
        _LOG.warning("instant %s is left for the next writer to roll back: %s", commit.time, error)
    else:
        session.transaction.delete_stage()


@dataclass
class _PartitionsMessage(WriterCommitMessage):
    partitions: frozenset[str]
    rows: int


class PartitionDeleter(TableWriter):
    """The writer of delete_partition: ``commit`` publishes a commit that replaces all file groups of the partitions.

    The options name the partitions. If they do not, the partitions are those to which the rows belong.
    """

    def __init__(self, context: TableContext, job: WriteJob) -> None:
        self.context, self.job = context, job

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Find the partition paths of a task's rows. If the options name the partitions, only count the rows."""
        with plain_errors():
            if self.job.named_partitions:
                return _PartitionsMessage(frozenset(), sum(batch.num_rows for batch in iterator))
            return _PartitionsMessage(*distinct_partitions(iterator, self.job.prepare.keys))

    def finish(self, messages: Sequence[WriterCommitMessage | None]) -> WriteResult:
        """Publish a commit that replaces the file groups of the partitions and writes no files."""
        done = [m for m in messages if isinstance(m, _PartitionsMessage)]
        of_rows = frozenset(path for m in done for path in m.partitions)
        return WriteSession(self.context, self.job).run_delete_partitions(of_rows, sum(m.rows for m in done))

    def abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Do nothing: before ``commit`` no instant has been created that could be undone."""


def _task() -> tuple[int, int]:
    """Return the number of the task, which all its attempts share, and the unique number of this attempt."""
    task_context = TaskContext.get()
    return (task_context.partitionId(), task_context.taskAttemptId()) if task_context else (0, 0)
