"""Decoding of Avro records into Arrow columns record by record, with fastavro.

It gives the same result as `avro_columns`, and is faster if a few records hold very long lists.
"""

from __future__ import annotations

import io
from collections.abc import Collection, Iterator
from decimal import Context, Decimal
from itertools import chain, count
from typing import Any, Final

import fastavro
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lakeformat.codec.avro_types import AvroType

__all__ = ["columns_of_rows"]

_PRIMITIVES: Final = {
    "boolean": pa.bool_(),
    "int": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "bytes": pa.binary(),
    "string": pa.string(),
    "enum": pa.string(),
}
_EXACT: Final = Context(prec=400)


def columns_of_rows(
    data: npt.NDArray[np.uint8],
    starts: npt.NDArray[np.int64],
    ends: npt.NDArray[np.int64],
    record: AvroType,
    wanted: Collection[str] | None = None,
) -> pa.Table:
    """Decode columns of records; see `decode_columns`. Memory: every value as a Python object.

    Raises:
        ValueError: The bytes are not records of this schema.
    """
    schema = fastavro.parse_schema(_plain_schema(record, count()))
    rows: list[Any] = []
    for start, end in zip(starts.tolist(), ends.tolist(), strict=True):
        file = io.BytesIO(data[start:end].tobytes())
        try:
            rows.append(fastavro.schemaless_reader(file, schema, None))
        except (EOFError, LookupError, TypeError, OverflowError, MemoryError) as error:
            raise ValueError(f"a record cannot be read: {error}") from None
        if file.read(1):
            raise ValueError("the records are not as long as they say")
    chosen = None if wanted is None else frozenset(wanted)
    columns = {
        field.name: _column(child, [row[field.name] for row in rows])
        for field, child in zip(record.arrow, record.children, strict=True)
        if chosen is None or field.name in chosen
    }
    if not columns:
        return pa.table({"": pa.nulls(len(rows))}).select([])
    arrow_schema = pa.schema([field for field in record.arrow if field.name in columns])
    return pa.Table.from_arrays(list(columns.values()), schema=arrow_schema)


def _plain_schema(one: AvroType, ids: Iterator[int]) -> Any:
    """Return the Avro schema of a type, without logical types and with a new name for each named type."""
    if one.branch is not None:
        branches: list[Any] = ["null"] * one.branches
        branches[one.branch] = _plain_branch(one, ids)
        return branches
    return _plain_branch(one, ids)


def _plain_branch(one: AvroType, ids: Iterator[int]) -> Any:
    """Return the schema of a type without its union with null."""
    match one.kind:
        case "record":
            children = zip(one.names, one.children, strict=True)
            fields = [{"name": name, "type": _plain_schema(child, ids)} for name, child in children]
            return {"type": "record", "name": f"r{next(ids)}", "fields": fields}
        case "array":
            return {"type": "array", "items": _plain_schema(one.children[0], ids)}
        case "map":
            return {"type": "map", "values": _plain_schema(one.children[0], ids)}
        case "fixed":
            return {"type": "fixed", "name": f"f{next(ids)}", "size": one.size}
        case "enum":
            return {"type": "enum", "name": f"e{next(ids)}", "symbols": list(one.symbols)}
    return one.kind


def _column(one: AvroType, values: list[Any]) -> pa.Array:
    if pa.types.is_decimal(one.arrow):
        numbers = [None if v is None else Decimal(int.from_bytes(v, "big", signed=True)) for v in values]
        scaled = [None if n is None else n.scaleb(-one.arrow.scale, _EXACT) for n in numbers]
        return pa.array(scaled, one.arrow)
    match one.kind:
        case "record":
            return _struct(one, values)
        case "array":
            items = _column(one.children[0], list(chain.from_iterable(v or () for v in values)))
            return _lists(one, values, items)
        case "map":
            pairs = [pair for value in values for pair in (value or {}).items()]
            keys = pa.array([key for key, _ in pairs], pa.string())
            fields = [one.arrow.key_field, one.arrow.item_field]
            inner = _column(one.children[0], [item for _, item in pairs])
            return _lists(one, values, pa.StructArray.from_arrays([keys, inner], fields=fields))
        case "fixed":
            return pa.array(values, one.arrow)
    return pa.array(values, _PRIMITIVES[one.kind]).view(one.arrow)


def _struct(one: AvroType, values: list[Any]) -> pa.Array:
    missing = pa.array([value is None for value in values], pa.bool_())
    arrays = [
        _column(child, [None if value is None else value[name] for value in values])
        for name, child in zip(one.names, one.children, strict=True)
    ]
    if not arrays:
        return pa.array(values, one.arrow)
    return pa.StructArray.from_arrays(arrays, fields=list(one.arrow), mask=missing)


def _lists(one: AvroType, values: list[Any], children: pa.Array) -> pa.Array:
    lengths = [0 if value is None else len(value) for value in values]
    offsets = np.cumsum([0, *lengths], dtype=np.int32)
    valid = pa.array([value is not None for value in values], pa.bool_())
    return pa.Array.from_buffers(
        one.arrow, len(values), [valid.buffers()[1], pa.py_buffer(offsets)], children=[children]
    )
