"""The proofs that bounds allow, unit by unit: units that are skipped, and traps that must keep units in."""

from __future__ import annotations

import math
from datetime import date
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from lakeformat.predicate import And, ColumnBounds, Comparison, In, Not, Or, Predicate, bind, may_match, parse_where
from lakeformat.predicate.nodes import Computed

ROWS = 10
#: Units: (minimum, maximum, null count); None is unknown.
Unit = tuple[Any, Any, int | None]


def flags(text: str, of: pa.DataType, units: list[Unit]) -> list[bool]:
    low, high, nulls = zip(*units, strict=True)
    bounds = {"c": ColumnBounds(pa.array(low, of), pa.array(high, of), pa.array(nulls, pa.int64()))}
    predicate = bind(parse_where(text), pa.schema([("c", of)]))
    return may_match(predicate, bounds, pa.array([ROWS] * len(units))).tolist()


INTS: list[Unit] = [(1, 3, 0), (5, 5, 0), (5, 9, 2), (None, None, ROWS), (None, None, None), (None, 3, 0)]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("c = 5", [0, 1, 1, 0, 1, 0]),
        ("c != 5", [1, 0, 1, 0, 1, 1]),
        ("not c = 5", [1, 0, 1, 0, 1, 1]),
        ("c <=> 5", [0, 1, 1, 0, 1, 0]),
        ("not c <=> 5", [1, 0, 1, 1, 1, 1]),
        ("c > 3", [0, 1, 1, 0, 1, 0]),
        ("not c > 3", [1, 0, 0, 0, 1, 1]),
        ("c < 5", [1, 0, 0, 0, 1, 1]),
        ("c >= 9", [0, 0, 1, 0, 1, 0]),
        ("c is null", [0, 0, 1, 1, 1, 0]),
        ("c is not null", [1, 1, 1, 0, 1, 1]),
        ("c <=> null", [0, 0, 1, 1, 1, 0]),
        ("c = null", [0, 0, 0, 0, 0, 0]),
        ("not c = null", [0, 0, 0, 0, 0, 0]),
        ("c in (4, 5)", [0, 1, 1, 0, 1, 0]),
        ("c not in (4, 5)", [1, 0, 1, 0, 1, 1]),
        ("c not in (5)", [1, 0, 1, 0, 1, 1]),
        ("c not in (4, null)", [0, 0, 0, 0, 0, 0]),
        ("c in (4, null)", [0, 0, 0, 0, 1, 0]),
        ("c > 2.5 and c < 3", [1, 0, 0, 0, 1, 1]),
        ("not (c = 5 or c = 2)", [1, 0, 1, 0, 1, 1]),
        ("not (c >= 1 and c <= 9)", [0, 0, 0, 0, 1, 1]),
        ("c >= 1e30", [0, 0, 0, 0, 0, 0]),
        ("c < 1e30", [1, 1, 1, 0, 1, 1]),
        ("true", [1] * 6),
        ("not true", [0] * 6),
    ],
)
def test_integer_bounds_skip_exactly(text: str, expected: list[int]) -> None:
    assert flags(text, pa.int32(), INTS) == [bool(flag) for flag in expected]


FLOATS: list[Unit] = [
    (1.0, 3.0, 0),
    (5.0, 5.0, 0),
    (-0.0, 0.0, 0),
    (math.nan, math.nan, 0),
    (None, None, ROWS),
]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("c > 100", [1, 1, 1, 1, 0]),  # NaN is greater than 100, and no bound says whether there is one.
        ("c >= 100", [1, 1, 1, 1, 0]),
        ("c != 5", [1, 1, 1, 1, 0]),
        ("not c <= 100", [1, 1, 1, 1, 0]),
        ("c not in (5)", [1, 1, 1, 1, 0]),
        ("c < 1", [0, 0, 1, 1, 0]),
        ("c <= 0", [0, 0, 1, 1, 0]),
        ("c = 0", [0, 0, 1, 1, 0]),
        ("c = 4", [0, 0, 0, 1, 0]),
        ("c = null", [0] * 5),
        ("c <= null", [0] * 5),
        ("c in (4, 5)", [0, 1, 0, 1, 0]),
        ("not c > 1", [1, 0, 1, 1, 0]),
        ("not c >= 1", [0, 0, 1, 1, 0]),
    ],
)
@pytest.mark.parametrize("of", [pa.float32(), pa.float64()])
def test_float_bounds_do_not_exclude_nan(of: pa.DataType, text: str, expected: list[int]) -> None:
    assert flags(text, of, FLOATS) == [bool(flag) for flag in expected]


