"""A job with the options of a real deployment runs with another format's name, and each option is explained."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import boto3
import pytest
from moto import mock_aws
from pyspark.sql import SparkSession

import lakeformat
from lakeformat.cli.main import main
from lakeformat.spark import register, unregister
from tests.helpers.old_job import OLD_JOB

COLUMNS = "order_id long, order_date string, updated_at long, amount double"
#: The batches of the job: new rows, updates, a late row that loses, a row of another day.
BATCHES = [
    [(1, "2025-01-01", 10, 1.0), (2, "2025-01-01", 10, 2.0), (3, "2025-01-02", 10, 3.0)],
    [(1, "2025-01-01", 11, 1.5), (2, "2025-01-01", 9, 0.0), (4, "2025-01-03", 11, 4.0)],
]
LEFT = [(1, "2025-01-01", 11, 1.5), (2, "2025-01-01", 10, 2.0), (3, "2025-01-02", 10, 3.0), (4, "2025-01-03", 11, 4.0)]


@pytest.fixture
def glue(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "testing")
    with mock_aws():
        yield boto3.client("glue", "eu-west-1")


@pytest.fixture
def registered(spark: SparkSession) -> Iterator[SparkSession]:
    """Let ``save`` run in this process, which moto's Glue belongs to."""
    register(spark)
    yield spark
    unregister()


def test_job_runs_and_is_registered(registered: SparkSession, glue: Any, tmp_path: Path) -> None:
    path = str(tmp_path / "orders")
    for batch in BATCHES:
        frame = registered.createDataFrame(batch, COLUMNS)
        frame.write.format("lakehouse").options(**OLD_JOB).mode("append").save(path)
    found = registered.read.format("lakehouse").load(path).select("order_id", "order_date", "updated_at", "amount")
    assert sorted(map(tuple, found.collect())) == LEFT
    assert str(lakeformat.open(path).check()) == "nothing is wrong"
    names = {each["Name"] for each in glue.get_tables(DatabaseName="sales")["TableList"]}
    assert names == {"orders", "orders_ro", "orders_rt"}
    days = glue.get_partitions(DatabaseName="sales", TableName="orders_rt")["Partitions"]
    assert sorted(each["Values"] for each in days) == [["2025-01-01"], ["2025-01-02"], ["2025-01-03"]]


def test_each_option_is_explained(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert len(OLD_JOB) >= 60
    job = tmp_path / "job.properties"
    job.write_text("".join(f"{name}={value}\n" for name, value in OLD_JOB.items()))
    assert main(["options", "check", str(job), "--json"]) == 0
    answers = json.loads(capsys.readouterr().out)
    assert {each["option"] for each in answers} == OLD_JOB.keys()
    assert {each["fate"] for each in answers} == {"obeyed", "ignored"}
    assert all(each["says"] for each in answers)
    assert not [each["option"] for each in answers if "not known" in each["says"]]
