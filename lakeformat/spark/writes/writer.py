"""Writing under Spark: tasks stage rows or write base files; ``commit()`` merges, moves and publishes."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Final

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from lakeformat.errors import LakeformatError
from lakeformat.file_system_view.context import Engine
from lakeformat.keys.partition_paths import distinct_partitions
from lakeformat.services.after_write import after_write, check_services
from lakeformat.spark.host import asked_engine, plain_errors
from lakeformat.spark.types import arrow_schema
from lakeformat.transaction import claims
from lakeformat.transaction.claims import Pulse
from lakeformat.transaction.commit import OpenCommit
from lakeformat.transaction.written_file import WrittenFile, stage_folder
from lakeformat.write.handles.base_file_handles import HandleSettings
from lakeformat.write.handles.bucket_tasks import BucketPlaces, append_in_task, task_folder
from lakeformat.write.handles.direct import DirectSettings, DirectWriter, stage_runs, write_rows, write_runs
from lakeformat.write.intake import open_existing, open_or_create, plan_job
from lakeformat.write.plan.job import WriteJob
from lakeformat.write.rows.arrow_pool import reused_memory
from lakeformat.write.rows.bulk_insert_order import Layout
from lakeformat.write.rows.schema import incoming_schema
from lakeformat.write.rows.stage import StagedTask, StageReader, StageWriter
from lakeformat.write.session import WriteSession, closed_partitions
from lakeformat.write.shuffled_session import bucket_places, publish_appended
from lakeformat.write.workload.buckets import tail_bytes

__all__ = ["AppendingWriter", "DirectSparkWriter", "PartitionDeleter", "SkippedWriter", "StagedWriter", "make_writer"]

_LOG: Final = logging.getLogger("lakeformat.spark")
#: Staged input beyond this many rows is worth a word: the driver merges it alone.
_LARGE_STAGE_ROWS: Final = 50_000_000


def make_writer(options: Mapping[str, str], schema: StructType, overwrite: bool) -> DataSourceArrowWriter:
    """Check everything that can be checked before a task runs, and choose the way."""
    with plain_errors():
        engine, resolved = asked_engine(options)
        rows = arrow_schema(schema)
        removes_partitions = resolved["hoodie.datasource.write.operation"] == "delete_partition"
        if removes_partitions:  # Makes no table: the frame may be empty of rows and columns.
            config = open_existing(engine.store, resolved)
        else:
            config = open_or_create(engine.store, resolved, incoming_schema(rows), engine.clock)
        snapshot = engine.snapshot(config=config)
        said = resolved.given("hoodie.datasource.write.operation")
        if overwrite and not said and config.record_fields:
            resolved = resolved.with_values(**{"hoodie.combine.before.insert": True})
        job = plan_job(engine.store, snapshot, resolved, rows, engine.ids, overwrite=overwrite)
        check_services(resolved, snapshot, job.final_schema(snapshot))
        if WriteSession(engine, job).transaction.skipped(snapshot) is not None:
            return SkippedWriter()
        if removes_partitions:
            return PartitionDeleter(engine, job)
        if job.staged:
            return _appending(engine, job) or StagedWriter(engine, job, snapshot.timeline.commit_times)
        session = WriteSession(engine, job)
        with session.transaction.locked():
            snapshot = engine.snapshot()
            table, closed = job.final_schema(snapshot), closed_partitions(session, snapshot)
            commit = session.transaction.begin(snapshot.timeline.commit_times, lives_by="heartbeat")
            return DirectSparkWriter(engine, job, commit, table, closed)


@dataclass
class _StagedMessage(WriterCommitMessage):
    task: int
    staged: StagedTask


class SkippedWriter(DataSourceArrowWriter):
    """A batch that is in the table already: nothing is read of it and nothing written."""

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """In a task: nothing."""
        return WriterCommitMessage()

    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """On the driver: nothing."""

    def abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """On the driver: nothing."""


class StagedWriter(DataSourceArrowWriter):
    """upsert and delete: tasks prepare and stage, ``commit()`` tags and merges on all of the driver's cores."""

    def __init__(self, engine: Engine, job: WriteJob, known: frozenset[str]) -> None:
        self._engine, self._job, self._known = engine, job, known

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """In a task: one stage file."""
        with plain_errors(), reused_memory():
            task, attempt = _task()
            path = f"{stage_folder(self._job.write_id)}/{task}-{attempt}.arrow"
            buffer = self._job.options.write.buffer_bytes
            settings, combined = self._job.prepare, self._job.combine
            with StageWriter(self._engine.storage, path, settings, combined=combined, buffer_bytes=buffer) as stage:
                for batch in iterator:
                    stage.append(batch)
                return _StagedMessage(task, stage.finish())

    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """On the driver: merge and publish."""
        with plain_errors(), reused_memory():
            tasks = sorted((m for m in messages if isinstance(m, _StagedMessage)), key=lambda m: m.task)
            arrived = sum(m.staged.rows for m in tasks)
            if arrived > _LARGE_STAGE_ROWS:
                verb = self._job.operation.value
                _LOG.warning("%d rows are merged by one driver; LakehouseTable.%s spreads the work", arrived, verb)
            session = WriteSession(self._engine, self._job)
            storage = self._engine.storage
            with StageReader(storage, [m.staged for m in tasks], self._job.prepare) as reader:
                session.run_staged(reader.partitions(), arrived, self._known)
            session.transaction.forget_stage()
            after_write(self._engine, self._job.options)

    def abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """On the driver: the stage goes; a failed ``commit()`` has undone itself."""
        WriteSession(self._engine, self._job).transaction.forget_stage()


