"""Places of rows follow the order of any type, for every sample and every order of the rows."""

import pickle
from datetime import date, datetime, timezone
from decimal import Decimal
from functools import cmp_to_key
from itertools import pairwise
from math import isnan
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakeformat.errors import InvalidInputError, SchemaMismatchError
from lakeformat.layout import Curve, CurveBuild, CurveStrategy, fit_curve

TEXTS = st.one_of(
    st.text(max_size=4),
    st.text(alphabet="ab\0é", min_size=6, max_size=20),
    st.integers(60, 70).map(lambda size: "x" * size),
)
TYPES: dict[pa.DataType, st.SearchStrategy[Any]] = {
    pa.int8(): st.integers(-128, 127),
    pa.int64(): st.integers(-(1 << 63), (1 << 63) - 1),
    pa.uint64(): st.integers(0, (1 << 64) - 1),
    pa.float32(): st.floats(width=32),
    pa.float64(): st.floats(),
    pa.decimal128(9, 2): st.decimals(places=2, min_value=-9_999_999, max_value=9_999_999),
    pa.decimal128(38, 3): st.integers(-(10**38) + 1, 10**38 - 1).map(lambda digits: Decimal(f"{digits}E-3")),
    pa.decimal256(50, 0): st.integers(-(10**50) + 1, 10**50 - 1).map(Decimal),
    pa.date32(): st.dates(),
    pa.timestamp("us"): st.datetimes(),
    pa.timestamp("ms", "UTC"): st.datetimes(timezones=st.just(timezone.utc)).map(
        lambda at: at.replace(microsecond=at.microsecond // 1000 * 1000)
    ),
    pa.string(): TEXTS,
    pa.large_string(): TEXTS,
    pa.string_view(): TEXTS,
    pa.binary(): st.binary(max_size=70),
    pa.binary(5): st.binary(min_size=5, max_size=5),
    pa.bool_(): st.booleans(),
    pa.dictionary(pa.int8(), pa.string()): TEXTS,
}
CURVES = [(strategy, build) for strategy in CurveStrategy for build in CurveBuild]


def less(one: Any, other: Any) -> bool:
    """Tell whether a value is less, by Python's order: null, numbers, NaN; texts by their bytes."""
    if one is None or other is None:
        return one is None and other is not None
    if isinstance(one, float) and (isnan(one) or isnan(other)):
        return isnan(other) and not isnan(one)
    if isinstance(one, str):
        return one.encode() < other.encode()
    return one < other


def compare(one: tuple[Any, ...], other: tuple[Any, ...]) -> int:
    for left, right in zip(one, other, strict=True):
        if less(left, right) or less(right, left):
            return -1 if less(left, right) else 1
    return 0


def table_of(rows: list[tuple[Any, ...]], types: list[pa.DataType]) -> pa.Table:
    columns = [pa.array([row[at] for row in rows], of) for at, of in enumerate(types)]
    return pa.table(columns, [f"c{at}" for at in range(len(types))])


@st.composite
def tables(draw: st.DrawFn, columns: int) -> tuple[list[tuple[Any, ...]], list[pa.DataType]]:
    types = draw(st.lists(st.sampled_from(list(TYPES)), min_size=columns, max_size=columns))
    values = st.tuples(*(st.none() | TYPES[of] for of in types))
    rows = draw(st.lists(values, min_size=1, max_size=12))
    return rows + draw(st.lists(st.sampled_from(rows), max_size=12)), types


@given(tables(1), st.sampled_from(CURVES), st.data())
def test_positions_by_one_column_follow_its_order(
    table: tuple[list[tuple[Any, ...]], list[pa.DataType]], kind: tuple[CurveStrategy, CurveBuild], data: st.DataObject
) -> None:
    rows, types = table
    sampled = data.draw(st.lists(st.sampled_from(rows), max_size=20))
    curve = fit_curve(kind[0], ["c0"], table_of(sampled, types), build=kind[1])
    ordered = sorted(rows, key=cmp_to_key(compare))
    places = curve.positions(table_of(ordered, types)).tolist()
    for (one, at), (other, then) in pairwise(zip(ordered, places, strict=True)):
        assert at == then if compare(one, other) == 0 else at <= then


@given(tables(1), st.sampled_from(CURVES))
def test_sampled_values_of_one_column_have_distinct_positions(
    table: tuple[list[tuple[Any, ...]], list[pa.DataType]], kind: tuple[CurveStrategy, CurveBuild]
) -> None:
    rows, types = table
    sample = table_of(rows, types)
    places = fit_curve(CurveStrategy.LINEAR, ["c0"], sample, build=kind[1]).positions(sample).tolist()
    if any(isinstance(row[0], (str, bytes)) and len(row[0]) > 64 for row in rows):
        return
    ordered = sorted(zip(rows, places, strict=True), key=cmp_to_key(lambda a, b: compare(a[0], b[0])))
    for (one, at), (other, then) in pairwise(ordered):
        assert (at == then) == (compare(one, other) == 0)


@given(tables(3), st.data())
def test_linear_positions_follow_the_order_of_the_columns(
    table: tuple[list[tuple[Any, ...]], list[pa.DataType]], data: st.DataObject
) -> None:
    rows, types = table
    sampled = data.draw(st.lists(st.sampled_from(rows), max_size=20))
    curve = fit_curve(CurveStrategy.LINEAR, ["c0", "c1", "c2"], table_of(sampled, types))
    ordered = sorted(rows, key=cmp_to_key(compare))
    places = curve.positions(table_of(ordered, types)).tolist()
    assert places == sorted(places)


@given(tables(2), st.sampled_from(CURVES), st.data())
def test_position_of_a_row_does_not_depend_on_its_batch(
    table: tuple[list[tuple[Any, ...]], list[pa.DataType]], kind: tuple[CurveStrategy, CurveBuild], data: st.DataObject
) -> None:
    rows, types = table
    whole = table_of(rows, types)
    fitted = fit_curve(kind[0], ["c0", "c1"], whole, build=kind[1])
    curve: Curve = pickle.loads(pickle.dumps(fitted))  # noqa: S301
    places = curve.positions(whole).tolist()
    cut = data.draw(st.integers(0, len(rows)))
    parts = pa.concat_tables([whole.slice(0, cut), whole.slice(cut)])
    assert curve.positions(parts).tolist() == places
    assert curve.positions(whole.slice(cut)).tolist() == places[cut:]
    for batch in whole.slice(cut).to_batches():
        assert curve.positions(batch).tolist() == places[cut:]


@pytest.mark.parametrize("strategy", [CurveStrategy.Z_ORDER, CurveStrategy.HILBERT])
def test_each_column_of_a_curve_orders_its_quarters(strategy: CurveStrategy) -> None:
    grid = np.arange(64)
    rows = pa.table({"a": np.repeat(grid, 64), "b": np.tile(grid, 64).astype(str)})
    places = fit_curve(strategy, ["a", "b"], rows).positions(rows)
    quarters = places >> np.uint64(30)
    of_a = np.asarray(rows["a"]) >= 32
    assert all(len(np.unique(of_a[quarters == quarter])) == 1 for quarter in range(4))
    assert np.bincount(quarters.astype(int)).tolist() == [1024] * 4


def test_fields_of_structs_and_names_with_dots() -> None:
    inner = pa.StructArray.from_arrays([pa.array([3, 1, 2])], ["v"], mask=pa.array([False, True, False]))
    rows = pa.table({"s": inner, "a.b": [1, 1, 1]})
    assert np.argsort(fit_curve(CurveStrategy.LINEAR, ["s.v", "a.b"], rows).positions(rows)).tolist() == [1, 2, 0]


def test_slice_of_a_batch_has_the_positions_of_its_rows() -> None:
    texts = pa.array(["zz", "b", None, "a", "aa" * 40, ""])
    rows = pa.table({"t": texts, "b": pa.array([True, False, None, True, False, True])})
    curve = fit_curve(CurveStrategy.LINEAR, ["t", "b"], rows)
    alone = [curve.positions(rows.slice(at, 1)).tolist()[0] for at in range(6)]
    assert curve.positions(rows.slice(1, 4)).tolist() == alone[1:5]
    assert np.argsort(alone).tolist() == [2, 5, 3, 4, 1, 0]


def test_empty_sample_gives_all_rows_one_position() -> None:
    rows = pa.table({"a": [1, 2, 3], "b": ["x", None, "y"]})
    curve = fit_curve(CurveStrategy.HILBERT, ["a", "b"], rows.slice(0, 0))
    assert len(set(curve.positions(rows.select(["a", "b"]).slice(0, 1)).tolist())) == 1
    assert curve.positions(rows.slice(0, 0)).tolist() == []


def test_layout_by_bad_columns_is_refused() -> None:
    rows = pa.table({"a": [1], "l": [[1]], "d": [date(2026, 1, 1)], "t": [datetime(2026, 1, 1)]})
    with pytest.raises(SchemaMismatchError, match="'z' is not among the columns"):
        fit_curve(CurveStrategy.HILBERT, ["a", "z"], rows)
    with pytest.raises(SchemaMismatchError, match="has no order"):
        fit_curve(CurveStrategy.HILBERT, ["a", "l"], rows)
    with pytest.raises(InvalidInputError, match="1 to 64 different columns"):
        fit_curve(CurveStrategy.HILBERT, [], rows)
    with pytest.raises(InvalidInputError, match="1 to 64 different columns"):
        fit_curve(CurveStrategy.HILBERT, ["a", "a"], rows)
    with pytest.raises(SchemaMismatchError, match="fitted to int64"):
        fit_curve(CurveStrategy.HILBERT, ["a", "d"], rows).positions(pa.table({"a": ["1"], "d": [date(2026, 1, 1)]}))


@pytest.mark.parametrize(
    ("text", "strategy"),
    [
        *((text, CurveStrategy.Z_ORDER) for text in ("zorder", "Z-Order", "z_order", "ZORDER")),
        ("HILBERT", CurveStrategy.HILBERT),
        ("LINEAR", CurveStrategy.LINEAR),
    ],
)
def test_strategy_names_are_parsed_in_every_spelling(text: str, strategy: CurveStrategy) -> None:
    assert CurveStrategy.parse(text) is strategy


def test_unknown_strategy_and_build_are_refused() -> None:
    with pytest.raises(InvalidInputError, match="peano"):
        CurveStrategy.parse("peano")
    with pytest.raises(InvalidInputError, match="guess"):
        CurveBuild.parse("guess")
    assert CurveBuild.parse("DIRECT") is CurveBuild.DIRECT
