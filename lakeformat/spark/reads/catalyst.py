"""Conversion of Spark's optimized filters to predicates by which files can be skipped.

Spark's planner gives a file index the filters of a scan as Catalyst expressions, which are objects of the JVM. This
module reads a whole expression in one call, as JSON of its classes and children, and converts the classes that it
knows. Values that this JSON does not hold exactly (dates, timestamps, long IN lists) are asked for one by one.

A predicate is true for every row that the filters select, and may be true for more rows: it only skips files. A part
that this module does not know, such as a cast or a function, rules out nothing.
"""

from __future__ import annotations

import json
import logging
import math
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from functools import lru_cache, partial
from typing import Any, Final

import pyarrow as pa

from lakeformat.arrow.kinds import Kind, kind_of
from lakeformat.errors import InvalidInputError
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
    Operator,
    Or,
    Predicate,
    StartsWith,
    column_path,
    resolve_column,
)
from lakeformat.spark.types import spark_schema

__all__ = ["filters_to_predicate"]

_LOG: Final = logging.getLogger("lakeformat.spark")


@dataclass(frozen=True, slots=True)
class _Column:
    """A column or a field of a struct.

    Attributes:
        parts: the names that lead to it.
        of: its type, as in the JSON of Spark's types.
    """

    parts: tuple[str, ...]
    of: Any


@dataclass(frozen=True, slots=True)
class _Value:
    """A literal: its type as in the JSON of Spark's types, and its value as text or, for times, as Spark's number."""

    of: Any
    value: Any


@dataclass(frozen=True, slots=True)
class _Condition:
    """A condition.

    Attributes:
        implied: a predicate that is true for every row for which the condition is true.
        exact: a predicate that is true and false for at least the rows for which the condition is; None if a part of
            the condition is not known.
    """

    implied: Predicate
    exact: Predicate | None


_Part = _Column | _Value | _Condition | None

_COMPARISONS: Final[Mapping[str, Operator]] = {
    "EqualTo": "=",
    "EqualNullSafe": "<=>",
    "LessThan": "<",
    "LessThanOrEqual": "<=",
    "GreaterThan": ">",
    "GreaterThanOrEqual": ">=",
}
_TEXTS: Final[Mapping[str, Callable[[str, str], Predicate]]] = {
    "StartsWith": StartsWith,
    "EndsWith": EndsWith,
    "Contains": Contains,
}
_PACKAGE: Final = "org.apache.spark.sql.catalyst.expressions."
#: Fields of Spark's hidden column ``_metadata``. In filters they look like columns of the table with these names.
_HIDDEN: Final = frozenset({
    "file_path", "file_name", "file_size", "file_block_start", "file_block_length", "file_modification_time",
    "row_index",
})  # fmt: skip
#: Types whose literals are texts in the JSON of an expression. The session's time zone changes these texts.
_TIMES: Final = ("date", "timestamp", "timestamp_ntz")
_INTEGERS: Final = ("byte", "short", "integer", "long")


def filters_to_predicate(filters: Iterable[Any], schema: pa.Schema) -> Predicate:
    """Convert the filters of a scan to one bound predicate, which is true for every row that all of them select.

    Args:
        filters: Catalyst expressions in the JVM.
        schema: the columns to which the predicate is bound: all columns of the table as readers see them.
    """
    converted = [_convert(expression, schema) for expression in filters]
    return And(tuple(predicate for predicate in converted if predicate != Always(True)))


def _convert(expression: Any, schema: pa.Schema) -> Predicate:
    try:
        nodes = json.loads(expression.toJSON())
        parts: list[_Part] = []
        for number in range(len(nodes) - 1, -1, -1):  # Children come after their parent, the first child next to it.
            children = [parts.pop() for _ in range(nodes[number]["num-children"])]
            node = partial(_node, expression, number, nodes[number]["class"])
            parts.append(_part(nodes[number], children, node, schema))
        (whole,) = parts
        condition = _as_condition(whole, schema)
    except Exception as error:  # E.g. an expression of another library, with children that are not in its JSON.
        _LOG.debug("a filter of Spark skips no files: %s", error)
        return Always(True)
    return Always(True) if condition is None else condition.implied


