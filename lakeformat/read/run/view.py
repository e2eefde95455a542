"""Views of a snapshot for pre-commit validators, and the evaluation of their aggregate queries.

Memory of an aggregate: one batch, and for ``count(distinct ...)`` the distinct values.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from lakeformat.arrow.conform import reader_schema
from lakeformat.arrow.kinds import Kind, kind_of
from lakeformat.codec.stored_types import with_meta_columns
from lakeformat.config.resolve import resolve
from lakeformat.errors import InvalidInputError, nearest
from lakeformat.file_system_view.snapshot import Snapshot
from lakeformat.files.footers import read_metadata
from lakeformat.model.record import RECORD_KEY
from lakeformat.predicate import Always, Predicate, Where, bind
from lakeformat.predicate.query import Aggregate, Select
from lakeformat.public import public
from lakeformat.read.query import ReadQuery, readable_schema, resolve_query
from lakeformat.read.run.parallel import read_all
from lakeformat.read.run.session import plan_read
from lakeformat.storage.port import Storage

__all__ = ["TableView", "as_text", "bind_select", "equals_text", "evaluate"]

_SPLIT_BYTES = 128 << 20


@public
class TableView:
    """A view of one snapshot, which may not be published yet. Memory: one row group per stream."""

    def __init__(self, storage: Storage, snapshot: Snapshot) -> None:
        self._storage, self._snapshot = storage, snapshot

    @property
    def schema(self) -> pa.Schema:
        """Return the columns without the meta columns; no columns if the table was never written."""
        return reader_schema(self._snapshot.schema or pa.schema([]))

    def count(self) -> int:
        """Count the rows: from the footers, or by reading if there are log files."""
        if self._snapshot.live.has_logs:
            return sum(batch.num_rows for batch in self.scan([RECORD_KEY], Always(True)))
        return sum(read_metadata(self._storage, file).num_rows for file in self._snapshot.files)

    def with_schema(self, schema: pa.Schema) -> TableView:
        """Return a view of the same rows with the columns of a later schema. Columns that the rows lack are null."""
        return TableView(self._storage, replace(self._snapshot, schema=schema))

    def scan(self, columns: Sequence[str], predicate: Predicate) -> Iterator[pa.RecordBatch]:
        """Yield the rows that a bound predicate selects; none if the table has no files."""
        if not self._snapshot.live.count or self._snapshot.schema is None:
            return
        full = readable_schema(self._snapshot.schema, meta_columns=True)
        query = ReadQuery(pa.schema([full.field(name) for name in columns]), predicate)
        yield from self._batches(query)

    def _batches(self, query: ReadQuery) -> Iterator[pa.RecordBatch]:
        plan = plan_read(self._storage, self._snapshot, query, split_bytes=_SPLIT_BYTES)
        return read_all(self._storage, self._snapshot, query, plan)

    def to_batches(self, columns: Sequence[str] | None = None, *, where: Where | None = None) -> pa.RecordBatchReader:
        """Return the rows as a stream of Arrow batches. Arguments as in `lakeformat.Table.read`."""
        query = resolve_query(self._snapshot.schema or pa.schema([]), resolve({}), columns=columns, where=where)
        return pa.RecordBatchReader.from_batches(query.schema, self._batches(query))

    def to_arrow(self, columns: Sequence[str] | None = None, *, where: Where | None = None) -> pa.Table:
        """Return the rows as an Arrow table, in memory. Arguments as in `lakeformat.Table.read`."""
        return self.to_batches(columns, where=where).read_all()


def bind_select(select: Select, schema: pa.Schema) -> Select:
    """Bind a query's filter to a table's columns, and check its aggregates.

    Raises:
        InvalidInputError: a column is not known, or its type does not have the aggregate.
    """
    full = with_meta_columns(reader_schema(schema))
    for part in select.aggregates:
        if part.column is not None:
            _check_aggregate(part, part.column, full, f"cannot run the query {select.text!r}")
    return Select(select.text, select.aggregates, bind(select.where, full))


def _check_aggregate(part: Aggregate, column: str, schema: pa.Schema, cannot: str) -> None:
    if column not in schema.names:
        raise InvalidInputError(f"{cannot}: unknown column {column!r}{nearest(column, schema.names)}")
    kind = schema.field(column).type
    numeric = kind_of(kind).is_number
    if (part.function in {"sum", "avg"} and not numeric) or (part.function != "count" and kind_of(kind).is_nested):
        raise InvalidInputError(f"{cannot}: there is no {part.function} of {kind}")
    if part.distinct and kind_of(kind).is_nested:
        raise InvalidInputError(f"{cannot}: distinct values of {kind} cannot be counted")


def evaluate(select: Select, rows: TableView) -> tuple[Any, ...]:
    """Return the value of each aggregate over the rows that the query selects; None if an aggregate has no values."""
    parts = [_RunningAggregate(part) for part in select.aggregates]
    if select.where == Always(True) and all(part.column is None for part in select.aggregates):
        return tuple(rows.count() for _ in parts)
    columns = sorted({part.column or RECORD_KEY for part in select.aggregates})
    for batch in rows.scan(columns, select.where):
        for part in parts:
            part.add(batch)
    return tuple(part.value() for part in parts)


class _RunningAggregate:
    """The intermediate result of one aggregate, which is updated with each batch of rows."""

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
    """Return the sum of the values. Convert integers and decimals to wider decimals first, so that no sum overflows."""
    kind = values.type
    if kind_of(kind) is Kind.INTEGER:
        return int(pc.sum(values.cast(pa.decimal128(38, 0))).as_py())
    if kind_of(kind) is Kind.DECIMAL:
        return pc.sum(values.cast(pa.decimal256(76, kind.scale))).as_py()
    return pc.sum(values).as_py()


def _least_or_greatest(running: _RunningAggregate, values: pa.Array) -> Any:
    value = pc.min_max(values)[running.aggregate.function].as_py()
    if kind_of(values.type) is Kind.FLOAT:
        # In Spark, NaN is greater than all numbers. Arrow's `min_max` ignores NaN, so it is handled here.
        nans = int(pc.sum(pc.is_nan(values)).as_py())
        if nans and (running.aggregate.function == "max" or nans == len(values)):
            return math.nan
    return value


def _extreme(function: str, values: Iterable[Any]) -> Any:
    present = [value for value in values if value is not None]
    nans = [value for value in present if isinstance(value, float) and math.isnan(value)]
    numbers = [value for value in present if not (isinstance(value, float) and math.isnan(value))]
    if nans and (function == "max" or not numbers):
        return math.nan
    return (min if function == "min" else max)(numbers)


def as_text(value: Any) -> str:
    """Return a value as the text that Spark shows for it in a row."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return str(value).lower()
    return str(value)


def equals_text(expected: str, value: Any) -> bool:
    """Tell whether a value equals the expected text: numbers by value (``1`` is ``1.0``), all others by text."""
    if isinstance(value, int | float | Decimal) and not isinstance(value, bool):
        try:
            return Decimal(expected.strip()) == Decimal(str(value))
        except ArithmeticError:
            return False
    return expected.strip() == as_text(value)
