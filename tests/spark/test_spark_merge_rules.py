"""Merge rules through ``df.write``: set by option, with rows of one batch in several tasks."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import lakeformat
from tests.helpers.lakehouse import contents, flights, leftovers, read, refusal, write

pytestmark = pytest.mark.spark

PAYLOAD = "hoodie.datasource.write.payload.class"
FIRST = [(number, f"p{number % 2}", 10, number / 2) for number in range(20)]


def test_partial_update_keeps_the_other_columns(spark: SparkSession, tmp_path: Path) -> None:
    write(flights(spark, FIRST), tmp_path)
    some = spark.createDataFrame([(3, "p1", 11), (4, "p0", 9), (50, "p0", 1)], "id long, part string, ts long")
    write(some, tmp_path, partial_update="true")
    wanted = {row[0]: row for row in FIRST} | {3: (3, "p1", 11, 1.5), 50: (50, "p0", 1, None)}
    assert contents(spark, tmp_path) == sorted(wanted.values())
    nulls = spark.createDataFrame([(3, "p1", 12, None)], "id long, part string, ts long, x double")
    write(nulls, tmp_path, **{"lakeformat.write.partial.update": "x"})
    assert contents(spark, tmp_path) == sorted((wanted | {3: (3, "p1", 12, None)}).values())
    assert leftovers(tmp_path) == []


def test_rows_of_one_key_merge_across_tasks(spark: SparkSession, tmp_path: Path) -> None:
    schema = "id long, part string, ts long, x double, y string"
    options = {PAYLOAD: "PartialUpdateAvroPayload"}
    write(spark.createDataFrame([(1, "p", 5, 0.5, "old"), (2, "p", 5, 0.5, "old")], schema), tmp_path, **options)
    rows = [(1, "p", 7, None, "new"), (1, "p", 6, 1.5, "older"), (2, "p", 4, None, "x"), (3, "p", 1, 2.5, None)]
    write(spark.createDataFrame(rows, schema).repartition(4), tmp_path, **options)
    wanted = [(1, "p", 7, 1.5, "new"), (2, "p", 5, 0.5, "old"), (3, "p", 1, 2.5, None)]
    assert contents(spark, tmp_path) == wanted


@pytest.mark.parametrize("table_type", ["COPY_ON_WRITE", "MERGE_ON_READ"])
def test_rows_of_debezium_merge_across_tasks(table_type: str, spark: SparkSession, tmp_path: Path) -> None:
    schema = "id long, _event_lsn long, _change_operation_type string, y string"
    options = {
        "hoodie.datasource.write.recordkey.field": "id",
        "hoodie.datasource.write.table.type": table_type,
        "hoodie.write.table.version": "9",
        PAYLOAD: "org.apache.hudi.common.model.debezium.PostgresDebeziumAvroPayload",
    }

    def save(*rows: tuple[int, int, str, str]) -> None:
        frame = spark.createDataFrame(list(rows), schema).repartition(4)
        frame.write.format("lakehouse").options(**options).mode("append").save(str(tmp_path))

    lost = "__debezium_unavailable_value"
    save(*((key, 5, "r", "old") for key in range(1, 6)), (6, 5, "c", "old"), (6, 6, "d", "old"))
    save((1, 7, "u", lost), (1, 6, "u", "six"), (2, 6, "u", lost), (3, 6, "d", "x"), (4, 4, "d", "x"), (5, 4, "u", "x"))
    rows = read(spark, tmp_path).select("id", "_event_lsn", "y").collect()
    assert sorted(map(tuple, rows)) == [(1, 7, "six"), (2, 6, "old"), (4, 5, "old"), (5, 5, "old")]


@pytest.mark.parametrize("version", ["6", "9"])
def test_rows_of_mysql_are_ordered_across_tasks(version: str, spark: SparkSession, tmp_path: Path) -> None:
    schema = "id long, _event_seq string, _event_bin_file string, _event_pos long, _change_operation_type string"
    options = {"recordkey": "id", "hoodie.write.table.version": version, PAYLOAD: "MySqlDebeziumAvroPayload"}

    def save(*events: tuple[int, int, int, str]) -> None:
        rows = [(key, f"{file:06d}.{at}", f"bin.{file:06d}", at, operation) for key, file, at, operation in events]
        frame = spark.createDataFrame(rows, schema).repartition(3)
        frame.write.format("lakehouse").options(**options).mode("append").save(str(tmp_path))

    save((1, 9, 9, "r"), (1, 9, 10, "u"), (1, 10, 1, "u"), (2, 9, 9, "r"), (2, 9, 10, "d"), (3, 9, 9, "r"))
    save((1, 9, 100, "u"), (2, 9, 8, "c"), (3, 9, 10, "d"), (3, 9, 9, "u"))
    rows = read(spark, tmp_path).select("id", "_event_pos", "_change_operation_type").collect()
    assert sorted(map(tuple, rows)) == [(1, 1, "u"), (2, 8, "c")]


def test_rows_with_the_delete_marker_are_deletes(spark: SparkSession, tmp_path: Path) -> None:
    write(flights(spark, FIRST), tmp_path)
    marked = {"hoodie.payload.delete.field": "x", "hoodie.payload.delete.marker": "-1.0"}
    gone = [(1, "p1", 10, -1.0), (2, "p0", 9, -1.0), (3, "p1", 11, -2.0), (60, "p0", 1, -1.0)]
    write(flights(spark, gone), tmp_path, **marked)
    wanted = {row[0]: row for row in FIRST if row[0] != 1} | {3: (3, "p1", 11, -2.0)}
    assert contents(spark, tmp_path) == sorted(wanted.values())
    write(flights(spark, gone), tmp_path, operation="bulk_insert", **marked)
    assert read(spark, tmp_path).count() == len(wanted) + 1


def test_merger_is_imported_by_name_in_tasks(spark: SparkSession, tmp_path: Path) -> None:
    rules = tmp_path / "flight_rules.py"
    rules.write_text(
        "import pyarrow.compute as pc\n"
        "def furthest(stored, incoming):\n"
        "    x = pc.max_element_wise(stored['x'], incoming['x'])\n"
        "    return incoming.set_column(incoming.schema.get_field_index('x'), 'x', x)\n"
        "def failing(stored, incoming):\n"
        "    raise ValueError('no rule')\n"
    )
    spark.sparkContext.addPyFile(str(rules))
    path = tmp_path / "t"
    write(flights(spark, FIRST), path)
    write(flights(spark, [(8, "p0", 9, 1.0), (9, "p1", 9, 100.0)]), path, merger="flight_rules:furthest")
    wanted = {row[0]: row for row in FIRST} | {8: (8, "p0", 9, 4.0), 9: (9, "p1", 9, 100.0)}
    assert contents(spark, path) == sorted(wanted.values())
    history = [entry.instant_time for entry in lakeformat.open(path).history()]
    for name, error, words in (
        ("failing", "InvalidInputError", "the merger flight_rules:failing raised ValueError: no rule"),
        ("missing", "InvalidOptionError", "the merger flight_rules:missing cannot be imported"),
    ):
        again = refusal(lambda n=name: write(flights(spark, FIRST), path, merger=f"flight_rules:{n}"))  # type: ignore[misc]
        assert again.error == error
        assert again.text.startswith(words)
    assert [entry.instant_time for entry in lakeformat.open(path).history()] == history
    assert leftovers(path) == []
