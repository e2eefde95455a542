"""Small base files are read once per write: they stay in memory from the key lookup to the merge."""

from __future__ import annotations

from typing import Any, Final, cast

import pyarrow as pa

from lakeformat.model.files import BaseFileName
from lakeformat.storage.port import Storage, is_remote

__all__ = ["keep_small_files"]

#: Maximum size of a file that is kept. A larger file may be needed only in part.
_SMALL_BYTES: Final = 512 << 10
#: Maximum bytes of all kept files.
_KEPT_BYTES: Final = 64 << 20


def keep_small_files(storage: Storage) -> Storage:
    """Return a storage that reads each small base file once, and keeps it for later reads.

    Base files never change, and the memory is freed with the returned storage. A local storage itself is returned.
    """
    return cast("Storage", _KeptFiles(storage)) if is_remote(storage) else storage


class _KeptFiles:
    def __init__(self, storage: Storage) -> None:
        self._storage = storage
        self._kept: dict[str, pa.Buffer] = {}
        self._kept_bytes = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._storage, name)

    def open_input(self, path: str) -> Any:
        data = self._kept.get(path)
        if data is None:
            source = self._storage.open_input(path)
            size: int = source.size()
            is_base = BaseFileName.match(path.rpartition("/")[2]) is not None
            if not is_base or size > min(_SMALL_BYTES, _KEPT_BYTES - self._kept_bytes):
                return source
            with source:
                data = source.read_buffer()
            self._kept[path] = data
            self._kept_bytes += size
        return pa.BufferReader(data)
