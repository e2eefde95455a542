"""Spark's UI describes each of our jobs by its step and its table. The user's own descriptions are restored."""

from __future__ import annotations

from collections.abc import Callable
from itertools import takewhile
from pathlib import Path
from typing import Final

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as f

import lakeformat
from lakeformat.services.cluster.run import ClusterSession, make_cluster_request
from lakeformat.services.compact.run import CompactSession
from lakeformat.spark import LakehouseTable
from lakeformat.spark import write as write_rows
from lakeformat.spark.services import SparkCompactor, SparkDeleter, SparkRewriter
from lakeformat.storage.local import LocalStorage
from tests.helpers.lakehouse import FLIGHTS, Rows, flights

pytestmark = pytest.mark.spark

STORED: Final[Rows] = [(number, f"p{number % 2}", 10, number * 0.5) for number in range(40)]
_KEY: Final = "spark.job.description"


def descriptions(spark: SparkSession, work: Callable[[], object]) -> list[str]:
    """Return the descriptions of all jobs that ran during the work, from Spark's status store, without repeats."""
    context = spark.sparkContext._jsc.sc()

    def jobs(after: int) -> dict[int, str]:
        """Return number -> description of the newer jobs.

        The store has the newest first, and also those of other tests.
        """
        context.listenerBus().waitUntilEmpty()
        listed = context.statusStore().jobsList(None)
        each = (listed.apply(at) for at in range(listed.size()))
        newer = takewhile(lambda job: job.jobId() > after, each)
        return {job.jobId(): said.get() if (said := job.description()).isDefined() else "" for job in newer}

    context.listenerBus().waitUntilEmpty()
    listed = context.statusStore().jobsList(None)
    before = listed.apply(0).jobId() if listed.size() else -1
    work()
    return list(dict.fromkeys(text for _, text in sorted(jobs(before).items())))


def test_job_description_names_step_and_table(spark: SparkSession, tmp_path: Path) -> None:
    path = str(tmp_path / "t")
    table = LakehouseTable.create(spark, path, flights(spark, STORED), **FLIGHTS, table_type="MERGE_ON_READ")
    assert descriptions(spark, lambda: table.bulk_insert(flights(spark, STORED)))[0] == (
        f"lakeformat bulk_insert {path}: encode"
    )
    assert descriptions(spark, lambda: table.update({"x": 1.0}, "id = 1")) == [f"lakeformat upsert {path}: write"]
    assert descriptions(spark, lambda: table.delete(where="id = 2")) == [f"lakeformat delete {path}: write"]
    newer = flights(spark, [(number, part, 20, x) for number, part, _, x in STORED[::4]])
    assert descriptions(spark, lambda: table.upsert(newer)) == [
        f"lakeformat upsert {path}: {step}" for step in ("stage", "tag", "write")
    ]
    there = lakeformat.open(path)
    soon = there.options.with_values(**{"hoodie.compact.inline.max.delta.commits": 1})
    compaction = CompactSession(there.context, soon, SparkCompactor(spark))
    assert descriptions(spark, lambda: compaction.run(plans=True)) == [f"lakeformat compact {path}: merge log files"]
    clustering = ClusterSession(there.context, there.options, SparkRewriter(spark, task_bytes=1))
    request = make_cluster_request(there.options, ["x"], "linear", target_file_bytes=500)
    assert descriptions(spark, lambda: clustering.cluster(request)) == [
        f"lakeformat cluster {path}: {step}" for step in ("sample ranges", "sort into runs", "merge runs")
    ]
    deleter, files = SparkDeleter(spark, few=0), ["p0/none", "p1/none"]
    assert descriptions(spark, lambda: deleter(LocalStorage(path), files)) == [f"lakeformat clean {path}: delete files"]


def test_job_description_of_the_user_is_prefixed_and_restored(spark: SparkSession, tmp_path: Path) -> None:
    context, path = spark.sparkContext, str(tmp_path / "t")
    rows = flights(spark, STORED)
    table = LakehouseTable.create(spark, path, rows, **FLIGHTS)
    failing = rows.withColumn("x", f.raise_error(f.lit("the input fails")).cast("double"))
    context.setJobDescription("nightly")
    try:
        assert descriptions(spark, lambda: table.upsert(rows))[0] == f"nightly: lakeformat upsert {path}: stage"
        assert context.getLocalProperty(_KEY) == "nightly"
        with pytest.raises(Exception, match="the input fails"):
            table.upsert(failing)
        assert context.getLocalProperty(_KEY) == "nightly"
    finally:
        context.setJobDescription(None)
    assert descriptions(spark, lambda: write_rows(rows, path, **FLIGHTS)) == [
        f"lakeformat upsert {path}: prepare and write rows"
    ]
    assert context.getLocalProperty(_KEY) is None
