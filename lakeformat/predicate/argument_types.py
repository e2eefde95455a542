"""The types of values, and the checks of the arguments of functions by Spark's rules.

Only casts that Spark itself adds are added here: wider numbers, and dates, times and their texts. All others must be
written.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from decimal import Decimal
from typing import Final, TypeAlias

import pyarrow as pa

from lakeformat.arrow.kinds import Kind, kind_of
from lakeformat.errors import InvalidInputError
from lakeformat.predicate.casts import (
    MOMENT,
    can_cast,
    cast_may_fail,
    common_type,
    decimal_of,
    scalar_text,
    type_name,
)
from lakeformat.predicate.coerce import parse_date, parse_timestamp
from lakeformat.predicate.nodes import Call, Case, ColumnValue, Constant, Truth, Value

__all__ = [
    "UNITS",
    "Typing",
    "align",
    "alike",
    "arithmetic_types",
    "cast_value",
    "contains_types",
    "division_types",
    "floor_types",
    "is_null",
    "literal_of",
    "round_types",
    "scalar_of",
    "takes",
    "type_of",
    "unit_types",
    "value_text",
    "whole_division_types",
]

_Given: TypeAlias = Sequence[Value]
_Gives: TypeAlias = pa.DataType | Callable[[Sequence[pa.DataType]], pa.DataType]
#: Returns the arguments, cast to the types that the kernel takes, and the type of the result.
Typing: TypeAlias = Callable[[_Given, str], tuple[tuple[Value, ...], pa.DataType]]

_WALL: Final = pa.timestamp("us")
#: The names of units of time, as Spark spells them and as `lakeformat.predicate.local_time` does.
UNITS: Final = {
    **{unit: unit for unit in ("year", "quarter", "month", "week", "day")},
    **{unit: unit for unit in ("hour", "minute", "second", "millisecond", "microsecond")},
    "yyyy": "year", "yy": "year", "mon": "month", "mm": "month", "dd": "day",
}  # fmt: skip
_ZONED: Final = ({MOMENT, pa.string()}, {MOMENT, pa.date32()}, {MOMENT, _WALL})


def scalar_of(value: Constant) -> pa.Scalar:
    """Return the literal of a bound constant."""
    assert isinstance(value.value, pa.Scalar)  # noqa: S101  Binding makes it one.
    return value.value


def is_null(value: Value) -> bool:
    """Tell whether a bound value is the literal null."""
    return isinstance(value, Constant) and not scalar_of(value).is_valid


def type_of(value: Value) -> pa.DataType:
    """Return the type of a bound value."""
    of = pa.bool_() if isinstance(value, Truth) else value.of
    assert of is not None  # noqa: S101  Binding sets it.
    return of


def cast_value(value: Value, to: pa.DataType, zone: str, function: str = "cast") -> Value:
    """Return the cast of a bound value; the value itself if it has the type.

    Raises:
        InvalidInputError: The cast cannot be made exactly as in Spark.
    """
    of = type_of(value)
    if of.equals(to) and function == "cast":
        return value
    if isinstance(value, Constant) and kind_of(of) is Kind.NULL:
        return Constant(pa.scalar(None, to), to)
    if _is_text_literal(value) and isinstance(value, Constant) and kind_of(to) is Kind.TIMESTAMP:
        return _literal_time(value, to, zone)
    if not can_cast(of, to):
        raise InvalidInputError(f"{type_name(of)} cannot become {type_name(to)} exactly as in Spark")
    return Call(function, (value,), to, zone if {of, to} in _ZONED else "")


def _literal_time(value: Constant, to: pa.DataType, zone: str) -> Value:
    text = scalar_of(value).as_py()
    if kind_of(to) is Kind.DATE:
        parsed: object = parse_date(text)
        form = "yyyy-MM-dd"
    else:
        parsed = parse_timestamp(text)
        form = "yyyy-MM-dd HH:mm:ss"
        if parsed is not None and parsed.tzinfo is not None and to.tz is None:
            parsed = None
    if parsed is None:
        raise InvalidInputError(f"{text!r} is not a time; write '{form}'")
    if kind_of(to) is Kind.DATE:
        return Constant(pa.scalar(parsed, to), to)
    has_zone = parsed.tzinfo is not None  # type: ignore[attr-defined]
    of = MOMENT if has_zone else _WALL
    return cast_value(Constant(pa.scalar(parsed, of), of), to, zone)


def _is_text_literal(value: Value) -> bool:
    return isinstance(value, Constant) and kind_of(type_of(value)) is Kind.TEXT and scalar_of(value).is_valid


def align(values: _Given, zone: str) -> tuple[Value, ...]:
    """Cast values to the type in which Spark compares them."""
    others = [type_of(value) for value in values if not _is_text_literal(value)]
    times = [of for of in others if kind_of(of) in (Kind.DATE, Kind.TIMESTAMP)]
    if times and len(others) < len(values):
        # A text beside a date that may have a time of day is compared as a timestamp.
        to = times[0]
        values = [_literal_time(v, to, zone) if isinstance(v, Constant) and _is_text_literal(v) else v for v in values]
    values = [_small_decimal(value) for value in values] if any(_is_decimal(value) for value in values) else values
    to = type_of(values[0])
    for value in values[1:]:
        wider = common_type(to, type_of(value))
        if wider is None:
            raise InvalidInputError(
                f"{type_name(to)} and {type_name(type_of(value))} have no common type; cast one of them"
            )
        to = wider
    return tuple(cast_value(value, to, zone) for value in values)


def _is_decimal(value: Value) -> bool:
    return kind_of(type_of(value)) is Kind.DECIMAL


def _small_decimal(value: Value) -> Value:
    """Return an integer literal as a decimal of its own digits, as Spark types it beside decimals."""
    if not (isinstance(value, Constant) and kind_of(type_of(value)) is Kind.INTEGER and scalar_of(value).is_valid):
        return value
    number = scalar_of(value).as_py()
    of = pa.decimal128(len(str(abs(number))), 0)
    return Constant(pa.scalar(Decimal(number), of), of)


def _take(expected: str, value: Value, zone: str) -> Value:
    """Cast an argument to what a function takes; raise an error that names the kind."""
    of = type_of(value)
    kind = kind_of(of)
    null = kind is Kind.NULL
    match expected:
        case "text" if null or kind is Kind.TEXT:
            return cast_value(value, pa.string(), zone)
        case "text or bytes" if null or kind in (Kind.TEXT, Kind.BYTES):
            return cast_value(value, pa.string(), zone) if null else value
        case "integer" if null or (kind is Kind.INTEGER and of.bit_width <= 32):
            return cast_value(value, pa.int32(), zone)
        case "number" if kind.is_number:
            return value
        case "number" if null:
            return cast_value(value, pa.float64(), zone)
        case "local time" | "timestamp" if _is_text_literal(value) and isinstance(value, Constant):
            return _literal_time(value, _WALL if expected == "local time" else MOMENT, zone)
        case "date" if null or kind.is_temporal or kind is Kind.TEXT:
            return cast_value(value, pa.date32(), zone)
        case "local time" if null or kind.is_temporal:
            return cast_value(value, _WALL, zone)
        case "timestamp" if null or kind.is_temporal:
            return cast_value(value, MOMENT, zone)
        case "array" if kind is Kind.LIST:
            return value
        case "array or map" if kind in (Kind.LIST, Kind.MAP):
            return value
        case "any":
            return value
    raise InvalidInputError(f"{value_text(value)} is of type {type_name(of)}, not {expected}; cast it")


def takes(*kinds: str, gives: _Gives, optional: int = 0, repeats: bool = False) -> Typing:
    """Return the check of a function whose arguments are of these kinds; ``repeats`` concerns the last one."""

    def check(given: _Given, zone: str) -> tuple[tuple[Value, ...], pa.DataType]:
        most = None if repeats else len(kinds)
        if len(given) < len(kinds) - optional or (most is not None and len(given) > most):
            raise InvalidInputError(f"{len(given)} arguments")
        expected = (*kinds, *(kinds[-1:] * (len(given) - len(kinds))))
        values = tuple(_take(kind, value, zone) for kind, value in zip(expected, given, strict=False))
        return values, gives([type_of(value) for value in values]) if callable(gives) else gives

    return check


def alike(gives: _Gives | None = None, least: int = 2, most: int | None = None) -> Typing:
    """Return the check of a function whose arguments get one common type."""

    def check(given: _Given, zone: str) -> tuple[tuple[Value, ...], pa.DataType]:
        if len(given) < least or (most is not None and len(given) > most):
            raise InvalidInputError(f"{len(given)} arguments")
        values = align(given, zone)
        of = type_of(values[0])
        if kind_of(of) is Kind.NULL and gives is not None:
            of = pa.bool_()
            values = tuple(cast_value(value, of, zone) for value in values)
        if kind_of(of).is_nested:
            raise InvalidInputError(f"{type_name(of)} cannot be compared")
        return values, of if gives is None else gives if isinstance(gives, pa.DataType) else gives([of])

    return check


def _operands(given: _Given, zone: str) -> tuple[Value, Value]:
    left, right = given
    for value in given:
        if not (kind_of(type_of(value)).is_number or kind_of(type_of(value)) is Kind.NULL):
            raise InvalidInputError(f"{value_text(value)} is of type {type_name(type_of(value))}, not a number")
    if (_is_decimal(left) or _is_decimal(right)) and not any(kind_of(type_of(v)) is Kind.FLOAT for v in given):
        left, right = (_small_decimal(value) for value in given)
        left, right = (
            cast_value(value, left_or_right, zone)
            for value, left_or_right in ((left, _decimal_type(left, right)), (right, _decimal_type(right, left)))
        )
        return left, right
    left, right = align(given, zone)
    return left, right


def _decimal_type(value: Value, other: Value) -> pa.DataType:
    return decimal_of(type_of(other if kind_of(type_of(value)) is Kind.NULL else value))


def arithmetic_types(decimals: Callable[[pa.DataType, pa.DataType], tuple[int, int]] | None) -> Typing:
    """Return the check of an operator; ``decimals`` gives precision and scale of its result for decimals."""

    def check(given: _Given, zone: str) -> tuple[tuple[Value, ...], pa.DataType]:
        left, right = _operands(given, zone)
        if not _is_decimal(left):
            return _not_null(left, right, zone)
        if decimals is None:
            raise InvalidInputError("Spark rounds decimals here; cast one side to double")
        precision, scale = decimals(type_of(left), type_of(right))
        if precision > 38:
            raise InvalidInputError("the result may need more than 38 digits; cast one side to a smaller decimal")
        return (left, right), pa.decimal128(precision, scale)

    return check


def _not_null(left: Value, right: Value, zone: str) -> tuple[tuple[Value, ...], pa.DataType]:
    of = type_of(left)
    if kind_of(of) is Kind.NULL:
        of = pa.float64()
    return (cast_value(left, of, zone), cast_value(right, of, zone)), of


def division_types(given: _Given, zone: str) -> tuple[tuple[Value, ...], pa.DataType]:
    """Check the operands of ``/``, which Spark casts to doubles."""
    left, right = _operands(given, zone)
    if _is_decimal(left):
        raise InvalidInputError("Spark rounds the quotient of decimals; cast one side to double")
    return (cast_value(left, pa.float64(), zone), cast_value(right, pa.float64(), zone)), pa.float64()


def whole_division_types(given: _Given, zone: str) -> tuple[tuple[Value, ...], pa.DataType]:
    """Check the operands of ``div``, which Spark casts to longs."""
    left, right = _operands(given, zone)
    if kind_of(type_of(left)) not in (Kind.INTEGER, Kind.NULL):
        raise InvalidInputError("div takes integers")
    return (cast_value(left, pa.int64(), zone), cast_value(right, pa.int64(), zone)), pa.int64()


def round_types(given: _Given, zone: str) -> tuple[tuple[Value, ...], pa.DataType]:
    """Check the arguments of round, and find the type of its result (Spark: ``RoundBase``)."""
    values, of = takes("number", "integer", gives=lambda types: types[0], optional=1)(given, zone)
    digits = literal_of(values[1]) if len(values) > 1 else 0
    if digits is None:
        return values, of
    if not isinstance(digits, int) or digits < 0:
        raise InvalidInputError("the number of digits must be a literal from 0 on")
    if kind_of(of) is Kind.FLOAT and digits:
        raise InvalidInputError("Spark rounds the decimal form of a double; cast it to a decimal")
    if kind_of(of) is Kind.DECIMAL:
        scale = min(digits, of.scale)
        of = pa.decimal128(min(of.precision - of.scale + 1 + scale, 38), scale)
    return values, of


def _whole_type(types: Sequence[pa.DataType]) -> pa.DataType:
    (of,) = types
    if kind_of(of) is not Kind.DECIMAL:
        return pa.int64()
    return of if of.scale == 0 else pa.decimal128(of.precision - of.scale + 1, 0)


def floor_types(given: _Given, zone: str) -> tuple[tuple[Value, ...], pa.DataType]:
    """Check the argument of floor or ceil."""
    values, of = takes("number", gives=_whole_type)(given, zone)
    if kind_of(type_of(values[0])) is Kind.FLOAT:
        values = (cast_value(values[0], pa.float64(), zone),)
    return values, of


def unit_types(at: int, *kinds: str, gives: pa.DataType, units: Sequence[str]) -> Typing:
    """Return the check of a function with the name of a unit of time among its arguments."""

    def check(given: _Given, zone: str) -> tuple[tuple[Value, ...], pa.DataType]:
        values, of = takes(*kinds, gives=gives)(given, zone)
        name = literal_of(values[at])
        unit = UNITS.get(str(name).lower())
        if unit not in units:
            raise InvalidInputError(f"the unit {name!r} is not one of {', '.join(units)}")
        return (*values[:at], Constant(pa.scalar(unit), pa.string()), *values[at + 1 :]), of

    return check


def contains_types(given: _Given, zone: str) -> tuple[tuple[Value, ...], pa.DataType]:
    """Check an array and the value to look for in it."""
    (array, item), of = takes("array", "any", gives=pa.bool_())(given, zone)
    inner = type_of(array).value_type
    to = common_type(inner, type_of(item))
    if to is None or kind_of(to).is_nested:
        raise InvalidInputError(f"the array has values of type {type_name(inner)}, not {type_name(type_of(item))}")
    return (array, cast_value(item, to, zone)), of


def literal_of(value: Value) -> object:
    """Return the Python value of a literal; ``...`` for any other value."""
    return scalar_of(value).as_py() if isinstance(value, Constant) else ...


def value_text(value: Value) -> str:
    """Return a value as SQL text, for messages."""
    match value:
        case ColumnValue(path):
            return path
        case Constant(literal):
            if isinstance(literal, pa.Scalar) and isinstance(literal.type, pa.DataType):
                return "null" if not literal.is_valid else scalar_text(literal)
            return repr(literal)
        case Call("cast", (inner,), of) if of is not None and _is_widening(inner, of):
            return value_text(inner)
        case Call(function, (inner,), of) if function in ("cast", "try_cast"):
            return f"{function}({value_text(inner)} as {type_name(of) if of is not None else '?'})"
        case Call("negative", (inner,)):
            return f"-{value_text(inner)}"
        case Call("in", (first, *rest)):
            return f"{value_text(first)} in ({', '.join(map(value_text, rest))})"
        case Call(function, (left, right)) if not function.isidentifier() or function in ("like", "rlike", "div"):
            return f"{value_text(left)} {function} {value_text(right)}"
        case Call(function, arguments):
            return f"{function}({', '.join(map(value_text, arguments))})"
        case Case():
            return "case ... end"
        case Truth():
            return "(condition)"


def _is_widening(value: Value, to: pa.DataType) -> bool:
    """Tell whether a cast is one that Spark adds for operators on numbers of two types."""
    of = None if isinstance(value, Truth) else value.of
    return of is not None and kind_of(of).is_number and kind_of(to).is_number and not cast_may_fail(of, to)
