"""Layouts, step by step: rows in the right order let a filter skip files.

This page begins with nothing but rows in files and ends with a table. It teaches what the article "Apache Hudi source
code analysis: z-order layout optimization" is about. Each section is one idea:

1. **Ranges.** A file has a range in each column: from its smallest to its greatest value. A filter skips the files
   whose range does not hold the wanted value.
2. **Two columns.** A sort by x, then by y, makes narrow ranges of x only. An order along a curve makes ranges that are
   rather narrow in both columns.
3. **The z-order curve** gives each point of a grid a position: the bits of x and y in turn.
4. **From values to the grid.** Real values may be anything. Their ranks in a sample are small integers.
5. **From the curve to files.** Rows are sorted by their positions and cut into files, best between two quarters of the
   grid.
6. **Hilbert's curve** is another order of the same grid. It never jumps.
7. **A table.** Clustering rewrites a table in such an order. The table's index knows the ranges of all files.

Sections 1 to 6 need no table on disk: rows are an Arrow table, and a file is a part of them. The words of section 7,
such as timeline and instant, are explained in tests/write/test_seed_write_flow.py.
"""

from __future__ import annotations

from datetime import date
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

import lakeformat
from lakeformat import Table
from lakeformat.layout import CurveBuild, CurveStrategy, cell_ends, cut_places, fit_curve
from lakeformat.layout.curve import hilbert, interleave
from lakeformat.layout.ranks import Words, fit_ranks
from lakeformat.predicate import ColumnBounds, bind, may_match, parse_where
from tests.helpers import hudi_rs
from tests.helpers.flow_table import base_files, short, timeline_files, traced

LINEAR, Z_ORDER, HILBERT = CurveStrategy.LINEAR, CurveStrategy.Z_ORDER, CurveStrategy.HILBERT


def grid(side: int) -> pa.Table:
    """Return the rows of a square grid: (x, y) = (0, 0), (0, 1) ... up to (side - 1, side - 1)."""
    return pa.table({"x": np.repeat(np.arange(side), side), "y": np.tile(np.arange(side), side)})


def lay_out(
    rows: pa.Table, strategy: CurveStrategy, files: int, build: CurveBuild = CurveBuild.SAMPLE
) -> list[pa.Table]:
    """Lay rows out as a clustering does: sort them along a curve and cut them into files. Return the rows of each file.

    Sections 3 to 5 explain the steps.
    """
    curve = fit_curve(strategy, rows.column_names, rows, build=build)
    positions = curve.positions(rows)
    order = np.argsort(positions, kind="stable")
    starts = cut_places(positions[order], files)
    return [rows.take(pa.array(part)) for part in np.split(order, starts)]


def ranges(file: pa.Table) -> dict[str, tuple[Any, Any]]:
    """Return column -> (smallest value, greatest value) of a file."""
    return {name: tuple(pc.min_max(file[name]).as_py().values()) for name in file.column_names}


def opened(files: list[pa.Table], **wanted: Any) -> int:
    """Count the files that a filter opens. ``x=2, y=3`` is the filter "x = 2 and y = 3"."""
    spans = [ranges(file) for file in files]
    return sum(all(span[name][0] <= value <= span[name][1] for name, value in wanted.items()) for span in spans)


# --- 1. ranges ----------------------------------------------------------------------------------------


def test_filter_skips_a_file_whose_range_lacks_the_value() -> None:
    """The example of the article: two files of four ids. If the ids are sorted, "id = 2" opens one file, not two."""
    as_they_came = [pa.table({"id": [2, 1, 4, 3]}), pa.table({"id": [1, 2, 4, 5]})]
    assert [ranges(file) for file in as_they_came] == [{"id": (1, 4)}, {"id": (1, 5)}]
    assert opened(as_they_came, id=2) == 2

    in_order = lay_out(pa.concat_tables(as_they_came), LINEAR, files=2)
    assert [file["id"].to_pylist() for file in in_order] == [[1, 1, 2, 2], [3, 4, 4, 5]]
    assert opened(in_order, id=2) == 1


