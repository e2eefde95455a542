"""Sessions of their own: the source is found without ``register``, loads fast, and works through Spark Connect."""

from __future__ import annotations

import json
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.helpers.lakehouse import run_application

pytestmark = pytest.mark.spark

#: Modules that take long to import, or that may be missing where Spark only looks up its sources.
HEAVY = ("pyarrow", "numpy", "pandas", "fastavro", "fsspec", "mmh3", "sqlglot")


def test_source_look_up_imports_no_heavy_library(tmp_path: Path) -> None:
    """Spark imports every ``pyspark_*`` package before the first use of any Python source."""
    program = f"""
import json, sys
import pyspark.sql.datasource
before = set(sys.modules)
from pyspark_lakehouse import DefaultSource
assert DefaultSource.name() == "lakehouse"
from lakeformat.spark import register
brought = set(sys.modules) - before
print(json.dumps(sorted(brought & set({HEAVY!r}) | {{name for name in brought if name.startswith("lakeformat.")}})))
"""
    assert json.loads(run_application(program, cwd=tmp_path)) == [
        "lakeformat.public",
        "lakeformat.spark",
        "lakeformat.spark.register",
        "lakeformat.spark.source",
    ]


CONNECT = """
import json, sys
from concurrent.futures import ThreadPoolExecutor
from pyspark.sql import SparkSession, functions
import lakeformat
from lakeformat.spark import LakehouseTable, active_session, read, register, write

path = sys.argv[1]
spark = SparkSession.builder.remote("local[1]").getOrCreate()
assert "connect" in type(spark).__module__
rows = [(number, f"p{number % 2}", number / 2) for number in range(10)]
frame = spark.createDataFrame(rows, "id long, part string, x double")
options = {"recordkey": "id", "partitionpath": "part"}


def found():
    rows = spark.read.format("lakehouse").load(path).where("part = 'p0' and x <= 0").select("id", "part", "x")
    return sorted(map(list, rows.collect()))


for operation, changed in (("bulk_insert", frame), ("upsert", frame.selectExpr("id + 5 as id", "part", "-x as x"))):
    changed.write.format("lakehouse").options(operation=operation, **options).mode("append").save(path)
answers = [found()]
register(spark)
answers.append(found())
table = LakehouseTable.forPath(spark, path + "-exchanged", **options)
spark.addTag("the user's")
table.bulk_insert(frame)
table.upsert(frame.selectExpr("id + 5 as id", "part", "-x as x"))
assert spark.getTags() == {"the user's"}
spark.clearTags()
path += "-exchanged"
answers.append(found())
clustered = table.cluster(by=["x", "id"], curve="z-order").report["rows"]
answers.append(found())
scan = table.read(["id", "part", "x"], where="part = 'p0' and x <= 0", via="native")
answers.append(sorted(map(list, scan.where("not x > 1").collect())))


def threaded(number):
    mine, few = f"{path}-{number}", spark.range(number, number + 5, 1, 1)
    if number % 3 == 0:
        write(few, mine, recordkey="id", operation="bulk_insert")
    elif number % 3 == 1:
        with active_session(spark):
            few.write.format("lakehouse").option("recordkey", "id").mode("append").save(mine)
    else:
        LakehouseTable.forPath(spark, mine, recordkey="id").bulk_insert(few)
    return lakeformat.open(mine).to_arrow(["id"])["id"].to_pylist()


with ThreadPoolExecutor(8) as pool:
    threads = list(map(sorted, pool.map(threaded, range(8))))
whole = read(spark, path)
answers.append(sorted(map(list, whole.where("part = 'p0' and x <= 0").select("id", "part", "x").collect())))
counts = [whole.count(), whole.where("part = 'p0'").count(), table.read(["id"], where=functions.col("x") > 1).count()]
try:
    spark.read.format("lakehouse").load(path + "-not-there").count()
except Exception as error:
    text = str(error)
spark.stop()
refusals = [line[at:] for line in text.splitlines() if (at := line.find("lakeformat.TableNotFoundError")) >= 0]
seen = {"answers": answers, "counts": counts, "threads": threads}
print(json.dumps({**seen, "clustered": clustered, "refusals": refusals}))
"""


@pytest.mark.slow
@pytest.mark.skipif(find_spec("grpc") is None, reason="Spark Connect needs pyspark[connect]")
def test_spark_connect_writes_and_reads_registered_or_not(tmp_path: Path) -> None:
    path = tmp_path / "t"
    answer = json.loads(run_application(CONNECT, path, cwd=tmp_path))
    # The second write has keys 5 to 14 with the other parities: in p0 one row of the first is left, with x = 0.
    rows = [[0, "p0", 0.0], *([n + 5, "p0", -n / 2] for n in range(0, 10, 2))]
    assert answer["answers"] == [rows] * 6
    assert answer["counts"] == [20, 10, 7]
    assert answer["clustered"] == {"rewritten": 20}
    assert answer["threads"] == [list(range(number, number + 5)) for number in range(8)]
    assert answer["refusals"] == [
        f"lakeformat.TableNotFoundError: no table at {path}-exchanged-not-there (there is no "
        ".hoodie/hoodie.properties); check the path, or write to it first"
    ]
