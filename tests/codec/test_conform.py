"""Conforming changes types and never values: for nested and sliced columns, and for nulls that hide values."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakeformat.arrow.conform import conform, conform_array, reader_schema
from lakeformat.errors import SchemaMismatchError

NARROW = pa.struct(
    [
        ("i", pa.int32()),
        ("l", pa.list_(pa.field("item", pa.int32()))),
        ("m", pa.map_(pa.string(), pa.struct([("x", pa.int32())]))),
        ("d", pa.decimal128(5, 2)),
    ]
)
WIDE = pa.struct(
    [
        ("d", pa.decimal128(9, 2)),
        ("m", pa.map_(pa.string(), pa.struct([("x", pa.int64()), ("y", pa.string())]))),
        ("l", pa.list_(pa.field("element", pa.int64()))),
        ("i", pa.int64()),
        ("new", pa.list_(pa.string())),
    ]
)
SMALL = st.none() | st.integers(-5, 5)
VALUES = st.none() | st.fixed_dictionaries(
    {
        "i": SMALL,
        "l": st.none() | st.lists(SMALL, max_size=3),
        "m": st.none()
        | st.lists(st.tuples(st.sampled_from("ab"), st.none() | st.fixed_dictionaries({"x": SMALL})), max_size=2),
        "d": st.none() | st.decimals(-9, 9, places=2),
    }
)


def widen_row(row: dict[str, Any] | None) -> dict[str, Any] | None:
    if row is None:
        return None
    pairs = row["m"]
    m = pairs and [(key, value and {**value, "y": None}) for key, value in pairs]
    return {"d": row["d"], "m": m, "l": row["l"], "i": row["i"], "new": None}


@given(st.lists(VALUES, max_size=6), st.integers(0, 3), st.integers(0, 3))
def test_structs_lists_and_maps_widen_by_name(rows: list[Any], head: int, tail: int) -> None:
    whole = pa.array(rows, NARROW)
    part = whole.slice(head, max(0, len(whole) - head - tail))
    found = conform_array(part, WIDE)
    found.validate(full=True)
    assert found.type == WIDE
    assert found.to_pylist() == [widen_row(row) for row in part.to_pylist()]
    # A null struct may have children that are not null.
    mask = pa.array([True] * len(whole), pa.bool_())
    masked = pa.StructArray.from_arrays(whole.flatten(), fields=list(NARROW), mask=mask)
    assert conform_array(masked, WIDE).to_pylist() == [None] * len(whole)


OFFSETS = pa.array([0, 1, 3, 4], pa.int32())
HIDING = pa.array([False, True, False])


def test_values_under_a_null_list_are_dropped() -> None:
    hidden = pa.ListArray.from_arrays(OFFSETS, pa.array([1, 2, 3, 4], pa.int32()), mask=HIDING)
    found = conform_array(hidden, pa.list_(pa.int64()))
    assert found.to_pylist() == [[1], None, [4]]
    assert conform_array(hidden.slice(1), pa.list_(pa.int64())).to_pylist() == [None, [4]]


def test_entries_under_a_null_map_are_dropped() -> None:
    entries = pa.StructArray.from_arrays(
        [pa.array(["a", "b", "c", "d"]), pa.array([1, 2, 3, 4], pa.int32())],
        fields=[pa.field("key", pa.string(), nullable=False), pa.field("value", pa.int32())],
    )
    validity = pa.array([True, False, True]).buffers()[1]
    kind = pa.map_(pa.string(), pa.int32())
    hidden = pa.Array.from_buffers(kind, 3, [validity, OFFSETS.buffers()[1]], children=[entries])
    wide = pa.map_(pa.string(), pa.int64())
    assert conform_array(hidden, wide).to_pylist() == [[("a", 1)], None, [("d", 4)]]
    assert conform_array(hidden.slice(1), wide).to_pylist() == [None, [("d", 4)]]


@pytest.mark.parametrize(
    ("given_array", "wanted"),
    [
        (pa.array(["a", "b", "a"]).dictionary_encode(), pa.string()),
        (pa.array(["a", None], pa.large_string()), pa.string()),
        (pa.array([[1], None], pa.large_list(pa.int32())), pa.list_(pa.int64())),
        (pa.array([[1, 2], None], pa.list_(pa.int32(), 2)), pa.list_(pa.int64())),
        (pa.array([1000, None], pa.timestamp("ns", "UTC")), pa.timestamp("us", "UTC")),
        (pa.array([1, None], pa.timestamp("ms")), pa.timestamp("us")),
        (pa.array([1, None], pa.int8()), pa.int32()),
        (pa.nulls(2), pa.list_(pa.string())),
    ],
    ids=lambda value: str(getattr(value, "type", value)),
)
def test_other_arrow_forms_of_a_value_convert(given_array: pa.Array, wanted: pa.DataType) -> None:
    found = conform_array(given_array, wanted)
    assert found.type == wanted
    found.validate(full=True)
    assert len(found) == len(given_array)
    assert found.null_count == given_array.null_count
    assert conform_array(found, wanted) is found


@pytest.mark.parametrize(
    ("given_array", "wanted"),
    [
        (pa.array([2**40]), pa.int32()),
        (pa.array([1.5]), pa.int64()),
        (pa.array([1], pa.timestamp("ns")), pa.timestamp("us")),
        (pa.array([[2**40]]), pa.list_(pa.int32())),
        (pa.array([{"a": 2**40}]), pa.struct([("a", pa.int32())])),
        (pa.array(["x"]), pa.int64()),
        (pa.array([[1]]), pa.int64()),
        (pa.array([{"a": 1}]), pa.string()),
    ],
    ids=lambda value: str(getattr(value, "type", value)),
)
def test_lossy_conversion_error_names_the_column(given_array: pa.Array, wanted: pa.DataType) -> None:
    rows = pa.table({"ok": [1], "bad": given_array})
    with pytest.raises(SchemaMismatchError, match=r"column 'bad' of type .* does not fit .*; convert it first$"):
        conform(rows, pa.schema([("ok", pa.int64()), ("bad", wanted)]))


@pytest.mark.parametrize("as_batch", [False, True])
def test_columns_are_matched_by_name_and_missing_ones_are_null(as_batch: bool) -> None:
    table = pa.table({"b": pa.array([1, 2], pa.int32()), "a": ["x", "y"], "gone": [0, 0]})
    rows = table.to_batches()[0] if as_batch else table
    wanted = pa.schema([("a", pa.string()), ("new", pa.map_(pa.string(), pa.int32())), ("b", pa.int64())])
    found = conform(rows, wanted)
    assert type(found) is type(rows)
    assert found.schema == wanted
    assert found.to_pylist() == [{"a": "x", "new": None, "b": 1}, {"a": "y", "new": None, "b": 2}]
    assert conform(found, wanted) is found


def test_readers_get_nullable_fields_and_microseconds() -> None:
    stored = pa.schema(
        [
            pa.field("t", pa.timestamp("ms", "UTC"), nullable=False),
            ("s", pa.struct([pa.field("l", pa.list_(pa.timestamp("ms")), nullable=False)])),
            ("m", pa.map_(pa.string(), pa.timestamp("ms", "UTC"))),
        ]
    )
    assert reader_schema(stored) == pa.schema(
        [
            ("t", pa.timestamp("us", "UTC")),
            ("s", pa.struct([("l", pa.list_(pa.field("element", pa.timestamp("us"))))])),
            ("m", pa.map_(pa.string(), pa.timestamp("us", "UTC"))),
        ]
    )


@given(
    st.lists(st.none() | st.sampled_from(["x", "a longer text than a view holds"]), max_size=6),
    st.integers(0, 3),
    st.sampled_from([(pa.string_view(), pa.string()), (pa.binary_view(), pa.binary()), (pa.string(), pa.string())]),
)
def test_dictionary_columns_become_their_values(texts: list[str | None], head: int, kinds: tuple[Any, Any]) -> None:
    """polars exports dictionaries of views, which Arrow itself does not decode."""
    given_type, wanted = kinds
    plain = pa.array(texts, pa.string())
    encoded = plain.dictionary_encode()
    coded = pa.DictionaryArray.from_arrays(encoded.indices, encoded.dictionary.cast(wanted).cast(given_type))
    expected = plain.cast(wanted)
    assert conform_array(coded.slice(head), wanted).equals(expected.slice(head))
    nested = pa.StructArray.from_arrays([coded], ["c"])
    assert conform_array(nested, pa.struct([("c", wanted)])).field(0).equals(expected)
