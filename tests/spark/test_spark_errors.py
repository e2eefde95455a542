"""A refusal arrives as the last line of Spark's exception: our class, and one line that says what to do."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession, functions

import lakeformat
import lakeformat.spark
from lakeformat.spark import LakehouseTable
from lakeformat.write.rows.faults import ASIDE_HINT
from tests.helpers.lakehouse import (
    FLIGHT_COLUMNS,
    FLIGHTS,
    Refusal,
    commits,
    contents,
    flights,
    leftovers,
    read,
    refusal,
    write,
)

pytestmark = pytest.mark.spark

ROWS = [(number, f"p{number % 2}", 10, number / 2) for number in range(10)]
Act = Callable[[SparkSession, Path], object]


@pytest.fixture(scope="module")
def table(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Create a table of `ROWS` that no test of this module changes."""
    path = tmp_path_factory.mktemp("errors") / "t"
    write(flights(spark, ROWS), path)
    return path


def reading(**options: str) -> Act:
    return lambda spark, path: read(spark, path, **options).collect()


def reading_as(schema: str) -> Act:
    return lambda spark, path: spark.read.format("lakehouse").schema(schema).load(str(path)).collect()


def reading_twice(spark: SparkSession, path: Path) -> object:
    return spark.read.format("lakehouse").load([str(path), str(path)]).collect()


def writing(mode: str = "append", **options: str) -> Act:
    return lambda spark, path: write(flights(spark, ROWS), path, mode, **options)


def writing_rows(*expressions: str) -> Act:
    return lambda spark, path: write(flights(spark, ROWS).selectExpr(*expressions), path)


def in_the_catalog(spark: SparkSession, path: Path) -> object:
    return spark.sql(f"create table never_made using lakehouse options (path '{path}')")


#: Options of jobs that were written for Hudi's own source.
OLD_JOB = {
    "hoodie.prewrite.validators": "org.example.Validator",
    "hoodie.metaserver.enabled": "true",
    "hoodie.write.lock.provider": "org.apache.hudi.hive.transaction.lock.HiveMetastoreBasedLockProvider",
    "hoodie.write.concurrency.mode": "optimistic",
    "hoodie.upsert.shuffle.parallelism": "200",
}


@pytest.mark.parametrize(
    ("act", "error", "text"),
    [
        (reading(wher="id = 1"), "InvalidOptionError", r"unknown option 'wher'; did you mean 'where'\?.*"),
        (reading(where="id = "), "InvalidInputError", r"cannot read the filter 'id =': not Spark SQL.*"),
        (reading(where="idd = 1"), "InvalidInputError", r"column 'idd' is not in the table; did you mean 'id'\?"),
        (reading(columns="id,y"), "InvalidInputError", r"unknown column 'y'.*the table has .*"),
        (reading(columns="id,id"), "InvalidInputError", r"columns=id,id names a column twice; name each once"),
        (reading(meta_columns="maybe"), "InvalidOptionError", r".*meta_columns='maybe' is not valid: .*"),
        (reading(**{"as.of.instant": "yesterday"}), "InvalidOptionError", r".*='yesterday' is not an instant; give .*"),
        (
            reading(**{"hoodie.datasource.query.type": "changed"}),
            "InvalidOptionError",
            r".*write one of snapshot, read_optimized, incremental",
        ),
        (reading_twice, "InvalidOptionError", r"several paths given; one load reads one table.*"),
        (reading_as("id long, y int"), "SchemaMismatchError", r".*names 'y', which the table lacks.*leave it out"),
        (reading_as("id int"), "SchemaMismatchError", r".*'id' as int32, which cannot hold the table's int64.*"),
        (reading_as("x string"), "SchemaMismatchError", r".*'x' as string, which cannot hold the table's double.*"),
        (writing(**{"hoodie.index.type": "HASH"}), "InvalidOptionError", r".*='HASH' is not valid: write one of .*"),
        (writing(index="BLOOM"), "InvalidOptionError", r"unknown option 'index'; did you mean 'hoodie.index.type'\?.*"),
        (writing(operation="upsrt"), "InvalidOptionError", r"option operation='upsrt' is not valid: write one of .*"),
        (writing(partitionby="part"), "InvalidOptionError", r".*'partitionby'; did you mean 'partition_by'.*"),
        (writing(precombine="x"), "InvalidOptionError", r"options .* mean the same and differ; give one of them"),
        (writing(**OLD_JOB, key="id"), "InvalidOptionError",
         r"(?=.*prewrite\.validators)(?=.*metaserver\.enabled)(?=.*lock\.provider)(?=.*concurrency\.mode)"
         r"5 options are refused: \(1\) .*(?='key'; did you mean 'record_key'\?).*: lakeformat options check"),
        (writing("overwrite", operation="delete"), "InvalidOptionError", r".*contradict each other; use mode append"),
        (writing(**{"hoodie.table.cdc.enabled": "true"}), "InvalidOptionError", r".*contradicts .false.*fixed at.*"),
        (writing_rows("id", "ts", "x"), "SchemaMismatchError", r".*no column 'part'.*"),
        (writing_rows("part", "ts", "x"), "SchemaMismatchError", r".*'id'.*"),
        (writing_rows("id", "part", "ts", "true x"), "SchemaMismatchError", r"column 'x' is bool in the input.*"),
        (writing_rows("id", "part", "ts", "x", "x X"), "SchemaMismatchError", r"columns 'x' and 'X' have one name.*"),
        (writing_rows("string(id) id", "part", "ts", "x"), "SchemaMismatchError", r"column 'id' is string.*"),
        (writing_rows("int(null) id", "part", "ts", "x"), "InvalidInputError", r"record key column 'id' is null at .*"),
        (in_the_catalog, "UnsupportedTableError", r"Spark does not pass a path for catalog tables; .*"),
    ],
    ids=lambda value: "" if callable(value) else value,
)  # fmt: skip
def test_refused_write_leaves_the_table_unchanged(
    act: Act, error: str, text: str, spark: SparkSession, table: Path
) -> None:
    before = sorted(table.rglob("*.parquet")), commits(table)
    refused = refusal(lambda: act(spark, table))
    assert refused.error == error
    assert re.fullmatch(text, refused.text), refused.text
    assert (sorted(table.rglob("*.parquet")), commits(table)) == before
    assert leftovers(table, outlived=True) == []


