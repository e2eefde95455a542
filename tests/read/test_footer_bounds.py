from __future__ import annotations

import io
import math
from collections.abc import Sequence
from datetime import date, datetime, timezone
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lakeformat.errors import InvalidInputError
from lakeformat.files.footer_bounds import fold_files, is_exact_conversion, row_group_bounds, stored_type
from lakeformat.predicate import ColumnBounds, bind, may_match, parse_where

UTC_MICROS = pa.timestamp("us", "UTC")
INSTANT = datetime(2024, 1, 1, tzinfo=timezone.utc)


def footer(columns: dict[str, pa.Array], **options: Any) -> pq.FileMetaData:
    sink = io.BytesIO()
    table = pa.table(columns)
    if table.num_rows:
        pq.write_table(table, sink, **options)
    else:  # Hudi writes a file without row groups if deletes empty it.
        pq.ParquetWriter(sink, table.schema).close()
    return pq.ParquetFile(sink).metadata


def bounds_of(stored: pa.Array, wanted: pa.DataType, **options: Any) -> tuple[Any, Any, int | None]:
    schema = pa.schema([("c", wanted)])
    bounds, rows, files = row_group_bounds([footer({"c": stored}, **options)], ["c"], schema)
    assert rows.to_pylist() == [len(stored)]
    assert files.tolist() == [0]
    found = bounds["c"]
    assert found.minimum.type == found.maximum.type == wanted
    return found.minimum[0].as_py(), found.maximum[0].as_py(), found.null_count[0].as_py()


@pytest.mark.parametrize(
    ("of", "low", "high"),
    [
        (pa.bool_(), False, True),
        (pa.int8(), -128, 127),
        (pa.int16(), -5, 7),
        (pa.int32(), -(2**31), 2**31 - 1),
        (pa.int64(), -(2**63), 2**63 - 1),
        (pa.float32(), -math.inf, 1.5),
        (pa.float64(), 0.1, math.inf),
        (pa.string(), "a", "\U0001f600"),
        (pa.large_string(), "", "é"),
        (pa.binary(), b"", b"\xff\x00"),
        (pa.binary(3), b"\x00ab", b"\xffab"),
        (pa.date32(), date(1, 1, 1), date(9999, 12, 31)),
        (UTC_MICROS, INSTANT, datetime(9999, 1, 1, tzinfo=timezone.utc)),
        (pa.timestamp("ms", "UTC"), INSTANT, INSTANT),
        (pa.timestamp("us"), datetime(2024, 1, 1), datetime(2024, 1, 2)),
        (pa.decimal128(5, 2), Decimal("-1.25"), Decimal("999.99")),
        (pa.decimal128(15, 2), Decimal("-1.25"), Decimal("999.99")),
        (pa.decimal128(38, 10), Decimal("-9999999999999999999999999999.0000000001"), Decimal("0E-10")),
    ],
)
@pytest.mark.parametrize("options", [{}, {"store_schema": False}, {"store_decimal_as_integer": True}])
def test_bounds_of_every_type_equal_the_written_values(
    of: pa.DataType, low: Any, high: Any, options: dict[str, Any]
) -> None:
    assert bounds_of(pa.array([high, None, low], of), of, **options) == (low, high, 1)


