"""Hypothesis strategies for rows of every column type and for filters over them."""

from __future__ import annotations

import math
from datetime import date, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
from hypothesis import strategies as st

from lakeformat.predicate import (
    Always,
    And,
    Comparison,
    Contains,
    EndsWith,
    In,
    IsNull,
    Like,
    Not,
    Or,
    Predicate,
    StartsWith,
)

SCHEMA = pa.schema(
    [
        ("i", pa.int32()),
        ("l", pa.int64()),
        ("f", pa.float32()),
        ("d", pa.float64()),
        ("m", pa.decimal128(12, 3)),
        ("t", pa.string()),
        ("b", pa.binary()),
        ("day", pa.date32()),
        ("at", pa.timestamp("us", "UTC")),
        ("flag", pa.bool_()),
        ("s", pa.struct([("a", pa.int64()), ("t", pa.string()), ("d", pa.float64())])),
    ]
)
PATHS = {
    **{field.name: field.type for field in SCHEMA if field.name != "s"},
    "s.a": pa.int64(),
    "s.t": pa.string(),
    "s.d": pa.float64(),
}
EDGE = 2**53

texts = st.text(alphabet="a%_\\\nzé\U0001f600\uffff\x00", max_size=4) | st.text(max_size=3)
doubles = st.sampled_from([0.0, -0.0, 1.5, -1.5, math.nan, math.inf, -math.inf, 0.1, 5e-324]) | st.floats()
floats32 = st.sampled_from([0.0, -0.0, 1.5, -1.5, math.nan, math.inf, -math.inf, float(np.float32(0.1))]) | st.floats(
    width=32
)
int32s = st.integers(-3, 3) | st.integers(-(2**31), 2**31 - 1)
int64s = st.integers(-3, 3) | st.sampled_from([EDGE + 1, -(2**63), 2**63 - 1]) | st.integers(-(2**63), 2**63 - 1)
decimals = st.sampled_from([Decimal("1.500"), Decimal("0.000"), Decimal("-0.100")]) | st.decimals(
    -(10**9) + 1, 10**9 - 1, places=3
)
days = st.dates(date(1969, 12, 29), date(1970, 1, 3)) | st.dates()
moments = st.sampled_from([datetime(1970, 1, 1), datetime(1970, 1, 1, 0, 0, 0, 1), datetime(1969, 12, 31, 12)]).map(
    lambda wall: wall.replace(tzinfo=timezone.utc)
) | st.datetimes(datetime(1600, 1, 1), datetime(2400, 1, 1), timezones=st.just(timezone.utc))

VALUES: dict[pa.DataType, st.SearchStrategy[Any]] = {
    pa.int32(): int32s,
    pa.int64(): int64s,
    pa.float32(): floats32,
    pa.float64(): doubles,
    pa.decimal128(12, 3): decimals,
    pa.string(): texts,
    pa.binary(): st.binary(max_size=3),
    pa.date32(): days,
    pa.timestamp("us", "UTC"): moments,
    pa.bool_(): st.booleans(),
}
numbers = (
    int64s
    | st.integers(-(10**20), 10**20)
    | st.decimals(-(10**9), 10**9, places=1)
    | decimals
    | doubles
    | st.sampled_from([float(EDGE), float(2**63), 1e39, Decimal("2.5")])
)
times = (
    days
    | moments
    | moments.map(lambda moment: moment.replace(tzinfo=None))
    | moments.map(lambda moment: (moment + timedelta(microseconds=5)).replace(tzinfo=None).isoformat(" "))
    | days.map(date.isoformat)
)
LITERALS: dict[pa.DataType, st.SearchStrategy[Any]] = {
    **VALUES,
    **dict.fromkeys([pa.int32(), pa.int64(), pa.float32(), pa.float64(), pa.decimal128(12, 3)], numbers),
    pa.date32(): days | days.map(date.isoformat) | moments,
    pa.timestamp("us", "UTC"): times,
}


def rows() -> st.SearchStrategy[list[dict[str, Any]]]:
    """Return a strategy for up to twelve rows of `SCHEMA`; any value can be null."""
    struct = st.fixed_dictionaries({"a": st.none() | int64s, "t": st.none() | texts, "d": st.none() | doubles})
    cells = {field.name: st.none() | VALUES.get(field.type, struct) for field in SCHEMA}
    return st.lists(st.fixed_dictionaries(cells), min_size=1, max_size=12)


@st.composite
def filters_on(draw: st.DrawFn, path: str) -> Predicate:
    of = PATHS[path]
    literal = LITERALS[of] | VALUES[of]
    choices = [
        st.builds(
            Comparison,
            st.just(path),
            st.sampled_from(["=", "<=>", "!=", "<", "<=", ">", ">="]),
            st.none() | literal,
        ),
        st.builds(In, st.just(path), st.lists(st.none() | literal, min_size=1, max_size=12).map(tuple)),
        st.just(IsNull(path)),
    ]
    if of == pa.string():
        patterns = st.lists(st.sampled_from(["%", "_", "a", "é", r"\%", r"\\", "\n", "z"]), max_size=4).map("".join)
        choices.append(st.builds(Like, st.just(path), patterns))
        choices.extend(st.builds(kind, st.just(path), texts) for kind in (StartsWith, EndsWith, Contains))
    return draw(st.one_of(choices))


def filters() -> st.SearchStrategy[Predicate]:
    """Return a strategy for trees of filters over `SCHEMA`. All of them bind."""
    leaves = st.sampled_from(sorted(PATHS)).flatmap(filters_on) | st.builds(Always, st.booleans())
    return st.recursive(
        leaves,
        lambda inner: (
            st.builds(Not, inner)
            | st.builds(And, st.lists(inner, max_size=3).map(tuple))
            | st.builds(Or, st.lists(inner, max_size=3).map(tuple))
        ),
        max_leaves=5,
    )
