"""Random conditions with functions, as SQL text, and rows for them. Spark is their oracle."""

from __future__ import annotations

import math
import random
from datetime import datetime, timedelta, timezone
from decimal import Decimal
from typing import Any

import pyarrow as pa

SCHEMA = pa.schema([
    ("i", pa.int32()),
    ("j", pa.int32()),
    ("l", pa.int64()),
    ("f", pa.float32()),
    ("d", pa.float64()),
    ("m", pa.decimal128(8, 2)),
    ("n", pa.decimal128(12, 5)),
    ("t", pa.string()),
    ("u", pa.string()),
    ("day", pa.date32()),
    ("at", pa.timestamp("us", "UTC")),
    ("wall", pa.timestamp("us")),
    ("flag", pa.bool_()),
    ("tags", pa.list_(pa.string())),
    ("s", pa.struct([("a", pa.int64()), ("t", pa.string())])),
])  # fmt: skip

#: Moments around changes of clocks in the zones of the tests, and around the ends of years.
BORDERS = [
    datetime(2024, 3, 10, 7), datetime(2024, 11, 3, 6), datetime(2010, 11, 7, 3, 1), datetime(2010, 3, 14, 3, 31),
    datetime(2011, 12, 30, 10), datetime(2025, 1, 1), datetime(2024, 12, 31, 23), datetime(1970, 1, 1),
    datetime(2024, 2, 29, 12), datetime(1883, 11, 18, 17), datetime(2040, 7, 1), datetime(1960, 1, 1),
]  # fmt: skip
SHIFTS = [timedelta(0), timedelta(microseconds=-1), timedelta(hours=1), timedelta(days=1), timedelta(minutes=-30)]
LETTERS = "abAB ßİΣσz,\n\r1é\U0001f600"
TEXTS = [
    " 12 ", "-7", "x", "2024-02-30", "2024-1-5", "1.5e3", "true", "", "  a b  ", "aXbXc", "12:30", "2024-11-03",
    "a\r\n",
]  # fmt: skip
NUMBERS: dict[str, list[Any]] = {
    "i": [2**31 - 1, -(2**31), 365, *range(-4, 5)],
    "j": [*range(-4, 5), 400],
    "l": [2**63 - 1, -(2**63), 2**53 + 1, *range(-4, 5)],
    "f": [0.0, -0.0, 1.5, -2.5, math.nan, math.inf, 0.1],
    "d": [0.0, -0.0, 1.5, -2.5, math.nan, -math.inf, 0.1, 1e19, -3.7, 0.5],
    "m": [Decimal(text) for text in ("0.50", "-1.50", "0.00", "9999.99", "-123456.78", "2.25")],
    "n": [Decimal(text) for text in ("2.50000", "0.00000", "-1.50000", "0.00001", "999999.99999")],
}


def _wall(chance: random.Random) -> datetime:
    return chance.choice(BORDERS) + chance.choice(SHIFTS) * chance.choice((-1, 1))


def _text(chance: random.Random) -> str:
    if chance.random() < 0.4:
        return chance.choice(TEXTS)
    return "".join(chance.choice(LETTERS) for _ in range(chance.randrange(6)))


def _row(chance: random.Random) -> dict[str, Any]:
    found = {
        **{name: chance.choice(values) for name, values in NUMBERS.items()},
        "t": _text(chance),
        "u": _text(chance),
        "day": _wall(chance).date(),
        "at": _wall(chance).replace(tzinfo=timezone.utc),
        "wall": _wall(chance),
        "flag": chance.random() < 0.5,
        "tags": [chance.choice(["a", "b", "ab", None]) for _ in range(chance.randrange(4))],
        "s": {"a": chance.choice([None, -3, 0, 2]), "t": chance.choice([None, _text(chance)])},
    }
    return {name: None if chance.random() < 0.1 else value for name, value in found.items()}


def rows(chance: random.Random, count: int = 12) -> pa.Table:
    """Return random rows of `SCHEMA`, some with nulls."""
    return pa.Table.from_pylist([_row(chance) for _ in range(count)], SCHEMA)


