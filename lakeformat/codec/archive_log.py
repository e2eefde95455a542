"""Files of timeline layout 1's archive: Hudi's log format, Avro blocks of ``HoodieArchivedMetaEntry``."""

from __future__ import annotations

import json
import logging
import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from lakeformat.codec.avro_container import DAMAGE, RecordReader
from lakeformat.codec.avro_fields import NAMESPACE, TEXT, file_of, optional
from lakeformat.codec.commit_avro import COMMIT_READER, REPLACE_READER
from lakeformat.codec.commit_json import commit_of
from lakeformat.codec.log_block import AVRO_CONTENT_VERSION, BlockKind, HeaderKey, LogBlock
from lakeformat.codec.log_envelope import blocks_of
from lakeformat.errors import CorruptTableError
from lakeformat.model.commit import CommitMetadata

__all__ = ["ArchivedEntry", "read_archive", "referring"]

_LOG: Final = logging.getLogger("lakeformat.timeline")
_HEAD: Final = struct.Struct(">ii")
_LENGTH: Final = struct.Struct(">i")
_COMPLETED: Final = frozenset({None, "COMPLETED"})  # Releases that archived nothing else do not say so.

_ENTRY_FIELDS: Final = (optional("commitTime", TEXT), optional("actionType", TEXT), optional("actionState", TEXT))


def referring(schema: Any, defined: set[str]) -> Any:
    """A schema whose records are defined once and then named, as Avro wants it."""
    match schema:
        case {"type": "record", "name": str(name)}:
            if name in defined:
                return f"{NAMESPACE}.{name}"
            defined.add(name)
            fields = [{**field, "type": referring(field["type"], defined)} for field in schema["fields"]]
            return {**schema, "fields": fields}
        case dict():
            return {key: referring(value, defined) for key, value in schema.items()}
        case list():
            return [referring(branch, defined) for branch in schema]
    return schema


_DEFINED: Final[set[str]] = set()
_ENTRY: Final = file_of("HoodieArchivedMetaEntry", *_ENTRY_FIELDS)
_ENTRY_WITH_COMMIT: Final = file_of(
    "HoodieArchivedMetaEntry",
    *_ENTRY_FIELDS,
    optional("hoodieCommitMetadata", referring(COMMIT_READER, _DEFINED)),
    optional("hoodieReplaceCommitMetadata", referring(REPLACE_READER, _DEFINED)),
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


def read_archive(source: Any, *, name: str, with_commits: bool = False) -> Iterator[ArchivedEntry]:
    """The completed instants of one archive file, in its order.

    What a crash left half written is skipped, with a warning: the instants of it were still active then, but damage to
    the file looks the same. Memory: a block.

    Args:
        source: a seekable ``pyarrow.NativeFile``.
        name: the file's path, for messages.
        with_commits: whether commit metadata is decoded, too.

    Raises:
        CorruptTableError: a whole block is none of an archive.
        UnsupportedTableError: a block is of a kind or version that is not known.
    """
    schema = _ENTRY_WITH_COMMIT if with_commits else _ENTRY
    rest = source.size()
    for block in blocks_of(source, name, source.size()):
        rest -= block.size_bytes
        source.seek(block.content_offset)
        try:
            yield from _entries(block, source.read(block.content_bytes), schema)
        except (*DAMAGE, struct.error) as error:
            reason = str(error)[:300] or type(error).__name__
            raise CorruptTableError(f"{name} is not a readable archive: {reason}; restore it from a copy") from None
    if rest or not source.size():
        _LOG.warning(
            "%d bytes of %s are no whole block, and the instants in them are not read: a crash left them, or the file "
            "is damaged; if instants are missing, restore it from a copy",
            rest,
            name,
        )


def _entries(block: LogBlock, content: bytes, schema: Mapping[str, Any]) -> Iterator[ArchivedEntry]:
    """Version (4), number of records (4), then each record behind its length (4)."""
    version, records = _HEAD.unpack_from(content)
    if block.kind is not BlockKind.AVRO_DATA or version != AVRO_CONTENT_VERSION:
        raise ValueError(f"it holds a block of kind {block.kind.name}, version {version}")
    reader, at = RecordReader(json.loads(block.told(HeaderKey.SCHEMA)), schema), _HEAD.size
    for _ in range(records):
        (length,) = _LENGTH.unpack_from(content, at)
        at += _LENGTH.size + length
        record = reader.read(content[at - length : at])
        time, action = str(record["commitTime"]), record["actionType"]
        if not (time.isascii() and time.isdigit()) or action is None:
            raise ValueError(f"it holds no instant, but {action} at {time!r}")
        if record["actionState"] in _COMPLETED:
            yield ArchivedEntry(time, str(action), record, block.name)
