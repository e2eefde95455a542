"""Dataclasses for SQL statements, and their tokens. No I/O: tables are not looked up, expressions stay strings.

A table is given by a registered name, or by a path: ``lakehouse.`/data/flights``` or ``lakehouse."/data/flights"``
(also ``hudi.`` and ``delta.``). sqlglot parses only the statements that define tables; no text is translated to another
dialect.

Tokens follow the quoting rules of the host that runs the statement. DuckDB quotes names by ``"``, Spark by a back
quote; in Spark ``"`` quotes text, and a backslash escapes. In all else this module treats the dialects alike.
"""

from __future__ import annotations

import ast
import enum
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from lakeformat.errors import InvalidInputError, InvalidOptionError

if TYPE_CHECKING:
    from sqlglot.expressions import Expression

__all__ = [
    "FORMATS",
    "NAME",
    "NAME_PART",
    "Call",
    "Delete",
    "Dialect",
    "Insert",
    "Kind",
    "MergeInto",
    "Query",
    "TableName",
    "Token",
    "Update",
    "When",
    "column_of_node",
    "count_depths",
    "find_close",
    "find_end_of_name",
    "first_word",
    "form",
    "quote_sql",
    "read_call",
    "syntax_tree",
    "table_and_rest",
    "table_of",
    "table_of_match",
    "table_of_node",
    "text_after_name",
    "tokenize",
]


class Dialect(enum.Enum):
    """The SQL dialect in which a statement is written. It decides which characters quote names and strings."""

    DUCKDB = "duckdb"
    SPARK = "spark"


class Kind(enum.Enum):
    """The kind of a token."""

    WORD = "word"
    NAME = "quoted name"
    TEXT = "text"
    NUMBER = "number"
    SIGN = "sign"


@dataclass(frozen=True, slots=True)
class Token:
    """A token of a statement.

    Attributes:
        value: the name or string without its quotes; for other tokens the characters as written.
        at, end: offsets in the statement's text: of the token's first character, and of the character after its last.
    """

    kind: Kind
    value: str
    at: int
    end: int

    @property
    def lower(self) -> str:
        """Return the token in lower case if it may be a keyword or a sign; "" for quoted names, strings and numbers."""
        return self.value.lower() if self.kind in {Kind.WORD, Kind.SIGN} else ""

    @property
    def is_name(self) -> bool:
        """Tell whether the token may be a name: a word or a quoted name."""
        return self.kind in {Kind.WORD, Kind.NAME}


_COMMON: Final = r"(?P<skip>\s+|--[^\n]*)|(?P<back>`(?:[^`]|``)*`)|(?P<number>\d[\w.]*|\.\d[\w]*)|(?P<word>\w+)"
_SIGNS: Final = r"(?P<sign>=>|->>?|::|<=>|<>|<=|>=|!=|==|\|\||.)"
_PATTERNS: Final = {
    Dialect.DUCKDB: re.compile(
        r"(?P<comment>/\*)|(?P<dollar>\$(?P<tag>\w*)\$.*?\$(?P=tag)\$)|(?P<escaped>[eE]'(?:[^'\\]|\\.|'')*')|"
        rf"(?P<text>'(?:[^']|'')*')|(?P<quoted>\"(?:[^\"]|\"\")*\")|{_COMMON}|{_SIGNS}",
        re.DOTALL,
    ),
    Dialect.SPARK: re.compile(
        r"(?P<comment>/\*)|(?P<raw>[rR](?:'[^']*'|\"[^\"]*\"))|"
        rf"(?P<text>'(?:[^'\\]|\\.|'')*'|\"(?:[^\"\\]|\\.|\"\")*\")|{_COMMON}|{_SIGNS}",
        re.DOTALL,
    ),
}
_COMMENT: Final = re.compile(r"/\*|\*/")


def tokenize(text: str, dialect: Dialect) -> list[Token]:
    """Split a statement into tokens, without white space and comments."""
    pattern, tokens, offset = _PATTERNS[dialect], [], 0
    while offset < len(text):
        match = pattern.match(text, offset)
        assert match is not None  # noqa: S101  The last sign pattern matches any character.
        end, group = match.end(), match.lastgroup
        if group == "comment":
            end = _skip_comment(text, offset)
        elif group != "skip":
            tokens.append(_token(match, group or ""))
        offset = end
    return tokens


