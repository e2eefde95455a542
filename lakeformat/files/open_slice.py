"""A file slice with an open base file: the decoded blocks of its log files, and the base-file rows that they change."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from lakeformat.arrow.conform import conform
from lakeformat.arrow.kinds import Kind, kind_of
from lakeformat.arrow.row_bytes import split_rows
from lakeformat.codec.log_blocks import LogBlock
from lakeformat.files.batch_rows import OpenParquet
from lakeformat.files.footer_bounds import row_group_bounds
from lakeformat.files.footers import choose_dictionary_reads, open_parquet, row_batches
from lakeformat.files.log_reader import decode_blocks, has_row_numbers, plan_blocks
from lakeformat.files.missing_files import missing_file_error
from lakeformat.files.skeletons import open_rows
from lakeformat.files.slice_skipping import (
    Skipping,
    SliceFooters,
    choose_row_groups,
    groups_with_keys,
    read_block_footers,
)
from lakeformat.files.stored_shape import AS_STORED, StoredShape
from lakeformat.merge.fold import fold_parts
from lakeformat.merge.rules import ReadRule
from lakeformat.merge.slice_merge import SliceMerge
from lakeformat.merge.versions import LogPart, LogRows, Versions
from lakeformat.model.files import FileSlice
from lakeformat.model.instant import VisibleInstants
from lakeformat.model.record import COMMIT_TIME, RECORD_KEY
from lakeformat.predicate import Predicate, mask
from lakeformat.storage.port import Storage

__all__ = ["OpenSlice", "SliceMergeRules", "base_may_win", "have_row_numbers"]


def base_may_win(footer: pq.FileMetaData, logs: Versions, rule: ReadRule, table: pa.Schema) -> bool:
    """Tell by the base file's footer whether a row of the base file may win the merge with a log record.

    A base row may win if its ordering value may be greater than that of the log record. If the result is false, the
    ordering values of the base file need not be read.

    Args:
        logs: the merged log records, one for each record key.
        table: all columns as readers see them.
    """
    if not rule.ordering:
        return False
    name, conditional = rule.ordering[0], ~logs.unconditional
    if len(rule.ordering) > 1 or not _is_exact(table, name):
        return True
    if not conditional.any():
        return False
    written = logs.ordering[0].filter(pa.array(conditional)) if not conditional.all() else logs.ordering[0]
    bounds, _, _ = row_group_bounds([footer], [name], table)
    highest = bounds[name].maximum
    if written.null_count or highest.null_count or not len(highest):
        return True
    return bool(pc.greater(pc.max(highest), pc.min(written)).as_py())


def have_row_numbers(logs: Versions, rows: int) -> bool:
    """Tell whether each log record has its own row number in the base file.

    If so, rows and log records are matched by row number, and the record keys of the base file need not be read.

    Args:
        logs: the merged log records, one for each record key.
        rows: row count of the base file.
    """
    if not len(logs):
        return True
    positions = np.sort(logs.position)
    return bool(positions[0] >= 0 and positions[-1] < rows and (np.diff(positions) > 0).all())


def _is_exact(table: pa.Schema, name: str) -> bool:
    """Tell whether footers have exact bounds of the column: true for integers, timestamps and dates.

    Bounds of floats leave out NaN, and those of other types may be cut.
    """
    if name not in table.names:
        return False
    kind = table.field(name).type
    return kind_of(kind) in (Kind.INTEGER, Kind.TIMESTAMP, Kind.DATE)


#: Default maximum number of rows of a batch.
_MOST_ROWS: Final = 65_536
#: Default maximum decoded size of a batch, in bytes.
_MOST_BYTES: Final = 32 << 20


@dataclass(frozen=True, slots=True)
class SliceMergeRules:
    """The rules by which the files of a slice become rows. Picklable.

    Attributes:
        rule: the rule that merges the rows and log records of one record key.
        visible: instants whose blocks are merged.
        shape: the conversion of the files' columns into the table's; None if they are the same.
        selected_commits: a filter on commit times; base rows and log records that it does not select are left out.
        merges: whether the files are merged. If not, the rows of all of them are read side by side, without deletes.
    """

    rule: ReadRule
    visible: VisibleInstants
    shape: StoredShape | None = None
    selected_commits: Predicate | None = None
    merges: bool = True


class OpenSlice:
    """A slice whose base file is open and whose log files' block headers are read."""

    def __init__(
        self,
        storage: Storage,
        piece: FileSlice,
        merging: SliceMergeRules,
        table: pa.Schema,
        columns: Sequence[str],
        stack: ExitStack,
    ) -> None:
        self._storage, self._base = storage, piece.base
        self._known = frozenset(table.names)
        self.rule = merging.rule.for_columns(self._known)
        self._shape = merging.shape or AS_STORED
        self._only = merging.selected_commits
        self._requested = dict.fromkeys((*columns, *(() if self._only is None else (COMMIT_TIME,))))
        self._table = table
        self._schema = self._base_schema = self._schema_for(self.rule)
        self.by_position = False
        self._blocks: Sequence[LogBlock] = plan_blocks(storage, piece.logs, is_committed=merging.visible)
        self.parquet: OpenParquet | None = None
        if piece.base is not None:
            try:
                source = stack.enter_context(open_rows(storage, piece.base.path))
            except FileNotFoundError:
                raise missing_file_error(storage, piece.base.path) from None
            self.parquet = stack.enter_context(open_parquet(source, f"{storage.location}/{piece.base.path}"))

    @property
    def blocks(self) -> int:
        """Return the number of blocks in the log files that are merged."""
        return len(self._blocks)

    @property
    def has_row_numbers(self) -> bool:
        """Tell whether all blocks have row numbers of a base file in their headers."""
        return all(map(has_row_numbers, self._blocks))

    @property
    def _instant(self) -> str:
        return self._base.name.instant_time if self._base else "0"

    @property
    def combines_fields(self) -> bool:
        """Tell whether a merged row may have values of both the base file and the log files."""
        partial = self.rule.partial is not None or any(block.is_partial for block in self._blocks)
        return partial or self.rule.takes_last_meta

    def footers(self, skipping: Skipping) -> SliceFooters:
        """Return the facts about the slice that are known without reading rows."""
        without_statistics = set(self._shape.columns_without_statistics(self._instant))
        for block in self._blocks:
            without_statistics |= self._shape.columns_without_statistics(block.instant_time)
        return SliceFooters(
            self.parquet.metadata if self.parquet else None,
            read_block_footers(self._storage, self._blocks),
            combines_fields=self.combines_fields,
            without_statistics=without_statistics,
        )

    def logs(self, *, keys: bool = True) -> Versions:
        """Read the records of the log files, and merge those with the same record key into one.

        Args:
            keys: whether the caller needs record keys. If not, they are left out if all log records have base-file row
                numbers.
        """
        numbered = self._has_table_columns and self._base is not None and self._only is None
        rows = self.parquet.metadata.num_rows if numbered and self.parquet is not None else 0
        keyless = self._schema_for(self.rule, by_position=True)
        if not keys and rows and RECORD_KEY not in keyless.names and self.has_row_numbers:
            try:
                return fold_parts(
                    _check_positions(self._parts(keyless, numbered=True), rows), self.rule, keyless, base_rows=rows
                )
            except _NoRowNumbersError:
                pass
        parts = self._parts(self._schema, numbered=numbered)
        if self._only is not None:
            parts = (chosen for part in parts if (chosen := _filter_commits(part, self._only)) is not None)
        return fold_parts(parts, self.rule, self._schema, base_rows=rows)

    def _parts(self, schema: pa.Schema, *, numbered: bool) -> Iterator[LogPart]:
        """Decode the blocks into the table's columns.

        Args:
            schema: the columns to return, besides those of the merge rule.
            numbered: whether to add row numbers of the base file, if the blocks have them.
        """
        names = {*schema.names, *self.rule.log_columns()}
        stored, instant = self._shape.possible_names(names), self._instant if numbered else None
        parts = decode_blocks(self._storage, self._blocks, columns=stored, base_instant=instant)
        return parts if self._has_table_columns else (self._shape.restore_part(part, names) for part in parts)

    def unmerged_log_rows(self) -> Iterator[pa.Table]:
        """Yield the rows of each data block of the log files, in the table's columns and the order of the blocks."""
        for part in self._parts(self._schema, numbered=False):
            if isinstance(part, LogRows):
                rows = part.rows if self._only is None else part.rows.filter(mask(self._only, part.rows))
                yield conform(rows, self._schema)

    def read_keys(self, keys: pa.Array, instant_time: str) -> tuple[list[pa.RecordBatch], list[pa.RecordBatch]]:
        """Return the merged rows with these keys before and after a commit: without and with its log blocks.

        Args:
            keys: record keys.
            instant_time: instant of the commit.
        """
        parts = [
            part
            for part_read in self._parts(self._schema, numbered=False)
            if (part := _filter_keys(part_read, keys)) is not None
        ]
        earlier = [part for part in parts if part.instant_time != instant_time]
        merges = [SliceMerge(fold_parts(some, self.rule, self._schema), self.rule) for some in (earlier, parts)]
        read: tuple[list[pa.RecordBatch], list[pa.RecordBatch]] = ([], [])
        if self.parquet is not None:
            groups = groups_with_keys(self.parquet.metadata, keys, self._table) if self._shape.key is None else None
            for _, batch in self.base_batches(_MOST_ROWS, _MOST_BYTES, groups, threads=False):
                mine = batch.filter(pc.is_in(batch.column(RECORD_KEY), value_set=keys))
                for rows, merge in zip(read, merges, strict=True):
                    rows.append(merge.merge_batch(mine))
        for rows, merge in zip(read, merges, strict=True):
            rows += [batch for table in merge.log_only_rows(_MOST_ROWS, _MOST_BYTES) for batch in table.to_batches()]
        return read

    def merge(self, logs: Versions) -> SliceMerge:
        """Build the merge of the base file with the log records.

        Later reads of the base file leave out record keys and ordering values if the merge does not need them.
        """
        rule = self.rule
        footer = self.parquet.metadata if self.parquet is not None and self._has_table_columns else None
        if footer is not None:
            if not base_may_win(footer, logs, rule, self._table):
                rule = replace(rule, ordering=())
            self.by_position = have_row_numbers(logs, footer.num_rows)
            self._base_schema = self._schema_for(rule, by_position=self.by_position)
        return SliceMerge(logs, rule)

    @property
    def _has_table_columns(self) -> bool:
        """Tell whether the files store the table's columns as they are, so that rows need no conversion."""
        return self._shape is AS_STORED

    @property
    def keeps_other_rows(self) -> bool:
        """Tell whether rows of the base file without a log record are returned as they are stored."""
        return self._has_table_columns and self._only is None

    def merge_base(
        self,
        merge: SliceMerge,
        most_rows: int,
        most_bytes: int,
        groups: Sequence[int] | None,
        *,
        threads: bool,
    ) -> Iterator[pa.RecordBatch]:
        """Yield the rows of the base file, merged with the log files."""
        batches = self.base_batches(most_rows, most_bytes, groups, threads=threads)
        if self.by_position:
            return merge.merge_rows(batches)
        return merge.merge(batch for _, batch in batches)

    def _schema_for(self, rule: ReadRule, *, by_position: bool = False) -> pa.Schema:
        # Read at least the key, because a batch without columns has no row count.
        names = dict.fromkeys((*self._requested, *rule.base_columns(by_position=by_position))) or (RECORD_KEY,)
        return pa.schema([self._table.field(name) for name in names if name in self._known])

    def groups(self, footers: SliceFooters, skipping: Skipping, logs: Versions) -> list[int]:
        """Return the row groups of the base file that must be read."""
        return choose_row_groups(footers, skipping, logs, keys_known=self._shape.key is None)

    def base_batches(
        self,
        most_rows: int,
        most_bytes: int,
        groups: Sequence[int] | None,
        *,
        threads: bool,
        columns: Sequence[str] | None = None,
    ) -> Iterator[tuple[int, pa.RecordBatch]]:
        """Yield the base file's rows in the table's columns, each batch with the number of its first row.

        Args:
            groups: the row groups to read; None for all.
            columns: the columns to read; None for those of the result and of the merge.
        """
        schema = self._base_schema if columns is None else pa.schema([self._table.field(name) for name in columns])
        assert self.parquet is not None  # noqa: S101  Callers check that there is a base file.
        assert self._base is not None  # noqa: S101  Callers check that there is a base file.
        present, names = set(self.parquet.schema_arrow.names), schema.names
        path = f"{self._storage.location}/{self._base.path}"
        stored = [name for name in self._shape.stored_names(names, self._instant) if name in present]
        footer = self.parquet.metadata
        reopened = open_parquet(
            self.parquet.from_source, path, metadata=footer, read_dictionary=choose_dictionary_reads(footer, stored)
        )
        starts = np.cumsum([0, *(footer.row_group(group).num_rows for group in range(footer.num_row_groups))]).tolist()
        for group in range(footer.num_row_groups) if groups is None else groups:
            start = starts[group]
            batches = row_batches(
                reopened, path, most_rows, columns=stored, row_groups=[group], threads=threads, most_bytes=most_bytes
            )
            for batch in (piece for batch_read in batches for piece in split_rows(batch_read, most_rows, most_bytes)):
                shaped = batch if self._has_table_columns else self._shape.restore(batch, names, self._instant)
                rows = conform(shaped, schema)
                yield start, rows if self._only is None else rows.filter(mask(self._only, rows))
                start += batch.num_rows

    def drop_virtual_key(self, rows: pa.RecordBatch | pa.Table) -> pa.RecordBatch | pa.Table:
        """Drop the record key column if no file holds it."""
        if self._shape.key is None:
            return rows
        return rows.select([name for name in rows.schema.names if name != RECORD_KEY])


