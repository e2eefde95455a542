"""Files with the plans of compactions and clusterings.

The plan of a compaction or log compaction is the file ``<instant>.compaction.requested`` or
``<instant>.logcompaction.requested``. The plan of a clustering is in the file ``<instant>.replacecommit.requested``.
Replacecommits that are not clusterings have this file too, but without a plan. The file is written with the schema of
Hudi 0.15, which serves every release because readers look up its fields by name.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from lakeformat.codec.avro.container import (
    TEXT,
    TEXTS,
    VERSION,
    array_schema,
    decode_record,
    encode_record,
    file_schema,
    map_schema,
    nested_record_schema,
    optional_field,
    required_field,
)
from lakeformat.errors import CorruptTableError
from lakeformat.model.files import FileGroupId
from lakeformat.model.service_plans import (
    ClusteringGroup,
    ClusteringPlan,
    CompactionOperation,
    CompactionPlan,
    SliceInfo,
)

__all__ = [
    "COMPACTION_PLAN",
    "REQUESTED_REPLACE",
    "RequestedReplace",
    "decode_compaction_plan",
    "decode_requested_replace",
    "encode_clustering",
    "encode_compaction_plan",
    "encode_requested_replace",
]

_OPERATION: Final = nested_record_schema(
    "HoodieCompactionOperation",
    {"name": "baseInstantTime", "type": ["null", TEXT]},
    optional_field("deltaFilePaths", TEXTS),
    optional_field("dataFilePath", TEXT),
    {"name": "fileId", "type": ["null", TEXT]},
    optional_field("partitionPath", TEXT),
    optional_field("metrics", map_schema("double")),
    optional_field("bootstrapFilePath", TEXT),
)
_STRATEGY: Final = nested_record_schema(
    "HoodieCompactionStrategy",
    optional_field("compactorClassName", TEXT),
    optional_field("strategyParams", map_schema(TEXT)),
    VERSION,
)
_FIELDS: Final = (
    optional_field("operations", array_schema(_OPERATION)),
    optional_field("extraMetadata", map_schema(TEXT)),
    VERSION,
    optional_field("strategy", _STRATEGY),
    {"name": "preserveHoodieMetadata", "type": ["boolean", "null"], "default": False},
)
#: Writer schema of a compaction plan in timeline layout 1, with the fields in Hudi's order.
COMPACTION_PLAN: Final = file_schema("HoodieCompactionPlan", *_FIELDS)
#: Writer schema of a compaction plan in timeline layout 2, which has one more field.
_PLAN_2: Final = file_schema("HoodieCompactionPlan", *_FIELDS, optional_field("missingSchedulePartitions", TEXTS))
#: Version of plans that store bare file names and not absolute paths
#: (Hudi: ``CompactionUtils.LATEST_COMPACTION_METADATA_VERSION``).
_NAMES_VERSION: Final = 2
#: Key of ``extraMetadata`` that marks the plan of an automatic compaction.
_AUTO: Final = "lakeformat.compact.auto"


def encode_compaction_plan(plan: CompactionPlan, *, missing_partitions: bool) -> bytes:
    """Encode the plan of a compaction or log compaction.

    Args:
        plan: The plan.
        missing_partitions: Whether to write the field ``missingSchedulePartitions``, which Hudi has from 1.1 on. It
            must be true for timeline layout 2.
    """
    record = {
        "operations": [_record(operation) for operation in plan.operations],
        "extraMetadata": {_AUTO: "true"} if plan.is_auto else {},
        "version": _NAMES_VERSION,
        "strategy": None,
        "preserveHoodieMetadata": False,
    }
    if missing_partitions:
        return encode_record(_PLAN_2, {**record, "missingSchedulePartitions": []})
    return encode_record(COMPACTION_PLAN, record)


def _record(operation: CompactionOperation) -> dict[str, Any]:
    return {
        "baseInstantTime": operation.base_instant,
        "deltaFilePaths": list(operation.log_names),
        "dataFilePath": operation.base_name or None,
        "fileId": operation.file_id,
        "partitionPath": operation.partition_path,
        "metrics": dict(operation.metrics),
        "bootstrapFilePath": operation.source or None,
    }


def decode_compaction_plan(data: bytes, *, name: str) -> CompactionPlan:
    """Decode the plan of a compaction or log compaction. The absolute paths of version 1 are reduced to bare names.

    Raises:
        CorruptTableError: ``data`` is not a compaction plan, or a slice of the plan has no file id or no instant.
    """
    record = decode_record(data, COMPACTION_PLAN, name=name)
    is_auto = (record["extraMetadata"] or {}).get(_AUTO) == "true"
    return CompactionPlan(tuple(_operation(operation, name) for operation in record["operations"] or ()), is_auto)


def _operation(record: Mapping[str, Any], name: str) -> CompactionOperation:
    file_id, base_instant = record["fileId"], record["baseInstantTime"]
    if not file_id or not base_instant:
        raise CorruptTableError(f"the compaction plan {name} has a file slice without file id or instant; restore it")
    return CompactionOperation(
        record["partitionPath"] or "",
        file_id,
        base_instant,
        _base_name(record["dataFilePath"] or ""),
        tuple(map(_base_name, record["deltaFilePaths"] or ())),
        record["metrics"] or {},
        record["bootstrapFilePath"] or "",
    )


def _base_name(path: str) -> str:
    return path.rpartition("/")[2]


_SLICE: Final = nested_record_schema(
    "HoodieSliceInfo",
    optional_field("dataFilePath", TEXT),
    optional_field("deltaFilePaths", TEXTS),
    required_field("fileId", ["null", TEXT]),
    optional_field("partitionPath", TEXT),
    optional_field("bootstrapFilePath", TEXT),
    VERSION,
)
_CLUSTERING_GROUP: Final = nested_record_schema(
    "HoodieClusteringGroup",
    optional_field("slices", array_schema(_SLICE)),
    optional_field("metrics", map_schema("double")),
    {"name": "numOutputFileGroups", "type": ["int", "null"], "default": 1},
    optional_field("extraMetadata", map_schema(TEXT)),
    VERSION,
)
_CLUSTERING_STRATEGY: Final = nested_record_schema(
    "HoodieClusteringStrategy",
    optional_field("strategyClassName", TEXT),
    optional_field("strategyParams", map_schema(TEXT)),
    VERSION,
)
#: Writer schema of ``<instant>.replacecommit.requested``.
REQUESTED_REPLACE: Final = file_schema(
    "HoodieRequestedReplaceMetadata",
    optional_field("operationType", TEXT),
    optional_field(
        "clusteringPlan",
        nested_record_schema(
            "HoodieClusteringPlan",
            optional_field("inputGroups", array_schema(_CLUSTERING_GROUP)),
            optional_field("strategy", _CLUSTERING_STRATEGY),
            optional_field("extraMetadata", map_schema(TEXT)),
            VERSION,
            optional_field("preserveHoodieMetadata", "boolean"),
        ),
    ),
    optional_field("extraMetadata", map_schema(TEXT)),
    VERSION,
)


@dataclass(frozen=True, slots=True)
class RequestedReplace:
    """The contents of ``<instant>.replacecommit.requested``. ``plan`` is None unless the operation is a clustering."""

    operation: str | None
    plan: ClusteringPlan | None = None

    @property
    def file_groups(self) -> tuple[FileGroupId, ...]:
        """Return the file groups that the planned clustering replaces; empty for other operations."""
        return self.plan.file_groups if self.plan else ()


def encode_requested_replace() -> bytes:
    """Encode the requested file of a replacecommit that is not a clustering: all fields are null."""
    return encode_record(REQUESTED_REPLACE, dict.fromkeys(field["name"] for field in REQUESTED_REPLACE["fields"]))


def encode_clustering(plan: ClusteringPlan) -> bytes:
    """Encode ``<instant>.replacecommit.requested`` of a clustering, with its plan."""
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
            "bootstrapFilePath": file_slice.source,
            "version": 1,
        }
        for file_slice in group.slices
    ]
    return {
        "slices": slices,
        "metrics": dict(group.metrics),
        "numOutputFileGroups": group.output_file_groups,
        "extraMetadata": dict(group.extra) or None,
        "version": 1,
    }


def decode_requested_replace(data: bytes, *, name: str) -> RequestedReplace | None:
    """Decode ``<instant>.replacecommit.requested``: the operation and, for a clustering, its plan.

    Return None for an empty file. Hudi treats an empty file as a replacecommit without a plan. But a writer may have
    created the file and not yet written its contents, so None does not mean that no clustering is planned.

    Raises:
        CorruptTableError: ``data`` is not such a file, or a file slice of the plan has no file id.
    """
    if not data:
        return None
    record = decode_record(data, REQUESTED_REPLACE, name=name)
    stored = record["clusteringPlan"]
    if stored is None:
        return RequestedReplace(record["operationType"])
    strategy = stored["strategy"] or {}
    plan = ClusteringPlan(
        tuple(_group(group, name) for group in stored["inputGroups"] or ()),
        strategy.get("strategyClassName") or "",
        strategy.get("strategyParams") or {},
        stored["extraMetadata"] or {},
        keeps_meta=stored["preserveHoodieMetadata"] is not False,
    )
    return RequestedReplace(record["operationType"], plan)


def _group(record: Mapping[str, Any], name: str) -> ClusteringGroup:
    slices = []
    for piece in record["slices"] or ():
        if piece["fileId"] is None:
            raise CorruptTableError(f"the clustering plan {name} has a file slice without file id; cancel it")
        slices.append(
            SliceInfo(
                piece["partitionPath"] or "",
                piece["fileId"],
                piece["dataFilePath"] or "",
                tuple(piece["deltaFilePaths"] or ()),
                piece["bootstrapFilePath"] or "",
            )
        )
    outputs = record["numOutputFileGroups"]
    return ClusteringGroup(
        tuple(slices), record["metrics"] or {}, 1 if outputs is None else outputs, record["extraMetadata"] or {}
    )
