"""Avro object container files with one record, the format of most timeline files that are not JSON.

The module also has functions that build schemas.

The reader must not crash or run out of memory for any input bytes. So fastavro decodes only the record, and this module
does the rest:

- It reads the container around the record and decompresses it, with a limit on the size.
- It measures what the record's objects would take (`check_memory`).
- It copies the writer's schema for fastavro (`_WriterSchema`). It refuses types with which a few bytes can become very
  large values: a record inside itself, an array of items that take zero bytes, or a chain of references.
"""

from __future__ import annotations

import hashlib
import io
import json
import zlib
from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Any, Final

import fastavro
import pyarrow as pa
from fastavro.read import SchemaResolutionError
from fastavro.schema import SchemaParseException

from lakeformat.codec.avro.memory import ALLOWED, check_memory, estimate_object_bytes
from lakeformat.codec.field_names import check_names
from lakeformat.codec.json_text import parse_json
from lakeformat.errors import CorruptTableError

__all__ = [
    "DAMAGE",
    "MAX_BYTES",
    "MIN_BYTES",
    "NAMESPACE",
    "TEXT",
    "TEXTS",
    "VERSION",
    "RecordReader",
    "array_schema",
    "decode_record",
    "encode_record",
    "file_schema",
    "is_container",
    "list_field",
    "map_schema",
    "nested_record_schema",
    "optional_field",
    "required_field",
]

#: Maximum size of a file in bytes, both as stored and decompressed.
MAX_BYTES: Final = 64 << 20

_ADVICE: Final = "restore it from a copy; lakeformat check says what else helps"
#: A block may unpack to this many bytes, or to this many times its size if that is more.
_MOST_SMALL: Final = 8 << 20
_MOST_RATIO: Final = 50
#: Maximum size of the header. Hudi's schemas have some 20 KB.
_MOST_HEADER: Final = 1 << 20
_MAGIC: Final = b"Obj\x01"
_SYNC_BYTES: Final = 16
_HEADER: Final = fastavro.parse_schema(
    {
        "type": "record",
        "name": "org.apache.avro.file.Header",
        "fields": [
            {"name": "magic", "type": {"type": "fixed", "name": "Magic", "size": len(_MAGIC)}},
            {"name": "meta", "type": {"type": "map", "values": "bytes"}},
            {"name": "sync", "type": {"type": "fixed", "name": "Sync", "size": _SYNC_BYTES}},
        ],
    }
)
#: Bytes that a value other than a record, with its place in a list or map, takes for each of its bytes.
_DENSE_VALUE: Final = 132
_MAX_NESTING: Final = 64
_MAX_NODES: Final = 10_000
#: Maps each primitive type to the minimum number of bytes of an encoded value.
MIN_BYTES: Final[Mapping[str, int]] = {
    "null": 0,
    "boolean": 1,
    "int": 1,
    "long": 1,
    "float": 4,
    "double": 8,
    "bytes": 1,
    "string": 1,
}
#: The exceptions that fastavro and this module may raise for damaged bytes, or for bytes of another schema.
DAMAGE: Final = (
    ArithmeticError,
    AttributeError,
    EOFError,
    LookupError,
    OSError,
    RecursionError,
    TypeError,
    ValueError,
    zlib.error,
    SchemaParseException,
    SchemaResolutionError,
)


#: Maximum length of a stored schema whose reader is kept. Hudi's schemas have some 20 KB.
_KEPT_SCHEMA: Final = 1 << 16


class _Same:
    """A reader's schema as the key of a cache. It equals itself alone, since schemas cannot be hashed."""

    def __init__(self, schema: Mapping[str, Any]) -> None:
        self.schema = schema

    def __hash__(self) -> int:
        return id(self.schema)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Same) and self.schema is other.schema


@lru_cache(maxsize=64)
def _write_head(schema: _Same) -> tuple[bytes, bytes]:
    """Return the schema's text, and the bytes of a file up to its sync marker."""
    text, head = json.dumps(schema.schema, separators=(",", ":")).encode(), io.BytesIO()
    header = {"magic": _MAGIC, "meta": {"avro.schema": text}, "sync": bytes(_SYNC_BYTES)}
    fastavro.schemaless_writer(head, _HEADER, header)
    return text, head.getvalue()[:-_SYNC_BYTES]


