"""Data skipping: which units (files or row groups) may contain rows that a bound filter selects, by column bounds.

The result "no" must be proven, because a unit that is skipped is never read. For each leaf there are two tests: whether
any row may make it true, and whether any row may make it false. NOT swaps the two tests. Negating a result would be
wrong: a unit may contain rows for which a leaf is true and rows for which it is false.

Bounds do not prove everything:

- Float bounds ignore NaN, which is greater than everything. So an upper bound proves nothing against ``>``, ``>=`` and
  ``!=``, unless a count says that there is no NaN, or another part of a conjunction rules NaN out, as ``x <= 9`` does
  in ``x >= 5 AND x <= 9``.
- Text bounds may be shortened, lower bounds to a smaller text and upper bounds to a greater text. Equal bounds still
  mean equal values.
- A condition on functions is tested where each of its columns has one value, as a partition column has, and where the
  function keeps or reverses the order of one column (`lakeformat.predicate.monotonic`).
- A null bound, or a null count that is null, is unknown and proves nothing. A null count equal to the row count proves
  that no comparison is true for any row, whatever the bounds.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import reduce
from typing import Final, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lakeformat.arrow.kinds import Kind, kind_of
from lakeformat.errors import InvalidInputError
from lakeformat.predicate.casts import plain_type
from lakeformat.predicate.monotonic import find_monotonic
from lakeformat.predicate.nodes import (
    Always,
    And,
    Calculated,
    ColumnComparison,
    ColumnValue,
    Comparison,
    Computed,
    Contains,
    EndsWith,
    In,
    IsNull,
    Leaf,
    Like,
    Not,
    Operator,
    Or,
    Predicate,
    StartsWith,
    bound_literal,
    has_exact_bounds,
    like_tokens,
    path_parts,
    rename_in_value,
    value_columns,
    values_of,
)
from lakeformat.predicate.rows import compute, mask

__all__ = ["ColumnBounds", "may_match"]

Flags: TypeAlias = npt.NDArray[np.bool_]

#: IN lists up to this length are compared with the bounds value by value; longer lists are searched.
_SHORT_LIST: Final = 8
_NEGATED: Final[Mapping[str, Operator]] = {
    "=": "!=",
    "!=": "=",
    "<": ">=",
    "<=": ">",
    ">": "<=",
    ">=": "<",
}


@dataclass(frozen=True, slots=True)
class ColumnBounds:
    """The bounds and counts of one column, one entry per file or row group; null means unknown.

    If a file or row group lacks the column, its bounds are null and its null count equals its row count.

    Attributes:
        minimum: A lower bound of the values, except NaN and null; of the column's type.
        maximum: An upper bound of the values, except NaN and null; of the column's type.
        null_count: Number of rows in which the column is null; any integer type.
        nan_count: Number of rows in which a float column is NaN; any integer type. None means unknown for all
            entries.
    """

    minimum: pa.Array
    maximum: pa.Array
    null_count: pa.Array
    nan_count: pa.Array | None = None

    @property
    def nan_free(self) -> Flags:
        """Return a flag per file or row group: whether it is known to contain no NaN; True for all other types."""
        if kind_of(self.minimum.type) is not Kind.FLOAT:
            return np.full(len(self.null_count), True)
        return np.full(len(self.null_count), False) if self.nan_count is None else _is_true(pc.equal(self.nan_count, 0))


def may_match(predicate: Predicate, bounds: Mapping[str, ColumnBounds], row_counts: pa.Array) -> Flags:
    """Return a flag per file or row group: False if the bounds prove that the filter selects none of its rows.

    Args:
        predicate: A bound filter (`bind`).
        bounds: Maps column paths to bounds. A column that is missing, or whose bounds have another type, is unknown.
        row_counts: Number of rows of each file or row group; null means unknown.
    """
    return _Units(bounds, row_counts).test(predicate, True) & ~_is_true(pc.equal(row_counts, 0))


class _Units:
    """The column bounds and row counts of files or row groups, and the tests of a filter's nodes against them."""

    def __init__(self, bounds: Mapping[str, ColumnBounds], row_counts: pa.Array) -> None:
        self._bounds = bounds
        self._row_counts = row_counts
        self._has_values: dict[str, Flags] = {}
        self._known_numbers: dict[tuple[int, bool], frozenset[str]] = {}

    def test(self, predicate: Predicate, wanted: bool, numbers: frozenset[str] = frozenset()) -> Flags:
        """Return a flag per file or row group: False if the bounds prove that no row gives ``predicate`` this value.

        Args:
            wanted: The value of ``predicate`` to look for, True or False. Null is neither of them.
            numbers: Columns in which rows with NaN need not be considered, because other parts of the filter exclude
                them.
        """
        numbers |= self._find_numbers(predicate, wanted)
        match predicate:
            case Not(operand):
                return self.test(operand, not wanted, numbers)
            case And(operands) | Or(operands):
                both = isinstance(predicate, And) == wanted
                combine = np.logical_and if both else np.logical_or
                answers = (self.test(operand, wanted, numbers) for operand in operands)
                return reduce(combine, answers, self._fill_flags(both))
            case Always(value):
                return self._fill_flags(value == wanted)
            case ColumnComparison():
                return self._fill_flags(True)
            case Calculated():
                return self._test_single_values(predicate, wanted) & self._test_monotonic(predicate, wanted)
            case Computed(hint=hint):
                return self.test(hint, True) if wanted else self._fill_flags(True)
            case leaf:
                column = self._bounds.get(leaf.column)
                if column is None:
                    return self._fill_flags(True)
                return self._test_leaf(leaf, column, wanted, column.nan_free | (leaf.column in numbers))

    def _find_numbers(self, predicate: Predicate, is_true: bool) -> frozenset[str]:
        """Return the columns that are not NaN in any row that makes the filter equal to ``is_true``."""
        stored = self._known_numbers.get((id(predicate), is_true))
        if stored is not None:
            return stored
        columns: frozenset[str]
        match predicate:
            case Not(operand):
                columns = self._find_numbers(operand, not is_true)
            case And(operands) | Or(operands):
                both = isinstance(predicate, And) == is_true
                of_operands = [self._find_numbers(operand, is_true) for operand in operands]
                columns = (
                    reduce(frozenset.union if both else frozenset.intersection, of_operands)
                    if of_operands
                    else frozenset()
                )
            case Comparison(column) | In(column) if _rules_out_nan(predicate, is_true):
                columns = frozenset({column})
            case _:
                columns = frozenset()
        self._known_numbers[id(predicate), is_true] = columns
        return columns

    def _fill_flags(self, value: bool) -> Flags:
        return np.full(len(self._row_counts), value)

    def _test_leaf(self, leaf: Leaf, column: ColumnBounds, is_true: bool, no_nan: Flags) -> Flags:
        match leaf:
            case IsNull():
                return _may_be_null(column) if is_true else self._with_values(leaf, column)
            case Comparison(op="<=>", value=value):
                equal = self._test_leaf(Comparison(leaf.column, "=" if is_true else "!=", value), column, True, no_nan)
                return equal if is_true else equal | _may_be_null(column)
            case Comparison(op=op):
                value = bound_literal(leaf.value)
                if not value.is_valid:
                    return self._fill_flags(False)
                flags = _test_comparison(op if is_true else _NEGATED[op], value, column, no_nan)
            case In():
                values = bound_literal(leaf.values)
                if values.null_count and not is_true:
                    return self._fill_flags(False)
                values = values.drop_null() if is_true else values
                flags = _test_in(values, column, no_nan) if is_true else _test_not_in(values, column, no_nan)
            case StartsWith(text=text):
                flags = _test_prefix(text, column) if is_true else _test_not_prefix(text, column)
            case Like(pattern=pattern) if is_true:
                first = like_tokens(pattern)[0]
                flags = _test_prefix(first[1:], column) if first[0] == "=" else self._fill_flags(True)
            case Like() | EndsWith() | Contains():
                flags = self._fill_flags(True)
        return flags & self._with_values(leaf, column)

    def _test_single_values(self, condition: Calculated, is_true: bool) -> Flags:
        """Test a function by its value, in the units in which each of its columns has one value, as partitions have."""
        columns = {part.path: part for part in values_of(condition.value) if isinstance(part, ColumnValue)}
        flags, single = self._fill_flags(True), self._fill_flags(True)
        for path, column in columns.items():
            bounds = self._bounds.get(path)
            if bounds is None or len(path_parts(path)) > 1 or not has_exact_bounds(column):
                return flags
            if _bounds_type(bounds) != column.of:
                return flags
            single &= _is_true(pc.equal(bounds.minimum, bounds.maximum)) & _is_true(pc.equal(bounds.null_count, 0))
        if not single.any() or not columns or columns.keys() != {*value_columns(condition.value)}:
            return flags
        rows = pa.table({path_parts(path)[0]: self._bounds[path].minimum for path in columns}).filter(pa.array(single))
        try:
            selected = mask(condition if is_true else Not(condition), rows)
        except InvalidInputError:
            return flags
        flags[single] = np.asarray(selected)
        return flags

    def _test_monotonic(self, condition: Calculated, is_true: bool) -> Flags:
        """Test a comparison of a function of one column by the function's values for the column's bounds."""
        monotonic = find_monotonic(condition.value)
        bounds = None if monotonic is None else self._bounds.get(monotonic.column.path)
        if monotonic is None or bounds is None or _bounds_type(bounds) != monotonic.column.of:
            return self._fill_flags(True)
        value = rename_in_value(monotonic.value, lambda path: "bound")
        try:
            low, high = (
                compute(value, pa.record_batch({"bound": bound})) for bound in (bounds.minimum, bounds.maximum)
            )
        except InvalidInputError:
            return self._fill_flags(True)
        column = ColumnBounds(*((low, high) if monotonic.rising else (high, low)), bounds.null_count)
        return self._test_leaf(monotonic.leaf, column, is_true, bounds.nan_free) | ~bounds.nan_free

    def _with_values(self, leaf: Leaf, column: ColumnBounds) -> Flags:
        """Return a flag per file or row group: False if the leaf's column is known to be null in every row."""
        if leaf.column not in self._has_values:
            self._has_values[leaf.column] = ~_is_true(pc.equal(column.null_count, self._row_counts))
        return self._has_values[leaf.column]


