"""Types that a plain upsert changes, as Hudi 1.2.0 does: files that it leaves alone are converted when read."""

from __future__ import annotations

import logging
import math
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from lakeformat import SchemaMismatchError
from lakeformat.arrow.conform import conform_array
from lakeformat.write.rows.schema import evolve, rounded_columns
from tests.helpers.refusal import check_refused
from tests.helpers.tables import a_schema, a_table
from tests.helpers.type_changes import (
    NARROWER,
    PLACES,
    REFUSED,
    TYPES,
    WIDER,
    found_rows,
    right_rows,
    rows_of,
)

_RECONCILE = "hoodie.datasource.write.reconcile.schema"


def _change(old: str, new: str, *, keeps_types: bool = False) -> pa.DataType:
    table, incoming = (pa.schema({"c": TYPES[name][0]}) for name in (old, new))
    return evolve(table, incoming, fill_missing=False, keeps_types=keeps_types).field("c").type


@pytest.mark.parametrize("merge_on_read", [False, True])
@pytest.mark.parametrize("place", PLACES)
def test_values_are_converted_where_types_differ(place: str, merge_on_read: bool, tmp_path: Path) -> None:
    first = [rows_of([1, 4], place, incoming=False), rows_of([1], place, incoming=False)]
    table = a_table(tmp_path / "t", rows=first, partition_by="p", merge_on_read=merge_on_read, operation="upsert")
    table.upsert(rows_of([2], place, incoming=True))
    assert found_rows(table.to_arrow()) == right_rows(place)
    table.cluster(by=["id"])
    assert found_rows(table.to_arrow()) == right_rows(place)


@pytest.mark.parametrize("place", PLACES)
def test_values_are_converted_in_a_table_whose_columns_have_ids(place: str, tmp_path: Path) -> None:
    first = rows_of([1, 4], place, incoming=False)
    table = a_table(tmp_path / "t", rows=first.append_column("x", pa.array([1, 4])), partition_by="p")
    table.alter().rename("x", "y").execute()
    table.upsert(rows_of([2], place, incoming=True).append_column("y", pa.array([2])))
    assert found_rows(table.to_arrow()) == right_rows(place)


@pytest.mark.parametrize("old", WIDER)
def test_filters_find_older_values_by_their_converted_forms(old: str, tmp_path: Path) -> None:
    table = a_table(tmp_path / "t", rows=rows_of([1, 4], "column", incoming=False), partition_by="p")
    table.upsert(rows_of([2], "column", incoming=True))
    for name in (f"{old}_{new}" for new in WIDER[old]):
        right = pa.scalar(right_rows("column")[4][name], table.schema.field(name).type)
        assert table.to_arrow(where=pc.field(name) == right)["id"].to_pylist() == [4, 1], name


@pytest.mark.parametrize(("old", "new"), REFUSED)
def test_other_pairs_are_refused(old: str, new: str) -> None:
    with pytest.raises(SchemaMismatchError, match="'c'"):
        _change(old, new)


@pytest.mark.parametrize(("old", "new"), [(old, new) for old, others in WIDER.items() for new in others])
def test_reconciling_keeps_the_types_of_the_table(old: str, new: str) -> None:
    assert _change(old, new) == TYPES[new][0]
    with pytest.raises(SchemaMismatchError, match=_RECONCILE):
        _change(old, new, keeps_types=True)


@pytest.mark.parametrize(("old", "new"), [(old, new) for old, others in NARROWER.items() for new in others])
def test_reconciling_takes_narrower_values(old: str, new: str) -> None:
    assert _change(old, new, keeps_types=True) == TYPES[old][0]


@pytest.mark.parametrize("digits", [(10, 2), (12, 4), (9, 3)])
def test_reconciling_takes_a_decimal_that_the_table_holds(digits: tuple[int, int]) -> None:
    table, incoming = pa.schema({"c": pa.decimal128(12, 4)}), pa.schema({"c": pa.decimal128(*digits)})
    assert evolve(table, incoming, fill_missing=False, keeps_types=True) == table


def test_a_wider_type_is_refused_by_the_option(tmp_path: Path) -> None:
    table = a_table(tmp_path / "t", rows=pa.table({"id": [1], "v": [1]}), **{_RECONCILE: True})
    with check_refused(table, SchemaMismatchError, "'v'", _RECONCILE):
        table.upsert(pa.table({"id": [2], "v": [1.5]}))
    table.upsert(pa.table({"id": [2], "v": pa.array([2], pa.int32())}))
    assert sorted(table.to_arrow()["v"].to_pylist()) == [1, 2]


