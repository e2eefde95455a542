"""Vectorized decoding of Avro's primitive values: numbers, lengths and texts at many positions at once.

No input is trusted. A position past the end raises ``IndexError``, an impossible length raises ``ValueError``, and a
result is not larger than the input plus a fixed number of bytes per position.
"""

from __future__ import annotations

from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

__all__ = ["AvroBytes", "Ints"]

Ints: TypeAlias = npt.NDArray[np.int64]
_Words: TypeAlias = npt.NDArray[np.uint64]

_WORD: Final = 8
_MOST_BYTES: Final = np.iinfo(np.int32).max
_ONES: Final = np.uint64(0x0101010101010101)
_LOW_BITS: Final = np.uint64(0x7F7F7F7F7F7F7F7F)
_HIGH_BITS: Final = np.uint64(0x8080808080808080)
#: Steps that join pairs of groups of 7, 14 and 28 bits: mask of the lower group, mask of the upper group, shift of the
#: upper group.
_JOINED: Final = tuple(
    (np.uint64(low), np.uint64(low << width), np.uint64(shift))
    for low, width, shift in (
        (0x007F007F007F007F, 8, 1),
        (0x00003FFF00003FFF, 16, 2),
        (0x000000000FFFFFFF, 32, 4),
    )
)


class AvroBytes:
    """Bytes from which values are decoded at arrays of positions. No position may be negative."""

    def __init__(self, data: npt.NDArray[np.uint8]) -> None:
        if len(data) > _MOST_BYTES:
            raise ValueError("more than 2 GiB")
        self.size: Final = len(data)
        self._data: Final = data
        padded = data if len(data) >= _WORD else np.concatenate([data, np.zeros(_WORD - len(data), np.uint8)])
        self._buffer: Final = pa.py_buffer(data)
        self._last = len(padded) - _WORD
        #: The eight bytes from each position on, as a number.
        self._words: Any = np.ndarray(self._last + 1, "<u8", padded, strides=(1,))

    def bytes_at(self, pos: Ints) -> npt.NDArray[np.uint8]:
        """Return the byte at each position."""
        return self._data[pos]

    def varints(self, pos: Ints) -> tuple[Ints, Ints]:
        """Decode a zigzag number at each position; return the numbers and the positions after them."""
        first = self._data[pos]
        if not (first & 0x80).any():
            return (first >> 1).astype(np.int64) ^ -(first & 1).astype(np.int64), pos + 1
        word = self._word_at(pos)
        stops = ~word & _HIGH_BITS
        lowest = stops & (~stops + np.uint64(1))
        mask = lowest | (lowest - np.uint64(1))
        value = word & mask & _LOW_BITS
        for low, high, shift in _JOINED:
            value = (value & low) | ((value & high) >> shift)
        after = pos + ((mask & _ONES) * _ONES >> np.uint64(56)).astype(np.int64)
        long = np.flatnonzero(stops == 0)
        if long.size:
            value[long], after[long] = self._long_varints(pos[long])
        return (value >> np.uint64(1)).astype(np.int64) ^ -(value & np.uint64(1)).astype(np.int64), after

    def _long_varints(self, pos: Ints) -> tuple[_Words, Ints]:
        """Decode varints of more than eight bytes, byte by byte; return raw values and the positions after them."""
        value, after, open_ = np.zeros(len(pos), np.uint64), pos.copy(), np.arange(len(pos))
        for shift in range(0, 70, 7):
            byte = self._data[after[open_]]
            value[open_] |= (byte & 0x7F).astype(np.uint64) << np.uint64(shift)
            after[open_] += 1
            open_ = open_[(byte & 0x80) != 0]
            if not open_.size:
                return value, after
        raise ValueError("a number takes more than 64 bits")

    def lengths(self, pos: Ints) -> tuple[Ints, Ints]:
        """Decode a text's length at each position; return the lengths and the positions where the texts start.

        Raises:
            ValueError: A length is negative or runs past the end, or all lengths together exceed the data.
        """
        lengths, pos = self.varints(pos)
        if (lengths < 0).any() or (lengths > self.size - pos).any() or lengths.sum() > self.size:
            raise ValueError("a text is longer than what is there")
        return lengths, pos

    def texts(self, pos: Ints, lengths: Ints) -> pa.Array:
        """Return the bytes of each length at each position, as a ``binary`` array with memory of its own.

        The data is viewed as an array of texts and gaps in turn; the texts are every second value.
        """
        offsets = np.empty(2 * len(pos), np.int32)
        offsets[0::2], offsets[1::2] = pos, pos + lengths
        texts_and_gaps = pa.Array.from_buffers(
            pa.binary(), len(offsets) - 1, [None, pa.py_buffer(offsets), self._buffer]
        )
        return texts_and_gaps.take(pa.array(np.arange(0, len(offsets), 2)))

    def floats(self, pos: Ints, size: int) -> npt.NDArray[Any]:
        """Decode floating-point numbers of ``size`` 8 or 4 bytes."""
        self._check(pos, size)
        word = self._word_at(pos)
        return word.view(np.float64) if size == _WORD else word.astype(np.uint32).view(np.float32)

    def matrix(self, pos: Ints, size: int) -> npt.NDArray[np.uint8]:
        """Return a row of ``size`` bytes for each position."""
        self._check(pos, size)
        if size * len(pos) > self.size:
            raise ValueError("a value runs past the end")
        rows: npt.NDArray[np.uint8] = self._data[pos[:, None] + np.arange(size)]
        return rows

    def right_aligned(self, pos: Ints, lengths: Ints, size: int) -> npt.NDArray[np.uint8]:
        """Extend big-endian numbers of 1 to ``size`` bytes to ``size`` bytes each, with their sign."""
        if (lengths < 1).any() or (lengths > size).any():
            raise ValueError("a decimal has no digits, or more than its type")
        at = (pos + lengths)[:, None] + np.arange(-size, 0)
        own = at >= pos[:, None]
        sign = np.where(self._data[pos] & 0x80, 0xFF, 0).astype(np.uint8)
        aligned: npt.NDArray[np.uint8] = np.where(own, self._data[np.maximum(at, 0)], sign[:, None])
        return aligned

    def _check(self, pos: Ints, size: int) -> None:
        if pos.max() + size > self.size:
            raise ValueError("a value runs past the end")

    def _word_at(self, pos: Ints) -> _Words:
        """Return the eight bytes at each position as a little-endian number, with zeros past the end."""
        at = pos if pos.max() <= self._last else np.minimum(pos, self._last)
        words: _Words = self._words[at]
        return words if at is pos else words >> (8 * (pos - at)).astype(np.uint64)
