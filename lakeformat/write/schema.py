"""How the input's columns and the table's become one schema: add, widen, reorder by name; refuse the rest."""

from __future__ import annotations

from collections.abc import Collection

import pyarrow as pa

from lakeformat.codec.avro_schema import storage_schema
from lakeformat.errors import SchemaMismatchError, nearest
from lakeformat.model.record import IS_DELETED, META_COLUMNS

__all__ = ["evolve", "incoming_schema"]

_INTEGERS = (pa.int32(), pa.int64())
_RANK = {pa.int32(): 0, pa.int64(): 1, pa.float32(): 2, pa.float64(): 3}


def incoming_schema(schema: pa.Schema) -> pa.Schema:
    """The columns of the input that are stored, with the types that are stored, all nullable.

    Meta columns of a row read from some Hudi table are dropped (``_hoodie_is_deleted`` is the user's own).

    Raises:
        SchemaMismatchError: a type cannot be stored, or a name stands twice (also but for its case).
    """
    kept = [field for field in schema if field.name not in META_COLUMNS]
    seen: dict[str, str] = {}
    for field in kept:
        other = seen.setdefault(field.name.lower(), field.name)
        if other != field.name or sum(f.name == field.name for f in kept) > 1:
            raise SchemaMismatchError(
                f"columns {other!r} and {field.name!r} have one name; rename one of them"
            )
    return storage_schema(pa.schema([pa.field(f.name, f.type) for f in kept]))


def evolve(
    table: pa.Schema | None, incoming: pa.Schema, *, fill_missing: bool, optional: Collection[str] = ()
) -> pa.Schema:
    """The schema after a write: the table's columns in their order, then new ones.

    Args:
        table: the table's present schema, None for a new table.
        incoming: from `incoming_schema`.
        fill_missing: whether columns the input lacks become null.
        optional: columns the input may lack in any case.

    Raises:
        SchemaMismatchError: the input lacks a column, or a type change would lose data; names the column.
    """
    if table is None:
        return incoming
    names = {field.name.lower(): field for field in incoming}
    fields: list[pa.Field] = []
    for field in table:
        given = names.pop(field.name.lower(), None)
        if given is None:
            if not fill_missing and field.name not in optional and field.name != IS_DELETED:
                raise SchemaMismatchError(
                    f"the input has no column {field.name!r}{nearest(field.name, incoming.names)}; add it, or set "
                    "hoodie.write.set.null.for.missing.columns=true"
                )
            fields.append(field)
        elif given.name != field.name:
            raise SchemaMismatchError(
                f"column {given.name!r} of the input is {field.name!r} in the table; rename it"
            )
        else:
            fields.append(pa.field(field.name, _merge(field.type, given.type, field.name), field.nullable))
    return pa.schema([*fields, *(field for field in incoming if field.name.lower() in names)])


def _merge(stored: pa.DataType, given: pa.DataType, column: str) -> pa.DataType:
    """The type that holds both, if neither loses a value."""
    if stored.equals(given):
        return stored
    if stored in _RANK and given in _RANK:
        wide, narrow = (stored, given) if _RANK[stored] >= _RANK[given] else (given, stored)
        # Floats hold all int32 (double) but not all int64; Spark and Hudi would round silently.
        if wide in _INTEGERS or narrow == pa.float32() or (wide == pa.float64() and narrow == pa.int32()):
            return wide
    if pa.types.is_decimal(stored) and pa.types.is_decimal(given):
        whole = max(stored.precision - stored.scale, given.precision - given.scale)
        scale = max(stored.scale, given.scale)
        if whole + scale <= 38 and stored.scale == given.scale:
            return pa.decimal128(whole + scale, scale)
    if pa.types.is_timestamp(stored) and pa.types.is_timestamp(given) and bool(stored.tz) == bool(given.tz):
        return stored if stored.unit == "us" else given
    if pa.types.is_struct(stored) and pa.types.is_struct(given):
        return pa.struct(_merge_fields(stored, given, column))
    if pa.types.is_map(stored) and pa.types.is_map(given):
        return pa.map_(stored.key_type, _merge(stored.item_type, given.item_type, f"{column}.value"))
    if pa.types.is_list(stored) and pa.types.is_list(given):
        element = _merge(stored.value_type, given.value_type, f"{column}.element")
        return pa.list_(pa.field(stored.value_field.name, element))
    raise SchemaMismatchError(
        f"column {column!r} is {given} in the input and {stored} in the table; convert it, a change of type that "
        "loses data is refused"
    )


def _merge_fields(stored: pa.StructType, given: pa.StructType, column: str) -> list[pa.Field]:
    names = {field.name: field for field in given}
    merged = [
        pa.field(
            f.name,
            _merge(f.type, names.pop(f.name).type, f"{column}.{f.name}") if f.name in names else f.type,
        )
        for f in stored
    ]
    return [*merged, *(pa.field(f.name, f.type) for f in given if f.name in names)]
