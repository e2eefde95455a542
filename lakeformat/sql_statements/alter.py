"""Parsing of ``alter table`` into dataclasses. No I/O."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa

from lakeformat.errors import InvalidInputError
from lakeformat.services.alter.changes import (
    AddColumn,
    Change,
    DropColumn,
    MoveColumn,
    RenameColumn,
    RetypeColumn,
)
from lakeformat.sql_statements.ddl import (
    AddColumns,
    DropPartitions,
    arrow_field,
    check_optional,
    parse_type,
    partition_spec,
)
from lakeformat.sql_statements.parse import NAME_PART, TableName, form, quote_sql, syntax_tree, table_and_rest

__all__ = ["AlterColumns", "read_alter"]

_RENAME: Final = form("rename column {path:path} to {name:part}")
_DROP: Final = form("drop columns? [{exists:if exists}] {list:all}")
_REPEATED: Final = form("drop columns?(?: if exists)? ")
_ALTER: Final = form("alter [column] {path:path} {rest:all}")
_CHANGE: Final = form("change [column] {path:path} {name:part} {rest:all}")
_TYPE: Final = form("(?:set data )?type {type:all}")
_PLACE: Final = form(r"(?:^|\s)(?:{first:first}|after {after:part})\s*$")
_PATH: Final = form(r"\s*{path:path}\s*")

#: Maps patterns of unsupported clauses of ``alter table`` to the alternative that the error message suggests.
_UNSUPPORTED_ALTERS: Final[Mapping[str, str]] = {
    r"rename\s+to": "give the table another name: drop table forgets this one, create table ... location makes one",
    r"set\s+tblproperties": "options are given with each write, or as tblproperties of create table",
    r"unset\s+tblproperties": "options are given with each write, or as tblproperties of create table",
    r"set\s+location": "create table ... location names the other table",
    r"replace\s+columns?": "drop and add the columns, one by one",
    r"(?:add|drop)\s+constraint": "validators of writes check rows: hoodie.precommit.validators",
    r"add\s+(?:if\s+not\s+exists\s+)?partition": "partitions come with their first rows",
}


@dataclass(frozen=True, slots=True)
class AlterColumns:
    """An ``alter table`` statement that changes columns. With ``if_exists``, missing columns are not dropped."""

    target: TableName
    changes: tuple[Change, ...]
    if_exists: bool = False


def read_alter(text: str) -> AddColumns | AlterColumns | DropPartitions:
    """Parse an ``alter table`` statement.

    Raises:
        InvalidInputError: if it cannot be parsed or is not supported; the message suggests an alternative.
    """
    target, rest = table_and_rest(text, r"alter\s+table(?:\s+if\s+exists)?")
    for pattern, cure in _UNSUPPORTED_ALTERS.items():
        if refused := re.match(pattern, rest, re.IGNORECASE):
            raise InvalidInputError(f"alter table ... {refused[0].lower()} is not supported; {cure}")
    if (changed := _read_changes(target, rest)) is not None:
        return changed
    actions = syntax_tree(text).args.get("actions") or []
    definitions = [definition for action in actions for definition in (action.expressions or [action])]
    kinds = {type(action).__name__ for action in actions}
    if kinds and kinds <= {"Schema", "ColumnDef"}:
        columns = [action for action in actions if type(action).__name__ == "ColumnDef"] or definitions
        fields = [arrow_field(column, with_default=True) for column in columns]
        check_optional(fields, "")
        if (placed := _placed_columns(columns, fields)) is not None:
            return AlterColumns(target, placed)
        return AddColumns(target, pa.schema(fields), any(bool(column.args.get("exists")) for column in columns))
    if kinds == {"DropPartition"}:
        return DropPartitions(target, tuple(partition_spec(definition) for definition in definitions))
    actions_text = quote_sql(" ".join(action.sql("spark") for action in actions))
    raise InvalidInputError(
        f"alter table ... {actions_text} is not supported; write add, rename, drop or alter column, or drop partition"
    )


def _read_changes(target: TableName, clause: str) -> AlterColumns | None:
    """Parse the part of an ``alter table`` after the table's name. Return None if it does not change columns.

    Raises:
        InvalidInputError: if a type or a clause is not supported.
    """
    clause = clause.strip().rstrip(";").strip()
    if match := _RENAME.fullmatch(clause):
        return AlterColumns(target, (RenameColumn(_path(match["path"]), _path(match["name"])),))
    if match := _DROP.fullmatch(clause):
        columns = (_REPEATED.sub("", name.strip()) for name in match["list"].strip().strip("()").split(","))
        return AlterColumns(target, tuple(DropColumn(_whole_path(name)) for name in columns), bool(match["exists"]))
    if match := _ALTER.fullmatch(clause):
        return AlterColumns(target, tuple(_alter(_path(match["path"]), match["rest"].strip())))
    if match := _CHANGE.fullmatch(clause):
        return AlterColumns(target, tuple(_change(_path(match["path"]), _path(match["name"]), match["rest"].strip())))
    return None


def _alter(path: str, rest: str) -> Iterable[Change]:
    if match := _TYPE.fullmatch(rest):
        yield RetypeColumn(path, parse_type(match["type"]))
    elif match := _PLACE.fullmatch(rest):
        yield MoveColumn(path, "" if match["first"] else _path(match["after"]))
    else:
        raise InvalidInputError(
            f"alter column {path} {quote_sql(rest)} is not supported; write type, first or after, or drop the column"
        )


def _change(path: str, name: str, rest: str) -> Iterable[Change]:
    """Yield the changes of ``change column old new type [first | after other]``."""
    if name != path.rpartition(".")[2]:
        yield RenameColumn(path, name)
        path = f"{path.rpartition('.')[0]}.{name}".lstrip(".")
    place = _PLACE.search(rest)
    yield RetypeColumn(path, parse_type(rest[: place.start()] if place else rest))
    if place:
        yield MoveColumn(path, "" if place["first"] else _path(place["after"]))


def _placed_columns(nodes: Sequence[Any], fields: Sequence[pa.Field]) -> tuple[AddColumn, ...] | None:
    """Return the new columns of ``add columns`` if one has a place, a default or a column around it; else None."""
    columns = [
        AddColumn(_node_path(node.this), field.type, _place_of(node), _default_of(node))
        for node, field in zip(nodes, fields, strict=True)
    ]
    is_plain = all(column.after is None and column.default is None and "." not in column.path for column in columns)
    return None if is_plain else tuple(columns)


def _default_of(node: Any) -> Any:
    """Return the value of ``default``, a number, a text or a boolean; None if there is none."""
    for constraint in node.args.get("constraints") or ():
        if type(constraint.kind).__name__ == "DefaultColumnConstraint":
            try:
                return constraint.kind.this.to_py()
            except ValueError:
                default = quote_sql(constraint.sql("spark"))
                raise InvalidInputError(f"{default} is not a literal; add the column and update the rows") from None
    return None


def _node_path(node: Any) -> str:
    if type(node).__name__ == "Dot":
        return f"{_node_path(node.this)}.{node.expression.name}"
    return str(node.name)


def _place_of(node: Any) -> str | None:
    place = node.args.get("position")
    if place is None:
        return None
    return str(place.this.name) if place.this is not None else ""


def _path(text: str) -> str:
    """Return a path without the quotes of its names."""
    return ".".join(part.strip('`"') for part in re.findall(NAME_PART, text))


def _whole_path(text: str) -> str:
    if not _PATH.fullmatch(text):
        raise InvalidInputError(f"{quote_sql(text)} is no column; write drop columns (a, b)")
    return _path(text)
