"""Casts of whole columns with the results of Spark's ANSI mode, and the types that Spark finds for mixed operands.

A cast that Spark does by rules that cannot be reproduced exactly is refused (a number that becomes a text with Java's
digits, a text that becomes a timestamp).
"""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from typing import Final, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakeformat.arrow.kinds import Kind, kind_of
from lakeformat.predicate.local_time import DAY, Ints, to_local, to_moment

__all__ = [
    "MOMENT",
    "TYPES",
    "can_cast",
    "cast_may_fail",
    "cast_values",
    "common_type",
    "decimal_of",
    "from_days",
    "from_micros",
    "plain_type",
    "scalar_text",
    "to_days",
    "to_micros",
    "type_name",
]

MOMENT: Final = pa.timestamp("us", "UTC")
_WALL: Final = pa.timestamp("us")
_INTEGERS: Final = (pa.int8(), pa.int16(), pa.int32(), pa.int64())
#: The digits of the decimal type that Spark takes for an integer type.
_DIGITS: Final = {8: 3, 16: 5, 32: 10, 64: 20}
_MAX_DIGITS: Final = 38
#: The most digits of a decimal that Spark keeps as a long, and so casts exactly to an integer.
_LONG_DIGITS: Final = 18
#: The types without arguments, by Spark's names.
TYPES: Final = {
    "boolean": pa.bool_(),
    "tinyint": pa.int8(), "smallint": pa.int16(), "int": pa.int32(), "bigint": pa.int64(),
    "float": pa.float32(), "double": pa.float64(),
    "string": pa.string(), "binary": pa.binary(),
    "date": pa.date32(), "timestamp": MOMENT, "timestamp_ntz": _WALL,
}  # fmt: skip
_NAMES: Final = {of: name for name, of in TYPES.items()}

#: Java's ``String.trim`` of Spark's casts: white space and control characters of ASCII.
_BLANKS: Final = r"[\x00-\x20\x7f]*"
_INTEGER: Final = rf"(?s)\A{_BLANKS}(?P<sign>[+-]?)0*(?P<digits>[0-9]+){_BLANKS}\z"
_DOUBLE: Final = r"(?s)\A[\x00-\x20]*[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?[dDfF]?[\x00-\x20]*\z"
_HEX_DOUBLE: Final = r"(?s)\A[\x00-\x20]*[+-]?0[xX]"
_DATE: Final = (
    rf"(?s)\A{_BLANKS}(?P<sign>[+-]?)(?P<year>[0-9]{{4,7}})"
    rf"(?:-(?P<month>[0-9]{{1,2}})(?:-(?P<day>[0-9]{{1,2}})(?:[ T].*)?)?)?{_BLANKS}\z"
)
_BLANK_CHARACTERS: Final = "".join(map(chr, (*range(0x21), 0x7F)))
_SPECIAL: Final = {
    **dict.fromkeys(("inf", "+inf", "infinity", "+infinity"), np.inf),
    **dict.fromkeys(("-inf", "-infinity"), -np.inf),
    **dict.fromkeys(("nan",), np.nan),
}
_TRUE: Final = pa.array(["t", "true", "y", "yes", "1"])
_FALSE: Final = pa.array(["f", "false", "n", "no", "0"])

_Cast: TypeAlias = Callable[[pa.Array, pa.DataType, str], pa.Array]


def plain_type(of: pa.DataType) -> pa.DataType | None:
    """Return the type in which a column of this type is computed; None if functions cannot take it."""
    if kind_of(of) is Kind.TEXT:
        return pa.string()
    if kind_of(of) is Kind.BYTES:
        return pa.binary()
    if kind_of(of) is Kind.TIMESTAMP:
        return None if of.unit == "ns" else MOMENT if of.tz is not None else _WALL
    if of in _NAMES or kind_of(of) is Kind.DECIMAL or kind_of(of).is_nested:
        return of
    return None


def type_name(of: pa.DataType) -> str:
    """Return Spark's name of a type."""
    if kind_of(of) is Kind.DECIMAL:
        return f"decimal({of.precision},{of.scale})"
    return "null" if kind_of(of) is Kind.NULL else _NAMES.get(of) or str(of)


def scalar_text(value: pa.Scalar) -> str:
    """Return a literal for a message. Python has no value for some dates and times of Arrow."""
    try:
        return repr(value.as_py())
    except (ValueError, OverflowError):
        return f"the {type_name(value.type)} {value.value}"


