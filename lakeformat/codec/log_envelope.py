"""The blocks of a log file: headers are read, contents are only located.

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
8   ..     footer, made as the header
9   8      length of all before it, so that a file can be read from its end: size + 6
==  =====  ======================================================================

A write that failed may leave half a block behind, at the end of a file or, where others wrote on, before their blocks
(Hudi: ``HoodieLogFileReader.isBlockCorrupted``). Such bytes are passed over up to the next magic. They were never
committed: whoever knows how long a file was when it was committed must see that it still is.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping
from typing import Any, Final

from lakeformat.codec.log_block import LOG_FORMAT_VERSION, MAGIC, BlockKind, HeaderKey, LogBlock
from lakeformat.errors import CorruptTableError, UnsupportedTableError

__all__ = ["block_bytes", "blocks_of"]

_INT: Final = struct.Struct(">i")
_LONG: Final = struct.Struct(">q")
_FRONT: Final = len(MAGIC) + _LONG.size
#: Fields 3 to 9 with nothing in them.
_LEAST: Final = 4 * _INT.size + 2 * _LONG.size
_WINDOW: Final = 64 << 10
_SEARCHED: Final = 1 << 20
_MOST_ENTRIES: Final = 1000
#: A header holds a schema: of a thousand columns, some hundred kilobytes.
_MOST_HEADER: Final = 16 << 20


def blocks_of(source: Any, path: str, size: int) -> Iterator[LogBlock]:
    """The whole blocks of a file, in order; what is no block is passed over.

    One read for each block, of 64 KiB or its header, and the bytes between blocks. Memory: two such reads.

    Args:
        source: a seekable ``pyarrow.NativeFile``.
        path: of the file, for messages.
        size: bytes of the file that count.

    Raises:
        UnsupportedTableError: a block is of a version, a kind or with a header key that is not known.
        CorruptTableError: a block is whole by its two sizes, but not inside.
    """
    file = _Window(source, size)
    at = 0
    while size - at > _FRONT:
        end = _end_of_block(file, at)
        if end is None:
            at = file.find(MAGIC, at + 1)  # A magic's last byte may be the first of another.
            continue
        yield _block(file, path, at, end)
        at = end


def _end_of_block(file: _Window, at: int) -> int | None:
    """Where the block that starts here ends; None if none starts here, or it is not whole."""
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


def _block(file: _Window, path: str, at: int, end: int) -> LogBlock:
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
        raise fields.damaged()
    fields.at += length
    list(fields.entries())  # The footer, so far always empty.
    if fields.at != end - _LONG.size:
        raise fields.damaged()
    return LogBlock(path, at, end - at, BlockKind(kind), start, length, header)


def block_bytes(kind: BlockKind, header: Mapping[HeaderKey, str], content: bytes) -> bytes:
    """A whole block: the inverse of `blocks_of`."""
    entries = [(key, text.encode()) for key, text in header.items()]
    packed = [struct.pack(">ii", key, len(text)) + text for key, text in entries]
    front = struct.pack(">iii", LOG_FORMAT_VERSION, kind, len(entries)) + b"".join(packed)
    size = len(front) + _LONG.size + len(content) + _INT.size + _LONG.size
    start = MAGIC + _LONG.pack(size) + front + _LONG.pack(len(content))
    return start + content + _INT.pack(0) + _LONG.pack(size + len(MAGIC))


class _Fields:
    """Reads field by field, never past the block's end."""

    def __init__(self, file: _Window, name: str, at: int, end: int) -> None:
        self._file, self._name, self._end = file, name, end
        self.at = at

    def integer(self) -> int:
        number: int = _INT.unpack(self._next(_INT.size))[0]
        return number

    def long(self) -> int:
        number: int = _LONG.unpack(self._next(_LONG.size))[0]
        return number

    def entries(self) -> Iterator[tuple[int, str]]:
        count = self.integer()
        if not 0 <= count <= _MOST_ENTRIES:
            raise self.damaged()
        for _ in range(count):
            key, length = self.integer(), self.integer()
            if not 0 <= length <= _MOST_HEADER:
                raise self.damaged()
            try:
                yield key, self._next(length).decode()
            except UnicodeDecodeError:
                raise self.damaged() from None

    def damaged(self) -> CorruptTableError:
        return CorruptTableError(f"{self._name} is damaged: its parts do not fit its size; restore the file")

    def _next(self, length: int) -> bytes:
        if length > self._end - self.at:
            raise self.damaged()
        found = self._file.read(self.at, length)
        self.at += length
        return found


class _Window:
    """A file through its last two reads: of a block's front, and of its back, which reaches the next one's front."""

    def __init__(self, source: Any, size: int) -> None:
        self.size = size
        self._source = source
        self._reads: list[tuple[int, bytes]] = []

    def read(self, at: int, length: int) -> bytes:
        """These bytes, all of which lie in the file."""
        start, data = self._holding(at, length, _WINDOW)
        return data[at - start : at - start + length]

    def find(self, mark: bytes, at: int) -> int:
        """Where the mark is found first, from ``at`` on; the file's end, if nowhere."""
        while self.size - at >= len(mark):
            start, data = self._holding(at, len(mark), _SEARCHED)
            found = data.find(mark, at - start)
            if found >= 0:
                return start + found
            at = start + len(data) - len(mark) + 1
        return self.size

    def _holding(self, at: int, length: int, wanted: int) -> tuple[int, bytes]:
        """A read that holds these bytes, and where it starts."""
        for start, data in reversed(self._reads):
            if start <= at and at + length <= start + len(data):
                return start, data
        self._source.seek(at)
        found: bytes = self._source.read(min(max(length, wanted), self.size - at))
        if len(found) < length:
            raise CorruptTableError(f"a log file ends at byte {at + len(found)}, before its size; read again")
        self._reads = [*self._reads[-1:], (at, found)]
        return at, found
