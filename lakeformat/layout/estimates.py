"""What layouts would skip, as values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from lakeformat.layout.boxes import Axis, Boxes

__all__ = ["NOW", "Estimate", "Estimates", "percent"]

NOW: Final = "now"
#: A rewrite that saves less than this share of the files read is not worth it.
_WORTH: Final = 0.1


@dataclass(frozen=True, slots=True)
class Estimate:
    """One layout.

    Attributes:
        name: ``now``, ``linear``, ``z-order`` or ``hilbert``.
        files: how many were judged.
        skipped: the mean share of files that a filter on a column alone skips, by column.
        skipped_together: the same of a filter on all columns.
        boxes: what the files span, in ranks.
    """

    name: str
    files: int
    skipped: Mapping[str, float]
    skipped_together: float
    boxes: Boxes = field(repr=False, compare=False)

    @property
    def read(self) -> float:
        """Mean share of files read, over all kinds of filters."""
        shares = [*self.skipped.values(), self.skipped_together]
        return 1 - sum(shares) / len(shares)


@dataclass(frozen=True, slots=True)
class Estimates:
    """What filters skip now and in other layouts.

    Attributes:
        columns: the layout's columns.
        rows, files: of the table.
        sampled: rows judged by.
        selectivity: the share of the rows that each filter is made to hold, were the columns independent.
        layouts: the table as it lies first.
        best: the layout that reads least, or ``now`` if no other saves a tenth of the files read.
        example: a filter on all columns, in ranks: a box.
        axes: the columns' ranks, for pictures.
        ticks: by column, values at quarters of the sampled rows.
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
        """The name of the layout to choose."""
        now, *others = self.layouts
        least = min(others, key=lambda layout: layout.read)
        return least.name if least.read < now.read * (1 - _WORTH) else NOW

    @property
    def advice(self) -> str:
        """What to do, in one line."""
        now, *others = self.layouts
        if self.files < 2:
            return "one file cannot be skipped in part: choose smaller files first"
        if self.best == NOW:
            return "the table lies well for these columns: leave it"
        least = next(layout for layout in others if layout.name == self.best)
        by = ", ".join(f'"{column}"' for column in self.columns)
        return (
            f"{least.name} reads {percent(least.read)} of the files where {percent(now.read)} are read now; run "
            f'table.cluster(by=[{by}], curve="{least.name}")'
        )


def percent(share: float) -> str:
    """A share for people."""
    return f"{100 * share:.3g} %" if share < 0.0995 else f"{100 * share:.1f} %"
