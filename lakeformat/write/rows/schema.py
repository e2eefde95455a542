"""Merging the input's columns with the table's: add, widen and reorder columns by name; refuse other changes."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable

import pyarrow as pa

from lakeformat.codec.stored_types import arrow_type_for_storage, storage_schema
from lakeformat.errors import SchemaMismatchError, nearest
from lakeformat.files.log_writer import fits_delete_blocks
from lakeformat.model.record import IS_DELETED, META_COLUMNS

__all__ = [
    "check_key_types",
    "check_log_ordering",
    "check_ordering",
    "evolve",
    "field_type",
    "incoming_schema",
    "make_nested_nullable",
    "mark_required",
]

#: Pattern of the name that pandas gives the column of an index without a name.
_ROW_NUMBERS = re.compile(r"__index_level_\d+__")
_INTEGERS = (pa.int32(), pa.int64())
_RANK = {pa.int32(): 0, pa.int64(): 1, pa.float32(): 2, pa.float64(): 3}


def incoming_schema(schema: pa.Schema) -> pa.Schema:
    """Return the input's columns that are stored, with their stored types, all nullable, including nested ones.

    Meta columns, which rows read from a Hudi table have, are dropped, but ``_hoodie_is_deleted`` is kept, because users
    set it. The row numbers that pandas adds to a filtered frame are dropped too.

    Raises:
        SchemaMismatchError: if a type cannot be stored, or if two names are equal apart from their letter case.
    """
    is_from_pandas = b"pandas" in (schema.metadata or {})
    stored_fields = [
        field
        for field in schema
        if field.name not in META_COLUMNS and not (is_from_pandas and _ROW_NUMBERS.fullmatch(field.name))
    ]
    seen: dict[str, str] = {}
    for field in stored_fields:
        lowered = field.name.lower()
        if lowered in seen:
            raise SchemaMismatchError(f"columns {seen[lowered]!r} and {field.name!r} have one name; rename one of them")
        seen[lowered] = field.name
    return make_nested_nullable(storage_schema(pa.schema([pa.field(f.name, f.type) for f in stored_fields])))


def make_nested_nullable(schema: pa.Schema) -> pa.Schema:
    """Return the same columns with all their nested fields nullable.

    A null struct has null fields, even if its type calls them required. Spark's Parquet writes such fields as optional
    (``ParquetFileFormat`` on ``asNullable`` schemas), and so does lakeformat. A table of another writer may have
    required ones.
    """
    return pa.schema([field.with_type(_make_nullable(field.type)) for field in schema])


def _make_nullable(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_struct(kind):
        return pa.struct([pa.field(field.name, _make_nullable(field.type)) for field in kind])
    if pa.types.is_map(kind):
        return pa.map_(kind.key_type, _make_nullable(kind.item_type))
    if pa.types.is_list(kind):
        return pa.list_(pa.field(kind.value_field.name, _make_nullable(kind.value_type)))
    return kind


def field_type(schema: pa.Schema, name: str) -> pa.DataType | None:
    """Return the type of a column, or of a struct's field (``a.b``); None if there is no such column.

    >>> str(field_type(pa.schema([("a", pa.struct([("b", pa.int64())]))]), "a.b"))
    'int64'
    """
    if name in schema.names:
        return schema.field(schema.names.index(name)).type
    top, *inner = name.split(".")
    if top not in schema.names:
        return None
    kind = schema.field(schema.names.index(top)).type
    for part in inner:
        if not pa.types.is_struct(kind) or kind.get_field_index(part) < 0:
            return None
        kind = kind.field(part).type
    return kind


def check_ordering(schema: pa.Schema, name: str) -> None:
    """Refuse an ordering column whose values have no order.

    Raises:
        SchemaMismatchError: if its type is a list, map, struct or null.
    """
    kind = field_type(schema, name)
    if kind is not None and (pa.types.is_nested(kind) or pa.types.is_null(kind)):
        raise SchemaMismatchError(f"the ordering column {name!r} is {kind}, which has no order; name another column")


def check_log_ordering(schema: pa.Schema, name: str) -> None:
    """Refuse an ordering column whose values cannot be stored in the delete blocks of log files.

    Raises:
        SchemaMismatchError: if its type has no form in delete blocks.
    """
    kind = field_type(schema, name)
    if kind is not None and not fits_delete_blocks(kind):
        raise SchemaMismatchError(
            f"the ordering column {name!r} is {kind}, which log files of a merge-on-read table cannot store for a "
            "deleted row; order by a number, a date, a timestamp, a text or a decimal with at most 15 digits on each "
            "side of the point, or make the table COPY_ON_WRITE"
        )


def check_key_types(table: pa.Schema, given: pa.Schema, names: Iterable[str]) -> None:
    """Refuse input types that write a key or partition value as another text than the table's type: 1.0 for 1.

    Args:
        table: the table's columns.
        given: the input's columns, before any conversion.
        names: columns, or fields of structs, whose text makes keys or partition paths. An input column of type string
            always passes.

    Raises:
        SchemaMismatchError: if a column's type is refused; the message names the column and both types.
    """
    for name in names:
        stored, incoming = field_type(table, name), field_type(given, name)
        if stored is None or incoming is None:
            continue
        incoming = arrow_type_for_storage(incoming, column=name)
        if not pa.types.is_string(incoming) and _spelling(stored) != _spelling(incoming):
            raise SchemaMismatchError(
                f"key or partition column {name!r} is {incoming} in the input and {stored} in the table, which read "
                "differently as text; convert it"
            )


def _spelling(kind: pa.DataType) -> str:
    """Return the name of the type's group. All types of a group write equal values as the same text."""
    if pa.types.is_decimal(kind):
        return f"decimal of scale {kind.scale}"
    if pa.types.is_timestamp(kind):
        return "timestamp"
    return "integer" if pa.types.is_integer(kind) else str(kind)


