"""The choice of an index class by the value of ``hoodie.index.type``."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from lakeformat.index.bloom import GlobalIndex, PartitionIndex
from lakeformat.index.bucket import BucketIndex
from lakeformat.index.consistent_hashing import ConsistentIndex
from lakeformat.index.hash_index import HashIndex
from lakeformat.index.memory import MemoryIndex
from lakeformat.index.port import Index, IndexSettings
from lakeformat.index.record_index import AutoIndex, RecordIndex
from lakeformat.model.index_type import AUTO, BUCKET, RECORD_INDEX

__all__ = ["INDEXES", "make_hash_index", "make_index"]


INDEXES: Final[Mapping[str, Callable[[IndexSettings], Index]]] = {
    AUTO.name: AutoIndex,
    "BLOOM": PartitionIndex,
    "SIMPLE": PartitionIndex,
    "GLOBAL_BLOOM": GlobalIndex,
    "GLOBAL_SIMPLE": GlobalIndex,
    "INMEMORY": MemoryIndex,
    BUCKET.name: BucketIndex,
    RECORD_INDEX.name: RecordIndex,
}


def make_index(settings: IndexSettings) -> Index:
    """Return the index of the kind in the settings."""
    return make_hash_index(settings) if settings.has_buckets else INDEXES[settings.kind](settings)


def make_hash_index(settings: IndexSettings) -> HashIndex:
    """Return the bucket index with the engine in the settings."""
    return ConsistentIndex(settings) if settings.is_consistent else BucketIndex(settings)
