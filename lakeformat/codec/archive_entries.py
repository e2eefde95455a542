"""Encoding of archived instants, for both timeline layouts; `archive_log` reads the files of layout 1.

The archive of layout 1 has a record for each state of an instant. Hudi needs only the completed record, and the
requested record for the plan of a replacecommit or a clean. Every text type is marked as Java's ``String``; without the
mark Hudi 1.x cannot list the archive.
"""

from __future__ import annotations

import io
import json
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, Final

import fastavro
import pyarrow as pa

from lakeformat.codec.archive_log import referring
from lakeformat.codec.avro_container import decode_record, is_container
from lakeformat.codec.avro_fields import TEXT, VERSION, file_of, optional
from lakeformat.codec.avro_records import ROLLBACK_METADATA
from lakeformat.codec.clean_files import CLEAN_METADATA, CLEAN_PLAN
from lakeformat.codec.commit_avro import COMMIT_METADATA, REPLACE_METADATA
from lakeformat.codec.commit_json import decode_json
from lakeformat.codec.log_block import AVRO_CONTENT_VERSION, BlockKind, HeaderKey
from lakeformat.codec.log_envelope import block_bytes
from lakeformat.codec.requested_replace import REQUESTED_REPLACE

__all__ = ["HISTORY", "LeavingInstant", "encode_archive", "history_rows"]

#: Columns of a history file in layout 2.
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
#: Action -> field of the completed record for the metadata, and its schema. `_PLANNED`: field of the requested record.
_DONE: Final[Mapping[str, tuple[str, Mapping[str, Any]]]] = {
    "commit": ("hoodieCommitMetadata", COMMIT_METADATA),
    "deltacommit": ("hoodieCommitMetadata", COMMIT_METADATA),
    "replacecommit": ("hoodieReplaceCommitMetadata", REPLACE_METADATA),
    "clean": ("hoodieCleanMetadata", CLEAN_METADATA),
    "rollback": ("hoodieRollbackMetadata", ROLLBACK_METADATA),
}
_PLANNED: Final[Mapping[str, tuple[str, Mapping[str, Any]]]] = {
    "replacecommit": ("hoodieRequestedReplaceMetadata", REQUESTED_REPLACE),
    "clean": ("hoodieCleanerPlan", CLEAN_PLAN),
}


@dataclass(frozen=True, slots=True)
class LeavingInstant:
    """A completed instant that is moved from the active timeline to the archive.

    Attributes:
        completion_time: When it completed, as an instant time; in layout 1, when its completed file was made.
        metadata: Bytes of its completed file.
        plan: Bytes of its requested file; empty if it has none.
        name: Path of its completed file, for messages.
    """

    time: str
    completion_time: str
    action: str
    metadata: bytes
    plan: bytes
    name: str


def history_rows(instants: Sequence[LeavingInstant]) -> pa.Table:
    """Make the rows of a history file of layout 2, in the given order."""
    return pa.table(
        [
            [each.time for each in instants],
            [each.completion_time for each in instants],
            [each.action for each in instants],
            [each.metadata for each in instants],
            [each.plan or None for each in instants],
            [1] * len(instants),
        ],
        schema=HISTORY,
    )


def encode_archive(instants: Sequence[LeavingInstant], *, per_block: int) -> bytes:
    """Encode an archive file of layout 1, in the given order.

    Args:
        per_block: Number of instants in a log block.

    Raises:
        CorruptTableError: A file of the timeline is damaged; the message names it.
    """
    schema, parsed = _entry_schema()
    text = json.dumps(schema, separators=(",", ":"))
    blocks = []
    for start in range(0, len(instants), per_block):
        records = [record for each in instants[start : start + per_block] for record in _make_records(each)]
        packed = []
        for record in records:
            body = io.BytesIO()
            fastavro.schemaless_writer(body, parsed, record)
            packed.append(struct.pack(">i", body.tell()) + body.getvalue())
        content = struct.pack(">ii", AVRO_CONTENT_VERSION, len(records)) + b"".join(packed)
        blocks.append(block_bytes(BlockKind.AVRO_DATA, {HeaderKey.SCHEMA: text}, content))
    return b"".join(blocks)


@cache
def _entry_schema() -> tuple[dict[str, Any], Any]:
    defined: set[str] = set()
    fields = dict([*_DONE.values(), *_PLANNED.values()])
    schema = file_of(
        "HoodieArchivedMetaEntry",
        optional("commitTime", TEXT),
        optional("actionType", TEXT),
        VERSION,
        optional("actionState", TEXT),
        optional("stateTransitionTime", TEXT),
        *(optional(name, referring(avro, defined)) for name, avro in fields.items()),
    )
    return schema, fastavro.parse_schema(json.loads(json.dumps(schema)))


def _make_records(instant: LeavingInstant) -> list[dict[str, Any]]:
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
    """Decode a commit's file, Avro or JSON, with all its fields, so that fields unknown to lakeformat are archived."""
    if is_container(data):
        return decode_record(data, avro, name=name)
    document = decode_json(data, name=name)
    extra = document.get("extraMetadata") or {}
    return {**document, "extraMetadata": {key: str(value) for key, value in extra.items() if value is not None}}
