"""Records decoded column by column equal those that fastavro reads one by one, for random schemas."""

from __future__ import annotations

import io
import json
from datetime import date, datetime, timedelta, timezone
from decimal import Context, Decimal
from itertools import count
from typing import Any

import fastavro
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lakeformat.codec.avro.columns import decode_columns, decode_row_by_row
from lakeformat.codec.avro.schema import record_type

EPOCH = datetime(1970, 1, 1)
LONGS = st.integers(-(2**63), 2**63 - 1) | st.integers(-200, 200)
INTS = st.integers(-(2**31), 2**31 - 1) | st.integers(-200, 200)
TEXTS = st.text(st.characters(exclude_categories=("Cs",)), max_size=12)


def logical(base: str, meaning: str, /, **more: Any) -> dict[str, Any]:
    return {"type": base, "logicalType": meaning, **more}


def decimals(precision: int, scale: int) -> st.SearchStrategy[Decimal]:
    most = 10**precision - 1
    return st.integers(-most, most).map(lambda number: Decimal(number).scaleb(-scale, Context(prec=60)))


def moments(**zone: Any) -> st.SearchStrategy[datetime]:
    return st.datetimes(min_value=datetime(1, 1, 3), max_value=datetime(9999, 12, 30), **zone)


def milliseconds(moment: datetime) -> datetime:
    return moment.replace(microsecond=moment.microsecond // 1000 * 1000)


UTC = {"timezones": st.just(timezone.utc)}
SIMPLE: list[tuple[Any, st.SearchStrategy[Any]]] = [
    ("boolean", st.booleans()),
    ("int", INTS),
    ("long", LONGS),
    ("float", st.floats(width=32, allow_nan=False)),
    ("double", st.floats(allow_nan=False)),
    ("bytes", st.binary(max_size=9)),
    ("string", TEXTS),
    (logical("string", "uuid"), st.uuids()),
    (logical("int", "date"), st.dates(date(1, 1, 1), date(9999, 12, 31))),
    (logical("long", "timestamp-micros"), moments(**UTC)),
    (logical("long", "timestamp-millis"), moments(**UTC).map(milliseconds)),
    (logical("long", "local-timestamp-micros"), moments()),
    (logical("long", "local-timestamp-millis"), moments().map(milliseconds)),
    (logical("bytes", "decimal", precision=38, scale=10), decimals(38, 10)),
    (logical("fixed", "decimal", precision=9, scale=2, size=4, name="F"), decimals(9, 2)),
    (logical("fixed", "decimal", precision=30, scale=0, size=18, name="F"), decimals(30, 0)),
    ({"type": "fixed", "size": 3, "name": "F"}, st.binary(min_size=3, max_size=3)),
    ({"type": "enum", "symbols": ["A", "B", "C"], "name": "E"}, st.sampled_from("ABC")),
]


@st.composite
def draw_type(draw: st.DrawFn, depth: int = 2) -> tuple[Any, st.SearchStrategy[Any]]:
    """Draw an Avro type and a strategy for its values."""
    kind = draw(st.sampled_from(["simple"] * 4 + ["record", "array", "map"] * bool(depth)))
    if kind == "simple":
        avro, values = draw(st.sampled_from(SIMPLE))
    elif kind == "record":
        avro, values = draw(records(depth - 1))
    else:
        inner, items = draw(draw_type(depth - 1))
        if kind == "array":
            avro, values = {"type": "array", "items": inner}, st.lists(items, max_size=5)
        else:
            avro, values = {"type": "map", "values": inner}, st.dictionaries(TEXTS, items, max_size=4)
    match draw(st.sampled_from(["alone", "null first", "null last", "one branch"])):
        case "null first":
            return ["null", avro], st.none() | values
        case "null last":
            return [avro, "null"], st.none() | values
        case "one branch":
            return [avro], values
    return avro, values


@st.composite
def records(draw: st.DrawFn, depth: int = 2) -> tuple[Any, st.SearchStrategy[Any]]:
    fields = draw(st.lists(draw_type(depth), min_size=1, max_size=4))
    avro = {
        "type": "record",
        "name": "R",
        "fields": [{"name": f"f{n}", "type": kind} for n, (kind, _) in enumerate(fields)],
    }
    return avro, st.fixed_dictionaries({f"f{n}": values for n, (_, values) in enumerate(fields)})


def with_distinct_names(avro: Any, ids: Any) -> Any:
    """Return the schema with a unique name for each named type."""
    if isinstance(avro, list):
        return [with_distinct_names(one, ids) for one in avro]
    if isinstance(avro, dict):
        named = {"name": f"N{next(ids)}"} if avro["type"] in ("record", "fixed", "enum") else {}
        below = {key: with_distinct_names(avro[key], ids) for key in ("items", "values") if key in avro}
        if "fields" in avro:
            below["fields"] = [{**field, "type": with_distinct_names(field["type"], ids)} for field in avro["fields"]]
        return {**avro, **named, **below}
    return avro


def encode_records(avro: Any, rows: list[Any]) -> tuple[Any, Any, Any]:
    """Return the records as bytes, with a byte between any two, and where each record starts and ends."""
    file, starts, ends, schema = io.BytesIO(), [], [], fastavro.parse_schema(avro)
    for row in rows:
        file.write(b"\xff")
        starts.append(file.tell())
        fastavro.schemaless_writer(file, schema, row)
        ends.append(file.tell())
    return np.frombuffer(file.getvalue(), np.uint8), np.array(starts, np.int64), np.array(ends, np.int64)


def to_plain(value: Any) -> Any:
    """Return the value with maps as sorted pairs and uuids as text."""
    if isinstance(value, dict):
        return sorted((str(key), to_plain(one)) for key, one in value.items())
    if isinstance(value, (list, tuple)):
        return (
            sorted(map(to_plain, value)) if value and isinstance(value[0], tuple) else [to_plain(one) for one in value]
        )
    return str(value) if type(value).__name__ == "UUID" else value


def read_back(avro: Any, data: Any, starts: Any, ends: Any) -> list[Any]:
    schema = fastavro.parse_schema(avro)
    pieces = [data[start:end].tobytes() for start, end in zip(starts, ends, strict=True)]
    return [to_plain(fastavro.schemaless_reader(io.BytesIO(piece), schema, None)) for piece in pieces]


def as_pairs(value: Any) -> Any:
    """Return a value of `pa.Table.to_pylist` in the form of `to_plain`."""
    if isinstance(value, dict):
        return sorted((key, as_pairs(one)) for key, one in value.items())
    if isinstance(value, list):
        if value and isinstance(value[0], tuple):
            return sorted((key, as_pairs(one)) for key, one in value)
        return [as_pairs(one) for one in value]
    return value


@settings(max_examples=120, deadline=None)
@given(st.data())
def test_decoded_columns_equal_the_records_of_fastavro(data: st.DataObject) -> None:
    avro, values = data.draw(records())
    avro = with_distinct_names(avro, count())
    bytes_, starts, ends = encode_records(avro, data.draw(st.lists(values, min_size=1, max_size=12)))
    record = record_type(json.dumps(avro), name="a test")
    found = decode_columns(bytes_, starts, ends, record)
    found.validate(full=True)
    assert [as_pairs(row) for row in found.to_pylist()] == read_back(avro, bytes_, starts, ends)
    assert found.schema == pa.schema(list(record.arrow))
    assert decode_row_by_row(bytes_, starts, ends, record).equals(found)
    wanted = data.draw(st.lists(st.sampled_from(found.schema.names), unique=True))
    chosen = [name for name in found.schema.names if name in wanted]
    assert decode_columns(bytes_, starts, ends, record, wanted).equals(found.select(chosen))


@settings(max_examples=200, deadline=None)
@given(st.data())
def test_damaged_records_are_refused_or_decode_to_whole_columns(data: st.DataObject) -> None:
    avro, values = data.draw(records())
    avro = with_distinct_names(avro, count())
    whole, starts, ends = encode_records(avro, data.draw(st.lists(values, min_size=1, max_size=6)))
    damaged = whole.copy()
    damaged[data.draw(st.integers(0, len(whole) - 1))] = data.draw(st.integers(0, 255))
    record = record_type(json.dumps(avro), name="a test")
    for decode in (decode_columns, decode_row_by_row):
        try:
            found = decode(damaged, starts, ends, record)
        except ValueError:
            continue
        found.validate(full=True)
        assert found.num_rows == len(starts)


def test_named_type_is_resolved_on_second_use() -> None:
    point = {"type": "record", "name": "P", "namespace": "a.b", "fields": [{"name": "x", "type": "int"}]}
    avro = {"type": "record", "name": "R", "namespace": "a.b", "fields": [
        {"name": "first", "type": point}, {"name": "second", "type": ["null", "P"]},
        {"name": "third", "type": {"type": "array", "items": "a.b.P"}}]}  # fmt: skip
    rows = [
        {"first": {"x": 1}, "second": None, "third": [{"x": 2}, {"x": 3}]},
        {"first": {"x": 4}, "second": {"x": 5}, "third": []},
    ]
    found = decode_columns(*encode_records(avro, rows), record_type(json.dumps(avro), name="a test"))
    assert found.to_pylist() == rows


@pytest.mark.parametrize(
    ("items", "value"),
    [
        (["null", "string"], [None, *map(str, range(30_000))]),
        ({"type": "array", "items": "long"}, [[*range(60)]] * 60),
    ],
)
def test_very_long_lists_are_decoded(items: Any, value: list[Any]) -> None:
    fields = [{"name": "a", "type": {"type": "array", "items": items}}, {"name": "b", "type": "long"}]
    avro = {"type": "record", "name": "R", "fields": fields}
    rows = [{"a": value, "b": 1}, {"a": [], "b": 2}]
    places, record = encode_records(avro, rows), record_type(json.dumps(avro), name="a test")
    assert decode_columns(*places, record).to_pylist() == rows
    assert decode_columns(*places, record, ["b"]).to_pylist() == [{"b": 1}, {"b": 2}]
    assert decode_columns(*places, record, []).shape == (2, 0)


@pytest.mark.parametrize("items", [0, 3])
def test_array_blocks_with_a_byte_size_are_decoded(items: int) -> None:
    block = bytes([2 * items - 1, 2 * items]) + bytes(range(0, 2 * items, 2)) if items else b""
    data = np.frombuffer(block + b"\x04\x12\x14\x00", np.uint8)
    avro = {"type": "record", "name": "R", "fields": [{"name": "a", "type": {"type": "array", "items": "long"}}]}
    record = record_type(json.dumps(avro), name="a test")
    found = decode_columns(data, np.array([0]), np.array([len(data)]), record)
    assert found.column("a").to_pylist() == [[*range(items), 9, 10]]


NUMBER = '{"type":"record","name":"R","fields":[{"name":"a","type":%s}]}'


@pytest.mark.parametrize(
    ("kind", "data"),
    [
        ('"string"', "feffffff0f61"),  # A text of two gigabytes in six bytes.
        ('"string"', "0161"),  # A text of a negative length.
        ('"string"', "02ff"),  # Invalid UTF-8.
        ('["null","int"]', "0402"),  # The third branch of a union of two.
        ('["null","int"]', "0102"),  # A negative branch.
        ('"int"', "ffffffffffffffffff01"),  # An int of 64 bits.
        ('"long"', "ffffffffffffffffffff01"),  # A long of more than 64 bits.
        ('"boolean"', "02"),
        ('{"type":"array","items":"long"}', "feffffffffffffffff01"),  # More items than an int64 can count.
        ('{"type":"array","items":"long"}', "0802"),  # Four items are announced; one follows, and no end.
        ('{"type":"map","values":"long"}', "0202ff0200"),
        ('{"type":"enum","name":"E","symbols":["A"]}', "02"),
        # 127, which does not fit into two digits.
        ('{"type":"bytes","logicalType":"decimal","precision":2,"scale":0}', "027f"),
        ('{"type":"bytes","logicalType":"decimal","precision":38,"scale":0}', "22" + "01" * 17),
        ('{"type":"fixed","name":"F","size":9}', "0000"),
        ('"double"', "0000"),
        ('"long"', "0200"),  # A byte is left over.
        ('"long"', ""),
    ],
)
def test_bytes_that_do_not_fit_the_schema_are_refused(kind: str, data: str) -> None:
    record = record_type(NUMBER % kind, name="a test")
    bytes_ = np.frombuffer(bytes.fromhex(data), np.uint8)
    with pytest.raises(ValueError, match=r".+"):
        decode_columns(bytes_, np.array([0]), np.array([len(bytes_)]), record)


def test_timestamps_beyond_the_calendar_of_python_are_kept() -> None:
    avro = {"type": "record", "name": "R", "fields": [{"name": "t", "type": "long"}]}
    far = (datetime(9999, 12, 31) - EPOCH) // timedelta(microseconds=1) * 20
    data, starts, ends = encode_records(avro, [{"t": far}])
    as_time = json.dumps(avro).replace('"long"', json.dumps(logical("long", "timestamp-micros")))
    found = decode_columns(data, starts, ends, record_type(as_time, name="a test"))
    assert found.column("t").cast(pa.int64()).to_pylist() == [far]
