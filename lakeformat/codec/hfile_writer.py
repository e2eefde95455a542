"""Encoding of HFiles; `lakeformat.codec.hfile` describes the format and decodes it."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator, Mapping
from typing import Final, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lakeformat.arrow.text_order import sort_texts
from lakeformat.codec.avro.encode import join_bytes, to_bytes
from lakeformat.codec.hfile_format import (
    BYTES_PER_CHECKSUM,
    DATA,
    GZIP,
    HEADER,
    INFO,
    KEY_END,
    KEY_REST,
    LENGTHS,
    META,
    PLACE,
    ROOT,
    TRAILER,
    TRAILER_BYTES,
    VERSION,
    Place,
    encode_field,
    encode_hadoop_vint,
    encode_varint,
    is_ascending,
)

__all__ = ["MAX_KEY", "encode_hfile"]

Ints: TypeAlias = npt.NDArray[np.int64]

#: Most bytes of a key.
MAX_KEY: Final = 32767
_MAX_FILE: Final = np.iinfo(np.int32).max
_COMPARATOR: Final = b"org.apache.hudi.io.storage.HoodieHBaseKVComparator"


def encode_hfile(
    keys: pa.Array,
    values: pa.Array,
    *,
    info: Mapping[str, bytes],
    metas: Mapping[str, bytes] | None = None,
    compression: int = GZIP,
    block_bytes: int = 1 << 20,
    created_ms: int = 0,
) -> bytes:
    """Encode cells as an HFile with an index of one level. The cells are sorted here.

    Memory: three times the file before compression.

    Args:
        keys: Strings without nulls; no key may occur twice.
        values: A binary value for each key.
        info: Entries to add to the file info, such as ``schema``.
        metas: Meta blocks by name, such as ``bloomFilter``.
        compression: `GZIP` or `NONE`.
        block_bytes: Size up to which a data block is filled, before compression. A larger cell has its own block.
        created_ms: Time of creation for the file info, in epoch milliseconds.

    Raises:
        ValueError: A key occurs twice or is longer than 32,767 bytes, or the file has more than 2 GiB.
    """
    raw_keys = keys.cast(pa.binary())
    order = pa.array(sort_texts(raw_keys))
    raw_keys, values = raw_keys.take(order), values.cast(pa.binary()).take(order)
    if not is_ascending(raw_keys):
        raise ValueError("a key occurs twice")
    sizes = np.asarray(pc.binary_length(raw_keys)).astype(np.int64)
    value_sizes = np.asarray(pc.binary_length(values)).astype(np.int64)
    if (sizes > MAX_KEY).any() or (sizes + value_sizes).sum() + 32 * len(sizes) > _MAX_FILE:
        raise ValueError(f"a key has more than {MAX_KEY} bytes, or the file more than 2 GiB")
    writer = _Writer(compression)
    cells = join_bytes(_cell_fronts(sizes, value_sizes), raw_keys, KEY_END, values, b"\0")
    cell_bytes = sizes + value_sizes + LENGTHS.size + KEY_REST + 1
    for start, end in _split(cell_bytes, block_bytes):
        writer.add_data(raw_keys[start].as_py(), to_bytes(cells.slice(start, end - start)))
    last = raw_keys[-1].as_py() if len(raw_keys) else None
    entries = {
        "hfile.LASTKEY": b"" if last is None else struct.pack(">h", len(last)) + last + KEY_END,
        "hfile.AVG_KEY_LEN": struct.pack(">i", int(sizes.mean()) if len(sizes) else 0),
        "hfile.AVG_VALUE_LEN": struct.pack(">i", int(value_sizes.mean()) if len(sizes) else 0),
        "hfile.CREATE_TIME_TS": struct.pack(">q", created_ms),
        "KEY_VALUE_VERSION": struct.pack(">i", 1),
        "MAX_MEMSTORE_TS_KEY": struct.pack(">q", 0),
        **info,
    }
    return writer.finish(entries, metas or {}, len(raw_keys))


def _cell_fronts(key_sizes: Ints, value_sizes: Ints) -> pa.Array:
    """Return the bytes before the row of each cell: the lengths of key and value, and of the row."""
    fronts = np.empty(len(key_sizes), np.dtype([("key", ">i4"), ("value", ">i4"), ("row", ">i2")]))
    fronts["key"], fronts["value"], fronts["row"] = key_sizes + KEY_REST, value_sizes, key_sizes
    return pa.Array.from_buffers(pa.binary(fronts.itemsize), len(fronts), [None, pa.py_buffer(fronts)]).cast(
        pa.binary()
    )


def _split(sizes: Ints, most: int) -> Iterator[tuple[int, int]]:
    """Yield ranges of cells that have at most ``most`` bytes together, or one cell."""
    ends, start = np.cumsum(sizes), 0
    while start < len(sizes):
        before = int(ends[start - 1]) if start else 0
        end = max(int(np.searchsorted(ends, before + most, side="right")), start + 1)
        yield start, end
        start = end


class _Writer:
    """The blocks of one HFile, in order."""

    def __init__(self, compression: int) -> None:
        self._compression = compression
        self._parts: list[bytes] = []
        self._at, self._unpacked, self._previous = 0, 0, -1
        self._index: list[Place] = []

    def add_data(self, first_key: bytes, content: bytes) -> None:
        """Add a data block."""
        place = self._add(DATA, content, first_key, self._previous)
        self._previous = place.offset
        self._unpacked += len(content)
        self._index.append(place)

    def finish(self, info: Mapping[str, bytes], metas: Mapping[str, bytes], cells: int) -> bytes:
        """Add meta blocks, index, file info and trailer; return the file."""
        stored = [self._add(META, content, name.encode()) for name, content in sorted(metas.items())]
        opened = self._at
        self._add(ROOT, b"".join(_encode_entry(place, struct.pack(">h", len(place.key))) for place in self._index))
        self._add(ROOT, b"".join(_encode_entry(place, b"") for place in stored))
        pairs = b"".join(
            encode_field(1, encode_field(1, name.encode()) + encode_field(2, value))
            for name, value in sorted(info.items())
        )
        info_at = self._add(INFO, b"PBUF" + encode_varint(len(pairs)) + pairs).offset
        first, last = (self._index[0].offset, self._index[-1].offset) if self._index else (0, 0)
        numbers = (
            info_at,
            opened,
            self._unpacked,
            self._unpacked,
            len(self._index),
            len(stored),
            cells,
            1,
            first,
            last,
        )
        message = b"".join(encode_field(field_number, number) for field_number, number in enumerate(numbers, 1))
        message += encode_field(11, _COMPARATOR) + encode_field(12, self._compression)
        head = TRAILER + encode_varint(len(message)) + message
        return b"".join([*self._parts, head.ljust(TRAILER_BYTES - 4, b"\0"), b"\0" + VERSION])

    def _add(self, magic: bytes, content: bytes, key: bytes = b"", previous: int = -1) -> Place:
        packed = _pack(content) if self._compression == GZIP else content
        with_header = HEADER.size + len(packed)
        checksums = bytes(4 * -(-with_header // BYTES_PER_CHECKSUM))
        header = HEADER.pack(
            magic, len(packed) + len(checksums), len(content), previous, 0, BYTES_PER_CHECKSUM, with_header
        )
        block = header + packed + checksums
        place = Place(key, self._at, len(block))
        self._parts.append(block)
        self._at += len(block)
        return place


def _encode_entry(place: Place, before_key: bytes) -> bytes:
    key = before_key + place.key
    return PLACE.pack(place.offset, place.size) + encode_hadoop_vint(len(key)) + key


def _pack(content: bytes) -> bytes:
    packer = zlib.compressobj(6, zlib.DEFLATED, 31)
    return packer.compress(content) + packer.flush()
