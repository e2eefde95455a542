"""Hudi's Bloom filters of types ``SIMPLE`` and ``DYNAMIC_V0``, for whole Arrow columns of keys at a time.

The bits that a key sets are computed by a hash chain. Round ``r`` computes Hadoop's MurmurHash 2 of the key, with the
hash of round ``r - 1`` as its seed, and sets bit ``|h_r| mod bits``. The chain does not depend on the filter. So a key
is hashed once for the filters of all files, although filters differ in the number of bits and of rounds.

A ``DYNAMIC_V0`` filter is a list of rows, each of which is a ``SIMPLE`` filter. Layout, big-endian, then base64
(Hudi: ``InternalBloomFilter``, ``InternalDynamicBloomFilter``)::

    row         int32 -1 | int32 hashes | int8 1 (murmur) | int32 bits | ceil(bits / 8) bytes
    SIMPLE      row
    DYNAMIC_V0  int32 -1 | int32 hashes | int8 1 | int32 bits
                | int32 keys per row | int32 keys in the last row | int32 rows | the rows

Bit ``i`` of a row is bit ``i % 8``, counted from the least significant, of byte ``i // 8``.
"""

from __future__ import annotations

import base64
import binascii
import math
import struct
from collections.abc import Iterator
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lakeformat.arrow.kinds import OFFSETS
from lakeformat.errors import CorruptTableError, InvalidInputError

__all__ = ["DYNAMIC_V0", "SIMPLE", "BloomFilter", "hash_chain", "hash_chain_blocks"]

DYNAMIC_V0: Final = "DYNAMIC_V0"
SIMPLE: Final = "SIMPLE"

#: Number of keys that are hashed together. It is small, so that intermediate results stay in the processor's cache.
BLOCK_KEYS: Final = 16_384
#: Maximum number of rounds of the hash chain. No useful false-positive rate needs more, so a larger number in a footer
#: means that the footer is damaged.
MAX_HASHES: Final = 1_024
#: The rounds of our own filters, as a share of the number that needs the fewest bits.
_SHARE_OF_ROUNDS: Final = 0.75

_M: Final = np.uint32(0x5BD1E995)
_HEAD: Final = struct.Struct(">iibi")
_DYNAMIC_HEAD: Final = struct.Struct(">iii")
_VERSION: Final = -1
_MURMUR: Final = 1

UInt32s = npt.NDArray[np.uint32]
UInt8s = npt.NDArray[np.uint8]
Int64s = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]


def hash_chain(keys: pa.StringArray | pa.LargeStringArray | pa.ChunkedArray, rounds: int) -> UInt32s:
    """Return the hash of every key in each round of the hash chain, as an array of shape ``(rounds, len(keys))``.

    Raises:
        InvalidInputError: A key is null or empty, or ``keys`` is not a column of strings.
    """
    chain = np.empty((rounds, len(keys)), np.uint32)
    for start, block in hash_chain_blocks(keys, rounds):
        chain[:, start : start + block.shape[1]] = block
    return chain


def hash_chain_blocks(
    keys: pa.StringArray | pa.LargeStringArray | pa.ChunkedArray, rounds: int
) -> Iterator[tuple[int, UInt32s]]:
    """Yield the hash chains of at most 16,384 keys at a time, as ``(position of the first of these keys, chains)``.

    All yielded arrays share one buffer, so use each array before the next iteration overwrites it.
    """
    chunks = keys.chunks if isinstance(keys, pa.ChunkedArray) else [keys]
    buffer = np.empty((rounds, min(BLOCK_KEYS, max(map(len, chunks), default=0))), np.uint32)
    position = 0
    for chunk in chunks:
        offsets, data = _buffers(chunk)
        for start in range(0, len(chunk), BLOCK_KEYS):
            bounds = offsets[start : start + BLOCK_KEYS + 1].astype(np.int64)
            lengths = np.diff(bounds)
            if not lengths.all():
                row = position + start + int(np.argmin(lengths))
                raise InvalidInputError(f"empty record key at row {row}; every row needs a key")
            block = buffer[:, : len(lengths)]
            if (lengths == lengths[0]).all():
                _chain_of_equal_lengths(data[bounds[0] : bounds[-1]].reshape(len(lengths), -1), block)
            else:
                _chain_of_any_lengths(data, bounds[:-1], lengths, block)
            yield position + start, block
        position += len(chunk)


