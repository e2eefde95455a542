"""Binding of a filter to a schema: it gets the schema's column names, and literals of exactly the column's type.

A bound filter selects exactly the rows that Spark SQL selects in ANSI mode with the original filter. For example,
``x > 2.5`` on an int column becomes ``x > 2``. ``f = 0.1`` on a float column becomes a filter that is false, or null
for a null, because no float is equal to the double 0.1.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from datetime import date, datetime
from decimal import Decimal
from typing import Any, Final

import pyarrow as pa

from lakeformat.arrow.kinds import VIEWS, Kind, kind_of
from lakeformat.errors import InvalidInputError, nearest
from lakeformat.predicate.argument_types import is_null, literal_of, type_of, value_text
from lakeformat.predicate.casts import MOMENT, plain_type, type_name
from lakeformat.predicate.coerce import Span, check_text, place_literals
from lakeformat.predicate.functions import COMPARISONS, TIME_FUNCTIONS, make_call, make_case
from lakeformat.predicate.nodes import (
    MIRRORED,
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
    Leaf,
    Like,
    Not,
    Operator,
    Or,
    Predicate,
    StartsWith,
    Truth,
    Value,
    column_path,
    like_tokens,
    parts_of,
    path_parts,
    values_of,
)
from lakeformat.predicate.ranges import as_range
from lakeformat.predicate.rows import fold

__all__ = ["bind", "bind_lenient", "depends_on_zone", "resolve_column"]

#: The most values of an IN list that become ranges.
_MOST_RANGES: Final = 16
_WIDENING: Final = (
    {pa.int32(), pa.int64()},
    {pa.float32(), pa.float64()},
    {pa.int32(), pa.float64()},
)


def bind(predicate: Predicate, schema: pa.Schema, *, zone: str = "UTC") -> Predicate:
    """Return the filter bound to a schema, which `mask` and `may_match` can evaluate on rows of ``schema``.

    Args:
        predicate: A filter with Python literals.
        schema: The table's columns.
        zone: The session's time zone. Texts, dates and naive datetimes are compared with timestamps in this zone.

    Raises:
        InvalidInputError: An unknown or ambiguous column, or a comparison whose outcome cannot be reproduced
            exactly (a number against text, a decimal that Spark would round).
        InvalidOptionError: The zone is not known.
    """
    match predicate:
        case And(operands):
            return And(tuple(bind(operand, schema, zone=zone) for operand in operands))
        case Or(operands):
            return Or(tuple(bind(operand, schema, zone=zone) for operand in operands))
        case Not(operand):
            return Not(bind(operand, schema, zone=zone))
        case Always() | Computed():
            return predicate
        case ColumnComparison():
            return _bind_columns(predicate, schema, zone)
        case Calculated(value):
            return _bind_calculated(value, schema, zone)
        case leaf:
            return _bind_leaf(leaf, schema, zone)


def bind_lenient(predicate: Predicate, schema: pa.Schema, *, zone: str = "UTC") -> Predicate:
    """Bind a filter as `bind` does, but replace each conjunct that `bind` refuses with ``Always(True)``.

    The result may select more rows than the filter, never fewer. Use it for filters that the engine evaluates again on
    the rows, as Spark does with pushed filters.

    Raises:
        InvalidOptionError: The zone is not known.
    """
    if isinstance(predicate, And):
        return And(tuple(bind_lenient(operand, schema, zone=zone) for operand in predicate.operands))
    try:
        return bind(predicate, schema, zone=zone)
    except InvalidInputError:
        return Always(True)


def resolve_column(column: str, schema: pa.Schema) -> tuple[str, pa.DataType]:
    """Return the path of a column as the schema spells it, and its type.

    Names match regardless of case, as in Spark by default; if two names differ only in case, an exact match wins. A
    dotted path may lead through structs, but not through lists or maps.

    Raises:
        InvalidInputError: There is no such column, or more than one.
    """
    within: Any = schema
    path: list[pa.Field] = []
    for part in path_parts(column):
        if path:
            within = path[-1].type
            if kind_of(within) is not Kind.STRUCT:
                raise InvalidInputError(f"column {column!r} is not in the table: {path[-1].name!r} is not a struct")
        if (position := within.get_field_index(part)) >= 0:
            path.append(within.field(position))
            continue
        fields: list[pa.Field] = list(within)
        same = [field for field in fields if field.name.lower() == part.lower()]
        exact = [field for field in same if field.name == part]
        candidates = exact if len(same) > 1 and exact else same
        if not candidates:
            hint = nearest(part, [field.name for field in fields])
            raise InvalidInputError(f"column {column!r} is not in the table{hint}")
        if len(candidates) > 1:
            names = ", ".join(repr(field.name) for field in candidates)
            raise InvalidInputError(f"column {column!r} is ambiguous: {names}; write the exact name")
        path.append(candidates[0])
    return column_path(field.name for field in path), _plain_type(path[-1].type)


def _plain_type(of: pa.DataType) -> pa.DataType:
    """Return the type without its encoding in memory: no dictionary and no view type."""
    if kind_of(of) is Kind.DICTIONARY:
        of = of.value_type
    return VIEWS.get(of, of)


def _bind_leaf(leaf: Leaf, schema: pa.Schema, zone: str) -> Predicate:
    column, of = resolve_column(leaf.column, schema)
    match leaf:
        case IsNull():
            return IsNull(column)
        case Comparison(op=op, value=None):
            return IsNull(column) if op == "<=>" else Comparison(column, op, pa.scalar(None, of))
        case Comparison(op=op, value=value):
            return _bind_comparison(column, op, place_literals([value], of, zone, listed=False)[0], of)
        case In(values=values):
            return _bind_in(column, values, of, zone)
        case Like(pattern=pattern):
            return _bind_like(_text_column(column, of), check_text(pattern), of)
        case StartsWith(text=text) | EndsWith(text=text) | Contains(text=text):
            return type(leaf)(_text_column(column, of), check_text(text))


def _bind_columns(comparison: ColumnComparison, schema: pa.Schema, zone: str) -> Predicate:
    """Bind a comparison of two columns.

    If the types are equal, or number types of which one can represent all values of the other, the columns are compared
    as they are: Spark widens such types. Otherwise they are cast to the common type.
    """
    left, of = resolve_column(comparison.left, schema)
    try:
        right, other = resolve_column(comparison.right, schema)
    except InvalidInputError as error:
        raise InvalidInputError(f"{error}; a text needs quotes") from None
    alike = of.equals(other) and not kind_of(of).is_nested
    if alike or {of, other} in _WIDENING:
        return ColumnComparison(left, comparison.op, right)
    call = Call(comparison.op, (ColumnValue(comparison.left), ColumnValue(comparison.right)))
    return _bind_calculated(call, schema, zone)


def _bind_calculated(value: Value, schema: pa.Schema, zone: str) -> Predicate:
    """Bind a condition on a value. Return leaves if there are any that are equal to it, because they skip files."""
    match value:
        case Call(function, (left, right)) if function in COMPARISONS:
            first_value, other = _bind_value(left, schema, zone), _bind_value(right, schema, zone)
            op: Any = function
            swapped = isinstance(first_value, Constant) and not isinstance(other, Constant)
            value_side, literal_side = (other, first_value) if swapped else (first_value, other)
            simple_op = MIRRORED[op] if swapped else op
            if (plain := _compare_simply(value_side, simple_op, literal_side, schema, zone)) is not None:
                return plain
            bound = fold(make_call(Call(op, ()), (first_value, other), zone))
        case Call("in", (first, *rest)):
            first_value, literals = (
                _bind_value(first, schema, zone),
                [_bind_value(other, schema, zone) for other in rest],
            )
            if len(literals) <= _MOST_RANGES or isinstance(first_value, ColumnValue):
                ranges = [_compare_simply(first_value, "=", other, schema, zone) for other in literals]
                if all(part is not None for part in ranges):
                    return Or(tuple(part for part in ranges if part is not None))
            bound = fold(make_call(value, (first_value, *literals), zone))
        case _:
            bound = _bind_value(value, schema, zone)
    return _as_predicate(bound, schema, zone)


def _compare_simply(value: Value, op: Operator, other: Value, schema: pa.Schema, zone: str) -> Predicate | None:
    """Return a comparison of a bound value as leaves; None if it has no such form."""
    if not isinstance(other, Constant) or is_null(other):
        return None
    try:
        if isinstance(value, ColumnValue):
            # The place of a time without a zone is not known here.
            is_local = type_of(other).equals(pa.timestamp("us"))
            return None if is_local else bind(Comparison(value.path, op, literal_of(other)), schema, zone=zone)
        if isinstance(value, Call) and kind_of(type_of(other)) is Kind.TEXT and kind_of(value.of).is_temporal:
            made = fold(make_call(Call("=", ()), (value, other), zone))
            value, other = made.arguments if isinstance(made, Call) else (value, other)
        ranged = as_range(value, op, literal_of(other), zone)
        return None if ranged is None else bind(ranged, schema, zone=zone)
    except (InvalidInputError, ValueError, OverflowError):
        return None


def _as_predicate(value: Value, schema: pa.Schema, zone: str) -> Predicate:
    """Return a bound value as a condition."""
    match value:
        case Truth(predicate):
            return predicate
        case ColumnValue(path, of) if of is not None and kind_of(of) is Kind.BOOLEAN:
            return bind(Comparison(path, "=", True), schema, zone=zone)
        case Constant() if kind_of(type_of(value)) is Kind.BOOLEAN and not is_null(value):
            return Always(bool(literal_of(value)))
        case Call("startswith" | "endswith" | "contains" as name, (ColumnValue(path), Constant() as text)):
            kind: Any = {"startswith": StartsWith, "endswith": EndsWith, "contains": Contains}[name]
            return bind(kind(path, literal_of(text)), schema, zone=zone)
        case Call("isnull" | "isnotnull" as name, (ColumnValue(path),)):
            return IsNull(path) if name == "isnull" else Not(IsNull(path))
        case Call("isnan", (ColumnValue(path, of),)) if of is not None and kind_of(of) is Kind.FLOAT:
            return bind(Comparison(path, "<=>", math.nan), schema, zone=zone)
    if kind_of(type_of(value)) not in (Kind.BOOLEAN, Kind.NULL):
        raise InvalidInputError(
            f"cannot filter by {value_text(value)}: it is of type {type_name(type_of(value))}, not a condition"
        )
    return Calculated(value)


def _bind_value(value: Value, schema: pa.Schema, zone: str) -> Value:
    """Return a value with the schema's columns, with the types of Spark, and with literals instead of constant calls.

    Raises:
        InvalidInputError: As `bind`, or a function does not take its arguments.
    """
    match value:
        case ColumnValue(column):
            path, stored = resolve_column(column, schema)
            if (of := plain_type(stored)) is None:
                raise InvalidInputError(f"column {column!r} of type {stored} cannot be used in functions")
            return ColumnValue(path, of)
        case Constant():
            return _bind_constant(value, zone)
        case Call(arguments=arguments):
            bound = tuple(_bind_value(argument, schema, zone) for argument in arguments)
            return fold(make_call(value, bound, zone))
        case Case(branches, otherwise):
            pairs = tuple((bind(when, schema, zone=zone), _bind_value(then, schema, zone)) for when, then in branches)
            return make_case(Case(pairs, _bind_value(otherwise, schema, zone)), zone)
        case Truth(predicate):
            return Truth(bind(predicate, schema, zone=zone))


def _bind_constant(constant: Constant, zone: str) -> Value:
    value, of = constant.value, constant.of
    if isinstance(value, pa.Scalar):
        return constant
    try:
        match value:
            case _ if of is not None:
                pass
            case bool() | None:
                of = pa.null() if value is None else pa.bool_()
            case int():
                of = next(
                    (
                        of
                        for of in (pa.int32(), pa.int64())
                        if -(1 << of.bit_width - 1) <= value < 1 << of.bit_width - 1
                    ),
                    None,
                )
                of = of or pa.decimal128(len(str(abs(value))), 0)
                value = Decimal(value) if kind_of(of) is Kind.DECIMAL else value
            case Decimal():
                _, digits, exponent = value.as_tuple()
                scale = max(-int(exponent), 0)
                of = pa.decimal128(max(len(digits) + max(int(exponent), 0), scale), scale)
            case float():
                of = pa.float64()
            case str():
                of = pa.string()
                check_text(value)
            case bytes():
                of = pa.binary()
            case datetime():
                instant = value if value.tzinfo else None
                if instant is None:
                    return fold(
                        make_call(
                            Call("cast", (), MOMENT),
                            (Constant(pa.scalar(value, pa.timestamp("us")), pa.timestamp("us")),),
                            zone,
                        )
                    )
                of = MOMENT
            case date():
                of = pa.date32()
        return Constant(pa.scalar(value, of), of)
    except (pa.ArrowException, ValueError, OverflowError) as error:
        raise InvalidInputError(f"cannot filter by {value!r}: {str(error).splitlines()[0]}") from None


def depends_on_zone(predicate: Predicate) -> bool:
    """Tell whether a filter, not bound yet, has a function whose result for literals may depend on the zone."""
    values = [part.value for part in parts_of(predicate) if isinstance(part, Calculated)]
    return any(
        (isinstance(part, Call) and part.function in TIME_FUNCTIONS)
        or (isinstance(part, Truth) and depends_on_zone(part.predicate))
        for value in values
        for part in values_of(value)
    )


def _text_column(column: str, of: pa.DataType) -> str:
    if kind_of(of) is not Kind.TEXT:
        raise InvalidInputError(f"column {column!r} of type {of} is not a text; LIKE needs a text column")
    return column


def _make_never(column: str, of: pa.DataType) -> Predicate:
    """Return a filter that selects no row: it is false, or null if the column is null."""
    return In(column, pa.array([], of))


def _bind_comparison(column: str, op: Operator, span: Span, of: pa.DataType) -> Predicate:
    match op:
        case "=":
            return _bind_equal(column, span, of)
        case "!=":
            equal = _bind_equal(column, span, of)
            return Comparison(column, "!=", span.lower) if span.size == 1 else Not(equal)
        case "<=>":
            if span.size == 1:
                return Comparison(column, "<=>", span.lower)
            return And((Not(IsNull(column)), _bind_equal(column, span, of)))
        case "<" | ">=":
            edge, beyond = span.lower, op == "<"
        case _:
            edge, beyond = span.upper, op == ">"
    if edge is not None:
        return Comparison(column, op, edge)
    return Not(_make_never(column, of)) if beyond else _make_never(column, of)


def _bind_equal(column: str, span: Span, of: pa.DataType) -> Predicate:
    if span.size == 0:
        return _make_never(column, of)
    if span.size == 1:
        return Comparison(column, "=", span.lower)
    return And((Comparison(column, ">=", span.lower), Comparison(column, "<=", span.upper)))


def _bind_in(column: str, values: Sequence[object], of: pa.DataType, zone: str) -> Predicate:
    if not len(values):
        return Always(False)  # False for null rows, too (Spark: spark.sql.legacy.nullInEmptyListBehavior is off).
    present = [value for value in values if value is not None]
    placed = place_literals(present, of, zone, listed=True)
    single = [span.lower for span in placed if span.size == 1]
    if len(present) < len(values):
        single.append(pa.scalar(None, of))
    exact = In(column, pa.array(single, of))
    ranges = tuple(_bind_equal(column, span, of) for span in placed if span.size > 1)
    return Or((exact, *ranges)) if ranges else exact


def _bind_like(column: str, pattern: str, of: pa.DataType) -> Predicate:
    """Return a LIKE as conditions without a regular expression, which skip more files. Else return a `Like`."""
    match like_tokens(pattern):
        case ():
            return Comparison(column, "=", pa.scalar("", of))
        case ("%",):
            return Not(_make_never(column, of))
        case (text,) if text[0] == "=":
            return Comparison(column, "=", pa.scalar(text[1:], of))
        case (text, "%") if text[0] == "=":
            return StartsWith(column, text[1:])
        case ("%", text) if text[0] == "=":
            return EndsWith(column, text[1:])
        case ("%", text, "%") if text[0] == "=":
            return Contains(column, text[1:])
        case _:
            return Like(column, pattern)
