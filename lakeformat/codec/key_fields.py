"""The fields of record keys as ranges of bytes, for whole columns of keys at a time. The bucket indexes hash them."""

from __future__ import annotations

import enum
from collections.abc import Callable, Sequence
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lakeformat.errors import InvalidInputError

__all__ = ["BLOCK_KEYS", "FieldRule", "bounds_and_data", "find_field_values", "hash_blocks"]

#: Number of keys that are hashed at a time.
BLOCK_KEYS: Final = 16_384
_COMMA, _COLON = b",:"
#: The texts in a key for a null and for an empty value (Hudi: ``KeyGenUtils``). Both are hashed like an empty text.
_PLACEHOLDERS: Final = ("__null__", "__empty__")

UInt8s = npt.NDArray[np.uint8]
UInt32s = npt.NDArray[np.uint32]
Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]


class FieldRule(enum.Enum):
    """A rule by which a record key is split into the values of its fields (Hudi: ``extractRecordKeysByFields``).

    The two rules give different values in two cases: a value contains ``:`` or ``,``, or the key has one field and the
    form ``field:value``. `HUDI_0` splits such a key, `HUDI_1` uses it whole.
    """

    #: Hudi up to 0.15: a key with ``:`` is split at every comma. A part without ``:`` counts as a value.
    HUDI_0 = "0.15"
    #: Hudi from 1.0 on: a key with both ``:`` and ``,`` is split at the last comma before the ``:`` of each further
    #: field. All other commas belong to values.
    HUDI_1 = "1.1"


def hash_blocks(keys: pa.ChunkedArray, hash_block: Callable[[pa.LargeStringArray], UInt32s]) -> UInt32s:
    """Return the hash of each key. ``hash_block`` hashes `BLOCK_KEYS` keys at a time.

    Raises:
        InvalidInputError: A key is null.
    """
    hashes = [np.empty(0, np.uint32)]
    for chunk in keys.chunks:
        texts = chunk.cast(pa.large_string())
        if texts.null_count:
            raise InvalidInputError("null record key; every row needs a key")
        hashes += [hash_block(texts.slice(start, BLOCK_KEYS)) for start in range(0, len(texts), BLOCK_KEYS)]
    return np.concatenate(hashes)


def bounds_and_data(texts: pa.LargeStringArray) -> tuple[Ints, UInt8s]:
    """Return the bytes of all texts, and where each of them starts and the last one ends."""
    _, buffer, content = texts.buffers()
    offsets = np.frombuffer(buffer, np.int64, len(texts) + 1, texts.offset * 8)
    data = np.frombuffer(content, np.uint8)[offsets[0] : offsets[-1]] if content else np.empty(0, np.uint8)
    return offsets - offsets[0], data


def find_field_values(data: UInt8s, bounds: Ints, fields: Sequence[bytes], rule: FieldRule) -> tuple[Ints, Ints, Ints]:
    """Find the values of ``fields`` in all keys.

    The whole key is used as the only value in two cases: the key is not split, or `FieldRule.HUDI_1` finds none of the
    fields in it.

    Args:
        data: The UTF-8 bytes of all keys, one after another.
        bounds: Start of each key in ``data``, and the end of the last key.
        fields: Names of the key fields.
        rule: How the keys are split into fields.

    Returns:
        Three arrays with an entry for each value: the index of its key, and its start and end in ``data``. Values are
        sorted by key, and within a key by position.
    """
    every = np.arange(len(bounds) - 1)
    colons, commas = np.flatnonzero(data == _COLON), np.flatnonzero(data == _COMMA)
    is_cut = np.diff(np.searchsorted(colons, bounds)) > 0
    if rule is FieldRule.HUDI_1:
        is_cut &= np.diff(np.searchsorted(commas, bounds)) > 0
    if not is_cut.any():
        return every, bounds[:-1], bounds[1:]
    owners, starts, ends, names_end = _pieces(bounds, commas, colons, is_cut)
    split = _cut_at_commas if rule is FieldRule.HUDI_0 else _cut_before_names
    owners, starts, ends, names_end = split(owners, starts, ends, names_end)
    named = names_end >= 0
    is_asked = ~named | _is_one_of(data, starts, names_end, fields)
    named, owners, starts, ends = named[is_asked], owners[is_asked], starts[is_asked], ends[is_asked]
    starts = np.where(named, names_end[is_asked] + 1, starts)
    blank = named & _is_one_of(data, starts, ends, [text.encode() for text in _PLACEHOLDERS])
    ends = np.where(blank, starts, ends)
    is_whole = ~is_cut
    if rule is FieldRule.HUDI_1:
        is_whole |= ~np.isin(every, owners)
    whole = np.flatnonzero(is_whole)
    owners = np.concatenate([owners, whole])
    order = np.argsort(owners, kind="stable")
    starts = np.concatenate([starts, bounds[whole]])
    ends = np.concatenate([ends, bounds[whole + 1]])
    return owners[order], starts[order], ends[order]


