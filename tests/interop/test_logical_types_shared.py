"""VECTOR and BLOB columns that Hudi 1.2.0 and lakeformat write in turn: both read the same values."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

import lakeformat
from tests.helpers.fixture_tables import unpack
from tests.helpers.hudi_spark import Hudi

pytestmark = pytest.mark.interop

_COLUMNS = ["id", "v", "w", "t", "b"]
_FILE = {"external_path": "/none", "offset": None, "length": 3, "managed": True}
_ROWS = [
    (1, [0.5, 2.0, 3.0], None, [0, 0, 0, -128], {"type": "OUT_OF_LINE", "data": None, "reference": _FILE}),
    (2, None, [0.1, 1.5], None, {"type": "INLINE", "data": b"\1\2", "reference": None}),
    (4, [7.0, 8.0, 9.0], None, None, None),
]


def _found(rows: pa.Table) -> list[tuple[object, ...]]:
    return sorted((tuple(row.values()) for row in rows.select(_COLUMNS).to_pylist()), key=lambda row: row[0])


@pytest.mark.parametrize("hudi", ["1.2.0"], indirect=True)
@pytest.mark.parametrize("kind", ["cow", "mor"])
def test_hudi_reads_and_rewrites_vectors_and_blobs_that_we_wrote(kind: str, hudi: Hudi, tmp_path: Path) -> None:
    path = unpack(f"hudi_rest/v9_{kind}_vector_blob", tmp_path)
    table = lakeformat.open(path)
    table.upsert([dict(zip([*_COLUMNS, "ts"], (*row, 5), strict=True)) for row in _ROWS])
    kept = [*_ROWS[:2], (3, None, None, None, None), _ROWS[2]]
    assert _found(table.to_arrow()) == _found(hudi.read(path)) == kept
    gone = pa.table({"id": pa.array([3], pa.int32()), "ts": [9]})
    options = {"hoodie.write.table.version": "9", "hoodie.metadata.enable": "false"}
    hudi.delete(path, gone, **options)  # It writes our rows again, or a log file beside them.
    assert _found(hudi.read(path)) == _found(lakeformat.open(path).to_arrow()) == _ROWS


@pytest.mark.parametrize("hudi", ["1.2.0"], indirect=True)
@pytest.mark.parametrize("kind", ["COPY_ON_WRITE", "MERGE_ON_READ"])
def test_hudi_reads_two_vectors_of_one_shape_in_a_table_of_ours(kind: str, hudi: Hudi, tmp_path: Path) -> None:
    vectors = [pa.field(name, pa.list_(pa.float32()), metadata={"hudi_type": "VECTOR(2)"}) for name in ("v", "w")]
    schema = pa.schema([("id", pa.int32()), *vectors])
    options = {"hoodie.write.table.version": "9"}
    table = lakeformat.create(tmp_path / "t", schema, record_key="id", table_type=kind, **options)
    rows = [{"id": 1, "v": [1.0, 2.0], "w": None}, {"id": 2, "v": None, "w": [3.0, 4.0]}]
    table.upsert(pa.Table.from_pylist(rows, schema))
    rows[0]["w"] = [0.5, -0.5]
    table.upsert(pa.Table.from_pylist(rows[:1], schema))
    found = hudi.read(tmp_path / "t").select(["id", "v", "w"]).to_pylist()
    assert sorted(found, key=lambda row: row["id"]) == rows
