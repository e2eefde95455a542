"""Gigabytes of text in one column through ``df.write``, under limits of memory that Spark sets for its Python."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow.compute as pc
import pytest

import lakeformat
from tests.helpers.lakehouse import SETTINGS, run_application

pytestmark = pytest.mark.spark

APPLICATION = """
import json, sys
from pyspark.sql import SparkSession

path, rows, settings = sys.argv[1], int(sys.argv[2]), json.loads(sys.argv[3])
builder = SparkSession.builder.master("local[2]")
for name, value in settings.items():
    builder = builder.config(name, value)
spark = builder.getOrCreate()
frame = spark.range(rows).selectExpr("id", "repeat(lpad(cast(id % 1000 as string), 8, '0'), 125) as v")
options = {"hoodie.datasource.write.recordkey.field": "id", "hoodie.datasource.write.operation": "upsert"}
frame.write.format("lakehouse").options(**options).mode("append").save(path)
print("written")
spark.stop()
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("rows", "stage_gb"), [pytest.param(20_000, 0, id="few"), pytest.param(3_000_000, 4, marks=pytest.mark.nightly)]
)
def test_texts_larger_than_an_arrow_array_are_written(tmp_path: Path, rows: int, stage_gb: int) -> None:
    """A task may take 1 GB of addresses, ``commit()`` 2 GB and those of the stage that it maps."""
    memory = {"spark.executor.pyspark.memory": "1g", "spark.sql.planner.pythonExecution.memory": f"{2 + stage_gb}g"}
    run_application(APPLICATION, tmp_path / "t", rows, json.dumps({**SETTINGS, **memory}), cwd=tmp_path)
    table = lakeformat.open(tmp_path / "t")
    characters = sum(pc.sum(pc.utf8_length(batch.column(0))).as_py() for batch in table.to_batches(["v"]))
    assert characters == rows * 1_000
    assert table.to_arrow(["id"], where="id = 1234").num_rows == 1
