"""Explicit registration of the data source, for cases in which Spark does not find the package by itself."""

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

__all__ = ["check_pyspark", "register", "unregister", "use_this_python"]

_LOG: Final = logging.getLogger("lakeformat.spark")
#: Matches masters whose Python processes all run on this machine.
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
    """Make ``format("lakehouse")`` known to this session, and its ``load`` and ``save`` fast in this process.

    ``spark.read.format("lakehouse").load(path)`` then returns a frame of Spark's own Parquet scan, as
    `lakeformat.spark.read` does, with the meta columns first and for the same options as before.
    ``df.write.format("lakehouse")….save(path)`` is planned and published by this process, which must reach the table's
    storage; executors merge large writes. It takes ``partitionBy`` and all four save modes, works in any thread, and
    raises the errors of lakeformat; `last_result` returns what it did.

    ``merge``, ``update`` and ``delete`` of ``spark.sql`` on a path or `view` of ours are run by `lakeformat.spark.sql`.

    For this, PySpark's methods ``load``, ``save`` and ``sql`` are replaced, once for all sessions of the process. Other
    calls reach PySpark's own methods unchanged; `unregister` puts them back.

    Call it also if Spark cannot find the package by itself: if the script runs in a virtual environment that is not
    activated (``venv/bin/python job.py``, an IDE), or if the package came by ``--packages``. In other cases it does no
    harm. If the session is local and no setting names a Python, Spark's Python processes will use the interpreter that
    runs this program. A session made by ``newSession()`` needs a call of its own.

    Args:
        spark: the session, of classic Spark or Spark Connect.
        pushdown: whether to switch ``spark.sql.python.filterPushdown.enabled`` on too, so that ordinary filters of
            frames made by ``lakeformat.spark.read`` skip files (Spark 4.1 or later). The setting affects the whole
            session: Spark then passes filters to *every* Python data source. In Spark 4.1 to 4.3 this can make queries
            of other sources wrong: these releases keep one plan for all scans of a DataFrame or view. If two queries
            use the same one with different filters, the second can get the rows of the first. This source avoids the
            defect: a plain ``load()`` accepts no filters in these releases, and frames of ``read(..., via="source")``
            are guarded as ``lakeformat.spark.pushdown`` explains. False, the default, leaves the setting as it is.

    Raises:
        ImportError: PySpark is missing or too old.
    """
    check_pyspark()
    _choose_python(spark)
    _register_source(spark)
    from lakeformat.spark.sql_verb import wrap_sql
    from lakeformat.spark.verbs import wrap_verbs

    wrap_verbs(spark)
    wrap_sql()
    if not pushdown:
        return
    from lakeformat.spark.pushdown import PUSHDOWN

    try:
        spark.conf.set(PUSHDOWN, "true")
    # Spark 4.0 lacks the setting, and some platforms lock it. A warning suffices: pushed filters only save time.
    except Exception as error:
        _LOG.warning("filters are not pushed, the session does not take %s: %s", PUSHDOWN, str(error).split("\n")[0])


@spark_public
def unregister() -> None:
    """Put PySpark's own ``load``, ``save`` and ``sql`` back in this process, as they were before the first `register`.

    Sessions keep the format itself: both verbs then use the data source. Frames that were made before stay as they are.
    `register` can be called again.
    """
    from lakeformat.spark.sql_verb import unwrap_sql
    from lakeformat.spark.verbs import unwrap_verbs

    unwrap_verbs()
    unwrap_sql()


def use_this_python(spark: SparkSession) -> None:
    """Make Spark's workers use this program's Python. If that changed their Python, register the data source too."""
    if _choose_python(spark):
        _register_source(spark)


def _choose_python(spark: SparkSession) -> bool:
    """Make a local session start this program's Python, unless a setting names one. Return whether the Python changed.

    Without a setting Spark starts the ``python3`` on its ``PATH``. If the virtual environment of this program is not
    activated, that is another installation. Sessions with executors on other machines are not changed, because this
    program's path may not exist there.
    """
    context = getattr(spark, "_sc", None)  # None over Spark Connect, whose server has already chosen a Python.
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
    # If Spark 4.0 has found the source by itself before, it raises an error, which is ignored.
    except Exception as error:
        condition = getattr(error, "getCondition", getattr(error, "getErrorClass", str))()
        if condition != "DATA_SOURCE_ALREADY_EXISTS":
            raise
