"""HFiles of version 3, the sorted files of keys and values in Hudi's metadata table: decoding and encoding.

An HFile has data blocks with cells, sorted by the UTF-8 bytes of their keys; meta blocks; the index blocks; the file
info; and a trailer of 4096 bytes, which says where these are. All integers are big-endian.

============ ==========================================================================================================
part         content
============ ==========================================================================================================
block        header of 33 bytes, content (a gzip member if the file is compressed), four bytes per 16 KiB for checksums
data block   cells: key length (4), value length (4), key, value, and one byte for the MVCC version
key          row length (2), row, family length (1), family, timestamp (8), type (1); the row is the key of the record
root index   entries: offset (8), size (4), key length (Hadoop VInt), key
other index  number of entries (4), offset of each entry and of the end (4 each); entries: offset (8), size (4), key
============ ==========================================================================================================

Only the next cell's position depends on the lengths of the cell before it. So one Python loop per block finds where the
cells start, at some 0.2 microseconds per cell. All else is done for whole blocks.

No input is trusted. A file that is damaged gives a `CorruptTableError` that names it, or its true keys and values. The
one exception is a file without compression, in which nothing shows that bytes of a value have changed. Memory: the
index, and for each block in use its bytes and its columns. The size of a block is checked before it is unpacked.

Hudi: ``HFileReaderImpl`` and ``HFileWriterImpl``; the format is that of HBase.
"""

from __future__ import annotations

import struct
import zlib
from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lakeformat.codec.avro.columns import AvroBytes
from lakeformat.codec.avro.encode import join_bytes, to_bytes
from lakeformat.errors import CorruptTableError, UnsupportedTableError

__all__ = ["GZIP", "NONE", "HFile", "encode_hfile"]

Ints: TypeAlias = npt.NDArray[np.int64]

#: Numbers of the compressions in a trailer.
GZIP: Final = 1
NONE: Final = 2

_DATA: Final = b"DATABLK*"
_LEAF: Final = b"IDXLEAF2"
_BRANCH: Final = b"IDXINTE2"
_ROOT: Final = b"IDXROOT2"
_META: Final = b"METABLKc"
_INFO: Final = b"FILEINF2"
_TRAILER: Final = b'TRABLK"$'
_TRAILER_BYTES: Final = 4096
_VERSION: Final = b"\0\0\x03"
#: Magic, bytes on disk after the header, unpacked bytes, offset of the previous block, kind of checksums, bytes per
#: checksum, bytes with header and without checksums.
_HEADER: Final = struct.Struct(">8siiqBii")
_BYTES_PER_CHECKSUM: Final = 16384
_LENGTHS: Final = struct.Struct(">II")
_PLACE: Final = struct.Struct(">qi")
#: The end of a key: no family, the latest timestamp, type Put.
_KEY_END: Final = b"\0" + struct.pack(">QB", 0x7FFFFFFFFFFFFFFF, 4)
#: Bytes of a key besides its row: row length, family length, timestamp and type.
_KEY_REST: Final = 12
_MAX_KEY: Final = 32767
#: No gzip member unpacks to more than this many times its size.
_MAX_RATIO: Final = 1040
_MAX_BLOCK: Final = 1 << 30
_MAX_LEVELS: Final = 8
_MAX_FILE: Final = np.iinfo(np.int32).max
_COMPARATOR: Final = b"org.apache.hudi.io.storage.HoodieHBaseKVComparator"


@dataclass(frozen=True, slots=True)
class _Place:
    """Where a block lies, with its first key. The key may be shortened; then it is a lower bound of the keys."""

    key: bytes
    offset: int
    size: int


