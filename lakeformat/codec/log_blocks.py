"""Decoding and encoding of the blocks of a log file, and of the sets of row numbers in their headers.

The reader decodes only the header of a block. It returns the position of the content without reading it.

==  =====  ======================================================================
#   bytes  field (integers are big-endian)
==  =====  ======================================================================
1   6      magic, ``#HUDI#``
2   8      size: bytes from here to the end of the block
3   4      version of the block format, 1
4   4      kind of block
5   ..     header: count (4), then key (4), length (4) and text of each entry
6   8      length of the content
7   ..     content
8   ..     footer, encoded like the header
9   8      number of bytes before this field, size + 6, so that a file can be read from its end
==  =====  ======================================================================

A failed write may leave an incomplete block, at the end of a file or before the blocks of later writers
(Hudi: ``HoodieLogFileReader.isBlockCorrupted``). The reader skips its bytes up to the next magic, because they were
never committed. But a file that has lost committed bytes at its end looks the same, and its rows would be missing
without an error. So a caller that knows the committed length of a file must check that the file still has that length.

A set of row numbers is a 64-bit Roaring bitmap in the portable form, as base64. Integers in it are little-endian.
Source: RoaringFormatSpec.

- The set: the number of 32-bit bitmaps (8 bytes), then for each bitmap the upper 32 bits of its row numbers (4 bytes)
  and the bitmap itself.
- A 32-bit bitmap: a cookie, a table with an entry for each container (the upper 16 bits of its numbers, and its size
  minus one), the start of each container, and the containers.
- A container: the lower 16 bits of its numbers, as a list, as one bit for each of 65,536 numbers, or as runs.
"""

from __future__ import annotations

import base64
import binascii
import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from lakeformat.errors import CorruptTableError, UnsupportedTableError

__all__ = [
    "AVRO_CONTENT_VERSION",
    "LOG_FORMAT_VERSION",
    "MAGIC",
    "BlockKind",
    "HeaderKey",
    "LogBlock",
    "Positions",
    "decode_positions",
    "encode_block",
    "encode_positions",
    "parse_blocks",
]

MAGIC: Final = b"#HUDI#"
#: Version of the block format (Hudi: ``HoodieLogFormatVersion``). The content of a block has a version of its own.
LOG_FORMAT_VERSION: Final = 1
#: Version of the content of Avro data blocks and delete blocks (Hudi: ``HoodieLogBlock.version``).
AVRO_CONTENT_VERSION: Final = 3


class BlockKind(IntEnum):
    """The kind of a block (Hudi: ``HoodieLogBlock.HoodieLogBlockType``, by ordinal)."""

    COMMAND = 0
    DELETE = 1
    CORRUPT = 2
    AVRO_DATA = 3
    HFILE_DATA = 4
    PARQUET_DATA = 5
    CDC_DATA = 6

    @property
    def is_data_or_delete(self) -> bool:
        """Tell whether the block stores rows or deletes, so that snapshot queries must merge it."""
        return self in {BlockKind.DELETE, BlockKind.AVRO_DATA, BlockKind.PARQUET_DATA}


class HeaderKey(IntEnum):
    """A key of a block's header (Hudi: ``HoodieLogBlock.HeaderMetadataType``, by ordinal)."""

    INSTANT_TIME = 0
    TARGET_INSTANT_TIME = 1
    SCHEMA = 2
    COMMAND_BLOCK_TYPE = 3
    COMPACTED_BLOCK_TIMES = 4
    RECORD_POSITIONS = 5
    BLOCK_IDENTIFIER = 6
    IS_PARTIAL = 7
    BASE_FILE_INSTANT_TIME_OF_RECORD_POSITIONS = 8


