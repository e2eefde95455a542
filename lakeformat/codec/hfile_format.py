"""What the reader and the writer of HFiles share: the parts of the format, numbers and messages."""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

__all__ = [
    "BRANCH",
    "BYTES_PER_CHECKSUM",
    "DATA",
    "GZIP",
    "HEADER",
    "INFO",
    "KEY_END",
    "KEY_REST",
    "LEAF",
    "LENGTHS",
    "META",
    "NONE",
    "PLACE",
    "ROOT",
    "TRAILER",
    "TRAILER_BYTES",
    "VERSION",
    "Place",
    "encode_field",
    "encode_hadoop_vint",
    "encode_varint",
    "get_number",
    "is_ascending",
    "parse_fields",
    "parse_message",
    "read_hadoop_vint",
    "read_varint",
]

#: Numbers of the compressions in a trailer.
GZIP: Final = 1
NONE: Final = 2

DATA: Final = b"DATABLK*"
LEAF: Final = b"IDXLEAF2"
BRANCH: Final = b"IDXINTE2"
ROOT: Final = b"IDXROOT2"
META: Final = b"METABLKc"
INFO: Final = b"FILEINF2"
TRAILER: Final = b'TRABLK"$'
TRAILER_BYTES: Final = 4096
VERSION: Final = b"\0\0\x03"
#: Magic, bytes on disk after the header, unpacked bytes, offset of the previous block, kind of checksums, bytes per
#: checksum, bytes with header and without checksums.
HEADER: Final = struct.Struct(">8siiqBii")
BYTES_PER_CHECKSUM: Final = 16384
LENGTHS: Final = struct.Struct(">II")
PLACE: Final = struct.Struct(">qi")
#: The end of a key: no family, the latest timestamp, type Put.
KEY_END: Final = b"\0" + struct.pack(">QB", 0x7FFFFFFFFFFFFFFF, 4)
#: Bytes of a key besides its row: row length, family length, timestamp and type.
KEY_REST: Final = 12


@dataclass(frozen=True, slots=True)
class Place:
    """Where a block lies, with its first key. The key may be shortened; then it is a lower bound of the keys."""

    key: bytes
    offset: int
    size: int


def is_ascending(keys: pa.Array) -> bool:
    """Tell whether each key is greater than the one before."""
    return len(keys) < 2 or bool(pc.all(pc.less(keys.slice(0, len(keys) - 1), keys.slice(1))).as_py())


def read_varint(data: bytes, at: int) -> tuple[int, int]:
    """Read a protobuf number; return it and the position after it."""
    value = shift = 0
    while shift < 70:
        byte = data[at]
        at, value, shift = at + 1, value | (byte & 0x7F) << shift, shift + 7
        if byte < 0x80:
            return value, at
    raise ValueError("a number takes more than 64 bits")


def encode_varint(number: int) -> bytes:
    """Encode a number that is not negative as protobuf does."""
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*out, number])


def read_hadoop_vint(data: bytes, at: int) -> tuple[int, int]:
    """Read a number as Hadoop's ``WritableUtils.readVInt`` does; negative numbers are refused."""
    first = data[at]
    if first < 128:
        return first, at + 1
    size = 144 - first
    if not 1 <= size <= 4 or at + 1 + size > len(data):
        raise ValueError("a length of its index is not valid")
    return int.from_bytes(data[at + 1 : at + 1 + size], "big"), at + 1 + size


def encode_hadoop_vint(number: int) -> bytes:
    """Encode a number as `read_hadoop_vint` reads it."""
    if number < 128:
        return bytes([number])
    raw = number.to_bytes((number.bit_length() + 7) // 8, "big")
    return bytes([144 - len(raw)]) + raw


def parse_fields(data: bytes) -> Iterator[tuple[int, int | bytes]]:
    """Yield number and value of each field of a protobuf message, which has only numbers and byte strings."""
    offset = 0
    while offset < len(data):
        tag, offset = read_varint(data, offset)
        value, offset = read_varint(data, offset)
        if tag & 7 == 0:
            yield tag >> 3, value
        elif tag & 7 == 2 and value <= len(data) - offset:
            yield tag >> 3, data[offset : offset + value]
            offset += value
        else:
            raise ValueError("a message has a field that is not valid")


def parse_message(data: bytes) -> Mapping[int, int | bytes]:
    """Return the fields of a protobuf message by number."""
    return dict(parse_fields(data))


def get_number(message: Mapping[int, int | bytes], field: int, default: int | None = None) -> int:
    """Return a number of a trailer. Raise ``ValueError`` if it is missing and has no default."""
    value = message.get(field, default)
    if not isinstance(value, int):
        raise ValueError(f"its trailer has no field {field}")
    return value


def encode_field(number: int, value: int | bytes) -> bytes:
    """Encode one field of a protobuf message."""
    if isinstance(value, int):
        return encode_varint(number << 3) + encode_varint(value)
    return encode_varint(number << 3 | 2) + encode_varint(len(value)) + value
