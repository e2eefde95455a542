"""``lakeformat-python``: workers import a compiled PySpark, but only if it is the same PySpark."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import tomllib

from lakeformat.spark.worker_python import without_zips

pytestmark = pytest.mark.spark

PYPROJECT = Path(__file__).parents[2] / "pyproject.toml"
APPLICATION = """
import json, sys
from pyspark.sql import SparkSession

spark = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate()
path = sys.argv[1]


def modules(batches):
    import py4j, pyarrow, pyspark
    yield from (pyarrow.record_batch({"file": [pyspark.__file__, py4j.__file__]}) for _ in batches)


spark.range(3).write.format("lakehouse").option("recordkey", "id").mode("append").save(path)
rows = spark.read.format("lakehouse").load(path).count()
files = [row.file for row in spark.range(1).mapInArrow(modules, "file string").collect()]
spark.stop()
print(json.dumps([rows, files]))
"""


@pytest.fixture
def installed(tmp_path: Path) -> Path:
    """Return a folder of packages with PySpark and py4j, as pip installs them."""
    for package in ("pyspark", "py4j"):
        (tmp_path / "site" / package).mkdir(parents=True)
        (tmp_path / "site" / package / "__init__.py").touch()
    return tmp_path / "site"


def test_pyspark_zips_are_dropped_only_if_the_packages_are_found_next(installed: Path, tmp_path: Path) -> None:
    lib = installed / "pyspark/python/lib"
    zips = [str(lib / "pyspark.zip"), str(lib / "py4j-0.10.9.9-src.zip")]
    site, mine = str(installed), str(tmp_path / "mine")
    assert without_zips([*zips, mine], ["", "/usr/lib", site]) == [mine]
    assert without_zips([*zips, mine], ["/usr/lib"]) == [*zips, mine]
    other = tmp_path / "other" / "pyspark"
    other.mkdir(parents=True)
    (other / "__init__.py").touch()
    assert without_zips([*zips, str(other.parent)], [site]) == [zips[0], str(other.parent)]
    kept = ["/jars/a.jar", "/opt/spark/python/lib/pyspark.zip", "/gone/pyspark/python/lib/pyspark.zip", ""]
    assert without_zips(kept, [site]) == kept


@pytest.mark.nightly
def test_workers_take_the_installed_pyspark(tmp_path: Path) -> None:
    module, _, function = tomllib.loads(PYPROJECT.read_text())["project"]["scripts"]["lakeformat-python"].partition(":")
    python = tmp_path / "lakeformat-python"  # The script as pip writes it.
    python.write_text(f"#!{sys.executable}\nimport sys\nfrom {module} import {function}\nsys.exit({function}())\n")
    python.chmod(0o755)
    program = tmp_path / "application.py"
    program.write_text(APPLICATION)
    command = [sys.executable, str(program), str(tmp_path / "t")]
    environ = {**os.environ, "PYSPARK_PYTHON": str(python)}
    environ.pop("PYSPARK_DRIVER_PYTHON", None)
    run = subprocess.run(command, cwd=tmp_path, env=environ, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
    rows, files = json.loads(run.stdout)
    assert rows == 3
    assert [file for file in files if ".zip" in file] == []
