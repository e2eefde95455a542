"""Avro schema text <-> Arrow schema: Hudi's own texts byte for byte, then the forms of other writers."""

from __future__ import annotations

import io
import json
import re
import zipfile
from typing import Any

import fastavro
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakeformat.codec.avro.schema import from_avro, to_avro, with_meta, without_meta
from lakeformat.codec.stored_types import arrow_type_for_storage, storage_schema
from lakeformat.errors import CorruptTableError, LakeformatError, SchemaMismatchError, UnsupportedTableError
from lakeformat.model.record import META_COLUMNS
from tests.helpers.fixture_tables import FIXTURES, names

TABLES = [*names("hudi_v6"), *names("hudi_mor_v6")]
COMMITS = re.compile(r"[^/]+/\.hoodie/\d+\.(commit|deltacommit|replacecommit)")


def texts_of(table: str) -> list[str]:
    """Return the distinct schema texts in a fixture's commits and Parquet footers."""
    found: dict[str, None] = {}
    with zipfile.ZipFile(FIXTURES / f"{table}.zip") as archive:
        for name in archive.namelist():
            if COMMITS.fullmatch(name):
                found[json.loads(archive.read(name))["extraMetadata"].get("schema") or ""] = None
            elif name.endswith(".parquet"):
                footer = pq.read_metadata(io.BytesIO(archive.read(name))).metadata or {}
                found[footer.get(b"parquet.avro.schema", b"").decode()] = None
    return [text for text in found if text]


def record_of(avro_type: Any, **more: Any) -> str:
    field = {"name": "c", "type": avro_type, **more}
    return json.dumps({"type": "record", "name": "r", "namespace": "n", "fields": [field]})


def read_type(avro_type: Any) -> pa.Field:
    return from_avro(record_of(avro_type), name="x").field("c")


@pytest.mark.parametrize("table", TABLES)
def test_writes_hudis_texts_byte_for_byte(table: str) -> None:
    texts = texts_of(table)
    assert texts
    for text in texts:
        table_name = json.loads(text)["name"].removesuffix("_record")
        assert to_avro(from_avro(text, name=table), table_name=table_name) == text


def test_reads_the_types_that_parquet_holds() -> None:
    with zipfile.ZipFile(FIXTURES / "hudi_mor_v6/mor6_types.zip") as archive:
        (name, *_) = [name for name in archive.namelist() if name.endswith(".parquet")]
        stored = pq.read_schema(io.BytesIO(archive.read(name)))
    read = from_avro(stored.metadata[b"parquet.avro.schema"].decode(), name=name)
    lists = {"arr"}  # Parquet's two-level lists hold no nulls, although the Avro text allows them.
    assert [field for field in read if field.name not in lists] == [
        field.remove_metadata() for field in stored if field.name not in lists
    ]
    assert read.names == stored.names


FIXED = {"type": "fixed", "name": "f", "size": 16}
DECIMAL = {"logicalType": "decimal", "precision": 10, "scale": 2}
TYPES: list[tuple[Any, pa.DataType, bool]] = [
    ("string", pa.string(), False),
    ({"type": "string", "avro.java.string": "String"}, pa.string(), False),
    (["null", {"type": "string", "avro.java.string": "String"}], pa.string(), True),
    (["string", "null"], pa.string(), True),
    (["string"], pa.string(), False),
    ([{"type": "null"}, "long"], pa.int64(), True),
    ({"type": {"type": "int"}}, pa.int32(), False),
    ({"type": "enum", "name": "e", "symbols": ["A"]}, pa.string(), False),
    ({"type": "string", "logicalType": "uuid"}, pa.string(), False),
    ({"type": "bytes", **DECIMAL}, pa.decimal128(10, 2), False),
    ({"type": "bytes", "logicalType": "decimal", "precision": 4}, pa.decimal128(4, 0), False),
    ({**FIXED, **DECIMAL}, pa.decimal128(10, 2), False),
    (FIXED, pa.binary(16), False),
    ({"type": "int", "logicalType": "date"}, pa.date32(), False),
    ({"type": "long", "logicalType": "timestamp-millis"}, pa.timestamp("ms", "UTC"), False),
    ({"type": "long", "logicalType": "timestamp-micros"}, pa.timestamp("us", "UTC"), False),
    ({"type": "long", "logicalType": "local-timestamp-millis"}, pa.timestamp("ms"), False),
    ({"type": "long", "logicalType": "local-timestamp-micros"}, pa.timestamp("us"), False),
    ({"type": "array", "items": "int"}, pa.list_(pa.field("element", pa.int32(), nullable=False)), False),
    ({"type": "array", "items": ["int", "null"]}, pa.list_(pa.field("element", pa.int32())), False),
    (
        {"type": "map", "values": "long", "avro.java.string": "String"},
        pa.map_(pa.string(), pa.field("value", pa.int64(), nullable=False)),
        False,
    ),
]


