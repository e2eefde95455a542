"""Sets of row numbers as log blocks hold them: a 64-bit Roaring bitmap in its portable form, as base64.

Little-endian: how many bitmaps of 32 bits follow (8 bytes), then each behind the upper half of its numbers (4). Such a
one is a cookie, a table of containers, upper 16 bits and size less one of each, where each starts, and what they hold:
numbers of 16 bits, a bit for each of 65,536 numbers, or runs of numbers (the specification is RoaringFormatSpec's).
"""

from __future__ import annotations

import base64
import binascii
import struct
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

__all__ = ["Positions", "decode_positions", "encode_positions"]

Ints = npt.NDArray[np.int64]

_COOKIE: Final = 12346
_COOKIE_OF_RUNS: Final = 12347
#: The upper half of no row number.
_OURS: Final = 0x7FFFFFFF
#: Containers of more numbers are bits.
_MOST_LISTED: Final = 4096
_BITS: Final = 1 << 16
#: With runs, as many containers have a table of where they start.
_TOLD_FROM: Final = 4


@dataclass(frozen=True, slots=True)
class Positions:
    """Row numbers of a base file.

    Attributes:
        rows: ascending.
        is_ours: a writer that vouches for the base file, see `encode_positions`.
    """

    rows: Ints
    is_ours: bool


def encode_positions(positions: Ints, *, is_ours: bool = False) -> str:
    """The text of some row numbers, ascending, below 2**32.

    Args:
        is_ours: put an empty bitmap behind them, which other writers never do, and which changes nothing for readers:
            in table version 6 no header tells which base file the numbers count in, and others may mean an older one.
    """
    uppers, starts, counts = np.unique(positions >> 16, return_index=True, return_counts=True)
    table = np.stack([uppers, counts - 1], 1).astype("<u2").tobytes()
    contents = [
        _container((positions[at : at + count] & 0xFFFF).astype(np.uint16))
        for at, count in zip(starts.tolist(), counts.tolist(), strict=True)
    ]
    first = 8 + len(table) + 4 * len(contents)
    places = np.cumsum([first, *map(len, contents)])[:-1].astype("<u4").tobytes()
    whole = struct.pack("<II", _COOKIE, len(contents)) + table + places + b"".join(contents)
    mark = struct.pack("<III", _OURS, _COOKIE, 0) if is_ours else b""
    return base64.b64encode(struct.pack("<QI", 2 if is_ours else 1, 0) + whole + mark).decode()


def _container(numbers: npt.NDArray[np.uint16]) -> bytes:
    if len(numbers) <= _MOST_LISTED:
        return numbers.astype("<u2").tobytes()
    flags = np.zeros(_BITS, np.uint8)
    flags[numbers] = 1
    return np.packbits(flags, bitorder="little").tobytes()


def decode_positions(text: str) -> Positions | None:
    """The row numbers; None for what is no such text."""
    try:
        data = base64.b64decode(text, validate=True)
        (count,) = struct.unpack_from("<Q", data)
        at, found, is_ours = 8, [np.empty(0, np.int64)], False
        for _ in range(count):
            (upper,) = struct.unpack_from("<I", data, at)
            if upper > _OURS:
                return None
            numbers, at = _bitmap(data, at + 4)
            found.append(numbers + (upper << 32))
            is_ours = upper == _OURS and not len(numbers)
    except (binascii.Error, struct.error, ValueError, IndexError):
        return None
    numbers = np.concatenate(found)
    return Positions(numbers, is_ours) if at == len(data) and (np.diff(numbers) > 0).all() else None


def _bitmap(data: bytes, at: int) -> tuple[Ints, int]:
    """The numbers of a bitmap of 32 bits, and where it ends."""
    (cookie,) = struct.unpack_from("<I", data, at)
    at += 4
    if cookie == _COOKIE:
        (count,) = struct.unpack_from("<I", data, at)
        at, has_runs = at + 4, np.zeros(count, bool)
    elif cookie & 0xFFFF == _COOKIE_OF_RUNS:
        count = (cookie >> 16) + 1
        flags = np.frombuffer(data, np.uint8, -(-count // 8), at)
        at, has_runs = at + len(flags), np.unpackbits(flags, bitorder="little")[:count].astype(bool)
    else:
        raise ValueError("no bitmap")
    table = np.frombuffer(data, "<u2", 2 * count, at).astype(np.int64).reshape(-1, 2)
    at += table.size * 2
    if cookie == _COOKIE or count >= _TOLD_FROM:
        at += 4 * count
    found = [np.empty(0, np.int64)]
    for (upper, less_one), runs in zip(table.tolist(), has_runs.tolist(), strict=True):
        numbers, at = _runs(data, at) if runs else _listed(data, at, less_one + 1)
        found.append(numbers + (upper << 16))
    return np.concatenate(found), at


def _runs(data: bytes, at: int) -> tuple[Ints, int]:
    (count,) = struct.unpack_from("<H", data, at)
    runs = np.frombuffer(data, "<u2", 2 * count, at + 2).astype(np.int64).reshape(-1, 2)
    numbers = np.repeat(runs[:, 0], runs[:, 1] + 1)
    ends = np.cumsum(runs[:, 1] + 1)
    within = np.arange(len(numbers)) - np.repeat(ends - runs[:, 1] - 1, runs[:, 1] + 1)
    return numbers + within, at + 2 + 4 * count


def _listed(data: bytes, at: int, count: int) -> tuple[Ints, int]:
    if count <= _MOST_LISTED:
        return np.frombuffer(data, "<u2", count, at).astype(np.int64), at + 2 * count
    flags = np.unpackbits(np.frombuffer(data, np.uint8, _BITS // 8, at), bitorder="little")
    return np.flatnonzero(flags), at + _BITS // 8
