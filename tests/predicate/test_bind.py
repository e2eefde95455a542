from __future__ import annotations

from datetime import date, datetime, timezone
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from lakeformat.errors import InvalidInputError, InvalidOptionError
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
    bind,
    bind_lenient,
    mask,
    parse_where,
)

INT, LONG, FLOAT, DOUBLE = pa.int32(), pa.int64(), pa.float32(), pa.float64()
MONEY, INSTANT, WALL = pa.decimal128(10, 2), pa.timestamp("us", "UTC"), pa.timestamp("us")
SCHEMA = pa.schema(
    [
        ("i", INT),
        ("y", pa.int8()),
        ("l", LONG),
        ("f", FLOAT),
        ("d", DOUBLE),
        ("m", MONEY),
        ("fine", pa.decimal128(38, 30)),
        ("t", pa.string()),
        ("b", pa.binary()),
        ("day", pa.date32()),
        ("at", INSTANT),
        ("ms", pa.timestamp("ms", "UTC")),
        ("ns", pa.timestamp("ns", "UTC")),
        ("wall", WALL),
        ("flag", pa.bool_()),
        ("items", pa.list_(INT)),
        ("S", pa.struct([("A", LONG), ("a.b", pa.string())])),
        ("twin", INT),
        ("Twin", LONG),
        ("code", pa.dictionary(INT, pa.string())),
        ("u", pa.uint32()),
    ]
)


def scalar(value: Any, of: pa.DataType) -> pa.Scalar:
    return pa.scalar(value, of)


