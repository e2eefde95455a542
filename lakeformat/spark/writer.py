"""Writing under Spark: tasks stage rows or write base files; ``commit()`` merges, moves and publishes."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Final

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from lakeformat.errors import LakeformatError
from lakeformat.spark.host import open_engine, plain_errors
from lakeformat.spark.types import arrow_schema
from lakeformat.timeline.snapshot import load_snapshot
from lakeformat.write import claims
from lakeformat.write.commit import OpenCommit
from lakeformat.write.direct import DirectSettings, DirectWriter
from lakeformat.write.job import Operation, WriteJob, plan_job
from lakeformat.write.memory import reused_memory
from lakeformat.write.schema import incoming_schema
from lakeformat.write.session import Engine, WriteSession, Written
from lakeformat.write.stage import StagedTask, StageReader, StageWriter, stage_folder
from lakeformat.write.table_settings import open_or_create

__all__ = ["make_writer"]

_LOG: Final = logging.getLogger("lakeformat.spark")
#: bulk_insert: a task's rest of a partition smaller than this many bytes of Arrow is packed by ``commit()``.
_SMALL_TAIL_BYTES: Final = 8 << 20
#: Staged input beyond this many bytes is worth a word: the driver merges it alone.
_LARGE_STAGE_ROWS: Final = 50_000_000


def make_writer(options: Mapping[str, str], schema: StructType, overwrite: bool) -> DataSourceArrowWriter:
    """Check everything that can be checked before a task runs, and choose the way."""
    with plain_errors():
        engine, resolved = open_engine(options)
        rows = arrow_schema(schema)
        config = open_or_create(engine.store, resolved, incoming_schema(rows), engine.clock)
        snapshot = load_snapshot(engine.store, config=config)
        said = resolved.given("hoodie.datasource.write.operation")
        if overwrite and not said:
            resolved = resolved.with_values(**{"hoodie.combine.before.insert": True})
        job = plan_job(engine.store, snapshot, resolved, rows, engine.ids, overwrite=overwrite)
        if job.staged:
            return StagedWriter(engine, job, frozenset(i.time for i in snapshot.timeline.commits))
        session = WriteSession(engine, job)
        with session.locked():
            snapshot = load_snapshot(engine.store)
            table = job.final_schema(snapshot)
            return DirectSparkWriter(engine, job, session.begin(lives_by="heartbeat"), table)


@dataclass
class _StagedMessage(WriterCommitMessage):
    task: int
    staged: StagedTask


class StagedWriter(DataSourceArrowWriter):
    """upsert and delete: tasks prepare and stage, ``commit()`` tags and merges on all of the driver's cores."""

    def __init__(self, engine: Engine, job: WriteJob, known: frozenset[str]) -> None:
        self._engine, self._job, self._known = engine, job, known

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """In a task: one stage file."""
        with plain_errors(), reused_memory():
            task, attempt = _task()
            path = f"{stage_folder(self._job.write_id)}/{task}-{attempt}.arrow"
            buffer: int = self._job.options["lakeformat.write.buffer.bytes"]
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
                _LOG.warning("%d rows are staged for one driver to merge; smaller batches spread the work", arrived)
            session = WriteSession(self._engine, self._job)
            storage = self._engine.storage
            with StageReader(storage, [m.staged for m in tasks], self._job.prepare) as reader:
                session.run_staged(reader.partitions(), arrived, self._known)
            session.forget_stage()

    def abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """On the driver: the stage goes; a failed ``commit()`` has undone itself."""
        WriteSession(self._engine, self._job).forget_stage()


@dataclass
class _DirectMessage(WriterCommitMessage):
    task: int
    rows: int
    written: tuple[Written, ...]
    tails: StagedTask | None


class DirectSparkWriter(DataSourceArrowWriter):
    """bulk_insert, insert and overwrites: tasks write base files, ``commit()`` packs what was too small."""

    def __init__(self, engine: Engine, job: WriteJob, commit: OpenCommit, schema: pa.Schema) -> None:
        self._engine, self._job, self._commit, self._schema = engine, job, commit, schema

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """In a task: base files in the stage folder, and a stage file for the rest."""
        with plain_errors(), reused_memory(), ThreadPoolExecutor(1) as pool:
            task, attempt = _task()
            context = TaskContext.get()
            stage = context.stageId() if context else 0
            job, storage = self._job, self._engine.storage
            folder = f"{stage_folder(job.write_id)}/{task}-{attempt}"
            settings = DirectSettings(
                folder=folder,
                instant_time=self._commit.time,
                write_id=job.write_id,
                task=task,
                write_token=f"{task}-{stage}-{attempt}",
                tail_bytes=_tail_bytes(job),
                buffer_bytes=job.options["lakeformat.write.buffer.bytes"],
            )
            heart = claims.Heart(storage, self._commit.time, self._engine.clock)
            writer = DirectWriter(storage, job.prepare, job.files(self._schema), settings, pool, heart.beat)
            try:
                for batch in iterator:
                    writer.append(batch)
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

    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """On the driver: pack, move, publish."""
        with plain_errors(), reused_memory():
            done = sorted((m for m in messages if isinstance(m, _DirectMessage)), key=lambda m: m.task)
            claims.beat(self._engine.storage, self._commit.time)
            session = WriteSession(self._engine, self._job)
            staged = [m.tails for m in done if m.tails is not None]
            with (
                session.locked(),
                session.undone_on_failure(self._commit),
                StageReader(self._engine.storage, staged, self._job.prepare) as reader,
            ):
                written = [file for m in done for file in m.written]
                session.run_direct(self._commit, written, reader.partitions(), sum(m.rows for m in done))

    def abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """On the driver: undo, unless the timeline says that the commit landed."""
        session = WriteSession(self._engine, self._job)
        try:
            with session.locked():
                session.protocol.undo(self._job.config, self._commit)
        except LakeformatError as error:
            _LOG.warning("instant %s is left for the next writer to roll back: %s", self._commit.time, error)
        else:
            session.forget_stage()


def _tail_bytes(job: WriteJob) -> int:
    small: int = job.options["hoodie.parquet.small.file.limit"]
    return small if job.operation is Operation.INSERT else min(small, _SMALL_TAIL_BYTES)


def _task() -> tuple[int, int]:
    """Number of the task, the same for every attempt, and of the attempt, never used twice."""
    context = TaskContext.get()
    return (context.partitionId(), context.taskAttemptId()) if context else (0, 0)