@pytest.mark.parametrize("name", ["recordkey", "partitionpath", "ordering"])
def test_settings_that_contradict_the_tables(name: str, spark: SparkSession, table: Path) -> None:
    options = {"recordkey": "id", "partitionpath": "part", "ordering": "ts", name: "x"}
    writer = flights(spark, ROWS).write.format("lakehouse").options(**options).mode("append")
    refused = refusal(lambda: writer.save(str(table)))
    assert refused.error == "InvalidOptionError"
    assert "hoodie.properties" in refused.text
    assert "x" in refused.text


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"operation": "upsert"}, r"a new table at .* needs a record key for operation upsert; set the option .*"),
        ({"recordkey": "idd"}, r".*'idd'.*did you mean 'id'.*"),
        ({"recordkey": "id", "partitionpath": "prt"}, r".*'prt'.*did you mean 'part'.*"),
        ({"recordkey": "id", "ordering": "tss"}, r".*'tss'.*did you mean 'ts'.*"),
        ({"recordkey": "id", "table_type": "MERGE_SOMETIMES"}, r".*table_type='MERGE_SOMETIMES'.*"),
        ({"recordkey": "id", "hoodie.write.table.version": "7"}, r".*hoodie.write.table.version='7'.*"),
    ],
)
def test_refused_creation_leaves_no_folder(
    options: dict[str, str], text: str, spark: SparkSession, tmp_path: Path
) -> None:
    writer = flights(spark, ROWS).write.format("lakehouse").options(**options).mode("append")
    refused = refusal(lambda: writer.save(str(tmp_path / "t")))
    assert re.fullmatch(text, refused.text), refused.text
    assert not (tmp_path / "t").exists()


@pytest.mark.parametrize(
    ("act", "error", "text"),
    [
        (lambda s, p: lakeformat.spark.read(s, p, wher="id = 1"), "InvalidOptionError", r"unknown option 'wher'; .*"),
        (lambda s, p: lakeformat.spark.read(s, p, where="idd = 1"), "InvalidInputError", r"column 'idd' is not in .*"),
        (lambda s, p: lakeformat.spark.read(s, p, columns=["y"]), "InvalidInputError", r"unknown column 'y'.*"),
        (lambda s, p: lakeformat.spark.read(s, p + "x"), "TableNotFoundError", r"no table at .*x .*check the path.*"),
        (lambda s, p: lakeformat.spark.write(bad_rows(s), p), "SchemaMismatchError", r".*no column 'part'.*"),
        (lambda s, p: LakehouseTable.forPath(s, p).upsert(bad_rows(s)), "SchemaMismatchError", r".*no column 'part'.*"),
        (lambda s, p: LakehouseTable.forPath(s, p).delete(where="idd = 1"), "InvalidInputError", r".*'idd'.*"),
        (lambda s, p: LakehouseTable.forPath(s, p).update({"y": 1}), "SchemaMismatchError", r".*'y'.*"),
        (lambda s, p: LakehouseTable.forPath(s, p, ordring="ts"), "InvalidOptionError", r".*mean 'ordering'.*"),
        (lambda s, p: lakeformat.spark.sql(s, "delete from nowhere"), "TableNotFoundError", r".*'nowhere'; call .*"),
    ],
    ids=lambda value: "" if callable(value) else value,
)  # fmt: skip
def test_our_own_calls_raise_our_own_classes(
    act: Callable[[SparkSession, str], object], error: str, text: str, spark: SparkSession, table: Path
) -> None:
    with pytest.raises(lakeformat.LakeformatError) as caught:
        act(spark, str(table))
    assert type(caught.value).__name__ == error
    assert re.fullmatch(text, str(caught.value)), str(caught.value)


