"""The texts that Java makes of floats and doubles."""

from __future__ import annotations

from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

__all__ = ["float_texts"]

#: Below this absolute value, Java writes a floating-point number with an exponent.
_PLAIN_FROM: Final = 1e-3
#: From this absolute value on, Java writes a floating-point number with an exponent.
_PLAIN_BELOW: Final = 1e7

_DECIMAL_PARTS: Final = r"^(?P<sign>-?)(?P<whole>\d+)(?:\.(?P<fraction>\d+))?(?:e(?P<power>[+-]?\d+))?$"


def float_texts(array: pa.Array) -> pa.StringArray:
    """Convert floats to Java's text. Arrow writes the same digits, so only the notation is changed."""
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
    """Format floats in Java's notation ``d.dddE[-]n``. The array must not contain nulls, zeros, NaN or infinities."""
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
    mantissa, exponent = _write_two_digits_for_smallest(array, digits, mantissa, exponent)
    number = pc.binary_join_element_wise(mantissa, exponent.cast(pa.string()), "E")
    return pc.binary_join_element_wise(sign, number, "")


def _write_two_digits_for_smallest(
    array: pa.Array, digits: pa.Array, mantissa: pa.Array, exponent: pa.Array
) -> tuple[pa.Array, pa.Array]:
    """Replace the digits of numbers whose shortest text has one digit by the closest two digits, as Java does.

    For example, the text of the smallest double is ``4.9E-324`` and not ``5E-324``. Only the smallest subnormal numbers
    change: for all others, the second digit is 0.

    Returns:
        The changed ``mantissa`` and ``exponent``.
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
