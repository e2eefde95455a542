"""Files of rollbacks, savepoints and restores, which are Avro object container files in every table version.

Like Hudi, lakeformat writes one uncompressed record per file, with the schemas of Hudi 0.15. Readers of every release
look up fields by name. So these schemas serve them all, because they have all fields that Hudi writes. Decoding skips
unknown fields, and returns defaults for missing fields.
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
    list_field,
    map_schema,
    nested_record_schema,
    optional_field,
    required_field,
)
from lakeformat.errors import CorruptTableError

__all__ = [
    "RESTORE_METADATA",
    "RESTORE_PLAN",
    "ROLLBACK_METADATA",
    "ROLLBACK_PLAN",
    "SAVEPOINT",
    "CompletedRestore",
    "RestoreMetadata",
    "RestorePlan",
    "RollbackMetadata",
    "RollbackPartition",
    "RollbackPlan",
    "RollbackRequest",
    "SavepointMetadata",
    "decode_restore",
    "decode_restore_plan",
    "decode_rollback",
    "decode_rollback_plan",
    "decode_savepoint",
    "encode_restore",
    "encode_restore_plan",
    "encode_rollback",
    "encode_rollback_plan",
    "encode_savepoint",
    "rollback_record",
]

_INSTANT: Final = nested_record_schema(
    "HoodieInstantInfo", required_field("commitTime", TEXT), required_field("action", TEXT)
)

#: Writer schema of ``<instant>.rollback.requested``.
ROLLBACK_PLAN: Final = file_schema(
    "HoodieRollbackPlan",
    optional_field("instantToRollback", _INSTANT),
    optional_field(
        "RollbackRequests",
        array_schema(
            nested_record_schema(
                "HoodieRollbackRequest",
                required_field("partitionPath", TEXT),
                optional_field("fileId", TEXT),
                optional_field("latestBaseInstant", TEXT),
                list_field("filesToBeDeleted", TEXT),
                optional_field("logBlocksToBeDeleted", map_schema("long")),
            )
        ),
    ),
    VERSION,
)
#: Writer schema of ``<instant>.rollback``.
ROLLBACK_METADATA: Final = file_schema(
    "HoodieRollbackMetadata",
    required_field("startRollbackTime", TEXT),
    required_field("timeTakenInMillis", "long"),
    required_field("totalFilesDeleted", "int"),
    required_field("commitsRollback", TEXTS),
    required_field(
        "partitionMetadata",
        map_schema(
            nested_record_schema(
                "HoodieRollbackPartitionMetadata",
                required_field("partitionPath", TEXT),
                required_field("successDeleteFiles", TEXTS),
                required_field("failedDeleteFiles", TEXTS),
                optional_field("rollbackLogFiles", map_schema("long")),
                optional_field("logFilesFromFailedCommit", map_schema("long")),
            )
        ),
    ),
    VERSION,
    list_field("instantsRollback", _INSTANT),
)
#: Reader schema of a partition in a savepoint, with only the fields that lakeformat needs.
_SAVEPOINT_PARTITION: Final = nested_record_schema(
    "HoodieSavepointPartitionMetadata",
    required_field("partitionPath", TEXT),
    required_field("savepointDataFile", TEXTS),
)
#: Reader schema of a savepoint, with only the fields that lakeformat needs.
_SAVEPOINT_FIELDS: Final = file_schema(
    "HoodieSavepointMetadata",
    required_field("savepointedBy", TEXT),
    required_field("savepointedAt", "long"),
    required_field("comments", TEXT),
    required_field("partitionMetadata", map_schema(_SAVEPOINT_PARTITION)),
)
#: Reader schema of a completed restore, with only the fields that lakeformat needs.
_RESTORE_FIELDS: Final = file_schema(
    "HoodieRestoreMetadata",
    required_field("startRestoreTime", TEXT),
    required_field("instantsToRollback", TEXTS),
)


@dataclass(frozen=True, slots=True)
class RollbackRequest:
    """The files to delete or to undo in one file group, or in a whole partition if ``file_id`` is None or ""."""

    partition_path: str
    file_id: str | None = None
    latest_base_instant: str | None = None
    #: Paths of files to delete, as the writer of the plan stored them. In plans of Hudi they are absolute.
    files_to_delete: tuple[str, ...] = ()
    #: Maps the path of each log file to undo by a rollback block to its size in bytes.
    log_blocks_to_delete: Mapping[str, int] = field(default_factory=dict)

    @property
    def names(self) -> tuple[str, ...]:
        """Return the bare names of the files to delete. The folders may be those of another machine."""
        return tuple(path.rpartition("/")[2] for path in self.files_to_delete)


@dataclass(frozen=True, slots=True)
class RollbackPlan:
    """The contents of ``<instant>.rollback.requested``: the instant to undo, and for each file group what to undo."""

    instant_time: str
    action: str
    requests: tuple[RollbackRequest, ...] = ()

    @property
    def names(self) -> Mapping[str, tuple[str, ...]]:
        """Return the bare names of the files to delete, by partition. Hudi plans a request for each file group."""
        names: dict[str, tuple[str, ...]] = {}
        for request in self.requests:
            names[request.partition_path] = (*names.get(request.partition_path, ()), *request.names)
        return names


@dataclass(frozen=True, slots=True)
class RollbackPartition:
    """The result of a rollback in one partition.

    Attributes:
        deleted_files: Paths of the deleted files.
        failed_files: Paths of the files whose deletion failed.
        rollback_log_files: Maps the path of each log file that the rollback wrote to its size in bytes.
        log_files_of_failed_commit: Maps the path of each log file of the undone commit to its size in bytes.
    """

    partition_path: str
    deleted_files: tuple[str, ...] = ()
    failed_files: tuple[str, ...] = ()
    rollback_log_files: Mapping[str, int] = field(default_factory=dict)
    log_files_of_failed_commit: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class RollbackMetadata:
    """The contents of ``<instant>.rollback``: the result of a completed rollback."""

    start_time: str
    time_taken_ms: int
    #: The undone instants as pairs (instant time, action).
    instants: tuple[tuple[str, str], ...]
    partitions: tuple[RollbackPartition, ...] = ()

    @property
    def deleted_file_count(self) -> int:
        """Return the number of deleted files."""
        return sum(len(partition.deleted_files) for partition in self.partitions)


@dataclass(frozen=True, slots=True)
class SavepointMetadata:
    """The contents of ``<instant>.savepoint``: the files that no service may delete."""

    saved_by: str
    #: Milliseconds since the epoch.
    saved_at_ms: int
    comments: str
    #: Maps each partition path to the bare names of the files in the savepoint.
    files: Mapping[str, tuple[str, ...]]


@dataclass(frozen=True, slots=True)
class RestoreMetadata:
    """The part of ``<instant>.restore`` that lakeformat decodes: the start time and the undone instants."""

    start_time: str
    instants: tuple[str, ...]


def encode_rollback_plan(plan: RollbackPlan) -> bytes:
    """Encode the plan of a rollback, ``<instant>.rollback.requested``."""
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
    """Decode the plan of a rollback, ``<instant>.rollback.requested``.

    Raises:
        CorruptTableError: ``data`` is not a rollback plan, or the plan names no instant.
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
    """Encode the completed file of a rollback, ``<instant>.rollback``."""
    return encode_record(ROLLBACK_METADATA, rollback_record(metadata))


