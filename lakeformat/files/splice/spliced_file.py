"""A Parquet file of row groups that pyarrow writes, and of row groups that are copied byte for byte.

pyarrow writes its row groups straight to their place, because it takes positions from the stream that also gets the
copied bytes. When it closes, its footer is caught, and the true footer is made of it: the same schema, metadata and
writer, and all row groups in the order of the file.

Memory: the copied part that is read at a time, and the page indexes of the copied row groups.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

from lakeformat.files.splice import field_ids as ids
from lakeformat.files.splice.stored_groups import MAGIC, ParquetFooter, StoredChunk, StoredGroup, parse_footer
from lakeformat.files.splice.thrift_tree import (
    I16,
    I32,
    I64,
    LIST,
    STRUCT,
    Field,
    Struct,
    encode_struct,
    read_field,
)

__all__ = ["SplicedFile", "move_chunk"]

#: Maximum number of bytes that are copied at a time.
_COPY_BYTES: Final = 8 << 20
_MOST_ORDINALS: Final = 32_767
_PLACES: Final = frozenset({ids.DATA_PAGE, ids.INDEX_PAGE, ids.DICTIONARY_PAGE, ids.BLOOM, ids.BLOOM_BYTES})
_INDEX_REFERENCES: Final = frozenset(
    {ids.OFFSET_INDEX, ids.OFFSET_INDEX_BYTES, ids.COLUMN_INDEX, ids.COLUMN_INDEX_BYTES}
)


class _Sink:
    """A stream for pyarrow that passes bytes on to the file, until `hold` tells it to keep them in memory."""

    closed = False

    def __init__(self, target: Any) -> None:
        self._target = target
        self._held: list[bytes] | None = None

    def write(self, data: Any) -> int:
        if self._held is None:
            self._target.write(data)
        else:
            self._held.append(bytes(data))
        return len(data)

    def hold(self) -> None:
        self._held = []

    def release(self) -> bytes:
        held, self._held = b"".join(self._held or ()), None
        return held

    def flush(self) -> None:
        """Do nothing: the owner of the file flushes it."""

    def close(self) -> None:
        """Do nothing: the owner of the file closes it."""


class SplicedFile:
    """A file into which pyarrow writes row groups, and this class copies others.

    Attributes:
        stream: the sink for the Parquet writer. The writer must exist before the first row group is copied, because
            the first bytes of the file are its own.

    Args:
        target: the output stream, at position 0.
        keeps_page_index: whether page indexes are copied. The Parquet writer must then write page indexes, too: some
            readers refuse files in which only some column chunks have an offset index.
    """

    def __init__(self, target: Any, *, keeps_page_index: bool) -> None:
        self._sink = _Sink(target)
        self.stream = pa.PythonFile(self._sink, mode="w")
        self._keeps_page_index = keeps_page_index
        self._groups: list[Struct | None] = []
        self._copied: list[tuple[Struct, StoredChunk]] = []

    def note_written_group(self) -> None:
        """Note that the Parquet writer has written one row group."""
        self._groups.append(None)

    def copy(self, group: StoredGroup, replaced: Mapping[str, StoredChunk], *, keeps_order: bool = True) -> None:
        """Append a row group with the same pages.

        Args:
            replaced: column chunks that are taken from other files, by the dotted path of the column.
            keeps_order: whether the rows are still sorted by the columns by which the row group says they are.
        """
        chunks = [replaced.get(chunk.path, chunk) for chunk in group.chunks]
        starts = self._copy_pages(chunks)
        blooms = [self._append(chunk.bloom) if chunk.bloom is not None else None for chunk in chunks]
        trees = [move_chunk(*chunk) for chunk in zip(chunks, starts, blooms, strict=True)]
        without_source = [replace(chunk, source=None) for chunk in chunks]  # It may be a file in memory.
        self._copied += zip(trees, without_source, strict=True)
        stored = sum(chunk.size for chunk in chunks)
        plain = sum(read_field(chunk.meta, ids.PLAIN_BYTES, I64) for chunk in chunks)
        order = () if keeps_order else (ids.SORTING_COLUMNS,)
        tree = {
            **{number: field for number, field in group.tree.items() if number not in order},
            ids.COLUMNS: Field(LIST, (STRUCT, trees)),
            ids.TOTAL_BYTES: Field(I64, plain),
            ids.GROUP_OFFSET: Field(I64, starts[0]),
            ids.COMPRESSED_BYTES: Field(I64, stored),
        }
        self._groups.append(tree)

    def _append(self, data: Any) -> int:
        start = int(self.stream.tell())
        self.stream.write(data)
        return start

    def _copy_pages(self, chunks: Sequence[StoredChunk]) -> list[int]:
        """Copy the pages of column chunks. Return where each starts. Adjacent chunks of one file are copied at once."""
        starts: list[int] = []
        position = int(self.stream.tell())
        runs: list[tuple[Any, int, int]] = []
        for chunk in chunks:
            starts.append(position)
            position += chunk.size
            if runs and runs[-1][0] is chunk.source and runs[-1][1] + runs[-1][2] == chunk.start:
                runs[-1] = (chunk.source, runs[-1][1], runs[-1][2] + chunk.size)
            else:
                runs.append((chunk.source, chunk.start, chunk.size))
        for source, start, size in runs:
            source.seek(start)
            copied = 0
            while copied < size:
                part = source.read_buffer(min(size - copied, _COPY_BYTES))
                if not part.size:
                    raise OSError("the file became shorter while it was copied")
                self.stream.write(part)
                copied += part.size
        return starts

    def finish(self, close_writer: Callable[[], None]) -> pq.FileMetaData:
        """Close the Parquet writer and write the footer of all row groups. Return the footer.

        Memory: two copies of the footer, which holds the filter of all keys.
        """
        position = int(self.stream.tell())
        self._sink.hold()
        close_writer()
        tail = self._sink.release()
        length = int.from_bytes(tail[-8:-4], "little")
        indexes = tail[: -8 - length]
        self._sink.write(indexes)
        footer = tail[-8 - length : -8]
        del tail
        tree = parse_footer(footer)
        del footer
        if self._keeps_page_index:
            self._write_page_indexes(position + len(indexes))
        data = encode_struct(self._join_groups(tree))
        del tree
        whole = b"".join((MAGIC, data, len(data).to_bytes(4, "little"), MAGIC))
        del data
        self._sink.write(memoryview(whole)[len(MAGIC) :])
        return pq.read_metadata(pa.BufferReader(whole))

    def _write_page_indexes(self, position: int) -> None:
        """Write the page indexes of the copied row groups, and set their positions."""
        for tree, chunk in self._copied:
            if chunk.column_index is not None:
                tree[ids.COLUMN_INDEX] = Field(I64, position)
                tree[ids.COLUMN_INDEX_BYTES] = Field(I32, len(chunk.column_index))
                position += self._sink.write(chunk.column_index)
        for tree, chunk in self._copied:
            if chunk.offset_index is not None:
                data = encode_struct(_move_index(chunk, tree))
                tree[ids.OFFSET_INDEX] = Field(I64, position)
                tree[ids.OFFSET_INDEX_BYTES] = Field(I32, len(data))
                position += self._sink.write(data)

    def _join_groups(self, tree: Struct) -> Struct:
        written = iter(ParquetFooter(tree, 0).groups)
        groups = [next(written) if group is None else group for group in self._groups]
        if next(written, None) is not None:
            raise AssertionError("the Parquet writer wrote more row groups than were noted")
        for number, group in enumerate(groups):
            group.pop(ids.ORDINAL, None)
            if len(groups) <= _MOST_ORDINALS:
                group[ids.ORDINAL] = Field(I16, number)
        rows = sum(read_field(group, ids.GROUP_ROWS, I64) for group in groups)
        return {**tree, ids.NUM_ROWS: Field(I64, rows), ids.ROW_GROUPS: Field(LIST, (STRUCT, groups))}


def move_chunk(chunk: StoredChunk, start: int, bloom: int | None) -> Struct:
    """Return the ``ColumnChunk`` of a copied chunk, without references to page indexes."""
    meta = {number: field for number, field in chunk.meta.items() if number not in _PLACES}
    moved = start - chunk.start
    meta[ids.DATA_PAGE] = Field(I64, read_field(chunk.meta, ids.DATA_PAGE, I64) + moved)
    if read_field(chunk.meta, ids.DICTIONARY_PAGE, I64, 0) > 0:
        meta[ids.DICTIONARY_PAGE] = Field(I64, start)
    if bloom is not None and chunk.bloom is not None:
        meta[ids.BLOOM], meta[ids.BLOOM_BYTES] = Field(I64, bloom), Field(I32, len(chunk.bloom))
    tree = {number: field for number, field in chunk.tree.items() if number not in _INDEX_REFERENCES}
    # The offset belongs to a copy of the metadata outside the footer. 0 says that there is none.
    return {**tree, ids.CHUNK_OFFSET: Field(I64, 0), ids.META: Field(STRUCT, meta)}


def _move_index(chunk: StoredChunk, tree: Struct) -> Struct:
    """Return the chunk's ``OffsetIndex`` with the positions that its pages have in the new file."""
    meta = read_field(tree, ids.META, STRUCT)
    start = read_field(meta, ids.DICTIONARY_PAGE, I64, 0) or read_field(meta, ids.DATA_PAGE, I64)
    moved = start - chunk.start
    assert chunk.offset_index is not None  # noqa: S101  The caller has checked it.
    kind, locations = read_field(chunk.offset_index, ids.LOCATIONS, LIST)
    new = [
        {**location, ids.PAGE_OFFSET: Field(I64, read_field(location, ids.PAGE_OFFSET, I64) + moved)}
        for location in locations
    ]
    return {**chunk.offset_index, ids.LOCATIONS: Field(LIST, (kind, new))}
