"""Tables in SQL statements that Spark or duckdb cannot parse: paths, past states and changes of a table.

`replace_tables` replaces each such table by a plain name, under which the engine then registers the rows.

The forms are ``t version as of 3``, ``t timestamp as of '2026-01-01'``, and Hudi's ``hudi_table_changes('t',
'latest_state', 'earliest')``. Version n is the n-th commit, from 0, as ``describe history`` numbers them; an instant
time is also accepted as a version.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from hashlib import sha1
from typing import Final, TypeAlias

from lakeformat.errors import InvalidInputError
from lakeformat.model.instant import parse_as_of
from lakeformat.sql_statements.parse import (
    Dialect,
    Kind,
    TableName,
    Token,
    find_close,
    find_end_of_name,
    table_of,
    tokenize,
)
from lakeformat.timeline.store import TimelineStore
from lakeformat.timeline.versions import find_instant

__all__ = [
    "ChangedTable",
    "FoundTable",
    "PastTable",
    "PathTable",
    "replace_tables",
    "resolve_as_of",
]

_CHANGES: Final = "hudi_table_changes"
_VERSION_WORDS: Final = frozenset({"version", "system_version", "timestamp", "system_time"})
#: Words that may follow a table in a statement without being its alias.
_NO_ALIAS: Final = frozenset({
    "where", "join", "on", "using", "group", "order", "sort", "cluster", "distribute", "left", "right", "inner", "full",
    "cross", "natural", "semi", "anti", "asof", "positional", "lateral", "union", "except", "minus", "intersect",
    "limit", "offset", "having", "window", "qualify", "pivot", "unpivot", "tablesample", "when", "then", "set",
    "values", "returning", "select",
})  # fmt: skip
#: Words after which a quoted string may be the path of a table.
_BEFORE_PATH: Final = frozenset({"from", "join", "into", "update", "using", "table"})
_EARLIEST: Final = "000"


@dataclass(frozen=True, slots=True)
class PathTable:
    """The present state of a table at a path."""

    path: str


@dataclass(frozen=True, slots=True)
class PastTable:
    """A past state of a table.

    Attributes:
        kind: ``version`` for the number of a commit or an instant time, ``timestamp`` for a date and time.
        point: the number or time, as the statement gives it.
    """

    target: TableName
    kind: str
    point: str


@dataclass(frozen=True, slots=True)
class ChangedTable:
    """The changes that commits after ``since``, up to and including ``until``, made to a table.

    Attributes:
        target: the table.
        images: True for every change, with the row before and after it; False for only the latest state of each
            changed row.
        since, until: instant times; if ``until`` is None, changes up to now.
    """

    target: TableName
    images: bool
    since: str
    until: str | None


FoundTable: TypeAlias = PathTable | PastTable | ChangedTable


def replace_tables(
    text: str, dialect: Dialect, is_known: Callable[[str], bool], has_table_at: Callable[[str], bool]
) -> tuple[str, dict[str, FoundTable]]:
    """Replace each path, past state and call of ``hudi_table_changes`` in a statement by a new plain name.

    Return the new statement, and a mapping of each new name to the table that it replaces.

    Args:
        is_known: a function that tells whether a name is that of a lakeformat table. Other names stay in the statement.
        has_table_at: a function that tells whether a path has a lakeformat table. It is called for paths without a
            format before them, which may also be files that DuckDB reads.

    Raises:
        InvalidInputError: if the arguments of ``hudi_table_changes`` cannot be parsed.
    """
    tokens, replacements, pieces, copied, number = tokenize(text, dialect), {}, [], 0, 0
    while number < len(tokens):
        end, what, alias = _read_table(tokens, number, dialect, is_known, has_table_at)
        if what is not None:
            name = (
                f"lakeformat_{_KINDS[type(what)]}_{sha1(repr(what).encode(), usedforsecurity=False).hexdigest()[:12]}"
            )
            replacements[name] = what
            pieces += [text[copied : tokens[number].at], name, alias]
            copied = tokens[end - 1].end
        number = end
    return "".join([*pieces, text[copied:]]), replacements


_KINDS: Final = {PathTable: "path", PastTable: "past", ChangedTable: "changes"}


def _read_table(
    tokens: Sequence[Token],
    number: int,
    dialect: Dialect,
    is_known: Callable[[str], bool],
    has_table_at: Callable[[str], bool],
) -> tuple[int, FoundTable | None, str]:
    """Parse a table of a statement that begins at the token at index ``number``.

    Return the index of the token after it, the table, and an alias to add after the new name, so that the old name
    still qualifies columns. The table is None if none begins there, or if its name need not be replaced.
    """
    if tokens[number].lower == _CHANGES and number + 1 < len(tokens) and tokens[number + 1].value == "(":
        close = find_close(tokens, number + 1)
        return close + 1, _read_changes_call(tokens[number + 2 : close], is_known), ""
    end = find_end_of_name(tokens, number)
    if end == number:
        return number + 1, None, ""
    target = table_of(tokens[number:end])
    past = _read_as_of(tokens, end)
    if past is not None and (target.path is not None or is_known(target.name)):
        after, kind, point = past
        return after, PastTable(target, kind, point), _make_alias(tokens, after, target)
    if target.path is not None:
        before = tokens[number - 1].lower if number else ""
        is_single_token = end == number + 1
        if not is_single_token or (dialect is Dialect.DUCKDB and before in _BEFORE_PATH and has_table_at(target.path)):
            return end, PathTable(target.path), ""
    return end, None, ""


def _read_as_of(tokens: Sequence[Token], number: int) -> tuple[int, str, str] | None:
    """Parse a clause such as ``[for] version as of 3``. Return None if there is none.

    Return the index of the token after the clause, ``version`` or ``timestamp``, and the value after AS OF as written.
    """
    number += number < len(tokens) and tokens[number].lower == "for"
    words = [token.lower for token in tokens[number : number + 3]]
    if len(words) < 3 or words[0] not in _VERSION_WORDS or words[1:] != ["as", "of"] or number + 3 >= len(tokens):
        return None
    point = tokens[number + 3]
    if point.kind not in {Kind.TEXT, Kind.NUMBER, Kind.NAME}:
        return None
    return number + 4, "version" if "version" in words[0] else "timestamp", point.value


def _make_alias(tokens: Sequence[Token], number: int, target: TableName) -> str:
    has_one = number < len(tokens) and tokens[number].is_name and tokens[number].lower not in _NO_ALIAS
    return "" if has_one or target.path else f" as {target.qualifier}"


def _read_changes_call(arguments: Sequence[Token], is_known: Callable[[str], bool]) -> ChangedTable:
    """Parse the arguments of Hudi's function ``hudi_table_changes``.

    They are the table's name or path, ``latest_state`` or ``cdc``, the instant after which changes begin, and
    optionally the last instant.
    """
    values = [token.value for token in arguments[::2]]
    commas = all(token.value == "," for token in arguments[1::2])
    if not commas or len(values) not in {3, 4} or values[1].lower() not in {"latest_state", "cdc"}:
        raise InvalidInputError(
            f"hudi_table_changes({' '.join(token.value for token in arguments)}) cannot be read; write "
            "hudi_table_changes('table or path', 'latest_state' or 'cdc', 'earliest' or an instant[, an instant])"
        )
    target = TableName(values[0], None if is_known(values[0]) else values[0])
    since = _EARLIEST if values[2].lower() == "earliest" else values[2]
    return ChangedTable(target, values[1].lower() == "cdc", since, values[3] if len(values) == 4 else None)


def resolve_as_of(store: TimelineStore, kind: str, point: str) -> str:
    """Return the instant time for the value of ``version as of`` or ``timestamp as of``.

    Args:
        kind: ``version`` or ``timestamp``.
        point: the value as written. A version is the number of a commit, or an instant time.

    Raises:
        InstantNotAvailableError: there is no such version.
        InvalidOptionError: the value is not an instant.
    """
    zone = store.config().zone
    return parse_as_of(point, zone) if kind == "timestamp" else find_instant(store, point, zone)
