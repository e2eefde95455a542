"""Rows that are hard to place or to write, through every way of Spark: folders in folders, null structs."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow.compute as pc
import pytest
from pyspark.sql import DataFrame, SparkSession

import lakeformat
from lakeformat import InvalidInputError
from lakeformat.spark import LakehouseTable
from tests.helpers.lakehouse import FLIGHTS, read

pytestmark = pytest.mark.spark

Way = Callable[[DataFrame, Path], object]


def by_source(operation: str) -> Way:
    options = {**FLIGHTS, "hoodie.datasource.write.operation": operation}
    return lambda rows, path: rows.write.format("lakehouse").options(**options).mode("append").save(str(path))


def by_table(operation: str) -> Way:
    def run(rows: DataFrame, path: Path) -> object:
        table = LakehouseTable.create(rows.sparkSession, str(path), rows.schema, **FLIGHTS)
        return getattr(table, operation)(rows)

    return run


WAYS = {
    **{f"df.write {operation}": by_source(operation) for operation in ("upsert", "insert", "bulk_insert")},
    **{f"LakehouseTable {operation}": by_table(operation) for operation in ("upsert", "bulk_insert")},
}


def flights_of(spark: SparkSession, *parts: str) -> DataFrame:
    rows = [(number, part, 1, 0.5) for number, part in enumerate(parts)]
    return spark.createDataFrame(rows, "id bigint, part string, ts bigint, x double").repartition(2, "id")


#: The ways of every run: one through the source, where operations differ only before the commit, and one through tasks.
FIRST_WAYS = ("df.write upsert", "LakehouseTable bulk_insert")


@pytest.mark.parametrize(
    "way", [way if way in FIRST_WAYS else pytest.param(way, marks=pytest.mark.nightly) for way in WAYS]
)
def test_folders_in_folders_are_refused_whichever_tasks_wrote_them(
    way: str, spark: SparkSession, tmp_path: Path
) -> None:
    path = tmp_path / "t"
    for parts in (("a", "a/b"), ("x/y/z", "b", "x")):
        with pytest.raises(Exception, match=r"would lie in that of partition '[ax]'.*urlencode=true"):
            WAYS[way](flights_of(spark, *parts), path)
        assert lakeformat.open(path).history() == []
        assert not list(path.rglob("*.parquet"))
    WAYS[way](flights_of(spark, "a", "b"), path)
    with pytest.raises(Exception, match="partition 'a/b' would lie in that of partition 'a'"):
        WAYS[way](flights_of(spark, "a/b"), path)
    assert sorted(row.part for row in read(spark, path).collect()) == ["a", "b"]


JOINED = """
select a.id, 'p' part, 1L ts, 0.5 x, b.s, b.l, b.m, b.n
from (select explode(array(1L, 2L, 3L)) id) a left join (
  select 2L k, named_struct('x', 1, 'y', 't') s, array(named_struct('x', 1), null) l,
    map('q', named_struct('z', 1)) m, named_struct('i', named_struct('j', 1)) n
) b on a.id = b.k
"""


@pytest.mark.parametrize("way", WAYS)
def test_an_outer_join_is_written(way: str, spark: SparkSession, tmp_path: Path) -> None:
    path = tmp_path / "t"
    rows = spark.sql(JOINED)
    wanted = sorted(map(str, rows.collect()))
    WAYS[way](rows, path)
    table = LakehouseTable.forPath(spark, str(path), **FLIGHTS)
    table.upsert(rows)
    for frame in (read(spark, path), table.read(meta_columns=True, via="native")):
        found: list[Any] = frame.select(*rows.columns).collect()
        assert sorted(map(str, found)) == wanted


def test_conditions_of_arrow_delete_in_tasks_and_are_refused_where_spark_reads(
    spark: SparkSession, tmp_path: Path
) -> None:
    by_source("upsert")(flights_of(spark, "a", "b", "a", "c"), tmp_path / "t")
    table = LakehouseTable.forPath(spark, str(tmp_path / "t"), **FLIGHTS)
    assert table.update({"x": 2.0}, where=pc.field("part") == "a").report["rows"]["updated"] == 2
    assert table.delete(where=pc.field("x") > 1).report["rows"]["deleted"] == 2
    with pytest.raises(InvalidInputError, match=r"Expression; give Spark SQL text"):
        table.read(where=pc.field("x") > 1).collect()
