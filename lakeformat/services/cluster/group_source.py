"""The rows of one clustering group: its file slices, read in batches, with estimates of their size.

Under consistent hashing a group may take only the rows of one new bucket (`BucketTarget`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Final

import numpy as np
import pyarrow as pa

from lakeformat.arrow.conform import conform
from lakeformat.arrow.gather import combine_table, gather
from lakeformat.arrow.kinds import Kind, kind_of
from lakeformat.codec.avro.schema import with_meta
from lakeformat.files.base_file import (
    ROW_GROUP_BYTES,
    ROW_GROUP_ROWS,
    copied_schema,
    read_copied_batches,
    stored_schema,
)
from lakeformat.files.footers import find_dictionary_texts, open_base, open_parquet, read_metadata, row_batches
from lakeformat.files.open_slice import SliceMergeRules
from lakeformat.files.slice_reader import LOGS_IN_MEMORY, open_merged_slice
from lakeformat.index.port import PartitionBuckets
from lakeformat.model.files import FileSlice
from lakeformat.model.record import COMMIT_TIME, RECORD_KEY
from lakeformat.storage.port import Storage

__all__ = ["BucketTarget", "GroupSource", "SliceToCluster", "open_group"]

#: Number of rows that are read to estimate the bytes of a row in memory.
_PROBE_ROWS: Final = 4096
#: Maximum bytes of a sample in memory.
_SAMPLE_BYTES: Final = 64 << 20


@dataclass(frozen=True, slots=True)
class SliceToCluster:
    """A file slice of a plan. Picklable.

    Attributes:
        merging: rules by which the slice's files become rows; None if its base file alone has the rows.
    """

    file_slice: FileSlice
    merging: SliceMergeRules | None = None


@dataclass(frozen=True, slots=True)
class BucketTarget:
    """A new bucket that takes rows of a group, under consistent hashing. Picklable.

    Attributes:
        file_id: file id of the bucket's file group.
        buckets: the new buckets among which the group's rows are divided; None if this bucket takes all rows.
        number: number of this bucket among them.
    """

    file_id: str
    buckets: PartitionBuckets | None = None
    number: int = 0

    def select(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return the rows of a batch that belong to the bucket. The batch must have the record keys."""
        if self.buckets is None:
            return batch
        keys = pa.chunked_array([batch.column(RECORD_KEY)])
        return batch.filter(pa.array(self.buckets.numbers(keys) == self.number))


