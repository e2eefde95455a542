"""Which buckets are split, merged and sorted under consistent hashing (Hudi: ``BaseConsistentHashingBucket...``)."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakeformat.codec.hashing_metadata import decode_nodes
from lakeformat.config.resolve import resolve
from lakeformat.model.files import BaseFile, BaseFileName, FileGroupId, FileSlice
from lakeformat.model.hashing_metadata import HashRing, NodeTag, make_first_ring
from lakeformat.model.service_plans import ClusteringPlan
from lakeformat.services.cluster.plan import ClusterLimits, PartitionChoice
from lakeformat.services.cluster.resize_plan import CHILD_NODES, PARTITION, SEQUENCE, ResizeLimits, plan_resizing

TIME = "20250101000000000"
MOST_GROUPS = 1 << 20


def slices_of(ring: HashRing, sizes: Sequence[int | None]) -> list[FileSlice]:
    """Return a slice of each size for each node in turn; None for a bucket without files."""
    found = []
    for node, size in zip(ring.nodes, sizes, strict=True):
        if size is not None:
            base = BaseFile(ring.partition_path, BaseFileName(node.file_id, "0-0-0", TIME), size)
            found.append(FileSlice(FileGroupId(ring.partition_path, node.file_id), TIME, base))
    return found


def new_names() -> Iterator[str]:
    return map("new{}".format, range(1 << 20))


def plan(sizes: Sequence[int | None], **given_limits: Any) -> ClusteringPlan | None:
    """Plan one partition whose buckets have these sizes. Above 100 bytes they are split, up to 10 they are merged."""
    ring = make_first_ring("p", len(sizes))
    names, wanted = new_names(), {"most": 99, "least": 1, "sorts": False, **given_limits}
    limits = ClusterLimits(1, 1, wanted.get("groups", MOST_GROUPS), None, includes_single_files=True)
    return plan_resizing(
        {"p": slices_of(ring, sizes)},
        {"p": ring},
        wanted.get("closed", ()),
        wanted.get("busy", ()),
        PartitionChoice(),
        ResizeLimits(100, 10, wanted["most"], wanted["least"], wanted["sorts"], limits),
        {"a": "b"},
        "/t",
        lambda: next(names),
        wanted.get("params_of", lambda _: None),
    )


def described(made: ClusteringPlan | None, buckets: int) -> list[tuple[list[int], int]]:
    """Return for each group the positions of its old buckets on the ring, and the number of new ones."""
    ring = make_first_ring("p", buckets)
    found = []
    for group in made.groups if made else ():
        positions = [ring.position_of(one.file_id) for one in group.slices]
        nodes = decode_nodes(group.extra[CHILD_NODES], name="plan")
        made_nodes = [node for node in nodes if node.tag is NodeTag.REPLACE]
        assert len(made_nodes) == group.output_file_groups
        assert (group.extra[PARTITION], group.extra[SEQUENCE]) == ("p", "0")
        found.append(([at for at in positions if at is not None], len(made_nodes)))
    return found


@pytest.mark.parametrize(
    ("sizes", "limits", "expected"),
    [
        ([101, 100, 50], {}, [([0], 2)]),
        ([101, 102, 103], {"most": 4}, [([0], 2)]),
        ([101, 102], {"most": 2}, []),
        ([200], {}, [([0], 2)]),
        # Neighbours that are small, also over the end of the ring, in the order of the ring.
        ([5, 50, 50, 5], {}, [([3, 0], 1)]),
        ([5, 5, 50, 50], {}, [([0, 1], 1)]),
        ([5, 50, 5, 50], {}, []),
        ([5, 5, 5, 5], {}, [([2, 3, 0], 1)]),
        ([4, 4, 4, 4], {}, [([2, 3, 0], 1)]),
        ([1, 1, 1, 1], {}, [([1, 2, 3, 0], 1)]),
        ([1, 1, 1, 1], {"least": 3}, [([3, 0], 1)]),
        ([1, 1, 1, 1], {"least": 4}, []),
        ([11, 11], {}, []),
        # A bucket without files parts its neighbours.
        ([5, None, 5, 50], {}, []),
        # Splits give room for merges.
        ([101, 5, 5], {"least": 3}, [([0], 2), ([1, 2], 1)]),
        ([101, 5, 5, 5], {"least": 4, "most": 4}, []),
        ([101, 5, 5], {"groups": 1}, [([0], 2)]),
        ([101, 5, 5, 50], {"sorts": True}, [([0], 2), ([1, 2], 1), ([3], 1)]),
        ([50, 50], {"sorts": True, "params_of": lambda _: {"a": "b"}}, []),
        ([101], {"busy": {"p"}}, []),
        ([101, 5, 5], {"closed": {FileGroupId("p", make_first_ring("p", 3).nodes[0].file_id)}}, [([1, 2], 1)]),
    ],
)
def test_buckets_are_split_merged_and_sorted(
    sizes: list[int | None], limits: dict[str, Any], expected: list[tuple[list[int], int]]
) -> None:
    assert described(plan(sizes, **limits), len(sizes)) == expected


@given(
    st.lists(st.one_of(st.none(), st.integers(1, 300)), min_size=1, max_size=12),
    st.integers(1, 14),
    st.integers(1, 14),
    st.booleans(),
)
def test_plan_keeps_the_number_of_buckets_in_bounds(
    sizes: list[int | None], most: int, least: int, sorts: bool
) -> None:
    """No bucket is in two groups, and the ring after the plan has every hash value once."""
    made = plan(sizes, most=most, least=least, sorts=sorts)
    groups = described(made, len(sizes))
    used = [at for positions, _ in groups for at in positions]
    assert len(used) == len({*used})
    for positions, _ in groups:
        assert all((b - a) % len(sizes) == 1 for a, b in itertools.pairwise(positions))
    ring = make_first_ring("p", len(sizes))
    nodes = [
        node for group in (made.groups if made else ()) for node in decode_nodes(group.extra[CHILD_NODES], name="")
    ]
    after = ring.resized("1", nodes)
    assert len(after.nodes) == len(sizes) + sum(new - len(positions) for positions, new in groups)
    assert min(len(sizes), least) <= len(after.nodes) <= max(len(sizes), most)


def test_limits_follow_from_the_size_of_files() -> None:
    limits = ClusterLimits(1, 1, None, None, includes_single_files=True)
    found = ResizeLimits.of_options(resolve({"hoodie.parquet.max.file.size": 1000}), limits, sorts=False)
    assert (found.split_bytes, found.merge_bytes, found.most_buckets, found.least_buckets) == (2000, 200, 256, 256)
    prefix = "hoodie.bucket.index."
    given = {"split.threshold": 1.5, "merge.threshold": 0.1, "max.num.buckets": 9, "min.num.buckets": 2}
    options = {"hoodie.parquet.max.file.size": 1000, f"{prefix}num.buckets": 4}
    settings = resolve({**options, **{prefix + name: value for name, value in given.items()}})
    found = ResizeLimits.of_options(settings, limits, sorts=True)
    assert (found.split_bytes, found.merge_bytes, found.most_buckets, found.least_buckets) == (1500, 100, 9, 2)
