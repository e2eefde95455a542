"""Bring Arrow data to a wanted schema: by name, nested included, never losing a value."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import pyarrow as pa

from lakeformat.errors import SchemaMismatchError

__all__ = ["VIEWS", "conform", "conform_array", "is_any_list", "read_schema"]

#: Of which Arrow takes no value by index, and what holds the same.
VIEWS: Final = {pa.string_view(): pa.string(), pa.binary_view(): pa.binary()}


def read_schema(schema: pa.Schema) -> pa.Schema:
    """What readers get for a stored schema: the same names, every field nullable, timestamps in microseconds."""
    return pa.schema([pa.field(field.name, _read_type(field.type)) for field in schema])


def _read_type(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_timestamp(kind):
        return pa.timestamp("us", "UTC" if kind.tz else None)
    if pa.types.is_struct(kind):
        return pa.struct([pa.field(f.name, _read_type(f.type)) for f in kind])
    if pa.types.is_map(kind):
        return pa.map_(_read_type(kind.key_type), _read_type(kind.item_type))
    if pa.types.is_list(kind):
        return pa.list_(pa.field("element", _read_type(kind.value_type)))
    return kind


def conform(rows: Any, schema: pa.Schema) -> Any:
    """A table or batch with exactly the schema's columns; what it lacks is null.

    Raises:
        SchemaMismatchError: a value does not fit its column; names the column.
    """
    if rows.schema.equals(schema):
        return rows
    place: dict[str, int] = {}
    for at, name in enumerate(rows.schema.names):
        place.setdefault(name, at)
    columns = [
        _column(rows.column(place[field.name]), field) if field.name in place else pa.nulls(rows.num_rows, field.type)
        for field in schema
    ]
    if isinstance(rows, pa.RecordBatch):
        return pa.RecordBatch.from_arrays(columns, schema=schema)
    return pa.Table.from_arrays(columns, schema=schema)


def _column(values: Any, field: pa.Field) -> Any:
    if values.type.equals(field.type):
        return values
    try:
        if isinstance(values, pa.ChunkedArray):
            chunks = [conform_array(chunk, field.type) for chunk in values.chunks]
            return pa.chunked_array(chunks, type=field.type)
        return conform_array(values, field.type)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise SchemaMismatchError(
            f"column {field.name!r} of type {values.type} does not fit the table's {field.type}: "
            f"{str(error).splitlines()[0]}; convert it first"
        ) from None


def conform_array(values: pa.Array, kind: pa.DataType) -> pa.Array:
    """One array as another type. Raises ``pa.ArrowInvalid`` where a value would be lost."""
    if values.type.equals(kind):
        return values
    if pa.types.is_null(values.type):
        return pa.nulls(len(values), kind)
    if pa.types.is_dictionary(values.type):
        return conform_array(_decoded(values), kind)
    if pa.types.is_struct(kind) and pa.types.is_struct(values.type):
        return _struct(values, kind)
    if pa.types.is_map(kind) and pa.types.is_map(values.type):
        values = _rebased(values)
        parts = [conform_array(values.keys, kind.key_type), conform_array(values.items, kind.item_type)]
        entries = pa.StructArray.from_arrays(parts, fields=[kind.key_field, kind.item_field])
        return _relisted(values, entries, kind)
    if pa.types.is_list(kind) and is_any_list(values.type):
        values = _rebased(values)
        return _relisted(values, conform_array(values.values, kind.value_type), _as_long(kind, values.type)).cast(kind)
    return values.cast(kind, safe=True)


def _decoded(values: pa.DictionaryArray) -> pa.Array:
    plain = VIEWS.get(values.type.value_type)
    if plain is not None:
        values = pa.DictionaryArray.from_arrays(values.indices, values.dictionary.cast(plain))
    # One value throughout, as commit times and file names often are, is laid out without looking at indices.
    constant = len(values.dictionary) == 1 and not values.null_count
    return pa.repeat(values.dictionary[0], len(values)) if constant else values.dictionary_decode()


def is_any_list(kind: pa.DataType) -> bool:
    """Whether the type is a list, however its lengths are kept."""
    return bool(pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind))


def _as_long(kind: pa.ListType, as_: pa.DataType) -> pa.DataType:
    """A list of the first's elements whose lengths are kept as in the second."""
    if pa.types.is_large_list(as_):
        return pa.large_list(kind.value_field)
    return pa.list_(kind.value_field, as_.list_size) if pa.types.is_fixed_size_list(as_) else kind


def _struct(values: pa.StructArray, kind: pa.StructType) -> pa.StructArray:
    children = dict(zip([field.name for field in values.type], values.flatten(), strict=True))
    arrays = [
        conform_array(children[field.name], field.type) if field.name in children else pa.nulls(len(values), field.type)
        for field in kind
    ]
    fields: Sequence[pa.Field] = list(kind)
    mask = values.is_null() if values.null_count else None
    return pa.StructArray.from_arrays(arrays, fields=fields, mask=mask)


def _rebased(values: pa.Array) -> pa.Array:
    """The same array with its first offset at zero, so that offsets and values can be taken apart."""
    return pa.concat_arrays([values, values.slice(0, 0)]) if values.offset else values


def _relisted(values: pa.Array, children: pa.Array, kind: pa.DataType) -> pa.Array:
    """Lists or maps over other children. Validity and offsets stay: a null list may lie over values."""
    own = 1 if pa.types.is_fixed_size_list(kind) else 2
    return pa.Array.from_buffers(kind, len(values), values.buffers()[:own], children=[children])
