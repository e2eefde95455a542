"""Spark's writes register the table in AWS Glue (moto): the data source, `save`, streams and `LakehouseTable`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import boto3
import pytest
from pyspark.sql import DataFrame, SparkSession

from lakeformat.spark import LakehouseTable, register
from tests.helpers.s3_server import SECRET, s3_server

pytestmark = pytest.mark.spark

SYNC = "hoodie.datasource.hive_sync."


@pytest.fixture(scope="module")
def endpoint() -> Iterator[str]:
    with s3_server() as options:
        yield options["client_kwargs"]["endpoint_url"]


def _options(endpoint: str, database: str) -> dict[str, str]:
    return {
        "recordkey": "id",
        "partitionpath": "p",
        "hoodie.table.name": "flights",
        SYNC + "enable": "true",
        SYNC + "mode": "glue",
        SYNC + "database": database,
        "hoodie.aws.glue.endpoint": endpoint,
        "hoodie.aws.glue.region": "us-east-1",
        "hoodie.aws.access.key": "key",
        "hoodie.aws.secret.key": SECRET,
    }


def _rows(spark: SparkSession, *partitions: str) -> DataFrame:
    return spark.createDataFrame([(number, p) for number, p in enumerate(partitions)], "id long, p string")


def _partitions(endpoint: str, database: str) -> set[str]:
    keys = {"aws_access_key_id": "key", "aws_secret_access_key": SECRET}
    client: Any = boto3.client("glue", "us-east-1", endpoint_url=endpoint, **keys)
    found = client.get_partitions(DatabaseName=database, TableName="flights")["Partitions"]
    return {each["Values"][0] for each in found}


@pytest.mark.parametrize("registers", [False, True], ids=["source", "registered"])
def test_save_registers_the_table(registers: bool, spark: SparkSession, endpoint: str, tmp_path: Path) -> None:
    database = f"save_{registers}".lower()
    if registers:
        register(spark)
    for partition in "ab":
        frame = _rows(spark, partition)
        frame.write.format("lakehouse").options(**_options(endpoint, database)).mode("append").save(str(tmp_path / "t"))
    assert _partitions(endpoint, database) == {"a", "b"}


def test_stream_registers_the_table(spark: SparkSession, endpoint: str, tmp_path: Path) -> None:
    _rows(spark, "a", "b").write.parquet(str(tmp_path / "rows"))
    source = spark.readStream.schema("id long, p string").parquet(str(tmp_path / "rows"))
    stream = source.writeStream.format("lakehouse").options(**_options(endpoint, "stream"))
    query = stream.option("checkpointLocation", str(tmp_path / "checkpoint")).trigger(availableNow=True)
    query.start(str(tmp_path / "t")).awaitTermination()
    assert _partitions(endpoint, "stream") == {"a", "b"}


def test_lakehouse_table_registers_itself(spark: SparkSession, endpoint: str, tmp_path: Path) -> None:
    options = _options(endpoint, "table")
    table = LakehouseTable.forPath(spark, tmp_path / "t", **options)
    step = table.upsert(_rows(spark, "a", "b")).report["steps"][-1]
    assert (step["step"], step["partitions_added"]) == ("sync", 2)
    table.delete_partitions(["a"])
    assert _partitions(endpoint, "table") == {"b"}
    assert str(table.register("glue")) == "glue: table.flights; partitions 0 added, 0 changed, 0 dropped"
