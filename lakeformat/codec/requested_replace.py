"""``<instant>.replacecommit.requested``: what a replacecommit is going to do; of a clustering, its whole plan.

Written with the writer schema of Hudi 0.15, read by field name.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from lakeformat.codec.avro_container import decode_record, encode_record
from lakeformat.codec.avro_fields import TEXT, TEXTS, VERSION, array_of, file_of, map_of, optional, record_of, required
from lakeformat.errors import CorruptTableError
from lakeformat.model.clustering import ClusteringGroup, ClusteringPlan, SliceInfo
from lakeformat.model.files import FileGroupId

__all__ = [
    "REQUESTED_REPLACE",
    "RequestedReplace",
    "decode_requested_replace",
    "encode_clustering",
    "encode_requested_replace",
]

_SLICE: Final = record_of(
    "HoodieSliceInfo",
    optional("dataFilePath", TEXT),
    optional("deltaFilePaths", TEXTS),
    required("fileId", ["null", TEXT]),
    optional("partitionPath", TEXT),
    optional("bootstrapFilePath", TEXT),
    VERSION,
)
_CLUSTERING_GROUP: Final = record_of(
    "HoodieClusteringGroup",
    optional("slices", array_of(_SLICE)),
    optional("metrics", map_of("double")),
    {"name": "numOutputFileGroups", "type": ["int", "null"], "default": 1},
    optional("extraMetadata", map_of(TEXT)),
    VERSION,
)
_CLUSTERING_STRATEGY: Final = record_of(
    "HoodieClusteringStrategy",
    optional("strategyClassName", TEXT),
    optional("strategyParams", map_of(TEXT)),
    VERSION,
)
#: Writer schema of ``<instant>.replacecommit.requested``.
REQUESTED_REPLACE: Final = file_of(
    "HoodieRequestedReplaceMetadata",
    optional("operationType", TEXT),
    optional(
        "clusteringPlan",
        record_of(
            "HoodieClusteringPlan",
            optional("inputGroups", array_of(_CLUSTERING_GROUP)),
            optional("strategy", _CLUSTERING_STRATEGY),
            optional("extraMetadata", map_of(TEXT)),
            VERSION,
            optional("preserveHoodieMetadata", "boolean"),
        ),
    ),
    optional("extraMetadata", map_of(TEXT)),
    VERSION,
)


@dataclass(frozen=True, slots=True)
class RequestedReplace:
    """What the file says. ``plan``: of a clustering, else None."""

    operation: str | None
    plan: ClusteringPlan | None = None

    @property
    def file_groups(self) -> tuple[FileGroupId, ...]:
        """The file groups that a clustering is going to replace."""
        return self.plan.file_groups if self.plan else ()


def encode_requested_replace() -> bytes:
    """The bytes of ``<instant>.replacecommit.requested`` of insert_overwrite and its kin: all fields null."""
    return encode_record(REQUESTED_REPLACE, dict.fromkeys(field["name"] for field in REQUESTED_REPLACE["fields"]))


def encode_clustering(plan: ClusteringPlan) -> bytes:
    """The bytes of ``<instant>.replacecommit.requested`` of a clustering."""
    record = {
        "operationType": "CLUSTER",
        "clusteringPlan": {
            "inputGroups": [_group_record(group) for group in plan.groups],
            "strategy": {"strategyClassName": plan.strategy_class, "strategyParams": dict(plan.params), "version": 1},
            "extraMetadata": dict(plan.extra),
            "version": 1,
            "preserveHoodieMetadata": plan.keeps_meta,
        },
        "extraMetadata": {},
        "version": 1,
    }
    return encode_record(REQUESTED_REPLACE, record)


def _group_record(group: ClusteringGroup) -> dict[str, Any]:
    slices = [
        {
            "dataFilePath": file_slice.path,
            "deltaFilePaths": list(file_slice.delta_paths),
            "fileId": file_slice.file_id,
            "partitionPath": file_slice.partition_path,
            "bootstrapFilePath": "",
            "version": 1,
        }
        for file_slice in group.slices
    ]
    return {
        "slices": slices,
        "metrics": dict(group.metrics),
        "numOutputFileGroups": group.output_file_groups,
        "extraMetadata": None,
        "version": 1,
    }


def decode_requested_replace(data: bytes, *, name: str) -> RequestedReplace | None:
    """The operation and, of a clustering, its plan.

    None for an empty file: Hudi takes it as a replacecommit like any other, but its writer may have created
    and not yet filled it, so the caller cannot know that no clustering is planned.

    Raises:
        CorruptTableError: the bytes are no such file, or the plan lacks what a run needs.
    """
    if not data:
        return None
    record = decode_record(data, REQUESTED_REPLACE, name=name)
    found = record["clusteringPlan"]
    if found is None:
        return RequestedReplace(record["operationType"])
    strategy = found["strategy"] or {}
    plan = ClusteringPlan(
        tuple(_group(group, name) for group in found["inputGroups"] or ()),
        strategy.get("strategyClassName") or "",
        strategy.get("strategyParams") or {},
        found["extraMetadata"] or {},
        keeps_meta=found["preserveHoodieMetadata"] is not False,
    )
    return RequestedReplace(record["operationType"], plan)


def _group(record: Mapping[str, Any], name: str) -> ClusteringGroup:
    slices = []
    for one in record["slices"] or ():
        if one["fileId"] is None:
            raise CorruptTableError(f"the clustering plan {name} has a file slice without file id; cancel it")
        slices.append(
            SliceInfo(
                one["partitionPath"] or "", one["fileId"], one["dataFilePath"] or "", tuple(one["deltaFilePaths"] or ())
            )
        )
    outputs = record["numOutputFileGroups"]
    return ClusteringGroup(tuple(slices), record["metrics"] or {}, 1 if outputs is None else outputs)
