"""Registration of the data source by hand: for interpreters that are not activated, and for ``--packages``."""

from __future__ import annotations

import logging
import os
import re
import sys
from importlib.util import find_spec
from typing import TYPE_CHECKING, Final

from lakeformat.public import spark_public

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["check_pyspark", "register", "use_this_python"]

_LOG: Final = logging.getLogger("lakeformat.spark")
#: Masters whose Python processes all run on this machine.
_LOCAL: Final = re.compile(r"local(\[.*\]|-cluster\[.*\])?")
_PYTHON_SETTINGS: Final = ("spark.pyspark.python", "spark.pyspark.driver.python")


def check_pyspark() -> None:
    """Raise `ImportError` if PySpark is missing, or too old to have data sources in Python."""
    is_missing = find_spec("pyspark") is None
    if is_missing or find_spec("pyspark.sql.datasource") is None:
        raise ImportError(
            f"lakeformat.spark needs PySpark 4.0 or later, and {'there is none' if is_missing else 'this one is older'}"
            "; run pip install 'pyspark>=4.0' (import lakeformat alone needs no Spark)"
        )


@spark_public
def register(spark: SparkSession, *, pushdown: bool = False) -> None:
    """Make ``format("lakehouse")`` known to this session.

    Call it if Spark cannot find the package by itself: if an interpreter that is not activated runs the script
    (``venv/bin/python job.py``, an IDE), or if the package came by ``--packages``. In other cases it does no harm. If
    the session is local and no setting names a Python, Spark's Python processes then use the interpreter that runs this
    program. A session made by ``newSession()`` needs its own call.

    Args:
        spark: the session, of classic Spark or Spark Connect.
        pushdown: whether to switch ``spark.sql.python.filterPushdown.enabled`` on too, so that ordinary filters of
            frames made by ``lakeformat.spark.read`` skip files (Spark 4.1 or later). The setting belongs to the
            session: Spark then offers filters to *every* Python data source. On Spark 4.1 to 4.3 another source that
            takes filters can return rows of another query if one of its DataFrames or views is used twice, because
            Spark keeps one plan for all scans of it. A plain ``load()`` of this source takes no filters there;
            ``lakeformat.spark.pushdown`` explains ``read(..., via="source")``. False, the default, leaves the setting
            as it is.

    Raises:
        ImportError: PySpark is missing or too old.
    """
    check_pyspark()
    _choose_python(spark)
    _register_source(spark)
    if not pushdown:
        return
    from lakeformat.spark.pushdown import PUSHDOWN

    try:
        spark.conf.set(PUSHDOWN, "true")
    except Exception as error:  # Spark 4.0 has no such setting; some platforms lock their configuration.
        _LOG.warning("filters are not pushed, the session does not take %s: %s", PUSHDOWN, str(error).split("\n")[0])


def use_this_python(spark: SparkSession) -> None:
    """Call `register` if Spark would start another Python than the one that runs this program."""
    if _choose_python(spark):
        _register_source(spark)


def _choose_python(spark: SparkSession) -> bool:
    """Make a local session start this program's Python, unless a setting names one. Return whether this changed.

    Without a setting Spark starts ``python3`` of its ``PATH``, which is another installation if the environment is not
    activated. Executors on other machines may not have this program's path, so their sessions stay as they are.
    """
    context = getattr(spark, "_sc", None)  # Spark Connect has none: its server chose a Python when it started.
    if context is None or not _LOCAL.fullmatch(context.master) or not sys.executable:
        return False
    is_named = any(map(os.environ.get, ("PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON")))
    if is_named or any(map(context._conf.get, _PYTHON_SETTINGS)) or context.pythonExec == sys.executable:
        return False
    context.pythonExec = sys.executable
    return True


def _register_source(spark: SparkSession) -> None:
    from pyspark_lakehouse import DefaultSource

    try:
        spark.dataSource.register(DefaultSource)
    except Exception as error:  # Spark 4.0 refuses a name it has already found by itself.
        condition = getattr(error, "getCondition", getattr(error, "getErrorClass", str))()
        if condition != "DATA_SOURCE_ALREADY_EXISTS":
            raise
