"""Small base files are read once per write: they stay in memory from the key lookup to the merge."""

from __future__ import annotations

from typing import Any, Final, cast

import pyarrow as pa

from lakeformat.file_system_view.snapshot import Snapshot
from lakeformat.storage.port import Storage

__all__ = ["keep_small_files"]

#: Maximum size of a file that is read by one request and kept. A larger file may be needed only in part.
_SMALL_BYTES: Final = 512 << 10
#: Maximum bytes of all kept files.
_KEPT_BYTES: Final = 64 << 20


def keep_small_files(storage: Storage, snapshot: Snapshot) -> Storage:
    """Return a storage that reads each small base file of the snapshot by one request, and keeps it for later reads.

    Base files never change, and the memory is freed with the returned storage. On storage with locks, which is local,
    the storage itself is returned.
    """
    if storage.has_lock:
        return storage
    bases = (piece.base for piece in snapshot.each_slice() if piece.base is not None)
    small = frozenset(base.path for base in bases if 0 < base.size_bytes <= _SMALL_BYTES)
    return cast("Storage", _KeptFiles(storage, small))


class _KeptFiles:
    def __init__(self, storage: Storage, small: frozenset[str]) -> None:
        self._storage, self._small = storage, small
        self._kept: dict[str, bytes] = {}
        self._kept_bytes = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._storage, name)

    def open_input(self, path: str) -> Any:
        if path not in self._small:
            return self._storage.open_input(path)
        data = self._kept.get(path)
        if data is None:
            data = self._storage.read(path)
            if self._kept_bytes + len(data) <= _KEPT_BYTES:
                self._kept[path] = data
                self._kept_bytes += len(data)
        return pa.BufferReader(data)
