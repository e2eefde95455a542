"""Encoding and decoding of commit metadata as JSON and as Avro, and conversion of files from one to the other.

Timeline layout 1 stores JSON (Hudi: ``HoodieCommitMetadata.toJsonString``), layout 2 stores Avro
(Hudi: ``CommitMetadataSerDeV2``). The conversion preserves every field that exists in both formats.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

from lakeformat.codec.avro.container import (
    TEXT,
    TEXTS,
    VERSION,
    array_schema,
    decode_record,
    encode_record,
    file_schema,
    is_container,
    map_schema,
    nested_record_schema,
    optional_field,
)
from lakeformat.errors import CorruptTableError
from lakeformat.model.commit import CommitMetadata, LogsMerged, WriteStat
from lakeformat.model.files import LogFileName

__all__ = [
    "COMMIT_METADATA",
    "COMMIT_READER",
    "MAX_BYTES",
    "REPLACE_METADATA",
    "REPLACE_READER",
    "commit_document",
    "commit_to_avro",
    "commit_to_json",
    "decode_commit",
    "decode_commit_avro",
    "decode_commit_json",
    "decode_json",
    "encode_commit_avro",
    "encode_commit_json",
    "parse_commit",
]

#: Maximum size in bytes of a timeline file that is parsed. Files of Hudi are far smaller.
MAX_BYTES: Final = 64 << 20

#: Advice in errors about a damaged completed file. If the user deletes the file, the commit becomes pending, and the
#: next write rolls it back, so that its rows are lost.
_RESTORE_ADVICE: Final = "restore it from a copy, and do not delete it: its commit would be undone, rows and all"
_NULL_COMMIT: Final = "null"
_NOTHING_MERGED: Final = LogsMerged(0, 0, 0, 0)


def encode_commit_json(metadata: CommitMetadata, *, replace: bool = False) -> bytes:
    """Encode the inflight or completed file of a commit as JSON. ``replace`` adds ``partitionToReplaceFileIds``."""
    document = commit_document(metadata, replace=replace)
    return json.dumps(document, indent=1, ensure_ascii=False, separators=(",", " : ")).encode()


def commit_document(metadata: CommitMetadata, *, replace: bool) -> dict[str, Any]:
    """Return a commit as the fields of ``HoodieCommitMetadata``, or if ``replace``, ``HoodieReplaceCommitMetadata``."""
    document: dict[str, Any] = {
        "partitionToWriteStats": {
            partition: [_encode_stat(stat) for stat in stats] for partition, stats in metadata.stats.items()
        },
        "compacted": metadata.compacted,
        "extraMetadata": dict(metadata.extra),
        "operationType": metadata.operation,
    }
    if replace:
        document["partitionToReplaceFileIds"] = {p: list(ids) for p, ids in metadata.replaced.items()}
    return document


def _encode_stat(stat: WriteStat) -> dict[str, Any]:
    log = LogFileName.match(stat.path.rpartition("/")[2])
    delta: dict[str, Any] = {}
    if log is not None:
        delta = {"logVersion": log.version, "logOffset": 0, "baseFile": stat.base_name, "logFiles": [*stat.log_names]}
    merged = stat.merged or _NOTHING_MERGED
    return {
        "fileId": stat.file_id,
        "path": stat.path or None,
        "cdcStats": dict(stat.cdc_stats) or None,
        "prevCommit": stat.prev_commit or _NULL_COMMIT,
        "numWrites": stat.num_writes,
        "numDeletes": stat.num_deletes,
        "numUpdateWrites": stat.num_updates,
        "numInserts": stat.num_inserts,
        "totalWriteBytes": stat.size_bytes,
        "totalWriteErrors": 0,
        "tempPath": None,
        "partitionPath": stat.partition_path,
        "totalLogRecords": merged.records,
        "totalLogFilesCompacted": merged.files,
        "totalLogSizeCompacted": merged.size_bytes,
        "totalUpdatedRecordsCompacted": merged.records,
        "totalLogBlocks": merged.blocks,
        "totalCorruptLogBlock": 0,
        "totalRollbackBlocks": 0,
        "fileSizeInBytes": stat.size_bytes,
        "minEventTime": None,
        "maxEventTime": None,
        "runtimeStats": None,
        **delta,
    }


def decode_json(data: bytes, *, name: str) -> dict[str, Any]:
    """Parse a timeline file as a JSON object.

    Raises:
        CorruptTableError: The file is empty, too large, not JSON, nested too deep or not an object; the message names
            the file.
    """
    if not data:
        raise CorruptTableError(f"{name} is empty; {_RESTORE_ADVICE}")
    if len(data) > MAX_BYTES:
        raise CorruptTableError(f"{name} has {len(data)} bytes, more than any timeline file; restore it")
    try:
        document = json.loads(data, parse_constant=_refuse_constant)
    except (ValueError, RecursionError) as error:
        raise CorruptTableError(f"{name} is not readable as JSON ({error}); restore it from a copy") from None
    if not isinstance(document, dict):
        raise CorruptTableError(f"{name} holds no JSON object; restore it from a copy")
    return document


def _refuse_constant(text: str) -> None:
    raise ValueError(f"{text} is not a JSON number")


def decode_commit_json(data: bytes, *, name: str) -> CommitMetadata:
    """Decode a commit's JSON file, written by any Hudi release.

    Raises:
        CorruptTableError: The file is not commit metadata; the message names the file.
    """
    return parse_commit(decode_json(data, name=name), name=name)


def parse_commit(document: Mapping[str, Any], *, name: str) -> CommitMetadata:
    """Parse fields of ``HoodieCommitMetadata`` or ``HoodieReplaceCommitMetadata``: the inverse of `commit_document`.

    Raises:
        CorruptTableError: A field is missing or has a wrong type; the message names the file.
    """
    try:
        stats = {
            partition: tuple(_read_stat(partition, stat) for stat in entries)
            for partition, entries in (document.get("partitionToWriteStats") or {}).items()
        }
        extra = {k: str(v) for k, v in (document.get("extraMetadata") or {}).items() if v is not None}
        replaced = {
            partition: tuple(str(file_id) for file_id in ids)
            for partition, ids in (document.get("partitionToReplaceFileIds") or {}).items()
        }
        operation = str(document.get("operationType") or "UNKNOWN")
        compacted = document.get("compacted") is True
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise CorruptTableError(
            f"{name} is not commit metadata ({type(error).__name__}: {error}); restore it from a copy"
        ) from None
    return CommitMetadata(operation, stats, extra, replaced, compacted)


def _read_stat(partition: str, stat: Mapping[str, Any]) -> WriteStat:
    previous, logs, cdc = stat.get("prevCommit"), stat.get("logFiles"), stat.get("cdcStats")
    stored = stat.get("partitionPath")
    return WriteStat(
        file_id=str(stat["fileId"]),
        path=str(stat.get("path") or ""),
        partition_path=partition if stored is None or stored == partition else str(stored),  # Saves memory.
        prev_commit=None if previous in (None, _NULL_COMMIT, "") else str(previous),
        num_writes=int(stat.get("numWrites") or 0),
        num_deletes=int(stat.get("numDeletes") or 0),
        num_updates=int(stat.get("numUpdateWrites") or 0),
        num_inserts=int(stat.get("numInserts") or 0),
        size_bytes=int(stat.get("fileSizeInBytes") or stat.get("totalWriteBytes") or 0),
        base_name=str(stat.get("baseFile") or ""),
        log_names=tuple(map(str, logs)) if logs else (),
        cdc_stats=tuple((str(path), int(size)) for path, size in cdc.items()) if cdc else (),
    )


_TIMES: Final = nested_record_schema(
    "HoodieRuntimeStats",
    optional_field("totalScanTime", "long"),
    optional_field("totalCreateTime", "long"),
    optional_field("totalUpsertTime", "long"),
)
#: Maps the fields of a write stat to their Avro types, in Hudi's order.
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
    "cdcStats": {**map_schema("long"), "default": None},
    "prevBaseFile": TEXT,
    **dict.fromkeys(("minEventTime", "maxEventTime"), "long"),
    "runtimeStats": _TIMES,
    **dict.fromkeys(("totalLogFilesCompacted", "totalLogReadTimeMs", "totalLogSizeCompacted"), "long"),
    "tempPath": TEXT,
    "numUpdates": "long",
}
#: Fields of a write stat that Hudi writes to Avro and not to JSON, with their constant values.
_BEYOND_JSON: Final = {"totalLogReadTimeMs": 0, "numUpdates": 0}
#: The stored fields of a write stat that are decoded to `WriteStat`. Files of older releases may lack some of them.
_READ: Final = (
    *("fileId", "path", "prevCommit", "numWrites", "numDeletes", "numUpdateWrites", "totalWriteBytes", "partitionPath"),
    *("numInserts", "fileSizeInBytes", "baseFile", "logFiles", "cdcStats"),
)


def _metadata(name: str, stat_fields: tuple[str, ...], *more: Mapping[str, Any]) -> dict[str, Any]:
    stat = nested_record_schema("HoodieWriteStat", *(optional_field(field, _STAT[field]) for field in stat_fields))
    extra = (
        map_schema(TEXT) if more else {**map_schema(TEXT), "default": None}
    )  # In Hudi's schemas only HoodieCommitMetadata has this default.
    return file_schema(
        name,
        optional_field("partitionToWriteStats", map_schema(array_schema(stat))),
        optional_field("compacted", "boolean"),
        optional_field("extraMetadata", extra),
        VERSION,
        optional_field("operationType", TEXT),
        *more,
    )


_REPLACED: Final = optional_field("partitionToReplaceFileIds", map_schema(TEXTS))
#: Writer schema of a completed commit or deltacommit, and of the inflight file of any write.
COMMIT_METADATA: Final = _metadata("HoodieCommitMetadata", tuple(_STAT))
#: Writer schema of a completed replacecommit.
REPLACE_METADATA: Final = _metadata("HoodieReplaceCommitMetadata", tuple(_STAT), _REPLACED)
#: Reader schema of a commit, with only the fields that `CommitMetadata` has.
COMMIT_READER: Final = _metadata("HoodieCommitMetadata", _READ)
#: Reader schema of a replacecommit, with only the fields that `CommitMetadata` has.
REPLACE_READER: Final = _metadata("HoodieReplaceCommitMetadata", _READ, _REPLACED)


def encode_commit_avro(metadata: CommitMetadata, *, replace: bool = False) -> bytes:
    """Encode the inflight or completed file of a commit as Avro; if ``replace``, that of a replacecommit."""
    document = {**commit_document(metadata, replace=replace), "version": None}
    for path, stats in metadata.stats.items():
        for record, stat in zip(document["partitionToWriteStats"][path], stats, strict=True):
            record.update(_BEYOND_JSON, prevBaseFile=None if "baseFile" in record else stat.base_name or None)
    return encode_record(REPLACE_METADATA if replace else COMMIT_METADATA, document)


def decode_commit_avro(data: bytes, *, name: str) -> CommitMetadata:
    """Decode a commit's Avro file, written by any Hudi release.

    Raises:
        CorruptTableError: The file is not commit metadata; the message names the file.
    """
    return parse_commit(decode_record(data, COMMIT_READER, REPLACE_READER, name=name), name=name)


def decode_commit(data: bytes, *, name: str) -> CommitMetadata:
    """Decode the file of a commit, deltacommit or replacecommit. Its first bytes decide whether it is Avro or JSON.

    Raises:
        CorruptTableError: The file is not commit metadata; the message names the file.
    """
    if is_container(data):
        return decode_commit_avro(data, name=name)
    return decode_commit_json(data, name=name)


_STATS: Final = "partitionToWriteStats"
_REPLACED_FIELD: Final = "partitionToReplaceFileIds"
#: Fields of a write stat that JSON has only for log files.
_OF_LOGS: Final = frozenset({"logVersion", "logOffset", "baseFile", "logFiles"})
#: Fields of a write stat that JSON never has.
_AVRO_ALONE: Final = frozenset({"numUpdates", "totalLogReadTimeMs", "prevBaseFile", "totalLogFiles"})


def commit_to_avro(data: bytes, *, replace: bool, name: str) -> bytes:
    """Convert the bytes of a commit file to Avro. Return them unchanged if they are Avro already, or empty.

    Args:
        data: The file's bytes.
        replace: Whether the file is that of a completed replacecommit.
        name: The file's path, for messages.

    Raises:
        CorruptTableError: The file is not commit metadata; the message names the file.
    """
    if not data or is_container(data):
        return data
    document = decode_json(data, name=name)
    try:
        record = {
            _STATS: {path: [_without_nulls(stat) for stat in stats] for path, stats in _map(document, _STATS).items()},
            "compacted": document.get("compacted") is True,
            "extraMetadata": {k: str(v) for k, v in _map(document, "extraMetadata").items() if v is not None},
            "version": None,
            "operationType": document.get("operationType"),
            _REPLACED_FIELD: _map(document, _REPLACED_FIELD),
        }
        return encode_record(REPLACE_METADATA if replace else COMMIT_METADATA, record)
    except (AttributeError, LookupError, OverflowError, TypeError, ValueError) as error:
        reason = f"{type(error).__name__}: {error}"[:300]
        raise CorruptTableError(f"{name} is not commit metadata ({reason}); restore it from a copy") from None


def _map(document: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    return document.get(key) or {}


def _without_nulls(stat: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in stat.items() if value is not None}


def commit_to_json(data: bytes, *, replace: bool, name: str) -> bytes:
    """Convert the bytes of a commit file to JSON. Return them unchanged if they are JSON already, or empty."""
    if not data or not is_container(data):
        return data
    record = decode_record(data, COMMIT_METADATA, REPLACE_METADATA, name=name)
    document = {
        _STATS: {path: [_json_stat(stat) for stat in stats] for path, stats in (record[_STATS] or {}).items()},
        "compacted": record["compacted"] is True,
        "extraMetadata": record["extraMetadata"] or {},
        "operationType": record["operationType"],
    }
    if replace:
        document[_REPLACED_FIELD] = record.get(_REPLACED_FIELD) or {}
    return json.dumps(document, indent=1, ensure_ascii=False, separators=(",", " : ")).encode()


def _json_stat(stat: Mapping[str, Any]) -> dict[str, Any]:
    without = _AVRO_ALONE if stat["logFiles"] is not None else _AVRO_ALONE | _OF_LOGS
    return {key: value for key, value in stat.items() if key not in without}
