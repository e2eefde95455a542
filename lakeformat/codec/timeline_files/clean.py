"""Files of a clean: its plan (requested, and inflight in timeline layout 1) and its result (completed).

They are the same in every table version. Readers of other releases look up fields by name, so lakeformat writes all
fields that Hudi writes. A plan without ``version`` has the old form, which names files in another field.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from lakeformat.codec.avro.container import (
    NAMESPACE,
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

__all__ = [
    "CLEAN_METADATA",
    "CLEAN_PLAN",
    "CleanMetadata",
    "CleanPartition",
    "CleanPlan",
    "decode_clean",
    "decode_clean_plan",
    "encode_clean",
    "encode_clean_plan",
]

#: Version of the form that names files by URI, in `_PATHS`.
_FORM: Final = 2
_PATHS: Final = "filePathsToBeDeletedPerPartition"
_NAMES: Final = "filesToBeDeletedPerPartition"
_NEWEST: Final = {"name": "lastCompletedCommitTimestamp", "type": TEXT, "default": ""}

#: Writer schema of ``<instant>.clean.requested``.
CLEAN_PLAN: Final = file_schema(
    "HoodieCleanerPlan",
    optional_field(
        "earliestInstantToRetain",
        nested_record_schema(
            "HoodieActionInstant",
            required_field("timestamp", TEXT),
            required_field("action", TEXT),
            required_field("state", TEXT),
        ),
    ),
    _NEWEST,
    required_field("policy", TEXT),
    optional_field(_NAMES, map_schema(TEXTS)),
    VERSION,
    optional_field(
        _PATHS,
        map_schema(
            array_schema(
                nested_record_schema(
                    "HoodieCleanFileInfo",
                    optional_field("filePath", TEXT),
                    optional_field("isBootstrapBaseFile", "boolean"),
                )
            )
        ),
    ),
    optional_field("partitionsToBeDeleted", TEXTS),
    optional_field("extraMetadata", map_schema(TEXT)),
)
_PARTITION: Final = nested_record_schema(
    "HoodieCleanPartitionMetadata",
    required_field("partitionPath", TEXT),
    required_field("policy", TEXT),
    required_field("deletePathPatterns", TEXTS),
    required_field("successDeleteFiles", TEXTS),
    required_field("failedDeleteFiles", TEXTS),
    optional_field("isPartitionDeleted", "boolean"),
)
#: Writer schema of ``<instant>.clean``.
CLEAN_METADATA: Final = file_schema(
    "HoodieCleanMetadata",
    required_field("startCleanTime", TEXT),
    required_field("timeTakenInMillis", "long"),
    required_field("totalFilesDeleted", "int"),
    required_field("earliestCommitToRetain", TEXT),
    _NEWEST,
    required_field("partitionMetadata", map_schema(_PARTITION)),
    VERSION,
    optional_field("bootstrapPartitionMetadata", map_schema(f"{NAMESPACE}.HoodieCleanPartitionMetadata")),
    optional_field("extraMetadata", map_schema(TEXT)),
)


@dataclass(frozen=True, slots=True)
class CleanPlan:
    """The files and folders that a clean deletes.

    Attributes:
        earliest: Instant time and action of the oldest commit of which all files are kept; None if the policy is by
            file versions.
        last_completed: Time of the newest completed commit at the time of planning.
        files: Partition path -> bare names of the files to delete.
        partitions: Partition paths whose folders are deleted.
        extra: ``extraMetadata``.
    """

    policy: str
    earliest: tuple[str, str] | None
    last_completed: str
    files: Mapping[str, tuple[str, ...]]
    partitions: tuple[str, ...] = ()
    extra: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class CleanPartition:
    """The result of a clean in one partition, with bare names of files."""

    path: str
    deleted: tuple[str, ...] = ()
    failed: tuple[str, ...] = ()
    is_folder_deleted: bool = False


@dataclass(frozen=True, slots=True)
class CleanMetadata:
    """The contents of ``<instant>.clean``.

    Attributes:
        earliest_commit_to_retain: No instant before this one can be read; "" if the policy is by file versions.
        last_completed: Time of the newest completed commit at the time of planning; "" in files of old releases.
    """

    start_time: str
    earliest_commit_to_retain: str
    last_completed: str = ""
    time_taken_ms: int = 0
    policy: str = ""
    partitions: tuple[CleanPartition, ...] = ()
    extra: Mapping[str, str] = field(default_factory=dict)


def encode_clean_plan(plan: CleanPlan, location: str) -> bytes:
    """Encode ``<instant>.clean.requested``.

    Args:
        location: Location of the table, because plans hold full paths.
    """
    root = f"file:{location}" if location.startswith("/") else location.rstrip("/")
    earliest = plan.earliest and {"timestamp": plan.earliest[0], "action": plan.earliest[1], "state": "COMPLETED"}
    record = {
        "earliestInstantToRetain": earliest,
        "lastCompletedCommitTimestamp": plan.last_completed,
        "policy": plan.policy,
        _NAMES: {},
        "version": _FORM,
        _PATHS: {
            path: [{"filePath": _join_path(root, path, name), "isBootstrapBaseFile": False} for name in names]
            for path, names in plan.files.items()
        },
        "partitionsToBeDeleted": list(plan.partitions),
        "extraMetadata": dict(plan.extra),
    }
    return encode_record(CLEAN_PLAN, record)


def _join_path(*parts: str) -> str:
    return "/".join(part for part in parts if part)


def decode_clean_plan(data: bytes, *, name: str) -> CleanPlan:
    """Decode ``<instant>.clean.requested``. Keep only the bare names, since paths may be those of another machine.

    Raises:
        CorruptTableError: ``data`` is not such a file. `decode_clean` raises it too.
    """
    record = decode_record(data, CLEAN_PLAN, name=name)
    earliest = record["earliestInstantToRetain"]
    files = {path: tuple(map(_base_name, names)) for path, names in (record[_NAMES] or {}).items()}
    for path, infos in (record[_PATHS] or {}).items():
        files[path] = (*files.get(path, ()), *(_base_name(info["filePath"]) for info in infos if info["filePath"]))
    return CleanPlan(
        record["policy"],
        earliest and (earliest["timestamp"], earliest["action"]),
        record["lastCompletedCommitTimestamp"],
        files,
        tuple(record["partitionsToBeDeleted"] or ()),
        record["extraMetadata"] or {},
    )


def _base_name(path: str) -> str:
    return path.rpartition("/")[2]


def encode_clean(metadata: CleanMetadata) -> bytes:
    """Encode ``<instant>.clean``."""
    partitions: dict[str, dict[str, Any]] = {
        partition.path: {
            "partitionPath": partition.path,
            "policy": metadata.policy,
            "deletePathPatterns": [*partition.deleted, *partition.failed],
            "successDeleteFiles": list(partition.deleted),
            "failedDeleteFiles": list(partition.failed),
            "isPartitionDeleted": partition.is_folder_deleted,
        }
        for partition in metadata.partitions
    }
    record = {
        "startCleanTime": metadata.start_time,
        "timeTakenInMillis": metadata.time_taken_ms,
        "totalFilesDeleted": sum(len(partition.deleted) for partition in metadata.partitions),
        "earliestCommitToRetain": metadata.earliest_commit_to_retain,
        "lastCompletedCommitTimestamp": metadata.last_completed,
        "partitionMetadata": partitions,
        "version": _FORM,
        "bootstrapPartitionMetadata": {},
        "extraMetadata": dict(metadata.extra),
    }
    return encode_record(CLEAN_METADATA, record)


def decode_clean(data: bytes, *, name: str) -> CleanMetadata:
    """Decode ``<instant>.clean``."""
    record = decode_record(data, CLEAN_METADATA, name=name)
    records = record["partitionMetadata"].values()
    partitions = tuple(
        CleanPartition(
            one["partitionPath"],
            tuple(map(_base_name, one["successDeleteFiles"])),
            tuple(map(_base_name, one["failedDeleteFiles"])),
            one["isPartitionDeleted"] is True,
        )
        for one in records
    )
    return CleanMetadata(
        start_time=record["startCleanTime"],
        earliest_commit_to_retain=record["earliestCommitToRetain"],
        last_completed=record["lastCompletedCommitTimestamp"],
        time_taken_ms=record["timeTakenInMillis"],
        policy=next((one["policy"] for one in records), ""),
        partitions=partitions,
        extra=record["extraMetadata"] or {},
    )