def _buffers(keys: pa.Array) -> tuple[npt.NDArray[np.signedinteger], UInt8s]:
    """Return the offsets of the keys (one more than there are keys) and the bytes of all keys, without a copy."""
    if keys.type not in (pa.string(), pa.large_string()):
        raise InvalidInputError(f"record keys must be strings, not {keys.type}; convert them first")
    if keys.null_count:
        raise InvalidInputError("null record key; every row needs a key")
    _, offsets, data = keys.buffers()
    if not len(keys):
        return np.zeros(1, np.int32), np.empty(0, np.uint8)
    width = OFFSETS[keys.type]
    starts = np.frombuffer(offsets, width, len(keys) + 1, keys.offset * np.dtype(width).itemsize)
    content = np.empty(0, np.uint8) if data is None else np.frombuffer(data, np.uint8)
    content.flags.writeable = False  # Arrow's buffers may be writable; hashing must not change the keys.
    return starts, content


def _mix(words: UInt32s) -> UInt32s:
    """Mix the 4-byte words of keys in place: the part of MurmurHash 2 that is the same in all rounds."""
    words *= _M
    words ^= words >> np.uint32(24)
    words *= _M
    return words


def _finish(h: UInt32s, scratch: UInt32s) -> None:
    """Apply the final mixing of MurmurHash 2 to the hashes ``h`` in place. ``scratch`` is overwritten."""
    np.right_shift(h, np.uint32(13), out=scratch)
    h ^= scratch
    h *= _M
    np.right_shift(h, np.uint32(15), out=scratch)
    h ^= scratch


def _chain_of_equal_lengths(raw: UInt8s, chain: UInt32s) -> None:
    """Compute the hash chains of keys that all have the same length.

    The hash chain of a key is a list of MurmurHash 2 values of the key, one per round. Round 0 has the seed 0, and each
    later round has the hash of the round before as its seed. The hash of each round selects one bit of a filter.

    Args:
        raw: The bytes of the keys, of shape (keys, length).
        chain: The array for the result, of shape (rounds, keys): the absolute values of the hashes as signed integers.
    """
    count, length = raw.shape
    whole = length // 4
    words = _mix(np.ascontiguousarray(raw[:, : 4 * whole]).view("<u4").T.copy())
    tail = np.zeros(count, np.int32)
    for column in range(4 * whole, length):  # Hadoop sign-extends the last 1 to 3 bytes.
        tail ^= raw[:, column].view(np.int8).astype(np.int32) << np.int32(8 * (length - 1 - column))
    h, scratch, seed = np.zeros(count, np.uint32), np.empty(count, np.uint32), np.uint32(length)
    for row in chain:
        h ^= seed
        for word in words:
            h *= _M
            h ^= word
        if length % 4:
            h ^= tail.view(np.uint32)
            h *= _M
        _finish(h, scratch)
        np.abs(h.view(np.int32), out=row.view(np.int32))