class HFile:
    """One HFile, of which only the index and the file info are in memory.

    Attributes:
        info: Maps the names of the file info to their values.
        entries: Number of cells.
    """

    def __init__(self, source: Any, name: str) -> None:
        """Read the index and the file info.

        Args:
            source: A seekable ``pyarrow.NativeFile``, or the bytes of the file.
            name: Path of the file, for messages.

        Raises:
            CorruptTableError: The file is damaged.
            UnsupportedTableError: The file has a compression or an encoding that is not supported.
        """
        is_open = hasattr(source, "read_buffer")
        self._source: Final = source if is_open else pa.BufferReader(source)
        self._name: Final = name
        self._size: Final = int(self._source.size())
        try:
            self._open()
        except (ValueError, IndexError, struct.error, OverflowError) as error:
            raise self._damaged(error) from None

    @property
    def blocks(self) -> int:
        """Return the number of data blocks."""
        return len(self._index)

    def batches(self) -> Iterator[pa.Table]:
        """Yield the columns ``key`` (string) and ``value`` (binary) of each data block, in the order of the keys.

        Raises:
            CorruptTableError: The file is damaged.
        """
        seen, last = 0, None
        for number in range(len(self._index)):
            table = self._read_cells(number)
            first = table["key"][0].as_py().encode()
            if last is not None and first <= last:
                raise self._damaged(ValueError("its keys are not sorted"))
            seen, last = seen + len(table), table["key"][-1].as_py().encode()
            yield table
        if seen != self.entries:
            raise self._damaged(ValueError(f"it has {seen} cells, and its trailer says {self.entries}"))

    def read(self) -> pa.Table:
        """Return the columns ``key`` (string) and ``value`` (binary) of all cells, a chunk for each data block."""
        return pa.concat_tables([_NO_CELLS, *self.batches()])

    def look_up(self, keys: pa.Array) -> pa.Table:
        """Return the cells of the given keys, sorted by key. Only blocks that may hold one of the keys are read.

        Args:
            keys: Keys as strings, in any order. Nulls and keys that the file does not have are ignored.
        """
        wanted = pc.unique(keys.cast(pa.string())).drop_null().cast(pa.binary())
        wanted = wanted.take(pc.sort_indices(wanted))
        parts = [_NO_CELLS]
        for number, start, end in self._find_blocks(wanted.to_pylist()):
            cells = self._read_cells(number)
            parts.append(
                cells.filter(pc.is_in(cells["key"], value_set=wanted.slice(start, end - start).cast(pa.string())))
            )
        return pa.concat_tables(parts)

    def prefix(self, text: str) -> pa.Table:
        """Return the cells whose keys start with a text, sorted by key. Only blocks that may hold one are read."""
        raw = text.encode()
        parts = [_NO_CELLS]
        for number in range(self._block_before(raw), len(self._index)):
            first = self._index[number].key
            if first > raw and not first.startswith(raw):
                break
            cells = self._read_cells(number)
            parts.append(cells.filter(pc.starts_with(cells["key"], text)))
        return pa.concat_tables(parts)

    def meta_block(self, name: str) -> bytes | None:
        """Return the content of a meta block; None if the file does not have it."""
        place = self._metas.get(name)
        try:
            return None if place is None else self._read_block(place.offset, _META)[0]
        except (ValueError, IndexError, struct.error) as error:
            raise self._damaged(error) from None

    def _block_before(self, key: bytes) -> int:
        """Return the number of the last block whose first key is less than ``key``, or 0."""
        return max(bisect_left(self._keys, key) - 1, 0)

    def _find_blocks(self, wanted: Sequence[bytes]) -> Iterator[tuple[int, int, int]]:
        """Yield ``(block, start, end)`` for each block that may hold one of the sorted keys ``wanted[start:end]``."""
        start = 0
        while start < len(wanted) and self._index:
            number = bisect_left(self._keys, wanted[start])
            if number == len(self._keys) or self._keys[number] != wanted[start]:
                number = max(number - 1, 0)
            end = bisect_left(wanted, self._keys[number + 1], start) if number + 1 < len(self._keys) else len(wanted)
            yield number, start, end
            start = end

    # --- blocks ---------------------------------------------------------------------------------------

    def _open(self) -> None:
        if self._size < _TRAILER_BYTES:
            raise ValueError("it is shorter than a trailer")
        raw = self._read(self._size - _TRAILER_BYTES, _TRAILER_BYTES)
        if not raw.startswith(_TRAILER) or raw[-3:] != _VERSION:
            raise ValueError("it does not end with the trailer of version 3")
        size, at = _read_varint(raw, len(_TRAILER))
        trailer = _parse_message(raw[at : at + size])
        self._compression = _number(trailer, 12, NONE)
        self.entries = _number(trailer, 7, 0)
        if self._compression not in {GZIP, NONE}:
            raise UnsupportedTableError(
                f"{self._name} has compression {self._compression}, which is not supported; use gzip or none in Hudi"
            )
        root, at = self._read_block(_number(trailer, 2), _ROOT)
        index = _parse_root(root, _number(trailer, 5, 0), is_data=True)
        levels = _number(trailer, 8, 1)
        if levels > _MAX_LEVELS:
            raise ValueError(f"its index has {levels} levels")
        for level in range(levels - 1, 0, -1):
            magic = _BRANCH if level > 1 else _LEAF
            index = [entry for place in index for entry in _parse_index(self._read_block(place.offset, magic)[0])]
        self._index = index
        self._keys = [place.key for place in index]
        if any(one >= other for one, other in pairwise(self._keys)):
            raise ValueError("its index is not sorted")
        metas, _ = self._read_block(at, _ROOT)
        self._metas = {place.key.decode(): place for place in _parse_root(metas, _number(trailer, 6, 0), is_data=False)}
        self.info: Mapping[str, bytes] = self._read_info(_number(trailer, 1))
        self._mvcc_bytes = int(self.info.get("KEY_VALUE_VERSION") == b"\0\0\0\1")
        if any(self.info.get("MAX_MEMSTORE_TS_KEY", b"")):
            raise UnsupportedTableError(f"{self._name} has cells of several versions; compact the table in Hudi")

    def _read_info(self, offset: int) -> dict[str, bytes]:
        raw, _ = self._read_block(offset, _INFO)
        if not raw.startswith(b"PBUF"):
            raise ValueError("its file info is not a message")
        size, at = _read_varint(raw, 4)
        if at + size != len(raw):
            raise ValueError("its file info ends early")
        pairs = [[value for _, value in _fields(pair)] for _, pair in _fields(raw[at:]) if isinstance(pair, bytes)]
        return {bytes(name).decode(): bytes(value) for name, value in pairs}

    def _read(self, offset: int, size: int) -> bytes:
        if offset < 0 or size < 0 or offset + size > self._size:
            raise ValueError(f"bytes {offset} to {offset + size} lie outside of its {self._size} bytes")
        self._source.seek(offset)
        data: bytes = self._source.read(size)
        if len(data) != size:
            raise ValueError("it ended while it was read")
        return data

    def _read_block(self, offset: int, magic: bytes) -> tuple[bytes, int]:
        """Return the unpacked content of the block at an offset, and the offset of the next block."""
        found, on_disk, size, _, kind, per_checksum, with_header = _HEADER.unpack(self._read(offset, _HEADER.size))
        if found != magic:
            raise ValueError(f"it has no {magic.decode()} at byte {offset}")
        packed_size = with_header - _HEADER.size
        if not 0 <= packed_size <= on_disk or kind > 2 or per_checksum <= 0:
            raise ValueError(f"the header at byte {offset} is not valid")
        packed = self._read(offset + _HEADER.size, packed_size)
        after = offset + _HEADER.size + on_disk
        if not 0 <= size <= min(_MAX_BLOCK, _MAX_RATIO * packed_size + 64):
            raise ValueError(f"the block at byte {offset} cannot have {size} bytes")
        if self._compression == GZIP:
            packed = _unpack(packed, size)
        if len(packed) != size:
            raise ValueError(f"the block at byte {offset} has {len(packed)} bytes, not {size}")
        return packed, after

    def _read_cells(self, number: int) -> pa.Table:
        """Return the cells of one data block."""
        place = self._index[number]
        try:
            raw, _ = self._read_block(place.offset, _DATA)
            table = self._decode_cells(raw)
            if table["key"][0].as_py().encode() < place.key:
                raise ValueError("its index does not fit its cells")
        except (ValueError, IndexError, struct.error, pa.ArrowException) as error:
            raise self._damaged(error) from None
        return table

    def _decode_cells(self, raw: bytes) -> pa.Table:
        starts = _find_cells(raw, _LENGTHS.size + self._mvcc_bytes)
        data = np.frombuffer(raw, np.uint8)
        key_bytes, value_bytes = _big_endian(data, starts, 4), _big_endian(data, starts + 4, 4)
        key_at = starts + _LENGTHS.size
        row_bytes = _big_endian(data, key_at, 2)
        family_at = key_at + 2 + row_bytes
        if (row_bytes + _KEY_REST > key_bytes).any() or (data[family_at] + row_bytes + _KEY_REST != key_bytes).any():
            raise ValueError("a key is not as long as it says")
        text = AvroBytes(data)
        keys = text.texts(key_at + 2, row_bytes).cast(pa.string())
        if not _is_ascending(keys):
            raise ValueError("its keys are not sorted")
        return pa.table({"key": keys, "value": text.texts(key_at + key_bytes, value_bytes)})

    def _damaged(self, error: Exception) -> CorruptTableError:
        reason = (str(error) or type(error).__name__)[:300]
        return CorruptTableError(f"{self._name} is not a whole HFile: {reason}; restore it, or run repair()")


