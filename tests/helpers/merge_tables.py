"""Tables in memory with a key, an ordering column and columns of several kinds, for the tests of merge rules."""

from __future__ import annotations

import datetime as dt
import decimal
import math
from pathlib import Path
from typing import Any

import pyarrow as pa

from lakeformat import Table
from tests.helpers.tables import a_schema, a_table

__all__ = ["COMMIT", "EVENT", "SCHEMA", "TYPES", "contents", "in_memory", "on_disk", "rows_of"]

EVENT, COMMIT = "EVENT_TIME_ORDERING", "COMMIT_TIME_ORDERING"

SCHEMA = a_schema(
    id="string",
    ts="int64",
    n="int64",
    text="string",
    st=pa.struct({"x": pa.int32(), "y": pa.string()}),
    _hoodie_is_deleted="bool",
)

UTC = dt.timezone.utc
#: Every type of Spark with two values that are neither null nor equal.
TYPES: list[tuple[pa.DataType, Any, Any]] = [
    (pa.bool_(), True, False),
    (pa.int32(), 1, -2),
    (pa.int64(), 2**62, 0),
    (pa.float32(), 0.5, -1.0),
    (pa.float64(), 0.1, math.inf),
    (pa.decimal128(38, 10), decimal.Decimal("1.0000000001"), decimal.Decimal("-2")),
    (pa.string(), "a", ""),
    (pa.binary(), b"\x00", b""),
    (pa.date32(), dt.date(2024, 2, 29), dt.date(1, 1, 1)),
    (pa.timestamp("us", "UTC"), dt.datetime(2024, 1, 1, tzinfo=UTC), dt.datetime(1, 1, 1, tzinfo=UTC)),
    (pa.timestamp("us"), dt.datetime(2024, 1, 1), dt.datetime(1, 1, 1)),
    (pa.list_(pa.int32()), [1, None], []),
    (pa.map_(pa.string(), pa.int64()), [("k", None)], []),
    (pa.struct([("x", pa.int32()), ("y", pa.struct([("z", pa.string())]))]),
     {"x": 1, "y": None}, {"x": None, "y": {"z": "z"}}),
]  # fmt: skip


def in_memory(schema: pa.Schema = SCHEMA, **options: Any) -> Table:
    """Create an empty table in memory with the key ``id``."""
    keys = options.pop("recordkey", "id")
    return a_table(schema=schema, keys=keys, **options)


def on_disk(folder: Path, schema: pa.Schema = SCHEMA, **options: Any) -> Table:
    """Create the same table in a folder, for hudi-rs to read."""
    return a_table(folder / "t", schema=schema, **options)


def rows_of(*rows: dict[str, Any], schema: pa.Schema = SCHEMA) -> pa.Table:
    """Return rows with the columns of the first row; the schema gives the types by name."""
    names = list(rows[0])
    return pa.Table.from_pylist(list(rows), pa.schema([schema.field(name) for name in names]))


def contents(table: Table) -> dict[str, dict[str, Any]]:
    """Return the rows by key, without nulls and meta columns."""
    rows = table.to_arrow(meta_columns=False).to_pylist()
    keyed = {row["id"]: {n: v for n, v in row.items() if v is not None and n != "id"} for row in rows}
    assert len(keyed) == len(rows)
    return keyed
