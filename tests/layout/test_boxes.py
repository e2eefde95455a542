"""Boxes of files and of filters, and what a report says of them, by examples and by counting one by one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from lakeformat.layout import CurveStrategy
from lakeformat.layout.boxes import (
    Axis,
    Boxes,
    Estimate,
    Estimates,
    FileRanges,
    boxes_around,
    boxes_of_files,
    format_percent,
    share_read,
)
from lakeformat.layout.layout_report import LayoutReport, Sample, _convert_example, estimate_layouts

NO_BOX = Boxes(np.zeros((0, 1), np.int64), np.zeros((0, 1), np.int64))


def ints(*numbers: Any) -> np.ndarray:
    return np.array(numbers, np.int64)


def boxes_of(*spans: Sequence[tuple[int, int]]) -> Boxes:
    """Return boxes, each given by its bounds in each dimension."""
    bounds = np.array(spans, np.int64)
    return Boxes(bounds[:, :, 0], bounds[:, :, 1])


def bounds_of(boxes: Boxes) -> list[list[tuple[int, int]]]:
    return [[*zip(low, high, strict=True)] for low, high in zip(boxes.low.tolist(), boxes.high.tolist(), strict=True)]


def ranges(low: list[Any], high: list[Any], empty: list[bool], kind: pa.DataType) -> FileRanges:
    return FileRanges(pa.array(low, kind), pa.array(high, kind), np.array(empty))


def axis_of(values: list[Any], kind: pa.DataType) -> Axis:
    return Axis.of(pa.array(values, kind), ranges([], [], [], kind))


@pytest.mark.parametrize("kind", [pa.float64(), pa.int64(), pa.string()])
def test_values_and_bounds_are_ranked_together(kind: pa.DataType) -> None:
    def of(values: list[float | None]) -> list[Any]:
        return [None if each is None else str(each) if kind == pa.string() else each for each in values]

    files = ranges(of([1, None, 2, 2, None]), of([2, 3, None, 4, None]), [False, False, False, False, True], kind)
    axis = Axis.of(pa.array(of([3, 1, None, 2, 1]), kind), files)
    assert axis.rows.tolist() == [3, 1, 0, 2, 1]
    assert axis.ordered.tolist() == [1, 1, 2, 3]
    # An unknown low bound is below all, an unknown high bound is the greatest rank; a file without values has no span.
    assert bounds_of(axis.spans) == [[(1, 2)], [(0, 3)], [(2, 4)], [(2, 4)], [(5, -1)]]


def test_nan_and_null_have_no_rank() -> None:
    axis = axis_of([float("nan"), 2.0, None, 1.0, -0.0, 0.0], pa.float64())
    assert axis.rows.tolist() == [0, 3, 0, 2, 1, 1]
    assert axis.ordered.tolist() == [1, 1, 2, 3]
    empty = axis_of([None, None], pa.int64())
    assert (empty.rows.tolist(), empty.ordered.tolist()) == ([0, 0], [1])


def test_files_of_unknown_range_are_read_by_each_filter_though_the_sample_has_only_nulls() -> None:
    axis = Axis.of(pa.nulls(3, pa.int64()), ranges([None] * 3, [None] * 3, [False, False, True], pa.int64()))
    filters = boxes_around([axis], ints(0, 1), 0.1, np.random.default_rng(0))
    assert [axis.spans.find_overlaps(at, filters).all() for at in range(3)] == [True, True, False]


def test_texts_that_differ_late_have_ranks_of_their_own() -> None:
    axis = axis_of(["same-begin-b", "same-begin-a", "same-begin-b", "s"], pa.string())
    assert axis.rows.tolist() == [3, 2, 3, 1]


def test_shares_count_the_sampled_values_below() -> None:
    axis = axis_of([10, 20, 20, 30, None], pa.int64())
    assert axis.share_below(ints(0, 1, 2, 3, 4)).tolist() == [0, 0, 0.25, 0.75, 1]
    assert axis.share_up_to(ints(0, 1, 2, 3, 4)).tolist() == [0, 0.25, 0.75, 1, 1]


def test_boxes_of_files_span_the_values_of_their_rows() -> None:
    axes = [axis_of([10, 20, None, 40, 30], pa.int64()), axis_of([5, 5, 6, 7, None], pa.int64())]
    found = boxes_of_files(axes, ints(0, 0, 1, 3, 3), 4)
    assert bounds_of(found) == [[(1, 2), (1, 1)], [(5, -1), (2, 2)], [(5, -1), (5, -1)], [(3, 4), (3, 3)]]
    assert len(found) == 4
    assert bounds_of(found.select_dimension(1)) == [[(1, 1)], [(2, 2)], [(5, -1)], [(3, 3)]]


@pytest.mark.parametrize(
    ("other", "overlaps"),
    [
        ([(4, 6), (4, 6)], True),
        ([(5, 5), (9, 9)], True),
        ([(0, 4), (0, 4)], True),
        ([(7, 9), (4, 6)], False),
        ([(4, 6), (7, 9)], True),
        ([(4, 6), (10, 12)], False),
        ([(0, 3), (4, 6)], False),
        ([(6, 7), (2, 3)], False),
        ([(6, 7), (2, 4)], True),
    ],
)
def test_boxes_overlap_if_they_share_a_point(other: list[tuple[int, int]], overlaps: bool) -> None:
    box = boxes_of([(0, 0), (0, 0)], [(4, 6), (4, 9)])
    assert box.find_overlaps(1, boxes_of(other)).tolist() == [overlaps]
    assert share_read(boxes_of(other), boxes_of([(4, 6), (4, 9)])) == overlaps
    assert share_read(boxes_of([(4, 6), (4, 9)]), boxes_of(other)) == overlaps


@pytest.mark.parametrize(("files", "filters"), [(1, 1), (7, 3), (2_100, 2_100)])
def test_the_share_read_is_the_mean_over_all_filters(files: int, filters: int) -> None:
    rng = np.random.default_rng(files)

    def draw(count: int) -> Boxes:
        low = rng.integers(0, 100, (count, 2))
        return Boxes(low, low + rng.integers(0, 30, (count, 2)))

    of, asked = draw(files), draw(filters)
    touched = sum(int(asked.find_overlaps(at, of).sum()) for at in range(filters))
    assert share_read(of, asked) == pytest.approx(touched / files / filters)


def test_nothing_is_read_without_files_or_filters() -> None:
    one = boxes_of([(0, 1)])
    assert (share_read(NO_BOX, one), share_read(one, NO_BOX)) == (0, 0)


@pytest.mark.parametrize("width", [0.0, 0.1, 0.5, 1.0])
def test_a_filter_selects_its_share_of_the_rows_around_a_row(width: float) -> None:
    axes = [axis_of([*range(1_001)], pa.int64()), axis_of([*range(0, 3_003, 3)], pa.int64())]
    rows = ints(0, 1, 30, 500, 950, 1_000)
    found = boxes_around(axes, rows, width, np.random.default_rng(0))
    lengths = found.high - found.low
    assert ((width * 1_000 - 1 <= lengths) & (lengths <= width * 1_000 + 1)).all()
    around = (found.low <= rows[:, None] + 1) & (rows[:, None] <= found.high + 1)
    assert around.all()
    assert found.low.min() >= 1
    assert found.high.max() <= 1_001
    if width == 1.0:
        assert bounds_of(found) == [[(1, 1_001)] * 2] * 6
    if width == 0.5:
        assert (found.low[3] < 500).all()
        assert (found.low[:, 0] != found.low[:, 1]).any(), "each column has a draw of its own"


# --- what a report says -----------------------------------------------------------------------------------------


def an_estimate(name: str, *shares: float, together: float = 0.0) -> Estimate:
    return Estimate(name, 4, {f"c{at}": share for at, share in enumerate(shares)}, together, NO_BOX)


def estimates(*layouts: Estimate, files: int = 4) -> LayoutReport:
    return LayoutReport(
        columns=tuple(layouts[0].skipped),
        rows=1_234,
        files=files,
        sampled=1_000,
        selectivity=0.01,
        layouts=layouts,
        example=NO_BOX,
        axes=(),
        ticks={},
    )


def test_the_share_read_of_a_layout_is_the_mean_over_its_columns_and_all_together() -> None:
    assert an_estimate("now", 0.25, 0.5, together=0.75).read == 0.5
    assert an_estimate("now", 0.25, together=0.25).read == 0.75


@pytest.mark.parametrize(
    ("shares", "best"),
    [
        ({"now": 0.0, "linear": 0.5, "hilbert": 0.75}, "hilbert"),
        ({"now": 0.0, "linear": 0.75, "hilbert": 0.5}, "linear"),
        ({"now": 0.5, "linear": 0.54}, "now"),
        ({"now": 0.5, "linear": 0.56}, "linear"),
        ({"now": 0.0, "linear": 0.099}, "now"),
        ({"now": 0.0, "linear": 0.101}, "linear"),
    ],
)
def test_a_layout_is_advised_if_it_saves_a_tenth_of_the_files(shares: dict[str, float], best: str) -> None:
    report = estimates(*(an_estimate(name, share, together=share) for name, share in shares.items()))
    assert report.best == best
    assert ("leave it" in report.advice) == (best == "now")


def test_the_advice_names_the_shares_and_the_call() -> None:
    now = an_estimate("now", 0.0, 0.2, together=0.1)
    report = estimates(now, an_estimate("linear", 0.0, 0.0), an_estimate("hilbert", 0.95, 0.94, together=0.96))
    assert report.advice == (
        'hilbert reads 5 % of the files where 90.0 % are read now; run table.cluster(by=["c0", "c1"], curve="hilbert")'
    )
    assert "cannot be skipped" in estimates(now, now, files=1).advice
    assert "cannot be skipped" not in estimates(now, now, files=2).advice


@pytest.mark.parametrize(
    ("share", "text"),
    [(0.0, "0 %"), (0.00123, "0.123 %"), (0.0994, "9.94 %"), (0.0995, "10.0 %"), (0.5, "50.0 %"), (1.0, "100.0 %")],
)
def test_percentages_have_three_digits(share: float, text: str) -> None:
    assert format_percent(share) == text


def test_a_report_is_a_table_of_columns_and_layouts() -> None:
    now, linear = an_estimate("now", 0.0, 0.2, together=0.3), an_estimate("linear", 1.0, 0.05, together=0.5)
    assert str(estimates(now, linear, files=5)).splitlines() == [
        "1,234 rows in 5 files, judged by a sample of 1,000 rows.",
        "Share of the files that a filter for 1 % of the rows skips:",
        "",
        "                      now    linear",
        "on c0                 0 %   100.0 %",
        "on c1              20.0 %       5 %",
        "on all together    30.0 %    50.0 %",
        "",
        "The sample was cut into 4 files: estimates from smaller files would not be reliable.",
        "",
        "linear reads 48.3 % of the files where 83.3 % are read now; "
        'run table.cluster(by=["c0", "c1"], curve="linear")',
    ]
    assert "was cut into" not in str(estimates(now, linear, files=4))
    html = estimates(now, linear)._repr_html_()
    assert all(text in html for text in ("on c0", "on c1", "on all together", "50.0 %", "30.0 %", "linear", "1 %"))
    one = estimates(an_estimate("now", 0.5, together=0.5), an_estimate("linear", 0.5, together=0.5))
    assert "together" not in str(one) + one._repr_html_()
    assert "on c0" in one._repr_html_()


# --- estimates ----------------------------------------------------------------------------------------------------

NOW = ranges([0, 50], [60, 99], [False, False], pa.int64())


def report_of(values: list[Any], partition: Sequence[int], files: Sequence[int], **more: Any) -> LayoutReport:
    rows = pa.table({"z": ["-"] * len(values), "x": pa.array(values, pa.int64())})
    return estimate_layouts(Sample(rows, ints(*partition), ints(*files)), {"x": NOW}, rows=7, files=3, **more)


@pytest.mark.parametrize(
    ("partition", "files", "spans"),
    [
        ([0] * 100, [2], [(0, 49), (50, 99)]),
        ([0] * 100, [3], [(0, 33), (34, 66), (67, 99)]),
        ([0] * 100, [4], [(0, 33), (34, 66), (67, 99)]),  # A file has 32 sampled rows or more.
        ([0] * 100, [0], [(0, 99)]),
        ([1] * 40 + [0] * 60, [1, 1], [(40, 99), (0, 39)]),
        ([1] * 40 + [0] * 60, [2, 9], [(40, 99), (0, 39)]),
        ([2] * 36 + [0] * 64, [2, 5, 1], [(36, 67), (68, 99), (0, 35)]),
    ],
)
def test_a_layout_divides_the_sorted_rows_of_each_partition(
    partition: list[int], files: list[int], spans: list[tuple[int, int]]
) -> None:
    shuffled = np.random.default_rng(0).permutation(100)
    report = report_of(shuffled.tolist(), np.array(partition)[shuffled].tolist(), files)
    now, linear = report.layouts
    assert (now.name, now.files, linear.name, linear.files) == ("now", 2, "linear", len(spans))
    assert bounds_of(now.boxes) == [[(1, 61)], [(51, 100)]]
    assert [(low - 1, high - 1) for [(low, high)] in bounds_of(linear.boxes)] == spans
    assert (report.columns, report.rows, report.files, report.sampled) == (("x",), 7, 3, 100)


def test_filters_are_those_of_the_seed_and_of_the_selectivity() -> None:
    values = [*range(200)]
    narrow, wide = (report_of(values, [0] * 200, [6], selectivity=share) for share in (0.01, 0.5))
    # A filter for half of the rows reads at least half of the files, one for a hundredth hardly more than one.
    assert 0.8 < narrow.layouts[1].skipped["x"] < 5 / 6
    assert 0.2 < wide.layouts[1].skipped["x"] < 0.45
    assert report_of(values, [0] * 200, [6], selectivity=0.01).layouts == narrow.layouts
    assert report_of(values, [0] * 200, [6], seed=9).layouts != narrow.layouts
    low, high = wide.example.low[0, 0], wide.example.high[0, 0]
    assert high - low == pytest.approx(100, abs=1)


def test_filters_on_all_columns_select_the_share_together() -> None:
    rng = np.random.default_rng(0)
    rows = pa.table({"x": rng.permutation(5_000), "y": rng.permutation(5_000)})
    known = ranges([0] * 4, [4_999] * 4, [False] * 4, pa.int64())
    sample = Sample(rows, np.zeros(5_000, np.int64), ints(64))
    report = estimate_layouts(sample, {"x": known, "y": known}, rows=5_000, files=64, selectivity=0.04)
    lengths = report.example.high - report.example.low
    assert lengths.tolist() == [[pytest.approx(1_000, abs=1)] * 2]
    assert [each.name for each in report.layouts] == ["now", *(each.value for each in CurveStrategy)]
    assert [each.files for each in report.layouts] == [4, 64, 64, 64]
    now, linear, _, hilbert = report.layouts
    assert (now.skipped, now.skipped_together) == ({"x": 0.0, "y": 0.0}, 0.0)
    assert linear.skipped["x"] > 0.9
    assert linear.skipped["y"] < 0.1
    assert min(hilbert.skipped.values()) > 0.7
    # The example reads the median number of files of the last layout.
    touched = int(report.example.find_overlaps(0, hilbert.boxes).sum())
    assert touched == pytest.approx(64 * (1 - hilbert.skipped_together), abs=3)


def test_a_curve_cuts_each_partition_into_its_own_files() -> None:
    """The ranks of x are 1 to 600, those of the three partitions 1 to 200, 201 to 400 and 401 to 600."""
    rows = pa.table({"x": range(600), "y": np.random.default_rng(0).permutation(600)})
    known = ranges([0], [599], [False], pa.int64())
    sample = Sample(rows, np.repeat([0, 1, 2], 200), ints(2, 4, 3))
    report = estimate_layouts(sample, {"x": known, "y": known}, rows=600, files=9)
    for layout in report.layouts[2:]:
        homes = [0, 0, 1, 1, 1, 1, 2, 2, 2]
        assert ((layout.boxes.low[:, 0] - 1) // 200).tolist() == homes
        assert ((layout.boxes.high[:, 0] - 1) // 200).tolist() == homes


@pytest.mark.parametrize(
    ("others", "low", "high"),
    [
        (range(10), 2, 4),  # The filter selects the ranks from 2 to 4 of ten.
        (range(20), 3, 8),
        (range(5), 1, 2),
        (range(1), 1, 1),
        ([0] * 10, 1, 1),
    ],
)
def test_filter_in_the_ranks_of_another_report_selects_the_same_share(
    others: Sequence[int], low: int, high: int
) -> None:
    one = replace(report_of([*range(10)], [0] * 10, [1]), example=boxes_of([(2, 4)]))
    other = report_of([*others], [0] * len(others), [1])
    assert bounds_of(_convert_example(one, other)) == [[(low, high)]]
    top = replace(one, example=boxes_of([(10, 10)]))
    assert bounds_of(_convert_example(top, other))[0][0][1] == max(others) + 1


def test_a_table_without_rows_skips_nothing() -> None:
    nothing = ranges([], [], [], pa.int64())
    rows = pa.table({"x": pa.array([], pa.int64())})
    report = estimate_layouts(Sample(rows, ints(), ints()), {"x": nothing}, rows=0, files=0)
    assert [(each.files, each.skipped, each.read) for each in report.layouts] == [(0, {"x": 0.0}, 0.5)] * 2
    assert (len(report.example), report.ticks) == (0, {"x": ()})


@pytest.mark.parametrize(
    ("kind", "values", "ticks"),
    [
        (pa.int64(), [*range(8, -1, -1)], ("0", "2", "4", "6", "8")),
        (pa.int64(), [10**7, None, 10**7 - 1], ("9,999,999",) * 4 + ("1e+07",)),
        (pa.int64(), [-12_345_678], ("-1.23e+07",) * 5),
        (pa.float64(), [1234.5678, float("nan")], ("1,235",) * 5),
        (pa.bool_(), [True, False], ("False",) * 4 + ("True",)),
        (pa.string(), ["a" * 19, "b" * 20], ("a" * 19,) * 4 + ("b" * 18 + "…",)),
        (pa.binary(), [b"caf\xc3\xa9", b"\xff"], ("café",) * 4 + ("\ufffd",)),
        (pa.int64(), [None], ()),
    ],
)
def test_ticks_are_the_values_at_quarters_of_the_sorted_sample(
    kind: pa.DataType, values: list[Any], ticks: tuple[str, ...]
) -> None:
    rows = pa.table({"x": pa.array(values, kind)})
    sample = Sample(rows, np.zeros(len(values), np.int64), ints(1))
    found = estimate_layouts(sample, {"x": ranges([], [], [], kind)}, rows=1, files=1)
    assert found.ticks == {"x": ticks}
    assert isinstance(found, Estimates)
