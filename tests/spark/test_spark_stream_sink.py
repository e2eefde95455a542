"""A table as a stream's sink: it takes each batch once, even if Spark sends it again.

The commit names the stream that wrote it.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

import lakeformat
import lakeformat.spark
from tests.helpers.lakehouse import FLIGHT_COLUMNS, FLIGHTS, commits, contents, flights, leftovers

pytestmark = pytest.mark.spark


class Feed:
    """Files that a stream takes one by one, and the query that brings them into a table."""

    def __init__(self, spark: SparkSession, folder: Path, **options: Any) -> None:
        self.spark, self.folder, self.options = spark, folder, options
        self.table, self.checkpoint = folder / "table", folder / "checkpoint"

    def add(self, *rows: tuple[Any, ...]) -> None:
        flights(self.spark, list(rows), tasks=1).write.mode("append").parquet(str(self.folder / "files"))

    def frame(self) -> DataFrame:
        files = self.spark.readStream.schema(FLIGHT_COLUMNS).option("maxFilesPerTrigger", 1)
        return files.parquet(str(self.folder / "files"))

    def run(self, frame: DataFrame | None = None, mode: str = "append", **options: Any) -> None:
        writer = (frame or self.frame()).writeStream.format("lakehouse").outputMode(mode).queryName("feed")
        writer = writer.options(**{**FLIGHTS, **self.options, **options})
        writer = writer.option("checkpointLocation", str(self.checkpoint)).trigger(availableNow=True)
        writer.start(str(self.table)).awaitTermination()

    def forget(self, batch: int) -> None:
        """Delete the record that the batch is done, as if the driver had died before writing it."""
        for file in (self.checkpoint / "commits").glob(f"*{batch}*"):
            file.unlink()


def extra(table: Path) -> list[dict[str, Any]]:
    return [
        json.loads((table / ".hoodie" / f"{time}.commit").read_text())["extraMetadata"]
        for time in commits(table)
        if (table / ".hoodie" / f"{time}.commit").exists()
    ]


def test_each_stream_batch_is_one_named_commit(spark: SparkSession, tmp_path: Path) -> None:
    feed = Feed(spark, tmp_path)
    feed.add((1, "a", 1, 0.5), (2, "b", 1, 0.5))
    feed.add((1, "a", 2, 1.5), (3, "a", 1, 0.5))
    feed.run()
    wanted = [(1, "a", 2, 1.5), (2, "b", 1, 0.5), (3, "a", 1, 0.5)]
    assert contents(spark, feed.table) == wanted
    query = json.loads((feed.checkpoint / "metadata").read_text())["id"]
    assert [json.loads(each["streaming.query"]) for each in extra(feed.table)] == [
        {"id": query, "name": "feed", "batch": number} for number in (0, 1)
    ]
    assert json.loads(extra(feed.table)[1]["_hoodie_streaming_sink_checkpoint"]) == {query: "1"}
    lakeformat.open(feed.table).delete(where="id = 2")
    feed.forget(1)
    feed.run()
    assert contents(spark, feed.table) == [wanted[0], wanted[2]]
    assert len(commits(feed.table)) == 3
    feed.run(feed.frame().where("id < 0"))  # Nothing is new, and a batch without rows makes no commit.
    assert leftovers(feed.table) == []


@pytest.mark.parametrize(
    "operation",
    ["insert", *(pytest.param(name, marks=pytest.mark.slow) for name in ("bulk_insert", "delete", "insert_overwrite"))],
)
def test_stream_sink_runs_other_operations(spark: SparkSession, tmp_path: Path, operation: str) -> None:
    feed = Feed(spark, tmp_path)
    feed.add((1, "a", 1, 0.5), (2, "b", 1, 0.5), (3, "b", 1, 0.5))
    feed.run()
    feed.add((2, "b", 2, 9.5))
    feed.run(operation=operation)
    feed.forget(1)
    feed.run(operation=operation)
    new = {
        "insert": [(2, "b", 1, 0.5), (2, "b", 2, 9.5), (3, "b", 1, 0.5)],
        "bulk_insert": [(2, "b", 1, 0.5), (2, "b", 2, 9.5), (3, "b", 1, 0.5)],
        "delete": [(3, "b", 1, 0.5)],
        "insert_overwrite": [(2, "b", 2, 9.5)],
    }
    assert contents(spark, feed.table) == [(1, "a", 1, 0.5), *new[operation]]
    assert len(commits(feed.table)) == 2
    assert leftovers(feed.table) == []


@pytest.mark.slow
def test_complete_mode_replaces_the_result(spark: SparkSession, tmp_path: Path) -> None:
    feed = Feed(spark, tmp_path, recordkey="part", partitionpath="", ordering="")
    for number in range(3):
        feed.add((number, "a", 1, 1.0), (number, f"p{number}", 1, 2.0))
    feed.run(feed.frame().groupBy("part").count(), mode="complete")
    assert contents(spark, feed.table) == [("a", 3), ("p0", 1), ("p1", 1), ("p2", 1)]
    assert len(commits(feed.table)) == 3


@pytest.mark.slow
@pytest.mark.parametrize("way", ["each_batch", "save"])
def test_update_mode_works_through_foreach_batch_only(way: str, spark: SparkSession, tmp_path: Path) -> None:
    feed = Feed(spark, tmp_path)
    each_batch = lakeformat.spark.each_batch(feed.table, recordkey="part")
    lakeformat.spark.register(spark)

    def save(batch: DataFrame, number: int) -> None:
        named = {"lakeformat.batch.app": "counts", "lakeformat.batch.id": number, "recordkey": "part"}
        batch.write.format("lakehouse").options(**named).mode("append").save(str(feed.table))

    def run() -> None:
        frame = feed.frame().groupBy("part").count()
        writer = frame.writeStream.outputMode("update").foreachBatch(each_batch if way == "each_batch" else save)
        writer.option("checkpointLocation", str(feed.checkpoint)).trigger(availableNow=True).start().awaitTermination()

    feed.add((1, "a", 1, 0.5), (2, "b", 1, 0.5))
    feed.add((3, "a", 1, 0.5))
    run()
    assert contents(spark, feed.table) == [("a", 2), ("b", 1)]
    lakeformat.open(feed.table).delete(where="part = 'a'")
    feed.forget(1)
    run()
    assert contents(spark, feed.table) == [("b", 1)]
    feed.add((4, "a", 1, 0.5))
    with pytest.raises(PySparkException, match="does not support Update mode"):
        feed.run(feed.frame().groupBy("part").count(), mode="update")


def test_unsupported_sink_settings_are_refused(spark: SparkSession, tmp_path: Path) -> None:
    feed = Feed(spark, tmp_path)
    feed.add((1, "a", 1, 0.5))
    with pytest.raises(PySparkException, match=r"InvalidOptionError.*a stream names its batches by itself"):
        feed.run(**{"lakeformat.batch.app": "x", "lakeformat.batch.id": 1})
    assert not feed.table.exists()
