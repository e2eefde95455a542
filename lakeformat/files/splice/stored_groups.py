"""Row groups of a stored Parquet file, checked and ready to be copied byte for byte.

Everything that can make a copy impossible is found here, before anything is written: encryption, chunks in other files,
fields that this version does not know, offsets outside the file.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from lakeformat.files.splice import field_ids as ids
from lakeformat.files.splice.thrift_tree import (
    BINARY,
    I32,
    I64,
    LIST,
    STRUCT,
    SpliceError,
    Struct,
    parse_struct,
    read_field,
)

__all__ = [
    "MAGIC",
    "ParquetFooter",
    "StoredChunk",
    "StoredGroup",
    "find_stored_groups",
    "is_same_schema",
    "parse_footer",
    "read_footer",
]

MAGIC: Final = b"PAR1"
_ENCRYPTED: Final = b"PARE"
_TAIL_BYTES: Final = 8

#: Headers of bloom filters, and of dictionary pages, are shorter than this.
_HEADER_BYTES: Final = 256
#: The encodings that refer to a dictionary: PLAIN_DICTIONARY, RLE_DICTIONARY.
_BY_DICTIONARY: Final = frozenset({2, 8})
_DICTIONARY_PAGE_TYPE: Final = 2


@dataclass(frozen=True)
class ParquetFooter:
    """A parsed footer.

    Attributes:
        tree: the ``FileMetaData``.
        start: position of the footer in its file.
    """

    tree: Struct
    start: int

    @property
    def groups(self) -> Sequence[Struct]:
        """Return the row groups."""
        groups: Sequence[Struct] = read_field(self.tree, ids.ROW_GROUPS, LIST)[1]
        return groups

    @property
    def created_by(self) -> str:
        """Return the name and version of the writer; "" if the footer has none."""
        return str(read_field(self.tree, ids.CREATED_BY, BINARY, b"").decode("utf-8", "replace"))


@dataclass(frozen=True)
class StoredChunk:
    """A column chunk of a stored file.

    Attributes:
        tree: its ``ColumnChunk``.
        start, size: where its pages are.
        offset_index: the chunk's ``OffsetIndex``; None if it has none.
        column_index: the encoded ``ColumnIndex``; None if there is none.
        bloom: the Parquet bloom filter with its header; None if there is none.
    """

    source: Any
    tree: Struct
    start: int
    size: int
    offset_index: Struct | None
    column_index: bytes | None
    bloom: bytes | None

    @property
    def meta(self) -> Struct:
        """Return the ``ColumnMetaData``."""
        meta: Struct = read_field(self.tree, ids.META, STRUCT)
        return meta

    @property
    def plain_bytes(self) -> int:
        """Return the bytes of the pages before compression."""
        return int(read_field(self.meta, ids.PLAIN_BYTES, I64))

    @property
    def path(self) -> str:
        """Return the dotted path of the column."""
        return ".".join(part.decode() for part in read_field(self.meta, ids.PATH, LIST)[1])


@dataclass(frozen=True)
class StoredGroup:
    """A row group of a stored file.

    Attributes:
        tree: its ``RowGroup``.
        chunks: its column chunks, in the order of the columns.
    """

    tree: Struct
    chunks: tuple[StoredChunk, ...]

    @property
    def rows(self) -> int:
        """Return the row count."""
        return int(read_field(self.tree, ids.GROUP_ROWS, I64))

    @property
    def size(self) -> int:
        """Return the bytes of the pages."""
        return sum(chunk.size for chunk in self.chunks)

    @property
    def has_page_index(self) -> bool:
        """Tell whether all column chunks have an offset index."""
        return all(chunk.offset_index is not None for chunk in self.chunks)


def read_footer(source: Any) -> ParquetFooter:
    """Read the footer of a Parquet file.

    Args:
        source: a ``pyarrow.NativeFile`` at any position.
    """
    size = int(source.size())
    tail = _read(source, size - _TAIL_BYTES, _TAIL_BYTES, size)
    length = int.from_bytes(tail[:4], "little")
    if tail[4:] == _ENCRYPTED:
        raise SpliceError("the file is encrypted")
    if tail[4:] != MAGIC:
        raise SpliceError("the file is not a Parquet file")
    start = size - _TAIL_BYTES - length
    return ParquetFooter(parse_footer(_read(source, start, length, size)), start)


def parse_footer(data: bytes) -> Struct:
    """Parse the bytes of a footer, and check that every field of the file's struct is known.

    Raises:
        SpliceError: the footer is damaged, encrypted, or has fields that are not known.
    """
    tree, used = parse_struct(data)
    if tree.keys() - ids.FILE_FIELDS:
        raise SpliceError("the file is encrypted, or its footer has unknown fields")
    if used != len(data):
        raise SpliceError("the footer has more bytes than its struct")
    return tree


def is_same_schema(one: Struct, other: Struct) -> bool:
    """Tell whether two footers have the same columns in the same order, and order their statistics alike.

    Name and repetition of the root are not compared: they mean nothing.
    """
    first, second = (list(read_field(tree, ids.SCHEMA, LIST)[1]) for tree in (one, other))
    if not first or not second:
        return False
    first[0], second[0] = (
        {number: field for number, field in root.items() if number not in {ids.REPETITION, ids.NAME}}
        for root in (first[0], second[0])
    )
    return first == second and one.get(ids.COLUMN_ORDERS) == other.get(ids.COLUMN_ORDERS)


def find_stored_groups(source: Any, footer: ParquetFooter, wanted: Iterable[int]) -> dict[int, StoredGroup]:
    """Return some row groups of a file by number, ready to be copied.

    Args:
        source: the file; it stays open until the row groups are copied.

    Raises:
        SpliceError: one of them cannot be copied.
    """
    columns = sum(element.get(ids.CHILDREN) is None for element in read_field(footer.tree, ids.SCHEMA, LIST)[1])
    return {number: _find_group(source, footer, footer.groups[number], columns) for number in wanted}


def _find_group(source: Any, footer: ParquetFooter, tree: Struct, columns: int) -> StoredGroup:
    if tree.keys() - ids.GROUP_FIELDS:
        raise SpliceError("a row group has unknown fields")
    chunks = tuple(_find_chunk(source, footer, chunk) for chunk in read_field(tree, ids.COLUMNS, LIST)[1])
    if len(chunks) != columns:
        raise SpliceError("a row group does not have all columns")
    read_field(tree, ids.GROUP_ROWS, I64)
    ends = len(MAGIC)
    for chunk in sorted(chunks, key=lambda chunk: chunk.start):
        if chunk.start < ends:
            raise SpliceError("column chunks overlap")
        ends = chunk.start + chunk.size
    return StoredGroup(tree, chunks)


def _find_chunk(source: Any, footer: ParquetFooter, tree: Struct) -> StoredChunk:
    if tree.keys() - ids.CHUNK_FIELDS:
        raise SpliceError("a column chunk is encrypted, in another file, or has unknown fields")
    meta: Struct = read_field(tree, ids.META, STRUCT)
    if meta.keys() - ids.META_FIELDS:
        raise SpliceError("a column chunk has unknown fields")
    if read_field(meta, ids.INDEX_PAGE, I64, 0) > 0:
        raise SpliceError("a column chunk has index pages")
    first = read_field(meta, ids.DATA_PAGE, I64)
    dictionary = read_field(meta, ids.DICTIONARY_PAGE, I64, 0)
    start, size = dictionary if dictionary > 0 else first, read_field(meta, ids.STORED_BYTES, I64)
    read_field(meta, ids.PLAIN_BYTES, I64)
    read_field(meta, ids.PATH, LIST)
    if not (len(MAGIC) <= start <= first <= start + size <= footer.start):
        raise SpliceError("a column chunk lies outside the file")
    if dictionary <= 0 and _BY_DICTIONARY & {*read_field(meta, ids.ENCODINGS, LIST)[1]}:
        header, _ = parse_struct(_read(source, start, min(_HEADER_BYTES, size), footer.start))
        if read_field(header, 1, I32) != _DICTIONARY_PAGE_TYPE:
            raise SpliceError("the footer does not tell where a dictionary page is")
    return StoredChunk(
        source,
        tree,
        start,
        size,
        _read_offset_index(source, footer, tree, range(start, start + size)),
        _read_part(source, footer, tree, ids.COLUMN_INDEX, ids.COLUMN_INDEX_BYTES),
        _read_bloom(source, footer, meta),
    )


def _read_part(source: Any, footer: ParquetFooter, tree: Struct, offset: int, length: int) -> bytes | None:
    """Read the bytes to which two fields of a column chunk refer; None if it lacks one of them."""
    if offset not in tree or length not in tree:
        return None
    return _read(source, read_field(tree, offset, I64), read_field(tree, length, I32), footer.start)


def _read_offset_index(source: Any, footer: ParquetFooter, tree: Struct, pages: range) -> Struct | None:
    data = _read_part(source, footer, tree, ids.OFFSET_INDEX, ids.OFFSET_INDEX_BYTES)
    if data is None:
        return None
    index, used = parse_struct(data)
    locations = read_field(index, ids.LOCATIONS, LIST)[1]
    if (
        used != len(data)
        or index.keys() - ids.INDEX_FIELDS
        or any(location.keys() - ids.LOCATION_FIELDS for location in locations)
    ):
        raise SpliceError("an offset index has unknown fields")
    if any(read_field(location, ids.PAGE_OFFSET, I64) not in pages for location in locations):
        raise SpliceError("an offset index names pages outside its column chunk")
    return index


def _read_bloom(source: Any, footer: ParquetFooter, meta: Struct) -> bytes | None:
    """Read a column chunk's bloom filter. Old writers store its length in its header only."""
    start = read_field(meta, ids.BLOOM, I64, 0)
    if start <= 0:
        return None
    header, used = parse_struct(_read(source, start, min(_HEADER_BYTES, footer.start - start), footer.start))
    length = used + read_field(header, 1, I32)
    if read_field(meta, ids.BLOOM_BYTES, I32, length) != length:
        raise SpliceError("a bloom filter has two lengths")
    return _read(source, start, length, footer.start)


def _read(source: Any, start: int, length: int, end: int) -> bytes:
    if not 0 <= start <= start + length <= end:
        raise SpliceError("the footer refers to bytes outside the file")
    source.seek(start)
    data = bytes(source.read(length))
    if len(data) != length:
        raise SpliceError("the file is shorter than it was")
    return data
