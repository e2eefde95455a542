"""The functions of `lakeformat.predicate.functions` on whole columns, with Spark's results for every row.

A kernel gets a column per argument, and a `pa.Scalar` for an argument that must be a literal. It raises `ValueError` if
a row has no result in ANSI mode.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache, reduce
from typing import Any, Final, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakeformat.arrow.kinds import Kind, kind_of
from lakeformat.predicate.casts import (
    MOMENT,
    cast_values,
    from_days,
    from_micros,
    scalar_text,
    to_days,
    to_micros,
    type_name,
)
from lakeformat.predicate.comparisons import compare_columns, is_in
from lakeformat.predicate.local_time import Ints, truncate_days, truncate_moments
from lakeformat.predicate.nodes import Call
from lakeformat.predicate.regular_expressions import java_pattern, like_pattern

__all__ = [
    "Kernel",
    "add_days",
    "add_months",
    "arithmetic",
    "array_contains",
    "calendar_part",
    "cast",
    "change_case",
    "compared",
    "cut_left",
    "cut_right",
    "divide",
    "extreme",
    "floor_or_ceil",
    "last_day",
    "listed",
    "match_java",
    "match_like",
    "plain",
    "remainder",
    "replace_text",
    "round_half_up",
    "size",
    "substring",
    "truncate_date",
    "truncate_moment",
    "try_cast",
]

Argument: TypeAlias = Any
Kernel: TypeAlias = Callable[[Sequence[Argument], Call], pa.Array]

_LONG_MOST: Final = float(1 << 63)


def plain(compute: Callable[..., pa.Array], **options: Any) -> Kernel:
    """Return the kernel that calls a function of Arrow, and gives its result the type of the call."""

    def kernel(arguments: Sequence[Argument], call: Call) -> pa.Array:
        return compute(*arguments, **options).cast(call.of)

    return kernel


def cast(arguments: Sequence[Argument], call: Call) -> pa.Array:
    """Cast values; an error if one cannot be cast."""
    (values,) = arguments
    result = cast_values(values, call.of, call.zone)
    if result.null_count > values.null_count:
        failed = values.filter(pc.and_(pc.is_null(result), pc.is_valid(values)))[0]
        raise ValueError(f"{scalar_text(failed)} has no value of type {type_name(result.type)}; use try_cast")
    return result


def try_cast(arguments: Sequence[Argument], call: Call) -> pa.Array:
    """Cast values; null for one that cannot be cast."""
    return cast_values(arguments[0], call.of, call.zone)


def compared(op: str) -> Kernel:
    """Return the kernel of a comparison."""
    return lambda arguments, call: compare_columns(arguments[0], op, arguments[1])


def listed(arguments: Sequence[Argument], call: Call) -> pa.Array:
    """Tell whether a value is in a list of literals."""
    value, *literals = arguments
    return is_in(value, pa.array([literal.as_py() for literal in literals], value.type))


# --- numbers ----------------------------------------------------------------------------------------------


def arithmetic(checked: Callable[..., pa.Array], unchecked: Callable[..., pa.Array]) -> Kernel:
    """Return the kernel of an operator: overflows are errors for integers and decimals, not for floats."""

    def kernel(arguments: Sequence[Argument], call: Call) -> pa.Array:
        compute = unchecked if kind_of(call.of) is Kind.FLOAT else checked
        return compute(*arguments).cast(call.of)

    return kernel


def divide(arguments: Sequence[Argument], call: Call) -> pa.Array:
    """Divide; a division by zero is an error."""
    left, right = arguments
    _check_divisor(left, right)
    return pc.divide(left, right) if kind_of(call.of) is Kind.FLOAT else pc.divide_checked(left, right)


def _check_divisor(left: pa.Array, right: pa.Array) -> None:
    if pc.any(pc.and_(pc.is_valid(left), pc.equal(right, pa.scalar(0, right.type)))).as_py():
        raise ValueError("division by zero; write nullif(..., 0) around the divisor")


def remainder(arguments: Sequence[Argument], call: Call) -> pa.Array:
    """Return the remainder of a division, which has the sign of the dividend."""
    left, right = arguments
    _check_divisor(left, right)
    nulls = np.asarray(pc.or_(pc.is_null(left), pc.is_null(right)))
    dividend, divisor = (np.asarray(pc.fill_null(operand, filler)) for operand, filler in ((left, 0), (right, 1)))
    if kind_of(call.of) is Kind.INTEGER:
        divisor = np.where((divisor == -1) | nulls, 1, divisor).astype(dividend.dtype)  # x % -1 must not overflow.
    with np.errstate(invalid="ignore"):
        return pa.array(np.fmod(dividend, divisor), call.of, mask=nulls)


def round_half_up(arguments: Sequence[Argument], call: Call) -> pa.Array:
    """Round to a number of digits; halves away from zero."""
    values, digits = arguments[0], arguments[1].as_py() if len(arguments) > 1 else 0
    if kind_of(values.type) is Kind.INTEGER:
        return values
    if kind_of(values.type) is Kind.FLOAT:
        return pc.round(values, 0, "half_towards_infinity")
    wide = values.cast(pa.decimal256(values.type.precision + 1, values.type.scale))
    return pc.round(wide, min(digits, values.type.scale), "half_towards_infinity").cast(call.of)


def floor_or_ceil(compute: Callable[[pa.Array], pa.Array]) -> Kernel:
    """Return the kernel of floor or ceil. As in Java, NaN gives 0. Another float that no long can hold is an error."""

    def kernel(arguments: Sequence[Argument], call: Call) -> pa.Array:
        (values,) = arguments
        if kind_of(values.type) is Kind.INTEGER:
            return values.cast(call.of)
        if kind_of(values.type) is Kind.DECIMAL:
            wide = values.cast(pa.decimal256(values.type.precision + 1, values.type.scale))
            return compute(wide).cast(call.of)
        numbers = np.nan_to_num(np.asarray(pc.fill_null(compute(values), 0.0)), nan=0.0, posinf=np.inf, neginf=-np.inf)
        if not ((numbers >= -_LONG_MOST) & (numbers < _LONG_MOST)).all():
            raise ValueError("a number is too large for a bigint")
        return pa.array(numbers.astype(np.int64), mask=np.asarray(pc.is_null(values)))

    return kernel


def extreme(op: str) -> Kernel:
    """Return the kernel of greatest (``>=``) or least (``<=``), which ignore nulls."""

    def choose(first: pa.Array, other: pa.Array) -> pa.Array:
        return pc.if_else(pc.coalesce(compare_columns(first, op, other), pc.is_null(other)), first, other)

    return lambda arguments, call: arguments[0] if kind_of(call.of) is Kind.NULL else reduce(choose, arguments)


# --- texts ------------------------------------------------------------------------------------------------


@cache
def _special_cases(method: str) -> str:
    """Return a pattern of the characters whose other case is not one character, or depends on the text around."""
    texts = (chr(code) for code in range(0x110000) if not 0xD800 <= code < 0xE000)
    special = [text for text in texts if len(getattr(text, method)()) > 1]
    return "[" + "".join([*special, "Σ"] if method == "lower" else special) + "]"


def change_case(method: str, compute: Callable[[pa.Array], pa.Array]) -> Kernel:
    """Return the kernel of lower or upper, by all rules of Unicode.

    Arrow knows the rules from one character to one. Python converts the few different texts that need other rules.
    """

    def kernel(arguments: Sequence[Argument], call: Call) -> pa.Array:
        (texts,) = arguments
        changed_texts = compute(texts)
        if pc.all(pc.string_is_ascii(texts)).as_py() is not False:
            return changed_texts
        special = pc.fill_null(pc.match_substring_regex(texts, _special_cases(method)), False)
        if not pc.any(special).as_py():
            return changed_texts
        encoded = texts.filter(special).dictionary_encode()
        changed = pa.array([getattr(text, method)() for text in encoded.dictionary.to_pylist()], pa.string())
        return pc.replace_with_mask(changed_texts, special, changed.take(encoded.indices))

    return kernel


def substring(arguments: Sequence[Argument], call: Call) -> pa.Array:
    """Cut a text from a position, counted from 1, or from the end if it is negative."""
    texts, start = arguments[0], arguments[1].as_py()
    count = arguments[2].as_py() if len(arguments) > 2 else None
    if count is not None and count <= 0:
        return pc.if_else(pc.is_valid(texts), "", texts)
    start = start - 1 if start > 0 else start
    stop = None if count is None or (start < 0 <= start + count) else start + count
    return pc.utf8_slice_codeunits(texts, start, stop)


def cut_left(arguments: Sequence[Argument], call: Call) -> pa.Array:
    """Return the first characters of a text."""
    return pc.utf8_slice_codeunits(arguments[0], 0, max(arguments[1].as_py(), 0))


def cut_right(arguments: Sequence[Argument], call: Call) -> pa.Array:
    """Return the last characters of a text."""
    texts, count = arguments[0], arguments[1].as_py()
    return pc.utf8_slice_codeunits(texts, -count) if count > 0 else pc.if_else(pc.is_valid(texts), "", texts)


def replace_text(arguments: Sequence[Argument], call: Call) -> pa.Array:
    """Replace each occurrence of a text; an empty text occurs nowhere."""
    texts, old, *rest = arguments
    if not old.as_py():
        return texts
    return pc.replace_substring(texts, old.as_py(), rest[0].as_py() if rest else "")


def match_like(arguments: Sequence[Argument], call: Call) -> pa.Array:
    """Match a LIKE pattern."""
    return pc.match_substring_regex(arguments[0], like_pattern(arguments[1].as_py()))


def match_java(arguments: Sequence[Argument], call: Call) -> pa.Array:
    """Search a regular expression of Java."""
    texts, pattern = arguments[0], arguments[1].as_py()
    matches = pc.match_substring_regex(texts, java_pattern(pattern))
    if "$" not in pattern:
        return matches
    return pc.if_else(
        pc.ends_with(texts, "\r\n"), pc.match_substring_regex(texts, java_pattern(pattern, crlf=True)), matches
    )


# --- dates and times --------------------------------------------------------------------------------------


def calendar_part(compute: Callable[..., pa.Array], shift: int = 0, **options: Any) -> Kernel:
    """Return the kernel that gives a part of a date or local time as an int."""

    def kernel(arguments: Sequence[Argument], call: Call) -> pa.Array:
        return pc.add(compute(arguments[0], **options).cast(pa.int32()), pa.scalar(shift, pa.int32()))

    return kernel


def add_days(sign: int) -> Kernel:
    """Return the kernel that moves a date by days. As in Spark, a date that is out of range wraps around."""

    def kernel(arguments: Sequence[Argument], call: Call) -> pa.Array:
        dates, days = arguments
        nulls = pc.if_else(pc.is_valid(dates), days, pa.scalar(None, days.type))
        return from_days(to_days(dates) + sign * _ints(days), nulls)

    return kernel


def _ints(values: pa.Array) -> Ints:
    return np.asarray(pc.fill_null(values.cast(pa.int64()), 0))


def _checked_days(days: Ints, *given: pa.Array) -> pa.Array:
    nulls = reduce(np.logical_or, (np.asarray(pc.is_null(part)) for part in given))
    if (~nulls & (np.abs(days) >= 1 << 31)).any():
        raise ValueError("a date is out of range")
    return from_days(np.where(nulls, 0, days), pa.array(np.zeros(len(days), np.int8), mask=nulls))


def _month_bounds(months: Ints) -> tuple[Ints, Ints]:
    """Return the first and the last day of months, which count from January 1970."""
    first, after = (
        month.astype("datetime64[M]").astype("datetime64[D]").astype(np.int64) for month in (months, months + 1)
    )
    return first, after - 1


def _months_of(days: Ints) -> Ints:
    return days.astype("datetime64[D]").astype("datetime64[M]").astype(np.int64)


def add_months(arguments: Sequence[Argument], call: Call) -> pa.Array:
    """Move a date by months. The day is the same, or the last one of a shorter month."""
    dates, months = arguments
    days = to_days(dates)
    start, _ = _month_bounds(_months_of(days))
    first, last = _month_bounds(_months_of(days) + _ints(months))
    return _checked_days(np.minimum(first + days - start, last), dates, months)


def last_day(arguments: Sequence[Argument], call: Call) -> pa.Array:
    """Return the last day of a date's month."""
    _, last = _month_bounds(_months_of(to_days(arguments[0])))
    return _checked_days(last, arguments[0])


