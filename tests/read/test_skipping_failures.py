"""Cases in which other programs lost rows by skipping, and traps in files of other writers: no row is lost here."""

from __future__ import annotations

import math
from typing import Any

import pyarrow as pa
import pytest

from lakeformat import Table
from tests.helpers.skipping_tables import Reads, batch, edit_footers, new_table, rows
from tests.helpers.thrift_footer import MAX, MAX_VALUE, MIN, MIN_VALUE, NULL_COUNT, Struct, put_bytes


def count_decoded_files(table: Table, where: str) -> int:
    """Return the number of files that a read opens for more than their footer: those that skipping left."""
    storage = table.context.storage
    assert isinstance(storage, Reads)
    table.to_arrow(["id"], where=where)
    storage.opened.clear()
    explained = table.explain(where=where)
    return int(explained.splitlines()[2].split()[2])


def test_one_nan_in_a_column_hides_no_row() -> None:
    table = new_table()
    table.insert(batch(x=[1.0, math.nan, 3.0]))
    table.insert(pa.table({"id": [10, 11, 12], "x": [100.0, 101.0, 102.0]}))
    assert rows(table, "x > 2") == [1, 2, 10, 11, 12]
    assert rows(table, "x = 3") == [2]
    assert rows(table, "x >= 1000") == [1]
    assert rows(table, "not x <= 1000") == [1]
    assert rows(table, "x < 2") == [0]
    assert count_decoded_files(table, "x < 2") == 1


def test_nan_bound_is_ignored() -> None:
    table = new_table()
    table.insert(batch(x=[1.0, 2.0, 3.0]))

    def nan(path: str, statistics: Struct) -> None:
        if path == "x":
            for bound in (MIN_VALUE, MAX_VALUE, MIN, MAX):
                put_bytes(statistics, bound, bytes.fromhex("000000000000f87f"))

    edit_footers(table, nan)
    for where, found in {"x = 2": [1], "x < 2": [0], "x > 2": [2], "x <> 2": [0, 2], "x is null": []}.items():
        assert rows(table, where) == found, where


LOW, HIGH = {MIN_VALUE, MIN}, {MAX_VALUE, MAX}


@pytest.mark.parametrize(
    "gone",
    [LOW, HIGH, LOW | HIGH, {NULL_COUNT}, LOW | HIGH | {NULL_COUNT}],
    ids=["no minimum", "no maximum", "no bounds", "no null count", "nothing"],
)
def test_missing_statistics_hide_no_row(gone: set[int]) -> None:
    table = new_table()
    table.insert(batch(x=[-5, -4, None], t=["b", None, "c"], d=[-1.5, None, -2.5]))

    def without(path: str, statistics: Struct) -> None:
        for field in gone:
            statistics.pop(field, None)

    edit_footers(table, without)
    assert rows(table, "x = -5") == [0]
    assert rows(table, "x > -5") == [1]
    assert rows(table, "x is null") == [2]
    assert rows(table, "t >= 'b'") == [0, 2]
    assert rows(table, "t like 'c%'") == [2]
    assert rows(table, "d < 0") == [0, 2]
    assert rows(table, "not d < -2") == [0]


def test_file_without_statistics_is_read_while_others_are_skipped() -> None:
    table = new_table()
    for start in (0, 10, 20):
        table.insert(pa.table({"id": [start, start + 1], "x": [start, start + 1]}))
    edit_footers(table, lambda _, statistics: statistics.clear(), which=slice(1, 2))
    assert rows(table, "x = 10") == [10]
    assert count_decoded_files(table, "x = 0") == 2


@pytest.mark.parametrize(
    ("pattern", "found"),
    [
        ("a%", [0, 1, 2, 3]),
        ("ab%", [1, 2]),
        ("a_c%", [2, 3]),
        ("%c", [2, 3]),
        ("a%c", [2, 3]),
        ("_b%", [1, 2]),
        (r"a\_c%", [3]),
        (r"a\_%", [3]),
        ("é%", [4]),
        ("\U0001f600%", [5]),
        ("%", [0, 1, 2, 3, 4, 5]),
        ("", []),
    ],
)
def test_like_prefixes_hide_no_row(pattern: str, found: list[int]) -> None:
    """Each text is in a file of its own, so that a wrong proof loses a row."""
    table = new_table()
    texts = ["a", "ab", "abc", "a_c", "éa", "\U0001f600"]
    for number, text in enumerate(texts):
        table.insert(pa.table({"id": [number], "t": [text]}))
    literal = pattern.replace("\\", "\\\\")
    assert rows(table, f"t like '{literal}'") == found
    assert rows(table, f"t not like '{literal}'") == sorted({*range(6)} - set(found))
    if pattern == "ab%":
        assert count_decoded_files(table, f"t like '{literal}'") == 2


