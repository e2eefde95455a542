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
cells start, at some 0.2 microseconds per cell. All else is done for whole blocks. A look-up of keys needs many small
blocks: it goes through all of them at once, one cell of each block per step.

No input is trusted. A file that is damaged gives a `CorruptTableError` that names it, or its true keys and values. The
one exception is a file without compression, in which nothing shows that bytes of a value have changed. Memory: the
index, and for each block in use its bytes and its columns. The size of a block is checked before it is unpacked.

Hudi: ``HFileReaderImpl`` and ``HFileWriterImpl``; the format is that of HBase.
"""

from __future__ import annotations

import struct
import zlib
from array import array
from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lakeformat.codec.avro.columns import AvroBytes
from lakeformat.codec.hfile_format import (
    BRANCH,
    DATA,
    GZIP,
    HEADER,
    INFO,
    KEY_REST,
    LEAF,
    LENGTHS,
    META,
    NONE,
    PLACE,
    ROOT,
    TRAILER,
    TRAILER_BYTES,
    VERSION,
    Place,
    get_number,
    is_ascending,
    parse_fields,
    parse_message,
    read_hadoop_vint,
    read_varint,
)
from lakeformat.errors import CorruptTableError, UnsupportedTableError

__all__ = ["HFile"]

Ints: TypeAlias = npt.NDArray[np.int64]

#: No gzip member unpacks to more than this many times its size.
_MAX_RATIO: Final = 1040
_MAX_BLOCK: Final = 1 << 30
#: A larger block may have this many times its packed size. Names of files shrink to a seventh.
_SMALL_BLOCK: Final = 16 << 20
_LIKELY_RATIO: Final = 32
#: Maximum bytes of the file info, which has some ten entries and a schema.
_MAX_INFO: Final = 2 << 20
_MAX_LEVELS: Final = 8
#: Bytes that are read at once at most. More than that are read in parts.
_MAX_KEPT: Final = 64 << 20
#: Unpacked bytes of the blocks that a look-up decodes together.
_BATCH_BYTES: Final = 32 << 20
#: Bytes between two wanted blocks that are read along with them, because that costs less than another request.
_GAP_BYTES: Final = 8 << 10
#: Blocks from which on it is faster to go through all of them at once than through one after the other.
_MANY_BLOCKS: Final = 64


class HFile:
    """One HFile. Only its index and its file info are in memory.

    Attributes:
        name: Path of the file, for messages.
        info: Maps the names of the file info to their values.
        entries: Number of cells.
        bytes_read: Bytes that have been read from the source so far.
    """

    def __init__(self, source: Any, name: str, check: Callable[[pa.Array], None] | None = None) -> None:
        """Read the index and the file info.

        Args:
            source: A seekable ``pyarrow.NativeFile``, or the bytes of the file.
            name: Path of the file, for messages.
            check: Function that is called with all keys of each block that is read, and raises an error if they do not
                belong into the file. In a look-up it is called with the first key of each block.

        Raises:
            CorruptTableError: The file is damaged.
            UnsupportedTableError: The file has a compression or an encoding that is not supported.
        """
        is_open = hasattr(source, "read_buffer")
        self._source: Final = source if is_open else pa.BufferReader(source)
        self.name: Final = name
        self._check: Final = check
        self._size: Final = int(self._source.size())
        self._kept = (0, b"")
        self.bytes_read = 0
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
        sought = pc.unique(keys.cast(pa.string())).drop_null().cast(pa.binary())
        sought = sought.take(pc.sort_indices(sought))
        numbers = [number for number, _, _ in self._find_blocks(sought.to_pylist())]
        texts = sought.cast(pa.string())
        return pa.concat_tables([_NO_CELLS, *(self._choose(*batch, texts) for batch in self._unpack_all(numbers))])

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
            return None if place is None else self._read_block(place.offset, META)[0]
        except (ValueError, IndexError, struct.error) as error:
            raise self._damaged(error) from None

    def _block_before(self, key: bytes) -> int:
        """Return the number of the last block whose first key is less than ``key``, or 0."""
        return max(bisect_left(self._keys, key) - 1, 0)

    def _find_blocks(self, sought: Sequence[bytes]) -> Iterator[tuple[int, int, int]]:
        """Yield ``(block, start, end)`` for each block that may hold one of the sorted keys ``wanted[start:end]``."""
        start = 0
        while start < len(sought) and self._index:
            number = bisect_left(self._keys, sought[start])
            if number == len(self._keys) or self._keys[number] != sought[start]:
                number = max(number - 1, 0)
            end = bisect_left(sought, self._keys[number + 1], start) if number + 1 < len(self._keys) else len(sought)
            yield number, start, end
            start = end

    def _unpack_all(self, numbers: Sequence[int]) -> Iterator[tuple[Sequence[int], list[bytes]]]:
        """Yield the numbers and contents of some data blocks at a time, of about `_BATCH_BYTES`."""
        first, contents, size = 0, list[bytes](), 0
        try:
            for position, number in enumerate(numbers):
                self._keep_from(numbers, position)
                contents.append(self._read_block(self._index[number].offset, DATA)[0])
                size += len(contents[-1])
                if size >= _BATCH_BYTES or position == len(numbers) - 1:
                    yield numbers[first : position + 1], contents
                    first, contents, size = position + 1, [], 0
        except (ValueError, IndexError, struct.error) as error:
            raise self._damaged(error) from None

    def _keep_from(self, numbers: Sequence[int], position: int) -> None:
        """Read a block and the wanted blocks soon after it with one request, if it has not been read already."""
        start, kept = self._kept
        place = self._index[numbers[position]]
        if start <= place.offset and place.offset + place.size <= start + len(kept):
            return
        end = place.offset + place.size
        for number in numbers[position + 1 :]:
            following = self._index[number]
            after = following.offset + following.size
            if following.offset - end > _GAP_BYTES or after - place.offset > _BATCH_BYTES:
                break
            end = after
        self._keep(place.offset, end - place.offset)

    def _choose(self, numbers: Sequence[int], contents: Sequence[bytes], sought: pa.Array) -> pa.Table:
        """Return the cells of these data blocks whose keys are wanted."""
        try:
            cells = self._parse_cells(contents)
            firsts = cells.keys.take(pa.array(cells.firsts))
            least = pa.array([self._keys[number] for number in numbers], pa.binary())
            if pc.any(pc.less(firsts.cast(pa.binary()), least)).as_py():
                raise ValueError("its index does not fit its cells")
            chosen = np.flatnonzero(np.asarray(pc.is_in(cells.keys, value_set=sought)))
            table = pa.table({"key": cells.keys.take(pa.array(chosen)), "value": cells.values(chosen)})
        except (ValueError, IndexError, struct.error, pa.ArrowException) as error:
            raise self._damaged(error) from None
        if self._check is not None:
            self._check(firsts)
        return table

    # --- blocks ---------------------------------------------------------------------------------------

    def _open(self) -> None:
        if self._size < TRAILER_BYTES:
            raise ValueError("it is shorter than a trailer")
        raw = self._read(self._size - TRAILER_BYTES, TRAILER_BYTES)
        if not raw.startswith(TRAILER) or raw[-3:] != VERSION:
            raise ValueError("it does not end with the trailer of version 3")
        size, offset = read_varint(raw, len(TRAILER))
        trailer = parse_message(raw[offset : offset + size])
        self._compression = get_number(trailer, 12, NONE)
        self.entries = get_number(trailer, 7, 0)
        if self._compression not in {GZIP, NONE}:
            raise UnsupportedTableError(
                f"{self.name} has compression {self._compression}, which is not supported; use gzip or none in Hudi"
            )
        opened = get_number(trailer, 2)
        self._keep(opened, self._size - TRAILER_BYTES - opened)
        root, offset = self._read_block(opened, ROOT)
        index = _parse_root(root, self._check_count(get_number(trailer, 5, 0)), is_data=True)
        levels = get_number(trailer, 8, 1)
        if levels > _MAX_LEVELS:
            raise ValueError(f"its index has {levels} levels")
        for level in range(levels - 1, 0, -1):
            magic, above, index = BRANCH if level > 1 else LEAF, index, []
            for place in above:
                index += _parse_index(self._read_block(place.offset, magic)[0])
                self._check_count(len(index))
        self._index = index
        self._keys = [place.key for place in index]
        if any(key >= other for key, other in pairwise(self._keys)):
            raise ValueError("its index is not sorted")
        metas, _ = self._read_block(offset, ROOT)
        self._metas = {
            place.key.decode(): place
            for place in _parse_root(metas, self._check_count(get_number(trailer, 6, 0)), is_data=False)
        }
        self.info: Mapping[str, bytes] = self._read_info(get_number(trailer, 1))
        self._mvcc_bytes = int(self.info.get("KEY_VALUE_VERSION") == b"\0\0\0\1")
        if any(self.info.get("MAX_MEMSTORE_TS_KEY", b"")):
            raise UnsupportedTableError(f"{self.name} has cells of several versions; compact the table in Hudi")

    def _check_count(self, blocks: int) -> int:
        """Return the number of blocks that an index names. Raise an error if the file has no room for so many."""
        if blocks > self._size // HEADER.size:
            raise ValueError(f"its {self._size} bytes cannot have {blocks} blocks")
        return blocks

    def _read_info(self, offset: int) -> dict[str, bytes]:
        raw, _ = self._read_block(offset, INFO)
        if len(raw) > _MAX_INFO:
            raise ValueError(f"its file info has {len(raw)} bytes")
        if not raw.startswith(b"PBUF"):
            raise ValueError("its file info is not a message")
        size, start = read_varint(raw, 4)
        if start + size != len(raw):
            raise ValueError("its file info ends early")
        pairs = [
            [value for _, value in parse_fields(pair)]
            for _, pair in parse_fields(raw[start:])
            if isinstance(pair, bytes)
        ]
        return {bytes(name).decode(): bytes(value) for name, value in pairs}

    def _read(self, offset: int, size: int) -> bytes:
        if offset < 0 or size < 0 or offset + size > self._size:
            raise ValueError(f"bytes {offset} to {offset + size} lie outside of its {self._size} bytes")
        start, kept = self._kept
        if start <= offset and offset + size <= start + len(kept):
            return kept[offset - start : offset - start + size]
        self._source.seek(offset)
        data: bytes = self._source.read(size)
        self.bytes_read += len(data)
        if len(data) != size:
            raise ValueError("it ended while it was read")
        return data

    def _keep(self, offset: int, size: int) -> None:
        """Read bytes that blocks will be read from, so that a block is not two requests."""
        if offset >= 0 and 0 <= size <= _MAX_KEPT and offset + size <= self._size:
            self._kept = (offset, self._read(offset, size))

    def _read_block(self, offset: int, magic: bytes) -> tuple[bytes, int]:
        """Return the unpacked content of the block at an offset, and the offset of the next block."""
        found_magic, on_disk, size, _, kind, per_checksum, with_header = HEADER.unpack(self._read(offset, HEADER.size))
        if found_magic != magic:
            raise ValueError(f"it has no {magic.decode()} at byte {offset}")
        packed_size = with_header - HEADER.size
        if not 0 <= packed_size <= on_disk or kind > 2 or per_checksum <= 0:
            raise ValueError(f"the header at byte {offset} is not valid")
        packed = self._read(offset + HEADER.size, packed_size)
        after = offset + HEADER.size + on_disk
        likely = max(_SMALL_BLOCK, _LIKELY_RATIO * packed_size)
        if not 0 <= size <= min(_MAX_BLOCK, _MAX_RATIO * packed_size + 64, likely):
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
            self._keep(place.offset, place.size)
            raw, _ = self._read_block(place.offset, DATA)
            table = self._decode_cells(raw)
            if table["key"][0].as_py().encode() < place.key:
                raise ValueError("its index does not fit its cells")
        except (ValueError, IndexError, struct.error, pa.ArrowException) as error:
            raise self._damaged(error) from None
        if self._check is not None:
            self._check(table["key"].chunk(0))
        return table

    def _decode_cells(self, raw: bytes) -> pa.Table:
        cells = self._parse_cells([raw])
        return pa.table({"key": cells.keys, "value": cells.values(np.arange(len(cells.keys)))})

    def _parse_cells(self, contents: Sequence[bytes]) -> _Cells:
        """Find the cells of some blocks, and decode their keys."""
        data = np.frombuffer(contents[0] if len(contents) == 1 else b"".join(contents), np.uint8)
        starts, firsts = _find_cells(contents, data, LENGTHS.size + self._mvcc_bytes)
        key_bytes, value_bytes = _big_endian(data, starts, 4), _big_endian(data, starts + 4, 4)
        key_at = starts + LENGTHS.size
        row_bytes = _big_endian(data, key_at, 2)
        family_at = key_at + 2 + row_bytes
        if (row_bytes + KEY_REST > key_bytes).any() or (data[family_at] + row_bytes + KEY_REST != key_bytes).any():
            raise ValueError("a key is not as long as it says")
        text = AvroBytes(data)
        keys = text.texts(key_at + 2, row_bytes).cast(pa.string())
        if not is_ascending(keys):
            raise ValueError("its keys are not sorted")
        return _Cells(keys, firsts, text, key_at + key_bytes, value_bytes)

    def _damaged(self, error: Exception) -> CorruptTableError:
        reason = (str(error) or type(error).__name__)[:300]
        return CorruptTableError(f"{self.name} is not a whole HFile: {reason}; restore it, or run repair()")


_NO_CELLS: Final = pa.table({"key": pa.array([], pa.string()), "value": pa.array([], pa.binary())})


@dataclass(frozen=True, slots=True)
class _Cells:
    """The cells of some data blocks.

    Attributes:
        keys: The keys.
        firsts: For each block the position of its first cell.
        text: The bytes of the blocks.
        value_at, value_bytes: Where the value of each cell is, and its length.
    """

    keys: pa.Array
    firsts: Ints
    text: AvroBytes
    value_at: Ints
    value_bytes: Ints

    def values(self, at: Ints) -> pa.Array:
        """Return the values of these cells."""
        return self.text.texts(self.value_at[at], self.value_bytes[at]) if len(at) else pa.array([], pa.binary())


def _find_cells(contents: Sequence[bytes], data: npt.NDArray[np.uint8], rest: int) -> tuple[Ints, Ints]:
    """Return where the cells of some data blocks start, and for each block the position of its first cell.

    Args:
        data: The contents joined.
        rest: Bytes of a cell besides key and value.
    """
    sizes = np.array([len(content) for content in contents], np.int64)
    ends = np.cumsum(sizes)
    if len(contents) >= _MANY_BLOCKS:
        return _find_cells_at_once(data, ends - sizes, ends, rest)
    starts = [_find_cells_of(content, rest) + start for content, start in zip(contents, ends - sizes, strict=True)]
    return np.concatenate(starts), np.cumsum([0, *map(len, starts)])[:-1]


def _find_cells_at_once(data: npt.NDArray[np.uint8], starts: Ints, ends: Ints, rest: int) -> tuple[Ints, Ints]:
    """Go through all blocks at once: each step finds the next cell of every block."""
    places, owners, starts_now, block = list[Ints](), list[Ints](), starts, np.arange(len(starts))
    if (ends - starts < LENGTHS.size).any():
        raise ValueError("a block is empty")
    lengths: npt.NDArray[np.uint64] = np.ndarray(len(data) - LENGTHS.size + 1, ">u8", data, strides=(1,))
    while len(starts_now):
        places.append(starts_now)
        owners.append(block)
        both = lengths[starts_now].astype(np.uint64)
        starts_now = starts_now + ((both >> np.uint64(32)) + (both & np.uint64(0xFFFFFFFF))).astype(np.int64) + rest
        if (starts_now > ends).any():
            raise ValueError("its cells do not fill their block")
        is_open = starts_now < ends
        starts_now, ends, block = starts_now[is_open], ends[is_open], block[is_open]
    counts = np.bincount(np.concatenate(owners), minlength=len(starts))
    firsts = np.cumsum(counts) - counts
    cells = np.empty(counts.sum(), np.int64)
    for step, (own, place) in enumerate(zip(owners, places, strict=True)):
        cells[firsts[own] + step] = place
    return cells, firsts


def _find_cells_of(raw: bytes, rest: int) -> Ints:
    """Return where the cells of one data block start."""
    starts = array("q")
    add, unpack, offset, end = starts.append, LENGTHS.unpack_from, 0, len(raw)
    while offset < end:
        add(offset)
        key, value = unpack(raw, offset)
        offset += key + value + rest
    if offset != end or not starts:
        raise ValueError("its cells do not fill their block")
    return np.array(starts, np.int64)


def _big_endian(data: npt.NDArray[np.uint8], offsets: Ints, size: int) -> Ints:
    """Return the number of 2 or 4 bytes at each position."""
    numbers: npt.NDArray[np.uint32] = np.ndarray(len(data) - size + 1, f">u{size}", data, strides=(1,))
    return numbers[offsets].astype(np.int64)


def _unpack(packed: bytes, size: int) -> bytes:
    unpacker = zlib.decompressobj(31)
    try:
        raw = unpacker.decompress(packed, size + 1)
    except zlib.error as error:
        raise ValueError(f"a block cannot be unpacked: {error}") from None
    if not unpacker.eof:
        raise ValueError("a block is cut off")
    return raw


def _parse_root(raw: bytes, count: int, *, is_data: bool) -> list[Place]:
    """Parse a root index block. The keys of a data index have a length of two bytes before them."""
    places, start = [], 0
    for _ in range(min(count, len(raw))):
        offset, size = PLACE.unpack_from(raw, start)
        length, start = read_hadoop_vint(raw, start + PLACE.size)
        if length > len(raw) - start:
            raise ValueError("a key of its index ends early")
        key = raw[start : start + length]
        places.append(Place(_row_of(key) if is_data else key, offset, size))
        start += length
    if start != len(raw) or len(places) != count:
        raise ValueError("its index has not as many entries as the trailer says")
    return places


def _parse_index(raw: bytes) -> Iterator[Place]:
    """Parse a leaf or an intermediate index block."""
    (count,) = struct.unpack_from(">i", raw)
    if not 0 < count <= len(raw) // PLACE.size:
        raise ValueError("an index block has no valid number of entries")
    first = 4 + 4 * (count + 1)
    ends = struct.unpack_from(f">{count + 1}i", raw, 4)
    if ends[0] != 0 or first + ends[-1] != len(raw):
        raise ValueError("an index block is not as long as it says")
    for start, end in pairwise(ends):
        if end - start < PLACE.size:
            raise ValueError("an entry of an index block ends early")
        offset, size = PLACE.unpack_from(raw, first + start)
        yield Place(_row_of(raw[first + start + PLACE.size : first + end]), offset, size)


def _row_of(key: bytes) -> bytes:
    """Return the row of a key of an index. HBase may append family, timestamp and type, or leave them away."""
    (length,) = struct.unpack_from(">h", key)
    if not 0 <= length <= len(key) - 2:
        raise ValueError("a key of its index ends early")
    return key[2 : 2 + length]
