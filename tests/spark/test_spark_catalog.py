"""Spark's catalog gives a Python source no path: its tables are refused when they are made or when they are read."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession

from tests.helpers.lakehouse import FLIGHTS, Refusal, commits, contents, flights, refusal, write

pytestmark = pytest.mark.spark

ROWS = [(1, "a", 1, 0.5), (2, "b", 1, 1.5)]
COLUMNS = "(id long, part string, ts long, x double)"
NO_PATH = Refusal(
    "InvalidOptionError",
    "no path given; Spark does not pass a path for catalog tables, which can be neither read nor written: "
    "drop that table (its files stay), and write .load(path), .save(path) or create temporary view ... using lakehouse "
    "options (path '...')",
)


@pytest.fixture(scope="module")
def table(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Yield a table of `ROWS`, which are also the view ``source``, beside an empty database ``catalogued``."""
    folder = tmp_path_factory.mktemp("catalog")
    spark.sql(f"create database catalogued location '{folder / 'warehouse'}'")
    flights(spark, ROWS).createOrReplaceTempView("source")
    write(flights(spark, ROWS), folder / "t")
    yield folder / "t"
    spark.catalog.dropTempView("source")
    spark.sql("drop database catalogued cascade")


def entries(spark: SparkSession) -> list[str]:
    return [table.name for table in spark.catalog.listTables("catalogued") if not table.isTemporary]


@pytest.mark.parametrize(
    "made",
    [
        "create table {name} using lakehouse",
        "create table {name} using lakehouse options (path '{path}')",
        "create table {name} using lakehouse location '{path}'",
        "create table {name} using lakehouse as select * from source",
        "create table {name} using lakehouse options (path '{path}') as select * from source",
        "saveAsTable",
    ],
)
def test_refused_creation_leaves_no_catalog_entry(made: str, spark: SparkSession, table: Path) -> None:
    name, before = "catalogued.never", commits(table)
    if made == "saveAsTable":
        writer = spark.table("source").write.format("lakehouse").options(**FLIGHTS)
        refused = refusal(lambda: writer.saveAsTable(name))
    else:
        refused = refusal(lambda: spark.sql(made.format(name=name, path=table)))
    if "select" in made or made == "saveAsTable":
        assert refused == NO_PATH
    else:
        assert refused.error == "UnsupportedTableError"
        assert "write create temporary view ... using lakehouse options (path '...')" in refused.text
    assert entries(spark) == []
    assert commits(table) == before


@pytest.mark.parametrize("made", ["columns", "columns and path", "saveAsTable"])
def test_unreadable_catalog_table_raises_a_clear_error(
    made: str, spark: SparkSession, table: Path, tmp_path: Path
) -> None:
    path, name = table, "catalogued.there"
    if made == "saveAsTable":
        path = tmp_path / "saved"
        spark.table("source").write.format("lakehouse").options(path=str(path), **FLIGHTS).saveAsTable(name)
    else:
        options = f" options (path '{path}')" if "path" in made else ""
        spark.sql(f"create table {name} {COLUMNS} using lakehouse{options}")
    assert entries(spark) == ["there"]
    assert refusal(lambda: spark.table(name).collect()) == NO_PATH
    assert refusal(lambda: spark.sql(f"insert into {name} table source")) == NO_PATH

    spark.sql(f"drop table {name}")  # The refusal says to do this.
    spark.sql(f"create temporary view by_path using lakehouse options (path '{path}')")
    assert sorted(row.id for row in spark.table("by_path").collect()) == [1, 2]
    spark.catalog.dropTempView("by_path")
    assert contents(spark, path) == ROWS


def test_missing_path_is_refused(spark: SparkSession) -> None:
    reader, writer = spark.read.format("lakehouse"), flights(spark, ROWS).write.format("lakehouse").options(**FLIGHTS)
    no_catalog = Refusal("InvalidOptionError", "no path given; write .load(path) or .save(path)")
    assert refusal(reader.load) == no_catalog
    assert refusal(lambda: reader.schema("id long").load().collect()) == NO_PATH
    assert refusal(writer.mode("append").save) == NO_PATH


def test_a_view_without_meta_columns_is_written_by_position(spark: SparkSession, table: Path, tmp_path: Path) -> None:
    write(flights(spark, ROWS), tmp_path / "t")
    spark.sql(f"create temporary view whole using lakehouse options (path '{tmp_path / 't'}')")
    spark.sql(f"create temporary view own using lakehouse options (path '{tmp_path / 't'}', meta_columns 'false')")
    assert spark.table("own").columns == spark.table("source").columns
    more = flights(spark, [(3, "c", 1, 2.5)])
    with pytest.raises(AnalysisException, match="NOT_ENOUGH_DATA_COLUMNS"):
        more.write.insertInto("whole")
    more.write.insertInto("own")
    spark.sql("insert into own values (4, 'd', 1, 3.5)")
    assert [row[0] for row in contents(spark, tmp_path / "t")] == [1, 2, 3, 4]
    for name in ("whole", "own"):
        spark.catalog.dropTempView(name)
