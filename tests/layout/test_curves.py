"""The curves, compared with their definitions."""

from collections.abc import Callable
from itertools import product
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakeformat.layout.curve import hilbert, interleave

GRIDS = [(2, 1), (2, 2), (2, 5), (3, 1), (3, 3), (4, 2), (5, 2), (7, 1)]


def cells_of(dimensions: int, bits: int) -> list[np.ndarray]:
    """Return every cell of a grid, as columns."""
    cells = np.array(list(product(range(1 << bits), repeat=dimensions)), np.uint64)
    return list(cells.T.copy())


@pytest.mark.parametrize(("dimensions", "bits"), GRIDS)
def test_hilbert_neighbours_differ_by_one_in_one_dimension(dimensions: int, bits: int) -> None:
    cells = cells_of(dimensions, bits)
    places = hilbert(cells, bits)
    order = np.argsort(places)
    assert places[order].tolist() == list(range(1 << (dimensions * bits)))
    along = np.array([cell[order].astype(int) for cell in cells])
    assert (np.abs(np.diff(along, axis=1)).sum(axis=0) == 1).all()


@pytest.mark.parametrize(("dimensions", "bits"), GRIDS)
def test_a_hilbert_curve_fills_each_block_before_the_next(dimensions: int, bits: int) -> None:
    cells = cells_of(dimensions, bits)
    places = hilbert(cells, bits)
    for level in range(1, bits):
        block = sum((cell >> np.uint64(level)) << np.uint64(16 * at) for at, cell in enumerate(cells))
        of_block = block[np.argsort(places)]
        changes = 1 + np.count_nonzero(of_block[1:] != of_block[:-1])
        assert changes == len(np.unique(block))


@st.composite
def grids(draw: st.DrawFn) -> tuple[list[list[int]], int]:
    dimensions = draw(st.integers(1, 9))
    bits = draw(st.integers(1, 64 // dimensions))
    coordinate = st.integers(0, (1 << bits) - 1)
    cells = draw(st.lists(st.lists(coordinate, min_size=dimensions, max_size=dimensions), min_size=1, max_size=8))
    return cells, bits


@given(grids())
def test_z_order_interleaves_bits(grid: tuple[list[list[int]], int]) -> None:
    cells, bits = grid
    slow = [int("".join(f"{c:0{bits}b}"[at] for at in range(bits) for c in cell), 2) for cell in cells]
    assert interleave(list(np.array(cells, np.uint64).T), bits).tolist() == slow


@given(grids())
def test_hilbert_is_one_to_one_at_any_depth(grid: tuple[list[list[int]], int]) -> None:
    cells, bits = grid
    distinct = np.unique(np.array(cells, np.uint64), axis=0)
    assert len(np.unique(hilbert(list(distinct.T.copy()), bits))) == len(distinct)


@pytest.mark.parametrize("curve", [hilbert, interleave])
def test_one_dimension_is_its_own_curve(curve: Callable[..., Any]) -> None:
    cells = np.array([0, 3, 1, (1 << 64) - 1], np.uint64)
    assert curve([cells], 64).tolist() == cells.tolist()


@pytest.mark.parametrize("bits", [16, 17, 32])
def test_the_highest_bit_of_a_coordinate_counts(bits: int) -> None:
    cells = np.array([0, 1 << bits - 1], np.uint64)
    zeros = np.zeros(2, np.uint64)
    for coordinates in ([cells, zeros], [zeros, cells]):
        first, second = hilbert(coordinates, bits).tolist()
        assert first == 0
        assert second >= 1 << 2 * bits - 2, "it is in another quarter of the square"
