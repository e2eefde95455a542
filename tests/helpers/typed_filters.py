"""Filters on columns of every type: literals of other types, ends of ranges, NaN, both zeros, nulls, zones."""

from __future__ import annotations

from decimal import Decimal
from typing import Any, Final

import pyarrow as pa

__all__ = ["FILTERS", "ZONE", "typed_rows"]

NAN: Final = float("nan")
INF: Final = float("inf")
ZONE: Final = "America/New_York"
#: Name -> type and ten values.
COLUMNS: Final[dict[str, tuple[pa.DataType, list[Any]]]] = {
    "i": (pa.int32(), [1, 2, 3, -5, 0, 2**31 - 1, -(2**31), 16777217, 7, 7]),
    "l": (pa.int64(), [1, 2, 2**53, 2**53 + 1, 2**53 + 2, 2**63 - 1, -(2**63), 0, 3, 4]),
    "f": (pa.float32(), [0.1, 1.5, NAN, INF, -INF, 0.0, -0.0, 16777216.0, 3.4e38, 0.5]),
    "d": (pa.float64(), [0.1, 1.5, NAN, INF, -INF, 0.0, -0.0, 9007199254740993.0, 1e300, 0.5]),
    "m": (
        pa.decimal128(10, 2),
        [
            Decimal(text)
            for text in [
                "0.10",
                "1.50",
                "-1.50",
                "0.00",
                "99999999.99",
                "-99999999.99",
                "2",
                "2.01",
                "1.99",
                "7",
            ]
        ],
    ),
    "wide": (
        pa.decimal128(30, 5),
        [
            Decimal(text)
            for text in [
                "0.1",
                "1.5",
                "-1.5",
                "0",
                "9007199254740992",
                "9007199254740993",
                "2",
                "2.00001",
                "1.99",
                "7",
            ]
        ],
    ),
    "t": (pa.string(), ["", "a", "ab", "a%b", "a_b", "a\\b", "a\nb", "é", "\uffff", "\U0001f600"]),
    "b": (pa.binary(), [b"", b"a", b"ab", b"\xff", b"\x00", b"\x7f", b"\x80", b"abc", b"b", b"a\x00"]),
    "day": (pa.date32(), [0, 1, -1, 19723, 19724, 19722, 19800, 20000, -200000, 18000]),
    "at": (
        pa.timestamp("us", "UTC"),
        [1704067200000000 + offset for offset in (0, 1, -1, 18000000000, 86400000000, -86400000000, 5, 6, 7, 8)],
    ),
    "flag": (pa.bool_(), [True, False] * 5),
    "s": (
        pa.struct([("a", pa.int64()), ("t", pa.string())]),
        [{"a": i - 4, "t": None if i % 3 else "x"} for i in range(10)],
    ),
}
FILTERS: Final = [
    "i > 2.5",
    "i <= -2.5",
    "i = 16777217D",
    "not i = 2.5",
    "i != 3000000000",
    "i in (1, 2.0, 7.5)",
    "i not in (1, null)",
    "i not in (1, 2D)",
    "i between -5 and 2",
    "i not between 1e0 and 7",
    "-5 < i",
    "i <=> 7",
    "not i <=> 7",
    "i <=> null",
    "not i <=> 2.5",
    "i = null or i > 5",
    "l = 9007199254740992",
    "l = 9007199254740992D",
    "l > 9007199254740992D",
    "l <= 9007199254740993D",
    "l in (1, 9007199254740992D)",
    "l >= 9223372036854775807D",
    "l < 1e30",
    "l > 99999999999999999999",
    "f = 0.1",
    "f >= 0.1",
    "f < 0.1D",
    "f = 0",
    "f > 100",
    "not f > 100",
    "f != 0.5",
    "f <= 1e39",
    "f in (0, 0.5)",
    "f = 16777217",
    "d = 0.1",
    "d = 0",
    "d <=> 0",
    "d > 1e300",
    "d not in (0, 1.5)",
    "d in (0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 0.1)",
    "d < 9007199254740993",
    "m > 1.995",
    "m = 2",
    "m <= 0.1D",
    "m in (0.1, 1.999, 7)",
    "m in (0.1D, 2)",
    "m < 99999999999",
    "wide = 9007199254740992D",
    "wide >= 9007199254740993",
    "wide > 1.999999",
    "t = 'a'",
    "t > 'a'",
    "t > '\uffff'",
    "t like 'a%'",
    "t like 'a_b'",
    "t like 'a\\_b'",
    "t like 'a\\\\\\\\b'",
    "t like '_'",
    "t not like '%b'",
    "t like '%\\%%'",
    "t like ''",
    "t in ('a', 'é', '')",
    "t = 'a\\nb'",
    't >= "ab"',
    "b > X'7F'",
    "b = X'6100'",
    "b in (X'', X'ff')",
    "day > '2024-01-01'",
    "day <= DATE '2024-01-01'",
    "day in ('1970-01-01', DATE '2024-01-02')",
    "at >= '2024-01-01'",
    "at < DATE '2024-01-01'",
    "at = TIMESTAMP '2023-12-31 19:00:00.000005'",
    "at > '2024-01-01 00:00:00Z'",
    "at in ('2023-12-31 19:00:00', '2024-01-01')",
    "at between '2023-12-31T19:00' and '2023-12-31 19:00:00.000006'",
    "flag",
    "not flag and i > 0",
    "flag = false or flag is null",
    "s.a > 0.5",
    "S.T is null",
    "s.t = 'x' and not s.a in (-4, 2)",
    "s is not null and s.a <=> null",
    "not (i > 0 and (d > 0 or t is null))",
    "i = 1 or i = 2 and t = 'ab' or true and false",
    "i < l",
    "f <= d or i = l",
    "d > f",
    "d = d",
    "not (i <=> d)",
    "l >= s.a and t != s.t",
    "flag <=> flag",
]


def typed_rows() -> pa.Table:
    """Return ten rows, each row again with every second column null, and a row of nulls."""
    arrays = {}
    for position, (name, (of, values)) in enumerate(COLUMNS.items()):
        holes = [None if (row + position) % 2 else value for row, value in enumerate(values)]
        arrays[name] = pa.array([*values, *holes, None], of)
    return pa.table({"id": pa.array(range(21), pa.int64()), **arrays})
