"""Writes from any thread, and writes of a stream's batches by ``foreachBatch``.

For a write by name, Spark (4.0 to 4.3) looks for Python sources in the session that is active in the calling thread.
Only the main thread has an active session. In other threads ``df.write.format("lakehouse")`` fails with
DATA_SOURCE_NOT_FOUND before Python is called. Spark Connect has no such problem.
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
from lakeformat.spark.jobs import context_of, describe_jobs, task_errors
from lakeformat.spark.register import use_this_python
from lakeformat.storage import open_storage

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
) -> None:
    """Run ``df.write.format("lakehouse").options(**options).mode(mode).save(path)`` in any thread.

    Examples:
        >>> def save(name):
        ...     lakeformat.spark.write(frames[name], f"/data/{name}", recordkey="flight_id")
        >>> with ThreadPoolExecutor() as pool:
        ...     done = list(pool.map(save, frames))

    Args:
        df: the rows, of classic Spark or Spark Connect.
        path: folder or URL of the table.
        mode: ``append`` (the default) runs the operation, ``overwrite`` replaces the contents in one commit.
        storage_options: for fsspec, in tasks too; never shown.
        options: Hudi's option names or the short aliases. A value may be a list of names; None means not given.

    Raises:
        LakeformatError: the same errors as in `lakeformat.Table`, not Spark's exception around them.
    """
    texts = {
        key: ",".join(map(str, value)) if isinstance(value, (list, tuple)) else value for key, value in options.items()
    }
    given = {key: value for key, value in texts.items() if value is not None}
    given |= spark_storage_options(storage_options)
    use_this_python(df.sparkSession)
    what = f"lakeformat write {open_storage(path).location}: prepare and write rows"
    with active_session(df.sparkSession), describe_jobs(df, what), task_errors():
        df.write.format("lakehouse").options(**given).mode(mode).save(os.fspath(path))


@spark_public
@contextmanager
def active_session(spark: SparkSession) -> Iterator[None]:
    """Make the session the active one of this thread while the block, or the decorated function, runs.

    Examples:
        >>> @active_session(spark)
        ... def save(name):
        ...     writer = frames[name].write.format("lakehouse").option("recordkey", "flight_id")
        ...     writer.mode("append").save(f"/data/{name}")
        >>> with ThreadPoolExecutor() as pool:
        ...     done = list(pool.map(save, frames))

    Afterwards the session that was active before is active again, or none. Over Spark Connect it does nothing, because
    nothing is needed. A thread of Python must be a thread of the JVM too, as it is unless ``PYSPARK_PIN_THREAD=false``.

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
    """Return a function for ``foreachBatch`` that writes each batch once, in every output mode.

    Examples:
        >>> save = lakeformat.spark.each_batch("/data/counts", recordkey="carrier")
        >>> stream = counts.writeStream.outputMode("update").foreachBatch(save)
        >>> query = stream.option("checkpointLocation", "/data/checkpoint").trigger(availableNow=True).start()
        >>> query.awaitTermination()

    Args:
        path: folder or URL of the table.
        app: the name of the stream in the table; by default the query's id, which its checkpoint keeps. Spark Connect
            does not give the id. There a name is required, and each checkpoint needs a different name.
        options: as in `lakeformat.spark.write`.

    Raises:
        InvalidInputError: raised by the returned function if the stream has no name.
    """

    def save(batch: DataFrame, batch_id: int) -> None:
        task_context = context_of(batch.sparkSession)
        name = app or (task_context.getLocalProperty(QUERY_ID) if task_context is not None else None)
        if not name:
            raise InvalidInputError("Spark does not give the id of this query; give each_batch(app=…) a name for it")
        with_batch: dict[str, Any] = {**options, BATCH_APP: name, BATCH_ID: batch_id}
        write(batch, path, **with_batch)

    return save
