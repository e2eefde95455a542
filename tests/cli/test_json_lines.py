"""Rows as JSON lines are those that Python's ``json`` writes, value by value."""

from __future__ import annotations

import datetime
import io
import json
from typing import Any

import hypothesis.strategies as st
import pyarrow as pa
import pytest
from hypothesis import given

from lakeformat.cli.output import to_plain
from lakeformat.cli.rows import _WRITERS

UTC = datetime.timezone.utc
TIMES = st.datetimes(datetime.datetime(1, 1, 1), datetime.datetime(9999, 12, 31))
TYPES: dict[str, tuple[pa.DataType, st.SearchStrategy[Any]]] = {
    "int8": (pa.int8(), st.integers(-128, 127)),
    "int64": (pa.int64(), st.integers(-(2**63), 2**63 - 1)),
    "bool": (pa.bool_(), st.booleans()),
    "float": (pa.float32(), st.floats(width=32)),
    "double": (pa.float64(), st.floats()),
    "text": (pa.string(), st.text(st.characters(codec="utf-8"))),
    "large text": (pa.large_string(), st.text(st.characters(codec="utf-8"))),
    "date": (pa.date32(), st.dates()),
    "local": (pa.timestamp("us"), TIMES),
    "local ms": (pa.timestamp("ms"), TIMES.map(lambda at: at.replace(microsecond=at.microsecond // 1000 * 1000))),
    "moment": (pa.timestamp("us", "UTC"), TIMES.map(lambda at: at.replace(tzinfo=UTC))),
    "decimal": (pa.decimal128(20, 9), st.decimals(-(10**10), 10**10, places=9)),
    "binary": (pa.binary(), st.binary()),
    "list": (pa.list_(pa.float64()), st.lists(st.floats(allow_nan=False))),
    "map": (
        pa.map_(pa.string(), pa.int32()),
        st.dictionaries(st.text(), st.integers(0, 9)).map(lambda d: [*d.items()]),
    ),
    "struct": (pa.struct([("a é", pa.date32())]), st.fixed_dictionaries({"a é": st.none() | st.dates()})),
}


def lines_of(kind: str, rows: pa.Table) -> bytes:
    sink = io.BytesIO()
    assert _WRITERS[kind](rows.to_reader(), sink) == rows.num_rows
    return sink.getvalue()


@pytest.mark.parametrize("name", TYPES)
@given(data=st.data())
def test_lines_are_those_of_json(name: str, data: st.DataObject) -> None:
    kind, values = TYPES[name]
    given_values = data.draw(st.lists(st.none() | values, max_size=8))
    batch = pa.RecordBatch.from_pydict({'c "é"\n': pa.array(given_values, kind), "n": pa.nulls(len(given_values))})
    batch = batch.slice(min(1, batch.num_rows))
    rows = batch.to_pylist(maps_as_pydicts="lossy")
    wanted = "".join(f"{json.dumps(to_plain(row), ensure_ascii=False)}\n" for row in rows)
    assert lines_of("json", pa.Table.from_batches([batch])).decode() == wanted


@pytest.mark.parametrize("rows", [0, 1, 3, 100_000])
def test_lines_of_many_rows_are_in_order(rows: int) -> None:
    table = pa.table({"id": range(rows), "text": [f"é{at}" for at in range(rows)]})
    read = [json.loads(line) for line in lines_of("json", table).splitlines()]
    assert read == table.to_pylist()
    assert lines_of("json", pa.table({"id": range(rows)}).select([])) == b"{}\n" * rows
