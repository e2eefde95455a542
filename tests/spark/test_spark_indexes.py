"""Global and bucket index through ``df.write``: rows of one key in several tasks, every operation."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import lakeformat
from lakeformat.index.bucket import bucket_of
from lakeformat.spark import LakehouseTable
from tests.helpers import hudi_rs
from tests.helpers.lakehouse import contents, flights, leftovers, write

pytestmark = pytest.mark.spark

FIRST = [(number, f"p{number % 2}", 10, number / 2) for number in range(20)]


@pytest.mark.parametrize("kind", ["GLOBAL_BLOOM", "GLOBAL_SIMPLE"])
def test_global_index_moves_a_key_between_partitions(kind: str, spark: SparkSession, tmp_path: Path) -> None:
    options = {"hoodie.index.type": kind}
    write(flights(spark, FIRST), tmp_path, **options)
    moves = [(3, "p0", 12, 1.0), (3, "p7", 14, 2.0), (3, "p1", 13, 3.0), (4, "p1", 9, 4.0), (50, "p1", 1, 5.0)]
    write(flights(spark, moves, tasks=4), tmp_path, **options)
    wanted = {row[0]: row for row in FIRST} | {3: (3, "p7", 14, 2.0), 50: (50, "p1", 1, 5.0)}
    assert contents(spark, tmp_path) == sorted(wanted.values())
    gone = spark.createDataFrame([(3,), (5,)], "id long")
    write(gone, tmp_path, operation="delete", **options)
    assert contents(spark, tmp_path) == sorted(row for key, row in wanted.items() if key not in {3, 5})
    hudi_rs.assert_same_rows(lakeformat.open(tmp_path))
    assert leftovers(tmp_path) == []


@pytest.mark.parametrize("operation", ["insert", "bulk_insert", "upsert"])
def test_rows_of_all_tasks_go_to_their_bucket(operation: str, spark: SparkSession, tmp_path: Path) -> None:
    options = {"hoodie.index.type": "BUCKET", "hoodie.bucket.index.num.buckets": "3", "operation": operation}
    write(flights(spark, FIRST, tasks=4), tmp_path, **options)
    more = [(number, f"p{number % 2}", 11, 0.0) for number in range(20, 40)]
    write(flights(spark, more, tasks=4), tmp_path, **options)
    assert contents(spark, tmp_path) == sorted(FIRST + more)
    files = lakeformat.open(tmp_path).snapshot().files
    buckets = [(file.partition_path, bucket_of(file.name.file_id)) for file in files]
    assert sorted(buckets) == [(part, bucket) for part in ("p0", "p1") for bucket in range(3)]
    assert leftovers(tmp_path) == []


@pytest.mark.parametrize("merge", ["executors", "driver"])
def test_tasks_write_to_the_rings_of_consistent_hashing(merge: str, spark: SparkSession, tmp_path: Path) -> None:
    """New and known partitions, appends of tasks, shuffled writes, deletes without partition, replaced partitions."""
    options = {
        "hoodie.index.type": "BUCKET",
        "hoodie.index.bucket.engine": "CONSISTENT_HASHING",
        "hoodie.bucket.index.num.buckets": "3",
        "hoodie.bucket.index.max.num.buckets": "6",
        "hoodie.bucket.index.min.num.buckets": "1",
        "hoodie.parquet.max.file.size": "100",
        "hoodie.datasource.write.table.type": "MERGE_ON_READ",
    }
    later = {"lakeformat.write.merge": merge}
    write(flights(spark, FIRST, tasks=4), tmp_path, **options)
    wanted = {row[0]: row for row in FIRST}
    more = [(number, f"p{number % 3}" if number > 19 else f"p{number % 2}", 11, 0.0) for number in range(10, 40)]
    write(flights(spark, more, tasks=4), tmp_path, **later)  # Its folder shows the engine.
    wanted |= {row[0]: row for row in more}
    assert contents(spark, tmp_path) == sorted(wanted.values())
    assert not lakeformat.open(tmp_path, **options).cluster().skipped
    assert 3 < max(len(pieces) for pieces in lakeformat.open(tmp_path).snapshot().slices.values()) <= 6
    gone = spark.createDataFrame([(3,), (15,), (30,)], "id long")
    write(gone, tmp_path, operation="delete", **later)
    wanted = {key: row for key, row in wanted.items() if key not in {3, 15, 30}}
    again = [(number, row[1], 12, 1.0) for number, row in wanted.items() if number % 2]
    write(flights(spark, again, tasks=3), tmp_path, **later)
    wanted |= {row[0]: row for row in again}
    assert contents(spark, tmp_path) == sorted(wanted.values())
    table = LakehouseTable.forPath(spark, str(tmp_path), **later)
    changes = flights(spark, [(0, "p0", 20, 9.0), (1, "p1", 20, 9.0), (90, "p0", 20, 9.0)], tasks=2)
    table.merge(changes).when_matched_update().when_not_matched_insert().execute()
    wanted |= {0: (0, "p0", 20, 9.0), 1: (1, "p1", 20, 9.0), 90: (90, "p0", 20, 9.0)}
    write(flights(spark, [(2, "p0", 30, 0.0)]), tmp_path, operation="insert_overwrite", **later)
    wanted = {key: row for key, row in wanted.items() if row[1] != "p0"} | {2: (2, "p0", 30, 0.0)}
    write(flights(spark, FIRST[::2], tasks=4), tmp_path, **later)
    wanted |= {row[0]: row for row in FIRST[::2] if row[0] != 2}
    assert contents(spark, tmp_path) == sorted(wanted.values())
    assert str(lakeformat.open(tmp_path).check()) == "nothing is wrong"
    hudi_rs.assert_same_rows(lakeformat.open(tmp_path))
    assert leftovers(tmp_path) == []
