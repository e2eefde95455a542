"""Java's ``String.valueOf`` for whole columns, as Hudi's key generators apply it to stored values.

Only Arrow kernels see the values. A timestamp becomes the number of microseconds that Hudi stores.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakeformat.errors import InvalidInputError

__all__ = ["java_text"]

#: Java writes 10^-3 <= |x| < 10^7 without an exponent, and all other numbers with one.
_PLAIN_FROM: Final = 1e-3
_PLAIN_BELOW: Final = 1e7

_DECIMAL_PARTS: Final = r"^(?P<sign>-?)(?P<whole>\d+)(?:\.(?P<fraction>\d+))?(?:e(?P<power>[+-]?\d+))?$"

#: Days since the epoch of 0001-01-01 and 9999-12-31; within these Spark and Hudi write ten characters.
_FIRST_DAY: Final = -719_162
_LAST_DAY: Final = 2_932_896


def java_text(array: pa.Array) -> pa.StringArray:
    """Convert each value to Java's text; null stays null.

    ====================  =======================================================================
    integers, strings     unchanged
    booleans              ``true``, ``false``
    dates                 ``2024-01-02`` (``LocalDate.toString``; years 1 to 9999)
    timestamps            microseconds since the epoch, with or without a zone
    floats, doubles       ``1.5``, ``1.0E10``, ``NaN`` (``Double.toString`` with the fewest digits, Java 19's
                          rule; older releases write one digit more for some values with an exponent)
    decimals              ``3.10``, ``1E-8`` (``BigDecimal.toString``)
    ====================  =======================================================================

    A dictionary array is decoded first. An array of type null becomes null strings.

    Raises:
        InvalidInputError: The type is not supported (binary, nested, time and others), a date lies outside
            the years 1 to 9999, or a timestamp has nanoseconds that would be lost.
    """
    kind = array.type
    if pa.types.is_dictionary(kind):
        return java_text(array.cast(kind.value_type))
    if pa.types.is_string(kind):
        return array
    if pa.types.is_floating(kind) and not pa.types.is_float16(kind):
        return _format_floats(array)
    if pa.types.is_date(kind):
        return _format_dates(array.cast(pa.date32()))
    if pa.types.is_timestamp(kind):
        try:
            return array.cast(pa.timestamp("us", kind.tz)).cast(pa.int64()).cast(pa.string())
        except pa.ArrowInvalid as error:
            raise InvalidInputError(f"a {kind} column cannot be a key: {error}; round it to microseconds") from None
    if (
        pa.types.is_integer(kind)
        or pa.types.is_boolean(kind)
        or pa.types.is_decimal(kind)
        or pa.types.is_large_string(kind)
        or pa.types.is_string_view(kind)
        or pa.types.is_null(kind)
    ):
        return array.cast(pa.string())
    raise InvalidInputError(f"a {kind} column cannot be a record key or partition; convert it to string")


def _format_dates(array: pa.Array) -> pa.StringArray:
    bounds = pc.min_max(array.cast(pa.int32()))
    low, high = bounds["min"].as_py(), bounds["max"].as_py()
    if low is not None and not _FIRST_DAY <= low <= high <= _LAST_DAY:
        raise InvalidInputError("a date of a key or partition lies outside the years 1 to 9999; correct it")
    return array.cast(pa.string())


def _format_floats(array: pa.Array) -> pa.StringArray:
    """Convert floats to text. Arrow's text also has the fewest digits; only the notation differs from Java's."""
    size = pc.abs(array)
    plain = pc.and_(pc.greater_equal(size, _PLAIN_FROM), pc.less(size, _PLAIN_BELOW))
    is_zero = pc.equal(size, 0)
    text = array.cast(pa.string())
    with_point = pc.if_else(pc.match_substring(text, "."), text, pc.binary_join_element_wise(text, "0", "."))
    others = pc.and_(pc.is_finite(array), pc.invert(pc.or_(plain, is_zero)))
    if pc.any(others).as_py():
        exponential = _format_exponential(pc.filter(array, others))
        with_point = pc.replace_with_mask(with_point, pc.fill_null(others, False), exponential)
    named = pc.case_when(
        pc.make_struct(pc.is_nan(array), pc.equal(array, float("inf")), pc.equal(array, float("-inf"))),
        "NaN",
        "Infinity",
        "-Infinity",
        with_point,
    )
    return pc.if_else(pc.is_valid(array), named, pa.scalar(None, pa.string()))


def _format_exponential(array: pa.Array) -> pa.StringArray:
    """Format finite, non-zero floats without nulls as ``d.dddE[-]n``."""
    parts = pc.extract_regex(array.cast(pa.string()), _DECIMAL_PARTS)
    sign, whole, fraction = (pc.struct_field(parts, name) for name in ("sign", "whole", "fraction"))
    power = pc.struct_field(parts, "power")
    power = pc.if_else(pc.equal(power, ""), "0", pc.utf8_ltrim(power, "+")).cast(pa.int64())
    written = pc.binary_join_element_wise(whole, fraction, "")
    digits = pc.utf8_ltrim(written, "0")
    leading_zeros = pc.subtract(pc.binary_length(written), pc.binary_length(digits))
    exponent = pc.subtract(pc.add(power, pc.binary_length(whole)), pc.add(leading_zeros, 1))
    digits = pc.utf8_rtrim(digits, "0")
    rest = pc.utf8_slice_codeunits(digits, 1)
    mantissa = pc.binary_join_element_wise(
        pc.utf8_slice_codeunits(digits, 0, 1), pc.if_else(pc.equal(rest, ""), "0", rest), "."
    )
    mantissa, exponent = _use_two_digits_for_smallest(array, digits, mantissa, exponent)
    number = pc.binary_join_element_wise(mantissa, exponent.cast(pa.string()), "E")
    return pc.binary_join_element_wise(sign, number, "")


def _use_two_digits_for_smallest(
    array: pa.Array, digits: pa.Array, mantissa: pa.Array, exponent: pa.Array
) -> tuple[pa.Array, pa.Array]:
    """Give numbers that need only one digit the closest two digits, as Java does: ``4.9E-324``, not ``5E-324``.

    The closest two digits differ from one digit only among the smallest subnormals, whose neighbours are far apart.
    """
    double = pa.types.is_float64(array.type)
    unit = 5e-324 if double else float(np.finfo(np.float32).smallest_subnormal)
    steps = [count * unit for count in range(1, 200)]
    closest = [f"{step:.1e}".split("e") for step in steps]
    index = pc.index_in(pc.abs(array), value_set=pa.array(steps, array.type))
    index = pc.if_else(pc.equal(pc.binary_length(digits), 1), index, pa.scalar(None, pa.int32()))
    if index.null_count == len(index):
        return mantissa, exponent
    return (
        pc.coalesce(pc.take(pa.array([part[0] for part in closest]), index), mantissa),
        pc.coalesce(pc.take(pa.array([int(part[1]) for part in closest]), index), exponent.cast(pa.int64())),
    )
