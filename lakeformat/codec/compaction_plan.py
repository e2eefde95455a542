"""Compaction plans, the files ``<instant>.compaction.requested`` and ``<instant>.logcompaction.requested``."""

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
#: Writer schemas, in Hudi's order: for timeline layout 1, and for layout 2, which has one more field.
COMPACTION_PLAN: Final = file_of("HoodieCompactionPlan", *_FIELDS)
_PLAN_2: Final = file_of("HoodieCompactionPlan", *_FIELDS, optional("missingSchedulePartitions", TEXTS))
#: Version of plans that hold bare names (Hudi: ``CompactionUtils.LATEST_COMPACTION_METADATA_VERSION``).
_NAMES_VERSION: Final = 2
#: Key of ``extraMetadata`` for `CompactionPlan.is_auto`.
_AUTO: Final = "lakeformat.compact.auto"


def encode_compaction_plan(plan: CompactionPlan, *, missing_partitions: bool) -> bytes:
    """Encode ``<instant>.compaction.requested``.

    Args:
        missing_partitions: Whether to write the field ``missingSchedulePartitions``, which Hudi has from 1.1 on. Set it
            for timeline layout 2.
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
    """Decode a plan. Plans of version 1 hold absolute paths, of which only the bare names are kept.

    Raises:
        CorruptTableError: The bytes are not such a file, or a slice has no file id or no instant.
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
        _base_name(record["dataFilePath"] or ""),
        tuple(map(_base_name, record["deltaFilePaths"] or ())),
        record["metrics"] or {},
    )


def _base_name(path: str) -> str:
    return path.rpartition("/")[2]
