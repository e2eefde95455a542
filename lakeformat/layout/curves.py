"""From the cell of a grid to its place on a space-filling curve, many cells at a time."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

__all__ = ["hilbert", "interleave"]

Cells: TypeAlias = npt.NDArray[np.uint64]


def interleave(cells: Sequence[Cells], bits: int) -> Cells:
    """Z-order: the lowest ``bits`` bits of each coordinate in turn, from the highest; the first coordinate leads.

    Args:
        cells: one array per dimension, of equal length, values below ``2**bits``.
        bits: per dimension; together at most 64.
    """
    dimensions = len(cells)
    if dimensions == 1:
        return cells[0]
    spread = _spread(dimensions)
    found = np.zeros(len(cells[0]), np.uint64)
    for dimension, coordinate in enumerate(cells):
        for low in range(0, bits, 8):
            part = spread[(coordinate >> np.uint64(low)) & np.uint64(0xFF)]
            found |= part << np.uint64(low * dimensions + dimensions - 1 - dimension)
    return found


def hilbert(cells: Sequence[Cells], bits: int) -> Cells:
    """The place on the Hilbert curve: cells that follow each other differ by one in one coordinate.

    J. Skilling, "Programming the Hilbert curve" (2004): exchange and invert the lower bits level by level, then
    Gray-decode; what remains is read as in z-order. Arguments as of `interleave`.
    """
    dimensions = len(cells)
    if dimensions == 1:
        return cells[0]
    narrow: Any = np.uint16 if bits <= 16 else np.uint32 if bits <= 32 else np.uint64
    axes: list[npt.NDArray[Any]] = [coordinate.astype(narrow) for coordinate in cells]
    first = axes[0]
    for level in range(bits - 1, 0, -1):
        below = narrow((1 << level) - 1)
        for at in range(dimensions):
            # All ones where the level's bit is set. There the first axis is inverted, else the two are exchanged.
            inverts = -((axes[at] >> narrow(level)) & narrow(1))
            exchanged = (first ^ axes[at]) & below & ~inverts
            first ^= exchanged | (inverts & below)
            if at:
                axes[at] ^= exchanged
    for before, at in enumerate(range(1, dimensions)):
        axes[at] ^= axes[before]
    flips = np.zeros_like(first)
    for level in range(bits - 1, 0, -1):
        flips ^= -((axes[-1] >> narrow(level)) & narrow(1)) & narrow((1 << level) - 1)
    return interleave([(axis ^ flips).astype(np.uint64) for axis in axes], bits)


@lru_cache
def _spread(dimensions: int) -> Cells:
    """For each byte its bits, ``dimensions`` apart."""
    byte = np.arange(256, dtype=np.uint64)
    found = np.zeros(256, np.uint64)
    for bit in range(8):
        if bit * dimensions < 64:
            found |= ((byte >> np.uint64(bit)) & np.uint64(1)) << np.uint64(bit * dimensions)
    found.flags.writeable = False
    return found
