"""What reader and writer share: options to storage, and errors that arrive as one line.

The session's time zone: on the driver, where a session is at hand, and in tasks, where none is.
"""

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
from lakeformat.file_system_view.context import Engine, open_engine
from lakeformat.storage import FsspecStorage

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["asked_engine", "in_session_zone", "plain_errors", "storage_secrets", "task_zone"]

#: Programs of PySpark that end with the first error they tell the JVM of: what is set then meets no other.
_WORKERS: Final = ("pyspark.daemon", "pyspark.worker", "pyspark.sql.worker.")


def asked_engine(options: Mapping[str, str], *, reads: bool = False) -> tuple[Engine, Options]:
    """The table's engine and the parsed options; a read is not told what a write would not do."""
    path = next((value for key, value in options.items() if key.lower() == "path"), None)
    if not path and "paths" in {key.lower() for key in options}:
        raise InvalidOptionError("several paths given; one load reads one table, so load each and union the frames")
    if not path:
        raise InvalidOptionError("no path given; write .load(path) or .save(path)")
    resolved = resolve(options, table=path, reads=reads)
    return open_engine(path, resolved, **storage_options_of(path, options)), resolved


def storage_secrets(engine: Engine) -> dict[str, str]:
    """Options by which another relation of Spark opens the same file system."""
    storage = engine.storage
    return spark_storage_options(storage.options) if isinstance(storage, FsspecStorage) else {}


@contextmanager
def plain_errors() -> Iterator[None]:
    """Of our errors Spark is told class and words alone: no traceback of its worker, and nothing chained to them."""
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
    """Let conditions be read in the session's time zone, unless the options name one."""
    if options.read.time_zone is not None:
        return options
    return options.with_values(**{TIME_ZONE: spark.conf.get(_ZONE)})


def task_zone() -> str:
    """Find the time zone of the session whose query runs this task.

    Spark hands a task what was set in the session. What was not set, PySpark's worker is given all the same; it has
    no call that tells it, so its variables are looked at. Where neither says anything the zone is this machine's, as
    it is for the JVM.
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
            except Exception:  # Another release's.
                return None
            return zone if isinstance(zone, str) else None
        frame = frame.f_back  # type: ignore[assignment]
    return None


def _zone_of_machine() -> str:
    if zone := os.environ.get("TZ", "").removeprefix(":"):
        return zone
    _, found, name = str(Path("/etc/localtime").resolve()).partition("zoneinfo/")
    return name if found else "UTC"
