"""The replaced rows of file slices as bits, found in this process from small log files and kept for later queries.

If the log records have row numbers of the base file, and no row of the base file can win, only log files are read: the
headers of their blocks and the ordering values. This process does so when a frame is made, if the log files are few and
small, and keeps the bits. Queries then read log files once, in the tasks that return the merged rows.

Memory: the log files that are read, at most `_MOST_LOG_BYTES`, while they are read; then at most `_KEPT_BYTES` of bits.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Sequence
from typing import Final, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lakeformat.concurrency import thread_pool
from lakeformat.files.open_slice import SliceMergeRules
from lakeformat.files.replaced_rows import find_numbered_rows
from lakeformat.model.files import FileSlice
from lakeformat.read.plan import SlicePart
from lakeformat.storage.port import Storage

__all__ = ["find_bits", "pack_bits"]

Words: TypeAlias = npt.NDArray[np.int64]
_Key: TypeAlias = tuple[str, FileSlice, SliceMergeRules, tuple[str, ...]]

#: Maximum total size of the log files that this process reads for a frame; it is also what one task would read.
_MOST_LOG_BYTES: Final = 64 << 20
#: Maximum number of slices that this process opens for a frame: each costs some requests to the storage.
_MOST_SLICES: Final = 64
_THREADS: Final = 8
#: Maximum size of the kept bits. One bit for each row: 256 million rows.
_KEPT_BYTES: Final = 32 << 20
#: Estimated size of a kept slice without its bits.
_ENTRY_BYTES: Final = 2048
_BITS: Final = 64


def find_bits(storage: Storage, slices: Sequence[SlicePart], table: pa.Schema) -> list[Words | None]:
    """Return for each slice the bits of its replaced rows, as `pack_bits` does; None if tasks must find them.

    Tasks find them if the log files to read are many or large, or if columns of the base file are needed.

    Args:
        table: all columns as readers see them, meta columns included.

    Raises:
        CorruptTableError, UnsupportedTableError: as `read_slice`.
    """
    keys: list[_Key] = [(storage.location, part.slice, part.merging, tuple(table.names)) for part in slices]
    words_of = [_KEPT.get(key) for key in keys]
    missing = [place for place, words in enumerate(words_of) if words is _UNKNOWN]
    size = sum(slices[place].log_bytes for place in missing)
    if missing and len(missing) <= _MOST_SLICES and size <= _MOST_LOG_BYTES:

        def read(place: int) -> Words | None:
            rows = find_numbered_rows(storage, slices[place].slice, slices[place].merging, table)
            return None if rows is None else pack_bits(rows)

        with thread_pool(min(_THREADS, len(missing))) as pool:
            for number, words in zip(missing, pool.map(read, missing), strict=True):
                _KEPT.put(keys[number], words)
                words_of[number] = words
    return [None if words is _UNKNOWN else words for words in words_of]


def pack_bits(rows: npt.NDArray[np.int64]) -> Words:
    """Return ascending row numbers as bits: bit ``row % 64`` of word ``row // 64``."""
    flags = np.zeros(-(-(int(rows[-1]) + 1) // _BITS) * _BITS if len(rows) else 0, bool)
    flags[rows] = True
    return np.packbits(flags, bitorder="little").view("<i8").astype(np.int64)


#: The value of a slice whose log files were not read yet, where None means that they do not suffice.
_UNKNOWN: Final = np.zeros(0, np.int64)


class _Kept:
    """The bits of the slices that were read last. It is bounded in size and safe for threads.

    Entries never become stale: a key names files, their sizes and the visible commits, and files never change.
    """

    def __init__(self) -> None:
        self._entries: OrderedDict[_Key, Words | None] = OrderedDict()
        self._bytes = 0
        self._guard = threading.Lock()

    def get(self, key: _Key) -> Words | None:
        """Return the bits of a slice; None if its log files do not suffice, `_UNKNOWN` if they were not read."""
        with self._guard:
            if key not in self._entries:
                return _UNKNOWN
            self._entries.move_to_end(key)
            return self._entries[key]

    def put(self, key: _Key, words: Words | None) -> None:
        with self._guard:
            if key not in self._entries:
                self._entries[key] = words
                self._bytes += _weight(words)
            while self._bytes > _KEPT_BYTES:
                self._bytes -= _weight(self._entries.popitem(last=False)[1])


def _weight(words: Words | None) -> int:
    return _ENTRY_BYTES + (0 if words is None else words.nbytes)


_KEPT: Final = _Kept()
