"""Commit metadata as Avro, the form of timeline layout 2 (Hudi: ``CommitMetadataSerDeV2``)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from lakeformat.codec.avro_container import decode_record, encode_record
from lakeformat.codec.avro_fields import TEXT, TEXTS, VERSION, array_of, file_of, map_of, optional, record_of
from lakeformat.codec.commit_json import commit_of, document_of
from lakeformat.model.commit import CommitMetadata

__all__ = ["COMMIT_METADATA", "COMMIT_READER", "REPLACE_METADATA", "REPLACE_READER", "decode_commit_avro", "encode_commit_avro"]

_TIMES: Final = record_of(
    "HoodieRuntimeStats",
    optional("totalScanTime", "long"),
    optional("totalCreateTime", "long"),
    optional("totalUpsertTime", "long"),
)
#: Fields of a write stat, in Hudi's order.
_STAT: Final[Mapping[str, Any]] = {
    **dict.fromkeys(("fileId", "path", "prevCommit"), TEXT),
    **dict.fromkeys(("numWrites", "numDeletes", "numUpdateWrites", "totalWriteBytes", "totalWriteErrors"), "long"),
    "partitionPath": TEXT,
    **dict.fromkeys(("totalLogRecords", "totalLogFiles", "totalUpdatedRecordsCompacted", "numInserts"), "long"),
    **dict.fromkeys(("totalLogBlocks", "totalCorruptLogBlock", "totalRollbackBlocks", "fileSizeInBytes"), "long"),
    "logVersion": "int",
    "logOffset": "long",
    "baseFile": TEXT,
    "logFiles": {**TEXTS, "default": None},
    "cdcStats": {**map_of("long"), "default": None},
    "prevBaseFile": TEXT,
    **dict.fromkeys(("minEventTime", "maxEventTime"), "long"),
    "runtimeStats": _TIMES,
    **dict.fromkeys(("totalLogFilesCompacted", "totalLogReadTimeMs", "totalLogSizeCompacted"), "long"),
    "tempPath": TEXT,
    "numUpdates": "long",
}
#: Counts that only the Avro form has, as Hudi writes them. The Avro form also has ``prevBaseFile``.
_BEYOND_JSON: Final = {"totalLogReadTimeMs": 0, "numUpdates": 0}
#: The fields that `WriteStat` holds. Files of older releases may lack some of them.
_READ: Final = (
    *("fileId", "path", "prevCommit", "numWrites", "numDeletes", "numUpdateWrites", "totalWriteBytes", "partitionPath"),
    *("numInserts", "fileSizeInBytes", "baseFile", "logFiles", "cdcStats"),
)


def _metadata(name: str, stat_fields: tuple[str, ...], *more: Mapping[str, Any]) -> dict[str, Any]:
    stat = record_of("HoodieWriteStat", *(optional(field, _STAT[field]) for field in stat_fields))
    extra = map_of(TEXT) if more else {**map_of(TEXT), "default": None}  # Hudi's two schemas differ in this default.
    return file_of(
        name,
        optional("partitionToWriteStats", map_of(array_of(stat))),
        optional("compacted", "boolean"),
        optional("extraMetadata", extra),
        VERSION,
        optional("operationType", TEXT),
        *more,
    )


_REPLACED: Final = optional("partitionToReplaceFileIds", map_of(TEXTS))
#: Writer schema of a completed commit or deltacommit, and of the inflight file of any write.
COMMIT_METADATA: Final = _metadata("HoodieCommitMetadata", tuple(_STAT))
#: Writer schema of a completed replacecommit.
REPLACE_METADATA: Final = _metadata("HoodieReplaceCommitMetadata", tuple(_STAT), _REPLACED)
#: Reader schemas with only the fields that `CommitMetadata` holds.
COMMIT_READER: Final = _metadata("HoodieCommitMetadata", _READ)
REPLACE_READER: Final = _metadata("HoodieReplaceCommitMetadata", _READ, _REPLACED)


def encode_commit_avro(metadata: CommitMetadata, *, replace: bool = False) -> bytes:
    """Encode a commit's inflight or completed file; with ``replace``, that of a replacecommit."""
    document = {**document_of(metadata, replace=replace), "version": None}
    for path, stats in metadata.stats.items():
        for record, stat in zip(document["partitionToWriteStats"][path], stats, strict=True):
            record.update(_BEYOND_JSON, prevBaseFile=None if "baseFile" in record else stat.base_name or None)
    return encode_record(REPLACE_METADATA if replace else COMMIT_METADATA, document)


def decode_commit_avro(data: bytes, *, name: str) -> CommitMetadata:
    """Decode a commit's file that any Hudi release wrote.

    Raises:
        CorruptTableError: The file is not commit metadata; the message names the file.
    """
    return commit_of(decode_record(data, COMMIT_READER, REPLACE_READER, name=name), name=name)
