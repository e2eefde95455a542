"""One small Spark for all tests of this folder."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

from lakeformat.spark import register
from tests.helpers.lakehouse import SETTINGS


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """A session as a user has it who calls nothing: the source is found by its package's name, nothing is pushed."""
    # Two attempts a task: what a failed first one leaves behind is a case of its own.
    builder = SparkSession.builder.master("local[2,2]").appName("lakeformat tests")
    for name, value in SETTINGS.items():
        builder = builder.config(name, value)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("OFF")
    yield session
    session.stop()


@pytest.fixture(scope="session")
def registered(spark: SparkSession) -> SparkSession:
    """A session that switched pushdown on: Spark offers filters to sources where it can (4.1 and later)."""
    session = spark.newSession()
    register(session, pushdown=True)
    return session


@pytest.fixture(params=["default", "registered"])
def session(request: pytest.FixtureRequest, spark: SparkSession, registered: SparkSession) -> SparkSession:
    """Either of the two."""
    return registered if request.param == "registered" else spark