@dataclass(frozen=True, slots=True)
class LogBlock:
    """One complete block of a log file, without its content.

    Attributes:
        path: Path of the log file, relative to the table.
        offset: Byte position of the block in the file; the next block starts ``size_bytes`` later.
        size_bytes: Size of the whole block.
        content_offset: Byte position of the content in the file.
        content_bytes: Size of the content.
        header: Maps each key in the block's header to its value as text.
    """

    path: str
    offset: int
    size_bytes: int
    kind: BlockKind
    content_offset: int
    content_bytes: int
    header: Mapping[HeaderKey, str] = field(default_factory=dict, repr=False, hash=False)

    @property
    def name(self) -> str:
        """Return a description of the block for messages: the file's path and the block's offset."""
        return f"{self.path} (block at byte {self.offset})"

    @property
    def instant_time(self) -> str:
        """Return the instant time of the action that wrote the block."""
        return self.require(HeaderKey.INSTANT_TIME)

    @property
    def is_partial(self) -> bool:
        """Tell whether the rows of the block have only some of the table's columns (partial updates)."""
        return self.header.get(HeaderKey.IS_PARTIAL, "false").lower() == "true"

    @property
    def compacted_times(self) -> tuple[str, ...]:
        """Return the instant times whose blocks a log compaction merged into this block; empty for other blocks."""
        times = self.header.get(HeaderKey.COMPACTED_BLOCK_TIMES, "")
        return tuple(time.strip() for time in times.split(",") if time.strip())

    def require(self, key: HeaderKey) -> str:
        """Return the value of a header key as text. Raise `CorruptTableError` if the block's header lacks the key."""
        text = self.header.get(key)
        if text is None:
            raise CorruptTableError(f"{self.name} has no {key.name}; restore the file")
        return text


_INT: Final = struct.Struct(">i")
_LONG: Final = struct.Struct(">q")
_FRONT: Final = len(MAGIC) + _LONG.size
#: Minimum of the size field of a block: the size of fields 3 to 9 if header, content and footer are empty.
_LEAST: Final = 4 * _INT.size + 2 * _LONG.size
_WINDOW: Final = 64 << 10
_SEARCHED: Final = 1 << 20
_MOST_ENTRIES: Final = 1000
#: Maximum size of a header text in bytes. For comparison, the schema of a thousand columns has some 100 KB.
_MOST_HEADER: Final = 16 << 20


def parse_blocks(source: Any, path: str, size: int) -> Iterator[LogBlock]:
    """Yield the complete blocks of a file in order. Skip bytes that do not belong to a complete block.

    Reads 64 KiB per block (more if the header is longer), and the skipped bytes. Memory: two such reads.

    Args:
        source: A seekable ``pyarrow.NativeFile``.
        path: Path of the file, relative to the table; it becomes `LogBlock.path`.
        size: Number of bytes from the start of the file to read.

    Raises:
        UnsupportedTableError: The version, the kind or a header key of a block is not known.
        CorruptTableError: The sizes at the start and end of a block agree, but its fields do not fit into that size.
    """
    file = _Window(source, size)
    offset = 0
    while size - offset > _FRONT:
        end = _find_block_end(file, offset)
        if end is None:
            offset = file.find(MAGIC, offset + 1)  # Search from the next byte: a magic may begin there.
            continue
        yield _read_block(file, path, offset, end)
        offset = end


def _find_block_end(file: _Window, offset: int) -> int | None:
    """Return the position after the block that starts at ``offset``, or None if no complete block starts there."""
    front = file.read(offset, _FRONT)
    if not front.startswith(MAGIC):
        return None
    length: int = _LONG.unpack_from(front, len(MAGIC))[0]
    end = offset + _FRONT + length
    if length < _LEAST or end > file.size:
        return None
    back: int = _LONG.unpack(file.read(end - _LONG.size, _LONG.size))[0]
    if back != length + len(MAGIC):
        return None
    rest = file.size - end
    return end if rest < len(MAGIC) or file.read(end, len(MAGIC)) == MAGIC else None


