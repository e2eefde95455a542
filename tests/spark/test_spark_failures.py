"""Tasks and jobs that fail: the published rows are exact, and the remains of failed attempts are gone."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark import TaskContext, cloudpickle
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

import lakeformat
from lakeformat.spark import LakehouseTable
from tests.helpers.lakehouse import FLIGHTS, base_files, commits, contents, flights, leftovers, refusal, write

pytestmark = [pytest.mark.spark, pytest.mark.slow]
# Workers cannot import test modules, so functions travel as code.
cloudpickle.register_pickle_by_value(sys.modules[__name__])

STORED = [(number, f"p{number % 4}", 10, 0.5) for number in range(400)]
CHANGES = [(number, f"p{number % 4}", 20, 1.5) for number in range(200, 600)]
Batches = Iterator[pa.RecordBatch]


def half_of(batches: Batches) -> Batches:
    """Yield the halves of each batch: the first is written before a failure and must not count."""
    for batch in batches:
        half = batch.num_rows // 2
        yield batch.slice(0, half)
        yield batch.slice(half)


def first_attempt_dies(batches: Batches) -> Batches:
    """Fail half-way in the first attempt of every task."""
    context = TaskContext.get()
    for number, batch in enumerate(half_of(batches)):
        if number and context is not None and context.attemptNumber() == 0:
            raise RuntimeError("the first attempt dies")
        yield batch


def one_task_always_dies(batches: Batches) -> Batches:
    """Fail in every attempt of one task, while others finish."""
    context = TaskContext.get()
    for number, batch in enumerate(half_of(batches)):
        if number and context is not None and context.partitionId() == 1:
            raise RuntimeError("this task always dies")
        yield batch


def through(rows: DataFrame, step: Callable[[Batches], Batches]) -> DataFrame:
    return rows.mapInArrow(step, rows.schema)


def expected_rows(operation: str) -> list[tuple[object, ...]]:
    keys = {row[0] for row in CHANGES}
    kept = [row for row in STORED if row[0] not in keys]
    return sorted([*(STORED if operation in {"insert", "bulk_insert"} else kept), *CHANGES])


#: Without room in memory and without topping up, each task has base files on disk before it fails.
EAGER = {"lakeformat.write.buffer.bytes": "1", "hoodie.parquet.small.file.limit": "0"}


@pytest.mark.parametrize(
    ("operation", "options"),
    [("upsert", EAGER), ("bulk_insert", EAGER), ("bulk_insert", {}), ("insert", {})],
    ids=lambda value: value if isinstance(value, str) else "eager" if value else "buffered",
)
def test_failed_first_attempts_leave_nothing(
    operation: str, options: dict[str, str], spark: SparkSession, tmp_path: Path
) -> None:
    write(flights(spark, STORED), tmp_path)
    write(through(flights(spark, CHANGES), first_attempt_dies), tmp_path, operation=operation, **options)
    assert contents(spark, tmp_path) == expected_rows(operation)
    assert leftovers(tmp_path) == []


@pytest.mark.parametrize(
    ("mode", "operation"),
    [("append", "upsert"), ("append", "bulk_insert"), ("overwrite", "insert_overwrite_table")],
)
def test_failed_job_leaves_the_table_unchanged(mode: str, operation: str, spark: SparkSession, tmp_path: Path) -> None:
    write(flights(spark, STORED), tmp_path)
    before = base_files(tmp_path), commits(tmp_path)
    failing = through(flights(spark, CHANGES), one_task_always_dies)
    with pytest.raises(PySparkException, match="this task always dies"):
        write(failing, tmp_path, mode, operation=operation, **EAGER)
    assert contents(spark, tmp_path) == STORED
    assert (base_files(tmp_path), commits(tmp_path)) == before
    write(flights(spark, CHANGES), tmp_path)
    assert contents(spark, tmp_path) == expected_rows("upsert")
    assert leftovers(tmp_path, outlived=True) == []


def test_failed_first_write_leaves_an_empty_table(spark: SparkSession, tmp_path: Path) -> None:
    path = tmp_path / "t"
    failing = through(flights(spark, STORED), one_task_always_dies)
    with pytest.raises(PySparkException, match="this task always dies"):
        write(failing, path, operation="bulk_insert", **EAGER)
    assert contents(spark, path) == []
    write(flights(spark, STORED), path)
    assert contents(spark, path) == STORED
    assert leftovers(path, outlived=True) == []


def test_failed_commit_is_undone(spark: SparkSession, tmp_path: Path) -> None:
    """The input is valid for each task alone; only ``commit()`` sees that the table is damaged."""
    write(flights(spark, STORED), tmp_path)
    damaged = sorted((tmp_path / "p1").glob("*.parquet"))[0]
    whole = damaged.read_bytes()
    damaged.write_bytes(whole[: len(whole) // 2])
    before = base_files(tmp_path), commits(tmp_path)
    refused = refusal(lambda: write(flights(spark, CHANGES), tmp_path))
    assert refused.error == "CorruptTableError"
    assert damaged.name in refused.text
    assert (base_files(tmp_path), commits(tmp_path)) == before
    damaged.write_bytes(whole)
    write(flights(spark, CHANGES), tmp_path)
    assert contents(spark, tmp_path) == expected_rows("upsert")
    assert leftovers(tmp_path) == []


EXCHANGED = {**FLIGHTS, **EAGER}


@pytest.mark.parametrize("operation", ["upsert", "insert", "bulk_insert"])
def test_failed_first_attempts_of_a_shuffled_write_leave_nothing(
    operation: str, spark: SparkSession, tmp_path: Path
) -> None:
    write(flights(spark, STORED), tmp_path)
    table = LakehouseTable.forPath(spark, str(tmp_path), **EXCHANGED)
    getattr(table, operation)(through(flights(spark, CHANGES), first_attempt_dies))
    assert contents(spark, tmp_path) == expected_rows(operation)
    assert leftovers(tmp_path) == []


def newer_but_not_at_once(stored: pa.Table, incoming: pa.Table) -> pa.Table:
    """Merge rows, but fail in the first attempt of each task. This runs where buckets become files."""
    context = TaskContext.get()
    if context is not None and context.attemptNumber() == 0:
        raise RuntimeError("the first attempt dies")
    return incoming


def never(stored: pa.Table, incoming: pa.Table) -> pa.Table:
    """Fail always, as a merge function."""
    raise RuntimeError("this task always dies")


def test_attempts_that_fail_during_file_writes_leave_nothing(spark: SparkSession, tmp_path: Path) -> None:
    write(flights(spark, STORED), tmp_path)
    table = LakehouseTable.forPath(spark, str(tmp_path), **EXCHANGED)
    before = base_files(tmp_path), commits(tmp_path)
    with pytest.raises(lakeformat.InvalidInputError, match="this task always dies"):
        table.upsert(flights(spark, CHANGES), merger=never)
    assert (base_files(tmp_path), commits(tmp_path)) == before
    table.upsert(flights(spark, CHANGES), merger=newer_but_not_at_once)
    assert contents(spark, tmp_path) == expected_rows("upsert")
    assert leftovers(tmp_path, outlived=True) == []


@pytest.mark.parametrize("operation", ["upsert", "bulk_insert", "overwrite"])
def test_failed_shuffled_job_leaves_the_table_unchanged(operation: str, spark: SparkSession, tmp_path: Path) -> None:
    write(flights(spark, STORED), tmp_path)
    before = base_files(tmp_path), commits(tmp_path)
    table = LakehouseTable.forPath(spark, str(tmp_path), **EXCHANGED)
    with pytest.raises(PySparkException, match="this task always dies"):
        getattr(table, operation)(through(flights(spark, CHANGES), one_task_always_dies))
    assert contents(spark, tmp_path) == STORED
    assert (base_files(tmp_path), commits(tmp_path)) == before
    assert leftovers(tmp_path, outlived=True) == []