@pytest.mark.parametrize(
    ("stored", "wanted", "expected"),
    [
        (pa.array([1, 2], pa.int32()), pa.int64(), (1, 2)),
        (pa.array([1, 2], pa.int64()), pa.int32(), (1, 2)),
        (pa.array([1, 2**40], pa.int64()), pa.int32(), (1, None)),
        (pa.array([1, 2], pa.int32()), pa.float64(), (1.0, 2.0)),
        (pa.array([1, 2], pa.int32()), pa.float32(), (None, None)),
        (pa.array([1, 2], pa.int64()), pa.float64(), (None, None)),
        (pa.array([1, 2], pa.int32()), pa.decimal128(12, 2), (Decimal("1.00"), Decimal("2.00"))),
        (pa.array([9, 10], pa.int32()), pa.string(), (None, None)),
        (pa.array([1, 2], pa.uint32()), pa.int64(), (None, None)),
        (pa.array([1.5, 2.5], pa.float32()), pa.float64(), (None, None)),
        (pa.array([1.5, 2.5], pa.float64()), pa.float32(), (None, None)),
        (pa.array([np.float16(1.5)], pa.float16()), pa.float32(), (None, None)),
        (pa.array([INSTANT], pa.timestamp("ms", "UTC")), UTC_MICROS, (INSTANT, INSTANT)),
        (pa.array([INSTANT], pa.timestamp("s", "UTC")), UTC_MICROS, (INSTANT, INSTANT)),
        (pa.array([1000], pa.timestamp("ns", "UTC")), pa.timestamp("us", "Asia/Tokyo"), "exact"),
        (pa.array([1001], pa.timestamp("ns", "UTC")), UTC_MICROS, (None, None)),
        (pa.array([1], pa.timestamp("us")), UTC_MICROS, (None, None)),
        (pa.array([1], pa.int64()), UTC_MICROS, (None, None)),
        (pa.array([1], pa.date32()), UTC_MICROS, (None, None)),
        (pa.array([b"a", b"b"], pa.binary()), pa.string(), ("a", "b")),
        (pa.array([b"a", b"\xff"], pa.binary()), pa.string(), ("a", None)),
        (pa.array(["a", "b"], pa.string()), pa.binary(), (b"a", b"b")),
        (pa.array(["a", "b"]).dictionary_encode(), pa.string(), ("a", "b")),
        (pa.array([Decimal("1.5")], pa.decimal128(5, 1)), pa.decimal128(9, 3), (Decimal("1.500"),) * 2),
        (pa.array([Decimal("1.50")], pa.decimal128(5, 2)), pa.decimal128(9, 1), (Decimal("1.5"),) * 2),
        (pa.array([Decimal("1.55")], pa.decimal128(5, 2)), pa.decimal128(9, 1), (None, None)),
        (pa.array([math.nan, 1.0, math.nan]), pa.float64(), (1.0, 1.0)),
        (pa.array([math.nan, math.nan]), pa.float64(), (None, None)),
        (pa.array([0.0, 0.0]), pa.float64(), (0.0, 0.0)),
        (pa.array([], pa.int64()), pa.int64(), None),
    ],
)
def test_bounds_of_other_stored_types_convert_exactly_or_are_unknown(
    stored: pa.Array, wanted: pa.DataType, expected: Any
) -> None:
    if expected is None:
        bounds, rows, files = row_group_bounds([footer({"c": stored})], ["c"], pa.schema([("c", wanted)]))
        assert (len(bounds["c"].minimum), len(rows), len(files)) == (0, 0, 0)
        return
    low, high, nulls = bounds_of(stored, wanted)
    if expected == "exact":
        expected = (datetime(1970, 1, 1, 0, 0, 0, 1, tzinfo=timezone.utc),) * 2
    assert (low, high, nulls) == (*expected, 0)


def test_int96_and_missing_statistics_are_unknown() -> None:
    moments = pa.array([INSTANT], UTC_MICROS)
    assert bounds_of(moments, UTC_MICROS, use_deprecated_int96_timestamps=True) == (None, None, None)
    assert bounds_of(pa.array([1]), pa.int64(), write_statistics=False) == (None, None, None)


def test_a_required_column_has_no_nulls_even_without_statistics() -> None:
    schema = pa.schema([pa.field("c", pa.int64(), nullable=False)])
    sink = io.BytesIO()
    pq.write_table(pa.table({"c": [1]}, schema=schema), sink, write_statistics=False)
    bounds, _, _ = row_group_bounds([pq.ParquetFile(sink).metadata], ["c"], schema)
    assert bounds["c"].null_count.to_pylist() == [0]


NESTED = pa.schema(
    [
        ("s", pa.struct([("a", pa.int64()), ("deep", pa.struct([("b", pa.string())])), ("new", pa.int32())])),
        ("items", pa.list_(pa.struct([("a", pa.int64())]))),
        ("a.b", pa.int64()),
        ("late", pa.int64()),
        ("late_items", pa.list_(pa.int64())),
    ]
)


