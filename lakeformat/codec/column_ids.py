"""Ids of the columns of an Arrow schema, as Hudi's schema on read assigns them.

A record's fields get consecutive ids, then each field's inner fields, in order (Hudi: ``AvroInternalSchemaConverter``).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from itertools import combinations
from typing import Final

import pyarrow as pa

from lakeformat.arrow.kinds import Kind, kind_of
from lakeformat.errors import SchemaMismatchError
from lakeformat.model.internal_schema import ARRAY, MAP, RECORD, InternalSchema, SchemaField, SchemaType
from lakeformat.model.record import META_COLUMNS

__all__ = ["ColumnIds", "is_widening", "number_columns", "reconcile", "type_name", "widens"]

_NAMES: Final = {
    pa.bool_(): "boolean",
    pa.int8(): "int",
    pa.int16(): "int",
    pa.int32(): "int",
    pa.int64(): "long",
    pa.float32(): "float",
    pa.float64(): "double",
    pa.string(): "string",
    pa.binary(): "binary",
    pa.date32(): "date",
}
#: Pairs of stored type and present type for which every value converts, and to the same value as in Hudi.
_WIDENS: Final = frozenset({*combinations(("int", "long", "float", "double", "string"), 2), ("date", "string")})
_DECIMAL: Final = re.compile(r"decimal(?:_fixed|_bytes)?\((\d+), *(\d+)\)")


def type_name(kind: pa.DataType, column: str) -> str:
    """Return the name under which schema on read stores a type that is not nested.

    Raises:
        SchemaMismatchError: if it has no name that every release of Hudi reads; the message names the column.
    """
    if kind_of(kind) is Kind.DECIMAL:
        return f"decimal({kind.precision}, {kind.scale})"
    if kind_of(kind) is Kind.TIMESTAMP and kind.tz and kind.unit == "us":
        return "timestamp"
    name = _NAMES.get(kind)
    if name is None:
        raise SchemaMismatchError(
            f"column {column!r} is {kind}, which Hudi's schema on read cannot store; in such a table, columns can only "
            "be added or widened, by writes"
        )
    return name


def is_widening(old: str, now: str) -> bool:
    """Tell whether values of a stored type become values of another as in Hudi, or both are equal.

    Of two decimals, the new one must have at least as many digits on both sides of the point.
    """
    if old == now or (old, now) in _WIDENS:
        return True
    before, after = _digits(old), _digits(now)
    if before is None or after is None:
        return False
    return before[1] <= after[1] and before[0] - before[1] <= after[0] - after[1]


def widens(old: pa.DataType, now: pa.DataType) -> bool:
    """Tell whether values of a type become values of another one, as `is_widening` does by their names."""
    names = [_NAMES.get(kind) or (type_name(kind, "") if kind_of(kind) is Kind.DECIMAL else "") for kind in (old, now)]
    return all(names) and is_widening(*names)


def _digits(kind: str) -> tuple[int, int] | None:
    """Return precision and scale of a decimal type; None for another type. Newer releases of Hudi add the width."""
    match = _DECIMAL.match(kind)
    return (int(match[1]), int(match[2])) if match else None


class ColumnIds:
    """A source of new ids, and of fields that get them."""

    def __init__(self, last: int) -> None:
        self.last = last

    def number(self, fields: Sequence[pa.Field], path: str = "") -> tuple[SchemaField, ...]:
        """Return the fields with new ids. Raise the errors of `type_name`."""
        first, self.last = self.last + 1, self.last + len(fields)
        return tuple(
            SchemaField(first + number, field.name, self.type_of(field.type, f"{path}{field.name}"), field.nullable)
            for number, field in enumerate(fields)
        )

    def type_of(self, kind: pa.DataType, path: str) -> SchemaType:
        """Return a type whose inner fields have new ids. Raise the errors of `type_name`."""
        if kind_of(kind) is Kind.STRUCT:
            return SchemaType(RECORD, self.number([*kind], f"{path}."))
        if kind_of(kind) is Kind.MAP:
            key, value = self.last + 1, self.last + 2
            self.last += 2
            keys = SchemaField(key, "key", self.type_of(kind.key_type, f"{path}.key"), optional=False)
            return SchemaType(MAP, (keys, SchemaField(value, "value", self.type_of(kind.item_type, f"{path}.value"))))
        if kind_of(kind) is Kind.LIST:
            self.last += 1
            element = self.last
            return SchemaType(
                ARRAY, (SchemaField(element, "element", self.type_of(kind.value_type, f"{path}.element")),)
            )
        return SchemaType(type_name(kind, path))


def number_columns(schema: pa.Schema) -> InternalSchema:
    """Return the columns of a table that has none with ids so far: the meta columns first. Its version is 0.

    Raises:
        SchemaMismatchError: as `type_name`.
    """
    ids = ColumnIds(-1)
    meta = [pa.field(name, pa.string()) for name in META_COLUMNS]
    fields = ids.number([*meta, *(field for field in schema if field.name not in META_COLUMNS)])
    fields = tuple(replace(field, doc="") if field.name in META_COLUMNS else field for field in fields)
    return InternalSchema(0, fields, ids.last)


def reconcile(now: InternalSchema, before: pa.Schema, after: pa.Schema, version: int) -> InternalSchema:
    """Return the columns after a write. Columns are matched by name: old ones keep their ids, new ones get new ids.

    Args:
        before: the table's columns before the write, whose ids are those of ``now``.
        after: the table's columns after the write.
        version: instant time of the write; the result has it if a column differs, else the version of ``now``.

    Raises:
        SchemaMismatchError: as `type_name`.
    """
    if after.equals(before):
        return now
    ids = ColumnIds(now.last_id)
    fields = {field.name: field for field in now.columns}
    meta = tuple(field for field in now.fields if field.name in META_COLUMNS)
    columns = _match_fields(fields, {field.name: field for field in before}, [*after], ids, "")
    if columns == now.columns:
        return now
    return InternalSchema(version, (*meta, *columns), ids.last)


def _match_fields(
    stored: dict[str, SchemaField],
    before: dict[str, pa.Field],
    after: Sequence[pa.Field],
    ids: ColumnIds,
    path: str,
) -> tuple[SchemaField, ...]:
    new = [field for field in after if field.name not in stored]
    added = dict(zip((field.name for field in new), ids.number(new, path), strict=True))
    return tuple(
        added[field.name]
        if field.name in added
        else _match_field(stored[field.name], before[field.name].type, field, ids, f"{path}{field.name}")
        for field in after
    )


def _match_field(stored: SchemaField, before: pa.DataType, after: pa.Field, ids: ColumnIds, path: str) -> SchemaField:
    if before.equals(after.type):
        return stored
    return replace(stored, type=_match_type(stored.type, before, after.type, ids, path))


def _match_type(stored: SchemaType, before: pa.DataType, after: pa.DataType, ids: ColumnIds, path: str) -> SchemaType:
    if kind_of(after) is kind_of(before) is Kind.STRUCT:
        fields = {field.name: field for field in stored.fields}
        inner = _match_fields(fields, {field.name: field for field in before}, [*after], ids, f"{path}.")
        return replace(stored, fields=inner)
    if kind_of(after) is kind_of(before) is Kind.LIST:
        element = _match_field(stored.fields[0], before.value_type, after.value_field, ids, f"{path}.element")
        return replace(stored, fields=(element,))
    if kind_of(after) is kind_of(before) is Kind.MAP:
        value = _match_field(stored.fields[1], before.item_type, after.item_field, ids, f"{path}.value")
        return replace(stored, fields=(stored.fields[0], value))
    return ids.type_of(after, path)
