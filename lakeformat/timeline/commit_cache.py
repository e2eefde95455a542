"""Completed commits in memory."""

from __future__ import annotations

import threading
from collections import OrderedDict
from typing import NamedTuple

from lakeformat.model.commit import CommitMetadata

__all__ = ["CommitCache", "CommitKey"]


class CommitKey(NamedTuple):
    """A completed file as a listing shows it: another one of the same name differs in size or time."""

    location: str
    file_name: str
    size_bytes: int
    modified_ms: int


class CommitCache:
    """Completed commits never change, so each is read once a process. Safe for threads.

    Those asked for longest ago go first. One that is larger than all may be together is not kept.

    Args:
        most_bytes: of the commits' files together.
    """

    def __init__(self, most_bytes: int) -> None:
        self._entries: OrderedDict[CommitKey, CommitMetadata] = OrderedDict()
        self._most_bytes, self._bytes = most_bytes, 0
        self._guard = threading.Lock()

    def get(self, key: CommitKey) -> CommitMetadata | None:
        """The commit, if it is kept."""
        with self._guard:
            found = self._entries.get(key)
            if found is not None:
                self._entries.move_to_end(key)
            return found

    def put(self, key: CommitKey, metadata: CommitMetadata) -> None:
        """Keep a commit."""
        with self._guard:
            if key not in self._entries and key.size_bytes <= self._most_bytes:
                self._entries[key] = metadata
                self._bytes += key.size_bytes
            while self._bytes > self._most_bytes:
                self._bytes -= self._entries.popitem(last=False)[0].size_bytes

    def forget(self, key: CommitKey) -> None:
        """Keep a commit no longer."""
        with self._guard:
            if self._entries.pop(key, None) is not None:
                self._bytes -= key.size_bytes
