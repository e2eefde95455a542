"""Merge-on-read tables through Spark: tasks append to buckets by themselves, and failed attempts do not count."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark import TaskContext, cloudpickle
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

import lakeformat
from lakeformat.file_system_view.file_groups import list_files
from lakeformat.model.files import LogFileName
from lakeformat.spark import LakehouseTable
from tests.helpers import hudi_rs
from tests.helpers.lakehouse import contents, flights, leftovers, write

pytestmark = pytest.mark.spark
# Workers cannot import test modules, so functions travel as code.
cloudpickle.register_pickle_by_value(sys.modules[__name__])

FIRST = [(number, f"p{number % 2}", 10, number / 2) for number in range(40)]
BUCKETS = {
    "table_type": "MERGE_ON_READ",
    "hoodie.index.type": "BUCKET",
    "hoodie.bucket.index.num.buckets": "3",
}


def dying(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Fail after the last row in the first attempt of every task."""
    yield from batches
    context = TaskContext.get()
    if context is not None and context.attemptNumber() == 0:
        raise RuntimeError("the first attempt dies")


def always_dying(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Fail after the last row in every attempt of one task."""
    yield from batches
    context = TaskContext.get()
    if context is not None and context.partitionId() == 1:
        raise RuntimeError("this task always dies")


@pytest.mark.parametrize("version", [pytest.param("6", marks=pytest.mark.slow), "9"])
def test_tasks_append_to_buckets(version: str, spark: SparkSession, tmp_path: Path) -> None:
    options = {**BUCKETS, "hoodie.write.table.version": version}
    write(flights(spark, FIRST, tasks=4), tmp_path, **options)
    # A key is in several tasks: the greater ordering value wins.
    doubled = [(number, "p1", 20 + number % 4, float(number)) for number in range(12)] + [(1, "p1", 99, 9.0)]
    wanted = {(row[0], row[1]): row for row in FIRST}
    for row in doubled:
        key = (row[0], row[1])
        wanted[key] = max(wanted.get(key, row), row, key=lambda one: one[2])
    frame = flights(spark, doubled, tasks=4)
    write(frame.mapInArrow(dying, frame.schema), tmp_path, **options)
    assert contents(spark, tmp_path) == sorted(wanted.values())
    gone = spark.createDataFrame([(3, "p1"), (5, "p1")], "id long, part string")
    write(gone, tmp_path, operation="delete", **options)
    wanted = {key: row for key, row in wanted.items() if key not in {(3, "p1"), (5, "p1")}}
    assert contents(spark, tmp_path) == sorted(wanted.values())
    hudi_rs.assert_same_rows(lakeformat.open(tmp_path))
    tokens = {log.name.write_token.split("-")[0] for log in list_files(lakeformat.open(tmp_path).context.storage).logs}
    assert {"0000000000", "0000000001", "0000000002", "0000000003"} <= tokens  # Four tasks wrote by themselves.
    assert leftovers(tmp_path) == []


def test_failed_job_leaves_no_readable_log_row(spark: SparkSession, tmp_path: Path) -> None:
    write(flights(spark, FIRST, tasks=2), tmp_path, **BUCKETS)
    before = contents(spark, tmp_path)
    newer = [(number, f"p{number % 2}", 30, 0.0) for number in range(50)]
    frame = flights(spark, newer, tasks=2)
    with pytest.raises(PySparkException, match="this task always dies"):
        write(frame.mapInArrow(always_dying, frame.schema), tmp_path, **BUCKETS)
    assert contents(spark, tmp_path) == before
    assert leftovers(tmp_path, outlived=True) == []
    write(flights(spark, newer, tasks=2), tmp_path, **BUCKETS)
    assert contents(spark, tmp_path) == sorted(newer)


def test_shuffled_upsert_appends_to_log_files(spark: SparkSession, tmp_path: Path) -> None:
    write(flights(spark, FIRST, tasks=2), tmp_path, table_type="MERGE_ON_READ", operation="bulk_insert")
    newer = [(number, f"p{number % 2}", 30, 0.0) for number in range(30, 40)]
    LakehouseTable.forPath(spark, str(tmp_path)).upsert(flights(spark, newer, tasks=3))
    wanted = {row[0]: row for row in FIRST} | {row[0]: row for row in newer}
    assert contents(spark, tmp_path) == sorted(wanted.values())
    assert any(LogFileName.match(path.name) for path in tmp_path.rglob("*"))
    hudi_rs.assert_same_rows(lakeformat.open(tmp_path))


DELETING = "id string, o int, v string, _hoodie_is_deleted boolean"


@pytest.mark.parametrize("index", ["BUCKET", "SIMPLE"])
def test_late_delete_loses_and_reinserted_row_stays(spark: SparkSession, tmp_path: Path, index: str) -> None:
    """A delete without an ordering value or with the int 0 loses to a newer row of another task."""
    path = str(tmp_path / "t")
    options = {**BUCKETS, "hoodie.index.type": index, "recordkey": "id", "ordering": "o"}

    def put(*rows: tuple[str, int | None, str | None, bool]) -> None:
        frame = spark.createDataFrame(spark.sparkContext.parallelize(rows, 4), DELETING)
        LakehouseTable.forPath(spark, path).upsert(frame)

    schema = pa.schema({"id": pa.string(), "o": pa.int32(), "v": pa.string(), "_hoodie_is_deleted": pa.bool_()})
    lakeformat.create(path, schema, **options)
    put(("a", 5, "old", False), ("b", 5, "old", False), ("c", 5, "old", False), ("d", 5, "old", False))
    put(
        ("new", 3, "kept", False),
        ("a", 0, None, True),
        ("b", None, None, True),
        ("c", 9, None, True),
        ("new", 0, None, True),
    )
    put(("c", 7, "back", False), ("d", 6, "u", False))
    rows = lakeformat.open(path).to_arrow(["id", "v"]).to_pylist()
    wanted = {"a": "old", "b": "old", "c": "back", "d": "u", "new": "kept"}
    assert {row["id"]: row["v"] for row in rows} == wanted


def test_deleted_values_stay_deleted_in_tasks(spark: SparkSession, tmp_path: Path) -> None:
    path, payload = str(tmp_path / "t"), "OverwriteNonDefaultsWithLatestAvroPayload"
    schema = pa.schema({"id": pa.string(), "s": pa.string(), "v": pa.string()})
    options = {"table_type": "MERGE_ON_READ", "hoodie.datasource.write.payload.class": payload}
    table = lakeformat.create(path, schema, record_key="id", **options)
    table.upsert(pa.table({"id": ["a", "b"], "s": ["secret", "kept"], "v": ["old", "old"]}))
    table.delete([{"id": "a"}])
    frame = spark.createDataFrame([("a", None, "new"), ("b", None, "new")], "id string, s string, v string")
    LakehouseTable.forPath(spark, path).upsert(frame)
    found = {row["id"]: (row["s"], row["v"]) for row in table.to_arrow(["id", "s", "v"]).to_pylist()}
    assert found == {"a": (None, "new"), "b": ("kept", "new")}
