"""Statements as values. Pure: nothing is looked up, and expressions stay the text that the host computes.

A table is a name that the caller knows, or a path: ``lakehouse.`/data/flights``` or ``lakehouse."/data/flights"``
(also ``hudi.`` and ``delta.``). sqlglot reads the statements that define tables; no text is ever translated by it.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from lakeformat.errors import InvalidInputError, InvalidOptionError
from lakeformat.sql_statements.tokens import Kind, Token

if TYPE_CHECKING:
    from sqlglot.expressions import Expression

__all__ = [
    "FORMATS",
    "Call",
    "Delete",
    "Insert",
    "MergeInto",
    "Query",
    "TableName",
    "Update",
    "When",
    "column_named",
    "first_word",
    "read_call",
    "shortened",
    "syntax_tree",
    "table_named",
    "table_of",
]

#: What may be written before a path.
FORMATS: Final = frozenset({"lakehouse", "hudi", "delta"})
_QUOTED_PATH: Final = re.compile(r'\b(lakehouse|hudi|delta)\."([^"]+)"', re.IGNORECASE)
_FIRST_WORD: Final = re.compile(r"(?:\s|--[^\n]*\n|/\*.*?\*/)*(\w+)", re.DOTALL)
_CALL: Final = re.compile(r"\s*call\s+(?:\w+\.)*(\w+)\s*\((.*)\)\s*;?\s*", re.IGNORECASE | re.DOTALL)
_ARGUMENT: Final = re.compile(r"\s*(?:(\w+)\s*=>\s*)?('(?:[^']|'')*'|\"[^\"]*\"|[^,'\"]+)\s*(?:,|$)")


@dataclass(frozen=True, slots=True)
class TableName:
    """A table as a statement names it. ``path``: of one that is named by its path, else None."""

    name: str
    path: str | None = None
    alias: str | None = None

    @property
    def called(self) -> str:
        """What its columns are qualified by."""
        return self.alias or self.name.rpartition(".")[2]


@dataclass(frozen=True, slots=True)
class When:
    """One clause of a merge.

    Attributes:
        on: ``matched``, ``not matched`` or ``not matched by source``.
        condition: after AND; None without one.
        does: ``update``, ``delete`` or ``insert``.
        values: column -> expression; None is ``*``.
    """

    on: str
    condition: str | None
    does: str
    values: Mapping[str, str] | None = None


@dataclass(frozen=True, slots=True)
class MergeInto:
    """A merge.

    Attributes:
        source: what stands between USING and ON.
        source_name: what qualifies the source's columns.
        prefix: the statement's own WITH, for the source alone.
    """

    target: TableName
    source: str
    source_name: str
    on: str
    whens: tuple[When, ...]
    prefix: str = ""


@dataclass(frozen=True, slots=True)
class Update:
    """``values``: column -> expression."""

    target: TableName
    values: Mapping[str, str]
    where: str | None


@dataclass(frozen=True, slots=True)
class Delete:
    """``where``: None is every row."""

    target: TableName
    where: str | None


@dataclass(frozen=True, slots=True)
class Insert:
    """``columns``: those named, else None; ``partition``: fixed values of columns -> expression."""

    target: TableName
    query: str
    columns: tuple[str, ...] | None
    overwrite: bool
    partition: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Call:
    """A procedure; arguments without a name stand under ``""`` in order."""

    procedure: str
    arguments: Mapping[str, Any]
    unnamed: tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class Query:
    """Everything else, as it was said."""

    text: str


def first_word(text: str) -> str:
    """The verb of a statement, in lower case; comments before it do not count."""
    first = _FIRST_WORD.match(text)
    return first[1].lower() if first else ""


def syntax_tree(text: str) -> Any:
    """One statement as sqlglot's tree.

    Raises:
        InvalidInputError: it cannot be read, or is more than one.
        InvalidOptionError: sqlglot is not installed.
    """
    try:
        import sqlglot
    except ImportError as error:
        raise InvalidOptionError("SQL statements need sqlglot; run: pip install sqlglot") from error
    try:
        text = _QUOTED_PATH.sub(r"\1.`\2`", text)
        parsed = [each for each in sqlglot.parse(text, read="spark") if each is not None]
    except (sqlglot.errors.SqlglotError, RecursionError) as error:
        said = str(error).partition("\n")[0]
        raise InvalidInputError(f"cannot read the statement: {said}") from None
    if len(parsed) != 1:
        raise InvalidInputError(f"{len(parsed)} statements at once; give one")
    if type(parsed[0]).__name__ == "Command":  # What sqlglot has no tree for.
        raise InvalidInputError(f"cannot read {shortened(text)}; see the clauses in docs/sql.md")
    return parsed[0]


def shortened(text: str) -> str:
    """A piece of SQL as messages quote it."""
    flat = " ".join(text.split())
    return repr(flat if len(flat) <= 60 else f"{flat[:57]}...")


def table_of(parts: Sequence[Token], alias: str | None = None) -> TableName:
    """Make the name of a table from its tokens: a path after a format, a path in quotes, or a name."""
    last = parts[-1].value
    if len(parts) == 1 and parts[0].kind is not Kind.WORD and ("/" in last or parts[0].kind is Kind.TEXT):
        return TableName(last, last, alias)
    if len(parts) > 1 and parts[-3].value.lower() in FORMATS and parts[-1].kind is not Kind.WORD:
        return TableName(last, last, alias)
    return TableName("".join(part.value for part in parts), None, alias)


def table_named(node: Any) -> TableName:
    """A table of the tree.

    Raises:
        InvalidInputError: it is none.
    """
    if type(node).__name__ == "Schema":
        node = node.this
    if type(node).__name__ != "Table":
        raise InvalidInputError(f"{shortened(node.sql('spark'))} is no table; name one, or write lakehouse.`/its/path`")
    alias = node.alias or None
    if node.args.get("db") is not None and str(node.args["db"].name).lower() in FORMATS:
        return TableName(node.name, node.name, alias)
    parts = [str(part.name) for part in (node.args.get("catalog"), node.args.get("db"), node.this) if part is not None]
    return TableName(".".join(parts), None, alias)


def column_named(node: Expression) -> str:
    """The bare name of an assigned column; a qualifier is the target's."""
    if type(node).__name__ != "Column":
        raise InvalidInputError(f"{node.sql('spark')} cannot be set; only whole columns can")
    return str(node.name)


def read_call(text: str) -> Call:
    """Read ``call procedure(name => value, ...)``.

    Raises:
        InvalidInputError: it cannot be read.
    """
    found = _CALL.fullmatch(text)
    if found is None:
        raise InvalidInputError(f"cannot read {shortened(text)}; write call procedure(name => value, ...)")
    named: dict[str, Any] = {}
    unnamed: list[Any] = []
    rest, at = found[2].strip(), 0
    while at < len(rest):
        argument = _ARGUMENT.match(rest, at)
        if argument is None:
            raise InvalidInputError(f"cannot read {rest[at:]!r} of the call; write name => value")
        value = _value(argument[2].strip())
        if argument[1]:
            named[argument[1].lower()] = value
        else:
            unnamed.append(value)
        at = argument.end()
    return Call(found[1].lower(), named, tuple(unnamed))


def _value(text: str) -> Any:
    if text.lower() in {"true", "false", "null"}:
        return {"true": True, "false": False, "null": None}[text.lower()]
    if text[:1] in {"'", '"'}:
        return text[1:-1].replace("''", "'")
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError):
        raise InvalidInputError(f"{text!r} is no value of a call; give a text, a number, true or false") from None