_NO_CELLS: Final = pa.table({"key": pa.array([], pa.string()), "value": pa.array([], pa.binary())})


def _is_ascending(keys: pa.Array) -> bool:
    return len(keys) < 2 or bool(pc.all(pc.less(keys.slice(0, len(keys) - 1), keys.slice(1))).as_py())


def _find_cells(raw: bytes, rest: int) -> Ints:
    """Return where the cells of a data block start.

    Args:
        rest: Bytes of a cell besides key and value.
    """
    starts: list[int] = []
    add, unpack, at, end = starts.append, _LENGTHS.unpack_from, 0, len(raw)
    while at < end:
        add(at)
        key, value = unpack(raw, at)
        at += key + value + rest
    if at != end or not starts:
        raise ValueError("its cells do not fill their block")
    return np.array(starts, np.int64)


def _big_endian(data: npt.NDArray[np.uint8], at: Ints, size: int) -> Ints:
    value = np.zeros(len(at), np.int64)
    for place in range(size):
        value = value << 8 | data[at + place]
    return value


def _unpack(packed: bytes, size: int) -> bytes:
    unpacker = zlib.decompressobj(31)
    try:
        raw = unpacker.decompress(packed, size + 1)
    except zlib.error as error:
        raise ValueError(f"a block cannot be unpacked: {error}") from None
    if not unpacker.eof:
        raise ValueError("a block is cut off")
    return raw


