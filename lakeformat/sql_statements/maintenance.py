"""Statements that look at a table or keep it in order, as values: ``describe``, ``show``, ``optimize``, ``vacuum``,
``restore``, ``truncate``, as the guides of Spark, Hudi and Delta write them. Pure.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from lakeformat.errors import InvalidInputError
from lakeformat.sql_statements.ddl import partition_spec
from lakeformat.sql_statements.parse import NAME, TableName, named_in, shortened, syntax_tree

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
    """``describe``; ``what``: ``columns``, ``extended``, ``detail`` or ``history``, then at most ``limit`` commits."""

    target: TableName
    what: str = "columns"
    limit: int | None = None


@dataclass(frozen=True, slots=True)
class ShowTable:
    """``show partitions``, ``show create table`` or ``show tblproperties``: ``what`` is that word."""

    target: TableName
    what: str


@dataclass(frozen=True, slots=True)
class ShowTables:
    """``show tables``; ``like``: with ``*`` for any text."""

    like: str | None = None


@dataclass(frozen=True, slots=True)
class TruncateTable:
    """``truncate table``; ``partition``: column -> the value's text, None is all rows."""

    target: TableName
    partition: Mapping[str, str | None] | None = None


@dataclass(frozen=True, slots=True)
class Optimize:
    """``optimize``; ``where``: which partitions; ``by``: columns of ``zorder by``."""

    target: TableName
    where: str | None = None
    by: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Vacuum:
    """``vacuum``; ``hours``: of ``retain``."""

    target: TableName
    hours: int | None = None
    dry_run: bool = False


@dataclass(frozen=True, slots=True)
class RestoreTable:
    """``restore table ... to``; ``kind``: ``version`` or ``timestamp``."""

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


def _matched(pattern: re.Pattern[str], text: str, shape: str) -> re.Match[str]:
    found = pattern.fullmatch(text.strip())
    if found is None:
        raise InvalidInputError(f"cannot read {shortened(text)}; write {shape}")
    return found


def _describe(text: str) -> DescribeTable | None:
    found = _DESCRIBE.fullmatch(text.strip())
    if found is None:
        return None
    what = (found["what"] or "columns").lower().replace("formatted", "extended")
    if found["limit"] is not None and what != "history":
        raise InvalidInputError(f"limit is for describe history, not for describe {what}; leave it out")
    return DescribeTable(named_in(found), what, int(found["limit"]) if found["limit"] else None)


def _show(text: str) -> ShowTable | ShowTables | None:
    if tables := _SHOW_TABLES.fullmatch(text.strip()):
        return ShowTables(tables["like"])
    found = _SHOW.fullmatch(text.strip())
    if found is None:
        return None
    what = found["what"].lower().split()[0]
    if rest := found["rest"].strip():
        raise InvalidInputError(f"show {what} ... {shortened(rest)} is not supported; leave it out")
    return ShowTable(named_in(found), what)


def _truncate(text: str) -> TruncateTable:
    found = _matched(_TRUNCATE, text, "truncate table name [partition (column = value)]")
    if found["partition"] is None:
        return TruncateTable(named_in(found))
    partition = syntax_tree(f"truncate table t {found['partition']}").args["partition"]
    return TruncateTable(named_in(found), partition_spec(partition))


def _optimize(text: str) -> Optimize:
    found = _matched(_OPTIMIZE, text, "optimize name [where condition] [zorder by (columns)]")
    if found["full"]:
        raise InvalidInputError(
            "optimize ... full is not supported; name the columns: optimize ... zorder by (columns)"
        )
    by = (found["by"] or "").strip().strip("()").replace("`", "")
    return Optimize(named_in(found), found["where"], tuple(each.strip() for each in by.split(",") if each.strip()))


def _vacuum(text: str) -> Vacuum:
    found = _matched(_VACUUM, text, "vacuum name [retain n hours] [dry run]")
    way = " ".join((found["way"] or "lite").lower().split())
    if way != "lite":
        raise InvalidInputError(
            f"vacuum ... {way} is not supported: files that no commit knows are put aside by repair; leave it out"
        )
    return Vacuum(named_in(found), int(found["hours"]) if found["hours"] else None, found["dry"] is not None)


def _restore(text: str) -> RestoreTable:
    found = _matched(_RESTORE, text, "restore table name to version as of n, or to timestamp as of '...'")
    return RestoreTable(named_in(found), found["kind"].lower(), found["said"].strip("'"))


#: The verb -> who reads it; None where the statement is not for a table.
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