def _token(match: re.Match[str], group: str) -> Token:
    text = match[0]
    kind, value = Kind.SIGN, text
    if group in {"back", "quoted"}:
        kind, value = Kind.NAME, text[1:-1].replace(text[0] * 2, text[0])
    elif group == "text":
        kind, value = Kind.TEXT, text[1:-1].replace(text[0] * 2, text[0])
    elif group in {"raw", "escaped"}:
        kind, value = Kind.TEXT, text[2:-1]
    elif group in {"dollar", "tag"}:
        kind, value = Kind.TEXT, text.split("$", 2)[2].rsplit("$", 2)[0]
    elif group in {"number", "word"}:
        kind = Kind.NUMBER if group == "number" else Kind.WORD
    return Token(kind, value, match.start(), match.end())


def _skip_comment(text: str, offset: int) -> int:
    """Return the offset of the character after the comment that begins at offset ``offset``. Comments may be nested."""
    depth = 0
    for mark in _COMMENT.finditer(text, offset):
        depth += 1 if mark[0] == "/*" else -1
        if depth == 0:
            return mark.end()
    return len(text)


def count_depths(tokens: Sequence[Token]) -> list[int]:
    """Return for each token the number of parentheses, brackets and ``case ... end`` around it."""
    depths: list[int] = []
    stack: list[str] = []
    for number, token in enumerate(tokens):
        word = "" if number and tokens[number - 1].value == "." else token.lower
        closes = {")": "(", "]": "[", "}": "{", "end": "case"}.get(word)
        if closes is not None and closes in stack:
            while stack.pop() != closes:
                pass
        depths.append(len(stack))
        if word in {"(", "[", "{", "case"}:
            stack.append(word)
    return depths


def find_close(tokens: Sequence[Token], at: int) -> int:
    """Return the index of the token that closes the parenthesis at index ``at``; ``len(tokens)`` if there is none."""
    deep = count_depths(tokens)
    return next((n for n in range(at + 1, len(tokens)) if deep[n] == deep[at] and tokens[n].value == ")"), len(tokens))


def find_end_of_name(tokens: Sequence[Token], at: int) -> int:
    """Return the index of the token after the (dotted) name that begins at ``at``; ``at`` if no name begins there."""
    if at >= len(tokens) or not (tokens[at].is_name or tokens[at].kind is Kind.TEXT):
        return at
    end = at + 1
    while end + 1 < len(tokens) and tokens[end].value == "." and tokens[end].kind is Kind.SIGN:
        if not (tokens[end + 1].is_name or tokens[end + 1].kind is Kind.TEXT):
            break
        end += 2
    return end


#: Formats that may be written before a path, as in ``hudi.`/data/flights```.
FORMATS: Final = frozenset({"lakehouse", "hudi", "delta"})
_QUOTED_PATH: Final = re.compile(r'\b(lakehouse|hudi|delta)\."([^"]+)"', re.IGNORECASE)
_FIRST_WORD: Final = re.compile(r"(?:\s|--[^\n]*\n|/\*.*?\*/)*(\w+)", re.DOTALL)
_CALL: Final = re.compile(r"\s*call\s+(?:\w+\.)*(\w+)\s*\((.*)\)\s*;?\s*", re.IGNORECASE | re.DOTALL)
_ARGUMENT: Final = re.compile(r"\s*(?:(\w+)\s*=>\s*)?('(?:[^']|'')*'|\"[^\"]*\"|[^,'\"]+)\s*(?:,|$)")


@dataclass(frozen=True, slots=True)
class TableName:
    """A table as a statement gives it, by name or path. By name, ``path`` is None; by path, ``name`` is the path."""

    name: str
    path: str | None = None
    alias: str | None = None

    @property
    def qualifier(self) -> str:
        """Return the name that qualifies the table's columns."""
        return self.alias or self.name.rpartition(".")[2]


@dataclass(frozen=True, slots=True)
class When:
    """One clause of a merge.

    Attributes:
        on: ``matched``, ``not matched`` or ``not matched by source``.
        condition: the expression after AND; None if there is none.
        action: ``update``, ``delete`` or ``insert``.
        values: maps the columns that the clause sets to expressions; None for ``*`` and for a delete.
    """

    on: str
    condition: str | None
    action: str
    values: Mapping[str, str] | None = None


@dataclass(frozen=True, slots=True)
class MergeInto:
    """A ``merge into`` statement.

    Attributes:
        target: the table.
        source: the text between USING and ON.
        source_name: the name that qualifies the source's columns.
        on: the condition after ON.
        whens: the clauses, in order.
        prefix: the WITH list before MERGE, which the source may use; "" if there is none.
    """

    target: TableName
    source: str
    source_name: str
    on: str
    whens: tuple[When, ...]
    prefix: str = ""


