"""A base file of which some row groups are copied from the older base file of its file group, byte for byte.

Only the column of the file's name is made anew in a copied row group. Bloom filter and key range of the footer still
cover all keys, and the statistics for the file index cover all row groups.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from lakeformat.files.base_file import (
    ROW_GROUP_ROWS,
    BaseFileWriter,
    FileSettings,
    FilterAndRange,
    constant_column,
    parquet_writer,
    stored_schema,
)
from lakeformat.files.footers import row_batches
from lakeformat.files.splice.spliced_file import SplicedFile
from lakeformat.files.splice.stored_groups import (
    ParquetFooter,
    StoredChunk,
    StoredGroup,
    find_stored_groups,
    read_footer,
)
from lakeformat.model.files import BaseFileName
from lakeformat.model.record import FILE_NAME, RECORD_KEY

__all__ = ["SplicedBaseFileWriter", "make_footer"]


def make_footer(settings: FileSettings) -> ParquetFooter:
    """Return the footer of a base file without rows, to compare the columns of stored files with."""
    sink = pa.BufferOutputStream()
    parquet_writer(sink, stored_schema(settings.schema), settings, None).close()
    return read_footer(pa.BufferReader(sink.getvalue()))


class SplicedBaseFileWriter(BaseFileWriter):
    """A writer of a base file that also copies row groups of the older base file.

    Args:
        page_index: whether all copied row groups have a page index. Then the other row groups get one, too.
    """

    def __init__(
        self,
        sink: Any,
        partition_path: str,
        name: BaseFileName,
        settings: FileSettings,
        known: FilterAndRange,
        encoded: Collection[str],
        *,
        page_index: bool,
    ) -> None:
        super().__init__(sink, partition_path, name, settings, known, encoded)
        self._spliced = SplicedFile(sink, keeps_page_index=page_index)
        self._page_index = page_index
        self._waiting: list[StoredGroup] = []
        self._names: dict[int, StoredChunk] = {}

    def copy_group(self, parquet: Any, path: str, at: int, group: StoredGroup, *, reads_keys: bool) -> None:
        """Append a stored row group.

        Args:
            parquet: the older base file, and its path for messages.
            at: the row group's number in it.
            reads_keys: whether its keys must be added to the bloom filter and the key range.
        """
        self._flush()
        self._count_values(parquet, path, at, reads_keys=reads_keys)
        self.rows += group.rows
        self._waiting.append(group)
        self._copy_waiting()

    def _count_values(self, parquet: Any, path: str, at: int, *, reads_keys: bool) -> None:
        """Read the columns of a copied row group whose values the footer does not tell: floats with NaN, and keys."""
        columns = dict.fromkeys([*self._nans.columns, *([RECORD_KEY] if reads_keys else [])])
        if not columns:
            return
        most = self.settings.row_group_bytes
        for batch in row_batches(
            parquet, path, ROW_GROUP_ROWS, columns=[*columns], row_groups=[at], threads=False, most_bytes=most
        ):
            self._nans.add(pa.Table.from_batches([batch]))
            if reads_keys:
                self._add_keys(batch.column(RECORD_KEY))

    def _copy_waiting(self) -> None:
        """Copy the row groups that wait, if the Parquet writer exists: the file begins with its bytes.

        The codecs of the written row groups are chosen by their rows. So the writer is made for the first of them.
        """
        if self._writer is None:
            return
        waiting, self._waiting = self._waiting, []
        for group in waiting:
            self._spliced.copy(group, {FILE_NAME: self._name_chunk(group.rows)})

    def _name_chunk(self, rows: int) -> StoredChunk:
        """Return a column chunk with the file's name in every row."""
        if rows not in self._names:
            sink = pa.BufferOutputStream()
            names = pa.table({FILE_NAME: constant_column(str(self.name), rows)})
            shape = pa.schema([self.schema.field(FILE_NAME)])
            with parquet_writer(sink, shape, self.settings, None, page_index=self._page_index) as writer:
                writer.write_table(names, max(rows, 1))
            source = pa.BufferReader(sink.getvalue())
            [self._names[rows]] = find_stored_groups(source, read_footer(source), [0])[0].chunks
        return self._names[rows]

    def _make_writer(self, sample: pa.Table | None) -> pq.ParquetWriter:
        return parquet_writer(
            self._spliced.stream,
            self.schema,
            self.settings,
            sample,
            joins=self._joins,
            page_index=self._page_index,
        )

    def _write_group(self, rows: pa.Table, most: int) -> None:
        self._open(rows)
        self._copy_waiting()
        super()._write_group(rows, most)
        self._spliced.note_written_group()

    def _write_footer(self, writer: pq.ParquetWriter) -> pq.FileMetaData:
        self._copy_waiting()
        return self._spliced.finish(writer.close)
