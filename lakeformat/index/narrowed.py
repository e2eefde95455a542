"""The indexes without state: keys are looked for in the files themselves (Hudi: bloom and simple, global or not)."""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import pyarrow as pa

from lakeformat.index.port import IndexSettings, Tagged, untagged
from lakeformat.index.tagging import TagSettings, tag_files
from lakeformat.storage.port import Storage
from lakeformat.timeline.snapshot import Snapshot

__all__ = ["GlobalIndex", "PartitionIndex"]


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
                return tag_files(storage, snapshot.by_partition.get(path, ()), keys[path], narrowing, inner)

            return dict(zip(keys, outer.map(one, keys), strict=True))

    def place(self, storage: Storage, snapshot: Snapshot, keys: Mapping[str, pa.ChunkedArray]) -> Mapping[str, Tagged]:
        """See `Index.place`."""
        return untagged(keys)


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
        with ThreadPoolExecutor(max(1, pa.cpu_count())) as pool:
            return {path: tag_files(storage, snapshot.files, column, narrowing, pool) for path, column in keys.items()}

    def place(self, storage: Storage, snapshot: Snapshot, keys: Mapping[str, pa.ChunkedArray]) -> Mapping[str, Tagged]:
        """See `Index.place`."""
        return untagged(keys)
