"""The choice of buckets to split and to merge, under consistent hashing. Pure.

Hudi: ``BaseConsistentHashingBucketClusteringPlanStrategy``. A bucket with more bytes than the split threshold becomes
two. Neighbours on the ring with at most the bytes of the merge threshold become one. If sort columns are given, the
other buckets are rewritten, too, each by itself.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain, islice
from typing import Final

from lakeformat.codec.hashing_metadata import encode_nodes
from lakeformat.config.resolve import Options
from lakeformat.model.files import FileGroupId, FileSlice
from lakeformat.model.hashing_metadata import HashNode, HashRing, NodeTag
from lakeformat.model.service_plans import ClusteringGroup, ClusteringPlan
from lakeformat.services.cluster.plan import ClusterLimits, PartitionChoice, clustering_group

__all__ = ["CHILD_NODES", "PARTITION", "RESIZING_CLASS", "SEQUENCE", "ResizeLimits", "is_resizing", "plan_resizing"]

#: Hudi's execution class that the plans name, so that Hudi can run them.
RESIZING_CLASS: Final = (
    "org.apache.hudi.client.clustering.run.strategy.SparkConsistentBucketClusteringExecutionStrategy"
)
#: Keys of the extra metadata of a plan's group: its partition path, the nodes of its new buckets, and the sequence
#: number of the ring that they change.
PARTITION: Final = "clustering.group.partition"
CHILD_NODES: Final = "clustering.group.child.node"
SEQUENCE: Final = "clustering.group.sequence.no"


def is_resizing(plan: ClusteringPlan) -> bool:
    """Tell whether a plan resizes buckets."""
    return any(CHILD_NODES in group.extra for group in plan.groups)


@dataclass(frozen=True, slots=True)
class ResizeLimits:
    """Limits of a plan that resizes buckets.

    Attributes:
        split_bytes: a bucket with more bytes is split.
        merge_bytes: buckets are merged while each has at most this many bytes, and those merged so far, too.
        most_buckets: maximum number of buckets of a partition.
        least_buckets: minimum number of buckets of a partition.
        sorts: whether rows are sorted, so that the other buckets are rewritten, too.
        plan: limits of the plan: the number of groups, and what is said about the size of files.
    """

    split_bytes: float
    merge_bytes: float
    most_buckets: int
    least_buckets: int
    sorts: bool
    plan: ClusterLimits

    @classmethod
    def of_options(cls, options: Options, limits: ClusterLimits, *, sorts: bool) -> ResizeLimits:
        """Return the limits that the options set."""
        settings, file_bytes = options.clustering, options.write.file_bytes
        return cls(
            int(file_bytes * settings.split_threshold),
            int(file_bytes * settings.merge_threshold),
            settings.most_buckets,
            settings.least_buckets,
            sorts,
            limits,
        )


@dataclass(frozen=True, slots=True)
class _Change:
    """Buckets that are rewritten together: positions of their nodes on the ring, and the nodes that they become."""

    positions: tuple[int, ...]
    children: tuple[HashNode, ...]


def plan_resizing(
    slices: Mapping[str, Sequence[FileSlice]],
    rings: Mapping[str, HashRing],
    closed_groups: Collection[FileGroupId],
    busy_partitions: Collection[str],
    choice: PartitionChoice,
    limits: ResizeLimits,
    params: Mapping[str, str],
    location: str,
    new_prefix: Callable[[], str],
    params_of: Callable[[str], Mapping[str, str] | None] = lambda _: None,
) -> ClusteringPlan | None:
    """Plan which buckets are split, merged and sorted. Return None if nothing is worth rewriting.

    Args:
        slices: maps partition path to live file slices.
        rings: maps partition path to its ring.
        closed_groups: file groups of pending compactions, which are left out.
        busy_partitions: partitions of pending clusterings. A partition's rings follow one another, so these are left
            out.
        params: parameters to store in the plan, by Hudi's option names.
        location: the table's folder, since paths in a plan are absolute.
        new_prefix: returns the prefix of a new file id.
        params_of: returns the parameters of the clustering that committed at an instant time; None if that commit was
            not a clustering. A file that a clustering with equal parameters wrote is not sorted again.
    """

    def is_sorted(piece: FileSlice) -> bool:
        is_base = piece.base is not None and not piece.logs
        return not limits.plan.reclusters and is_base and params_of(piece.base_instant) == params

    def groups_of(path: str) -> Iterator[ClusteringGroup]:
        ring = rings.get(path)
        if ring is None or path in busy_partitions:
            return
        pieces = {
            position: piece
            for piece in slices[path]
            if piece.group not in closed_groups and (position := ring.position_of(piece.group.file_id)) is not None
        }
        for change in _changes(ring, pieces, limits, new_prefix, is_sorted):
            yield _group(ring, [pieces[place] for place in change.positions], change.children, limits.plan, location)

    groups = chain.from_iterable(groups_of(path) for path in choice.choose(slices))
    chosen = tuple(islice(groups, limits.plan.groups))
    return ClusteringPlan(chosen, RESIZING_CLASS, params) if chosen else None


def _changes(
    ring: HashRing,
    pieces: Mapping[int, FileSlice],
    limits: ResizeLimits,
    new_prefix: Callable[[], str],
    is_sorted: Callable[[FileSlice], bool],
) -> Iterator[_Change]:
    """Yield the changes of one ring: splits, then merges, then buckets that are only sorted.

    Args:
        pieces: the slices that may be rewritten, by the position of their node.
    """
    sizes = {place: pieces[place].size_bytes for place in sorted(pieces)}
    count, done = len(ring.nodes), set[int]()
    splits = limits.most_buckets - count
    for position, size in sizes.items():
        children = ring.split(position, new_prefix) if size > limits.split_bytes and splits > 0 else ()
        if children:
            splits -= 1
            count += 1
            done.add(position)
            yield _Change((position,), children)
    rest = {place: size for place, size in sizes.items() if place not in done}
    for run in _find_mergeable_runs(rest, len(ring.nodes), limits.merge_bytes, count - limits.least_buckets):
        done.update(run)
        yield _Change(run, ring.merge(run, new_prefix))
    for position in (at for at in rest if limits.sorts and at not in done and not is_sorted(pieces[at])):
        yield _Change((position,), (HashNode(ring.nodes[position].value, new_prefix(), NodeTag.REPLACE),))


def _find_mergeable_runs(
    sizes: Mapping[int, int], nodes: int, merge_bytes: float, merges: int
) -> Iterator[tuple[int, ...]]:
    """Yield runs of neighbours on a ring that are merged, each in the direction of greater hash values.

    Args:
        sizes: bytes of the buckets that may be merged, by their position on the ring, ascending.
        nodes: number of nodes of the ring.
        merges: by how many buckets the ring may shrink.
    """
    free = {position for position, size in sizes.items() if size <= merge_bytes}
    for start in sizes:
        if start not in free:
            continue
        free.discard(start)
        run, total = [start], sizes[start]
        for step in (-1, 1):
            while merges > 0 and total <= merge_bytes:
                following = (run[0 if step < 0 else -1] + step) % nodes
                if following not in free:
                    break
                free.discard(following)
                run = [following, *run] if step < 0 else [*run, following]
                total += sizes[following]
                merges -= 1
        if len(run) > 1:
            yield tuple(run)


def _group(
    ring: HashRing, pieces: Sequence[FileSlice], children: Iterable[HashNode], limits: ClusterLimits, location: str
) -> ClusteringGroup:
    """Return the entry of the plan for buckets that are rewritten together."""
    nodes = tuple(children)
    extra = {
        PARTITION: ring.partition_path,
        CHILD_NODES: encode_nodes(nodes),
        SEQUENCE: str(ring.sequence),
    }
    outputs = sum(node.tag is NodeTag.REPLACE for node in nodes)
    return replace(clustering_group(pieces, limits, location), output_file_groups=outputs, extra=extra)
