"""Every log file of the fixtures: the blocks in the file, and their contents as fastavro and pyarrow read them."""

from __future__ import annotations

import io
import json
import struct
from collections import Counter
from typing import Any

import fastavro
import pyarrow.parquet as pq

from lakeformat.codec.avro.schema import from_avro
from lakeformat.files.log_reader import decode_blocks, read_blocks, read_parts
from lakeformat.merge.versions import LogDeletes, LogPart, LogRows
from lakeformat.storage import MemoryStorage
from tests.helpers.log_blocks import (
    AVRO,
    CDC,
    COMMAND,
    DELETE,
    DELETES,
    INSTANT_TIME,
    PARQUET,
    SCHEMA,
    fixture_logs,
    split_blocks,
)


def part_contents(part: LogPart) -> Any:
    if isinstance(part, LogRows):
        return part.rows.to_pylist(maps_as_pydicts="strict")
    columns = [column.to_pylist() for column in part.ordering]
    return [(key, [column[at] for column in columns]) for at, key in enumerate(part.keys.to_pylist())]


def rows_by_fastavro(content: bytes, schema: Any) -> list[Any]:
    (count,), at, rows = struct.unpack_from(">i", content, 4), 8, []
    for _ in range(count):
        (length,) = struct.unpack_from(">i", content, at)
        rows.append(fastavro.schemaless_reader(io.BytesIO(content[at + 4 : at + 4 + length]), schema, None))
        at += 4 + length
    return rows


def deletes_by_fastavro(content: bytes) -> list[Any]:
    listed: Any = fastavro.schemaless_reader(io.BytesIO(content[8:]), DELETES, None, return_record_name=True)
    values = [(one["recordKey"], one["orderingVal"]) for one in listed["deleteRecordList"]]
    plain = [(key, ordering_values(value)) for key, value in values]
    fields = max((len(one) for _, one in plain), default=0)
    return [(key, one or [None] * fields) for key, one in plain]


def ordering_values(value: Any) -> list[Any]:
    if value is None or value == ("IntWrapper", {"value": 0}):
        return []
    name, held = value
    return [one and one[1]["value"] for one in held["wrappedValues"]] if name == "ArrayWrapper" else [held["value"]]


def expected_contents(kind: int, header: dict[int, str], content: bytes) -> Any:
    if kind == DELETE:
        return deletes_by_fastavro(content)
    if kind == PARQUET:
        return pq.read_table(io.BytesIO(content)).to_pylist(maps_as_pydicts="strict")
    return rows_by_fastavro(content, fastavro.parse_schema(json.loads(header[SCHEMA])))


def test_every_block_equals_an_independent_decoding() -> None:
    seen: Counter[int] = Counter()
    for table, log, data in fixture_logs():
        storage = MemoryStorage()
        storage.create(log.path, data)
        blocks, standing = read_blocks(storage, log), [*split_blocks(data)]
        if log.name.is_cdc:
            assert not blocks
            continue
        assert [(block.kind, dict(block.header), block.content_bytes) for block in blocks] == [
            (kind, header, len(content)) for kind, header, content in standing
        ], table
        for block, (kind, header, content) in zip(blocks, standing, strict=True):
            seen[kind] += 1
            if kind in (COMMAND, CDC):
                continue
            (part,) = decode_blocks(storage, [block])
            assert part_contents(part) == expected_contents(kind, header, content), (table, block.name)
            assert part.instant_time == header[INSTANT_TIME]
            if isinstance(part, LogRows):
                assert part.rows.schema == from_avro(header[SCHEMA], name=table)
            else:
                assert isinstance(part, LogDeletes)
    assert {kind for kind, times in seen.items() if times} >= {COMMAND, DELETE, AVRO, PARQUET}
    assert seen.total() > 100


def test_slice_parts_have_the_requested_columns() -> None:
    wanted = {"_hoodie_record_key", "price", "no such column"}
    for table, log, data in fixture_logs():
        storage = MemoryStorage()
        storage.create(log.path, data)
        everything = [*read_parts(storage, [log], is_committed=lambda _: True)]
        few = [*read_parts(storage, [log], is_committed=lambda _: True, columns=wanted)]
        assert len(few) == len(everything), table
        for part, whole in zip(few, everything, strict=True):
            if isinstance(part, LogRows) and isinstance(whole, LogRows):
                assert part.rows.equals(whole.rows.select([name for name in whole.rows.schema.names if name in wanted]))
