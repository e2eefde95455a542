"""VECTOR and BLOB columns that Hudi 1.2.0 and lakeformat write in turn: both read the same values and types."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

import lakeformat
from tests.helpers.hudi_spark import Hudi

pytestmark = pytest.mark.interop

_REFERENCE = {"external_path": "/none", "offset": None, "length": 3, "managed": True}


def _found(rows: pa.Table) -> list[tuple[object, ...]]:
    columns = rows.select(["id", "v", "u", "w", "t", "b"]).to_pylist()
    return sorted((tuple(row.values()) for row in columns), key=lambda row: row[0])


@pytest.mark.parametrize("hudi", ["1.2.0"], indirect=True)
@pytest.mark.parametrize("kind", ["cow", "mor"])
def test_both_read_vectors_and_blobs_of_either(kind: str, hudi: Hudi, tmp_path: Path) -> None:
    path = tmp_path / "t"
    hudi.run(
        f"create table logical_{kind} (id int, v vector(3), u vector(3), w vector(2, DOUBLE), t vector(4, INT8), "
        f"b blob, ts bigint) using hudi location '{path}' "
        f"tblproperties (primaryKey='id', preCombineField='ts', type='{kind}')",
        f"insert into logical_{kind} select 1 id, array(float(1.5), float(2), float(3)) v, "
        "array(float(4), float(5), float(6)) u, array(0.5d, 1.5d) w, array(1Y, -2Y, 3Y, 127Y) t, "
        "named_struct('type', 'INLINE', 'data', X'0102', 'reference', null) b, 1L ts",
    )
    model = {1: ([1.5, 2.0, 3.0], [4.0, 5.0, 6.0], [0.5, 1.5], [1, -2, 3, 127], _blob(b"\1\2"))}
    table = lakeformat.open(path)
    model |= {
        1: ([0.1, 2.0, 3.0], None, [0.1, 1.5], None, {"type": "OUT_OF_LINE", "data": None, "reference": _REFERENCE}),
        2: (None, [7.0, 8.0, 9.0], None, [0, 0, 0, -128], None),
    }
    names = ["id", "v", "u", "w", "t", "b", "ts"]
    for ours in model:
        table.upsert([dict(zip(names, (ours, *model[ours], 2), strict=True))])
    expected = [
        (key, *(pytest.approx(value) if isinstance(value, list) else value for value in model[key])) for key in model
    ]
    assert _found(table.to_arrow()) == expected
    assert _found(hudi.read(path)) == expected
    described = hudi.sql(f"describe logical_{kind}")
    assert {"array<float>", "array<double>", "array<tinyint>"} <= set(described["data_type"].to_pylist())
    hudi.run(f"update logical_{kind} set ts = 5 where id = 2")  # noqa: S608 (it rewrites or logs our rows)
    assert _found(hudi.read(path)) == _found(lakeformat.open(path).to_arrow()) == expected


def _nearly(value: object) -> object:
    """Return a value that equals the numbers of a vector as floats hold them."""
    return pytest.approx(value) if isinstance(value, list) else value


def _blob(data: bytes) -> dict[str, object]:
    return {"type": "INLINE", "data": data, "reference": None}
