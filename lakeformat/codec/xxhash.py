"""The hash xxHash32, for whole columns of texts at a time. Consistent hashing uses it (Hudi: ``HashID.getXXHash32``).

Texts of the same length are hashed together, as rows of a matrix of bytes.
Source: https://github.com/Cyan4973/xxHash/blob/dev/doc/xxhash_spec.md
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lakeformat.codec.key_fields import FieldRule, bounds_and_data, find_field_values, hash_blocks

__all__ = ["hash_ranges", "joined_field_hashes"]

Ints = npt.NDArray[np.int64]
UInt8s = npt.NDArray[np.uint8]
UInt32s = npt.NDArray[np.uint32]

_PRIME_1: Final = np.uint32(0x9E3779B1)
_PRIME_2: Final = np.uint32(0x85EBCA77)
_PRIME_3: Final = np.uint32(0xC2B2AE3D)
_PRIME_4: Final = np.uint32(0x27D4EB2F)
_PRIME_5: Final = np.uint32(0x165667B1)
#: Start values of the four lanes, for seed 0.
_LANES: Final = np.array([0x24234428, 0x85EBCA77, 0, 0x61C8864F], np.uint32)
_STRIPE: Final = 16
_WORD: Final = 4


def joined_field_hashes(keys: pa.ChunkedArray, fields: Sequence[str], rule: FieldRule) -> UInt32s:
    """Return the xxHash32 of the values of ``fields`` in each key, joined to one text without separators.

    The values are in the order of the key, whatever the order of ``fields``.

    Args:
        keys: record keys as text.
        fields: names of the key fields to hash.
        rule: how the keys are split into fields.

    Raises:
        InvalidInputError: a key is null.
    """
    return hash_blocks(keys, lambda block: _hash_block(block, fields, rule))


def _hash_block(keys: pa.LargeStringArray, fields: Sequence[str], rule: FieldRule) -> UInt32s:
    bounds, data = bounds_and_data(keys)
    owners, starts, ends = find_field_values(data, bounds, [field.encode() for field in fields], rule)
    if len(owners) == len(keys) and (np.diff(owners) == 1).all():
        return hash_ranges(data, starts, ends)
    # Copy the values, so that those of a key lie one after another.
    lengths = ends - starts
    places = np.concatenate([[0], np.cumsum(lengths)])
    copied = data[np.arange(places[-1]) + np.repeat(starts - places[:-1], lengths)]
    firsts = np.searchsorted(owners, np.arange(len(keys) + 1))
    return hash_ranges(copied, places[firsts[:-1]], places[firsts[1:]])


def hash_ranges(data: UInt8s, starts: Ints, ends: Ints) -> UInt32s:
    """Return the xxHash32 of each byte range ``starts[i]:ends[i]``, with seed 0."""
    hashes = np.empty(len(starts), np.uint32)
    lengths = ends - starts
    order = np.argsort(lengths, kind="stable")
    sizes, firsts = np.unique(lengths[order], return_index=True)
    for length, same in zip(sizes.tolist(), np.split(order, firsts[1:]), strict=True):
        hashes[same] = _hash_rows(data[starts[same][:, None] + np.arange(length)])
    return hashes


def _hash_rows(rows: UInt8s) -> UInt32s:
    """Return the hash of each row of a matrix of bytes."""
    count, length = rows.shape
    striped, in_words = length // _STRIPE * _STRIPE, length // _WORD * _WORD
    words: UInt32s = np.ascontiguousarray(rows[:, :in_words]).view("<u4").astype(np.uint32, copy=False)
    state: UInt32s = np.full(count, _PRIME_5, np.uint32)
    if striped:
        lanes: UInt32s = np.tile(_LANES, (count, 1))
        for word in range(0, striped // _WORD, 4):
            lanes = _rotate(lanes + words[:, word : word + 4] * _PRIME_2, 13) * _PRIME_1
        state = np.sum([_rotate(lanes[:, lane], by) for lane, by in enumerate((1, 7, 12, 18))], axis=0, dtype=np.uint32)
    state += np.uint32(length)
    for word in range(striped // _WORD, in_words // _WORD):
        state = _rotate(state + words[:, word] * _PRIME_3, 17) * _PRIME_4
    for word in range(in_words, length):
        state = _rotate(state + rows[:, word].astype(np.uint32) * _PRIME_5, 11) * _PRIME_1
    for shift, factor in ((15, _PRIME_2), (13, _PRIME_3)):
        state ^= state >> np.uint32(shift)
        state *= factor
    state ^= state >> np.uint32(16)
    return state


def _rotate(values: UInt32s, by: int) -> UInt32s:
    rotated: UInt32s = (values << np.uint32(by)) | (values >> np.uint32(32 - by))
    return rotated