@pytest.mark.parametrize(("avro_type", "arrow_type", "nullable"), TYPES)
def test_every_avro_type_is_read(avro_type: Any, arrow_type: pa.DataType, nullable: bool) -> None:
    assert read_type(avro_type).equals(pa.field("c", arrow_type, nullable))


def test_references_follow_avros_namespaces() -> None:
    inner = {"type": "record", "name": "p", "fields": [{"name": "x", "type": "int"}]}
    other = {"type": "record", "name": "m.p", "fields": [{"name": "y", "type": ["null", "m.p2", "null"]}]}
    other["fields"] = [
        {"name": "y", "type": {"type": "fixed", "name": "h", "size": 2}},
        {"name": "z", "type": ["null", "h"]},
    ]
    fields = [
        {"name": "a", "type": inner},
        {"name": "b", "type": ["null", "p"]},
        {"name": "c", "type": {"type": "array", "items": "n.p"}},
        {"name": "d", "type": other},
        {"name": "e", "type": "m.h"},
    ]
    text = json.dumps({"type": "record", "name": "n.r", "fields": fields})
    struct = pa.struct([pa.field("x", pa.int32(), nullable=False)])
    halves = [pa.field("y", pa.binary(2), nullable=False), pa.field("z", pa.binary(2))]
    assert from_avro(text, name="x") == pa.schema(
        [
            pa.field("a", struct, nullable=False),
            pa.field("b", struct),
            pa.field("c", pa.list_(pa.field("element", struct, nullable=False)), nullable=False),
            pa.field("d", pa.struct(halves), nullable=False),
            pa.field("e", pa.binary(2), nullable=False),
        ]
    )


UNSUPPORTED: list[Any] = [
    "null",
    "no_such_type",
    [],
    ["null"],
    ["int", "string"],
    ["null", "int", "long"],
    [["null", "int"]],
    {"type": "long", "logicalType": "time-micros"},
    {"type": "int", "logicalType": "time-millis"},
    {"type": "long", "logicalType": "timestamp-nanos"},
    {**FIXED, "size": 12, "logicalType": "duration"},
    {"type": "bytes", "logicalType": "decimal", "precision": 39, "scale": 0},
    {"type": "bytes", "logicalType": "decimal", "precision": 3, "scale": 4},
    {"type": "bytes", "logicalType": "decimal"},
    {"type": "error", "name": "e", "fields": []},
    {**FIXED, "size": -1},
    {"type": "array"},
    {},
    None,
    7,
    {"type": "record", "name": "s", "fields": [{"name": "me", "type": ["null", "s"]}]},
]


@pytest.mark.parametrize("avro_type", UNSUPPORTED)
def test_refuses_types_without_a_column(avro_type: Any) -> None:
    with pytest.raises(UnsupportedTableError, match=r"column 'c(\.me)?' in t/1\.commit has the Avro type"):
        from_avro(record_of(avro_type), name="t/1.commit")


