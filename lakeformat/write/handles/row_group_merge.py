"""The stored rows of a base file that is merged, row group by row group: copied, or as the merger changes them.

Of a row group that may be copied, the columns are decoded first by which the merger finds the rows to change. If it
finds none, the row group is copied. If no row comes or goes, the column chunks whose values stay the same are copied,
and only the others are encoded again.

A second thread may look at the next row group meanwhile. It alone reads the Parquet file. The copied bytes come from a
stream of their own.

Memory: two decoded row groups, and the encoded columns of one that change.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any, Final, TypeAlias

import pyarrow as pa

from lakeformat.arrow.same_values import is_same_memory
from lakeformat.concurrency import run_ahead
from lakeformat.files.base_file import BaseFileWriter, copied_schema, read_copied_batches
from lakeformat.files.spliced_base_file import SplicedBaseFileWriter
from lakeformat.files.stored_shape import FileShape
from lakeformat.model.record import FILE_NAME
from lakeformat.write.handles.cdc_log import HandleMerger
from lakeformat.write.handles.row_group_copies import (
    CopyStep,
    RowGroupCopies,
    Treatment,
    is_worthwhile,
    list_copy_steps,
    take_copy_step,
)

__all__ = ["StoredRows"]

#: A file of at most this many rows is read and written by one thread: handing its batches over takes longer.
_FEW_ROWS: Final = 4096


@dataclass(frozen=True, slots=True)
class _Part:
    """Rows that are encoded again, and what the merger found among them."""

    batch: pa.RecordBatch
    found: pa.Array | None


@dataclass(frozen=True, slots=True)
class _Changed:
    """A row group in which rows change, with all columns that may change, and what the merger found."""

    at: int
    batch: pa.RecordBatch
    found: pa.Array


_Step: TypeAlias = _Part | _Changed | CopyStep


@dataclass(frozen=True)
class StoredRows:
    """The stored rows of a base file, which a merger changes while they are written to the next base file.

    Attributes:
        parquet: the open base file.
        where: its path, for messages.
        reads_keys: whether the keys of all rows must be added to the bloom filter and the key range.
        threads: whether a second thread decodes the next row group, and columns are decoded in parallel.
        most_bytes: approximate maximum size of a batch in bytes.
        stored: how the file stores the table's columns, if it stores them differently. Then no row group is copied.
    """

    parquet: Any
    where: str
    merger: HandleMerger
    copies: RowGroupCopies
    reads_keys: bool
    threads: bool
    most_bytes: int
    stored: FileShape | None = None

    def write_to(self, writer: BaseFileWriter) -> None:
        """Write all rows."""
        steps = self._read_groups(writer)
        is_long = self.threads and self.parquet.metadata.num_rows > _FEW_ROWS
        for step in run_ahead(steps) if is_long else steps:
            if isinstance(step, _Part):
                self._write_parts(writer, self.merger.apply(step.batch, step.found))
            elif isinstance(writer, SplicedBaseFileWriter):
                if isinstance(step, _Changed):
                    self._write_changed(writer, step)
                else:
                    metadata, stored = self.parquet.metadata, self.copies.stored
                    take_copy_step(writer, step, metadata, stored, reads_keys=self.reads_keys)

    def _read_groups(self, writer: BaseFileWriter) -> Iterator[_Step]:
        """Read what is needed of each row group, and yield how its rows are written."""
        names = copied_schema(writer.row_schema).names
        counted: Sequence[str] = ()
        if isinstance(writer, SplicedBaseFileWriter):
            counted = writer.counted_columns(reads_keys=self.reads_keys)
        for group in range(self.copies.count):
            match self.copies.choose(group):
                case Treatment.EXAMINE:
                    yield from self._examine(writer.row_schema, group, names, counted)
                case Treatment.COPY:
                    yield from list_copy_steps(group, self._read_some(writer.row_schema, group, counted))
                case Treatment.ENCODE:
                    yield from self._decode(writer.row_schema, group, names)

    def _read(self, shape: pa.Schema, group: int, names: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """Read columns of a row group."""
        columns = pa.schema([shape.field(name) for name in names])
        return read_copied_batches(
            self.parquet,
            self.where,
            columns,
            threads=self.threads,
            most_bytes=self.most_bytes,
            row_groups=[group],
            stored=self.stored,
        )

    def _decode(self, shape: pa.Schema, group: int, names: Sequence[str]) -> Iterator[_Step]:
        for batch in self._read(shape, group, names):
            yield _Part(batch, self.merger.find(batch))

    def _read_some(self, shape: pa.Schema, group: int, names: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """Read columns of a row group; nothing if there are none."""
        return self._read(shape, group, names) if names else iter(())

    def _examine(self, shape: pa.Schema, group: int, names: Sequence[str], counted: Sequence[str]) -> Iterator[_Step]:
        """Look for rows that change in a row group, and decode the columns that are needed then."""
        lookup_names = {*self.merger.lookup_columns}
        looked = self._read_whole(shape, group, [name for name in names if name in lookup_names])
        if looked is None:
            yield from self._decode(shape, group, names)
            return
        matches = self.merger.find(looked)
        if matches is None:
            counted_columns = looked.select([name for name in counted if name in lookup_names])
            others = self._read_some(shape, group, [name for name in counted if name not in lookup_names])
            yield from list_copy_steps(group, chain([counted_columns] if counted_columns.num_columns else [], others))
            return
        needed = self.merger.needed_columns(matches)
        kept = {*names} if needed is None else {*needed, *counted}
        more = [name for name in names if name in kept and name not in lookup_names]
        rest = self._read_whole(shape, group, more) if more else looked.select([])
        if rest is None:
            yield from self._decode(shape, group, names)
        else:
            yield _Changed(group, _join(looked, rest, names), matches)

    def _read_whole(self, shape: pa.Schema, group: int, names: Sequence[str]) -> pa.RecordBatch | None:
        """Read columns of a row group as one batch. Return None if they take more than ``most_bytes``."""
        batch = next(self._read(shape, group, names))
        return batch if batch.num_rows == self.parquet.metadata.row_group(group).num_rows else None

    def _write_parts(self, writer: BaseFileWriter, parts: Iterator[pa.Table]) -> None:
        for rows in parts:
            writer.write(rows, new_keys=None if self.reads_keys else pa.array([], pa.string()))

    def _write_changed(self, writer: SplicedBaseFileWriter, step: _Changed) -> None:
        parts = self.merger.apply(step.batch, step.found)
        first = next(parts)
        if first.num_rows < step.batch.num_rows:
            self._write_parts(writer, chain([first], parts))
            return
        self._write_parts(writer, parts)  # There is no other part, but the merger goes on to its end.
        changed, group = _changed_columns(step.batch, first), self.copies.stored[step.at]
        is_partial = step.batch.num_columns < len(copied_schema(writer.row_schema))
        if is_partial or is_worthwhile(group, {FILE_NAME, *changed}):
            writer.count_copied(first, reads_keys=self.reads_keys)
            writer.copy_columns(self.parquet.metadata, step.at, group, first, changed)
        else:
            self._write_parts(writer, iter([first]))


def _join(first: pa.RecordBatch, other: pa.RecordBatch, order: Sequence[str]) -> pa.RecordBatch:
    """Return a batch with the columns of two batches, in the given order of names."""
    columns = {
        field.name: (field, column)
        for batch in (first, other)
        for field, column in zip(batch.schema, batch.columns, strict=True)
    }
    fields, arrays = zip(*(columns[name] for name in order if name in columns), strict=True)
    return pa.RecordBatch.from_arrays([*arrays], schema=pa.schema([*fields]))


def _changed_columns(before: pa.RecordBatch, after: pa.Table) -> frozenset[str]:
    """Return the names of the columns whose values differ: the merger made them anew."""
    return frozenset(
        name for name in before.schema.names if not is_same_memory(before.column(name), after.column(name).chunk(0))
    )
