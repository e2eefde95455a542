"""Where a file ends along a curve: between large cells of it, as files that end anywhere span a bit of two cells."""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt

from lakeformat.layout.curve import Positions

__all__ = ["SLACK", "cell_ends", "cut"]

#: Files may be this share longer or shorter than even ones.
SLACK: Final = 0.2


def cut(places: Positions, files: int) -> npt.NDArray[np.int64]:
    """The row at which each file but the first starts.

    Two rows are the further apart on the curve the higher the first bit in which their places differ. Around the
    place where an even file would end, the cut goes to where that bit is highest, and of such to the nearest.

    Args:
        places: in order.
        files: at least one, at most as many as rows.
    """
    starts = np.empty(files - 1, np.int64)
    start, rows = 0, len(places)
    for at in range(files - 1):
        even = (rows - start) / (files - at)
        wanted = start + round(even)
        first = max(start + 1, wanted - int(SLACK * even))
        last = min(rows - (files - 1 - at), wanted + int(SLACK * even))
        apart = places[first : last + 1] ^ places[first - 1 : last]
        highest = int(apart.max()).bit_length()
        best = first + np.flatnonzero(apart >= np.uint64(1 << highest - 1)) if highest else np.array([wanted])
        start = int(best[np.argmin(np.abs(best - wanted))])
        starts[at] = start
    return starts


def cell_ends(places: Positions, starts: npt.NDArray[np.int64]) -> Positions:
    """For each cut of `cut` the last place that lies before it, of rows that `places` does not have, too."""
    before = places[starts - 1]
    filled = before ^ places[starts]
    for shift in (1, 2, 4, 8, 16, 32):
        filled |= filled >> np.uint64(shift)
    ends: Positions = before | (filled >> np.uint64(1))
    return ends
