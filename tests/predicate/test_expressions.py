"""Arrow expressions as filters: Arrow itself, on all rows, is the oracle for rows and for skipping."""

from __future__ import annotations

import math
import pickle
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import lakeformat
from lakeformat import InvalidInputError, InvalidOptionError
from lakeformat.predicate import ColumnBounds, bind_expression, bind_where, mask, may_match
from lakeformat.predicate.nodes import leaves
from tests.helpers.arrow_filters import EXPRESSIONS, TABLE

f = pc.field


def arrow_answers(expression: pc.Expression, rows: pa.Table) -> list[bool]:
    numbered = rows.append_column("#", pa.array(range(rows.num_rows)))
    kept = set(numbered.filter(expression)["#"].to_pylist())
    return [number in kept for number in range(rows.num_rows)]


def bounds_of(rows: pa.Table, path: str) -> ColumnBounds:
    """Return the bounds as Parquet stores them: without NaN."""
    top, *within = path.strip("`").split(".") if path == "s.a" else [path.strip("`")]
    column = rows[top].combine_chunks()
    column = pc.struct_field(column, within) if within else column
    values = column.filter(pc.invert(pc.is_nan(column))) if pa.types.is_floating(column.type) else column
    low, high = (pa.array([end(values).as_py()], column.type) for end in (pc.min, pc.max))
    return ColumnBounds(low, high, pa.array([column.null_count]))


@settings(max_examples=200)
@given(EXPRESSIONS, st.lists(st.integers(0, 5), min_size=1, max_size=4))
def test_arrow_expression_selects_like_arrow_and_skips_only_misses(expression: pc.Expression, at: list[int]) -> None:
    rows = TABLE.take(pa.array(at))
    try:
        wanted = arrow_answers(expression, rows)
    except pa.ArrowException:
        with pytest.raises(InvalidInputError):
            mask(bind_expression(expression, TABLE.schema), rows)
        return
    bound = bind_expression(expression, TABLE.schema)
    assert mask(bound, rows).to_pylist() == wanted
    batch = rows.combine_chunks().to_batches()[0]
    assert mask(pickle.loads(pickle.dumps(bound)), batch).to_pylist() == wanted  # noqa: S301
    bounds = {each.column: bounds_of(rows, each.column) for each in leaves(bound)}
    if any(wanted):
        assert may_match(bound, bounds, pa.array([rows.num_rows]))[0]


@pytest.mark.parametrize(
    ("expression", "skipped"),
    [
        (f("l") > 100, True),
        (pc.scalar(100) < f("l"), True),
        ((f("l") > 100) & (pc.add(f("l"), 1) > 0), True),
        ((f("l") > 100) | (f("t") == "c"), True),
        (~(f("l") <= 100), True),
        (f("l").isin([101, 102]), True),
        (pc.starts_with(f("t"), "c"), True),
        (f("s", "a") == 9, True),
        (f("l").is_null(), True),
        (pc.scalar(False), True),
        (f("l") > 2, False),
        (pc.add(f("l"), 1) > 200, False),
        ((f("l") > 100) | (pc.add(f("l"), 1) > 200), False),
        (pc.scalar(True), False),
    ],
)
def test_understood_part_of_an_expression_skips_files(expression: pc.Expression, skipped: bool) -> None:
    rows = pa.table({"l": [1, 2, 3], "t": ["a", "b", "bb"], "s": [{"a": 1}] * 3})
    bound = bind_expression(expression, rows.schema)
    bounds = {each.column: bounds_of(rows, each.column) for each in leaves(bound)}
    assert may_match(bound, bounds, pa.array([3])).tolist() == [not skipped]


def test_column_names_that_look_like_expressions_are_names() -> None:
    name = "x > 1) and (y"
    rows = pa.table({name: [1, 5], "X": [1, 2]})
    assert mask(bind_expression(f(name) > 2, rows.schema), rows).to_pylist() == [False, True]
    assert mask(bind_expression(f("x") > 1, rows.schema), rows).to_pylist() == [False, True], "any case, as in text"


@pytest.mark.parametrize(
    ("where", "said"),
    [
        ([("l", ">", 1)], "of type list; give Spark SQL text"),
        (("l", ">", 1), "of type tuple; give"),
        (lambda row: True, "of type function; give"),
        (True, "of type bool; give"),
        (b"l > 1", "of type bytes; give"),
        (pa.scalar(1), "Int64Scalar; give"),
        (f("nope") > 1, "'nope' is not in the table"),
        (f(0) > 1, "use names"),
        (f("l") > "a", "cannot filter by"),
        (f("l") + 1, "it is int64, not a condition"),
    ],
)
def test_value_that_is_not_a_condition_is_refused(where: Any, said: str) -> None:
    with pytest.raises(InvalidInputError, match=said) as caught:
        bind_where(where, pa.schema([("l", pa.int64())]))
    assert "\n" not in str(caught.value)


def test_every_where_argument_accepts_an_arrow_expression(tmp_path: Any) -> None:
    schema = pa.schema([("id", pa.int64()), ("p", pa.string()), ("x", pa.float64())])
    rows = pa.table({"id": range(8), "p": [f"p{n % 2}" for n in range(8)], "x": [1.0, math.nan, None, 4.0] * 2}, schema)
    options = {"hoodie.parquet.small.file.limit": 0, "meta_columns": False}
    table = lakeformat.create(tmp_path / "t", schema, record_key="id", partition_by="p", **options)
    table.insert(rows)
    for where in (f("x") > 1, ~(f("x") > 1), f("x") != 1, (f("p") == "p1") & f("x").is_valid(), f("id").isin([1, 5])):
        expected = rows.filter(where)["id"].to_pylist()
        assert sorted(table.to_arrow(["id"], where=where, verify=True)["id"].to_pylist()) == expected
        assert sum(batch.num_rows for batch in table.to_batches(where=where)) == len(expected)
    assert table.explain(where=f("p") == "p1") == table.explain(where="p = 'p1'")
    assert table.update({"x": 0.0}, where=pc.is_nan(f("x"))).report["rows"]["updated"] == 2
    assert table.delete(where=f("id") < 2).report["rows"]["deleted"] == 2
    changes = rows.slice(2).set_column(2, "x", pa.array([9.0] * 6))
    merge = (
        table.merge(changes)
        .when_matched_delete(f("target.x") == 4)
        .when_matched_update(
            where=(f("source", "x") > 1) & (f("target", "id") > f("source.id") - 1) & (f("target", "x") == 0)
        )
    )
    assert merge.execute().report["rows"] == {"incoming": 6, "inserted": 0, "updated": 1, "deleted": 2}
    with pytest.raises(InvalidInputError, match="list; give"):
        table.delete(where=[("id", "=", 1)])  # type: ignore[arg-type]
    with pytest.raises(InvalidOptionError, match="of type Expression; write text"):
        lakeformat.open(tmp_path / "t", where=f("x") > 1)
    with pytest.raises(InvalidInputError, match="list; give"):
        table.merge(changes).when_matched_delete([1]).execute()  # type: ignore[arg-type]