DAMAGED = [
    "",
    "{",
    "[]",
    '"string"',
    "null",
    '{"type":"record"}',
    '{"type":"record","name":"r"}',
    '{"type":"record","name":"r","fields":7}',
    '{"type":"record","name":"r","fields":[7]}',
    '{"type":"record","name":"r","fields":[{"name":"c"}]}',
    '{"type":"record","name":"r","fields":[{"name":"","type":"int"}]}',
    '{"type":"record","name":"r","fields":[{"name":"\\ud800","type":"int"}]}',
    '{"type":"record","name":"r","fields":[{"name":"c","type":"int"},{"name":"c","type":"int"}]}',
    '{"type":"record","name":"","fields":[]}',
    '{"type":"record","fields":[]}',
    '{"type":"record","name":"r","namespace":7,"fields":[]}',
    '{"type":"record","name":"r","fields":[{"name":"c","type":{"type":"enum"}}]}',
    '{"type":"record","name":"r","fields":[' + "9" * 5000 + "]}",
]


@pytest.mark.parametrize("text", DAMAGED)
def test_refuses_damage_by_name(text: str) -> None:
    with pytest.raises(CorruptTableError, match=r"t/1\.commit"):
        from_avro(text, name="t/1.commit")


def nested(levels: int) -> str:
    item = '{"type":"array","items":' * levels + '"int"' + "}" * levels
    return f'{{"type":"record","name":"r","fields":[{{"name":"c","type":{item}}}]}}'


def doubling(levels: int) -> str:
    """Return a schema with two references per level to the level below: 2**levels columns in a short text."""
    fields: list[Any] = [{"name": "c0", "type": {"type": "record", "name": "r0", "fields": []}}]
    for level in range(1, levels):
        pair = [{"name": side, "type": f"r{level - 1}"} for side in "ab"]
        fields.append({"name": f"c{level}", "type": {"type": "record", "name": f"r{level}", "fields": pair}})
    return json.dumps({"type": "record", "name": "r", "fields": fields})


@pytest.mark.parametrize("text", [nested(100), nested(50_000), "[" * 100_000, doubling(40), doubling(60)])
def test_depth_and_unfolding_are_bounded(text: str) -> None:
    with pytest.raises(UnsupportedTableError, match="nested"):
        from_avro(text, name="x")


def test_reasonable_depth_is_read_and_written() -> None:
    schema = from_avro(nested(50), name="x")
    assert from_avro(to_avro(schema, table_name="t"), name="x") == schema
    assert storage_schema(schema) == schema


# ---- writing


def test_same_names_in_different_places_do_not_collide() -> None:
    point = pa.struct([pa.field("fixed", pa.decimal128(5, 2)), pa.field("p", pa.struct([("p", pa.int32())]))])
    schema = pa.schema(
        [
            pa.field("p", point),
            pa.field("q", pa.list_(pa.struct([("p", pa.struct([("p", pa.string())]))]))),
            pa.field("fixed", pa.map_(pa.string(), pa.struct([("p", pa.decimal128(9, 0))]))),
            pa.field("d", pa.decimal128(38, 38)),
            pa.field("b", pa.list_(pa.list_(pa.binary(3)))),
        ]
    )
    text = to_avro(schema, table_name="t")
    fastavro.parse_schema(json.loads(text))  # fastavro refuses a name that is defined twice.
    assert from_avro(text, name="x") == schema


@pytest.mark.parametrize(
    ("table_name", "record", "namespace"),
    [
        ("t", "t_record", "hoodie.t"),
        ("my-table 1", "my__table__1_record", "hoodie.my__table__1"),
        ("1é", "_____record", "hoodie.____"),
    ],
)
def test_masks_table_names_as_hudi_does(table_name: str, record: str, namespace: str) -> None:
    tree = json.loads(to_avro(pa.schema([("a", pa.int8())]), table_name=table_name))
    assert (tree["name"], tree["namespace"]) == (record, namespace)