@dataclass(frozen=True)
class GroupSource:
    """The slices of a group and estimates of their size.

    Attributes:
        slices: slices, all of one partition.
        base_rows: number of rows in the base files.
        row_bytes: estimated bytes in memory of a base file's row.
        encoded: names of the text columns that are read dictionary-encoded.
        schema: the table's columns.
        target: the bucket whose rows are read; None for all rows.
    """

    storage: Storage
    partition_path: str
    slices: tuple[SliceToCluster, ...]
    base_rows: int
    row_bytes: float
    encoded: frozenset[str]
    schema: pa.Schema
    target: BucketTarget | None = None

    @property
    def takes_all(self) -> bool:
        """Tell whether all rows of the slices are read."""
        return self.target is None or self.target.buckets is None

    @cached_property
    def rows(self) -> int:
        """Return the number of rows.

        If a slice has log files, or if only the rows of a bucket are read, the keys of all slices are read to count.
        """
        if self.takes_all and all(piece.merging is None for piece in self.slices):
            return self.base_rows
        return sum(batch.num_rows for piece in self.slices for batch in self.keys(piece))

    def keys(self, one: SliceToCluster) -> Iterator[pa.RecordBatch]:
        """Yield the record keys of one slice's rows, as batches of one column."""
        return self._batches(one, pa.schema([self.batch_schema.field(RECORD_KEY)]), threads=False)

    @property
    def memory_bytes(self) -> float:
        """Return an estimate of the bytes of all rows in memory."""
        logs = sum(log.size_bytes for piece in self.slices for log in piece.file_slice.logs)
        return self.base_rows * self.row_bytes + logs * LOGS_IN_MEMORY

    @property
    def stored_bytes(self) -> int:
        """Return the size of all files of the group in bytes."""
        return sum(piece.file_slice.size_bytes for piece in self.slices)

    @property
    def batch_schema(self) -> pa.Schema:
        """Return the schema of the batches that `batches` yields."""
        return copied_schema(stored_schema(self.schema, self.encoded))

    def batches(
        self,
        one: SliceToCluster,
        *,
        threads: bool,
        encoded: frozenset[str] | None = None,
        rows: int = ROW_GROUP_ROWS,
        most_bytes: int = ROW_GROUP_BYTES,
        row_groups: Sequence[int] | None = None,
    ) -> Iterator[pa.RecordBatch]:
        """Yield one slice's rows: commit time, sequence number, key and the table's columns.

        Memory: a row group's pages; for a slice with log files, also its merged log records.

        Args:
            row_groups: for a slice without log files, the row groups of the base file; None for all.
        """
        encoded = self.encoded if encoded is None else encoded
        shape = stored_schema(self.schema, encoded)
        file = one.file_slice.base
        if file is None or one.merging is not None:
            yield from self._batches(one, copied_schema(shape), threads=threads, rows=rows, most_bytes=most_bytes)
            return
        where = f"{self.storage.location}/{file.path}"
        with (
            open_base(self.storage, file) as stored,
            open_parquet(stored, where, read_dictionary=[COMMIT_TIME, *encoded]) as parquet,
        ):
            most_bytes = max(most_bytes, 1)
            read = read_copied_batches(
                parquet, where, shape, threads=threads, rows=rows, most_bytes=most_bytes, row_groups=row_groups
            )
            yield from read if self.target is None else map(self.target.select, read)

    def _batches(
        self,
        piece: SliceToCluster,
        schema: pa.Schema,
        *,
        threads: bool,
        rows: int = ROW_GROUP_ROWS,
        most_bytes: int = ROW_GROUP_BYTES,
    ) -> Iterator[pa.RecordBatch]:
        """Yield a slice's rows in batches with the columns of ``schema``."""
        if self.takes_all or self.target is None:
            yield from self._all_batches(piece, schema, threads=threads, rows=rows, most_bytes=most_bytes)
            return
        lacks_key = RECORD_KEY not in schema.names
        read = schema.append(self.batch_schema.field(RECORD_KEY)) if lacks_key else schema
        for batch in self._all_batches(piece, read, threads=threads, rows=rows, most_bytes=most_bytes):
            yield self.target.select(batch).select(schema.names)

    def _all_batches(
        self, piece: SliceToCluster, schema: pa.Schema, *, threads: bool, rows: int, most_bytes: int
    ) -> Iterator[pa.RecordBatch]:
        """Yield all rows of a slice in batches with the columns of ``schema``."""
        if piece.merging is not None:
            with open_merged_slice(
                self.storage, piece.file_slice, piece.merging, with_meta(self.schema), schema.names
            ) as merged:
                for batch in merged.batches(rows, max(most_bytes, 1), threads=threads):
                    yield conform(batch, schema)
        elif (file := piece.file_slice.base) is not None:
            where = f"{self.storage.location}/{file.path}"
            with open_base(self.storage, file) as stored, open_parquet(stored, where) as parquet:
                present = set(parquet.schema_arrow.names)
                columns = [name for name in schema.names if name in present]
                for batch in row_batches(parquet, where, rows, columns=columns):
                    yield conform(batch, schema)

    def sample(self, columns: Sequence[str], most: int) -> pa.Table:
        """Return the given columns of about ``most`` random rows of the group; the same rows in every run.

        Memory: about `_SAMPLE_BYTES`. Whenever the sample exceeds that size, every second of its rows is dropped.
        Therefore the result may have far fewer than ``most`` rows.
        """
        schema = pa.schema([self.schema.field(name) for name in columns])
        random = np.random.default_rng(self.rows)
        share = min(1.0, most / max(self.rows, 1))
        parts, size = [schema.empty_table()], 0
        for piece in self.slices:
            for batch in self._batches(piece, schema, threads=False):
                chosen = np.flatnonzero(random.random(batch.num_rows) < share)
                parts.append(pa.Table.from_batches([batch.take(pa.array(chosen))]))
                size += parts[-1].nbytes
                while size > _SAMPLE_BYTES and share * self.rows > 1:
                    whole = pa.concat_tables(parts)
                    parts = [gather(whole, np.arange(0, whole.num_rows, 2))]
                    size, share = parts[0].nbytes, share / 2
        return combine_table(pa.concat_tables(parts))


def open_group(
    storage: Storage,
    partition_path: str,
    slices: Sequence[SliceToCluster],
    schema: pa.Schema,
    target: BucketTarget | None = None,
) -> GroupSource:
    """Open a group: read the footers of its base files, and a few rows, to estimate its size in memory.

    Args:
        target: the bucket whose rows are read; None for all rows.

    Raises:
        CorruptTableError: a file is missing or damaged; the message names the file.
    """
    bases = [piece.file_slice.base for piece in slices if piece.file_slice.base is not None]
    footers = [read_metadata(storage, base) for base in bases]
    texts = {field.name for field in schema if kind_of(field.type) is Kind.TEXT}
    encoded = find_dictionary_texts(footers, texts)
    rows = sum(footer.num_rows for footer in footers)
    source = GroupSource(storage, partition_path, tuple(slices), rows, 1.0, encoded, schema)
    targeted = replace(source, target=target)
    based = [piece for piece in slices if piece.file_slice.base is not None]
    filled = next((piece for piece, footer in zip(based, footers, strict=True) if footer.num_rows), None)
    if filled is None:
        return targeted
    first = replace(filled, file_slice=replace(filled.file_slice, logs=()))
    batch: Any = next(source.batches(first, threads=False, encoded=frozenset(), rows=_PROBE_ROWS))
    stored = sum(
        footer.row_group(group).total_byte_size for footer in footers for group in range(footer.num_row_groups)
    )
    row_bytes = max(batch.nbytes / batch.num_rows, stored / rows)  # The first rows may be shorter than the average.
    return replace(targeted, row_bytes=row_bytes)