def _node(expression: Any, number: int, name: str) -> Any:
    """Return the node at a place of an expression, counted as in its JSON."""
    child = expression if number == 0 else getattr(expression, "apply")(number)  # noqa: B009  A method of Scala's trees.
    if child.getClass().getName() != name:
        raise ValueError(f"node {number} is a {child.getClass().getName()}, not a {name}")
    return child


def _part(node: Mapping[str, Any], children: Sequence[_Part], in_jvm: Callable[[], Any], schema: pa.Schema) -> _Part:
    """Convert one node whose children are converted already. Return None if it is not known.

    Args:
        in_jvm: returns the node in the JVM.
    """
    name = node["class"].removeprefix(_PACKAGE)
    operand = _operand(name, node, children, in_jvm, schema)
    return _condition(name, children, in_jvm, schema) if operand is None else operand


def _operand(
    name: str, node: Mapping[str, Any], children: Sequence[_Part], in_jvm: Callable[[], Any], schema: pa.Schema
) -> _Column | _Value | None:
    match name, children:
        case "AttributeReference", []:
            is_usable = node["nullable"] and node["name"] in schema.names and node["name"] not in _HIDDEN
            return _Column((node["name"],), node["dataType"]) if is_usable else None
        case "Literal", []:
            timed = node["dataType"] in _TIMES and node["value"] is not None
            return _Value(node["dataType"], in_jvm().value() if timed else node["value"])
        case "GetStructField", [_Column(parts, {"type": "struct", "fields": fields})]:
            field = fields[node["ordinal"]]
            return _Column((*parts, field["name"]), field["type"])
        case "NaNvl", [_Column() as column, _Value(of, "NaN")] if of == column.of:
            return column  # This is how `native_scan` hides floats that may be NaN from Spark's own skipping.
    return None


def _condition(name: str, children: Sequence[_Part], in_jvm: Callable[[], Any], schema: pa.Schema) -> _Condition | None:
    match name, children:
        case (("And" | "Or"), [left, right]):
            return _combine(name, _as_condition(left, schema), _as_condition(right, schema))
        case "Not", [operand]:
            condition = _as_condition(operand, schema)
            return None if condition is None or condition.exact is None else _leaf(Not(condition.exact))
        case (("IsNull" | "IsNotNull"), [_Column(parts, _)]):
            null = IsNull(resolve_column(column_path(parts), schema)[0])
            return _leaf(null if name == "IsNull" else Not(null))
        case "IsNaN", [_Column() as column]:
            return _compare(column, "<=>", _Value(column.of, "NaN"), schema)
        case _, [_Column() as column, _Value() as value] if name in _COMPARISONS:
            return _compare(column, _COMPARISONS[name], value, schema)
        case _, [_Value() as value, _Column() as column] if name in _COMPARISONS:
            return _compare(column, MIRRORED[_COMPARISONS[name]], value, schema)
        case _, [_Column(parts, "string"), _Value("string", str(text))] if name in _TEXTS and _is_plain(text):
            return _leaf(_TEXTS[name](resolve_column(column_path(parts), schema)[0], text))
        case "In", [_Column() as column, *values] if all(isinstance(value, _Value) for value in values):
            return _membership(column, [value for value in values if isinstance(value, _Value)], schema)
        case "InSet", [_Column() as column]:
            membership = _membership(column, _set_values(in_jvm(), column.of), schema)
            # In such a set of Spark -0.0 and 0.0 are different values, so the negation may select more rows than ours.
            return (
                _Condition(membership.implied, None)
                if membership is not None and column.of in ("float", "double")
                else membership
            )
    return None


def _leaf(predicate: Predicate) -> _Condition:
    return _Condition(predicate, predicate)


def _as_condition(part: _Part, schema: pa.Schema) -> _Condition | None:
    match part:
        case _Column(_, "boolean"):
            return _compare(part, "=", _Value("boolean", "true"), schema)
        case _Value("boolean", value):
            return _leaf(Always(value == "true"))
        case _Condition():
            return part
    return None


def _combine(name: str, left: _Condition | None, right: _Condition | None) -> _Condition:
    unknown = _Condition(Always(True), None)
    first, other = left or unknown, right or unknown
    join = _join_and if name == "And" else _join_or
    exact = None if first.exact is None or other.exact is None else join(first.exact, other.exact)
    return _Condition(join(first.implied, other.implied), exact)


