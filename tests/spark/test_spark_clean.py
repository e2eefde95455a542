"""Cleaning under Spark: the same methods, and tasks that delete the files."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from lakeformat.spark import LakehouseTable
from lakeformat.spark.services import SparkDeleter
from lakeformat.storage import LocalStorage

pytestmark = pytest.mark.spark


def test_tasks_delete_files_and_report_failures(spark: SparkSession, tmp_path: Path) -> None:
    storage = LocalStorage(str(tmp_path))
    paths = [f"p/{number}" for number in range(9)]
    for path in paths:
        storage.create(path, b"x")
    storage.create("p/full/x", b"x")
    failed = SparkDeleter(spark, few=2)(storage, [*paths, "p/none", "p/full"])
    assert [*failed] == ["p/full"]  # It is a folder.
    assert "cannot delete p/full" in failed["p/full"]
    assert [entry.name for entry in storage.list("p")] == ["full"]


@pytest.mark.slow
def test_a_table_under_spark_cleans_and_archives(spark: SparkSession, tmp_path: Path) -> None:
    rows = spark.range(3).selectExpr("id", "'a' as v")
    short = {"hoodie.cleaner.commits.retained": 1, "hoodie.keep.min.commits": 2, "hoodie.keep.max.commits": 3}
    table = LakehouseTable.forPath(spark, str(tmp_path / "t"), recordkey="id", **short)
    done = [table.upsert(rows).report.get("services", {}) for _ in range(5)]
    assert [[*each] for each in done] == [[], [], *[["clean", "archive"]] * 3]  # Commits and cleans count together.
    assert len(table.history()) == 5
    assert table.clean().skipped
    assert table.read().count() == 3
