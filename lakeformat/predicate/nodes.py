"""The syntax tree of a row filter, as frozen values. A parser makes it, or an engine pushes it down.

A leaf has the *path* of its column: the parts of a (nested) name joined by dots, ``"fare.amount"``. A part with a
dot or a backquote is quoted by backquotes, as in Spark SQL: ```"`a.b`.c"```.

`lakeformat.predicate.bind` turns a tree of Python literals into an equivalent tree whose literals are Arrow
scalars of exactly the column's type. Only such a *bound* tree can be evaluated.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from lakeformat.errors import InvalidInputError

__all__ = [
    "MIRRORED",
    "Always",
    "And",
    "ColumnComparison",
    "Comparison",
    "Computed",
    "Contains",
    "EndsWith",
    "In",
    "IsNull",
    "Leaf",
    "Like",
    "Not",
    "Operator",
    "Or",
    "Predicate",
    "StartsWith",
    "bound_literal",
    "column_comparisons",
    "column_path",
    "columns_of",
    "computed_parts",
    "leaves",
    "like_tokens",
    "path_parts",
]

Operator: TypeAlias = Literal["=", "<=>", "<", "<=", ">", ">=", "!="]
#: Maps an operator to the one with the same meaning after both sides are exchanged.
MIRRORED: Final[Mapping[Operator, Operator]] = {
    "=": "=", "<=>": "<=>", "!=": "!=", "<": ">", "<=": ">=", ">": "<", ">=": "<=",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Comparison:
    """``column op value``; null on either side gives null, except for the null-safe ``<=>``.

    ``value`` is an int, float, `decimal.Decimal`, str, bytes, bool, date, datetime or None; after binding, a
    `pa.Scalar` of the column's type.
    """

    column: str
    op: Operator
    value: object


@dataclass(frozen=True, slots=True)
class In:
    """``column IN (values)``. If None is among the values, the result is null for rows that are not equal to a value.

    Without values the result is false for every row. After binding, ``values`` is a `pa.Array` of the column's type. A
    bound condition with an empty array is null for null rows and false for all other rows. `bind` returns such a
    condition for a comparison with a literal that no value of the column can equal.
    """

    column: str
    values: Sequence[object] | pa.Array


@dataclass(frozen=True, slots=True)
class IsNull:
    """``column IS NULL``, whose result is never null. A field of a null struct is null."""

    column: str


@dataclass(frozen=True, slots=True)
class StartsWith:
    """The text of ``column`` begins with ``text``, byte by byte."""

    column: str
    text: str


@dataclass(frozen=True, slots=True)
class EndsWith:
    """The text of ``column`` ends with ``text``, byte by byte."""

    column: str
    text: str


@dataclass(frozen=True, slots=True)
class Contains:
    """The text of ``column`` contains ``text``, byte by byte."""

    column: str
    text: str


@dataclass(frozen=True, slots=True)
class Like:
    r"""``column LIKE pattern``: ``%`` is any text, ``_`` one character, ``\`` escapes the next one."""

    column: str
    pattern: str


@dataclass(frozen=True, slots=True)
class ColumnComparison:
    """``left op right`` of two columns; null on either side gives null, except for the null-safe ``<=>``."""

    left: str
    op: Operator
    right: str


@dataclass(frozen=True, slots=True)
class Always:
    """True, or false, for every row."""

    value: bool


@dataclass(frozen=True, slots=True)
class Computed:
    """A condition that Arrow computes. `lakeformat.predicate.expression` makes it, already bound.

    Attributes:
        expression: the Arrow expression.
        columns: for each name in the expression a pair of the name's parts and the path of the column.
        hint: a bound filter that is true for every row for which the expression is true.
    """

    expression: pc.Expression
    columns: tuple[tuple[tuple[str, ...], str], ...]
    hint: Predicate


@dataclass(frozen=True, slots=True)
class Not:
    """SQL's NOT; null if the operand is null."""

    operand: Predicate


@dataclass(frozen=True, slots=True)
class And:
    """SQL's AND of any number of operands; true without operands."""

    operands: tuple[Predicate, ...]


@dataclass(frozen=True, slots=True)
class Or:
    """SQL's OR of any number of operands; false without operands."""

    operands: tuple[Predicate, ...]


