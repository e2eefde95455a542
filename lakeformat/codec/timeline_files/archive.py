"""Archived instants: encoding for both timeline layouts, and reading of the archive files of layout 1.

An archive file of layout 1 is a log file with Avro blocks of ``HoodieArchivedMetaEntry``. Hudi writes a record for each
state of an instant. But Hudi reads only the completed record, and of a replacecommit or a clean the requested record,
which has the plan. So lakeformat writes only these records. The schema marks every text type as Java's ``String``
(``avro.java.string``); without the mark Hudi 1.x cannot list the archive.
"""

from __future__ import annotations

import io
import json
import logging
import struct
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, Final

import fastavro
import pyarrow as pa

from lakeformat.codec.avro.container import (
    DAMAGE,
    NAMESPACE,
    TEXT,
    VERSION,
    RecordReader,
    decode_record,
    file_schema,
    is_container,
    optional_field,
)
from lakeformat.codec.json_text import parse_json
from lakeformat.codec.log_blocks import AVRO_CONTENT_VERSION, BlockKind, HeaderKey, LogBlock, encode_block, parse_blocks
from lakeformat.codec.timeline_files.clean import CLEAN_METADATA, CLEAN_PLAN
from lakeformat.codec.timeline_files.commit import (
    COMMIT_METADATA,
    COMMIT_READER,
    REPLACE_METADATA,
    REPLACE_READER,
    decode_json,
    parse_commit,
    without_checksum,
)
from lakeformat.codec.timeline_files.recovery import ROLLBACK_METADATA
from lakeformat.codec.timeline_files.service_plans import REQUESTED_REPLACE
from lakeformat.errors import CorruptTableError
from lakeformat.model.commit import CommitMetadata

__all__ = [
    "HISTORY",
    "ArchivedEntry",
    "InstantToArchive",
    "encode_archive",
    "history_rows",
    "read_archive",
    "reference_records",
]

_LOG: Final = logging.getLogger("lakeformat.timeline")
_HEAD: Final = struct.Struct(">ii")
_LENGTH: Final = struct.Struct(">i")
#: The states in records of completed instants. None is one of them: old releases of Hudi stored no state, and archived
#: only completed instants.
_COMPLETED: Final = frozenset({None, "COMPLETED"})

_ENTRY_FIELDS: Final = (
    optional_field("commitTime", TEXT),
    optional_field("actionType", TEXT),
    optional_field("actionState", TEXT),
)


def reference_records(schema: Any, defined: set[str]) -> Any:
    """Return the schema with each repeated definition of a record replaced by its name, since Avro refuses repetitions.

    Args:
        schema: An Avro schema as parsed JSON.
        defined: Names of the records that earlier schemas of the same file define; the names in ``schema`` are added.
    """
    match schema:
        case {"type": "record", "name": str(name)}:
            if name in defined:
                return f"{NAMESPACE}.{name}"
            defined.add(name)
            fields = [{**field, "type": reference_records(field["type"], defined)} for field in schema["fields"]]
            return {**schema, "fields": fields}
        case dict():
            return {key: reference_records(value, defined) for key, value in schema.items()}
        case list():
            return [reference_records(branch, defined) for branch in schema]
    return schema


_DEFINED: Final[set[str]] = set()
_ENTRY: Final = file_schema("HoodieArchivedMetaEntry", *_ENTRY_FIELDS)
_ENTRY_WITH_COMMIT: Final = file_schema(
    "HoodieArchivedMetaEntry",
    *_ENTRY_FIELDS,
    optional_field("hoodieCommitMetadata", reference_records(COMMIT_READER, _DEFINED)),
    optional_field("hoodieReplaceCommitMetadata", reference_records(REPLACE_READER, _DEFINED)),
)


