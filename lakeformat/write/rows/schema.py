"""Merging the input's columns with the table's: add, widen and reorder columns by name; refuse other changes."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from typing import NamedTuple

import pyarrow as pa

from lakeformat.arrow.kinds import Kind, field_type, kind_of
from lakeformat.arrow.logical_types import is_vector, logical_name
from lakeformat.codec.avro.schema import from_avro
from lakeformat.codec.column_ids import widens
from lakeformat.codec.stored_types import arrow_type_for_storage, storage_schema
from lakeformat.errors import CorruptTableError, InvalidOptionError, SchemaMismatchError, meant
from lakeformat.files.log_writer import fits_delete_blocks
from lakeformat.model.record import IS_DELETED, META_COLUMNS

__all__ = [
    "check_key_types",
    "check_log_ordering",
    "check_named_schema",
    "check_ordering",
    "check_stays_number",
    "evolve",
    "incoming_schema",
    "make_nested_nullable",
    "mark_required",
    "rounded_columns",
]

#: Pattern of the name that pandas gives the column of an index without a name.
_ROW_NUMBERS = re.compile(r"__index_level_\d+__")
_NUMBERS = (pa.int32(), pa.int64(), pa.float32(), pa.float64())
_TEXTS = {pa.string(), pa.binary()}
#: Pairs of stored type and input's type whose conversion changes no value.
_EXACT = {(pa.int64(), pa.int32()), (pa.float64(), pa.int32()), (pa.float64(), pa.float32())}


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
    _refuse_same_names(stored_fields, "")
    return make_nested_nullable(
        storage_schema(pa.schema([pa.field(f.name, f.type, metadata=f.metadata) for f in stored_fields]))
    )


def _refuse_same_names(fields: Iterable[pa.Field], path: str) -> None:
    """Refuse two columns, or two fields of one struct at any depth, whose names are equal apart from letter case."""
    seen: dict[str, str] = {}
    for field in fields:
        lowered = field.name.lower()
        first = seen.get(lowered)
        if first is not None and (first != field.name or not path):  # `storage_schema` names fields of the same name.
            what, place = ("fields", f" of {path!r}") if path else ("columns", "")
            raise SchemaMismatchError(f"{what} {first!r} and {field.name!r}{place} have one name; rename one of them")
        seen[lowered] = field.name
        _refuse_same_names_inside(field.type, f"{path}.{field.name}" if path else field.name)


def _refuse_same_names_inside(kind: pa.DataType, path: str) -> None:
    if kind_of(kind) is Kind.STRUCT:
        _refuse_same_names(list(kind), path)
    elif kind_of(kind).is_nested and kind_of(kind) is not Kind.UNION:
        for number in range(kind.num_fields):
            _refuse_same_names_inside(kind.field(number).type, path)


def make_nested_nullable(schema: pa.Schema) -> pa.Schema:
    """Return the same columns with all their nested fields nullable.

    A null struct has null fields, even if its type calls them required. Spark's Parquet writes such fields as optional
    (``ParquetFileFormat`` on ``asNullable`` schemas), and so does lakeformat. A table of another writer may have
    required ones.
    """
    return pa.schema([field.with_type(_make_nullable(field.type)) for field in schema])


def _make_nullable(kind: pa.DataType) -> pa.DataType:
    if logical_name(kind) is not None:
        return kind
    if kind_of(kind) is Kind.STRUCT:
        return pa.struct([pa.field(field.name, _make_nullable(field.type)) for field in kind])
    if kind_of(kind) is Kind.MAP:
        return pa.map_(kind.key_type, _make_nullable(kind.item_type))
    if kind_of(kind) is Kind.LIST:
        return pa.list_(pa.field(kind.value_field.name, _make_nullable(kind.value_type)))
    return kind


def check_named_schema(rows: pa.Schema, text: str | None) -> None:
    """Refuse rows whose columns or types are not those of an Avro schema.

    Args:
        rows: the input's columns, as `incoming_schema` returns them.
        text: the Avro schema as JSON; empty to compare nothing.

    Raises:
        SchemaMismatchError: the message names the columns that differ.
        InvalidOptionError: ``text`` is not the Avro schema of a row.
    """
    if not text:
        return
    try:
        named = incoming_schema(from_avro(text, name="hoodie.write.schema"))
    except CorruptTableError as error:
        raise InvalidOptionError(f"{error}; give an Avro record as JSON") from None
    given, named_fields = ({(field.name, field.type) for field in schema} for schema in (rows, named))
    if given != named_fields:
        names = ", ".join(sorted({name for name, _ in given ^ named_fields}))
        raise SchemaMismatchError(
            f"hoodie.write.schema has other columns or types than the rows: {names}; cast the rows, or leave it out"
        )


def check_ordering(schema: pa.Schema, name: str) -> None:
    """Refuse an ordering column whose values have no order.

    Raises:
        SchemaMismatchError: if its type is a list, map, struct or null.
    """
    kind = field_type(schema, name)
    if kind is not None and (kind_of(kind).is_nested or kind_of(kind) is Kind.NULL):
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
        if kind_of(incoming) is not Kind.TEXT and _spelling(stored) != _spelling(incoming):
            raise SchemaMismatchError(
                f"key or partition column {name!r} is {incoming} in the input and {stored} in the table, which read "
                "differently as text; convert it"
            )


def check_stays_number(table: pa.Schema, joined: pa.Schema, names: Iterable[str]) -> None:
    """Refuse to make text of a number that a key, a partition or an order is made of.

    Args:
        joined: the table's columns after the write.
        names: columns, or fields of structs.

    Raises:
        SchemaMismatchError: the message names the column.
    """
    for name in names:
        stored, now = field_type(table, name), field_type(joined, name)
        if stored is not None and now is not None and kind_of(now) is Kind.TEXT and not stored.equals(now):
            raise SchemaMismatchError(
                f"column {name!r} is string in the input and {stored} in the table, whose keys, folders or order are "
                "made of it; convert it"
            )


def _spelling(kind: pa.DataType) -> str:
    """Return the name of the type's group. All types of a group write equal values as the same text."""
    if kind_of(kind) is Kind.DECIMAL:
        return f"decimal of scale {kind.scale}"
    if kind_of(kind) is Kind.TIMESTAMP:
        return "timestamp"
    return "integer" if kind_of(kind) is Kind.INTEGER else str(kind)


