"""Conversion of a predicate of lakeformat to a Spark condition that selects the same rows.

The result does not depend on the session's settings for time zone, ANSI mode or casts. Functions whose result in Spark
depends on them are not converted: `split_condition` sets them apart, and lakeformat evaluates them in tasks.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from functools import reduce
from typing import Any, Final

import pyarrow as pa
from pyspark.sql import Column, functions

from lakeformat.arrow.kinds import Kind, kind_of
from lakeformat.predicate import (
    Always,
    And,
    Calculated,
    ColumnComparison,
    Comparison,
    Computed,
    Contains,
    EndsWith,
    In,
    IsNull,
    Like,
    Not,
    Or,
    Predicate,
    StartsWith,
    path_parts,
    where_type_error,
)
from lakeformat.predicate.argument_types import scalar_of, type_of
from lakeformat.predicate.casts import cast_may_fail, type_name
from lakeformat.predicate.functions import COMPARISONS, FUNCTIONS
from lakeformat.predicate.nodes import (
    Call,
    Case,
    ColumnValue,
    Constant,
    Truth,
    Value,
    bound_literal,
    conditions_of,
    parts_of,
    values_of,
)

__all__ = ["column_of", "condition_of", "quoted", "split_condition"]

_COMPARE: Final[Mapping[str, Callable[[Any, Any], Any]]] = {
    "=": lambda left, right: left == right,
    "<=>": lambda left, right: left.eqNullSafe(right),
    "!=": lambda left, right: left != right,
    "<": lambda left, right: left < right,
    "<=": lambda left, right: left <= right,
    ">": lambda left, right: left > right,
    ">=": lambda left, right: left >= right,
}


def column_of(path: str) -> Column:
    """Return the Spark column that a path such as ``a.b`` names; b may be a field of the struct a."""
    return functions.col(quoted(path))


def quoted(path: str) -> str:
    """Return a column path as SQL text with each part in backticks."""
    return ".".join(f"`{part.replace('`', '``')}`" for part in path_parts(path))


def split_condition(predicate: Predicate) -> tuple[Predicate, Predicate]:
    """Split a bound condition into two parts: one that `condition_of` converts, and one that lakeformat evaluates."""
    if isinstance(predicate, And):
        pairs = [split_condition(operand) for operand in predicate.operands]
        theirs, ours = (tuple(pair[side] for pair in pairs if pair[side] != Always(True)) for side in (0, 1))
        return And(theirs) if theirs else Always(True), And(ours) if ours else Always(True)
    return (predicate, Always(True)) if _is_of_spark(predicate) else (Always(True), predicate)


def _is_of_spark(predicate: Predicate) -> bool:
    """Tell whether Spark's functions of the condition have the same results whatever the session's settings are."""
    return all(
        all(map(_is_call_of_spark, values_of(part.value))) and all(map(_is_of_spark, conditions_of(part.value)))
        for part in parts_of(predicate)
        if isinstance(part, Calculated)
    )


def _is_call_of_spark(value: Value) -> bool:
    if not isinstance(value, Call):
        return True
    if value.function == "cast":
        return not value.zone and not cast_may_fail(type_of(value.arguments[0]), type_of(value))
    return FUNCTIONS[value.function].by_spark


def condition_of(predicate: Predicate) -> Column:
    """Convert a predicate, which must be bound to the DataFrame's columns, to a Spark condition.

    Args:
        predicate: the first part of `split_condition`.

    Raises:
        InvalidInputError: the predicate is a ``pyarrow.compute`` expression.
    """
    match predicate:
        case And(operands):
            return reduce(lambda left, right: left & right, map(condition_of, operands), functions.lit(True))
        case Or(operands):
            return reduce(lambda left, right: left | right, map(condition_of, operands), functions.lit(False))
        case Not(operand):
            return ~condition_of(operand)
        case Computed():
            takes = "Spark SQL text; expressions of Arrow are for plain Python"
            raise where_type_error(predicate.expression, takes)
        case Always(value):
            return functions.lit(value)
        case Calculated(value):
            return _value(value)
        case ColumnComparison(left, op, right):
            compared: Column = _COMPARE[op](column_of(left), column_of(right))
            return compared
        case IsNull(column):
            return column_of(column).isNull()
        case Comparison(column, op, value):
            column_condition: Column = _COMPARE[op](column_of(column), _literal(bound_literal(value)))
            return column_condition
        case In(column, values):
            return _membership(column_of(column), bound_literal(values))
        case Like(column, pattern):
            return column_of(column).like(pattern)
        case StartsWith(column, text) | EndsWith(column, text) | Contains(column, text):
            named = {StartsWith: "startswith", EndsWith: "endswith", Contains: "contains"}[type(predicate)]
            of_text: Column = getattr(column_of(column), named)(text)
            return of_text


def _value(value: Value) -> Column:
    """Convert a value of a condition to a Spark column."""
    match value:
        case ColumnValue(path):
            return column_of(path)
        case Constant():
            return _literal(scalar_of(value)).cast(type_name(type_of(value)).replace("null", "void"))
        case Truth(predicate):
            return condition_of(predicate)
        case Case(branches, otherwise):
            whole = reduce(
                lambda chain, branch: chain.when(condition_of(branch[0]), _value(branch[1])), branches, functions
            )
            return whole.otherwise(_value(otherwise))
        case Call("cast", (inner,), of):
            return _value(inner).cast(type_name(of))
        case Call("in", (first, *listed)):
            literals = pa.array(
                [scalar_of(literal).as_py() for literal in listed if isinstance(literal, Constant)], type_of(first)
            )
            return _membership(_value(first), literals)
        case Call("like" | "rlike" as name, (text, Constant() as pattern)):
            matched: Column = getattr(_value(text), name)(scalar_of(pattern).as_py())
            return matched
        case Call(name, arguments) if name in COMPARISONS:
            left, right = map(_value, arguments)
            compared: Column = _COMPARE[name](left, right)
            return compared
        case Call(name, arguments):
            return functions.call_function(name, *map(_value, arguments))


def _membership(column: Column, values: pa.Array) -> Column:
    if not len(values):  # ``x in ()`` is false, but null if x is null, as in SQL.
        return functions.when(column.isNotNull(), functions.lit(False))
    literals = [_literal(value) for value in values]
    if kind_of(values.type) is Kind.FLOAT and any(value.is_valid and value.as_py() == 0 for value in values):
        # For long lists Spark uses a hash set, which distinguishes -0.0 from 0.0, so both must be in the list.
        literals += [_literal(pa.scalar(zero, values.type)) for zero in (0.0, -0.0)]
    return column.isin(*literals)


def _literal(value: pa.Scalar) -> Column:
    """Return a Spark literal of exactly the value's type, whatever the session's time zone and casts are."""
    of = value.type
    if not value.is_valid:
        return functions.lit(None)
    if kind_of(of) is Kind.TIMESTAMP and of.tz is not None:
        return functions.timestamp_micros(functions.lit(value.cast(pa.timestamp("us", "UTC")).value).cast("bigint"))
    plain = value.as_py()
    match kind_of(of):
        case Kind.TIMESTAMP:
            return functions.lit(plain.isoformat(" ")).cast("timestamp_ntz")
        case Kind.DATE:
            return functions.lit(plain.isoformat()).cast("date")
        case Kind.DECIMAL:
            return functions.lit(str(plain)).cast(f"decimal({of.precision},{of.scale})")
        case Kind.FLOAT:
            named = {math.inf: "Infinity", -math.inf: "-Infinity"}.get(plain, "NaN")
            text = str(plain) if math.isfinite(plain) else named
            return functions.lit(text).cast("float" if of == pa.float32() else "double")
        case Kind.INTEGER:
            return functions.lit(plain).cast("bigint" if of.bit_width > 32 else "int")
        case _:
            return functions.lit(plain)