def encode_record(schema: Mapping[str, Any], record: Mapping[str, Any]) -> bytes:
    """Encode a container file with one uncompressed record. Equal arguments always return equal bytes."""
    text, head = _write_head(_Same(schema))
    body, file = io.BytesIO(), io.BytesIO()
    fastavro.schemaless_writer(body, schema, record)
    block = body.getvalue()
    sync = hashlib.blake2b(text + block, digest_size=_SYNC_BYTES).digest()
    file.write(head + sync)
    fastavro.schemaless_writer(file, "long", 1)
    fastavro.schemaless_writer(file, "bytes", block)
    file.write(sync)
    return file.getvalue()


def is_container(data: bytes) -> bool:
    """Tell whether ``data`` begins with the magic of an object container file."""
    return data.startswith(_MAGIC)


def decode_record(data: bytes, *schemas: Mapping[str, Any], name: str) -> dict[str, Any]:
    """Decode the record of a container file. The result has only the fields of a reader schema.

    Args:
        data: The file's bytes.
        schemas: Reader schemas. The schema whose record has the name of the stored record is used.
        name: The file's path, for messages.

    Raises:
        CorruptTableError: ``data`` is not a container file with exactly one such record, is compressed by a codec other
            than deflate or snappy, or has more than `MAX_BYTES` as stored or decompressed.
    """
    try:
        return _decode(data, tuple(map(_Same, schemas)))
    except DAMAGE as error:
        reason = str(error) or type(error).__name__
        message = f"{name} is not a readable {schemas[0]['name']} file: {reason[:300]}; {_ADVICE}"
        raise CorruptTableError(message) from None


def _decode(data: bytes, schemas: tuple[_Same, ...]) -> dict[str, Any]:
    if len(data) > MAX_BYTES:
        raise ValueError(f"{len(data)} bytes, over the limit of {MAX_BYTES}")
    if not is_container(data):
        raise ValueError("it does not start as an Avro object container does")
    file = io.BytesIO(data[:_MOST_HEADER])
    header: Any = fastavro.schemaless_reader(file, _HEADER, None)
    start, file = file.tell(), io.BytesIO(data)
    file.seek(start)
    text = header["meta"]["avro.schema"]
    reader = (_make_reader if len(text) <= _KEPT_SCHEMA else _make_reader.__wrapped__)(text, schemas)
    count = fastavro.schemaless_reader(file, "long", None)
    packed: Any = fastavro.schemaless_reader(file, "bytes", None)
    if count != 1 or file.read() != header["sync"]:
        raise ValueError("it does not hold exactly one record and its end mark")
    return reader.read(_unpack(packed, header["meta"].get("avro.codec", b"null").decode()))


@lru_cache(maxsize=64)
def _make_reader(text: bytes, schemas: tuple[_Same, ...]) -> RecordReader:
    """Make the decoder of records of a stored schema with the reader's schema of the same name."""
    written = parse_json(text)
    named = {str(schema_of.schema["name"]): schema_of.schema for schema_of in schemas}
    schema = named.get(str(written["name"]).rpartition(".")[2])
    if schema is None:
        raise ValueError(f"it holds a {written['name']}")
    return RecordReader(written, schema)


class RecordReader:
    """A decoder of records that were all written with the same schema.

    Args:
        written: The writer's schema, as stored in the file; it is checked first.
        schema: The reader's schema: the fields to return.

    Raises:
        ValueError: ``written`` is not a schema, or is too deep or too large.
    """

    def __init__(self, written: Any, schema: Mapping[str, Any]) -> None:
        writer = _WriterSchema()
        copied = writer.copy(written)
        _check_field_names(copied, schema)
        self._copied = copied
        self._fields_of = _count_fields(copied, schema)
        self._densest = writer.find_densest(self._fields_of)
        self._written = fastavro.parse_schema(copied)
        self._schema = fastavro.parse_schema(dict(schema))

    def read(self, data: bytes) -> dict[str, Any]:
        """Decode one record. Raise one of `DAMAGE` if the bytes are not exactly one record."""
        if len(data) * self._densest > ALLOWED:
            check_memory(data, self._copied, self._fields_of)
        block = io.BytesIO(data)
        record: Any = fastavro.schemaless_reader(block, self._written, self._schema)
        if block.read(1):
            raise ValueError("bytes are left over after the record")
        return dict(record)


