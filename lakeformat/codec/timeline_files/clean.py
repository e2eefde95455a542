"""Files of a clean: the plan (requested file, and in timeline layout 1 the inflight file) and the result (completed).

Their format is the same in every table version. Readers of every release look up fields by name. So one schema serves
them all, if it has all fields that Hudi writes. A plan of an old release has no ``version``, and lists the files to
delete in another field (`_NAMES`).
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

#: Version of plans that list files by URI, in the field `_PATHS`.
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
    """The plan of a clean: the files and folders to delete.

    Attributes:
        policy: Name of Hudi's cleaning policy, such as ``KEEP_LATEST_COMMITS``.
        earliest: Instant time and action of the oldest commit whose files all stay; None for the policy
            ``KEEP_LATEST_FILE_VERSIONS``.
        last_completed: Time of the newest completed commit at the time of planning.
        files: Maps each partition path to the bare names of the files to delete.
        partitions: Paths of the partitions whose folders are deleted.
        extra: The ``extraMetadata`` map.
    """

    policy: str
    earliest: tuple[str, str] | None
    last_completed: str
    files: Mapping[str, tuple[str, ...]]
    partitions: tuple[str, ...] = ()
    extra: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class CleanPartition:
    """The result of a clean in one partition: bare names of the files that were deleted, or whose deletion failed."""

    path: str
    deleted: tuple[str, ...] = ()
    failed: tuple[str, ...] = ()
    is_folder_deleted: bool = False


@dataclass(frozen=True, slots=True)
class CleanMetadata:
    """The contents of ``<instant>.clean``.

    Attributes:
        earliest_commit_to_retain: The earliest instant at which the table can still be read; "" for the policy
            ``KEEP_LATEST_FILE_VERSIONS``.
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
    """Encode the plan of a clean, ``<instant>.clean.requested``.

    Args:
        plan: The plan.
        location: Location of the table, because the file has full paths.
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
    """Decode the plan of a clean, ``<instant>.clean.requested``.

    The full paths of files in the plan are reduced to bare names, because the table may have been moved since.

    Raises:
        CorruptTableError: ``data`` is not a clean plan.
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
    """Encode the completed file of a clean, ``<instant>.clean``."""
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
    """Decode the completed file of a clean, ``<instant>.clean``.

    Raises:
        CorruptTableError: ``data`` is not such a file.
    """
    record = decode_record(data, CLEAN_METADATA, name=name)
    records = record["partitionMetadata"].values()
    partitions = tuple(
        CleanPartition(
            record["partitionPath"],
            tuple(map(_base_name, record["successDeleteFiles"])),
            tuple(map(_base_name, record["failedDeleteFiles"])),
            record["isPartitionDeleted"] is True,
        )
        for record in records
    )
    return CleanMetadata(
        start_time=record["startCleanTime"],
        earliest_commit_to_retain=record["earliestCommitToRetain"],
        last_completed=record["lastCompletedCommitTimestamp"],
        time_taken_ms=record["timeTakenInMillis"],
        policy=next((record["policy"] for record in records), ""),
        partitions=partitions,
        extra=record["extraMetadata"] or {},
    )
