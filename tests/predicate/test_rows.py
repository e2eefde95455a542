"""Every operator on every pair of unusual values and literals, compared with an independent evaluator."""

from __future__ import annotations

import math
from datetime import date, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from lakeformat.predicate import (
    Comparison,
    Contains,
    EndsWith,
    In,
    IsNull,
    Like,
    Not,
    Predicate,
    StartsWith,
    bind,
    mask,
)
from tests.helpers.row_oracle import evaluate

EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
MICRO, MILLI, DAY = timedelta(microseconds=1), timedelta(milliseconds=1), timedelta(days=1)
INTEGERS = [0, 1, -3, 2**53, 2**53 + 1, 10**25, 2**63, -(2**63), 2**31, 16777217]
FLOATS = [0.5, -0.0, 2.5, 0.1, 2.0**53, 1e39, -1e39, math.nan, math.inf, -math.inf]
NUMBERS = [*INTEGERS, *FLOATS, Decimal("0.1"), Decimal("-2.5"), Decimal("0.001")]
DOUBLES = [0.0, -0.0, 0.1, -2.5, 2.5, 1.0, math.nan, math.inf, -math.inf, 5e-324, 2.0**53, 1e300]
TIMES = [EPOCH, EPOCH - MICRO, EPOCH + MICRO, EPOCH + DAY, EPOCH + DAY - MICRO, EPOCH - DAY, EPOCH + DAY / 2]
TEXTS = ["", "a", "ab", "b", "a\nb", "a%", "a_", "\\", "é", "\uffff", "\U0001f600", "a\x00", "\x00"]
CASES: dict[pa.DataType, tuple[list[Any], list[Any]]] = {
    pa.int8(): ([-128, 127, 0, 1, 2, 3, -3], NUMBERS),
    pa.int32(): ([-(2**31), 2**31 - 1, 0, 1, 2, 3, -3, 16777216, 16777217], NUMBERS),
    pa.int64(): ([-(2**63), 2**63 - 1, 0, 1, 2, 3, -3, 2**53 - 1, 2**53, 2**53 + 1, 2**53 + 2], NUMBERS),
    pa.float32(): ([float(np.float32(value)) for value in (*DOUBLES[:-1], 3.4028234663852886e38)], NUMBERS),
    pa.float64(): (DOUBLES, NUMBERS),
    pa.decimal128(20, 1): (
        [Decimal(tens).scaleb(-1) for tens in (0, 1, 25, -25, 10 * 2**53 + 10)],
        NUMBERS,
    ),
    pa.string(): (TEXTS, TEXTS),
    pa.binary(): ([b"", b"a", b"\x7f", b"\x80", b"\xff", b"\xff\x00"], [b"", b"\x80", b"a\x00", b"\xff"]),
    pa.date32(): (
        [(EPOCH + n * DAY).date() for n in (-1, 0, 1, 20000)],
        [*TIMES, date(1970, 1, 2), "1970-01-01"],
    ),
    pa.timestamp("us", "UTC"): (
        TIMES,
        [*TIMES, date(1970, 1, 2), datetime(1970, 1, 1), "1970-01-01 12:00:00"],
    ),
    pa.timestamp("ms", "UTC"): (
        [EPOCH, EPOCH + MILLI, EPOCH - MILLI],
        [*TIMES, EPOCH + MILLI / 2],
    ),
    pa.bool_(): ([True, False], [True, False]),
}


def check(predicate: Predicate, of: pa.DataType, values: list[Any]) -> None:
    batch = pa.record_batch({"c": pa.array([*values, None], of)})
    rows = batch.to_pylist()
    for question in (predicate, Not(predicate)):
        selected = mask(bind(question, batch.schema), batch).to_pylist()
        assert selected == [evaluate(question, row) is True for row in rows], question


@pytest.mark.parametrize("op", ["=", "<=>", "!=", "<", "<=", ">", ">="])
@pytest.mark.parametrize("of", CASES, ids=str)
def test_comparison_selects_the_rows_of_the_evaluator(of: pa.DataType, op: Any) -> None:
    values, literals = CASES[of]
    for literal in [*literals, *values, None]:
        check(Comparison("c", op, literal), of, values)


@pytest.mark.parametrize("of", CASES, ids=str)
def test_in_list_selects_the_rows_of_the_evaluator(of: pa.DataType) -> None:
    values, literals = CASES[of]
    exact = [literal for literal in literals if not isinstance(literal, float)]
    for chosen in ([], literals, exact, literals[:1], literals[-3:], values[:2], values):
        check(In("c", tuple(chosen)), of, values)
        check(In("c", (*chosen, None)), of, values)


@pytest.mark.parametrize("of", CASES, ids=str)
def test_is_null_selects_the_rows_of_the_evaluator(of: pa.DataType) -> None:
    check(IsNull("c"), of, CASES[of][0])


@pytest.mark.parametrize("kind", [StartsWith, EndsWith, Contains])
@pytest.mark.parametrize("of", [pa.string(), pa.large_string()], ids=str)
def test_text_part_selects_the_rows_of_the_evaluator(of: pa.DataType, kind: Any) -> None:
    for text in TEXTS:
        check(kind("c", text), of, TEXTS)


@pytest.mark.parametrize(
    "pattern",
    [
        "",
        "%",
        "_",
        "__",
        "%_",
        "a%",
        "%b",
        "%a%",
        "a_b",
        "a%b",
        "a\\%",
        "a\\_",
        "\\\\",
        "%\\\\%",
        "_%_",
        "é",
        "%\n%",
        "\x00",
    ],
)
def test_like_selects_the_rows_of_the_evaluator(pattern: str) -> None:
    check(Like("c", pattern), pa.string(), [*TEXTS, "axb", "a\n\nb", "éé", "(a)", "a.b", "[a]", "a\\b"])
