"""A table with a column of every type, and rows with the values that other readers may read differently."""

from __future__ import annotations

import math
from datetime import date, datetime, timezone
from decimal import Decimal
from typing import Any, Final

import pyarrow as pa

from tests.helpers.tables import a_schema

__all__ = ["ROWS", "TYPES"]

TYPES: Final = a_schema(
    id="int64",
    i="int32",
    f="float32",
    d="float64",
    n=pa.decimal128(12, 2),
    wide=pa.decimal128(38, 10),
    t="string",
    b="binary",
    flag="bool",
    day="date32",
    at=pa.timestamp("us", "UTC"),
    local=pa.timestamp("us"),
    list=pa.list_(pa.int32()),
    s=pa.struct([pa.field("x", pa.int64()), pa.field("y", pa.list_(pa.string()))]),
    m=pa.map_(pa.string(), pa.float64()),
)
ROWS: Final[list[dict[str, Any]]] = [
    {
        "id": 1, "i": -5, "f": 0.5, "d": 1e300, "n": Decimal("-1.25"), "wide": Decimal("1234567890123456789.5"),
        "t": "é" * 90, "b": b"\x00\xff", "flag": True, "day": date(1969, 12, 31),
        "at": datetime(2024, 2, 29, 23, 59, 59, 999999, timezone.utc), "local": datetime(1900, 1, 1, 1, 2, 3, 1),
        "list": [1, None], "s": {"x": 1, "y": ["a"]}, "m": [("k", 1.5)],
    },
    {"id": 2, "f": math.nan, "d": -math.inf, "day": date(9999, 12, 31), "t": ""},
    {"id": 3, "f": -0.0, "d": math.nan, "n": Decimal("9999999999.99"), "flag": False, "day": date(1, 1, 1)},
]  # fmt: skip
