"""A table as the sink of a stream: ``df.writeStream.format("lakehouse").option("checkpointLocation", …).start(path)``.

Each task writes its rows to a stage file. ``commit()``, which Spark runs in a Python process beside the driver, writes
the staged rows to the table as `lakeformat.Table` does, in one commit that stores the query's id and the number of the
batch. If Spark sends a batch again after a failure, the commit is found, and the batch is skipped. Memory: that of the
operation in plain Python.

For output modes that Spark does not offer to a sink, use ``foreachBatch`` with `lakeformat.spark.each_batch`.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from lakeformat.config.resolve import Options
from lakeformat.config.stream_options import BATCH_APP, BATCH_ID, SINK_IDENTIFIER
from lakeformat.errors import InvalidOptionError, LakeformatError
from lakeformat.file_system_view.context import TableContext
from lakeformat.services.job_check import check_job
from lakeformat.spark.host import QUERY_ID, plain_errors, requested_context
from lakeformat.spark.types import arrow_schema
from lakeformat.storage.port import Storage
from lakeformat.table import Table
from lakeformat.transaction.order.written_file import stage_folder
from lakeformat.write.intake import open_or_create
from lakeformat.write.plan.job import choose_operation
from lakeformat.write.rows.schema import incoming_schema

if TYPE_CHECKING:
    pass

__all__ = ["SINK_CHECKPOINT", "STREAM_KEY", "LakehouseStreamWriter", "make_stream_writer"]

_LOG: Final = logging.getLogger("lakeformat.spark")
#: Key of a commit's ``extraMetadata`` under which Hudi's sink stores the batch: ``{identifier: batch id}`` as JSON.
SINK_CHECKPOINT: Final = "_hoodie_streaming_sink_checkpoint"
#: Key of a commit's ``extraMetadata`` whose value is the query's id, name and batch number as JSON.
STREAM_KEY: Final = "streaming.query"
_OPERATION: Final = "hoodie.datasource.write.operation"


@dataclass
class _StreamMessage(WriterCommitMessage):
    """The result of one task of a batch.

    Attributes:
        folder: the stage folder.
        path: the task's stage file; "" if it has no rows.
        rows: number of rows.
        task: number of the task, by which the stage files are ordered.
        query: id of the streaming query.
    """

    folder: str
    path: str
    rows: int
    task: int
    query: str


class LakehouseStreamWriter(DataSourceStreamWriter, DataSourceArrowWriter):
    """The writer of batches of one streaming query. Spark creates one for a batch's tasks, and another for its commit.

    It inherits from Spark's Arrow writer too, so that Spark 4.0 passes Arrow batches to `write` instead of rows.
    """

    def __init__(
        self, context: TableContext, options: Options, schema: StructType, overwrite: bool, query_name: str
    ) -> None:
        check_job(options)
        self._storage: Storage = context.storage
        self._options, self._schema, self._overwrite, self._query_name = options, schema, overwrite, query_name
        self._folder = stage_folder(context.ids.token())

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Write the rows of one task to a stage file. Spark calls this in the task."""
        task_context = TaskContext.get()
        query = task_context.getLocalProperty(QUERY_ID) if task_context else None
        if task_context is None or not query:
            raise InvalidOptionError("this is not a task of a streaming query; write the frame by df.write")
        with plain_errors():
            return self.stage(iterator, query, task_context.partitionId(), task_context.taskAttemptId())

    def stage(self, batches: Iterator[pa.RecordBatch], query: str, task: int, attempt: int) -> WriterCommitMessage:
        """Write the rows of one task attempt to a stage file that no other attempt writes.

        Args:
            query: id of the streaming query.
            task: number of the task in the batch.
            attempt: number of the attempt, unique among all attempts.
        """
        path, rows = f"{self._folder}/{task}-{attempt}.arrow", 0
        with ExitStack() as stack:
            writer: Any = None
            for batch in batches:
                if not batch.num_rows:
                    continue
                if writer is None:
                    sink = stack.enter_context(self._storage.open_output(path))
                    writer = stack.enter_context(pa.ipc.new_file(sink, batch.schema))
                writer.write_batch(batch)
                rows += batch.num_rows
        return _StreamMessage(self._folder, path if rows else "", rows, task, query)

    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """Write the staged rows of a batch to the table in one commit, unless a commit has this batch already.

        Spark calls this in a Python process beside the driver.
        """
        tasks = sorted((m for m in messages if isinstance(m, _StreamMessage)), key=lambda m: m.task)
        with plain_errors():
            if tasks and (self._overwrite or any(task.rows for task in tasks)):
                self._write(tasks, batchId)
        self._forget(messages)

    def _write(self, tasks: Sequence[_StreamMessage], batch_id: int) -> None:
        query, options = tasks[0].query, self._options
        rows = arrow_schema(self._schema)
        table = Table(self._storage, options)
        context = table.context
        config = open_or_create(context.store, options, incoming_schema(rows), context.clock)
        said = options.write.operation if options.is_set(_OPERATION) else None
        operation = choose_operation(said, options, has_key=bool(config.record_fields), overwrite=self._overwrite)
        identifier = options[SINK_IDENTIFIER] or query
        stream = {"id": query, "name": self._query_name, "batch": batch_id}
        with ExitStack() as stack:
            batches = _read_staged(self._storage, [task.path for task in tasks if task.path], stack)
            schema, batches = _with_schema(batches, rows)
            result = table.write(
                pa.RecordBatchReader.from_batches(schema, batches),
                operation,
                combine=self._overwrite and said is None,
                options={BATCH_APP: query, BATCH_ID: batch_id},
                extra_metadata={
                    SINK_CHECKPOINT: json.dumps({identifier: str(batch_id)}),
                    STREAM_KEY: json.dumps({key: value for key, value in stream.items() if value != ""}),
                },
            )
        _LOG.info("batch %d of query %s: %s", batch_id, query, result)

    def abort(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """Delete the stage files of a failed batch. If its commit was published already, the commit stays.

        Spark calls this in a Python process beside the driver, and sends the batch again after a restart.
        """
        self._forget(messages)

    def _forget(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        for folder in {m.folder for m in messages if isinstance(m, _StreamMessage)}:
            with suppress(LakeformatError, OSError):
                self._storage.delete_folder(folder)


def _read_staged(storage: Storage, paths: Sequence[str], stack: ExitStack) -> Iterator[pa.RecordBatch]:
    """Read stage files and yield their batches. The files stay open until ``stack`` is closed."""
    for path in paths:
        reader = pa.ipc.open_file(stack.enter_context(storage.open_input(path)))
        yield from (reader.get_batch(number) for number in range(reader.num_record_batches))


def _with_schema(batches: Iterator[pa.RecordBatch], otherwise: pa.Schema) -> tuple[pa.Schema, Iterator[pa.RecordBatch]]:
    """Return the schema of the first batch, and all batches.

    The schema that Spark passes to the writer can differ from that of the batches, so the batches decide.

    Args:
        otherwise: the schema to return if there are no batches.
    """
    first = next(batches, None)
    if first is None:
        return otherwise, iter(())

    def rest() -> Iterator[pa.RecordBatch]:
        yield first
        yield from batches

    return first.schema, rest()


def make_stream_writer(options: Mapping[str, str], schema: StructType, overwrite: bool) -> LakehouseStreamWriter:
    """Check the options and the column types, and return a writer. The commit of a batch checks everything else."""
    with plain_errors():
        context, parsed = requested_context(options)
        arrow_schema(schema)
        for name in (BATCH_APP, BATCH_ID):
            if parsed.is_set(name):
                raise InvalidOptionError(f"a stream names its batches by itself; leave out {name}")
        name = next((value for key, value in options.items() if key.lower() == "queryname"), "")
        return LakehouseStreamWriter(context, parsed, schema, overwrite, name)
