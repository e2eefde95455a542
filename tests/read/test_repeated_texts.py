"""Texts with few values survive their dictionaries unchanged."""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.helpers.skipping_tables import new_table

ROWS = 3000
COLUMNS = {
    "constant": ["always the same"] * ROWS,
    "few": [None if n % 7 == 0 else f"city {n % 5}" for n in range(ROWS)],
    "nulls": [None] * ROWS,
    "sparse": ["once" if n == 1500 else None for n in range(ROWS)],
    # The first row group does not show how many values follow.
    "late": ["early"] * 1000 + [f"later {n}" for n in range(2000)],
    "distinct": [f"row {n}" for n in range(ROWS)],
    "code": [bytes([n % 3]) for n in range(ROWS)],
}


CONDITIONS: dict[str, Callable[[int], bool]] = {
    "true": lambda n: True,
    "few = 'city 2'": lambda n: n % 7 != 0 and n % 5 == 2,
    "few is null": lambda n: n % 7 == 0,
}


@pytest.mark.parametrize("where", CONDITIONS)
def test_repeated_texts_are_read_as_dictionaries(where: str) -> None:
    table = new_table(**{"lakeformat.parquet.row.group.rows": 1000})
    schema = pa.schema(
        [("id", pa.int64()), *((name, pa.string()) for name in COLUMNS if name != "code"), ("code", pa.binary())]
    )
    written = pa.table({"id": range(ROWS), **COLUMNS}, schema=schema)
    table.bulk_insert(written)
    (file,) = table.snapshot().files
    first = pq.ParquetFile(table.context.storage.open_input(file.path)).metadata.row_group(0)
    encodings = {first.column(at).path_in_schema: first.column(at).encodings for at in range(first.num_columns)}
    assert "RLE_DICTIONARY" in encodings["few"]
    rows = table.to_arrow(where=where, meta_columns=False).sort_by("id")
    kept = [n for n in range(ROWS) if CONDITIONS[where](n)]
    assert rows.equals(written.take(kept))
    assert rows.schema.equals(written.schema)
