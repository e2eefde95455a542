"""Of the rows that an index finds, those that log files have deleted: base files hold these until a compaction.

A key whose row was deleted may have come back in another file group (Hudi's inserts look nothing up). Then it stands
there, and a new version must not bring the old place back to life: the row would stand twice.

Memory: one slice's keys at a time.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lakeformat.files.open_slice import SliceMerging
from lakeformat.files.slice_reader import read_slice
from lakeformat.index.key_columns import KeyColumn, matches
from lakeformat.index.port import Ints, Tagged
from lakeformat.model.files import FileSlice
from lakeformat.model.record import META_COLUMNS, RECORD_KEY
from lakeformat.storage.port import Storage
from lakeformat.table_state.live import ListedSlices
from lakeformat.table_state.snapshot import Snapshot

__all__ = [
    "DeletingSlice",
    "deleted_pairs",
    "deleting_slices",
    "one_place_each",
    "where_keys_stand",
    "with_deleted_rows",
]

Bools = npt.NDArray[np.bool_]

_CHUNK_ROWS = 1 << 18
_BATCH_BYTES = 64 << 20


@dataclass(frozen=True, slots=True)
class DeletingSlice:
    """A slice whose log files may have deleted rows, and how its files become rows. Picklable.

    Attributes:
        columns: the table's, with Hudi's meta columns.
    """

    piece: FileSlice
    merging: SliceMerging
    columns: pa.Schema


def deleting_slices(storage: Storage, snapshot: Snapshot, slices: Sequence[FileSlice]) -> Mapping[int, DeletingSlice]:
    """Those of the slices whose commits do not say that their log files delete nothing, by position."""
    upserting = snapshot.live.upserting if isinstance(snapshot.live, ListedSlices) else frozenset()
    found = [at for at, each in enumerate(slices) if any(log.path not in upserting for log in each.logs)]
    if not found:
        return {}
    meta = [pa.field(name, pa.string()) for name in META_COLUMNS]
    columns = pa.schema([*meta, *snapshot.columns(storage.location)])
    return {at: DeletingSlice(slices[at], snapshot.merging(slices[at]), columns) for at in found}


def deleted_pairs(
    storage: Storage, deleting: Mapping[int, DeletingSlice], keys: pa.ChunkedArray, at: Ints, files: Ints
) -> Bools:
    """Whether each row is gone.

    Args:
        deleting: by the positions that ``files`` tells.
        at, files: for each (key, slice) pair the position of its key in ``keys``, and that of its slice.
    """
    gone = np.zeros(len(at), bool)
    for file, piece in deleting.items():
        mine = np.flatnonzero(files == file)
        if len(mine):
            wanted = keys.take(pa.array(at[mine]))
            live = np.zeros(len(mine), bool)
            for part in _live_keys(storage, piece):
                live[matches([KeyColumn(part, 0)], wanted)[0]] = True
            gone[mine] = ~live
    return gone


def _live_keys(storage: Storage, of: DeletingSlice) -> Iterator[pa.ChunkedArray]:
    batches = read_slice(
        storage,
        of.piece,
        of.merging,
        of.columns,
        [RECORD_KEY],
        most_rows=_CHUNK_ROWS,
        most_bytes=_BATCH_BYTES,
    )
    for batch in batches:
        yield pa.chunked_array([batch.column(RECORD_KEY)], pa.string())


def with_deleted_rows(storage: Storage, snapshot: Snapshot, keys: pa.ChunkedArray, tagged: Tagged) -> Tagged:
    """The same, told of each pair whether the slice's log files have deleted the row."""
    deleting = deleting_slices(storage, snapshot, tagged.searched)
    gone = deleted_pairs(storage, deleting, keys, tagged.keys, tagged.files)
    return replace(tagged, gone=gone) if gone.any() else tagged


def where_keys_stand(storage: Storage, snapshot: Snapshot, keys: pa.ChunkedArray, tagged: Tagged) -> Tagged:
    """The same, each key only with the slices that have its row, or with one of those that had it.

    Cost: keys that stand in one place, as nearly all do, are not looked at.
    """
    several = np.flatnonzero(np.bincount(tagged.keys, minlength=1)[tagged.keys] > 1)
    if not len(several):
        return tagged
    deleting = deleting_slices(storage, snapshot, tagged.searched)
    gone = np.zeros(len(tagged.keys), bool)
    gone[several] = deleted_pairs(storage, deleting, keys, tagged.keys[several], tagged.files[several])
    kept = one_place_each(tagged.keys, gone)
    base_rows = None if tagged.base_rows is None else tagged.base_rows[kept]
    return replace(tagged, keys=tagged.keys[kept], files=tagged.files[kept], base_rows=base_rows)


def one_place_each(keys: Ints, gone: Bools) -> Bools:
    """The pairs of rows that are there; of keys whose rows are all gone, their first pair.

    A new version goes there, so that no index finds the key in two places.
    """
    if not gone.any():
        return ~gone
    left = np.flatnonzero(gone & ~np.isin(keys, keys[~gone]))
    kept = ~gone
    kept[left[np.unique(keys[left], return_index=True)[1]]] = True
    return kept
