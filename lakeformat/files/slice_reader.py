"""The rows of a file slice that has log files: its base file streams, what its log files say is in memory.

Memory: one version of each record in the log files, in the columns read, and one of their blocks; of the base file one
batch.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from lakeformat.codec.conform import conform
from lakeformat.codec.log_block import LogBlock
from lakeformat.codec.row_bytes import pieces
from lakeformat.files.batch_rows import OpenParquet
from lakeformat.files.footers import group_bytes, open_parquet, repeated_texts, row_batches, vanished
from lakeformat.files.log_reader import decode_blocks, plan_blocks
from lakeformat.files.slice_columns import base_may_win, points_to_rows
from lakeformat.files.slice_skipping import (
    Footers,
    Skipping,
    block_footers,
    groups_left,
    groups_with_keys,
    may_hold,
)
from lakeformat.files.stored_shape import StoredShape
from lakeformat.merge.fold import folded_parts
from lakeformat.merge.log_records import LogPart, LogRows
from lakeformat.merge.read_rule import ReadRule
from lakeformat.merge.slice_merge import MergeCounts, SliceMerge
from lakeformat.merge.versions import Versions
from lakeformat.model.files import FileSlice
from lakeformat.model.instant import VisibleInstants
from lakeformat.model.record import COMMIT_TIME, RECORD_KEY
from lakeformat.predicate import Predicate, mask
from lakeformat.storage.port import Storage

__all__ = [
    "LOGS_IN_MEMORY",
    "MergedSlice",
    "SliceLeft",
    "SliceMerging",
    "look_at_slice",
    "merged_slice",
    "read_appended",
    "read_slice",
]

_AS_STORED = StoredShape()
#: Log records in memory take so many times the bytes of their files, about.
LOGS_IN_MEMORY: Final = 4
#: Of a batch, where nobody says.
_MOST_ROWS: Final = 65_536
_MOST_BYTES: Final = 32 << 20


@dataclass(frozen=True, slots=True)
class SliceMerging:
    """How the files of a slice become rows. Picklable.

    Attributes:
        rule: which version of a record is read.
        visible: instants whose blocks count.
        shape: how the files' columns become the table's; None where they are.
        only: of base rows and log records those alone are merged whose commit time this filter selects.
    """

    rule: ReadRule
    visible: VisibleInstants
    shape: StoredShape | None = None
    only: Predicate | None = None


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
        opened = _Opened(storage, piece, merging, table, columns, stack)
        told = None if skipping is None else opened.footers(skipping)
        if told is not None and skipping is not None and not may_hold(told, skipping):
            return
        logs = opened.logs()
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
        opened = _Opened(storage, piece, merging, table, wanted.names, stack)
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
        yield MergedSlice(_Opened(storage, piece, merging, table, columns, stack), table, columns)


class MergedSlice:
    """A slice of which every row is wanted.

    Attributes:
        log_records: of its log files, one version of each.
        blocks: of its log files that count.
    """

    def __init__(self, opened: _Opened, table: pa.Schema, columns: Sequence[str]) -> None:
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
        opened = _Opened(storage, piece, merging, skipping.table, columns, stack)
        told = opened.footers(skipping)
        count = told.base.num_row_groups if told.base else 0
        if not may_hold(told, skipping):
            return SliceLeft(count, None)
        left = range(count) if not exact or told.base is None else opened.groups(told, skipping, opened.logs())
        logs = sum(log.size_bytes for log in piece.logs)
        return SliceLeft(count, tuple(left), logs + sum(group_bytes(told.base, group) for group in left))


class _Opened:
    """A slice whose base file is open, and whose log files' headers are read."""

    def __init__(
        self,
        storage: Storage,
        piece: FileSlice,
        merging: SliceMerging,
        table: pa.Schema,
        columns: Sequence[str],
        stack: ExitStack,
    ) -> None:
        self._storage, self._base = storage, piece.base
        self.rule = merging.rule.within(table.names)
        self._shape = merging.shape or _AS_STORED
        self._only = merging.only
        self._asked = dict.fromkeys((*columns, *(() if self._only is None else (COMMIT_TIME,))))
        self._table = table
        self._schema = self._base_schema = self._with(self.rule)
        self._by_position = False
        self._blocks: Sequence[LogBlock] = plan_blocks(storage, piece.logs, is_committed=merging.visible)
        self.parquet: OpenParquet | None = None
        if piece.base is not None:
            try:
                source = stack.enter_context(storage.open_input(piece.base.path))
            except FileNotFoundError:
                raise vanished(piece.base.path) from None
            self.parquet = stack.enter_context(open_parquet(source, piece.base.path))

    @property
    def blocks(self) -> int:
        """Of the log files, those that count."""
        return len(self._blocks)

    @property
    def _instant(self) -> str:
        return self._base.name.instant_time if self._base else "0"

    def footers(self, skipping: Skipping) -> Footers:
        """What is told without a look at rows."""
        silent = set(self._shape.silent(self._instant))
        for block in self._blocks:
            silent |= self._shape.silent(block.instant_time)
        return Footers(
            self.parquet.metadata if self.parquet else None,
            block_footers(self._storage, self._blocks),
            mixes=self.rule.partial is not None
            or self.rule.by_payload
            or any(block.is_partial for block in self._blocks),
            silent=silent,
        )

    def logs(self) -> Versions:
        """One version of each record in the log files."""
        points = self._is_plain and self._base is not None and self._only is None
        parts = self._parts(points=points)
        if self._only is not None:
            parts = (chosen for part in parts if (chosen := _chosen(part, self._only)) is not None)
        rows = self.parquet.metadata.num_rows if points and self.parquet is not None else 0
        return folded_parts(parts, self.rule, self._schema, base_rows=rows)

    def _parts(self, *, points: bool) -> Iterator[LogPart]:
        """What the blocks say, as the table has it.

        Args:
            points: with row numbers of the base file, where blocks tell them.
        """
        names = {*self._schema.names, *self.rule.needed_of_logs()}
        asked, instant = self._shape.asked_ever(names), self._instant if points else None
        parts = decode_blocks(self._storage, self._blocks, columns=asked, base_instant=instant)
        return parts if self._is_plain else (self._shape.restored_part(part, names) for part in parts)

    def of_keys(self, keys: pa.Array, instant_time: str) -> tuple[list[pa.RecordBatch], list[pa.RecordBatch]]:
        """The rows with these keys, without the blocks of one commit and with them."""
        parts = [part for each in self._parts(points=False) if (part := _of_keys(each, keys)) is not None]
        earlier = [part for part in parts if part.instant_time != instant_time]
        merges = [SliceMerge(folded_parts(some, self.rule, self._schema), self.rule) for some in (earlier, parts)]
        found: tuple[list[pa.RecordBatch], list[pa.RecordBatch]] = ([], [])
        if self.parquet is not None:
            groups = groups_with_keys(self.parquet.metadata, keys, self._table) if self._shape.key is None else None
            for _, batch in self._base_batches(_MOST_ROWS, _MOST_BYTES, groups, threads=False):
                mine = batch.filter(pc.is_in(batch.column(RECORD_KEY), value_set=keys))
                for rows, merge in zip(found, merges, strict=True):
                    rows.append(merge.merge_batch(mine))
        for rows, merge in zip(found, merges, strict=True):
            rows += [batch for table in merge.remaining(_MOST_ROWS, _MOST_BYTES) for batch in table.to_batches()]
        return found

    def merge(self, logs: Versions) -> SliceMerge:
        """What the base file's batches meet: it is not asked for what is told already."""
        rule = self.rule
        footer = self.parquet.metadata if self.parquet is not None and self._is_plain else None
        if footer is not None:
            if not base_may_win(footer, logs, rule, self._table):
                rule = replace(rule, ordering=())
            self._by_position = points_to_rows(logs, footer.num_rows)
            self._base_schema = self._with(rule, by_position=self._by_position)
        return SliceMerge(logs, rule)

    @property
    def _is_plain(self) -> bool:
        """Whether the files' columns are the table's."""
        return self._shape is _AS_STORED

    def merged(
        self,
        merge: SliceMerge,
        most_rows: int,
        most_bytes: int,
        groups: Sequence[int] | None,
        *,
        threads: bool,
    ) -> Iterator[pa.RecordBatch]:
        """Rows of the base file, met by the log files."""
        batches = self._base_batches(most_rows, most_bytes, groups, threads=threads)
        if self._by_position:
            return merge.merge_rows(batches)
        return merge.merge(batch for _, batch in batches)

    def _with(self, rule: ReadRule, *, by_position: bool = False) -> pa.Schema:
        # Without a column a batch would have no rows.
        names = dict.fromkeys((*self._asked, *rule.needed_of_base(by_position=by_position))) or (RECORD_KEY,)
        return pa.schema([self._table.field(name) for name in names if name in self._table.names])

    def groups(self, told: Footers, skipping: Skipping, logs: Versions) -> list[int]:
        """The row groups of the base file that are to be read."""
        return groups_left(told, skipping, logs, keys_known=self._shape.key is None)

    def _base_batches(
        self, most_rows: int, most_bytes: int, groups: Sequence[int] | None, *, threads: bool
    ) -> Iterator[tuple[int, pa.RecordBatch]]:
        """Rows of the base file as the table has them, each batch behind the number of its first row."""
        assert self.parquet is not None  # noqa: S101  The caller's.
        assert self._base is not None  # noqa: S101  The caller's.
        present, path, names = set(self.parquet.schema_arrow.names), self._base.path, self._base_schema.names
        stored = [name for name in self._shape.asked(names, self._instant) if name in present]
        footer = self.parquet.metadata
        again = open_parquet(
            self.parquet.from_source, path, metadata=footer, read_dictionary=repeated_texts(footer, stored)
        )
        starts = np.cumsum([0, *(footer.row_group(at).num_rows for at in range(footer.num_row_groups))]).tolist()
        for group in range(footer.num_row_groups) if groups is None else groups:
            start = starts[group]
            batches = row_batches(
                again, path, most_rows, columns=stored, row_groups=[group], threads=threads, most_bytes=most_bytes
            )
            for batch in (each for one in batches for each in pieces(one, most_rows, most_bytes)):
                shaped = batch if self._is_plain else self._shape.restored(batch, names, self._instant)
                rows = conform(shaped, self._base_schema)
                yield start, rows if self._only is None else rows.filter(mask(self._only, rows))
                start += batch.num_rows

    def shown(self, rows: pa.RecordBatch | pa.Table) -> pa.RecordBatch | pa.Table:
        """Without a record key that no file holds."""
        if self._shape.key is None:
            return rows
        return rows.select([name for name in rows.schema.names if name != RECORD_KEY])


def _chosen(part: LogPart, only: Predicate) -> LogPart | None:
    """What the commits that a filter selects said: rows by their own commit time, deletes by their block's."""
    if isinstance(part, LogRows):
        return replace(part, rows=part.rows.filter(mask(only, part.rows)))
    block = pa.record_batch({COMMIT_TIME: pa.array([part.instant_time])})
    return part if mask(only, block)[0].as_py() else None


def _of_keys(part: LogPart, keys: pa.Array) -> LogPart | None:
    """What a block says of some records; None for nothing."""
    if isinstance(part, LogRows):
        rows = part.rows.filter(pc.is_in(part.rows.column(RECORD_KEY), value_set=keys))
        return replace(part, rows=rows) if rows.num_rows else None
    mine = pc.is_in(part.keys, value_set=keys)
    left = part.keys.filter(mine)
    return replace(part, keys=left, ordering=tuple(one.filter(mine) for one in part.ordering)) if len(left) else None
