"""Evaluation of a bound filter on the rows of a batch, with SQL's three-valued logic on whole columns.

Floats are compared in Spark's order, not in that of IEEE: NaN equals NaN and is greater than every other value, and
the two zeros are equal (Spark: ``SQLOrderingUtil.compareDoubles``). Texts are compared byte by byte.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from functools import reduce
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from lakeformat.errors import InvalidInputError
from lakeformat.predicate.nodes import (
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
    bound_literal,
    like_tokens,
    path_parts,
)

__all__ = ["mask"]

_COMPARE: Final[Mapping[str, Callable[[pa.Array, pa.Scalar], pa.Array]]] = {
    "=": pc.equal,
    "!=": pc.not_equal,
    "<": pc.less,
    "<=": pc.less_equal,
    ">": pc.greater,
    ">=": pc.greater_equal,
}
_IN_TEXT: Final = {StartsWith: pc.starts_with, EndsWith: pc.ends_with, Contains: pc.match_substring}
#: Operators that are true for NaN on the left and any other value on the right.
_NAN_ON_THE_LEFT: Final = frozenset({">=", ">", "!="})


def mask(predicate: Predicate, batch: pa.RecordBatch | pa.Table) -> pa.BooleanArray | pa.ChunkedArray:
    """Return a flag per row, never null: whether the filter selects it. If the filter is null, it does not.

    Args:
        predicate: A filter bound to the schema of ``batch`` (`bind`).
        batch: The rows. A record batch gives a `pa.BooleanArray`, a table a `pa.ChunkedArray`.

    Raises:
        InvalidInputError: ``batch`` lacks a column of the filter.
    """
    selected = pc.fill_null(_evaluate(predicate, batch), False)
    if isinstance(batch, pa.Table):
        return selected if isinstance(selected, pa.ChunkedArray) else pa.chunked_array([selected])
    return selected


def _evaluate(predicate: Predicate, batch: pa.RecordBatch | pa.Table) -> pa.Array | pa.ChunkedArray:
    """Evaluate a filter: true, false or null per row."""
    match predicate:
        case And(operands):
            return reduce(pc.and_kleene, (_evaluate(operand, batch) for operand in operands), _repeat(batch, True))
        case Or(operands):
            return reduce(pc.or_kleene, (_evaluate(operand, batch) for operand in operands), _repeat(batch, False))
        case Not(operand):
            return pc.invert(_evaluate(operand, batch))
        case Always(value):
            return _repeat(batch, value)
        case Computed():
            return _compute(predicate, batch)
        case ColumnComparison(left, op, right):
            return _compare_columns(_read_column(batch, left), op, _read_column(batch, right))
        case IsNull(column):
            return pc.is_null(_read_column(batch, column))
        case Comparison(column, op, value):
            return _compare(_read_column(batch, column), op, bound_literal(value))
        case In(column, values):
            return _is_in(_read_column(batch, column), bound_literal(values))
        case StartsWith(column, text) | EndsWith(column, text) | Contains(column, text):
            return _IN_TEXT[type(predicate)](_read_column(batch, column), pattern=text)
        case Like(column, pattern):
            return pc.match_substring_regex(_read_column(batch, column), pattern=_regex(pattern))


def _repeat(batch: pa.RecordBatch | pa.Table, value: bool | None) -> pa.Array:
    return pa.repeat(pa.scalar(value, pa.bool_()), batch.num_rows)


def _read_column(batch: pa.RecordBatch | pa.Table, path: str) -> pa.Array | pa.ChunkedArray:
    top, *within = path_parts(path)
    if batch.schema.get_field_index(top) < 0:
        raise InvalidInputError(f"the rows lack column {top!r} of the filter; read it too")
    column = batch.column(top)
    # struct_field returns null where the struct itself is null.
    column = pc.struct_field(column, within) if within else column
    if pa.types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    if pa.types.is_string_view(column.type):
        column = column.cast(pa.string())
    return column.cast(pa.binary()) if pa.types.is_binary_view(column.type) else column


def _compute(computed: Computed, batch: pa.RecordBatch | pa.Table) -> pa.Array | pa.ChunkedArray:
    """Return the expression's value for each row, computed by Arrow. A field of a null struct is null."""
    from pyarrow import acero

    rows = _nest_columns({parts: _read_column(batch, path) for parts, path in computed.columns}) or {
        "": _repeat(batch, None)
    }
    source = acero.Declaration("table_source", acero.TableSourceNodeOptions(pa.table(rows)))
    step = acero.Declaration("project", acero.ProjectNodeOptions([computed.expression], ["answer"]))
    try:
        answer = acero.Declaration.from_sequence([source, step]).to_table(use_threads=False).column("answer")
    except (pa.ArrowException, TypeError) as error:
        reason = str(error).splitlines()[0]
        raise InvalidInputError(f"cannot filter by {str(computed.expression)[:200]}: {reason}") from None
    if not pa.types.is_boolean(answer.type):
        kind = answer.type
        raise InvalidInputError(f"cannot filter by {str(computed.expression)[:200]}: it is {kind}, not a condition")
    return answer if isinstance(batch, pa.Table) else answer.combine_chunks()


