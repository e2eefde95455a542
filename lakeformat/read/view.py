"""A snapshot opened for reading: what validators are handed, of the table before a write and after it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import pyarrow as pa

from lakeformat.codec.conform import read_schema
from lakeformat.config.resolve import resolve
from lakeformat.files.footers import read_metadata
from lakeformat.model.record import RECORD_KEY
from lakeformat.predicate import Always, Predicate, Where
from lakeformat.read.everything import read_all
from lakeformat.read.query import ReadQuery, readable_schema, resolve_query
from lakeformat.read.session import plan_read
from lakeformat.storage.port import Storage
from lakeformat.table_state.snapshot import Snapshot

__all__ = ["TableView"]

_SPLIT_BYTES = 128 << 20


class TableView:
    """Reads one snapshot, also one that is not published yet. Memory: one row group a stream."""

    def __init__(self, storage: Storage, snapshot: Snapshot) -> None:
        self._storage, self._snapshot = storage, snapshot

    @property
    def schema(self) -> pa.Schema:
        """The columns, without the meta columns; none in a table that nobody has written to."""
        return read_schema(self._snapshot.schema or pa.schema([]))

    def count(self) -> int:
        """How many rows there are, from the footers where they tell."""
        if self._snapshot.live.has_logs:
            return sum(batch.num_rows for batch in self.scan([RECORD_KEY], Always(True)))
        return sum(read_metadata(self._storage, file).num_rows for file in self._snapshot.files)

    def seen_as(self, schema: pa.Schema) -> TableView:
        """The same rows with a later schema's columns; those they lack are null."""
        return TableView(self._storage, replace(self._snapshot, schema=schema))

    def scan(self, columns: Sequence[str], predicate: Predicate) -> Iterator[pa.RecordBatch]:
        """The rows a bound predicate selects; none of a table without files."""
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
