"""The session's time zone: on the driver, where a session is at hand, and in tasks, where none is."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from pyspark import TaskContext

from lakeformat.config.read_options import TIME_ZONE
from lakeformat.config.resolve import Options

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["in_session_zone", "task_zone"]

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