def rollback_record(metadata: RollbackMetadata) -> dict[str, Any]:
    """Return the Avro record of a rollback. The file of a restore has such a record for each undone instant."""
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
    return {
        "startRollbackTime": metadata.start_time,
        "timeTakenInMillis": metadata.time_taken_ms,
        "totalFilesDeleted": metadata.deleted_file_count,
        "commitsRollback": [time for time, _ in metadata.instants],
        "partitionMetadata": partitions,
        "version": 1,
        "instantsRollback": [{"commitTime": time, "action": action} for time, action in metadata.instants],
    }


def decode_rollback(data: bytes, *, name: str) -> RollbackMetadata:
    """Decode ``<instant>.rollback``. If an old writer did not store the action of an instant, return "" as action.

    Raises:
        CorruptTableError: ``data`` is not a completed rollback.
    """
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


def decode_savepoint(data: bytes, *, name: str) -> SavepointMetadata:
    """Decode ``<instant>.savepoint``. Raise `CorruptTableError` if ``data`` is not such a file."""
    record = decode_record(data, _SAVEPOINT_FIELDS, name=name)
    files = {path: tuple(partition["savepointDataFile"]) for path, partition in record["partitionMetadata"].items()}
    return SavepointMetadata(record["savepointedBy"], record["savepointedAt"], record["comments"], files)


def decode_restore(data: bytes, *, name: str) -> RestoreMetadata:
    """Decode ``<instant>.restore``: its start time and the undone instants. Raise `CorruptTableError` if damaged."""
    record = decode_record(data, _RESTORE_FIELDS, name=name)
    return RestoreMetadata(record["startRestoreTime"], tuple(record["instantsToRollback"]))


