"""Merging of the records of one file group: those of the base file, then of its log blocks, in order.

The newest record of a key counts, with two exceptions. The files of a partition are the union of all its records, where
the newest entry of a file counts. Statistics that are not tight are merged with the ones before, unless one of both is
deleted. Hudi: ``HoodieMetadataPayload.preCombine``. Memory: all records of the file group that were read.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

__all__ = ["Batch", "merge_files", "merge_newest", "merge_statistics"]

Ints: TypeAlias = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Batch:
    """What one file or log block says: rows with a column ``key``, or keys that it deletes.

    Attributes:
        rows: The rows; None if the block deletes keys.
        deleted: The deleted keys.
    """

    rows: pa.Table | None
    deleted: pa.Array | None = None

    @property
    def keys(self) -> pa.ChunkedArray:
        """Return the keys of the rows, or the deleted keys."""
        return pa.chunked_array([self.deleted], pa.string()) if self.rows is None else self.rows["key"]


@dataclass(frozen=True, slots=True)
class _Versions:
    """All rows and deletes of a file group in order.

    Attributes:
        rows: All rows.
        codes: For each row or delete a number that is equal for equal keys.
        row_of: For each row or delete its place in ``rows``; -1 for a delete.
    """

    rows: pa.Table
    codes: Ints
    row_of: Ints


def _join(batches: Sequence[Batch]) -> _Versions:
    rows = pa.concat_tables([batch.rows for batch in batches if batch.rows is not None], promote_options="default")
    keys = pa.chunked_array([chunk for batch in batches for chunk in batch.keys.chunks], pa.string())
    codes = np.asarray(keys.combine_chunks().dictionary_encode().indices).astype(np.int64)
    is_row = np.repeat([batch.rows is not None for batch in batches], [len(batch.keys) for batch in batches])
    return _Versions(rows, codes, np.where(is_row, np.cumsum(is_row) - 1, -1))


def merge_newest(batches: Sequence[Batch]) -> pa.Table:
    """Return the newest row of each key that is not deleted."""
    versions = _join(batches)
    row_of = versions.row_of[_last_places(versions.codes)]
    return versions.rows.take(pa.array(row_of[row_of >= 0]))


def _last_places(codes: Ints) -> Ints:
    """Return the last place of each code."""
    last = np.zeros(int(codes.max(initial=-1)) + 1, np.int64)
    np.maximum.at(last, codes, np.arange(len(codes)))
    return last


def merge_files(batches: Sequence[Batch]) -> pa.Table:
    """Return the files that exist: columns ``key`` (the partition), ``file_name`` and ``size_bytes``.

    A file exists if its newest entry says so. Its size is the largest since it was deleted last. The delete of a key
    deletes all files that the partition has so far.
    """
    versions = _join(batches)
    rows = versions.rows.combine_chunks()
    place = np.empty(len(rows), np.int64)
    is_row = versions.row_of >= 0
    place[versions.row_of[is_row]] = np.flatnonzero(is_row)
    codes = versions.codes[place]
    forgotten = np.full(int(versions.codes.max(initial=-1)) + 1, -1, np.int64)
    np.maximum.at(forgotten, versions.codes[~is_row], np.flatnonzero(~is_row))
    names = np.asarray(rows["file_name"].combine_chunks().dictionary_encode().indices).astype(np.int64)
    _, files = np.unique(codes * (names.max(initial=0) + 1) + names, return_inverse=True)
    count = int(files.max(initial=-1)) + 1
    since = np.full(count, -1, np.int64)
    is_deleted = np.asarray(rows["is_deleted"])
    np.maximum.at(since, files, np.where(is_deleted, place, forgotten[codes]))
    lives = place > since[files]
    sizes = np.full(count, -1, np.int64)
    np.maximum.at(sizes, files[lives], np.asarray(rows["size_bytes"])[lives])
    chosen = np.zeros(count, np.int64)
    chosen[files[lives]] = np.flatnonzero(lives)
    kept = np.flatnonzero(sizes >= 0)
    merged = rows.take(pa.array(chosen[kept]))
    return pa.table({"key": merged["key"], "file_name": merged["file_name"], "size_bytes": pa.array(sizes[kept])})


#: Columns of statistics that are added up when records are merged.
_ADDED: Final = ("values", "nulls", "size_bytes", "unpacked_bytes")
_BYTES: Final = "BytesWrapper"


def merge_statistics(batches: Sequence[Batch]) -> pa.Table:
    """Return one row of statistics for each key that is not deleted.

    Almost always the newest row is tight or the only one. The keys for which this is not so are merged one by one.
    """
    versions = _join(batches)
    row_of = versions.row_of[_last_places(versions.codes)]
    newest = versions.rows.take(pa.array(row_of[row_of >= 0]))
    code_of = np.flatnonzero(row_of >= 0)
    several = np.flatnonzero(np.bincount(versions.codes, minlength=len(row_of))[code_of] > 1)
    closed = np.asarray(pc.or_(newest["is_deleted"].fill_null(False), newest["is_tight"].fill_null(False)))
    loose = [place for place in several.tolist() if not closed[place]]
    if not loose:
        return newest
    merged = [_merge_one(versions, int(code_of[place])) for place in loose]
    others = newest.filter(pa.array(~np.isin(np.arange(len(newest)), loose)))
    return pa.concat_tables([others, pa.Table.from_pylist(merged, newest.schema)])


def _merge_one(versions: _Versions, code: int) -> dict[str, Any]:
    """Merge the rows of one key, whose newest version is a row."""
    result: dict[str, Any] | None = None
    for row in versions.row_of[versions.codes == code].tolist():
        if row < 0:
            result = None
            continue
        new = versions.rows.slice(row, 1).to_pylist()[0]
        is_own = result is None or new["is_tight"] or new["is_deleted"] or result["is_deleted"]
        result = new if is_own or result is None else _combine(result, new)
    return result or {}


def _combine(old: Mapping[str, Any], new: Mapping[str, Any]) -> dict[str, Any]:
    """Merge two rows. Bounds that are bytes cannot be compared here; if they differ, the bounds are not known."""
    result = dict(new)
    for name in _ADDED:
        result[name] = None if old[name] is None or new[name] is None else old[name] + new[name]
    for name in (column for column in new if "." in column):
        which, _, wrapper = name.partition(".")
        if old[name] is None or new[name] is None:
            result[name] = old[name] if new[name] is None else new[name]
        elif wrapper != _BYTES:
            result[name] = (min if which == "min" else max)(old[name], new[name])
        elif old[name] != new[name]:
            result[name] = None
    return result
