"""A storage that counts the bytes that are read."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pyarrow as pa

from lakeformat.storage import MemoryStorage

__all__ = ["CountingStorage"]


class CountingStorage(MemoryStorage):
    """A storage that counts the bytes that are read through opened files."""

    def __init__(self) -> None:
        super().__init__()
        self.bytes_read = 0

    @contextmanager
    def open_input(self, path: str) -> Iterator[Any]:
        with super().open_input(path) as source:
            yield pa.PythonFile(_Counted(source, self), "r")


class _Counted:
    closed = False

    def __init__(self, source: Any, storage: CountingStorage) -> None:
        self._source, self._storage = source, storage

    def read(self, size: int = -1) -> bytes:
        data: bytes = self._source.read(size)
        self._storage.bytes_read += len(data)
        return data

    def seek(self, to: int, whence: int = 0) -> int:
        return int(self._source.seek(to, whence))

    def tell(self) -> int:
        return int(self._source.tell())

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def flush(self) -> None:
        """Do nothing: the file is opened for reading only."""

    def close(self) -> None:
        """Do nothing: the storage closes the files that it opened."""
