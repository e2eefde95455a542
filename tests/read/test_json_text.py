"""JSON of Arrow values, compared with the json module's reading of it."""

from __future__ import annotations

import base64
import json
import math
from datetime import date, datetime, timezone
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakeformat.read.cdc.json import to_json_text

ITEM = pa.struct([("x", pa.int64()), ("y", pa.list_(pa.struct([("z", pa.string())])))])


@pytest.mark.parametrize(
    ("kind", "value", "wanted"),
    [
        (pa.bool_(), True, True),
        (pa.int32(), -7, -7),
        (pa.float64(), 1e300, 1e300),
        (pa.float32(), 0.5, 0.5),
        (pa.float64(), math.nan, "NaN"),
        (pa.float32(), -math.inf, "-Infinity"),
        (pa.string(), 'q"\\ \n\t\x01é', 'q"\\ \n\t\x01é'),
        (pa.date32(), date(2020, 1, 1), 18262),
        (pa.timestamp("us", "UTC"), datetime(2020, 1, 1, tzinfo=timezone.utc), 1577836800000000),
        (pa.timestamp("ms"), datetime(2020, 1, 1), 1577836800000000),
        (pa.decimal128(10, 2), Decimal("1.50"), 1.5),
        (pa.binary(), b"\x00ab", base64.b64encode(b"\x00ab").decode()),
        (pa.list_(pa.string()), ["a", None, '"'], ["a", None, '"']),
        (pa.list_(pa.int32()), [], []),
        (pa.map_(pa.string(), pa.float64()), [("k", 1.5), ("n", None)], {"k": 1.5, "n": None}),
        (pa.map_(pa.int32(), pa.string()), [(1, "a")], {"1": "a"}),
        (ITEM, {"x": None, "y": [{"z": "1"}, None, {"z": None}]}, {"x": None, "y": [{"z": "1"}, None, {"z": None}]}),
    ],
    ids=str,
)
def test_json_text_of_each_type(kind: pa.DataType, value: Any, wanted: Any) -> None:
    values = pa.array([None, value, None, value], kind)
    for part in (values, values.slice(1), values.slice(3), values.slice(2, 1), values.slice(0, 0)):
        texts = to_json_text(part).to_pylist()
        assert [text if text is None else json.loads(text) for text in texts] == [
            None if each is None else wanted for each in part.to_pylist()
        ]


@given(st.lists(st.none() | st.dictionaries(st.sampled_from("ab"), st.text() | st.none(), min_size=2)))
def test_json_text_of_any_text(values: list[Any]) -> None:
    array = pa.array(values, pa.struct([("a", pa.string()), ("b", pa.string())]))
    assert [text if text is None else json.loads(text) for text in to_json_text(array).to_pylist()] == values
