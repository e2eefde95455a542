"""Evaluation of a bound filter on the rows of a batch, with SQL's three-valued logic on whole columns.

A function that has no result for a row (an overflow, a division by zero) is an error only if the condition needs it for
this row: not after ``false and``, ``true or``, or in a branch of CASE that is not taken.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakeformat.arrow.kinds import VIEWS, Kind, kind_of
from lakeformat.errors import InvalidInputError
from lakeformat.predicate.argument_types import scalar_of, value_text
from lakeformat.predicate.comparisons import compare, compare_columns, is_in
from lakeformat.predicate.functions import DIVISIONS, FUNCTIONS, Function, call_may_fail
from lakeformat.predicate.nodes import (
    Always,
    And,
    Calculated,
    Call,
    Case,
    ColumnComparison,
    ColumnValue,
    Comparison,
    Computed,
    Constant,
    Contains,
    EndsWith,
    In,
    IsNull,
    Like,
    Not,
    Or,
    Predicate,
    StartsWith,
    Truth,
    Value,
    bound_literal,
    conditions_of,
    parts_of,
    path_parts,
)
from lakeformat.predicate.regular_expressions import like_pattern

__all__ = ["compute", "fold", "mask", "may_fail"]

_IN_TEXT: Final = {StartsWith: pc.starts_with, EndsWith: pc.ends_with, Contains: pc.match_substring}


def mask(predicate: Predicate, batch: pa.RecordBatch | pa.Table) -> pa.BooleanArray | pa.ChunkedArray:
    """Return a flag per row, never null: whether the filter selects it. If the filter is null, it does not.

    Args:
        predicate: A filter bound to the schema of ``batch`` (`bind`).
        batch: The rows. A record batch gives a `pa.BooleanArray`, a table a `pa.ChunkedArray`.

    Raises:
        InvalidInputError: ``batch`` lacks a column of the filter.
    """
    if (
        isinstance(batch, pa.Table)
        and batch.num_columns
        and any(isinstance(p, Calculated) for p in parts_of(predicate))
    ):
        return pa.chunked_array([mask(predicate, part) for part in batch.to_batches()], pa.bool_())
    selected = pc.fill_null(_evaluate(predicate, batch), False)
    if isinstance(batch, pa.Table):
        return selected if isinstance(selected, pa.ChunkedArray) else pa.chunked_array([selected])
    return selected


def _evaluate(predicate: Predicate, batch: pa.RecordBatch | pa.Table) -> pa.Array | pa.ChunkedArray:
    """Evaluate a filter: true, false or null per row."""
    match predicate:
        case And(operands) | Or(operands):
            return _combine(operands, batch, isinstance(predicate, And))
        case Not(operand):
            return pc.invert(_evaluate(operand, batch))
        case Always(value):
            return _repeat(batch, value)
        case Calculated(value):
            return compute(value, batch).cast(pa.bool_())
        case Computed():
            return _compute(predicate, batch)
        case ColumnComparison(left, op, right):
            return compare_columns(_read_column(batch, left), op, _read_column(batch, right))
        case IsNull(column):
            return pc.is_null(_read_column(batch, column))
        case Comparison(column, op, value):
            return compare(_read_column(batch, column), op, bound_literal(value))
        case In(column, values):
            return is_in(_read_column(batch, column), bound_literal(values))
        case StartsWith(column, text) | EndsWith(column, text) | Contains(column, text):
            return _IN_TEXT[type(predicate)](_read_column(batch, column), pattern=text)
        case Like(column, pattern):
            return pc.match_substring_regex(_read_column(batch, column), pattern=like_pattern(pattern))


def _combine(operands: Sequence[Predicate], batch: pa.RecordBatch | pa.Table, every: bool) -> pa.Array:
    """Evaluate AND (``every``) or OR. An operand that may fail is evaluated for the rows that are not decided yet."""
    combine = pc.and_kleene if every else pc.or_kleene
    answer = _repeat(batch, every)
    for operand in operands:
        if may_fail(operand):
            undecided = pc.fill_null(pc.equal(answer, every), True)
            part = _on_rows(undecided, batch, partial(_evaluate, operand))
        else:
            part = _evaluate(operand, batch)
        answer = combine(answer, part)
    return answer


def may_fail(predicate: Predicate) -> bool:
    """Tell whether a row can be an error."""
    return any(
        call_may_fail(part.value) or any(may_fail(inner) for inner in conditions_of(part.value))
        for part in parts_of(predicate)
        if isinstance(part, Calculated)
    )


def _on_rows(chosen: pa.Array, batch: pa.RecordBatch, evaluate: Callable[[pa.RecordBatch], pa.Array]) -> pa.Array:
    """Evaluate something on the chosen rows; null for all others."""
    if pc.all(chosen).as_py() is not False:
        return evaluate(batch)
    flags = np.asarray(chosen)
    return evaluate(batch.filter(chosen)).take(pa.array(np.cumsum(flags) - 1, mask=~flags))


def compute(value: Value, batch: pa.RecordBatch) -> pa.Array:
    """Compute a bound value for each row.

    Raises:
        InvalidInputError: A row has no result.
    """
    match value:
        case ColumnValue(path, of):
            column = _read_column(batch, path)
            return column if column.type.equals(of) else column.cast(of)
        case Constant():
            return pa.repeat(scalar_of(value), batch.num_rows)
        case Truth(predicate):
            return _evaluate(predicate, batch)
        case Case(branches, otherwise):
            return _choose(branches, otherwise, batch)
        case Call("coalesce", (first, *rest)) if rest and any(_fails(value) for value in rest):
            test = Calculated(Call("isnotnull", (first,), pa.bool_()))
            return _choose(((test, first),), Call("coalesce", tuple(rest), value.of), batch)
        case Call(function, arguments):
            entry = FUNCTIONS[function]
            literals = range(1, len(arguments)) if function == "in" else entry.literals
            given = _arguments(arguments, literals, batch, entry)
            try:
                return entry.kernel(given, value)
            except (ValueError, pa.ArrowException) as error:
                reason = str(error).splitlines()[0]
                raise InvalidInputError(f"cannot filter by {value_text(value)}: {reason}") from None


def _arguments(
    arguments: Sequence[Value], literals: Collection[int], batch: pa.RecordBatch, entry: Function
) -> list[pa.Array | pa.Scalar]:
    """Compute the arguments of a call, literals as they are.

    If a null argument makes the result null, an argument that may fail is computed only for rows without a null before
    it. Spark computes a divisor before the dividend.
    """
    evaluated: dict[int, pa.Array | pa.Scalar] = {}
    reached = _repeat(batch, True)
    for number in range(len(arguments)) if entry.name not in DIVISIONS else reversed(range(len(arguments))):
        argument = arguments[number]
        if number in literals and isinstance(argument, Constant):
            evaluated[number] = scalar_of(argument)
            continue
        evaluated[number] = (
            _on_rows(reached, batch, partial(compute, argument)) if _fails(argument) else compute(argument, batch)
        )
        if entry.stops_at_null:
            reached = pc.and_(reached, pc.is_valid(evaluated[number]))
    return [evaluated[position] for position in range(len(arguments))]


def _fails(value: Value) -> bool:
    return may_fail(Calculated(value))


def _choose(branches: Sequence[tuple[Predicate, Value]], otherwise: Value, batch: pa.RecordBatch) -> pa.Array:
    """Compute CASE. A branch is computed only for the rows that take it, and a condition for those that reach it."""
    undecided = _repeat(batch, True)
    answer = None
    for condition, value in (*branches, (Always(True), otherwise)):
        met = _on_rows(undecided, batch, partial(_evaluate, condition))
        taken = pc.and_(undecided, pc.fill_null(met, False))
        part = _on_rows(taken, batch, partial(compute, value))
        answer = part if answer is None else pc.if_else(taken, part, answer)
        undecided = pc.and_(undecided, pc.invert(taken))
    return answer


def fold(value: Value) -> Value:
    """Return the literal that a bound call of literals is equal to; other values, and calls that fail, unchanged."""
    if not isinstance(value, Call):
        return value
    value = replace(value, arguments=tuple(fold(argument) for argument in value.arguments))
    if not all(isinstance(argument, Constant) for argument in value.arguments):
        return value
    one_row = pa.record_batch({"": pa.nulls(1)})
    try:
        return Constant(compute(value, one_row)[0], value.of)
    except InvalidInputError:
        return value


def _repeat(batch: pa.RecordBatch | pa.Table, value: bool | None) -> pa.Array:
    return pa.repeat(pa.scalar(value, pa.bool_()), batch.num_rows)


def _read_column(batch: pa.RecordBatch | pa.Table, path: str) -> pa.Array | pa.ChunkedArray:
    top, *within = path_parts(path)
    if batch.schema.get_field_index(top) < 0:
        raise InvalidInputError(f"the rows lack column {top!r} of the filter; read it too")
    column = batch.column(top)
    # struct_field returns null where the struct itself is null.
    column = pc.struct_field(column, within) if within else column
    if kind_of(column.type) is Kind.DICTIONARY:
        column = column.cast(column.type.value_type)
    plain = VIEWS.get(column.type)
    return column if plain is None else column.cast(plain)


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
    if kind_of(answer.type) is not Kind.BOOLEAN:
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
