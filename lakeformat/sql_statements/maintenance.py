"""Parsing of statements that describe or maintain a table into dataclasses. No I/O.

The statements are ``describe``, ``show``, ``optimize``, ``vacuum``, ``restore``, ``truncate`` and those about indexes,
in the syntax of the guides of Spark, Hudi and Delta. Each is one row of a table and one function.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final, TypeAlias

from lakeformat.errors import InvalidInputError
from lakeformat.sql_statements.ddl import partition_spec
from lakeformat.sql_statements.parse import TableName, first_word, form, quote_sql, syntax_tree, table_of_match
from lakeformat.sql_statements.time_travel import PastTable

__all__ = [
    "CreateIndex",
    "DescribeTable",
    "DropIndex",
    "IndexStatement",
    "Optimize",
    "RestoreTable",
    "ShowIndexes",
    "ShowTable",
    "ShowTables",
    "TruncateTable",
    "Upkeep",
    "Vacuum",
    "read_upkeep",
]


@dataclass(frozen=True, slots=True)
class DescribeTable:
    """A ``describe`` statement.

    Attributes:
        what: ``columns``, ``extended``, ``detail`` or ``history``.
        limit: maximum number of entries of ``history``; None for all.
    """

    target: TableName
    what: str = "columns"
    limit: int | None = None


@dataclass(frozen=True, slots=True)
class ShowTable:
    """A ``show`` statement; ``what`` is ``partitions``, ``create`` or ``tblproperties``."""

    target: TableName
    what: str


@dataclass(frozen=True, slots=True)
class ShowTables:
    """A ``show tables`` statement; ``like`` is a pattern in which ``*`` matches any text."""

    like: str | None = None


@dataclass(frozen=True, slots=True)
class TruncateTable:
    """A ``truncate table`` statement. ``partition`` maps columns to values as text; None deletes all rows."""

    target: TableName
    partition: Mapping[str, str | None] | None = None


@dataclass(frozen=True, slots=True)
class Optimize:
    """An ``optimize`` statement. ``where`` selects partitions; ``by`` are the columns of ``zorder by``."""

    target: TableName
    where: str | None = None
    by: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Vacuum:
    """A ``vacuum`` statement. ``hours`` is the number of hours after ``retain``; None if there is no such clause."""

    target: TableName
    hours: int | None = None
    dry_run: bool = False


class RestoreTable(PastTable):
    """A ``restore table ... to`` statement: the state that the table gets back."""


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
Upkeep: TypeAlias = DescribeTable | IndexStatement | Optimize | RestoreTable | ShowTable | TruncateTable | Vacuum
_Match: TypeAlias = re.Match[str]


def _describe(match: _Match) -> DescribeTable:
    what = (match["what"] or "columns").lower().replace("formatted", "extended")
    if match["limit"] is not None and what != "history":
        raise InvalidInputError(f"limit is for describe history, not for describe {what}; leave it out")
    return DescribeTable(table_of_match(match), what, int(match["limit"]) if match["limit"] else None)


def _show(match: _Match) -> ShowTable:
    what = match["what"].lower().split()[0]
    if rest := match["rest"].strip():
        raise InvalidInputError(f"show {what} ... {quote_sql(rest)} is not supported; leave it out")
    return ShowTable(table_of_match(match), what)


def _truncate(match: _Match) -> TruncateTable:
    if match["partition"] is None:
        return TruncateTable(table_of_match(match))
    partition = syntax_tree(f"truncate table t {match['partition']}").args["partition"]
    return TruncateTable(table_of_match(match), partition_spec(partition))


def _optimize(match: _Match) -> Optimize:
    if match["full"]:
        raise InvalidInputError(
            "optimize ... full is not supported; name the columns: optimize ... zorder by (columns)"
        )
    return Optimize(table_of_match(match), match["where"], _names(match["by"]))


def _vacuum(match: _Match) -> Vacuum:
    way = " ".join((match["way"] or "lite").lower().split())
    if way != "lite":
        raise InvalidInputError(
            f"vacuum ... {way} is not supported: files that no commit knows are put aside by repair; leave it out"
        )
    return Vacuum(table_of_match(match), int(match["hours"]) if match["hours"] else None, match["dry"] is not None)


def _restore(match: _Match) -> RestoreTable:
    return RestoreTable(table_of_match(match), match["kind"].lower(), match["said"].strip("'"))


def _create_index(match: _Match) -> CreateIndex:
    index, using = match["index"], match["using"]
    if rest := match["rest"].strip():
        raise InvalidInputError(
            f"create index ... {quote_sql(rest)} is not supported: lakeformat makes no expression index; leave it out, "
            "or let Hudi make the index"
        )
    if using is not None and using.lower() != index.lower():
        raise InvalidInputError(
            f"create index {index} ... using {using} is an expression index, which lakeformat does not make; write "
            f"create index {using} on table"
        )
    return CreateIndex(table_of_match(match), index.lower(), _names(match["columns"]), match["unless"] is not None)


def _drop_index(match: _Match) -> DropIndex:
    return DropIndex(table_of_match(match), match["index"].lower(), match["unless"] is not None)


def _names(listed: str | None) -> tuple[str, ...]:
    """Return the names of a list, in parentheses or not, without quotes."""
    names = re.sub(r"[()`\"]", "", listed or "").split(",")
    return tuple(name.strip() for name in names if name.strip())


@dataclass(frozen=True, slots=True)
class _Row:
    """A form of statements.

    Attributes:
        verbs: the first words.
        form: the pattern of a whole statement.
        read: makes the statement of a match.
        shape: how to write it. Another text with the verb is refused by this; if it is empty, the host gets that text.
        is_own: whether it is lakeformat's even if its table is not known, or if it has none.
    """

    verbs: tuple[str, ...]
    form: re.Pattern[str]
    read: Callable[[_Match], Upkeep | ShowTables]
    shape: str = ""
    is_own: bool = False


_ROWS: Final = (
    _Row(
        ("create",),
        form(
            "create index [{unless:if not exists}] `?{index:word}`? on [table] {table} [using {using:word}]"
            "{columns:list}?{rest:rest}"
        ),
        _create_index,
    ),
    _Row(("drop",), form("drop index [{unless:if exists}] `?{index:word}`? on [table] {table}"), _drop_index),
    _Row(
        ("show",),
        form("show index(?:es)? (?:from|in|on) [table] {table}"),
        lambda match: ShowIndexes(table_of_match(match)),
    ),
    _Row(
        ("show",),
        form("show tables [like] [{like:quoted}]"),
        lambda match: ShowTables(match["like"] and match["like"].strip("'")),
        is_own=True,
    ),
    _Row(("show",), form("show {what:partitions|create table|tblproperties} {table}{rest:rest}"), _show),
    _Row(
        ("describe", "desc"),
        form("desc(?:ribe)? [table] [{what:extended|formatted|detail|history}] {table} [limit {limit:number}]"),
        _describe,
    ),
    _Row(
        ("truncate",),
        form(r"truncate table {table} [{partition:partition\s*\(.*\)}]"),
        _truncate,
        "truncate table name [partition (column = value)]",
    ),
    # Hosts have no such verbs. If the table is not known, the user gets our error about it, not one about the syntax.
    _Row(
        ("optimize",),
        form(r"optimize [table] {table} [{full:full}] [where {where:some}] [zorder by\s*{by:columns}]"),
        _optimize,
        "optimize name [where condition] [zorder by (columns)]",
        is_own=True,
    ),
    _Row(
        ("vacuum",),
        form(
            r"vacuum [table] {table} [{way:full|lite|using inventory\b.*?}]"
            " [retain {hours:number} hours?] [{dry:dry run}]"
        ),
        _vacuum,
        "vacuum name [retain n hours] [dry run]",
        is_own=True,
    ),
    _Row(
        ("restore",),
        form("restore [table] {table} to {kind:version|timestamp} as of {said:moment}"),
        _restore,
        "restore table name to version as of n, or to timestamp as of '...'",
        is_own=True,
    ),
)


def read_upkeep(text: str, is_ours: Callable[[TableName], bool]) -> Upkeep | ShowTables | None:
    """Parse a statement of one of the forms; return None for another one, or one about a table that is not ours.

    Args:
        is_ours: tells whether a table is one of lakeformat.

    Raises:
        InvalidInputError: if it has another form than its verb has, or a clause that is not supported.
    """
    verb, plain = first_word(text), text.strip()
    rows = [row for row in _ROWS if verb in row.verbs]
    for row in rows:
        if match := row.form.fullmatch(plain):
            return row.read(match) if row.is_own or is_ours(table_of_match(match)) else None
    if rows and rows[-1].shape:
        raise InvalidInputError(f"cannot read {quote_sql(text)}; write {rows[-1].shape}")
    return None
