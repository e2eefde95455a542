"""The verbs and arguments that `LakehouseTable` shares with `Table`: hooks, plans, changes, reads."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession, functions

import lakeformat
from lakeformat.spark import LakehouseTable

pytestmark = pytest.mark.spark

COLUMNS = "id long, part string, x double"
ROWS = [(at, "ab"[at % 2], float(9 - at)) for at in range(10)]


@pytest.fixture
def table(spark: SparkSession, tmp_path: Path) -> LakehouseTable:
    rows = spark.createDataFrame(ROWS, COLUMNS)
    return LakehouseTable.create(spark, tmp_path / "t", rows, record_key="id", partition_by="part", insert=True)


def test_every_write_takes_hooks(spark: SparkSession, table: LakehouseTable) -> None:
    rows = spark.createDataFrame(ROWS[:2], COLUMNS)
    seen: list[lakeformat.CommitMessage] = []
    hooks: dict[str, Any] = {"callbacks": [seen.append], "validators": [lambda write: write.after.count() > 0]}
    writes = {
        "upsert": lambda: table.upsert(rows, **hooks),
        "insert": lambda: table.insert(rows, **hooks),
        "bulk_insert": lambda: table.bulk_insert(rows, sort_columns=["x"], **hooks),
        "update": lambda: table.update({"x": 1.0}, where="id = 1", **hooks),
        "update by Spark": lambda: table.update({"x": functions.col("x") + 1}, where="id = 2", **hooks),
        "merge": lambda: table.merge(rows.limit(0), **hooks).when_matched_update().execute(),
        "delete": lambda: table.delete(rows.select("id", "part"), **hooks),
        "delete where": lambda: table.delete(where="id = 3", **hooks),
        "delete_partitions": lambda: table.delete_partitions("b", **hooks),
        "insert_overwrite": lambda: table.insert_overwrite(rows, **hooks),
        "overwrite": lambda: table.overwrite(rows, **hooks),
    }
    for verb, run in writes.items():
        before, commits = len(seen), len(table.history())
        run()
        assert len(seen) - before == len(table.history()) - commits == 1, verb
    before_count = table.count()
    with pytest.raises(lakeformat.ValidationFailedError):
        table.upsert(rows, validators=[lambda write: False])
    assert table.count() == before_count


def test_a_plan_and_an_explanation_write_nothing(spark: SparkSession, table: LakehouseTable) -> None:
    rows = spark.createDataFrame([(0, "a", 1.0), (99, "a", 1.0)], COLUMNS)
    plan = table.plan_upsert(rows)
    assert (plan.incoming, plan.updates, plan.inserts) == (2, 1, 1)
    assert table.plan_insert(rows).inserts == 2
    assert table.plan_delete(rows.select("id", "part")).updates == 1
    assert "after skipping" in table.explain(["id"], where="x > 100")
    assert len(table.history()) == 1


def test_changes_are_those_of_plain_python(spark: SparkSession, table: LakehouseTable) -> None:
    first = table.history()[0].instant_time
    table.upsert(spark.createDataFrame([(1, "b", 50.0), (77, "a", 7.0)], COLUMNS))
    plain = lakeformat.open(table.location).changes(first)
    found = table.changes(first)
    assert found.columns == ["id", "part", "x"]
    assert sorted(map(tuple, found.collect())) == sorted(tuple(row.values()) for row in plain.to_arrow().to_pylist())
    images = table.changes(first, images=True).collect()
    assert sorted(row.op for row in images) == ["i", "u"]
    assert table.changes(plain.until).count() == 0
    with pytest.raises(lakeformat.InvalidOptionError, match='since="000"'):
        table.changes()


def test_a_read_takes_the_arguments_of_plain_python(table: LakehouseTable) -> None:
    assert table.read("id", where="id >= 5", limit=3).count() == 3
    assert table.read(["id"], where="id >= 5", verify=True).count() == 5
    assert table.read(meta_columns=True).columns[0] == "_hoodie_commit_time"
    assert table.read().columns == ["id", "part", "x"]
    with pytest.raises(lakeformat.InvalidInputError, match="limit=-1"):
        table.read(limit=-1)
    with pytest.raises(lakeformat.InvalidOptionError, match="'where'"):
        table.read(condition="id = 1")  # type: ignore[call-arg]
