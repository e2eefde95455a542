"""Which statement of ours a text is, if any: the one door for every host. Pure."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Final, TypeAlias

from lakeformat.sql_statements.ddl import (
    AddColumns,
    CreateTable,
    DropPartitions,
    DropTable,
    read_alter,
    read_create,
    read_drop,
)
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
from lakeformat.sql_statements.parse import NAME, Call, Dialect, Query, TableName, first_word, named_in, read_call
from lakeformat.sql_statements.read_changes import Change, find_change

__all__ = ["AnyStatement", "TableStatement", "understand"]

#: What is done to one table, or asked of it, and changes none of its rows but whole files of them.
TableStatement: TypeAlias = (
    AddColumns | DescribeTable | DropPartitions | Optimize | RestoreTable | ShowTable | TruncateTable | Vacuum
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
#: Verbs that only tables of ours have: of a table that is not known they say so.
_OURS: Final = frozenset({"optimize", "vacuum", "restore"})


def understand(text: str, dialect: Dialect, is_known: Callable[[str], bool]) -> AnyStatement:
    """Read one statement. A `Query` is everything that is left to the host, a `Change` what the host computes.

    Args:
        is_known: whether a name is that of a table of ours.

    Raises:
        InvalidInputError: a statement of ours that cannot be read, or a clause that is not supported; names it.
        InvalidOptionError: sqlglot is not installed, or a property is not known.
    """

    def ours(target: TableName) -> bool:
        return target.path is not None or is_known(target.name)

    word, plain = first_word(text), re.sub(rf"^{_COMMENTS}", "", text, flags=re.DOTALL)
    if word == "create":
        found = _CREATE.match(text)
        made_here = found is not None and (found["path"] or _USING.search(found["rest"]))
        return (read_create(text) if made_here else None) or Query(text)
    if word == "call":
        return read_call(text)
    if word in _DEFINED_READERS:
        found = _DEFINED.match(text)
        return _DEFINED_READERS[word](plain) if found is not None and ours(named_in(found)) else Query(text)
    if word not in READERS:
        return find_change(text, dialect) or Query(text)
    said = READERS[word](plain)
    if said is None or not (isinstance(said, ShowTables) or word in _OURS or ours(said.target)):
        return Query(text)
    return said


_DEFINED_READERS: Final[Mapping[str, Callable[[str], AddColumns | DropPartitions | DropTable]]] = {
    "drop": read_drop,
    "alter": read_alter,
}
