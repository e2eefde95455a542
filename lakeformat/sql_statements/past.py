"""Time travel in SQL: ``t version as of 3``, ``t timestamp as of '2026-01-01'``. What stands in the text is pure.

Version n is the n-th commit, from 0, as ``describe history`` numbers them; an instant time is a version, too.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from hashlib import sha1
from typing import Final

from lakeformat.errors import InstantNotAvailableError
from lakeformat.model.instant import AsOf
from lakeformat.sql_statements.parse import TableName
from lakeformat.sql_statements.words import NAME, named_in
from lakeformat.timeline.store import TimelineStore

__all__ = ["PastTable", "as_of", "commit_times", "past_tables"]

_SKIPPED: Final = r"(?P<skip>'(?:[^'\\]|\\.|'')*'|\"(?:[^\"\\]|\\.)*\"|--[^\n]*|/\*.*?\*/)"
_PAST: Final = re.compile(
    rf"{_SKIPPED}|(?<![\w.`]){NAME}\s+(?:for\s+)?(?P<kind>(?:system_)?version|timestamp|system_time)\s+as\s+of\s+"
    r"(?P<said>\d+|'[^']*'|\"[^\"]*\")(?P<alias>\s+(?:as\s+\w+|(?!(?:%s)\b)\w+))?"
    % "where|join|on|using|group|order|sort|cluster|distribute|left|right|inner|full|cross|natural|semi|anti|lateral|"
    "union|except|minus|intersect|limit|offset|having|window|qualify|pivot|unpivot|tablesample|when|then",
    re.IGNORECASE | re.DOTALL,
)
#: Above this a number is an instant time.
_MOST_VERSIONS: Final = 10**9


@dataclass(frozen=True, slots=True)
class PastTable:
    """A table as it was; ``kind``: ``version`` or ``timestamp``."""

    target: TableName
    kind: str
    said: str


def past_tables(text: str, is_known: Callable[[str], bool]) -> tuple[str, dict[str, PastTable]]:
    """The text with plain names in the place of tables of the past, and what they stand for.

    Args:
        is_known: whether a name is that of a table of ours; others are left to whoever computes the query.
    """
    found: dict[str, PastTable] = {}

    def replaced(match: re.Match[str]) -> str:
        if match["skip"] is not None:
            return match[0]
        target = named_in(match)
        if target.path is None and not is_known(target.name):
            return match[0]
        kind = "version" if "version" in match["kind"].lower() else "timestamp"
        past = PastTable(target, kind, match["said"].strip("'\""))
        name = f"lakeformat_past_{sha1(repr(past).encode(), usedforsecurity=False).hexdigest()[:12]}"
        found[name] = past
        alias = match["alias"] or ("" if target.path else f" as {target.called}")
        return f"{name}{alias}"

    return _PAST.sub(replaced, text), found


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
