"""One small Spark for all tests of this folder, and the rule that says which cases run when."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from typing import Final

import pytest
from pyspark.sql import SparkSession

from lakeformat.spark import register, unregister
from tests.helpers.few_cases import BY_NIGHT, seconds_of
from tests.helpers.lakehouse import SETTINGS

#: Processor seconds of a case beyond which `.ci/run` runs one case of a function.
_DEAR: Final = 2.0
#: Functions whose cases are the verbs of a job: `.ci/run` runs all that are not nightly.
EVERY_CASE: Final = frozenset({"test_every_operation_writes_the_expected_rows"})


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Leave the first and the last case of a function of this folder to `.ci/run`; the others run by night.

    The first case that is not slow stays as it is, and the last one is slow; if a case costs much, the last one runs by
    night, too, and so does the first beyond `BY_NIGHT`. Functions without a Spark stay whole.
    """
    cases = defaultdict[str, list[pytest.Item]](list)
    for item in items:
        uses_spark = "tests/spark/" in item.path.as_posix() and "spark" in getattr(item, "fixturenames", ())
        if uses_spark and not item.get_closest_marker("nightly"):
            cases[item.nodeid.partition("[")[0]].append(item)
    for function, found in cases.items():
        if function.rpartition("::")[2] in EVERY_CASE:
            continue
        first = next((item for item in found if not item.get_closest_marker("slow")), found[0])
        last = found[-1] if found[-1] is not first else found[0]
        for item in found:
            if seconds_of(function) > BY_NIGHT:
                item.add_marker(pytest.mark.nightly)
            elif item is last and last is not first and seconds_of(function) <= _DEAR:
                item.add_marker(pytest.mark.slow)
            elif item is not first:
                item.add_marker(pytest.mark.nightly)
                item.add_marker(pytest.mark.rest)


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """Yield a session without any call of ours: the package's name finds the source, and no filter is pushed."""
    # A task has two attempts, so that tests can let the first one fail.
    builder = SparkSession.builder.master("local[2,2]").appName("lakeformat tests")
    for name, value in SETTINGS.items():
        builder = builder.config(name, value)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("OFF")
    yield session
    session.stop()


@pytest.fixture(autouse=True)
def own_verbs() -> Iterator[None]:
    """Give PySpark's verbs back after each test, because `register` replaces them in the whole process."""
    yield
    unregister()


@pytest.fixture(scope="session")
def registered(spark: SparkSession) -> SparkSession:
    """Return a session with pushdown: Spark offers filters to sources if its version can (4.1 and later)."""
    session = spark.newSession()
    register(session, pushdown=True)
    unregister()  # The verbs of PySpark are replaced only in tests that ask for it.
    return session


@pytest.fixture(params=["default", "registered"])
def session(request: pytest.FixtureRequest, spark: SparkSession, registered: SparkSession) -> SparkSession:
    """Return one of the two sessions."""
    return registered if request.param == "registered" else spark