NAN = math.nan
#: (minimum, maximum, NaN count) of ten rows; None is unknown.
COUNTED: list[Unit] = [(1.0, 3.0, 0), (5.0, 5.0, 0), (1.0, 3.0, 2), (5.0, 5.0, None), (None, None, 0)]


@pytest.mark.parametrize(
    ("wanted", "expected"),
    [
        ("c > 4", [0, 1, 1, 1, 1]),
        ("c >= 4", [0, 1, 1, 1, 1]),
        ("not c <= 4", [0, 1, 1, 1, 1]),
        ("c != 5", [1, 0, 1, 1, 1]),
        ("c not in (5, 7)", [1, 0, 1, 1, 1]),
        (Comparison("c", "=", NAN), [0, 0, 1, 1, 0]),
        (Comparison("c", ">=", NAN), [0, 0, 1, 1, 0]),
        (In("c", (NAN, 6.0)), [0, 0, 1, 1, 1]),
        (In("c", (NAN, *range(6, 16))), [0, 0, 1, 1, 1]),
        (In("c", (NAN,) * 9), [0, 0, 1, 1, 0]),
        # Conditions that rule NaN out, and conditions that do not.
        ("c >= 4 and c <= 9", [0, 1, 0, 1, 1]),
        ("c between 4 and 9", [0, 1, 0, 1, 1]),
        ("4 <= c and (true and not c > 9)", [0, 1, 0, 1, 1]),
        ("c > 4 and c in (2, 5)", [0, 1, 0, 1, 1]),
        ("c <= 9 and (c > 5 or c = 4)", [0, 0, 0, 0, 1]),
        ("c != 5 and c < 9", [1, 0, 1, 0, 1]),
        (And((Comparison("c", "<", NAN), Comparison("c", ">", 4))), [0, 1, 0, 1, 1]),
        (And((Comparison("c", "<=", NAN), Comparison("c", ">", 4))), [0, 1, 1, 1, 1]),
        ("not (c < 4 or c > 9)", [0, 1, 0, 1, 1]),
        ("c > 4 and (c <= 9 or c = 2)", [0, 1, 0, 1, 1]),
        ("c > 4 and (c <= 9 or c >= 20)", [0, 1, 1, 1, 1]),
        ("c > 4 or c <= 0", [0, 1, 1, 1, 1]),
        ("c > 4 and c != 9", [0, 1, 1, 1, 1]),
        ("not (c >= 4 and c <= 9)", [1, 0, 1, 1, 1]),
    ],
)
@pytest.mark.parametrize("of", [pa.float32(), pa.float64()])
def test_lower_bounds_skip_where_nan_is_ruled_out(
    of: pa.DataType, wanted: str | Predicate, expected: list[int]
) -> None:
    low, high, nans = zip(*COUNTED, strict=True)
    nulls = pa.array([0] * len(COUNTED), pa.int64())
    bounds = {"c": ColumnBounds(pa.array(low, of), pa.array(high, of), nulls, pa.array(nans, pa.int64()))}
    predicate = bind(parse_where(wanted) if isinstance(wanted, str) else wanted, pa.schema([("c", of)]))
    assert may_match(predicate, bounds, pa.array([ROWS] * len(COUNTED))).tolist() == [bool(flag) for flag in expected]


def test_comparison_with_nan_skips_only_if_nothing_can_match() -> None:
    nan = pa.scalar(math.nan)
    bounds = {"c": ColumnBounds(pa.array([1.0]), pa.array([3.0]), pa.array([0]))}
    expected = {"=": True, "!=": True, "<": True, "<=": True, ">": False, ">=": True}
    for op, flag in expected.items():
        assert may_match(Comparison("c", op, nan), bounds, pa.array([ROWS])).tolist() == [flag]  # type: ignore[arg-type]
    for count in (1, 20):
        wanted = In("c", pa.array([math.nan] + [100.0 + i for i in range(count)]))
        assert may_match(wanted, bounds, pa.array([ROWS])).tolist() == [True]


