"""Consistent hashing: the ring of hash values that divides a partition's record keys among its file groups.

Each node of the ring owns the hash values up to its own value, down to the value of the node before it. The first node
also owns all values above the last node. A resizing splits nodes and merges neighbours, and each new node is a new file
group. Hudi: ``HoodieConsistentHashingMetadata``, ``ConsistentHashingNode``, ``ConsistentBucketIdentifier``.
"""

from __future__ import annotations

import enum
import hashlib
import uuid
from bisect import bisect_left
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Final

from lakeformat.errors import CorruptTableError

__all__ = ["FIRST_INSTANT", "MOST_BUCKETS", "MOST_HASH", "HashNode", "HashRing", "NodeTag", "make_first_ring"]

#: Instant of the ring with which a partition begins. No commit has it.
FIRST_INSTANT: Final = "00000000000000"
#: Maximum number of buckets of a partition, for a bucket index of any engine. Numbers in options and files are compared
#: with it, because they decide how many counters and nodes are in memory.
MOST_BUCKETS: Final = 100_000
#: The greatest hash value. Hash values have 31 bits.
MOST_HASH: Final = 0x7FFF_FFFF


class NodeTag(enum.Enum):
    """What a node of a plan does to the ring: replace the node of the same value (or add it), or delete it."""

    NORMAL = "NORMAL"
    REPLACE = "REPLACE"
    DELETE = "DELETE"


@dataclass(frozen=True, slots=True)
class HashNode:
    """A node of the ring: one bucket, which is one file group.

    Attributes:
        value: the greatest hash value of the bucket.
        prefix: the file id of the bucket's file group, without its last number; "" if a plan deletes the node.
    """

    value: int
    prefix: str
    tag: NodeTag = NodeTag.NORMAL

    @property
    def file_id(self) -> str:
        """Return the file id of the bucket's file group."""
        return f"{self.prefix}-0"


@dataclass(frozen=True, slots=True)
class HashRing:
    """The ring of one partition, as one file of hashing metadata stores it.

    Attributes:
        instant: the commit that made the ring; `FIRST_INSTANT` for the ring with which the partition began.
        first_buckets: number of buckets with which the partition began.
        sequence: number of rings before this one.
        nodes: the nodes by ascending value; at least one.
    """

    partition_path: str
    instant: str
    first_buckets: int
    sequence: int
    nodes: tuple[HashNode, ...]

    @property
    def file_ids(self) -> tuple[str, ...]:
        """Return the file id of each node."""
        return tuple(node.file_id for node in self.nodes)

    def position_of(self, file_id: str) -> int | None:
        """Return the position of the node with this file id; None if the ring has none."""
        return next((number for number, node in enumerate(self.nodes) if node.file_id == file_id), None)

    def split(self, at: int, new_prefix: Callable[[], str]) -> tuple[HashNode, ...]:
        """Return the two nodes that replace a node when its bucket is split in the middle of its hash values.

        Return an empty tuple if the bucket has too few hash values to be split.
        """
        node, before = self.nodes[at], self.nodes[at - 1]
        width = node.value - before.value
        if width <= 0:  # The bucket begins at the end of the ring.
            width += MOST_HASH + 1
        middle = (before.value + width // 2) & MOST_HASH
        if middle in {before.value, node.value}:
            return ()
        values = middle, node.value
        return tuple(HashNode(value, new_prefix(), NodeTag.REPLACE) for value in values)

    def merge(self, positions: Sequence[int], new_prefix: Callable[[], str]) -> tuple[HashNode, ...]:
        """Return the nodes that make one bucket of several neighbours: each but the last is deleted.

        Args:
            positions: positions of the nodes, each followed by its neighbour with greater values.
        """
        *gone, last = (self.nodes[position] for position in positions)
        return (
            *(HashNode(node.value, "", NodeTag.DELETE) for node in gone),
            HashNode(last.value, new_prefix(), NodeTag.REPLACE),
        )

    def resized(self, instant: str, children: Iterable[HashNode]) -> HashRing:
        """Return the ring after a resizing.

        Args:
            instant: instant time of the resizing.
            children: the nodes of its plan.

        Raises:
            CorruptTableError: no node is left.
        """
        nodes = {node.value: node for node in self.nodes}
        for child in children:
            if child.tag is NodeTag.DELETE:
                nodes.pop(child.value, None)
            else:
                nodes[child.value] = HashNode(child.value, child.prefix)
        if not nodes:
            raise CorruptTableError(
                f"clustering {instant} removes every bucket of the partition {self.partition_path!r}; cancel it"
            )
        ordered = tuple(nodes[value] for value in sorted(nodes))
        return replace(self, instant=instant, sequence=self.sequence + 1, nodes=ordered)

    def renewed(self, instant: str, new_prefix: Callable[[int], str]) -> HashRing:
        """Return a ring with the same hash values in which every bucket is a new file group.

        Args:
            new_prefix: function that returns the new prefix of a node, from its value.
        """
        nodes = tuple(HashNode(node.value, new_prefix(node.value)) for node in self.nodes)
        return replace(self, instant=instant, sequence=self.sequence + 1, nodes=nodes)

    def owner_of(self, value: int) -> HashNode:
        """Return the node that owns a hash value."""
        position = bisect_left(self.nodes, value, key=lambda node: node.value)
        return self.nodes[position % len(self.nodes)]


def make_first_ring(partition_path: str, buckets: int) -> HashRing:
    """Return the ring with which a partition begins. It depends on nothing else, so all writers make the same one.

    >>> make_first_ring("a", 2).file_ids[0]
    'cd524024-9cdd-3644-b9b2-3dd0a5f000e3-0'
    """
    step = (MOST_HASH + buckets - 1) // buckets
    ends = [min(step * number, MOST_HASH) for number in range(1, buckets + 1)]
    starts = [0, *ends[:-1]]
    nodes = {
        end: HashNode(end, _first_prefix(partition_path, *bounds))
        for *bounds, end in zip(starts, ends, ends, strict=True)
    }
    return HashRing(partition_path, FIRST_INSTANT, buckets, 0, tuple(nodes[end] for end in sorted(nodes)))


def _first_prefix(partition_path: str, start: int, end: int) -> str:
    """Return the prefix of a first node: Java's ``UUID.nameUUIDFromBytes`` of its bounds and the partition path."""
    name = start.to_bytes(8, "big") + end.to_bytes(8, "big") + partition_path.encode()
    return str(uuid.UUID(bytes=hashlib.md5(name, usedforsecurity=False).digest(), version=3))
