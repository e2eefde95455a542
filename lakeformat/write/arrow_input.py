"""Rows as users have them: Arrow tables, batches, readers, and frames that hand out Arrow streams."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa

from lakeformat.errors import InvalidInputError, SchemaMismatchError

__all__ = ["arrow_reader"]


def arrow_reader(rows: Any) -> pa.RecordBatchReader:
    """The rows as a stream of batches.

    Raises:
        InvalidInputError: they are no Arrow data.
        SchemaMismatchError: on reading, a batch has other columns than the first.
    """
    if isinstance(rows, pa.RecordBatchReader):
        return rows
    if isinstance(rows, (pa.Table, pa.RecordBatch)):
        table = rows if isinstance(rows, pa.Table) else pa.Table.from_batches([rows])
        return table.to_reader()
    if hasattr(rows, "__arrow_c_stream__"):
        return pa.RecordBatchReader.from_stream(rows)
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