@pytest.mark.parametrize("strategy", [Z_ORDER, HILBERT])
def test_one_column_needs_no_curve(strategy: CurveStrategy) -> None:
    """One column is sorted by its values, whatever curve is asked for."""
    assert fit_curve(strategy, ["x"], grid(4)).strategy is LINEAR


# --- 2. two columns -----------------------------------------------------------------------------------


def test_linear_order_serves_the_first_column_only() -> None:
    """Sixteen points in four files, sorted by x, then by y: each file has one x and all values of y."""
    files = lay_out(grid(4), LINEAR, files=4)
    assert [ranges(file) for file in files] == [
        {"x": (0, 0), "y": (0, 3)},
        {"x": (1, 1), "y": (0, 3)},
        {"x": (2, 2), "y": (0, 3)},
        {"x": (3, 3), "y": (0, 3)},
    ]
    assert (opened(files, x=2), opened(files, y=2), opened(files, x=2, y=2)) == (1, 4, 1)


def test_z_order_serves_both_columns() -> None:
    """The same points in z-order: each file is one quarter of the grid, narrow in x and in y."""
    files = lay_out(grid(4), Z_ORDER, files=4)
    assert [ranges(file) for file in files] == [
        {"x": (0, 1), "y": (0, 1)},
        {"x": (0, 1), "y": (2, 3)},
        {"x": (2, 3), "y": (0, 1)},
        {"x": (2, 3), "y": (2, 3)},
    ]
    assert (opened(files, x=2), opened(files, y=2), opened(files, x=2, y=2)) == (2, 2, 1)


@pytest.mark.parametrize(("strategy", "by_x", "by_y"), [(LINEAR, 1, 64), (Z_ORDER, 8, 8), (HILBERT, 8, 8)])
def test_curve_opens_the_square_root_of_all_files(strategy: CurveStrategy, by_x: int, by_y: int) -> None:
    """4,096 points in 64 files. Sorted by x, each file is a line. Along a curve, it is a square of 8 x 8 points.

    Of these squares, 8 lie beside each other in either direction.
    """
    files = lay_out(grid(64), strategy, files=64)
    assert (opened(files, x=20), opened(files, y=20)) == (by_x, by_y)


# --- 3. the z-order curve -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("x", "y", "position"),
    [
        ("00", "00", "00 00"),
        ("00", "01", "00 01"),
        ("01", "00", "00 10"),
        ("01", "01", "00 11"),
        ("10", "01", "10 01"),
        ("11", "10", "11 10"),
        ("101", "011", "10 01 11"),
    ],
)
def test_z_order_position_has_the_bits_of_x_and_y_in_turn(x: str, y: str, position: str) -> None:
    """All numbers are binary. The first pair of bits says which quarter of the grid, the next which quarter of that."""
    cells = [np.array([int(text, 2)], np.uint64) for text in (x, y)]
    (found,) = interleave(cells, bits=len(x)).tolist()
    assert found == int(position.replace(" ", ""), 2)


def positions(curve: Any) -> list[list[int]]:
    """Return the position of each point of the 4 x 4 grid: a line for each x, in it an entry for each y."""
    points = grid(4)
    cells = [points[name].to_numpy().astype(np.uint64) for name in ("x", "y")]
    found: list[list[int]] = curve(cells, bits=2).reshape(4, 4).tolist()
    return found


#: The z-order of the grid. Follow the numbers with a finger: each quarter is drawn as a Z, and so are the quarters.
Z_CURVE = [
    [0, 1, 4, 5],
    [2, 3, 6, 7],
    [8, 9, 12, 13],
    [10, 11, 14, 15],
]


def test_z_order_fills_one_quarter_of_the_grid_after_the_other() -> None:
    assert positions(interleave) == Z_CURVE


# --- 4. from values to the grid -----------------------------------------------------------------------


