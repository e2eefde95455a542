"""The syntax tree of a row filter, as frozen values. A parser makes it, or an engine pushes it down.

Functions are in *values*: a tree of columns, literals and calls. A condition on such a value is one node, `Calculated`.

A leaf has the *path* of its column: the parts of a (nested) name joined by dots, ``"fare.amount"``. A part with a
dot or a backquote is quoted by backquotes, as in Spark SQL: ```"`a.b`.c"```.

`lakeformat.predicate.bind` turns a tree of Python literals into an equivalent tree whose literals are Arrow
scalars of exactly the column's type. Only such a *bound* tree can be evaluated.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, Literal, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from lakeformat.arrow.kinds import Kind, kind_of
from lakeformat.errors import InvalidInputError

__all__ = [
    "MIRRORED",
    "Always",
    "And",
    "Calculated",
    "Call",
    "Case",
    "ColumnComparison",
    "ColumnValue",
    "Comparison",
    "Computed",
    "Constant",
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
    "Truth",
    "Value",
    "bound_literal",
    "column_path",
    "columns_of",
    "conditions_of",
    "has_exact_bounds",
    "leaves",
    "like_tokens",
    "parts_of",
    "path_parts",
    "rename_columns",
    "rename_in_value",
    "statistics_paths",
    "value_columns",
    "values_of",
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
class ColumnValue:
    """The value of a column. After binding, ``of`` is the type in which it is computed."""

    path: str
    of: pa.DataType | None = None


@dataclass(frozen=True, slots=True)
class Constant:
    """A literal. ``of`` is the type that its text says (``5L``), or None; after binding, ``value`` is a `pa.Scalar`."""

    value: object
    of: pa.DataType | None = None


@dataclass(frozen=True, slots=True)
class Call:
    """A function or operator of values, by its name in `lakeformat.predicate.functions`.

    Attributes:
        of: the type of the result; of a cast, also before binding.
        zone: the time zone, if the result depends on it; set by binding.
    """

    function: str
    arguments: tuple[Value, ...]
    of: pa.DataType | None = None
    zone: str = ""


@dataclass(frozen=True, slots=True)
class Case:
    """The value of the first branch whose condition is true, else ``otherwise``."""

    branches: tuple[tuple[Predicate, Value], ...]
    otherwise: Value
    of: pa.DataType | None = None


@dataclass(frozen=True, slots=True)
class Truth:
    """A condition as a value: true, false or null."""

    predicate: Predicate


@dataclass(frozen=True, slots=True)
class Calculated:
    """A condition that is the value of a function or operator, true, false or null."""

    value: Value


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
Predicate: TypeAlias = Leaf | ColumnComparison | Calculated | Computed | Always | Not | And | Or

Value: TypeAlias = ColumnValue | Constant | Call | Case | Truth

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
    position = 0
    while match := _PART.match(path, position):
        quoted, bare = match.groups()
        parts.append(bare if quoted is None else quoted.replace("``", "`"))
        position = match.end()
        if position == len(path):
            return tuple(parts)
        if path[position] != ".":
            break
        position += 1
    raise InvalidInputError(f"not a column name: {path!r}; put names with dots into backquotes")


def bound_literal(literal: object) -> pa.Scalar | pa.Array:
    """Return a literal of a bound filter unchanged. Raise `TypeError` for a Python literal, of an unbound filter."""
    if not isinstance(literal, pa.Scalar | pa.Array):
        raise TypeError(f"the filter is not bound to a schema: it holds {literal!r}")
    return literal


def parts_of(predicate: Predicate) -> Iterator[Predicate]:
    """Yield the conditions that AND, OR and NOT combine, left to right."""
    match predicate:
        case And(operands) | Or(operands):
            for operand in operands:
                yield from parts_of(operand)
        case Not(operand):
            yield from parts_of(operand)
        case part:
            yield part


def leaves(predicate: Predicate) -> Iterator[Leaf]:
    """Yield every leaf on one column, left to right; for a condition that Arrow computes, the leaves of its hint."""
    for part in parts_of(predicate):
        match part:
            case Computed(hint=hint):
                yield from leaves(hint)
            case Comparison() | In() | IsNull() | StartsWith() | EndsWith() | Contains() | Like():
                yield part


def values_of(value: Value) -> Iterator[Value]:
    """Yield a value and all values from which it is computed, except those inside of conditions."""
    yield value
    match value:
        case Call(arguments=arguments):
            inner = arguments
        case Case(branches, otherwise):
            inner = (*(Truth(condition) for condition, _ in branches), *(result for _, result in branches), otherwise)
        case _:
            return
    for inner_value in inner:
        yield from values_of(inner_value)


def conditions_of(value: Value) -> Iterator[Predicate]:
    """Yield the conditions inside of a value; those inside of these conditions are not yielded."""
    for part in values_of(value):
        if isinstance(part, Truth):
            yield part.predicate


def value_columns(value: Value) -> Iterator[str]:
    """Yield the paths of the columns from which a value is computed."""
    for part in values_of(value):
        if isinstance(part, ColumnValue):
            yield part.path
        elif isinstance(part, Truth):
            yield from _paths_of(part.predicate)


def _paths_of(predicate: Predicate) -> Iterator[str]:
    for part in parts_of(predicate):
        match part:
            case ColumnComparison(left, _, right):
                yield from (left, right)
            case Computed(columns=columns):
                yield from (path for _, path in columns)
            case Calculated(value):
                yield from value_columns(value)
            case Always() | And() | Or() | Not():
                pass
            case leaf:
                yield leaf.column


def statistics_paths(predicate: Predicate) -> tuple[str, ...]:
    """Return the sorted paths of the columns whose bounds can rule out rows."""
    paths = {leaf.column for leaf in leaves(predicate)}
    for part in parts_of(predicate):
        if isinstance(part, Calculated):
            columns = [inner for inner in values_of(part.value) if isinstance(inner, ColumnValue)]
            paths.update(
                column.path for column in columns if column.of is not None and not kind_of(column.of).is_nested
            )
    return tuple(sorted(paths))


def has_exact_bounds(column: ColumnValue) -> bool:
    """Tell whether equal bounds mean that a bound column has one value; not so for floats, which have two zeros."""
    of = column.of
    return of is not None and not (kind_of(of).is_nested or kind_of(of) is Kind.FLOAT)


def columns_of(predicate: Predicate) -> frozenset[str]:
    """Return the top-level columns that a filter reads.

    >>> sorted(columns_of(And((IsNull("fare.amount"), Comparison("day", "=", 3)))))
    ['day', 'fare']
    """
    return frozenset(path_parts(column)[0] for column in _paths_of(predicate))


def rename_columns(predicate: Predicate, rename: Callable[[str], str]) -> Predicate:
    """Return the filter, not bound yet, with other paths of its columns."""
    match predicate:
        case And(operands) | Or(operands):
            return type(predicate)(tuple(rename_columns(operand, rename) for operand in operands))
        case Not(operand):
            return Not(rename_columns(operand, rename))
        case Always() | Computed():
            return predicate
        case ColumnComparison(left, op, right):
            return ColumnComparison(rename(left), op, rename(right))
        case Calculated(value):
            return Calculated(rename_in_value(value, rename))
        case leaf:
            return replace(leaf, column=rename(leaf.column))


def rename_in_value(value: Value, rename: Callable[[str], str]) -> Value:
    """Return the value with other paths of its columns."""
    match value:
        case ColumnValue(path):
            return replace(value, path=rename(path))
        case Call(arguments=arguments):
            return replace(value, arguments=tuple(rename_in_value(argument, rename) for argument in arguments))
        case Case(branches, otherwise):
            renamed = tuple(
                (rename_columns(condition, rename), rename_in_value(result, rename)) for condition, result in branches
            )
            return replace(value, branches=renamed, otherwise=rename_in_value(otherwise, rename))
        case Truth(predicate):
            return Truth(rename_columns(predicate, rename))
        case Constant():
            return value


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
