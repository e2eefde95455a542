"""A verified read finds the rows that wrong statistics would lose, and names the files."""

from __future__ import annotations

import pyarrow as pa
import pytest

from lakeformat import SkippingError, Table
from tests.helpers.skipping_tables import batch, edit_footers, new_table, rows
from tests.helpers.thrift_footer import MAX_VALUE, MIN_VALUE, NULL_COUNT, Struct, put_bytes

NUMBERS = pa.array([1, 2, 3, 4, 5, 6, None, 8, 9], pa.int64())


@pytest.fixture
def table() -> Table:
    """Return a table with two files of three row groups. Every third number is 10 times as great in the second file."""
    made = new_table()
    made.insert(batch(x=NUMBERS))
    made.insert(
        pa.table({"id": range(10, 19), "x": pa.array([10 * (x or 0) for x in NUMBERS.to_pylist()], pa.int64())})
    )
    return made


def lies(path: str, statistics: Struct) -> None:
    """Set both bounds of ``x`` to 1000."""
    if path == "x":
        for bound in (MIN_VALUE, MAX_VALUE):
            put_bytes(statistics, bound, (1000).to_bytes(8, "little"))


@pytest.mark.parametrize("where", ["x > 4", "x = 3 or x is null", "not x in (1, 2)", "x is not null", "true", "false"])
def test_a_verified_read_returns_the_same_rows(where: str, table: Table) -> None:
    assert rows(table, where, verify=True) == rows(table, where)
    assert rows(table, where, verify=True) == rows(table, where, verify=False)


def test_a_verified_read_without_a_filter(table: Table) -> None:
    assert table.to_arrow(verify=True).equals(table.to_arrow())


def test_wrong_bounds_are_found_and_the_files_named(table: Table) -> None:
    (path,) = edit_footers(table, lies, which=slice(1))
    assert not {row for row in rows(table, "x = 5") if row < 10}, "skipping believes the statistics"
    with pytest.raises(SkippingError, match=f"loses 1 matching .* of 1 file.*{path}.*data.skipping=false"):
        rows(table, "x = 5", verify=True)
    assert rows(table, "x > 2000", verify=True) == []


def test_a_wrong_null_count_is_found(table: Table) -> None:
    def no_nulls(path: str, statistics: Struct) -> None:
        if path == "x":
            statistics[NULL_COUNT] = (6, 0)

    edit_footers(table, no_nulls)
    with pytest.raises(SkippingError, match="loses 1 matching"):
        rows(table, "x is null", verify=True)


def test_verify_option_checks_every_read_and_large_files_in_parts() -> None:
    made = new_table(**{"verify": True, "lakeformat.read.split.bytes": 1})
    made.insert(batch(x=NUMBERS))
    assert rows(made, "x < 3 or x = 9") == [0, 1, 8]
    edit_footers(made, lies)
    with pytest.raises(SkippingError, match=r"loses 2 matching row\(s\) of 1 file"):  # They are in the first part.
        made.to_arrow(where="x < 3 or x = 9")