def test_names_reach_through_structs_and_absence_means_all_null() -> None:
    stored = pa.table(
        {
            "items": pa.array([[{"a": 100}], [], None]),
            "pairs": pa.array([[(1, 2)], [], None], pa.map_(pa.int64(), pa.int64())),
            "s": pa.array([{"a": 1, "deep": {"b": "x"}}, {"a": None, "deep": None}, None]),
            "a.b": pa.array([7, 8, None]),
            "LATE_ITEMS": pa.array([1, 2, 3]),
        }
    )
    sink = io.BytesIO()
    pq.write_table(stored, sink)
    paths = ["s.a", "s.deep.b", "s.new", "`a.b`", "late", "late_items", "items", "s"]
    bounds, _, _ = row_group_bounds([pq.ParquetFile(sink).metadata], paths, NESTED)
    found = {
        path: (of.minimum[0].as_py(), of.maximum[0].as_py(), of.null_count[0].as_py()) for path, of in bounds.items()
    }
    assert found == {
        "s.a": (1, 1, 2),
        "s.deep.b": ("x", "x", 2),
        "s.new": (None, None, 3),
        "`a.b`": (7, 8, 1),
        "late": (None, None, 3),
        "late_items": (None, None, None),  # Perhaps it is the same column, spelt differently.
        "items": (None, None, None),
        "s": (None, None, None),
    }


def test_a_name_with_a_dot_is_not_a_field_of_a_struct() -> None:
    schema = pa.schema([("a", pa.struct([("b", pa.int64())]))])
    bounds, _, _ = row_group_bounds([footer({"a.b": pa.array([1])})], ["a.b"], schema)
    assert bounds["a.b"].null_count.to_pylist() == [1]
    assert bounds["a.b"].minimum.to_pylist() == [None]


def test_a_struct_where_the_table_has_a_value_is_unknown() -> None:
    bounds, _, _ = row_group_bounds([footer({"c": pa.array([{"x": 1}])})], ["c"], pa.schema([("c", pa.int64())]))
    assert bounds["c"].null_count.to_pylist() == [None]


def test_a_column_that_is_not_in_the_table_is_refused() -> None:
    with pytest.raises(InvalidInputError, match="did you mean 'amount'"):
        row_group_bounds([], ["amuont"], pa.schema([("amount", pa.int64())]))


FILES: Sequence[dict[str, pa.Array]] = [
    {"c": pa.array([1, 2, 3, 4, None, None]), "t": pa.array(["a", "b", None, None, "e", "f"])},
    {"t": pa.array(["x"])},
    {"c": pa.array([], pa.int64()), "t": pa.array([], pa.string())},
    {"c": pa.array([50, 60], pa.int32()), "t": pa.array([b"y", b"z"], pa.binary())},
    {"c": pa.array([5, 6], pa.timestamp("us")), "t": pa.array(["y", "z"])},
]
TABLE = pa.schema([("c", pa.int64()), ("t", pa.string())])


def test_bounds_of_files_with_different_schemas_align() -> None:
    footers = [footer(columns, row_group_size=2) for columns in FILES]
    bounds, rows, files = row_group_bounds(footers, ["T", "c"], TABLE)
    assert files.tolist() == [0, 0, 0, 1, 3, 4]
    assert rows.to_pylist() == [2, 2, 2, 1, 2, 2]
    assert bounds["c"].minimum.to_pylist() == [1, 3, None, None, 50, None]
    assert bounds["c"].maximum.to_pylist() == [2, 4, None, None, 60, None]
    assert bounds["c"].null_count.to_pylist() == [0, 0, 2, 1, 0, 0]
    assert bounds["t"].minimum.to_pylist() == ["a", None, "e", "x", "y", "y"]

    folded, file_rows = fold_files(bounds, rows, files, len(FILES))
    assert file_rows.to_pylist() == [6, 1, 0, 2, 2]
    assert folded["c"].minimum.to_pylist() == [1, None, None, 50, None]
    assert folded["c"].maximum.to_pylist() == [4, None, None, 60, None]
    assert folded["c"].null_count.to_pylist() == [2, 1, 0, 0, 0]
    assert folded["t"].maximum.to_pylist() == ["f", "x", None, "z", "z"]


@pytest.mark.parametrize(
    ("where", "files"),
    [
        ("c > 3", [0, 3, 4]),
        ("c > 4", [3, 4]),
        ("c is null", [0, 1]),
        ("t like 'y%'", [3, 4]),
        ("c = 2 and t = 'x'", []),
    ],
)
def test_files_that_cannot_match_are_left_out(where: str, files: list[int]) -> None:
    footers = [footer(columns, row_group_size=2) for columns in FILES]
    bounds, rows, file_index = row_group_bounds(footers, ["c", "t"], TABLE)
    kept = may_match(bind(parse_where(where), TABLE), *fold_files(bounds, rows, file_index, len(FILES)))
    assert np.flatnonzero(kept).tolist() == files


