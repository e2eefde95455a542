"""Commit metadata as JSON, the form of timeline layout 1 (Hudi: ``HoodieCommitMetadata.toJsonString``)."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

from lakeformat.errors import CorruptTableError
from lakeformat.model.commit import CommitMetadata, LogsMerged, WriteStat
from lakeformat.model.files import LogFileName

__all__ = ["MAX_BYTES", "commit_of", "decode_commit_json", "decode_json", "document_of", "encode_commit_json"]

#: Greatest size of a timeline file that is parsed. Files of Hudi are far smaller.
MAX_BYTES: Final = 64 << 20

#: If a user deletes a damaged completed file, its commit is pending and the next write rolls it back.
_BRING_BACK: Final = "restore it from a copy, and do not delete it: its commit would be undone, rows and all"
_NULL_COMMIT: Final = "null"
_NOTHING_MERGED: Final = LogsMerged(0, 0, 0, 0)


def encode_commit_json(metadata: CommitMetadata, *, replace: bool = False) -> bytes:
    """Encode a commit's inflight or completed file; ``replace`` adds ``partitionToReplaceFileIds``."""
    document = document_of(metadata, replace=replace)
    return json.dumps(document, indent=1, ensure_ascii=False, separators=(",", " : ")).encode()


def document_of(metadata: CommitMetadata, *, replace: bool) -> dict[str, Any]:
    """Return the fields of ``HoodieCommitMetadata``, or with ``replace`` of ``HoodieReplaceCommitMetadata``."""
    document: dict[str, Any] = {
        "partitionToWriteStats": {
            partition: [_stat(stat) for stat in stats] for partition, stats in metadata.stats.items()
        },
        "compacted": metadata.compacted,
        "extraMetadata": dict(metadata.extra),
        "operationType": metadata.operation,
    }
    if replace:
        document["partitionToReplaceFileIds"] = {p: list(ids) for p, ids in metadata.replaced.items()}
    return document


def _stat(stat: WriteStat) -> dict[str, Any]:
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
        raise CorruptTableError(f"{name} is empty; {_BRING_BACK}")
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
    """Decode a commit's file that any Hudi release wrote.

    Raises:
        CorruptTableError: The file is not commit metadata; the message names the file.
    """
    return commit_of(decode_json(data, name=name), name=name)


def commit_of(document: Mapping[str, Any], *, name: str) -> CommitMetadata:
    """Make commit metadata of the fields of ``HoodieCommitMetadata`` or ``HoodieReplaceCommitMetadata``.

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
        partition_path=partition if stored is None or stored == partition else str(stored),  # Shares the key's text.
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
