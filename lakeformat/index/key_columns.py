"""The key columns of base files: the last and only certain word on where a key is (Hudi: ``HoodieKeyLookupHandle``)."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from lakeformat.errors import CorruptTableError
from lakeformat.files.footers import open_parquet, row_batches
from lakeformat.index.port import Ints
from lakeformat.model.files import BaseFile
from lakeformat.model.record import RECORD_KEY
from lakeformat.storage.port import Storage

__all__ = ["KeyColumn", "SortedKeys", "Wanted", "located", "matches", "overlapping_groups", "read_keys"]

_BATCH_ROWS: Final = 1 << 21

#: Whether any key wanted may lie between two bounds, both inclusive, as UTF-8.
Wanted = Callable[[bytes, bytes], bool]


@dataclass(frozen=True)
class KeyColumn:
    """Record keys of a base file in row order, all or those of some row groups, and the bytes read for them.

    Attributes:
        groups: number of the first row in the file, and rows, of each row group read; none where nobody says.
    """

    keys: pa.ChunkedArray
    size_bytes: int
    groups: tuple[tuple[int, int], ...] = ()

    def rows_of(self, at: Ints) -> Ints:
        """Row numbers in the file of keys at these positions; -1 where nobody says."""
        if not self.groups:
            return np.full(len(at), -1)
        starts, rows = np.array(self.groups, np.int64).T
        ends = np.cumsum(rows)
        group = np.searchsorted(ends, at, side="right")
        found: Ints = at - (ends - rows)[group] + starts[group]
        return found


class SortedKeys:
    """Sorted keys as something that `bisect` can search: a look at some twenty keys, not a copy of all."""

    def __init__(self, keys: pa.ChunkedArray) -> None:
        self._keys = keys

    def __len__(self) -> int:
        return len(self._keys)

    def __getitem__(self, at: int) -> bytes:
        text: str = self._keys[at].as_py()
        return text.encode()

    def between(self, low: bytes, high: bytes, start: int = 0, stop: int | None = None) -> slice:
        """Positions, from ``start`` to ``stop``, of keys from ``low`` to ``high``, both inclusive."""
        first = bisect_left(self, low, start, len(self) if stop is None else stop)
        last = bisect_left(self, high + b"\0", first, len(self) if stop is None else stop)
        return slice(first, max(first, last))


def overlapping_groups(metadata: pq.FileMetaData, column: int, wanted: Wanted) -> list[int]:
    """Row groups that may hold a wanted key by the key column's statistics; without them, every one."""
    return [at for at in range(metadata.num_row_groups) if _may_hold(metadata.row_group(at).column(column), wanted)]


def _may_hold(chunk: pq.ColumnChunkMetaData, wanted: Wanted) -> bool:
    statistics = chunk.statistics
    if statistics is None or not statistics.has_min_max:
        return True
    try:
        low, high = (text.encode() if isinstance(text, str) else text for text in (statistics.min, statistics.max))
    except UnicodeDecodeError:  # Writers may cut a bound within a character.
        return True
    return wanted(low, high)


def read_keys(
    storage: Storage, file: BaseFile, metadata: pq.FileMetaData | None = None, wanted: Wanted | None = None
) -> KeyColumn:
    """The record keys of a base file.

    Args:
        metadata: its parsed footer, if at hand.
        wanted: leave out row groups that hold no such key.

    Raises:
        CorruptTableError: the file cannot be read, or has no keys.
    """
    where = f"{storage.location}/{file.path}"
    with storage.open_input(file.path) as source, open_parquet(source, where, metadata=metadata) as parquet:
        if RECORD_KEY not in parquet.schema_arrow.names:
            raise CorruptTableError(f"{where} has no column {RECORD_KEY}; restore it from a copy")
        found = parquet.metadata
        column = next(
            (at for at in range(found.num_columns) if found.schema.column(at).path == RECORD_KEY), found.num_columns
        )
        every = list(range(found.num_row_groups))
        groups = every if wanted is None else overlapping_groups(found, column, wanted)
        size = sum(found.row_group(at).column(column).total_compressed_size for at in groups)
        batches = row_batches(parquet, where, _BATCH_ROWS, columns=[RECORD_KEY], row_groups=groups)
        rows = [found.row_group(at).num_rows for at in every]
        starts = np.cumsum([0, *rows]).tolist()
        keys = pa.chunked_array([batch.column(0) for batch in batches], pa.string())
        return KeyColumn(keys, size, tuple((starts[at], rows[at]) for at in groups))


def matches(columns: Sequence[KeyColumn], keys: pa.ChunkedArray) -> list[Ints]:
    """Per key column the positions of those of ``keys`` that are in it, ascending, each once."""
    return [found for found, _ in located(columns, keys)]


def located(columns: Sequence[KeyColumn], keys: pa.ChunkedArray) -> list[tuple[Ints, Ints]]:
    """The same, with the number of the row of each in the file; -1 where a key stands in several, or nobody says.

    One hash table of ``keys`` for all columns; every stored key is looked up once.
    """
    stored = pa.chunked_array([chunk for column in columns for chunk in column.keys.chunks], pa.string())
    found = pc.index_in(stored, value_set=keys)
    is_hit = np.asarray(pc.is_valid(found))
    at = np.asarray(found.drop_null()).astype(np.int64)
    places = np.flatnonzero(is_hit)
    ends = np.cumsum([0, *(len(column.keys) for column in columns)])
    hits = np.searchsorted(places, ends)
    parts = zip(columns, ends.tolist(), hits.tolist(), hits[1:].tolist(), strict=False)
    return [
        _distinct(at[first:last], column.rows_of(places[first:last] - start)) for column, start, first, last in parts
    ]


def _distinct(at: Ints, rows: Ints) -> tuple[Ints, Ints]:
    keys, first, count = np.unique(at, return_index=True, return_counts=True)
    return keys, np.where(count > 1, -1, rows[first])