@pytest.mark.parametrize(
    "values",
    [
        [10, 20, 30, 4000],
        [-0.5, 0.0, 1.5, 1e9],
        ["apple", "fig", "kiwi", "plum"],
        [date(2026, 1, n) for n in (1, 2, 8, 9)],
    ],
    ids=["integers", "floats", "texts", "dates"],
)
def test_rank_says_how_many_sampled_rows_are_less(values: list[Any]) -> None:
    """Two bits are enough for four ranks: 0, 1, 2 and 3 quarters of the sampled rows are less."""
    sample = pa.array(values)
    assert fit_ranks(sample, bits=2).of(Words(sample)).tolist() == [0, 1, 2, 3]


@pytest.mark.parametrize(
    ("values", "ranks"),
    [
        ([7, 7, 7, 7, 7, 7, 8, 9], [3, 3, 3, 3, 3, 3, 6, 7]),
        ([None, None, None, None, 6, 7, 8, 9], [2, 2, 2, 2, 4, 5, 6, 7]),
    ],
    ids=["frequent value", "nulls"],
)
def test_rank_of_equal_values_is_in_the_middle_of_their_rows(values: list[int | None], ranks: list[int]) -> None:
    """Eight sampled rows take the ranks 0 to 7, three bits. Six equal values share 3, the middle of 0 to 6.

    Nulls are less than all values.
    """
    sample = pa.array(values)
    assert fit_ranks(sample, bits=3).of(Words(sample)).tolist() == ranks


@pytest.mark.parametrize(("value", "rank"), [(None, 0), (5, 0), (10, 0), (25, 1), (3999, 2), (4000, 3), (9999, 3)])
def test_value_that_was_not_sampled_takes_the_rank_of_the_sampled_value_below(value: int | None, rank: int) -> None:
    """The sample is 10, 20, 30, 4000. Null, and a value that is less than all of them, has the least rank."""
    ranks = fit_ranks(pa.array([10, 20, 30, 4000]), bits=2)
    assert ranks.of(Words(pa.array([value], pa.int64()))).tolist() == [rank]


def test_curve_runs_over_the_ranks() -> None:
    """Four prices and four fruits make the 4 x 4 grid again: 30 has the rank 10, fig has the rank 01, so (30, fig) has
    the position 10 01, which is 9.

    Real ranks have 16 bits, so that positions have 32. Here the first 4 of them tell the points apart.
    """
    prices, fruits = [10, 20, 30, 4000], ["apple", "fig", "kiwi", "plum"]
    rows = pa.table({"price": np.repeat(prices, 4), "fruit": fruits * 4})
    curve = fit_curve(Z_ORDER, ["price", "fruit"], sample=rows)
    assert curve.bits == 16
    assert (curve.positions(rows) >> np.uint64(28)).reshape(4, 4).tolist() == Z_CURVE


def test_sample_of_the_rows_is_enough() -> None:
    """A few rows that are spread like all rows give the same curve. Here they are the diagonal: (0, 0), (1, 1) ...

    So the curve is fitted once, and each task then places its own rows: a position depends on its row alone.
    """
    rows = grid(8)
    diagonal = rows.take(pa.array(range(0, 64, 9)))
    curve = fit_curve(Z_ORDER, ["x", "y"], sample=diagonal)
    by_two_tasks = [*curve.positions(rows.slice(0, 40)).tolist(), *curve.positions(rows.slice(40)).tolist()]
    assert by_two_tasks == fit_curve(Z_ORDER, ["x", "y"], sample=rows).positions(rows).tolist()


@pytest.mark.parametrize(("build", "by_y"), [(CurveBuild.SAMPLE, 2), (CurveBuild.DIRECT, 3)])
def test_ranks_divide_skewed_values_evenly(build: CurveBuild, by_y: int) -> None:
    """Sixteen points with x = 0, 1, 2, 1000 and y = 0, 1, 2, 3.

    SAMPLE takes ranks. The halves are x = 0, 1 and x = 2, 1000, and each file is a quarter: two of them have y = 0.
    DIRECT takes the bits of the values. Only x = 0, 1 makes two quarters. x = 2 and x = 1000 are far from the others,
    so each is a file with all values of y: three files have y = 0.
    """
    rows = pa.table({"x": np.repeat([0, 1, 2, 1000], 4), "y": np.tile([0, 1, 2, 3], 4)})
    assert opened(lay_out(rows, Z_ORDER, files=4, build=build), y=0) == by_y


