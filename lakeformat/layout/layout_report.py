"""The layout report: an estimate, from a sample, of how many files filters would skip in each layout.

Every layout is tested with the same range filters. Some filter one column, others filter all columns together. Each
filter is a range around a random row, wide enough to select a given share of the rows. For each possible layout, the
sampled rows are sorted and divided into as many files as the table has. For the present layout, the bounds of the
table's own files are used.

The report can be drawn as a picture (``pip install 'lakeformat[plot]'``). It shows, for two columns, the ranges of
values in each file as a box. A position on an axis is not a value, but the share of the sampled rows with smaller
values. Therefore the rows fill the picture evenly, however their values are distributed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lakeformat.display import html_rows
from lakeformat.errors import InvalidInputError, nearest
from lakeformat.extras import install_line
from lakeformat.layout.boxes import (
    NOW,
    Axis,
    Boxes,
    Estimate,
    Estimates,
    FileRanges,
    RankArray,
    boxes_around,
    boxes_of_files,
    format_percent,
    share_read,
)
from lakeformat.layout.curve import CurveStrategy, Positions, cut_places, fit_curve
from lakeformat.public import OneLine, public

if TYPE_CHECKING:
    from os import PathLike

    from matplotlib.axes import Axes

__all__ = ["LayoutReport", "Sample", "draw_layouts", "estimate_layouts"]

#: Maximum number of boxes that are drawn. With more, a panel would be a grey area.
_MOST_BOXES: Final = 1_024
_MOST_POINTS: Final = 3_000
_SKIPPED: Final = ("#dfe7ef", "#9db0c4")
_READ: Final = ("#f2a65a", "#c4541c")
_FILTER: Final = "#15304b"
_TEXT: Final = "#33404d"
_TITLES: Final = {NOW: "as it lies now"}

Extents = tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]


def draw_layouts(report: Estimates, plane: Sequence[str] = (), after: Estimates | None = None) -> Any:
    """Draw the figure that `LayoutReport.figure` describes."""
    try:
        from matplotlib.figure import Figure
        from matplotlib.patches import Patch
    except ImportError:
        raise InvalidInputError(f"pictures need matplotlib; {install_line('plot')}") from None
    shown = _choose_columns(report, plane)
    panels_of = [(report, layout, _TITLES.get(layout.name, layout.name)) for layout in report.layouts]
    if after is not None:
        if after.columns != report.columns:
            raise InvalidInputError(
                f"the reports are on {', '.join(report.columns)} and on {', '.join(after.columns)}; "
                "make both on the same columns"
            )
        before = replace(report, example=_convert_example(after, report))
        panels_of = [(before, report.layouts[0], "before"), (after, after.layouts[0], "after")]
    across = 2 if len(panels_of) > 1 else 1
    down = -(-len(panels_of) // across)
    figure = Figure(figsize=(5.2 * across, 5.0 * down + 1.1), facecolor="white", layout="constrained")
    panels = figure.subplots(down, across, squeeze=False).flat
    for panel, (of, layout, title) in zip(panels, panels_of, strict=False):
        best = layout.name == of.best and layout.name != NOW
        _draw_panel(panel, of, layout, shown, f"{title}{', reads least' if best else ''}")
    head = f"{report.rows:,} rows in {report.files:,} files: what filters on {' and '.join(report.columns)} read"
    subtitle = report.advice
    if after is not None:
        # The line break at the end separates the subtitle from the titles of the panels.
        shares = [format_percent(shown.layouts[0].read) for shown in (report, after)]
        subtitle = f"{shares[0]} of the files before, {shares[1]} after\n"
    figure.suptitle(f"{head}\n{subtitle}", fontsize=12, color=_TEXT)
    figure.legend(
        handles=[
            Patch(
                facecolor="none", edgecolor=_FILTER, linewidth=1.8, label=f"a filter on {' and '.join(report.columns)}"
            ),
            Patch(facecolor=_READ[0], edgecolor=_READ[1], alpha=0.6, label="files that it reads"),
            Patch(facecolor=_SKIPPED[0], edgecolor=_SKIPPED[1], label="files that it skips"),
        ],
        loc="outside lower center",
        ncols=3,
        frameon=False,
        fontsize=10,
        labelcolor=_TEXT,
        title="Equal lengths of an axis hold equally many rows.",
        title_fontproperties={"size": 9},
    )
    return figure


def _convert_example(of: Estimates, target: Estimates) -> Boxes:
    """Return a report's example filter in the ranks of another report, so that it selects the same shares of rows."""
    if not len(of.example):
        return target.example
    low, high = of.example.low.copy(), of.example.high.copy()
    for axis_number, (from_axis, other) in enumerate(zip(of.axes, target.axes, strict=True)):
        last = len(other.ordered) - 1
        begins = np.rint(from_axis.share_below(low[:, axis_number]) * len(other.ordered)).astype(int)
        ends = np.rint(from_axis.share_up_to(high[:, axis_number]) * len(other.ordered)).astype(int) - 1
        low[:, axis_number] = other.ordered[np.clip(begins, 0, last)]
        high[:, axis_number] = other.ordered[np.clip(ends, 0, last)]
    return Boxes(low, high)


