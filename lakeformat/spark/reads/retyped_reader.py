"""A reader for engines that compare Arrow types to the last name, such as Sail.

Arrow types with other names of map entries or list elements count as equal in pyarrow, but not in Sail. The reader of
rows returns the names that are in the Parquet files. This module gives the batches the names that the engine expects,
without a copy.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition

if TYPE_CHECKING:
    from pyspark.sql.datasource import Filter

__all__ = ["RetypedReader"]


class RetypedReader(DataSourceReader):
    """A reader whose batches have exactly the types of a schema.

    Args:
        reader: the reader of the rows.
        schema: the expected columns. Their types differ from those of the rows only in names.
    """

    def __init__(self, reader: DataSourceReader, schema: pa.Schema) -> None:
        self._reader, self._schema = reader, schema

    def pushFilters(self, filters: list[Filter]) -> Iterator[Filter]:  # noqa: N802  Spark's name.
        """Return the filters that the reader does not apply."""
        return iter(self._reader.pushFilters(filters))

    def partitions(self) -> Sequence[InputPartition]:
        """Plan the read."""
        parts: Sequence[InputPartition] = self._reader.partitions()
        return parts

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Read one partition."""
        for batch in self._reader.read(partition):
            expected = pa.schema([self._schema.field(name) for name in batch.schema.names])
            yield pa.record_batch(_Retyped(batch, expected))


class _Retyped:
    """A batch with another schema of the same memory layout."""

    def __init__(self, batch: pa.RecordBatch, schema: pa.Schema) -> None:
        self._batch, self._schema = batch, schema

    def __arrow_c_array__(self, requested_schema: object = None) -> tuple[Any, Any]:
        _, data = self._batch.__arrow_c_array__()
        return self._schema.__arrow_c_schema__(), data