_PLAN_FORM: Final = 2

#: Writer schema of ``<instant>.savepoint``.
SAVEPOINT: Final = file_schema(
    "HoodieSavepointMetadata",
    required_field("savepointedBy", TEXT),
    required_field("savepointedAt", "long"),
    required_field("comments", TEXT),
    required_field(
        "partitionMetadata",
        map_schema(
            nested_record_schema(
                "HoodieSavepointPartitionMetadata",
                required_field("partitionPath", TEXT),
                required_field("savepointDataFile", TEXTS),
            )
        ),
    ),
    VERSION,
)
#: Writer schema of ``<instant>.restore.requested``.
RESTORE_PLAN: Final = file_schema(
    "HoodieRestorePlan",
    list_field(
        "instantsToRollback",
        nested_record_schema("HoodieInstantInfo", required_field("commitTime", TEXT), required_field("action", TEXT)),
    ),
    VERSION,
    optional_field("savepointToRestoreTimestamp", TEXT),
)
#: Writer schema of ``<instant>.restore``.
RESTORE_METADATA: Final = file_schema(
    "HoodieRestoreMetadata",
    required_field("startRestoreTime", TEXT),
    required_field("timeTakenInMillis", "long"),
    required_field("instantsToRollback", TEXTS),
    required_field("hoodieRestoreMetadata", map_schema(array_schema(["null", ROLLBACK_METADATA]))),
    VERSION,
    list_field("restoreInstantInfo", f"{NAMESPACE}.HoodieInstantInfo"),
)


@dataclass(frozen=True, slots=True)
class RestorePlan:
    """The plan of a restore: the instants to undo.

    Attributes:
        instants: Pairs (instant time, action), in the order in which they are undone.
        target: Time of the instant to whose state the table is restored; "" if an old writer did not store it.
    """

    instants: tuple[tuple[str, str], ...]
    target: str

    @property
    def times(self) -> frozenset[str]:
        """Return the times of the undone instants."""
        return frozenset(time for time, _ in self.instants)


@dataclass(frozen=True, slots=True)
class CompletedRestore:
    """A completed restore, to be encoded.

    Attributes:
        rollbacks: Maps the time of each undone instant to the rollback that undid it.
    """

    start_time: str
    time_taken_ms: int
    plan: RestorePlan
    rollbacks: Mapping[str, RollbackMetadata]


def encode_savepoint(metadata: SavepointMetadata) -> bytes:
    """Encode the completed file of a savepoint, ``<instant>.savepoint``."""
    partitions = {
        path: {"partitionPath": path, "savepointDataFile": list(names)} for path, names in metadata.files.items()
    }
    record = {
        "savepointedBy": metadata.saved_by,
        "savepointedAt": metadata.saved_at_ms,
        "comments": metadata.comments,
        "partitionMetadata": partitions,
        "version": 1,
    }
    return encode_record(SAVEPOINT, record)


def encode_restore_plan(plan: RestorePlan) -> bytes:
    """Encode the plan of a restore, ``<instant>.restore.requested``."""
    record = {
        "instantsToRollback": _encode_instants(plan),
        "version": _PLAN_FORM,
        "savepointToRestoreTimestamp": plan.target or None,
    }
    return encode_record(RESTORE_PLAN, record)


def decode_restore_plan(data: bytes, *, name: str) -> RestorePlan:
    """Decode the plan of a restore, ``<instant>.restore.requested``.

    Raises:
        CorruptTableError: ``data`` is not a restore plan.
    """
    record = decode_record(data, RESTORE_PLAN, name=name)
    instants = tuple((instant["commitTime"], instant["action"]) for instant in record["instantsToRollback"])
    return RestorePlan(instants, record["savepointToRestoreTimestamp"] or "")


def encode_restore(done: CompletedRestore) -> bytes:
    """Encode the completed file of a restore, ``<instant>.restore``."""
    record: dict[str, Any] = {
        "startRestoreTime": done.start_time,
        "timeTakenInMillis": done.time_taken_ms,
        "instantsToRollback": [time for time, _ in done.plan.instants],
        "hoodieRestoreMetadata": {time: [rollback_record(rollback)] for time, rollback in done.rollbacks.items()},
        "version": 1,
        "restoreInstantInfo": _encode_instants(done.plan),
    }
    return encode_record(RESTORE_METADATA, record)


def _encode_instants(plan: RestorePlan) -> list[dict[str, str]]:
    return [{"commitTime": time, "action": action} for time, action in plan.instants]
