"""``<instant>.compaction.requested`` and ``<instant>.logcompaction.requested``: the slices to compact."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from lakeformat.codec.avro_container import decode_record, encode_record
from lakeformat.codec.avro_fields import TEXT, TEXTS, VERSION, array_of, file_of, map_of, optional, record_of
from lakeformat.errors import CorruptTableError
from lakeformat.model.compaction import CompactionOperation, CompactionPlan

__all__ = ["COMPACTION_PLAN", "decode_compaction_plan", "encode_compaction_plan"]

_OPERATION: Final = record_of(
    "HoodieCompactionOperation",
    {"name": "baseInstantTime", "type": ["null", TEXT]},
    optional("deltaFilePaths", TEXTS),
    optional("dataFilePath", TEXT),
    {"name": "fileId", "type": ["null", TEXT]},
    optional("partitionPath", TEXT),
    optional("metrics", map_of("double")),
    optional("bootstrapFilePath", TEXT),
)
_STRATEGY: Final = record_of(
    "HoodieCompactionStrategy",
    optional("compactorClassName", TEXT),
    optional("strategyParams", map_of(TEXT)),
    VERSION,
)
_FIELDS: Final = (
    optional("operations", array_of(_OPERATION)),
    optional("extraMetadata", map_of(TEXT)),
    VERSION,
    optional("strategy", _STRATEGY),
    {"name": "preserveHoodieMetadata", "type": ["boolean", "null"], "default": False},
)
#: Writer schemas, in Hudi's order: of timeline layout 1, and of layout 2, which has one field more.
COMPACTION_PLAN: Final = file_of("HoodieCompactionPlan", *_FIELDS)
_PLAN_2: Final = file_of("HoodieCompactionPlan", *_FIELDS, optional("missingSchedulePartitions", TEXTS))
#: Of the plan: files are named by bare names (Hudi: ``CompactionUtils.LATEST_COMPACTION_METADATA_VERSION``).
_NAMES_VERSION: Final = 2
#: Key of ``extraMetadata``: slices made the plan by themselves.
_AUTO: Final = "lakeformat.compact.auto"


def encode_compaction_plan(plan: CompactionPlan, *, missing_partitions: bool) -> bytes:
    """The bytes of ``<instant>.compaction.requested``.

    Args:
        missing_partitions: with the field that releases from 1.1 on have: timeline layout 2.
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
        "bootstrapFilePath": None,
    }


def decode_compaction_plan(data: bytes, *, name: str) -> CompactionPlan:
    """The plan. Plans of the first version name files by absolute paths: the bare names are kept.

    Raises:
        CorruptTableError: the bytes are no such file, or a slice is named by nothing.
    """
    record = decode_record(data, COMPACTION_PLAN, name=name)
    is_auto = (record["extraMetadata"] or {}).get(_AUTO) == "true"
    return CompactionPlan(tuple(_operation(one, name) for one in record["operations"] or ()), is_auto)


def _operation(record: Mapping[str, Any], name: str) -> CompactionOperation:
    file_id, base_instant = record["fileId"], record["baseInstantTime"]
    if not file_id or not base_instant:
        raise CorruptTableError(f"the compaction plan {name} has a file slice without file id or instant; restore it")
    return CompactionOperation(
        record["partitionPath"] or "",
        file_id,
        base_instant,
        _bare(record["dataFilePath"] or ""),
        tuple(map(_bare, record["deltaFilePaths"] or ())),
        record["metrics"] or {},
    )


def _bare(path: str) -> str:
    return path.rpartition("/")[2]
