"""Helpers shared by the readers and writers: open a source's table, show errors on one line, find the time zone."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from pyspark import TaskContext

from lakeformat.config.read_options import TIME_ZONE
from lakeformat.config.resolve import Options, resolve, spark_storage_options, storage_options_of
from lakeformat.errors import InvalidOptionError, LakeformatError
from lakeformat.file_system_view.context import TableContext, open_context
from lakeformat.storage import FsspecStorage

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["QUERY_ID", "in_session_zone", "plain_errors", "requested_context", "storage_secrets", "task_zone"]

#: The Spark property of a task that holds the id of a stream's query.
QUERY_ID: Final = "sql.streaming.queryId"
#: Python programs of PySpark that run tasks. Such a process ends after the first error that it reports. Therefore an
#: environment variable that `plain_errors` sets there affects no other task.
_WORKERS: Final = ("pyspark.daemon", "pyspark.worker", "pyspark.sql.worker.")


def requested_context(options: Mapping[str, str], *, reads: bool = False) -> tuple[TableContext, Options]:
    """Open the table whose path is in a source's options. Return it and the parsed options.

    Args:
        options: as Spark hands them to the source.
        reads: whether the options are for a read. If so, no warning is logged about options that only writes use.

    Raises:
        InvalidOptionError: no path, several paths, or a bad option.
    """
    path = next((value for key, value in options.items() if key.lower() == "path"), None)
    if not path and "paths" in {key.lower() for key in options}:
        raise InvalidOptionError("several paths given; one load reads one table, so load each and union the frames")
    if not path:
        raise InvalidOptionError("no path given; write .load(path) or .save(path)")
    resolved = resolve(options, table=path, reads=reads)
    return open_context(path, resolved, **storage_options_of(path, options)), resolved


def storage_secrets(context: TableContext) -> dict[str, str]:
    """Return the options with which Spark can open the table's file system again; none for local files."""
    storage = context.storage
    return spark_storage_options(storage.options) if isinstance(storage, FsspecStorage) else {}


@contextmanager
def plain_errors() -> Iterator[None]:
    """Let errors of lakeformat reach Spark as class and message, without traceback and without a chained error."""
    try:
        yield
    except LakeformatError as error:
        if _is_worker():
            os.environ["SPARK_HIDE_TRACEBACK"] = "1"  # Read by pyspark.util.handle_worker_exception.
        raise error.with_traceback(None) from None


def _is_worker() -> bool:
    spec = getattr(sys.modules.get("__main__"), "__spec__", None)
    return spec is not None and spec.name.startswith(_WORKERS)


_ZONE: Final = "spark.sql.session.timeZone"


def in_session_zone(spark: SparkSession, options: Options) -> Options:
    """Return options whose conditions use the session's time zone, unless the options name a zone."""
    if options.read.time_zone is not None:
        return options
    return options.with_values(**{TIME_ZONE: spark.conf.get(_ZONE)})


def task_zone() -> str:
    """Find the time zone of the session whose query runs this task.

    Spark gives a task the settings that were set in the session. PySpark's worker also gets the defaults, but has no
    call for them, so this function looks at the worker's local variables. If neither has a zone, the zone is that of
    this machine, as in the JVM.
    """
    task = TaskContext.get()
    said = None if task is None else task.getLocalProperty(_ZONE)
    return said or _zone_of_worker() or _zone_of_machine()


def _zone_of_worker() -> str | None:
    frame = sys._getframe()
    while frame is not None:
        conf: Any = frame.f_locals.get("runner_conf")
        if conf is not None and hasattr(conf, "get"):
            try:
                zone = getattr(conf, "timezone", None) or conf.get(_ZONE, None)
            except Exception:  # Other releases of PySpark have other objects here.
                return None
            return zone if isinstance(zone, str) else None
        frame = frame.f_back  # type: ignore[assignment]
    return None


def _zone_of_machine() -> str:
    if zone := os.environ.get("TZ", "").removeprefix(":"):
        return zone
    _, found, name = str(Path("/etc/localtime").resolve()).partition("zoneinfo/")
    return name if found else "UTC"