#: The bounds of the third unit are cut short: every text lies between them, but none needs to equal a bound.
TEXTS: list[Unit] = [
    ("abc", "abd", 0),
    ("b", "b", 0),
    ("ab", "ac", 0),
    ("é", "\U0001f600", 0),
    ("ab", None, 0),
]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("c = 'abcd'", [1, 0, 1, 0, 1]),
        ("c > 'b'", [0, 0, 0, 1, 1]),
        ("c > '\uffff'", [0, 0, 0, 1, 1]),  # Texts are compared by bytes; in UTF-16 an emoji would come first.
        ("c like 'ab%'", [1, 0, 1, 0, 1]),
        ("c like 'abd%'", [1, 0, 1, 0, 1]),
        ("c like 'abe%'", [0, 0, 1, 0, 1]),
        ("c like 'aa%'", [0, 0, 0, 0, 0]),
        ("c like 'b%'", [0, 1, 0, 0, 1]),
        ("c like 'b_%'", [0, 1, 0, 0, 1]),
        ("c like '%'", [1, 1, 1, 1, 1]),
        ("c like '%x'", [1, 1, 1, 1, 1]),
        ("c not like 'ab%'", [0, 1, 1, 1, 1]),
        ("c not like 'a%'", [0, 1, 0, 1, 1]),
        ("c not like 'b_'", [1, 1, 1, 1, 1]),
        ("c in ('a', 'abd', 'x')", [1, 0, 1, 0, 1]),
    ],
)
@pytest.mark.parametrize("of", [pa.string(), pa.large_string()])
def test_text_bounds_skip_exactly(of: pa.DataType, text: str, expected: list[int]) -> None:
    assert flags(text, of, TEXTS) == [bool(flag) for flag in expected]


@pytest.mark.parametrize(
    ("of", "values", "inside", "outside"),
    [
        (pa.int64(), [10 * i for i in range(2000)], (39, 40), (41, 49)),
        (pa.int8(), list(range(-100, 100, 10)), (-11, -9), (-9, -1)),
        (pa.float64(), [10.0 * i for i in range(2000)], (39.5, 41.0), (40.5, 49.5)),
        (pa.string(), [f"{10 * i:05}" for i in range(2000)], ("0004", "00041"), ("00041", "00049")),
        (
            pa.binary(),
            [bytes([i, 255]) for i in range(0, 250, 10)],
            (b"\x14\xff", b"\x15"),
            (b"\x15", b"\x16\xff"),
        ),
        (
            pa.decimal128(9, 2),
            [Decimal(10 * i) for i in range(20)],
            (Decimal(39), Decimal(40)),
            (Decimal(41),) * 2,
        ),
        (
            pa.date32(),
            [date(2024, month, 1) for month in range(1, 13)],
            (date(2024, 1, 2), date(2024, 2, 1)),
            (date(2024, 1, 2), date(2024, 1, 31)),
        ),
        (pa.timestamp("us", "UTC"), [10 * i for i in range(20)], (35, 45), (41, 49)),
    ],
)
def test_long_in_list_is_searched(of: pa.DataType, values: list[Any], inside: Any, outside: Any) -> None:
    wanted = In("c", pa.array(values[::-1], of))
    low, high = zip(inside, outside, (None, inside[1]), (inside[0], None), strict=True)
    bounds = {"c": ColumnBounds(pa.array(low, of), pa.array(high, of), pa.array([0, 0, 0, None]))}
    assert may_match(wanted, bounds, pa.array([ROWS] * 4)).tolist() == [True, False, True, True]
    assert may_match(Not(wanted), bounds, pa.array([ROWS] * 4)).all()


def test_boolean_bounds_skip_exactly() -> None:
    units: list[Unit] = [(False, False, 0), (True, True, 0), (False, True, 5), (None, None, ROWS)]
    assert flags("c", pa.bool_(), units) == [False, True, True, False]
    assert flags("not c", pa.bool_(), units) == [True, False, True, False]
    assert flags("c != true", pa.bool_(), units) == [True, False, True, False]


def test_missing_bounds_never_skip_and_empty_units_always_do() -> None:
    predicate = bind(parse_where("c > 5 and x = 1"), pa.schema([("c", pa.int64()), ("x", pa.int64())]))
    rows = pa.array([10, 0, None])
    assert may_match(predicate, {}, rows).tolist() == [True, False, True]
    ones, nulls = pa.array([1] * 3, pa.int32()), pa.array([0] * 3)
    assert may_match(predicate, {"c": ColumnBounds(ones, ones, nulls)}, rows).tolist() == [True, False, True]
    typed = ones.cast(pa.int64())
    assert may_match(predicate, {"c": ColumnBounds(typed, typed, nulls)}, rows).tolist() == [False] * 3


def test_computed_condition_is_tested_by_its_hint_and_its_negation_not_at_all() -> None:
    bounds = {"c": ColumnBounds(pa.array([1, 5]), pa.array([3, 9]), pa.array([0, 0]))}
    hint = bind(parse_where("c > 4"), pa.schema([("c", pa.int64())]))
    computed = Computed(pc.field("c") * 2 > pc.scalar(9), ((("c",), "c"),), hint)
    assert may_match(computed, bounds, pa.array([ROWS] * 2)).tolist() == [False, True]
    assert may_match(Not(computed), bounds, pa.array([ROWS] * 2)).all()