UNITS = ("year", "quarter", "month", "week", "day", "hour", "minute", "second", "millisecond")
OPERATORS = ("=", "<", ">=", "!=", "<=>")
#: For each kind of value the forms of an expression. A name in braces is the place of an expression of that kind.
FORMS = {
    "text": [
        "lower({text})", "upper({text})", "trim({text})", "ltrim({text})", "rtrim({text})", "reverse({text})",
        "substring({text}, {small}, {small})", "substr({text}, {small})", "left({text}, {small})",
        "right({text}, {small})", "concat({text}, {text})", "{text} || {text}",
        "replace({text}, 'a', 'bb')", "replace({text}, 'X')", "coalesce({text}, {text})", "nullif({text}, {text})",
        "case when {flag} then {text} else {text} end", "if({flag}, {text}, {text})", "cast({int} as string)",
        "cast({day} as string)", "cast({at} as string)", "cast({flag} as string)", "nvl({text}, 'q')",
        "greatest({text}, {text})", "nvl2({text}, {text}, {text})", "case {text} when 'a' then {text} end",
    ],
    "int": [
        "length({text})", "char_length({text})", "octet_length({text})", "({int} + {int})", "({int} - {int})",
        "({int} * {int})", "({int} % {int})", "mod({int}, {int})", "(-{int})", "abs({int})", "year({day})",
        "year({at})",
        "month({day})", "month({at})", "day({at})", "dayofmonth({day})", "quarter({at})", "dayofweek({day})",
        "weekday({at})", "dayofyear({day})", "weekofyear({at})", "hour({at})", "minute({at})", "second({at})",
        "hour({wall})", "datediff({day}, {day})", "size({tags})", "coalesce({int}, {int})", "cast({num} as int)",
        "try_cast({text} as int)", "try_cast({num} as smallint)",
        "case when {flag} then {int} when {flag} then {int} end",
        "cast({flag} as int)", "greatest({int}, {int}, {int})", "least({int}, {int})", "round({int}, 1)",
        "nullif({int}, 0)",
    ],
    "num": [
        "({num} + {int})", "({int} - {num})", "({num} * {num})", "({int} / nullif({int}, 0))", "({dbl} / {int})",
        "({dec} + {dec})", "({dec} - {int})", "({dec} * {dec})", "(m * 2 + 1)", "round({dec}, 1)", "round({dec})",
        "round({dbl})", "floor({dbl})", "ceil({dec})", "floor({dec})", "abs({dec})", "({dbl} % 3)",
        "({int} div nullif({int}, 0))",
        "cast({dec} as double)", "cast({int} as decimal(12,2))", "cast({dec} as decimal(6,1))",
        "cast({int} as double)",
        "try_cast({text} as double)", "cast({dbl} as float)", "cast({dec} as bigint)", "(-{dec})",
        "try_cast({dbl} as bigint)",
        "coalesce({num}, {num})", "least({num}, {dbl})", "try_cast({text} as bigint)",
    ],
    "day": [
        "to_date({at})", "cast({at} as date)", "date_add({day}, {int})", "date_sub({day}, 3)", "last_day({day})",
        "trunc({day}, 'MM')", "trunc({day}, 'week')", "trunc({day}, 'quarter')", "trunc({day}, 'year')",
        "add_months({day}, {small})", "try_cast({text} as date)", "coalesce({day}, {day})", "cast({wall} as date)",
        "({day} + {small})", "({day} - 3)",
    ],
    "at": [
        *(f"date_trunc('{unit}', {{at}})" for unit in UNITS),
        "date_trunc('month', {day})", "cast({day} as timestamp)", "coalesce({at}, {at})",
        "cast({wall} as timestamp)",
    ],
    "wall": ["cast({at} as timestamp_ntz)", "cast({day} as timestamp_ntz)"],
    "flag": [
        *(f"({{{kind}}} {op} {{{kind}}})" for kind in ("text", "int", "num", "day", "at") for op in OPERATORS),
        "startswith({text}, 'a')", "endswith({text}, 'b')", "contains({text}, ' ')", "({text} like 'a%_')",
        "({text} like '%/_%' escape '/')", "({text} rlike '^[a-b].*$')", "({text} rlike '\\\\d+|a\\\\s*b$')",
        "isnull({text})",
        "({int} is null)", "isnotnull({day})", "({text} in ('a', 'b', null))", "({int} in (1, 2, 3))",
        "({num} between -1 and {num})", "array_contains({tags}, 'a')", "array_contains({tags}, {text})",
        "isnan({dbl})",
        "({flag} and {flag})", "({flag} or {flag})", "(not {flag})", "coalesce({flag}, false)",
        "(year({at}) = 2024)",
        "(year({at}) in (2024, 2025))", "(to_date({at}) = '2011-12-31')",
        "(date_trunc('month', {at}) < '2024-11-15')",
        "(cast(at as date) >= DATE '2010-11-07')", "(date_trunc('day', at) = '2024-03-10')", "(year(day) != 2024)",
        "(to_date(wall) <= '2024-02-29')", "(trunc(day, 'month') > '2024-02-01')",
        "(date_trunc('week', at) >= '2024-12-30')",
        "try_cast({text} as boolean)", "({at} > '2024-01-01 05:00:00')", "({day} < '2024-02-29')",
        "({day} <= {at})",
    ],
}  # fmt: skip
LEAVES = {
    "text": ["t", "u", "s.t", "'a'", "' ab'", "null"],
    "int": ["i", "j", "l", "s.a", "0", "1", "-3", "2L"],
    "small": ["0", "1", "2", "-1", "-2", "5"],
    "dec": ["m", "n", "1.5", "m", "n"],
    "dbl": ["d", "f", "2.5D", "d"],
    "num": ["m", "n", "d", "f", "i", "1.5"],
    "day": ["day", "DATE '2024-02-29'"],
    "at": ["at", "TIMESTAMP '2024-11-03 01:30:00'"],
    "wall": ["wall"],
    "flag": ["flag", "true", "false"],
    "tags": ["tags"],
}


def expression(chance: random.Random, kind: str, depth: int) -> str:
    """Return the text of a random expression of a kind, nested up to ``depth`` times."""
    if depth <= 0 or kind not in FORMS or chance.random() < 0.2:
        return chance.choice(LEAVES[kind])
    return _fill(chance, chance.choice(FORMS[kind]), depth)


def condition(chance: random.Random, depth: int = 3) -> str:
    """Return the text of a random condition with functions."""
    return _fill(chance, chance.choice(FORMS["flag"]), depth)


def _fill(chance: random.Random, form: str, depth: int) -> str:
    found = []
    for part in form.split("{"):
        name, brace, rest = part.partition("}")
        found.append(expression(chance, name, depth - 1) + rest if brace else part)
    return "".join(found)