def test_narrow_integers_and_zones_are_written_as_avro_has_them() -> None:
    schema = pa.schema([("a", pa.int16()), pa.field("b", pa.timestamp("ms", "Asia/Tokyo"), nullable=False)])
    assert from_avro(to_avro(schema, table_name="t"), name="x") == pa.schema(
        [("a", pa.int32()), pa.field("b", pa.timestamp("ms", "UTC"), nullable=False)]
    )


@pytest.mark.parametrize("column", ["a b", "1a", "a-b", "é", ""])
def test_refuses_names_that_avro_refuses(column: str) -> None:
    with pytest.raises(SchemaMismatchError, match=re.escape(repr(f"s.{column}"))):
        to_avro(pa.schema([("s", pa.struct([(column, pa.int32())]))]), table_name="t")


@pytest.mark.parametrize(
    "data_type",
    [
        pa.uint64(),
        pa.timestamp("ns"),
        pa.large_string(),
        pa.null(),
        pa.map_(pa.int32(), pa.int32()),
        pa.decimal128(3, -1),
    ],
)
def test_refuses_types_that_avro_lacks(data_type: pa.DataType) -> None:
    with pytest.raises(SchemaMismatchError, match="column 'c' has the type"):
        to_avro(pa.schema([("c", data_type)]), table_name="t")


def test_refuses_nameless_tables_and_repeated_columns() -> None:
    with pytest.raises(SchemaMismatchError, match="without a name"):
        to_avro(pa.schema([]), table_name="")
    for convert in (storage_schema, lambda schema: to_avro(schema, table_name="t")):
        with pytest.raises(SchemaMismatchError, match="'a' occurs 2 times"):
            convert(pa.schema([("a", pa.int32()), ("a", pa.int64())]))


def test_meta_columns_are_added_in_front_and_removed() -> None:
    schema = pa.schema([("a", pa.int32()), ("_hoodie_file_name", pa.string())])
    assert with_meta(schema).names == [*META_COLUMNS, "a"]
    assert without_meta(with_meta(schema)).names == ["a"]
    first = json.loads(to_avro(with_meta(schema), table_name="t"))["fields"][0]
    assert first == {"name": META_COLUMNS[0], "type": ["null", "string"], "doc": "", "default": None}


# ---- stored types

STORED = [
    (pa.int8(), pa.int32()),
    (pa.int16(), pa.int32()),
    (pa.uint8(), pa.int32()),
    (pa.uint16(), pa.int32()),
    (pa.uint32(), pa.int64()),
    (pa.float16(), pa.float32()),
    (pa.large_string(), pa.string()),
    (pa.string_view(), pa.string()),
    (pa.large_binary(), pa.binary()),
    (pa.binary_view(), pa.binary()),
    (pa.binary(4), pa.binary()),
    (pa.date64(), pa.date32()),
    (pa.timestamp("s"), pa.timestamp("us")),
    (pa.timestamp("ns", "Europe/Paris"), pa.timestamp("us", "UTC")),
    (pa.timestamp("us", "UTC"), pa.timestamp("us", "UTC")),
    (pa.dictionary(pa.int8(), pa.large_string()), pa.string()),
    (pa.decimal128(38, 3), pa.decimal128(38, 3)),
    (pa.decimal256(38, 3), pa.decimal128(38, 3)),
    (pa.large_list(pa.int8()), pa.list_(pa.int32())),
    (pa.list_(pa.float16(), 2), pa.list_(pa.float32())),
    (
        pa.list_(pa.field("x", pa.uint8(), nullable=False)),
        pa.list_(pa.field("x", pa.int32(), nullable=False)),
    ),
    (pa.map_(pa.large_string(), pa.int16()), pa.map_(pa.string(), pa.int32())),
    (
        pa.struct([pa.field("a", pa.date64(), nullable=False)]),
        pa.struct([pa.field("a", pa.date32(), nullable=False)]),
    ),
]