def decimal_of(of: pa.DataType) -> pa.DataType:
    """Return the decimal type that Spark takes for an integer or decimal type."""
    return of if kind_of(of) is Kind.DECIMAL else pa.decimal128(_DIGITS[of.bit_width], 0)


def common_type(one: pa.DataType, other: pa.DataType) -> pa.DataType | None:
    """Return the type to which Spark casts two values to compare or combine them.

    Return None if there is none, or if its values would be rounded.
    """
    if one.equals(other) or kind_of(other) is Kind.NULL:
        return one
    if kind_of(one) is Kind.NULL:
        return other
    if kind_of(one).is_number and kind_of(other).is_number:
        if kind_of(one) is Kind.FLOAT or kind_of(other) is Kind.FLOAT:
            return pa.float64()
        if kind_of(one) is kind_of(other) is Kind.INTEGER:
            return max(one, other, key=lambda of: int(of.bit_width))
        left, right = decimal_of(one), decimal_of(other)
        scale = max(left.scale, right.scale)
        precision = max(left.precision - left.scale, right.precision - right.scale) + scale
        return pa.decimal128(precision, scale) if precision <= _MAX_DIGITS else None
    if {one, other} in ({pa.date32(), MOMENT}, {pa.date32(), _WALL}):
        return other if kind_of(one) is Kind.DATE else one
    return None


# --- values as numbers ------------------------------------------------------------------------------------


def to_micros(values: pa.Array) -> Ints:
    """Return timestamps as microseconds since 1970; nulls are 0."""
    return np.asarray(pc.fill_null(values.cast(_WALL if values.type.tz is None else MOMENT).view(pa.int64()), 0))


def from_micros(micros: Ints, nulls: pa.Array, to: pa.DataType) -> pa.Array:
    """Return microseconds since 1970 as timestamps, null where ``nulls`` is."""
    return pa.array(micros, mask=_null_flags(nulls)).view(to)


def to_days(dates: pa.Array) -> Ints:
    """Return dates as days since 1970; nulls are 0."""
    return np.asarray(pc.fill_null(dates.view(pa.int32()), 0)).astype(np.int64)


def from_days(days: Ints, nulls: pa.Array) -> pa.Array:
    """Return days since 1970 as dates, null where ``nulls`` is."""
    return pa.array(days.astype(np.int32), mask=_null_flags(nulls)).view(pa.date32())


def _null_flags(values: pa.Array) -> np.ndarray:
    return np.asarray(pc.is_null(values))


def _keep(values: pa.Array, fits: pa.Array) -> pa.Array:
    """Return the values, null where ``fits`` is false."""
    return pc.if_else(fits, values, pa.scalar(None, values.type))


# --- casts: each returns null for a value that cannot be cast ------------------------------------------------


def _integer_limits(to: pa.DataType) -> tuple[int, int]:
    return -(1 << (to.bit_width - 1)), (1 << (to.bit_width - 1)) - 1


def _narrow(values: pa.Array, to: pa.DataType, zone: str) -> pa.Array:
    low, high = _integer_limits(to)
    if values.type.bit_width <= to.bit_width:
        return values.cast(to)
    return _keep(values, pc.and_(pc.greater_equal(values, low), pc.less_equal(values, high))).cast(to)


def _float_to_integer(values: pa.Array, to: pa.DataType, zone: str) -> pa.Array:
    low, high = _integer_limits(to)
    numbers = np.asarray(pc.fill_null(values.cast(pa.float64()), 0.0))
    with np.errstate(invalid="ignore"):
        fits = (np.floor(numbers) <= float(high)) & (np.ceil(numbers) >= float(low))
    whole = np.trunc(np.where(fits, numbers, 0.0))
    top = whole >= float(high)
    whole = np.where(top, 0.0, whole).astype(np.int64)
    return pa.array(np.where(top, high, whole), mask=_null_flags(values) | ~fits).cast(to)


def _decimal_to_integer(values: pa.Array, to: pa.DataType, zone: str) -> pa.Array:
    whole = pc.round(values, 0, "towards_zero").cast(pa.decimal128(values.type.precision, 0))
    return _narrow(whole.cast(pa.int64()), to, zone)


