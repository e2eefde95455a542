"""The index in memory: the key columns of a table, read once per process (Hudi: ``HoodieInMemoryHashIndex``).

A base file never changes. Commits, rollbacks and cleans only change which base files a snapshot has. So each look-up
drops the key columns of files that have left the snapshot and reads those of new files. This makes the result correct
after commits of other programs, too. The keys in log files are not cached.

Memory: every key of the tables written with this index, until the process ends.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, field
from functools import partial
from typing import Final

import numpy as np
import pyarrow as pa

from lakeformat.arrow.text_order import sort_texts
from lakeformat.concurrency import thread_pool
from lakeformat.file_system_view.snapshot import Snapshot
from lakeformat.index.bloom import point_to_slices
from lakeformat.index.port import IndexSettings, TagCounts, Tagged, tag_as_new
from lakeformat.index.stored_keys import (
    KeyColumn,
    add_log_keys,
    drop_deleted_places,
    locate_keys,
    mark_deleted_rows,
    read_keys,
)
from lakeformat.model.files import BaseFile
from lakeformat.storage.port import Storage

__all__ = ["MemoryIndex"]


@dataclass
class _KeyMap:
    """The cached key columns of one table's live files. A thread must hold ``guard`` while it changes them."""

    columns: dict[BaseFile, KeyColumn] = field(default_factory=dict)
    guard: threading.Lock = field(default_factory=threading.Lock)

    def refresh(self, storage: Storage, snapshot: Snapshot, pool: Executor) -> tuple[list[BaseFile], int]:
        """Cache the key columns of the snapshot's files and drop all others.

        Return the files that were read, and the compressed size of their key columns in bytes.
        """
        files, read = snapshot.files, partial(read_keys, storage, shape=snapshot.key_shape)
        live = set(files)
        for gone in [file for file in self.columns if file not in live]:
            del self.columns[gone]
        unread = [file for file in files if file not in self.columns]
        for file, column in zip(unread, pool.map(read, unread), strict=True):
            self.columns[file] = column
        return unread, sum(self.columns[file].size_bytes for file in unread)


_MAPS: Final[dict[str, _KeyMap]] = {}
_GUARD: Final = threading.Lock()


def _find_key_map(location: str) -> _KeyMap:
    with _GUARD:
        return _MAPS.setdefault(location, _KeyMap())


@dataclass(frozen=True, slots=True)
class MemoryIndex:
    """The index INMEMORY: a key is looked up in its own partition, in memory."""

    settings: IndexSettings

    def locate(self, storage: Storage, snapshot: Snapshot, keys: Mapping[str, pa.ChunkedArray]) -> Mapping[str, Tagged]:
        """Find the file slices of keys, as `Index.locate` describes. Each slice found contains its key."""
        key_map = _find_key_map(storage.location)
        with key_map.guard, thread_pool(max(1, pa.cpu_count())) as pool:
            unread, size_bytes = key_map.refresh(storage, snapshot, pool)
            held = dict(key_map.columns)

            def locate_in(path: str) -> Tagged:
                slices, column = snapshot.slices.get(path, ()), keys[path]
                tagged = point_to_slices(_find_keys(snapshot.by_partition.get(path, ()), held, column), slices)
                tagged = add_log_keys(storage, snapshot, slices, column, tagged, pool)
                resolve_deletes = mark_deleted_rows if self.settings.finds_deleted else drop_deleted_places
                return resolve_deletes(storage, snapshot, column, tagged)

            located = {path: locate_in(path) for path in keys}
        if first := next(iter(located.values()), None):
            first.counts.add(TagCounts(files_read=len(unread), bytes_read=size_bytes))
        return located

    def place(self, storage: Storage, snapshot: Snapshot, keys: Mapping[str, pa.ChunkedArray]) -> Mapping[str, Tagged]:
        """Tag all keys as new, without a look-up."""
        return tag_as_new(keys)


def _find_keys(files: Sequence[BaseFile], held: Mapping[BaseFile, KeyColumn], keys: pa.ChunkedArray) -> Tagged:
    pairs = locate_keys([held[file] for file in files], keys)
    positions = np.concatenate([*(positions_of for positions_of, _ in pairs), np.empty(0, np.int64)])
    base_rows = np.concatenate([*(rows for _, rows in pairs), np.empty(0, np.int64)])
    in_files = np.repeat(np.arange(len(files)), [len(positions_of) for positions_of, _ in pairs])
    is_new = np.ones(len(keys), bool)
    is_new[positions] = False
    new = np.flatnonzero(is_new)
    candidates = len(keys) * len(files)
    counts = TagCounts(len(keys), len(files), candidates, candidates, candidates)
    return Tagged(positions, in_files, new[sort_texts(keys.take(pa.array(new)))], counts, base_rows=base_rows)