def _choose_columns(report: Estimates, plane: Sequence[str]) -> tuple[int, ...]:
    """Return the positions, in the report's columns, of the one or two columns on the axes."""
    chosen = tuple(plane) or report.columns[:2]
    for name in chosen:
        if name not in report.columns:
            raise InvalidInputError(
                f"the report has no column {name!r}{nearest(name, report.columns)}; it has {', '.join(report.columns)}"
            )
    if plane and (len(chosen) != 2 or len(set(chosen)) != 2):
        raise InvalidInputError(f"a plane has two different columns, not {', '.join(chosen)}")
    return tuple(report.columns.index(name) for name in chosen)


def _draw_panel(panel: Axes, report: Estimates, layout: Estimate, shown: tuple[int, ...], title: str) -> None:
    from matplotlib.collections import PolyCollection
    from matplotlib.patches import Rectangle

    boxes = layout.boxes
    full = np.flatnonzero((boxes.low <= boxes.high).all(axis=1))
    touched = report.example.find_overlaps(0, boxes) if len(report.example) else np.zeros(len(boxes), bool)
    drawn = full[np.linspace(0, len(full) - 1, min(len(full), _MOST_BOXES)).astype(int)] if len(full) else full
    sides = [_extents(report, boxes, column) for column in shown]
    if len(shown) == 1:
        number = np.argsort(np.lexsort(sides[0][::-1])) / max(1, len(boxes))
        sides.append((number, number + 1 / max(1, len(boxes))))
    (left, right), (bottom, top) = sides
    corners = np.stack([left, bottom, left, top, right, top, right, bottom], axis=1).reshape(-1, 4, 2)
    edge = 0.7 if len(drawn) <= 256 else 0.35
    for which, (face, line), alpha in ((~touched, _SKIPPED, 0.5), (touched, _READ, 0.45)):
        some = corners[drawn[which[drawn]]]
        # The more boxes overlap, the more transparent is each box.
        shade = alpha / max(1.0, _mean_depth(sides) ** 0.5)
        panel.add_collection(PolyCollection(some, facecolors=face, edgecolors="none", alpha=max(shade, 0.05)))
        panel.add_collection(PolyCollection(some, facecolors="none", edgecolors=line, linewidths=edge, alpha=0.8))
    if len(shown) == 2:
        _draw_points(panel, report, shown)
    if len(report.example):
        ends = [_extents(report, report.example, column) for column in shown]
        if len(shown) == 1:
            ends.append((np.zeros(1), np.ones(1)))
        (x, x_end), (y, y_end) = ((float(low[0]), float(high[0])) for low, high in ends)
        frame = Rectangle((x, y), x_end - x, y_end - y, fill=False, edgecolor=_FILTER, linewidth=1.8, zorder=5)
        panel.add_patch(frame)
    best = layout.name == report.best and layout.name != NOW
    panel.set_title(title, loc="left", fontsize=12, color=_TEXT, fontweight="bold", pad=20)
    subtitle = f"filters read {100 * layout.read:.1f} % of the files; this one {touched.sum():,} of {len(boxes):,}"
    panel.text(0, 1.018, subtitle, transform=panel.transAxes, fontsize=9.5, color=_READ[1] if best else _TEXT)
    _draw_axes(panel, report, shown)


