"""The blocks of a log file, and the sets of row numbers that they hold.

The reader decodes the header of a block. It finds the position of the content, but does not read it.

==  =====  ======================================================================
#   bytes  what (integers are big-endian)
==  =====  ======================================================================
1   6      magic, ``#HUDI#``
2   8      size: bytes from here to the end of the block
3   4      version of this envelope, 1
4   4      kind of block
5   ..     header: count (4), then key (4), length (4) and text of each entry
6   8      length of the content
7   ..     content
8   ..     footer, in the form of the header
9   8      length of everything before this field, for reading a file from its end: size + 6
==  =====  ======================================================================

A failed write may leave part of a block, at the end of a file or before the blocks of later writers
(Hudi: ``HoodieLogFileReader.isBlockCorrupted``). The reader skips such bytes up to the next magic, because they were
never committed. A caller that knows the committed length of a file must check that the file still has that length.

A set of row numbers is a 64-bit Roaring bitmap in the portable form, as base64. Its numbers are little-endian. First
comes the number of 32-bit bitmaps (8 bytes), then each bitmap after the upper half of its numbers (4 bytes). A 32-bit
bitmap is a cookie, a table of containers (upper 16 bits and size minus one of each), the start of each container, and
the contents: 16-bit numbers, one bit for each of 65,536 numbers, or runs of numbers. Source: RoaringFormatSpec.
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
#: Version of a block's envelope (Hudi: ``HoodieLogFormatVersion``); its content has another version.
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
        """Tell whether the block holds rows or deletes, which affect a snapshot."""
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
    """One complete block.

    Attributes:
        path: Path of the block's file, relative to the table.
        offset: Position of the block in the file; the next block starts ``size_bytes`` later.
        content_offset: Position of the content in the file.
        content_bytes: Length of the content.
        header: Header key -> stored text.
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
        """Return the path and offset, for messages."""
        return f"{self.path} (block at byte {self.offset})"

    @property
    def instant_time(self) -> str:
        """Return the instant time of the action that wrote the block."""
        return self.require(HeaderKey.INSTANT_TIME)

    @property
    def is_partial(self) -> bool:
        """Tell whether the block's rows hold only some of the table's columns."""
        return self.header.get(HeaderKey.IS_PARTIAL, "false").lower() == "true"

    @property
    def compacted_times(self) -> tuple[str, ...]:
        """Return the instants whose blocks a log compaction merged into this block; empty for other blocks."""
        times = self.header.get(HeaderKey.COMPACTED_BLOCK_TIMES, "")
        return tuple(time.strip() for time in times.split(",") if time.strip())

    def require(self, key: HeaderKey) -> str:
        """Return the header's text for a key. Raise `CorruptTableError` if the header lacks the key."""
        text = self.header.get(key)
        if text is None:
            raise CorruptTableError(f"{self.name} has no {key.name}; restore the file")
        return text


_INT: Final = struct.Struct(">i")
_LONG: Final = struct.Struct(">q")
_FRONT: Final = len(MAGIC) + _LONG.size
#: Total size of fields 3 to 9 if the header, the content and the footer are empty.
_LEAST: Final = 4 * _INT.size + 2 * _LONG.size
_WINDOW: Final = 64 << 10
_SEARCHED: Final = 1 << 20
_MOST_ENTRIES: Final = 1000
#: Greatest size of a header text. The schema of a thousand columns takes some hundred kilobytes.
_MOST_HEADER: Final = 16 << 20


def parse_blocks(source: Any, path: str, size: int) -> Iterator[LogBlock]:
    """Yield the complete blocks of a file, in order; skip bytes that do not belong to a complete block.

    This reads 64 KiB, or the header if it is longer, per block, and the bytes between blocks. Memory: two such reads.

    Args:
        source: A seekable ``pyarrow.NativeFile``.
        path: Path of the file, for messages.
        size: Number of bytes of the file to read.

    Raises:
        UnsupportedTableError: The version, the kind or a header key of a block is not known.
        CorruptTableError: A block's two sizes agree, but its parts do not fit them.
    """
    file = _Window(source, size)
    at = 0
    while size - at > _FRONT:
        end = _find_block_end(file, at)
        if end is None:
            at = file.find(MAGIC, at + 1)  # The last byte of a magic may be the first byte of another one.
            continue
        yield _read_block(file, path, at, end)
        at = end


