"""Curves, which order the rows of a layout, and the division of ordered rows into files.

Hudi: ``LayoutOptimizationStrategy``. A curve is fitted to a sample once and can be sent to other processes. It computes
a row's position on the curve, a 64-bit integer, from the row only: the same row has the same position in every batch.
"""

from __future__ import annotations

import enum
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import lru_cache
from itertools import accumulate
from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lakeformat.errors import InvalidInputError, SchemaMismatchError
from lakeformat.layout.ranks import Boundaries, Ranks, Words, fit_boundaries, fit_ranks, leaf_column, leaf_type

__all__ = [
    "SLACK",
    "Curve",
    "CurveBuild",
    "CurveStrategy",
    "Positions",
    "cell_ends",
    "cut_places",
    "fit_curve",
    "hilbert",
    "interleave",
]

Cells: TypeAlias = npt.NDArray[np.uint64]


def interleave(cells: Sequence[Cells], bits: int) -> Cells:
    """Return positions in z-order: the ``bits`` lowest bits of the coordinates, interleaved from the highest bit.

    In each group of bits the first coordinate comes first.

    Args:
        cells: one array of coordinates per dimension, all of equal length; coordinates are below ``2**bits``.
        bits: number of bits per dimension; at most 64 for all dimensions together.
    """
    dimensions = len(cells)
    if dimensions == 1:
        return cells[0]
    spread = _spread_bits(dimensions)
    codes = np.zeros(len(cells[0]), np.uint64)
    for dimension, coordinate in enumerate(cells):
        for low in range(0, bits, 8):
            part = spread[(coordinate >> np.uint64(low)) & np.uint64(0xFF)]
            codes |= part << np.uint64(low * dimensions + dimensions - 1 - dimension)
    return codes


def hilbert(cells: Sequence[Cells], bits: int) -> Cells:
    """Return positions on the Hilbert curve, on which consecutive points differ by one in one coordinate.

    Algorithm: J. Skilling, "Programming the Hilbert curve" (2004): exchange and invert the lower bits level by level,
    then Gray-decode; the result is interleaved as in z-order. The arguments are those of `interleave`.
    """
    dimensions = len(cells)
    if dimensions == 1:
        return cells[0]
    narrow: Any = np.uint16 if bits <= 16 else np.uint32 if bits <= 32 else np.uint64
    axes: list[npt.NDArray[Any]] = [coordinate.astype(narrow) for coordinate in cells]
    first = axes[0]
    for level in range(bits - 1, 0, -1):
        below = narrow((1 << level) - 1)
        for dimension_number in range(dimensions):
            # For each row, a mask: all ones if this axis has a 1 at this level, else all zeros. If it is all ones, the
            # lower bits of the first axis are inverted; else they are exchanged with those of this axis.
            inverts = -((axes[dimension_number] >> narrow(level)) & narrow(1))
            exchanged = (first ^ axes[dimension_number]) & below & ~inverts
            first ^= exchanged | (inverts & below)
            if dimension_number:
                axes[dimension_number] ^= exchanged
    for before, dimension_number in enumerate(range(1, dimensions)):
        axes[dimension_number] ^= axes[before]
    flips = np.zeros_like(first)
    for level in range(bits - 1, 0, -1):
        flips ^= -((axes[-1] >> narrow(level)) & narrow(1)) & narrow((1 << level) - 1)
    return interleave([(axis ^ flips).astype(np.uint64) for axis in axes], bits)


@lru_cache
def _spread_bits(dimensions: int) -> Cells:
    """Return for each byte a 64-bit integer with the byte's bits ``dimensions`` bits apart."""
    byte = np.arange(256, dtype=np.uint64)
    spread = np.zeros(256, np.uint64)
    for bit in range(8):
        if bit * dimensions < 64:
            spread |= ((byte >> np.uint64(bit)) & np.uint64(1)) << np.uint64(bit * dimensions)
    spread.flags.writeable = False
    return spread


