"""Running a plan that resizes buckets, under consistent hashing: its new rings, and which rows go to which bucket.

Hudi: ``SparkConsistentBucketClusteringExecutionStrategy``, ``HoodieSparkConsistentBucketIndex.updateLocation``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from lakeformat.codec.hashing_metadata import decode_nodes
from lakeformat.errors import CorruptTableError, UnsupportedTableError
from lakeformat.file_system_view.hashing_rings import load_rings
from lakeformat.file_system_view.snapshot import Snapshot
from lakeformat.index.consistent_hashing import ConsistentIndex, RingBuckets
from lakeformat.index.port import IndexSettings
from lakeformat.model.files import FileGroupId
from lakeformat.model.hashing_metadata import HashNode, HashRing, NodeTag
from lakeformat.model.service_plans import ClusteringGroup, ClusteringPlan
from lakeformat.services.cluster.group_source import BucketTarget, SliceToCluster
from lakeformat.services.cluster.local_rewriter import Group
from lakeformat.services.cluster.resize_plan import CHILD_NODES, PARTITION, SEQUENCE
from lakeformat.storage.port import Storage

__all__ = ["Resizing", "check_rings", "load_resizing", "new_groups_of"]


@dataclass(frozen=True, slots=True)
class Resizing:
    """What a run of a plan does.

    Attributes:
        groups: the groups to rewrite: for each new bucket, the slices that have its rows.
        rings: the rings after the resizing.
    """

    groups: tuple[Group, ...] = ()
    rings: tuple[HashRing, ...] = ()

    @property
    def file_ids(self) -> Mapping[str, str]:
        """Return a mapping of the number of each group to the file id of its bucket."""
        return {
            str(number): group.target.file_id for number, group in enumerate(self.groups) if group.target is not None
        }


def _children(group: ClusteringGroup, name: str) -> tuple[HashNode, ...]:
    """Return the nodes of a group's new buckets.

    Raises:
        CorruptTableError: the group has none, its slices are of several partitions, or the nodes cannot be read.
    """
    partitions = {piece.partition_path for piece in group.slices}
    if CHILD_NODES not in group.extra or partitions != {group.extra.get(PARTITION)}:
        raise CorruptTableError(f"clustering {name} has a group without the nodes of its partition; cancel it")
    nodes = decode_nodes(group.extra[CHILD_NODES], name=f"the plan of clustering {name}")
    made = [node for node in nodes if node.tag is NodeTag.REPLACE]
    if not made or (len(group.slices) > 1 and len(made) > 1) or any(n.tag is NodeTag.NORMAL for n in nodes):
        raise CorruptTableError(f"clustering {name} has a group that neither splits nor merges buckets; cancel it")
    return nodes


def new_groups_of(plan: ClusteringPlan, name: str) -> Mapping[FileGroupId, frozenset[FileGroupId]]:
    """Return for each file group that a plan replaces the file groups of its new buckets."""
    made_groups: dict[FileGroupId, frozenset[FileGroupId]] = {}
    for group in plan.groups:
        made = [node.file_id for node in _children(group, name) if node.tag is NodeTag.REPLACE]
        for piece in group.slices:
            made_groups[piece.group] = frozenset(FileGroupId(piece.partition_path, file_id) for file_id in made)
    return made_groups


def check_rings(storage: Storage, snapshot: Snapshot, plan: ClusteringPlan, name: str) -> Mapping[str, HashRing]:
    """Return the rings that a plan changes, by partition path.

    Raises:
        UnsupportedTableError: the plan was made for another ring than the one in force.
        CorruptTableError: the plan or the hashing metadata is damaged.
    """
    rings = load_rings(storage, snapshot, {group.extra.get(PARTITION, "") for group in plan.groups})
    for group in plan.groups:
        _children(group, name)
        ring = rings.get(group.extra[PARTITION])
        is_known = ring is not None and {piece.file_id for piece in group.slices}.issubset(ring.file_ids)
        if ring is None or not is_known or str(ring.sequence) != group.extra.get(SEQUENCE):
            raise UnsupportedTableError(
                f"clustering {name} was planned for other buckets of {storage.location}/{group.extra[PARTITION]} than "
                "it has now; cancel it, and schedule another"
            )
    return rings


def load_resizing(
    storage: Storage, snapshot: Snapshot, plan: ClusteringPlan, name: str, settings: IndexSettings
) -> Resizing:
    """Return what a run of the plan does.

    Args:
        name: instant time of the plan, which is that of the new rings.
        settings: settings of the table's index.

    Raises:
        UnsupportedTableError, CorruptTableError: the plan does not fit the table's rings.
        InvalidOptionError: the stored keys do not have the hashes of the settings' fields.
    """
    rings = check_rings(storage, snapshot, plan, name)
    hashing = ConsistentIndex(settings).hash_partitions(storage, snapshot, rings)
    live = {piece.group: piece for path in rings for piece in snapshot.slices.get(path, ())}
    groups: list[Group] = []
    children: dict[str, list[HashNode]] = {}
    for group in plan.groups:
        path, nodes = group.extra[PARTITION], _children(group, name)
        children.setdefault(path, []).extend(nodes)
        pieces = [live[piece.group] for piece in group.slices]
        slices = tuple(SliceToCluster(piece, snapshot.rewriting(piece)) for piece in pieces)
        buckets = RingBuckets(_made(nodes), hashing.fields, hashing.rule)
        groups += (Group(path, slices, target) for target in _targets(buckets))
    resized = tuple(rings[path].resized(name, nodes) for path, nodes in children.items())
    return Resizing(tuple(groups), resized)


def _made(nodes: Sequence[HashNode]) -> tuple[HashNode, ...]:
    return tuple(sorted((n for n in nodes if n.tag is NodeTag.REPLACE), key=lambda node: node.value))


def _targets(buckets: RingBuckets) -> list[BucketTarget]:
    """Return the new buckets among which the rows of a group are divided."""
    divides = buckets if buckets.buckets > 1 else None
    return [BucketTarget(node.file_id, divides, number) for number, node in enumerate(buckets.nodes)]