def _count_fields(written: Any, schema: Any) -> dict[str, int]:
    """Return for each record of a writer's schema how many fields its dict gets: its own, or those of the reader."""
    records = dict(_records(schema))
    own = {full: len(fields) for full, fields in _named_records(written)}
    return {full: max(count, len(records.get(full.rpartition(".")[2], ()))) for full, count in own.items()}


def _check_field_names(written: Any, schema: Any) -> None:
    """Refuse a writer's schema in which a field's name seems to be a damaged name of the reader's schema.

    Raises:
        ValueError: There is such a name.
    """
    records = dict(_records(schema))
    for name, fields in _records(written):
        check_names(fields, records.get(name, ()))


def _records(avro: Any) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Yield the bare name of each record in a schema, and the names of its fields."""
    return ((name.rpartition(".")[2], fields) for name, fields in _named_records(avro))


def _named_records(avro: Any) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Yield the name of each record in a schema as the schema has it, and the names of its fields."""
    match avro:
        case list():
            for branch in avro:
                yield from _named_records(branch)
        case {"type": "record", "name": name, "fields": fields}:
            yield str(name), tuple(field["name"] for field in fields)
            for field in fields:
                yield from _named_records(field["type"])
        case {"type": "array", "items": inner} | {"type": "map", "values": inner}:
            yield from _named_records(inner)


def _unpack(packed: bytes, codec: str) -> bytes:
    most = min(MAX_BYTES, max(_MOST_SMALL, _MOST_RATIO * len(packed)))
    match codec:
        case "null":
            return packed
        case "deflate":
            inflater = zlib.decompressobj(-zlib.MAX_WBITS)
            plain = inflater.decompress(packed, most)
            if not inflater.eof:
                raise ValueError(f"its block is cut off, or unpacks to over {most} bytes")
            return plain
        case "snappy":  # A CRC-32 of the decompressed bytes follows the snappy data.
            size = _snappy_size(packed)
            if size > most:
                raise ValueError(f"its block unpacks to {size} bytes, over the limit of {most}")
            plain = bytes(pa.Codec("snappy").decompress(packed[:-4], decompressed_size=size, asbytes=True))
            if zlib.crc32(plain) != int.from_bytes(packed[-4:], "big"):
                raise ValueError("the checksum of its block is wrong")
            return plain
    raise ValueError(f"the codec {codec!r} is not known")


def _snappy_size(packed: bytes) -> int:
    """Parse the decompressed size, with which a snappy block begins: seven bits per byte, the lowest first."""
    size = 0
    for index, byte in enumerate(packed[:5]):
        size |= (byte & 0x7F) << (7 * index)
        if byte < 0x80:
            return size
    raise ValueError("its block does not start as snappy does")


