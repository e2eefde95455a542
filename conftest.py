"""Settings that every test needs, for every way to start pytest."""

from __future__ import annotations

import os
import re
import sys
from typing import Any

import pytest
from hypothesis import settings

# pytest explains failed assertions of the helpers like those of the tests.
pytest.register_assert_rewrite("tests.helpers")
# Spark starts its Python workers by name. They must use this interpreter, not the first one on PATH.
os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
# A host whose name does not resolve still runs local Spark.
os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")

# The default profile tries few examples of each property; `make test-slow` and `make nightly` try all. In CI each run
# draws the same examples.
_CI = bool(os.environ.get("CI"))
settings.register_profile("look", deadline=None, max_examples=30, derandomize=_CI, print_blob=_CI)
settings.register_profile("whole", deadline=None, max_examples=100, derandomize=_CI, print_blob=_CI)
settings.register_profile("nightly", deadline=None, max_examples=1000, print_blob=True)
settings.load_profile("look")


#: Files of ``tests/spark`` whose tests start Spark applications of their own.
_OWN_SPARK = ("test_spark_cluster.py", "test_spark_memory.py", "test_spark_s3.py", "test_spark_sessions.py")
#: Files that share a second Spark, about half of the total time. Add a slow new file to the faster half.
_SECOND_SPARK = (
    "test_spark_uses.py",
    "test_spark_errors.py",
    "test_spark_clustering.py",
    "test_spark_pushdown.py",
    "test_spark_operations.py",
    "test_spark_exchange.py",
    "test_registered_load.py",
    "test_merge_on_read_scan.py",
)

#: Files of ``tests/spark`` that `make test` runs. The tests of the other files are slow.
_FIRST_LOOK_AT_SPARK = (
    "test_hadoop_settings.py",
    "test_pushed_filters.py",
    "test_spark_filters.py",
    "test_spark_frames.py",
    "test_spark_reads.py",
    "test_spark_sql.py",
    "test_spark_statements.py",
    "test_spark_types.py",
    "test_spark_where.py",
    "test_spark_writes.py",
)

#: Files of ``tests/interop`` that share a second Spark with Hudi 1.2.0, about half of the time of that release.
_SECOND_HUDI = (
    "test_cdc_payloads.py",
    "test_consistent_hashing.py",
    "test_metadata_table_made.py",
    "test_metadata_table_shared.py",
)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the tests of the other files of ``tests/spark`` as slow."""
    for item in items:
        if "tests/spark/" in item.path.as_posix() and item.path.name not in _FIRST_LOOK_AT_SPARK:
            item.add_marker(pytest.mark.slow)


def _scope(nodeid: str) -> str:
    """Return the scope of a test: tests of one scope run in one worker, one after the other.

    The tests of a file form a scope, and so do all tests that share a JVM. Each long test that shares nothing is a
    scope of its own.
    """
    file, _, name = nodeid.partition("::")
    if "tests/interop/" in file and (version := re.search(r"\b(0\.15\.0|1\.1\.1|1\.2\.0)\b", name)):
        is_second = version[0] == "1.2.0" and file.endswith(_SECOND_HUDI)
        return "second hudi" if is_second else f"hudi {version[0]}"
    if file.endswith(("test_stateful.py", "test_crash.py")):
        return nodeid
    shares_spark = "tests/spark/" in file and not file.endswith(_OWN_SPARK)
    if shares_spark:
        return "second spark" if file.endswith(_SECOND_SPARK) else "spark"
    return file


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Return the scheduler by which ``pytest -n`` spreads tests over workers.

    Groups by marker are not used, because pytest 9.2 ignores them.
    """
    from xdist.scheduler import LoadScopeScheduling

    class ByScope(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            return _scope(nodeid)

    return ByScope(config, log)
