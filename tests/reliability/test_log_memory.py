"""The memory for a slice whose log files hold large values is bounded by bytes, even for few rows."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest

import lakeformat
from tests.helpers.tables import a_schema

VALUE, ROWS, CHANGED = 1 << 20, 64, 48
SCHEMA = a_schema(id="int64", v="string")
#: Memory beside the log files' records and one block: chunks of a block, and batches in transit.
SLACK = 64 << 20

#: A program that prints the number of rows, a sum over them, and the greatest number of bytes that Arrow held.
SCRIPT = """
import sys, pyarrow as pa, pyarrow.compute as pc, lakeformat
table, rows, total = lakeformat.open(sys.argv[1]), 0, 0
if sys.argv[2] == "compact":
    table.compact()
else:
    for batch in table.to_batches():
        rows, total = rows + batch.num_rows, total + pc.sum(pc.binary_length(batch["v"])).as_py()
print(rows, total, max(pool.max_memory() for pool in (pa.default_memory_pool(), pa.system_memory_pool())))
"""


def values(start: int, end: int, version: int) -> pa.Table:
    """Make rows of one large value each; few of the values differ, so that files are small."""
    texts = [str((at * version) % 7) * (VALUE + version) for at in range(start, end)]
    return pa.table({"id": pa.array(range(start, end), pa.int64()), "v": texts}, schema=SCHEMA)


def measure_read(path: Path, what: str) -> tuple[int, int, int]:
    """Run the script on the table in a process of its own."""
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, str(path), what],
        capture_output=True, text=True, check=True, env={**os.environ, "OMP_NUM_THREADS": "2"},
    )  # fmt: skip
    rows, total, most = map(int, done.stdout.split())
    return rows, total, most


@pytest.mark.slow
@pytest.mark.parametrize("version", [6, 9])
def test_reading_a_slice_holds_its_log_records_and_one_block(tmp_path: Path, version: int) -> None:
    table = lakeformat.create(
        tmp_path / "t", SCHEMA, record_key="id", table_type="MERGE_ON_READ",
        **{"hoodie.write.table.version": version, "hoodie.compact.inline": False},
    )  # fmt: skip
    table.bulk_insert(values(0, ROWS, 1))
    newest = dict.fromkeys(range(ROWS), 1)
    for at in range(3):
        table.upsert(values(8 * at, 8 * at + CHANGED, at + 2))
        newest |= dict.fromkeys(range(8 * at, 8 * at + CHANGED), at + 2)
    logged = sum(version > 1 for version in newest.values())
    expected = sum(VALUE + version for version in newest.values())

    rows, total, most = measure_read(tmp_path / "t", "read")

    assert (rows, total) == (ROWS, expected)
    assert most < (logged + CHANGED) * VALUE + logged * VALUE // 4 + SLACK
    assert measure_read(tmp_path / "t", "compact")[2] < (logged + CHANGED) * VALUE + logged * VALUE // 4 + 4 * SLACK
    rows, total, most = measure_read(tmp_path / "t", "read")
    assert (rows, total) == (ROWS, expected)
    assert most < SLACK


def test_rows_that_grow_by_log_updates_come_in_small_batches(tmp_path: Path) -> None:
    table = lakeformat.create(
        tmp_path / "t", SCHEMA, record_key="id", table_type="MERGE_ON_READ", **{"hoodie.compact.inline": False}
    )
    table.bulk_insert(pa.table({"id": range(ROWS), "v": ["x"] * ROWS}, schema=SCHEMA))
    table.upsert(values(0, ROWS, 3))
    batches = list(table.to_batches())
    assert sum(batch.num_rows for batch in batches) == ROWS
    assert pa.Table.from_batches(batches).select(["id", "v"]).sort_by("id") == values(0, ROWS, 3)
    assert max(batch.nbytes for batch in batches) < 48 << 20
