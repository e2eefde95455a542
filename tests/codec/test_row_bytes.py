"""Bytes of rows, counted value by value and all at once, and cuts that respect a number of bytes."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakeformat.arrow.row_bytes import decoded_bytes, row_sizes, split_positions, split_rows, value_ends

TEXTS = pa.array(["", "a", None, "bcd", "é" * 50, "x" * 1_000])
VALUES = [
    TEXTS,
    TEXTS.cast(pa.large_string()),
    TEXTS.dictionary_encode(),
    pa.array([1, 2, None, 4, 5, 6]),
    pa.array([["a", "bc"], [], None, ["x" * 99], [""], ["q"] * 9]),
    pa.array([{"a": "x" * at, "b": [at] * at} for at in range(6)]),
    pa.array([[("k", "v" * at)] * at for at in range(6)], pa.map_(pa.string(), pa.string())),
    pa.nulls(6),
]


def payload(value: object) -> int:
    """Return the bytes of the texts in a Python value, plus eight for each number."""
    if isinstance(value, dict):
        return sum(map(payload, value.values()))
    if isinstance(value, list | tuple):
        return sum(map(payload, value))
    return len(value.encode()) if isinstance(value, str) else 8 if isinstance(value, int) else 0


@pytest.mark.parametrize("values", VALUES, ids=lambda values: str(values.type)[:20])
def test_offsets_locate_each_value_also_in_slices(values: pa.Array) -> None:
    for part in (values, values.slice(1, 4), values.slice(2, 0)):
        lengths = np.diff(value_ends(part))
        wanted = [payload(value) for value in part.to_pylist()]
        if pa.types.is_integer(values.type):
            wanted = [8 for _ in wanted]
        assert lengths.tolist() == wanted


def test_dictionary_column_counts_as_its_decoded_texts() -> None:
    texts = pa.array(["x" * 100_000]).take(pa.array([0] * 500))
    rows = pa.table({"v": texts.dictionary_encode()})
    assert rows.nbytes < 200_000
    assert decoded_bytes(rows) == 500 * 100_000
    assert [piece.num_rows for piece in split_rows(rows, 1_000, 25_000_000)] == [250, 250]


@given(st.lists(st.integers(0, 300), min_size=1, max_size=60), st.integers(1, 40), st.integers(1, 900))
def test_pieces_and_runs_keep_order_and_limits(sizes: list[int], most_rows: int, most_bytes: int) -> None:
    texts = ["t" * size for size in sizes]
    half = len(texts) // 2
    rows = pa.table({"v": pa.chunked_array([texts[:half], texts[half:]], pa.string())})
    cut = list(split_rows(rows, most_rows, most_bytes))
    assert [text for piece in cut for text in piece["v"].to_pylist()] == texts
    assert all(p.num_rows == 1 or (p.num_rows <= most_rows and decoded_bytes(p) <= most_bytes) for p in cut)
    at = np.random.default_rng(len(texts)).permutation(len(texts))
    found = list(split_positions(rows, at, most_rows, most_bytes))
    assert np.array_equal(np.concatenate(found), at)
    for run in found:
        assert len(run) == 1 or (len(run) <= most_rows and row_sizes(rows, run).sum() <= most_bytes)