@pytest.mark.parametrize(
    ("text", "bound"),
    [
        ("i > 2.5", Comparison("i", ">", scalar(2, INT))),
        ("i >= 2.5", Comparison("i", ">=", scalar(3, INT))),
        ("i < 2.5", Comparison("i", "<", scalar(3, INT))),
        ("i <= -2.5", Comparison("i", "<=", scalar(-3, INT))),
        ("i = 2.0", Comparison("i", "=", scalar(2, INT))),
        ("l < 1e30", Not(In("l", pa.array([], LONG)))),
        ("l > 1e30", Comparison("l", ">", scalar(2**63 - 1, LONG))),
        ("l >= 1e30", In("l", pa.array([], LONG))),
        ("i >= -3000000000", Comparison("i", ">=", scalar(-(2**31), INT))),
        ("i < -3000000000", Comparison("i", "<", scalar(-(2**31), INT))),
        ("y = 300", In("y", pa.array([], pa.int8()))),
        ("l > 9007199254740992D", Comparison("l", ">", scalar(2**53 + 1, LONG))),
        ("f >= 0.1", Comparison("f", ">=", scalar(0.1, FLOAT))),  # The float 0.1 is greater than the double.
        ("f <= 0.1", Comparison("f", "<=", scalar(0.09999999403953552, FLOAT))),
        ("f = 0.1", In("f", pa.array([], FLOAT))),
        ("f = 0.5", Comparison("f", "=", scalar(0.5, FLOAT))),
        ("f > 1e39", Comparison("f", ">", scalar(3.4028234663852886e38, FLOAT))),
        ("d = 0.1", Comparison("d", "=", scalar(0.1, DOUBLE))),
        ("m > 1.005", Comparison("m", ">", scalar(Decimal("1.00"), MONEY))),
        ("m = 1", Comparison("m", "=", scalar(Decimal("1.00"), MONEY))),
        ("m > 0.1D", Comparison("m", ">", scalar(Decimal("0.10"), MONEY))),
        ("m < 99999999999", Not(In("m", pa.array([], MONEY)))),
        ("day > '2024-01-31'", Comparison("day", ">", scalar(date(2024, 1, 31), pa.date32()))),
        (
            "day >= timestamp '2024-01-31 00:00:01'",
            Comparison("day", ">=", scalar(date(2024, 2, 1), pa.date32())),
        ),
        ("at > '2024-01-31'", Comparison("at", ">", scalar(1706659200000000, INSTANT))),
        ("at > '2024-01-31 01:00:00+01:00'", Comparison("at", ">", scalar(1706659200000000, INSTANT))),
        ("ms >= '1970-01-01 00:00:00.0005'", Comparison("ms", ">=", scalar(1, pa.timestamp("ms", "UTC")))),
        ("wall > '1970-01-01T00:00:01'", Comparison("wall", ">", scalar(1_000_000, WALL))),
        ("code = 'x'", Comparison("code", "=", scalar("x", pa.string()))),
        ("s.a = 1", Comparison("S.A", "=", scalar(1, LONG))),
        ("S.`a.B` is null", IsNull("S.`a.b`")),
        ("items is null", IsNull("items")),
        ("Twin = 1", Comparison("Twin", "=", scalar(1, LONG))),
        ("i <=> null", IsNull("i")),
        ("i = null", Comparison("i", "=", scalar(None, INT))),
        ("i in (1, 2.5, 3000000000, null)", In("i", pa.array([1, None], INT))),
        (
            "l in (1, 9007199254740992D)",  # One double for two longs: 2^53 and 2^53 + 1.
            Or(
                (
                    In("l", pa.array([1], LONG)),
                    And(
                        (
                            Comparison("l", ">=", scalar(2**53, LONG)),
                            Comparison("l", "<=", scalar(2**53 + 1, LONG)),
                        )
                    ),
                )
            ),
        ),
        ("t like 'abc'", Comparison("t", "=", scalar("abc", pa.string()))),
        ("t like '100\\%%'", StartsWith("t", "100%")),
        ("t like '%%x'", EndsWith("t", "x")),
        ("t like '%x%'", Contains("t", "x")),
        ("t like '%'", Not(In("t", pa.array([], pa.string())))),
        ("t like 'a_%'", Like("t", "a_%")),
    ],
)
def test_literals_take_the_type_of_their_column(text: str, bound: Predicate) -> None:
    assert bind(parse_where(text), SCHEMA) == bound


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("tt = 1", "did you mean"),
        ("TWIN = 1", "ambiguous"),
        ("s.c = 1", "'s.c'"),
        ("i.c = 1", "not a struct"),
        ("items.element = 1", "not a struct"),
        ("items = 1", "list"),
        ("S = 1", "struct"),
        ("i = '5'", "quotes"),
        ("i = true", "quotes"),
        ("t = 5", "own type"),
        ("t = X'61'", "own type"),
        ("b = 'x'", "own type"),
        ("flag = 1", "own type"),
        ("flag = 'true'", "own type"),
        ("i like '5'", "not a text"),
        ("t like 'a\\\\b'", "LIKE pattern"),
        ("day = '2024-1-1'", "DATE"),
        ("day = 5", "DATE"),
        ("at = 'now'", "TIMESTAMP"),
        ("at = 5", "TIMESTAMP"),
        ("wall = '2024-01-01 00:00:00Z'", "no time zone"),
        ("ns = '2024-01-01'", "ns"),
        ("u = 1", "uint32"),
        ("fine = 1234567890", "38 digits"),
        ("fine in (5)", "38 digits"),
        ("l = 1.2345678901234567890123", "38 digits"),
    ],
)
def test_inexact_comparison_is_refused_or_left_to_the_engine(text: str, named: str) -> None:
    predicate = parse_where(text)
    with pytest.raises(InvalidInputError, match=named):
        bind(predicate, SCHEMA)
    kept = Comparison("i", "=", 1)
    assert bind_lenient(And((predicate, Not(predicate), Or((predicate, kept)), kept)), SCHEMA) == And(
        (Always(True), Always(True), Always(True), bind(kept, SCHEMA))
    )


