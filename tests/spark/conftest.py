"""One small Spark for all tests of this folder."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

from lakeformat.spark import register, unregister
from tests.helpers.lakehouse import SETTINGS


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
