"""Registration by hand, for sessions that got lakeformat from ``--packages`` or ``addArtifacts``."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["register"]

_LOG: Final = logging.getLogger("lakeformat.spark")
_PUSHDOWN: Final = "spark.sql.python.filterPushdown.enabled"


def register(spark: SparkSession) -> None:
    """Make ``format("lakehouse")`` known to this session and let Spark (4.1 or later) push filters into it.

    Needed where the package is not installed in the driver's environment; harmless where it is. Sessions made by
    ``newSession()`` need their own call.
    """
    from pyspark_lakehouse import DefaultSource

    try:
        spark.dataSource.register(DefaultSource)
    except Exception as error:  # Spark 4.0 refuses a name it has already found by itself.
        condition = getattr(error, "getCondition", getattr(error, "getErrorClass", str))()
        if condition != "DATA_SOURCE_ALREADY_EXISTS":
            raise
    try:
        spark.conf.set(_PUSHDOWN, "true")
    except Exception as error:  # Spark 4.0 has no such setting; some platforms lock their configuration.
        _LOG.debug("filters are not pushed: %s", error)
