"""The index in memory: the key columns of a table, read once a process (Hudi: ``HoodieInMemoryHashIndex``).

What is kept belongs to file versions, and these never change: a commit of anyone, a rollback or a clean only
changes which of them a snapshot is made of. So each look-up keeps the columns of the snapshot's files, reads those
of files it has not met, and is as right after another program's commit as after one of ours.

Memory: every key of the tables written with this index, until the process ends.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Final

import numpy as np
import pyarrow as pa

from lakeformat.index.deleted_rows import where_keys_stand, with_deleted_rows
from lakeformat.index.key_columns import KeyColumn, located, read_keys
from lakeformat.index.log_keys import with_log_keys
from lakeformat.index.narrowed import with_slices
from lakeformat.index.port import IndexSettings, TagCounts, Tagged, in_key_order, untagged
from lakeformat.model.files import BaseFile
from lakeformat.storage.port import Storage
from lakeformat.table_state.snapshot import Snapshot

__all__ = ["MemoryIndex"]


@dataclass
class _KeyMap:
    """The key columns of one table's live files. ``guard``: one look-up at a time fills it."""

    columns: dict[BaseFile, KeyColumn] = field(default_factory=dict)
    guard: threading.Lock = field(default_factory=threading.Lock)

    def follow(self, storage: Storage, files: Sequence[BaseFile], pool: Executor) -> tuple[list[BaseFile], int]:
        """Keep what these files hold, and no others. Returns the files read, and the bytes."""
        live = set(files)
        for gone in [file for file in self.columns if file not in live]:
            del self.columns[gone]
        unread = [file for file in files if file not in self.columns]
        for file, column in zip(unread, pool.map(lambda file: read_keys(storage, file), unread), strict=True):
            self.columns[file] = column
        return unread, sum(self.columns[file].size_bytes for file in unread)


_MAPS: Final[dict[str, _KeyMap]] = {}
_GUARD: Final = threading.Lock()


def _map_of(location: str) -> _KeyMap:
    with _GUARD:
        return _MAPS.setdefault(location, _KeyMap())


@dataclass(frozen=True, slots=True)
class MemoryIndex:
    """INMEMORY: a key is looked for in its own partition, in memory."""

    settings: IndexSettings

    def locate(self, storage: Storage, snapshot: Snapshot, keys: Mapping[str, pa.ChunkedArray]) -> Mapping[str, Tagged]:
        """See `Index.locate`; all pairs are certain."""
        known = _map_of(storage.location)
        with known.guard, ThreadPoolExecutor(max(1, pa.cpu_count())) as pool:
            unread, size_bytes = known.follow(storage, snapshot.files, pool)
            held = dict(known.columns)

            def one(path: str) -> Tagged:
                slices, column = snapshot.slices.get(path, ()), keys[path]
                tagged = with_slices(_find(snapshot.by_partition.get(path, ()), held, column), slices)
                tagged = with_log_keys(storage, snapshot, slices, column, tagged, pool)
                told = with_deleted_rows if self.settings.tells_gone else where_keys_stand
                return told(storage, snapshot, column, tagged)

            found = {path: one(path) for path in keys}
        if first := next(iter(found.values()), None):
            first.counts.add(TagCounts(files_read=len(unread), bytes_read=size_bytes))
        return found

    def place(self, storage: Storage, snapshot: Snapshot, keys: Mapping[str, pa.ChunkedArray]) -> Mapping[str, Tagged]:
        """See `Index.place`."""
        return untagged(keys)


def _find(files: Sequence[BaseFile], held: Mapping[BaseFile, KeyColumn], keys: pa.ChunkedArray) -> Tagged:
    found = located([held[file] for file in files], keys)
    at = np.concatenate([*(each for each, _ in found), np.empty(0, np.int64)])
    base_rows = np.concatenate([*(rows for _, rows in found), np.empty(0, np.int64)])
    in_files = np.repeat(np.arange(len(files)), [len(each) for each, _ in found])
    is_new = np.ones(len(keys), bool)
    is_new[at] = False
    new = np.flatnonzero(is_new)
    candidates = len(keys) * len(files)
    counts = TagCounts(len(keys), len(files), candidates, candidates, candidates)
    return Tagged(at, in_files, new[in_key_order(keys.take(pa.array(new)))], counts, base_rows=base_rows)
