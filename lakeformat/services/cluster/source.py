"""Rows of one clustering group: those of its base files, merged with log files if there are any."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Final

import numpy as np
import pyarrow as pa

from lakeformat.codec.avro_schema import with_meta
from lakeformat.codec.conform import conform
from lakeformat.codec.gather import gather, one_chunk
from lakeformat.files.base_file import ROW_GROUP_BYTES, ROW_GROUP_ROWS, stored_schema
from lakeformat.files.footers import open_base, open_parquet, read_metadata, row_batches
from lakeformat.files.open_slice import SliceMerging
from lakeformat.files.slice_reader import LOGS_IN_MEMORY, merged_slice
from lakeformat.files.stored_rows import repeating_text, stored_batches, stored_shape
from lakeformat.model.files import FileSlice
from lakeformat.model.record import COMMIT_TIME, RECORD_KEY
from lakeformat.storage.port import Storage

__all__ = ["GroupSource", "SliceToCluster", "open_group"]

#: Rows that are read to estimate the memory of all rows.
_PROBE_ROWS: Final = 4096
#: Most bytes of a sample.
_SAMPLE_BYTES: Final = 64 << 20


@dataclass(frozen=True, slots=True)
class SliceToCluster:
    """A file slice of a plan. Picklable.

    Attributes:
        merging: settings to merge its log files; None if it has none.
    """

    piece: FileSlice
    merging: SliceMerging | None = None


@dataclass(frozen=True)
class GroupSource:
    """The slices of a group and estimates of their size.

    Attributes:
        slices: slices, all of one partition.
        base_rows: rows of the base files.
        row_bytes: estimated bytes in memory of a base file's row.
        encoded: text columns that are read as dictionaries.
        schema: the table's columns.
    """

    storage: Storage
    partition_path: str
    slices: tuple[SliceToCluster, ...]
    base_rows: int
    row_bytes: float
    encoded: frozenset[str]
    schema: pa.Schema

    @cached_property
    def rows(self) -> int:
        """Return the number of rows. Slices with log files are read for it, but only their key columns."""
        if all(one.merging is None for one in self.slices):
            return self.base_rows
        return sum(batch.num_rows for one in self.slices for batch in self.keys(one))

    def keys(self, one: SliceToCluster) -> Iterator[pa.RecordBatch]:
        """Yield the record keys of one slice's rows, as batches of one column."""
        return self._batches(one, pa.schema([self.shape.field(RECORD_KEY)]), threads=False)

    @property
    def memory_bytes(self) -> float:
        """Return an estimate of the bytes of all rows in memory."""
        logs = sum(log.size_bytes for one in self.slices for log in one.piece.logs)
        return self.base_rows * self.row_bytes + logs * LOGS_IN_MEMORY

    @property
    def stored_bytes(self) -> int:
        """Return the bytes of all files."""
        return sum(one.piece.size_bytes for one in self.slices)

    @property
    def shape(self) -> pa.Schema:
        """Return the schema of the batches that `batches` yields."""
        return stored_shape(stored_schema(self.schema, self.encoded))

    def batches(
        self,
        one: SliceToCluster,
        *,
        threads: bool,
        encoded: frozenset[str] | None = None,
        rows: int = ROW_GROUP_ROWS,
        most_bytes: int = ROW_GROUP_BYTES,
    ) -> Iterator[pa.RecordBatch]:
        """Yield one slice's rows: commit time, sequence number, key and the table's columns.

        Memory: a row group's pages; for a slice with log files, see `lakeformat.files.slice_reader`.
        """
        encoded = self.encoded if encoded is None else encoded
        shape = stored_schema(self.schema, encoded)
        file = one.piece.base
        if file is None or one.merging is not None:
            yield from self._batches(one, stored_shape(shape), threads=threads, rows=rows, most_bytes=most_bytes)
            return
        where = f"{self.storage.location}/{file.path}"
        with (
            open_base(self.storage, file) as stored,
            open_parquet(stored, where, read_dictionary=[COMMIT_TIME, *encoded]) as parquet,
        ):
            yield from stored_batches(parquet, where, shape, threads=threads, rows=rows, most_bytes=max(most_bytes, 1))

    def _batches(
        self,
        one: SliceToCluster,
        wanted: pa.Schema,
        *,
        threads: bool,
        rows: int = ROW_GROUP_ROWS,
        most_bytes: int = ROW_GROUP_BYTES,
    ) -> Iterator[pa.RecordBatch]:
        """Yield some columns of a slice's rows."""
        if one.merging is not None:
            with merged_slice(self.storage, one.piece, one.merging, with_meta(self.schema), wanted.names) as merged:
                for batch in merged.batches(rows, max(most_bytes, 1), threads=threads):
                    yield conform(batch, wanted)
        elif (file := one.piece.base) is not None:
            where = f"{self.storage.location}/{file.path}"
            with open_base(self.storage, file) as stored, open_parquet(stored, where) as parquet:
                present = set(parquet.schema_arrow.names)
                columns = [name for name in wanted.names if name in present]
                for batch in row_batches(parquet, where, rows, columns=columns):
                    yield conform(batch, wanted)

    def sample(self, columns: Sequence[str], most: int) -> pa.Table:
        """Return some columns of about ``most`` random rows of the whole group, or fewer; equal in every run.

        Memory: about `_SAMPLE_BYTES`. Whenever the sample exceeds that, every second row is dropped.
        """
        wanted = pa.schema([self.schema.field(name) for name in columns])
        random = np.random.default_rng(self.rows)
        share = min(1.0, most / max(self.rows, 1))
        parts, size = [wanted.empty_table()], 0
        for one in self.slices:
            for batch in self._batches(one, wanted, threads=False):
                chosen = np.flatnonzero(random.random(batch.num_rows) < share)
                parts.append(pa.Table.from_batches([batch.take(pa.array(chosen))]))
                size += parts[-1].nbytes
                while size > _SAMPLE_BYTES and share * self.rows > 1:
                    whole = pa.concat_tables(parts)
                    parts = [gather(whole, np.arange(0, whole.num_rows, 2))]
                    size, share = parts[0].nbytes, share / 2
        return one_chunk(pa.concat_tables(parts))


def open_group(
    storage: Storage, partition_path: str, slices: Sequence[SliceToCluster], schema: pa.Schema
) -> GroupSource:
    """Open a group: read the footers of its base files, and a few rows.

    Raises:
        CorruptTableError: a file is missing or damaged; names the file.
    """
    bases = [one.piece.base for one in slices if one.piece.base is not None]
    footers = [read_metadata(storage, base) for base in bases]
    texts = {field.name for field in schema if pa.types.is_string(field.type)}
    encoded = repeating_text(footers, texts)
    rows = sum(footer.num_rows for footer in footers)
    source = GroupSource(storage, partition_path, tuple(slices), rows, 1.0, encoded, schema)
    filled = next((base for base, footer in zip(bases, footers, strict=True) if footer.num_rows), None)
    if filled is None:
        return source
    first = SliceToCluster(FileSlice(filled.group, filled.name.instant_time, filled))
    batch: Any = next(source.batches(first, threads=False, encoded=frozenset(), rows=_PROBE_ROWS))
    stored = sum(footer.row_group(at).total_byte_size for footer in footers for at in range(footer.num_row_groups))
    row_bytes = max(batch.nbytes / batch.num_rows, stored / rows)  # Later rows may be longer than the first.
    return replace(source, row_bytes=row_bytes)