def _integer_to_decimal(values: pa.Array, to: pa.DataType, zone: str) -> pa.Array:
    return _rescale(values.cast(pa.int64()).cast(pa.decimal128(19, 0)), to, zone)


def _rescale(values: pa.Array, to: pa.DataType, zone: str) -> pa.Array:
    """Cast decimals to another precision and scale. Halves are rounded away from zero, as in Spark."""
    wide = values.cast(pa.decimal256(values.type.precision + 1, values.type.scale))
    if wide.type.scale > to.scale:
        wide = pc.round(wide, to.scale, "half_towards_infinity")
    if to.precision - to.scale < wide.type.precision - wide.type.scale:
        most = pa.scalar(Decimal(10) ** (to.precision - to.scale), wide.type)
        wide = _keep(wide, pc.less(pc.abs(wide), most))
    return wide.cast(to)


def _number_to_float(values: pa.Array, to: pa.DataType, zone: str) -> pa.Array:
    if kind_of(values.type) is Kind.DECIMAL:
        return values.cast(pa.string()).cast(to)  # Arrow's own cast of decimals does not round to the nearest number.
    return values.cast(to, safe=False)


def _text_to_integer(values: pa.Array, to: pa.DataType, zone: str) -> pa.Array:
    parts = pc.extract_regex(values, _INTEGER)
    digits = pc.struct_field(parts, "digits")
    digits = _keep(digits, pc.less_equal(pc.utf8_length(digits), 19))
    number = digits.cast(pa.decimal128(38, 0))
    number = pc.if_else(pc.equal(pc.struct_field(parts, "sign"), "-"), pc.negate(number), number)
    low, high = (pa.scalar(Decimal(limit), pa.decimal128(38, 0)) for limit in _integer_limits(to))
    fits = pc.and_(pc.greater_equal(number, low), pc.less_equal(number, high))
    return _keep(number, fits).cast(pa.int64()).cast(to)


def _text_to_float(values: pa.Array, to: pa.DataType, zone: str) -> pa.Array:
    if pc.any(pc.match_substring_regex(values, _HEX_DOUBLE)).as_py():
        raise ValueError("a text is a hexadecimal number; cast only decimal ones")
    is_plain = pc.match_substring_regex(values, _DOUBLE)
    bare = pc.utf8_trim(values, "".join(map(chr, range(0x21))))
    bare = pc.utf8_rtrim(_keep(bare, is_plain), "dDfF")
    bare = pc.utf8_ltrim(bare, "+")
    numbers = bare.cast(to)
    special = pc.ascii_lower(pc.utf8_trim(values, _BLANK_CHARACTERS))
    for text, number in _SPECIAL.items():
        numbers = pc.if_else(pc.fill_null(pc.equal(special, text), False), pa.scalar(number, to), numbers)
    return numbers


def _text_to_boolean(values: pa.Array, to: pa.DataType, zone: str) -> pa.Array:
    bare = pc.ascii_lower(pc.utf8_trim(values, _BLANK_CHARACTERS))
    is_true = pc.is_in(bare, value_set=_TRUE)
    return _keep(is_true, pc.or_(is_true, pc.is_in(bare, value_set=_FALSE)))


def _text_to_date(values: pa.Array, to: pa.DataType, zone: str) -> pa.Array:
    parts = pc.extract_regex(values, _DATE)

    def part(name: str, default: int) -> Ints:
        texts = pc.struct_field(parts, name)
        present = _keep(texts, pc.fill_null(pc.not_equal(texts, ""), False))
        return np.asarray(pc.fill_null(present.cast(pa.int64()), default))

    negative = np.asarray(pc.fill_null(pc.equal(pc.struct_field(parts, "sign"), "-"), False))
    year, month, day = part("year", 1970), part("month", 1), part("day", 1)
    year = np.where(negative, -year, year)
    fits = (month >= 1) & (month <= 12) & (day >= 1)
    start = ((year - 1970) * 12 + np.where(fits, month, 1) - 1).astype("datetime64[M]")
    days = start.astype("datetime64[D]").astype(np.int64) + day - 1
    fits &= days < (start + 1).astype("datetime64[D]").astype(np.int64)
    fits &= np.abs(days) < 1 << 31
    dates = from_days(np.where(fits, days, 0), parts)
    return _keep(dates, pa.array(fits))