def _chain_of_any_lengths(data: UInt8s, starts: Int64s, lengths: Int64s, chain: UInt32s) -> None:
    """Compute the hash chains of keys of any lengths in ``data`` into ``chain``, of shape (rounds, keys).

    Keys are sorted by length, the longest first. So for every n, the keys that have an n-th 4-byte word come first.
    """
    whole = lengths // 4
    most = whole.max()
    order = np.argsort((most - whole).astype(np.min_scalar_type(most)), kind="stable")  # Narrow ints sort faster.
    starts, lengths, whole = starts[order], lengths[order], whole[order]
    # The 4-byte word that starts at each byte. The last 3 bytes start none, so that no word passes the end of the data.
    at_byte = np.ndarray((max(len(data) - 3, 0),), "<u4", data, strides=(1,))
    words: list[UInt32s] = []
    # Number of keys with at least 1, 2, ... 4-byte words.
    longer = np.searchsorted(-whole, -np.arange(1, most + 1), side="right")
    for index, count in enumerate(longer.tolist()):
        words.append(_mix(at_byte[starts[:count] + 4 * index]))
    rest = lengths % 4
    tail = np.zeros(len(lengths), np.int32)
    for back in range(1, 4):  # Add the last 1 to 3 bytes of a key, which do not fill a 4-byte word.
        has = np.flatnonzero(rest >= back)
        byte = data[starts[has] + lengths[has] - back].view(np.int8)
        tail[has] ^= byte.astype(np.int32) << np.int32(8 * (back - 1))
    tail_factor = np.where(rest > 0, _M, np.uint32(1)).astype(np.uint32)
    seed = lengths.astype(np.uint32)
    h, scratch = np.zeros(len(lengths), np.uint32), np.empty(len(lengths), np.uint32)
    for row in chain:
        h ^= seed
        for word in words:
            active = h[: len(word)]
            active *= _M
            active ^= word
        h ^= tail.view(np.uint32)
        h *= tail_factor
        _finish(h, scratch)
        row[order] = np.abs(h.view(np.int32)).view(np.uint32)


