"""The indexes without state: keys are looked for in the files themselves (Hudi: bloom and simple, global or not)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakeformat.index.deleted_rows import where_keys_stand, with_deleted_rows
from lakeformat.index.log_keys import with_log_keys
from lakeformat.index.port import IndexSettings, Ints, Tagged, untagged
from lakeformat.index.tagging import TagSettings, tag_files
from lakeformat.model.files import FileSlice
from lakeformat.model.record import RECORD_KEY
from lakeformat.predicate import ColumnBounds
from lakeformat.storage.port import Storage
from lakeformat.table_state.snapshot import Snapshot

__all__ = ["GlobalIndex", "PartitionIndex", "in_question", "with_slices"]

#: Of fewer files the footers are read at once.
_MANY_FILES: Final = 8


@dataclass(frozen=True, slots=True)
class PartitionIndex:
    """AUTO, BLOOM and SIMPLE: a key is looked for in its own partition (Hudi: ``HoodieBloomIndex``)."""

    settings: IndexSettings

    def locate(self, storage: Storage, snapshot: Snapshot, keys: Mapping[str, pa.ChunkedArray]) -> Mapping[str, Tagged]:
        """See `Index.locate`. Memory: that of `tag_files` for as many partitions as there are cores."""
        settings = self.settings
        narrowing = TagSettings(settings.kind, settings.use_ranges, settings.use_tree, settings.exact)
        threads = max(1, pa.cpu_count())
        # Partitions side by side, and the files of each; two pools, so that no task waits for one of its own pool.
        with ThreadPoolExecutor(threads) as outer, ThreadPoolExecutor(threads) as inner:

            def one(path: str) -> Tagged:
                slices = snapshot.slices.get(path, ())
                tagged = with_slices(in_bases(path), slices)
                tagged = with_log_keys(storage, snapshot, slices, keys[path], tagged, inner)
                told = with_deleted_rows if settings.tells_gone else where_keys_stand
                return told(storage, snapshot, keys[path], tagged)

            def in_bases(path: str) -> Tagged:
                files = snapshot.by_partition.get(path, ())
                known = snapshot.live.bounds_in(path, RECORD_KEY) if len(files) >= _MANY_FILES else None
                if known is None or not narrowing.use_ranges or len(known.minimum) != len(files):
                    return tag_files(storage, files, keys[path], narrowing, inner)
                near = in_question(known, keys[path])
                tagged = tag_files(storage, [files[at] for at in near.tolist()], keys[path], narrowing, inner)
                counts = replace(tagged.counts, files=len(files))
                return replace(tagged, files=near[tagged.files], counts=counts)

            return dict(zip(keys, outer.map(one, keys), strict=True))

    def place(self, storage: Storage, snapshot: Snapshot, keys: Mapping[str, pa.ChunkedArray]) -> Mapping[str, Tagged]:
        """See `Index.place`."""
        return untagged(keys)


def with_slices(tagged: Tagged, slices: Sequence[FileSlice]) -> Tagged:
    """The same among slices, of which those with a base file were searched."""
    at = np.array([at for at, each in enumerate(slices) if each.base is not None], np.int64)
    return replace(tagged, files=at[tagged.files], searched=tuple(slices))


def in_question(known: ColumnBounds, keys: pa.ChunkedArray) -> Ints:
    """Positions of the files whose range of keys holds any of these; files of unknown range are among them.

    Memory: a sort of the keys.
    """
    lows, highs = known.minimum.fill_null(""), known.maximum.fill_null("")
    whole = pa.concat_arrays([lows, keys.combine_chunks().cast(lows.type), highs])
    # A stable sort puts a low bound before a key that equals it, and a high one behind.
    order = np.asarray(pc.sort_indices(whole))
    is_key = (order >= len(lows)) & (order < len(lows) + len(keys))
    below = np.empty(len(whole), np.int64)
    below[order] = np.cumsum(is_key)
    hit = below[len(lows) + len(keys) :] > below[: len(lows)]
    unknown = np.asarray(pc.or_(pc.is_null(known.minimum), pc.is_null(known.maximum)))
    return np.flatnonzero(hit | unknown)


@dataclass(frozen=True, slots=True)
class GlobalIndex:
    """GLOBAL_BLOOM and GLOBAL_SIMPLE: a key is looked for in every file (Hudi: ``HoodieGlobalBloomIndex``).

    Every candidate is checked: a row must not be taken to a partition on a filter's word.
    """

    settings: IndexSettings

    def locate(self, storage: Storage, snapshot: Snapshot, keys: Mapping[str, pa.ChunkedArray]) -> Mapping[str, Tagged]:
        """See `Index.locate`."""
        kind = self.settings.kind.removeprefix("GLOBAL_")
        narrowing = TagSettings(kind, self.settings.use_ranges, self.settings.use_tree, exact=True)
        slices = tuple(snapshot.each_slice())
        with ThreadPoolExecutor(max(1, pa.cpu_count())) as pool:

            def one(column: pa.ChunkedArray) -> Tagged:
                tagged = with_slices(tag_files(storage, snapshot.files, column, narrowing, pool), slices)
                tagged = with_log_keys(storage, snapshot, slices, column, tagged, pool)
                return with_deleted_rows(storage, snapshot, column, tagged)

            return {path: one(column) for path, column in keys.items()}

    def place(self, storage: Storage, snapshot: Snapshot, keys: Mapping[str, pa.ChunkedArray]) -> Mapping[str, Tagged]:
        """See `Index.place`."""
        return untagged(keys)
