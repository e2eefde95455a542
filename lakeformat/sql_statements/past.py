"""Time travel in SQL: ``t version as of 3``, ``t timestamp as of '2026-01-01'``; what has changed since, by Hudi's
``hudi_table_changes('t', 'latest_state', 'earliest')``. What stands in the text is pure.

Version n is the n-th commit, from 0, as ``describe history`` numbers them; an instant time is a version, too.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from hashlib import sha1
from typing import Final

from lakeformat.errors import InstantNotAvailableError, InvalidInputError
from lakeformat.model.instant import AsOf
from lakeformat.sql_statements.parse import TableName
from lakeformat.sql_statements.words import NAME, named_in
from lakeformat.timeline.store import TimelineStore

__all__ = ["ChangedTable", "PastTable", "as_of", "commit_times", "past_tables"]

_SKIPPED: Final = r"(?P<skip>'(?:[^'\\]|\\.|'')*'|\"(?:[^\"\\]|\\.)*\"|--[^\n]*|/\*.*?\*/)"
_PAST: Final = re.compile(
    rf"{_SKIPPED}|(?<![\w.`]){NAME}\s+(?:for\s+)?(?P<kind>(?:system_)?version|timestamp|system_time)\s+as\s+of\s+"
    r"(?P<said>\d+|'[^']*'|\"[^\"]*\")(?P<alias>\s+(?:as\s+\w+|(?!(?:%s)\b)\w+))?"
    % "where|join|on|using|group|order|sort|cluster|distribute|left|right|inner|full|cross|natural|semi|anti|lateral|"
    "union|except|minus|intersect|limit|offset|having|window|qualify|pivot|unpivot|tablesample|when|then",
    re.IGNORECASE | re.DOTALL,
)
_CHANGES: Final = re.compile(r"\bhudi_table_changes\s*\((?P<arguments>[^()]*)\)", re.IGNORECASE)
_EARLIEST: Final = "000"
#: Above this a number is an instant time.
_MOST_VERSIONS: Final = 10**9


@dataclass(frozen=True, slots=True)
class PastTable:
    """A table as it was; ``kind``: ``version`` or ``timestamp``."""

    target: TableName
    kind: str
    said: str


@dataclass(frozen=True, slots=True)
class ChangedTable:
    """Rows that commits after ``since`` wrote, up to and with ``until``; with ``images`` every change instead."""

    target: TableName
    images: bool
    since: str
    until: str | None


def past_tables(text: str, is_known: Callable[[str], bool]) -> tuple[str, dict[str, PastTable | ChangedTable]]:
    """The text with plain names in the place of tables of the past and of changes, and what they stand for.

    Args:
        is_known: whether a name is that of a table of ours; others are left to whoever computes the query.

    Raises:
        InvalidInputError: arguments of ``hudi_table_changes`` that cannot be read.
    """
    found: dict[str, PastTable | ChangedTable] = {}

    def named(what: PastTable | ChangedTable) -> str:
        name = f"lakeformat_past_{sha1(repr(what).encode(), usedforsecurity=False).hexdigest()[:12]}"
        found[name] = what
        return name

    def replaced(match: re.Match[str]) -> str:
        if match["skip"] is not None:
            return match[0]
        target = named_in(match)
        if target.path is None and not is_known(target.name):
            return match[0]
        kind = "version" if "version" in match["kind"].lower() else "timestamp"
        alias = match["alias"] or ("" if target.path else f" as {target.called}")
        return named(PastTable(target, kind, match["said"].strip("'\""))) + alias

    changes = _CHANGES.sub(lambda match: named(_changed(match["arguments"], is_known)), text)
    return _PAST.sub(replaced, changes), found


def _changed(arguments: str, is_known: Callable[[str], bool]) -> ChangedTable:
    """Of Hudi's function: table or path, ``latest_state`` or ``cdc``, begin, and an end if there is one."""
    said = [each.strip().strip("'\"") for each in arguments.split(",")]
    if len(said) not in {3, 4} or said[1].lower() not in {"latest_state", "cdc"}:
        raise InvalidInputError(
            f"hudi_table_changes({arguments}) cannot be read; write hudi_table_changes('table or path', 'latest_state' "
            "or 'cdc', 'earliest' or an instant[, an instant])"
        )
    target = TableName(said[0], None if is_known(said[0]) else said[0])
    since = _EARLIEST if said[2].lower() == "earliest" else said[2]
    return ChangedTable(target, said[1].lower() == "cdc", since, said[3] if len(said) == 4 else None)


def commit_times(store: TimelineStore) -> list[str]:
    """Instant times of all commits, archived ones too, oldest first: the place in it is a commit's version."""
    timeline = store.load()
    archived = {each.time for each in store.archived().completed_in("")}
    return sorted(archived | timeline.commit_times)


def as_of(store: TimelineStore, kind: str, said: str) -> AsOf:
    """What a statement's version or timestamp is to reads.

    Raises:
        InstantNotAvailableError: there is no such version.
    """
    if kind == "timestamp" or not said.isdigit() or int(said) > _MOST_VERSIONS:
        return said
    times = commit_times(store)
    if int(said) >= len(times):
        there = f"versions 0 to {len(times) - 1}" if times else "no commit yet"
        raise InstantNotAvailableError(f"{store.storage.location} has no version {said}; it has {there}")
    return times[int(said)]