Leaf: TypeAlias = Comparison | In | IsNull | StartsWith | EndsWith | Contains | Like
Predicate: TypeAlias = Leaf | ColumnComparison | Computed | Always | Not | And | Or

_PART: Final = re.compile(r"`((?:[^`]|``)+)`|([^.`]+)")


def column_path(parts: Iterable[str]) -> str:
    """Join the parts of a name into a path.

    >>> column_path(["fare", "amount"]), column_path(["a.b"])
    ('fare.amount', '`a.b`')
    """
    return ".".join(f"`{part.replace('`', '``')}`" if "." in part or "`" in part else part for part in parts)


def path_parts(path: str) -> tuple[str, ...]:
    """Split a path into the parts of a name; the inverse of `column_path`.

    >>> path_parts("`a.b`.c")
    ('a.b', 'c')

    Raises:
        InvalidInputError: An empty part, or an unpaired backquote.
    """
    if "`" not in path and path and "" not in (plain := path.split(".")):
        return tuple(plain)
    parts: list[str] = []
    at = 0
    while match := _PART.match(path, at):
        quoted, bare = match.groups()
        parts.append(bare if quoted is None else quoted.replace("``", "`"))
        at = match.end()
        if at == len(path):
            return tuple(parts)
        if path[at] != ".":
            break
        at += 1
    raise InvalidInputError(f"not a column name: {path!r}; put names with dots into backquotes")


def bound_literal(literal: object) -> pa.Scalar | pa.Array:
    """Return a literal of a bound filter unchanged. Raise `TypeError` for a Python literal, of an unbound filter."""
    if not isinstance(literal, pa.Scalar | pa.Array):
        raise TypeError(f"the filter is not bound to a schema: it holds {literal!r}")
    return literal


def leaves(predicate: Predicate) -> Iterator[Leaf]:
    """Yield every leaf on one column, left to right; for a computed condition, the leaves of its hint."""
    match predicate:
        case And(operands) | Or(operands):
            for operand in operands:
                yield from leaves(operand)
        case Not(operand) | Computed(hint=operand):
            yield from leaves(operand)
        case Always() | ColumnComparison():
            return
        case leaf:
            yield leaf


def column_comparisons(predicate: Predicate) -> Iterator[ColumnComparison]:
    """Yield every comparison of two columns, left to right."""
    match predicate:
        case And(operands) | Or(operands):
            for operand in operands:
                yield from column_comparisons(operand)
        case Not(operand):
            yield from column_comparisons(operand)
        case ColumnComparison():
            yield predicate


def computed_parts(predicate: Predicate) -> Iterator[Computed]:
    """Yield every condition that Arrow computes, left to right."""
    match predicate:
        case And(operands) | Or(operands):
            for operand in operands:
                yield from computed_parts(operand)
        case Not(operand):
            yield from computed_parts(operand)
        case Computed():
            yield predicate


def columns_of(predicate: Predicate) -> frozenset[str]:
    """Return the top-level columns that a filter reads.

    >>> sorted(columns_of(And((IsNull("fare.amount"), Comparison("day", "=", 3)))))
    ['day', 'fare']
    """
    columns = [leaf.column for leaf in leaves(predicate)]
    for compared in column_comparisons(predicate):
        columns += [compared.left, compared.right]
    columns += [path for computed in computed_parts(predicate) for _, path in computed.columns]
    return frozenset(path_parts(column)[0] for column in columns)


def like_tokens(pattern: str) -> tuple[str, ...]:
    r"""Split a LIKE pattern into ``"%"``, ``"_"`` and literal texts, each literal text with the prefix ``"="``.

    >>> like_tokens(r"100\%_of%")
    ('=100%', '_', '=of', '%')

    Raises:
        InvalidInputError: ``\`` before a character that needs no escape, or at the end; Spark also refuses it.
    """
    tokens: list[str] = []
    characters = iter(pattern)
    for character in characters:
        literal = character
        if character == "\\":
            literal = next(characters, "")
            if literal not in ("%", "_", "\\"):
                raise InvalidInputError(
                    f"LIKE pattern {pattern!r} has a backslash before {literal!r}; only %, _ and \\ take one"
                )
        elif character in "%_":
            if character == "_" or tokens[-1:] != ["%"]:
                tokens.append(character)
            continue
        if tokens and tokens[-1].startswith("="):
            tokens[-1] += literal
        else:
            tokens.append("=" + literal)
    return tuple(tokens)