Positions: TypeAlias = npt.NDArray[np.uint64]

#: Maximum number of bits of a rank. More bits would be useless, because a 65,536th of a table is less than a file.
_RANK_BITS: Final = 16
#: Number of rows whose positions are computed at a time by one thread.
_BLOCK_ROWS: Final = 1 << 16


class CurveStrategy(enum.Enum):
    """The kind of curve that orders the rows (``hoodie.layout.optimize.strategy``)."""

    LINEAR = "linear"
    Z_ORDER = "z-order"
    HILBERT = "hilbert"

    @classmethod
    def parse(cls, text: str) -> CurveStrategy:
        """Parse the name of a strategy. Case, ``-`` and ``_`` are ignored.

        >>> CurveStrategy.parse("ZORDER"), CurveStrategy.parse("z_order").value
        (<CurveStrategy.Z_ORDER: 'z-order'>, 'z-order')

        Raises:
            InvalidInputError: there is no such strategy.
        """
        plain = text.strip().lower().replace("-", "").replace("_", "")
        for strategy in cls:
            if plain == strategy.value.replace("-", ""):
                return strategy
        raise InvalidInputError(f"no such layout strategy: {text!r}; write linear, z-order or hilbert")


class CurveBuild(enum.Enum):
    """The way a column becomes a coordinate of the curve (``hoodie.layout.optimize.curve.build.method``)."""

    SAMPLE = "sample"  #: The value's rank among sampled values: the curve divides the rows evenly.
    #: The value's own bits, from the highest bit in which sampled values differ. All cells of the curve span equally
    #: wide ranges of values (as 64-bit integers), but may have very different numbers of rows.
    DIRECT = "direct"

    @classmethod
    def parse(cls, text: str) -> CurveBuild:
        """Parse the name in any case. Raise `InvalidInputError` for any other word."""
        for build in cls:
            if text.strip().lower() == build.value:
                return build
        raise InvalidInputError(f"no such way to build a curve: {text!r}; write sample or direct")


@dataclass(frozen=True, slots=True, eq=False)
class _Linear:
    """The sampled values of each column, from which LINEAR computes positions that order rows column by column."""

    columns: tuple[Boundaries | None, ...]

    def place(self, columns: Sequence[Words]) -> Positions:
        """Return each row's position on the curve of LINEAR. Different positions are in the order of the columns.

        Rows with equal positions may differ. All values between two neighbouring sampled values get the same code, so
        their order is lost. If an earlier column of a row has such a code, the later columns do not change the row's
        position, because they could contradict the lost order.
        """
        codes = np.zeros(len(columns[0]), np.uint64)
        open_ = np.ones(len(codes), bool)
        free_bits = 64
        for boundaries, words in zip(self.columns, columns, strict=True):
            count = 0 if boundaries is None else boundaries.count
            width = (2 * count + 1).bit_length()
            if width > free_bits:
                break
            free_bits -= width
            code, exact = _encode_linear(boundaries, words)
            codes |= np.where(open_, code, 0).astype(np.uint64) << np.uint64(free_bits)
            open_ &= exact
        return codes


def _encode_linear(boundaries: Boundaries | None, words: Words) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.bool_]]:
    """Return a code for each row, and a flag: whether all rows with this code have the same value.

    Null has the code 0, a sampled value an even number, the values between two sampled values an odd number.
    """
    if boundaries is None:
        code, exact = np.ones(len(words), np.int64), np.zeros(len(words), bool)
    else:
        below, exact = boundaries.find(words)
        code = 2 * below + 1 - exact
        if words.cut and exact.any():
            rows = np.flatnonzero(exact)
            exact[rows] = words.complete(rows)
    if words.valid is not None:
        code, exact = np.where(words.valid, code, 0), exact | ~words.valid
    return code, exact


