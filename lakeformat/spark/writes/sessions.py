"""Writes from any thread.

For a write by name Spark (4.0 to 4.3) looks for Python sources in the session that is active in the calling thread, and
in none but the main thread one is: ``df.write.format("lakehouse")`` fails there with DATA_SOURCE_NOT_FOUND before
Python is asked. Spark Connect is not concerned.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from lakeformat.config.resolve import spark_storage_options
from lakeformat.spark.jobs import context_of, described, task_errors
from lakeformat.spark.register import use_this_python
from lakeformat.storage import open_storage

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["active_session", "write"]


def write(
    df: DataFrame,
    path: str | os.PathLike[str],
    mode: str = "append",
    *,
    storage_options: Mapping[str, Any] | None = None,
    **options: Any,
) -> None:
    """``df.write.format("lakehouse").options(**options).mode(mode).save(path)``, from any thread.

    Examples:
        >>> def save(name):
        ...     lakeformat.spark.write(frames[name], f"/data/{name}", recordkey="flight_id")
        >>> with ThreadPoolExecutor() as pool:
        ...     done = list(pool.map(save, frames))

    Args:
        df: the rows, of classic Spark or Spark Connect.
        path: folder or URL of the table.
        mode: ``append`` runs the operation, ``overwrite`` replaces the contents by one atomic commit.
        storage_options: for fsspec, in tasks, too; never shown.
        options: Hudi's option names or the short aliases; lists of names are as good as text, None is not given.

    Raises:
        LakeformatError: the same error as of `lakeformat.Table`, not Spark's around it.
    """
    texts = {
        key: ",".join(map(str, value)) if isinstance(value, (list, tuple)) else value for key, value in options.items()
    }
    given = {key: value for key, value in texts.items() if value is not None}
    given |= spark_storage_options(storage_options)
    use_this_python(df.sparkSession)
    what = f"lakeformat write {open_storage(path).location}: prepare and write rows"
    with active_session(df.sparkSession), described(df, what), task_errors():
        df.write.format("lakehouse").options(**given).mode(mode).save(os.fspath(path))


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

    Afterwards the one before is active again, or none if there was none. Over Spark Connect it does nothing: nothing
    is needed. A thread of Python must be one of the JVM's, as it is unless ``PYSPARK_PIN_THREAD=false``.
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
