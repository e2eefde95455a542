"""Random Arrow filters over a table with nulls, NaN, infinities, both zeros and the ends of integers."""

from __future__ import annotations

import datetime as dt
import math
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from hypothesis import strategies as st

__all__ = ["EXPRESSIONS", "TABLE"]

f = pc.field
DAY = dt.date(2024, 1, 1)
ROWS = {
    "i": pa.array([None, -(2**31), -1, 0, 3, 2**31 - 1], pa.int32()),
    "l": pa.array([None, -(2**63), -1, 0, 3, 2**63 - 1], pa.int64()),
    "x": pa.array([None, -math.inf, -0.0, 0.0, 2.5, math.nan]),
    "g": pa.array([None, -1.5, -0.0, 0.0, 16777216.0, math.nan], pa.float32()),
    "t": pa.array([None, "", "a", "ab", "b%", "é"]),
    "b": pa.array([None, True, False, True, False, None]),
    "d": pa.array([None, *(DAY + dt.timedelta(n) for n in range(5))]),
    "m": pa.array([None, *(Decimal(n) / 100 for n in (-500, 0, 1, 99, 100))], pa.decimal128(9, 2)),
    "u": pa.array([None, *(dt.datetime(2024, 1, n, tzinfo=dt.timezone.utc) for n in range(1, 6))]),
    "s": pa.array([None, {"a": None}, {"a": 0}, {"a": 1}, {"a": 2}, {"a": 3}], pa.struct([("a", pa.int64())])),
    "a.b": pa.array([None, 1, 2, 3, 4, 5]),
}
TABLE = pa.table(ROWS)
LITERALS: dict[str, list[Any]] = {
    "i": [-1, 0, 3, 2**31, 2**40, 0.5],
    "l": [-1, 0, 2**63 - 1, 1.5],
    "x": [0.0, -0.0, 2.5, math.inf, math.nan, 3],
    "g": [0.0, 16777216.0, 16777217.0, 0.1, math.nan, 16777217],
    "t": ["", "a", "aa", "b%"],
    "b": [True, False],
    "d": [DAY, dt.date(1900, 1, 1)],
    "m": [Decimal("0.01"), Decimal("1.00"), Decimal("0.005"), 1],
    "u": [dt.datetime(2024, 1, 2, tzinfo=dt.timezone.utc)],
    "a.b": [2, 9],
}
COMPARE: list[Callable[[Any, Any], Any]] = [
    pc.equal,
    pc.not_equal,
    pc.less,
    pc.less_equal,
    pc.greater,
    pc.greater_equal,
]


@st.composite
def leaf(draw: st.DrawFn) -> pc.Expression:
    name = draw(st.sampled_from([*LITERALS, "s.a"]))
    field, literals = (f("s", "a"), [0, 2]) if name == "s.a" else (f(name), LITERALS[name])
    value = draw(st.sampled_from([*literals, None]))
    match draw(st.integers(0, 6)):
        case 0:
            return field.is_null()
        case 1:
            return field.is_valid()
        case 2 if name in "xg":
            return draw(st.sampled_from([field.is_null(nan_is_null=True), pc.is_nan(field)]))
        case 3 if name not in "ximg":
            of = pa.int64() if name == "s.a" else TABLE.schema.field(name).type
            return field.isin(pa.array([value, literals[0]], of))
        case 3 if name == "x":
            return field.isin([value, 0.0])
        case 4 if name == "t":
            return pc.starts_with(field, draw(st.sampled_from(["", "a", "b"])))
        case 4 if name == "b":
            return field
        case 5 if value is not None:
            return draw(st.sampled_from(COMPARE))(pc.scalar(value), field)
    return draw(st.sampled_from(COMPARE))(field, pc.scalar(value))


EXPRESSIONS = st.recursive(
    leaf(),
    lambda inner: st.one_of(
        st.tuples(inner, inner).map(lambda pair: pair[0] & pair[1]),
        st.tuples(inner, inner).map(lambda pair: pair[0] | pair[1]),
        inner.map(lambda each: ~each),
    ),
    max_leaves=4,
)
