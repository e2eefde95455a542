"""A cache of completed commits, so that each is read and decoded once."""

from __future__ import annotations

import threading
from collections import OrderedDict
from typing import NamedTuple

from lakeformat.model.commit import CommitMetadata

__all__ = ["CommitCache", "CommitKey"]


class CommitKey(NamedTuple):
    """The key of a completed file in the cache. A new file with the same name has another size or modification time."""

    location: str
    file_name: str
    size_bytes: int
    modified_ms: int


class CommitCache:
    """A cache of completed commits, which never change. Threads can share it.

    If the cache is full, it drops the commits that were not requested for the longest time. A commit that is larger
    than the whole cache is not stored.

    Args:
        most_bytes: Maximum total size in bytes of the commits' files.
    """

    def __init__(self, most_bytes: int) -> None:
        self._entries: OrderedDict[CommitKey, CommitMetadata] = OrderedDict()
        self._most_bytes, self._bytes = most_bytes, 0
        self._guard = threading.Lock()

    def get(self, key: CommitKey) -> CommitMetadata | None:
        """Return the commit, or None if it is not in the cache."""
        with self._guard:
            metadata = self._entries.get(key)
            if metadata is not None:
                self._entries.move_to_end(key)
            return metadata

    def put(self, key: CommitKey, metadata: CommitMetadata) -> None:
        """Add a commit to the cache."""
        with self._guard:
            if key not in self._entries and key.size_bytes <= self._most_bytes:
                self._entries[key] = metadata
                self._bytes += key.size_bytes
            while self._bytes > self._most_bytes:
                self._bytes -= self._entries.popitem(last=False)[0].size_bytes

    def forget(self, key: CommitKey) -> None:
        """Remove a commit from the cache, if it is there."""
        with self._guard:
            if self._entries.pop(key, None) is not None:
                self._bytes -= key.size_bytes