def _read_block(file: _Window, path: str, offset: int, end: int) -> LogBlock:
    name = f"{path} (block at byte {offset})"
    fields = _Fields(file, name, offset + _FRONT, end - _LONG.size)
    version, kind = fields.integer(), fields.integer()
    if version != LOG_FORMAT_VERSION:
        raise UnsupportedTableError(
            f"{name} is of log format version {version}, which is not supported; compact the table with Apache Hudi"
        )
    if kind not in set(BlockKind):
        raise UnsupportedTableError(f"{name} is of the unknown kind {kind}; compact the table with Apache Hudi")
    header = {}
    for key, text in fields.entries():
        if key not in set(HeaderKey):
            raise UnsupportedTableError(
                f"{name} has the unknown header key {key}, which may change its meaning; compact the table with "
                "Apache Hudi"
            )
        header[HeaderKey(key)] = text
    length = fields.long()
    start = fields.at
    if not 0 <= length <= end - start:
        raise fields.corrupt()
    fields.at += length
    list(fields.entries())  # Skip the footer, which no Hudi release has used.
    if fields.at != end - _LONG.size:
        raise fields.corrupt()
    return LogBlock(path, offset, end - offset, BlockKind(kind), start, length, header)


def encode_block(kind: BlockKind, header: Mapping[HeaderKey, str], content: bytes) -> bytes:
    """Encode a block with an empty footer."""
    entries = [(key, text.encode()) for key, text in header.items()]
    packed = [struct.pack(">ii", key, len(text)) + text for key, text in entries]
    front = struct.pack(">iii", LOG_FORMAT_VERSION, kind, len(entries)) + b"".join(packed)
    size = len(front) + _LONG.size + len(content) + _INT.size + _LONG.size
    start = MAGIC + _LONG.pack(size) + front + _LONG.pack(len(content))
    return start + content + _INT.pack(0) + _LONG.pack(size + len(MAGIC))


class _Fields:
    """A sequential reader of the fields of one block, which raises an error at the end of the block."""

    def __init__(self, file: _Window, name: str, offset: int, end: int) -> None:
        self._file, self._name, self._end = file, name, end
        self.at = offset

    def integer(self) -> int:
        """Read a 4-byte integer."""
        number: int = _INT.unpack(self._next(_INT.size))[0]
        return number

    def long(self) -> int:
        """Read an 8-byte integer."""
        number: int = _LONG.unpack(self._next(_LONG.size))[0]
        return number

    def entries(self) -> Iterator[tuple[int, str]]:
        """Read a header or footer; yield its entries ``(key, text)``."""
        count = self.integer()
        if not 0 <= count <= _MOST_ENTRIES:
            raise self.corrupt()
        for _ in range(count):
            key, length = self.integer(), self.integer()
            if not 0 <= length <= _MOST_HEADER:
                raise self.corrupt()
            try:
                yield key, self._next(length).decode()
            except UnicodeDecodeError:
                raise self.corrupt() from None

    def corrupt(self) -> CorruptTableError:
        """Return the error for a block whose fields do not fit into its size."""
        return CorruptTableError(f"{self._name} is damaged: its parts do not fit its size; restore the file")

    def _next(self, length: int) -> bytes:
        if length > self._end - self.at:
            raise self.corrupt()
        data = self._file.read(self.at, length)
        self.at += length
        return data


class _Window:
    """A file with a cache of its last two reads.

    Two are enough: the start of a block, and its end, which is read together with the start of the next block.
    """

    def __init__(self, source: Any, size: int) -> None:
        self.size = size
        self._source = source
        self._reads: list[tuple[int, bytes]] = []

    def read(self, at: int, length: int) -> bytes:
        """Return the ``length`` bytes from position ``at`` on, all of which must lie within the file."""
        start, data = self._read_around(at, length, _WINDOW)
        return data[at - start : at - start + length]

    def find(self, mark: bytes, at: int) -> int:
        """Return the first position of ``mark`` at or after ``at``; the size of the file if there is none."""
        while self.size - at >= len(mark):
            start, data = self._read_around(at, len(mark), _SEARCHED)
            place = data.find(mark, at - start)
            if place >= 0:
                return start + place
            at = start + len(data) - len(mark) + 1
        return self.size

    def _read_around(self, offset: int, length: int, least: int) -> tuple[int, bytes]:
        """Return ``(start, data)`` of a cached or new read that includes the ``length`` bytes from ``offset`` on.

        A new read starts at ``offset`` and reads at least ``least`` bytes, if the file has as many.
        """
        for start, data in reversed(self._reads):
            if start <= offset and offset + length <= start + len(data):
                return start, data
        self._source.seek(offset)
        data = self._source.read(min(max(length, least), self.size - offset))
        if len(data) < length:
            raise CorruptTableError(f"a log file ends at byte {offset + len(data)}, before its size; read again")
        self._reads = [*self._reads[-1:], (offset, data)]
        return offset, data