def _moment_to_text(values: pa.Array, to: pa.DataType, zone: str) -> pa.Array:
    local = _to_wall(values, _WALL, zone)
    return pc.utf8_rtrim(pc.utf8_rtrim(local.cast(pa.string()), "0"), ".")


def _to_wall(values: pa.Array, to: pa.DataType, zone: str) -> pa.Array:
    if values.type.tz is None:
        return values.cast(_WALL)
    return from_micros(to_local(to_micros(values), zone), values, _WALL)


def _moment_to_date(values: pa.Array, to: pa.DataType, zone: str) -> pa.Array:
    return from_days(to_micros(_to_wall(values, _WALL, zone)) // DAY, values)


def _day_to_moment(values: pa.Array, to: pa.DataType, zone: str) -> pa.Array:
    days = to_days(values)
    fits = np.abs(days) <= (1 << 63) // DAY - 2
    micros = np.where(fits, days, 0) * DAY
    return from_micros(micros if to.tz is None else to_moment(micros, zone), _keep(values, pa.array(fits)), to)


def _wall_to_moment(values: pa.Array, to: pa.DataType, zone: str) -> pa.Array:
    return from_micros(to_moment(to_micros(values), zone), values, to)


def _plain(values: pa.Array, to: pa.DataType, zone: str) -> pa.Array:
    return values.cast(to)


def _find_cast(of: pa.DataType, to: pa.DataType) -> _Cast | None:
    if of.equals(to) or kind_of(of) is Kind.NULL:
        return _plain
    match kind_of(of), kind_of(to):
        case Kind.INTEGER, Kind.INTEGER:
            return _narrow
        case Kind.INTEGER, Kind.DECIMAL:
            return _integer_to_decimal
        case ((Kind.INTEGER | Kind.FLOAT | Kind.DECIMAL), Kind.FLOAT):
            return _number_to_float
        case Kind.FLOAT, Kind.INTEGER:
            return _float_to_integer
        case Kind.DECIMAL, Kind.INTEGER if of.precision <= _LONG_DIGITS:
            return _decimal_to_integer
        case Kind.DECIMAL, Kind.DECIMAL:
            return _rescale
        case (Kind.INTEGER, Kind.TEXT | Kind.BOOLEAN) | (Kind.BOOLEAN, Kind.TEXT | Kind.INTEGER):
            return _plain
        case Kind.TEXT, Kind.INTEGER:
            return _text_to_integer
        case Kind.TEXT, Kind.FLOAT:
            return _text_to_float
    return {
        (pa.string(), pa.bool_()): _text_to_boolean,
        (pa.string(), pa.date32()): _text_to_date,
        (pa.date32(), pa.string()): _plain,
        (MOMENT, pa.string()): _moment_to_text,
        (_WALL, pa.string()): _moment_to_text,
        (MOMENT, pa.date32()): _moment_to_date,
        (_WALL, pa.date32()): _moment_to_date,
        (pa.date32(), MOMENT): _day_to_moment,
        (pa.date32(), _WALL): _day_to_moment,
        (MOMENT, _WALL): _to_wall,
        (_WALL, MOMENT): _wall_to_moment,
    }.get((of, to))


def can_cast(one: pa.DataType, to: pa.DataType) -> bool:
    """Tell whether values of a type can be cast to another type exactly as Spark does it."""
    return _find_cast(one, to) is not None


def cast_may_fail(one: pa.DataType, to: pa.DataType) -> bool:
    """Tell whether a value may have no counterpart in the other type, which is an error in ANSI mode."""
    cast = _find_cast(one, to)
    if cast is _narrow:
        return bool(one.bit_width > to.bit_width)
    if cast in (_rescale, _integer_to_decimal):
        given = decimal_of(one)
        return bool(given.precision - given.scale + (given.scale > to.scale) > to.precision - to.scale)
    return cast in {_float_to_integer, _decimal_to_integer, _text_to_integer, _text_to_float, _text_to_boolean,
                    _text_to_date, _day_to_moment}  # fmt: skip


def cast_values(values: pa.Array, to: pa.DataType, zone: str) -> pa.Array:
    """Cast values; null where a value cannot be cast.

    Raises:
        ValueError: A text is a number in a form that is not supported.
    """
    cast = _find_cast(values.type, to)
    assert cast is not None  # noqa: S101  Binding checks the types.
    return cast(values, to, zone)