def rounded_columns(before: Iterable[pa.Field], after: Iterable[pa.Field]) -> list[str]:
    """Return the columns, or fields inside them, whose stored integers are rounded by their new type."""
    now = {field.name: field for field in after}
    return [path for field in before if field.name in now for path in _rounded(field, now[field.name])]


def _rounded(before: pa.Field, after: pa.Field) -> list[str]:
    old, new = before.type, after.type
    if kind_of(old).is_nested:
        fields = ([kind.field(number) for number in range(kind.num_fields)] for kind in (old, new))
        return [f"{before.name}.{path}" for path in rounded_columns(*fields)]
    may_round = kind_of(old) is Kind.INTEGER and kind_of(new) is Kind.FLOAT
    return [before.name] if may_round and not _takes_exactly(new, old) else []


class _Rules(NamedTuple):
    """How fields of structs are joined: `evolve` has the meaning of each flag."""

    fill_missing: bool
    keeps_types: bool
    exact: bool


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
    keeps_types: bool = False,
    exact: bool = False,
) -> pa.Schema:
    """Return the schema after a write: the table's columns in their order, then new ones. Nested fields are nullable.

    Args:
        table: the table's present schema; None for a new table.
        incoming: the input's columns, as `incoming_schema` returns them.
        fill_missing: whether columns that the input lacks are filled with nulls.
        optional: columns that the input may lack in any case.
        partial: whether columns that the input lacks keep their stored values.
        keeps_types: whether a type that is wider than the table's is refused.
        exact: whether a type is refused whose values the table's type would round or make text.

    Raises:
        SchemaMismatchError: if the input lacks a column, or has a type that no write takes; the message names the
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
                    f"the input has no column {field.name!r}{meant(field.name, incoming.names)}, which may not be "
                    "null in this table; add it"
                )
            if not (fill_missing or partial) and field.name not in optional and field.name != IS_DELETED:
                raise SchemaMismatchError(
                    f"the input has no column {field.name!r}{meant(field.name, incoming.names)}; add it, or set "
                    "hoodie.write.set.null.for.missing.columns=true"
                )
            fields.append(field)
        elif given.name != field.name:
            raise SchemaMismatchError(f"column {given.name!r} of the input is {field.name!r} in the table; rename it")
        else:
            kind = _merge(field.type, given.type, field.name, _Rules(fill_missing, keeps_types, exact))
            fields.append(pa.field(field.name, kind, field.nullable))
    return make_nested_nullable(pa.schema([*fields, *(field for field in incoming if field.name.lower() in names)]))


def _merge(stored: pa.DataType, incoming: pa.DataType, column: str, rules: _Rules) -> pa.DataType:
    """Return a column's type after a write, by the rules of Hudi 1.2.0 (``AvroSchemaEvolutionUtils``)."""
    if stored.equals(incoming) or (_takes_exactly if rules.exact else _takes)(stored, incoming):
        return stored
    if logical_name(stored) is not None and _fits_logical(stored, incoming):
        return stored
    wide = _widen(stored, incoming)
    if wide is not None:
        if rules.keeps_types and not wide.equals(stored):
            raise SchemaMismatchError(
                f"column {column!r} is {incoming} in the input and {stored} in the table, whose types "
                "hoodie.datasource.write.reconcile.schema keeps; convert it, or leave that option out"
            )
        return wide
    if kind_of(stored) is kind_of(incoming) is Kind.TIMESTAMP and bool(stored.tz) == bool(incoming.tz):
        return stored if stored.unit == "us" else incoming
    if logical_name(stored) is None and kind_of(stored) is kind_of(incoming) is Kind.STRUCT:
        return pa.struct(_merge_fields(stored, incoming, column, rules))
    if kind_of(stored) is kind_of(incoming) is Kind.MAP and stored.key_type.equals(incoming.key_type):
        return pa.map_(stored.key_type, _merge(stored.item_type, incoming.item_type, f"{column}.value", rules))
    if not is_vector(stored) and kind_of(stored) is kind_of(incoming) is Kind.LIST:
        element = _merge(stored.value_type, incoming.value_type, f"{column}.element", rules)
        return pa.list_(pa.field(stored.value_field.name, element))
    raise SchemaMismatchError(
        f"column {column!r} is {incoming} in the input and {stored} in the table, and no write changes the one to the "
        "other; convert it, or, if alter().retype can, change the table first"
    )


