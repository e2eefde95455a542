"""fastavro reads back the values of columns that lakeformat encodes as Avro."""

from __future__ import annotations

import io
import json
from datetime import date, datetime, timezone
from decimal import Decimal
from typing import Any, Final

import fastavro
import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from lakeformat.codec.avro.encode import AvroEncoder
from lakeformat.codec.avro.schema import to_avro

MOMENTS: Final = st.datetimes(datetime(1900, 1, 1), datetime(2200, 1, 1))
UTC: Final = MOMENTS.map(lambda each: each.replace(tzinfo=timezone.utc))
WIDE: Final = "9" * 38
INNER: Final = pa.struct([pa.field("x", pa.int32(), nullable=False), pa.field("y", pa.string())])
#: Name -> type, and a strategy for its values.
KINDS: Final[dict[str, tuple[pa.DataType, st.SearchStrategy[Any]]]] = {
    "flag": (pa.bool_(), st.booleans()),
    "short": (pa.int16(), st.integers(-(2**15), 2**15 - 1)),
    "int": (pa.int32(), st.integers(-(2**31), 2**31 - 1)),
    "long": (pa.int64(), st.integers(-(2**63), 2**63 - 1)),
    "float": (pa.float32(), st.floats(width=32, allow_nan=False)),
    "double": (pa.float64(), st.floats(allow_nan=False)),
    "text": (pa.string(), st.text(max_size=70)),
    "bytes": (pa.binary(), st.binary(max_size=5)),
    "fixed": (pa.binary(3), st.binary(min_size=3, max_size=3)),
    "day": (pa.date32(), st.dates(date(1900, 1, 1))),
    "at": (pa.timestamp("us", "UTC"), UTC),
    "local": (pa.timestamp("us"), MOMENTS),
    "money": (pa.decimal128(10, 2), st.decimals(-99999999, 99999999, places=2)),
    "wide": (pa.decimal128(38, 0), st.sampled_from([Decimal(WIDE), Decimal(f"-{WIDE}"), Decimal(0), Decimal(-1)])),
    "inner": (INNER, st.fixed_dictionaries({"x": st.integers(0, 300), "y": st.none() | st.text(max_size=3)})),
    "list": (pa.list_(pa.field("element", pa.int32())), st.lists(st.none() | st.integers(0, 300), max_size=3)),
    "lists": (
        pa.list_(pa.field("element", pa.list_(pa.field("element", INNER)))),
        st.lists(st.none() | st.lists(st.just({"x": 1, "y": "z"}), max_size=2), max_size=2),
    ),
    "map": (
        pa.map_(pa.string(), pa.float64()),
        st.dictionaries(st.text(max_size=2), st.none() | st.just(1.5), max_size=2).map(lambda each: [*each.items()]),
    ),
}
SCHEMA: Final = pa.schema(
    [
        *(pa.field(name, kind) for name, (kind, _) in KINDS.items()),
        pa.field("always", pa.int64(), nullable=False),
    ]
)
ROWS: Final = st.lists(
    st.fixed_dictionaries(
        {
            **{name: st.none() | values for name, (_, values) in KINDS.items()},
            "always": st.integers(-5, 5),
        }
    ),
    max_size=4,
)


def read(data: bytes, avro: Any) -> list[Any]:
    source, found = io.BytesIO(data), []
    while source.tell() < len(data):
        found.append(fastavro.schemaless_reader(source, avro))
    return found


@settings(max_examples=60, deadline=None)
@given(ROWS, st.integers(0, 2))
def test_encoded_records_are_read_by_fastavro(rows: list[dict[str, Any]], skipped: int) -> None:
    avro = json.loads(to_avro(SCHEMA, table_name="t"))
    table = pa.Table.from_pylist(rows, SCHEMA).combine_chunks().slice(skipped)
    columns = [pa.concat_arrays([*column.chunks, pa.array([], column.type)]) for column in table.columns]
    encoded = AvroEncoder().record(columns, avro)
    wanted = [{**row, "map": None if row["map"] is None else dict(row["map"])} for row in rows[skipped:]]
    assert read(b"".join(encoded.to_pylist()), fastavro.parse_schema(avro)) == wanted


def test_repeated_record_type_is_encoded_by_name() -> None:
    image = {"type": "record", "name": "r", "fields": [{"name": "v", "type": ["null", "long"]}]}
    fields = [{"name": "before", "type": ["null", image]}, {"name": "after", "type": ["null", "r"]}]
    avro = {"type": "record", "name": "pair", "fields": fields}
    kind = pa.struct([("v", pa.int64())])
    before, after = pa.array([{"v": 1}, None], kind), pa.array([{"v": None}, {"v": -70000}], kind)
    encoded = AvroEncoder().record([before, after], avro)
    assert read(b"".join(encoded.to_pylist()), fastavro.parse_schema(avro)) == [
        {"before": {"v": 1}, "after": {"v": None}},
        {"before": None, "after": {"v": -70000}},
    ]
