"""Encoding and decoding of commit metadata as JSON and as Avro, and conversion of files from one to the other.

Timeline layout 1 stores JSON (Hudi: ``HoodieCommitMetadata.toJsonString``), layout 2 stores Avro
(Hudi: ``CommitMetadataSerDeV2``). The conversion preserves every field that exists in both formats.

Damage must not change rows silently. So a file of lakeformat has a checksum of its values, and a file of any program
must agree with itself: the path of a write stat lies in its partition, and its file name has its file id.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterable, Mapping
from dataclasses import replace as replace_fields
from functools import lru_cache
from operator import attrgetter, itemgetter
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
from lakeformat.codec.field_names import check_names
from lakeformat.codec.json_text import parse_json
from lakeformat.errors import CorruptTableError
from lakeformat.model.commit import CommitMetadata, LogsMerged, WriteStat
from lakeformat.model.files import LogFileName, match_data_file

__all__ = [
    "CHECKSUM_KEY",
    "COMMIT_METADATA",
    "COMMIT_READER",
    "MAX_BYTES",
    "REPLACE_METADATA",
    "REPLACE_READER",
    "commit_document",
    "commit_to_avro",
    "commit_to_json",
    "compute_checksum",
    "decode_commit",
    "decode_commit_avro",
    "decode_commit_json",
    "decode_json",
    "encode_commit_avro",
    "encode_commit_json",
    "parse_commit",
    "without_checksum",
]

#: Maximum size in bytes of a timeline file that is parsed. Files of Hudi are far smaller.
MAX_BYTES: Final = 64 << 20

#: Advice in errors about a damaged completed file. If the user deletes the file, the commit becomes pending, and the
#: next write rolls it back, so that its rows are lost.
_RESTORE_ADVICE: Final = "restore it from a copy; lakeformat check says what else helps"
#: Key of ``extraMetadata`` for the checksum of a commit that lakeformat has written. No `CommitMetadata` contains it.
CHECKSUM_KEY: Final = "lakeformat.checksum"
#: A key that Hudi adds to the extra metadata of a commit that it converts (``HoodieRollingStatMetadata``).
_ROLLING_STATS: Final = "ROLLING_STAT"
_NULL_COMMIT: Final = "null"
_STATS: Final = "partitionToWriteStats"
_REPLACED_FIELD: Final = "partitionToReplaceFileIds"
#: Ends of the names of base files in formats that are not read.
_OTHER_FORMATS: Final = (".orc", ".hfile", ".lance")
#: The fields of a commit.
_DOCUMENT: Final = (_STATS, "compacted", "extraMetadata", "operationType", _REPLACED_FIELD)
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
        "extraMetadata": {**metadata.extra, CHECKSUM_KEY: compute_checksum(metadata, replace=replace)},
        "operationType": metadata.operation,
    }
    if replace:
        document["partitionToReplaceFileIds"] = {p: list(ids) for p, ids in metadata.replaced.items()}
    return document


#: The fields of a write stat that a checksum covers: those that every conversion between JSON and Avro keeps, also
#: Hudi's in an upgrade or downgrade. It loses the fields that only log files have. Earlier releases do not know the
#: number of refused rows, and would miss it in the checksum; nothing that is read depends on it.
_CHECKED_FIELDS: Final = attrgetter(
    *("path", "file_id", "partition_path", "prev_commit", "num_writes", "num_deletes", "num_updates", "num_inserts"),
    *("size_bytes", "cdc_stats"),
)


def compute_checksum(metadata: CommitMetadata, *, replace: bool = True) -> str:
    """Return the checksum of a commit's values, which does not depend on its encoding or on the order of its maps.

    Args:
        metadata: The commit.
        replace: Whether the file says which file groups the commit replaces.
    """
    replaced = metadata.replaced if replace else {}
    content = [
        [
            [path, sorted(map(_CHECKED_FIELDS, stats), key=itemgetter(0))]
            for path, stats in sorted(metadata.stats.items())
        ],
        [[path, sorted(ids)] for path, ids in sorted(replaced.items())],
        sorted(pair for pair in metadata.extra.items() if pair[0] not in (CHECKSUM_KEY, _ROLLING_STATS)),
    ]
    return f"{zlib.crc32(json.dumps(content, separators=(',', ':')).encode()):08x}"


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
        "totalWriteErrors": stat.write_errors,
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


def decode_json(data: bytes, *, name: str, is_strict: bool = False) -> dict[str, Any]:
    """Parse a timeline file as a JSON object.

    Args:
        data: The file's bytes.
        name: The file's path, for messages.
        is_strict: Whether to refuse an object in which a name occurs twice. It costs time.

    Raises:
        CorruptTableError: The file is empty, too large, not JSON, nested too deep or not an object; the message names
            the file.
    """
    if not data:
        raise CorruptTableError(f"{name} is empty; {_RESTORE_ADVICE}")
    if len(data) > MAX_BYTES:
        raise CorruptTableError(f"{name} has {len(data)} bytes, more than any timeline file; restore it")
    try:
        document = parse_json(
            data, parse_constant=_refuse_constant, object_pairs_hook=_make_object if is_strict else None
        )
    except (ValueError, RecursionError) as error:
        raise CorruptTableError(f"{name} is not readable as JSON ({error}); {_RESTORE_ADVICE}") from None
    if not isinstance(document, dict):
        raise CorruptTableError(f"{name} holds no JSON object; {_RESTORE_ADVICE}")
    return document


def _make_object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Make a JSON object. Refuse one with two fields of the same name: damage has made one partition of two."""
    made = dict(pairs)
    if len(made) < len(pairs):
        names = [name for name, _ in pairs]
        raise ValueError(f"it has {next(name for name in names if names.count(name) > 1)!r} twice")
    return made