def mark_required(table: pa.Schema | None, incoming: pa.Schema) -> pa.Schema:
    """Return the incoming columns; those that are required in the table are marked as required."""
    required = {field.name for field in table or () if not field.nullable}
    return pa.schema([field.with_nullable(field.name not in required) for field in incoming])


def evolve(
    table: pa.Schema | None,
    incoming: pa.Schema,
    *,
    fill_missing: bool,
    optional: Collection[str] = (),
    partial: bool = False,
) -> pa.Schema:
    """Return the schema after a write: the table's columns in their order, then new ones. Nested fields are nullable.

    Args:
        table: the table's present schema; None for a new table.
        incoming: the input's columns, as `incoming_schema` returns them.
        fill_missing: whether columns that the input lacks are filled with nulls.
        optional: columns that the input may lack in any case.
        partial: whether columns that the input lacks keep their stored values.

    Raises:
        SchemaMismatchError: if the input lacks a column, or a type change would lose data; the message names the
            column.
    """
    if table is None:
        return incoming
    names = {field.name.lower(): field for field in incoming}
    fields: list[pa.Field] = []
    for field in table:
        given = names.pop(field.name.lower(), None)
        if given is None:
            if not field.nullable and not partial:
                raise SchemaMismatchError(
                    f"the input has no column {field.name!r}{nearest(field.name, incoming.names)}, which may not be "
                    "null in this table; add it"
                )
            if not (fill_missing or partial) and field.name not in optional and field.name != IS_DELETED:
                raise SchemaMismatchError(
                    f"the input has no column {field.name!r}{nearest(field.name, incoming.names)}; add it, or set "
                    "hoodie.write.set.null.for.missing.columns=true"
                )
            fields.append(field)
        elif given.name != field.name:
            raise SchemaMismatchError(f"column {given.name!r} of the input is {field.name!r} in the table; rename it")
        else:
            kind = _merge(field.type, given.type, field.name, fill_missing)
            fields.append(pa.field(field.name, kind, field.nullable))
    return make_nested_nullable(pa.schema([*fields, *(field for field in incoming if field.name.lower() in names)]))


def _merge(stored: pa.DataType, incoming: pa.DataType, column: str, fill_missing: bool) -> pa.DataType:
    """Return a type that holds all values of both types. Raise an error if a value could be lost.

    Hudi widens int to long to float to double. lakeformat refuses int to float, long to float and long to double,
    because a value could be rounded.
    """
    if stored.equals(incoming):
        return stored
    if stored in _RANK and incoming in _RANK:
        wide, narrow = (stored, incoming) if _RANK[stored] >= _RANK[incoming] else (incoming, stored)
        # A double holds every int32 exactly, but not every int64. A float does not hold every int32. Spark and Hudi
        # would round such values silently.
        if wide in _INTEGERS or narrow == pa.float32() or (wide == pa.float64() and narrow == pa.int32()):
            return wide
    if pa.types.is_decimal(stored) and pa.types.is_decimal(incoming):
        whole = max(stored.precision - stored.scale, incoming.precision - incoming.scale)
        scale = max(stored.scale, incoming.scale)
        if whole + scale <= 38 and stored.scale == incoming.scale:
            return pa.decimal128(whole + scale, scale)
    if pa.types.is_timestamp(stored) and pa.types.is_timestamp(incoming) and bool(stored.tz) == bool(incoming.tz):
        return stored if stored.unit == "us" else incoming
    if pa.types.is_struct(stored) and pa.types.is_struct(incoming):
        return pa.struct(_merge_fields(stored, incoming, column, fill_missing))
    if pa.types.is_map(stored) and pa.types.is_map(incoming) and stored.key_type.equals(incoming.key_type):
        return pa.map_(stored.key_type, _merge(stored.item_type, incoming.item_type, f"{column}.value", fill_missing))
    if pa.types.is_list(stored) and pa.types.is_list(incoming):
        element = _merge(stored.value_type, incoming.value_type, f"{column}.element", fill_missing)
        return pa.list_(pa.field(stored.value_field.name, element))
    raise SchemaMismatchError(
        f"column {column!r} is {incoming} in the input and {stored} in the table; convert it, a change of type that "
        "loses data is refused"
    )


def _merge_fields(stored: pa.StructType, incoming: pa.StructType, column: str, fill_missing: bool) -> list[pa.Field]:
    """Return a struct's fields after a write, by the rules of `evolve`: the table's in their order, then new ones."""
    names = {field.name.lower(): field for field in incoming}
    merged: list[pa.Field] = []
    for field in stored:
        path, new = f"{column}.{field.name}", names.pop(field.name.lower(), None)
        if new is None:
            if not fill_missing:
                raise SchemaMismatchError(
                    f"the input has no field {path!r}{nearest(field.name, [f.name for f in incoming])}; add it, or set "
                    "hoodie.write.set.null.for.missing.columns=true"
                )
            merged.append(pa.field(field.name, field.type))
        elif new.name != field.name:
            raise SchemaMismatchError(f"field '{column}.{new.name}' of the input is {path!r} in the table; rename it")
        else:
            merged.append(pa.field(field.name, _merge(field.type, new.type, path, fill_missing)))
    return [*merged, *(pa.field(field.name, field.type) for field in names.values())]
