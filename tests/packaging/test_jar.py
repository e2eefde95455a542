"""The jar as users run it: ``spark-submit --packages``, in a Python without an installed lakeformat."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tools.build_jar import ARTIFACT, GROUP, ROOT, build

pytestmark = [pytest.mark.spark, pytest.mark.slow]

# This runs at the start of every Python of the application, driver and workers alike. It removes the checkout from the
# path, because an editable install (a finder or a path entry) would hide the jar.
HIDE_CHECKOUT = f"""
import sys
sys.meta_path[:] = [f for f in sys.meta_path if "__editable__" not in getattr(f, "__module__", "")]
sys.path[:] = [p for p in sys.path if p != {str(ROOT)!r} and "__editable__" not in p]
"""

APPLICATION = """
import json, sys
from pyspark.sql import SparkSession

spark = SparkSession.builder.getOrCreate()
import lakeformat.spark

lakeformat.spark.register(spark)
path, answer = sys.argv[1:]
rows = spark.createDataFrame([(1, "a", 1.5), (2, "b", 2.5), (3, "b", None)], "id long, part string, x double")
options = {
    "hoodie.table.name": "delivered",
    "recordkey": "id",
    "partitionpath": "part",
    "ordering": "id",
    "operation": "upsert",
    "hoodie.upsert.shuffle.parallelism": "2",  # Only the list of Hudi's options, which is data in the jar, knows it.
}
rows.write.format("lakehouse").options(**options).mode("append").save(path)
read = spark.read.format("lakehouse").load(path).select("id", "part", "x").orderBy("id")


def worker_file(_):
    import lakeformat
    return lakeformat.__file__


found = {
    "driver": lakeformat.__file__,
    "worker": spark.sparkContext.parallelize([0], 1).map(worker_file).first(),
    "rows": [list(row) for row in read.collect()],
}
with open(answer, "w") as file:
    json.dump(found, file)
"""


def spark_submit() -> str:
    """Return the script that belongs to the PySpark of this environment."""
    spec = importlib.util.find_spec("pyspark")
    assert spec is not None
    assert spec.origin is not None
    return str(Path(spec.origin).parent / "bin" / "spark-submit")


@pytest.mark.budget(60)
def test_spark_submit_packages_writes_and_reads(tmp_path: Path) -> None:
    jar = build(ROOT, tmp_path / "m2")
    coordinates = f"{GROUP}:{ARTIFACT}:{jar.parent.name}"
    site, elsewhere = tmp_path / "site", tmp_path / "elsewhere"
    site.mkdir()
    elsewhere.mkdir()
    (site / "sitecustomize.py").write_text(HIDE_CHECKOUT)
    application = elsewhere / "application.py"
    application.write_text(APPLICATION)
    table, answer = tmp_path / "table", tmp_path / "answer.json"
    inherited = {name: value for name, value in os.environ.items() if name != "SPARK_HOME"}
    environ = {
        **inherited,
        "PYTHONPATH": str(site),
        "PYSPARK_PYTHON": sys.executable,
        "PYSPARK_DRIVER_PYTHON": sys.executable,
    }
    command = [
        spark_submit(),
        *("--master", "local[2]"),
        *("--repositories", (tmp_path / "m2").as_uri()),
        *("--packages", coordinates),
        *("--conf", f"spark.jars.ivy={tmp_path / 'ivy'}"),
        *("--conf", "spark.ui.enabled=false"),
        *(str(application), str(table), str(answer)),
    ]
    run = subprocess.run(command, cwd=elsewhere, env=environ, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stdout + run.stderr
    found = json.loads(answer.read_text())
    # Ivy stores the jar under this name. The package is inside the file, not beside it.
    delivered = f"{GROUP}_{jar.name}"
    assert f"{delivered}/lakeformat/" in found["driver"]
    assert f"{delivered}/lakeformat/" in found["worker"]
    assert found["rows"] == [[1, "a", 1.5], [2, "b", 2.5], [3, "b", None]]