# --- 5. from the curve to files -----------------------------------------------------------------------

#: Ten rows, sorted by their positions on the curve of the 4 x 4 grid. The first half of the grid ends at 7.
SORTED = np.array([0, 1, 2, 3, 5, 6, 8, 9, 12, 15], np.uint64)


def test_file_ends_where_a_half_of_the_grid_ends() -> None:
    """If both files had five rows, position 6 would lie beside 8 to 15, which are in the other half of the grid.

    A file may have up to a fifth more or fewer rows, here four to six. So the first file takes six.
    """
    (start,) = cut_places(SORTED, files=2)
    assert [part.tolist() for part in np.split(SORTED, [start])] == [[0, 1, 2, 3, 5, 6], [8, 9, 12, 15]]


def test_cut_of_a_sample_decides_for_all_rows() -> None:
    """The first file ends at 7, the end of its half. That end divides the rows that were not sampled, too."""
    ends = cell_ends(SORTED, cut_places(SORTED, files=2))
    assert ends.tolist() == [7]
    others = np.array([4, 6, 7, 8, 14], np.uint64)
    assert np.searchsorted(ends, others).tolist() == [0, 0, 0, 1, 1]  # The number of the file.


# --- 6. Hilbert's curve -------------------------------------------------------------------------------

#: Hilbert's order of the grid: the quarters are turned, so that each ends beside the start of the next.
HILBERT_CURVE = [
    [0, 3, 4, 5],
    [1, 2, 7, 6],
    [14, 13, 8, 9],
    [15, 12, 11, 10],
]


def walk(curve: list[list[int]]) -> list[tuple[int, int]]:
    """Return the points (x, y) in the order of the curve."""
    points = {curve[x][y]: (x, y) for x in range(4) for y in range(4)}
    return [points[position] for position in range(16)]


def steps(curve: list[list[int]]) -> list[int]:
    """Return the lengths of the 15 steps of the curve: the distance in x plus the distance in y."""
    return [abs(x - u) + abs(y - v) for (x, y), (u, v) in pairwise(walk(curve))]


def test_hilbert_fills_one_quarter_of_the_grid_after_the_other() -> None:
    assert positions(hilbert) == HILBERT_CURVE


def test_hilbert_goes_to_a_neighbour_where_z_order_jumps() -> None:
    """The longest jump of z-order is in its middle: from (1, 3) to (2, 0)."""
    assert steps(positions(interleave)) == [1, 2, 1, 2, 1, 2, 1, 4, 1, 2, 1, 2, 1, 2, 1]
    assert steps(positions(hilbert)) == [1] * 15


def test_hilbert_file_is_narrow_wherever_it_is_cut() -> None:
    """A file with the positions 6 to 9 begins in one half and ends in the other.

    In z-order it contains the jump and has all values of y. On Hilbert's curve it has two of the four.
    """
    z, h = (walk(positions(curve))[6:10] for curve in (interleave, hilbert))
    assert z == [(1, 2), (1, 3), (2, 0), (2, 1)]
    assert h == [(1, 3), (1, 2), (2, 2), (2, 3)]
    assert ({y for _, y in z}, {y for _, y in h}) == ({0, 1, 2, 3}, {2, 3})


# --- 7. a table ---------------------------------------------------------------------------------------
#
# A clustering rewrites the files of a table in the order of a curve. The table below holds the 64 points of an 8 x 8
# grid, each with a photo of 1,000 bytes. A file of at most 20,000 bytes has room for 16 to 19 of them, so there are
# four files. The points come diagonal by diagonal, so that at first every file has points from all over the grid.
# `traced` opens a table through a storage that records its calls, `base_files` lists the base files on disk.

SIDE = 8
FILE_BYTES = 20_000