@dataclass(frozen=True, slots=True)
class ArchivedEntry:
    """A completed instant of the archive.

    Attributes:
        record: The fields of its ``HoodieArchivedMetaEntry``. They include commit metadata only if `read_archive` was
            called with ``with_commits``.
        source: Path of the file and position of the block, for messages.
    """

    time: str
    action: str
    record: Mapping[str, Any]
    source: str

    def commit(self) -> CommitMetadata:
        """Return the commit metadata; empty if the entry has none. Raise `CorruptTableError` if it is damaged."""
        metadata = self.record.get("hoodieReplaceCommitMetadata") or self.record.get("hoodieCommitMetadata")
        return without_checksum(parse_commit(metadata or {}, name=f"{self.source} (instant {self.time})"))


def read_archive(source: Any, *, name: str, with_commits: bool = False) -> Iterator[ArchivedEntry]:
    """Read the completed instants of one archive file, in the file's order.

    An incomplete block is skipped with a warning, because its cause is not known. If a crash of the writer left it, its
    instants are still on the active timeline and nothing is lost. If the file is damaged, the result lacks instants.
    Memory: one block.

    Args:
        source: A seekable ``pyarrow.NativeFile``.
        name: The file's path, for messages.
        with_commits: Whether to decode the commit metadata of commits too.

    Raises:
        CorruptTableError: A complete block is not a block of an archive.
        UnsupportedTableError: The kind or version of a block is not known.
    """
    schema = _ENTRY_WITH_COMMIT if with_commits else _ENTRY
    rest = source.size()
    for block in parse_blocks(source, name, source.size()):
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
    """Yield the completed instants of a block.

    The content is a version (4 bytes), the number of records (4 bytes), and for each record its length (4 bytes) and
    the record.
    """
    version, records = _HEAD.unpack_from(content)
    if block.kind is not BlockKind.AVRO_DATA or version != AVRO_CONTENT_VERSION:
        raise ValueError(f"it holds a block of kind {block.kind.name}, version {version}")
    reader, offset = RecordReader(parse_json(block.require(HeaderKey.SCHEMA)), schema), _HEAD.size
    for _ in range(records):
        (length,) = _LENGTH.unpack_from(content, offset)
        offset += _LENGTH.size + length
        record = reader.read(content[offset - length : offset])
        time, action = str(record["commitTime"]), record["actionType"]
        if not (time.isascii() and time.isdigit()) or action is None:
            raise ValueError(f"{action} at {time!r} is not an instant")
        if record["actionState"] in _COMPLETED:
            yield ArchivedEntry(time, str(action), record, block.name)


#: Columns of a Parquet file in the ``history`` folder of layout 2.
HISTORY: Final = pa.schema(
    [
        pa.field("instantTime", pa.string()),
        pa.field("completionTime", pa.string()),
        pa.field("action", pa.string()),
        pa.field("metadata", pa.binary()),
        pa.field("plan", pa.binary()),
        pa.field("version", pa.int32(), nullable=False),
    ]
)
_COMMITS: Final = frozenset({"commit", "deltacommit"})
#: Maps each action to the field with its metadata in the completed record, and to the schema of the metadata.
_DONE: Final[Mapping[str, tuple[str, Mapping[str, Any]]]] = {
    "commit": ("hoodieCommitMetadata", COMMIT_METADATA),
    "deltacommit": ("hoodieCommitMetadata", COMMIT_METADATA),
    "replacecommit": ("hoodieReplaceCommitMetadata", REPLACE_METADATA),
    "clean": ("hoodieCleanMetadata", CLEAN_METADATA),
    "rollback": ("hoodieRollbackMetadata", ROLLBACK_METADATA),
}
#: Maps actions to the field with their plan in the requested record, and to the schema of the plan.
_PLANNED: Final[Mapping[str, tuple[str, Mapping[str, Any]]]] = {
    "replacecommit": ("hoodieRequestedReplaceMetadata", REQUESTED_REPLACE),
    "clean": ("hoodieCleanerPlan", CLEAN_PLAN),
}