@pytest.mark.parametrize(("given_type", "stored"), STORED)
def test_arrow_types_map_to_storage_types(given_type: pa.DataType, stored: pa.DataType) -> None:
    assert arrow_type_for_storage(given_type) == stored
    assert arrow_type_for_storage(stored) == stored
    pa.nulls(2, given_type).cast(stored)  # Arrow can cast this type.


@pytest.mark.parametrize(
    "data_type",
    [
        pa.uint64(),
        pa.time32("ms"),
        pa.time64("us"),
        pa.duration("us"),
        pa.month_day_nano_interval(),
        pa.dense_union([pa.field("a", pa.int32())]),
        pa.null(),
        pa.uuid(),
        pa.decimal256(39, 0),
        pa.decimal128(3, -1),
        pa.decimal128(3, 4),
        pa.struct([]),
        pa.map_(pa.int32(), pa.int32()),
        pa.dictionary(pa.int8(), pa.uint64()),
        pa.run_end_encoded(pa.int16(), pa.int32()),
    ],
)
@pytest.mark.parametrize("wrap", [lambda t: t, pa.list_, lambda t: pa.map_(pa.string(), t)])
def test_refuses_types_that_cannot_be_stored(data_type: pa.DataType, wrap: Any) -> None:
    schema = pa.schema([("s", pa.struct([("c", wrap(data_type))]))])
    with pytest.raises(SchemaMismatchError, match=r"column 's\.c' has the type"):
        storage_schema(schema)


def test_storage_schema_keeps_nullability_and_drops_metadata() -> None:
    field = pa.field("a", pa.int8(), nullable=False, metadata={"k": "v"})
    stored = storage_schema(pa.schema([field], metadata={"k": "v"}))
    assert stored.equals(pa.schema([pa.field("a", pa.int32(), nullable=False)]), check_metadata=True)


NAMES = st.from_regex(r"[A-Za-z_][A-Za-z0-9_]{0,3}", fullmatch=True)
LEAVES = st.one_of(
    st.sampled_from([*(stored for _, stored in STORED), *(given for given, _ in STORED), pa.bool_(), pa.int64()]),
    st.integers(1, 38).flatmap(lambda p: st.integers(0, p).map(lambda s: pa.decimal128(p, s))),
)


def fields_of(types: st.SearchStrategy[pa.DataType]) -> st.SearchStrategy[list[pa.Field]]:
    field = st.builds(pa.field, NAMES, types, st.booleans())
    return st.lists(field, min_size=1, max_size=4, unique_by=lambda one: one.name)


def branches(types: st.SearchStrategy[pa.DataType]) -> st.SearchStrategy[pa.DataType]:
    return st.one_of(
        fields_of(types).map(pa.struct),
        st.builds(lambda t, n: pa.list_(pa.field("element", t, n)), types, st.booleans()),
        st.builds(lambda t, n: pa.map_(pa.string(), pa.field("value", t, n)), types, st.booleans()),
    )


@given(fields_of(st.recursive(LEAVES, branches, max_leaves=8)))
def test_storage_schema_round_trips(fields: list[pa.Field]) -> None:
    stored = storage_schema(pa.schema(fields))
    text = to_avro(stored, table_name="t")
    assert from_avro(text, name="x") == stored
    fastavro.parse_schema(json.loads(text))


JSON = st.recursive(
    st.sampled_from([None, 7, "", "int", "null", "r", "record", "array", "fixed", "decimal"]),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.dictionaries(
            st.sampled_from(
                ["type", "name", "fields", "items", "values", "size", "logicalType", "precision", "namespace"]
            ),
            inner,
        ),
    ),
)


@given(JSON)
def test_any_json_is_read_or_refused(avro_type: Any) -> None:
    try:
        schema = from_avro(record_of(avro_type), name="x")
    except LakeformatError:
        return
    assert schema.names == ["c"]
