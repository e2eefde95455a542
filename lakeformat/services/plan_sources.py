"""The files that the plans of services name beside skeletons: Apache Hudi needs them to carry out such a plan."""

from __future__ import annotations

from dataclasses import replace

from lakeformat.files.skeletons import find_source, is_skeleton
from lakeformat.model.files import join_path
from lakeformat.model.service_plans import ClusteringPlan, CompactionPlan
from lakeformat.storage.port import Storage

__all__ = ["name_clustered_sources", "name_compacted_sources"]


def name_compacted_sources(storage: Storage, plan: CompactionPlan) -> CompactionPlan:
    """Return the plan with the file of the other columns of each base file that is a skeleton."""
    operations = (
        replace(operation, source=_source(storage, operation.partition_path, operation.base_name))
        if is_skeleton(operation.base_name)
        else operation
        for operation in plan.operations
    )
    return replace(plan, operations=tuple(operations))


def name_clustered_sources(storage: Storage, plan: ClusteringPlan) -> ClusteringPlan:
    """Return the plan with the file of the other columns of each base file that is a skeleton."""
    groups = []
    for group in plan.groups:
        slices = (
            replace(piece, source=_source(storage, piece.partition_path, piece.name))
            if is_skeleton(piece.name)
            else piece
            for piece in group.slices
        )
        groups.append(replace(group, slices=tuple(slices)))
    return replace(plan, groups=tuple(groups))


def _source(storage: Storage, partition_path: str, name: str) -> str:
    return find_source(storage, join_path(partition_path, name))
