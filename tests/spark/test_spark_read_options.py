"""Hudi's options of reads under Spark: unmerged log files, and globs of incremental queries, by each way to read."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession

import lakeformat.spark
from lakeformat.config.read_options import BEGIN, PATH_GLOB, QUERY_TYPE
from tests.read.test_unmerged_logs import BASE, LOGGED, SCHEMA, SKIP, batch_of, logged_table

pytestmark = pytest.mark.spark


def rows_of(frame: DataFrame) -> list[tuple[object, ...]]:
    return sorted(tuple(row) for row in frame.select(*SCHEMA.names).collect())


def test_log_files_are_read_side_by_side_by_each_way(spark: SparkSession, tmp_path: Path) -> None:
    path = str(tmp_path / "t")
    table = logged_table(tmp_path / "t", 9)
    # A base file with many rows is one that Spark's own scan takes where log files are merged.
    many = [(number, "many", 1, "c") for number in range(100, 3000)]
    table.insert(batch_of(*many))
    table.upsert(batch_of((100, "newer", 2, "c")))
    wanted = sorted([*BASE, *LOGGED, *many, (100, "newer", 2, "c")])
    assert rows_of(spark.read.format("lakehouse").options(**SKIP).load(path)) == wanted
    for way in ("native", "source"):
        frame = lakeformat.spark.read(spark, path, via=way, **SKIP)
        assert rows_of(frame) == wanted
        assert rows_of(frame.where("ts > 1")) == [row for row in wanted if int(row[2]) > 1]
        assert frame.count() == len(wanted)


def test_a_glob_selects_files_of_an_incremental_query(spark: SparkSession, tmp_path: Path) -> None:
    logged_table(tmp_path / "t", 9)
    everything = {QUERY_TYPE: "incremental", BEGIN: "000", PATH_GLOB: "b/*"}
    found = spark.read.format("lakehouse").options(**everything).load(str(tmp_path / "t"))
    assert rows_of(found) == BASE[2:]
    for way in ("native", "source"):
        assert rows_of(lakeformat.spark.read(spark, str(tmp_path / "t"), via=way, **everything)) == BASE[2:]