def _refuse_constant(text: str) -> None:
    raise ValueError(f"{text} is not a JSON number")


def decode_commit_json(data: bytes, *, name: str) -> CommitMetadata:
    """Decode a commit's JSON file, written by any Hudi release.

    Raises:
        CorruptTableError: The file is not commit metadata, or is damaged; the message names the file.
    """
    document = decode_json(data, name=name, is_strict=CHECKSUM_KEY.encode() not in data)
    extra = document.get("extraMetadata")
    if not (isinstance(extra, dict) and CHECKSUM_KEY in extra):
        _check_document(document, name)
    return _check(parse_commit(document, name=name), name)


def _check_document(document: Mapping[str, Any], name: str) -> None:
    """Check the names of a commit's fields.

    Raises:
        CorruptTableError: A field without which a commit is not complete is missing, or a name seems to be damaged.
    """
    try:
        if _STATS not in document:
            raise ValueError(f"it has no {_STATS}")
        check_names(document, _DOCUMENT)
        for stat in (stat for stats in (document[_STATS] or {}).values() for stat in stats):
            _check_stat_names(tuple(stat))
    except (AttributeError, TypeError, ValueError) as error:
        raise _make_damage(name, str(error)) from None


@lru_cache(maxsize=256)  # The stats of a commit have one or two sets of fields.
def _check_stat_names(names: tuple[str, ...]) -> None:
    check_names(names, _STAT)
    for needed in ("fileId", "path", "partitionPath"):
        if needed not in names:
            raise ValueError(f"a write stat has no {needed}")


def _make_damage(name: str, reason: str) -> CorruptTableError:
    return CorruptTableError(f"{name} is damaged: {reason[:300]}; {_RESTORE_ADVICE}")


