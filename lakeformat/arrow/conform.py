"""Conversion of Arrow data to a requested schema.

Columns and nested fields are matched by name. A value that does not fit its type is an error. Numbers are converted as
by Hudi 1.2.0 (``HoodieAvroUtils``): integers are rounded to floats, and floats to decimals, in silence.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from lakeformat.arrow.float_texts import float_texts
from lakeformat.arrow.kinds import VIEWS, Kind, kind_of
from lakeformat.arrow.logical_types import (
    is_blob,
    is_variant,
    is_vector,
    plain_bytes,
    type_metadata,
    vector_from_bytes,
    vector_to_bytes,
    vector_type_of,
)
from lakeformat.errors import SchemaMismatchError

__all__ = [
    "conform",
    "conform_array",
    "conform_exactly",
    "is_any_list",
    "reader_schema",
    "rebase",
    "replace_children",
    "with_element",
]

_FLOATS: Final = (pa.float32(), pa.float64())
#: Holds each 64-bit integer, signed or not.
_WHOLE: Final = pa.decimal128(20, 0)
#: Digits after the first significant one, and one more, in the text of a double.
_FLOAT_DIGITS: Final = 18


def reader_schema(schema: pa.Schema) -> pa.Schema:
    """Return the schema of the rows that a read returns: ``schema`` with nullable fields and microsecond timestamps.

    A field of a logical type of Hudi names it in its metadata (``hudi_type``).
    """
    return pa.schema(
        [pa.field(field.name, _reader_type(field.type), metadata=type_metadata(field.type)) for field in schema]
    )


def _reader_type(kind: pa.DataType) -> pa.DataType:
    if kind_of(kind) is Kind.TIMESTAMP:
        return pa.timestamp("us", "UTC" if kind.tz else None)
    if kind_of(kind) is Kind.STRUCT and not (is_blob(kind) or is_variant(kind)):
        return pa.struct([pa.field(f.name, _reader_type(f.type)) for f in kind])
    if kind_of(kind) is Kind.MAP:
        return pa.map_(_reader_type(kind.key_type), _reader_type(kind.item_type))
    if pa.types.is_list(kind):
        return pa.list_(pa.field("element", _reader_type(kind.value_type)))
    return kind


def conform(rows: Any, schema: pa.Schema, *, exact: bool = False) -> Any:
    """Return a table or batch with exactly the columns of ``schema``. Columns that ``rows`` lacks are null.

    Args:
        exact: whether columns are converted by `conform_exactly`.

    Raises:
        SchemaMismatchError: A value does not fit its column; the message names the column.
    """
    if rows.schema.equals(schema):
        return rows
    place: dict[str, int] = {}
    for position, name in enumerate(rows.schema.names):
        place.setdefault(name, position)
    columns = [
        _column(rows.column(place[field.name]), field, conform_exactly if exact else conform_array)
        if field.name in place
        else pa.nulls(rows.num_rows, field.type)
        for field in schema
    ]
    if isinstance(rows, pa.RecordBatch):
        return pa.RecordBatch.from_arrays(columns, schema=schema)
    return pa.Table.from_arrays(columns, schema=schema)


def _column(values: Any, field: pa.Field, convert: Callable[[pa.Array, pa.DataType], pa.Array]) -> Any:
    if values.type.equals(field.type):
        return values
    try:
        if isinstance(values, pa.ChunkedArray):
            chunks = [convert(chunk, field.type) for chunk in values.chunks]
            return pa.chunked_array(chunks, type=field.type)
        return convert(values, field.type)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise SchemaMismatchError(
            f"column {field.name!r} of type {values.type} does not fit the table's {field.type}: "
            f"{str(error).splitlines()[0]}; convert it first"
        ) from None


def conform_exactly(values: pa.Array, kind: pa.DataType) -> pa.Array:
    """Convert as `conform_array` does. Raise ``pa.ArrowInvalid``, too, if a float would round an integer."""
    if kind_of(values.type) is Kind.DICTIONARY:
        return conform_exactly(_decode_dictionary(values), kind)
    may_round = kind_of(values.type) is Kind.INTEGER and kind_of(kind) is Kind.FLOAT
    return values.cast(kind) if may_round else conform_array(values, kind)


def conform_array(values: pa.Array, kind: pa.DataType) -> pa.Array:
    """Convert an array to another type. Raise ``pa.ArrowInvalid`` if a value does not fit."""
    if values.type.equals(kind):
        return values
    if kind_of(values.type) is Kind.NULL:
        return pa.nulls(len(values), kind)
    if kind_of(values.type) is Kind.DICTIONARY:
        return conform_array(_decode_dictionary(values), kind)
    if kind_of(kind) is kind_of(values.type) is Kind.STRUCT:
        return _struct(values, kind)
    if kind_of(kind) is kind_of(values.type) is Kind.MAP:
        values = rebase(values)
        parts = [conform_array(values.keys, kind.key_type), conform_array(values.items, kind.item_type)]
        entries = pa.StructArray.from_arrays(parts, fields=[kind.key_field, kind.item_field])
        return replace_children(values, entries, kind)
    if is_vector(kind) or is_vector(values.type):
        return _vectors(values, kind)
    return _lists_or_plain(values, kind)


def _lists_or_plain(values: pa.Array, kind: pa.DataType) -> pa.Array:
    if not pa.types.is_list(kind):
        return _plain(values, kind)
    if isinstance(values.type, pa.FixedSizeBinaryType):  # Spark's form of a VECTOR.
        values = vector_from_bytes(values, vector_type_of(kind.value_type, values.type.byte_width))
    if is_any_list(values.type):
        values = rebase(values)
        elements = conform_array(values.values, kind.value_type)
        return replace_children(values, elements, with_element(values.type, kind.value_field)).cast(kind)
    return _plain(values, kind)


def _vectors(values: pa.Array, kind: pa.DataType) -> pa.Array:
    """Convert bytes or lists to vectors, or vectors to bytes or lists."""
    if not is_vector(kind):
        stored = kind_of(kind) is Kind.BYTES
        return vector_to_bytes(values).cast(kind) if stored else _lists_or_plain(values, kind)
    if kind_of(values.type) is Kind.BYTES:
        return vector_from_bytes(values.cast(plain_bytes(kind)), kind)
    lists = _lists_or_plain(values, pa.list_(kind.value_field))
    if lists.flatten().null_count:
        raise pa.ArrowInvalid("a vector has a null element")
    return lists.cast(kind)


def _plain(values: pa.Array, kind: pa.DataType) -> pa.Array:
    """Convert values that are not nested."""
    if kind_of(values.type) is Kind.INTEGER:
        if kind_of(kind) is Kind.DECIMAL:
            return values.cast(_WHOLE).cast(kind)
        return values.cast(kind, safe=kind_of(kind) is not Kind.FLOAT)
    if values.type in _FLOATS:
        if pa.types.is_string(kind):
            return float_texts(values)
        if kind_of(kind) is Kind.DECIMAL:
            return _round_to_decimal(values, kind)
        if values.type == pa.float32() and kind == pa.float64():
            return values.cast(pa.string()).cast(kind)  # 0.1 becomes 0.1, and not 0.10000000149011612.
    return values.cast(kind, safe=True)


def _round_to_decimal(values: pa.Array, kind: pa.DataType) -> pa.Array:
    """Round the shortest texts of floats, halves away from zero: 1.005 becomes 1.01."""
    is_zero = pc.less(pc.abs(values), 10.0 ** -(kind.scale + 1))
    texts = pc.if_else(is_zero, "0", values.cast(pa.string()))
    exact = texts.cast(pa.decimal256(76, kind.scale + _FLOAT_DIGITS))
    return pc.round(exact, kind.scale, "half_towards_infinity").cast(kind)


def _decode_dictionary(values: pa.DictionaryArray) -> pa.Array:
    plain = VIEWS.get(values.type.value_type)
    if plain is not None:
        values = pa.DictionaryArray.from_arrays(values.indices, values.dictionary.cast(plain))
    # Columns of commit times and file names often hold one value; repeating it is faster than decoding.
    constant = len(values.dictionary) == 1 and not values.null_count
    return pa.repeat(values.dictionary[0], len(values)) if constant else values.dictionary_decode()


def is_any_list(kind: pa.DataType) -> bool:
    """Tell whether the type is a list, a large list or a fixed-size list."""
    return bool(pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind))


def with_element(layout: pa.DataType, element: pa.Field) -> pa.DataType:
    """Return a list type with these elements and the layout (list, large, fixed-size) of another list type."""
    if pa.types.is_large_list(layout):
        return pa.large_list(element)
    return pa.list_(element, layout.list_size if pa.types.is_fixed_size_list(layout) else -1)


def _struct(values: pa.StructArray, kind: pa.StructType) -> pa.StructArray:
    children = dict(zip([field.name for field in values.type], values.flatten(), strict=True))
    arrays = [
        conform_array(children[field.name], field.type) if field.name in children else pa.nulls(len(values), field.type)
        for field in kind
    ]
    fields: Sequence[pa.Field] = list(kind)
    mask = values.is_null() if values.null_count else None
    return pa.StructArray.from_arrays(arrays, fields=fields, mask=mask)


def rebase(values: pa.Array) -> pa.Array:
    """Copy a sliced array to offset 0, so that its buffers belong to its rows alone. Return other arrays unchanged."""
    return pa.concat_arrays([values, values.slice(0, 0)]) if values.offset else values


def replace_children(values: pa.Array, children: pa.Array, kind: pa.DataType) -> pa.Array:
    """Return the lists or maps of ``values`` with the child values ``children``.

    Validity and offsets are reused. They must not be rebuilt from the lengths: a null list has length 0 but may own
    child values, so all later lists would get wrong child values.
    """
    buffer_count = 1 if pa.types.is_fixed_size_list(kind) else 2
    return pa.Array.from_buffers(kind, len(values), values.buffers()[:buffer_count], children=[children])
