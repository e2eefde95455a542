"""Conversion of commit metadata between JSON and Avro. Every field that both forms have is kept."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

from lakeformat.codec.avro_container import decode_record, encode_record, is_container
from lakeformat.codec.commit_avro import COMMIT_METADATA, REPLACE_METADATA
from lakeformat.codec.commit_json import decode_json
from lakeformat.errors import CorruptTableError

__all__ = ["avro_of", "json_of"]

_STATS: Final = "partitionToWriteStats"
_REPLACED_FIELD: Final = "partitionToReplaceFileIds"
#: Fields of a write stat that JSON has only for log files, and fields that JSON lacks.
_OF_LOGS: Final = frozenset({"logVersion", "logOffset", "baseFile", "logFiles"})
_AVRO_ALONE: Final = frozenset({"numUpdates", "totalLogReadTimeMs", "prevBaseFile", "totalLogFiles"})


def avro_of(data: bytes, *, replace: bool, name: str) -> bytes:
    """Convert a commit file to Avro. Return it unchanged if it is Avro already or empty.

    Args:
        replace: Whether the file is that of a completed replacecommit.

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


def json_of(data: bytes, *, replace: bool, name: str) -> bytes:
    """Convert a commit file to JSON. Return it unchanged if it is JSON already or empty."""
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
