"""Rows of every Spark type, conditions on them that Spark pushes into a scan, and the files that some leave out."""

from __future__ import annotations

from datetime import date, datetime, timezone
from decimal import Decimal
from typing import Any, Final

import pyarrow as pa

from tests.helpers.tables import a_schema

__all__ = ["CONDITIONS", "NAN", "PRUNED", "SCHEMA", "UTC", "arrow_rows", "rows", "stored_rows"]

NAN: Final = float("nan")
INF: Final = float("inf")
UTC: Final = timezone.utc
#: Column, Spark type, eight values. In the eight rows after them, every second value is null.
COLUMNS: Final[list[tuple[str, str, list[Any]]]] = [
    ("i", "int", [1, 2, 3, -5, 0, 2**31 - 1, -(2**31), 7]),
    ("l", "bigint", [1, 2**53, 2**53 + 1, 2**63 - 1, -(2**63), 0, 3, 4]),
    ("f", "float", [0.5, 1.5, NAN, INF, -INF, 0.0, -0.0, 16777216.0]),
    ("d", "double", [0.1, 1.5, NAN, INF, -INF, 0.0, -0.0, 9007199254740993.0]),
    ("m", "decimal(10,2)", [Decimal(t) for t in ("0.10", "1.50", "-1.50", "0", "99999999.99", "2", "2.01", "7")]),
    ("t", "string", ["", "a", "ab", "a%b", "A", "é", "\uffff", "\U0001f600"]),
    ("b", "binary", [b"", b"a", b"ab", b"\xff", b"\x00", b"\x7f", b"\x80", b"abc"]),
    ("day", "date", [date(1969, 12, 31), date(1970, 1, 1), date(2024, 1, 1), date(2024, 1, 2), date(1, 1, 1),
                     date(9999, 12, 31), date(2023, 12, 31), date(2024, 2, 29)]),
    ("at", "timestamp", [datetime(2024, 1, 1, 0, 0, 0, micro, UTC) for micro in range(4)]
                        + [datetime(1969, 12, 31, 23, 59, 59, 999999, UTC), datetime(2024, 1, 2, tzinfo=UTC),
                           datetime(2023, 12, 31, 19, tzinfo=UTC), datetime(2100, 1, 1, tzinfo=UTC)]),
    ("wall", "timestamp_ntz", [datetime(2024, 1, 1, hour) for hour in range(6)]
                              + [datetime(1969, 12, 31, 23, 59, 59, 999999), datetime(2100, 1, 1)]),
    ("flag", "boolean", [True, False] * 4),
    ("s", "struct<a:bigint,t:string>", [(number - 4, None if number % 3 else "x") for number in range(8)]),
]  # fmt: skip
SCHEMA: Final = ", ".join(["id long, part string", *(f"{name} {kind}" for name, kind, _ in COLUMNS)])
CONDITIONS: Final = [
    *("i = 7", "i > 2", "i >= 2", "i < -5", "i <= -5", "i <=> 7", "i <=> null", "i in (1, 7, null)"),
    *("i not in (1, 7)", "i != 3", "i is null", "i is not null", "not i > 2", "i > 2.5", "i = 2147483647"),
    *("l = 9007199254740992", "l > 9007199254740992", "l in (3, 9223372036854775807)", "l > 1e18"),
    *("f = 0", "f > 100", "f = float('nan')", "f <= float('-inf')", "f = 0.1", "f in (0.5, float('nan'))"),
    *("d = 0", "d <=> 0", "d > 1.5", "not d <= 1.5", "d = double('nan')", "d < double('nan')", "d != 0.1"),
    *("m = 2", "m > 1.995", "m in (0.1, 7)", "m <= -1.50", "m >= 99999999.99"),
    *("t = 'a'", "t > 'a'", "t >= 'é'", "t > '\uffff'", "t like 'a%'", "t like '%b'", "t like '%%%'", "t = ''"),
    *("startswith(t, 'a')", "endswith(t, 'b')", "contains(t, '%')", "t in ('é', 'A')", "t not like 'a%'"),
    *("b = X'6162'", "b > X'7f'", "b in (X'', X'ff')", "b <= X'00'"),
    *("day = '2024-01-01'", "day > DATE '2023-12-31'", "day <= DATE '0001-01-01'", "day in (DATE '2024-02-29')"),
    *("at = '2024-01-01 00:00:00.000002'", "at > '2024-01-01'", "at < TIMESTAMP '1970-01-01 00:00:00Z'"),
    *("at in (TIMESTAMP '2024-01-02 00:00:00Z', TIMESTAMP '2100-01-01 00:00:00Z')", "at is null"),
    *("wall = TIMESTAMP_NTZ '2024-01-01 03:00:00'", "wall > TIMESTAMP_NTZ '2024-01-01 04:00:00'"),
    *("wall < TIMESTAMP_NTZ '1970-01-01 00:00:00'", "wall is null"),
    *("flag", "not flag", "flag = false", "flag is null", "flag <=> null"),
    *("s.a > 0", "s.t = 'x'", "s.t is null", "s is null", "s is not null and s.a in (-4, 2)"),
    *("part = 'p1' and i > 0", "part in ('p0', 'p2')", "part > 'p2'", "part is null"),
    *("i = 1 or t = 'ab'", "_hoodie_record_key = '5'", "_hoodie_partition_path = 'p1' and day is not null"),
]  # fmt: skip
ARROW_SCHEMA: Final = a_schema(
    id="int64", part="string", i="int32", l="int64", f="float32", d="float64", m=pa.decimal128(10, 2), t="string",
    b="binary", day="date32", at=pa.timestamp("us", "UTC"), wall=pa.timestamp("us"), flag="bool",
    s=pa.struct([("a", pa.int64()), ("t", pa.string())]),
)  # fmt: skip
#: Condition -> how many of the four files may hold a match. In the last file ``i`` is always null.
PRUNED: Final = [
    ("part = 'p1'", 1),
    ("part in ('p0', 'p3') and i is not null", 1),
    ("_hoodie_partition_path >= 'p2'", 2),
    ("id >= 14", 2),
    ("id = 6", 1),
    ("id < 5 and part = 'p3'", 1),
    ("at > '2099-01-01'", 1),
    ("s.a = 3", 2),
    ("i is not null", 3),
]


def rows() -> list[tuple[Any, ...]]:
    """Return eight full rows, eight with some nulls, and one of nulls only, in four partitions."""
    full = [(n, *(values[n] for _, _, values in COLUMNS)) for n in range(8)]
    holes = [
        (n + 8, *(None if (n + at) % 2 else values[n] for at, (_, _, values) in enumerate(COLUMNS))) for n in range(8)
    ]
    nulls = [(16, *(None for _ in COLUMNS))]
    return [(row[0], f"p{row[0] // 5}", *row[1:]) for row in [*full, *holes, *nulls]]


def arrow_rows() -> pa.Table:
    """Return the rows as Arrow's."""
    cells = [dict(zip(ARROW_SCHEMA.names, row, strict=True)) for row in rows()]
    for cell in cells:
        cell["s"] = None if cell["s"] is None else dict(zip("at", cell["s"], strict=True))
    return pa.Table.from_pylist(cells, ARROW_SCHEMA)


def stored_rows() -> pa.Table:
    """Return the rows with the two meta columns that the conditions name, as a table of them has them."""
    table = arrow_rows()
    keys = table["id"].cast(pa.string())
    table = table.append_column("_hoodie_record_key", keys)
    return table.append_column("_hoodie_partition_path", table["part"])
