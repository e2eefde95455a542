"""Rows of Python values: a value that would be cut is refused, and one that fits is stored as it is."""

from __future__ import annotations

from datetime import date, datetime, timezone
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from lakeformat import SchemaMismatchError, Table
from tests.helpers.refusal import check_refused
from tests.helpers.tables import a_schema, a_table

SCHEMA = a_schema(
    id="int64",
    n="int32",
    day="date32",
    at=pa.timestamp("us", "UTC"),
    many=pa.list_(pa.int64()),
    inner=pa.struct({"a": pa.int64(), "more": pa.list_(pa.int32())}),
    named=pa.map_(pa.string(), pa.int64()),
    f="double",
)
CUT: dict[str, dict[str, Any]] = {
    "float": {"n": 1.5},
    "float beside a whole number": {"n": 1e9 + 0.5},
    "decimal": {"n": Decimal("1.5")},
    "date": {"day": 1.7},
    "time": {"at": 1.5},
    "list": {"many": [1, 2.5]},
    "field": {"inner": {"a": 2.5}},
    "map": {"named": [("a", 0.5)]},
    "list in a field": {"inner": {"a": 2, "more": [None, 0.1]}},
}
WHOLE: dict[str, Any] = {
    "n": 2,
    "day": date(2024, 2, 29),
    "at": datetime(2024, 2, 29, 1, 2, 3, 456789, timezone.utc),
    "many": [1, None, 2**62],
    "inner": {"a": 3, "more": [4]},
    "named": [("a", 1), ("b", None)],
    "f": 2.5,
}


@pytest.fixture
def table(tmp_path: Path) -> Table:
    return a_table(tmp_path / "t", schema=SCHEMA)


@pytest.mark.parametrize("case", CUT)
def test_value_that_would_be_cut_is_refused(case: str, table: Table) -> None:
    with check_refused(table, SchemaMismatchError, repr(next(iter(CUT[case])))):
        table.upsert([{"id": 1, **WHOLE}, {"id": 2, **WHOLE, **CUT[case]}])


def test_value_that_would_be_cut_is_refused_beside_other_types(table: Table) -> None:
    with check_refused(table, SchemaMismatchError, "'n'", "1.5 would lose its fraction"):
        table.upsert([{"id": 1, **WHOLE, "n": Decimal(2)}, {"id": 2, **WHOLE, "n": 1.5}])


def test_whole_numbers_of_any_type_are_stored(table: Table) -> None:
    rows = [{"id": 1, **WHOLE}, {"id": 2, **WHOLE, "n": 2.0, "many": [3.0]}, {"id": 3, **WHOLE, "n": Decimal(2)}]
    table.upsert(rows)
    assert sorted(table.to_arrow().to_pylist(), key=lambda row: row["id"]) == rows


def test_row_with_a_cut_value_is_put_aside(tmp_path: Path) -> None:
    table = a_table(tmp_path / "t", schema=SCHEMA, bad_rows="aside")
    result = table.upsert([{"id": 1, **WHOLE}, {"id": 2, **WHOLE, "many": [1.5]}])
    assert (result.rows.inserted, result.rows.set_aside) == (1, 1)
    assert table.to_arrow(["id"]).to_pylist() == [{"id": 1}]
