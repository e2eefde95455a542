"""Files of a few bytes, or of a few megabytes, whose counts and lengths stand for gigabytes: one for each place.

``python -m tests.helpers.bombs`` decodes each of them in this one process, and prints for each the error and the memory
that it took.
"""

from __future__ import annotations

import base64
import gzip
import hashlib
import io
import json
import resource
import struct
import sys
import zlib
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

import fastavro
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import lakeformat
from lakeformat.codec.avro.schema import from_avro
from lakeformat.codec.bloom import DYNAMIC_V0, SIMPLE, BloomFilter
from lakeformat.codec.hashing_metadata import decode_ring
from lakeformat.codec.hfile import HFile
from lakeformat.codec.hfile_format import (
    GZIP,
    HEADER,
    ROOT,
    TRAILER,
    TRAILER_BYTES,
    VERSION,
    encode_field,
    encode_varint,
)
from lakeformat.codec.internal_schema import decode_history
from lakeformat.codec.key_fields import FieldRule
from lakeformat.codec.log_blocks import BlockKind, HeaderKey, LogBlock, decode_positions, parse_blocks
from lakeformat.codec.timeline_files.commit import decode_commit
from lakeformat.codec.timeline_files.recovery import ROLLBACK_PLAN, decode_rollback_plan
from lakeformat.errors import LakeformatError
from lakeformat.file_system_view.file_index.stored import FOLDER, read_columns, read_delta
from lakeformat.files.block_content import decode_avro_rows, decode_deletes, decode_parquet_rows
from lakeformat.files.footers import open_parquet, row_batches
from lakeformat.files.splice.thrift_tree import Field, Struct, encode_struct, parse_struct
from lakeformat.index.bucket import bucket_ids
from lakeformat.storage import LocalStorage
from lakeformat.timeline.archive import open_history
from tests.helpers import log_blocks

__all__ = ["BOMBS", "Measured"]

#: What a bomb came to: the class of the error or "" and the megabytes that it took.
Measured = tuple[str, float]
_HUGE: Final = 1 << 40


# --- log files ----------------------------------------------------------------------------------------------


