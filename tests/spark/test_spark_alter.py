"""Columns that are altered, then read and written by Spark: every way of reading finds them by their ids."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

import lakeformat
from lakeformat.spark import LakehouseTable

pytestmark = pytest.mark.spark

COLUMNS = "id long, part string, n int, v string, s struct<a: int, b: string>"
ROWS = [(at, "ab"[at % 2], at, f"v{at}", (at, f"b{at}")) for at in range(6)]


@pytest.fixture
def registered(spark: SparkSession) -> Iterator[SparkSession]:
    """Yield a session whose ``load`` is Spark's own scan where files allow it."""
    lakeformat.spark.register(spark)
    yield spark
    lakeformat.spark.unregister()


def rows_of(frame: DataFrame) -> list[dict[str, Any]]:
    found = [row.asDict(recursive=True) for row in frame.collect()]
    return sorted(found, key=lambda row: row["id"])


@pytest.mark.parametrize("kind", ["COPY_ON_WRITE", "MERGE_ON_READ"])
def test_altered_columns_are_read_and_written(registered: SparkSession, kind: str, tmp_path: Path) -> None:
    spark, path = registered, str(tmp_path / "t")
    options = {"hoodie.datasource.write.table.type": kind}
    made = spark.createDataFrame(ROWS, COLUMNS)
    table = LakehouseTable.create(spark, path, made, record_key="id", partition_by="part", insert=True, **options)
    table.alter().rename("v", "title").rename("s.b", "bb").retype("n", "int64").add("v", "int32", first=True).execute()
    wanted = [
        {"v": None, "id": at, "part": part, "n": n, "title": title, "s": {"a": a, "bb": b}}
        for at, part, n, title, (a, b) in ROWS
    ]
    read = spark.read.format("lakehouse").load(path)
    assert [name for name in read.columns if not name.startswith("_hoodie")] == [*wanted[0]]

    new = spark.createDataFrame(
        [(7, 1, "b", 2**40, "changed", (0, "x")), (8, 9, "b", 9, "new", None)],
        "v int, id long, part string, n long, title string, s struct<a: int, bb: string>",
    )
    new.write.format("lakehouse").option("operation", "upsert").mode("append").save(path)
    wanted[1] |= {"v": 7, "n": 2**40, "title": "changed", "s": {"a": 0, "bb": "x"}}
    wanted.append({"v": 8, "id": 9, "part": "b", "n": 9, "title": "new", "s": None})
    table.update({"title": "set"}, where="id = 2")
    wanted[2]["title"] = "set"
    table.delete(where="id = 3")
    del wanted[3]
    for frame in (spark.read.format("lakehouse").load(path), table.read(), table.read(where="id >= 0")):
        assert rows_of(frame.select(*wanted[0])) == wanted
    filtered = spark.read.format("lakehouse").load(path).where("title = 'v4'").select(*wanted[0])
    assert rows_of(filtered) == [wanted[3]]
    table.compact() if kind == "MERGE_ON_READ" else table.cluster()
    assert rows_of(table.read()) == wanted
    assert lakeformat.open(path).to_arrow().sort_by("id").to_pylist() == wanted


def test_sql_alters_columns(spark: SparkSession, tmp_path: Path) -> None:
    path = str(tmp_path / "t")
    LakehouseTable.create(spark, path, spark.createDataFrame(ROWS, COLUMNS), record_key="id", insert=True)
    target = f"lakehouse.`{path}`"
    lakeformat.spark.sql(spark, f"alter table {target} rename column v to title")
    lakeformat.spark.sql(spark, f"alter table {target} drop column s")
    lakeformat.spark.sql(spark, f"update {target} set title = upper(title) where id < 2")  # noqa: S608
    found = lakeformat.spark.sql(spark, f"select id, title from {target} order by id")  # noqa: S608
    assert [row["title"] for row in found.collect()] == ["V0", "V1", "v2", "v3", "v4", "v5"]