@dataclass(frozen=True, slots=True)
class _Bits:
    """The coordinate of one column under DIRECT: bits of a value, without leading bits that all samples share.

    A value outside the sample's range is replaced by the nearest bound of the range.

    Attributes:
        low, high: the smallest and greatest value in the sample, as the first integer of `Words`.
        shift: number of low bits that are dropped.
    """

    low: int
    high: int
    shift: int

    def of(self, words: Words) -> Positions:
        word = np.clip(words.word(0), np.uint64(self.low), np.uint64(self.high))
        if words.valid is not None:
            word = np.where(words.valid, word, np.uint64(self.low))
        return (word - np.uint64(self.low & self.high & _shared_prefix_mask(self.low, self.high))) >> np.uint64(
            self.shift
        )


def _shared_prefix_mask(low: int, high: int) -> int:
    """Return a mask of the leading bits in which two 64-bit integers are equal."""
    return ~((1 << (low ^ high).bit_length()) - 1) & ((1 << 64) - 1)


@dataclass(frozen=True, slots=True, eq=False)
class Curve:
    """A curve, which computes the position of each row. Picklable; made by `fit_curve`.

    Attributes:
        strategy: the kind of curve.
        columns: columns by name, fields of structs by path (``a.b``).
        types: the types of the columns; rows must have the same types.
        bits: number of bits of each coordinate; positions are below ``2 ** (bits * len(columns))``. LINEAR may use all
            64 bits.
    """

    strategy: CurveStrategy
    columns: tuple[str, ...]
    types: tuple[pa.DataType, ...]
    bits: int
    _coordinates: tuple[Ranks | _Bits, ...] | _Linear

    def positions(self, rows: pa.Table | pa.RecordBatch) -> Positions:
        """Return the position of each row on the curve. Nulls sort first, NaN last.

        Rows with equal columns have equal positions. For LINEAR, rows with different columns may also have equal
        positions, depending on the sample: use the positions to divide rows into ranges, and sort each range by the
        columns. Memory: 8 bytes per row, and a block of rows per thread.

        Raises:
            SchemaMismatchError: a column is missing or of another type than the sample's.
        """
        places = np.empty(rows.num_rows, np.uint64)
        names = list(map(str, range(len(self.columns))))
        columns = pa.table([self._column(rows, number) for number in range(len(self.columns))], names)
        blocks = columns.to_batches(max_chunksize=_BLOCK_ROWS)
        starts = accumulate((block.num_rows for block in blocks), initial=0)

        def place(block: pa.RecordBatch, start: int) -> None:
            places[start : start + block.num_rows] = self._place([Words(column) for column in block.columns])

        if len(blocks) == 1:
            place(blocks[0], 0)
        else:
            with ThreadPoolExecutor(max(1, pa.cpu_count())) as pool:
                for _ in pool.map(place, blocks, starts):
                    pass
        return places

    def _column(self, rows: pa.Table | pa.RecordBatch, number: int) -> pa.Array | pa.ChunkedArray:
        column = leaf_column(rows, self.columns[number])
        if column.type != self.types[number]:
            raise SchemaMismatchError(
                f"the layout column {self.columns[number]!r} is {column.type}, the curve was fitted to "
                f"{self.types[number]}; cast it first"
            )
        return column

    def _place(self, columns: Sequence[Words]) -> Positions:
        if isinstance(self._coordinates, _Linear):
            return self._coordinates.place(columns)
        cells = [coordinate.of(words) for coordinate, words in zip(self._coordinates, columns, strict=True)]
        return (hilbert if self.strategy is CurveStrategy.HILBERT else interleave)(cells, self.bits)