@dataclass
class _DirectMessage(WriterCommitMessage):
    task: int
    rows: int
    written: tuple[WrittenFile, ...]
    staged: StagedTask | None


class DirectSparkWriter(DataSourceArrowWriter):
    """bulk_insert, insert and overwrites: tasks write base files, ``commit()`` packs what was too small.

    A layout across tasks has no shuffle to rely on: tasks stage sorted runs, and ``commit()`` merges them on the
    driver, in bounded memory but by one process.
    """

    def __init__(
        self,
        engine: Engine,
        job: WriteJob,
        commit: OpenCommit,
        schema: pa.Schema,
        closed: Mapping[str, str],
    ) -> None:
        self._engine, self._job, self._commit, self._schema, self._closed = engine, job, commit, schema, closed

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """In a task: base files in the stage folder, and a stage file for the rest."""
        alive = Pulse(self._engine.storage, self._commit.time)
        with plain_errors(), reused_memory(), alive, ThreadPoolExecutor(1) as pool:
            task, attempt = _task()
            context = TaskContext.get()
            stage = context.stageId() if context else 0
            job, storage = self._job, self._engine.storage
            folder = f"{stage_folder(job.write_id)}/{task}-{attempt}"
            settings = self.settings(folder, task, f"{task}-{stage}-{attempt}")
            if job.layout is not None and job.layout.across_tasks:
                path = f"{folder}/runs.arrow"
                runs = stage_runs(storage, path, job.prepare, settings, iterator, job.layout)
                return _DirectMessage(task, runs.rows, (), runs)
            writer = self.writer(settings, pool)
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
            return _DirectMessage(task, writer.rows, written, staged)

    def settings(self, folder: str, task: int, write_token: str) -> DirectSettings:
        """How one task writes its base files."""
        job = self._job
        return DirectSettings(
            folder=folder,
            instant_time=self._commit.time,
            write_id=job.write_id,
            task=task,
            write_token=write_token,
            tail_bytes=tail_bytes(job, tasks=True),
            buffer_bytes=job.options.write.buffer_bytes,
            closed=self._closed,
        )

    def writer(self, settings: DirectSettings, pool: Executor) -> DirectWriter:
        """What writes them."""
        return DirectWriter(self._engine.storage, self._job.prepare, self._job.files(self._schema), settings, pool)

    def _lay_down(self, runs: Sequence[StagedTask], layout: Layout) -> tuple[WrittenFile, ...]:
        """Merge the runs of all tasks into base files. Memory: a block per run, and a row group."""
        rows = sum(task.rows for task in runs)
        if rows > _LARGE_STAGE_ROWS:
            _LOG.warning("%d rows are sorted by one driver; LakehouseTable.bulk_insert spreads the work", rows)
        settings = self.settings(f"{stage_folder(self._job.write_id)}/driver", 0, "0-0-0")
        with ThreadPoolExecutor(max(1, pa.cpu_count())) as pool:
            writer = self.writer(settings, pool)
            try:
                write_runs(writer, runs, layout)
                return writer.finish()[0]
            except BaseException:
                writer.abandon()
                raise

    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """On the driver: pack or merge, move, publish."""
        with plain_errors(), reused_memory():
            done = sorted((m for m in messages if isinstance(m, _DirectMessage)), key=lambda m: m.task)
            claims.renew_heartbeat(self._engine.storage, self._commit.time)
            session = WriteSession(self._engine, self._job)
            staged = [m.staged for m in done if m.staged is not None]
            written = [file for m in done for file in m.written]
            arrived = sum(m.rows for m in done)
            layout = self._job.layout
            waiting = Pulse(self._engine.storage, self._commit.time)  # Others may hold the lock for long.
            with waiting, session.transaction.locked(), session.transaction.running(self._commit):
                if layout is not None and layout.across_tasks:
                    with session.transaction.report.step("sort") as counted:
                        written += self._lay_down(staged, layout)
                        counted.update(runs=sum(len(task.runs) for task in staged), files=len(written))
                    staged = []
                with StageReader(self._engine.storage, staged, self._job.prepare) as reader:
                    session.run_direct(self._commit, written, reader.partitions(), arrived)
            after_write(self._engine, self._job.options)

    def abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """On the driver: undo, unless the timeline says that the commit landed."""
        _undone(self._engine, self._job, self._commit)