def _rules_out_nan(leaf: Predicate, is_true: bool) -> bool:
    """Tell whether NaN in the leaf's column can never make the leaf equal to ``is_true``."""
    match leaf:
        case Comparison(op=op, value=literal):
            value = bound_literal(literal)
            effective_op = ("=" if op == "<=>" else op) if is_true else _NEGATED.get(op)
            if kind_of(value.type) is not Kind.FLOAT or not value.is_valid:
                return False
            return effective_op == "<" or (effective_op in ("<=", "=") and not math.isnan(value.as_py()))
        case In(values=literals) if is_true:
            values = bound_literal(literals)
            return kind_of(values.type) is Kind.FLOAT and not _is_true(pc.is_nan(values)).any()
        case _:
            return False


def _is_true(answers: pa.BooleanArray) -> Flags:
    """Return a flag per entry of a boolean array: False if the entry is false or null (unknown), else True."""
    flags: Flags = pc.fill_null(answers, False).to_numpy(zero_copy_only=False)
    return flags


def _may_be_null(column: ColumnBounds) -> Flags:
    return ~_is_true(pc.equal(column.null_count, 0))


def _unknown(column: ColumnBounds) -> Flags:
    return np.full(len(column.null_count), True)


def _has_usable_bounds(column: ColumnBounds, of: pa.DataType) -> bool:
    return bool(column.minimum.type == of and column.maximum.type == of)


