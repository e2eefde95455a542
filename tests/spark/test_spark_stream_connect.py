"""Streams over Spark Connect: source, sink and each batch, as in classic Spark except for the name of the query."""

from __future__ import annotations

import json
from importlib.util import find_spec
from pathlib import Path

import pytest

import lakeformat
from tests.helpers.lakehouse import run_application

pytestmark = pytest.mark.spark

PROGRAM = """
import json, sys
import pyarrow as pa
from pyspark.sql import SparkSession
import lakeformat
from lakeformat.spark import each_batch

folder = sys.argv[1]
spark = SparkSession.builder.remote("local[1]").getOrCreate()
assert "connect" in type(spark).__module__
schema = pa.schema([("id", pa.int64()), ("v", pa.int64())])
bronze = lakeformat.create(folder + "/bronze", schema, record_key="id")
answers = []


def follow(frame, name, **more):
    writer = frame.writeStream.format("lakehouse").queryName(name).options(recordkey="id", **more)
    writer = writer.option("checkpointLocation", f"{folder}/{name}-checkpoint").trigger(availableNow=True)
    return writer


def rows_of(name):
    return sorted(map(list, spark.read.format("lakehouse").load(f"{folder}/{name}").select("id", "v").collect()))


for turn in range(2):
    bronze.upsert(spark.range(turn, turn + 3).selectExpr("id", f"id * 10 + {turn} as v").toArrow())
    source = spark.readStream.format("lakehouse").load(folder + "/bronze").select("id", "v")
    follow(source, "silver").start(folder + "/silver").awaitTermination()
    saved = source.writeStream.foreachBatch(each_batch(folder + "/gold", app="gold", recordkey="id"))
    saved = saved.option("checkpointLocation", folder + "/gold-checkpoint").trigger(availableNow=True)
    saved.start().awaitTermination()
    answers.append([rows_of("silver"), rows_of("gold")])
refusals = []
nameless = spark.readStream.format("lakehouse").load(folder + "/bronze").writeStream
nameless = nameless.foreachBatch(each_batch(folder + "/none", recordkey="id")).trigger(availableNow=True)
try:
    nameless.option("checkpointLocation", folder + "/none-checkpoint").start().awaitTermination()
except Exception as error:
    refusals += [line.strip() for line in str(error).splitlines() if "lakeformat." in line and "Error: " in line][:1]
spark.stop()
print(json.dumps({"answers": answers, "refusals": refusals}))
"""


@pytest.mark.nightly
@pytest.mark.skipif(find_spec("grpc") is None, reason="Spark Connect needs pyspark[connect]")
def test_source_sink_and_each_batch_over_connect(tmp_path: Path) -> None:
    result = json.loads(run_application(PROGRAM, tmp_path, cwd=tmp_path))
    first = [[number, number * 10] for number in range(3)]
    second = [[0, 0], *([number, number * 10 + 1] for number in range(1, 4))]
    assert result["answers"] == [[first, first], [second, second]]
    assert len(result["refusals"]) == 1
    assert "give each_batch(app=" in result["refusals"][0]
    for name in ("silver", "gold"):
        assert len(lakeformat.open(tmp_path / name).history()) == 2
