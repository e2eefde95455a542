"""The choice of an index class by the value of ``hoodie.index.type``."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from lakeformat.index.bloom import GlobalIndex, PartitionIndex
from lakeformat.index.bucket import BucketIndex
from lakeformat.index.consistent_hashing import ConsistentIndex
from lakeformat.index.hash_index import HashIndex
from lakeformat.index.memory import MemoryIndex
from lakeformat.index.port import RECORD_INDEX, Index, IndexSettings
from lakeformat.index.record_index import AutoIndex, RecordIndex

__all__ = ["INDEXES", "make_hash_index", "make_index"]


INDEXES: Final[Mapping[str, Callable[[IndexSettings], Index]]] = {
    "AUTO": AutoIndex,
    "BLOOM": PartitionIndex,
    "SIMPLE": PartitionIndex,
    "GLOBAL_BLOOM": GlobalIndex,
    "GLOBAL_SIMPLE": GlobalIndex,
    "INMEMORY": MemoryIndex,
    "BUCKET": BucketIndex,
    RECORD_INDEX: RecordIndex,
}


def make_index(settings: IndexSettings) -> Index:
    """Return the index of the kind in the settings."""
    return make_hash_index(settings) if settings.has_buckets else INDEXES[settings.kind](settings)


def make_hash_index(settings: IndexSettings) -> HashIndex:
    """Return the bucket index with the engine in the settings."""
    return ConsistentIndex(settings) if settings.is_consistent else BucketIndex(settings)