def _bounds_type(column: ColumnBounds) -> pa.DataType | None:
    """Return the type in which both bounds are computed; None if there is none, or if they have two."""
    low, high = plain_type(column.minimum.type), plain_type(column.maximum.type)
    return low if low is not None and low == high else None


def _test_comparison(op: str, value: pa.Scalar, column: ColumnBounds, no_nan: Flags) -> Flags:
    """Return a flag per file or row group: whether any value in it may satisfy ``column op value``.

    Args:
        no_nan: A flag per file or row group: whether NaN is excluded, by a count or by other parts of the filter.
    """
    if not _has_usable_bounds(column, value.type):
        return _unknown(column)
    low, high = column.minimum, column.maximum
    if kind_of(value.type) is Kind.FLOAT and math.isnan(value.as_py()):
        return ~_unknown(column) if op == ">" else ~no_nan if op in ("=", ">=") else _unknown(column)
    match op:
        case "=":
            return ~(_is_true(pc.greater(low, value)) | _is_true(pc.less(high, value)))
        case "!=":
            return ~(_is_true(pc.equal(low, value)) & _is_true(pc.equal(high, value)) & no_nan)
        case "<":
            return ~_is_true(pc.greater_equal(low, value))
        case "<=":
            return ~_is_true(pc.greater(low, value))
        case ">":
            return ~(_is_true(pc.less_equal(high, value)) & no_nan)
        case _:
            return ~(_is_true(pc.less(high, value)) & no_nan)