@dataclass(frozen=True, slots=True)
class InstantToArchive:
    """A completed instant that is moved from the active timeline to the archive.

    Attributes:
        completion_time: When it completed, as an instant time. In layout 1 it is when the completed file was created.
        metadata: The contents of the completed file.
        plan: The contents of the requested file; empty if there is no such file.
        name: Path of the completed file, for messages.
    """

    time: str
    completion_time: str
    action: str
    metadata: bytes
    plan: bytes
    name: str


def history_rows(instants: Sequence[InstantToArchive]) -> pa.Table:
    """Return the rows of a history file of layout 2, one for each instant, in the given order."""
    return pa.table(
        [
            [entry.time for entry in instants],
            [entry.completion_time for entry in instants],
            [entry.action for entry in instants],
            [entry.metadata for entry in instants],
            [entry.plan or None for entry in instants],
            [1] * len(instants),
        ],
        schema=HISTORY,
    )


def encode_archive(instants: Sequence[InstantToArchive], *, per_block: int) -> bytes:
    """Encode an archive file of layout 1 with the instants in the given order.

    Args:
        instants: The instants to archive.
        per_block: Maximum number of instants in a log block.

    Raises:
        CorruptTableError: The file of an instant is damaged; the message names it.
    """
    schema, parsed = _entry_schema()
    text = json.dumps(schema, separators=(",", ":"))
    blocks = []
    for start in range(0, len(instants), per_block):
        records = [record for entry in instants[start : start + per_block] for record in _make_records(entry)]
        packed = []
        for record in records:
            body = io.BytesIO()
            fastavro.schemaless_writer(body, parsed, record)
            packed.append(struct.pack(">i", body.tell()) + body.getvalue())
        content = struct.pack(">ii", AVRO_CONTENT_VERSION, len(records)) + b"".join(packed)
        blocks.append(encode_block(BlockKind.AVRO_DATA, {HeaderKey.SCHEMA: text}, content))
    return b"".join(blocks)


@cache
def _entry_schema() -> tuple[dict[str, Any], Any]:
    defined: set[str] = set()
    fields = dict([*_DONE.values(), *_PLANNED.values()])
    schema = file_schema(
        "HoodieArchivedMetaEntry",
        optional_field("commitTime", TEXT),
        optional_field("actionType", TEXT),
        VERSION,
        optional_field("actionState", TEXT),
        optional_field("stateTransitionTime", TEXT),
        *(optional_field(name, reference_records(avro, defined)) for name, avro in fields.items()),
    )
    return schema, fastavro.parse_schema(json.loads(json.dumps(schema)))


def _make_records(instant: InstantToArchive) -> list[dict[str, Any]]:
    common = {"commitTime": instant.time, "actionType": instant.action, "stateTransitionTime": instant.completion_time}
    records = []
    if instant.plan and instant.action in _PLANNED:
        field, avro = _PLANNED[instant.action]
        records.append(
            {**common, "actionState": "REQUESTED", field: decode_record(instant.plan, avro, name=instant.name)}
        )
    field, avro = _DONE[instant.action]
    if instant.action in _COMMITS or instant.action == "replacecommit":
        done = _decode_commit_document(instant.metadata, avro, instant.name)
    else:
        done = decode_record(instant.metadata, avro, name=instant.name)
    return [*records, {**common, "actionState": "COMPLETED", field: done}]


def _decode_commit_document(data: bytes, avro: Mapping[str, Any], name: str) -> dict[str, Any]:
    """Decode a commit's file, Avro or JSON, to a record with all fields of the schema ``avro``.

    `CommitMetadata` is not used, because it lacks fields that must be archived.
    """
    if is_container(data):
        return decode_record(data, avro, name=name)
    document = decode_json(data, name=name)
    extra = document.get("extraMetadata") or {}
    return {**document, "extraMetadata": {key: str(value) for key, value in extra.items() if value is not None}}
