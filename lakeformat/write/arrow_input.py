"""Rows as users have them: Arrow tables, batches, readers, and frames that hand out Arrow streams."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa

from lakeformat.codec.conform import VIEWS, conform
from lakeformat.errors import InvalidInputError, SchemaMismatchError

__all__ = ["arrow_reader"]


def arrow_reader(rows: Any) -> pa.RecordBatchReader:
    """The rows as a stream of batches.

    Raises:
        InvalidInputError: they are no Arrow data.
        SchemaMismatchError: a frame's column has values of several types; on reading, a batch has other columns than
            the first.
    """
    reader = _reader(rows)
    schema = pa.schema([_without_views(field) for field in reader.schema], reader.schema.metadata)
    if schema.equals(reader.schema):
        return reader
    return pa.RecordBatchReader.from_batches(schema, (conform(batch, schema) for batch in reader))


def _without_views(field: pa.Field) -> pa.Field:
    """Categories of polars are dictionaries of views: plain columns."""
    plain = VIEWS.get(field.type.value_type) if pa.types.is_dictionary(field.type) else None
    return field if plain is None else field.with_type(plain)


def _reader(rows: Any) -> pa.RecordBatchReader:
    if isinstance(rows, pa.RecordBatchReader):
        return rows
    if isinstance(rows, (pa.Table, pa.RecordBatch)):
        table = rows if isinstance(rows, pa.Table) else pa.Table.from_batches([rows])
        return table.to_reader()
    if hasattr(rows, "__arrow_c_stream__"):
        try:
            return pa.RecordBatchReader.from_stream(rows)
        except (pa.ArrowInvalid, pa.ArrowTypeError) as error:
            reason = "; ".join(map(str, reversed(error.args)))
            raise SchemaMismatchError(f"the frame is no Arrow data: {reason}; convert the column first") from None
    if isinstance(rows, Iterator) or (isinstance(rows, Sequence) and rows):
        batches = iter(rows)
        first = next(batches, None)
        if isinstance(first, pa.RecordBatch):
            return pa.RecordBatchReader.from_batches(first.schema, _chain(first, batches))
    raise InvalidInputError(
        f"rows of type {type(rows).__name__} are no Arrow data; give a pyarrow Table, a RecordBatchReader, or a frame "
        "with __arrow_c_stream__"
    )


def _chain(first: pa.RecordBatch, rest: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    yield first
    for number, batch in enumerate(rest, start=1):
        if not (isinstance(batch, pa.RecordBatch) and batch.schema.equals(first.schema)):
            raise SchemaMismatchError(
                f"batch {number} of the input has other columns than the first; give all the same"
            )
        yield batch
