"""A folder of plain Parquet that lakeformat made a table: Apache Hudi reads it and upserts into it."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.dataset as ds
import pytest

import lakeformat
from tests.helpers.hudi_spark import Hudi

pytestmark = [pytest.mark.interop, pytest.mark.nightly]

NAMES = ("id", "day", "n")


def rows(ids: range, n: int) -> pa.Table:
    return pa.table({"id": list(ids), "day": [f"2026-01-0{id_ % 3 + 1}" for id_ in ids], "n": [n] * len(ids)})


def read_rows(table: pa.Table) -> list[dict[str, object]]:
    return table.select(NAMES).sort_by("id").to_pylist()


@pytest.mark.parametrize("hudi", ["1.2.0"], indirect=True)
def test_hudi_writes_to_a_converted_table(hudi: Hudi, tmp_path: Path) -> None:
    path = tmp_path / "t"
    parts = ds.partitioning(pa.schema([("day", pa.string())]), flavor="hive")
    ds.write_dataset(rows(range(9), 1), path, format="parquet", partitioning=parts)
    lakeformat.adopt(path, record_key="id", ordering="n")
    assert read_rows(hudi.read(path)) == rows(range(9), 1).to_pylist()
    hudi.write(path, rows(range(6, 12), 2), "upsert", **{"hoodie.write.table.version": "6"})
    wanted = [*rows(range(6), 1).to_pylist(), *rows(range(6, 12), 2).to_pylist()]
    table = lakeformat.open(path)
    assert read_rows(hudi.read(path)) == wanted
    assert read_rows(table.to_arrow()) == wanted
    assert not table.check()
    assert sorted(table.snapshot().slices) == ["day=2026-01-01", "day=2026-01-02", "day=2026-01-03"]
