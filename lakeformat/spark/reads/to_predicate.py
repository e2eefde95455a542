"""Conversion of Spark columns and of Spark's pushed filters to predicates by which files can be skipped.

A predicate is true for every row that Spark's condition selects, and may be true for more rows. It only skips files;
Spark applies its own condition to the rows.

A Spark column is a tree of calls, names and literals: objects of PySpark under Spark Connect, and of the JVM otherwise.
If an operand of AND, or a pushed filter, has a part that this module does not know, the whole operand or filter is left
out. The predicate is then true for more rows, so fewer files are skipped, and no row is lost.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Final

import pyarrow as pa
from pyspark.sql import Column

from lakeformat.arrow.kinds import Kind, kind_of
from lakeformat.errors import InvalidInputError, LakeformatError
from lakeformat.predicate import (
    MIRRORED,
    Always,
    And,
    Comparison,
    Contains,
    EndsWith,
    In,
    IsNull,
    Not,
    Or,
    Predicate,
    StartsWith,
    bind,
    column_path,
    parse_where,
    path_parts,
    resolve_column,
)

__all__ = ["implied_predicate", "to_predicate"]


@dataclass(frozen=True)
class _Call:
    name: str
    arguments: tuple[_Node, ...]


@dataclass(frozen=True)
class _Name:
    path: str


@dataclass(frozen=True)
class _Literal:
    value: Any


@dataclass(frozen=True)
class _Text:
    sql: str


#: A node of a column's tree. None means a node that this module does not know.
_Node = _Call | _Name | _Literal | _Text | None

#: Mapping of those names of functions that Spark spells differently to the names in `_Call`.
_SPELT: Final = {"==": "=", "!": "not"}
#: Mapping of each comparison to the one that means the same with swapped operands: ``5 < x`` becomes ``x > 5``.
#: The comparisons that Spark names like this package.
_COMPARISONS: Final = MIRRORED.keys() - {"!="}
_TEXTS: Final[Mapping[str, Callable[[str, str], Predicate]]] = {
    "startswith": StartsWith,
    "endswith": EndsWith,
    "contains": Contains,
}


def implied_predicate(column: Column, schema: pa.Schema) -> Predicate:
    """Convert a Spark condition to a predicate that is true for every row that the condition selects.

    Only comparisons of a column with literals of the column's own type are converted: Spark casts other types by rules
    that depend on the session. Operands of AND that cannot be converted are left out; ``Always(True)`` is returned if
    nothing can be converted.

    Args:
        schema: the columns to which the predicate is bound.
    """
    return _implied(_tree(column), schema)


def _implied(node: _Node, schema: pa.Schema) -> Predicate:
    if isinstance(node, _Call) and node.name == "and":
        return And(tuple(_implied(argument, schema) for argument in node.arguments))
    exact = _exact_predicate(node, schema)
    return Always(True) if exact is None else exact


def _exact_predicate(node: _Node, schema: pa.Schema) -> Predicate | None:
    """Return a predicate that selects exactly the rows of this condition; None if any part cannot be converted."""
    if isinstance(node, _Text):
        try:
            parsed = parse_where(node.sql)
        except LakeformatError:
            return None
        return _bound(parsed, schema)
    if not isinstance(node, _Call):
        return None
    if node.name in ("and", "or", "not"):
        parts = [_exact_predicate(argument, schema) for argument in node.arguments]
        exact = tuple(part for part in parts if part is not None)
        if len(exact) < len(parts):
            return None
        return And(exact) if node.name == "and" else Or(exact) if node.name == "or" else Not(*exact)
    leaf = _leaf(node)
    return None if leaf is None else _bound(leaf, schema)


def _leaf(call: _Call) -> Predicate | None:
    name, arguments = call.name, call.arguments
    if len(arguments) == 2 and isinstance(arguments[0], _Literal) and name in _COMPARISONS:
        name, arguments = MIRRORED[name], arguments[::-1]
    match arguments:
        case (_Name(path),) if name in ("isnull", "isnotnull"):
            return IsNull(path) if name == "isnull" else Not(IsNull(path))
        case (_Name(path), _Literal(value)) if name in _COMPARISONS:
            return Comparison(path, name, value)
        case (_Name(path), _Literal(value)) if name in ("!=", "<>"):
            return Not(Comparison(path, "=", value))
        case (_Name(path), _Literal(str() as text)) if name in _TEXTS:
            return _TEXTS[name](path, text)
        case (_Name(path), *values) if name == "in" and all(isinstance(value, _Literal) for value in values):
            return In(path, tuple(value.value for value in values if isinstance(value, _Literal)))
    return None


def _bound(predicate: Predicate, schema: pa.Schema) -> Predicate | None:
    try:
        return bind(predicate, schema) if _same_kinds(predicate, schema) else None
    except InvalidInputError:
        return None


def _same_kinds(predicate: Predicate, schema: pa.Schema) -> bool:
    """Tell whether Spark compares each column with its literals without converting a type."""
    match predicate:
        case And(operands) | Or(operands):
            return all(_same_kinds(operand, schema) for operand in operands)
        case Not(operand):
            return _same_kinds(operand, schema)
        case IsNull():
            return True
        case Comparison(path, _, value):
            return _same_kind(value, resolve_column(path, schema)[1])
        case In(path, values):
            kind = resolve_column(path, schema)[1]
            return all(_same_kind(value, kind) for value in values)
        case StartsWith(path) | EndsWith(path) | Contains(path):
            return kind_of(resolve_column(path, schema)[1]) is Kind.TEXT
    return False


def _same_kind(value: Any, kind: pa.DataType) -> bool:
    if isinstance(value, bool):
        return kind_of(kind) is Kind.BOOLEAN
    if isinstance(value, str):
        return kind_of(kind) is Kind.TEXT
    if isinstance(value, int):
        exact = kind_of(kind) is Kind.FLOAT and abs(value) < 1 << 24
        return kind_of(kind) is Kind.INTEGER or exact
    if isinstance(value, float):
        return bool(kind == pa.float64())
    return isinstance(value, Decimal) and kind_of(kind) is Kind.DECIMAL


def _tree(column: Column) -> _Node:
    """Return the tree of a Spark column; None if this release of PySpark has other classes."""
    try:
        # A classic column returns a column for every attribute name, so ``hasattr`` cannot tell the classes apart.
        if type(column).__module__.startswith("pyspark.sql.connect."):
            return _of_connect(column._expr)
        return _of_jvm(column._jc.node())
    except Exception:
        return None


def _of_connect(expression: Any) -> _Node:
    kind = type(expression).__name__
    if kind == "UnresolvedFunction":
        return _call(expression._name, map(_of_connect, expression._args))
    if kind == "ColumnReference" and expression._plan_id is None:
        return _name(path_parts(expression._unparsed_identifier))
    if kind == "LiteralExpression":
        return _literal(expression._value, expression._dataType.typeName())
    if kind == "SQLExpression":
        return _Text(expression._expr)
    return None


def _of_jvm(node: Any) -> _Node:
    kind = node.getClass().getSimpleName()
    if kind == "UnresolvedFunction":
        arguments = node.arguments()
        return _call(node.functionName(), (_of_jvm(arguments.apply(number)) for number in range(arguments.size())))
    if kind == "UnresolvedAttribute" and node.planId().isEmpty():
        parts = node.nameParts()
        return _name([parts.apply(number) for number in range(parts.size())])
    if kind == "Literal":
        value = node.value()
        return _literal(value, "string" if isinstance(value, str) else "")
    if kind == "SqlExpression":
        return _Text(node.expression())
    return None


def _call(name: str, arguments: Iterable[_Node]) -> _Call:
    return _Call(_SPELT.get(name, name.lower()), tuple(arguments))


def _name(parts: Sequence[str]) -> _Node:
    return None if "*" in parts else _Name(column_path(parts))


def _literal(value: Any, kind: str) -> _Node:
    plain = isinstance(value, bool | int | float | Decimal) or (isinstance(value, str) and kind == "string")
    return _Literal(value) if plain and kind not in ("date", "timestamp", "timestamp_ntz", "daytimeinterval") else None


def _compare(op: Any) -> Callable[[Any], Predicate]:
    return lambda f: Comparison(column_path(f.attribute), op, f.value)


_BUILDERS: Final[Mapping[str, Callable[[Any], Predicate | None]]] = {
    "EqualTo": _compare("="),
    "EqualNullSafe": _compare("<=>"),
    "GreaterThan": _compare(">"),
    "GreaterThanOrEqual": _compare(">="),
    "LessThan": _compare("<"),
    "LessThanOrEqual": _compare("<="),
    "In": lambda f: In(column_path(f.attribute), tuple(f.value)),
    "IsNull": lambda f: IsNull(column_path(f.attribute)),
    "IsNotNull": lambda f: Not(IsNull(column_path(f.attribute))),
    "StringStartsWith": lambda f: StartsWith(column_path(f.attribute), f.value),
    "StringEndsWith": lambda f: EndsWith(column_path(f.attribute), f.value),
    "StringContains": lambda f: Contains(column_path(f.attribute), f.value),
    "Not": lambda f: None if (inner := _one(f.child)) is None else Not(inner),
}


def _one(pushed: Any) -> Predicate | None:
    builder = _BUILDERS.get(type(pushed).__name__)
    return None if builder is None else builder(pushed)


def to_predicate(pushed: Iterable[Any]) -> Predicate:
    """Convert Spark's pushed filters to one predicate, their conjunction.

    Filters that cannot be converted are left out, so the predicate may select more rows than the filters, never fewer.
    """
    predicates = [predicate for predicate in map(_one, pushed) if predicate is not None]
    return And(tuple(predicates))
