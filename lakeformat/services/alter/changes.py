"""Changes of columns as values, and their effect on columns with ids. Pure.

A change names a column by its path: ``name``, ``address.city``, ``lines.element.price``, ``tags.value.weight``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, TypeAlias

import pyarrow as pa

from lakeformat.codec.column_ids import ColumnIds, is_widening
from lakeformat.errors import InvalidInputError, nearest
from lakeformat.model.internal_schema import ARRAY, MAP, RECORD, InternalSchema, SchemaField, SchemaType
from lakeformat.model.record import META_COLUMNS
from lakeformat.write.rows.schema import incoming_schema

__all__ = [
    "AddColumn",
    "Change",
    "Columns",
    "DropColumn",
    "MoveColumn",
    "RenameColumn",
    "RetypeColumn",
    "add_last",
]

_Fields: TypeAlias = tuple[SchemaField, ...]
#: A function that takes the fields of a struct and returns the changed fields.
_Edit: TypeAlias = Callable[[_Fields], _Fields]
_FIRST: Final = ""


@dataclass(frozen=True, slots=True)
class AddColumn:
    """A new column, which is null in the rows that are stored.

    Attributes:
        after: the name of the column beside it after which it comes, "" for the first place; None for the last place.
        default: the value that the stored rows get by an update after the change; None leaves them null.
    """

    path: str
    type: pa.DataType
    after: str | None = None
    default: Any = None


@dataclass(frozen=True, slots=True)
class RenameColumn:
    """Another name for a column; ``name`` is only the last part of its path."""

    path: str
    name: str


@dataclass(frozen=True, slots=True)
class DropColumn:
    """The end of a column. Its values stay in the files that hold them, but no reader sees them."""

    path: str


@dataclass(frozen=True, slots=True)
class RetypeColumn:
    """A wider type for a column."""

    path: str
    type: pa.DataType


@dataclass(frozen=True, slots=True)
class MoveColumn:
    """Another place for a column: after the column ``after`` beside it; "" for the first place."""

    path: str
    after: str


Change: TypeAlias = AddColumn | RenameColumn | DropColumn | RetypeColumn | MoveColumn


@dataclass(frozen=True)
class Columns:
    """The columns of a table with their ids and Arrow types.

    Attributes:
        types: maps the id of each field that is not nested to its Arrow type.
        fixed: columns whose names and types must stay, each with the reason.
    """

    schema: InternalSchema
    types: Mapping[int, pa.DataType]
    fixed: Mapping[str, str]

    @classmethod
    def of(cls, schema: InternalSchema, columns: pa.Schema, fixed: Mapping[str, str]) -> Columns:
        """Return the columns of a table from their ids and their Arrow types, which are matched by name."""
        by_name = {field.name: field for field in schema.columns}
        pairs = [(by_name[field.name], field.type) for field in columns if field.name in by_name]
        return cls(schema, dict(_leaf_types(pairs)), fixed)

    @property
    def arrow(self) -> pa.Schema:
        """Return the columns as an Arrow schema, without the meta columns."""
        return pa.schema([self._arrow_field(field) for field in self.schema.columns])

    def _arrow_field(self, field: SchemaField) -> pa.Field:
        return pa.field(field.name, self._arrow_type(field), field.optional)

    def _arrow_type(self, field: SchemaField) -> pa.DataType:
        inner = [self._arrow_field(inner_field) for inner_field in field.type.fields]
        match field.type.name:
            case "record":
                return pa.struct(inner)
            case "array":
                return pa.list_(inner[0])
            case "map":
                return pa.map_(inner[0].type, inner[1])
        return self.types[field.id]

    def apply(self, changes: Iterable[Change], version: int) -> Columns:
        """Return the columns after changes, one after the other.

        Raises:
            InvalidInputError: a change does not fit the columns; the message names the column.
            SchemaMismatchError: a type cannot be stored.
        """
        columns = self
        for change in changes:
            columns = columns._apply(change)
        if not columns.schema.columns:
            raise InvalidInputError("a table needs a column; keep one")
        return replace(columns, schema=replace(columns.schema, version=version))

    def _apply(self, change: Change) -> Columns:
        match change:
            case AddColumn():
                return self._add(change)
            case RenameColumn():
                return self._edit_fields(change.path, lambda fields: _rename(fields, change))
            case DropColumn():
                return self._edit_fields(change.path, lambda fields: _drop(fields, change.path))
            case RetypeColumn():
                return self._retype(change)
            case MoveColumn():
                moved = replace(self, fixed={})._edit_fields(change.path, lambda fields: _move(fields, change))
                return replace(moved, fixed=self.fixed)

    def _add(self, change: AddColumn) -> Columns:
        ids = ColumnIds(self.schema.last_id)
        name = change.path.rpartition(".")[2]
        new = ids.number([pa.field(name, change.type)], change.path.removesuffix(name))[0]
        added = self._edit_fields(change.path, lambda fields: _insert(fields, new, change), is_new=True)
        types = {**self.types, **dict(_leaf_types([(new, change.type)]))}
        return replace(added, schema=replace(added.schema, last_id=ids.last), types=types)

    def _retype(self, change: RetypeColumn) -> Columns:
        new_type = ColumnIds(self.schema.last_id).type_of(change.type, change.path)
        retyped: list[SchemaField] = []

        def edit(fields: _Fields) -> _Fields:
            position = _find(fields, change.path)
            old = fields[position]
            retyped.append(old)
            if old.type.fields or new_type.fields or not is_widening(old.type.name, new_type.name):
                raise InvalidInputError(
                    f"column {change.path!r} is {old.type.name}, which cannot become {new_type.name} without a "
                    "rewrite; add a column, or widen: int to long, double or string, long and date to string, float to "
                    "double, decimals to more digits"
                )
            return (*fields[:position], replace(old, type=new_type), *fields[position + 1 :])

        changed = replace(self, fixed={})._edit_fields(change.path, edit)
        if self.types.get(retyped[0].id) == change.type:
            return self
        self._check_free(change.path)
        return replace(changed, types={**self.types, retyped[0].id: change.type}, fixed=self.fixed)

    def _edit_fields(self, path: str, edit: _Edit, *, is_new: bool = False) -> Columns:
        """Return the columns with other fields in the struct, or the table, that holds the field at a path."""
        parts = path.split(".")
        if parts[0] in META_COLUMNS:
            raise InvalidInputError(f"{parts[0]!r} is a meta column of Hudi; it stays as it is")
        if not is_new:
            self._check_free(path)
        return replace(self, schema=replace(self.schema, fields=_edit_at(self.schema.fields, parts, 0, edit)))

    def _check_free(self, path: str) -> None:
        """Refuse to change a column that is fixed, or holds one that is."""
        for name, reason in self.fixed.items():
            if f"{name}.".startswith(f"{path}."):
                raise InvalidInputError(f"column {name!r} is {reason}; it keeps its name and type")


def add_last(schema: pa.Schema, changes: Sequence[Change]) -> pa.Schema | None:
    """Return the columns with new ones after them; None if the changes are not only such.

    Raises:
        InvalidInputError: a column is there already.
        SchemaMismatchError: a type cannot be stored.
    """
    fields: list[pa.Field] = []
    for change in changes:
        if not isinstance(change, AddColumn) or change.after is not None or "." in change.path:
            return None
        _refuse_known([*schema, *fields], change.path, change.path)
        fields.append(pa.field(change.path, change.type))
    return pa.schema([*schema, *incoming_schema(pa.schema(fields))])


def _leaf_types(pairs: Iterable[tuple[SchemaField, pa.DataType]]) -> Iterator[tuple[int, pa.DataType]]:
    """Yield id and Arrow type of the fields that are not nested."""
    for field, kind in pairs:
        if not field.type.fields:
            yield field.id, kind
        elif field.type.name == RECORD:
            yield from _leaf_types((inner, kind.field(inner.name).type) for inner in field.type.fields)
        else:
            kinds = [kind.value_type] if field.type.name == ARRAY else [kind.key_type, kind.item_type]
            yield from _leaf_types(zip(field.type.fields, kinds, strict=True))


def _edit_at(fields: _Fields, parts: Sequence[str], depth: int, edit: _Edit) -> _Fields:
    if depth == len(parts) - 1:
        return edit(fields)
    here = ".".join(parts[: depth + 1])
    position = _find(fields, here)
    field = fields[position]
    if not field.type.fields:
        raise InvalidInputError(f"column {here!r} is {field.type.name} and has no fields")
    if field.type.name in {ARRAY, MAP} and depth == len(parts) - 2:
        where = "element" if field.type.name == ARRAY else "key and value"
        raise InvalidInputError(
            f"{'.'.join(parts)!r}: the {where} of {here!r} can only be entered, as in "
            f"{here}.{field.type.fields[-1].name}.field"
        )
    inner = _edit_at(field.type.fields, parts, depth + 1, edit)
    return (*fields[:position], replace(field, type=SchemaType(field.type.name, inner)), *fields[position + 1 :])


def _find(fields: _Fields, path: str) -> int:
    """Return the position of the field with the last name of a path, which the error message names."""
    name = path.rpartition(".")[2]
    names = [field.name for field in fields if field.name not in META_COLUMNS]
    if name not in names:
        raise InvalidInputError(
            f"there is no column {path!r}{nearest(name, names)}; the columns are {', '.join(names)}"
        )
    return next(position for position, field in enumerate(fields) if field.name == name)


def _refuse_known(fields: Iterable[SchemaField | pa.Field], name: str, path: str) -> None:
    if not name or "." in name:
        raise InvalidInputError(f"{name!r} is no name for a column; a name is not empty and has no dot")
    if name.lower() in {field.name.lower() for field in fields}:
        raise InvalidInputError(f"column {path!r} is there already; choose another name")


def _place(fields: _Fields, after: str | None, path: str) -> int:
    """Return the position after a field; "" is the place before all columns, None the one after them."""
    if after is None:
        return len(fields)
    if after == _FIRST:
        return sum(field.name in META_COLUMNS for field in fields)
    return _find(fields, f"{path.rpartition('.')[0]}.{after}".lstrip(".")) + 1


def _insert(fields: _Fields, new: SchemaField, change: AddColumn) -> _Fields:
    _refuse_known(fields, new.name, change.path)
    position = _place(fields, change.after, change.path)
    return (*fields[:position], new, *fields[position:])


def _rename(fields: _Fields, change: RenameColumn) -> _Fields:
    position = _find(fields, change.path)
    others = (*fields[:position], *fields[position + 1 :])
    _refuse_known(others, change.name, change.name)
    return (*fields[:position], replace(fields[position], name=change.name), *fields[position + 1 :])


def _drop(fields: _Fields, path: str) -> _Fields:
    position = _find(fields, path)
    if "." in path and len(fields) == 1:
        raise InvalidInputError(f"{path!r} is the only field of {path.rpartition('.')[0]!r}; drop that")
    return (*fields[:position], *fields[position + 1 :])


def _move(fields: _Fields, change: MoveColumn) -> _Fields:
    position = _find(fields, change.path)
    others = (*fields[:position], *fields[position + 1 :])
    to = _place(others, change.after, change.path)
    return (*others[:to], fields[position], *others[to:])