def _find_block_end(file: _Window, at: int) -> int | None:
    """Return the end of the block at ``at``; None if no block starts there or it is not complete."""
    front = file.read(at, _FRONT)
    if not front.startswith(MAGIC):
        return None
    length: int = _LONG.unpack_from(front, len(MAGIC))[0]
    end = at + _FRONT + length
    if length < _LEAST or end > file.size:
        return None
    back: int = _LONG.unpack(file.read(end - _LONG.size, _LONG.size))[0]
    if back != length + len(MAGIC):
        return None
    rest = file.size - end
    return end if rest < len(MAGIC) or file.read(end, len(MAGIC)) == MAGIC else None


def _read_block(file: _Window, path: str, at: int, end: int) -> LogBlock:
    name = f"{path} (block at byte {at})"
    fields = _Fields(file, name, at + _FRONT, end - _LONG.size)
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
    list(fields.entries())  # The footer, which no release has used.
    if fields.at != end - _LONG.size:
        raise fields.corrupt()
    return LogBlock(path, at, end - at, BlockKind(kind), start, length, header)


def encode_block(kind: BlockKind, header: Mapping[HeaderKey, str], content: bytes) -> bytes:
    """Encode a complete block."""
    entries = [(key, text.encode()) for key, text in header.items()]
    packed = [struct.pack(">ii", key, len(text)) + text for key, text in entries]
    front = struct.pack(">iii", LOG_FORMAT_VERSION, kind, len(entries)) + b"".join(packed)
    size = len(front) + _LONG.size + len(content) + _INT.size + _LONG.size
    start = MAGIC + _LONG.pack(size) + front + _LONG.pack(len(content))
    return start + content + _INT.pack(0) + _LONG.pack(size + len(MAGIC))


class _Fields:
    """A reader of a block's fields, which never reads past the block's end."""

    def __init__(self, file: _Window, name: str, at: int, end: int) -> None:
        self._file, self._name, self._end = file, name, end
        self.at = at

    def integer(self) -> int:
        """Read a 4-byte integer."""
        number: int = _INT.unpack(self._next(_INT.size))[0]
        return number

    def long(self) -> int:
        """Read an 8-byte integer."""
        number: int = _LONG.unpack(self._next(_LONG.size))[0]
        return number

    def entries(self) -> Iterator[tuple[int, str]]:
        """Read the keys and texts of a header or footer."""
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
        """Return the error for a block whose parts do not fit its size."""
        return CorruptTableError(f"{self._name} is damaged: its parts do not fit its size; restore the file")

    def _next(self, length: int) -> bytes:
        if length > self._end - self.at:
            raise self.corrupt()
        data = self._file.read(self.at, length)
        self.at += length
        return data


class _Window:
    """A file with a cache of its last two reads.

    They are the front of a block and its end; the read at the end includes the front of the next block.
    """

    def __init__(self, source: Any, size: int) -> None:
        self.size = size
        self._source = source
        self._reads: list[tuple[int, bytes]] = []

    def read(self, at: int, length: int) -> bytes:
        """Return ``length`` bytes from ``at`` on, which must all lie in the file."""
        start, data = self._read_around(at, length, _WINDOW)
        return data[at - start : at - start + length]

    def find(self, mark: bytes, at: int) -> int:
        """Return the first position of the mark from ``at`` on; the file's end if there is none."""
        while self.size - at >= len(mark):
            start, data = self._read_around(at, len(mark), _SEARCHED)
            found = data.find(mark, at - start)
            if found >= 0:
                return start + found
            at = start + len(data) - len(mark) + 1
        return self.size

    def _read_around(self, at: int, length: int, wanted: int) -> tuple[int, bytes]:
        """Return the start and the data of a read that holds ``length`` bytes from ``at`` on.

        It is one of the last two reads, or a new read of ``wanted`` bytes if that is more.
        """
        for start, data in reversed(self._reads):
            if start <= at and at + length <= start + len(data):
                return start, data
        self._source.seek(at)
        data = self._source.read(min(max(length, wanted), self.size - at))
        if len(data) < length:
            raise CorruptTableError(f"a log file ends at byte {at + len(data)}, before its size; read again")
        self._reads = [*self._reads[-1:], (at, data)]
        return at, data


Ints = npt.NDArray[np.int64]

