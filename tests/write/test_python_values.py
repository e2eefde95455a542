"""Rows of Python values: a value that would be cut is refused, one that fits is stored, and no field is dropped."""

from __future__ import annotations

from datetime import date, datetime, timezone
from decimal import Decimal
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import lakeformat
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
    narrow="float",
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
    "time of day": {"day": datetime(2024, 2, 29, 1, 2)},
    "nanoseconds": {"at": pd.Timestamp("2024-02-29T01:02:03.000000001Z")},
    "size": {"narrow": 1e300},
}
WHOLE: dict[str, Any] = {
    "n": 2,
    "day": date(2024, 2, 29),
    "at": datetime(2024, 2, 29, 1, 2, 3, 456789, timezone.utc),
    "many": [1, None, 2**62],
    "inner": {"a": 3, "more": [4]},
    "named": [("a", 1), ("b", None)],
    "f": 2.5,
    "narrow": 0.5,
}


@pytest.fixture
def table(tmp_path: Path) -> Table:
    return a_table(tmp_path / "t", schema=SCHEMA)


@pytest.mark.parametrize("case", CUT)
def test_value_that_would_be_cut_is_refused(case: str, table: Table) -> None:
    with check_refused(table, SchemaMismatchError, repr(next(iter(CUT[case]))), "row 1"):
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


A = pa.struct({"a": pa.int64()})
#: For each place of a struct: the column's type, and a value with a field ``b`` that the type lacks.
NEW_FIELDS: dict[str, tuple[pa.DataType, Any]] = {
    "struct": (A, {"a": 1, "b": 77}),
    "struct in a struct": (pa.struct({"x": A}), {"x": {"a": 1, "b": 77}}),
    "list": (pa.list_(A), [{"a": 1}, {"b": 77}]),
    "map": (pa.map_(pa.string(), A), {"k": {"a": 1, "b": 77}}),
    "lists in a map in a list": (pa.list_(pa.map_(pa.string(), pa.list_(A))), [{"k": [{"b": 77}]}, None]),
    "pairs": (A, [("a", 1), ("b", 77)]),
    "an array in a list": (pa.list_(A), np.array([{"a": 1, "b": 77}], object)),
    "another new field in it": (A, {"b": [{"c": {"d": 77}}]}),
}
FORMS: dict[str, Any] = {
    "dicts": lambda value: [{"id": 1, "c": None}, {"id": 2, "c": value}],
    "columns": lambda value: {"id": [1, 2], "c": [None, value]},
    "pandas column": lambda value: {"id": [1, 2], "c": pd.Series([None, value], dtype=object)},
    "numpy array": lambda value: {"id": np.array([1, 2]), "c": np.array([None, value, None], object)[:2]},
    "pandas frame": lambda value: pd.DataFrame({"id": [1, 2], "c": pd.Series([None, value], dtype=object)}).shift(0),
}


@pytest.mark.parametrize("form", FORMS)
def test_field_that_the_table_lacks_is_added(form: str, tmp_path: Path) -> None:
    for number, (place, (kind, value)) in enumerate(NEW_FIELDS.items()):
        table = a_table(tmp_path / f"t{number}", schema=a_schema(id="int64", c=kind))
        table.upsert(FORMS[form](value))
        stored = table.to_arrow(["id", "c"], where="id = 2").to_pylist(maps_as_pydicts="strict")
        assert str(stored).count("77") == 1, place
        assert table.schema.names == ["id", "c"]


def test_polars_structs_keep_their_fields(tmp_path: Path) -> None:
    table = a_table(tmp_path / "t", schema=a_schema(id="int64", c=A))
    frame = pl.DataFrame({"id": [1, 2], "c": [None, {"a": 1, "b": 77}]})
    table.upsert({"id": frame["id"], "c": frame["c"]})
    table.upsert(frame.with_columns(id=pl.col("id") + 2))
    assert [row["c"] for row in table.to_arrow().to_pylist() if row["c"]] == [{"a": 1, "b": 77}] * 2


@pytest.mark.parametrize(
    ("value", "parts"),
    [
        ({"A": 77}, ("row 1", "'A'", "'a'")),
        ({1: 77}, ("row 1", "1")),
        ([("a", 1), ("a", 77)], ("row 1", "('a', 77)")),
        (MappingProxyType({"b": 77}), ("row 1",)),
        ({"b": [1, "x"]}, ("row 1", "'b'")),
    ],
)
def test_field_that_cannot_be_stored_is_refused_by_row_and_name(
    value: Any, parts: tuple[str, ...], tmp_path: Path
) -> None:
    table = a_table(tmp_path / "t", schema=a_schema(id="int64", c=A))
    for form in FORMS.values():
        with check_refused(table, SchemaMismatchError, "'c'", *parts):
            table.upsert(form(value))
    aside = lakeformat.open(table.location, bad_rows="aside")
    aside.upsert(FORMS["pandas frame"](value))
    assert aside.to_arrow(["id"]).to_pylist() == [{"id": 1}]
    assert aside.bad_rows(["row_number"]).to_pylist() == [{"row_number": 1}]


def test_fields_of_one_name_in_capitals_and_small_letters_are_refused(tmp_path: Path) -> None:
    table = a_table(tmp_path / "t", schema=a_schema(id="int64", c=pa.list_(A)))
    twins = pa.array([[{"A": 77, "a": 1}]], pa.list_(pa.struct({"A": pa.int64(), "a": pa.int64()})))
    with check_refused(table, SchemaMismatchError, "'A' and 'a'", "'c'"):
        table.upsert({"id": [1], "c": twins})


def test_a_frame_of_objects_is_converted_as_a_dict_of_columns(tmp_path: Path) -> None:
    schema = a_schema(id="int64", d=pa.decimal128(20, 4), day="date32", t="string", n="int32")
    table = a_table(tmp_path / "t", schema=schema)
    values = {"d": [Decimal("1.5"), None], "day": [date(2024, 1, 2), pd.NaT], "t": ["x", float("nan")], "n": [1, None]}
    table.upsert(pd.DataFrame(values, dtype=object).assign(id=[1, 2]))
    assert table.to_arrow(where="id = 2").to_pylist() == [{"id": 2, "d": None, "day": None, "t": None, "n": None}]
    assert table.to_arrow(["d", "day"], where="id = 1").to_pylist() == [{"d": Decimal("1.5"), "day": date(2024, 1, 2)}]
    with check_refused(table, SchemaMismatchError, "'day'", "row 0", "time of day"):
        table.upsert(pd.DataFrame({"id": [3], "day": pd.Series([datetime(2024, 1, 2, 3)], dtype=object)}))
    table.insert({**table.to_arrow(where="id = 1").to_pydict(), "day": np.array(["2024-01-02"], "M8[D]"), "id": [4]})
    assert table.to_arrow(["day"], where="id = 4").to_pylist() == [{"day": date(2024, 1, 2)}]
