"""An error says what a job lacks before its work, in every save mode; the session says where the Hive metastore is."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import udf

from lakeformat import InvalidOptionError
from lakeformat.spark import LakehouseTable, last_result, register, unregister
from lakeformat.spark.writes.writer import make_writer

pytestmark = pytest.mark.spark

LOCK = {
    "recordkey": "id",
    "hoodie.write.concurrency.mode": "OPTIMISTIC_CONCURRENCY_CONTROL",
    "hoodie.write.lock.provider": "org.apache.hudi.client.transaction.lock.ZookeeperBasedLockProvider",
    "hoodie.write.lock.zookeeper.url": "127.0.0.1",
    "hoodie.write.lock.zookeeper.base_path": "/hudi",
    "hoodie.write.lock.zookeeper.lock_key": "t",
}
SYNC = {"recordkey": "id", "hoodie.datasource.hive_sync.enable": "true"}


def _rows_that_leave_a_mark(spark: SparkSession, mark: Path) -> DataFrame:
    """Return rows whose computation makes a file."""

    @udf("long")
    def value(number: int) -> int:
        mark.touch()
        return number

    return spark.range(2).select(value("id").alias("id"))


@pytest.mark.parametrize("mode", ["append", "overwrite", "ignore", "errorifexists"])
def test_missing_package_is_told_before_the_rows_are_computed(
    mode: str, spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    register(spark)
    monkeypatch.setitem(sys.modules, "kazoo", None)
    rows = _rows_that_leave_a_mark(spark, tmp_path / "mark")
    try:
        with pytest.raises(InvalidOptionError, match="needs kazoo; run: pip install"):
            rows.write.format("lakehouse").options(**LOCK).mode(mode).save(str(tmp_path / "t"))
    finally:
        unregister()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("overwrite", [False, True])
def test_data_source_tells_a_missing_package_when_spark_plans(
    overwrite: bool, spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "kazoo", None)
    with pytest.raises(InvalidOptionError, match="needs kazoo; run: pip install"):
        make_writer({**LOCK, "path": str(tmp_path / "t")}, spark.range(1).schema, overwrite)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("way", ["save", "forPath", "register"])
def test_metastore_of_the_session_is_called(way: str, spark: SparkSession, tmp_path: Path) -> None:
    path, name = str(tmp_path / "t"), "hive.metastore.uris"
    spark.conf.set(name, "thrift://127.0.0.1:1")
    try:
        if way == "save":
            register(spark)
            spark.range(2).write.format("lakehouse").options(**SYNC).mode("append").save(path)
            error = last_result(spark).report["steps"][-1]["error"]
        elif way == "forPath":
            error = LakehouseTable.forPath(spark, path, **SYNC).upsert(spark.range(2)).report["steps"][-1]["error"]
        else:
            table = LakehouseTable.forPath(spark, path, recordkey="id")
            table.upsert(spark.range(2))
            with pytest.raises(Exception, match="no Hive metastore answers") as raised:
                table.register("hive")
            error = str(raised.value)
    finally:
        spark.conf.unset(name)
        unregister()
    assert error.startswith("no Hive metastore answers: thrift://127.0.0.1:1: ")
    assert spark.read.format("lakehouse").load(path).count() == 2
