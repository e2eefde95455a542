from __future__ import annotations

import datetime as dt
import math
import re
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakeformat.codec.java import java_text
from lakeformat.errors import InvalidInputError

#: The output of Java's Double.toString.
DOUBLES = {
    0.0: "0.0",
    1.0: "1.0",
    -1.5: "-1.5",
    0.1: "0.1",
    1 / 3: "0.3333333333333333",
    100.0: "100.0",
    0.001: "0.001",
    0.002: "0.002",
    0.00099999: "9.9999E-4",
    1e-4: "1.0E-4",
    1e-5: "1.0E-5",
    1.5e-7: "1.5E-7",
    1234567.125: "1234567.125",
    9999999.0: "9999999.0",
    9999999.999: "9999999.999",
    1e7: "1.0E7",
    -1e7: "-1.0E7",
    12345678.0: "1.2345678E7",
    123456789.5: "1.234567895E8",
    1e10: "1.0E10",
    1e15: "1.0E15",
    1e16: "1.0E16",
    1.2345678901234567e19: "1.2345678901234567E19",
    1e23: "1.0E23",
    1e300: "1.0E300",
    1.7976931348623157e308: "1.7976931348623157E308",
    2.2250738585072014e-308: "2.2250738585072014E-308",
    5e-324: "4.9E-324",
    1.5e-323: "1.5E-323",
    math.inf: "Infinity",
    -math.inf: "-Infinity",
}

#: The output of Java's Float.toString.
FLOATS = {
    1.0: "1.0",
    1.1: "1.1",
    0.3: "0.3",
    1e10: "1.0E10",
    3.4e38: "3.4E38",
    1e-45: "1.4E-45",
    16777216.0: "1.6777216E7",
    33554432.0: "3.3554432E7",
    0.001: "0.001",
    9.999e-4: "9.999E-4",
}


@pytest.mark.parametrize(("type_", "table"), [(pa.float64(), DOUBLES), (pa.float32(), FLOATS)], ids=["double", "float"])
def test_floats_read_as_in_java(type_: pa.DataType, table: dict[float, str]) -> None:
    assert java_text(pa.array(table, type_)).to_pylist() == list(table.values())


def test_floats_without_a_usual_text() -> None:
    values = pa.array(np.array([np.nan, -0.0, 2.0]), mask=np.array([False, False, True]))
    assert java_text(values).to_pylist() == ["NaN", "-0.0", None]


@given(st.lists(st.floats(allow_nan=False, allow_infinity=False)), st.booleans())
def test_double_text_parses_to_the_same_double(values: list[float], with_null: bool) -> None:
    texts = java_text(pa.array([*values, *([None] if with_null else [])], pa.float64())).to_pylist()
    assert [float(text) for text in texts[: len(values)]] == values
    form = re.compile(r"-?(\d{1,7}\.\d+|[1-9]\.\d+E-?\d+)")
    assert all(form.fullmatch(text) for text in texts[: len(values)])
    assert texts[len(values) :] == [None] * with_null


@given(st.lists(st.floats(width=32, allow_nan=False, allow_infinity=False)))
def test_float_text_parses_to_the_same_float(values: list[float]) -> None:
    texts = java_text(pa.array(values, pa.float32())).to_pylist()
    assert [float(np.float32(text)) for text in texts] == values


