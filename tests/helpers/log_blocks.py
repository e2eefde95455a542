"""Blocks of log files, encoded and decoded by hand: an oracle for the readers, and the log files of the fixtures."""

from __future__ import annotations

import io
import json
import struct
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import fastavro

from lakeformat.model.files import LogFile, LogFileName
from lakeformat.storage import MemoryStorage
from tests.helpers.fixture_tables import FIXTURES

COMMAND, DELETE, AVRO, HFILE, PARQUET, CDC = 0, 1, 3, 4, 5, 6
INSTANT_TIME, TARGET, SCHEMA, COMMAND_TYPE, COMPACTED, IS_PARTIAL = 0, 1, 2, 3, 4, 7

ROWS = (
    '{"type":"record","name":"r","fields":[{"name":"_hoodie_record_key","type":"string"},'
    '{"name":"v","type":["null","long"]}]}'
)


def encode_header(entries: Mapping[int, str]) -> bytes:
    """Encode a header or footer."""
    parts = [struct.pack(">ii", key, len(text.encode())) + text.encode() for key, text in entries.items()]
    return struct.pack(">i", len(entries)) + b"".join(parts)


def block(
    kind: int, header: Mapping[int, str], content: bytes = b"", *, version: int = 1, footer: bytes = b"\0" * 4
) -> bytes:
    """Encode a whole block."""
    body = (
        struct.pack(">ii", version, kind) + encode_header(header) + struct.pack(">q", len(content)) + content + footer
    )
    return b"#HUDI#" + struct.pack(">q", len(body) + 8) + body + struct.pack(">q", len(body) + 14)


def avro_content(rows: Sequence[Mapping[str, Any]], schema: str = ROWS) -> bytes:
    """Encode the content of an Avro data block."""
    parsed, content = fastavro.parse_schema(json.loads(schema)), struct.pack(">ii", 3, len(rows))
    for row in rows:
        file = io.BytesIO()
        fastavro.schemaless_writer(file, parsed, row)
        content += struct.pack(">i", file.tell()) + file.getvalue()
    return content


def rows_block(time: str, rows: Mapping[str, int | None], **more: str) -> bytes:
    """Encode an Avro data block of keys and values; further header entries are given by name."""
    header = {INSTANT_TIME: time, SCHEMA: ROWS, **{globals()[name]: text for name, text in more.items()}}
    return block(AVRO, header, avro_content([{"_hoodie_record_key": key, "v": value} for key, value in rows.items()]))


def wrapper(name: str, avro: Any) -> dict[str, Any]:
    """Return the schema of one record of the union of wrappers."""
    return {"type": "record", "name": name, "fields": [{"name": "value", "type": avro}]}


DECIMAL = {"type": "bytes", "logicalType": "decimal", "precision": 30, "scale": 15}
UNION: list[Any] = [
    "null",
    wrapper("BooleanWrapper", "boolean"),
    wrapper("IntWrapper", "int"),
    wrapper("LongWrapper", "long"),
    wrapper("FloatWrapper", "float"),
    wrapper("DoubleWrapper", "double"),
    wrapper("BytesWrapper", "bytes"),
    wrapper("StringWrapper", "string"),
    wrapper("DateWrapper", "int"),
    wrapper("DecimalWrapper", DECIMAL),
    wrapper("TimeMicrosWrapper", {"type": "long", "logicalType": "time-micros"}),
    wrapper("TimestampMicrosWrapper", {"type": "long", "logicalType": "timestamp-micros"}),
]
LOCAL_DATE = wrapper("LocalDateWrapper", {"type": "int", "logicalType": "date"})
NAMES = [one if isinstance(one, str) else one["name"] for one in UNION]
ARRAY = {"type": "record", "name": "ArrayWrapper", "fields": [
    {"name": "wrappedValues", "type": ["null", {"type": "array", "items": [*NAMES, LOCAL_DATE]}]}]}  # fmt: skip
DELETES = fastavro.parse_schema({
    "type": "record", "name": "HoodieDeleteRecordList", "fields": [
        {"name": "deleteRecordList", "type": {"type": "array", "items": {
            "type": "record", "name": "HoodieDeleteRecord", "fields": [
                {"name": "recordKey", "type": ["null", "string"]},
                {"name": "partitionPath", "type": ["null", "string"]},
                {"name": "orderingVal", "type": [*UNION, ARRAY]}]}}}]})  # fmt: skip


def box_ordering_value(name: str | None, value: Any) -> Any:
    """Return an ordering value as fastavro expects it: in one wrapper, or in ``ArrayWrapper`` (a list of pairs)."""
    if name == "ArrayWrapper":
        return (name, {"wrappedValues": [box_ordering_value(*one) for one in value]})
    return None if name is None else (name, {"value": value})


def delete_content(records: Sequence[tuple[str, str | None, Any]]) -> bytes:
    """Encode the content of a delete block from (key, name of the wrapper, value)."""
    file = io.BytesIO()
    listed = [
        {"recordKey": key, "partitionPath": "p", "orderingVal": box_ordering_value(name, value)}
        for key, name, value in records
    ]
    fastavro.schemaless_writer(file, DELETES, {"deleteRecordList": listed})
    return struct.pack(">ii", 3, file.tell()) + file.getvalue()


def store_logs(*files: bytes, instant: str = "20260101000000000") -> tuple[MemoryStorage, list[LogFile]]:
    """Return a storage with these log files of one slice, and the files."""
    storage, logs = MemoryStorage(), []
    for number, data in enumerate(files, 1):
        logs.append(LogFile("p", LogFileName("f-0", instant, number, "0-1-2"), len(data)))
        storage.create(logs[-1].path, data)
    return storage, logs


def fixture_logs() -> Iterator[tuple[str, LogFile, bytes]]:
    """Yield table, file and bytes of every log file of the fixtures, except those of metadata tables."""
    for packed_table in sorted(FIXTURES.glob("*/*.zip")):
        with zipfile.ZipFile(packed_table) as archive:
            for path in archive.namelist():
                folder, _, name = path.rpartition("/")
                found = LogFileName.match(name)
                if found and "/.hoodie/" not in path:
                    data = archive.read(path)
                    yield packed_table.stem, LogFile(folder, found, len(data)), data


def split_blocks(data: bytes) -> Iterator[tuple[int, dict[int, str], bytes]]:
    """Yield kind, header and content of each block of an undamaged file."""
    at = 0
    while at < len(data):
        assert data[at : at + 6] == b"#HUDI#"
        (size,) = struct.unpack_from(">q", data, at + 6)
        _, kind, entries = struct.unpack_from(">iii", data, at + 14)
        inner, header = at + 26, {}
        for _ in range(entries):
            key, length = struct.unpack_from(">ii", data, inner)
            header[key] = data[inner + 8 : inner + 8 + length].decode()
            inner += 8 + length
        (length,) = struct.unpack_from(">q", data, inner)
        yield kind, header, data[inner + 8 : inner + 8 + length]
        at += 14 + size
