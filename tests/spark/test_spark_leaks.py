"""A long session keeps the number of its threads and open files, in this process and in Spark's JVM."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession, functions

import lakeformat
from lakeformat.spark import register
from tests.helpers.tables import a_schema
from tests.spark.test_spark_stream_sink import Feed

pytestmark = pytest.mark.spark

LOADS = 200


def open_files(process: int) -> int:
    return len(os.listdir(f"/proc/{process}/fd"))


def counts(spark: SparkSession) -> dict[str, int]:
    """Return the numbers of threads and open files."""
    java = spark._jvm.java.lang
    return {
        "threads of Python": threading.active_count(),
        "files of Python": open_files(os.getpid()),
        # Threads without a name of their own. Spark's pools have names, and they grow for some minutes.
        "threads of the JVM": len(re.findall(r"\bThread-\d", java.Thread.getAllStackTraces().keySet().toString())),
        "files of the JVM": open_files(java.ProcessHandle.current().pid()),
    }


class Life:
    """What a session does all day: loads, counts, joins, streams."""

    def __init__(self, spark: SparkSession, folder: Path) -> None:
        self.spark, self.path = spark, str(folder / "t")
        self.feed = Feed(spark, folder)
        table = lakeformat.create(
            self.path, a_schema(id="int64", place="string"), record_key="id", partition_by="place"
        )
        table.insert([{"id": number, "place": "ab"[number % 2]} for number in range(10)])

    def load(self) -> DataFrame:
        return self.spark.read.format("lakehouse").load(self.path)

    def step(self, number: int) -> None:
        frame = self.load()
        assert frame.count() == 10
        if number % 10 == 0:
            assert frame.where("id > 3").count() == 6
        if number % 40 == 0:
            joined = frame.alias("l").join(functions.broadcast(self.load().where("id < 4")).alias("r"), "id")
            assert joined.where("l.place = 'a'").count() == 2

    def stream(self) -> None:
        """Bring a file into a table by the sink and by ``foreachBatch``, whose batches load and join the table."""
        self.feed.add((1, "a", 1, 0.5))
        self.feed.run()
        seen = []

        def batch(rows: DataFrame, _number: int) -> None:
            seen.append(self.load().join(rows, "id").count())
            rows.write.format("lakehouse").mode("append").save(str(self.feed.table))

        writer = self.feed.frame().writeStream.foreachBatch(batch).trigger(availableNow=True)
        writer.option("checkpointLocation", str(self.feed.folder / "batches")).start().awaitTermination()
        assert seen == [1]


def test_two_hundred_loads_leave_no_thread_and_no_file_behind(spark: SparkSession, tmp_path: Path) -> None:
    register(spark)
    life = Life(spark, tmp_path)
    life.step(0)
    life.stream()
    before = counts(spark)
    for number in range(LOADS):
        life.step(number)
    life.stream()
    grown = {name: number - before[name] for name, number in counts(spark).items()}
    # Spark keeps one connection, and the thread at its end, of each stream that calls ``foreachBatch``.
    assert max(grown.values()) <= 4, grown


#: A session after which nothing of Py4J runs. Both calls hang if the JVM has an open connection to this process.
SHUTDOWN = """
from pyspark.sql import SparkSession
from lakeformat.spark import register
spark = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate()
register(spark)
frame = spark.read.format("lakehouse").load({path!r})
print(frame.where("id > 3").count())
gateway = spark.sparkContext._gateway
gateway.shutdown_callback_server()
print(frame.where("id > 4").count(), spark.read.format("lakehouse").load({path!r}).where("id > 5").count())
spark.stop()
gateway.shutdown()
print("done")
"""


def test_the_callback_server_and_the_gateway_can_be_shut_down(tmp_path: Path) -> None:
    path = str(tmp_path / "t")
    lakeformat.create(path, a_schema(id="int64"), record_key="id").insert([{"id": number} for number in range(10)])
    program = [sys.executable, "-c", SHUTDOWN.format(path=path)]
    environment = {**os.environ, "PYSPARK_PYTHON": sys.executable}
    run = subprocess.run(program, capture_output=True, text=True, timeout=300, env=environment, check=False)
    assert (run.stdout.split(), run.returncode) == (["6", "5", "4", "done"], 0), run.stderr[-2000:]
    assert "Traceback" not in run.stderr
