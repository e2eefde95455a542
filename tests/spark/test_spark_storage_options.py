"""Credentials given to Spark reach the file system in tasks, but no plan, message or text of an object."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import pytest
from pyspark.sql import SparkSession

import lakeformat
from lakeformat.spark import LakehouseTable, read, write
from tests.helpers.lakehouse import FLIGHTS, flights
from tests.helpers.s3_server import SECRET, new_folder, s3_server

pytestmark = pytest.mark.spark

ROWS = [(number, f"p{number % 2}", 10, number / 2) for number in range(10)]


@pytest.fixture(scope="module")
def server() -> Iterator[Mapping[str, Any]]:
    """Yield the options of a file system whose tables cannot be reached without them."""
    with s3_server() as options:
        yield options


@pytest.mark.slow
def test_credentials_reach_tasks_and_are_not_shown(
    server: Mapping[str, Any], spark: SparkSession, capfd: pytest.CaptureFixture[str]
) -> None:
    path = new_folder(server).location
    write(flights(spark, ROWS), path, storage_options=server, **FLIGHTS)
    endpoint = {"fs.key": "key", "fs.secret": SECRET, "fs.endpoint_url": server["client_kwargs"]["endpoint_url"]}
    hadoops = {
        "fs.s3a.access.key": "key",
        "fs.s3a.secret.key": SECRET,
        "fs.s3a.endpoint": server["client_kwargs"]["endpoint_url"],
    }
    delta_rs = {
        "AWS_ACCESS_KEY_ID": "key",
        "AWS_SECRET_ACCESS_KEY": SECRET,
        "AWS_ENDPOINT_URL": server["client_kwargs"]["endpoint_url"],
        "AWS_REGION": "us-east-1",
        "AWS_ALLOW_HTTP": "true",
    }
    named = {f"fs.{name}": value for name, value in delta_rs.items()}
    loaded = [spark.read.format("lakehouse").options(**said).load(path) for said in (endpoint, hadoops, named)]
    loaded.append(read(spark, path, storage_options=delta_rs))
    frame = read(spark, path, where="x < 2", storage_options=server)
    assert [each.count() for each in (*loaded, frame)] == [10, 10, 10, 10, 4]
    table = LakehouseTable.forPath(spark, path, storage_options=delta_rs)
    assert table.delete(where="id = 0").rows.deleted == 1
    assert table.read(where="x < 2").count() == 3
    for each in (*loaded, frame):
        each.explain(extended=True)
    with pytest.raises(lakeformat.LakeformatError) as caught:
        write(flights(spark, ROWS).drop("part"), path, storage_options=server)
    shown = capfd.readouterr()
    assert SECRET not in f"{shown.out}{shown.err}{caught.value}{table!r}{frame!r}"
