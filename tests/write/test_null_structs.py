"""Null structs with required fields, as every outer join makes them, are written as Spark's Parquet writes them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import lakeformat
from tests.helpers import hudi_rs
from tests.helpers.commit_files import edit_commit

INNER = pa.struct([pa.field("a", pa.int64(), nullable=False), pa.field("b", pa.string())])
OUTER = pa.struct([pa.field("in", INNER, nullable=False)])
#: A required child that is null where its parent is null, as Spark passes it.
VALUES = pa.StructArray.from_arrays(
    [pa.array([1, None, 3]), pa.array(["x", None, None])], fields=list(INNER), mask=pa.array([False, True, False])
)
ENDS = pa.array([0, 2, 3], pa.int32())
KEYS = pa.array(["k", "l", "m"])
#: Column -> its values in two rows.
COLUMNS = {
    "s": VALUES.slice(1),
    "o": pa.StructArray.from_arrays([VALUES.slice(1)], fields=list(OUTER), mask=pa.array([True, False])),
    "l": pa.ListArray.from_arrays(ENDS, VALUES),
    "ll": pa.LargeListArray.from_arrays(ENDS.cast(pa.int64()), VALUES, type=pa.large_list(pa.field("item", INNER))),
    "fl": pa.FixedSizeListArray.from_arrays(VALUES.take(pa.array([0, 1, 1, 2])), 2),
    "m": pa.MapArray.from_arrays(ENDS, KEYS, VALUES, type=pa.map_(pa.string(), pa.field("value", INNER))),
}


def rows(*ids: int) -> pa.Table:
    return pa.table({"id": pa.array(ids, pa.int64()), **COLUMNS})


def has_required(kind: pa.DataType) -> bool:
    fields = [kind.item_field] if pa.types.is_map(kind) else []
    if pa.types.is_struct(kind) or pa.types.is_list(kind):
        fields = [kind.field(at) for at in range(kind.num_fields)]
    return any(not field.nullable or has_required(field.type) for field in fields)


def read_rows(table: lakeformat.Table) -> dict[int, dict[str, Any]]:
    """Return the rows. Check that hudi-rs reads the same."""
    found = {r["id"]: {c: r[c] for c in r if not c.startswith("_hoodie")} for r in hudi_rs.assert_same_rows(table)}
    footer = pq.read_schema(Path(table.context.storage.location) / table.snapshot().files[0].path)
    assert not any(has_required(field.type) for field in footer)
    return found


def expected_rows(given: pa.Table) -> dict[int, dict[str, Any]]:
    return {row["id"]: row for row in given.to_pylist(maps_as_pydicts="strict")}


@pytest.mark.parametrize("operation", ["upsert", "insert", "bulk_insert", "overwrite"])
def test_null_structs_are_written_merged_clustered_and_updated(operation: str, tmp_path: Path) -> None:
    table = lakeformat.create(tmp_path / "t", rows(0, 1).schema, record_key="id")
    getattr(table, operation)(rows(1, 2))
    table.upsert(rows(2, 3))
    expected = expected_rows(rows(1, 2)) | expected_rows(rows(2, 3))
    assert read_rows(table) == expected
    table.update({"s": None, "o": {"in": {"a": 7, "b": None}}}, where="id = 1")
    expected[1] |= {"s": None, "o": {"in": {"a": 7, "b": None}}}
    table.cluster(by="id")
    assert read_rows(table) == expected
    more = pa.struct([*INNER, pa.field("c", pa.int64(), nullable=False)])
    nothing = [pa.nulls(1, field.type) for field in more]
    grown = pa.StructArray.from_arrays(nothing, fields=list(more), mask=pa.array([True]))
    last = rows(8, 9).slice(0, 1).set_column(1, "s", grown)
    table.upsert(last)
    expected |= expected_rows(last)
    for row in expected.values():
        row["s"] = row["s"] and {**row["s"], "c": None}
    assert read_rows(table) == expected


def test_a_table_whose_fields_are_required_takes_null_structs(tmp_path: Path) -> None:
    """Another writer may have made such a table."""
    table = lakeformat.create(tmp_path / "t", rows(0, 1).schema, record_key="id")
    table.insert(rows(1, 2))
    commit = next((tmp_path / "t" / ".hoodie").glob("*.commit"))
    edit_commit(commit, lambda text: text.replace('[\\"null\\",\\"long\\"],\\"default\\":null}', '\\"long\\"}'))
    assert has_required(table.snapshot().columns("t").field("s").type)
    table.update({"s": None}, where="id = 2")
    assert read_rows(table)[2]["s"] is None
    table.upsert(rows(3, 4))
    assert read_rows(table)[4] == expected_rows(rows(3, 4))[4]
