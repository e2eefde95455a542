"""Commit metadata from JSON to Avro and back, field by field: nothing that both forms have is lost."""

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
_REPLACED: Final = "partitionToReplaceFileIds"
#: Fields of a file's statistics that JSON has for log files alone, and those that it does not have.
_OF_LOGS: Final = frozenset({"logVersion", "logOffset", "baseFile", "logFiles"})
_AVRO_ALONE: Final = frozenset({"numUpdates", "totalLogReadTimeMs", "prevBaseFile", "totalLogFiles"})


def avro_of(data: bytes, *, replace: bool, name: str) -> bytes:
    """The Avro form of a commit file, which may have it already; empty files stay so.

    Args:
        replace: whether it is a completed replacecommit's.

    Raises:
        CorruptTableError: the file is no commit metadata; names it.
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
            _REPLACED: _map(document, _REPLACED),
        }
        return encode_record(REPLACE_METADATA if replace else COMMIT_METADATA, record)
    except (AttributeError, LookupError, OverflowError, TypeError, ValueError) as error:
        reason = f"{type(error).__name__}: {error}"[:300]
        raise CorruptTableError(f"{name} is no commit metadata ({reason}); restore it from a copy") from None


def _map(document: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    return document.get(key) or {}


def _without_nulls(stat: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in stat.items() if value is not None}


def json_of(data: bytes, *, replace: bool, name: str) -> bytes:
    """The JSON form of a commit file: inverse of `avro_of`."""
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
        document[_REPLACED] = record.get(_REPLACED) or {}
    return json.dumps(document, indent=1, ensure_ascii=False, separators=(",", " : ")).encode()


def _json_stat(stat: Mapping[str, Any]) -> dict[str, Any]:
    without = _AVRO_ALONE if stat["logFiles"] is not None else _AVRO_ALONE | _OF_LOGS
    return {key: value for key, value in stat.items() if key not in without}
