"""A whole table read by threads: the rows and their order are those of one thread, and of the files."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import lakeformat
from lakeformat.errors import CorruptTableError
from tests.helpers.tables import a_schema

SCHEMA = a_schema(id="int64", part="string", x="int64", note="binary")
ROWS, LARGE = 240_000, 16 << 20


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> lakeformat.Table:
    """Return a table with one file of 40 MB in six row groups, and twenty small files."""
    generator = np.random.default_rng(3)
    options = {"hoodie.parquet.small.file.limit": 0, "lakeformat.parquet.row.group.rows": 40_000}
    made = lakeformat.create(
        tmp_path_factory.mktemp("mixed") / "t", SCHEMA, record_key="id", partition_by="part", **options
    )

    def rows(first: int, count: int, part: str) -> pa.Table:
        notes = pa.Array.from_buffers(pa.binary(128), count, [None, pa.py_buffer(generator.bytes(count * 128))])
        columns = [range(first, first + count), pa.repeat(part, count), generator.integers(0, 1000, count)]
        return pa.table([*columns, notes.cast(pa.binary())], schema=SCHEMA)

    made.bulk_insert(rows(0, ROWS, "large"))
    made.bulk_insert(pa.concat_tables([rows(ROWS + at * 500, 500, f"small-{at:02}") for at in range(20)]))
    return made


@pytest.fixture(params=[1, 2, 5])
def cores(request: pytest.FixtureRequest) -> Iterator[int]:
    """Let Arrow use as many threads as on a machine with this many cores."""
    before = pa.cpu_count()
    pa.set_cpu_count(request.param)
    yield request.param
    pa.set_cpu_count(before)


def read_files(table: lakeformat.Table) -> pa.Table:
    """Return the rows that pyarrow reads from the files, one after the other."""
    here = Path(table.context.storage.location)
    files = table.snapshot().files
    assert max(file.size_bytes for file in files) > 2 * LARGE
    return pa.concat_tables([pq.ParquetFile(here / file.path).read(columns=SCHEMA.names) for file in files])


@pytest.mark.parametrize(("columns", "where"), [(None, None), (["x"], None), (["note", "id"], "x < 20")])
def test_parallel_read_keeps_rows_and_order(
    columns: list[str] | None, where: str | None, table: lakeformat.Table, cores: int
) -> None:
    wanted = read_files(table)
    if where:
        wanted = wanted.filter(pa.compute.less(wanted["x"], 20))
    found = table.to_arrow(columns=columns or SCHEMA.names, where=where)
    assert found == wanted.select(columns or SCHEMA.names)


@pytest.mark.usefixtures("cores")
@pytest.mark.parametrize("folder", ["small-11", "large"])
def test_a_damaged_file_is_named(folder: str, table: lakeformat.Table) -> None:
    here = Path(table.context.storage.location)
    victim, *_ = [here / file.path for file in table.snapshot().files if file.partition_path == folder]
    content = victim.read_bytes()
    try:
        victim.write_bytes(content[:2_000] + bytes(64) + content[2_064:])
        with pytest.raises(CorruptTableError, match=victim.name):
            table.to_arrow(meta_columns=True)
        victim.unlink()
        with pytest.raises(CorruptTableError, match=f"{victim.name} is missing; .* run lakeformat check"):
            table.to_arrow()
    finally:
        victim.write_bytes(content)


@pytest.mark.usefixtures("cores")
def test_reader_can_be_dropped_midway(table: lakeformat.Table) -> None:
    batches = table.to_batches()
    first = batches.read_next_batch()
    assert first.column("id").to_pylist() == read_files(table).slice(0, first.num_rows)["id"].to_pylist()
    del batches
    assert table.to_arrow(columns=["id"]).num_rows == ROWS + 20 * 500
