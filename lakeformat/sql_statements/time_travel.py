"""Tables in a text that need a name before its host can compute it: paths, ``t version as of 3``,
``t timestamp as of '2026-01-01'``, and Hudi's ``hudi_table_changes('t', 'latest_state', 'earliest')``.

Version n is the n-th commit, from 0, as ``describe history`` numbers them; an instant time is a version, too. What
finds them in the text is pure.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from hashlib import sha1
from typing import Final, TypeAlias

from lakeformat.errors import InstantNotAvailableError, InvalidInputError
from lakeformat.model.instant import AsOf
from lakeformat.sql_statements.parse import Dialect, Kind, TableName, Token, close_of, name_at, table_of, tokens_of
from lakeformat.timeline.store import TimelineStore

__all__ = ["ChangedTable", "FoundTable", "PastTable", "PathTable", "as_of", "commit_times", "replace_tables"]

_CHANGES: Final = "hudi_table_changes"
_VERSION_WORDS: Final = frozenset({"version", "system_version", "timestamp", "system_time"})
#: Words behind a table that are no alias of it.
_NO_ALIAS: Final = frozenset({
    "where", "join", "on", "using", "group", "order", "sort", "cluster", "distribute", "left", "right", "inner", "full",
    "cross", "natural", "semi", "anti", "asof", "positional", "lateral", "union", "except", "minus", "intersect",
    "limit", "offset", "having", "window", "qualify", "pivot", "unpivot", "tablesample", "when", "then", "set",
    "values", "returning", "select",
})  # fmt: skip
#: Words before a path in quotes, where it names a table.
_BEFORE_PATH: Final = frozenset({"from", "join", "into", "update", "using", "table"})
_EARLIEST: Final = "000"
#: Above this a number is an instant time.
_MOST_VERSIONS: Final = 10**9


@dataclass(frozen=True, slots=True)
class PathTable:
    """A table at a path, as it is now."""

    path: str


@dataclass(frozen=True, slots=True)
class PastTable:
    """A table as it was; ``kind``: ``version`` or ``timestamp``."""

    target: TableName
    kind: str
    point: str


@dataclass(frozen=True, slots=True)
class ChangedTable:
    """Rows that commits after ``since`` wrote, up to and with ``until``; with ``images`` every change instead."""

    target: TableName
    images: bool
    since: str
    until: str | None


FoundTable: TypeAlias = PathTable | PastTable | ChangedTable


def replace_tables(
    text: str, dialect: Dialect, is_known: Callable[[str], bool], is_there: Callable[[str], bool]
) -> tuple[str, dict[str, FoundTable]]:
    """Put plain names in the place of paths, tables of the past and changes; return them with what they mean.

    Args:
        is_known: whether a name is that of a table of ours; others are left to the host.
        is_there: whether a table of ours is at a path that is written without a format, as DuckDB writes files.

    Raises:
        InvalidInputError: the arguments of ``hudi_table_changes`` cannot be read.
    """
    tokens, found, pieces, copied, at = tokens_of(text, dialect), {}, [], 0, 0
    while at < len(tokens):
        end, what, alias = _table_at(tokens, at, dialect, is_known, is_there)
        if what is not None:
            name = (
                f"lakeformat_{_KINDS[type(what)]}_{sha1(repr(what).encode(), usedforsecurity=False).hexdigest()[:12]}"
            )
            found[name] = what
            pieces += [text[copied : tokens[at].at], name, alias]
            copied = tokens[end - 1].end
        at = end
    return "".join([*pieces, text[copied:]]), found


_KINDS: Final = {PathTable: "path", PastTable: "past", ChangedTable: "changes"}


def _table_at(
    tokens: Sequence[Token],
    at: int,
    dialect: Dialect,
    is_known: Callable[[str], bool],
    is_there: Callable[[str], bool],
) -> tuple[int, FoundTable | None, str]:
    """Look at one place; return the word behind it, the table if one is there, and the alias that it needs."""
    if tokens[at].lower == _CHANGES and at + 1 < len(tokens) and tokens[at + 1].value == "(":
        close = close_of(tokens, at + 1)
        return close + 1, _changed(tokens[at + 2 : close], is_known), ""
    end = name_at(tokens, at)
    if end == at:
        return at + 1, None, ""
    target = table_of(tokens[at:end])
    past = _past(tokens, end)
    if past is not None and (target.path is not None or is_known(target.name)):
        after, kind, said = past
        return after, PastTable(target, kind, said), _needed_alias(tokens, after, target)
    if target.path is not None:
        before = tokens[at - 1].lower if at else ""
        written_plainly = end == at + 1
        if not written_plainly or (dialect is Dialect.DUCKDB and before in _BEFORE_PATH and is_there(target.path)):
            return end, PathTable(target.path), ""
    return end, None, ""


def _past(tokens: Sequence[Token], at: int) -> tuple[int, str, str] | None:
    """Read ``[for] version as of 3``: the word behind it, ``version`` or ``timestamp``, and what is said."""
    at += at < len(tokens) and tokens[at].lower == "for"
    words = [token.lower for token in tokens[at : at + 3]]
    if len(words) < 3 or words[0] not in _VERSION_WORDS or words[1:] != ["as", "of"] or at + 3 >= len(tokens):
        return None
    said = tokens[at + 3]
    if said.kind not in {Kind.TEXT, Kind.NUMBER, Kind.NAME}:
        return None
    return at + 4, "version" if "version" in words[0] else "timestamp", said.value


def _needed_alias(tokens: Sequence[Token], at: int, target: TableName) -> str:
    has_one = at < len(tokens) and tokens[at].is_name and tokens[at].lower not in _NO_ALIAS
    return "" if has_one or target.path else f" as {target.qualifier}"


def _changed(arguments: Sequence[Token], is_known: Callable[[str], bool]) -> ChangedTable:
    """Read the arguments of Hudi's function: table or path, ``latest_state`` or ``cdc``, begin, and maybe an end."""
    said = [token.value for token in arguments[::2]]
    commas = all(token.value == "," for token in arguments[1::2])
    if not commas or len(said) not in {3, 4} or said[1].lower() not in {"latest_state", "cdc"}:
        raise InvalidInputError(
            f"hudi_table_changes({' '.join(token.value for token in arguments)}) cannot be read; write "
            "hudi_table_changes('table or path', 'latest_state' or 'cdc', 'earliest' or an instant[, an instant])"
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
