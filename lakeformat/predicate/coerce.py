"""Conversion of Python literals to a column's type, so that comparisons have exactly Spark's results.

Spark (ANSI mode, the default since 4.0) casts column and literal to a common type and compares there: int with decimal
as decimals, anything with a double (or a float column) as doubles, date with timestamp as timestamps. All these casts
keep the order, so the literal divides the column's own values into smaller and greater values. A `Span` has the values
next to this division. The column's rows are compared with these values instead of the literal. The result is the same,
and no row has to be cast. (Spark: ``AnsiTypeCoercion``, ``DecimalPrecision``.)
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import date, datetime, time, timedelta, timezone
from decimal import Decimal
from fractions import Fraction
from typing import Any, Final, TypeAlias

import numpy as np
import pyarrow as pa

from lakeformat.arrow.kinds import Kind, kind_of
from lakeformat.errors import InvalidInputError
from lakeformat.model.zones import time_zone

__all__ = ["Span", "check_text", "parse_date", "parse_timestamp", "place_literals"]

_Number: TypeAlias = int | float | Decimal

_EPOCH_DAY: Final = date(1970, 1, 1).toordinal()
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=timezone.utc)
_DAY_MICROS: Final = 86_400_000_000
_UNIT_MICROS: Final = {"s": 1_000_000, "ms": 1_000, "us": 1}
_MAX_PRECISION: Final = 38
_INT_DIGITS: Final = {8: 3, 16: 5, 32: 10, 64: 20}

_DATE: Final = re.compile(r"(\d{4})-(\d\d)-(\d\d)", re.ASCII)
_TIMESTAMP: Final = re.compile(
    r"(\d{4})-(\d\d)-(\d\d)(?:[T ](\d\d):(\d\d)(?::(\d\d)(?:\.(\d{1,6}))? ?(Z|UTC|[+-]\d\d:\d\d)?)?)?",
    re.ASCII,
)


@dataclass(frozen=True, slots=True)
class Span:
    """The values of a column's type next to a literal, in the order of Spark's comparison.

    Attributes:
        lower: The smallest value that is greater than or equal to the literal; None if there is none.
        upper: The greatest value that is less than or equal to the literal; None if there is none.
        size: The number of values that compare equal to the literal: 0, 1, or 2 for several, which are all values from
            ``lower`` to ``upper``.
    """

    lower: pa.Scalar | None
    upper: pa.Scalar | None
    size: int

    @classmethod
    def of_value(cls, value: pa.Scalar) -> Span:
        """Return the span of a literal that is itself a value of the type."""
        return cls(value, value, 1)


def place_literals(values: Sequence[object], to: pa.DataType, zone: str, *, listed: bool) -> list[Span]:
    """Return the span of each literal of one comparison, or of one IN list, among the values of type ``to``.

    Args:
        values: Python literals without None. In a list, one literal affects the comparison of all: a double among
            ints makes Spark compare all as doubles.
        to: The column's type.
        zone: Session time zone, used to compare texts, dates and naive datetimes with timestamps that have a zone.
        listed: Whether the values are those of an IN list (Spark gives its ints wider types).

    Raises:
        InvalidInputError: Spark refuses the comparison, or casts the column's text, or the result depends on
            settings of Spark.
        InvalidOptionError: The zone is not known.
    """
    match kind_of(to):
        case Kind.BOOLEAN:
            return [Span.of_value(pa.scalar(_check_type(value, bool, to), to)) for value in values]
        case Kind.TEXT:
            return [Span.of_value(pa.scalar(check_text(_check_type(value, str, to)), to)) for value in values]
        case Kind.BYTES:
            return [_bytes_span(_check_type(value, (bytes, bytearray), to), to) for value in values]
        case Kind.FLOAT:
            place = _float32_span if to == pa.float32() else _float64_span
            return [place(_double(_number(value, to))) for value in values]
        case Kind.INTEGER | Kind.DECIMAL if not pa.types.is_unsigned_integer(to):
            return _exact_number_spans([_number(value, to) for value in values], to, listed=listed)
        case Kind.DATE:
            return [_date_span(value, to, zone) for value in values]
        case Kind.TIMESTAMP if to.unit in _UNIT_MICROS:
            unit = _UNIT_MICROS[to.unit]
            return [_integer_span(Fraction(_micros(value, to, zone), unit), to) for value in values]
    raise InvalidInputError(f"a column of type {to} cannot be compared in a filter; only IS NULL is possible")


def check_text(text: str) -> str:
    """Return ``text`` itself. Raise `InvalidInputError` if it has no UTF-8 form (a lone surrogate)."""
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise InvalidInputError(f"the filter's text {text!r} has no UTF-8 form; remove surrogates") from error
    return text


def parse_date(text: str) -> date | None:
    """Parse ``yyyy-MM-dd``. Return None for any other text, including shorter forms that Spark accepts."""
    if match := _DATE.fullmatch(text):
        try:
            return date(*(int(group) for group in match.groups()))
        except ValueError:
            return None
    return None


def parse_timestamp(text: str) -> datetime | None:
    """Parse ``yyyy-MM-dd[ HH:mm[:ss[.ffffff][zone]]]``; ``T`` may replace the blank. Return None for other texts.

    The zone is ``Z``, ``UTC`` or ``+hh:mm``; without a zone the result is naive.
    """
    match = _TIMESTAMP.fullmatch(text)
    if match is None:
        return None
    *fields, fraction, zone = match.groups()
    try:
        year, month, day, hour, minute, second = (int(field or 0) for field in fields)
        micros = int((fraction or "").ljust(6, "0"))
        return datetime(year, month, day, hour, minute, second, micros, time_zone(zone) if zone else None)
    except ValueError:
        return None


def _incompatible(value: object, to: pa.DataType, why: str) -> InvalidInputError:
    return InvalidInputError(f"{value!r} cannot be compared with a column of type {to}: {why}")


def _check_type(value: object, kinds: type | tuple[type, ...], to: pa.DataType) -> Any:
    if not isinstance(value, kinds):
        raise _incompatible(value, to, "write a literal of the column's own type")
    return value


def _bytes_span(value: bytes | bytearray, to: pa.DataType) -> Span:
    plain = pa.scalar(bytes(value), pa.binary())
    if not isinstance(to, pa.FixedSizeBinaryType):
        return Span.of_value(plain.cast(to))
    if len(value) != to.byte_width:
        raise _incompatible(bytes(value), to, "the lengths differ")
    return Span.of_value(pa.scalar(bytes(value), to))


def _number(value: object, to: pa.DataType) -> _Number:
    if isinstance(value, bool) or not isinstance(value, int | float | Decimal):
        raise _incompatible(value, to, "write a number, without quotes")
    if isinstance(value, Decimal) and not value.is_finite():
        raise _incompatible(value, to, "it is not a finite decimal")
    return value


def _double(value: _Number) -> float:
    try:
        return float(value)
    except OverflowError:
        return math.copysign(math.inf, value)


def _float64_span(value: float) -> Span:
    return Span.of_value(pa.scalar(value, pa.float64()))


def _float32_span(value: float) -> Span:
    with np.errstate(over="ignore"):
        near = np.float32(value)
    if math.isnan(value) or float(near) == value:
        return Span.of_value(pa.scalar(near, pa.float32()))
    far = np.nextafter(near, np.float32(-np.inf if float(near) > value else np.inf))
    return Span(pa.scalar(max(near, far), pa.float32()), pa.scalar(min(near, far), pa.float32()), 0)


def _exact_number_spans(values: Sequence[_Number], to: pa.DataType, *, listed: bool) -> list[Span]:
    scale = to.scale if kind_of(to) is Kind.DECIMAL else 0
    if any(isinstance(value, float) for value in values):
        lowest, highest = _limits(to)

        def as_double(unscaled: int) -> float:
            return float(Fraction(unscaled, 10**scale))

        return [_search_span(_double(value), to, lowest, highest, as_double) for value in values]
    _check_precision(values, to, scale, listed=listed)
    return [_integer_span(Fraction(value) * 10**scale, to) for value in values]


def _check_precision(values: Sequence[_Number], to: pa.DataType, scale: int, *, listed: bool) -> None:
    """Raise `InvalidInputError` if Spark would round: the common decimal type would need more than 38 digits."""
    if kind_of(to) is not Kind.DECIMAL and all(isinstance(value, int) for value in values):
        return
    whole_digits = [to.precision - to.scale if kind_of(to) is Kind.DECIMAL else _INT_DIGITS[to.bit_width]]
    scales = [scale]
    for value in values:
        if isinstance(value, Decimal):
            exponent = int(value.as_tuple().exponent)
            whole_digits.append(max(len(value.as_tuple().digits) + exponent, 0))
            scales.append(max(-exponent, 0))
        else:
            digits = len(str(abs(int(value))))
            # In an IN list Spark converts an int literal to decimal(10, 0), a bigint to decimal(20, 0).
            whole_digits.append(next((d for d in (10, 20) if digits < d), digits) if listed else digits)
    if max(whole_digits) + max(scales) > _MAX_PRECISION:
        worst = max(values, key=lambda value: len(str(value)))
        raise _incompatible(worst, to, f"the common decimal type would need more than {_MAX_PRECISION} digits")


def _limits(of: pa.DataType) -> tuple[int, int]:
    """Return the smallest and greatest integer that represents a value of a type.

    The integer is the unscaled value of a decimal, the days of a date, or the time units of a timestamp.
    """
    if kind_of(of) is Kind.DECIMAL:
        greatest = 10**of.precision - 1
        return -greatest, greatest
    return -(2 ** (of.bit_width - 1)), 2 ** (of.bit_width - 1) - 1


def _from_integer(value: int, to: pa.DataType) -> pa.Scalar:
    if kind_of(to) is Kind.DECIMAL:
        digits = tuple(int(digit) for digit in str(abs(value)))
        return pa.scalar(Decimal((int(value < 0), digits, -to.scale)), to)
    return pa.scalar(value, to)


def _integer_span(cut: Fraction | int, to: pa.DataType) -> Span:
    return _make_span(math.ceil(cut), math.floor(cut), to)


def _search_span(cut: float, to: pa.DataType, lowest: int, highest: int, embed: Callable[[int], float]) -> Span:
    """Find by binary search the span of a literal, if Spark casts the column's values and compares the results with it.

    Args:
        cut: The literal, as a number of the type to which Spark casts.
        lowest, highest: The range of the integers that represent the column's values.
        embed: Spark's cast of such an integer. It keeps the order but may map several integers to one value.
    """
    if math.isnan(cut):  # NaN is greater than every value, as infinity is greater than every integer.
        cut = math.inf
    lower = _find_first(lowest, highest + 1, lambda value: embed(value) >= cut)
    upper = _find_first(lowest, highest + 1, lambda value: embed(value) > cut) - 1
    return _make_span(lower, upper, to)


def _find_first(low: int, high: int, holds: Callable[[int], bool]) -> int:
    """Return the smallest value from ``low`` to before ``high`` for which a monotone test is true, else ``high``."""
    while low < high:
        middle = (low + high) // 2
        if holds(middle):
            high = middle
        else:
            low = middle + 1
    return low


def _make_span(lower: int, upper: int, to: pa.DataType) -> Span:
    lowest, highest = _limits(to)
    size = min(max(min(upper, highest) - max(lower, lowest) + 1, 0), 2)
    return Span(
        lower=None if lower > highest else _from_integer(max(lower, lowest), to),
        upper=None if upper < lowest else _from_integer(min(upper, highest), to),
        size=size,
    )


def _date_span(value: object, to: pa.DataType, zone: str) -> Span:
    match value:
        case datetime():
            return _make_span(*_days_around(_instant_micros(value, to, zone), to, zone), to)
        case date():
            return _integer_span(value.toordinal() - _EPOCH_DAY, to)
        case str() if parsed := parse_date(value):
            return _integer_span(parsed.toordinal() - _EPOCH_DAY, to)
        case _:
            raise _incompatible(value, to, "write DATE 'yyyy-MM-dd'")


def _days_around(instant: int, to: pa.DataType, zone: str) -> tuple[int, int]:
    """Return the dates next to a moment, as days since the epoch. A date is compared as its first moment in the zone.

    Returns:
        The first date that does not begin before the moment, and the last date that does not begin after it. If the
        clocks skipped a whole day, that day and the next day begin at the same moment. For this moment, both results
        are the next day (Spark's ``UnwrapCastInBinaryComparison``).
    """
    near = instant // _DAY_MICROS
    starts = {day: _start_of_day(day, to, zone) for day in range(near - 2, near + 4)}
    last = max(day for day, start in starts.items() if start <= instant)
    return (last if starts[last] == instant else last + 1), last


def _start_of_day(day: int, to: pa.DataType, zone: str) -> int:
    return _instant_micros(datetime(1970, 1, 1) + timedelta(days=day), to, zone)


def _micros(value: object, to: pa.DataType, zone: str) -> int:
    is_text, is_day = isinstance(value, str), isinstance(value, date) and not isinstance(value, datetime)
    match parse_timestamp(value) if isinstance(value, str) else value:
        case datetime() as wall:
            pass
        case date() as day:
            wall = datetime.combine(day, time())
        case _:
            raise _incompatible(value, to, "write TIMESTAMP 'yyyy-MM-dd HH:mm:ss'")
    if to.tz is not None:
        return _instant_micros(wall, to, zone)
    if is_text and wall.tzinfo is not None:
        raise _incompatible(wall, to, "the column has no time zone")
    if not (is_text or is_day) and time_zone(zone) != timezone.utc:
        raise _incompatible(wall, to, f"it has no time zone, the session's is {zone}; write a plain text")
    return _instant_micros(wall, to, "UTC")


def _instant_micros(value: datetime, to: pa.DataType, zone: str) -> int:
    """Return the microseconds since the epoch. A naive value is local time in ``zone``.

    As in Java, if the clocks show a time twice, the earlier moment is used. A time that the clocks skip is moved
    forward by the length of the skipped period.
    """
    try:
        if value.tzinfo is None:
            value = value.replace(tzinfo=time_zone(zone), fold=0)
        return (value - _EPOCH) // timedelta(microseconds=1)
    except OverflowError as error:
        raise _incompatible(value, to, "it is out of range") from error
