"""Files of savepoints and restores: a savepoint, the plan of a restore, and what it did.

The same in every table version. Readers of other releases take fields by name, so all of Hudi's are written.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from lakeformat.codec.avro_container import decode_record, encode_record
from lakeformat.codec.avro_fields import (
    NAMESPACE,
    TEXT,
    TEXTS,
    VERSION,
    array_of,
    file_of,
    list_of,
    map_of,
    optional,
    record_of,
    required,
)
from lakeformat.codec.avro_records import ROLLBACK_METADATA, RollbackMetadata, SavepointMetadata, rollback_record

__all__ = [
    "RESTORE_METADATA",
    "RESTORE_PLAN",
    "SAVEPOINT",
    "RestorePlan",
    "Restored",
    "decode_restore_plan",
    "encode_restore",
    "encode_restore_plan",
    "encode_savepoint",
]

_PLAN_FORM: Final = 2

#: Writer schema of ``<instant>.savepoint``.
SAVEPOINT: Final = file_of(
    "HoodieSavepointMetadata",
    required("savepointedBy", TEXT),
    required("savepointedAt", "long"),
    required("comments", TEXT),
    required(
        "partitionMetadata",
        map_of(
            record_of(
                "HoodieSavepointPartitionMetadata",
                required("partitionPath", TEXT),
                required("savepointDataFile", TEXTS),
            )
        ),
    ),
    VERSION,
)
#: Writer schema of ``<instant>.restore.requested``.
RESTORE_PLAN: Final = file_of(
    "HoodieRestorePlan",
    list_of(
        "instantsToRollback",
        record_of("HoodieInstantInfo", required("commitTime", TEXT), required("action", TEXT)),
    ),
    VERSION,
    optional("savepointToRestoreTimestamp", TEXT),
)
#: Writer schema of ``<instant>.restore``.
RESTORE_METADATA: Final = file_of(
    "HoodieRestoreMetadata",
    required("startRestoreTime", TEXT),
    required("timeTakenInMillis", "long"),
    required("instantsToRollback", TEXTS),
    required("hoodieRestoreMetadata", map_of(array_of(["null", ROLLBACK_METADATA]))),
    VERSION,
    list_of("restoreInstantInfo", f"{NAMESPACE}.HoodieInstantInfo"),
)


@dataclass(frozen=True, slots=True)
class RestorePlan:
    """What a restore undoes.

    Attributes:
        instants: each as (instant time, action), in the order in which they are undone.
        target: the instant that is gone back to; "" where an old writer did not say.
    """

    instants: tuple[tuple[str, str], ...]
    target: str

    @property
    def times(self) -> frozenset[str]:
        """Of the instants."""
        return frozenset(time for time, _ in self.instants)


@dataclass(frozen=True, slots=True)
class Restored:
    """A finished restore; ``rollbacks``: instant time -> how it was undone."""

    start_time: str
    time_taken_ms: int
    plan: RestorePlan
    rollbacks: Mapping[str, RollbackMetadata]


def encode_savepoint(metadata: SavepointMetadata) -> bytes:
    """The bytes of ``<instant>.savepoint``."""
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
    """The bytes of ``<instant>.restore.requested``."""
    record = {
        "instantsToRollback": _infos(plan),
        "version": _PLAN_FORM,
        "savepointToRestoreTimestamp": plan.target or None,
    }
    return encode_record(RESTORE_PLAN, record)


def decode_restore_plan(data: bytes, *, name: str) -> RestorePlan:
    """Inverse of `encode_restore_plan`.

    Raises:
        CorruptTableError: the bytes are no such file.
    """
    record = decode_record(data, RESTORE_PLAN, name=name)
    instants = tuple((instant["commitTime"], instant["action"]) for instant in record["instantsToRollback"])
    return RestorePlan(instants, record["savepointToRestoreTimestamp"] or "")


def encode_restore(done: Restored) -> bytes:
    """The bytes of ``<instant>.restore``."""
    record: dict[str, Any] = {
        "startRestoreTime": done.start_time,
        "timeTakenInMillis": done.time_taken_ms,
        "instantsToRollback": [time for time, _ in done.plan.instants],
        "hoodieRestoreMetadata": {time: [rollback_record(one)] for time, one in done.rollbacks.items()},
        "version": 1,
        "restoreInstantInfo": _infos(done.plan),
    }
    return encode_record(RESTORE_METADATA, record)


def _infos(plan: RestorePlan) -> list[dict[str, str]]:
    return [{"commitTime": time, "action": action} for time, action in plan.instants]
