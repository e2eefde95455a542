"""Texts of a megabyte: memory is bounded by bytes, not only by rows.

Each case runs in a process of its own under a limit of private memory, which is far below the size of its rows.
"""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

import lakeformat
from lakeformat.arrow.gather import gather
from tests.helpers.tables import a_schema

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="only Linux limits private memory alone")

MB = 1 << 20
SCHEMA = a_schema(id="int64", part="int64", v="string")

#: A program that does one thing with a table, under a limit on top of the memory after the imports. It prints the
#: result.
SCRIPT = """
import json, re, resource, sys
import numpy, pyarrow as pa, pyarrow.parquet, pyarrow.compute as pc
import lakeformat, lakeformat.table
sys.path.insert(0, sys.argv[5])
from tests.reliability.test_bytes import length_sum, texts

path, what, limit, rows = sys.argv[1], sys.argv[2], *map(int, sys.argv[3:5])
held = int(re.search(r"VmData:\\s+(\\d+) kB", open("/proc/self/status").read())[1]) * 1024
resource.setrlimit(resource.RLIMIT_DATA, (held + limit, held + limit))
pa.set_memory_pool(pa.system_memory_pool())
table = lakeformat.open(path, **json.loads(sys.argv[6]))
try:
    if what == "to_arrow":
        outcome = table.to_arrow().num_rows
    elif what == "read":
        outcome = [length_sum(table.to_batches(["id", "v"])), table.to_arrow(["id"], where="v like '3%'").num_rows]
    elif what == "upsert":
        outcome = table.upsert(texts(rows // 2, rows, step=7)).report["rows"]
    elif what == "load":
        outcome = table.upsert(texts(0, rows)).report["rows"]
    elif what == "merge":
        merge = table.merge(texts(rows // 2, rows, step=7)).when_matched_delete("source.id < %d" % rows)
        outcome = merge.when_matched_update().when_not_matched_insert().execute().report["rows"]
    elif what == "delete":
        outcome = table.delete(where="part = 1").report["rows"]
    elif what == "update":
        outcome = table.update({"v": "z" * (1 << 20)}, where="part = 0").report["rows"]
    elif what == "cluster":
        outcome = table.cluster(by="id").report["rows"]
except MemoryError:
    outcome = "MemoryError"
print(json.dumps(outcome))
"""


def texts(start: int, rows: int, *, step: int = 1, size: int = MB) -> pa.RecordBatchReader:
    """Return rows with long texts that contain their id and compress well."""

    def batches() -> Iterator[pa.RecordBatch]:
        for first in range(start, start + rows, 25):
            ids = np.arange(first, min(first + 25, start + rows))
            long = [f"{id_ * step % 10} {id_} ".ljust(size, "x") for id_ in ids.tolist()]
            yield pa.record_batch([ids, ids % 2, long], schema=SCHEMA)

    return pa.RecordBatchReader.from_batches(SCHEMA, batches())


def length_sum(batches: Any) -> int:
    """Return the number of characters of all texts, batch by batch."""
    return int(sum(pc.sum(pc.utf8_length(batch.column("v"))).as_py() or 0 for batch in batches))


def small_stacks() -> None:
    """Reduce the stack that each thread reserves, because the memory limit counts all of it."""
    resource.setrlimit(resource.RLIMIT_STACK, (MB, MB))


def run_limited(path: Path, what: str, limit: int, rows: int, options: dict[str, Any]) -> Any:
    root = str(Path(__file__).parents[2])
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, str(path), what, str(limit), str(rows), root, json.dumps(options)],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "ARROW_DEFAULT_MEMORY_POOL": "system", "MALLOC_ARENA_MAX": "2"},
        preexec_fn=small_stacks,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.fixture
def folder() -> Iterator[Path]:
    """Yield a folder that is deleted after the test, because the stages are large."""
    with tempfile.TemporaryDirectory() as name:
        yield Path(name)


#: Rows of a megabyte, the options, and the private memory that each step may take.
SMALL_BUFFERS = {
    "lakeformat.write.buffer.bytes": 16 * MB,
    "hoodie.parquet.block.size": 16 * MB,
    "lakeformat.clustering.buffer.bytes": 64 * MB,
}
FEW = (500, SMALL_BUFFERS, 460 * MB)
MANY = (3_000, {}, 2_000 * MB)