@dataclass(frozen=True, slots=True)
class Update:
    """An ``update`` statement. ``values`` maps columns to expressions; ``where`` None updates every row."""

    target: TableName
    values: Mapping[str, str]
    where: str | None


@dataclass(frozen=True, slots=True)
class Delete:
    """A ``delete`` statement. ``where`` None deletes every row."""

    target: TableName
    where: str | None


@dataclass(frozen=True, slots=True)
class Insert:
    """An ``insert`` statement.

    Attributes:
        target: the table.
        query: the text of the rows: VALUES, a SELECT or another query.
        columns: the columns in parentheses after the table's name; None if there are none.
        overwrite: whether it is an ``insert overwrite``.
        partition: maps the columns of the PARTITION clause that have a value to its expression.
    """

    target: TableName
    query: str
    columns: tuple[str, ...] | None
    overwrite: bool
    partition: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Call:
    """A ``call`` of a procedure, with the values of its named arguments, and of its unnamed arguments in order."""

    procedure: str
    arguments: Mapping[str, Any]
    unnamed: tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class Query:
    """Any other SQL statement, which Spark or duckdb runs. It is not parsed."""

    text: str


def first_word(text: str) -> str:
    """Return the first word of a statement, in lower case. Comments before it are skipped."""
    first = _FIRST_WORD.match(text)
    return first[1].lower() if first else ""


def syntax_tree(text: str) -> Any:
    """Parse one statement with sqlglot and return its tree.

    Raises:
        InvalidInputError: if the text cannot be parsed, or is not one statement.
        InvalidOptionError: if sqlglot is not installed.
    """
    try:
        import sqlglot
    except ImportError as error:
        raise InvalidOptionError("SQL statements need sqlglot; run: pip install sqlglot") from error
    try:
        text = _QUOTED_PATH.sub(r"\1.`\2`", text)
        parsed = [tree for tree in sqlglot.parse(text, read="spark") if tree is not None]
    except (sqlglot.errors.SqlglotError, RecursionError) as error:
        message = str(error).partition("\n")[0]
        raise InvalidInputError(f"cannot read the statement: {message}") from None
    if len(parsed) != 1:
        raise InvalidInputError(f"{len(parsed)} statements at once; give one")
    # If sqlglot cannot parse a statement, it may return a Command instead of raising an error.
    if type(parsed[0]).__name__ == "Command":
        raise InvalidInputError(f"cannot read {quote_sql(text)}; see the clauses in docs/sql.md")
    return parsed[0]


def quote_sql(text: str) -> str:
    """Return a statement as an error message shows it: quoted, on one line, cut to 60 characters."""
    flat = " ".join(text.split())
    return repr(flat if len(flat) <= 60 else f"{flat[:57]}...")


def table_of(parts: Sequence[Token], alias: str | None = None) -> TableName:
    """Return the table that these tokens give: a path after a format, a path in quotes, or a name."""
    last = parts[-1].value
    if len(parts) == 1 and parts[0].kind is not Kind.WORD and ("/" in last or parts[0].kind is Kind.TEXT):
        return TableName(last, last, alias)
    if len(parts) > 1 and parts[-3].value.lower() in FORMATS and parts[-1].kind is not Kind.WORD:
        return TableName(last, last, alias)
    return TableName("".join(part.value for part in parts), None, alias)


def table_of_node(node: Any) -> TableName:
    """Return the table that a node of sqlglot's tree names.

    Raises:
        InvalidInputError: if the node is not a table.
    """
    if type(node).__name__ == "Schema":
        node = node.this
    if type(node).__name__ != "Table":
        raise InvalidInputError(
            f"{quote_sql(node.sql('spark'))} is not a table; name one, or write lakehouse.`/its/path`"
        )
    alias = node.alias or None
    if node.args.get("db") is not None and str(node.args["db"].name).lower() in FORMATS:
        return TableName(node.name, node.name, alias)
    parts = [str(part.name) for part in (node.args.get("catalog"), node.args.get("db"), node.this) if part is not None]
    return TableName(".".join(parts), None, alias)


def column_of_node(node: Expression) -> str:
    """Return the name of a column to which a statement assigns a value, without the qualifier of the target table."""
    if type(node).__name__ != "Column":
        raise InvalidInputError(f"{node.sql('spark')} cannot be set; only whole columns can")
    return str(node.name)


