"""The bucket index with consistent hashing: each partition has a ring, and clustering splits and merges its buckets.

Hudi: ``HoodieConsistentBucketIndex``, ``ConsistentBucketIdentifier``. A key belongs to the first node of the ring whose
value is at least the key's hash, the xxHash32 of its hashed fields. The ring of a new partition depends only on the
partition path and the number of buckets.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property

import mmh3
import numpy as np
import pyarrow as pa

from lakeformat.codec.key_fields import FieldRule
from lakeformat.codec.xxhash import joined_field_hashes
from lakeformat.file_system_view.hashing_rings import list_ring_folders, load_rings
from lakeformat.file_system_view.snapshot import Snapshot
from lakeformat.index.hash_index import HashIndex, find_field_rule
from lakeformat.index.port import Ints
from lakeformat.model.hashing_metadata import MOST_HASH, HashNode, HashRing, make_first_ring
from lakeformat.storage.port import Storage

__all__ = ["ConsistentIndex", "RingBuckets", "RingHash", "renew_ring"]


@dataclass(frozen=True)
class RingBuckets:
    """The buckets of one partition: the nodes of its ring, numbered by ascending value. The value can be pickled.

    Attributes:
        nodes: the nodes by ascending value.
        fields: the hashed fields of the record key.
        rule: how the fields are read from a record key.
    """

    nodes: tuple[HashNode, ...]
    fields: tuple[str, ...]
    rule: FieldRule

    @property
    def buckets(self) -> int:
        """Return the number of nodes."""
        return len(self.nodes)

    @cached_property
    def _number_of(self) -> Mapping[str, int]:
        return {node.file_id: number for number, node in enumerate(self.nodes)}

    def numbers(self, keys: pa.ChunkedArray) -> Ints:
        """Return the bucket number of each key. A hash above all nodes belongs to the first one."""
        hashes = (joined_field_hashes(keys, self.fields, self.rule) & np.uint32(MOST_HASH)).astype(np.int64)
        values = np.array([node.value for node in self.nodes], np.int64)
        return np.searchsorted(values, hashes) % len(values)

    def bucket_of(self, file_id: str) -> int | None:
        """Return the number of the node with this file id."""
        return self._number_of.get(file_id)

    def new_file_id(self, bucket: int, file_id: str) -> str:
        """Return the file id of the node, which does not depend on ``file_id``."""
        return self.nodes[bucket].file_id


@dataclass(frozen=True)
class RingHash:
    """The rings of a table. The value can be pickled.

    Attributes:
        fields: the hashed fields of the record key.
        rule: how the fields are read from a record key.
        first_buckets: number of buckets of a partition without a ring.
        rings: the rings in force by partition path.
        replaced_by: id of the write if it replaces partitions, else "".
    """

    fields: tuple[str, ...]
    rule: FieldRule
    first_buckets: int
    rings: Mapping[str, HashRing]
    replaced_by: str = ""

    def of(self, partition_path: str) -> RingBuckets:
        """Return the buckets of a partition: of its ring, or of the ring with which it will begin."""
        ring = self.rings.get(partition_path)
        if ring is None:
            ring = make_first_ring(partition_path, self.first_buckets)
        elif self.replaced_by:
            ring = renew_ring(ring, "", self.replaced_by)
        return RingBuckets(ring.nodes, self.fields, self.rule)


def renew_ring(ring: HashRing, instant: str, write_id: str) -> HashRing:
    """Return the ring of a partition after a write has replaced all its file groups. Repeated calls make the same one.

    Args:
        instant: instant time of the write.
        write_id: the write's id, from which the new file ids are derived.
    """

    def new_prefix(value: int) -> str:
        seed = f"{write_id}/{ring.partition_path}/{ring.sequence}/{value}"
        return str(uuid.UUID(int=mmh3.hash128(seed.encode(), signed=False)))

    return ring.renewed(instant, new_prefix)


@dataclass(frozen=True, slots=True)
class ConsistentIndex(HashIndex):
    """The index BUCKET with the engine CONSISTENT_HASHING. One file is read to check the hashed fields."""

    def hash(self, storage: Storage, snapshot: Snapshot, keys: Mapping[str, pa.ChunkedArray] | None = None) -> RingHash:
        """Return the rings by which the table's keys belong to buckets.

        If the keys are not known, the rings of all partitions are read.
        """
        if keys is None:
            return self.hash_partitions(storage, snapshot, {*snapshot.slices, *list_ring_folders(storage)})
        # Its keys check the settings if all other partitions are new.
        first_partition = next(iter(snapshot.slices), None)
        return self.hash_partitions(
            storage, snapshot, {*keys, *([] if first_partition is None else [first_partition])}, keys
        )

    def hash_partitions(
        self,
        storage: Storage,
        snapshot: Snapshot,
        paths: Iterable[str],
        keys: Mapping[str, pa.ChunkedArray] | None = None,
    ) -> RingHash:
        """Return the rings by which the keys of some partitions belong to buckets. Raise the errors of `locate`.

        Args:
            keys: the keys whose buckets are needed, by partition path; None if they are not known yet.
        """
        settings = self.settings
        rings = load_rings(storage, snapshot, paths, settings.replaced_by)
        hashing = RingHash(tuple(settings.hash_fields), FieldRule.HUDI_1, settings.buckets, rings)
        pieces = (
            piece
            for path, ring in rings.items()
            for piece in snapshot.slices.get(path, ())
            if piece.group.file_id in ring.file_ids
        )
        rule = find_field_rule(storage, snapshot, pieces, lambda rule: replace(hashing, rule=rule), keys)
        return replace(hashing, rule=rule or FieldRule.HUDI_1, replaced_by=settings.replaced_by)
