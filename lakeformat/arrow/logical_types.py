"""Hudi's logical types VECTOR, BLOB and VARIANT as Arrow types.

A VECTOR is a fixed-size list: a table has no other columns of this type. BLOB and VARIANT are structs whose first
field carries a mark, so the type keeps its meaning wherever it goes. Arrow ignores marks where it compares types.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakeformat.arrow.kinds import Kind, kind_of
from lakeformat.errors import SchemaMismatchError

__all__ = [
    "BLOB",
    "BLOB_TYPES",
    "HUDI_TYPE",
    "VARIANT",
    "VECTOR_ELEMENTS",
    "declared_type",
    "find_fault",
    "is_blob",
    "is_variant",
    "is_vector",
    "logical_name",
    "plain_bytes",
    "stored_column",
    "type_metadata",
    "vector_footer",
    "vector_from_bytes",
    "vector_to_bytes",
    "vector_type",
    "vector_type_of",
]

#: The key of a field's metadata that names its logical type: ``VECTOR(3)``, ``VECTOR(2, DOUBLE)``, ``BLOB``.
HUDI_TYPE: Final = "hudi_type"
#: The mark that PySpark gives a field of VARIANT.
_SPARK_MARK: Final = b"variant"
_VECTOR: Final = re.compile(r"VECTOR\(\s*(\d{1,6})\s*(?:,\s*(FLOAT|DOUBLE|INT8)\s*)?\)", re.IGNORECASE)
#: Maps the names of a vector's elements to their types.
VECTOR_ELEMENTS: Final[Mapping[str, pa.DataType]] = {
    "FLOAT": pa.float32(),
    "DOUBLE": pa.float64(),
    "INT8": pa.int8(),
}
_ELEMENT_NAMES: Final = {kind: name for name, kind in VECTOR_ELEMENTS.items()}

_REFERENCE: Final = pa.struct([
    ("external_path", pa.string()),
    ("offset", pa.int64()),
    ("length", pa.int64()),
    ("managed", pa.bool_()),
])  # fmt: skip
#: The values of a BLOB's field ``type``.
BLOB_TYPES: Final = ("INLINE", "OUT_OF_LINE")
#: In Avro some fields are required. In Parquet all are optional, as in other structs: a null BLOB has null fields.
BLOB: Final = pa.struct([
    pa.field("type", pa.string(), metadata={HUDI_TYPE: "BLOB"}),
    ("data", pa.binary()),
    ("reference", _REFERENCE),
])  # fmt: skip
VARIANT: Final = pa.struct([
    pa.field("metadata", pa.binary(), metadata={_SPARK_MARK: b"true"}),
    ("value", pa.binary()),
])  # fmt: skip


def vector_type(dimension: int, element: str = "FLOAT") -> pa.DataType:
    """Return the type of a VECTOR of ``dimension`` elements: FLOAT, DOUBLE or INT8."""
    return pa.list_(pa.field("element", VECTOR_ELEMENTS[element], nullable=False), dimension)


def vector_type_of(element: pa.DataType, width: int) -> pa.DataType:
    """Return the type of a VECTOR that takes ``width`` bytes. Raise ``pa.ArrowInvalid`` if none does."""
    name = _ELEMENT_NAMES.get(element)
    if name is None or not width or width * 8 % element.bit_width:
        raise pa.ArrowInvalid(f"{width} bytes are no vector of {element}")
    return vector_type(width * 8 // element.bit_width, name)


def is_vector(kind: pa.DataType) -> bool:
    """Tell whether a column of a table with this type is a VECTOR."""
    return isinstance(kind, pa.FixedSizeListType) and kind.value_type in _ELEMENT_NAMES


def is_blob(kind: pa.DataType) -> bool:
    """Tell whether the type is marked as BLOB."""
    return b"BLOB" in _marks(kind, HUDI_TYPE.encode())


def is_variant(kind: pa.DataType) -> bool:
    """Tell whether the type is marked as VARIANT, by this module or by PySpark."""
    return any(_marks(kind, _SPARK_MARK))


def _marks(kind: pa.DataType, name: bytes) -> list[bytes | None]:
    """Return the entry of this name in the metadata of each field of a struct."""
    return [(child.metadata or {}).get(name) for child in kind] if kind_of(kind) is Kind.STRUCT else []


def logical_name(kind: pa.DataType) -> str | None:
    """Return Hudi's name of the logical type; None if the type has none.

    >>> logical_name(vector_type(3)), logical_name(vector_type(2, "DOUBLE")), logical_name(pa.int64())
    ('VECTOR(3)', 'VECTOR(2, DOUBLE)', None)
    """
    if is_vector(kind):
        element = _ELEMENT_NAMES[kind.value_type]
        return f"VECTOR({kind.list_size}{'' if element == 'FLOAT' else f', {element}'})"
    return "BLOB" if is_blob(kind) else "VARIANT" if is_variant(kind) else None


def type_metadata(kind: pa.DataType) -> Mapping[str, str] | None:
    """Return the metadata of a field of this type that names the logical type; None if the type has none."""
    name = logical_name(kind)
    return None if name is None else {HUDI_TYPE: name}


def declared_type(field: pa.Field) -> pa.DataType | None:
    """Return the VECTOR or BLOB that the metadata of a field names; None if it names none.

    Raises:
        ValueError: The metadata names another type, or one that the values of the field cannot have.
    """
    text = (field.metadata or {}).get(HUDI_TYPE.encode(), b"").decode(errors="replace").strip()
    if vector := _VECTOR.fullmatch(text):
        kind = vector_type(int(vector[1]), (vector[2] or "FLOAT").upper())
        if not int(vector[1]) or not isinstance(field.type, pa.ListType | pa.LargeListType | pa.FixedSizeListType):
            raise ValueError(f"{text} needs a list and at least one element")
        return kind
    if text.upper() == "BLOB" and kind_of(field.type) is Kind.STRUCT:
        return BLOB
    if text and text.upper() != "VARIANT":
        raise ValueError(f"{text} is not a type of Hudi, or not one for {field.type}")
    return None


def find_fault(values: pa.Array, kind: pa.DataType) -> str | None:
    """Return what is wrong with the values of a BLOB or VARIANT: a required field is null, or the type unknown."""
    rows = values.drop_null()
    required = ["type"] if is_blob(kind) else ["metadata", "value"]
    missing = [name for name in required if rows.field(name).null_count]
    if missing:
        return f"its field {missing[0]} is null"
    if is_blob(kind):
        if len(rows.filter(pc.invert(pc.is_in(rows.field("type"), pa.array(BLOB_TYPES))))):
            return f"its type is not {' or '.join(BLOB_TYPES)}"
        reference = rows.field("reference").drop_null()
        if reference.field("external_path").null_count or reference.field("managed").null_count:
            return "a reference lacks external_path or managed"
    return None


def stored_column(column: Any, kind: pa.DataType) -> Any:
    """Return vectors as bytes if ``kind`` is bytes, and other columns as they are.

    Raises:
        SchemaMismatchError: A BLOB or VARIANT has a value that no file may hold.
    """
    chunks = getattr(column, "chunks", (column,))
    if is_vector(column.type) and not is_vector(kind):
        return pa.chunked_array(map(vector_to_bytes, chunks), kind)
    for chunk in chunks if is_blob(kind) or is_variant(kind) else ():
        if (fault := find_fault(chunk, kind)) is not None:
            raise SchemaMismatchError(f"a {logical_name(kind)} cannot be stored: {fault}; correct the value")
    return column


def vector_footer(schema: pa.Schema) -> Mapping[str, str]:
    """Return the footer entry that lists the VECTOR columns: ``v:VECTOR(3),w:VECTOR(2, DOUBLE)``; none without them."""
    vectors = [f"{field.name}:{logical_name(field.type)}" for field in schema if is_vector(field.type)]
    return {"hoodie.vector.columns": ",".join(vectors)} if vectors else {}


def plain_bytes(kind: pa.DataType) -> pa.DataType:
    """Return the type of the bytes in which files store a VECTOR; another type as it is."""
    return pa.binary(kind.list_size * kind.value_type.bit_width // 8) if is_vector(kind) else kind


def vector_to_bytes(values: Any) -> pa.Array:
    """Return the little-endian bytes of each vector. Raise ``pa.ArrowInvalid`` if an element is null."""
    kind = values.type
    elements = values.values.slice(values.offset * kind.list_size, len(values) * kind.list_size)
    if elements.null_count:
        if values.flatten().null_count:
            raise pa.ArrowInvalid("a vector has a null element")
        elements = elements.fill_null(0)
    little = np.asarray(elements).astype(np.asarray(elements).dtype.newbyteorder("<"), copy=False)
    data = pa.py_buffer(np.ascontiguousarray(little))
    return pa.Array.from_buffers(plain_bytes(kind), len(values), [_validity(values), data])


def vector_from_bytes(values: pa.Array, kind: pa.DataType) -> pa.Array:
    """Return vectors from their little-endian bytes, without a copy. Raise ``pa.ArrowInvalid`` if the size differs."""
    width = plain_bytes(kind)
    if values.type != width:
        values = values.cast(width)
    numbers = np.frombuffer(
        values.buffers()[1] or b"",
        np.dtype(kind.value_type.to_pandas_dtype()).newbyteorder("<"),
        len(values) * kind.list_size,
        values.offset * width.byte_width,
    )
    elements = pa.array(numbers.astype(numbers.dtype.newbyteorder("="), copy=False))
    return pa.Array.from_buffers(kind, len(values), [_validity(values)], children=[elements])


def _validity(values: pa.Array) -> pa.Buffer | None:
    """Return the validity of an array, from offset 0 on."""
    if not values.null_count:
        return None
    buffer: pa.Buffer = values.is_valid().buffers()[1]
    return buffer