def _runs(containers: int, less_one: int = 65_535) -> str:
    """Return a bitmap in which each container is one run of 65,536 numbers."""
    head = struct.pack("<QII", 1, 0, 12347 | (containers - 1) << 16) + b"\xff" * ((containers + 7) // 8)
    table = b"".join(struct.pack("<HH", at, less_one) for at in range(containers))
    return base64.b64encode(
        head + table + bytes(4 * containers) + struct.pack("<3H", 1, 0, 65_535) * containers
    ).decode()


def _bits(bitmaps: int) -> str:
    """Return bitmaps that say that they have four billion containers."""
    return base64.b64encode(struct.pack("<Q", bitmaps) + struct.pack("<III", 0, 12346, 2**32 - 1) * bitmaps).decode()


def _read_table_with(positions: str) -> object:
    """Read a table in which the header of a log block has these positions."""
    with TemporaryDirectory() as folder:
        options = {"hoodie.table.type": "MERGE_ON_READ", "hoodie.metadata.enable": False}
        table = lakeformat.create(f"{folder}/t", {"id": "int64", "v": "int64"}, record_key="id", **options)
        table.insert(pa.table({"id": range(10), "v": [0] * 10}))
        table.upsert(pa.table({"id": [3], "v": [1]}))
        (log,) = Path(folder).glob("t/.*.log.*")
        (found,) = parse_blocks(pa.BufferReader(log.read_bytes()), log.name, log.stat().st_size)
        content = log.read_bytes()[found.content_offset : found.content_offset + found.content_bytes]
        header = {int(key): text for key, text in found.header.items()} | {int(HeaderKey.RECORD_POSITIONS): positions}
        log.write_bytes(log_blocks.block(int(found.kind), header, content))
        commit = max(Path(folder).glob("t/.hoodie/*.deltacommit"))
        document = json.loads(commit.read_text().replace(str(found.size_bytes), str(log.stat().st_size)))
        document["extraMetadata"].pop("lakeformat.checksum", None)
        commit.write_text(json.dumps(document))
        return lakeformat.open(f"{folder}/t").to_arrow()


def _parse(body: bytes) -> object:
    """Parse a log file of one block, given what is between its two sizes."""
    size = len(body) + 8
    data = b"#HUDI#" + struct.pack(">q", size) + body + struct.pack(">q", size + 6)
    return [*parse_blocks(pa.BufferReader(data), "f", len(data))]


def _block(schema: object, *, kind: BlockKind = BlockKind.AVRO_DATA) -> LogBlock:
    text = schema if isinstance(schema, str) else json.dumps(schema)
    return LogBlock("f.log", 0, 0, kind, 0, 0, {HeaderKey.SCHEMA: text, HeaderKey.INSTANT_TIME: "1"})


def _record(*types: object) -> dict[str, object]:
    fields = [{"name": f"c{at}", "type": kind} for at, kind in enumerate(types)]
    return {"type": "record", "name": "r", "fields": fields}


def _rows(schema: object, row: bytes, count: int, said: int | None = None) -> object:
    """Decode a block of equal records."""
    content = struct.pack(">ii", 3, count if said is None else said) + (struct.pack(">i", len(row)) + row) * count
    return decode_avro_rows(_block(schema), content)


def _varint(number: int) -> bytes:
    file = io.BytesIO()
    fastavro.schemaless_writer(file, "long", number)
    return file.getvalue()


_WIDE: Final = {"type": "record", "name": "wide", "fields": [{"name": f"f{n}", "type": "long"} for n in range(5000)]}
_TWO: Final = {"type": "record", "name": "two", "fields": [{"name": "x", "type": ["null", "long"]}]}
_GIGABYTE: Final = {"type": "fixed", "name": "f", "size": 1 << 30}
_LONG_SYMBOL: Final = {"type": "enum", "name": "e", "symbols": ["A" * 100_000]}


# --- Parquet ------------------------------------------------------------------------------------------------


def _split_parquet() -> tuple[bytes, Struct]:
    file = io.BytesIO()
    pq.write_table(pa.table({"id": range(10), "s": ["x"] * 10}), file)
    data = file.getvalue()
    length = int.from_bytes(data[-8:-4], "little")
    return data[: -8 - length], parse_struct(data[-8 - length : -8])[0]


def _join_parquet(body: bytes, footer: bytes) -> bytes:
    return body + footer + struct.pack("<I", len(footer)) + b"PAR1"


def _parquet_of_rows(said: int = _HUGE) -> bytes:
    """Return a file of ten rows that says that it has another number of them."""
    body, tree = _split_parquet()
    group = tree[4].value[1][0]
    tree[3], group[3] = Field(tree[3].kind, said), Field(group[3].kind, said)
    for chunk in group[1].value[1]:
        values = chunk[3].value
        values[5] = Field(values[5].kind, said)
    return _join_parquet(body, encode_struct(tree))


def _parquet_of_chunks() -> bytes:
    """Return a file with a row group of 900,000 empty column chunks, of three bytes each."""
    body, tree = _split_parquet()
    head = encode_struct({number: tree[number] for number in (1, 2, 3)})[:-1]
    chunks = b"\x19\xfc" + b"\xa0\xf7\x36" + b"\x26\x00\x00" * 900_000
    return _join_parquet(body, head + b"\x19\x1c" + chunks + b"\x16\x00\x16\x00\x00\x00")


def _rows_of_index(said: int, columns: list[str] | None = None) -> object:
    """Read a delta of the file index, or columns of a shard, that says that it has more rows."""
    data, kind = _parquet_of_rows(said), "delta-20260101000000000" if columns is None else "shard"
    digest = hashlib.blake2b(data, digest_size=16).hexdigest()
    with TemporaryDirectory() as folder:
        storage, path = LocalStorage(folder), f"{FOLDER}/{kind}-{digest}.parquet"
        with storage.open_output(path) as out:
            out.write(data)
        return read_delta(storage, path) if columns is None else read_columns(storage, path, columns)


def _rows_of_history() -> object:
    """Read a history file that says that it has 2**40 rows."""
    with TemporaryDirectory() as folder:
        Path(folder, "h.parquet").write_bytes(_parquet_of_rows())
        with open_history(LocalStorage(folder), "h.parquet") as file:
            return file.read(columns=["id"])


def _read_parquet(data: bytes, columns: list[str]) -> object:
    with open_parquet(pa.BufferReader(data), "f.parquet") as parquet:
        return pa.Table.from_batches(row_batches(parquet, "f.parquet", 131_072, columns=columns))


# --- HFiles -------------------------------------------------------------------------------------------------


def _block_of_zeros() -> bytes:
    """Return a block of an HFile with 900 MB of zeros in a gzip member."""
    packer, packed = zlib.compressobj(9, zlib.DEFLATED, 31), io.BytesIO()
    for _ in range(900):
        packed.write(packer.compress(bytes(1 << 20)))
    packed.write(packer.flush())
    return HEADER.pack(ROOT, packed.tell(), 900 << 20, -1, 1, 16384, packed.tell() + HEADER.size) + packed.getvalue()


def _hfile_with_root(root: bytes, blocks: int = 1) -> bytes:
    """Return an HFile that has only an index and a trailer, which says that it names so many blocks."""
    fields = {1: 0, 2: 0, 5: blocks, 6: 0, 7: 1, 8: 1, 12: GZIP}
    message = b"".join(encode_field(number, value) for number, value in fields.items())
    trailer = TRAILER + encode_varint(len(message)) + message
    return root + trailer + bytes(TRAILER_BYTES - len(trailer) - len(VERSION)) + VERSION


def _hfile_of_entries() -> bytes:
    """Return an HFile whose index has a million entries in a gzip member."""
    packed = gzip.compress((bytes(12) + b"\x02\x00\x00") * 1_000_000)
    root = HEADER.pack(ROOT, len(packed), 15_000_000, -1, 1, 16384, len(packed) + HEADER.size) + packed
    return _hfile_with_root(root, 1_000_000)


def _read_hfile(data: bytes) -> object:
    return HFile(data, "f.hfile").read()


# --- JSON and Avro files ------------------------------------------------------------------------------------


def _container(schema: object, block: bytes, compression: str = "null") -> bytes:
    head = io.BytesIO()
    meta = {"avro.schema": json.dumps(schema).encode(), "avro.codec": compression.encode()}
    fastavro.schemaless_writer(head, {"type": "map", "values": "bytes"}, meta)
    return b"Obj\x01" + head.getvalue() + b"s" * 16 + b"\x02" + _varint(len(block)) + block + b"s" * 16


def _plan(block: bytes, compression: str = "null") -> object:
    """Decode a rollback plan with a further array of records that have one field."""
    more = {"name": "more", "type": {"type": "array", "items": _TWO}}
    schema = {**ROLLBACK_PLAN, "fields": [*ROLLBACK_PLAN["fields"], more]}
    return decode_rollback_plan(_container(schema, block, compression), name="f")


def _dense(count: int) -> bytes:
    """Return a plan without a value except an array of records of one byte."""
    return bytes(2) + b"\x00" + _varint(count) + bytes(count) + b"\x00"


def _deflate(data: bytes) -> bytes:
    packer = zlib.compressobj(9, zlib.DEFLATED, -15)
    return packer.compress(data) + packer.flush()


_ARRAYS: Final = "[" + "[]," * 5_000_000 + "[]]"
_OBJECTS: Final = b'{"a":[' + b"{}," * 4_000_000 + b"{}]}"
_DEEP: Final = b'{"a":' + b"[" * 100_000 + b"]" * 100_000 + b"}"

# --- numbers of buckets -------------------------------------------------------------------------------------


def _bucket_table(folder: str, **options: object) -> lakeformat.Table:
    """Create a table with a bucket index, with one row in the partition "a"."""
    given = {"hoodie.table.type": "MERGE_ON_READ", "hoodie.metadata.enable": False, "hoodie.index.type": "BUCKET"}
    table = lakeformat.create(
        f"{folder}/t", {"id": "int64", "p": "string"}, record_key="id", partition_by="p", **given, **options
    )
    table.upsert(pa.table({"id": [1], "p": ["a"]}))
    return table


def _buckets_of_option(buckets: int) -> object:
    with TemporaryDirectory() as folder:
        return _bucket_table(folder, **{"hoodie.bucket.index.num.buckets": buckets})


def _buckets_of_ring(buckets: int) -> object:
    """Write to a new partition of a table whose hashing metadata has this number of buckets."""
    consistent = {"hoodie.index.bucket.engine": "CONSISTENT_HASHING", "hoodie.bucket.index.num.buckets": 4}
    with TemporaryDirectory() as folder:
        _bucket_table(folder, **consistent)
        for ring in Path(folder, "t/.hoodie").rglob("*.hashing_meta"):
            ring.write_text(json.dumps({**json.loads(ring.read_text()), "numBuckets": buckets}))
        return lakeformat.open(f"{folder}/t").upsert(pa.table({"id": [2], "p": ["b"]}))


def _buckets_of_keys() -> object:
    """Write to a table whose files stand for 2 billion buckets, if their names and keys are believed."""
    with TemporaryDirectory() as folder:
        plain = {"hoodie.metadata.enable": False, "lakeformat.file.index": False, "hoodie.combine.before.insert": False}
        table = lakeformat.create(f"{folder}/t", {"id": "string"}, record_key="id", **plain)
        keys = [f"some key {n}" for n in range(20_000)]
        numbers = bucket_ids(pa.chunked_array([keys]), ["id"], 1 << 31, FieldRule.HUDI_1)
        large = next(n for n in np.flatnonzero(numbers > 1 << 30).tolist() if _is_prime(int(numbers[n]) - 5000))
        table.bulk_insert(pa.table({"id": [keys[large]] * 30}))
        (base,) = Path(folder).glob("t/*.parquet")
        base.rename(base.with_name(name := f"00005000{base.name[8:]}"))
        (commit,) = Path(folder, "t/.hoodie").rglob("*.commit")
        document = json.loads(commit.read_text().replace(base.name, name).replace(base.name[:36], name[:36]))
        document["extraMetadata"].pop("lakeformat.checksum", None)
        commit.write_text(json.dumps(document))
        return lakeformat.open(f"{folder}/t").upsert(pa.table({"id": keys[:2]}))


def _is_prime(number: int) -> bool:
    return bool((number % np.arange(2, 1 << 16)).all())


# --- schemas ------------------------------------------------------------------------------------------------


def _decode_deep(kind: str, levels: int) -> object:
    """Decode a history of one schema, whose column is nested so deep."""
    start, end = {
        "struct": ('{"type":"record","fields":[{"id":1,"name":"c","type":', "}]}"),
        "array": ('{"type":"array","element_id":1,"element":', "}"),
        "map": ('{"type":"map","key_id":1,"key":"string","value_id":2,"value":', "}"),
    }[kind]
    column = f'{{"id":0,"name":"c","type":{start * levels}"int"{end * levels}}}'
    return decode_history(f'{{"schemas":[{{"version_id":1,"fields":[{column}]}}]}}'.encode(), name="f")


def _structs(levels: int) -> str:
    """Return an Avro schema of structs in structs."""
    starts = (f'{{"type":"record","name":"r{at}","fields":[{{"name":"c","type":' for at in range(levels))
    return "".join(starts) + '"int"' + "}]}" * levels


#: Place -> what decodes a bomb there.
BOMBS: Final[Mapping[str, Callable[[], object]]] = {
    "positions: runs": lambda: decode_positions(_runs(2000)),
    "positions: runs that are not counted": lambda: decode_positions(_runs(2000, 0)),
    "positions: containers": lambda: decode_positions(_bits(1)),
    "positions: bitmaps": lambda: decode_positions(_bits(900_000)),
    "positions: in a table": lambda: _read_table_with(_runs(2000)),
    "log block: entries of the header": lambda: _parse(struct.pack(">iii", 1, 3, 2**31 - 1) + bytes(20)),
    "log block: length of a header": lambda: _parse(struct.pack(">iiiii", 1, 3, 1, 0, 2**31 - 1) + bytes(12)),
    "log block: length of the content": lambda: _parse(struct.pack(">iiiq", 1, 3, 0, 2**62) + bytes(12)),
    "log block: schema of arrays": lambda: _rows(_ARRAYS, b"", 1),
    "Avro block: records": lambda: _rows(_record("long"), b"\x00", 1, 2**31 - 1),
    "Avro block: null structs": lambda: _rows(_record(["null", _WIDE]), b"\x00", 200_000),
    "Avro block: null fixed": lambda: _rows(_record(["null", _GIGABYTE]), b"\x00", 100),
    "Avro block: long symbols": lambda: _rows(_record(_LONG_SYMBOL), b"\x00", 20_000),
    "Avro block: items": lambda: _rows(_record({"type": "array", "items": "long"}), _varint(_HUGE) + b"\x00", 10),
    "Avro block: null structs in a list": lambda: _rows(
        _record({"type": "array", "items": ["null", _WIDE]}), _varint(100) + bytes(101), 2_000
    ),
    "Avro block: one long list of structs": lambda: _rows(
        _record({"type": "array", "items": _TWO}), _varint(8 << 20) + bytes(8 << 20) + b"\x00", 1
    ),
    "delete block: records": lambda: decode_deletes(
        _block("", kind=BlockKind.DELETE), struct.pack(">ii", 3, 7) + _varint(_HUGE)[:6] + b"\x01"
    ),
    "Parquet block: rows": lambda: decode_parquet_rows(_block(log_blocks.ROWS), _parquet_of_rows()),
    "Parquet footer: rows": lambda: _read_parquet(_parquet_of_rows(), ["id", "s"]),
    "Parquet footer: rows, no column": lambda: _read_parquet(_parquet_of_rows(), []),
    "Parquet footer: column chunks": lambda: _read_parquet(_parquet_of_chunks(), ["id"]),
    "file index: rows of a delta": lambda: _rows_of_index(_HUGE),
    "file index: some rows of a delta": lambda: _rows_of_index(1000),
    "file index: rows of a shard": lambda: _rows_of_index(_HUGE, ["id"]),
    "file index: some rows of a shard": lambda: _rows_of_index(1000, ["id"]),
    "history: rows": _rows_of_history,
    "buckets: option": lambda: _buckets_of_option(2**31 - 1),
    "buckets: hashing metadata": lambda: _buckets_of_ring(2**31 - 1),
    "buckets: none in hashing metadata": lambda: _buckets_of_ring(0),
    "buckets: keys": _buckets_of_keys,
    "HFile: block": lambda: _read_hfile(_hfile_with_root(_block_of_zeros())),
    "HFile: entries of the index": lambda: _read_hfile(_hfile_of_entries()),
    "bloom filter: bits": lambda: BloomFilter.decode(
        base64.b64encode(struct.pack(">iibi", -1, 5, 1, 2**31 - 1)), SIMPLE
    ),
    "bloom filter: rows": lambda: BloomFilter.decode(
        base64.b64encode(struct.pack(">iibi", -1, 5, 1, 1) + struct.pack(">iii", 1, 0, 2**31 - 1)), DYNAMIC_V0
    ),
    "schema: arrays": lambda: from_avro(_ARRAYS, name="f"),
    "schema: structs": lambda: from_avro(_structs(900), name="f"),
    "schema: structs by the thousand": lambda: from_avro(_structs(50_000), name="f"),
    "schema: depth": lambda: from_avro(_DEEP.decode(), name="f"),
    "commit: objects": lambda: decode_commit(_OBJECTS, name="f"),
    "commit: depth": lambda: decode_commit(_DEEP, name="f"),
    "history of schemas: objects": lambda: decode_history(_OBJECTS, name="f"),
    **{
        f"history of schemas: {kind} of {levels} levels": partial(_decode_deep, kind, levels)
        for kind in ("struct", "array", "map")
        for levels in (100, 450, 900)
    },
    "ring: objects": lambda: decode_ring(_OBJECTS, name="f"),
    "plan: deflate": lambda: _plan(_deflate(bytes(60 << 20)), "deflate"),
    "plan: records of one byte": lambda: _plan(_dense(40 << 20)),
    "plan: packed records of one byte": lambda: _plan(_deflate(_dense(7 << 20)), "deflate"),
}


def _status(field: str) -> float:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) / 1024 for line in lines if line.startswith(field))


def _measure(decode: Callable[[], object]) -> Measured:
    Path("/proc/self/clear_refs").write_text("5")  # The peak begins here.
    before, error = _status("VmRSS"), ""
    try:
        decode()
    except LakeformatError as refused:
        error = type(refused).__name__ if "\n" not in str(refused) and len(str(refused)) < 1000 else "long"
    except Exception as raw:
        error = f"raw {type(raw).__name__}"
    return error, _status("VmHWM") - before


if __name__ == "__main__":
    resource.setrlimit(resource.RLIMIT_AS, (int((_status("VmSize") + 3072) * (1 << 20)),) * 2)
    chosen = sys.argv[1:] or [*BOMBS]
    print(json.dumps({name: _measure(BOMBS[name]) for name in chosen}))