@dataclass
class _AppendedMessage(WriterCommitMessage):
    task: int
    rows: int
    written: tuple[WrittenFile, ...]


def _appending(engine: Engine, job: WriteJob) -> AppendingWriter | None:
    """The writer of tables in which tasks may append by themselves."""
    if not (job.config.takes_logs and job.index_settings.has_buckets):
        return None
    session = WriteSession(engine, job)
    with session.transaction.locked():
        snapshot = engine.snapshot()
        places = bucket_places(engine.storage, job, snapshot)
        if places is None:
            return None
        schema = job.final_schema(snapshot)
        commit = session.transaction.begin(snapshot.timeline.commit_times, lives_by="heartbeat")
        return AppendingWriter(engine, job, commit, schema, places)


class AppendingWriter(DataSourceArrowWriter):
    """upsert, insert and delete of buckets that take log files: tasks append, ``commit()`` only publishes.

    A task's files wait in the stage folder until ``commit()`` names them; those of attempts that were lost go with it.
    """

    def __init__(
        self, engine: Engine, job: WriteJob, commit: OpenCommit, schema: pa.Schema, places: BucketPlaces
    ) -> None:
        self._engine, self._job, self._commit, self._schema, self._places = engine, job, commit, schema, places

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """In a task: a log file for each bucket that it has rows of."""
        with plain_errors(), reused_memory(), Pulse(self._engine.storage, self._commit.time):
            task, attempt = _task()
            handles = HandleSettings.of(self._job, self._commit.time, self._schema)
            handles = replace(handles, folder=task_folder(self._job))
            storage = self._engine.storage
            done = append_in_task(storage, self._job, handles, self._places, iterator, task, attempt)
            return _AppendedMessage(task, *done)

    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """On the driver: move and publish."""
        with plain_errors():
            done = sorted((m for m in messages if isinstance(m, _AppendedMessage)), key=lambda m: m.task)
            claims.renew_heartbeat(self._engine.storage, self._commit.time)
            session = WriteSession(self._engine, self._job)
            written = [file for m in done for file in m.written]
            arrived = sum(m.rows for m in done)
            waiting = Pulse(self._engine.storage, self._commit.time)  # Others may hold the lock for long.
            with waiting, session.transaction.locked(), session.transaction.running(self._commit):
                publish_appended(session, self._commit, self._schema, self._places, written, arrived)
            after_write(self._engine, self._job.options)

    def abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """On the driver: undo, unless the timeline says that the commit landed."""
        _undone(self._engine, self._job, self._commit)


def _undone(engine: Engine, job: WriteJob, commit: OpenCommit) -> None:
    session = WriteSession(engine, job)
    try:
        with session.transaction.locked():
            session.transaction.undo(commit)
    except LakeformatError as error:
        _LOG.warning("instant %s is left for the next writer to roll back: %s", commit.time, error)
    else:
        session.transaction.forget_stage()


@dataclass
class _PartitionsMessage(WriterCommitMessage):
    partitions: frozenset[str]
    rows: int


class PartitionDeleter(DataSourceArrowWriter):
    """delete_partition: tasks tell the partitions of their rows if the options name none; ``commit()`` hides them."""

    def __init__(self, engine: Engine, job: WriteJob) -> None:
        self._engine, self._job = engine, job

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """In a task: distinct partition paths; rows that do not matter are only drained."""
        with plain_errors():
            if self._job.named_partitions:
                return _PartitionsMessage(frozenset(), sum(batch.num_rows for batch in iterator))
            return _PartitionsMessage(*distinct_partitions(iterator, self._job.prepare.keys))

    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """On the driver: one commit that replaces file groups and writes none."""
        with plain_errors():
            done = [m for m in messages if isinstance(m, _PartitionsMessage)]
            of_rows = frozenset(path for m in done for path in m.partitions)
            WriteSession(self._engine, self._job).run_delete_partitions(of_rows, sum(m.rows for m in done))
            after_write(self._engine, self._job.options)

    def abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """On the driver: nothing was begun."""


def _task() -> tuple[int, int]:
    """Number of the task, the same for every attempt, and of the attempt, never used twice."""
    context = TaskContext.get()
    return (context.partitionId(), context.taskAttemptId()) if context else (0, 0)