@pytest.mark.parametrize(
    ("values", "type_", "texts"),
    [
        ([7, -1, None], pa.int8(), ["7", "-1", None]),
        ([2**63 - 1], pa.int64(), ["9223372036854775807"]),
        ([2**32 - 1], pa.uint32(), ["4294967295"]),
        ([True, None, False], pa.bool_(), ["true", None, "false"]),
        (["k", "", None, "ü"], pa.string(), ["k", "", None, "ü"]),
        (["k", None], pa.large_string(), ["k", None]),
        (["k", "k", None], pa.dictionary(pa.int8(), pa.string()), ["k", "k", None]),
        ([None, None], pa.null(), [None, None]),
        (
            [dt.date(2024, 1, 2), dt.date(1, 1, 1), None, dt.date(9999, 12, 31)],
            pa.date32(),
            ["2024-01-02", "0001-01-01", None, "9999-12-31"],
        ),
        ([dt.date(1969, 12, 31)], pa.date64(), ["1969-12-31"]),
        ([1704164645678000, None], pa.timestamp("us", "UTC"), ["1704164645678000", None]),
        ([-1], pa.timestamp("us"), ["-1"]),
        ([1704164645], pa.timestamp("s", "Asia/Tokyo"), ["1704164645000000"]),
        ([5000], pa.timestamp("ns"), ["5"]),
        ([Decimal("3.10"), Decimal("-0.05"), None], pa.decimal128(10, 2), ["3.10", "-0.05", None]),
        ([Decimal("1E-8"), Decimal("0E-8")], pa.decimal128(20, 8), ["1E-8", "0E-8"]),
        ([Decimal("0.00000100")], pa.decimal128(20, 8), ["0.00000100"]),
        ([Decimal("0")], pa.decimal128(20, 6), ["0.000000"]),
        ([Decimal("7")], pa.decimal256(60, 0), ["7"]),
    ],
)
def test_other_types_have_javas_text(values: list[object], type_: pa.DataType, texts: list[str | None]) -> None:
    result = java_text(pa.array(values, type_))
    assert result.type == pa.string()
    assert result.to_pylist() == texts


@pytest.mark.parametrize(
    ("values", "type_", "texts"),
    [
        ([1704164645678901, 1704164645000000, None], pa.timestamp("us", "UTC"),
         ["2024-01-02 03:04:05.678", "2024-01-02 03:04:05.0", None]),
        ([600_000, 60_000, -1, -1_234_567], pa.timestamp("us", "Asia/Tokyo"),
         ["1970-01-01 00:00:00.6", "1970-01-01 00:00:00.06", "1970-01-01 00:00:00.0", "1969-12-31 23:59:58.766"]),
        ([1704164645], pa.timestamp("s", "UTC"), ["2024-01-02 03:04:05.0"]),
        ([5], pa.timestamp("us"), ["5"]),
        ([dt.date(2024, 1, 2)], pa.date32(), ["2024-01-02"]),
    ],
)  # fmt: skip
def test_times_with_a_zone_are_written_out_on_request(
    values: list[object], type_: pa.DataType, texts: list[str | None]
) -> None:
    assert java_text(pa.array(values, type_), logical_times=True).to_pylist() == texts


@pytest.mark.parametrize("year", ["1582-10-14", "10000-01-01"])
def test_times_that_java_counts_otherwise_are_refused(year: str) -> None:
    times = pa.array([int(np.datetime64(year, "us").astype(np.int64))], pa.timestamp("us", "UTC"))
    with pytest.raises(InvalidInputError, match="outside the years 1583 to 9999"):
        java_text(times, logical_times=True)


def test_strings_are_not_copied() -> None:
    keys = pa.array(["a", "b"])
    assert java_text(keys) is keys


@pytest.mark.parametrize(
    ("array", "reason"),
    [
        (pa.array([b"x"]), "a binary column"),
        (pa.array([[1]]), "a list<"),
        (pa.array([{"a": 1}]), "a struct<"),
        (pa.array([dt.time(1)]), "a time64"),
        (pa.array([1.0], pa.float16()), "a halffloat"),
        (pa.array([dt.timedelta(1)]), "a duration"),
        (pa.array([1], pa.timestamp("ns")), "round it to microseconds"),
        (pa.array([-719_163], pa.int32()).cast(pa.date32()), "outside the years"),
        (pa.array([2_932_897], pa.int32()).cast(pa.date32()), "outside the years"),
    ],
)
def test_types_without_a_text_are_named(array: pa.Array, reason: str) -> None:
    with pytest.raises(InvalidInputError, match=re.escape(reason)):
        java_text(array)
