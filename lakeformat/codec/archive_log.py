"""Archive files of timeline layout 1: Hudi's log format with Avro blocks of ``HoodieArchivedMetaEntry``."""

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
_COMPLETED: Final = frozenset({None, "COMPLETED"})  # Releases that archived only completed instants store no state.

_ENTRY_FIELDS: Final = (optional("commitTime", TEXT), optional("actionType", TEXT), optional("actionState", TEXT))


def referring(schema: Any, defined: set[str]) -> Any:
    """Return the schema with each record defined once and then referenced by name, as Avro requires.

    Args:
        defined: Names of the records that are defined already; new names are added.
    """
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
        record: Its fields under Hudi's names, with commit metadata if that was requested.
        source: Path of the file, for messages.
    """

    time: str
    action: str
    record: Mapping[str, Any]
    source: str

    def commit(self) -> CommitMetadata:
        """Return the metadata of a commit. Raise `CorruptTableError` if the entry holds none."""
        found = self.record.get("hoodieReplaceCommitMetadata") or self.record.get("hoodieCommitMetadata")
        return commit_of(found or {}, name=f"{self.source} (instant {self.time})")


def read_archive(source: Any, *, name: str, with_commits: bool = False) -> Iterator[ArchivedEntry]:
    """Read the completed instants of one archive file, in the file's order.

    A block that is not complete is skipped with a warning. If a crash left the block, its instants are still on the
    active timeline; but damage to the file looks the same. Memory: one block.

    Args:
        source: A seekable ``pyarrow.NativeFile``.
        name: The file's path, for messages.
        with_commits: Whether to decode commit metadata too.

    Raises:
        CorruptTableError: A complete block is not a block of an archive.
        UnsupportedTableError: The kind or version of a block is not known.
    """
    schema = _ENTRY_WITH_COMMIT if with_commits else _ENTRY
    rest = source.size()
    for block in blocks_of(source, name, source.size()):
        rest -= block.size_bytes
        source.seek(block.content_offset)
        try:
            yield from _decode_entries(block, source.read(block.content_bytes), schema)
        except (*DAMAGE, struct.error) as error:
            reason = str(error)[:300] or type(error).__name__
            raise CorruptTableError(f"{name} is not a readable archive: {reason}; restore it from a copy") from None
    if rest or not source.size():
        _LOG.warning(
            "%d bytes of %s are not a whole block; instants in them are not read: a crash left them, or the file "
            "is damaged; if instants are missing, restore it from a copy",
            rest,
            name,
        )


def _decode_entries(block: LogBlock, content: bytes, schema: Mapping[str, Any]) -> Iterator[ArchivedEntry]:
    """Decode a block's content: version (4 bytes), number of records (4), then each record after its length (4)."""
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
            raise ValueError(f"{action} at {time!r} is not an instant")
        if record["actionState"] in _COMPLETED:
            yield ArchivedEntry(time, str(action), record, block.name)
