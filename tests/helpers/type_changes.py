"""Which types of the input a plain upsert takes for a column, and what it makes of the values: by Hudi 1.2.0.

`tests/interop/test_type_changes.py` asks Hudi for the same answers.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from decimal import Decimal
from typing import Any, Final

import pyarrow as pa

#: Name of a type -> the type and a value of it.
TYPES: Final[dict[str, tuple[pa.DataType, Any]]] = {
    "boolean": (pa.bool_(), True),
    "int": (pa.int32(), 16_777_217),
    "long": (pa.int64(), 2**53 + 1),
    "float": (pa.float32(), 0.1),
    "double": (pa.float64(), 1.005),
    "decimal": (pa.decimal128(20, 2), Decimal("12.34")),
    "string": (pa.string(), "é"),
    "binary": (pa.binary(), b"b"),
    "date": (pa.date32(), dt.date(2024, 3, 4)),
    "timestamp": (pa.timestamp("us", "UTC"), dt.datetime(2024, 3, 4, tzinfo=dt.timezone.utc)),
    "timestamp_ntz": (pa.timestamp("us"), dt.datetime(2024, 3, 4)),
}
#: Stored type -> types that the column gets from the input.
WIDER: Final = {
    "int": ("long", "float", "double", "string"),
    "long": ("float", "double", "string"),
    "float": ("double", "string"),
    "double": ("string",),
}
#: Stored type -> types of the input whose values are converted.
NARROWER: Final = {
    "long": ("int",),
    "float": ("int", "long"),
    "double": ("int", "long", "float"),
    "decimal": ("int", "long", "float", "double"),
    "string": ("int", "long", "float", "double", "decimal", "binary", "date"),
    "binary": ("string",),
}
#: Pairs of stored type and input's type.
TAKEN: Final = [(old, new) for table in (WIDER, NARROWER) for old, others in table.items() for new in others]
REFUSED: Final = [(old, new) for old in TYPES for new in TYPES if old != new and (old, new) not in TAKEN]
#: Type of a value of `TYPES`, type that it is converted to -> the value then.
CONVERTED: Final[dict[tuple[str, str], Any]] = {
    ("int", "long"): 16_777_217,
    ("int", "float"): 16_777_216.0,
    ("int", "double"): 16_777_217.0,
    ("int", "decimal"): Decimal("16777217.00"),
    ("int", "string"): "16777217",
    ("long", "float"): 9_007_199_254_740_992.0,
    ("long", "double"): 9_007_199_254_740_992.0,
    ("long", "decimal"): Decimal("9007199254740993.00"),
    ("long", "string"): "9007199254740993",
    ("float", "double"): 0.1,
    ("float", "decimal"): Decimal("0.10"),
    ("float", "string"): "0.1",
    ("double", "decimal"): Decimal("1.01"),
    ("double", "string"): "1.005",
    ("decimal", "string"): "12.34",
    ("binary", "string"): "b",
    ("date", "string"): "2024-03-04",
    ("string", "binary"): "é".encode(),
}
#: Place of a value -> the type that a column then has, and the form of a value.
PLACES: Final[dict[str, tuple[Callable[[pa.DataType], pa.DataType], Callable[[Any], Any]]]] = {
    "column": (lambda kind: kind, lambda value: value),
    "struct": (lambda kind: pa.struct({"q": kind}), lambda value: {"q": value}),
    "list": (pa.list_, lambda value: [value, value]),
    "map": (lambda kind: pa.map_(pa.string(), kind), lambda value: [("k", value)]),
}


def rows_of(ids: list[int], place: str, *, incoming: bool) -> pa.Table:
    """Return rows with a column for each taken pair: its stored type and value, or those of the input."""
    kind_of, form = PLACES[place]
    columns = {"id": pa.array(ids), "p": pa.array(["ab"[at % 2] for at in ids])}
    for old, new in TAKEN:
        kind, value = TYPES[new if incoming else old]
        columns[f"{old}_{new}"] = pa.array([form(value)] * len(ids), kind_of(kind))
    return pa.table(columns)


def right_rows(place: str) -> dict[int, dict[str, Any]]:
    """Return the rows by id: 1 and 4 were stored, 2 is new."""
    form = PLACES[place][1]
    stored: dict[str, Any] = {}
    new: dict[str, Any] = {}
    for old, other in TAKEN:
        is_wider = other in WIDER.get(old, ())
        kind = TYPES[other if is_wider else old][0]
        of_table = CONVERTED[old, other] if is_wider else TYPES[old][1]
        of_input = TYPES[other][1] if is_wider else CONVERTED[other, old]
        stored[f"{old}_{other}"] = form(pa.scalar(of_table, kind).as_py())
        new[f"{old}_{other}"] = form(pa.scalar(of_input, kind).as_py())
    return {1: stored, 2: new, 4: stored}


def found_rows(rows: pa.Table) -> dict[int, dict[str, Any]]:
    """Return the rows of a table by id, without meta columns, ``id`` and ``p``."""
    names = [f"{old}_{new}" for old, new in TAKEN]
    return {row["id"]: {name: row[name] for name in names} for row in rows.to_pylist()}