def new_table(folder: Path, **options: Any) -> Table:
    """Create the table with its four files of scattered points. The point (3, 4) has the key "3-4"."""
    random = np.random.default_rng(0)
    points = grid(SIDE).to_pylist()
    rows = pa.Table.from_pylist([{"name": f"{p['x']}-{p['y']}", **p, "photo": random.bytes(1_000)} for p in points])
    table = lakeformat.create(folder / "t", rows.schema, record_key="name", **options)
    table.bulk_insert(rows, partitioner=lambda part: np.asarray(pc.add(part["x"], part["y"])) % 4)
    return table


@pytest.fixture(scope="module")
def tables(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Table]:
    """Make three tables of the same rows: as they came, and clustered in two orders."""
    made = {name: new_table(tmp_path_factory.mktemp(name)) for name in ("as they came", "linear", "z-order")}
    made["linear"].cluster(by=["x", "y"], curve="linear", target_file_bytes=FILE_BYTES)
    made["z-order"].cluster(by=["x", "y"], curve="z-order", target_file_bytes=FILE_BYTES)
    return made


#: The range of x and the range of y of a file.
Ranges = tuple[tuple[int, int], tuple[int, int]]
QUARTERS: list[Ranges] = [((0, 3), (0, 3)), ((0, 3), (4, 7)), ((4, 7), (0, 3)), ((4, 7), (4, 7))]


def known_ranges(table: Table) -> list[Ranges]:
    """Return what the index of the table knows about each of its files, without opening them."""
    (portion,) = table.snapshot().live.portions(["x", "y"])
    x, y = portion.bounds["x"], portion.bounds["y"]
    columns = [column.to_pylist() for column in (x.minimum, x.maximum, y.minimum, y.maximum)]
    return sorted(((x_min, x_max), (y_min, y_max)) for x_min, x_max, y_min, y_max in zip(*columns, strict=True))


def read(table: Table, where: str) -> tuple[list[str], int]:
    """Return the sorted keys of the rows that a filter finds, and the number of files that the read opens."""
    observed, calls = traced(table)  # Each call to storage is added to this list.
    keys = sorted(observed.to_arrow(columns=["name"], where=where)["name"].to_pylist())
    return keys, len({call.path for call in calls if call.name == "open_input"} & base_files(table))


@pytest.mark.parametrize(
    ("order", "known"),
    [
        ("as they came", [((0, 7), (0, 7))] * 4),
        ("linear", [((0, 1), (0, 7)), ((2, 3), (0, 7)), ((4, 5), (0, 7)), ((6, 7), (0, 7))]),
        ("z-order", QUARTERS),
    ],
)
def test_index_of_the_table_knows_the_ranges_of_each_file(
    tables: dict[str, Table], order: str, known: list[Ranges]
) -> None:
    """The article's index (.hoodie/.zindex) has a line for each file: smallest value, greatest value, number of nulls.

    Later versions of Hudi keep these in the metadata table, and lakeformat in a file index of its own.
    """
    assert known_ranges(tables[order]) == known


@pytest.mark.parametrize(
    ("order", "wanted", "files"),
    [
        ("as they came", {"x": 5}, 4),
        ("as they came", {"y": 2}, 4),
        ("linear", {"x": 5}, 1),
        ("linear", {"y": 2}, 4),
        ("linear", {"x": 5, "y": 2}, 1),
        ("z-order", {"x": 5}, 2),
        ("z-order", {"y": 2}, 2),
        ("z-order", {"x": 5, "y": 2}, 1),
        ("z-order", {"x": 8}, 0),
    ],
)
def test_filter_opens_the_files_whose_ranges_hold_its_values(
    tables: dict[str, Table], order: str, wanted: dict[str, int], files: int
) -> None:
    """The rows that it finds are those of a look at every point of the grid: no skipped file holds a match."""
    matches = [p for p in grid(SIDE).to_pylist() if all(p[name] == value for name, value in wanted.items())]
    where = " and ".join(f"{name} = {value}" for name, value in wanted.items())
    assert read(tables[order], where) == ([f"{p['x']}-{p['y']}" for p in matches], files)


