"""Files of hashing metadata, ``<instant>.hashing_meta``, and the nodes in clustering plans (JSON).

Hudi: ``HoodieConsistentHashingMetadata``, ``ConsistentHashingNode``.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any, Final

from lakeformat.codec.json_text import parse_json
from lakeformat.errors import CorruptTableError
from lakeformat.model.hashing_metadata import MOST_HASH, HashNode, HashRing, NodeTag

__all__ = ["decode_nodes", "decode_ring", "encode_nodes", "encode_ring"]

#: Version of the files' format.
_VERSION: Final = 0


def encode_ring(ring: HashRing) -> bytes:
    """Encode the ring of a partition."""
    record = {
        "version": _VERSION,
        "partitionPath": ring.partition_path,
        "instant": ring.instant,
        "numBuckets": ring.first_buckets,
        "seqNo": ring.sequence,
        "nodes": [_node_record(node) for node in ring.nodes],
    }
    return json.dumps(record, indent=2).encode()


def decode_ring(data: bytes, *, name: str) -> HashRing:
    """Decode the ring of a partition.

    Args:
        name: the file's name, for messages.

    Raises:
        CorruptTableError: the file is damaged, or of a later version.
    """
    try:
        record = parse_json(data)
        if record["version"] != _VERSION:
            raise CorruptTableError(f"{name} has version {record['version']}, which is not supported; use Apache Hudi")
        nodes = {node.value: node for node in map(_node, record["nodes"])}
        ring = HashRing(
            _text(record["partitionPath"]),
            _text(record["instant"]),
            _count(record["numBuckets"]),
            _count(record["seqNo"]),
            tuple(nodes[value] for value in sorted(nodes)),
        )
    except (KeyError, TypeError, ValueError, RecursionError) as error:
        raise _damage(name, error) from None
    if not ring.nodes:
        raise CorruptTableError(f"{name} has no nodes; restore it from a copy")
    return ring


def encode_nodes(nodes: Iterable[HashNode]) -> str:
    """Encode the nodes of a group of a clustering plan."""
    return json.dumps([_node_record(node) for node in nodes], indent=2)


def decode_nodes(text: str, *, name: str) -> tuple[HashNode, ...]:
    """Decode the nodes of a group of a clustering plan.

    Args:
        name: what the plan is called in messages.

    Raises:
        CorruptTableError: the text is damaged.
    """
    try:
        return tuple(map(_node, parse_json(text)))
    except (KeyError, TypeError, ValueError, RecursionError) as error:
        raise _damage(name, error) from None


def _damage(name: str, error: Exception) -> CorruptTableError:
    return CorruptTableError(
        f"the nodes of consistent hashing in {name} cannot be read ({error!r}); restore the file from a copy"
    )


def _node_record(node: HashNode) -> dict[str, Any]:
    return {"value": node.value, "fileIdPrefix": node.prefix or None, "tag": node.tag.value}


def _node(record: Any) -> HashNode:
    value, prefix, tag = _count(record["value"]), _text(record["fileIdPrefix"] or ""), NodeTag(record["tag"])
    if value > MOST_HASH or (not prefix and tag is not NodeTag.DELETE) or "/" in prefix or "_" in prefix:
        raise ValueError(f"node {value} {prefix}")
    return HashNode(value, prefix, tag)


def _count(value: Any) -> int:
    if type(value) is not int or value < 0:
        raise ValueError(f"{value!r} is not a number from 0 up")
    return value


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{value!r} is not a text")
    return value