@pytest.mark.parametrize(
    ("old", "new", "right"),
    [
        ((10, 2), (12, 4), (12, 4)),
        ((10, 2), (20, 4), (20, 4)),
        ((10, 2), (12, 2), (12, 2)),
        ((12, 4), (10, 2), (12, 4)),
        ((12, 2), (10, 2), (12, 2)),
        ((10, 2), (20, 0), None),
        ((12, 4), (12, 2), None),
    ],
)
def test_one_decimal_holds_the_other(old: Any, new: Any, right: Any) -> None:
    table, incoming = (pa.schema({"c": pa.decimal128(*digits)}) for digits in (old, new))
    if right is None:
        with pytest.raises(SchemaMismatchError, match=r"alter\(\)\.retype"):
            evolve(table, incoming, fill_missing=False)
    else:
        assert evolve(table, incoming, fill_missing=False).field("c").type == pa.decimal128(*right)


@pytest.mark.parametrize(
    ("value", "right"),
    [
        (1.005, "1.01"),
        (-1.005, "-1.01"),
        (1.239, "1.24"),
        (0.0049, "0.00"),
        (0.005, "0.01"),
        (1e-300, "0.00"),
        (99_999_999.99, "99999999.99"),
        (None, None),
    ],
)
def test_floats_are_rounded_to_decimals_by_their_texts(value: Any, right: str | None) -> None:
    found = conform_array(pa.array([value], pa.float64()), pa.decimal128(10, 2))[0].as_py()
    assert found == (None if right is None else Decimal(right))


@pytest.mark.parametrize("value", [1e12, math.nan, math.inf, 99_999_999.999])
def test_a_float_that_no_decimal_holds_is_refused(value: float, tmp_path: Path) -> None:
    table = a_table(tmp_path / "t", schema=a_schema(id="int64", d=pa.decimal128(10, 2)))
    with check_refused(table, SchemaMismatchError, "'d'"):
        table.upsert(pa.table({"id": [1, 2], "d": [1.0, value]}))


def test_bytes_that_are_no_text_are_refused(tmp_path: Path) -> None:
    table = a_table(tmp_path / "t", schema=a_schema(id="int64", s="string"))
    with check_refused(table, SchemaMismatchError, "'s'"):
        table.upsert(pa.table({"id": [1], "s": [b"\xff"]}))


def test_a_write_that_rounds_integers_says_so(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    table = a_table(tmp_path / "t", rows=pa.table({"id": [1], "n": [2**53 + 1], "m": pa.array([1], pa.int32())}))
    with caplog.at_level(logging.WARNING, "lakeformat.write"):
        table.upsert(pa.table({"id": [2], "n": [0.5], "m": [0.5]}))
    assert [record.getMessage().split(": ")[1] for record in caplog.records] == [
        "the integers of n become floats, as by Hudi, and large ones are rounded; to keep the types set "
        f"{_RECONCILE}=true"
    ]


def test_a_write_names_the_columns_that_it_adds_or_changes(tmp_path: Path) -> None:
    table = a_table(tmp_path / "t", rows=pa.table({"id": [1], "n": [1]}))
    same = table.upsert(pa.table({"id": [2], "n": [2]}))
    new = table.upsert(pa.table({"id": [3], "n": [0.5], "tax": [3]}))
    assert "columns" not in str(same)
    assert "columns added or changed: n double, tax int64" in str(new)
    assert table.history()[0].report["columns"] == new.report["columns"] == {"n": "double", "tax": "int64"}


@pytest.mark.parametrize("place", PLACES)
def test_rounded_integers_are_named_at_every_depth(place: str) -> None:
    kind_of = PLACES[place][0]
    before, after = (pa.schema({"c": kind_of(kind)}) for kind in (pa.int64(), pa.float64()))
    (path,) = rounded_columns(before, after)
    assert path.split(".")[0] == "c"
    assert rounded_columns(before, before) == []


@pytest.mark.parametrize("verb", ["upsert", "overwrite"])
def test_an_ordering_number_stays_a_number(verb: str, tmp_path: Path) -> None:
    table = a_table(tmp_path / "t", schema=a_schema(id="int64", o="int64"), ordering="o")
    with check_refused(table, SchemaMismatchError, "'o'", "order"):
        getattr(table, verb)(pa.table({"id": [1], "o": ["1"]}))