_COOKIE: Final = 12346
_COOKIE_OF_RUNS: Final = 12347
#: An upper half that no row number has; it marks bitmaps of lakeformat.
_OURS: Final = 0x7FFFFFFF
#: Greatest number of values that a container lists; a container of more values has a bit for each number.
_MOST_LISTED: Final = 4096
_BITS: Final = 1 << 16
#: A bitmap with runs stores the starts of its containers only if it has at least this many.
_STARTS_FROM: Final = 4


@dataclass(frozen=True, slots=True)
class Positions:
    """Row numbers of a base file.

    Attributes:
        rows: Ascending row numbers.
        by_lakeformat: Whether lakeformat wrote them. Then they count in the slice's base file; see `encode_positions`.
    """

    rows: Ints
    by_lakeformat: bool


def encode_positions(positions: Ints, *, by_lakeformat: bool = False) -> str:
    """Encode ascending row numbers below 2**32.

    Args:
        by_lakeformat: Whether to append an empty bitmap as a mark. Other writers never append one, and readers ignore
            it. The mark is needed in table version 6, where no header says which base file the numbers count in: the
            numbers of other writers may count in an older base file.
    """
    uppers, starts, counts = np.unique(positions >> 16, return_index=True, return_counts=True)
    table = np.stack([uppers, counts - 1], 1).astype("<u2").tobytes()
    contents = [
        _encode_container((positions[at : at + count] & 0xFFFF).astype(np.uint16))
        for at, count in zip(starts.tolist(), counts.tolist(), strict=True)
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


def decode_positions(text: str) -> Positions | None:
    """Decode row numbers; return None if the text is not an ascending set of them."""
    try:
        data = base64.b64decode(text, validate=True)
        (count,) = struct.unpack_from("<Q", data)
        at, parts, by_lakeformat = 8, [np.empty(0, np.int64)], False
        for _ in range(count):
            (upper,) = struct.unpack_from("<I", data, at)
            if upper > _OURS:
                return None
            numbers, at = _decode_bitmap(data, at + 4)
            parts.append(numbers + (upper << 32))
            by_lakeformat = upper == _OURS and not len(numbers)
    except (binascii.Error, struct.error, ValueError, IndexError):
        return None
    numbers = np.concatenate(parts)
    return Positions(numbers, by_lakeformat) if at == len(data) and (np.diff(numbers) > 0).all() else None


def _decode_bitmap(data: bytes, at: int) -> tuple[Ints, int]:
    """Decode a 32-bit bitmap; return its numbers and its end."""
    (cookie,) = struct.unpack_from("<I", data, at)
    at += 4
    if cookie == _COOKIE:
        (count,) = struct.unpack_from("<I", data, at)
        at, has_runs = at + 4, np.zeros(count, bool)
    elif cookie & 0xFFFF == _COOKIE_OF_RUNS:
        count = (cookie >> 16) + 1
        flags = np.frombuffer(data, np.uint8, -(-count // 8), at)
        at, has_runs = at + len(flags), np.unpackbits(flags, bitorder="little")[:count].astype(bool)
    else:
        raise ValueError("not a bitmap")
    table = np.frombuffer(data, "<u2", 2 * count, at).astype(np.int64).reshape(-1, 2)
    at += table.size * 2
    if cookie == _COOKIE or count >= _STARTS_FROM:
        at += 4 * count
    parts = [np.empty(0, np.int64)]
    for (upper, less_one), runs in zip(table.tolist(), has_runs.tolist(), strict=True):
        numbers, at = _decode_runs(data, at) if runs else _decode_values(data, at, less_one + 1)
        parts.append(numbers + (upper << 16))
    return np.concatenate(parts), at


def _decode_runs(data: bytes, at: int) -> tuple[Ints, int]:
    (count,) = struct.unpack_from("<H", data, at)
    runs = np.frombuffer(data, "<u2", 2 * count, at + 2).astype(np.int64).reshape(-1, 2)
    numbers = np.repeat(runs[:, 0], runs[:, 1] + 1)
    ends = np.cumsum(runs[:, 1] + 1)
    within = np.arange(len(numbers)) - np.repeat(ends - runs[:, 1] - 1, runs[:, 1] + 1)
    return numbers + within, at + 2 + 4 * count


def _decode_values(data: bytes, at: int, count: int) -> tuple[Ints, int]:
    if count <= _MOST_LISTED:
        return np.frombuffer(data, "<u2", count, at).astype(np.int64), at + 2 * count
    flags = np.unpackbits(np.frombuffer(data, np.uint8, _BITS // 8, at), bitorder="little")
    return np.flatnonzero(flags), at + _BITS // 8
