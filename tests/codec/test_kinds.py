"""Kinds of Arrow types, compared with Arrow's own tests of types."""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa
import pytest

from lakeformat.arrow.kinds import OFFSETS, VIEWS, Kind, kind_of

_TYPES = [
    *(pa.null(), pa.bool_(), pa.int8(), pa.int16(), pa.int32(), pa.int64()),
    *(pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64(), pa.float16(), pa.float32(), pa.float64()),
    *(pa.decimal128(5, 2), pa.decimal256(50, 2), pa.string(), pa.large_string(), pa.string_view()),
    *(pa.binary(), pa.large_binary(), pa.binary_view(), pa.binary(4), pa.date32(), pa.date64()),
    *(pa.time32("s"), pa.time64("us"), pa.timestamp("us"), pa.timestamp("us", "UTC"), pa.duration("s")),
    *(pa.month_day_nano_interval(), pa.list_(pa.int8()), pa.large_list(pa.int8()), pa.list_(pa.int8(), 2)),
    *(pa.list_view(pa.int8()), pa.large_list_view(pa.int8()), pa.struct([("a", pa.int8())])),
    *(pa.map_(pa.string(), pa.int8()), pa.dense_union([pa.field("a", pa.int8())])),
    *(pa.dictionary(pa.int32(), pa.string()), pa.fixed_shape_tensor(pa.int8(), [2])),
]
_TESTS: list[tuple[Callable[[pa.DataType], bool], Callable[[Kind], bool]]] = [
    (pa.types.is_null, lambda kind: kind is Kind.NULL),
    (pa.types.is_boolean, lambda kind: kind is Kind.BOOLEAN),
    (pa.types.is_integer, lambda kind: kind is Kind.INTEGER),
    (pa.types.is_floating, lambda kind: kind is Kind.FLOAT),
    (pa.types.is_decimal, lambda kind: kind is Kind.DECIMAL),
    (pa.types.is_date, lambda kind: kind is Kind.DATE),
    (pa.types.is_time, lambda kind: kind is Kind.TIME),
    (pa.types.is_timestamp, lambda kind: kind is Kind.TIMESTAMP),
    (pa.types.is_duration, lambda kind: kind is Kind.DURATION),
    (pa.types.is_interval, lambda kind: kind is Kind.INTERVAL),
    (pa.types.is_temporal, lambda kind: kind.is_temporal),
    (pa.types.is_struct, lambda kind: kind is Kind.STRUCT),
    (pa.types.is_map, lambda kind: kind is Kind.MAP),
    (pa.types.is_union, lambda kind: kind is Kind.UNION),
    (pa.types.is_nested, lambda kind: kind.is_nested),
    (pa.types.is_dictionary, lambda kind: kind is Kind.DICTIONARY),
]


@pytest.mark.parametrize("data_type", _TYPES, ids=str)
def test_a_kind_agrees_with_the_tests_of_arrow(data_type: pa.DataType) -> None:
    kind = kind_of(data_type)

    assert [is_kind(kind) for _, is_kind in _TESTS] == [is_type(data_type) for is_type, _ in _TESTS]
    assert kind.is_number == (kind in (Kind.INTEGER, Kind.FLOAT, Kind.DECIMAL))
    assert (kind is Kind.OTHER) == isinstance(data_type, pa.BaseExtensionType)


def test_texts_and_bytes_include_all_layouts() -> None:
    texts = (pa.string(), pa.large_string(), pa.string_view())

    assert {kind_of(data_type) for data_type in texts} == {Kind.TEXT}
    assert {kind_of(data_type) for data_type in (*OFFSETS, *VIEWS)} == {Kind.TEXT, Kind.BYTES}
    assert {kind_of(plain) is kind_of(view) for view, plain in VIEWS.items()} == {True}


@pytest.mark.parametrize("data_type", [*OFFSETS], ids=str)
def test_offsets_have_the_width_that_arrow_uses(data_type: pa.DataType) -> None:
    values = pa.array([b"a", b"bc", b""] if kind_of(data_type) is Kind.BYTES else ["a", "bc", ""], data_type)

    width = OFFSETS[data_type]().itemsize
    offsets = memoryview(values.buffers()[1])[: 4 * width].cast("i" if width == 4 else "q")
    assert offsets.tolist() == [0, 1, 3, 3]
