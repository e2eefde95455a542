"""What an update may set: literals of every type, and functions of the selected rows.

A value is stored in the type of its column if no information is lost; otherwise the update is refused.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from lakeformat import InvalidInputError, LakeformatError, SchemaMismatchError, Table
from tests.helpers import hudi_rs
from tests.helpers.refusal import check_refused
from tests.helpers.tables import a_schema, a_table

UTC = dt.timezone.utc
#: A column of each type.
WIDE = a_schema(
    id="int64",
    i="int32",
    l="int64",
    r="float",
    d="double",
    m=pa.decimal128(10, 2),
    b="binary",
    day="date32",
    at=pa.timestamp("us", "UTC"),
    wall=pa.timestamp("us"),
    st=pa.struct({"a": pa.int64(), "t": pa.string()}),
    li=pa.list_(pa.int64()),
    ma=pa.map_(pa.string(), pa.int64()),
)
#: Column, value that is set, value that is read.
LITERALS: list[tuple[str, Any, Any]] = [
    ("i", 2.0, 2),
    ("l", 2**60, 2**60),
    ("r", 0.1, 0.10000000149011612),
    ("d", 3, 3.0),
    ("m", Decimal("1.5"), Decimal("1.50")),
    ("m", 7, Decimal("7.00")),
    ("b", b"\x00\xff", b"\x00\xff"),
    ("day", dt.date(2024, 2, 29), dt.date(2024, 2, 29)),
    ("at", dt.datetime(2024, 1, 1, 5), dt.datetime(2024, 1, 1, 5, tzinfo=UTC)),
    (
        "at",
        dt.datetime(2024, 1, 1, 5, tzinfo=dt.timezone(dt.timedelta(hours=2))),
        dt.datetime(2024, 1, 1, 3, tzinfo=UTC),
    ),
    ("wall", dt.datetime(2024, 1, 1, 5), dt.datetime(2024, 1, 1, 5)),
    ("st", {"a": 1, "t": "x"}, {"a": 1, "t": "x"}),
    ("li", [1, None], [1, None]),
    ("ma", {"k": 1}, [("k", 1)]),
    ("i", pa.scalar(5, pa.int64()), 5),
    ("d", None, None),
]
#: Column, value that its type cannot hold.
DOES_NOT_FIT: list[tuple[str, Any]] = [
    ("i", 2.5),
    ("i", 2**31),
    ("i", True),
    ("i", "1"),
    ("d", 2**53 + 1),
    ("r", 1e300),
    ("m", Decimal("1.234")),
    ("m", 1.5),
    ("b", "text"),
    ("day", dt.datetime(2024, 1, 1, 5)),
    ("day", "2024-01-01"),
    ("wall", dt.datetime(2024, 1, 1, tzinfo=UTC)),
    ("st", {"a": 1, "t": "x", "more": 1}),
    ("li", [1, 2.5]),
    ("i", pa.scalar(2**40)),
    ("i", object()),
]


#: hudi-rs does not read timestamps without a zone.
WITHOUT_WALL = WIDE.remove(WIDE.get_field_index("wall"))


@pytest.fixture(scope="module")
def wide(tmp_path_factory: pytest.TempPathFactory) -> Table:
    """Create a table with the rows 1 and 2, all other columns null. Tests change row 1."""
    two = pa.Table.from_pylist([{"id": 1}, {"id": 2}], WIDE)
    return a_table(tmp_path_factory.mktemp("wide") / "t", rows=two, operation="upsert")


# --- literals -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(("column", "value", "read"), LITERALS, ids=lambda value: str(value)[:20])
def test_literal_is_stored_in_the_type_of_its_column(column: str, value: Any, read: Any, wide: Table) -> None:
    wide.update({column: value}, where="id = 1")
    assert wide.to_arrow(columns=[column], where="id = 1").column(0).to_pylist() == [read]
    assert wide.to_arrow(columns=[column], where="id = 2").column(0).to_pylist() == [None]


def test_hudi_rs_reads_literals_of_every_type(tmp_path: Path) -> None:
    two = pa.Table.from_pylist([{"id": 1}, {"id": 2}], WITHOUT_WALL)
    table = a_table(tmp_path / "t", rows=two, operation="upsert")
    table.update({column: value for column, value, _ in LITERALS if column != "wall"}, where="id = 1")
    rows = hudi_rs.assert_same_rows(table)
    assert [row["st"] for row in rows] == [{"a": 1, "t": "x"}, None]


@pytest.mark.parametrize(("column", "value"), DOES_NOT_FIT, ids=lambda value: str(value)[:20])
def test_literal_that_does_not_fit_its_column_is_refused(column: str, value: Any, wide: Table) -> None:
    commits = wide.snapshot().timeline.commits
    with pytest.raises(InvalidInputError, match=f"column '{column}'") as caught:
        wide.update({column: value}, where="id = 1")
    assert "\n" not in str(caught.value)
    assert wide.snapshot().timeline.commits == commits


# --- functions ----------------------------------------------------------------------------------------

#: Name -> column, function, error, parts of its message.
FUNCTIONS: dict[str, tuple[str, Callable[[pa.RecordBatch], Any], type[LakeformatError], tuple[str, ...]]] = {
    "overflow": (
        "i",
        lambda rows: pa.array([2**31] * len(rows)),
        SchemaMismatchError,
        ("'i'", "int32", "convert them first"),
    ),
    "fraction": (
        "i",
        lambda rows: pa.array([1.5] * len(rows)),
        SchemaMismatchError,
        ("'i'", "truncated", "convert them first"),
    ),
    "float overflow": (
        "r",
        lambda rows: pa.array([1e300] * len(rows)),
        SchemaMismatchError,
        ("'r'", "exceed", "float"),
    ),
    "rounded by a float": (
        "r",
        lambda rows: pa.array([2**24 + 1] * len(rows)),
        SchemaMismatchError,
        ("'r'", "16777217", "convert them first"),
    ),
    "dictionary rounded by a float": (
        "r",
        lambda rows: pa.array([2**24 + 1] * len(rows)).dictionary_encode(),
        SchemaMismatchError,
        ("'r'", "16777217", "convert them first"),
    ),
    "float to decimal": (
        "m",
        lambda rows: pa.array([1.555] * len(rows)),
        SchemaMismatchError,
        ("'m'", "double", "convert"),
    ),
    "text to binary": (
        "b",
        lambda rows: pa.array(["x"] * len(rows)),
        SchemaMismatchError,
        ("'b'", "string", "convert"),
    ),
    "time zone": ("wall", lambda rows: rows.column("at"), SchemaMismatchError, ("'wall'", "UTC", "convert")),
    "digits": ("m", lambda rows: pa.array([Decimal("1.234")] * len(rows)), SchemaMismatchError, ("'m'", "data loss")),
    "too few": ("i", lambda rows: pa.array([], pa.int32()), InvalidInputError, ("'i'", "0 values for 1 rows")),
    "no array": ("i", lambda rows: [1], InvalidInputError, ("'i'", "list", "return an Arrow array")),
    "an error": ("i", lambda rows: rows.column("nope"), InvalidInputError, ("'i'", "KeyError", "nope")),
}


@pytest.mark.parametrize("case", FUNCTIONS)
def test_function_result_that_does_not_fit_is_refused(case: str, wide: Table) -> None:
    column, function, error, parts = FUNCTIONS[case]
    with check_refused(wide, error, *parts):
        wide.update({column: function}, where="id = 1")


def test_function_receives_the_selected_rows_as_they_were_with_all_columns(wide: Table) -> None:
    """Another column that the same update sets has its old value."""
    received: list[pa.Table] = []

    def one_more(rows: pa.RecordBatch) -> pa.Array:
        received.append(pa.table(rows))
        return pc.add(rows.column("l"), 1)

    wide.update({"l": 10}, where="id = 2")
    before = wide.to_arrow(where="id = 2", meta_columns=True)
    wide.update({"i": one_more, "l": 20}, where="id = 2")
    assert received[0].schema == before.schema
    assert received[0].to_pylist() == before.to_pylist()
    assert wide.to_arrow(columns=["i", "l"], where="id = 2").to_pylist() == [{"i": 11, "l": 20}]