def parse_commit(document: Mapping[str, Any], *, name: str) -> CommitMetadata:
    """Parse fields of ``HoodieCommitMetadata`` or ``HoodieReplaceCommitMetadata``: the inverse of `commit_document`.

    Raises:
        CorruptTableError: A field is missing or has a wrong type; the message names the file.
    """
    try:
        stats = {
            partition: tuple(_read_stat(partition, stat) for stat in entries)
            for partition, entries in (document.get(_STATS) or {}).items()
        }
        extra = {k: str(v) for k, v in (document.get("extraMetadata") or {}).items() if v is not None}
        replaced = {
            partition: tuple(str(file_id) for file_id in ids)
            for partition, ids in (document.get(_REPLACED_FIELD) or {}).items()
        }
        operation = str(document.get("operationType") or "UNKNOWN")
        compacted = document.get("compacted") is True
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise CorruptTableError(
            f"{name} is not commit metadata ({type(error).__name__}: {error}); {_RESTORE_ADVICE}"
        ) from None
    return CommitMetadata(operation, stats, extra, replaced, compacted)


def _check(metadata: CommitMetadata, name: str) -> CommitMetadata:
    """Return the commit without its checksum.

    Raises:
        CorruptTableError: The commit does not have its checksum; or it has none, and contradicts itself.
    """
    checksum = metadata.extra.get(CHECKSUM_KEY)
    if checksum is not None:
        if checksum != compute_checksum(metadata):
            raise _make_damage(name, f"its contents do not have its checksum {checksum!r}")
        return without_checksum(metadata)
    try:
        check_names(metadata.extra, ("schema", CHECKSUM_KEY))
        for partition, stats in metadata.stats.items():
            _check_stats(partition, stats)
    except ValueError as error:
        raise _make_damage(name, str(error)) from None
    return metadata


def without_checksum(metadata: CommitMetadata) -> CommitMetadata:
    """Return a commit whose extra metadata does not contain the checksum."""
    if CHECKSUM_KEY not in metadata.extra:
        return metadata
    return replace_fields(metadata, extra={k: v for k, v in metadata.extra.items() if k != CHECKSUM_KEY})


def _check_stats(partition: str, stats: Iterable[WriteStat]) -> None:
    """Check that the write stats of a partition belong to it, and that their paths have their file ids.

    Raises:
        ValueError: One of them does not.
    """
    for stat in stats:
        if stat.partition_path != partition:
            raise ValueError(f"a write stat of partition {partition!r} has the partitionPath {stat.partition_path!r}")
        if not stat.path:  # It belongs to an inflight file.
            continue
        folder, _, bare = stat.path.rpartition("/")
        if folder != partition and _segments(folder) != _segments(partition):
            raise ValueError(f"{stat.path!r} does not lie in its partition {partition!r}")
        file_name = match_data_file(bare)
        if file_name is None and not bare.endswith(_OTHER_FORMATS):
            raise ValueError(f"{stat.path!r} is neither a base file nor a log file")
        if file_name is not None and file_name.file_id != stat.file_id:
            raise ValueError(f"{stat.path!r} has not the fileId {stat.file_id!r}")


def _segments(path: str) -> list[str]:
    return [segment for segment in path.split("/") if segment]


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
        write_errors=int(stat.get("totalWriteErrors") or 0),
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
    *("totalWriteErrors", "numInserts", "fileSizeInBytes", "baseFile", "logFiles", "cdcStats"),
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
        CorruptTableError: The file is not commit metadata, or is damaged; the message names the file.
    """
    return _check(parse_commit(decode_record(data, COMMIT_READER, REPLACE_READER, name=name), name=name), name)


def decode_commit(data: bytes, *, name: str) -> CommitMetadata:
    """Decode the file of a commit, deltacommit or replacecommit. Its first bytes decide whether it is Avro or JSON.

    Raises:
        CorruptTableError: The file is not commit metadata; the message names the file.
    """
    if is_container(data):
        return decode_commit_avro(data, name=name)
    return decode_commit_json(data, name=name)


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
        raise CorruptTableError(f"{name} is not commit metadata ({reason}); {_RESTORE_ADVICE}") from None


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
