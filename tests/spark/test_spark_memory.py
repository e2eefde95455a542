"""Memory of the exchanged write: for a table ten times as large, the same upsert has the same peak."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

import lakeformat
from tests.helpers.lakehouse import SETTINGS, run_application

pytestmark = [
    pytest.mark.spark,
    pytest.mark.slow,
    pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc"),
]

ROWS, CHANGED = 150_000, 2_000
#: The permitted difference of the peaks. The additional rows of the larger table take several times as much memory.
SLACK_BYTES = 40 << 20

APPLICATION = """
import json, sys
import pyarrow as pa
from pyspark.sql import SparkSession
from lakeformat.spark import LakehouseTable

path, rows, changed, settings = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), json.loads(sys.argv[4])
builder = SparkSession.builder.master("local[2]")
for name, value in settings.items():
    builder = builder.config(name, value)
spark = builder.getOrCreate()


def peak():
    status = open("/proc/self/status").read()
    return next(int(line.split()[1]) * 1024 for line in status.splitlines() if line.startswith("VmHWM"))


def peaks(batches):
    for _ in batches:
        yield pa.record_batch({"peak": [peak()]})


# Keys from all files, and as many new ones behind them.
step = rows // changed
frame = spark.range(0, rows, step).selectExpr("id", "repeat('b', 40) as text", "-1L as a", "-1L as b", "-1L as c")
more = frame.selectExpr("id + 1000000000 as id", "text", "a", "b", "c")
report = LakehouseTable.forPath(spark, path).upsert(frame.union(more)).report
# Workers are used again: these are those that tagged and merged.
workers = [row[0] for row in spark.range(0, 8, 1, 8).mapInArrow(peaks, "peak long").collect()]
print(json.dumps({"driver": peak(), "workers": max(workers), "report": report}))
spark.stop()
"""


def measure_upsert(folder: Path, rows: int) -> dict[str, dict[str, int]]:
    """Return the peaks in bytes of an upsert into a new table of ``rows`` rows in small files."""
    sizes = {"hoodie.parquet.max.file.size": 1 << 20, "hoodie.parquet.small.file.limit": 0}
    text = pa.DictionaryArray.from_arrays(np.zeros(rows, np.int32), pa.array(["a" * 40])).dictionary_decode()
    random = np.random.default_rng(7)
    numbers = {name: random.integers(0, 1 << 60, rows) for name in "abc"}
    table = pa.table({"id": np.arange(rows), "text": text, **numbers})
    lakeformat.create(folder / "t", table.schema, record_key="id", **sizes).bulk_insert(table)
    output = run_application(APPLICATION, folder / "t", rows, CHANGED, json.dumps(SETTINGS), cwd=folder)
    answer: dict[str, dict[str, int]] = json.loads(output.splitlines()[-1])
    return answer


def test_memory_peaks_do_not_grow_with_the_table(tmp_path: Path) -> None:
    folders = [tmp_path / "small", tmp_path / "large"]
    for folder in folders:
        folder.mkdir()
    small, large = measure_upsert(folders[0], ROWS), measure_upsert(folders[1], 10 * ROWS)
    assert large["report"]["rows"] == small["report"]["rows"]
    assert large["report"]["files"]["merged"] > 5 * small["report"]["files"]["merged"]  # type: ignore[index]
    more_bytes = 9 * ROWS * (4 * 8 + 40)
    assert more_bytes > 2 * SLACK_BYTES
    for process in ("driver", "workers"):
        assert large[process] < small[process] + SLACK_BYTES, process  # type: ignore[operator]