def test_is_null_on_a_column_added_later_finds_the_rows_of_old_files() -> None:
    table = new_table(**{"hoodie.write.set.null.for.missing.columns": "true"})
    table.insert(batch(s=[{"a": 1}, {"a": 2}]))
    table.insert(pa.table({"id": [10, 11], "s": [{"a": 3, "b": 5}, None], "later": [7, None]}))
    assert rows(table, "later is null") == [0, 1, 11]
    assert rows(table, "later is not null") == [10]
    assert rows(table, "later <=> 7") == [10]
    assert rows(table, "not later <=> 7") == [0, 1, 11]
    assert rows(table, "s.b is null") == [0, 1, 11]
    assert rows(table, "s.b = 5 or later is null and id < 1") == [0, 10]
    assert count_decoded_files(table, "later = 7") == 1


UP, DOWN = "m" * 64, "n"


@pytest.mark.parametrize(
    ("where", "found"),
    [
        (f"t = '{UP}tail'", [0]),
        (f"t > '{UP}'", [0, 1, 2]),
        (f"t <= '{UP}'", []),
        (f"t like '{UP}tail%'", [0]),
        (f"t not like '{UP}%'", [2]),
        (f"t <> '{UP}tail'", [1, 2]),
        (f"t in ('{UP}tail', 'x')", [0]),
        ("t >= 'mz'", [2]),
        ("endswith_is_like", []),
    ],
)
def test_texts_cut_short_hide_no_row(where: str, found: list[int]) -> None:
    """Other writers cut bounds like this: the least value downwards, the greatest upwards."""
    table = new_table()
    table.insert(batch(t=[f"{UP}tail", f"{UP}zzz", "mzz"]))

    def cut(path: str, statistics: Struct) -> None:
        if path == "t":
            put_bytes(statistics, MIN_VALUE, UP.encode())
            put_bytes(statistics, MAX_VALUE, DOWN.encode())

    edit_footers(table, cut)
    assert rows(table, where.replace("endswith_is_like", "t like '%q'")) == found


def test_texts_cut_within_a_character_cost_that_file_its_bounds_alone() -> None:
    """A bound that is not valid text is ignored. The other files keep their bounds."""
    table = new_table()
    for number, text in enumerate(["éa", "x", "y"]):
        table.insert(pa.table({"id": [number], "t": [text]}))

    def cut(path: str, statistics: Struct) -> None:
        if path == "t":
            put_bytes(statistics, MIN_VALUE, b"\xc3")
            put_bytes(statistics, MAX_VALUE, b"\xc4")

    edit_footers(table, cut, which=slice(1))
    assert rows(table, "t = 'éa'") == [0]
    assert rows(table, "t = 'x'") == [1]
    assert count_decoded_files(table, "t = 'x'") == 2


@pytest.mark.parametrize("zero", ["0.0", "-0.0"])
@pytest.mark.parametrize("sign", [b"\x00", b"\x80"])
def test_both_zeros_match_one_filter(zero: str, sign: bytes) -> None:
    """A filter on either zero finds the rows with the other one, whichever zero is the bound."""
    table = new_table()
    table.insert(batch(d=pa.array([0.0, -0.0]), f=pa.array([-0.0, 0.0], pa.float32())))

    def zeros(path: str, statistics: Struct) -> None:
        width = {"d": 8, "f": 4}.get(path)
        if width:
            for bound in (MIN_VALUE, MAX_VALUE):
                put_bytes(statistics, bound, bytes(width - 1) + sign)

    edit_footers(table, zeros)
    conditions: dict[str, list[Any]] = {
        f"d = {zero}D": [0, 1],
        f"f >= {zero}D": [0, 1],
        f"d <= {zero}D": [0, 1],
        f"d < {zero}D": [],
        f"d in ({zero}D, 7D)": [0, 1],
        f"d in ({zero}D, 1D, 2D, 3D, 4D, 5D, 6D, 7D, 8D, 9D)": [0, 1],
        f"d not in ({zero}D)": [],
    }
    for where, found in conditions.items():
        assert rows(table, where) == found, where
