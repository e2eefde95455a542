"""Registration by hand, for sessions that got lakeformat from ``--packages`` or ``addArtifacts``."""

from __future__ import annotations

import logging
from importlib.util import find_spec
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["PUSHDOWN", "check_pyspark", "register"]

_LOG: Final = logging.getLogger("lakeformat.spark")
PUSHDOWN: Final = "spark.sql.python.filterPushdown.enabled"


def check_pyspark() -> None:
    """Raises `ImportError` where PySpark is missing, or too old to have data sources in Python."""
    is_missing = find_spec("pyspark") is None
    if is_missing or find_spec("pyspark.sql.datasource") is None:
        raise ImportError(
            f"lakeformat.spark needs PySpark 4.0 or later, and {'there is none' if is_missing else 'this one is older'}"
            "; run pip install 'pyspark>=4.0' (import lakeformat alone needs no Spark)"
        )


def register(spark: SparkSession, *, pushdown: bool = False) -> None:
    """Make ``format("lakehouse")`` known to this session.

    Needed where the package is not installed in the driver's environment; harmless where it is. Sessions made by
    ``newSession()`` need their own call.

    Args:
        pushdown: also switch ``spark.sql.python.filterPushdown.enabled`` on, so that ordinary filters of frames made
            by ``lakeformat.spark.read`` skip files (Spark 4.1 or later). The switch is the session's: Spark then
            offers filters to *every* Python data source. On Spark 4.1 to 4.3 another source that takes them can
            answer with another query's rows whenever one of its DataFrames or views is used twice, since Spark keeps
            one plan for all scans of it. Of ours a plain ``load()`` takes no filter there; what
            ``read(..., via="source")`` does is told by `lakeformat.spark.pushed`.
            False, the default, leaves the setting as it is.
    """
    check_pyspark()
    from pyspark_lakehouse import DefaultSource

    try:
        spark.dataSource.register(DefaultSource)
    except Exception as error:  # Spark 4.0 refuses a name it has already found by itself.
        condition = getattr(error, "getCondition", getattr(error, "getErrorClass", str))()
        if condition != "DATA_SOURCE_ALREADY_EXISTS":
            raise
    if not pushdown:
        return
    try:
        spark.conf.set(PUSHDOWN, "true")
    except Exception as error:  # Spark 4.0 has no such setting; some platforms lock their configuration.
        _LOG.warning("filters are not pushed, the session does not take %s: %s", PUSHDOWN, str(error).split("\n")[0])