@pytest.mark.parametrize(
    ("text", "utc"),
    [
        ("at = '2024-07-01 12:00:00'", datetime(2024, 7, 1, 10, tzinfo=timezone.utc)),
        ("at = timestamp '2024-01-01 12:00:00'", datetime(2024, 1, 1, 11, tzinfo=timezone.utc)),
        ("at = date '2024-07-01'", datetime(2024, 6, 30, 22, tzinfo=timezone.utc)),
        ("at = '2024-07-01 12:00:00Z'", datetime(2024, 7, 1, 12, tzinfo=timezone.utc)),
        # A time that comes twice is the earlier one, as in Java. A time that is skipped is moved forward by the skipped
        # hour.
        ("at = '2024-10-27 02:30:00'", datetime(2024, 10, 27, 0, 30, tzinfo=timezone.utc)),
        ("at = '2024-03-31 02:30:00'", datetime(2024, 3, 31, 1, 30, tzinfo=timezone.utc)),
    ],
)
def test_timestamps_without_zone_are_in_the_session_zone(text: str, utc: datetime) -> None:
    bound = bind(parse_where(text), SCHEMA, zone="Europe/Berlin")
    assert bound == Comparison("at", "=", scalar(utc, INSTANT))


def test_date_compares_as_its_first_moment_in_the_session_zone() -> None:
    late = bind(parse_where("day >= timestamp '2024-01-01 00:00:01'"), SCHEMA, zone="Europe/Berlin")
    assert late == Comparison("day", ">=", scalar(date(2024, 1, 2), pa.date32()))
    same = bind(parse_where("day = timestamp '2023-12-31 23:00:00Z'"), SCHEMA, zone="Europe/Berlin")
    assert same == Comparison("day", "=", scalar(date(2024, 1, 1), pa.date32()))
    wall = bind(parse_where("wall < date '2024-01-01'"), SCHEMA, zone="Europe/Berlin")
    assert wall == Comparison("wall", "<", scalar(datetime(2024, 1, 1), pa.timestamp("us")))


def test_instant_and_timestamp_without_zone_are_not_compared() -> None:
    with pytest.raises(InvalidInputError, match="Europe/Berlin"):
        bind(parse_where("wall < timestamp '2024-01-01 00:00:00'"), SCHEMA, zone="Europe/Berlin")


@pytest.mark.parametrize("zone", ["Mars/Olympus", "+25:00", "", "../x"])
def test_an_unknown_zone_is_an_option_error(zone: str) -> None:
    with pytest.raises(InvalidOptionError, match="time zone"):
        bind(parse_where("at = '2024-01-01'"), SCHEMA, zone=zone)


def test_text_without_utf8_form_is_refused() -> None:
    for predicate in (Comparison("t", "=", "\ud800"), StartsWith("t", "\ud800"), Like("t", "\ud800")):
        with pytest.raises(InvalidInputError, match="UTF-8"):
            bind(predicate, SCHEMA)


def test_fixed_size_binary_compares_with_its_own_length_only() -> None:
    schema = pa.schema([("h", pa.binary(2))])
    batch = pa.record_batch({"h": pa.array([b"ab", b"b\xff", None], pa.binary(2))})
    assert mask(bind(parse_where("h > X'6162'"), schema), batch).to_pylist() == [False, True, False]
    with pytest.raises(InvalidInputError, match="lengths"):
        bind(parse_where("h = X'61'"), schema)


def test_mask_refuses_missing_columns_and_unbound_filters() -> None:
    batch = pa.record_batch({"i": pa.array([1], INT)})
    with pytest.raises(InvalidInputError, match="lack column 't'"):
        mask(bind(parse_where("t = 'x'"), SCHEMA), batch)
    with pytest.raises(TypeError, match="not bound"):
        mask(parse_where("i = 1"), batch)


def test_dictionary_encoded_rows_are_read_as_their_values() -> None:
    batch = pa.record_batch({"code": pa.array(["x", "y", None]).dictionary_encode()})
    assert mask(bind(parse_where("code > 'x'"), SCHEMA), batch).to_pylist() == [False, True, False]
