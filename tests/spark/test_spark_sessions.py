"""Sessions of their own: found without ``register``, light to look up, and the same through Spark Connect."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path

import pytest
from lakehouse import SETTINGS, run_application

pytestmark = pytest.mark.spark

#: What takes long to import, or may be missing where Spark only looks up its sources.
HEAVY = ("pyarrow", "numpy", "pandas", "fastavro", "fsspec", "mmh3", "sqlglot")


def test_looking_up_the_source_imports_nothing_heavy(tmp_path: Path) -> None:
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
        "lakeformat.spark",
        "lakeformat.spark.register",
        "lakeformat.spark.source",
    ]


SESSION = """
import json, sys
from pyspark.sql import SparkSession

path, remote, register_it, settings = sys.argv[1], sys.argv[2] == "connect", sys.argv[3] == "register", sys.argv[4]
builder = SparkSession.builder.remote("local[1]") if remote else SparkSession.builder.master("local[1]")
if not remote:
    for name, value in json.loads(settings).items():
        builder = builder.config(name, value)
spark = builder.getOrCreate()
assert ("connect" in type(spark).__module__) is remote
if register_it:
    from lakeformat.spark import register
    register(spark)

rows = [(number, f"p{number % 2}", number / 2) for number in range(10)]
frame = spark.createDataFrame(rows, "id long, part string, x double")
options = {"recordkey": "id", "partitionpath": "part"}
for operation, changed in (("bulk_insert", frame), ("upsert", frame.selectExpr("id + 5 as id", "part", "-x as x"))):
    changed.write.format("lakehouse").options(operation=operation, **options).mode("append").save(path)
found = spark.read.format("lakehouse").load(path).where("part = 'p0' and x <= 0").select("id", "part", "x").collect()
try:
    spark.read.format("lakehouse").load(path + "-not-there").count()
except Exception as error:
    text = str(error)
spark.stop()
refusals = [line for line in text.splitlines() if line.startswith("lakeformat.errors.")]
print(json.dumps({"rows": sorted(map(list, found)), "refusals": refusals}))
"""


@pytest.mark.parametrize("kind", ["classic", "connect"])
def test_a_fresh_session_writes_and_reads(kind: str, tmp_path: Path) -> None:
    if kind == "connect" and importlib.util.find_spec("grpc") is None:
        pytest.skip("Spark Connect needs grpcio: pip install 'pyspark[connect]'")
    path = tmp_path / "t"
    how = "register" if kind == "connect" else "find"
    answer = json.loads(run_application(SESSION, path, kind, how, json.dumps(SETTINGS), cwd=tmp_path))
    # The second write moved keys 5 to 14 to the other partition; those keys of the first are still in theirs.
    assert answer["rows"] == [[0, "p0", 0.0], *([n + 5, "p0", -n / 2] for n in range(0, 10, 2))]
    assert answer["refusals"] == [
        f"lakeformat.errors.TableNotFoundError: no table at {path}-not-there (there is no "
        ".hoodie/hoodie.properties); check the path, or write to it first"
    ]
