"""Helpers of the readers and writers: open a data source's table, shorten error reports, find the time zone."""

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
from lakeformat.storage import RemoteStorage

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["QUERY_ID", "in_session_zone", "plain_errors", "requested_context", "storage_secrets", "task_zone"]

#: The local property of a Spark task whose value is the id of the streaming query.
QUERY_ID: Final = "sql.streaming.queryId"
#: Prefixes of the names of PySpark's main modules in processes that run tasks. `plain_errors` sets an environment
#: variable in these processes only. They end after their first error, so the variable affects no later task. In other
#: processes it would hide the tracebacks of later errors.
_WORKERS: Final = ("pyspark.daemon", "pyspark.worker", "pyspark.sql.worker.")


def requested_context(options: Mapping[str, str], *, reads: bool = False) -> tuple[TableContext, Options]:
    """Open the table whose path is in the options of a data source. Return the table and the parsed options.

    Args:
        options: the options that Spark passes to the data source.
        reads: whether the options are for a read. If so, no warning is logged about options that only writes use.

    Raises:
        InvalidOptionError: the options have no path or several, or an option is bad.
    """
    path = next((value for key, value in options.items() if key.lower() == "path"), None)
    if not path and "paths" in {key.lower() for key in options}:
        raise InvalidOptionError("several paths given; one load reads one table, so load each and union the frames")
    if not path:
        raise InvalidOptionError("no path given; write .load(path) or .save(path)")
    resolved = resolve(options, table=path, reads=reads)
    return open_context(path, resolved, **storage_options_of(path, options)), resolved


def storage_secrets(context: TableContext) -> dict[str, str]:
    """Return the table's fsspec options as Spark options, so that tasks can open it; an empty dict for local files."""
    storage = context.storage
    return spark_storage_options(storage.options) if isinstance(storage, RemoteStorage) else {}


@contextmanager
def plain_errors() -> Iterator[None]:
    """Remove the traceback and the cause of a lakeformat error that leaves the ``with`` block.

    Spark then shows the user only the error's class and message. Other errors pass unchanged.
    """
    try:
        yield
    except LakeformatError as error:
        if _is_worker():
            os.environ["SPARK_HIDE_TRACEBACK"] = "1"  # Makes PySpark's handle_worker_exception omit the traceback.
        raise error.with_traceback(None) from None


def _is_worker() -> bool:
    spec = getattr(sys.modules.get("__main__"), "__spec__", None)
    return spec is not None and spec.name.startswith(_WORKERS)


_ZONE: Final = "spark.sql.session.timeZone"


def in_session_zone(spark: SparkSession, options: Options) -> Options:
    """Return the options with the session's time zone as the zone of conditions, unless the options have a zone."""
    if options.read.time_zone is not None:
        return options
    return options.with_values(**{TIME_ZONE: spark.conf.get(_ZONE)})


def task_zone() -> str:
    """Find the time zone of the session whose query runs this task.

    A task's local properties have the settings that were set in the session, but no defaults. PySpark's worker gets the
    defaults too, but offers no function that returns them, so this function reads local variables of the worker's
    functions on the call stack. If neither source has a zone, return the zone of this machine, as the JVM does.
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
            except Exception:  # Another PySpark may have another object here: no zone.
                return None
            return zone if isinstance(zone, str) else None
        frame = frame.f_back  # type: ignore[assignment]
    return None


def _zone_of_machine() -> str:
    if zone := os.environ.get("TZ", "").removeprefix(":"):
        return zone
    _, separator, name = str(Path("/etc/localtime").resolve()).partition("zoneinfo/")
    return name if separator else "UTC"