def _extents(report: Estimates, boxes: Boxes, column: int) -> Extents:
    axis = report.axes[column]
    return axis.share_below(boxes.low[:, column]), axis.share_up_to(boxes.high[:, column])


def _mean_depth(sides: Sequence[Extents]) -> float:
    """Return the mean number of boxes that cover a point of the panel."""
    lengths = [np.clip(end - start, 0, 1) for start, end in sides]
    return float(np.prod(lengths, axis=0).sum())


def _draw_points(panel: Axes, report: Estimates, shown: tuple[int, ...]) -> None:
    """Draw some of the sampled rows as points. Rows with equal values are spread over the value's part of the axis."""
    rng = np.random.default_rng(0)
    rows = rng.integers(0, report.sampled, min(report.sampled, _MOST_POINTS))
    coordinates = []
    for column in shown:
        axis = report.axes[column]
        low, high = axis.share_below(axis.rows[rows]), axis.share_up_to(axis.rows[rows])
        coordinates.append(low + (high - low) * rng.random(len(rows)))
    panel.scatter(
        coordinates[0], coordinates[1], s=0.6, color=_TEXT, alpha=0.35, linewidths=0, zorder=3, rasterized=True
    )


def _draw_axes(panel: Axes, report: Estimates, shown: tuple[int, ...]) -> None:
    panel.set_xlim(0, 1)
    panel.set_ylim(0, 1)
    panel.set_aspect("equal")
    names = [report.columns[column] for column in shown]
    panel.set_xlabel(names[0], color=_TEXT)
    panel.set_ylabel(names[1] if len(names) == 2 else "files in order of the column", color=_TEXT)
    for column, line in zip(names, (panel.xaxis, panel.yaxis), strict=False):
        ticks = report.ticks[column]
        line.set_ticks(np.linspace(0, 1, len(ticks)), labels=list(ticks))
    if len(names) == 1:
        panel.set_yticks([])
    panel.tick_params(labelsize=8, colors=_TEXT, length=2)
    panel.tick_params(axis="y", labelrotation=90)
    # Keep the outermost labels inside the panel: two labels would overlap in each corner.
    for labels, align, ends in (
        (panel.get_xticklabels(), "set_horizontalalignment", ("left", "center", "right")),
        (panel.get_yticklabels(), "set_verticalalignment", ("bottom", "center", "top")),
    ):
        for number, label in enumerate(labels):
            getattr(label, align)(ends[0] if number == 0 else ends[2] if number == len(labels) - 1 else ends[1])
    for spine in panel.spines.values():
        spine.set_color(_SKIPPED[1])


#: Number of test filters on each column, and on all columns together.
_FILTERS: Final = 200
#: Minimum number of sampled rows per file. With fewer, the estimated box of a file is not reliable.
ROWS_A_FILE: Final = 32
_TICKS: Final = (0.0, 0.25, 0.5, 0.75, 1.0)


@dataclass(frozen=True, slots=True, eq=False)
class Sample:
    """Rows drawn evenly from a table.

    Attributes:
        rows: the layout's columns by name; a struct's field is a column named by its path.
        partition: for each row the number of its partition.
        files: for each partition the number of files into which its rows are divided.
    """

    rows: pa.Table
    partition: npt.NDArray[np.int64]
    files: npt.NDArray[np.int64]


