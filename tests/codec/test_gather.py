"""Gathering and replacing return what Arrow's own kernels return, for text of equal lengths and any other column."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakeformat.arrow.gather import combine_table, gather, gather_array, replace_and_take, replace_values, scatter

COUNT = 200
TYPES = [pa.string(), pa.binary(), pa.large_string(), pa.dictionary(pa.int32(), pa.string()), pa.int64()]


@st.composite
def columns(draw: st.DrawFn, kind: pa.DataType, rows: int = COUNT) -> pa.Array:
    """Draw a column of a type that is gathered in a special way: mostly text of equal lengths, sliced."""
    if kind == pa.int64():
        return pa.array(np.arange(rows))
    width = draw(st.integers(0, 40))
    texts = [f"{at:040}"[40 - width :] for at in range(rows + 2)]
    odd = draw(st.sampled_from(["none", "longer", "null", "swapped"]))
    if odd == "longer":
        texts[draw(st.integers(0, rows + 1))] += "é"
    elif odd == "swapped":  # The lengths differ; their sum stays the same.
        texts[0], texts[1] = texts[0] + "x", texts[1][1:]
    values = pa.array([None if odd == "null" and at == 1 else text for at, text in enumerate(texts)], pa.string())
    return values.cast(kind).slice(draw(st.integers(0, 2)), rows)


@given(st.data())
def test_gathers_as_arrow_does(data: st.DataObject) -> None:
    values = data.draw(st.sampled_from(TYPES).flatmap(columns))
    at = np.array(data.draw(st.lists(st.integers(0, COUNT - 1), max_size=300)), np.int64)
    found = gather_array(values, pa.array(at))
    found.validate(full=True)
    assert found.equals(values.take(pa.array(at)))


@given(st.data())
def test_replaces_as_arrow_does(data: st.DataObject) -> None:
    kind = data.draw(st.sampled_from(TYPES))
    old = data.draw(columns(kind))
    mask = np.random.default_rng(data.draw(st.integers(0, 9))).random(COUNT) < data.draw(st.sampled_from([0, 0.5, 1]))
    new = data.draw(columns(kind, int(mask.sum())))
    found = replace_values(old, pa.array(mask), new)
    found.validate(full=True)
    plain = [array.dictionary_decode() if pa.types.is_dictionary(kind) else array for array in (old, new, found)]
    assert plain[2].equals(pc.replace_with_mask(plain[0], pa.array(mask), plain[1]))


@given(st.data())
def test_scatters_as_arrow_takes(data: st.DataObject) -> None:
    drawn = [data.draw(columns(kind)) for kind in TYPES]
    rows = pa.RecordBatch.from_arrays([*drawn, drawn[0]], [f"c{at}" for at in range(len(TYPES) + 1)])
    number = data.draw(st.integers(1, 5))
    codes = np.array(data.draw(st.lists(st.integers(0, number - 1), min_size=COUNT, max_size=COUNT)))
    groups = [np.flatnonzero(codes == group) for group in range(number)]
    found = scatter(rows, groups)
    for group, part in zip(groups, found, strict=True):
        part.validate(full=True)
        assert part.equals(rows.take(pa.array(group)))
        first, last = (part.column(at).buffers()[1] for at in (0, len(TYPES)))
        assert first is None or first.address == last.address


def test_a_null_among_the_positions_gives_a_null() -> None:
    keys = pa.array([f"{at:08}" for at in range(COUNT)])
    assert gather_array(keys, pa.array([3, None])).to_pylist() == ["00000003", None]


@pytest.mark.parametrize("chunks", [1, 3])
def test_gathered_columns_share_memory_as_before(chunks: int) -> None:
    keys = pa.chunked_array([pa.array([f"{at:08}" for at in range(COUNT)])] * chunks)
    other = pa.chunked_array([pa.array([f"{at:08}" for at in range(COUNT)])] * chunks)
    rows = combine_table(pa.table({"key": keys, "id": keys, "other": other}))
    found = gather(rows, np.arange(COUNT, dtype=np.int64)[::-1])
    assert found.equals(pa.table({name: [f"{at:08}" for at in reversed(range(COUNT))] for name in rows.schema.names}))
    key, copy, apart = (column.chunk(0).buffers()[2].address for column in found.columns)
    assert key == copy != apart


def test_rows_of_several_chunks_are_gathered_too() -> None:
    rows = pa.table({"key": pa.chunked_array([["a", "b"], ["c"]]), "n": [1, 2, 3]})
    assert gather(rows, np.array([2, 0], np.int64)).to_pydict() == {"key": ["c", "a"], "n": [3, 1]}


def test_columns_without_any_value() -> None:
    rows = pa.table({"key": pa.array([], pa.string()), "texts": pa.array([], pa.list_(pa.string()))})
    assert gather(combine_table(rows), np.array([], np.int64)).equals(rows.combine_chunks())
    none = pa.table({name: pa.chunked_array([], rows.schema.field(name).type) for name in rows.schema.names})
    assert combine_table(none).equals(rows)


def test_columns_with_different_memory_are_gathered_separately() -> None:
    rows = pa.table({name: pa.array([name] * COUNT).dictionary_encode() for name in map(str, range(50))})
    found = gather(combine_table(rows), np.arange(COUNT, dtype=np.int64))
    assert found.to_pydict() == rows.to_pydict()


@given(st.data())
def test_gathers_from_many_chunks_as_arrow_does(data: st.DataObject) -> None:
    kind = data.draw(st.sampled_from(TYPES))
    sizes = data.draw(st.lists(st.integers(0, 90), min_size=2, max_size=5))
    chunks = [data.draw(columns(kind)).slice(0, size) for size in sizes]
    column = pa.chunked_array(chunks, kind)
    places = st.lists(st.integers(0, max(len(column) - 1, 0)), max_size=300 if len(column) else 0)
    at = np.array(data.draw(places.map(sorted) | places), np.int64)
    found = gather(pa.table({"a": column, "b": column}), at)
    found.validate(full=True)
    plain = column.cast(pa.string()) if pa.types.is_dictionary(kind) else column
    wanted = plain.combine_chunks().take(pa.array(at)).to_pylist()
    assert found["a"].to_pylist() == found["b"].to_pylist() == wanted


@given(st.data())
def test_replacement_among_remaining_rows_equals_arrows(data: st.DataObject) -> None:
    kind = data.draw(st.sampled_from([*TYPES, pa.bool_(), pa.decimal128(30, 2), pa.timestamp("us")]))
    number = pa.array([at % 2 for at in range(COUNT)])
    old = data.draw(columns(kind)) if kind in TYPES else number.cast(kind)
    old = old.slice(data.draw(st.integers(0, 3)))
    left = np.flatnonzero(data.draw(st.lists(st.booleans(), min_size=len(old), max_size=len(old))))
    at = left[data.draw(st.lists(st.booleans(), min_size=len(left), max_size=len(left)))]
    new = (data.draw(columns(kind)) if kind in TYPES else number.cast(kind)).slice(1, len(at))
    before = old.to_pylist()
    found = replace_and_take(old, at, new, pa.array(left), np.searchsorted(left, at))
    found.validate(full=True)
    values = dict(enumerate(before)) | dict(zip(at.tolist(), new.to_pylist(), strict=True))
    assert found.to_pylist() == [values[place] for place in left.tolist()]
    assert old.to_pylist() == before
