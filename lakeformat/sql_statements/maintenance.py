"""Parsing of statements that describe or maintain a table into dataclasses. No I/O.

The statements are ``describe``, ``show``, ``optimize``, ``vacuum``, ``restore`` and ``truncate``, in the syntax of the
guides of Spark, Hudi and Delta.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from lakeformat.errors import InvalidInputError
from lakeformat.sql_statements.ddl import partition_spec
from lakeformat.sql_statements.parse import NAME, TableName, quote_sql, syntax_tree, table_of_match

__all__ = [
    "READERS",
    "DescribeTable",
    "Optimize",
    "RestoreTable",
    "ShowTable",
    "ShowTables",
    "TruncateTable",
    "Vacuum",
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


@dataclass(frozen=True, slots=True)
class RestoreTable:
    """A ``restore table ... to`` statement.

    Attributes:
        kind: ``version`` for the number of a commit or an instant time, ``timestamp`` for a date and time.
        point: the number or time, as the statement gives it.
    """

    target: TableName
    kind: str
    point: str


_DESCRIBE: Final = re.compile(
    rf"desc(?:ribe)?\s+(?:table\s+)?(?:(?P<what>extended|formatted|detail|history)\s+)?{NAME}(?:\s+limit\s+(?P<limit>\d+))?",
    re.IGNORECASE,
)
_SHOW: Final = re.compile(
    rf"show\s+(?P<what>partitions|create\s+table|tblproperties)\s+{NAME}(?P<rest>.*)", re.I | re.S
)
_SHOW_TABLES: Final = re.compile(r"show\s+tables(?:\s+like)?(?:\s+'(?P<like>[^']*)')?", re.IGNORECASE)
_TRUNCATE: Final = re.compile(rf"truncate\s+table\s+{NAME}(?P<partition>\s+partition\s*\(.*\))?", re.I | re.S)
_OPTIMIZE: Final = re.compile(
    rf"optimize\s+(?:table\s+)?{NAME}(?P<full>\s+full)?(?:\s+where\s+(?P<where>.+?))?"
    r"(?:\s+zorder\s+by\s*(?P<by>\(?[^()]+\)?))?",
    re.I | re.S,
)
_VACUUM: Final = re.compile(
    rf"vacuum\s+(?:table\s+)?{NAME}(?:\s+(?P<way>full|lite|using\s+inventory\b.*?))?"
    r"(?:\s+retain\s+(?P<hours>\d+)\s+hours?)?(?P<dry>\s+dry\s+run)?",
    re.I | re.S,
)
_RESTORE: Final = re.compile(
    rf"restore\s+(?:table\s+)?{NAME}\s+to\s+(?P<kind>version|timestamp)\s+as\s+of\s+(?P<said>\d+|'[^']*')",
    re.IGNORECASE,
)


def _match(pattern: re.Pattern[str], text: str, shape: str) -> re.Match[str]:
    found = pattern.fullmatch(text.strip())
    if found is None:
        raise InvalidInputError(f"cannot read {quote_sql(text)}; write {shape}")
    return found


def _describe(text: str) -> DescribeTable | None:
    found = _DESCRIBE.fullmatch(text.strip())
    if found is None:
        return None
    what = (found["what"] or "columns").lower().replace("formatted", "extended")
    if found["limit"] is not None and what != "history":
        raise InvalidInputError(f"limit is for describe history, not for describe {what}; leave it out")
    return DescribeTable(table_of_match(found), what, int(found["limit"]) if found["limit"] else None)


def _show(text: str) -> ShowTable | ShowTables | None:
    if tables := _SHOW_TABLES.fullmatch(text.strip()):
        return ShowTables(tables["like"])
    found = _SHOW.fullmatch(text.strip())
    if found is None:
        return None
    what = found["what"].lower().split()[0]
    if rest := found["rest"].strip():
        raise InvalidInputError(f"show {what} ... {quote_sql(rest)} is not supported; leave it out")
    return ShowTable(table_of_match(found), what)


def _truncate(text: str) -> TruncateTable:
    found = _match(_TRUNCATE, text, "truncate table name [partition (column = value)]")
    if found["partition"] is None:
        return TruncateTable(table_of_match(found))
    partition = syntax_tree(f"truncate table t {found['partition']}").args["partition"]
    return TruncateTable(table_of_match(found), partition_spec(partition))


def _optimize(text: str) -> Optimize:
    found = _match(_OPTIMIZE, text, "optimize name [where condition] [zorder by (columns)]")
    if found["full"]:
        raise InvalidInputError(
            "optimize ... full is not supported; name the columns: optimize ... zorder by (columns)"
        )
    by = (found["by"] or "").strip().strip("()").replace("`", "")
    return Optimize(
        table_of_match(found), found["where"], tuple(each.strip() for each in by.split(",") if each.strip())
    )


def _vacuum(text: str) -> Vacuum:
    found = _match(_VACUUM, text, "vacuum name [retain n hours] [dry run]")
    way = " ".join((found["way"] or "lite").lower().split())
    if way != "lite":
        raise InvalidInputError(
            f"vacuum ... {way} is not supported: files that no commit knows are put aside by repair; leave it out"
        )
    return Vacuum(table_of_match(found), int(found["hours"]) if found["hours"] else None, found["dry"] is not None)


def _restore(text: str) -> RestoreTable:
    found = _match(_RESTORE, text, "restore table name to version as of n, or to timestamp as of '...'")
    return RestoreTable(table_of_match(found), found["kind"].lower(), found["said"].strip("'"))


#: Maps each verb to the function that parses its statements. The function returns None for a ``describe`` or ``show``
#: statement of another form, which Spark or duckdb then runs.
READERS: Final[
    Mapping[
        str,
        Callable[
            [str], DescribeTable | ShowTable | ShowTables | TruncateTable | Optimize | Vacuum | RestoreTable | None
        ],
    ]
] = {
    "describe": _describe,
    "desc": _describe,
    "show": _show,
    "truncate": _truncate,
    "optimize": _optimize,
    "vacuum": _vacuum,
    "restore": _restore,
}