def _test_in(values: pa.Array, column: ColumnBounds, no_nan: Flags) -> Flags:
    if len(values) <= _SHORT_LIST:
        return reduce(
            np.logical_or, (_test_comparison("=", value, column, no_nan) for value in values), ~_unknown(column)
        )
    if not _has_usable_bounds(column, values.type):
        return _unknown(column)
    flags = ~_unknown(column)
    if kind_of(values.type) is Kind.FLOAT:
        is_nan = pc.is_nan(values)
        if _is_true(is_nan).any():
            flags |= ~no_nan
            values = values.filter(pc.invert(is_nan))
            if not len(values):
                return flags
        column = ColumnBounds(_without_nan(column.minimum), _without_nan(column.maximum), column.null_count)
    is_known = _is_true(pc.and_(pc.is_valid(column.minimum), pc.is_valid(column.maximum)))
    flags[~is_known] = True
    sorted_values = np.sort(_to_sortable(values))
    low, high = (_to_sortable(bound.filter(pa.array(is_known))) for bound in (column.minimum, column.maximum))
    places = np.searchsorted(sorted_values, low, side="left")
    next_wanted = sorted_values[np.minimum(places, len(sorted_values) - 1)]
    flags[is_known] |= (places < len(sorted_values)) & (next_wanted <= high).astype(np.bool_)
    return flags


def _test_not_in(values: pa.Array, column: ColumnBounds, no_nan: Flags) -> Flags:
    if len(values) == 0 or not _has_usable_bounds(column, values.type):
        return _unknown(column)
    single = _is_true(pc.equal(column.minimum, column.maximum))
    return ~(single & _is_true(pc.is_in(column.minimum, value_set=values)) & no_nan)


def _without_nan(bound: pa.Array) -> pa.Array:
    return pc.if_else(pc.is_nan(bound), pa.scalar(None, bound.type), bound)


def _to_sortable(values: pa.Array) -> npt.NDArray[np.generic]:
    """Return the values as an array that numpy sorts in Spark's order. The values must not include nulls."""
    of = values.type
    if kind_of(of) is Kind.DATE:
        values = values.cast(pa.int32())
    elif kind_of(of) is Kind.TIMESTAMP:
        values = values.cast(pa.int64())
    elif kind_of(of) is Kind.TEXT:
        values = values.cast(pa.large_binary())
    if pa.types.is_primitive(values.type) and kind_of(of) is not Kind.BOOLEAN:
        return values.to_numpy(zero_copy_only=False)  # type: ignore[no-any-return]
    objects = np.empty(len(values), dtype=object)
    objects[:] = values.to_pylist()
    return objects


def _test_prefix(prefix: str, column: ColumnBounds) -> Flags:
    """Return a flag per file or row group: whether any text in it may have the prefix, by the column's bounds."""
    if not _has_usable_text_bounds(column):
        return _unknown(column)
    first = prefix.encode()
    flags = ~_is_true(pc.less(column.maximum.cast(pa.large_binary()), pa.scalar(first, pa.large_binary())))
    # Texts with the prefix are less than the prefix with its last byte increased, which is never 0xff in UTF-8.
    if first:
        after = pa.scalar(first[:-1] + bytes([first[-1] + 1]), pa.large_binary())
        flags &= ~_is_true(pc.greater_equal(column.minimum.cast(pa.large_binary()), after))
    return flags


def _test_not_prefix(prefix: str, column: ColumnBounds) -> Flags:
    if not _has_usable_text_bounds(column):
        return _unknown(column)
    return ~(
        _is_true(pc.starts_with(column.minimum, pattern=prefix))
        & _is_true(pc.starts_with(column.maximum, pattern=prefix))
    )


def _has_usable_text_bounds(column: ColumnBounds) -> bool:
    of = column.minimum.type
    return _has_usable_bounds(column, of) and kind_of(of) is Kind.TEXT
