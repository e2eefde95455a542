"""Fields filled from another row: examples as tables, every type, and a fold in plain Python as the law."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakeformat.merge import fill_unset, fold_rows
from lakeformat.model.merge_settings import PartialUpdate
from lakeformat.model.record import IS_DELETED
from tests.helpers.merge_tables import TYPES
from tests.helpers.tables import a_schema

TOAST = "__debezium_unavailable_value"


@pytest.mark.parametrize(("kind", "one", "other"), TYPES, ids=[str(kind) for kind, _, _ in TYPES])
def test_null_is_filled_and_value_is_kept_in_every_type(kind: pa.DataType, one: Any, other: Any) -> None:
    stored = pa.table({"c": pa.chunked_array([[one, None], [one, None]], kind)})
    incoming = pa.table({"c": pa.array([other, other, None, None], kind)})
    assert fill_unset(stored, incoming, np.zeros(4, bool))["c"].to_pylist() == [other, other, one, None]
    assert fill_unset(stored, incoming, np.ones(4, bool))["c"].to_pylist() == [one, other, one, None]
    mixed = fill_unset(stored, incoming, np.array([True, False, False, True]))
    assert mixed["c"].to_pylist() == [one, other, one, None]
    assert mixed.schema == incoming.schema
    rows = pa.table({"k": ["a", "b", "a", "b"], "c": pa.array([one, None, None, other], kind)})
    assert fold_rows(rows, "k", ())["c"].to_pylist() == [one, other]


def test_struct_is_filled_as_a_whole() -> None:
    kind = pa.struct([("x", pa.int32()), ("y", pa.int32())])
    stored = pa.table({"c": pa.array([{"x": 1, "y": 2}, {"x": 1, "y": 2}], kind)})
    incoming = pa.table({"c": pa.array([{"x": None, "y": 3}, None], kind)})
    assert fill_unset(stored, incoming, np.zeros(2, bool))["c"].to_pylist() == [{"x": None, "y": 3}, {"x": 1, "y": 2}]


def test_fold_of_distinct_keys_returns_the_same_rows() -> None:
    for keys in ([], ["a"], ["b", "a"]):
        rows = pa.table({"k": pa.array(keys, pa.string()), "v": pa.array([None] * len(keys), pa.int64())})
        assert fold_rows(rows, "k", ()) is rows
    nothing = pa.table({"v": pa.array([], pa.int64())})
    assert fill_unset(nothing, nothing, np.zeros(0, bool)).num_rows == 0


def rank(ts: float | None) -> tuple[int, float]:
    """Return a sort key: null comes before all numbers, NaN after them."""
    if ts is None:
        return (0, 0.0)
    return (2, 0.0) if math.isnan(ts) else (1, ts)


def folded(rows: list[dict[str, Any]], *, ordered: bool) -> list[dict[str, Any]]:
    """Merge the rows of one key one after the other, as Hudi does, in the order of arrival of the winners."""
    states: dict[str, dict[str, Any]] = {}
    for at, row in enumerate(rows):
        old, new = states.get(row["k"]), {**row, "at": at}
        if old is not None:
            newer, other = (old, new) if ordered and rank(old["ts"]) > rank(new["ts"]) else (new, old)
            filling = {name: other[name] for name, value in newer.items() if value is None}
            new = {**newer, **filling, "_hoodie_is_deleted": newer["_hoodie_is_deleted"]}
        states[row["k"]] = new
    return [{n: v for n, v in row.items() if n != "at"} for row in sorted(states.values(), key=lambda r: r["at"])]


ROW = st.fixed_dictionaries(
    {
        "k": st.sampled_from("abc"),
        "ts": st.sampled_from([None, -math.inf, 0.0, 1.0, 2.0, math.nan]),
        "x": st.none() | st.integers(0, 99),
        "y": st.none() | st.text("uv", max_size=2),
        "_hoodie_is_deleted": st.none() | st.booleans(),
    }
)
SCHEMA = a_schema(k="string", ts="float64", x="int64", y="string", _hoodie_is_deleted="bool")


@given(st.lists(st.lists(ROW, max_size=6), max_size=3), st.booleans())
def test_fold_of_a_batch_equals_the_fold_row_by_row(chunks: list[list[dict[str, Any]]], ordered: bool) -> None:
    batches = [pa.RecordBatch.from_pylist(rows, SCHEMA) for rows in chunks]
    table = pa.Table.from_batches(batches, SCHEMA)
    found = fold_rows(table, "k", [table["ts"]] if ordered else ())
    wanted = folded([row for rows in chunks for row in rows], ordered=ordered)
    assert repr(found.to_pylist()) == repr([{name: row[name] for name in SCHEMA.names} for row in wanted])


@pytest.mark.parametrize(("rows", "wanted"), [
    ([("a", 5, "x", False), ("a", 6, TOAST, False)], ("x", 6, False)),
    ([("a", 6, TOAST, False), ("a", 5, "x", False)], ("x", 6, False)),
    ([("a", 6, TOAST, False), ("a", 5, None, False)], (None, 6, False)),
    ([("a", 5, TOAST, False), ("a", 6, TOAST, False)], (TOAST, 6, False)),
    ([("a", 5, "x", False), ("a", 6, "y", True)], ("y", 6, True)),
    ([("a", 5, "x", True), ("a", 6, TOAST, False)], (TOAST, 6, False)),
    ([("a", 6, TOAST, False), ("a", 5, "x", True)], (TOAST, 6, False)),
    ([("a", 4, "w", False), ("a", 5, "x", True), ("a", 6, TOAST, False)], (TOAST, 6, False)),
    ([("a", 5, "x", True), ("a", 4, "late", False), ("a", 6, TOAST, False)], (TOAST, 6, False)),
])  # fmt: skip
def test_unavailable_values_of_a_batch_come_from_rows_that_no_delete_hides(
    rows: list[tuple[Any, ...]], wanted: tuple[Any, ...]
) -> None:
    """Hudi 1.2.0 answers so in version 9, see ``tests/interop/test_cdc_payloads.py``."""
    table = pa.Table.from_pylist([dict(zip(("k", "ts", "c", IS_DELETED), row, strict=True)) for row in rows])
    other = pa.table({"k": ["b"], "ts": [1], "c": ["other"], IS_DELETED: [False]})
    table = pa.concat_tables([table, other])
    found = fold_rows(table, "k", [table["ts"]], PartialUpdate.FILL_UNAVAILABLE, TOAST)
    assert [(r["c"], r["ts"], r[IS_DELETED]) for r in found.to_pylist() if r["k"] == "a"] == [wanted]
    assert found.num_rows == 2


@pytest.mark.parametrize("kind", [pa.string(), pa.binary()])
def test_unavailable_values_come_from_the_other_row(kind: pa.DataType) -> None:
    stored, incoming = (pa.table({"c": pa.array(values, pa.string()).cast(kind)}) for values in (
        ["old", TOAST, "old", TOAST], [TOAST, "new", "new", None]
    ))  # fmt: skip
    for newer in (False, True):
        found = fill_unset(stored, incoming, np.full(4, newer), PartialUpdate.FILL_UNAVAILABLE, TOAST)
        texts = found["c"].cast(pa.string()).to_pylist()
        assert texts == (["old", "new", "old", None] if newer else ["old", "new", "new", None])