def _fits_logical(stored: pa.DataType, incoming: pa.DataType) -> bool:
    """Tell whether the input's lists or structs can be values of a VECTOR, BLOB or VARIANT."""
    if is_vector(stored):
        integers = (Kind.INTEGER, Kind.INTEGER)
        return kind_of(incoming) is Kind.LIST and (
            incoming.value_type == stored.value_type
            or (kind_of(stored.value_type), kind_of(incoming.value_type)) == integers
        )
    return kind_of(incoming) is Kind.STRUCT and {f.name: f.type for f in incoming} == {f.name: f.type for f in stored}


def _takes(stored: pa.DataType, incoming: pa.DataType) -> bool:
    """Tell whether the input's values are converted to the stored type."""
    if kind_of(incoming) is Kind.DECIMAL:
        return kind_of(stored) is Kind.TEXT
    if kind_of(stored) is Kind.DECIMAL:
        return incoming in _NUMBERS
    return widens(incoming, stored) or {stored, incoming} == _TEXTS


def _takes_exactly(stored: pa.DataType, incoming: pa.DataType) -> bool:
    """Tell whether the stored type holds each value of the input's type as it is."""
    return (stored, incoming) in _EXACT


def _widen(stored: pa.DataType, incoming: pa.DataType) -> pa.DataType | None:
    """Return the type of the two that holds the other, if it is the input's or both are decimals; else None."""
    if stored in _NUMBERS and widens(stored, incoming):
        return incoming
    if kind_of(stored) is kind_of(incoming) is Kind.DECIMAL:
        whole = max(stored.precision - stored.scale, incoming.precision - incoming.scale)
        scale = max(stored.scale, incoming.scale)
        if widens(stored, incoming) or widens(incoming, stored):
            return pa.decimal128(whole + scale, scale)
    return None


def _merge_fields(stored: pa.StructType, incoming: pa.StructType, column: str, rules: _Rules) -> list[pa.Field]:
    """Return a struct's fields after a write, by the rules of `evolve`: the table's in their order, then new ones."""
    names = {field.name.lower(): field for field in incoming}
    merged: list[pa.Field] = []
    for field in stored:
        path, new = f"{column}.{field.name}", names.pop(field.name.lower(), None)
        if new is None:
            if not rules.fill_missing:
                raise SchemaMismatchError(
                    f"the input has no field {path!r}{meant(field.name, [f.name for f in incoming])}; add it, or set "
                    "hoodie.write.set.null.for.missing.columns=true"
                )
            merged.append(pa.field(field.name, field.type))
        elif new.name != field.name:
            raise SchemaMismatchError(f"field '{column}.{new.name}' of the input is {path!r} in the table; rename it")
        else:
            merged.append(pa.field(field.name, _merge(field.type, new.type, path, rules)))
    return [*merged, *(pa.field(field.name, field.type) for field in names.values())]
