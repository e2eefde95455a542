"""Comparison of whole columns in Spark's order.

Floats are compared in Spark's order, not in that of IEEE: NaN equals NaN and is greater than every other value, and
the two zeros are equal (Spark: ``SQLOrderingUtil.compareDoubles``). Texts are compared byte by byte.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from lakeformat.arrow.kinds import Kind, kind_of

__all__ = ["compare", "compare_columns", "is_in"]

_COMPARE: Final[Mapping[str, Callable[[pa.Array, pa.Scalar], pa.Array]]] = {
    "=": pc.equal,
    "!=": pc.not_equal,
    "<": pc.less,
    "<=": pc.less_equal,
    ">": pc.greater,
    ">=": pc.greater_equal,
}
#: Operators that are true for NaN on the left and any other value on the right.
_NAN_ON_THE_LEFT: Final = frozenset({">=", ">", "!="})


def compare(column: pa.Array | pa.ChunkedArray, op: str, value: pa.Scalar) -> pa.Array | pa.ChunkedArray:
    """Compare a column with a literal of its type: true, false or null per row."""
    if op == "<=>":
        return pc.fill_null(compare(column, "=", value), False)
    if not value.is_valid:
        return pa.nulls(len(column), pa.bool_())
    if kind_of(column.type) is not Kind.FLOAT:
        return _COMPARE[op](column, value)
    nan = pc.is_nan(column)
    if math.isnan(value.as_py()):
        if op in ("=", ">="):
            return nan
        if op in ("!=", "<"):
            return pc.invert(nan)
        return pc.if_else(nan, op == "<=", op == "<=")
    plain = _COMPARE[op](column, value)
    return pc.or_(plain, nan) if op in _NAN_ON_THE_LEFT else plain


#: Maps an operator to the operator that gives the same result if both sides are exchanged.
_REVERSED: Final = {">": "<", ">=": "<="}


def compare_columns(
    left: pa.Array | pa.ChunkedArray, op: str, right: pa.Array | pa.ChunkedArray
) -> pa.Array | pa.ChunkedArray:
    """Compare two columns row by row: true, false or null."""
    if op == "<=>":
        both_null = pc.and_(pc.is_null(left), pc.is_null(right))
        return pc.or_(both_null, pc.fill_null(compare_columns(left, "=", right), False))
    if op in _REVERSED:
        return compare_columns(right, _REVERSED[op], left)
    if op == "!=":
        return pc.invert(compare_columns(left, "=", right))
    plain = _COMPARE[op](left, right)
    if not (kind_of(left.type) is Kind.FLOAT or kind_of(right.type) is Kind.FLOAT):
        return plain
    # Arrow's results are false for NaN. Add Spark's: NaN equals NaN and is greater than everything else.
    left_nan, right_nan = pc.is_nan(left), pc.is_nan(right)
    special = {
        "=": pc.and_(left_nan, right_nan),
        "<": pc.and_(pc.invert(left_nan), right_nan),
        "<=": right_nan,
    }[op]
    return pc.or_(plain, special)


def is_in(column: pa.Array | pa.ChunkedArray, values: pa.Array) -> pa.Array | pa.ChunkedArray:
    """Tell per row whether its value is in a list; null if the value is null, or if only a null could be equal."""
    present = values.drop_null()
    if kind_of(column.type) is Kind.FLOAT:
        # Arrow hashes bits: it distinguishes 0.0 from -0.0, and NaNs with different bits.
        zeros = pa.array([0.0, -0.0] if pc.any(pc.equal(present, 0.0)).as_py() else [], present.type)
        is_found = pc.is_in(column, value_set=pa.concat_arrays([present, zeros]))
        if pc.any(pc.is_nan(present)).as_py():
            is_found = pc.or_(is_found, pc.fill_null(pc.is_nan(column), False))
    else:
        is_found = pc.is_in(column, value_set=present)
    otherwise = pa.scalar(None if values.null_count else False, pa.bool_())
    answer = pc.if_else(is_found, True, otherwise)
    return pc.if_else(pc.is_null(column), pa.scalar(None, pa.bool_()), answer)