def test_empty_and_or_are_true_and_false() -> None:
    rows = pa.array([ROWS])
    assert may_match(And(()), {}, rows).tolist() == [True]
    assert may_match(Or(()), {}, rows).tolist() == [False]
    assert may_match(Not(Or(())), {}, rows).tolist() == [True]
    assert may_match(Not(And(())), {}, rows).tolist() == [False]


SCHEMA = pa.schema([("c", pa.string()), ("n", pa.int64()), ("f", pa.float64()), ("s", pa.struct([("b", pa.string())]))])


def texts(low: list[str], high: list[str], nulls: list[int], of: pa.DataType | None = None) -> ColumnBounds:
    return ColumnBounds(pa.array(low, of), pa.array(high, of), pa.array(nulls))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("length(c) > 2", [1, 0, 1, 1]),
        ("not length(c) > 2", [0, 1, 1, 1]),
        ("length(c) > 2 and length(c) < 9", [1, 0, 1, 1]),
        ("length(c) = n", [1, 1, 1, 1]),  # The type of the bounds is not the column's.
        ("length(s.b) > 2", [1, 1, 1, 1]),
        ("abs(f) > 2", [1, 1, 1, 1]),  # Equal bounds of floats may mean 0.0 and -0.0.
        ("length(d) > 2", [1, 1, 1, 1]),  # Its bounds are unknown.
        ("(c < 'b') = (length(c) > 9)", [1, 1, 1, 1]),
        ("(n < 5) = (length(c) > 9)", [1, 1, 1, 1]),
        ("n < f", [1, 1, 1, 1]),
        ("c like '_x%'", [1, 1, 1, 1]),
    ],
)
def test_functions_are_tested_where_a_unit_has_one_value(text: str, expected: list[int]) -> None:
    narrow, zeros = pa.array([1] * 4, pa.int32()), pa.array([0.0] * 4)
    bounds = {
        "c": texts(["abc", "b", "a", "b"], ["abc", "b", "b", "b"], [0, 0, 0, 1]),
        "s.b": texts(["a"] * 4, ["a"] * 4, [0] * 4),
        "n": ColumnBounds(narrow, narrow, pa.array([0] * 4)),
        "f": ColumnBounds(zeros, zeros, pa.array([0] * 4)),
    }
    predicate = bind(parse_where(text), pa.unify_schemas([SCHEMA, pa.schema([("d", pa.string())])]))
    assert may_match(predicate, bounds, pa.array([ROWS] * 4)).tolist() == [bool(flag) for flag in expected]
    wide = narrow.cast(pa.int64())
    for low, high in ((wide, narrow), (narrow, wide)):
        half = {"n": ColumnBounds(low, high, pa.array([0] * 4))}
        assert may_match(bind(parse_where("abs(n) = 7"), SCHEMA), half, pa.array([ROWS] * 4)).all()


@pytest.mark.parametrize(
    "text", ["c = 'a'", "c <> 'x'", "c in ('a')", "c not in ('x')", "c like 'a%'", "c not like 'x%'", "c > 'z'"]
)
def test_bounds_of_another_type_never_skip(text: str) -> None:
    predicate = bind(parse_where(text), SCHEMA)
    rows = pa.array([ROWS])
    x, large, raw = (pa.array(["x"], of) for of in (pa.string(), pa.large_string(), pa.binary()))
    no_nulls = pa.array([0])
    assert not may_match(predicate, {"c": ColumnBounds(x, x, no_nulls)}, rows).any()
    for low, high in ((x, large), (large, x), (raw, raw), (x, raw)):
        assert may_match(predicate, {"c": ColumnBounds(low, high, no_nulls)}, rows).all()
    long = In("c", pa.array([f"a{number}" for number in range(20)]))
    assert not may_match(long, {"c": ColumnBounds(x, x, no_nulls)}, rows).any()
    assert may_match(long, {"c": ColumnBounds(x, large, no_nulls)}, rows).all()


def test_long_list_says_nothing_of_the_gap_before_its_last_value() -> None:
    wanted = In("c", pa.array([*range(0, 100, 10), 1000], pa.int64()))
    units = [(91, 999), (91, 1000), (1000, 1000), (1001, 2000), (-9, -1), (-9, 0)]
    low, high = (pa.array(each) for each in zip(*units, strict=True))
    bounds = {"c": ColumnBounds(low, high, pa.array([0] * 6))}
    assert may_match(wanted, bounds, pa.array([ROWS] * 6)).tolist() == [False, True, True, False, False, True]
    assert may_match(Not(wanted), bounds, pa.array([ROWS] * 6)).tolist() == [True, True, False, True, True, True]
