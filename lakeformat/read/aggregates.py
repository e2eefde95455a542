"""Answers of a pre-commit query, batch by batch.

Memory: one batch, and for ``count(distinct ...)`` the distinct values.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from lakeformat.codec.conform import read_schema
from lakeformat.errors import InvalidInputError, nearest
from lakeformat.model.record import META_COLUMNS, RECORD_KEY
from lakeformat.predicate import Always, bind
from lakeformat.predicate.select import Aggregate, Select
from lakeformat.read.view import TableView

__all__ = ["answer", "as_text", "bind_select", "same"]


def bind_select(select: Select, schema: pa.Schema) -> Select:
    """The query with its filter fitted to a table's columns.

    Raises:
        InvalidInputError: an unknown column, or an aggregate its type does not have.
    """
    full = pa.schema([*(pa.field(name, pa.string()) for name in META_COLUMNS), *read_schema(schema)])
    for part in select.aggregates:
        if part.column is not None:
            _check(part, part.column, full, f"cannot run the query {select.text!r}")
    return Select(select.text, select.aggregates, bind(select.where, full))


def _check(part: Aggregate, column: str, schema: pa.Schema, cannot: str) -> None:
    if column not in schema.names:
        raise InvalidInputError(f"{cannot}: unknown column {column!r}{nearest(column, schema.names)}")
    kind = schema.field(column).type
    numeric = pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind)
    if (part.function in {"sum", "avg"} and not numeric) or (part.function != "count" and pa.types.is_nested(kind)):
        raise InvalidInputError(f"{cannot}: there is no {part.function} of {kind}")
    if part.distinct and pa.types.is_nested(kind):
        raise InvalidInputError(f"{cannot}: distinct values of {kind} cannot be counted")


def answer(select: Select, rows: TableView) -> tuple[Any, ...]:
    """One value an aggregate; None where there are no values."""
    parts = [_Running(part) for part in select.aggregates]
    if select.where == Always(True) and all(part.column is None for part in select.aggregates):
        return tuple(rows.count() for _ in parts)
    columns = sorted({part.column or RECORD_KEY for part in select.aggregates})
    for batch in rows.scan(columns, select.where):
        for part in parts:
            part.add(batch)
    return tuple(part.value() for part in parts)


class _Running:
    """One aggregate under way."""

    def __init__(self, aggregate: Aggregate) -> None:
        self.aggregate = aggregate
        self.count = 0
        self.sum: Any = None
        self.extreme: Any = None
        self.distinct: pa.Array | None = None

    def add(self, batch: pa.RecordBatch) -> None:
        if self.aggregate.column is None:
            self.count += batch.num_rows
            return
        values = batch.column(self.aggregate.column).drop_null()
        self.count += len(values)
        if self.aggregate.distinct:
            seen = [values] if self.distinct is None else [self.distinct, values]
            self.distinct = pa.concat_arrays(seen).unique()
        elif not len(values):
            return
        elif self.aggregate.function in {"sum", "avg"}:
            some = _exact_sum(values)
            self.sum = some if self.sum is None else self.sum + some
        elif self.aggregate.function in {"min", "max"}:
            self.extreme = _extreme(self.aggregate.function, [self.extreme, _least_or_greatest(self, values)])

    def value(self) -> Any:
        match self.aggregate.function:
            case "count":
                return self.count if not self.aggregate.distinct else _length(self.distinct)
            case "sum":
                return self.sum
            case "avg":
                return None if self.sum is None else self.sum / self.count
            case _:
                return self.extreme


def _length(values: pa.Array | None) -> int:
    return 0 if values is None else len(values)


def _exact_sum(values: pa.Array) -> Any:
    """Integers and decimals are added without overflow."""
    kind = values.type
    if pa.types.is_integer(kind):
        return int(pc.sum(values.cast(pa.decimal128(38, 0))).as_py())
    if pa.types.is_decimal(kind):
        return pc.sum(values.cast(pa.decimal256(76, kind.scale))).as_py()
    return pc.sum(values).as_py()


def _least_or_greatest(running: _Running, values: pa.Array) -> Any:
    found = pc.min_max(values)[running.aggregate.function].as_py()
    if pa.types.is_floating(values.type):
        # Spark's order puts NaN above all numbers; Arrow leaves it out.
        nans = int(pc.sum(pc.is_nan(values)).as_py())
        if nans and (running.aggregate.function == "max" or nans == len(values)):
            return math.nan
    return found


def _extreme(function: str, values: Iterable[Any]) -> Any:
    present = [value for value in values if value is not None]
    nans = [value for value in present if isinstance(value, float) and math.isnan(value)]
    numbers = [value for value in present if not (isinstance(value, float) and math.isnan(value))]
    if nans and (function == "max" or not numbers):
        return math.nan
    return (min if function == "min" else max)(numbers)


def as_text(value: Any) -> str:
    """A value as Spark's row shows it."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return str(value).lower()
    return str(value)


def same(expected: str, value: Any) -> bool:
    """Whether a value is what a query's author wrote: numbers by value (``1`` is ``1.0``), all else by text."""
    if isinstance(value, int | float | Decimal) and not isinstance(value, bool):
        try:
            return Decimal(expected.strip()) == Decimal(str(value))
        except ArithmeticError:
            return False
    return expected.strip() == as_text(value)