def read_call(text: str) -> Call:
    """Parse ``call procedure(name => value, ...)``.

    Raises:
        InvalidInputError: if the text cannot be parsed.
    """
    match = _CALL.fullmatch(text)
    if match is None:
        raise InvalidInputError(f"cannot read {quote_sql(text)}; write call procedure(name => value, ...)")
    named: dict[str, Any] = {}
    unnamed: list[Any] = []
    rest, offset = match[2].strip(), 0
    while offset < len(rest):
        argument = _ARGUMENT.match(rest, offset)
        if argument is None:
            raise InvalidInputError(f"cannot read {rest[offset:]!r} of the call; write name => value")
        value = _value(argument[2].strip())
        if argument[1]:
            named[argument[1].lower()] = value
        else:
            unnamed.append(value)
        offset = argument.end()
    return Call(match[1].lower(), named, tuple(unnamed))


def _value(text: str) -> Any:
    if text.lower() in {"true", "false", "null"}:
        return {"true": True, "false": False, "null": None}[text.lower()]
    if text[:1] in {"'", '"'}:
        return text[1:-1].replace("''", "'")
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError):
        raise InvalidInputError(f"{text!r} is not a value of a call; give a text, a number, true or false") from None


#: Regular expression for a part of a name, with or without quotes.
NAME_PART: Final = r"(?:`[^`]+`|\"[^\"]+\"|\w+)"
#: Regular expression for a table: a path after a format, a path in quotes, or a name, with or without quotes.
NAME: Final = (
    r"""(?:(?:lakehouse|hudi|delta)\.[`"](?P<path>[^`"]+)[`"]|'(?P<text>[^']+)'|"""
    r"""(?P<name>(?:\w+|[`"][^`"]+[`"])(?:\.(?:\w+|[`"][^`"]+[`"]))*))"""
)


#: Maps the kind of a part of a `form` to its pattern. Another kind is itself a pattern.
_KINDS: Final[Mapping[str, str]] = {
    "all": ".+",
    "columns": r"\(?[^()]+\)?",
    "list": r"\s*\([^()]*\)",
    "moment": r"\d+|'[^']*'",
    "number": r"\d+",
    "part": NAME_PART,
    "path": rf"{NAME_PART}(?:\s*\.\s*{NAME_PART})*",
    "quoted": "'[^']*'",
    "rest": ".*",
    "some": ".+?",
    "word": r"\w+",
}


def form(text: str) -> re.Pattern[str]:
    """Return the pattern of a form of statements. Letter case is ignored.

    In the text, a space means any whitespace. ``[...]`` may be left out, with the whitespace before it. ``{name:kind}``
    is a part with a name; the kind is one of `_KINDS`, or a pattern. ``{table}`` is a table, for `table_of_match`.

    >>> form("vacuum [table] {table} [retain {hours:number} hours]").fullmatch("VACUUM t retain  3 hours")["hours"]
    '3'
    """
    pattern = re.sub(r" ?\[", lambda match: r"(?:\s+" if match[0][0] == " " else "(?:", text).replace("]", ")?")
    pattern = pattern.replace(" ", r"\s+").replace("{table}", NAME)
    parts = re.sub(r"\{(\w+):([^}]+)\}", lambda match: f"(?P<{match[1]}>{_KINDS.get(match[2], match[2])})", pattern)
    return re.compile(parts, re.IGNORECASE | re.DOTALL)


def table_of_match(match: re.Match[str]) -> TableName:
    """Return the table that a match of the pattern `NAME` gives."""
    path = match["path"] or match["text"]
    name = (match["name"] or "").replace("`", "").replace('"', "")
    path = name if not path and "/" in name else path
    return TableName(path, path) if path else TableName(name)


def table_and_rest(text: str, head: str) -> tuple[TableName, str]:
    """Return a statement's table, and the text after its name. ``head`` is a pattern for the words before the name.

    Raises:
        InvalidInputError: if there is no name.
    """
    match = re.match(rf"\s*{head}\s+{NAME}\s*", text, re.IGNORECASE)
    if match is None:
        raise InvalidInputError(f"{quote_sql(text)} names no table; name one, or write lakehouse.`/its/path`")
    return table_of_match(match), text[match.end() :]


def text_after_name(text: str, head: str) -> str:
    """Return the text after the name of a statement's table; as `table_and_rest`."""
    return table_and_rest(text, head)[1]
