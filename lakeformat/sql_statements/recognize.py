"""Recognition of lakeformat's statements in SQL text, for all hosts. No I/O."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Final, TypeAlias

from lakeformat.sql_statements.alter import AlterColumns, read_alter
from lakeformat.sql_statements.ddl import (
    AddColumns,
    CreateTable,
    DropPartitions,
    DropTable,
    read_create,
    read_drop,
)
from lakeformat.sql_statements.maintenance import ShowTables, Upkeep, read_upkeep
from lakeformat.sql_statements.parse import Call, Dialect, Query, TableName, first_word, form, read_call, table_of_match
from lakeformat.sql_statements.read_changes import Change, find_change

__all__ = ["AnyStatement", "TableStatement", "recognize"]

#: Statements on one existing table that describe it, change its columns, delete partitions, or run table services.
TableStatement: TypeAlias = AddColumns | AlterColumns | DropPartitions | Upkeep
AnyStatement: TypeAlias = Change | Call | Query | TableStatement | CreateTable | DropTable | ShowTables

_COMMENTS: Final = re.compile(r"(?:\s|--[^\n]*\n|/\*.*?\*/)*", re.DOTALL)
_CREATE: Final = form("create [or replace] [external] table [if not exists] {table}{rest:rest}")
_USING: Final = re.compile(r"\busing\s+(?:lakehouse|hudi|delta)\b", re.IGNORECASE)
_DEFINED: Final = form("(?:drop|alter) table [if exists] {table}")


def recognize(text: str, dialect: Dialect, is_known: Callable[[str], bool]) -> AnyStatement:
    """Parse one statement.

    A result of type `Query` is not a statement of lakeformat, so the host must run it unchanged. For a `Change`, the
    host computes the rows, and lakeformat writes them.

    Args:
        is_known: tells whether a name is that of a lakeformat table.

    Raises:
        InvalidInputError: if a lakeformat statement cannot be parsed, or has a clause that is not supported.
        InvalidOptionError: if sqlglot is not installed, or a property is unknown.
    """

    def is_lakeformat_table(target: TableName) -> bool:
        return target.path is not None or is_known(target.name)

    word, plain = first_word(text), _COMMENTS.sub("", text, count=1)
    if (upkeep := read_upkeep(plain, is_lakeformat_table)) is not None:
        return upkeep
    if word == "create":
        match = _CREATE.match(plain)
        is_lakeformat = match is not None and (match["path"] or _USING.search(match["rest"]))
        return (read_create(text) if is_lakeformat else None) or Query(text)
    if word == "call":
        return read_call(text)
    if word in _DEFINED_READERS:
        match = _DEFINED.match(plain)
        is_lakeformat = match is not None and is_lakeformat_table(table_of_match(match))
        return _DEFINED_READERS[word](plain) if is_lakeformat else Query(text)
    return find_change(text, dialect) or Query(text)


_DEFINED_READERS: Final[Mapping[str, Callable[[str], AddColumns | AlterColumns | DropPartitions | DropTable]]] = {
    "drop": read_drop,
    "alter": read_alter,
}
