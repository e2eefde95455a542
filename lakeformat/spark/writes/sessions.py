"""Writes from any thread, and writes of a stream's batches by ``foreachBatch``.

For ``df.write.format(name)``, Spark 4.0 to 4.3 look for Python data sources in the session that is active in the
calling thread. Only the main thread has an active session. In other threads ``df.write.format("lakehouse")`` fails with
DATA_SOURCE_NOT_FOUND before any Python code of the source runs. Over Spark Connect it works in all threads.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from lakeformat.config.resolve import spark_storage_options
from lakeformat.config.stream_options import BATCH_APP, BATCH_ID
from lakeformat.errors import InvalidInputError
from lakeformat.public import spark_public
from lakeformat.spark.host import QUERY_ID
from lakeformat.spark.jobs import context_of
from lakeformat.spark.writes.save import SaveCall, save_frame
from lakeformat.transaction.commit.result import WriteResult

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["active_session", "each_batch", "write"]


@spark_public
def write(
    df: DataFrame,
    path: str | os.PathLike[str],
    mode: str = "append",
    *,
    storage_options: Mapping[str, Any] | None = None,
    **options: Any,
) -> WriteResult | None:
    """Save a DataFrame in any thread, as ``df.write.format("lakehouse")….save(path)`` does after `register`.

    `register` is not needed. Return the result; None if pandas is missing, so that the data source had to write.

    Examples:
        >>> lakeformat.spark.write(changes, "/data/flights", recordkey="flight_id").rows.updated
        20
        >>> def save(name):
        ...     lakeformat.spark.write(frames[name], f"/data/{name}", recordkey="flight_id")
        >>> with ThreadPoolExecutor() as pool:
        ...     done = list(pool.map(save, frames))

    Args:
        df: the rows, of classic Spark or Spark Connect.
        path: folder or URL of the table.
        mode: ``append`` (the default) runs the operation that the options name; ``overwrite`` replaces the contents of
            the table in one commit. If there is a table, ``errorifexists`` raises an error and ``ignore`` does nothing.
        storage_options: options for fsspec in this process and in tasks; their values never appear in messages.
        options: Hudi's option names or the short aliases. A value may be a list of names. Options with the value None
            are ignored.

    Raises:
        LakeformatError: as in the methods of `lakeformat.Table`; Spark's exception around the error is removed.
    """
    texts = {key: _text(value) for key, value in options.items() if value is not None}
    call = SaveCall(df, os.fspath(path), {**texts, **spark_storage_options(storage_options)}, str(mode).lower())
    with active_session(df.sparkSession):  # Only for the data source, which Spark looks for in this session.
        return save_frame(call)


def _text(value: Any) -> str:
    """Return an option's value as PySpark passes it to a data source, lists of names included."""
    if isinstance(value, (list, tuple)):
        return ",".join(map(str, value))
    return str(value).lower() if isinstance(value, bool) else str(value)


@spark_public
@contextmanager
def active_session(spark: SparkSession) -> Iterator[None]:
    """Make the session active in this thread during the ``with`` block or the decorated function.

    Examples:
        >>> @active_session(spark)
        ... def save(name):
        ...     writer = frames[name].write.format("lakehouse").option("recordkey", "flight_id")
        ...     writer.mode("append").save(f"/data/{name}")
        >>> with ThreadPoolExecutor() as pool:
        ...     done = list(pool.map(save, frames))

    Then ``df.write.format("lakehouse")`` works in the thread. Afterwards the session that was active before is active
    again, or none. Over Spark Connect nothing is needed, and nothing is done. ``PYSPARK_PIN_THREAD=false`` must not be
    set: a session is active in one JVM thread, and without pinned threads a Python thread has no JVM thread of its own.

    Args:
        spark: the session.
    """
    context = context_of(spark)
    if context is None:
        yield
        return
    sessions = context._jvm.SparkSession
    before = sessions.getActiveSession()
    sessions.setActiveSession(spark._jsparkSession)
    try:
        yield
    finally:
        if before.isDefined():
            sessions.setActiveSession(before.get())
        else:
            sessions.clearActiveSession()


@spark_public
def each_batch(
    path: str | os.PathLike[str], *, app: str | None = None, **options: Any
) -> Callable[[DataFrame, int], None]:
    """Return a function for ``foreachBatch`` that writes each batch of a stream exactly once, in every output mode.

    Examples:
        >>> save = lakeformat.spark.each_batch("/data/counts", recordkey="carrier")
        >>> stream = counts.writeStream.outputMode("update").foreachBatch(save)
        >>> query = stream.option("checkpointLocation", "/data/checkpoint").trigger(availableNow=True).start()
        >>> query.awaitTermination()

    Args:
        path: folder or URL of the table.
        app: the name of the stream in the table's commits, by which a repeated batch is recognized. By default the
            query's id, which is stored in its checkpoint. Over Spark Connect the id is not available, so a name is
            required. Use a different name for each checkpoint: with a new checkpoint the numbers of batches begin at 0
            again, and under the old name such batches would be skipped as repeated.
        options: as in `lakeformat.spark.write`.

    Raises:
        InvalidInputError: raised by the returned function if ``app`` is None and the query's id is not available.
    """

    def save(batch: DataFrame, batch_id: int) -> None:
        task_context = context_of(batch.sparkSession)
        name = app or (task_context.getLocalProperty(QUERY_ID) if task_context is not None else None)
        if not name:
            raise InvalidInputError("Spark does not give the id of this query; give each_batch(app=…) a name for it")
        with_batch: dict[str, Any] = {**options, BATCH_APP: name, BATCH_ID: batch_id}
        write(batch, path, **with_batch)

    return save
