"""Files of object stores that are open for reading."""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import Final

from lakeformat.concurrency import run_all

__all__ = ["RangedFile", "fetch_range"]

#: A larger read is split into ranges of this size in bytes, which are requested at the same time.
_RANGE_BYTES: Final = 8 << 20
_THREADS: Final = 4
#: A smaller read fetches more than it needs. So many reads of neighbouring bytes are few requests.
_LEAST_AHEAD: Final = 64 << 10
_MOST_AHEAD: Final = 4 << 20

#: A function that fetches the bytes from a start to an end.
Fetch = Callable[[int, int], bytes]


def fetch_range(fetch: Fetch, start: int, end: int) -> bytes:
    """Fetch a range of a file, in several requests at the same time if it is long."""
    if end - start <= _RANGE_BYTES:
        return fetch(start, end)
    starts = range(start, end, _RANGE_BYTES)
    return b"".join(run_all(lambda first: fetch(first, min(first + _RANGE_BYTES, end)), starts, threads=_THREADS))


class RangedFile(io.RawIOBase):
    """A seekable file that is read by ranges.

    Args:
        fetch: fetches a range.
        size: size of the file in bytes.
    """

    def __init__(self, fetch: Fetch, size: int) -> None:
        self._fetch, self._size = fetch, size
        self._position = 0
        self._ahead, self._ahead_start, self._ahead_bytes = b"", 0, _LEAST_AHEAD

    def readable(self) -> bool:
        """Tell whether the file is open for reading."""
        return True

    def seekable(self) -> bool:
        """Return whether the position can be changed."""
        return True

    def tell(self) -> int:
        """Return the position."""
        return self._position

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        """Change the position, and return it."""
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self._position, io.SEEK_END: self._size}[whence]
        self._position = max(base + offset, 0)
        return self._position

    def read(self, size: int | None = -1) -> bytes:
        """Read up to this many bytes, by default all that are left."""
        start = self._position
        end = self._size if size is None or size < 0 else min(start + size, self._size)
        if start >= end:
            return b""
        data = self._get(start, end)
        self._position = end
        return data

    def _get(self, start: int, end: int) -> bytes:
        ahead_end = self._ahead_start + len(self._ahead)
        if not (self._ahead_start <= start and end <= ahead_end):
            if end - start >= _MOST_AHEAD:
                return fetch_range(self._fetch, start, end)
            is_next = bool(self._ahead) and self._ahead_start <= start <= ahead_end
            self._ahead_bytes = min(self._ahead_bytes * 2, _MOST_AHEAD) if is_next else _LEAST_AHEAD
            # Readers of Parquet and Arrow begin at the end of the file: what is before it is needed next.
            first = min(start, max(self._size - _LEAST_AHEAD, 0)) if end == self._size else start
            self._ahead = self._fetch(first, max(end, min(start + self._ahead_bytes, self._size)))
            self._ahead_start = first
        return self._ahead[start - self._ahead_start : end - self._ahead_start]
