"""Operations and modes through ``df.write``; the oracle is a dict from key to row."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

import lakeformat
from tests.helpers.lakehouse import (
    FLIGHT_COLUMNS,
    FLIGHTS,
    base_files,
    commits,
    contents,
    flights,
    leftovers,
    read,
    write,
)

pytestmark = pytest.mark.spark

HUDIS_NAMES = {
    "hoodie.table.name": "flights",
    "hoodie.datasource.write.recordkey.field": "id",
    "hoodie.datasource.write.partitionpath.field": "part",
    "hoodie.datasource.write.precombine.field": "ts",
}
OPERATION = {"hoodie": "hoodie.datasource.write.operation", "alias": "operation"}
FIRST = [(number, f"p{number % 3}", 10, number / 2) for number in range(60)]
#: Newer rows of a third of the keys, older ones of some (which lose), and new keys.
SECOND = [
    *((number, f"p{number % 3}", 20, -1.0) for number in range(0, 60, 3)),
    *((number, f"p{number % 3}", 5, -2.0) for number in range(1, 60, 12)),
    *((number, f"p{number % 3}", 20, 0.5) for number in range(100, 110)),
]


def apply_upsert(rows: list[tuple[Any, ...]], more: list[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    held = {row[0]: row for row in rows}
    for row in more:
        if row[0] not in held or row[2] >= held[row[0]][2]:
            held[row[0]] = row
    return sorted(held.values())


def after(operation: str) -> list[tuple[Any, ...]]:
    """Return the rows after `FIRST` and then `SECOND` by that operation."""
    keys, partitions = {row[0] for row in SECOND}, {row[1] for row in SECOND}
    match operation:
        case "upsert":
            return apply_upsert(FIRST, SECOND)
        case "insert" | "bulk_insert":
            return sorted([*FIRST, *SECOND])
        case "delete":
            return [row for row in FIRST if row[0] not in keys]
        case "insert_overwrite":
            return sorted([*(row for row in FIRST if row[1] not in partitions), *SECOND])
        case _:
            return sorted(SECOND)


OPERATIONS = ("upsert", "insert", "bulk_insert", "delete", "insert_overwrite", "insert_overwrite_table")


@pytest.mark.parametrize(
    ("operation", "names"),
    [
        pytest.param(operation, names, marks=[] if at % 2 == (names == "alias") else pytest.mark.nightly)
        for at, operation in enumerate(OPERATIONS)
        for names in OPERATION
    ],
)
def test_every_operation_writes_the_expected_rows(
    operation: str, names: str, spark: SparkSession, tmp_path: Path
) -> None:
    path = tmp_path / "t"
    settings = HUDIS_NAMES if names == "hoodie" else FLIGHTS
    for rows, how in ((FIRST, "bulk_insert"), (SECOND, operation)):
        options = {**settings, OPERATION[names]: how}
        flights(spark, rows).write.format("lakehouse").options(**options).mode("append").save(str(path))
    assert contents(spark, path) == after(operation)
    assert [entry.operation for entry in reversed(lakeformat.open(path).history())] == ["bulk_insert", operation]
    assert leftovers(path) == []


def test_insert_overwrite_leaves_other_partitions(spark: SparkSession, tmp_path: Path) -> None:
    write(flights(spark, FIRST), tmp_path)
    write(flights(spark, [(1, "p1", 1, 1.0)]), tmp_path, operation="insert_overwrite")
    assert contents(spark, tmp_path) == sorted([(1, "p1", 1, 1.0), *(row for row in FIRST if row[1] != "p1")])


def test_append_upserts_and_deduplicates_the_batch(spark: SparkSession, tmp_path: Path) -> None:
    write(flights(spark, [*FIRST, *SECOND], tasks=3), tmp_path)
    assert contents(spark, tmp_path) == apply_upsert(FIRST, SECOND)
    assert [entry.operation for entry in lakeformat.open(tmp_path).history()] == ["upsert"]


def test_mode_overwrite_replaces_in_one_commit_and_keeps_history(spark: SparkSession, tmp_path: Path) -> None:
    write(flights(spark, FIRST), tmp_path)
    before = base_files(tmp_path)
    write(flights(spark, SECOND), tmp_path, mode="overwrite")
    assert contents(spark, tmp_path) == sorted(SECOND)
    first, second = commits(tmp_path)
    assert (tmp_path / ".hoodie" / f"{second}.replacecommit").exists()
    assert before <= base_files(tmp_path)
    assert contents(spark, tmp_path, **{"as.of.instant": first}) == sorted(FIRST)


def test_mode_overwrite_makes_a_new_table(spark: SparkSession, tmp_path: Path) -> None:
    write(flights(spark, FIRST), tmp_path / "t", mode="overwrite")
    assert contents(spark, tmp_path / "t") == sorted(FIRST)


@pytest.mark.parametrize("mode", [None, "errorifexists", "ignore"])
def test_modes_that_spark_itself_refuses(mode: str | None, spark: SparkSession, tmp_path: Path) -> None:
    writer = flights(spark, FIRST).write.format("lakehouse").options(**FLIGHTS).mode(mode)
    with pytest.raises(PySparkException, match="UNSUPPORTED_DATA_SOURCE_SAVE_MODE"):
        writer.save(str(tmp_path / "t"))
    assert not (tmp_path / "t").exists()


def test_explaining_a_write_makes_no_table(spark: SparkSession, tmp_path: Path) -> None:
    path = tmp_path / "t"
    flights(spark, FIRST).createOrReplaceTempView("incoming")
    spark.sql(f"CREATE OR REPLACE TEMP VIEW target USING lakehouse OPTIONS (path '{_made(spark, tmp_path)}')")
    before = sorted(tmp_path.rglob("*"))
    plan = spark.sql("EXPLAIN INSERT INTO target SELECT * FROM incoming").collect()[0][0]
    assert plan
    assert sorted(tmp_path.rglob("*")) == before
    assert not path.exists()


def _made(spark: SparkSession, folder: Path) -> Path:
    write(flights(spark, FIRST[:3]), folder / "made")
    return folder / "made"


@pytest.mark.parametrize(
    ("mode", "operation", "kept"),
    [
        ("append", "upsert", FIRST),
        ("append", "insert", FIRST),
        ("append", "bulk_insert", FIRST),
        ("append", "delete", FIRST),
        ("append", "insert_overwrite", FIRST),
        ("append", "insert_overwrite_table", []),
        ("overwrite", None, []),
    ],
)
def test_write_of_no_rows_is_a_commit(
    mode: str, operation: str | None, kept: list[Any], spark: SparkSession, tmp_path: Path
) -> None:
    options = {"operation": operation} if operation else {}
    empty = spark.createDataFrame([], FLIGHT_COLUMNS)
    write(flights(spark, FIRST), tmp_path)
    write(empty, tmp_path, mode, **options)
    assert contents(spark, tmp_path) == sorted(kept)
    assert len(commits(tmp_path)) == 2
    assert leftovers(tmp_path) == []


def test_first_write_of_no_rows_creates_an_empty_table(session: SparkSession, tmp_path: Path) -> None:
    write(session.createDataFrame([], FLIGHT_COLUMNS), tmp_path)
    assert contents(session, tmp_path) == []
    assert read(session, tmp_path, meta_columns=False).columns == ["id", "part", "ts", "x"]
    assert read(session, tmp_path).where("x > 1").count() == 0
    write(flights(session, FIRST), tmp_path)
    assert contents(session, tmp_path) == sorted(FIRST)


@pytest.mark.parametrize("operation", ["upsert", "bulk_insert"])
def test_meta_columns_of_a_read_frame_are_not_written(operation: str, spark: SparkSession, tmp_path: Path) -> None:
    source, target = tmp_path / "source", tmp_path / "target"
    write(flights(spark, FIRST), source)
    write(read(spark, source), target, operation=operation)
    assert contents(spark, target) == sorted(FIRST)
    assert read(spark, target).columns == read(spark, source).columns
    times = {row[0] for row in read(spark, target).select("_hoodie_commit_time").collect()}
    assert times == set(commits(target))


def test_table_can_be_overwritten_from_its_own_rows(spark: SparkSession, tmp_path: Path) -> None:
    write(flights(spark, FIRST), tmp_path)
    write(read(spark, tmp_path).where("id < 20").selectExpr("id", "part", "ts + 1 as ts", "0D as x"), tmp_path)
    assert contents(spark, tmp_path) == sorted((i, p, ts + (i < 20), 0.0 if i < 20 else x) for i, p, ts, x in FIRST)


def test_new_columns_are_added_and_missing_ones_are_null(spark: SparkSession, tmp_path: Path) -> None:
    write(flights(spark, FIRST[:2]), tmp_path)
    more = spark.createDataFrame([(7, "p1", 1, "new")], "id long, part string, ts long, note string")
    write(more, tmp_path, **{"hoodie.write.set.null.for.missing.columns": "true"})
    wanted = [(*row, None) for row in FIRST[:2]] + [(7, "p1", 1, None, "new")]
    assert contents(spark, tmp_path) == wanted


def test_is_deleted_column_deletes(spark: SparkSession, tmp_path: Path) -> None:
    columns = f"{FLIGHT_COLUMNS}, _hoodie_is_deleted boolean"
    write(spark.createDataFrame([(*row, False) for row in FIRST], columns), tmp_path)
    write(spark.createDataFrame([(*row, row[0] < 30) for row in FIRST], columns), tmp_path)
    assert contents(spark, tmp_path) == [(*row, False) for row in FIRST if row[0] >= 30]