Ints = npt.NDArray[np.int64]

_COOKIE: Final = 12346
_COOKIE_OF_RUNS: Final = 12347
#: Upper 32 bits that no row number has. An empty bitmap with them marks sets that lakeformat wrote.
_OURS: Final = 0x7FFFFFFF
#: Maximum number of values in a container that lists them. A container of more values has a bit for each number.
_MOST_LISTED: Final = 4096
_BITS: Final = 1 << 16
#: Default for the maximum number of row numbers of a set: as many records as a block of the default size can have.
_MOST_POSITIONS: Final = 4 << 20
#: A bitmap with runs stores the starts of its containers only if it has at least this many containers.
_STARTS_FROM: Final = 4


@dataclass(frozen=True, slots=True)
class Positions:
    """The row numbers in a base file of the records that a log block updates or deletes.

    Attributes:
        rows: Ascending row numbers.
        by_lakeformat: Whether lakeformat wrote the row numbers. If so, they refer to the base file of the block's file
            slice. Row numbers of other writers may refer to an older base file.
    """

    rows: Ints
    by_lakeformat: bool


def encode_positions(positions: Ints, *, by_lakeformat: bool = False) -> str:
    """Encode ascending row numbers below 2**32 as text.

    Args:
        positions: The row numbers.
        by_lakeformat: Whether to append an empty bitmap as a mark that lakeformat wrote the set. Other writers never
            append one, and their readers ignore it. Table version 6 needs the mark, because its block headers do not
            say which base file the row numbers refer to: those of lakeformat always refer to the slice's base file,
            those of other writers may refer to an older one.
    """
    uppers, starts, counts = np.unique(positions >> 16, return_index=True, return_counts=True)
    table = np.stack([uppers, counts - 1], 1).astype("<u2").tobytes()
    contents = [
        _encode_container((positions[start : start + count] & 0xFFFF).astype(np.uint16))
        for start, count in zip(starts.tolist(), counts.tolist(), strict=True)
    ]
    first = 8 + len(table) + 4 * len(contents)
    places = np.cumsum([first, *map(len, contents)])[:-1].astype("<u4").tobytes()
    whole = struct.pack("<II", _COOKIE, len(contents)) + table + places + b"".join(contents)
    mark = struct.pack("<III", _OURS, _COOKIE, 0) if by_lakeformat else b""
    return base64.b64encode(struct.pack("<QI", 2 if by_lakeformat else 1, 0) + whole + mark).decode()


def _encode_container(numbers: npt.NDArray[np.uint16]) -> bytes:
    if len(numbers) <= _MOST_LISTED:
        return numbers.astype("<u2").tobytes()
    flags = np.zeros(_BITS, np.uint8)
    flags[numbers] = 1
    return np.packbits(flags, bitorder="little").tobytes()


