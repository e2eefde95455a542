"""A table as the sink of a stream: ``df.writeStream.format("lakehouse").option("checkpointLocation", …).start(path)``.

Tasks stage their rows as they come. ``commit()``, which runs in a process of its own, writes them as
`lakeformat.Table` does, as one commit that carries the query's id and the number of the batch: what Spark sends again
after a failure is skipped under the table's lock. Memory: that of the operation in plain Python.

Batches of a stream by ``foreachBatch``: for what Spark does not ask of a sink, update mode before all.
"""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from lakeformat.config.resolve import Options
from lakeformat.config.stream_options import BATCH_APP, BATCH_ID, SINK_IDENTIFIER
from lakeformat.errors import InvalidInputError, InvalidOptionError, LakeformatError
from lakeformat.file_system_view.context import Engine
from lakeformat.spark.host import asked_engine, plain_errors
from lakeformat.spark.jobs import context_of
from lakeformat.spark.types import arrow_schema
from lakeformat.spark.writes.sessions import write
from lakeformat.storage.port import Storage
from lakeformat.table import Table
from lakeformat.transaction.written_file import stage_folder
from lakeformat.write.intake import open_or_create
from lakeformat.write.plan.job import chosen_operation
from lakeformat.write.rows.schema import incoming_schema

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["SINK_CHECKPOINT", "STREAM_KEY", "LakehouseStreamWriter", "each_batch", "make_stream_writer"]

_LOG: Final = logging.getLogger("lakeformat.spark")
#: Keys of a commit's ``extraMetadata``: Hudi's, ``{identifier: batch id}``, and which query and batch wrote it.
SINK_CHECKPOINT: Final = "_hoodie_streaming_sink_checkpoint"
STREAM_KEY: Final = "streaming.query"
_OPERATION: Final = "hoodie.datasource.write.operation"
#: Of a task's Spark properties.
_QUERY_ID: Final = "sql.streaming.queryId"


@dataclass
class _StreamMessage(WriterCommitMessage):
    """What a task of one batch tells: its stage file, "" for no rows, and whose batch it is."""

    folder: str
    path: str
    rows: int
    task: int
    query: str


class LakehouseStreamWriter(DataSourceStreamWriter, DataSourceArrowWriter):
    """Writes the batches of one query. Spark makes one for a batch's tasks, and another for its commit.

    It is an Arrow writer, too: Spark 4.0 asks no more to hand over batches instead of rows.
    """

    def __init__(self, engine: Engine, options: Options, schema: StructType, overwrite: bool, query_name: str) -> None:
        self._storage: Storage = engine.storage
        self._options, self._schema, self._overwrite, self._query_name = options, schema, overwrite, query_name
        self._folder = stage_folder(engine.ids.token())

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """In a task: its rows as an Arrow file."""
        context = TaskContext.get()
        query = context.getLocalProperty(_QUERY_ID) if context else None
        if context is None or not query:
            raise InvalidOptionError("this is no task of a streaming query; write the frame by df.write")
        with plain_errors():
            return self.stage(iterator, query, context.partitionId(), context.taskAttemptId())

    def stage(self, batches: Iterator[pa.RecordBatch], query: str, task: int, attempt: int) -> WriterCommitMessage:
        """Write the rows of one attempt of a task to a file of its own."""
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
        """Beside the driver: one commit, unless the table has the batch already."""
        tasks = sorted((m for m in messages if isinstance(m, _StreamMessage)), key=lambda m: m.task)
        with plain_errors():
            if tasks and (self._overwrite or any(task.rows for task in tasks)):
                self._write(tasks, batchId)
        self._forget(messages)

    def _write(self, tasks: Sequence[_StreamMessage], batch_id: int) -> None:
        query, options = tasks[0].query, self._options
        rows = arrow_schema(self._schema)
        table = Table(self._storage, options)
        engine = table.engine
        config = open_or_create(engine.store, options, incoming_schema(rows), engine.clock)
        said = options.write.operation if options.given(_OPERATION) else None
        operation = chosen_operation(said, options, has_key=bool(config.record_fields), overwrite=self._overwrite)
        identifier = options[SINK_IDENTIFIER] or query
        stream = {"id": query, "name": self._query_name, "batch": batch_id}
        with ExitStack() as stack:
            batches = _staged(self._storage, [task.path for task in tasks if task.path], stack)
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
        """Beside the driver: the stage goes. What a commit has published stands, Spark sends the batch again."""
        self._forget(messages)

    def _forget(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        for folder in {m.folder for m in messages if isinstance(m, _StreamMessage)}:
            with suppress(LakeformatError, OSError):
                self._storage.delete_folder(folder)


def _staged(storage: Storage, paths: Sequence[str], stack: ExitStack) -> Iterator[pa.RecordBatch]:
    """The rows of stage files, mapped while the stack is open."""
    for path in paths:
        reader = pa.ipc.open_file(stack.enter_context(storage.open_input(path)))
        yield from (reader.get_batch(at) for at in range(reader.num_record_batches))


def _with_schema(batches: Iterator[pa.RecordBatch], otherwise: pa.Schema) -> tuple[pa.Schema, Iterator[pa.RecordBatch]]:
    """The schema that the batches have: Spark says it with them alone."""
    first = next(batches, None)
    if first is None:
        return otherwise, iter(())

    def rest() -> Iterator[pa.RecordBatch]:
        yield first
        yield from batches

    return first.schema, rest()


def make_stream_writer(options: Mapping[str, str], schema: StructType, overwrite: bool) -> LakehouseStreamWriter:
    """A writer for one batch. Options are checked here, all else by the batch's commit."""
    with plain_errors():
        engine, parsed = asked_engine(options)
        arrow_schema(schema)
        for name in (BATCH_APP, BATCH_ID):
            if parsed.given(name):
                raise InvalidOptionError(f"a stream names its batches by itself; leave out {name}")
        name = next((value for key, value in options.items() if key.lower() == "queryname"), "")
        return LakehouseStreamWriter(engine, parsed, schema, overwrite, name)


def each_batch(
    path: str | os.PathLike[str], *, app: str | None = None, **options: Any
) -> Callable[[DataFrame, int], None]:
    """A function for ``foreachBatch`` that writes each batch once, in every output mode.

    Examples:
        >>> save = lakeformat.spark.each_batch("/data/counts", recordkey="carrier")
        >>> stream = counts.writeStream.outputMode("update").foreachBatch(save)
        >>> query = stream.option("checkpointLocation", "/data/checkpoint").trigger(availableNow=True).start()
        >>> query.awaitTermination()

    Args:
        path: folder or URL of the table.
        app: by which name the table knows the stream; by default the query's id, which its checkpoint keeps. Over Spark
            Connect nobody tells it: there a name must be given, another one for each checkpoint.
        options: as of `lakeformat.spark.write`.

    Raises:
        InvalidInputError: from the function: there is no name.
    """

    def save(batch: DataFrame, batch_id: int) -> None:
        context = context_of(batch.sparkSession)
        name = app or (context.getLocalProperty(_QUERY_ID) if context is not None else None)
        if not name:
            raise InvalidInputError("Spark does not tell which query this is; give each_batch(app=…) a name for it")
        told: dict[str, Any] = {**options, BATCH_APP: name, BATCH_ID: batch_id}
        write(batch, path, **told)

    return save