def _nest_columns(
    columns: Mapping[tuple[str, ...], pa.Array | pa.ChunkedArray],
) -> dict[str, pa.Array | pa.ChunkedArray]:
    """Return a mapping of top-level name to column. Columns with names of several parts become fields of structs."""
    named: dict[str, pa.Array | pa.ChunkedArray] = {}
    for top in dict.fromkeys(parts[0] for parts in columns):
        whole = columns.get((top,))
        if whole is None:
            fields = _nest_columns({parts[1:]: column for parts, column in columns.items() if parts[0] == top})
            arrays = [f.combine_chunks() if isinstance(f, pa.ChunkedArray) else f for f in fields.values()]
            whole = pa.StructArray.from_arrays(arrays, names=list(fields))
        named[top] = whole
    return named


def _compare(column: pa.Array | pa.ChunkedArray, op: str, value: pa.Scalar) -> pa.Array | pa.ChunkedArray:
    if op == "<=>":
        return pc.fill_null(_compare(column, "=", value), False)
    if not value.is_valid:
        return pa.nulls(len(column), pa.bool_())
    if not pa.types.is_floating(column.type):
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


def _compare_columns(
    left: pa.Array | pa.ChunkedArray, op: str, right: pa.Array | pa.ChunkedArray
) -> pa.Array | pa.ChunkedArray:
    if op == "<=>":
        both_null = pc.and_(pc.is_null(left), pc.is_null(right))
        return pc.or_(both_null, pc.fill_null(_compare_columns(left, "=", right), False))
    if op in _REVERSED:
        return _compare_columns(right, _REVERSED[op], left)
    if op == "!=":
        return pc.invert(_compare_columns(left, "=", right))
    plain = _COMPARE[op](left, right)
    if not (pa.types.is_floating(left.type) or pa.types.is_floating(right.type)):
        return plain
    # Arrow's results are false for NaN. Add Spark's: NaN equals NaN and is greater than everything else.
    left_nan, right_nan = pc.is_nan(left), pc.is_nan(right)
    special = {
        "=": pc.and_(left_nan, right_nan),
        "<": pc.and_(pc.invert(left_nan), right_nan),
        "<=": right_nan,
    }[op]
    return pc.or_(plain, special)


def _is_in(column: pa.Array | pa.ChunkedArray, values: pa.Array) -> pa.Array | pa.ChunkedArray:
    present = values.drop_null()
    if pa.types.is_floating(column.type):
        # Arrow hashes bits: it distinguishes 0.0 from -0.0, and NaNs with different bits.
        zeros = pa.array([0.0, -0.0] if pc.any(pc.equal(present, 0.0)).as_py() else [], present.type)
        found = pc.is_in(column, value_set=pa.concat_arrays([present, zeros]))
        if pc.any(pc.is_nan(present)).as_py():
            found = pc.or_(found, pc.fill_null(pc.is_nan(column), False))
    else:
        found = pc.is_in(column, value_set=present)
    otherwise = pa.scalar(None if values.null_count else False, pa.bool_())
    answer = pc.if_else(found, True, otherwise)
    return pc.if_else(pc.is_null(column), pa.scalar(None, pa.bool_()), answer)


def _regex(pattern: str) -> str:
    """Return a LIKE pattern as an RE2 pattern, which matches the whole text, line ends included."""
    wild = {"%": ".*", "_": "."}
    return rf"(?s)\A{''.join(wild.get(token) or re.escape(token[1:]) for token in like_tokens(pattern))}\z"
