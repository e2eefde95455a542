"""A table as a stream's source: whole commits, each row once, through restarts, late commits and services."""

from __future__ import annotations

import json
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

import lakeformat
from lakeformat import Table
from tests.helpers.tables import a_schema

pytestmark = pytest.mark.spark

SCHEMA = a_schema(id="string", v="int64")
START = "hoodie.datasource.streaming.startoffset"


def rows(**values: int) -> pa.Table:
    return pa.table({"id": list(values), "v": list(values.values())}, schema=SCHEMA)


def new_table(folder: Path) -> Table:
    return lakeformat.create(folder / "t", SCHEMA, record_key="id")


class Follower:
    """A stream over a table that can run repeatedly from one checkpoint and records its batches."""

    def __init__(self, spark: SparkSession, folder: Path, **options: Any) -> None:
        self.spark, self.folder, self.options = spark, folder, options
        self.batches: list[list[tuple[Any, ...]]] = []
        self.progress: list[Any] = []

    def run(self, fail: Callable[[int], bool] = lambda _: False) -> None:
        def take(batch: DataFrame, number: int) -> None:
            self.batches.append(sorted(tuple(row) for row in batch.collect()))
            if fail(number):
                raise RuntimeError("lost before the checkpoint")

        frame = self.spark.readStream.format("lakehouse").options(meta_columns=False, **self.options)
        stream = frame.load(str(self.folder / "t"))
        writer = stream.writeStream.foreachBatch(take).option("checkpointLocation", str(self.folder / "checkpoint"))
        query = writer.trigger(availableNow=True).start()
        try:
            query.awaitTermination()
        finally:
            self.progress += [source for each in query.recentProgress for source in each["sources"]]


@pytest.mark.slow
def test_stream_returns_every_commit_once_through_restarts_and_services(spark: SparkSession, tmp_path: Path) -> None:
    table = new_table(tmp_path)
    table.upsert(rows(a=1, b=2))
    stream = Follower(spark, tmp_path)
    stream.run()
    table.upsert(rows(b=3, c=4))
    table.cluster(by=["v"])
    table.delete(rows(a=0).select(["id"]))
    last = table.upsert(rows(d=5)).instant_time
    with pytest.raises(PySparkException, match="lost before"):
        stream.run(fail=lambda _: True)
    table.upsert(rows(e=6))
    stream.run()
    stream.run()
    assert stream.batches == [
        [("a", 1), ("b", 2)],
        [("b", 3), ("c", 4), ("d", 5)],
        [("b", 3), ("c", 4), ("d", 5)],  # The batch comes again: Spark does not know that it is done.
        [("e", 6)],
    ]
    logged = (tmp_path / "checkpoint" / "offsets" / "1").read_text().splitlines()[-1]
    assert json.loads(logged) == {"instant": last}
    assert last in " ".join(str(source["endOffset"]) for source in stream.progress)


def test_stream_batch_holds_whole_commits_within_its_limits(spark: SparkSession, tmp_path: Path) -> None:
    table = new_table(tmp_path)
    first = table.upsert(rows(a=1)).instant_time
    for number in (2, 3, 4):
        table.upsert(rows(b=number, c=number))
    asked = {START: first, "hoodie.datasource.query.type": "incremental"}
    limited = Follower(spark, tmp_path, maxCommitsPerTrigger=2, **asked)
    limited.run()
    if find_spec("pyspark.sql.streaming.datasource"):  # Spark 4.0 and 4.1 take one batch in such a run.
        assert limited.batches == [[("b", 3), ("c", 3)], [("b", 4), ("c", 4)]]
        limited.run()
    else:
        assert limited.batches == [[("b", 3), ("c", 3)]]


@pytest.mark.slow
def test_stream_that_meets_new_columns_fails_once_and_continues(spark: SparkSession, tmp_path: Path) -> None:
    table = new_table(tmp_path)
    table.upsert(rows(a=1))
    frame = spark.readStream.format("lakehouse").option(START, "latest").load(str(tmp_path / "t"))
    seen: list[Any] = []
    query = frame.writeStream.foreachBatch(lambda batch, _: seen.extend(row["id"] for row in batch.collect()))
    query = query.option("checkpointLocation", str(tmp_path / "c"))
    running = query.start()
    running.processAllAvailable()
    running.stop()
    table.upsert(rows(b=2))
    running = query.start()
    try:
        running.processAllAvailable()
        assert seen == ["b"]
        table.upsert(rows(c=3).append_column("w", pa.array([1.5])))
        with pytest.raises(PySparkException, match=r"SchemaMismatchError.*\(w\); start the query again"):
            running.processAllAvailable()
    finally:
        running.stop()
    seen.clear()
    grown = spark.readStream.format("lakehouse").option("columns", "id,w").load(str(tmp_path / "t")).writeStream
    grown = grown.foreachBatch(lambda batch, _: seen.extend(map(tuple, batch.collect())))
    grown.option("checkpointLocation", str(tmp_path / "c")).trigger(availableNow=True).start().awaitTermination()
    assert seen == [("c", 1.5)]


@pytest.mark.parametrize(
    ("options", "error", "text"),
    [
        ({"as.of.instant": "20260101000000"}, "InvalidOptionError", f"begin it by {START}"),
        ({START: "yesterday"}, "InvalidOptionError", "'yesterday' is not an instant"),
        ({"hoodie.datasource.query.type": "read_optimized"}, "InvalidOptionError", "leave it out"),
    ],
)
def test_unsupported_stream_options_are_refused(
    spark: SparkSession, tmp_path: Path, options: dict[str, str], error: str, text: str
) -> None:
    new_table(tmp_path).upsert(rows(a=1))
    with pytest.raises(PySparkException, match=f"{error}.*{text}"):
        Follower(spark, tmp_path, **options).run()
