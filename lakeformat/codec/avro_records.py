"""Timeline files that are Avro object containers: rollback, clean, savepoint, restore, requested replace.

Written with the writer schemas of Hudi 0.15, one record a file and no compression, as Hudi does. Read by
field name: unknown fields are skipped, missing ones take their default.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from lakeformat.codec.avro_container import decode_record, encode_record
from lakeformat.errors import CorruptTableError

__all__ = [
    "REQUESTED_REPLACE",
    "ROLLBACK_METADATA",
    "ROLLBACK_PLAN",
    "CleanMetadata",
    "RequestedReplace",
    "RestoreMetadata",
    "RollbackMetadata",
    "RollbackPartition",
    "RollbackPlan",
    "RollbackRequest",
    "SavepointMetadata",
    "decode_clean",
    "decode_requested_replace",
    "decode_restore",
    "decode_rollback",
    "decode_rollback_plan",
    "decode_savepoint",
    "encode_requested_replace",
    "encode_rollback",
    "encode_rollback_plan",
]

_NAMESPACE: Final = "org.apache.hudi.avro.model"
_TEXT: Final = {"type": "string", "avro.java.string": "String"}
_TEXTS: Final = {"type": "array", "items": _TEXT}
_VERSION: Final = {"name": "version", "type": ["int", "null"], "default": 1}


def _record(name: str, *fields: Mapping[str, Any]) -> dict[str, Any]:
    return {"type": "record", "name": name, "fields": list(fields)}


def _file(name: str, *fields: Mapping[str, Any]) -> dict[str, Any]:
    return {"type": "record", "name": name, "namespace": _NAMESPACE, "fields": list(fields)}


def _required(name: str, avro: Any) -> dict[str, Any]:
    return {"name": name, "type": avro}


def _optional(name: str, avro: Any) -> dict[str, Any]:
    return {"name": name, "type": ["null", avro], "default": None}


def _list(name: str, items: Any) -> dict[str, Any]:
    return {"name": name, "type": {"type": "array", "items": items, "default": []}, "default": []}


def _map(values: Any) -> dict[str, Any]:
    return {"type": "map", "values": values, "avro.java.string": "String"}


def _array(items: Any) -> dict[str, Any]:
    return {"type": "array", "items": items}


_INSTANT: Final = _record("HoodieInstantInfo", _required("commitTime", _TEXT), _required("action", _TEXT))

#: Writer schema of ``<instant>.rollback.requested``.
ROLLBACK_PLAN: Final = _file(
    "HoodieRollbackPlan",
    _optional("instantToRollback", _INSTANT),
    _optional(
        "RollbackRequests",
        _array(
            _record(
                "HoodieRollbackRequest",
                _required("partitionPath", _TEXT),
                _optional("fileId", _TEXT),
                _optional("latestBaseInstant", _TEXT),
                _list("filesToBeDeleted", _TEXT),
                _optional("logBlocksToBeDeleted", _map("long")),
            )
        ),
    ),
    _VERSION,
)
#: Writer schema of ``<instant>.rollback``.
ROLLBACK_METADATA: Final = _file(
    "HoodieRollbackMetadata",
    _required("startRollbackTime", _TEXT),
    _required("timeTakenInMillis", "long"),
    _required("totalFilesDeleted", "int"),
    _required("commitsRollback", _TEXTS),
    _required(
        "partitionMetadata",
        _map(
            _record(
                "HoodieRollbackPartitionMetadata",
                _required("partitionPath", _TEXT),
                _required("successDeleteFiles", _TEXTS),
                _required("failedDeleteFiles", _TEXTS),
                _optional("rollbackLogFiles", _map("long")),
                _optional("logFilesFromFailedCommit", _map("long")),
            )
        ),
    ),
    _VERSION,
    _list("instantsRollback", _INSTANT),
)
_SLICE: Final = _record(
    "HoodieSliceInfo",
    _optional("dataFilePath", _TEXT),
    _optional("deltaFilePaths", _TEXTS),
    _required("fileId", ["null", _TEXT]),
    _optional("partitionPath", _TEXT),
    _optional("bootstrapFilePath", _TEXT),
    _VERSION,
)
_CLUSTERING_GROUP: Final = _record(
    "HoodieClusteringGroup",
    _optional("slices", _array(_SLICE)),
    _optional("metrics", _map("double")),
    {"name": "numOutputFileGroups", "type": ["int", "null"], "default": 1},
    _optional("extraMetadata", _map(_TEXT)),
    _VERSION,
)
_CLUSTERING_STRATEGY: Final = _record(
    "HoodieClusteringStrategy",
    _optional("strategyClassName", _TEXT),
    _optional("strategyParams", _map(_TEXT)),
    _VERSION,
)
#: Writer schema of ``<instant>.replacecommit.requested``.
REQUESTED_REPLACE: Final = _file(
    "HoodieRequestedReplaceMetadata",
    _optional("operationType", _TEXT),
    _optional(
        "clusteringPlan",
        _record(
            "HoodieClusteringPlan",
            _optional("inputGroups", _array(_CLUSTERING_GROUP)),
            _optional("strategy", _CLUSTERING_STRATEGY),
            _optional("extraMetadata", _map(_TEXT)),
            _VERSION,
            _optional("preserveHoodieMetadata", "boolean"),
        ),
    ),
    _optional("extraMetadata", _map(_TEXT)),
    _VERSION,
)
#: Of the files that lakeformat only reads: the fields it needs.
_CLEAN_FIELDS: Final = _file(
    "HoodieCleanMetadata",
    _required("startCleanTime", _TEXT),
    _required("earliestCommitToRetain", _TEXT),
)
_SAVEPOINT_PARTITION: Final = _record(
    "HoodieSavepointPartitionMetadata",
    _required("partitionPath", _TEXT),
    _required("savepointDataFile", _TEXTS),
)
_SAVEPOINT_FIELDS: Final = _file(
    "HoodieSavepointMetadata",
    _required("savepointedBy", _TEXT),
    _required("savepointedAt", "long"),
    _required("comments", _TEXT),
    _required("partitionMetadata", _map(_SAVEPOINT_PARTITION)),
)
_RESTORE_FIELDS: Final = _file(
    "HoodieRestoreMetadata",
    _required("startRestoreTime", _TEXT),
    _required("instantsToRollback", _TEXTS),
)


@dataclass(frozen=True, slots=True)
class RollbackRequest:
    """What to undo in one file group, or (``file_id`` none or empty) in one partition."""

    partition_path: str
    file_id: str | None = None
    latest_base_instant: str | None = None
    #: Paths as the planner wrote them: Hudi's are absolute.
    files_to_delete: tuple[str, ...] = ()
    #: Path of each log file to cancel by a rollback block -> its size in bytes.
    log_blocks_to_delete: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class RollbackPlan:
    """``<instant>.rollback.requested``: the instant to undo and what that takes."""

    instant_time: str
    action: str
    requests: tuple[RollbackRequest, ...] = ()


@dataclass(frozen=True, slots=True)
class RollbackPartition:
    """What a rollback did in one partition; log files, path -> bytes, only in merge-on-read tables."""

    partition_path: str
    deleted_files: tuple[str, ...] = ()
    failed_files: tuple[str, ...] = ()
    rollback_log_files: Mapping[str, int] = field(default_factory=dict)
    log_files_of_failed_commit: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class RollbackMetadata:
    """``<instant>.rollback``: a finished rollback."""

    start_time: str
    time_taken_ms: int
    #: The instants undone, each as (instant time, action).
    instants: tuple[tuple[str, str], ...]
    partitions: tuple[RollbackPartition, ...] = ()

    @property
    def files_deleted(self) -> int:
        """How many files are gone."""
        return sum(len(partition.deleted_files) for partition in self.partitions)


@dataclass(frozen=True, slots=True)
class CleanMetadata:
    """``<instant>.clean``: no instant before ``earliest_commit_to_retain`` can be read ("": all can)."""

    start_time: str
    earliest_commit_to_retain: str


@dataclass(frozen=True, slots=True)
class RequestedReplace:
    """``<instant>.replacecommit.requested``; of a clustering also the file groups it will replace."""

    operation: str | None
    #: (partition path, file id) of every file slice in the clustering plan.
    file_groups: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class SavepointMetadata:
    """``<instant>.savepoint``: the files that no service may delete."""

    saved_by: str
    #: Milliseconds since the epoch.
    saved_at_ms: int
    comments: str
    #: Partition path -> bare names of its files.
    files: Mapping[str, tuple[str, ...]]


@dataclass(frozen=True, slots=True)
class RestoreMetadata:
    """``<instant>.restore``: the instants that a restore has undone."""

    start_time: str
    instants: tuple[str, ...]


def encode_rollback_plan(plan: RollbackPlan) -> bytes:
    """The bytes of ``<instant>.rollback.requested``."""
    requests = [
        {
            "partitionPath": request.partition_path,
            "fileId": request.file_id,
            "latestBaseInstant": request.latest_base_instant,
            "filesToBeDeleted": list(request.files_to_delete),
            "logBlocksToBeDeleted": dict(request.log_blocks_to_delete),
        }
        for request in plan.requests
    ]
    instant = {"commitTime": plan.instant_time, "action": plan.action}
    record = {"instantToRollback": instant, "RollbackRequests": requests, "version": 1}
    return encode_record(ROLLBACK_PLAN, record)


def decode_rollback_plan(data: bytes, *, name: str) -> RollbackPlan:
    """Inverse of `encode_rollback_plan`.

    Raises:
        CorruptTableError: ``data`` is not such a file; so for every ``decode`` here.
    """
    record = decode_record(data, ROLLBACK_PLAN, name=name)
    instant = record["instantToRollback"]
    if instant is None:
        raise CorruptTableError(f"the rollback plan {name} names no instant; restore the file")
    requests = tuple(
        RollbackRequest(
            partition_path=request["partitionPath"],
            file_id=request["fileId"],
            latest_base_instant=request["latestBaseInstant"],
            files_to_delete=tuple(request["filesToBeDeleted"]),
            log_blocks_to_delete=request["logBlocksToBeDeleted"] or {},
        )
        for request in record["RollbackRequests"] or ()
    )
    return RollbackPlan(instant["commitTime"], instant["action"], requests)


def encode_rollback(metadata: RollbackMetadata) -> bytes:
    """The bytes of ``<instant>.rollback``."""
    partitions = {
        partition.partition_path: {
            "partitionPath": partition.partition_path,
            "successDeleteFiles": list(partition.deleted_files),
            "failedDeleteFiles": list(partition.failed_files),
            "rollbackLogFiles": dict(partition.rollback_log_files),
            "logFilesFromFailedCommit": dict(partition.log_files_of_failed_commit),
        }
        for partition in metadata.partitions
    }
    record = {
        "startRollbackTime": metadata.start_time,
        "timeTakenInMillis": metadata.time_taken_ms,
        "totalFilesDeleted": metadata.files_deleted,
        "commitsRollback": [time for time, _ in metadata.instants],
        "partitionMetadata": partitions,
        "version": 1,
        "instantsRollback": [{"commitTime": time, "action": action} for time, action in metadata.instants],
    }
    return encode_record(ROLLBACK_METADATA, record)


def decode_rollback(data: bytes, *, name: str) -> RollbackMetadata:
    """Inverse of `encode_rollback`; instants whose action an old writer did not note have the action ""."""
    record = decode_record(data, ROLLBACK_METADATA, name=name)
    actions = {instant["commitTime"]: instant["action"] for instant in record["instantsRollback"]}
    partitions = tuple(
        RollbackPartition(
            partition_path=partition["partitionPath"],
            deleted_files=tuple(partition["successDeleteFiles"]),
            failed_files=tuple(partition["failedDeleteFiles"]),
            rollback_log_files=partition["rollbackLogFiles"] or {},
            log_files_of_failed_commit=partition["logFilesFromFailedCommit"] or {},
        )
        for partition in record["partitionMetadata"].values()
    )
    return RollbackMetadata(
        start_time=record["startRollbackTime"],
        time_taken_ms=record["timeTakenInMillis"],
        instants=tuple((time, actions.get(time, "")) for time in record["commitsRollback"]),
        partitions=partitions,
    )


def encode_requested_replace() -> bytes:
    """The bytes of ``<instant>.replacecommit.requested`` of insert_overwrite and its kin: all fields null."""
    return encode_record(REQUESTED_REPLACE, dict.fromkeys(field["name"] for field in REQUESTED_REPLACE["fields"]))


def decode_requested_replace(data: bytes, *, name: str) -> RequestedReplace | None:
    """The operation and, of a clustering, its file groups.

    None for an empty file: Hudi takes it as a replacecommit like any other, but its writer may have created
    and not yet filled it, so the caller cannot know that no clustering is planned.
    """
    if not data:
        return None
    record = decode_record(data, REQUESTED_REPLACE, name=name)
    groups = (record["clusteringPlan"] or {}).get("inputGroups") or ()
    slices = [file_slice for group in groups for file_slice in group["slices"] or ()]
    if any(file_slice["fileId"] is None for file_slice in slices):
        raise CorruptTableError(f"the clustering plan {name} has a file slice without file id; restore the file")
    file_groups = tuple((file_slice["partitionPath"] or "", file_slice["fileId"]) for file_slice in slices)
    return RequestedReplace(record["operationType"], file_groups)


def decode_clean(data: bytes, *, name: str) -> CleanMetadata:
    """When a clean started, and up to where it took history away."""
    record = decode_record(data, _CLEAN_FIELDS, name=name)
    return CleanMetadata(record["startCleanTime"], record["earliestCommitToRetain"])


def decode_savepoint(data: bytes, *, name: str) -> SavepointMetadata:
    """Who saved which files, when and why."""
    record = decode_record(data, _SAVEPOINT_FIELDS, name=name)
    files = {path: tuple(partition["savepointDataFile"]) for path, partition in record["partitionMetadata"].items()}
    return SavepointMetadata(record["savepointedBy"], record["savepointedAt"], record["comments"], files)


def decode_restore(data: bytes, *, name: str) -> RestoreMetadata:
    """When a restore started, and which instants it undid."""
    record = decode_record(data, _RESTORE_FIELDS, name=name)
    return RestoreMetadata(record["startRestoreTime"], tuple(record["instantsToRollback"]))
