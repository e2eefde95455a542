"""delete_partition and the duplicate policy through ``df.write``."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark import TaskContext, cloudpickle
from pyspark.sql import SparkSession
from pyspark.sql.types import StructType

import lakeformat
from tests.helpers.lakehouse import contents, flights, leftovers, refusal, write

pytestmark = pytest.mark.spark
# Workers cannot import test modules, so functions travel as code.
cloudpickle.register_pickle_by_value(sys.modules[__name__])

FIRST = [(number, f"p{number % 4}", 10, number / 2) for number in range(40)]
TO_DELETE = "hoodie.datasource.write.partitions.to.delete"
DELETE = {"operation": "delete_partition"}


def without(*partitions: str) -> list[tuple[Any, ...]]:
    return [row for row in FIRST if row[1] not in partitions]


@pytest.mark.parametrize("columns", ["none", "all"])
def test_named_partitions_are_deleted_whatever_the_frame_holds(
    columns: str, spark: SparkSession, tmp_path: Path
) -> None:
    write(flights(spark, FIRST), tmp_path)
    frame = spark.createDataFrame([], StructType([])) if columns == "none" else flights(spark, FIRST)
    options = {"hoodie.datasource.write.operation": "delete_partition", TO_DELETE: "p1, p[*, *3"}
    frame.write.format("lakehouse").options(**options).mode("append").save(str(tmp_path))
    assert contents(spark, tmp_path) == without("p1", "p3")
    assert lakeformat.open(tmp_path).history()[0].operation == "delete_partition"
    assert leftovers(tmp_path) == []


def test_partitions_of_the_frame_are_deleted_without_names(spark: SparkSession, tmp_path: Path) -> None:
    write(flights(spark, FIRST), tmp_path)
    write(flights(spark, FIRST).where("id in (1, 5, 6)"), tmp_path, **DELETE)
    assert contents(spark, tmp_path) == without("p1", "p2")


def test_delete_partition_without_a_match_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    write(flights(spark, FIRST), tmp_path / "t")
    nothing = flights(spark, FIRST).limit(0)
    asked = {**DELETE, TO_DELETE: "p9"}
    assert "no partition 'p9'" in refusal(lambda: write(nothing, tmp_path / "t", **asked)).text
    assert "no rows and no partitions" in refusal(lambda: write(nothing, tmp_path / "t", **DELETE)).text
    assert "contradict" in refusal(lambda: write(nothing, tmp_path / "t", "overwrite", **asked)).text
    missing = refusal(lambda: write(nothing, tmp_path / "none", **asked))
    assert missing.error == "TableNotFoundError"
    assert not (tmp_path / "none").exists()
    assert contents(spark, tmp_path / "t") == FIRST
    assert leftovers(tmp_path / "t") == []


@pytest.mark.slow
def test_duplicate_policy_applies_across_tasks(spark: SparkSession, tmp_path: Path) -> None:
    write(flights(spark, FIRST), tmp_path)
    more = [(number, f"p{number % 4}", 99, -1.0) for number in range(30, 60)]
    policy = {"operation": "insert", "hoodie.datasource.insert.dup.policy": "drop"}
    write(flights(spark, [*more, *more], tasks=3), tmp_path, **policy)
    assert contents(spark, tmp_path) == sorted([*FIRST, *more[10:]])
    policy = {"operation": "insert", "hoodie.datasource.insert.dup.policy": "fail"}
    refused = refusal(lambda: write(flights(spark, more), tmp_path, **policy))
    assert refused.error == "DuplicateKeyError"
    assert "already" in refused.text
    doubled = [(n, "p0", 1, 0.0) for n in (100, 101, 100)]
    assert "more than once" in refusal(lambda: write(flights(spark, doubled, tasks=3), tmp_path, **policy)).text
    assert contents(spark, tmp_path) == sorted([*FIRST, *more[10:]])
    assert leftovers(tmp_path) == []


def test_dynamic_overwrite_replaces_only_its_partitions(spark: SparkSession, tmp_path: Path) -> None:
    write(flights(spark, FIRST), tmp_path)
    new = [(1, "p1", 1, 1.0)]
    write(flights(spark, new), tmp_path, "overwrite", **{"hoodie.datasource.overwrite.mode": "dynamic"})
    assert contents(spark, tmp_path) == sorted([*without("p1"), *new])
    write(flights(spark, new), tmp_path, "overwrite")
    assert contents(spark, tmp_path) == new


def dies_once(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Fail after half of the rows in the first attempt of every task."""
    context = TaskContext.get()
    for batch in batches:
        yield batch.slice(0, batch.num_rows // 2)
        if context is not None and context.attemptNumber() == 0:
            raise RuntimeError("the first attempt dies")
        yield batch.slice(batch.num_rows // 2)


@pytest.mark.parametrize(
    "options",
    [pytest.param({}, marks=pytest.mark.slow), {"operation": "bulk_insert", "lakeformat.write.buffer.bytes": "1"}],
)
def test_repeated_tasks_add_keyless_rows_once(options: dict[str, str], spark: SparkSession, tmp_path: Path) -> None:
    for tasks in (3, 2):
        rows = flights(spark, FIRST, tasks=tasks).mapInArrow(dies_once, flights(spark, FIRST).schema)
        settings = {"partitionpath": "part", **options}
        rows.write.format("lakehouse").options(**settings).mode("append").save(str(tmp_path))
    assert contents(spark, tmp_path) == sorted([*FIRST, *FIRST])
    table = lakeformat.open(tmp_path)
    read = table.to_arrow(meta_columns=True)
    assert len(set(read["_hoodie_record_key"].to_pylist())) == 2 * len(FIRST)
    instants = [entry.instant_time for entry in table.history()]
    assert {entry.operation for entry in table.history()} == {options.get("operation", "insert")}
    made = Counter(key.split("_")[0] for key in read["_hoodie_record_key"].to_pylist())
    assert made == dict.fromkeys(instants, len(FIRST))
    assert leftovers(tmp_path) == []


def test_upserts_without_a_key_are_refused(spark: SparkSession, tmp_path: Path) -> None:
    rows = flights(spark, FIRST).write.format("lakehouse").mode("append")
    rows.save(str(tmp_path))
    refused = refusal(lambda: rows.option("operation", "upsert").save(str(tmp_path)))
    assert refused.error == "InvalidOptionError"
    assert "operation upsert needs a record key" in refused.text
    assert contents(spark, tmp_path) == FIRST


MANY = [(number * 7919 % 1000, f"p{number % 2}", 10, float(number)) for number in range(1000)]
#: Each task sorts its rows in several runs.
SMALL_RUNS = {"operation": "bulk_insert", "lakeformat.write.buffer.bytes": "4096"}


def keys_by_file(path: Path) -> dict[str, list[list[str]]]:
    """Return partition -> the keys of its files, in their order."""
    found: dict[str, list[list[str]]] = {}
    for file in lakeformat.open(path).snapshot().files:
        keys = pq.ParquetFile(path / file.path).read(["_hoodie_record_key"])["_hoodie_record_key"]
        found.setdefault(file.partition_path, []).append(keys.to_pylist())
    return found


@pytest.mark.parametrize(
    ("mode", "files"), [("GLOBAL_SORT", 1), ("PARTITION_SORT", 3), ("PARTITION_PATH_REPARTITION", 1)]
)
def test_sort_modes_of_bulk_insert(mode: str, files: int, spark: SparkSession, tmp_path: Path) -> None:
    """Three tasks hold rows of both partitions: only a layout across tasks makes one file for each partition."""
    write(flights(spark, MANY, tasks=3), tmp_path, **SMALL_RUNS, **{"hoodie.bulkinsert.sort.mode": mode})
    assert contents(spark, tmp_path) == sorted(MANY)
    found = keys_by_file(tmp_path)
    assert {partition: len(keys) for partition, keys in found.items()} == {"p0": files, "p1": files}
    if mode.endswith("SORT"):
        assert all(keys == sorted(keys) for parts in found.values() for keys in parts)
    assert leftovers(tmp_path) == []


def test_a_partitioner_by_name_and_sort_columns(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "shop_layout.py").write_text(
        "import pyarrow.compute as pc\n"
        "def by_half(rows):\n"
        "    return pc.cast(pc.greater_equal(rows['x'], 500), 'int32')\n"
    )
    spark.sparkContext.addPyFile(str(tmp_path / "shop_layout.py"))
    options = {
        "lakeformat.bulkinsert.partitioner": "shop_layout:by_half",
        "hoodie.bulkinsert.user.defined.partitioner.sort.columns": "x",
    }
    write(flights(spark, MANY, tasks=3), tmp_path / "t", **SMALL_RUNS, **options)
    assert contents(spark, tmp_path / "t") == sorted(MANY)
    by_key = {str(row[0]): row[3] for row in MANY}
    for parts in keys_by_file(tmp_path / "t").values():
        values = sorted([by_key[key] for key in keys] for keys in parts)
        assert all(part == sorted(part) for part in values)
        assert [part[-1] < 500 for part in values] == [True, False]
    missing = {**SMALL_RUNS, "lakeformat.bulkinsert.partitioner": "shop_layout:gone"}
    assert "cannot be imported" in refusal(lambda: write(flights(spark, MANY), tmp_path / "t", **missing)).text
    assert leftovers(tmp_path / "t") == []