def test_bounds_of_no_file_are_empty() -> None:
    bounds, rows, files = row_group_bounds([], ["c"], TABLE)
    assert (len(rows), len(files), bounds["c"].minimum.type) == (0, 0, pa.int64())
    folded, file_rows = fold_files(bounds, rows, files, 2)
    assert file_rows.to_pylist() == [0, 0]
    assert folded["c"].minimum.to_pylist() == [None, None]


@pytest.mark.parametrize(
    ("stored", "wanted", "exact"),
    [
        (pa.int8(), pa.float32(), True),
        (pa.int16(), pa.float32(), True),
        (pa.int32(), pa.float32(), False),
        (pa.int32(), pa.float64(), True),
        (pa.int64(), pa.float64(), False),
        (pa.int8(), pa.float16(), False),
        (pa.int64(), pa.int8(), True),
        (pa.int64(), pa.uint64(), False),
        (pa.string(), pa.binary(), True),
        (pa.binary(2), pa.large_string(), True),
        (pa.string(), pa.int64(), False),
        (pa.bool_(), pa.string(), False),
        (pa.float64(), pa.float32(), False),
    ],
)
def test_conversion_is_exact_where_each_value_has_its_own_counterpart(
    stored: pa.DataType, wanted: pa.DataType, exact: bool
) -> None:
    assert is_exact_conversion(stored, wanted) is exact


@pytest.mark.parametrize(
    ("logical", "expected"),
    [
        ('{"Type": "Int", "bitWidth": 8, "isSigned": true}', pa.int8()),
        ('{"Type": "Int", "bitWidth": 32, "isSigned": true}', pa.int32()),
        ('{"Type": "Int", "bitWidth": 64, "isSigned": true}', pa.int64()),
        ('{"Type": "Int", "bitWidth": 64, "isSigned": false}', None),
        ('{"Type": "Timestamp", "timeUnit": "unknown", "isAdjustedToUTC": true}', None),
        ('{"Type": "Decimal", "precision": 38, "scale": 2}', pa.decimal128(38, 2)),
        ('{"Type": "Decimal", "precision": 39, "scale": 2}', None),
        ('{"Type": "Interval"}', None),
    ],
)
def test_logical_type_says_how_statistics_are_read(logical: str, expected: pa.DataType | None) -> None:
    assert stored_type("INT64", logical) == expected


def test_values_that_do_not_convert_leave_their_own_bounds_unknown_only() -> None:
    numbers = [1, 2**40, 5, 2**41, 7]
    footers = [footer({"c": pa.array([number])}) for number in numbers]
    bounds, rows, files = row_group_bounds(footers, ["c"], pa.schema([("c", pa.int32())]))
    assert bounds["c"].minimum.to_pylist() == bounds["c"].maximum.to_pylist() == [1, None, 5, None, 7]
    assert fold_files(bounds, rows, files, len(numbers)) == (bounds, rows)


def test_whole_numbers_in_a_column_of_floats_are_no_nan() -> None:
    footers = [footer({"c": pa.array([1], of)}) for of in (pa.int32(), pa.float64())]
    bounds, _, _ = row_group_bounds(footers, ["c"], pa.schema([("c", pa.float64())]))
    assert bounds["c"].nan_count is not None
    assert bounds["c"].nan_count.to_pylist() == [0, None]


def test_value_where_the_table_has_a_struct_is_unknown() -> None:
    schema = pa.schema([("s", pa.struct([("a", pa.int64())]))])
    bounds, rows, files = row_group_bounds([footer({"s": pa.array([1, 2])}, row_group_size=1)], ["s.a", "s"], schema)
    assert bounds["s.a"].null_count.to_pylist() == bounds["s.a"].minimum.to_pylist() == [None, None]
    folded, _ = fold_files(bounds, rows, files, 1)
    assert folded["s"].minimum.equals(pa.nulls(1, schema.field("s").type))


def test_row_group_whose_nulls_are_unknown_leaves_the_file_unknown() -> None:
    bounds = {"c": ColumnBounds(pa.array([1, None]), pa.array([2, None]), pa.array([0, None]))}
    folded, rows = fold_files(bounds, pa.array([5, 5]), np.array([0, 0]), 1)
    assert rows.to_pylist() == [10]
    assert (folded["c"].minimum.to_pylist(), folded["c"].maximum.to_pylist()) == ([None], [None])
    assert folded["c"].null_count.to_pylist() == [None]
