"""Settings that every test needs, for every way to start pytest."""

from __future__ import annotations

import os
import re
import shutil
import sys
from collections import OrderedDict
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings

# pytest explains failed assertions of the helpers like those of the tests.
pytest.register_assert_rewrite("tests.helpers")
pytest_plugins = ["tests.helpers.durations", "tests.helpers.few_cases"]
# Spark starts its Python workers by name. They must use this interpreter, not the first one on PATH.
os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
# A host whose name does not resolve still runs local Spark.
os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
# A JVM that lives for minutes compiles quickly rather than well, and collects garbage in one thread.
os.environ.setdefault("SPARK_SUBMIT_OPTS", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")

# Temporary folders lie in memory where the machine has a folder for it with room: a flush costs nothing there. pytest
# keeps the folders of failed tests alone (pyproject.toml), so little room is enough. `tests/storage` uses the disk.
_MEMORY = Path("/dev/shm")  # noqa: S108
if os.access(_MEMORY, os.W_OK) and shutil.disk_usage(_MEMORY).free > 2 << 30:
    os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", str(_MEMORY))

# Few examples of each property on a plain run, fewer of the expensive ones (`tests.helpers.examples`); all by night.
# Hypothesis sets ``derandomize`` where it finds a CI, and then no seed counts.
for _name, _examples in {"look": 30, "ci": 30, "whole": 100, "nightly": 1000}.items():
    settings.register_profile(_name, deadline=None, derandomize=False, max_examples=_examples, print_blob=True)
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
def pytest_configure(config: pytest.Config) -> None:
    """Let Hypothesis draw the same examples in each run, unless ``--hypothesis-seed`` says otherwise.

    `.ci/run` gives another seed each day. `make nightly` draws new examples in each run.
    """
    is_nightly = config.getoption("--hypothesis-profile") == "nightly"
    if config.getoption("--hypothesis-seed") is None and not is_nightly:
        config.option.hypothesis_seed = "0"


def pytest_report_header(config: pytest.Config) -> str:
    """Return the line that tells how to draw the same examples again."""
    seed = config.getoption("--hypothesis-seed")
    return f"examples of Hypothesis: --hypothesis-seed={seed}" if seed is not None else "examples of Hypothesis: new"


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
def pytest_xdist_auto_num_workers() -> int:
    """Return one worker more than there are cores: tests wait for JVMs, servers and locks a third of their time."""
    return (os.cpu_count() or 1) + 1


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Return the scheduler by which ``pytest -n`` spreads tests over workers.

    Groups by marker are not used, because pytest 9.2 ignores them.
    """
    from xdist.scheduler import LoadScopeScheduling

    from tests.helpers.few_cases import seconds_of

    class LongestFirst(OrderedDict[str, dict[str, bool]]):
        """Scopes that wait, and their tests. The one that costs most goes first, so that the workers end together."""

        def __init__(self) -> None:
            super().__init__()
            self.seconds: dict[str, float] = {}

        def __setitem__(self, scope: str, tests: dict[str, bool]) -> None:
            self.seconds[scope] = sum(seconds_of(test) for test in tests)
            super().__setitem__(scope, tests)

        def popitem(self, last: bool = False) -> tuple[str, dict[str, bool]]:
            longest = max(self, key=self.seconds.__getitem__)
            return longest, self.pop(longest)

    class ByScope(LoadScopeScheduling):
        def __init__(self, config: pytest.Config, log: Any) -> None:
            super().__init__(config, log)
            self.workqueue = LongestFirst()

        def _split_scope(self, nodeid: str) -> str:
            return _scope(nodeid)

    return ByScope(config, log)
