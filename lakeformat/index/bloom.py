"""The indexes that look up keys in the data files themselves (Hudi: bloom and simple, global or not)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakeformat.concurrency import thread_pool
from lakeformat.file_system_view.snapshot import Snapshot
from lakeformat.index.port import IndexSettings, Ints, Tagged, tag_as_new
from lakeformat.index.stored_keys import add_log_keys, drop_deleted_places, mark_deleted_rows
from lakeformat.index.tagging import TagSettings, tag_files
from lakeformat.model.files import FileSlice
from lakeformat.model.record import RECORD_KEY
from lakeformat.predicate import ColumnBounds
from lakeformat.storage.port import Storage

__all__ = ["GlobalIndex", "PartitionIndex", "find_possible_files", "point_to_slices"]

#: If a partition has at least this many files, their key ranges are first looked up in the file index, and only the
#: footers of the files that may contain a key are read. If it has fewer, the footers of all files are read.
_MANY_FILES: Final = 8


@dataclass(frozen=True, slots=True)
class PartitionIndex:
    """The indexes BLOOM and SIMPLE: a key is looked up in its own partition (Hudi: ``HoodieBloomIndex``)."""

    settings: IndexSettings

    def locate(self, storage: Storage, snapshot: Snapshot, keys: Mapping[str, pa.ChunkedArray]) -> Mapping[str, Tagged]:
        """Find the file slices of keys, as `Index.locate` describes.

        Memory: that of `tag_files` for as many partitions at a time as there are cores.
        """
        settings = self.settings
        narrowing = TagSettings.of(storage, snapshot, settings)
        threads = max(1, pa.cpu_count())
        # Partitions run in one pool, their files in another: a task that waits for tasks of its own pool may deadlock.
        with thread_pool(threads) as outer, thread_pool(threads) as inner:

            def locate_in(path: str) -> Tagged:
                slices = snapshot.slices.get(path, ())
                tagged = point_to_slices(tag_base_files(path), slices)
                tagged = add_log_keys(storage, snapshot, slices, keys[path], tagged, inner)
                resolve_deletes = mark_deleted_rows if settings.finds_deleted else drop_deleted_places
                return resolve_deletes(storage, snapshot, keys[path], tagged)

            def tag_base_files(path: str) -> Tagged:
                files = snapshot.by_partition.get(path, ())
                bounds = snapshot.live.bounds_in(path, RECORD_KEY) if len(files) >= _MANY_FILES else None
                if bounds is None or not narrowing.use_ranges or len(bounds.minimum) != len(files):
                    return tag_files(storage, files, keys[path], narrowing, inner)
                near = find_possible_files(bounds, keys[path])
                tagged = tag_files(storage, [files[number] for number in near.tolist()], keys[path], narrowing, inner)
                counts = replace(tagged.counts, files=len(files))
                return replace(tagged, files=near[tagged.files], counts=counts)

            return dict(zip(keys, outer.map(locate_in, keys), strict=True))

    def place(self, storage: Storage, snapshot: Snapshot, keys: Mapping[str, pa.ChunkedArray]) -> Mapping[str, Tagged]:
        """Tag all keys as new, without a look-up."""
        return tag_as_new(keys)


def point_to_slices(tagged: Tagged, slices: Sequence[FileSlice]) -> Tagged:
    """Convert the positions of base files in ``tagged.files`` to positions of their slices in ``slices``.

    In ``tagged``, base files are numbered in the order of their slices. Slices without a base file have no number.
    """
    positions = np.array([number for number, piece in enumerate(slices) if piece.base is not None], np.int64)
    return replace(tagged, files=positions[tagged.files], searched=tuple(slices))


def find_possible_files(known: ColumnBounds, keys: pa.ChunkedArray) -> Ints:
    """Return the positions of the files whose key range contains any of these keys, or is unknown.

    Memory: a sorted copy of the keys.
    """
    lows, highs = known.minimum.fill_null(""), known.maximum.fill_null("")
    whole = pa.concat_arrays([lows, keys.combine_chunks().cast(lows.type), highs])
    # Bounds are inclusive: the sort is stable and the input is low bounds, keys, high bounds. So a key that equals a
    # bound sorts between the low and the high bound.
    order = np.asarray(pc.sort_indices(whole))
    is_key = (order >= len(lows)) & (order < len(lows) + len(keys))
    below = np.empty(len(whole), np.int64)
    below[order] = np.cumsum(is_key)
    hit = below[len(lows) + len(keys) :] > below[: len(lows)]
    unknown = np.asarray(pc.or_(pc.is_null(known.minimum), pc.is_null(known.maximum)))
    return np.flatnonzero(hit | unknown)


@dataclass(frozen=True, slots=True)
class GlobalIndex:
    """The indexes GLOBAL_BLOOM and GLOBAL_SIMPLE: a key is looked up in every file (Hudi: ``HoodieGlobalBloomIndex``).

    Every candidate that a filter lets through is checked in the key column: a false positive would move a row to
    another partition.
    """

    settings: IndexSettings

    def locate(self, storage: Storage, snapshot: Snapshot, keys: Mapping[str, pa.ChunkedArray]) -> Mapping[str, Tagged]:
        """Find the file slices of keys in the whole table, as `Index.locate` describes."""
        narrowing = replace(TagSettings.of(storage, snapshot, self.settings), exact=True)
        slices = tuple(snapshot.each_slice())
        with thread_pool(max(1, pa.cpu_count())) as pool:

            def locate_in(column: pa.ChunkedArray) -> Tagged:
                tagged = point_to_slices(tag_files(storage, snapshot.files, column, narrowing, pool), slices)
                tagged = add_log_keys(storage, snapshot, slices, column, tagged, pool)
                return mark_deleted_rows(storage, snapshot, column, tagged)

            return {path: locate_in(column) for path, column in keys.items()}

    def place(self, storage: Storage, snapshot: Snapshot, keys: Mapping[str, pa.ChunkedArray]) -> Mapping[str, Tagged]:
        """Tag all keys as new, without a look-up."""
        return tag_as_new(keys)
