"""A base file of which some row groups are copied from the older base file of its file group, byte for byte.

Only the column of the file's name is made anew in a copied row group. Bloom filter and key range of the footer still
cover all keys, and the statistics for the file index cover all row groups.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from lakeformat.files.base_file import (
    BaseFileWriter,
    FileSettings,
    FilterAndRange,
    as_type,
    chunk_writer,
    constant_column,
    parquet_writer,
    stored_schema,
)
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
    parquet_writer(sink, stored_schema(settings.file_schema), settings, None).close()
    return read_footer(pa.BufferReader(sink.getvalue()))


class SplicedBaseFileWriter(BaseFileWriter):
    """A writer of a base file that also copies row groups of the older base file.

    The footer of a copied row group does not tell how many NaN it has, and a reused bloom filter may not have its keys.
    Before a row group is appended, `count_copied` must get the columns that `counted_columns` names.

    Attributes:
        copied_rows: number of rows of row groups of which all columns were copied, except the file's name.
        copied_bytes: bytes of all column chunks that were copied.

    Args:
        page_index: whether all copied row groups have a page index. Then the other row groups get one, too.
    """

    def __init__(
        self,
        sink: Any,
        partition_path: str,
        name: BaseFileName,
        settings: FileSettings,
        inherited: FilterAndRange,
        encoded: Collection[str],
        *,
        page_index: bool,
    ) -> None:
        super().__init__(sink, partition_path, name, settings, inherited, encoded)
        self._spliced = SplicedFile(sink, keeps_page_index=page_index)
        self._page_index = page_index
        self._names: dict[int, StoredChunk] = {}

    def copy_group(self, metadata: pq.FileMetaData, at: int, group: StoredGroup) -> None:
        """Append a stored row group.

        Args:
            metadata: the footer of the older base file.
            at: the row group's number in it.
        """
        self._begin(metadata, at)
        self._spliced.copy(group, {FILE_NAME: self._name_chunk(group.rows)})
        self.rows += group.rows
        self.copied_rows += group.rows
        self.copied_bytes += group.size

    def copy_columns(
        self, metadata: pq.FileMetaData, at: int, group: StoredGroup, rows: pa.Table, changed: Collection[str]
    ) -> None:
        """Append a stored row group of which some columns get new values.

        Args:
            metadata, at: as in `copy_group`.
            rows: all rows of the row group, with the changed columns and maybe others.
            changed: the names of the changed columns.
        """
        self._begin(metadata, at)
        chunks = {FILE_NAME: self._name_chunk(group.rows), **self._encode_chunks(metadata, at, rows, changed)}
        self._spliced.copy(group, chunks, keeps_order=False)
        self.rows += group.rows
        self.copied_bytes += sum(chunk.size for chunk in group.chunks if chunk.path not in chunks)

    def counted_columns(self, *, reads_keys: bool) -> tuple[str, ...]:
        """Return the names of the columns that `count_copied` needs.

        Args:
            reads_keys: whether keys must be added to the bloom filter and the key range.
        """
        return tuple(dict.fromkeys([*self._nans.columns, *([RECORD_KEY] if reads_keys else [])]))

    def count_copied(self, rows: pa.Table, *, reads_keys: bool) -> None:
        """Count NaN in rows of a row group that is copied, and add its keys. Columns that they lack are not counted."""
        self._nans.add(rows)
        if reads_keys and RECORD_KEY in rows.schema.names:
            self._add_keys(rows.column(RECORD_KEY))

    def _begin(self, metadata: pq.FileMetaData, number: int) -> None:
        """Write the buffered rows, and open the Parquet writer: it must write the first bytes of the file.

        If no rows were written, its codecs and dictionaries are those of a stored row group.
        """
        self._flush()
        if self._writer is None:
            stored = _chunks_by_path(metadata, number)
            self._writer = chunk_writer(self._spliced.stream, self.schema, stored, None, page_index=self._page_index)

    def _encode_chunks(
        self, metadata: pq.FileMetaData, number: int, rows: pa.Table, changed: Collection[str]
    ) -> dict[str, StoredChunk]:
        """Encode columns of a row group. Codecs and dictionaries are those of the stored column chunks."""
        shape = pa.schema([field for field in self.schema if field.name in changed])
        sink = pa.BufferOutputStream()
        arrays = [as_type(rows.column(field.name), field.type) for field in shape]
        with chunk_writer(sink, shape, _chunks_by_path(metadata, number), rows, page_index=self._page_index) as writer:
            writer.write_table(pa.Table.from_arrays(arrays, schema=shape), max(rows.num_rows, 1))
        return {chunk.path: chunk for chunk in _read_chunks(sink)}

    def _name_chunk(self, rows: int) -> StoredChunk:
        """Return a column chunk with the file's name in every row."""
        if rows not in self._names:
            sink = pa.BufferOutputStream()
            names = pa.table({FILE_NAME: constant_column(str(self.name), rows)})
            shape = pa.schema([self.schema.field(FILE_NAME)])
            with parquet_writer(sink, shape, self.settings, None, page_index=self._page_index) as writer:
                writer.write_table(names, max(rows, 1))
            [self._names[rows]] = _read_chunks(sink)
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
        super()._write_group(rows, most)
        self._spliced.note_written_group()

    def _write_footer(self, writer: pq.ParquetWriter) -> pq.FileMetaData:
        return self._spliced.finish(writer.close)


def _chunks_by_path(metadata: pq.FileMetaData, number: int) -> dict[str, pq.ColumnChunkMetaData]:
    """Return the column chunks of a row group by the path of their leaf."""
    chunks = [metadata.row_group(number).column(leaf) for leaf in range(metadata.num_columns)]
    return {chunk.path_in_schema: chunk for chunk in chunks}


def _read_chunks(sink: pa.BufferOutputStream) -> Sequence[StoredChunk]:
    """Return the column chunks of a file in memory with one row group."""
    source = pa.BufferReader(sink.getvalue())
    return find_stored_groups(source, read_footer(source), [0])[0].chunks