def truncate_date(arguments: Sequence[Argument], call: Call) -> pa.Array:
    """Return the first day of a date's year, quarter, month or week."""
    dates, unit = arguments
    return _checked_days(truncate_days(to_days(dates), unit.as_py()), dates)


def truncate_moment(arguments: Sequence[Argument], call: Call) -> pa.Array:
    """Return the start of the unit of time that holds a timestamp."""
    unit, moments = arguments
    return from_micros(truncate_moments(to_micros(moments), unit.as_py(), call.zone), moments, MOMENT)


# --- arrays -----------------------------------------------------------------------------------------------


def size(arguments: Sequence[Argument], call: Call) -> pa.Array:
    """Count the elements of an array or map."""
    values = arguments[0]
    if kind_of(values.type) is Kind.MAP:
        values = values.cast(pa.list_(pa.struct([values.type.key_field, values.type.item_field])))
    return pc.list_value_length(values).cast(pa.int32())


def array_contains(arguments: Sequence[Argument], call: Call) -> pa.Array:
    """Tell whether an array has a value; null if it has not, but has a null."""
    arrays, item = arguments
    rows = pc.list_parent_indices(arrays)
    elements = pc.list_flatten(arrays)
    if kind_of(elements.type).is_number or not elements.type.equals(item.type):
        elements = elements.cast(item.type)
    equal = compare_columns(elements, "=", item.take(rows))
    flags = [np.zeros(len(arrays), np.bool_) for _ in range(2)]
    for flag, chosen in zip(flags, (pc.fill_null(equal, False), pc.is_null(equal)), strict=True):
        flag[np.asarray(rows.filter(chosen))] = True
    has, has_null = flags
    nulls = np.asarray(pc.or_(pc.is_null(arrays), pc.is_null(item))) | (has_null & ~has)
    return pa.array(has, mask=nulls)
