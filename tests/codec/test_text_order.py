"""Texts sorted as numbers: the same order as Arrow's sort."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakeformat.arrow.text_order import sort_texts

#: Texts with shared beginnings, zero bytes, and lengths around a number's eight bytes.
TEXTS = st.text("ab\0é", max_size=4) | st.builds(
    lambda start, middle, end: start + middle * 9 + end,
    st.sampled_from(["", "order-", "a"]),
    st.sampled_from(["", "0", "\0"]),
    st.text("01\0", max_size=9),
)


@given(st.lists(TEXTS, max_size=40), st.sampled_from([pa.string(), pa.binary(), pa.large_string()]), st.integers(0, 3))
def test_texts_are_sorted_as_arrow_sorts_them(texts: list[str], kind: Any, skipped: int) -> None:
    values = pa.array(texts, pa.string()).cast(kind).slice(skipped)
    assert sort_texts(values).tolist() == pc.sort_indices(values).to_pylist()


@given(st.lists(st.lists(st.none() | TEXTS, max_size=9), max_size=4))
def test_chunks_and_nulls_are_sorted(parts: list[list[str | None]]) -> None:
    values = pa.chunked_array(parts, pa.string())
    assert sort_texts(values).tolist() == pc.sort_indices(values).to_pylist()


@pytest.mark.parametrize(
    "form", ["{:032x}", "2025-{:010d}", "{}", "key {:d} of a text that has more than sixty-four bytes {:d}"]
)
def test_many_keys_are_sorted(form: str) -> None:
    """Ten thousand keys, some of which occur twice: equal keys keep their order."""
    numbers = np.random.default_rng(3).integers(0, 20_000, 10_000).tolist()
    values = pa.array([form.format(number, number) for number in numbers])
    assert sort_texts(values).tolist() == pc.sort_indices(values).to_pylist()
