"""Spark still answers as ``tests/fixtures/spark`` says; `make test-matrix` asks every supported PySpark."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.helpers.spark_answers import answers
from tests.helpers.spark_asked import ask
from tests.helpers.spark_questions import QUESTIONS

pytestmark = [pytest.mark.spark, pytest.mark.nightly, pytest.mark.recorded]


@pytest.mark.parametrize("name", QUESTIONS)
def test_spark_answers_as_recorded(name: str, spark: SparkSession, tmp_path: Path) -> None:
    assert ask(spark, QUESTIONS[name](), tmp_path) == answers(name, spark.version)
