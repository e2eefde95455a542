"""The ends of files: never far from even cuts, and between cells."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from lakeformat.layout import cell_ends, cut_places
from lakeformat.layout.curve import SLACK

PLACES = st.lists(st.integers(0, 300) | st.integers(0, (1 << 64) - 1), min_size=1, max_size=60).map(sorted)


@given(PLACES, st.data())
def test_files_are_nonempty_and_nearly_even(places: list[int], data: st.DataObject) -> None:
    files = data.draw(st.integers(1, len(places)))
    edges = [0, *cut_places(np.array(places, np.uint64), files).tolist(), len(places)]
    lengths = np.diff(edges)
    assert len(lengths) == files
    assert (lengths > 0).all()
    for at, length in enumerate(lengths[:-1].tolist()):
        even = (len(places) - edges[at]) / (files - at)
        assert abs(length - even) <= SLACK * even + 1


@given(PLACES, st.data())
def test_cut_falls_at_the_end_of_a_cell(places: list[int], data: st.DataObject) -> None:
    sorted_places = np.array(places, np.uint64)
    starts = cut_places(sorted_places, data.draw(st.integers(1, len(places))))
    for start, end in zip(starts.tolist(), cell_ends(sorted_places, starts).tolist(), strict=True):
        assert places[start - 1] <= end
        assert end < places[start] or places[start] == places[start - 1] == end
        # Files consist of whole cells: the place after an end is in another cell.
        apart = places[start - 1] ^ places[start]
        assert not apart or (end + 1) % (1 << apart.bit_length() - 1) == 0


def test_cuts_fall_between_the_cells_of_a_grid() -> None:
    rng = np.random.default_rng(1)
    # 16 cells, each with about a hundred rows: even cuts would miss the end of every cell.
    cells = np.sort(np.repeat(np.arange(16), rng.integers(92, 108, 16))).astype(np.uint64)
    places = (cells << np.uint64(60)) | np.sort(rng.integers(0, 1 << 59, len(cells))).astype(np.uint64)
    starts = cut_places(np.sort(places), 16)
    assert [int(cells[start]) for start in starts] == list(range(1, 16))
    assert [int(cells[start - 1]) for start in starts] == list(range(15))