@pytest.mark.parametrize(("where", "flags"), [("id = 2", [True, False, True]), ("id is null", [False, True, True])])
def test_file_that_the_index_does_not_know_is_opened(where: str, flags: list[bool]) -> None:
    """Opened files = all files - those whose known ranges rule the filter out.

    Of the three files one has ids from 1 to 2, one has ids from 3 to 5 and a null, and of the last nothing is known:
    another program wrote it, without statistics.
    """
    none = None
    known = ColumnBounds(pa.array([1, 3, none]), pa.array([2, 5, none]), null_count=pa.array([0, 1, none]))
    condition = bind(parse_where(where), pa.schema([("id", pa.int64())]))
    assert may_match(condition, {"id": known}, row_counts=pa.array([4, 4, 4])).tolist() == flags


def test_later_write_may_widen_a_range(tmp_path: Path) -> None:
    """A row of the first quarter gets x = 7 and stays in its file, so the file spans all x. Clustering is repeated."""
    table = new_table(tmp_path)
    table.cluster(by=["x", "y"], curve="z-order", target_file_bytes=FILE_BYTES)
    table.update({"x": 7}, "name = '0-0'")
    assert known_ranges(table) == [((0, 3), (4, 7)), ((0, 7), (0, 3)), ((4, 7), (0, 3)), ((4, 7), (4, 7))]
    assert read(table, "x = 5")[1] == 3


def test_merge_on_read_table_is_skipped_by_footers_and_log_files(tmp_path: Path) -> None:
    """A merge-on-read table has no index of ranges: they are read from the footers of the base files.

    An update goes to a log file beside the base file, and both count: the row that gets x = 7 is found.
    """
    table = new_table(tmp_path, table_type="MERGE_ON_READ")
    table.cluster(by=["x", "y"], curve="z-order", target_file_bytes=FILE_BYTES)
    assert table.read(where="x = 7 and y = 0").plan().files_after_stats == 1
    table.update({"x": 7}, "name = '0-0'")
    assert table.read(where="x = 7 and y = 0").plan().files_after_stats == 2
    assert read(table, "x = 7 and y = 0")[0] == ["0-0", "7-0"]


@pytest.mark.parametrize(
    ("version", "names"),
    [
        (6, ["T.replacecommit", "T.replacecommit.inflight", "T.replacecommit.requested"]),
        (8, ["T.clustering.inflight", "T.clustering.requested", "T_C.replacecommit"]),
        (9, ["T.clustering.inflight", "T.clustering.requested", "T_C.replacecommit"]),
    ],
)
def test_clustering_is_an_action_of_its_own(tmp_path: Path, version: int, names: list[str]) -> None:
    """It replaces files by others with the same rows. The old files stay on disk for reads that have begun.

    The names are those of the files on the timeline, in the folder .hoodie: one for each state of the action. T is the
    time at which it began. From table version 8 on the last name also has C, the time at which it was completed.
    """
    table = new_table(tmp_path, **{"hoodie.write.table.version": version})
    rows, old = table.to_arrow().sort_by("name"), base_files(table)
    instant = table.cluster(by=["x", "y"], curve="z-order", target_file_bytes=FILE_BYTES).instant_time
    assert [short(name, T=instant) for name in timeline_files(table) if name.startswith(instant)] == names
    assert len(hudi_rs.assert_same_rows(table)) == len(rows)  # hudi-rs is another program that reads such tables.
    assert table.to_arrow().sort_by("name") == rows
    assert old < base_files(table)
    assert not old & {file.path for file in table.snapshot().files}


def test_inline_clustering_follows_the_write(tmp_path: Path) -> None:
    """With the options of the article a clustering follows each write. The write is complete before it begins."""
    options = {
        "hoodie.clustering.inline": "true",
        "hoodie.clustering.inline.max.commits": "1",
        "hoodie.layout.optimize.strategy": "z-order",
        "hoodie.clustering.plan.strategy.sort.columns": "x,y",
        "hoodie.clustering.plan.strategy.target.file.max.bytes": str(FILE_BYTES),
    }
    table = new_table(tmp_path, **options)
    assert [entry.operation for entry in table.history()] == ["cluster", "bulk_insert"]  # Newest first.
    assert known_ranges(table) == QUARTERS
