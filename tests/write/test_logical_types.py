"""VECTOR, BLOB and VARIANT of Hudi 1.2: read as Hudi reads them, written as Hudi stores them. Oracles: Hudi, a dict."""

from __future__ import annotations

import base64
import json
import math
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import lakeformat
from lakeformat import SchemaMismatchError, Table
from tests.helpers.fixture_tables import read_expectations, unpack

Row = dict[str, Any]
KINDS = ("cow", "mor")
COLUMNS = ["id", "v", "w", "t", "b", "ts"]
VECTORS = {"v": "VECTOR(3)", "w": "VECTOR(2, DOUBLE)", "t": "VECTOR(4, INT8)"}
FILE = {"external_path": "/none", "offset": None, "length": 3, "managed": True}


def expected(name: str) -> dict[int, Row]:
    rows = [{column: row[column] for column in COLUMNS} for row in read_expectations(name)["snapshot"]]
    for row in rows:
        if row["b"] is not None and row["b"]["data"] is not None:
            row["b"]["data"] = base64.b64decode(row["b"]["data"])
    return {row["id"]: row for row in rows}


def found(table: Table) -> dict[int, Row]:
    return {row["id"]: row for row in lakeformat.open(table.path).to_arrow(columns=COLUMNS).to_pylist()}


def stored_types(schema_text: str) -> dict[str, Row]:
    """Return the Avro type of each column with a logical type, by what Hudi's parser asks of it."""
    asked = ("type", "size", "logicalType", "dimension", "elementType", "storageBacking")
    types = {field["name"]: field["type"][-1] for field in json.loads(schema_text)["fields"]}
    return {
        name: {key: kind.get(key) for key in asked}
        for name, kind in types.items()
        if isinstance(kind, dict) and "logicalType" in kind
    }


@pytest.mark.parametrize("kind", KINDS)
def test_a_table_of_hudi_keeps_its_types_through_every_write(kind: str, tmp_path: Path) -> None:
    name = f"hudi_rest/v9_{kind}_vector_blob"
    table, model = lakeformat.open(unpack(name, tmp_path)), expected(name)
    assert found(table) == model
    written = [
        {"id": 1, "v": [9.0, 0.5, math.inf], "w": None, "t": [0, -128, 127, 1], "b": None, "ts": 5},
        {"id": 7, "v": None, "w": [0.1, -0.2], "t": None, "b": {"type": "OUT_OF_LINE", "data": None, "reference": FILE},
         "ts": 5},
    ]  # fmt: skip
    table.upsert(written)
    model |= {row["id"]: row for row in written}
    assert found(table) == model
    table.update({"ts": 6}, where="id = 7")
    table.upsert(pa.table({"id": pa.array([3], pa.int32()), "ts": [9]}), partial_update=True)
    model[7]["ts"], model[3]["ts"] = 6, 9
    if kind == "mor":
        table.compact()
    table.cluster()
    assert found(table) == model
    assert {column: table.schema.field(column).metadata[b"hudi_type"].decode() for column in VECTORS} == VECTORS
    newest = max(_base_files(table), key=_time_of)
    metadata = pq.read_metadata(newest)
    assert metadata.metadata[b"hoodie.vector.columns"].decode() == ",".join(f"{n}:{t}" for n, t in VECTORS.items())
    physical = {metadata.schema.column(at).name: metadata.schema.column(at) for at in range(metadata.num_columns)}
    assert {physical[column].physical_type for column in VECTORS} == {"FIXED_LEN_BYTE_ARRAY"}
    theirs = stored_types(read_expectations(name)["properties"]["hoodie.table.create.schema"])
    assert stored_types(metadata.metadata[b"parquet.avro.schema"].decode()) == theirs


def _base_files(table: Table) -> list[Path]:
    return [file for file in Path(table.path).rglob("*.parquet") if ".hoodie" not in file.parts]


def _time_of(file: Path) -> str:
    return file.stem.rpartition("_")[2]


