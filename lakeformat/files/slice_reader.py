"""The rows of a file slice that has log files: its base file streams, what its log files say is in memory.

Memory: one version of each record in the log files and a quarter of that (32 MB at least), in the columns read, and
one of their blocks; of the base file one batch.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Final

import pyarrow as pa
import pyarrow.parquet as pq

from lakeformat.codec.conform import conform
from lakeformat.files.footers import group_bytes
from lakeformat.files.open_slice import OpenSlice, SliceMerging
from lakeformat.files.slice_skipping import Skipping, may_hold
from lakeformat.merge.slice_merge import MergeCounts
from lakeformat.model.files import FileSlice
from lakeformat.storage.port import Storage

__all__ = ["LOGS_IN_MEMORY", "MergedSlice", "SliceLeft", "look_at_slice", "merged_slice", "read_appended", "read_slice"]

#: Log records in memory take so many times the bytes of their files, about.
LOGS_IN_MEMORY: Final = 4


@dataclass(frozen=True, slots=True)
class SliceLeft:
    """What a filter leaves of a slice.

    Attributes:
        row_groups: of its base file.
        left: those of them that are read; None: the slice is not.
        size_bytes: of these row groups and of the log files.
    """

    row_groups: int
    left: tuple[int, ...] | None
    size_bytes: int = 0


def read_slice(
    storage: Storage,
    piece: FileSlice,
    merging: SliceMerging,
    table: pa.Schema,
    columns: Sequence[str],
    *,
    most_rows: int,
    most_bytes: int,
    threads: bool = True,
    skipping: Skipping | None = None,
) -> Iterator[pa.RecordBatch]:
    """The slice's rows at the instant, unfiltered: those of the base file in its order, then those of the logs alone.

    Args:
        table: all columns as readers see them, meta columns included.
        columns: those wanted, and those of a filter.
        most_rows, most_bytes: of a batch.
        threads: decode columns of the base file side by side.
        skipping: rows that it does not select may be left out.

    Raises:
        CorruptTableError: a file is missing or damaged; names the file.
        UnsupportedTableError: a log file holds what is not known here; names the file.
    """
    with ExitStack() as stack:
        opened = OpenSlice(storage, piece, merging, table, columns, stack)
        told = None if skipping is None else opened.footers(skipping)
        if told is not None and skipping is not None and not may_hold(told, skipping):
            return
        logs = opened.logs(keys=told is not None)
        merge = opened.merge(logs)
        wanted = pa.schema([table.field(name) for name in columns])
        if opened.parquet is not None:
            groups = None if told is None or skipping is None else opened.groups(told, skipping, logs)
            for batch in opened.merged(merge, most_rows, most_bytes, groups, threads=threads):
                yield conform(opened.shown(batch), wanted)
        for rows in merge.remaining(most_rows, most_bytes):
            yield from conform(opened.shown(rows), wanted).combine_chunks().to_batches()


def read_appended(
    storage: Storage,
    piece: FileSlice,
    merging: SliceMerging,
    table: pa.Schema,
    wanted: pa.Schema,
    *,
    keys: pa.Array,
    instant_time: str,
) -> tuple[pa.Table, pa.Table]:
    """The slice's rows with some keys as they were before a commit appended its blocks, and as they are since.

    Each file is read once. Memory: the rows, every version of them in the log files, and one block or batch.

    Args:
        table: all columns as readers see them, meta columns included.
        wanted: those of the rows, record key among them.
        keys: record keys.
        instant_time: the commit's.

    Raises:
        CorruptTableError, UnsupportedTableError: as `read_slice`.
    """
    with ExitStack() as stack:
        opened = OpenSlice(storage, piece, merging, table, wanted.names, stack)
        old, new = (
            pa.Table.from_batches([conform(opened.shown(batch), wanted) for batch in batches], wanted)
            for batches in opened.of_keys(keys, instant_time)
        )
        return old, new


@contextmanager
def merged_slice(
    storage: Storage, piece: FileSlice, merging: SliceMerging, table: pa.Schema, columns: Sequence[str]
) -> Iterator[MergedSlice]:
    """All rows of a slice, on their way into another file. Arguments and errors as of `read_slice`."""
    with ExitStack() as stack:
        yield MergedSlice(OpenSlice(storage, piece, merging, table, columns, stack), table, columns)


class MergedSlice:
    """A slice of which every row is wanted.

    Attributes:
        log_records: of its log files, one version of each.
        blocks: of its log files that count.
    """

    def __init__(self, opened: OpenSlice, table: pa.Schema, columns: Sequence[str]) -> None:
        self._opened, logs = opened, opened.logs()
        self._merge = opened.merge(logs)
        self._wanted = pa.schema([table.field(name) for name in columns])
        self.blocks = opened.blocks
        self.log_records = len(logs)

    @property
    def counts(self) -> MergeCounts:
        """When `stored` is through."""
        return self._merge.counts

    @property
    def footer(self) -> pq.FileMetaData | None:
        """Of the base file; None if there is none."""
        return self._opened.parquet.metadata if self._opened.parquet else None

    @property
    def most_rows(self) -> int:
        """As many rows as it may come to."""
        return self.log_records + (self.footer.num_rows if self.footer is not None else 0)

    def batches(self, most_rows: int, most_bytes: int, *, threads: bool) -> Iterator[pa.RecordBatch]:
        """All rows: what is left of the base file's, then those of the logs alone."""
        yield from self.stored(most_rows, most_bytes, threads=threads)
        yield from self.added(most_rows, most_bytes)

    def stored(self, most_rows: int, most_bytes: int, *, threads: bool) -> Iterator[pa.RecordBatch]:
        """What is left of the base file's rows, in its order. Memory: as `read_slice`."""
        if self._opened.parquet is not None:
            batches = self._opened.merged(self._merge, most_rows, most_bytes, None, threads=threads)
            yield from (conform(batch, self._wanted) for batch in batches)

    def added(self, most_rows: int, most_bytes: int) -> Iterator[pa.RecordBatch]:
        """The rows of the logs alone, when those of the base file are through."""
        for rows in self._merge.remaining(most_rows, most_bytes):
            yield from conform(rows, self._wanted).combine_chunks().to_batches()


def look_at_slice(
    storage: Storage,
    piece: FileSlice,
    merging: SliceMerging,
    columns: Sequence[str],
    skipping: Skipping,
    *,
    exact: bool,
) -> SliceLeft:
    """What `read_slice` would read with this filter. Memory: footers.

    Args:
        columns: of the filter.
        exact: decode the log files' columns, where footers do not tell, as the reader would.
    """
    with ExitStack() as stack:
        opened = OpenSlice(storage, piece, merging, skipping.table, columns, stack)
        told = opened.footers(skipping)
        count = told.base.num_row_groups if told.base else 0
        if not may_hold(told, skipping):
            return SliceLeft(count, None)
        left = range(count) if not exact or told.base is None else opened.groups(told, skipping, opened.logs())
        logs = sum(log.size_bytes for log in piece.logs)
        return SliceLeft(count, tuple(left), logs + sum(group_bytes(told.base, group) for group in left))
