"""Parsing of ``merge``, ``update``, ``delete`` and ``insert`` into dataclasses. No I/O: expressions stay strings.

`find_plain_where` returns the condition of a ``delete`` if every engine evaluates it alike, so that the host is not
needed. Such a condition compares columns of integers, texts or booleans with literals of the same type, or tests for
null; comparisons are joined by ``and``. Conditions with times, floats, casts or functions are evaluated by the host,
because engines evaluate them differently.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NoReturn

import pyarrow as pa
import pyarrow.compute as pc

from lakeformat.arrow.kinds import Kind as ArrowKind
from lakeformat.arrow.kinds import kind_of
from lakeformat.errors import InvalidInputError
from lakeformat.sql_statements.parse import (
    Delete,
    Dialect,
    Insert,
    Kind,
    MergeInto,
    TableName,
    Token,
    Update,
    When,
    count_depths,
    find_close,
    find_end_of_name,
    quote_sql,
    table_of,
    tokenize,
)

__all__ = ["Change", "find_change", "find_named_columns", "find_plain_where", "read_change"]

_VERBS: Final = frozenset({"insert", "update", "delete", "merge"})
#: Words that may begin the query of an insert.
_QUERIES: Final = frozenset({"select", "with", "values", "from", "table", "("})


@dataclass(frozen=True)
class Change:
    """A statement that changes rows of a table, split into tokens, of which the verb and the table's name are known.

    Attributes:
        text: the statement as written.
        tokens: the tokens of the statement.
        verb: index of the verb in ``tokens``.
        name, after: indexes in ``tokens`` of the first token of the table's name, and of the token after the name.
    """

    text: str
    tokens: tuple[Token, ...]
    verb: int
    name: int
    after: int

    @property
    def action(self) -> str:
        """Return the verb: ``insert``, ``update``, ``delete`` or ``merge``."""
        return self.tokens[self.verb].lower

    @property
    def target(self) -> TableName:
        """Return the table."""
        return table_of(self.tokens[self.name : self.after])

    def text_between(self, start: int, end: int) -> str:
        """Return the part of the statement from the token at index ``start`` to the token before index ``end``."""
        return self.text[self.tokens[start].at : self.tokens[end - 1].end] if end > start else ""


def find_change(text: str, dialect: Dialect) -> Change | None:
    """Find the verb and the table of a statement. Return None if the statement does not change rows.

    Raises:
        InvalidInputError: if no table follows the verb.
    """
    tokens = tuple(tokenize(text, dialect))
    verb = _find_verb(tokens)
    if verb is None:
        return None
    number = verb + 1
    skipped_words = {
        "insert": {"or", "replace", "ignore", "into", "overwrite", "table"},
        "delete": {"from"},
        "merge": {"into"},
    }
    while number < len(tokens) and tokens[number].lower in skipped_words.get(tokens[verb].lower, ()):
        number += 1
    after = find_end_of_name(tokens, number)
    if after == number:
        raise _unreadable_error(tokens[verb].lower, text)
    return Change(text, tokens, verb, number, after)


def _find_verb(tokens: tuple[Token, ...]) -> int | None:
    if tokens and tokens[0].lower in _VERBS:
        return 0
    if not tokens or tokens[0].lower != "with":
        return None
    for number, (token, depth) in enumerate(zip(tokens, count_depths(tokens), strict=True)):
        if depth == 0 and token.lower in {*_VERBS, *_QUERIES} - {"with", "("}:
            if number + 1 < len(tokens) and tokens[number + 1].lower in {"as", "("}:
                continue  # The word is the name of a query in the WITH list, not a verb.
            return number if token.lower in _VERBS else None
    return None


def _unreadable_error(verb: str, text: str) -> InvalidInputError:
    return InvalidInputError(f"cannot read the {verb} statement {quote_sql(text)}; see the clauses in docs/sql.md")


def read_change(change: Change) -> MergeInto | Update | Delete | Insert:
    """Parse a statement into its parts.

    Raises:
        InvalidInputError: if it cannot be parsed, or a clause is not supported; the message names the clause.
    """
    return _READERS[change.action](_Parts(change))


class _Parts:
    """A parser of the parts of a `Change`. The arguments ``at``, ``start`` and ``end`` are indexes of its tokens."""

    def __init__(self, change: Change) -> None:
        self.change, self.tokens, self.end = change, change.tokens, len(change.tokens)
        self.depths = count_depths(change.tokens)
        self.prefix = f"{change.text_between(0, change.verb)} " if change.verb else ""

    def fail(self) -> NoReturn:
        raise _unreadable_error(self.change.action, self.change.text)

    def word(self, at: int) -> str:
        return self.tokens[at].lower if at < self.end else ""

    def find(self, word: str, start: int, end: int | None = None) -> int | None:
        end = self.end if end is None else end
        for number in range(start, end):
            if (
                self.tokens[number].lower == word
                and self.depths[number] == self.depths[start]
                and self.tokens[number - 1].value != "."
            ):
                return number
        return None

    def alias(self, at: int, end: int) -> str | None:
        """Return the alias that the tokens from ``at`` to ``end`` give, ``[as] alias``; None if there are no tokens."""
        if at < end and self.word(at) == "as":
            at += 1
        if at >= end:
            return None
        if end - at > 1 or not self.tokens[at].is_name:
            self.fail()
        return self.tokens[at].value

    def split(self, start: int, end: int) -> Iterator[tuple[int, int]]:
        """Split the tokens at commas outside of parentheses. Yield (first index, index after the last) of each part."""
        first = start
        for number in range(start, end):
            if self.tokens[number].value == "," and self.depths[number] == self.depths[start]:
                yield first, number
                first = number + 1
        yield first, end

    def assignments(self, start: int, end: int, *, named: frozenset[str]) -> dict[str, str]:
        """Parse ``column = expression, ...`` into a mapping.

        Args:
            named: the qualifiers that a column may have, in lower case.
        """
        values: dict[str, str] = {}
        for first, last in self.split(start, end):
            name_end = find_end_of_name(self.tokens, first)
            if name_end == first or self.word(name_end) != "=" or name_end + 1 >= last:
                self.fail()
            parts = [token.value for token in self.tokens[first:name_end:2]]
            if len(parts) > 2 or (len(parts) == 2 and parts[0].lower() not in named):
                raise InvalidInputError(
                    f"{self.change.text_between(first, name_end)} cannot be set; only whole columns can"
                )
            if parts[-1].lower() in {name.lower() for name in values}:
                raise InvalidInputError(f"column {parts[-1]!r} is set twice; give it once")
            values[parts[-1]] = self.change.text_between(name_end + 1, last)
        return values

    def names(self, start: int) -> tuple[tuple[str, ...], int]:
        """Parse ``(a, b)``. Return the names, and the index after the closing parenthesis."""
        close = find_close(self.tokens, start)
        name_tokens = [self.tokens[last - 1] for _, last in self.split(start + 1, close)]
        if close >= self.end or not all(token.is_name for token in name_tokens):
            self.fail()
        return tuple(token.value for token in name_tokens), close + 1


def _target(parts: _Parts, end: int) -> TableName:
    change = parts.change
    return table_of(change.tokens[change.name : change.after], parts.alias(change.after, end))


def _qualifiers(target: TableName) -> frozenset[str]:
    return frozenset({target.qualifier.lower(), target.name.rpartition(".")[2].lower()})


def _update(parts: _Parts) -> Update:
    _refuse_with_list(parts)
    change = parts.change
    set_at = parts.find("set", change.after)
    if set_at is None:
        parts.fail()
    if parts.find("from", set_at + 1) is not None:
        raise InvalidInputError("update ... from is not supported; write merge into")
    where = parts.find("where", set_at + 1)
    target = _target(parts, set_at)
    values = parts.assignments(set_at + 1, parts.end if where is None else where, named=_qualifiers(target))
    return Update(target, values, _condition(parts, where))


def _delete(parts: _Parts) -> Delete:
    _refuse_with_list(parts)
    if parts.find("using", parts.change.after) is not None:
        raise InvalidInputError("delete ... using is not supported; write merge into")
    where = parts.find("where", parts.change.after)
    return Delete(_target(parts, parts.end if where is None else where), _condition(parts, where))


def _condition(parts: _Parts, where: int | None) -> str | None:
    if where is None:
        return None
    if where + 1 == parts.end:
        parts.fail()
    return parts.change.text_between(where + 1, parts.end)


def _refuse_with_list(parts: _Parts) -> None:
    if parts.prefix:
        raise InvalidInputError(
            f"with ... {parts.change.action} is not supported; write a subquery, or merge into with the query "
            "as its source"
        )


def _insert(parts: _Parts) -> Insert:
    change, partition, columns = parts.change, {}, None
    number = change.after
    overwrite = any(token.lower == "overwrite" for token in change.tokens[change.verb : change.name])
    if parts.word(number) == "partition" and parts.word(number + 1) == "(":
        close = find_close(change.tokens, number + 1)
        for first, last in parts.split(number + 2, close):
            if last - first > 1:
                partition.update(parts.assignments(first, last, named=frozenset()))
        number = close + 1
    if parts.word(number) == "by":
        raise InvalidInputError("insert ... by name is not supported; name the columns in parentheses")
    if parts.word(number) == "(" and parts.word(number + 1) not in _QUERIES:
        columns, number = parts.names(number)
    if number >= parts.end:
        raise InvalidInputError("the insert has no rows; add values or a select")
    if parts.word(number) not in _QUERIES:
        parts.fail()
    query = parts.prefix + change.text_between(number, parts.end)
    return Insert(table_of(change.tokens[change.name : change.after]), query, columns, overwrite, partition)


def _merge(parts: _Parts) -> MergeInto:
    change = parts.change
    using = parts.find("using", change.after)
    if using is None or using + 1 >= parts.end:
        parts.fail()
    on, first = parts.find("on", using + 1), parts.find("when", using + 1)
    if on is None:
        raise InvalidInputError("the merge has no condition; add on t.key = s.key")
    if first is None or first < on:
        parts.fail()
    starts = [
        number
        for number in range(first, parts.end)
        if parts.word(number) == "when" and parts.depths[number] == parts.depths[first]
    ]
    target = _target(parts, using)
    whens = tuple(
        _when(parts, *pair, _qualifiers(target)) for pair in zip(starts, [*starts[1:], parts.end], strict=True)
    )
    source = change.text_between(using + 1, on)
    return MergeInto(
        target, source, _source_name(parts, using + 1, on), change.text_between(on + 1, first), whens, parts.prefix
    )


def _source_name(parts: _Parts, start: int, end: int) -> str:
    """Return the name that qualifies the source's columns: its alias if it has one, else the table's name."""
    is_query = parts.word(start) == "("
    after = find_close(parts.tokens, start) + 1 if is_query else find_end_of_name(parts.tokens, start)
    if parts.word(after) == "(" and not is_query:  # A table function: only an alias can be its name.
        is_query, after = True, find_close(parts.tokens, after) + 1
    if parts.word(after) == "as" and after + 1 < end:
        after += 1
    rest = parts.tokens[after:end]
    if rest and rest[-1].is_name:  # The alias comes last, even after "version as of 3".
        return rest[-1].value
    if len(rest) > 1 and rest[0].is_name and rest[1].value == "(":
        return rest[0].value
    if is_query:
        raise InvalidInputError("the source of the merge has no name; add one: using (...) as s")
    return table_of(parts.tokens[start : find_end_of_name(parts.tokens, start)]).qualifier


def _when(parts: _Parts, start: int, end: int, named: frozenset[str]) -> When:
    then = parts.find("then", start, end)
    if then is None:
        parts.fail()
    words, number = [], start + 1
    while number < then and parts.word(number) in {"not", "matched", "by", "source", "target"}:
        words.append(parts.word(number))
        number += 1
    on = " ".join(words).removesuffix(" by target")
    if on not in {"matched", "not matched", "not matched by source"} or (number < then and parts.word(number) != "and"):
        parts.fail()
    condition = parts.change.text_between(number + 1, then) if number < then else None
    action = parts.word(then + 1)
    inserts = on == "not matched"
    if (action == "insert") != inserts or action not in {"insert", "update", "delete"}:
        action_text = parts.change.text_between(then + 1, end).lower()
        raise InvalidInputError(f"when {on} then {quote_sql(action_text)} is not supported; update, delete or insert")
    return When(on, condition, action, _values(parts, action, then + 2, end, named))


def _values(parts: _Parts, action: str, start: int, end: int, named: frozenset[str]) -> Mapping[str, str] | None:
    is_star = (
        start + (action == "update") < end and parts.word(end - 1) == "*" and end - start == 1 + (action == "update")
    )
    if action == "delete":
        if start < end:
            parts.fail()
        return None
    if is_star:
        return None
    if action == "update":
        if parts.word(start) != "set":
            parts.fail()
        return parts.assignments(start + 1, end, named=named)
    if parts.word(start) != "(":
        parts.fail()
    names, number = parts.names(start)
    if parts.word(number) != "values" or parts.word(number + 1) != "(":
        parts.fail()
    close = find_close(parts.tokens, number + 1)
    values = [parts.change.text_between(*pair) for pair in parts.split(number + 2, close)]
    if close + 1 != end:
        parts.fail()
    if len(names) != len(values):
        raise InvalidInputError(f"the insert names {len(names)} columns and gives {len(values)} values")
    return dict(zip(names, values, strict=True))


_READERS: Final[Mapping[str, Callable[[_Parts], MergeInto | Update | Delete | Insert]]] = {
    "merge": _merge,
    "update": _update,
    "delete": _delete,
    "insert": _insert,
}


#: Words and signs that let a statement use columns that it does not name, such as the star of ``select *``.
_WIDE: Final = frozenset({
    "select", "from", "with", "using", "columns", "table", "values", "returning", "describe", "desc", "summarize",
    "show", "pivot", "unpivot", "#", ":",
})  # fmt: skip


def find_named_columns(change: Change, columns: Collection[str]) -> frozenset[str] | None:
    """Return the columns that an update or delete names; None if the statement may use other columns too.

    A statement may use columns that it does not name if it contains a query, a star, or the table's name as a value,
    which means the whole row.
    """
    rest = list(change.tokens[change.after :])
    table_names = {change.tokens[change.after - 1].value.lower()}
    if rest and rest[0].lower == "as":
        rest = rest[1:]
    if rest and rest[0].is_name and rest[0].lower not in {"set", "where"}:
        table_names.add(rest[0].value.lower())
        rest = rest[1:]
    if change.action not in {"update", "delete"} or change.verb or (rest and rest[0].lower not in {"set", "where"}):
        return None
    for before, token, behind in zip([None, *rest], rest, [*rest[1:], None], strict=False):
        is_row = token.is_name and token.value.lower() in table_names and (behind is None or behind.value != ".")
        is_star = token.lower == "*" and (before is None or not _is_operand(before))
        if token.lower in _WIDE or is_row or is_star:
            return None
    named = {token.value.lower() for token in rest if token.is_name}
    return frozenset(name for name in columns if name.lower() in named)


def _is_operand(token: Token) -> bool:
    """Tell whether a star after this token is the operator ``*``. Otherwise the star means all columns."""
    words = {"select", "distinct", "all", "set", "returning", "by", "and", "or", "not", "then", "else", "when"}
    return token.value in {")", "]"} if token.kind is Kind.SIGN else token.lower not in words


_OPERATIONS: Final[Mapping[str, Callable[[Any, Any], pc.Expression]]] = {
    "=": lambda column, value: column == value,
    "<>": lambda column, value: column != value,
    "!=": lambda column, value: column != value,
    "<": lambda column, value: column < value,
    "<=": lambda column, value: column <= value,
    ">": lambda column, value: column > value,
    ">=": lambda column, value: column >= value,
}


def find_plain_where(change: Change, schema: pa.Schema) -> pc.Expression | None:
    """Return the condition of a ``delete`` if every engine evaluates it alike, else None.

    A ``delete`` without a condition has a condition that is always true.

    Args:
        schema: the table's columns.
    """
    rest = list(change.tokens[change.after :])
    if change.action != "delete" or change.verb:
        return None
    if not rest:
        return pc.scalar(value=True)
    named = change.target.qualifier.lower()
    if rest[0].lower == "as":
        rest = rest[1:]
    if rest and rest[0].is_name and rest[0].lower != "where":
        named, rest = rest[0].value.lower(), rest[1:]
    if not rest:
        return pc.scalar(value=True)
    if rest[0].lower != "where" or any(field.name.lower() == named for field in schema):
        return None
    condition_so_far = None
    for part in _split_at_and(rest[1:]):
        condition = _comparison(change.text, part, named, schema)
        if condition is None:
            return None
        condition_so_far = condition if condition_so_far is None else condition_so_far & condition
    return condition_so_far


def _split_at_and(tokens: Sequence[Token]) -> list[list[Token]]:
    parts: list[list[Token]] = [[]]
    for token in tokens:
        if token.lower == "and":
            parts.append([])
        else:
            parts[-1].append(token)
    return parts


def _comparison(text: str, tokens: list[Token], named: str, schema: pa.Schema) -> pc.Expression | None:
    if len(tokens) > 2 and tokens[1].value == "." and tokens[0].is_name and tokens[0].value.lower() == named:
        tokens = tokens[2:]
    if len(tokens) < 3 or not tokens[0].is_name:
        return None
    fields = [field for field in schema if field.name.lower() == tokens[0].value.lower()]
    if len(fields) != 1:
        return None
    column, words = pc.field(fields[0].name), [token.lower for token in tokens[1:]]
    if words in (["is", "null"], ["is", "not", "null"]):
        return column.is_null() if len(words) == 2 else column.is_valid()
    value = _literal(text, tokens[2:], fields[0].type)
    if value is None or words[0] not in _OPERATIONS:
        return None
    return _OPERATIONS[words[0]](column, value)


def _literal(text: str, tokens: Sequence[Token], kind: pa.DataType) -> pa.Scalar | None:
    """Return the value of a literal that has the column's type; None if the tokens are anything else."""
    is_negative = len(tokens) == 2 and tokens[0].value == "-"
    token = tokens[-1]
    if len(tokens) != 1 + is_negative:
        return None
    if (
        kind_of(kind) is ArrowKind.INTEGER
        and token.kind is Kind.NUMBER
        and token.value.isascii()
        and token.value.isdigit()
    ):
        value = -int(token.value) if is_negative else int(token.value)
        most = 2 ** (kind.bit_width - 1)
        return pa.scalar(value, kind) if -most < value < most else None
    if is_negative:
        return None
    if kind_of(kind) is ArrowKind.TEXT and token.kind is Kind.TEXT and _is_simple(text[token.at : token.end]):
        return pa.scalar(token.value, kind)
    if kind_of(kind) is ArrowKind.BOOLEAN and token.lower in {"true", "false"}:
        return pa.scalar(token.lower == "true", kind)
    return None


def _is_simple(quoted: str) -> bool:
    """Tell whether all dialects read the quoted text alike: single quotes, without backslashes or quotes inside."""
    inner = quoted[1:-1]
    return quoted[0] == quoted[-1] == "'" and "\\" not in inner and "'" not in inner