class _WriterSchema:
    """A copier of one writer's schema, which refuses schemas that are too large, too deep or recursive.

    A reference to a named type counts as many types as the named type contains. Otherwise a short schema with a chain
    of references would describe a huge type and stay below the limit. `_named` has for each named type the number of
    types inside, and the minimum number of bytes of an encoded value.
    """

    def __init__(self) -> None:
        self._named: dict[str, tuple[int, int]] = {}
        self._nodes = 0

    def find_densest(self, fields_of: Mapping[str, int]) -> float:
        """Return about the bytes that a value takes in memory for each of its bytes, for the record with the most."""
        dense = [estimate_object_bytes(count) / max(self._named[name][1], 1) for name, count in fields_of.items()]
        return _DENSE_VALUE + max(dense, default=0)

    def copy(self, avro: Any) -> Any:
        """Return a copy of a schema without logical types, defaults, aliases and docs.

        Raises:
            ValueError: ``avro`` is not a schema, or is too deep or too large.
        """
        return self._copy(avro, "", 0)[0]

    def _copy(self, avro: Any, namespace: str, depth: int) -> tuple[Any, int]:
        """Return the copy of a type, and the minimum number of bytes of an encoded value."""
        self._count(1, depth)
        match avro:
            case str() if avro in MIN_BYTES:
                return avro, MIN_BYTES[avro]
            case str():
                full = _qualify(avro, namespace)
                if full not in self._named:
                    raise ValueError(f"its schema uses type {full!r}, which is undefined or contains itself")
                nodes, fewest = self._named[full]
                self._count(nodes, depth)
                return full, fewest
            case list():
                return [self._copy(branch, namespace, depth + 1)[0] for branch in avro], 1
            case {"type": "record", "name": str(name), "fields": list(fields)}:
                return self._record(_qualify(name, avro.get("namespace", namespace)), fields, depth)
            case {"type": "array", "items": items}:
                copy, fewest = self._copy(items, namespace, depth + 1)
                if not fewest:
                    raise ValueError("its schema has an array whose items take no bytes")
                return {"type": "array", "items": copy}, 1
            case {"type": "map", "values": values}:
                return {"type": "map", "values": self._copy(values, namespace, depth + 1)[0]}, 1
            case {"type": "enum", "name": str(name), "symbols": list(symbols)}:
                full = self._remember(_qualify(name, avro.get("namespace", namespace)), 1, 1)
                return {"type": "enum", "name": full, "symbols": symbols}, 1
            case {"type": "fixed", "name": str(name), "size": int(size)} if size >= 0:
                full = self._remember(_qualify(name, avro.get("namespace", namespace)), 1, size)
                return {"type": "fixed", "name": full, "size": size}, size
            case {"type": str(primitive)} if primitive in MIN_BYTES:
                return primitive, MIN_BYTES[primitive]
        raise ValueError("its schema is not an Avro schema")

    def _record(self, full: str, fields: list[Any], depth: int) -> tuple[Any, int]:
        before, total, copies = self._nodes, 0, []
        for field in fields:
            copy, fewest = self._copy(field["type"], full.rpartition(".")[0], depth + 1)
            copies.append({"name": field["name"], "type": copy})
            total += fewest
        self._remember(full, self._nodes - before, total)
        return {"type": "record", "name": full, "fields": copies}, total

    def _remember(self, full: str, nodes: int, fewest: int) -> str:
        self._named[full] = (nodes, fewest)
        return full

    def _count(self, nodes: int, depth: int) -> None:
        self._nodes += nodes
        if depth > _MAX_NESTING or self._nodes > _MAX_NODES:
            raise ValueError(f"its schema goes over {_MAX_NESTING} levels or {_MAX_NODES} types")


def _qualify(name: str, namespace: str | None) -> str:
    return name if "." in name or not namespace else f"{namespace}.{name}"


NAMESPACE: Final = "org.apache.hudi.avro.model"
TEXT: Final = {"type": "string", "avro.java.string": "String"}
TEXTS: Final = {"type": "array", "items": TEXT}
VERSION: Final = {"name": "version", "type": ["int", "null"], "default": 1}


def nested_record_schema(name: str, *fields: Mapping[str, Any]) -> dict[str, Any]:
    """Return the schema of a record that is a part of another record, and has no namespace of its own."""
    return {"type": "record", "name": name, "fields": list(fields)}


def file_schema(name: str, *fields: Mapping[str, Any]) -> dict[str, Any]:
    """Return the schema of the one record that a timeline file contains, in Hudi's namespace."""
    return {"type": "record", "name": name, "namespace": NAMESPACE, "fields": list(fields)}


def required_field(name: str, avro: Any) -> dict[str, Any]:
    """Return a record field without a default."""
    return {"name": name, "type": avro}


def optional_field(name: str, avro: Any) -> dict[str, Any]:
    """Return a record field that may be null and is null by default."""
    return {"name": name, "type": ["null", avro], "default": None}


def list_field(name: str, items: Any) -> dict[str, Any]:
    """Return a record field that is an array of ``items``, by default empty."""
    return {"name": name, "type": {"type": "array", "items": items, "default": []}, "default": []}


def map_schema(values: Any) -> dict[str, Any]:
    """Return the schema of a map with string keys, whose values have the schema ``values``."""
    return {"type": "map", "values": values, "avro.java.string": "String"}


def array_schema(items: Any) -> dict[str, Any]:
    """Return the schema of an array whose items have the schema ``items``."""
    return {"type": "array", "items": items}