def _parse_root(raw: bytes, count: int, *, is_data: bool) -> list[_Place]:
    """Parse a root index block. The keys of a data index have a length of two bytes before them."""
    found, at = [], 0
    for _ in range(min(count, len(raw))):
        offset, size = _PLACE.unpack_from(raw, at)
        length, at = _read_hadoop_vint(raw, at + _PLACE.size)
        if length > len(raw) - at:
            raise ValueError("a key of its index ends early")
        key = raw[at : at + length]
        found.append(_Place(_row_of(key) if is_data else key, offset, size))
        at += length
    if at != len(raw) or len(found) != count:
        raise ValueError("its index has not as many entries as the trailer says")
    return found


def _parse_index(raw: bytes) -> Iterator[_Place]:
    """Parse a leaf or an intermediate index block."""
    (count,) = struct.unpack_from(">i", raw)
    if not 0 < count <= len(raw) // _PLACE.size:
        raise ValueError("an index block has no valid number of entries")
    first = 4 + 4 * (count + 1)
    ends = struct.unpack_from(f">{count + 1}i", raw, 4)
    if ends[0] != 0 or first + ends[-1] != len(raw):
        raise ValueError("an index block is not as long as it says")
    for start, end in pairwise(ends):
        if end - start < _PLACE.size:
            raise ValueError("an entry of an index block ends early")
        offset, size = _PLACE.unpack_from(raw, first + start)
        yield _Place(_row_of(raw[first + start + _PLACE.size : first + end]), offset, size)


def _row_of(key: bytes) -> bytes:
    """Return the row of a key of an index. HBase may append family, timestamp and type, or leave them away."""
    (length,) = struct.unpack_from(">h", key)
    if not 0 <= length <= len(key) - 2:
        raise ValueError("a key of its index ends early")
    return key[2 : 2 + length]


# --- numbers and messages -------------------------------------------------------------------------


def _read_varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while shift < 70:
        byte = data[at]
        at, value, shift = at + 1, value | (byte & 0x7F) << shift, shift + 7
        if byte < 0x80:
            return value, at
    raise ValueError("a number takes more than 64 bits")


def _encode_varint(number: int) -> bytes:
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*out, number])


def _read_hadoop_vint(data: bytes, at: int) -> tuple[int, int]:
    """Read a number as Hadoop's ``WritableUtils.readVInt`` does; negative numbers are refused."""
    first = data[at]
    if first < 128:
        return first, at + 1
    size = 144 - first
    if not 1 <= size <= 4 or at + 1 + size > len(data):
        raise ValueError("a length of its index is not valid")
    return int.from_bytes(data[at + 1 : at + 1 + size], "big"), at + 1 + size


