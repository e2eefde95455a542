"""The rows of a file slice with log files. The base file is streamed; the records of the log files are held in memory.

Memory: the log records, merged to one per record key, in the columns read, plus a quarter of their size (at least
32 MB) for merging them; one block of the log files; one batch of the base file.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from lakeformat.arrow.conform import conform
from lakeformat.arrow.row_bytes import split_rows
from lakeformat.files.footers import group_bytes
from lakeformat.files.open_slice import OpenSlice, SliceMergeRules
from lakeformat.files.slice_skipping import Skipping, may_hold_match
from lakeformat.merge.slice_merge import MergeCounts
from lakeformat.model.files import FileSlice
from lakeformat.storage.port import Storage

__all__ = [
    "LOGS_IN_MEMORY",
    "MergedSlice",
    "SliceSelection",
    "inspect_slice",
    "open_merged_slice",
    "read_around_append",
    "read_slice",
]

#: Approximate size of log records in memory, as a multiple of the size of their files.
LOGS_IN_MEMORY: Final = 4


@dataclass(frozen=True, slots=True)
class SliceSelection:
    """The part of a slice that a filter leaves to read.

    Attributes:
        row_groups: number of row groups of the base file.
        kept_groups: the row groups to read; None if nothing of the slice is read.
        size_bytes: bytes of these row groups and of the log files.
    """

    row_groups: int
    kept_groups: tuple[int, ...] | None
    size_bytes: int = 0


def read_slice(
    storage: Storage,
    piece: FileSlice,
    merging: SliceMergeRules,
    table: pa.Schema,
    columns: Sequence[str],
    *,
    most_rows: int,
    most_bytes: int,
    threads: bool = True,
    skipping: Skipping | None = None,
    makes_keys: bool = False,
) -> Iterator[pa.RecordBatch]:
    """Read the slice's rows, unfiltered: rows of the base file in its order, then rows that only the log files have.

    Args:
        table: all columns as readers see them, meta columns included.
        columns: the columns to return, and those of a filter.
        most_rows, most_bytes: maximum number of rows and approximate maximum bytes of a batch.
        threads: decode columns of the base file in parallel.
        skipping: a filter; rows that it does not select may be left out.
        makes_keys: whether record keys that no file holds are made. If not, they are null.

    Raises:
        CorruptTableError: a file is missing or damaged; the message names the file.
        UnsupportedTableError: a log file has an unknown block or type; the message names the file.
    """
    with ExitStack() as stack:
        opened = OpenSlice(storage, piece, merging, table, columns, stack)
        footers = None if skipping is None else opened.footers(skipping)
        if footers is not None and skipping is not None and not may_hold_match(footers, skipping):
            return
        if not merging.merges:
            yield from _read_unmerged(opened, pa.schema([table.field(name) for name in columns]), most_rows, most_bytes)
            return
        logs = opened.logs(keys=footers is not None)
        merge = opened.merge(logs)
        schema = pa.schema([table.field(name) for name in columns])
        if opened.parquet is not None:
            groups = None if footers is None or skipping is None else opened.groups(footers, skipping, logs)
            for batch in opened.merge_base(merge, most_rows, most_bytes, groups, threads=threads):
                yield conform(batch if makes_keys else opened.drop_virtual_key(batch), schema)
        for rows in merge.log_only_rows(most_rows, most_bytes):
            kept = rows if makes_keys else opened.drop_virtual_key(rows)
            yield from conform(kept, schema).combine_chunks().to_batches()


def _read_unmerged(opened: OpenSlice, schema: pa.Schema, most_rows: int, most_bytes: int) -> Iterator[pa.RecordBatch]:
    """Yield the rows of the base file, then those of each log block, as they are stored."""
    if opened.parquet is not None:
        for _, batch in opened.base_batches(most_rows, most_bytes, None, threads=False):
            yield conform(opened.drop_virtual_key(batch), schema)
    for rows in opened.unmerged_log_rows():
        for batch in conform(opened.drop_virtual_key(rows), schema).to_batches():
            yield from split_rows(batch, most_rows, most_bytes)


def read_around_append(
    storage: Storage,
    piece: FileSlice,
    merging: SliceMergeRules,
    table: pa.Schema,
    wanted: pa.Schema,
    *,
    keys: pa.Array,
    instant_time: str,
) -> tuple[pa.Table, pa.Table]:
    """Read the slice's rows with the given keys, before and after a commit appended its blocks.

    Each file is read once. Memory: the rows, all log records of their keys, and one block or batch.

    Args:
        table: all columns as readers see them, meta columns included.
        wanted: the columns of the result; includes the record key.
        keys: record keys.
        instant_time: instant of the commit.

    Raises:
        CorruptTableError, UnsupportedTableError: as `read_slice`.
    """
    with ExitStack() as stack:
        opened = OpenSlice(storage, piece, merging, table, wanted.names, stack)
        old, new = (
            pa.Table.from_batches([conform(opened.drop_virtual_key(batch), wanted) for batch in batches], wanted)
            for batches in opened.read_keys(keys, instant_time)
        )
        return old, new


@contextmanager
def open_merged_slice(
    storage: Storage, piece: FileSlice, merging: SliceMergeRules, table: pa.Schema, columns: Sequence[str]
) -> Iterator[MergedSlice]:
    """Open a slice to copy all its rows into another file. Arguments and errors as in `read_slice`."""
    with ExitStack() as stack:
        yield MergedSlice(OpenSlice(storage, piece, merging, table, columns, stack), table, columns)


class MergedSlice:
    """An open file slice from which all rows are read, merged with its log files.

    Attributes:
        log_records: number of different record keys in its log files.
        blocks: number of blocks of its log files that are merged.
    """

    def __init__(self, opened: OpenSlice, table: pa.Schema, columns: Sequence[str]) -> None:
        self._opened, self._logs = opened, opened.logs()
        self._merge = opened.merge(self._logs)
        self._wanted = pa.schema([table.field(name) for name in columns])
        self.blocks = opened.blocks
        self.log_records = len(self._logs)

    @property
    def log_keys(self) -> pa.ChunkedArray:
        """Return the record keys of the log records."""
        return self._logs.keys

    @property
    def row_numbers(self) -> npt.NDArray[np.int64] | None:
        """Return the rows of the base file that the log files change; None if they are found by their keys."""
        return self._logs.position if self._opened.by_position else None

    @property
    def keeps_other_rows(self) -> bool:
        """Tell whether rows of the base file without a log record are returned as they are stored."""
        return self._opened.keeps_other_rows

    @property
    def counts(self) -> MergeCounts:
        """Return the counts of the merge. They are complete when all row groups with log records are merged."""
        return self._merge.counts

    @property
    def footer(self) -> pq.FileMetaData | None:
        """Return the footer of the base file, or None if there is no base file."""
        return self._opened.parquet.metadata if self._opened.parquet else None

    @property
    def most_rows(self) -> int:
        """Return an upper bound of the number of rows: those of the base file plus the log records."""
        return self.log_records + (self.footer.num_rows if self.footer is not None else 0)

    def batches(self, most_rows: int, most_bytes: int, *, threads: bool) -> Iterator[pa.RecordBatch]:
        """Yield all rows: those of the base file after the merge, then those that only the log files have."""
        yield from self.base_batches(most_rows, most_bytes, threads=threads)
        yield from self.log_batches(most_rows, most_bytes)

    def base_batches(
        self, most_rows: int, most_bytes: int, groups: Sequence[int] | None = None, *, threads: bool
    ) -> Iterator[pa.RecordBatch]:
        """Yield the rows of the base file after the merge, in its order. Memory: as `read_slice`.

        Args:
            groups: numbers of the row groups to read; None for all.
        """
        if self._opened.parquet is not None:
            batches = self._opened.merge_base(self._merge, most_rows, most_bytes, groups, threads=threads)
            yield from (conform(batch, self._wanted) for batch in batches)

    def stored_batches(
        self, group: int, columns: Sequence[str], most_rows: int, most_bytes: int
    ) -> Iterator[pa.RecordBatch]:
        """Yield columns of a row group of the base file as they are stored."""
        batches = self._opened.base_batches(most_rows, most_bytes, [group], threads=False, columns=columns)
        yield from (batch for _, batch in batches)

    def log_batches(self, most_rows: int, most_bytes: int) -> Iterator[pa.RecordBatch]:
        """Yield the rows that only the log files have. Call it when all row groups with log records are merged."""
        for rows in self._merge.log_only_rows(most_rows, most_bytes):
            yield from conform(rows, self._wanted).combine_chunks().to_batches()


def inspect_slice(
    storage: Storage,
    piece: FileSlice,
    merging: SliceMergeRules,
    columns: Sequence[str],
    skipping: Skipping,
    *,
    exact: bool,
) -> SliceSelection:
    """Return the row groups and bytes that `read_slice` would read with this filter. Memory: footers.

    Args:
        columns: the columns of the filter.
        exact: decode the columns of the log files, as the reader would, to choose the row groups.
    """
    with ExitStack() as stack:
        opened = OpenSlice(storage, piece, merging, skipping.table, columns, stack)
        footers = opened.footers(skipping)
        count = footers.base.num_row_groups if footers.base else 0
        if not may_hold_match(footers, skipping):
            return SliceSelection(count, None)
        exact = exact and merging.merges
        groups = range(count) if not exact or footers.base is None else opened.groups(footers, skipping, opened.logs())
        logs = sum(log.size_bytes for log in piece.logs)
        return SliceSelection(count, tuple(groups), logs + sum(group_bytes(footers.base, group) for group in groups))
