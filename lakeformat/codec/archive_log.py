"""Files of timeline layout 1's archive: Hudi's log format, Avro blocks of ``HoodieArchivedMetaEntry``."""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from lakeformat.codec.avro_container import DAMAGE, RecordReader
from lakeformat.codec.avro_fields import NAMESPACE, TEXT, file_of, optional
from lakeformat.codec.commit_avro import COMMIT_READER, REPLACE_READER
from lakeformat.codec.commit_json import commit_of
from lakeformat.errors import CorruptTableError
from lakeformat.model.commit import CommitMetadata

__all__ = ["ArchivedEntry", "read_archive"]

_MAGIC: Final = b"#HUDI#"
#: After the magic: bytes of the block, version of the format, type of the block, entries of the header.
_BLOCK: Final = struct.Struct(">qiii")
_FORMAT: Final = 1
_AVRO_DATA: Final = 3
_SCHEMA: Final = 2
_CONTENT: Final = 3
_COMPLETED: Final = frozenset({None, "COMPLETED"})  # Releases that archived nothing else do not say so.

_ENTRY_FIELDS: Final = (optional("commitTime", TEXT), optional("actionType", TEXT), optional("actionState", TEXT))


def _referring(schema: Any, defined: set[str]) -> Any:
    """A schema whose records are defined once and then named, as Avro wants it."""
    match schema:
        case {"type": "record", "name": str(name)}:
            if name in defined:
                return f"{NAMESPACE}.{name}"
            defined.add(name)
            fields = [{**field, "type": _referring(field["type"], defined)} for field in schema["fields"]]
            return {**schema, "fields": fields}
        case dict():
            return {key: _referring(value, defined) for key, value in schema.items()}
        case list():
            return [_referring(branch, defined) for branch in schema]
    return schema


_DEFINED: Final[set[str]] = set()
_ENTRY: Final = file_of("HoodieArchivedMetaEntry", *_ENTRY_FIELDS)
_ENTRY_WITH_COMMIT: Final = file_of(
    "HoodieArchivedMetaEntry",
    *_ENTRY_FIELDS,
    optional("hoodieCommitMetadata", _referring(COMMIT_READER, _DEFINED)),
    optional("hoodieReplaceCommitMetadata", _referring(REPLACE_READER, _DEFINED)),
)


@dataclass(frozen=True, slots=True)
class ArchivedEntry:
    """A completed instant of the archive.

    Attributes:
        record: its fields by Hudi's names, commit metadata among them if it was asked for.
        source: where it stands, for messages.
    """

    time: str
    action: str
    record: Mapping[str, Any]
    source: str

    def commit(self) -> CommitMetadata:
        """The metadata of a commit. Raises `CorruptTableError` if the entry holds none."""
        found = self.record.get("hoodieReplaceCommitMetadata") or self.record.get("hoodieCommitMetadata")
        return commit_of(found or {}, name=f"{self.source} (instant {self.time})")


def read_archive(data: bytes, *, name: str, with_commits: bool = False) -> Iterator[ArchivedEntry]:
    """The completed instants of one archive file, in its order.

    What a crash left half written is passed over: the instants of it were still active then.

    Args:
        data: the file's bytes.
        name: the file's path, for messages.
        with_commits: whether commit metadata is decoded, too.

    Raises:
        CorruptTableError: a whole block is none of an archive.
    """
    offset = data.find(_MAGIC)
    while offset >= 0:
        start = offset + len(_MAGIC)
        end = _end_of_block(data, start)
        if end is not None:
            try:
                yield from _entries(data[start:end], name, with_commits)
            except (*DAMAGE, struct.error) as error:
                reason = str(error)[:300] or type(error).__name__
                raise CorruptTableError(f"{name} is not a readable archive: {reason}; restore it from a copy") from None
        offset = data.find(_MAGIC, start if end is None else end)


def _end_of_block(data: bytes, start: int) -> int | None:
    """Where the block ends whose magic ends at ``start``; None if it is cut off, or overwritten."""
    if start + 8 > len(data):
        return None
    (size,) = struct.unpack_from(">q", data, start)
    end = start + 8 + size
    if size < 8 or end > len(data) or struct.unpack_from(">q", data, end - 8)[0] != size + len(_MAGIC):
        return None
    return end if len(data) - end < len(_MAGIC) or data.startswith(_MAGIC, end) else None


def _entries(block: bytes, name: str, with_commits: bool) -> Iterator[ArchivedEntry]:
    _, version, kind, count = _BLOCK.unpack_from(block)
    if version != _FORMAT or kind != _AVRO_DATA:
        raise ValueError(f"it holds a block of type {kind}, format {version}")
    header, at = {}, _BLOCK.size
    for _ in range(count):
        key, length = struct.unpack_from(">ii", block, at)
        header[key] = block[at + 8 : at + 8 + length]
        at += 8 + length
    at += 8  # The content's length, which the block's says as well.
    content, records = struct.unpack_from(">ii", block, at)
    if content != _CONTENT:
        raise ValueError(f"it holds content of version {content}")
    reader = RecordReader(json.loads(header[_SCHEMA]), _ENTRY_WITH_COMMIT if with_commits else _ENTRY)
    at += 8
    for _ in range(records):
        (length,) = struct.unpack_from(">i", block, at)
        record = reader.read(block[at + 4 : at + 4 + length])
        at += 4 + length
        if record["actionState"] in _COMPLETED:
            yield ArchivedEntry(str(record["commitTime"]), str(record["actionType"]), record, name)
