"""Under Spark the driver records writes by OpenTelemetry: those of a table, and ``save`` after ``register``."""

from __future__ import annotations

from pathlib import Path

from pyspark.sql import SparkSession

import lakeformat.spark
from tests.helpers.telemetry import collect


def test_driver_records_upsert_and_save(spark: SparkSession, tmp_path: Path) -> None:
    lakeformat.spark.register(spark)
    path, rows = str(tmp_path / "t"), spark.range(10).withColumnRenamed("id", "key")
    options = {"hoodie.datasource.write.recordkey.field": "key", "hoodie.table.name": "t"}
    with collect() as (spans, _):
        rows.write.format("lakehouse").options(**options).mode("append").save(path)
        result = lakeformat.spark.LakehouseTable.forPath(spark, path).upsert(rows.filter("key < 4"))
    found = [dict(span.attributes or {}) for span in spans.get_finished_spans() if span.name == "lakeformat.upsert"]
    assert [(one["lakeformat.rows.inserted"], one["lakeformat.rows.updated"]) for one in found] == [(10, 0), (0, 4)]
    assert found[-1]["lakeformat.instant_time"] == result.instant_time
