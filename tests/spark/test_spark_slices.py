"""Tables with log files, and of versions 8 and 9, under Spark: each way to read returns the rows that Hudi returns."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession

import lakeformat.spark
from lakeformat.spark import LakehouseTable
from tests.helpers.fixture_tables import read_expectations, unpack

pytestmark = pytest.mark.spark

NAMES = [
    "hudi_mor_v6/mor6_avro_event_time",
    pytest.param("hudi_v8_v9/v9_mor_compacted_partitioned", marks=pytest.mark.slow),
    pytest.param("hudi_v8_v9/v9_cow_insert_overwrite", marks=pytest.mark.slow),
    pytest.param("hudi_v8_v9/v9_mor_partial_update", marks=pytest.mark.nightly),
    pytest.param("hudi_v8_v9/v9_mor_log_only", marks=pytest.mark.nightly),
]


def frames(spark: SparkSession, path: str, **options: str) -> dict[str, DataFrame]:
    source = spark.read.format("lakehouse").options(**options).load(path)
    return {
        "load": source,
        "read": lakeformat.spark.read(spark, path, meta_columns=True, **options),
        "source": lakeformat.spark.read(spark, path, meta_columns=True, via="source", **options),
        "table": LakehouseTable.forPath(spark, path, **options).read(meta_columns=True, via="native"),
    }


def keys(frame: DataFrame) -> list[str]:
    return sorted(row["_hoodie_record_key"] for row in frame.select("_hoodie_record_key").collect())


@pytest.mark.parametrize("name", NAMES)
def test_every_read_path_returns_the_rows_of_hudi(spark: SparkSession, name: str, tmp_path: Path) -> None:
    path, document = str(unpack(name, tmp_path)), read_expectations(name)
    questions = [({}, document["snapshot"])]
    if "read_optimized" in document:
        questions.append(({"hoodie.datasource.query.type": "read_optimized"}, document["read_optimized"]))
    instant, then = next((i, rows) for i, rows in document["as_of"].items() if not isinstance(rows, str))
    questions.append(({"as.of.instant": instant}, then))
    for options, rows in questions:
        wanted = sorted(row["_hoodie_record_key"] for row in rows)
        for way, frame in frames(spark, path, **options).items():
            assert keys(frame) == wanted, (way, options)
            assert frame.count() == len(wanted), (way, options)
            late = frame.where("_hoodie_record_key >= '3'")
            assert keys(late) == [key for key in wanted if key >= "3"], (way, options)
