"""Estimates of how many files filters read.

A box is a range of values in each of several columns. The box of a file reaches, in each column, from the file's
minimum to its maximum. A range filter is a box, too, and it reads the files whose boxes overlap its own. The bounds of
a box are not stored as values, but as the ranks of these values in a sample.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lakeformat.arrow.kinds import Kind, kind_of
from lakeformat.layout.ranks import Words
from lakeformat.public import public

__all__ = [
    "NOW",
    "Axis",
    "Boxes",
    "Estimate",
    "Estimates",
    "FileRanges",
    "RankArray",
    "boxes_around",
    "boxes_of_files",
    "format_percent",
    "share_read",
]

RankArray: TypeAlias = npt.NDArray[np.int64]

#: Number of comparisons of a filter with a file that are computed at a time, to limit memory.
_AT_ONCE: Final = 1 << 22


@dataclass(frozen=True, slots=True, eq=False)
class FileRanges:
    """The known range of each file in one column.

    Attributes:
        low, high: the bounds of each file, of the column's type; null if unknown.
        is_empty: a flag per file: whether the column has no values in it, because it has only nulls or no rows.
    """

    low: pa.Array
    high: pa.Array
    is_empty: npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True, eq=False)
class Boxes:
    """Boxes, one per row of ``low`` and ``high``, with a dimension per column.

    Both bounds belong to the box. A box whose low bound is greater than its high bound is empty.
    """

    low: RankArray
    high: RankArray

    def __len__(self) -> int:
        return len(self.low)

    def select_dimension(self, dimension: int) -> Boxes:
        """Return the boxes reduced to one dimension."""
        return Boxes(self.low[:, [dimension]], self.high[:, [dimension]])

    def find_overlaps(self, box: int, other: Boxes) -> npt.NDArray[np.bool_]:
        """Return a flag for each box of ``other``: whether it overlaps the box with number ``box``."""
        flags: npt.NDArray[np.bool_] = ((other.low <= self.high[box]) & (other.high >= self.low[box])).all(axis=1)
        return flags


@dataclass(frozen=True, slots=True, eq=False)
class Axis:
    """The ranks of one column's values. Equal values have equal ranks; null and NaN, which are in no box, have rank 0.

    Attributes:
        rows: the rank of each sampled row.
        spans: a one-dimensional box per file: its lowest and highest rank.
        ordered: the sorted ranks of the sampled rows without null and NaN; at least one entry.
    """

    rows: RankArray
    spans: Boxes
    ordered: RankArray

    @classmethod
    def of(cls, sample: pa.Array, files: FileRanges) -> Axis:
        """Return the axis of a column. Sampled values and bounds are ranked together, so their ranks are comparable."""
        size, count = len(sample), len(files.low)
        if kind_of(sample.type) is Kind.FLOAT:
            sample = pc.if_else(pc.is_nan(sample), pa.scalar(None, sample.type), sample)
        ranks = _rank_values(pa.concat_arrays([sample, files.low, files.high]))
        low, high = ranks[size : size + count], ranks[size + count :]
        top = int(ranks.max(initial=1))  # If there are no values, filters are around rank 1.
        high = np.where(high == 0, top, high)  # An unknown upper bound becomes the greatest rank.
        low, high = np.where(files.is_empty, top + 1, low), np.where(files.is_empty, -1, high)
        shares = np.sort(ranks[:size])
        ordered = shares[np.searchsorted(shares, 1) :]
        return cls(ranks[:size], Boxes(low[:, None], high[:, None]), ordered if len(ordered) else np.ones(1, np.int64))

    def share_below(self, ranks: RankArray) -> npt.NDArray[np.float64]:
        """Return for each rank the share, from 0 to 1, of the sampled values whose ranks are less."""
        return np.searchsorted(self.ordered, ranks) / len(self.ordered)

    def share_up_to(self, ranks: RankArray) -> npt.NDArray[np.float64]:
        """Return for each rank the share, from 0 to 1, of the sampled values whose ranks are less or equal."""
        return np.searchsorted(self.ordered, ranks, "right") / len(self.ordered)


def _rank_values(values: pa.Array) -> RankArray:
    """Return ranks from 1 in the order of the values, 0 for null."""
    words = Words(values)
    columns = [words.word(number) for number in range(words.count)]
    order = np.lexsort(columns[::-1])
    if words.valid is not None:
        order = order[words.valid[order]]
    changes = np.any([column[order][1:] != column[order][:-1] for column in columns], axis=0)
    ranks = np.zeros(len(values), np.int64)
    ranks[order] = np.cumsum(np.append(np.ones(min(1, len(order)), np.int64), changes))
    return ranks


def boxes_around(axes: list[Axis], rows: RankArray, width: float, rng: np.random.Generator) -> Boxes:
    """Return random boxes, one around each of the sampled rows.

    In each column, the range of a box contains the share ``width``, from 0 to 1, of the column's sampled values.
    """
    low, high = [], []
    for axis in axes:
        last = len(axis.ordered) - 1
        start = axis.share_below(axis.rows[rows]) - width * rng.random(len(rows))
        start = np.clip(start, 0, 1 - width)
        low.append(axis.ordered[np.floor(start * last).astype(np.int64)])
        high.append(axis.ordered[np.floor((start + width) * last).astype(np.int64)])
    return Boxes(np.stack(low, axis=1), np.stack(high, axis=1))


def boxes_of_files(axes: list[Axis], file: RankArray, count: int) -> Boxes:
    """Return the boxes that ``count`` files would span.

    Args:
        file: the number of the file to which each sampled row would belong.
    """
    top = max(int(axis.rows.max(initial=0)) for axis in axes) + 1
    low = np.full((count, len(axes)), top)
    high = np.full((count, len(axes)), -1)
    for dimension, axis in enumerate(axes):
        valid = axis.rows > 0
        np.minimum.at(low[:, dimension], file[valid], axis.rows[valid])
        np.maximum.at(high[:, dimension], file[valid], axis.rows[valid])
    return Boxes(low, high)


def share_read(files: Boxes, filters: Boxes) -> float:
    """Return the mean share, from 0 to 1, of the files that a filter reads; 0 if there are no files or filters."""
    if not len(files) or not len(filters):
        return 0.0
    step = max(1, _AT_ONCE // len(files))
    touched = 0
    for first in range(0, len(filters), step):
        low, high = filters.low[first : first + step, None], filters.high[first : first + step, None]
        touched += int(((files.low <= high) & (files.high >= low)).all(axis=2).sum())
    return touched / len(files) / len(filters)


NOW: Final = "now"
#: A rewrite is advised only if filters would then read fewer files than now, by more than this fraction.
_WORTH: Final = 0.1


@dataclass(frozen=True, slots=True)
class Estimate:
    """The estimate of one layout.

    Attributes:
        name: ``now``, ``linear``, ``z-order`` or ``hilbert``.
        files: number of files in the estimate.
        skipped: maps each column to the mean share, from 0 to 1, of the files that a filter on only this column skips.
        skipped_together: the mean share of the files that a filter on all columns skips.
        boxes: the boxes that the files span, in ranks.
    """

    name: str
    files: int
    skipped: Mapping[str, float]
    skipped_together: float
    boxes: Boxes = field(repr=False, compare=False)

    @property
    def read(self) -> float:
        """Return the mean share of the files that a filter reads, over filters on each column and on all columns."""
        shares = [*self.skipped.values(), self.skipped_together]
        return 1 - sum(shares) / len(shares)


@public
@dataclass(frozen=True, slots=True)
class Estimates:
    """The shares of files that filters skip now and in other layouts.

    Attributes:
        columns: the layout's columns.
        rows, files: number of rows and of files of the table.
        sampled: number of sampled rows.
        selectivity: the share of the rows, from 0 to 1, that each filter selects if the columns are independent.
        layouts: the estimates; the first is the table as it is now.
        best: name of the layout that reads the fewest files; ``now`` if no layout saves a tenth of the files read.
        example: a filter on all columns, as a box in ranks.
        axes: the columns' ranks, for pictures.
        ticks: maps each column to the values at 0, 25, 50, 75 and 100 % of its sorted sample, for pictures.
    """

    columns: tuple[str, ...]
    rows: int
    files: int
    sampled: int
    selectivity: float
    layouts: tuple[Estimate, ...]
    example: Boxes = field(repr=False, compare=False)
    axes: tuple[Axis, ...] = field(repr=False, compare=False)
    ticks: Mapping[str, tuple[str, ...]] = field(repr=False)

    @property
    def best(self) -> str:
        """Return the name of the layout that reads the fewest files; ``now`` if none saves a tenth of the reads."""
        now, *others = self.layouts
        least = min(others, key=lambda layout: layout.read)
        return least.name if least.read < now.read * (1 - _WORTH) else NOW

    @property
    def advice(self) -> str:
        """Return the advice in one line."""
        now, *others = self.layouts
        if self.files < 2:
            return "one file cannot be skipped in part: choose smaller files first"
        if self.best == NOW:
            return "the table lies well for these columns: leave it"
        least = next(layout for layout in others if layout.name == self.best)
        by = ", ".join(f'"{column}"' for column in self.columns)
        return (
            f"{least.name} reads {format_percent(least.read)} of the files where {format_percent(now.read)} are read "
            f'now; run table.cluster(by=[{by}], curve="{least.name}")'
        )


def format_percent(share: float) -> str:
    """Format a share from 0 to 1 as a percentage."""
    return f"{100 * share:.3g} %" if share < 0.0995 else f"{100 * share:.1f} %"
