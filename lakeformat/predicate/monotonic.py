"""Conditions on functions that keep or reverse the order of a column, so that its bounds give bounds of the function.

``price * 2 > 10`` holds in no row of a file whose largest price is 4. Functions of time that a zone can disturb are not
here: `lakeformat.predicate.ranges` knows where they are in order.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import Final, cast

import pyarrow as pa

from lakeformat.arrow.kinds import Kind, kind_of
from lakeformat.predicate.argument_types import literal_of, scalar_of, type_of
from lakeformat.predicate.nodes import Call, ColumnValue, Comparison, Constant, In, Operator, Value

__all__ = ["Monotonic", "find_monotonic"]

#: Functions that keep the order of their first argument if the others are literals.
_KEEPING: Final = frozenset({
    "ceil", "floor", "round", "left",
    "add_months", "date_add", "date_sub", "last_day", "to_date", "trunc", "year",
})  # fmt: skip
#: Operators and functions that have the order of the first argument, and of the second one if that is the column.
_OF_TWO: Final[Mapping[str, tuple[bool, bool]]] = {"+": (True, True), "-": (True, False), "datediff": (True, False)}
#: Operators whose order depends on the sign of the literal.
_BY_SIGN: Final = frozenset({"*", "/", "div"})
#: Operator -> the one that means the same if both sides are exchanged.
_EXCHANGED: Final[Mapping[str, Operator]] = {"=": "=", "!=": "!=", "<": ">", "<=": ">=", ">": "<", ">=": "<="}


@dataclass(frozen=True, slots=True)
class Monotonic:
    """A comparison of literals with a function that keeps or reverses the order of one column.

    The function is null for null alone. Between two values for which it has a result it has one for each.

    Attributes:
        leaf: the comparison, with the column's path in the place of the function.
        value: the function.
        column: the column.
        rising: whether the function keeps the order.
    """

    leaf: Comparison | In
    value: Value
    column: ColumnValue
    rising: bool


def find_monotonic(condition: Value) -> Monotonic | None:
    """Return what a bound condition compares, if it is the comparison of such a function with literals."""
    match condition:
        case Call("in", (value, *listed)) if all(isinstance(item, Constant) for item in listed):
            scalars = [scalar_of(item) for item in listed if isinstance(item, Constant)]
            leaf: Comparison | In = In("", pa.array(scalars, type_of(value)))
        case Call(op, (value, Constant() as literal)) if op in _EXCHANGED:
            leaf = Comparison("", cast("Operator", op), scalar_of(literal))
        case Call(op, (Constant() as literal, value)) if op in _EXCHANGED:
            leaf = Comparison("", _EXCHANGED[op], scalar_of(literal))
        case _:
            return None
    order = _find_order(value)
    return None if order is None else Monotonic(replace(leaf, column=order[0].path), value, *order)


def _find_order(value: Value) -> tuple[ColumnValue, bool] | None:
    """Return the column of a value and whether the value keeps its order; None if it may do neither."""
    inner: Value
    rising = True
    match value:
        case ColumnValue():
            return value, True
        case Call("cast" | "try_cast", (inner,)) if _keeps_order(type_of(inner), type_of(value)):
            pass
        case Call("negative", (inner,)):
            rising = False
        case Call("substring", (inner, start, Constant())) if literal_of(start) in (0, 1):
            pass
        case Call(name, (inner, *rest)) if name in _KEEPING and all(
            isinstance(argument, Constant) for argument in rest
        ):
            pass
        case Call(name, (inner, Constant() as literal)) if _is_in_order(name, literal):
            rising = _OF_TWO[name][0] if name in _OF_TWO else _number(literal) > 0
        case Call(name, (Constant() as literal, inner)) if name in ("*", *_OF_TWO) and _is_in_order(name, literal):
            rising = _OF_TWO[name][1] if name in _OF_TWO else _number(literal) > 0
        case _:
            return None
    order = _find_order(inner)
    return None if order is None else (order[0], order[1] == rising)


def _keeps_order(source: pa.DataType, to: pa.DataType) -> bool:
    """Tell whether a cast keeps the order: between numbers, and between dates and timestamps without a zone."""
    if kind_of(source).is_number and kind_of(to).is_number:
        return True
    return all(kind_of(of).is_temporal and getattr(of, "tz", None) is None for of in (source, to))


def _is_in_order(name: str, literal: Constant) -> bool:
    """Tell whether an operator with this literal keeps or reverses the order of its other side, and never gives NaN."""
    if kind_of(type_of(literal)) is Kind.FLOAT and not math.isfinite(_number(literal)):
        return False
    return name in _OF_TWO or (name in _BY_SIGN and _number(literal) != 0)


def _number(literal: Constant) -> float:
    """Return a number, whose sign alone counts; NaN for null."""
    number = literal_of(literal)
    return float(number) if isinstance(number, int | float | Decimal) else math.nan
