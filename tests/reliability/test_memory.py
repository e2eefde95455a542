"""Memory: an upsert into a table that does not fit succeeds, and a merge needs no more memory for a larger file."""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import tempfile
import tracemalloc
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import lakeformat
from lakeformat.files.base_file import ROW_GROUP_ROWS
from lakeformat.storage import LocalStorage

ROWS, STEP, CHANGED = 2_500_000, 100_000, 1_000
#: The limit on top of the memory after the imports; the whole table takes more than twice as much.
LIMIT_BYTES = 320 << 20

#: A program that does one thing with the table under a limit. It prints the result as JSON.
SCRIPT = """
import json, re, resource, sys
import numpy, pyarrow as pa, pyarrow.parquet, pyarrow.compute
import lakeformat, lakeformat.table

path, what, limit, changed, rows = sys.argv[1], sys.argv[2], *map(int, sys.argv[3:])
held = int(re.search(r"VmData:\\s+(\\d+) kB", open("/proc/self/status").read())[1]) * 1024
resource.setrlimit(resource.RLIMIT_DATA, (held + limit, held + limit))
table = lakeformat.open(path)
try:
    if what == "read":
        outcome = {"rows": table.to_arrow().num_rows}
    else:
        ids = numpy.linspace(0, rows + changed // 2, changed, dtype="int64")  # Some are new.
        same = {name: numpy.full(changed, -1) for name in ("a", "b", "c", "d")}
        outcome = table.upsert(pa.table({"id": ids, **same, "text": ["changed"] * changed})).report["rows"]
except MemoryError:
    outcome = {"error": "MemoryError"}
print(json.dumps(outcome))
"""


def small_stacks() -> None:
    """Reduce the stack that each thread reserves, because the memory limit counts all of it."""
    resource.setrlimit(resource.RLIMIT_STACK, (1 << 20, 1 << 20))


def run_limited(path: Path, what: str) -> dict[str, Any]:
    """Run the script on the table. The system's allocator takes no more memory than needed, so the limit is exact."""
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, str(path), what, str(LIMIT_BYTES), str(CHANGED), str(ROWS)],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "ARROW_DEFAULT_MEMORY_POOL": "system", "MALLOC_ARENA_MAX": "2"},
        preexec_fn=small_stacks,
    )
    assert done.returncode == 0, done.stderr
    outcome: dict[str, Any] = json.loads(done.stdout)
    return outcome


TEXTS = pa.array([f"{number:04} " + "sphinx of black quartz, judge my vow " * 4 for number in range(64)])


def batch(start: int, rows: int) -> pa.RecordBatch:
    """Return rows with numbers that do not compress and long texts that repeat, beside the key."""
    random = np.random.default_rng(start)
    noise = {name: random.integers(-(2**62), 2**62, rows) for name in "abcd"}
    texts = TEXTS.take(pa.array(np.arange(start, start + rows) % len(TEXTS)))
    return pa.record_batch({"id": np.arange(start, start + rows), **noise, "text": texts})


def load(path: Path, rows: int, **options: Any) -> lakeformat.Table:
    """Create a table of ``rows`` rows, batch by batch."""
    schema = batch(0, 1).schema
    table = lakeformat.create(path, schema, record_key="id", **options)
    parts = (batch(start, min(STEP, rows - start)) for start in range(0, rows, STEP))
    table.bulk_insert(pa.RecordBatchReader.from_batches(schema, parts))
    return table


@pytest.fixture
def folder() -> Iterator[Path]:
    """Yield a folder that is deleted after the test, because the tables are large."""
    with tempfile.TemporaryDirectory() as name:
        yield Path(name)


@pytest.mark.slow
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="only Linux counts private memory in RLIMIT_DATA")
def test_upsert_of_a_thousand_rows_into_a_large_table_stays_within_memory(folder: Path) -> None:
    table = load(folder / "t", ROWS)
    assert len(table.snapshot().files) <= 3
    assert sum(part.nbytes for part in table.to_batches(meta_columns=True)) > 2 * LIMIT_BYTES
    assert run_limited(folder / "t", "read") == {"error": "MemoryError"}

    counts = run_limited(folder / "t", "upsert")

    wanted = np.linspace(0, ROWS + CHANGED // 2, CHANGED, dtype="int64")
    stored = int((wanted < ROWS).sum())
    assert 0 < stored < CHANGED
    assert counts == {"incoming": CHANGED, "inserted": CHANGED - stored, "updated": stored, "deleted": 0}
    rows = table.to_arrow(["id", "a", "d", "text"], meta_columns=False).sort_by("id")
    ids = np.asarray(rows["id"])
    assert np.array_equal(ids, np.union1d(np.arange(ROWS), wanted))
    changed = np.isin(ids, wanted)
    assert rows.filter(pa.array(changed))["text"].unique().to_pylist() == ["changed"]
    kept = rows.filter(pa.array(~changed))
    assert kept["text"].slice(0, 100).to_pylist() == [
        TEXTS[int(id_) % len(TEXTS)].as_py() for id_ in ids[~changed][:100]
    ]
    for name in ("a", "d"):
        assert (np.asarray(rows[name])[changed] == -1).all()
        before = np.concatenate([np.asarray(batch(start, STEP)[name]) for start in range(0, ROWS, STEP)])
        assert np.array_equal(np.asarray(kept[name]), before[ids[~changed]])


def merge_peaks(path: Path, row_groups: int, monkeypatch: pytest.MonkeyPatch) -> tuple[int, int]:
    """Merge a hundred rows into one file of ``row_groups`` row groups. Return the peak bytes of Arrow and of Python."""
    rows = row_groups * ROW_GROUP_ROWS
    options = {"hoodie.parquet.max.file.size": 1 << 30}
    table = load(path, rows, **options)
    assert [file.partition_path for file in table.snapshot().files] == [""]
    ids = np.linspace(0, rows - 1, 100, dtype="int64")
    changes = pa.table({"id": ids, **{name: np.full(100, -1) for name in "abcd"}, "text": ["changed"] * 100})
    arrow = pa.proxy_memory_pool(pa.system_memory_pool())
    with monkeypatch.context() as patch:
        patch.setattr(pa, "system_memory_pool", lambda: arrow)  # Writes take their memory from it.
        tracemalloc.start()
        try:
            report = lakeformat.Table(LocalStorage(str(path))).upsert(changes).report
            _, python = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
    assert (report["rows"]["updated"], report["files"]["merged"]) == (100, 1)
    return arrow.max_memory(), python


@pytest.mark.slow
def test_a_merge_takes_no_more_memory_for_more_row_groups(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    small, large = 3, 12
    arrow_small, python_small = merge_peaks(folder / "small", small, monkeypatch)
    arrow_large, python_large = merge_peaks(folder / "large", large, monkeypatch)
    row_group_bytes = batch(0, ROW_GROUP_ROWS).nbytes
    assert row_group_bytes / 4 < arrow_small
    assert arrow_large < 1.2 * arrow_small
    # The file's filter takes three bytes a row, in five copies while it is decoded and encoded. A sixth would be 18.
    assert python_large - python_small < 17 * (large - small) * ROW_GROUP_ROWS
