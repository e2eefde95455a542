"""Statements of Spark SQL as values. Pure: nothing is looked up, expressions stay text for whoever computes them.

What the guides of Hudi and Delta say runs: ``merge into``, ``update``, ``delete from``, ``insert into``, ``insert
overwrite``, ``call``. A table is a name that the caller knows, or a path: ``lakehouse.`/data/flights``` (also ``hudi.``
and ``delta.``).
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from hashlib import sha1
from typing import TYPE_CHECKING, Any, Final

from lakeformat.errors import InvalidInputError, InvalidOptionError

if TYPE_CHECKING:
    from sqlglot.expressions import Expression

__all__ = [
    "Call",
    "Delete",
    "Insert",
    "MergeInto",
    "Query",
    "Statement",
    "TableName",
    "Update",
    "When",
    "column_named",
    "first_word",
    "parse_statement",
    "path_tables",
    "shortened",
    "syntax_tree",
    "table_named",
]

#: How a path is said in the place of a table's name.
_PATH: Final = re.compile(r"\b(?:lakehouse|hudi|delta|parquet\.lakehouse)\.`([^`]+)`", re.IGNORECASE)
_FORMATS: Final = frozenset({"lakehouse", "hudi", "delta"})
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
        condition: after AND, as Spark SQL; None without one.
        does: ``update``, ``delete`` or ``insert``.
        values: column -> expression; None is ``*``.
    """

    on: str
    condition: str | None
    does: str
    values: Mapping[str, str] | None = None


@dataclass(frozen=True, slots=True)
class MergeInto:
    """``source``: a name or a subquery in parentheses, as Spark SQL; ``source_name`` qualifies its columns."""

    target: TableName
    source: str
    source_name: str
    on: str
    whens: tuple[When, ...]


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


Statement = MergeInto | Update | Delete | Insert | Call | Query


def path_tables(text: str) -> tuple[str, dict[str, str]]:
    """The text with plain names in the place of paths, and what they stand for: name -> path."""
    found: dict[str, str] = {}

    def replaced(match: re.Match[str]) -> str:
        path = match[1]
        name = f"lakeformat_path_{sha1(path.encode(), usedforsecurity=False).hexdigest()[:12]}"
        found[name] = path
        return name

    return _PATH.sub(replaced, text), found


def parse_statement(text: str) -> Statement:
    """One statement.

    Raises:
        InvalidInputError: a statement of ours that cannot be read, or a clause that is not taken; names it.
        InvalidOptionError: sqlglot is not installed.
    """
    word = first_word(text)
    if word == "call":
        return _call(text)
    if word not in _READERS:
        return Query(text)
    node = syntax_tree(text)
    if type(node).__name__.lower() != word:
        raise InvalidInputError(f"cannot read the {word} statement {shortened(text)}; see the clauses in docs/sql.md")
    return _READERS[word](node)


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
        raise InvalidOptionError("SQL statements need sqlglot; run: pip install 'lakeformat[sql]'") from error
    try:
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


def _sql(node: Expression | None) -> str | None:
    return None if node is None else node.sql("spark")


def _where(node: Expression) -> str | None:
    where = node.args.get("where")
    return None if where is None else _sql(where.this)


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
    if node.args.get("db") is not None and str(node.args["db"].name).lower() in _FORMATS:
        return TableName(node.name, node.name, alias)
    parts = [str(part.name) for part in (node.args.get("catalog"), node.args.get("db"), node.this) if part is not None]
    return TableName(".".join(parts), None, alias)


def column_named(node: Expression) -> str:
    """The bare name of an assigned column; a qualifier is the target's."""
    if type(node).__name__ != "Column":
        raise InvalidInputError(f"{node.sql('spark')} cannot be set; only whole columns can")
    return str(node.name)


def _assigned(nodes: list[Expression]) -> dict[str, str]:
    return {column_named(each.this): each.expression.sql("spark") for each in nodes}


def _update(node: Any) -> Update:
    if node.args.get("from_") is not None or node.args.get("from") is not None:
        raise InvalidInputError("update ... from is not taken; write merge into")
    return Update(table_named(node.this), _assigned(node.expressions), _where(node))


def _delete(node: Any) -> Delete:
    if node.args.get("using"):
        raise InvalidInputError("delete ... using is not taken; write merge into")
    return Delete(table_named(node.this), _where(node))


def _insert(node: Any) -> Insert:
    columns = None
    if type(node.this).__name__ == "Schema":
        columns = tuple(str(each.name) for each in node.this.expressions)
    if node.args.get("by_name"):
        raise InvalidInputError("insert ... by name is not taken; name the columns in parentheses")
    found = node.args.get("partition") or node.this.args.get("partition")
    partition: dict[str, str] = {}
    for each in found.expressions if found is not None else ():
        if type(each).__name__ == "EQ":
            partition[column_named(each.this)] = each.expression.sql("spark")
    if node.expression is None:
        raise InvalidInputError("the insert has no rows; add values or a select")
    overwrite = bool(node.args.get("overwrite"))
    return Insert(table_named(node.this), node.expression.sql("spark"), columns, overwrite, partition)


def _merge(node: Any) -> MergeInto:
    using = node.args["using"]
    name = using.alias or (using.name if type(using).__name__ == "Table" else "")
    if not name:
        raise InvalidInputError("the source of the merge has no name; add one: using (...) as s")
    source = using.copy()
    source.set("alias", None)
    on = node.args.get("on")
    if on is None:
        raise InvalidInputError("the merge has no condition; add on t.key = s.key")
    whens = tuple(_when(each) for each in node.args["whens"].expressions)
    return MergeInto(table_named(node.this), source.sql("spark"), str(name), on.sql("spark"), whens)


def _when(node: Any) -> When:
    on = "matched" if node.args.get("matched") else "not matched"
    if node.args.get("source"):
        on = "not matched by source"
    condition, then = _sql(node.args.get("condition")), node.args["then"]
    kind = type(then).__name__
    if kind == "Update":
        has_star = not isinstance(then.expressions, list) or any(
            type(each).__name__ == "Star" for each in then.expressions
        )
        return When(on, condition, "update", None if has_star or not then.expressions else _assigned(then.expressions))
    if kind == "Insert":
        return When(on, condition, "insert", _inserted(then))
    if then.name.lower() == "delete":
        return When(on, condition, "delete")
    raise InvalidInputError(f"when {on} then {then.sql('spark')} is not taken; update, delete or insert")


def _inserted(then: Any) -> dict[str, str] | None:
    if type(then.this).__name__ == "Star" or then.expression is None:
        return None
    names = [str(each.name) for each in then.this.expressions]
    values = [each.sql("spark") for each in then.expression.expressions]
    if len(names) != len(values):
        raise InvalidInputError(f"the insert names {len(names)} columns and gives {len(values)} values")
    return dict(zip(names, values, strict=True))


def _call(text: str) -> Call:
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


_READERS: Final[Mapping[str, Callable[[Any], Statement]]] = {
    "merge": _merge,
    "update": _update,
    "delete": _delete,
    "insert": _insert,
}
