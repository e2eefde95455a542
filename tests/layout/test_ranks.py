"""A search by cells finds the same ranks as a binary search, for every distribution of the words."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakeformat.layout.ranks import MAXIMUM_BOUNDARIES, Cells, Words

WORDS = st.integers(0, 2**64 - 1) | st.integers(0, 40) | st.integers(2**63 - 20, 2**63 + 20)
TOP = 2**64 - 1


@given(st.sets(WORDS, min_size=1, max_size=60), st.lists(WORDS, max_size=60))
def test_cell_search_equals_binary_search(distinct: set[int], others: list[int]) -> None:
    words = np.array(sorted(distinct), np.uint64)
    wanted = np.array([*distinct, *others, 0, TOP], np.uint64)
    assert Cells.of(words).search(wanted).tolist() == np.searchsorted(words, wanted, "right").tolist()


@pytest.mark.parametrize("kind", [pa.int64(), pa.float64()])  # Floats are crowded in few of the cells.
def test_cell_search_works_with_the_most_boundaries(kind: pa.DataType) -> None:
    numbers = np.random.default_rng(0).integers(-(10**12), 10**12, 200_000)
    wanted = Words(pa.array(numbers).cast(kind)).word(0)
    words = np.unique(wanted)[:: len(wanted) // MAXIMUM_BOUNDARIES][:MAXIMUM_BOUNDARIES]
    assert (Cells.of(words).search(wanted) == np.searchsorted(words, wanted, "right")).all()