@pytest.mark.slow
@pytest.mark.budget(60)
@pytest.mark.parametrize(
    ("rows", "options", "limit"),
    [pytest.param(*FEW, id="few"), pytest.param(*MANY, id="many", marks=pytest.mark.nightly)],
)
def test_megabytes_a_value_through_every_operation(
    folder: Path, rows: int, options: dict[str, Any], limit: int
) -> None:
    path, half = folder / "t", rows // 2
    lakeformat.create(path, SCHEMA, record_key="id")

    def run(what: str) -> Any:
        return run_limited(path, what, limit, rows, options)

    assert run("load") == {"incoming": rows, "inserted": rows, "updated": 0, "deleted": 0}
    assert run("to_arrow") == "MemoryError"
    assert run("read") == [rows * MB, rows // 10]
    assert run("upsert") == {"incoming": rows, "inserted": half, "updated": half, "deleted": 0}
    assert run("merge") == {"incoming": rows, "inserted": 0, "updated": half, "deleted": half}
    assert run("delete")["deleted"] == half
    assert run("update")["updated"] == half
    run("cluster")

    table = lakeformat.open(path)
    left = np.array([id_ for id_ in range(rows + half) if id_ % 2 == 0 and not half <= id_ < rows])
    assert np.array_equal(np.asarray(table.to_arrow(["id"])["id"]), left)
    assert all(pc.all(pc.equal(batch.column(0), "z" * MB)).as_py() for batch in table.to_batches(["v"]))


def write_foreign(path: Path, rows: int) -> None:
    """Rewrite the base file as another writer might: one row group of three long texts, many times each."""
    (file,) = path.glob("*.parquet")
    footer = pq.ParquetFile(file).metadata.metadata
    stored = pq.read_table(file)
    long = pa.array([f"{at}".ljust(40_000, "y") for at in range(3)])
    texts = pa.DictionaryArray.from_arrays(pa.array(np.arange(rows) % 3, pa.int32()), long)
    at = stored.schema.get_field_index("v")
    stored = stored.set_column(at, pa.field("v", texts.type), texts).replace_schema_metadata(footer)
    pq.write_table(stored, file, row_group_size=rows, use_dictionary=["v"], compression="zstd")
    assert file.stat().st_size < rows * 1_000


@pytest.mark.budget(40)
@pytest.mark.parametrize(
    "rows", [pytest.param(12_000, marks=pytest.mark.slow), pytest.param(70_000, marks=pytest.mark.nightly)]
)
def test_a_foreign_row_group_that_repeats_long_texts(folder: Path, rows: int) -> None:
    path = folder / "t"
    table = lakeformat.create(path, SCHEMA, record_key="id")
    ids = np.arange(rows)
    table.bulk_insert(pa.record_batch([ids, ids % 2, [""] * rows], schema=SCHEMA))
    write_foreign(path, rows)

    def run(what: str) -> Any:
        return run_limited(path, what, 400 * MB, 50, SMALL_BUFFERS)

    assert run("to_arrow") == "MemoryError"
    assert run("read")[0] == rows * 40_000
    assert run("upsert")["updated"] == 50
    assert run("delete")["deleted"] == rows // 2
    run("cluster")
    assert length_sum(lakeformat.open(path).to_batches(["v"])) == 25 * MB + (rows // 2 - 25) * 40_000


@pytest.mark.nightly
@pytest.mark.parametrize("kind", ["text", "list", "struct"])
def test_more_than_two_gigabytes_in_a_column_are_gathered_in_chunks(kind: str) -> None:
    """An Arrow array of text ends at 2 GiB, and so do the values inside lists and structs."""
    long = pa.array([str(at) * MB for at in range(8)])
    values = {
        "text": long,
        "list": pa.ListArray.from_arrays(pa.array(np.arange(9, dtype=np.int32)), long),
        "struct": pa.StructArray.from_arrays([long], ["v"]),
    }[kind]
    at = np.arange(2_200) % 8
    found = gather(pa.table({"v": pa.chunked_array([values, values])}), at)["v"]
    found.validate(full=True)
    assert (len(found), found.num_chunks > 1) == (2_200, True)
    assert found.slice(2_199).to_pylist() == values.slice(2_199 % 8, 1).to_pylist()
