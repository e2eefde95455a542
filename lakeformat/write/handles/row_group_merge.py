"""The stored rows of a base file that is merged, row group by row group: copied, or as the merger changes them.

Of a row group that may be copied, the columns are decoded first by which the merger finds the rows to change. If it
finds none, the row group is copied. If no row comes or goes, the column chunks whose values stay the same are copied,
and only the others are encoded again.

Memory: two decoded row groups, and the encoded columns of one that change.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

import pyarrow as pa

from lakeformat.arrow.same_values import is_same_memory
from lakeformat.concurrency import run_ahead
from lakeformat.files.base_file import BaseFileWriter, copied_schema, read_copied_batches
from lakeformat.files.splice.stored_groups import StoredGroup
from lakeformat.files.splice.thrift_tree import SpliceError
from lakeformat.files.spliced_base_file import SplicedBaseFileWriter
from lakeformat.model.record import FILE_NAME
from lakeformat.write.handles.cdc_log import HandleMerger
from lakeformat.write.handles.row_group_copies import RowGroupCopies, Treatment, is_worthwhile

__all__ = ["StoredRows"]


@dataclass(frozen=True, slots=True)
class _Examined:
    """A row group in which the merger has looked for rows to change.

    Attributes:
        at: its number.
        found: what the merger found; None if it changes no row.
        batch: the columns that the merger needs; None if it changes no row, or if they are too large for one batch.
    """

    at: int
    found: pa.Array | None = None
    batch: pa.RecordBatch | None = None


@dataclass(frozen=True)
class StoredRows:
    """The stored rows of a base file, which a merger changes while they are written to the next base file.

    Attributes:
        parquet: the open base file.
        where: its path, for messages.
        reads_keys: whether the keys of all rows must be added to the bloom filter and the key range.
        threads: whether a second thread decodes the next row group, and columns are decoded in parallel.
        most_bytes: approximate maximum size of a batch in bytes.
    """

    parquet: Any
    where: str
    merger: HandleMerger
    copies: RowGroupCopies
    reads_keys: bool
    threads: bool
    most_bytes: int

    def write_to(self, writer: BaseFileWriter) -> None:
        """Write all rows."""
        for treatment, groups in self.copies.runs():
            if not isinstance(writer, SplicedBaseFileWriter) or treatment is Treatment.ENCODE:
                self._encode(writer, groups)
            elif treatment is Treatment.COPY:
                for at in groups:
                    self._copy(writer, at, self.copies.untouched[at])
            else:
                examined = self._examine(writer, groups)
                for each in run_ahead(examined) if self.threads else examined:
                    self._write_examined(writer, each)

    def _encode(self, writer: BaseFileWriter, groups: Sequence[int]) -> None:
        batches = self._read(writer.schema, groups)
        for batch in run_ahead(batches) if self.threads else batches:
            self._write_parts(writer, self.merger.apply(batch, self.merger.find(batch)))

    def _read(self, shape: pa.Schema, groups: Sequence[int]) -> Iterator[pa.RecordBatch]:
        return read_copied_batches(
            self.parquet, self.where, shape, threads=self.threads, most_bytes=self.most_bytes, row_groups=groups
        )

    def _write_parts(self, writer: BaseFileWriter, parts: Iterator[pa.Table]) -> None:
        for rows in parts:
            writer.write(rows, new_keys=None if self.reads_keys else pa.array([], pa.string()))

    def _copy(self, writer: SplicedBaseFileWriter, at: int, group: StoredGroup) -> None:
        writer.copy_group(self.parquet, self.where, at, group, reads_keys=self.reads_keys)

    def _examine(self, writer: SplicedBaseFileWriter, groups: Sequence[int]) -> Iterator[_Examined]:
        """Look for the rows that change in some row groups, and decode the columns that the merger needs of them."""
        names = copied_schema(writer.schema).names
        for at in groups:
            wanted = {*self.merger.lookup_columns}
            looked = self._read_whole(writer.schema, at, [name for name in names if name in wanted])
            found = self.merger.find(looked) if looked is not None else None
            if looked is None or found is None:
                yield _Examined(at, None if looked is not None else pa.nulls(0))
                continue
            needed = self.merger.needed_columns(found)
            more = [name for name in names if name not in wanted and (needed is None or name in needed)]
            rest = self._read_whole(writer.schema, at, more) if more else looked.select([])
            yield _Examined(at, found, None if rest is None else _join(looked, rest, names))

    def _read_whole(self, shape: pa.Schema, at: int, names: Sequence[str]) -> pa.RecordBatch | None:
        """Read columns of a row group as one batch. Return None if they take more than ``most_bytes``."""
        batch = next(self._read(pa.schema([shape.field(name) for name in names]), [at]))
        return batch if batch.num_rows == self.parquet.metadata.row_group(at).num_rows else None

    def _write_examined(self, writer: SplicedBaseFileWriter, examined: _Examined) -> None:
        group = self._find_group(examined.at)
        if group is None or (examined.found is not None and examined.batch is None):
            self._encode(writer, [examined.at])
        elif examined.batch is None:
            self._copy(writer, examined.at, group)
        else:
            self._write_changed(writer, examined.at, group, examined.batch, examined.found)

    def _find_group(self, at: int) -> StoredGroup | None:
        """Return a row group ready to be copied; None if it cannot be copied."""
        try:
            return self.copies.find_group(at) if self.copies.find_group is not None else None
        except SpliceError:
            return None

    def _write_changed(
        self, writer: SplicedBaseFileWriter, at: int, group: StoredGroup, batch: pa.RecordBatch, found: pa.Array | None
    ) -> None:
        """Write a row group of which some rows change. ``batch`` has all its columns, or all that may change."""
        parts = self.merger.apply(batch, found)
        first = next(parts)
        if first.num_rows < batch.num_rows:
            self._write_parts(writer, chain([first], parts))
            return
        changed = _changed_columns(batch, first)
        is_partial = batch.num_columns < len(copied_schema(writer.schema))
        if is_partial or is_worthwhile(group, {FILE_NAME, *changed}):
            writer.copy_columns(self.parquet, self.where, at, group, first, changed, reads_keys=self.reads_keys)
        else:
            self._write_parts(writer, iter([first]))


def _join(one: pa.RecordBatch, other: pa.RecordBatch, order: Sequence[str]) -> pa.RecordBatch:
    """Return a batch with the columns of two batches, in the given order of names."""
    columns = {
        field.name: (field, column)
        for batch in (one, other)
        for field, column in zip(batch.schema, batch.columns, strict=True)
    }
    fields, arrays = zip(*(columns[name] for name in order if name in columns), strict=True)
    return pa.RecordBatch.from_arrays([*arrays], schema=pa.schema([*fields]))


def _changed_columns(before: pa.RecordBatch, after: pa.Table) -> frozenset[str]:
    """Return the names of the columns whose values differ: the merger made them anew."""
    return frozenset(
        name for name in before.schema.names if not is_same_memory(before.column(name), after.column(name).chunk(0))
    )