@public
@dataclass(frozen=True, slots=True, repr=False)
class LayoutReport(OneLine, Estimates):
    """The shares of files that filters skip now and in other layouts. ``str()`` returns them as a table with advice."""

    def __str__(self) -> str:
        names = [*(f"on {column}" for column in self.columns)]
        if len(self.columns) > 1:
            names.append("on all together")
        width = max(map(len, names))
        lines = [
            f"{self.rows:,} rows in {self.files:,} files, judged by a sample of {self.sampled:,} rows.",
            f"Share of the files that a filter for {format_percent(self.selectivity)} of the rows skips:",
            "",
            " ".join([" " * width, *(f"{layout.name:>9}" for layout in self.layouts)]),
        ]
        for number, name in enumerate(names):
            shares = [[*layout.skipped.values(), layout.skipped_together][number] for layout in self.layouts]
            lines.append(" ".join([f"{name:<{width}}", *(f"{format_percent(share):>9}" for share in shares)]))
        cut_files = self.layouts[-1].files
        if cut_files < self.files:
            lines += [
                "",
                f"The sample was cut into {cut_files:,} files: estimates from smaller files would not be reliable.",
            ]
        return "\n".join([*lines, "", self.advice])

    def _repr_html_(self) -> str:
        """Return HTML for notebooks: a table of the shares of files skipped, one column per layout, and the advice."""
        kinds = [*(f"on {column}" for column in self.columns), "on all together"]
        rows = [
            (
                kind,
                *(
                    format_percent([*layout.skipped.values(), layout.skipped_together][number])
                    for layout in self.layouts
                ),
            )
            for number, kind in enumerate(kinds if len(self.columns) > 1 else kinds[:1])
        ]
        head = f"Share of the files that a filter for {format_percent(self.selectivity)} of the rows skips"
        return html_rows(("", *(layout.name for layout in self.layouts)), rows, caption=head, note=self.advice)

    def figure(self, plane: Sequence[str] = (), *, after: LayoutReport | None = None) -> Any:
        """Draw a matplotlib figure of the boxes that files span in the plane of two columns, one panel per layout.

        Args:
            plane: two of the columns; the first two by default. A single column is drawn against the order of files.
            after: a later report on the same columns. The figure then has two panels: the table before and after.

        Raises:
            InvalidInputError: matplotlib is missing (``pip install 'lakeformat[plot]'``), or a column does not exist.
        """

        return draw_layouts(self, plane, after)

    def to_png(
        self, path: str | PathLike[str], plane: Sequence[str] = (), *, after: LayoutReport | None = None
    ) -> None:
        """Save the plot of `figure` as a PNG file at a local path. Other arguments and errors are those of `figure`."""
        self.figure(plane, after=after).savefig(path, format="png", dpi=150)


def estimate_layouts(
    sample: Sample, now: Mapping[str, FileRanges], *, rows: int, files: int, selectivity: float = 0.01, seed: int = 0
) -> LayoutReport:
    """Estimate layouts of a table by the columns of ``now``, in their order.

    Args:
        sample: rows with these columns.
        now: maps each column to the ranges of the table's files: of all files, or of files drawn evenly.
        rows, files: number of rows and of files of the table.
        selectivity: the share of the rows, from 0 to 1, that each test filter selects.
        seed: seed of the random filters.
    """
    names = tuple(now)
    sample = replace(sample, rows=sample.rows.select(list(names)))
    columns = [sample.rows[name].combine_chunks() for name in names]
    axes = [Axis.of(column, now[name]) for name, column in zip(names, columns, strict=True)]
    rng = np.random.default_rng(seed)
    drawn = rng.integers(0, max(1, sample.rows.num_rows), _FILTERS if sample.rows.num_rows else 0)
    alone = [boxes_around([axis], drawn, selectivity, rng) for axis in axes]
    together = boxes_around(axes, drawn, selectivity ** (1 / len(axes)), rng)

    def estimate(name: str, boxes: Boxes) -> Estimate:
        skipped = {
            column: 1 - share_read(boxes.select_dimension(dimension), alone[dimension]) if len(boxes) else 0.0
            for dimension, column in enumerate(names)
        }
        return Estimate(name, len(boxes), skipped, 1 - share_read(boxes, together), boxes)

    spans = [axis.spans for axis in axes]
    present = Boxes(*(np.concatenate([getattr(span, end) for span in spans], axis=1) for end in ("low", "high")))
    layouts = [estimate(NOW, present)]
    for strategy in CurveStrategy:
        if strategy is CurveStrategy.LINEAR or len(names) > 1:
            file, count = _cut_files(sample, *_sort_rows(strategy, sample, axes))
            layouts.append(estimate(strategy.value, boxes_of_files(axes, file, count)))
    return LayoutReport(
        columns=names,
        rows=rows,
        files=files,
        sampled=sample.rows.num_rows,
        selectivity=selectivity,
        layouts=tuple(layouts),
        example=_choose_example(together, layouts),
        axes=tuple(axes),
        ticks={name: _make_ticks(column, axis) for name, column, axis in zip(names, columns, axes, strict=True)},
    )


