"""Parsing of ``create index``, ``drop index`` and ``show indexes``, in Hudi's syntax. No I/O."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, TypeAlias

from lakeformat.errors import InvalidInputError
from lakeformat.sql_statements.parse import NAME, TableName, quote_sql, table_of_match

__all__ = ["CreateIndex", "DropIndex", "IndexStatement", "ShowIndexes", "read_index_statement"]


@dataclass(frozen=True, slots=True)
class CreateIndex:
    """A ``create index`` statement.

    Attributes:
        index: name of the index.
        columns: the columns in parentheses; empty if there are none.
        if_not_exists: whether nothing happens if the index is there already.
    """

    target: TableName
    index: str
    columns: tuple[str, ...] = ()
    if_not_exists: bool = False


@dataclass(frozen=True, slots=True)
class DropIndex:
    """A ``drop index`` statement. With ``if_exists`` nothing happens if the index is missing."""

    target: TableName
    index: str
    if_exists: bool = False


@dataclass(frozen=True, slots=True)
class ShowIndexes:
    """A ``show indexes`` statement."""

    target: TableName


IndexStatement: TypeAlias = CreateIndex | DropIndex | ShowIndexes

_CREATE: Final = re.compile(
    rf"create\s+index\s+(?P<unless>if\s+not\s+exists\s+)?`?(?P<index>\w+)`?\s+on\s+(?:table\s+)?{NAME}"
    r"(?:\s+using\s+(?P<using>\w+))?(?:\s*\((?P<columns>[^()]*)\))?(?P<rest>.*)",
    re.I | re.S,
)
_DROP: Final = re.compile(
    rf"drop\s+index\s+(?P<unless>if\s+exists\s+)?`?(?P<index>\w+)`?\s+on\s+(?:table\s+)?{NAME}", re.IGNORECASE
)
_SHOW: Final = re.compile(rf"show\s+index(?:es)?\s+(?:from|in|on)\s+(?:table\s+)?{NAME}", re.IGNORECASE)


def read_index_statement(text: str, is_ours: Callable[[TableName], bool]) -> IndexStatement | None:
    """Parse a statement about the indexes of a table of ours; return None for another statement.

    Args:
        is_ours: tells whether a table is one of lakeformat.

    Raises:
        InvalidInputError: if it has a clause that is not supported.
    """
    plain = text.strip()
    found = next((match for pattern in (_CREATE, _DROP, _SHOW) if (match := pattern.fullmatch(plain))), None)
    if found is None or not is_ours(table_of_match(found)):
        return None
    if found.re is _CREATE:
        return _create(found)
    if found.re is _DROP:
        return DropIndex(table_of_match(found), found["index"].lower(), found["unless"] is not None)
    return ShowIndexes(table_of_match(found))


def _create(found: re.Match[str]) -> CreateIndex:
    index, using = found["index"], found["using"]
    if rest := found["rest"].strip():
        raise InvalidInputError(
            f"create index ... {quote_sql(rest)} is not supported: lakeformat makes no expression index and no "
            "secondary index; leave it out, or let Hudi make the index"
        )
    if using is not None and using.lower() != index.lower():
        raise InvalidInputError(
            f"create index {index} ... using {using} is an expression index, which lakeformat does not make; write "
            f"create index {using} on table"
        )
    columns = (found["columns"] or "").replace("`", "").replace('"', "").split(",")
    named = tuple(each.strip() for each in columns if each.strip())
    return CreateIndex(table_of_match(found), index.lower(), named, found["unless"] is not None)