def _join_and(left: Predicate, right: Predicate) -> Predicate:
    parts = [
        part
        for predicate in (left, right)
        for part in (predicate.operands if isinstance(predicate, And) else (predicate,))
    ]
    return And(tuple(part for part in parts if part != Always(True)))


def _join_or(left: Predicate, right: Predicate) -> Predicate:
    parts = [
        part
        for predicate in (left, right)
        for part in (predicate.operands if isinstance(predicate, Or) else (predicate,))
    ]
    return Always(True) if any(part in (Always(True), And(())) for part in parts) else Or(tuple(parts))


def _compare(column: _Column, op: Any, value: _Value, schema: pa.Schema) -> _Condition | None:
    bound = _bind(column, [value], schema)
    if bound is None:
        return None
    path, (scalar,) = bound
    return _leaf(IsNull(path) if op == "<=>" and not scalar.is_valid else Comparison(path, op, scalar))


def _membership(column: _Column, values: Sequence[_Value], schema: pa.Schema) -> _Condition | None:
    bound = _bind(column, values, schema)
    return None if bound is None else _leaf(In(bound[0], pa.array(bound[1], _stored_type(column, schema))))


def _bind(column: _Column, values: Sequence[_Value], schema: pa.Schema) -> tuple[str, list[pa.Scalar]] | None:
    """Return the column's path, and the values as scalars of the column's type; None if one is not of this type."""
    path, of = resolve_column(column_path(column.parts), schema)
    if _spark_type(of) != column.of or any(value.of != column.of for value in values):
        return None
    try:
        return path, [_scalar(value, of) for value in values]
    except (InvalidInputError, ValueError, ArithmeticError, pa.ArrowException):
        return None


def _stored_type(column: _Column, schema: pa.Schema) -> pa.DataType:
    return resolve_column(column_path(column.parts), schema)[1]


@lru_cache(maxsize=256)
def _spark_type(of: pa.DataType) -> Any:
    """Return a type as in the JSON of Spark's types."""
    return spark_schema(pa.schema([pa.field("x", of)]))[0].dataType.jsonValue()


def _scalar(value: _Value, of: pa.DataType) -> pa.Scalar:
    """Return a value as a scalar of the type ``of``, which is the same as the value's type. Raise if that is not exact.

    Raises:
        ValueError: the text of the value does not say exactly what the value is.
    """
    kind, said = value.of, value.value
    if said is None:
        return pa.scalar(None, of)
    if kind == "string" and _is_plain(said):
        return pa.scalar(said, of)
    if kind == "boolean" and said in ("true", "false"):
        return pa.scalar(said == "true", of)
    if kind in _INTEGERS:
        return pa.scalar(int(said), of)
    if kind in ("float", "double"):
        number = float(said)
        if math.isnan(number) and said != "NaN":
            raise ValueError(said)
        return pa.scalar(number, of)
    if kind == "date":
        return pa.scalar(int(said), pa.int32()).cast(pa.date32()).cast(of)
    if kind in ("timestamp", "timestamp_ntz"):
        return pa.scalar(int(said), pa.int64()).cast(of)
    if kind_of(of) is Kind.DECIMAL:
        return pa.scalar(Decimal(said), of)
    raise ValueError(f"a literal of type {kind}")


def _is_plain(text: str) -> bool:
    """Tell whether a text of the JVM is the value's own: bytes that are not UTF-8 come as U+FFFD."""
    return "\ufffd" not in text and not any("\ud800" <= char <= "\udfff" for char in text)


def _set_values(node: Any, of: Any) -> list[_Value]:
    """Return the values of an ``InSet``, which Spark makes of long IN lists, in one call. Leave out null.

    Without null the condition is false, not null, for other rows. So its negation selects more rows, never fewer.
    """
    values, mark = node.hset(), uuid.uuid4().hex
    texts = values.mkString(mark).split(mark) if values.size() else []
    if len(texts) != values.size():
        raise ValueError("an IN list that cannot be read")
    if node.hasNull() and of != "string":  # In a list of texts "null" may be a text, so it stays.
        texts.remove("null")
    return [_Value(of, text) for text in texts]