def bad_rows(spark: SparkSession) -> DataFrame:
    return flights(spark, ROWS).select("id", "ts", "x")


@pytest.mark.parametrize("mode", ["ignore", "error", None])
def test_modes_that_spark_refuses_before_us_are_named(mode: str | None, spark: SparkSession, table: Path) -> None:
    """docs/spark-writing.md quotes these messages."""
    writer = flights(spark, ROWS).write.format("lakehouse").options(**FLIGHTS)
    with pytest.raises(PySparkException, match=r'either the "Append" or "Overwrite" mode instead'):
        (writer.mode(mode) if mode else writer).save(str(table))


def test_partition_by_is_an_option(spark: SparkSession, table: Path) -> None:
    """Spark compares the columns with a catalog's, and this table has no catalog.

    docs/spark-writing.md quotes the message.
    """
    writer = flights(spark, ROWS).write.format("lakehouse").partitionBy("part").mode("append")
    with pytest.raises(PySparkException, match="partitioning or clustering columns do not match"):
        writer.save(str(table))


def test_read_without_a_table_is_refused(session: SparkSession, tmp_path: Path) -> None:
    refused = refusal(lambda: read(session, tmp_path / "none").collect())
    assert refused == Refusal(
        "TableNotFoundError",
        f"no table at {tmp_path}/none (there is no .hoodie/hoodie.properties); check the path, or write to it first",
    )
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("mode", ["append", "overwrite"])
def test_plain_parquet_is_no_table_to_read_or_to_write_into(mode: str, spark: SparkSession, tmp_path: Path) -> None:
    path = tmp_path / "plain"
    flights(spark, ROWS, 1).write.parquet(str(path))
    before = sorted(path.rglob("*"))
    assert (
        "this is a folder of plain Parquet; lakeformat.adopt(path" in refusal(lambda: read(spark, path).collect()).text
    )
    refused = refusal(lambda: write(flights(spark, ROWS), path, mode))
    assert refused.error == "InvalidOptionError"
    assert f"cannot make a table at {path}: this is a folder of plain Parquet" in refused.text
    assert sorted(path.rglob("*")) == before


def test_a_stream_without_a_checkpoint_is_sparks_to_refuse(spark: SparkSession, table: Path, tmp_path: Path) -> None:
    writer = spark.readStream.format("lakehouse").load(str(table)).writeStream.format("lakehouse").options(**FLIGHTS)
    with pytest.raises(PySparkException, match="checkpointLocation"):
        writer.start(str(tmp_path / "t"))
    assert not (tmp_path / "t").exists()


@pytest.mark.slow
def test_a_key_that_is_null_in_a_task_names_column_and_row(spark: SparkSession, tmp_path: Path) -> None:
    write(flights(spark, ROWS), tmp_path)
    rows = spark.createDataFrame([(50, "p1", 1, 1.0), (None, "p1", 1, 1.0)], FLIGHT_COLUMNS).coalesce(1)
    for operation in ("upsert", "bulk_insert"):
        refused = refusal(partial(write, rows, tmp_path, operation=operation))
        text = "record key column 'id' is null at row 1; give every row a key" + ASIDE_HINT
        assert refused == Refusal("InvalidInputError", text)
    assert contents(spark, tmp_path) == ROWS
    assert leftovers(tmp_path) == []


def test_a_damaged_file_is_named(spark: SparkSession, tmp_path: Path) -> None:
    write(flights(spark, ROWS), tmp_path)
    damaged = sorted(path for path in tmp_path.rglob("*.parquet") if ".hoodie" not in path.parts)[0]
    damaged.write_bytes(damaged.read_bytes()[:-20] + b"x" * 20)
    refused = refusal(lambda: read(spark, tmp_path).collect())
    assert refused.error == "CorruptTableError"
    assert str(damaged.relative_to(tmp_path)) in refused.text


def test_sql_reads_by_a_view(spark: SparkSession, table: Path) -> None:
    spark.sql(f"create temporary view by_view using lakehouse options (path '{table}', where 'id < 4')")
    assert spark.sql("select part, count(*), max(x) from by_view group by part order by part").collect() == [
        ("p0", 2, 1.0),
        ("p1", 2, 1.5),
    ]
    spark.catalog.dropTempView("by_view")


def test_condition_given_as_rows_suggests_where(spark: SparkSession, tmp_path: Path) -> None:
    write(flights(spark, [(1, "a", 1, 0.5)]), tmp_path)
    conditions: list[Any] = ["id < 10", functions.col("id") < 10]
    for condition in conditions:
        with pytest.raises(lakeformat.InvalidInputError, match=r"condition as where=|delete\(where="):
            LakehouseTable.forPath(spark, str(tmp_path)).delete(condition)
    assert len(contents(spark, tmp_path)) == 1
