"""`LakehouseTable` maintains, rolls back and checks a table with the methods of `lakeformat.Table`."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import lakeformat
from lakeformat.services.maintenance import Maintenance
from lakeformat.spark import LakehouseTable
from lakeformat.table import Table

pytestmark = pytest.mark.spark


def read_rows(table: LakehouseTable) -> dict[int, str]:
    return {row["id"]: row["v"] for row in table.read(columns=["id", "v"]).collect()}


def test_lakehouse_table_has_every_maintenance_method() -> None:
    verbs = {name for name in dir(Table) if not name.startswith("_")}
    readers = {
        "changes",
        "explain",
        "scan",
        "snapshot",
        "to_arrow",
        "to_batches",
        "to_duckdb",
        "to_pandas",
        "to_polars",
        "to_pyarrow_dataset",
    }
    by_frames = {"plan", "plan_delete", "plan_insert", "plan_upsert", "write"}
    assert verbs - readers - by_frames <= set(dir(LakehouseTable))
    assert {name for name in dir(Maintenance) if not name.startswith("_")} - {"engine", "options"} <= verbs


@pytest.mark.parametrize("version", [pytest.param(6, marks=pytest.mark.slow), 9])
def test_restore_and_check_work_from_spark(version: int, spark: SparkSession, tmp_path: Path) -> None:
    path = tmp_path / "t"
    options = {
        "recordkey": "id",
        "hoodie.table.type": "MERGE_ON_READ",
        "hoodie.write.table.version": version,
        "hoodie.compact.inline": "true",
        "hoodie.compact.inline.max.delta.commits": 8,
    }
    table = LakehouseTable.forPath(spark, str(path), **options)
    for number in range(2):
        table.upsert(spark.range(number, number + 4).selectExpr("id", f"'{number}' as v"))
    before = read_rows(table)
    saved = table.savepoint(comment="before the night", user="me")
    assert [each.comment for each in table.savepoints()] == ["before the night"]

    for number in range(2, 5):
        table.upsert(spark.range(number, number + 4).selectExpr("id", f"'{number}' as v"))
    after = read_rows(table)
    table.delete(where="id > 3")
    table.rollback()
    assert read_rows(table) == after
    assert table.restore(saved.instant_time).undone
    assert read_rows(table) == before
    assert spark.read.format("lakehouse").load(str(path)).count() == len(before)

    first = next(path.glob("*.parquet"))
    file_id, _, instant = first.name.split("_")
    lost = first.with_name(f"{file_id}_9-9-9_{instant}")  # The file of a task that lost its race.
    lost.write_bytes(first.read_bytes())
    assert [finding.path for finding in table.check()] == [lost.name]
    assert table.repair()
    assert not table.check()
    assert f"version {version}" in str(table.describe())
    table.delete_savepoint(saved.instant_time)
    assert table.savepoints() == ()
    table.upsert(spark.range(1).selectExpr("id", "'last' as v"))
    assert {row["id"]: row["v"] for row in lakeformat.open(path).to_arrow().to_pylist()} == {**before, 0: "last"}