class BloomFilter:
    """A Bloom filter to which keys can be added: it never misses a key, and few absent keys pass it."""

    __slots__ = ("bits", "hashes", "keys_per_row", "rows", "used")

    def __init__(
        self, *, bits: int, hashes: int, rows: list[UInt8s], keys_per_row: int | None = None, used: int = 0
    ) -> None:
        """Store the bits of a filter. Use `with_capacity` for a new filter, and `decode` for a stored one.

        Args:
            bits: Number of bits of one row.
            hashes: Number of rounds of the hash chain. Each round sets one bit per key.
            rows: One array of ``ceil(bits / 8)`` writable bytes for each row. A ``SIMPLE`` filter has one row.
            keys_per_row: Number of keys up to which a row keeps its false-positive rate; None for a ``SIMPLE`` filter.
            used: Number of keys already added to the last row.
        """
        self.bits, self.hashes, self.rows = bits, hashes, rows
        self.keys_per_row, self.used = keys_per_row, used

    @classmethod
    def with_capacity(cls, entries: int, fpp: float) -> BloomFilter:
        """Return an empty ``DYNAMIC_V0`` filter of one row for ``entries`` keys at false-positive rate ``fpp``.

        The numbers of bits and rounds are Hudi's (``BloomFilterUtils``). If ``entries`` is below 1, it counts as 1.

        Raises:
            InvalidInputError: ``fpp`` is not between 0 and 1, or the filter would have more than 2^31 - 1 bits.
        """
        _check_rate(fpp)
        entries = max(entries, 1)
        bits = math.ceil(entries * (-math.log(fpp) / (math.log(2) * math.log(2))))
        return cls._empty(entries, bits, math.ceil(math.log(2) * bits / entries), fpp)

    @classmethod
    def with_fewer_rounds(cls, entries: int, fpp: float) -> BloomFilter:
        """Return an empty filter like `with_capacity`, with three quarters of its rounds and 3 % more bits.

        Adding keys and looking them up take a quarter less time. A filter stores its number of rounds, so every reader
        of filters reads it.
        """
        _check_rate(fpp)
        entries = max(entries, 1)
        hashes = math.ceil(-math.log2(fpp) * _SHARE_OF_ROUNDS)
        # The rate is the share of set bits to the power of ``hashes``; 1 - share is e^(-hashes * entries / bits).
        bits = math.ceil(-hashes * entries / math.log1p(-(fpp ** (1 / hashes))))
        return cls._empty(entries, bits, hashes, fpp)

    @classmethod
    def _empty(cls, entries: int, bits: int, hashes: int, fpp: float) -> BloomFilter:
        if bits > np.iinfo(np.int32).max:
            raise InvalidInputError(f"a bloom filter of {entries} keys is too large; raise its rate ({fpp})")
        return cls(bits=bits, hashes=hashes, rows=[np.zeros((bits + 7) // 8, np.uint8)], keys_per_row=entries)

    @classmethod
    def decode(cls, text: str | bytes, type_code: str | None) -> BloomFilter:
        """Decode the filter in a footer's ``org.apache.hudi.bloomfilter``.

        Args:
            text: The filter as base64.
            type_code: The footer's ``hoodie_bloom_filter_type_code``. None, for a footer without this
                key, means ``SIMPLE`` as in Hudi.

        Raises:
            CorruptTableError: The text is not a filter. The message gives the reason; the caller adds the file's name.
        """
        if type_code not in {None, SIMPLE, DYNAMIC_V0}:
            raise CorruptTableError(f"bloom filter of unknown type {type_code!r}")
        try:
            data = base64.b64decode(text, validate=True)
        except (binascii.Error, ValueError):
            raise CorruptTableError("bloom filter is not base64") from None
        hashes, bits = _read_head(data, 0)
        size, offset = (bits + 7) // 8, _HEAD.size
        if type_code != DYNAMIC_V0:
            _require_length(data, offset + size)
            return cls(bits=bits, hashes=hashes, rows=[np.frombuffer(data, np.uint8, size, offset).copy()])
        _require_length(data, offset + _DYNAMIC_HEAD.size, at_least=True)
        keys_per_row, used, count = _DYNAMIC_HEAD.unpack_from(data, offset)
        if keys_per_row < 1 or used < 0 or count < 1:
            raise CorruptTableError(f"bloom filter claims {count} rows of {keys_per_row} keys, {used} in the last")
        offset += _DYNAMIC_HEAD.size
        _require_length(data, offset + count * (_HEAD.size + size))
        rows = []
        for start in range(offset, len(data), _HEAD.size + size):
            if _read_head(data, start) != (hashes, bits):
                raise CorruptTableError("bloom filter has rows of unequal size")
            rows.append(np.frombuffer(data, np.uint8, size, start + _HEAD.size).copy())
        return cls(bits=bits, hashes=hashes, rows=rows, keys_per_row=keys_per_row, used=used)

    def encode(self) -> str:
        """Encode the filter as base64 for a footer."""
        head = _HEAD.pack(_VERSION, self.hashes, _MURMUR, self.bits)
        content = b"".join(head + row.tobytes() for row in self.rows)
        if self.keys_per_row is not None:
            content = head + _DYNAMIC_HEAD.pack(self.keys_per_row, self.used, len(self.rows)) + content
        return base64.b64encode(content).decode("ascii")

    @property
    def type_code(self) -> str:
        """Return the type, ``DYNAMIC_V0`` or ``SIMPLE``. Hudi stores no type in the footer for ``SIMPLE``."""
        return SIMPLE if self.keys_per_row is None else DYNAMIC_V0

    @property
    def free(self) -> int:
        """Return how many keys can be added before the false-positive rate gets worse; 0 for a ``SIMPLE`` filter."""
        return 0 if self.keys_per_row is None else max(self.keys_per_row - self.used, 0)

    def expected_rate(self, keys: int) -> float:
        """Return the expected false-positive rate, 0 to 1.

        Args:
            keys: Number of keys that are known to be in the filter. If a ``DYNAMIC_V0`` filter has counted more keys,
                its own count is used.
        """
        per_row = self.keys_per_row or keys
        counts = [*(per_row for _ in self.rows[1:]), self.used if self.keys_per_row else keys]
        counts[-1] = max(counts[-1], keys - sum(counts[:-1]))
        missed = 1.0
        for count in counts:
            missed *= 1 - (1 - math.exp(-self.hashes * count / self.bits)) ** self.hashes
        return 1 - missed

    def add(self, keys: pa.StringArray | pa.LargeStringArray | pa.ChunkedArray) -> None:
        """Add keys to the last row. If there are more than `free` keys, the false-positive rate gets worse.

        Memory: one byte per bit of the row, or for few keys 4 bytes per bit that they set.

        Raises:
            InvalidInputError: A key is null or empty. The filter is unchanged.
        """
        row = self.rows[-1]
        if len(keys) * self.hashes < len(row):  # For few keys it is faster to set bits one by one.
            chains = hash_chain_blocks(keys, self.hashes)
            for positions in [self._positions(hashes) for _, chain in chains for hashes in chain]:
                np.bitwise_or.at(row, positions >> 3, np.uint8(1) << (positions & 7).astype(np.uint8))
        else:
            flags = np.zeros(8 * len(row), np.bool_)
            for _, chain in hash_chain_blocks(keys, self.hashes):
                flags[self._positions(chain).astype(np.int64)] = True  # numpy indexes fastest by int64.
            row |= np.packbits(flags, bitorder="little")
        if self.keys_per_row is not None:
            self.used += len(keys)

    def might_contain(self, chain: UInt32s, among: Int64s | None = None) -> Bools:
        """Test which keys may be in the filter. False is certain; True may be a false positive.

        Args:
            chain: The result of `hash_chain` for all keys, with at least ``self.hashes`` rounds.
            among: Indices of the keys to test; None for all keys.

        Returns:
            One flag per key, or per entry of ``among``.
        """
        if len(chain) < self.hashes:
            raise InvalidInputError(f"a chain of {len(chain)} rounds cannot serve {self.hashes} hashes")
        tested = np.arange(chain.shape[1]) if among is None else among
        may_be_in = np.zeros(len(tested), np.bool_)
        for row in self.rows:
            survivors = np.flatnonzero(~may_be_in)
            for hashes in chain[: self.hashes]:
                position = self._positions(hashes[tested[survivors]])
                is_set = (row[position >> 3] >> (position & 7).astype(np.uint8)) & 1
                survivors = survivors[is_set.view(np.bool_)]
                if not len(survivors):
                    break
            may_be_in[survivors] = True
        return may_be_in

    def _positions(self, hashes: UInt32s) -> UInt32s:
        """Return the bit that each hash sets, ``hashes % bits``, computed by a division since ``%`` is much slower."""
        bits = np.uint32(self.bits)
        quotient = hashes // bits
        quotient *= bits
        positions: UInt32s = np.subtract(hashes, quotient, out=quotient)
        return positions


def _check_rate(fpp: float) -> None:
    if not 0 < fpp < 1:
        raise InvalidInputError(f"a false-positive rate lies between 0 and 1, not {fpp}")


def _read_head(data: bytes, offset: int) -> tuple[int, int]:
    """Parse the header of a row at byte ``offset``; return its number of rounds (``hashes``) and of bits."""
    _require_length(data, offset + _HEAD.size, at_least=True)
    version, hashes, kind, bits = _HEAD.unpack_from(data, offset)
    if version > 0 or kind == 0:
        raise CorruptTableError("bloom filter uses the Jenkins hash, which Hudi never writes")
    if (version, kind) != (_VERSION, _MURMUR):
        raise CorruptTableError(f"bloom filter has version {version} and hash type {kind}, not -1 and 1")
    if not 0 < hashes <= MAX_HASHES or bits <= 0:
        raise CorruptTableError(f"bloom filter claims {hashes} hashes and {bits} bits")
    return hashes, bits


def _require_length(data: bytes, length: int, *, at_least: bool = False) -> None:
    if len(data) < length or (len(data) > length and not at_least):
        raise CorruptTableError(f"bloom filter has {len(data)} bytes where {length} are expected")