def _pieces(bounds: Ints, commas: Ints, colons: Ints, is_cut: Bools) -> tuple[Ints, Ints, Ints, Ints]:
    """Split keys at commas.

    Args:
        bounds: Byte offset at which each key starts, and the end of the last key.
        commas: Byte offsets of all commas.
        colons: Byte offsets of all colons.
        is_cut: For each key, whether it is split. Other keys are left out.

    Returns:
        Four arrays with an entry for each part of a key: the index of its key, and the byte offsets of its start, its
        end and its first colon (-1 if it has none).
    """
    comma_owners = np.searchsorted(bounds, commas, side="right") - 1
    inner = is_cut[comma_owners]
    owners = np.concatenate([np.flatnonzero(is_cut), comma_owners[inner]])
    starts = np.concatenate([bounds[:-1][is_cut], commas[inner] + 1])
    order = np.lexsort((starts, owners))
    owners, starts = owners[order], starts[order]
    ends = np.append(starts[1:] - 1, bounds[-1])
    is_last = np.append(owners[1:] != owners[:-1], True)
    ends[is_last] = bounds[owners[is_last] + 1]
    numbers = np.searchsorted(colons, starts)
    first_colon = np.append(colons, np.iinfo(np.int64).max)[numbers]
    return owners, starts, ends, np.where(first_colon < ends, first_colon, -1)


def _cut_at_commas(owners: Ints, starts: Ints, ends: Ints, names_end: Ints) -> tuple[Ints, Ints, Ints, Ints]:
    """Remove the empty parts at the end of each key, as Java's ``String.split`` does.

    Arguments and result are the four arrays that `_pieces` returns.
    """
    filled = np.flatnonzero(ends > starts)
    last = np.full(int(owners.max()) + 1, -1)
    last[owners[filled]] = filled
    is_kept = np.arange(len(owners)) <= last[owners]
    return owners[is_kept], starts[is_kept], ends[is_kept], names_end[is_kept]


def _cut_before_names(owners: Ints, starts: Ints, ends: Ints, names_end: Ints) -> tuple[Ints, Ints, Ints, Ints]:
    """Join each part of a key that has no colon to the part before it: the comma between them belongs to a value.

    At the start of a key, such parts are joined to the first part that has a colon. Arguments and result are the four
    arrays that `_pieces` returns.
    """
    named = np.flatnonzero(names_end >= 0)
    named_owners = owners[named]
    is_first = np.append(True, named_owners[1:] != named_owners[:-1])
    is_last = np.append(named_owners[1:] != named_owners[:-1], True)
    begins = np.where(is_first, np.searchsorted(owners, named_owners), named)
    stops = np.where(is_last, np.searchsorted(owners, named_owners, side="right"), np.append(named[1:], 0)) - 1
    return named_owners, starts[begins], ends[stops], names_end[named]


def _is_one_of(data: UInt8s, starts: Ints, ends: Ints, texts: Sequence[bytes]) -> Bools:
    matches = np.zeros(len(starts), bool)
    for text in texts:
        candidates = np.flatnonzero(ends - starts == len(text))
        letters = data[starts[candidates][:, None] + np.arange(len(text))]
        matches[candidates[(letters == np.frombuffer(text, np.uint8)).all(axis=1)]] = True
    return matches
