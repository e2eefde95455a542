"""Hudi's PySpark quick start with only the format changed, and incremental queries by each way to read."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql.functions import col, lit

import lakeformat.spark
from lakeformat.spark import LakehouseTable

pytestmark = pytest.mark.spark

COLUMNS = ["ts", "uuid", "rider", "driver", "fare", "city"]
DATA = [
    (1695159649087, "334e26e9-8355-45cc-97c6-c31daf0df330", "rider-A", "driver-K", 19.10, "san_francisco"),
    (1695091554788, "e96c4396-3fad-413a-a942-4cb36106d721", "rider-C", "driver-M", 27.70, "san_francisco"),
    (1695046462179, "9909a8b1-2d15-4d3d-8ec9-efc48c536a00", "rider-D", "driver-L", 33.90, "san_francisco"),
    (1695516137016, "e3cf430c-889d-4015-bc98-59bdce1e530c", "rider-F", "driver-P", 34.15, "sao_paulo"),
    (1695115999911, "c8abbe79-8d89-47ea-b4ce-4d224bae5bfa", "rider-J", "driver-T", 17.85, "chennai"),
]
OPTIONS = {"hoodie.table.name": "trips_table", "hoodie.datasource.write.partitionpath.field": "city"}
KEYED = {
    **OPTIONS,
    "hoodie.datasource.write.recordkey.field": "uuid",
    "hoodie.datasource.write.precombine.field": "ts",
}


def incremental(spark: SparkSession, path: str, begin: str, end: str | None = None) -> Any:
    query = spark.read.format("lakehouse").option("hoodie.datasource.query.type", "incremental")
    query = query.option("hoodie.datasource.read.begin.instanttime", begin)
    query = query if end is None else query.option("hoodie.datasource.read.end.instanttime", end)
    return query.load(path)


def riders(frame: Any) -> list[str]:
    return sorted(row["rider"] for row in frame.select("rider").collect())


def test_incremental_quick_start_runs(spark: SparkSession, tmp_path: Path) -> None:
    base = str(tmp_path / "trips_table")
    inserts = spark.createDataFrame(DATA).toDF(*COLUMNS)
    inserts.write.format("lakehouse").options(**KEYED).mode("overwrite").save(base)

    trips = spark.read.format("lakehouse").load(base)
    trips.createOrReplaceTempView("trips_table")
    assert spark.sql("SELECT uuid, fare, ts, rider, driver, city FROM trips_table WHERE fare > 20.0").count() == 3

    updates = spark.read.format("lakehouse").load(base).filter("rider == 'rider-D'").withColumn("fare", lit(25.0))
    updates.write.format("lakehouse").options(**KEYED).option("hoodie.datasource.write.operation", "upsert").mode(
        "append"
    ).save(base)
    rows = spark.read.format("lakehouse").load(base)
    assert [row["fare"] for row in rows.filter("rider == 'rider-D'").collect()] == [25.0]

    commits = [row[0] for row in rows.select("_hoodie_commit_time").distinct().orderBy("_hoodie_commit_time").collect()]
    first = commits[0]
    then = spark.read.format("lakehouse").option("as.of.instant", first).load(base)
    assert [row["fare"] for row in then.filter("rider == 'rider-D'").collect()] == [33.90]

    assert riders(incremental(spark, base, first)) == ["rider-D"]
    changed = incremental(spark, base, first)
    changed.createOrReplaceTempView("trips_incremental")
    assert spark.sql("SELECT `_hoodie_commit_time`, fare FROM trips_incremental WHERE fare > 20.0").count() == 1
    assert incremental(spark, base, "000", first).filter("fare > 20.0").count() == 3

    deletes = spark.read.format("lakehouse").load(base).filter("uuid == 'e96c4396-3fad-413a-a942-4cb36106d721'")
    deletes.write.format("lakehouse").options(**KEYED).option("hoodie.datasource.write.operation", "delete").mode(
        "append"
    ).save(base)
    assert spark.read.format("lakehouse").load(base).count() == 4

    one = spark.createDataFrame([(1695159649090, "x", "rider-X", "driver-X", 1.0, "sao_paulo")]).toDF(*COLUMNS)
    one.write.format("lakehouse").options(**KEYED).option("hoodie.datasource.write.operation", "insert_overwrite").mode(
        "append"
    ).save(base)
    assert riders(spark.read.format("lakehouse").load(base).filter("city == 'sao_paulo'")) == ["rider-X"]
    assert riders(incremental(spark, base, commits[-1])) == ["rider-X"]


def test_every_read_path_returns_the_same_changes(spark: SparkSession, tmp_path: Path) -> None:
    path = str(tmp_path / "t")
    inserts = spark.createDataFrame(DATA).toDF(*COLUMNS)
    inserts.write.format("lakehouse").options(**KEYED).mode("append").save(path)
    first = lakeformat.open(path).history()[0].instant_time
    inserts.where("city = 'chennai'").write.format("lakehouse").options(**KEYED).mode("append").save(path)
    options = {"hoodie.datasource.query.type": "incremental", "hoodie.datasource.read.begin.instanttime": first}
    frames = {
        "load": incremental(spark, path, first),
        "read": lakeformat.spark.read(spark, path, **options),
        "column": lakeformat.spark.read(spark, path, where=col("fare") > 0, **options),
        "source": lakeformat.spark.read(spark, path, via="source", **options),
        "table": LakehouseTable.forPath(spark, path, **options).read(via="native"),
    }
    inserts.where("city = 'sao_paulo'").write.format("lakehouse").options(**KEYED).mode("append").save(path)
    for way, frame in frames.items():
        assert riders(frame) == ["rider-J"], way
        assert frame.count() == 1, way
        assert frame.where("fare < 0").count() == 0, way
    assert riders(incremental(spark, path, first)) == ["rider-F", "rider-J"]