def decode_positions(text: str, *, most: int = _MOST_POSITIONS, name: str = "a set of row numbers") -> Positions | None:
    """Decode a set of row numbers. Return None if the text is not such a set, or the numbers are not ascending.

    A few bytes can stand for 65,536 numbers. So the numbers are counted before any of them is unpacked.

    Args:
        text: The set as base64.
        most: Maximum number of row numbers; for a block, its number of records.
        name: What the set belongs to, for messages.

    Raises:
        CorruptTableError: The set has more than ``most`` row numbers.
    """
    try:
        data = base64.b64decode(text, validate=True)
        (count,) = struct.unpack_from("<Q", data)
        offset, parts, by_lakeformat = 8, [np.empty(0, np.int64)], False
        for _ in range(count):
            (upper,) = struct.unpack_from("<I", data, offset)
            if upper > _OURS:
                return None
            table, has_runs, offset = _read_containers(data, offset + 4)
            most -= int(table[:, 1].sum()) + len(table)
            if most < 0:
                raise CorruptTableError(f"{name} has more row numbers than records; restore the file")
            for (high, less_one), runs in zip(table.tolist(), has_runs.tolist(), strict=True):
                numbers, offset = _decode_container(data, offset, less_one + 1, runs=runs)
                parts.append(numbers + (upper << 32 | high << 16))
            by_lakeformat = upper == _OURS and not len(table)
    except (binascii.Error, struct.error, ValueError, IndexError):
        return None
    numbers = np.concatenate(parts)
    return Positions(numbers, by_lakeformat) if offset == len(data) and (np.diff(numbers) > 0).all() else None


def _read_containers(data: bytes, offset: int) -> tuple[Ints, npt.NDArray[np.bool_], int]:
    """Read the start of the 32-bit bitmap at position ``offset``.

    Return the table of its containers, which of them have runs, and the position of the first container.
    """
    (cookie,) = struct.unpack_from("<I", data, offset)
    offset += 4
    if cookie == _COOKIE:
        (count,) = struct.unpack_from("<I", data, offset)
        if count > _BITS:
            raise ValueError("a bitmap has more containers than upper bits")
        offset, has_runs = offset + 4, np.zeros(count, bool)
    elif cookie & 0xFFFF == _COOKIE_OF_RUNS:
        count = (cookie >> 16) + 1
        flags = np.frombuffer(data, np.uint8, -(-count // 8), offset)
        offset, has_runs = offset + len(flags), np.unpackbits(flags, bitorder="little")[:count].astype(bool)
    else:
        raise ValueError("not a bitmap")
    table = np.frombuffer(data, "<u2", 2 * count, offset).astype(np.int64).reshape(-1, 2)
    offset += table.size * 2
    return table, has_runs, offset + 4 * count if cookie == _COOKIE or count >= _STARTS_FROM else offset


def _decode_container(data: bytes, offset: int, count: int, *, runs: bool) -> tuple[Ints, int]:
    """Decode the lower bits of the ``count`` numbers of a container; return them and the position after it."""
    numbers, offset = _decode_runs(data, offset, count) if runs else _decode_values(data, offset, count)
    if len(numbers) != count:
        raise ValueError("a container has not as many numbers as its bitmap says")
    return numbers, offset


def _decode_runs(data: bytes, offset: int, numbers_in_all: int) -> tuple[Ints, int]:
    (count,) = struct.unpack_from("<H", data, offset)
    runs = np.frombuffer(data, "<u2", 2 * count, offset + 2).astype(np.int64).reshape(-1, 2)
    if int(runs[:, 1].sum()) + count != numbers_in_all:
        raise ValueError("a container has not as many numbers as its bitmap says")
    numbers = np.repeat(runs[:, 0], runs[:, 1] + 1)
    ends = np.cumsum(runs[:, 1] + 1)
    within = np.arange(len(numbers)) - np.repeat(ends - runs[:, 1] - 1, runs[:, 1] + 1)
    return numbers + within, offset + 2 + 4 * count


def _decode_values(data: bytes, offset: int, count: int) -> tuple[Ints, int]:
    if count <= _MOST_LISTED:
        return np.frombuffer(data, "<u2", count, offset).astype(np.int64), offset + 2 * count
    flags = np.unpackbits(np.frombuffer(data, np.uint8, _BITS // 8, offset), bitorder="little")
    return np.flatnonzero(flags), offset + _BITS // 8