def _sort_rows(strategy: CurveStrategy, sample: Sample, axes: Sequence[Axis]) -> tuple[RankArray, Positions | None]:
    """Return the sample's row numbers in the layout's order, partition by partition, and their positions on the curve.

    For LINEAR, the positions are None.
    """
    if strategy is CurveStrategy.LINEAR:
        return np.lexsort([*(axis.rows for axis in reversed(axes)), sample.partition]), None
    places = fit_curve(strategy, sample.rows.schema.names, sample.rows).positions(sample.rows)
    order = np.lexsort((places, sample.partition))
    return order, places[order]


def _cut_files(sample: Sample, order: RankArray, places: Positions | None) -> tuple[RankArray, int]:
    """Return the file number of each sampled row, and the number of files.

    Every partition is divided into files as a rewrite would do.
    """
    rows = np.bincount(sample.partition, minlength=len(sample.files))
    files = np.clip(sample.files, 1, np.maximum(1, rows // ROWS_A_FILE))
    files[rows == 0] = 0
    first_row, first_file = np.cumsum(rows) - rows, np.cumsum(files) - files
    of = sample.partition[order]
    file = first_file[of] + (np.arange(len(order)) - first_row[of]) * files[of] // rows[of]
    if places is not None:
        for partition in np.flatnonzero(files > 1).tolist():
            first, count = first_row[partition], rows[partition]
            starts = cut_places(places[first : first + count], int(files[partition]))
            file[first : first + count] = first_file[partition] + np.searchsorted(starts, np.arange(count), "right")
    of_row = np.empty(len(order), np.int64)
    of_row[order] = file
    return of_row, int(files.sum())


def _choose_example(filters: Boxes, layouts: Sequence[Estimate]) -> Boxes:
    """Return the filter that reads the median number of files in the last layout."""
    if not len(filters):
        return filters
    boxes = layouts[-1].boxes
    touched = np.array([filters.find_overlaps(number, boxes).sum() for number in range(len(filters))])
    chosen = [int(np.argsort(touched, kind="stable")[len(touched) // 2])]
    return Boxes(filters.low[chosen], filters.high[chosen])


def _make_ticks(column: pa.Array, axis: Axis) -> tuple[str, ...]:
    """Return the values at 0, 25, 50, 75 and 100 % of the sorted sample, as texts."""
    order = np.argsort(axis.rows, kind="stable")[np.count_nonzero(axis.rows == 0) :]
    if not len(order):
        return ()
    positions = [order[int(share * (len(order) - 1))] for share in _TICKS]
    return tuple(_format_value(value) for value in column.take(pa.array(positions)).to_pylist())


def _format_value(value: object) -> str:
    if isinstance(value, float):
        return f"{value:,.4g}"
    if isinstance(value, int) and not isinstance(value, bool):
        return f"{value:,}" if abs(value) < 10**7 else f"{value:.3g}"
    text = value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)
    return text if len(text) <= 19 else text[:18] + "…"
