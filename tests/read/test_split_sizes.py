"""Tasks read even amounts of bytes: a narrow read of wide files takes fewer tasks."""

from __future__ import annotations

import random
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import lakeformat
from lakeformat.read.query import resolve_query
from lakeformat.read.run.session import plan_read

FILES, ROWS = 12, 2_000
LIMIT = 100_000


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> lakeformat.Table:
    """Return a table of twelve files whose texts are twelve times as wide as their numbers."""
    generator = random.Random(7)
    schema = pa.schema([("id", pa.int64()), ("x", pa.int64()), ("note", pa.string())])
    options = {"hoodie.parquet.small.file.limit": 0, "hoodie.parquet.compression.codec": "uncompressed"}
    made = lakeformat.create(tmp_path_factory.mktemp("wide") / "t", schema, record_key="id", **options)
    for file in range(FILES):
        numbers = [generator.getrandbits(63) for _ in range(ROWS)]
        notes = [generator.randbytes(48).hex() for _ in range(ROWS)]
        made.insert(pa.table([range(file * ROWS, (file + 1) * ROWS), numbers, notes], schema=schema))
    return made


def bytes_read(table: lakeformat.Table, paths: set[str], columns: set[str]) -> int:
    """Return the bytes of these columns in these files, according to the footers."""
    total = 0
    for path in paths:
        group = pq.read_metadata(Path(table.context.storage.location) / path).row_group(0)
        chunks = [group.column(at) for at in range(group.num_columns)]
        total += sum(chunk.total_compressed_size for chunk in chunks if chunk.path_in_schema in columns)
    return total


@pytest.mark.parametrize(("columns", "where"), [(["x"], None), (["x", "id"], "x > 5"), (["note", "x"], None)])
def test_split_size_counts_the_bytes_of_the_read_columns(
    columns: list[str], where: str | None, table: lakeformat.Table
) -> None:
    snapshot = table.snapshot()
    query = resolve_query(snapshot.columns("t"), table.options, columns=columns, where=where)
    plan = plan_read(table.context.storage, snapshot, query, split_bytes=LIMIT)
    sizes = [bytes_read(table, {part.path for part in split.parts}, set(columns)) for split in plan.splits]
    a_file = max(bytes_read(table, {file.path}, set(columns)) for file in snapshot.files)
    assert sum(len(split.parts) for split in plan.splits) == FILES
    assert max(sizes) <= max(LIMIT, a_file) * 1.2
    assert min(sizes[:-1], default=LIMIT) >= LIMIT * 0.6 or a_file > LIMIT * 0.6


def test_a_few_megabytes_are_one_task(table: lakeformat.Table) -> None:
    snapshot = table.snapshot()
    query = resolve_query(snapshot.columns("t"), table.options, columns=["x"])
    assert len(plan_read(table.context.storage, snapshot, query, split_bytes=1 << 30, at_least=8).splits) == 1
