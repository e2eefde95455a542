"""Deltacommits of table version 10 made by hand: native log files by pyarrow, and the files of their instant as JSON.

Source: the public sources of Hudi 1.3, as docs/design/table-version-10.md lists them; no release writes them yet.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

META: Final = [
    "_hoodie_commit_time",
    "_hoodie_commit_seqno",
    "_hoodie_record_key",
    "_hoodie_partition_path",
    "_hoodie_file_name",
]
Row = dict[str, Any]
TOKEN: Final = "0-1-2"
_AVRO: Final = {"string": "string", "int64": "long", "int32": "int", "double": "double"}


def to_version_10(table: Path, **more: str) -> None:
    """Call the table one of version 10, as Hudi's upgrade does: it writes no file again."""
    file = table / ".hoodie" / "hoodie.properties"
    lines = [line for line in file.read_text().splitlines() if not line.startswith("hoodie.table.version=")]
    more = {"hoodie.table.version": "10", "hoodie.meta.fields.mode": "ALL", **more}
    file.write_text("\n".join([*lines, *(f"{key}={value}" for key, value in more.items())]) + "\n")


def avro_of(schema: pa.Schema) -> str:
    fields = [
        *({"name": name, "type": ["null", "string"], "default": None} for name in META),
        *({"name": each.name, "type": ["null", _AVRO[str(each.type)]], "default": None} for each in schema),
    ]
    return json.dumps({"type": "record", "name": "r", "fields": fields})


def entries(time: str, schema: pa.Schema, *, joined: bool = False, **more: str) -> dict[str, str]:
    """Return the entries of a footer: one for each header, or the one entry of files before July 2026."""
    header = {"VERSION": "2", "INSTANT_TIME": time, "SCHEMA": avro_of(schema), **more}
    if joined:
        return {"hudi.log.format.metadata": json.dumps(header)}
    return {f"hudi.log.format.{name}": text for name, text in header.items()}


def write_file(path: Path, rows: pa.Table, footer: Mapping[str, str]) -> None:
    with pq.ParquetWriter(path, rows.schema, store_schema=False) as writer:
        writer.write_table(rows)
        writer.add_key_value_metadata(dict(footer))


def data_rows(rows: Sequence[Row], schema: pa.Schema, time: str, file_id: str, key: str = "id") -> pa.Table:
    """Return rows with their meta columns; the file name is the file id, as in logs of version 9."""
    meta = [
        dict(zip(META, (time, f"{time}_0_{at}", str(row[key]), "", file_id), strict=True))
        for at, row in enumerate(rows)
    ]
    full = pa.schema([*((name, pa.string()) for name in META), *schema])
    return pa.Table.from_pylist([{**one, **row} for one, row in zip(meta, rows, strict=True)], full)


def delete_rows(keys: Sequence[Any], ordering: pa.Schema, values: Sequence[Row]) -> pa.Table:
    schema = pa.schema([pa.field("_hoodie_record_key", pa.string(), nullable=False), *ordering])
    rows = [{"_hoodie_record_key": str(key), **value} for key, value in zip(keys, values, strict=True)]
    return pa.Table.from_pylist(rows, schema)


def commit(table: Path, time: str, file_id: str, schema: pa.Schema, names: Sequence[str]) -> None:
    """Complete a deltacommit: one write stat for each physical file."""
    timeline = table / ".hoodie" / "timeline"
    for state in ("requested", "inflight"):
        (timeline / f"{time}.deltacommit.{state}").write_bytes(b"")
    stats = [
        {"fileId": file_id, "path": name, "prevCommit": "null", "numWrites": 1, "logVersion": 1, "logOffset": 0,
         "fileSizeInBytes": (table / name).stat().st_size, "partitionPath": "", "logFiles": [name]}
        for name in names
    ]  # fmt: skip
    text = {"partitionToWriteStats": {"": stats}, "compacted": False, "operationType": "UPSERT",
            "extraMetadata": {"schema": avro_of(schema)}}  # fmt: skip
    (timeline / f"{time}_{int(time) + 5}.deltacommit").write_text(json.dumps(text))


def name_of(file_id: str, time: str, kind: str, version: int = 1) -> str:
    return f"{file_id}_{TOKEN}_{time}_{version}.{kind}"