def _encode_hadoop_vint(number: int) -> bytes:
    if number < 128:
        return bytes([number])
    raw = number.to_bytes((number.bit_length() + 7) // 8, "big")
    return bytes([144 - len(raw)]) + raw


def _fields(data: bytes) -> Iterator[tuple[int, int | bytes]]:
    """Yield number and value of each field of a protobuf message, which has only numbers and byte strings."""
    at = 0
    while at < len(data):
        tag, at = _read_varint(data, at)
        value, at = _read_varint(data, at)
        if tag & 7 == 0:
            yield tag >> 3, value
        elif tag & 7 == 2 and value <= len(data) - at:
            yield tag >> 3, data[at : at + value]
            at += value
        else:
            raise ValueError("a message has a field that is not valid")


def _parse_message(data: bytes) -> Mapping[int, int | bytes]:
    return dict(_fields(data))


def _number(message: Mapping[int, int | bytes], field: int, default: int | None = None) -> int:
    value = message.get(field, default)
    if not isinstance(value, int):
        raise ValueError(f"its trailer has no field {field}")
    return value


def _field(number: int, value: int | bytes) -> bytes:
    if isinstance(value, int):
        return _encode_varint(number << 3) + _encode_varint(value)
    return _encode_varint(number << 3 | 2) + _encode_varint(len(value)) + value


# --- encoding -------------------------------------------------------------------------------------


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
    order = pc.sort_indices(raw_keys)
    raw_keys, values = raw_keys.take(order), values.cast(pa.binary()).take(order)
    if not _is_ascending(raw_keys):
        raise ValueError("a key occurs twice")
    sizes = np.asarray(pc.binary_length(raw_keys)).astype(np.int64)
    value_sizes = np.asarray(pc.binary_length(values)).astype(np.int64)
    if (sizes > _MAX_KEY).any() or (sizes + value_sizes).sum() + 32 * len(sizes) > _MAX_FILE:
        raise ValueError(f"a key has more than {_MAX_KEY} bytes, or the file more than 2 GiB")
    writer = _Writer(compression)
    cells = join_bytes(_cell_fronts(sizes, value_sizes), raw_keys, _KEY_END, values, b"\0")
    cell_bytes = sizes + value_sizes + _LENGTHS.size + _KEY_REST + 1
    for start, end in _split(cell_bytes, block_bytes):
        writer.add_data(raw_keys[start].as_py(), to_bytes(cells.slice(start, end - start)))
    last = raw_keys[-1].as_py() if len(raw_keys) else None
    entries = {
        "hfile.LASTKEY": b"" if last is None else struct.pack(">h", len(last)) + last + _KEY_END,
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
    fronts["key"], fronts["value"], fronts["row"] = key_sizes + _KEY_REST, value_sizes, key_sizes
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
        self._index: list[_Place] = []

    def add_data(self, first_key: bytes, content: bytes) -> None:
        """Add a data block."""
        place = self._add(_DATA, content, first_key, self._previous)
        self._previous = place.offset
        self._unpacked += len(content)
        self._index.append(place)

    def finish(self, info: Mapping[str, bytes], metas: Mapping[str, bytes], cells: int) -> bytes:
        """Add meta blocks, index, file info and trailer; return the file."""
        stored = [self._add(_META, content, name.encode()) for name, content in sorted(metas.items())]
        opened = self._at
        self._add(_ROOT, b"".join(_encode_entry(each, struct.pack(">h", len(each.key))) for each in self._index))
        self._add(_ROOT, b"".join(_encode_entry(each, b"") for each in stored))
        pairs = b"".join(_field(1, _field(1, name.encode()) + _field(2, value)) for name, value in sorted(info.items()))
        info_at = self._add(_INFO, b"PBUF" + _encode_varint(len(pairs)) + pairs).offset
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
        message = b"".join(_field(at, number) for at, number in enumerate(numbers, 1))
        message += _field(11, _COMPARATOR) + _field(12, self._compression)
        head = _TRAILER + _encode_varint(len(message)) + message
        return b"".join([*self._parts, head.ljust(_TRAILER_BYTES - 4, b"\0"), b"\0" + _VERSION])

    def _add(self, magic: bytes, content: bytes, key: bytes = b"", previous: int = -1) -> _Place:
        packed = _pack(content) if self._compression == GZIP else content
        with_header = _HEADER.size + len(packed)
        checksums = bytes(4 * -(-with_header // _BYTES_PER_CHECKSUM))
        header = _HEADER.pack(
            magic, len(packed) + len(checksums), len(content), previous, 0, _BYTES_PER_CHECKSUM, with_header
        )
        block = header + packed + checksums
        place = _Place(key, self._at, len(block))
        self._parts.append(block)
        self._at += len(block)
        return place


def _encode_entry(place: _Place, before_key: bytes) -> bytes:
    key = before_key + place.key
    return _PLACE.pack(place.offset, place.size) + _encode_hadoop_vint(len(key)) + key


def _pack(content: bytes) -> bytes:
    packer = zlib.compressobj(6, zlib.DEFLATED, 31)
    return packer.compress(content) + packer.flush()
