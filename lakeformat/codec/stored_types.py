"""The types that lakeformat stores in files: the stored type for each Arrow type, and refusal of unstorable types."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final, assert_never

import pyarrow as pa

from lakeformat.arrow.conform import is_any_list
from lakeformat.arrow.kinds import Kind, kind_of
from lakeformat.arrow.logical_types import VARIANT, declared_type, is_blob, is_variant
from lakeformat.errors import SchemaMismatchError
from lakeformat.model.record import META_COLUMNS, OPERATION

__all__ = [
    "MAX_NESTING",
    "MAX_PRECISION",
    "ROOT",
    "Place",
    "arrow_type_for_storage",
    "refuse_deep",
    "refuse_repeated",
    "storage_schema",
    "unstorable_type_error",
    "with_meta_columns",
    "with_operation",
    "without_operation",
]

MAX_NESTING: Final = 64
MAX_PRECISION: Final = 38


@dataclass(frozen=True, slots=True)
class Place:
    """The position of a type in a schema: names of the enclosing columns and fields, Avro namespace, and depth."""

    path: tuple[str, ...] = ()
    namespace: str = ""
    depth: int = 0

    def field(self, name: str, namespace: str = "") -> Place:
        """Return the position of the column or field ``name`` that is directly inside this position."""
        return Place((*self.path, name), namespace, self.depth + 1)

    def element(self) -> Place:
        """Return the position of list elements or map values: the path is that of the list or map, one level deeper."""
        return replace(self, depth=self.depth + 1)

    def __str__(self) -> str:
        return ".".join(self.path)


ROOT: Final = Place()


def storage_schema(schema: pa.Schema) -> pa.Schema:
    """Return ``schema`` with each type replaced by its stored type. Nullability stays; metadata is dropped.

    Raises:
        SchemaMismatchError: A column's type cannot be stored, or a name occurs twice; the message names it.
    """
    return pa.schema(_stored_fields(list(schema), ROOT))


def arrow_type_for_storage(data_type: pa.DataType, *, column: str = "value") -> pa.DataType:
    """Return the type in which a column of ``data_type`` is stored.

    Small and unsigned integers widen to int32 or int64, and float16 to float32. Large, view and fixed-size types
    become the plain type. Dates become date32. Timestamps become microseconds, in UTC if they have a zone. A
    dictionary becomes the type of its values. Decimals up to 38 digits become decimal128.

    Args:
        data_type: Any Arrow type.
        column: The column's name, for messages.

    Raises:
        SchemaMismatchError: No stored type holds all values of the type (uint64, decimals over 38 digits), or none
            fits it (time, duration, interval, union, null and extension types, maps whose keys are not strings).
    """
    return _stored_type(data_type, ROOT.field(column))


def _stored_fields(fields: Sequence[pa.Field], place: Place) -> list[pa.Field]:
    refuse_repeated(fields, place)
    return [_stored_field(field, field.name, place.field(field.name)) for field in fields]


def _stored_field(field: pa.Field, name: str, place: Place) -> pa.Field:
    return pa.field(name, _logical_type(field, place) or _stored_type(field.type, place), nullable=field.nullable)


def _logical_type(field: pa.Field, place: Place) -> pa.DataType | None:
    """Return the VECTOR, BLOB or VARIANT that a field declares or carries; None for other fields."""
    try:
        declared = declared_type(field)
    except ValueError as error:
        raise SchemaMismatchError(f"column {str(place)!r} has the hudi_type {error}; correct it") from None
    if declared is not None and place.depth > 1:
        raise SchemaMismatchError(f"field {str(place)!r} has a hudi_type, which only columns can have; remove it")
    return declared or (field.type if is_blob(field.type) else VARIANT if is_variant(field.type) else None)


def _stored_type(data_type: pa.DataType, place: Place) -> pa.DataType:
    refuse_deep(place)
    match kind_of(data_type):
        case Kind.BOOLEAN:
            return data_type
        case Kind.INTEGER if data_type != pa.uint64():
            return pa.int64() if data_type in (pa.int64(), pa.uint32()) else pa.int32()
        case Kind.FLOAT:
            return pa.float64() if data_type.bit_width == 64 else pa.float32()
        case Kind.DECIMAL if 0 <= data_type.scale <= data_type.precision <= MAX_PRECISION:
            return pa.decimal128(data_type.precision, data_type.scale)
        case Kind.TEXT:
            return pa.string()
        case Kind.BYTES:
            return pa.binary()
        case Kind.DATE:
            return pa.date32()
        case Kind.TIMESTAMP:
            return pa.timestamp("us", data_type.tz and "UTC")
        case Kind.DICTIONARY:
            return _stored_type(data_type.value_type, place.element())
        case Kind.LIST | Kind.STRUCT | Kind.MAP | Kind.UNION:
            return _stored_nested(data_type, place)
        case Kind.INTEGER | Kind.DECIMAL | Kind.NULL | Kind.TIME | Kind.DURATION | Kind.INTERVAL | Kind.OTHER:
            raise unstorable_type_error(data_type, place)
        case never:
            assert_never(never)


def _stored_nested(data_type: pa.DataType, place: Place) -> pa.DataType:
    match kind_of(data_type):
        case Kind.STRUCT if data_type.num_fields:
            return pa.struct(_stored_fields(list(data_type), place))
        case Kind.LIST if is_any_list(data_type):
            return pa.list_(_stored_field(data_type.value_field, "element", place.element()))
        case Kind.MAP if _stored_type(data_type.key_type, place.element()) == pa.string():
            return pa.map_(pa.string(), _stored_field(data_type.item_field, "value", place.element()))
    raise unstorable_type_error(data_type, place)


def refuse_repeated(fields: Sequence[pa.Field], place: Place) -> None:
    """Raise `SchemaMismatchError` if two of the fields directly inside ``place`` have the same name."""
    for name, times in Counter(field.name for field in fields).items():
        if times > 1:
            raise SchemaMismatchError(f"column {str(place.field(name))!r} occurs {times} times; rename it")


def refuse_deep(place: Place) -> None:
    """Raise `SchemaMismatchError` if ``place`` is nested deeper than `MAX_NESTING` levels."""
    if place.depth > MAX_NESTING:
        column = place.path[0]
        raise SchemaMismatchError(f"column {column!r} is nested over {MAX_NESTING} levels deep; flatten it")


def unstorable_type_error(data_type: pa.DataType | str, place: Place) -> SchemaMismatchError:
    """Return the error for a type that cannot be stored. For a type that Arrow lacks, ``data_type`` is its name."""
    message = f"column {str(place)!r} has the type {str(data_type)[:120]}, which a Hudi table cannot hold"
    return SchemaMismatchError(f"{message}; cast or drop the column")


def with_operation(schema: pa.Schema) -> pa.Schema:
    """Return the column of operations and after it the table's other columns."""
    return pa.schema([pa.field(OPERATION, pa.string()), *without_operation(schema)])


def without_operation(schema: pa.Schema) -> pa.Schema:
    """Return the table's columns without that of operations, as commits list them: for Hudi it is a meta column."""
    return pa.schema([field for field in schema if field.name != OPERATION])


def with_meta_columns(schema: pa.Schema) -> pa.Schema:
    """Return the meta columns and after them the table's columns."""
    return pa.schema([*(pa.field(name, pa.string()) for name in META_COLUMNS), *schema])
