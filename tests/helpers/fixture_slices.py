"""The file slices of fixture tables with log files, decoded by fastavro: the input of a snapshot's merge."""

from __future__ import annotations

import io
import json
import re
import struct
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import fastavro
import pyarrow as pa
import pyarrow.parquet as pq

from lakeformat.codec.avro.schema import from_avro
from lakeformat.merge.versions import LogDeletes, LogPart, LogRows

LOG = re.compile(r"^\.([^._]+)_([^.]*)\.log\.(\d+)_((\d+)-(\d+)-(\d+))$")
INSTANT, TARGET, SCHEMA, IS_PARTIAL = 0, 1, 2, 7
COMMAND, DELETE, AVRO, PARQUET = 0, 1, 3, 5


@dataclass(frozen=True)
class Slice:
    """A base file, or None, and the contents of the log files in order."""

    base: pa.Table | None
    parts: list[LogPart]


def slices(table: Path, layout: int) -> list[Slice]:
    """Return the newest slice of every file group. The log files of a pending compaction follow the earlier ones."""
    ends = completion_times(table, layout)
    first = min(ends)
    bases: dict[tuple[Path, str], list[tuple[str, Path]]] = defaultdict(list)
    logs: dict[tuple[Path, str], list[tuple[str, int, str, Path]]] = defaultdict(list)
    for path in table.rglob("*"):
        if ".hoodie" in path.parts[len(table.parts) :] or not path.is_file():
            continue
        if match := LOG.match(path.name):
            logs[path.parent, match[1]].append((match[2], int(match[3]), match[4], path))
        elif path.suffix == ".parquet" and not path.name.startswith("."):
            file_id, _, instant = path.stem.split("_")
            if instant in ends or instant < first:
                bases[path.parent, file_id].append((instant, path))
    found = []
    for group in sorted({*bases, *logs}):
        instant, base = max(bases[group], default=("", None))
        parts: list[tuple[str, LogPart]] = []
        for of, _, _, path in sorted(logs[group]):
            if (of if layout == 1 else ends.get(of, "")) >= instant:
                merge_blocks(path, parts)
        kept = [part for of, part in parts if layout == 2 or of in ends or of < first]
        found.append(Slice(None if base is None else pq.ParquetFile(base).read(), kept))
    return found


def completion_times(table: Path, layout: int) -> dict[str, str]:
    """Return the completion time of each instant; in layout 1 that is the instant itself."""
    if layout == 1:
        ends = [path.name.split(".")[0] for path in (table / ".hoodie").glob("*commit")]
        return {instant: instant for instant in ends}
    names = [path.stem for path in (table / ".hoodie/timeline").glob("*_*commit")]
    return dict(name.split("_") for name in names)


def merge_blocks(path: Path, parts: list[tuple[str, LogPart]]) -> None:
    """Add the blocks of a log file by instant. A rollback block removes the earlier blocks of its target."""
    for kind, header, content in blocks(path.read_bytes()):
        if kind == COMMAND:
            parts[:] = [(of, part) for of, part in parts if of != header[TARGET]]
        elif kind == DELETE:
            parts.append((header[INSTANT], deletes(header, content)))
        elif kind in (AVRO, PARQUET):
            parts.append((header[INSTANT], rows(kind, header, content)))


def blocks(data: bytes) -> Iterator[tuple[int, dict[int, str], bytes]]:
    at = 0
    while at < len(data):
        assert data[at : at + 6] == b"#HUDI#"
        size, version, kind, entries = struct.unpack_from(">qiii", data, at + 6)
        assert version == 1
        end, at, header = at + 14 + size, at + 26, {}
        for _ in range(entries):
            key, length = struct.unpack_from(">ii", data, at)
            header[key] = data[at + 8 : at + 8 + length].decode()
            at += 8 + length
        (length,) = struct.unpack_from(">q", data, at)
        yield kind, header, data[at + 8 : at + 8 + length]
        at = end


def rows(kind: int, header: dict[int, str], content: bytes) -> LogRows:
    is_partial = header.get(IS_PARTIAL) == "true"
    if kind == PARQUET:
        return LogRows(header[INSTANT], pq.read_table(io.BytesIO(content)), is_partial)
    avro, stream = fastavro.parse_schema(json.loads(header[SCHEMA])), io.BytesIO(content)
    version, count = struct.unpack(">ii", stream.read(8))
    assert version == 3
    found = []
    for _ in range(count):
        stream.read(4)
        found.append(fastavro.schemaless_reader(stream, avro))
    schema = from_avro(header[SCHEMA], name="block")
    return LogRows(header[INSTANT], pa.Table.from_pylist(found, schema), is_partial)


def deletes(header: dict[int, str], content: bytes) -> LogDeletes:
    version, length = struct.unpack_from(">ii", content)
    assert version == 3
    stream = io.BytesIO(content[8 : 8 + length])
    found = fastavro.schemaless_reader(stream, DELETES, return_record_name=True)["deleteRecordList"]
    values = [ordering(record["orderingVal"]) for record in found]
    fields = max(map(len, values))
    columns = [pa.array([value[at] if value else None for value in values]) for at in range(fields)]
    return LogDeletes(header[INSTANT], pa.array([r["recordKey"] for r in found], pa.string()), tuple(columns))


def ordering(value: Any) -> tuple[Any, ...]:
    """Return the values in the wrapper, one for each ordering field; none for Hudi's default, an ``int`` 0."""
    match value:
        case None:
            return ()
        case (name, {"wrappedValues": several}):
            return tuple(inner for each in several for inner in ordering(each) or (None,))
        case (name, {"value": 0}) if name.endswith("IntWrapper"):
            return ()
        case (_, {"value": held}):
            return (held,)
    raise AssertionError(value)


def _wrapper(name: str, kind: Any) -> dict[str, Any]:
    return {"type": "record", "name": name, "fields": [{"name": "value", "type": kind}]}


WRAPPERS = [
    _wrapper(f"{name}Wrapper", kind)
    for name, kind in {
        "Boolean": "boolean", "Int": "int", "Long": "long", "Float": "float", "Double": "double", "Bytes": "bytes",
        "String": "string", "Date": "int",
        "Decimal": {"type": "bytes", "logicalType": "decimal", "precision": 30, "scale": 15},
        "TimeMicros": "long", "TimestampMicros": "long",
    }.items()
]  # fmt: skip
LOCAL_DATE = _wrapper("LocalDateWrapper", "int")
ARRAY = {
    "type": "record", "name": "ArrayWrapper", "fields": [{"name": "wrappedValues", "type": [
        "null", {"type": "array", "items": ["null", *(wrapper["name"] for wrapper in WRAPPERS), LOCAL_DATE]}
    ]}],
}  # fmt: skip
RECORD = {
    "type": "record", "name": "HoodieDeleteRecord", "fields": [
        {"name": "recordKey", "type": ["null", "string"]},
        {"name": "partitionPath", "type": ["null", "string"]},
        {"name": "orderingVal", "type": ["null", *WRAPPERS, ARRAY]},
    ],
}  # fmt: skip
DELETES = fastavro.parse_schema({
    "type": "record", "name": "HoodieDeleteRecordList", "namespace": "org.apache.hudi.avro.model",
    "fields": [{"name": "deleteRecordList", "type": {"type": "array", "items": RECORD}}],
})  # fmt: skip
