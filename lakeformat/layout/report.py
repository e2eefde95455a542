"""What a layout would do for filters, judged by a sample of rows before anything is rewritten.

Every layout is asked the same filters: around rows drawn at random, on each column alone and on all columns together,
each wide enough to hold a given share of the rows. A layout to judge is the sample itself, put in order and cut into
as many files as the table has; the table as it lies is judged by its files' own bounds.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lakeformat.codec.html import html_rows
from lakeformat.layout.boxes import Axis, Boxes, Ranks, Spans, around, of_files, share_read
from lakeformat.layout.curve import Positions, Strategy, fit
from lakeformat.layout.cut import cut
from lakeformat.layout.estimates import NOW, Estimate, Estimates, percent
from lakeformat.model.one_line import OneLine

if TYPE_CHECKING:
    from os import PathLike

__all__ = ["LayoutReport", "Sample", "report"]

#: Filters of each kind.
_FILTERS: Final = 200
#: Fewer sampled rows tell too little of what a file spans.
ROWS_A_FILE: Final = 32
_TICKS: Final = (0.0, 0.25, 0.5, 0.75, 1.0)


@dataclass(frozen=True, slots=True, eq=False)
class Sample:
    """Rows drawn evenly from a table.

    Attributes:
        rows: the layout's columns, flat, under their names.
        partition: for each row the number of its partition.
        files: for each partition, how many files its rows are to be cut into.
    """

    rows: pa.Table
    partition: npt.NDArray[np.int64]
    files: npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True, repr=False)
class LayoutReport(OneLine, Estimates):
    """What filters skip now and in other layouts; ``str()`` is a table. Its attributes are those of `Estimates`."""

    def __str__(self) -> str:
        names = [*(f"on {column}" for column in self.columns)]
        if len(self.columns) > 1:
            names.append("on all together")
        width = max(map(len, names))
        lines = [
            f"{self.rows:,} rows in {self.files:,} files, judged by a sample of {self.sampled:,} rows.",
            f"Share of the files that a filter for {percent(self.selectivity)} of the rows skips:",
            "",
            " ".join([" " * width, *(f"{layout.name:>9}" for layout in self.layouts)]),
        ]
        for at, name in enumerate(names):
            shares = [[*layout.skipped.values(), layout.skipped_together][at] for layout in self.layouts]
            lines.append(" ".join([f"{name:<{width}}", *(f"{percent(share):>9}" for share in shares)]))
        judged = self.layouts[-1].files
        if judged < self.files:
            lines += ["", f"The sample was cut into {judged:,} files, with fewer rows it would tell too little."]
        return "\n".join([*lines, "", self.advice])

    def _repr_html_(self) -> str:
        """What notebooks show: the shares of files that filters skip, a column a layout, and the advice."""
        kinds = [*(f"on {column}" for column in self.columns), "on all together"]
        rows = [
            (kind, *(percent([*layout.skipped.values(), layout.skipped_together][at]) for layout in self.layouts))
            for at, kind in enumerate(kinds if len(self.columns) > 1 else kinds[:1])
        ]
        head = f"Share of the files that a filter for {percent(self.selectivity)} of the rows skips"
        return html_rows(("", *(layout.name for layout in self.layouts)), rows, caption=head, note=self.advice)

    def figure(self, plane: Sequence[str] = (), *, after: LayoutReport | None = None) -> Any:
        """A matplotlib figure: what files span in the plane of two columns, a panel for each layout.

        Args:
            plane: two of the columns; the first two by default. One column is drawn against the order of files.
            after: a later report on the same columns: two panels, the table as it lay and as it lies.

        Raises:
            InvalidInputError: matplotlib is missing (``pip install 'lakeformat[plot]'``), or no such columns.
        """
        from lakeformat.layout.picture import draw

        return draw(self, plane, after)

    def to_png(
        self, path: str | PathLike[str], plane: Sequence[str] = (), *, after: LayoutReport | None = None
    ) -> None:
        """Write the figure as a PNG file on this machine; arguments and errors as of `figure`."""
        self.figure(plane, after=after).savefig(path, format="png", dpi=150)


def report(
    sample: Sample, now: Mapping[str, Spans], *, rows: int, files: int, selectivity: float = 0.01, seed: int = 0
) -> LayoutReport:
    """Judge layouts by the columns of ``now``, in their order.

    Args:
        sample: rows with these columns.
        now: what the table's files span, of all files or of some drawn evenly.
        rows, files: of the table.
        selectivity: the share of the rows that each filter shall hold.
        seed: of the filters.
    """
    names = tuple(now)
    sample = replace(sample, rows=sample.rows.select(list(names)))
    columns = [sample.rows[name].combine_chunks() for name in names]
    axes = [Axis.of(column, now[name]) for name, column in zip(names, columns, strict=True)]
    rng = np.random.default_rng(seed)
    drawn = rng.integers(0, max(1, sample.rows.num_rows), _FILTERS if sample.rows.num_rows else 0)
    alone = [around([axis], drawn, selectivity, rng) for axis in axes]
    together = around(axes, drawn, selectivity ** (1 / len(axes)), rng)

    def judged(name: str, boxes: Boxes) -> Estimate:
        skipped = {
            column: 1 - share_read(boxes.only(at), alone[at]) if len(boxes) else 0.0 for at, column in enumerate(names)
        }
        return Estimate(name, len(boxes), skipped, 1 - share_read(boxes, together), boxes)

    spans = [axis.spans for axis in axes]
    lying = Boxes(*(np.concatenate([getattr(span, end) for span in spans], axis=1) for end in ("low", "high")))
    layouts = [judged(NOW, lying)]
    for strategy in Strategy:
        if strategy is Strategy.LINEAR or len(names) > 1:
            file, count = _cut(sample, *_order(strategy, sample, axes))
            layouts.append(judged(strategy.value, of_files(axes, file, count)))
    return LayoutReport(
        columns=names,
        rows=rows,
        files=files,
        sampled=sample.rows.num_rows,
        selectivity=selectivity,
        layouts=tuple(layouts),
        example=_example(together, layouts),
        axes=tuple(axes),
        ticks={name: _ticks(column, axis) for name, column, axis in zip(names, columns, axes, strict=True)},
    )


def _order(strategy: Strategy, sample: Sample, axes: Sequence[Axis]) -> tuple[Ranks, Positions | None]:
    """The rows in order, partition after partition, and their places on the curve in that order."""
    if strategy is Strategy.LINEAR:
        return np.lexsort([*(axis.rows for axis in reversed(axes)), sample.partition]), None
    places = fit(strategy, sample.rows.schema.names, sample.rows).positions(sample.rows)
    order = np.lexsort((places, sample.partition))
    return order, places[order]


def _cut(sample: Sample, order: Ranks, places: Positions | None) -> tuple[Ranks, int]:
    """The file of each row, every partition cut into files as a rewrite would; and how many files there are."""
    rows = np.bincount(sample.partition, minlength=len(sample.files))
    files = np.clip(sample.files, 1, np.maximum(1, rows // ROWS_A_FILE))
    files[rows == 0] = 0
    first_row, first_file = np.cumsum(rows) - rows, np.cumsum(files) - files
    of = sample.partition[order]
    file = first_file[of] + (np.arange(len(order)) - first_row[of]) * files[of] // rows[of]
    if places is not None:
        for partition in np.flatnonzero(files > 1).tolist():
            first, count = first_row[partition], rows[partition]
            starts = cut(places[first : first + count], int(files[partition]))
            file[first : first + count] = first_file[partition] + np.searchsorted(starts, np.arange(count), "right")
    of_row = np.empty(len(order), np.int64)
    of_row[order] = file
    return of_row, int(files.sum())


def _example(filters: Boxes, layouts: Sequence[Estimate]) -> Boxes:
    """The filter whose share of files is most like the mean's in the last layout."""
    if not len(filters):
        return filters
    boxes = layouts[-1].boxes
    touched = np.array([filters.touched(at, boxes).sum() for at in range(len(filters))])
    chosen = [int(np.argsort(touched, kind="stable")[len(touched) // 2])]
    return Boxes(filters.low[chosen], filters.high[chosen])


def _ticks(column: pa.Array, axis: Axis) -> tuple[str, ...]:
    """Values of the sample at quarters of its rows."""
    order = np.argsort(axis.rows, kind="stable")[np.count_nonzero(axis.rows == 0) :]
    if not len(order):
        return ()
    at = [order[int(share * (len(order) - 1))] for share in _TICKS]
    return tuple(_shown(value) for value in column.take(pa.array(at)).to_pylist())


def _shown(value: object) -> str:
    if isinstance(value, float):
        return f"{value:,.4g}"
    if isinstance(value, int) and not isinstance(value, bool):
        return f"{value:,}" if abs(value) < 10**7 else f"{value:.3g}"
    text = value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)
    return text if len(text) <= 19 else text[:18] + "…"