def fit_curve(
    strategy: CurveStrategy, columns: Sequence[str], sample: pa.Table, *, build: CurveBuild = CurveBuild.SAMPLE
) -> Curve:
    """Fit a curve to a sample, for rows with the same columns.

    Args:
        strategy: the kind of curve. With one column, every curve becomes LINEAR.
        columns: one or more columns, at most 64; fields of structs by path (``a.b``).
        sample: rows with these columns, drawn as evenly as possible. With 200,000 rows, quantiles are exact to a
            tenth of a percent. With an empty sample, all rows have the same position.
        build: how a value becomes a coordinate; LINEAR always uses the sample.

    Raises:
        InvalidInputError: there are no columns, too many, or one occurs twice.
        SchemaMismatchError: a column is missing or has no order.
    """
    names = tuple(columns)
    if not 0 < len(names) <= 64 or len(set(names)) < len(names):
        raise InvalidInputError(f"a layout needs 1 to 64 different columns, not {', '.join(names) or 'none'}")
    types = tuple(leaf_type(sample.schema, name) for name in names)
    parts = [_combine_chunks(leaf_column(sample, name)) for name in names]
    bits = 64 // len(names)
    if strategy is CurveStrategy.LINEAR or len(names) == 1:
        return Curve(CurveStrategy.LINEAR, names, types, bits, _Linear(tuple(map(fit_boundaries, parts))))
    if build is CurveBuild.SAMPLE:
        bits = min(bits, _RANK_BITS)
        return Curve(strategy, names, types, bits, tuple(fit_ranks(part, bits) for part in parts))
    return Curve(strategy, names, types, bits, _fit_bits(parts, bits))


def _combine_chunks(column: pa.Array | pa.ChunkedArray) -> pa.Array:
    return column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column


def _fit_bits(columns: Sequence[pa.Array], bits: int) -> tuple[_Bits, ...]:
    """Return the coordinates of all columns for DIRECT.

    The same bits are taken from the values of all columns: ``bits`` bits, beginning with the highest bit in which the
    sampled values of any one column differ.
    """
    ends = []
    for column in columns:
        words = Words(column)
        word = words.word(0) if words.valid is None else words.word(0)[words.valid]
        ends.append((int(word.min()), int(word.max())) if len(word) else (0, 0))
    highest = max((low ^ high).bit_length() for low, high in ends)
    shift = max(0, highest - bits)
    return tuple(_Bits(low, high, shift) for low, high in ends)


#: Maximum difference between a file's number of rows and the mean number per file, as a share of that mean number.
SLACK: Final = 0.2


def cut_places(places: Positions, files: int) -> npt.NDArray[np.int64]:
    """Return the number of the first row of each file except the first.

    A file should end at the boundary of a large cell of the curve. A file with parts of two large cells would have wide
    ranges of values, so that filters could seldom skip it. The higher the first bit in which the positions of two
    neighbouring rows differ, the larger are the cells whose boundary lies between these rows. For the end of each file:

    1. The number of remaining rows, divided by that of the remaining files, is the desired number of rows of the file.
    2. The candidates are the ends with which the number of rows differs from the desired number by at most `SLACK`.
    3. The candidate with the highest differing bit is chosen. There is one, because the positions are sorted. If all
       positions are equal, the file gets the desired number of rows.

    Args:
        places: positions of the rows on the curve, sorted.
        files: number of files; at least one, at most the number of rows.
    """
    starts = np.empty(files - 1, np.int64)
    start, rows = 0, len(places)
    for number in range(files - 1):
        even = (rows - start) / (files - number)
        ideal = start + round(even)
        first, last = ideal - int(SLACK * even), ideal + int(SLACK * even)
        apart = places[first : last + 1] ^ places[first - 1 : last]
        start = first + int(apart.argmax()) if apart.any() else ideal
        starts[number] = start
    return starts


def cell_ends(places: Positions, starts: npt.NDArray[np.int64]) -> Positions:
    """Return for each file except the last the greatest position on the curve that belongs to it.

    ``starts`` is the result of `cut_places`. If ``places`` is a sample, other rows are assigned to files by these ends.
    Each end is a cell boundary between the last row of the file and the first row of the next file.
    """
    before = places[starts - 1]
    filled = before ^ places[starts]
    for shift in (1, 2, 4, 8, 16, 32):
        filled |= filled >> np.uint64(shift)
    ends: Positions = before | (filled >> np.uint64(1))
    return ends
