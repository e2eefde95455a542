"""The record index of Hudi's metadata table: it names the partition and file group of each key of the table.

A look-up costs by the number of keys, not of files. What the index says counts in this way (decision 329):

- No place: the table does not have the key.
- A place whose file group is not live in the snapshot: nothing is known, and the key is searched in the files.
- A place whose file group is live: the key is there, or was there and is gone. As with a candidate of a bloom filter,
  the merge of that file finds out. If no merge does, or if the row would move from there to another partition, the key
  column of the file is read. A key that is not in it is searched in the files.

An index names one place of a key. If plain inserts have stored a key several times, the other places are not found. So
deletes under AUTO do not use it.

If the metadata table lacks the record index, cannot be read, or does not agree with the timeline of the snapshot, one
line is logged and the keys are searched in the files.

Hudi: ``SparkMetadataTableGlobalRecordLevelIndex``; it trusts the index, and falls back to the index GLOBAL_SIMPLE.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, field, replace
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lakeformat.arrow.text_order import sort_texts
from lakeformat.concurrency import run_all, thread_pool
from lakeformat.errors import LakeformatError
from lakeformat.file_system_view.snapshot import Snapshot
from lakeformat.file_system_view.table_listing import group_text
from lakeformat.index.bloom import GlobalIndex, PartitionIndex, point_to_slices
from lakeformat.index.port import IndexSettings, Ints, TagCounts, Tagged, tag_as_new
from lakeformat.index.stored_filters import open_for_look_ups
from lakeformat.index.stored_keys import (
    DeletingSlice,
    LogsWithKeys,
    add_keys_of_logs,
    find_deleting_slices,
    flag_deleted_pairs,
    logs_with_keys,
    match_keys,
    read_keys,
)
from lakeformat.index.tagging import TagSettings, tag_files, test_for_any
from lakeformat.metadata_table.index_definitions import is_partitioned_index
from lakeformat.metadata_table.metadata_table import KeyPlaces, MetadataTable
from lakeformat.metadata_table.names import MetadataPartition
from lakeformat.model.files import FileSlice
from lakeformat.storage.port import Storage

__all__ = [
    "AutoIndex",
    "RecordIndex",
    "SearchedSlices",
    "confirm_places",
    "count_look_up",
    "decides_partition",
    "look_up",
    "open_for_auto",
    "open_record_index",
    "tag_by_places",
    "warn_not_used",
]

_LOG: Final = logging.getLogger("lakeformat.write")
#: Measured cost of reading a file's footer and filter, and a megabyte of files, by the key column. The unit is the cost
#: of a key in the record index: it unpacks a block.
_KEYS_PER_FILE: Final = 20
_KEYS_PER_MEGABYTE: Final = 5


def open_record_index(storage: Storage, snapshot: Snapshot, settings: IndexSettings) -> MetadataTable | str:
    """Open the metadata table of a snapshot for look-ups of keys. If they cannot be used, return the reason."""
    if not settings.use_metadata_table:
        return "hoodie.metadata.enable is false"
    table = open_for_look_ups(storage, snapshot, MetadataPartition.RECORD_INDEX)
    try:
        if not isinstance(table, str) and is_partitioned_index(table):
            return "the record index is divided by partition, which is not supported"
    except (LakeformatError, OSError) as error:
        return str(error)
    return table


def warn_not_used(storage: Storage, reason: str) -> None:
    """Log why the keys are searched in the files."""
    _LOG.warning("table %s: keys are searched in the files, not in the record index: %s", storage.location, reason)


def look_up(table: MetadataTable, keys: pa.ChunkedArray) -> KeyPlaces | str:
    """Look up keys. If the index cannot be read, return the reason."""
    try:
        return table.look_up(keys.combine_chunks())
    except (LakeformatError, OSError) as error:
        return str(error)


@dataclass(frozen=True, slots=True)
class SearchedSlices:
    """File slices, and what their log files may hold. Picklable.

    Attributes:
        logs: maps positions of slices to the log files that may hold keys which the base file lacks.
        deleting: maps positions to the slices whose log files may have deleted rows, if such rows are flagged.
    """

    slices: tuple[FileSlice, ...]
    logs: Mapping[int, LogsWithKeys] = field(default_factory=dict)
    deleting: Mapping[int, DeletingSlice] = field(default_factory=dict)

    @classmethod
    def of(
        cls, storage: Storage, snapshot: Snapshot, slices: Iterable[FileSlice], *, finds_deleted: bool
    ) -> SearchedSlices:
        """Return slices of a snapshot.

        Args:
            finds_deleted: whether to flag the rows that log files have deleted.
        """
        chosen = tuple(slices)
        logs = {
            position: logs_of
            for position, piece in enumerate(chosen)
            if (logs_of := logs_with_keys(snapshot, piece)) is not None
        }
        return cls(chosen, logs, find_deleting_slices(storage, snapshot, chosen) if finds_deleted else {})

    def take(self, at: Ints) -> SearchedSlices:
        """Return some of the slices, numbered again."""
        chosen = at.tolist()
        logs = {new: self.logs[old] for new, old in enumerate(chosen) if old in self.logs}
        deleting = {new: self.deleting[old] for new, old in enumerate(chosen) if old in self.deleting}
        return SearchedSlices(tuple(self.slices[old] for old in chosen), logs, deleting)

    def search(self, storage: Storage, keys: pa.ChunkedArray, settings: TagSettings, pool: Executor) -> Tagged:
        """Find keys in base and log files, exactly."""
        bases = [piece.base for piece in self.slices if piece.base is not None]
        tagged = tag_files(storage, bases, keys, replace(settings, exact=True), pool)
        tagged = add_keys_of_logs(storage, self.logs, keys, point_to_slices(tagged, self.slices), pool)
        is_deleted = flag_deleted_pairs(storage, self.deleting, keys, tagged.keys, tagged.files)
        return replace(tagged, is_deleted=is_deleted if is_deleted.any() else None)


@dataclass(frozen=True, slots=True)
class _Places:
    """What the index says about keys, which are named by their positions.

    Attributes:
        keys, files: keys with a place in the slices, and the position of the slice.
        elsewhere: keys with a place that is in none of the slices.
        absent: keys without a place.
    """

    keys: Ints
    files: Ints
    elsewhere: Ints
    absent: Ints

    @classmethod
    def of(cls, places: pa.Table, slices: Sequence[FileSlice], keys: pa.ChunkedArray) -> _Places:
        """Compare the places with the slices.

        Args:
            places: `KeyPlaces.rows`, of these keys at least.
        """
        places = places.combine_chunks()
        groups = pa.array([group_text(piece.group) for piece in slices], pa.string())
        named = pc.binary_join_element_wise(places["partition_path"], places["file_id"], "\0")
        row_of = np.asarray(pc.fill_null(pc.index_in(keys, value_set=places["key"]), -1)).astype(np.int64)
        slice_of = np.asarray(pc.fill_null(pc.index_in(named, value_set=groups), -1)).astype(np.int64)
        file_of = np.where(row_of >= 0, np.append(slice_of, -1)[row_of], -1)
        positions = np.flatnonzero(file_of >= 0)
        return cls(
            positions, file_of[positions], np.flatnonzero((row_of >= 0) & (file_of < 0)), np.flatnonzero(row_of < 0)
        )


@dataclass(frozen=True, slots=True)
class _Accepted:
    """What the index says, after as much of it was checked as must be.

    Attributes:
        tagged: the keys that are, or may be, in the slice that the index names.
        doubtful: positions of keys whose place is not in the slices, or is wrong.
        absent: positions of keys without a place.
    """

    tagged: Tagged
    doubtful: Ints
    absent: Ints


def _accept(
    storage: Storage,
    places: pa.Table,
    searched: SearchedSlices,
    keys: pa.ChunkedArray,
    settings: TagSettings,
    pool: Executor,
) -> _Accepted:
    named = _Places.of(places, searched.slices, keys)
    nothing = np.empty(0, np.int64)
    if not settings.exact:
        tagged = Tagged(named.keys, named.files, nothing, TagCounts(), searched.slices)
        return _Accepted(tagged, named.elsewhere, named.absent)
    files = np.unique(named.files)
    tagged = searched.take(files).search(storage, keys.take(pa.array(named.keys)), settings, pool)
    wrong = named.keys[tagged.new]
    tagged = replace(
        tagged, keys=named.keys[tagged.keys], files=files[tagged.files], new=nothing, searched=searched.slices
    )
    return _Accepted(tagged, np.concatenate([named.elsewhere, wrong]), named.absent)


def tag_by_places(
    storage: Storage,
    places: pa.Table,
    searched: SearchedSlices,
    keys: pa.ChunkedArray,
    settings: TagSettings,
    pool: Executor,
    *,
    decides: bool,
) -> Tagged:
    """Find keys by what the record index says about them. Search those in the slices about which it says too little.

    Args:
        places: `KeyPlaces.rows`, of these keys at least.
        searched: the slices in which the keys may be.
        settings: how files are searched; if ``exact``, every place is checked.
        decides: whether a key without a place is in none of the slices. If not, such keys are searched, too.
    """
    accepted = _accept(storage, places, searched, keys, settings, pool)
    positions = accepted.doubtful if decides else np.concatenate([accepted.doubtful, accepted.absent])
    parts = [accepted.tagged]
    if len(positions):
        parts.append(_renumber(searched.search(storage, keys.take(pa.array(positions)), settings, pool), positions))
    return _join(parts, accepted.absent if decides else np.empty(0, np.int64), keys)


def _renumber(tagged: Tagged, positions: Ints) -> Tagged:
    """Return the result of a look-up of some keys, with their positions ``positions`` among all keys."""
    return replace(tagged, keys=positions[tagged.keys], new=positions[tagged.new])


def _join(parts: Sequence[Tagged], absent: Ints, keys: pa.ChunkedArray) -> Tagged:
    """Join results about different keys.

    Args:
        absent: positions of keys that are new, besides those that the parts say are new.
        keys: all keys.
    """
    counts = TagCounts()
    for part in parts:
        counts.add(part.counts)
    counts.keys = len(keys)
    new = np.concatenate([absent, *(part.new for part in parts)])
    none = [np.zeros(len(part.keys), bool) if part.is_deleted is None else part.is_deleted for part in parts]
    rows = [np.full(len(part.keys), -1) if part.base_rows is None else part.base_rows for part in parts]
    is_deleted = np.concatenate(none)
    return Tagged(
        np.concatenate([part.keys for part in parts]),
        np.concatenate([part.files for part in parts]),
        new[sort_texts(keys.take(pa.array(new)))],
        counts,
        parts[0].searched,
        is_deleted=is_deleted if is_deleted.any() else None,
        base_rows=np.concatenate(rows),
    )


def confirm_places(
    storage: Storage, slices: Sequence[FileSlice], keys: pa.ChunkedArray, at: Ints, files: Ints
) -> npt.NDArray[np.bool_]:
    """Return a flag for each pair of a key and a slice without log files: whether its base file has the key.

    Args:
        at: for each pair the position of its key.
        files: for each pair the position of its slice.
    """
    has = np.zeros(len(at), bool)

    def read(file: int) -> tuple[Ints, Ints]:
        pairs = np.flatnonzero(files == file)
        sought, base = keys.take(pa.array(at[pairs])), slices[file].base
        return pairs, match_keys([read_keys(storage, base, wanted=test_for_any(sought))], sought)[0] if base else pairs

    for pairs, matching in run_all(read, np.unique(files).tolist(), threads=max(1, pa.cpu_count())):
        has[pairs[matching]] = True
    return has


@dataclass(frozen=True, slots=True)
class RecordIndex:
    """The index RECORD_INDEX: the key alone identifies a row, and the metadata table names its file group."""

    settings: IndexSettings

    def locate(self, storage: Storage, snapshot: Snapshot, keys: Mapping[str, pa.ChunkedArray]) -> Mapping[str, Tagged]:
        """Find the file slices of keys in the whole table, as `Index.locate` describes.

        If the settings are not exact, a slice may lack its key, in whatever partition: `confirm_places` finds out.
        """
        settings = self.settings
        table = open_record_index(storage, snapshot, settings)
        if isinstance(table, str):
            return self._search_files(storage, snapshot, keys, table)
        narrowing = TagSettings.of(storage, snapshot, settings)
        searched = SearchedSlices.of(storage, snapshot, snapshot.each_slice(), finds_deleted=True)
        tagged = {}
        for path, column in keys.items():
            places = look_up(table, column)
            if isinstance(places, str):
                return self._search_files(storage, snapshot, keys, places)
            with thread_pool(max(1, pa.cpu_count())) as pool:
                tagged[path] = tag_by_places(storage, places.rows, searched, column, narrowing, pool, decides=True)
            count_look_up(tagged[path], len(column), places)
        return tagged

    def _search_files(
        self, storage: Storage, snapshot: Snapshot, keys: Mapping[str, pa.ChunkedArray], reason: str
    ) -> Mapping[str, Tagged]:
        if snapshot.live.count:
            warn_not_used(storage, reason)
        return GlobalIndex(self.settings).locate(storage, snapshot, keys)

    def place(self, storage: Storage, snapshot: Snapshot, keys: Mapping[str, pa.ChunkedArray]) -> Mapping[str, Tagged]:
        """Tag all keys as new, without a look-up."""
        return tag_as_new(keys)


def count_look_up(tagged: Tagged, keys: int, places: KeyPlaces) -> None:
    """Add a look-up of so many keys in the record index to the counts of a result."""
    tagged.counts.add(TagCounts(index_keys=keys, index_groups=places.groups, index_bytes=places.bytes_read))


def decides_partition(snapshot: Snapshot) -> bool:
    """Tell whether no key can be in two partitions, because its fields determine the partition."""
    return set(snapshot.config.partition_fields) <= set(snapshot.config.record_fields)


def open_for_auto(
    storage: Storage, snapshot: Snapshot, settings: IndexSettings, keys: Mapping[str, int]
) -> MetadataTable | None:
    """Open the metadata table for the index AUTO; None if it has no record index, or if files are cheaper to search.

    If the record index cannot be used, log one line and return None.

    Args:
        keys: maps each partition path to the number of keys to find in it.
    """
    if not settings.type.is_automatic or settings.finds_copies:
        return None
    if MetadataPartition.RECORD_INDEX.value not in snapshot.config.metadata_partitions:
        return None
    files = [file for path in keys for piece in snapshot.slices.get(path, ()) for file in piece.files]
    if sum(keys.values()) > _most_keys(len(files), sum(file.size_bytes for file in files)):
        return None
    table = open_record_index(storage, snapshot, settings)
    if isinstance(table, str):
        warn_not_used(storage, table)
        return None
    return table


@dataclass(frozen=True, slots=True)
class AutoIndex:
    """The index AUTO: a key is looked up in its own partition, by the record index if there is one and it costs less.

    A place counts if it is in the key's own partition. If the fields of the key determine the partition, a key without
    a place is new. Else the record index knows too little: it has one place of a key that is in two partitions, and
    none if that row was deleted. Then all other keys are searched in the files of their partition.
    """

    settings: IndexSettings

    def locate(self, storage: Storage, snapshot: Snapshot, keys: Mapping[str, pa.ChunkedArray]) -> Mapping[str, Tagged]:
        """Find the file slices of keys, as `Index.locate` describes."""
        within = PartitionIndex(self.settings)
        table = open_for_auto(storage, snapshot, self.settings, {path: len(column) for path, column in keys.items()})
        if table is None or not keys:
            return within.locate(storage, snapshot, keys)
        distinct = _distinct(keys.values())
        places = look_up(table, distinct)
        if isinstance(places, str):
            warn_not_used(storage, places)
            return within.locate(storage, snapshot, keys)
        accepted = self._accept(storage, snapshot, keys, places.rows)
        decides = decides_partition(snapshot)
        remaining = {
            path: each.doubtful if decides else np.concatenate([each.doubtful, each.absent])
            for path, each in accepted.items()
        }
        searched = within.locate(
            storage,
            snapshot,
            {path: keys[path].take(pa.array(positions)) for path, positions in remaining.items() if len(positions)},
        )
        tagged = {}
        for path, part in accepted.items():
            rest = [_renumber(searched[path], remaining[path])] if path in searched else []
            tagged[path] = _join([part.tagged, *rest], part.absent[: len(part.absent) * decides], keys[path])
        count_look_up(next(iter(tagged.values())), len(distinct), places)
        return tagged

    def _accept(
        self, storage: Storage, snapshot: Snapshot, keys: Mapping[str, pa.ChunkedArray], places: pa.Table
    ) -> Mapping[str, _Accepted]:
        settings = self.settings
        narrowing = TagSettings.of(storage, snapshot, settings)
        with thread_pool(max(1, pa.cpu_count())) as pool:

            def accept_in(path: str) -> _Accepted:
                own = places.filter(pc.equal(places["partition_path"], path)) if len(keys) > 1 else places
                slices = snapshot.slices.get(path, ())
                searched = SearchedSlices.of(storage, snapshot, slices, finds_deleted=settings.finds_deleted)
                return _accept(storage, own, searched, keys[path], narrowing, pool)

            return {path: accept_in(path) for path in keys}

    def place(self, storage: Storage, snapshot: Snapshot, keys: Mapping[str, pa.ChunkedArray]) -> Mapping[str, Tagged]:
        """Tag all keys as new, without a look-up."""
        return tag_as_new(keys)


def _most_keys(files: int, size_bytes: int) -> int:
    """Return how many keys can be looked up in the record index for what a search of files costs."""
    return _KEYS_PER_FILE * files + _KEYS_PER_MEGABYTE * (size_bytes >> 20)


def _distinct(columns: Iterable[pa.ChunkedArray]) -> pa.ChunkedArray:
    """Return the distinct keys of columns. Of equal neighbours, as in deletes from all partitions, only one is read."""
    chosen: list[pa.ChunkedArray] = []
    for column in columns:
        if not chosen or not column.equals(chosen[-1]):
            chosen.append(column)
    every = pa.chunked_array([chunk for column in chosen for chunk in column.chunks], pa.string())
    return pa.chunked_array([pc.unique(every)])
