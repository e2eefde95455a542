"""Global and bucket index through ``df.write``: rows of one key in several tasks, every operation."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import lakeformat
from lakeformat.index.bucket import bucket_of
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
