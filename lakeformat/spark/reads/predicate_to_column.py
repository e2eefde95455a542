"""Conversion of a predicate of lakeformat to a Spark condition that selects the same rows.

The result does not depend on the session's settings for time zone, ANSI mode or casts.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from functools import reduce
from typing import Any, Final

import pyarrow as pa
from pyspark.sql import Column, functions

from lakeformat.predicate import (
    Always,
    And,
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
from lakeformat.predicate.nodes import bound_literal

__all__ = ["column_of", "condition_of", "quoted"]

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


def condition_of(predicate: Predicate) -> Column:
    """Convert a predicate, which must be bound to the DataFrame's columns, to a Spark condition.

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
        case ColumnComparison(left, op, right):
            compared: Column = _COMPARE[op](column_of(left), column_of(right))
            return compared
        case IsNull(column):
            return column_of(column).isNull()
        case Comparison(column, op, value):
            found: Column = _COMPARE[op](column_of(column), _literal(bound_literal(value)))
            return found
        case In(column, values):
            return _membership(column_of(column), bound_literal(values))
        case Like(column, pattern):
            return column_of(column).like(pattern)
        case StartsWith(column, text) | EndsWith(column, text) | Contains(column, text):
            named = {StartsWith: "startswith", EndsWith: "endswith", Contains: "contains"}[type(predicate)]
            of_text: Column = getattr(column_of(column), named)(text)
            return of_text


def _membership(column: Column, values: pa.Array) -> Column:
    if not len(values):  # ``x in ()`` is false, but null if x is null, as in SQL.
        return functions.when(column.isNotNull(), functions.lit(False))
    wanted = [_literal(value) for value in values]
    if pa.types.is_floating(values.type) and any(value.is_valid and value.as_py() == 0 for value in values):
        # For long lists Spark uses a hash set, which distinguishes -0.0 from 0.0, so both must be in the list.
        wanted += [_literal(pa.scalar(zero, values.type)) for zero in (0.0, -0.0)]
    return column.isin(*wanted)


def _literal(value: pa.Scalar) -> Column:
    """Return a Spark literal of exactly the value's type, whatever the session's time zone and casts are."""
    of = value.type
    if not value.is_valid:
        return functions.lit(None)
    if pa.types.is_timestamp(of) and of.tz is not None:
        return functions.timestamp_micros(functions.lit(value.cast(pa.timestamp("us", "UTC")).value).cast("bigint"))
    plain = value.as_py()
    if pa.types.is_timestamp(of):
        return functions.lit(plain.isoformat(" ")).cast("timestamp_ntz")
    if pa.types.is_date(of):
        return functions.lit(plain.isoformat()).cast("date")
    if pa.types.is_decimal(of):
        return functions.lit(str(plain)).cast(f"decimal({of.precision},{of.scale})")
    if pa.types.is_floating(of):
        text = str(plain) if math.isfinite(plain) else {math.inf: "Infinity", -math.inf: "-Infinity"}.get(plain, "NaN")
        return functions.lit(text).cast("float" if pa.types.is_float32(of) else "double")
    if pa.types.is_integer(of):
        return functions.lit(plain).cast("bigint" if of.bit_width > 32 else "int")
    return functions.lit(plain)
