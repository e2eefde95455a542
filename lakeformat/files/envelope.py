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
from collections.abc import Iterator
from typing import Any, Final

from lakeformat.errors import CorruptTableError, UnsupportedTableError
from lakeformat.files.log_block import LOG_FORMAT_VERSION, MAGIC, BlockKind, HeaderKey, LogBlock

__all__ = ["blocks_of"]

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

    A request for each block, and the bytes between blocks. Memory: two windows of 64 KiB, or the longest header.

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
            at = _next_magic(file, at)
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
    file.read(at, min(_WINDOW, end - at))  # The header, to be at hand when the window has moved on.
    back: int = _LONG.unpack(file.read(end - _LONG.size, _LONG.size))[0]
    if back != length + len(MAGIC):
        return None
    rest = file.size - end
    return end if rest < len(MAGIC) or file.read(end, len(MAGIC)) == MAGIC else None


def _next_magic(file: _Window, at: int) -> int:
    """Where the next block may start. A magic's last byte may be the first of another."""
    at += 1
    while at < file.size:
        found = file.read(at, min(_SEARCHED, file.size - at)).find(MAGIC)
        if found >= 0:
            return at + found
        at += max(min(_SEARCHED, file.size - at) - len(MAGIC) + 1, 1)
    return file.size


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
    """A file through its last two reads, each of at least `_WINDOW` bytes: a block's front and its back."""

    def __init__(self, source: Any, size: int) -> None:
        self.size = size
        self._source = source
        self._read: list[tuple[int, bytes]] = []

    def read(self, at: int, length: int) -> bytes:
        """These bytes, all of which lie in the file."""
        for start, known in reversed(self._read):
            if start <= at and at + length <= start + len(known):
                return known[at - start : at - start + length]
        wanted = min(max(length, _WINDOW), self.size - at)
        self._source.seek(at)
        data: bytes = self._source.read(wanted)
        if len(data) < length:
            raise CorruptTableError(f"a log file ends at byte {at + len(data)}, before its size; read again")
        self._read = [*self._read[-1:], (at, data)]
        return data[:length]
