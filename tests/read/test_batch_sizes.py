"""The batches of a read are few and even, for small row groups and for filters that leave few rows."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

import lakeformat
from lakeformat.read.run.batches import BATCH_ROWS
from tests.helpers.tables import a_schema

SCHEMA = a_schema(id="int64", x="int64", note="string")
ROWS, GROUP = 150_000, 4_000


def make_table(path: Path, rows: int, width: int, group: int) -> lakeformat.Table:
    table = lakeformat.create(path, SCHEMA, record_key="id", **{"lakeformat.parquet.row.group.rows": group})
    columns = [range(rows), [at % 100 for at in range(rows)], [f"{at:0{width}d}" for at in range(rows)]]
    table.bulk_insert(pa.table(columns, schema=SCHEMA))
    return table


@pytest.mark.parametrize("where", [None, "x < 3", "x = 200 or note is null"])
def test_small_row_groups_are_combined_into_batches(where: str | None, tmp_path: Path) -> None:
    table = make_table(tmp_path / "t", ROWS, 12, GROUP)
    (file,) = table.snapshot().files
    path = Path(table.context.storage.location) / file.path
    assert pq.read_metadata(path).num_row_groups == -(-ROWS // GROUP)
    batches = list(table.to_batches(columns=SCHEMA.names, where=where))
    rows = sum(batch.num_rows for batch in batches)
    assert len(batches) == -(-rows // (BATCH_ROWS // GROUP * GROUP))
    assert max((batch.num_rows for batch in batches), default=0) <= BATCH_ROWS
    raw = pq.read_table(path).select(SCHEMA.names)
    if where:
        raw = raw.filter((pc.field("x") < 3) if where == "x < 3" else pc.scalar(False))
    assert pa.Table.from_batches(batches, SCHEMA) == raw


def test_wide_rows_are_bounded_by_their_bytes(tmp_path: Path) -> None:
    table = make_table(tmp_path / "t", 4_000, 10_000, 250)
    batches = list(table.to_batches())
    assert sum(batch.num_rows for batch in batches) == 4_000
    assert 3 <= len(batches) <= 5
    assert max(batch.nbytes for batch in batches) <= 17 << 20