@pytest.mark.parametrize("kind", ["COPY_ON_WRITE", "MERGE_ON_READ"])
@pytest.mark.parametrize("ordering", ["ts", "text"])  # Ordered by texts, log files hold Avro.
def test_a_new_table_stores_what_the_metadata_names(ordering: str, kind: str, tmp_path: Path) -> None:
    element = pa.list_(pa.float32())
    schema = pa.schema([
        ("id", pa.int64()), ("ts", pa.int64()), ("text", pa.string()),
        pa.field("a", element, metadata={"hudi_type": "VECTOR(2)"}),
        pa.field("z", element, metadata={"hudi_type": "VECTOR(2)"}),
        ("plain", pa.list_(pa.float32(), 2)),
    ])  # fmt: skip
    table = lakeformat.create(tmp_path / "t", schema, record_key="id", ordering=ordering, table_type=kind)
    rows = [{"id": n, "ts": n, "text": f"{n}", "a": [n, 0.5], "z": None, "plain": [1.0, n]} for n in range(3)]
    table.upsert(pa.Table.from_pylist(rows, schema))
    later = [{**rows[1], "z": [7.0, 8.0], "ts": 9, "text": "9"}, {**rows[2], "a": None, "ts": 9, "text": "9"}]
    table.upsert(pa.Table.from_pylist(later, schema))
    again = lakeformat.open(tmp_path / "t").to_arrow()
    assert sorted(again.to_pylist(), key=lambda row: row["id"]) == [rows[0], *later]
    assert again.schema.field("plain").type.value_type == pa.float32()
    assert again.schema.field("plain").metadata is None
    copy = lakeformat.create(tmp_path / "copy", again.schema, record_key="id")
    copy.upsert(again)
    assert copy.schema.field("z").metadata == {b"hudi_type": b"VECTOR(2)"}


@pytest.mark.parametrize(
    ("rows", "text"),
    [
        ({"v": pa.array([[1.0, 2.0]], pa.list_(pa.float32()))}, "column 'v' .* expected size"),
        ({"v": pa.array([[1.0, None, 2.0]], pa.list_(pa.float32()))}, "column 'v' .* null"),
        ({"v": pa.array([[1.0, 2.0, 3.0]], pa.list_(pa.float64()))}, "column 'v' is list.*double"),
        ({"t": pa.array([[1, 2, 3, 128]], pa.list_(pa.int64()))}, "column 't' .*128"),
        ({"b": pa.array([{"type": "ELSEWHERE", "data": None, "reference": None}])}, "BLOB.*type is not INLINE"),
        ({"b": pa.array([{"type": None, "data": b"x", "reference": None}])}, "BLOB.*type is null"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("kind", KINDS)
def test_values_that_do_not_fit_are_refused(kind: str, rows: dict[str, pa.Array], text: str, tmp_path: Path) -> None:
    name = f"hudi_rest/v9_{kind}_vector_blob"
    table = lakeformat.open(unpack(name, tmp_path))
    with pytest.raises(SchemaMismatchError, match=text):
        table.upsert(pa.table({"id": pa.array([1], pa.int32()), "ts": [9], **rows}), partial_update=True)
    assert found(table) == expected(name)


@pytest.mark.parametrize("named", ["VECTOR", "VECTOR(0)", "VECTOR(3, HALF)", "BLOB"])
def test_a_name_of_no_type_is_refused(named: str, tmp_path: Path) -> None:
    field = pa.field("v", pa.list_(pa.float32()), metadata={"hudi_type": named})
    with pytest.raises(SchemaMismatchError, match="column 'v' has the hudi_type"):
        lakeformat.create(tmp_path / "t", pa.schema([("id", pa.int64()), field]), record_key="id")


@pytest.mark.parametrize("kind", ["COPY_ON_WRITE", "MERGE_ON_READ"])
def test_variants_pass_through_as_their_two_binaries(kind: str, tmp_path: Path) -> None:
    mark = pa.field("metadata", pa.binary(), metadata={"variant": "true"})
    schema = pa.schema([("id", pa.int64()), ("v", pa.struct([("value", pa.binary()), mark]))])
    table = lakeformat.create(tmp_path / "t", schema, record_key="id", table_type=kind)
    one, other = ({"value": bytes([8, n]), "metadata": b"\x01\x00\x00"} for n in (1, 2))
    table.upsert(pa.Table.from_pylist([{"id": 1, "v": one}, {"id": 2, "v": None}], schema))
    table.upsert(pa.Table.from_pylist([{"id": 2, "v": other}], schema))
    rows = lakeformat.open(tmp_path / "t").to_arrow()
    assert {row["id"]: row["v"] for row in rows.to_pylist()} == {1: one, 2: other}
    assert rows.schema.field("v").metadata == {b"hudi_type": b"VARIANT"}
    text = pq.read_metadata(next((tmp_path / "t").glob("*.parquet"))).metadata[b"parquet.avro.schema"]
    assert stored_types(text.decode())["v"]["logicalType"] == "variant"
