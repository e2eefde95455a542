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
from lakeformat.sql_statements.index_statements import IndexStatement, read_index_statement
from lakeformat.sql_statements.maintenance import (
    READERS,
    DescribeTable,
    Optimize,
    RestoreTable,
    ShowTable,
    ShowTables,
    TruncateTable,
    Vacuum,
)
from lakeformat.sql_statements.parse import NAME, Call, Dialect, Query, TableName, first_word, read_call, table_of_match
from lakeformat.sql_statements.read_changes import Change, find_change

__all__ = ["AnyStatement", "TableStatement", "recognize"]

#: Statements on one existing table that describe it, change its columns, delete partitions, or run table services.
TableStatement: TypeAlias = (
    AddColumns
    | AlterColumns
    | DescribeTable
    | DropPartitions
    | IndexStatement
    | Optimize
    | RestoreTable
    | ShowTable
    | TruncateTable
    | Vacuum
)
AnyStatement: TypeAlias = Change | Call | Query | TableStatement | CreateTable | DropTable | ShowTables

_COMMENTS: Final = r"(?:\s|--[^\n]*\n|/\*.*?\*/)*"
_CREATE: Final = re.compile(
    rf"{_COMMENTS}create\s+(?:or\s+replace\s+)?(?:external\s+)?table\s+(?:if\s+not\s+exists\s+)?{NAME}(?P<rest>.*)",
    re.IGNORECASE | re.DOTALL,
)
_USING: Final = re.compile(r"\busing\s+(?:lakehouse|hudi|delta)\b", re.IGNORECASE)
_DEFINED: Final = re.compile(
    rf"{_COMMENTS}(?:drop|alter)\s+table\s+(?:if\s+exists\s+)?{NAME}", re.IGNORECASE | re.DOTALL
)
#: Verbs of statements that hosts do not have. lakeformat runs such a statement even if its table is not known, so that
#: the user gets lakeformat's error about the table, and not the host's error about the syntax.
_OWN_VERBS: Final = frozenset({"optimize", "vacuum", "restore"})
#: First words of statements about indexes.
_INDEX_VERBS: Final = frozenset({"create", "drop", "show"})


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

    word, plain = first_word(text), re.sub(rf"^{_COMMENTS}", "", text, flags=re.DOTALL)
    if word in _INDEX_VERBS and (of_index := read_index_statement(plain, is_lakeformat_table)) is not None:
        return of_index
    if word == "create":
        found = _CREATE.match(text)
        is_lakeformat = found is not None and (found["path"] or _USING.search(found["rest"]))
        return (read_create(text) if is_lakeformat else None) or Query(text)
    if word == "call":
        return read_call(text)
    if word in _DEFINED_READERS:
        found = _DEFINED.match(text)
        return (
            _DEFINED_READERS[word](plain)
            if found is not None and is_lakeformat_table(table_of_match(found))
            else Query(text)
        )
    if word not in READERS:
        return find_change(text, dialect) or Query(text)
    statement = READERS[word](plain)
    if statement is None or not (
        isinstance(statement, ShowTables) or word in _OWN_VERBS or is_lakeformat_table(statement.target)
    ):
        return Query(text)
    return statement


_DEFINED_READERS: Final[Mapping[str, Callable[[str], AddColumns | AlterColumns | DropPartitions | DropTable]]] = {
    "drop": read_drop,
    "alter": read_alter,
}