class _NoRowNumbersError(Exception):
    """The error for a block with records that have no row number of the base file."""


def _check_positions(parts: Iterator[LogPart], base_rows: int) -> Iterator[LogPart]:
    """Yield the decoded log blocks unchanged. Raise `_NoRowNumbersError` if one lacks valid base-file row numbers."""
    for part in parts:
        positions = part.positions
        if positions is None or positions.min(initial=0) < 0 or positions.max(initial=0) >= base_rows:
            raise _NoRowNumbersError
        yield part
        del part  # Free this decoded block before the next one is decoded.


def _filter_commits(part: LogPart, only: Predicate) -> LogPart | None:
    """Select the records of a decoded log block by commit time.

    Rows are selected by their own commit time. Deletes have no commit time. So the instant of their block decides for
    all deletes of the block: either all are selected, or the result is None.
    """
    if isinstance(part, LogRows):
        return replace(part, rows=part.rows.filter(mask(only, part.rows)))
    block = pa.record_batch({COMMIT_TIME: pa.array([part.instant_time])})
    return part if mask(only, block)[0].as_py() else None


def _filter_keys(part: LogPart, keys: pa.Array) -> LogPart | None:
    """Select the rows or deletes of a decoded log block that have one of the given keys. Return None if none has."""
    if isinstance(part, LogRows):
        rows = part.rows.filter(pc.is_in(part.rows.column(RECORD_KEY), value_set=keys))
        return replace(part, rows=rows) if rows.num_rows else None
    mine = pc.is_in(part.keys, value_set=keys)
    kept_keys = part.keys.filter(mine)
    return (
        replace(part, keys=kept_keys, ordering=tuple(values.filter(mine) for values in part.ordering))
        if len(kept_keys)
        else None
    )
