"""The keys stored in file slices: key columns of base files, keys in log files, and keys that log files have deleted.

Only the key columns prove where a key is stored (Hudi: ``HoodieKeyLookupHandle``). Hudi's bloom and simple indexes read
only base files (``canIndexLogFiles`` is false), because with them a new key is never written to a log file. But writers
with another index may insert into log files. So here log files are read too, unless their commits say that they contain
only updates and deletes.

Base files contain deleted rows until a compaction. A key whose row was deleted may have been inserted again into
another file group, because Hudi's inserts do not look up keys. In this case an update must go to the new file group. In
the old file group it would restore the deleted row, and the table would have two rows with the key.

Memory: the keys of the log files that are read; for deleted rows, one slice's keys at a time.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from lakeformat.arrow.text_order import sort_texts
from lakeformat.codec.stored_types import with_meta_columns
from lakeformat.errors import CorruptTableError
from lakeformat.file_system_view.live_files import ListedSlices
from lakeformat.file_system_view.snapshot import Snapshot
from lakeformat.files.footers import open_parquet, row_batches
from lakeformat.files.log_reader import read_shaped_parts
from lakeformat.files.open_slice import SliceMergeRules
from lakeformat.files.skeletons import open_rows
from lakeformat.files.slice_reader import read_slice
from lakeformat.files.stored_shape import AS_STORED, StoredShape
from lakeformat.index.port import Ints, Tagged
from lakeformat.merge.versions import LogRows
from lakeformat.model.files import BaseFile, FileSlice, LogFile
from lakeformat.model.instant import VisibleInstants
from lakeformat.model.record import COMMIT_TIME, RECORD_KEY
from lakeformat.storage.port import Storage

__all__ = [
    "DeletingSlice",
    "KeyColumn",
    "LogsWithKeys",
    "SortedKeys",
    "Wanted",
    "add_keys_of_logs",
    "add_log_keys",
    "column_number",
    "drop_deleted_places",
    "find_deleting_slices",
    "flag_deleted_pairs",
    "locate_keys",
    "logs_with_keys",
    "mark_deleted_rows",
    "match_keys",
    "overlapping_groups",
    "read_keys",
    "read_keys_of_commit",
    "read_live_keys",
    "read_logged_keys",
    "read_slice_keys",
    "select_one_place",
]

_BATCH_ROWS: Final = 1 << 21

#: A function that tells whether any of the keys to find may lie between two bounds, both inclusive, as UTF-8 bytes.
Wanted = Callable[[bytes, bytes], bool]


@dataclass(frozen=True)
class KeyColumn:
    """The record keys of a file: all keys in row order, or those of some row groups.

    Attributes:
        keys: the record keys.
        size_bytes: number of bytes read to get them.
        groups: for each row group read, the number of its first row in the file and its number of rows; empty if
            unknown, as for log files.
    """

    keys: pa.ChunkedArray
    size_bytes: int
    groups: tuple[tuple[int, int], ...] = ()

    def row_numbers(self, at: Ints) -> Ints:
        """Return the row numbers in the file of the keys at these positions of ``keys``; -1 if they are unknown."""
        if not self.groups:
            return np.full(len(at), -1)
        starts, rows = np.array(self.groups, np.int64).T
        ends = np.cumsum(rows)
        group = np.searchsorted(ends, at, side="right")
        numbers: Ints = at - (ends - rows)[group] + starts[group]
        return numbers


class SortedKeys:
    """A wrapper of sorted keys that `bisect` can search. A search converts some twenty keys instead of all keys."""

    def __init__(self, keys: pa.ChunkedArray) -> None:
        self._keys = keys

    def __len__(self) -> int:
        return len(self._keys)

    def __getitem__(self, position: int) -> bytes:
        text: str = self._keys[position].as_py()
        return text.encode()

    def between(self, low: bytes, high: bytes, start: int = 0, stop: int | None = None) -> slice:
        """Return the range of positions (a Python ``slice``) of the keys from ``low`` to ``high``, both inclusive.

        Only positions from ``start`` to before ``stop`` are searched; a ``stop`` of None is the end.
        """
        first = bisect_left(self, low, start, len(self) if stop is None else stop)
        last = bisect_left(self, high + b"\0", first, len(self) if stop is None else stop)
        return slice(first, max(first, last))


def overlapping_groups(metadata: pq.FileMetaData, column: int, wanted: Wanted) -> list[int]:
    """Return the row groups that may contain a wanted text, by a column's statistics in the footer.

    A row group without column statistics may contain any text.
    """
    return [
        number
        for number in range(metadata.num_row_groups)
        if _may_hold_wanted_key(metadata.row_group(number).column(column), wanted)
    ]


def _may_hold_wanted_key(chunk: pq.ColumnChunkMetaData, may_hold: Wanted) -> bool:
    statistics = chunk.statistics
    if statistics is None or not statistics.has_min_max or statistics.physical_type != "BYTE_ARRAY":
        return True
    try:
        low, high = (text.encode() if isinstance(text, str) else text for text in (statistics.min, statistics.max))
    except UnicodeDecodeError:  # A bound cut inside a character cannot be compared, so read the group.
        return True
    return may_hold(low, high)


def column_number(metadata: pq.FileMetaData, name: str) -> int:
    """Return the number of a column without children; the number of columns if the file does not have it."""
    columns = range(metadata.num_columns)
    return next((number for number in columns if metadata.schema.column(number).path == name), metadata.num_columns)


def read_keys(
    storage: Storage,
    file: BaseFile,
    metadata: pq.FileMetaData | None = None,
    wanted: Wanted | None = None,
    shape: StoredShape = AS_STORED,
) -> KeyColumn:
    """Read the record keys of a base file.

    Args:
        metadata: the file's parsed footer, if the caller has it.
        wanted: skip row groups whose key range has no wanted key; None to read all.
        shape: how the keys are made if no file holds them. Then no row group is skipped.

    Raises:
        CorruptTableError: the file cannot be read, or has no key column.
    """
    location = f"{storage.location}/{file.path}"
    with open_rows(storage, file.path) as source, open_parquet(source, location, metadata=metadata) as parquet:
        names = _key_columns(shape, file, parquet.schema_arrow.names)
        if not names:
            raise CorruptTableError(f"{location} has no column {RECORD_KEY}; restore it from a copy")
        footer = parquet.metadata
        every = list(range(footer.num_row_groups))
        groups = every
        if wanted is not None and shape.key is None:
            groups = overlapping_groups(footer, column_number(footer, RECORD_KEY), wanted)
        size = sum(_column_bytes(footer.row_group(number), names) for number in groups)
        batches = row_batches(parquet, location, _BATCH_ROWS, columns=names, row_groups=groups)
        rows = [footer.row_group(number).num_rows for number in every]
        starts = np.cumsum([0, *rows]).tolist()
        restored = (shape.restore(batch, (RECORD_KEY,), file.name.instant_time) for batch in batches)
        keys = pa.chunked_array([batch.column(0) for batch in restored], pa.string())
        return KeyColumn(keys, size, tuple((starts[number], rows[number]) for number in groups))


def _key_columns(shape: StoredShape, file: BaseFile, present: Sequence[str]) -> list[str]:
    """Return the columns that are read to get the record keys of a base file: the key column, or the key fields."""
    if shape.key is None:
        return [RECORD_KEY] if RECORD_KEY in present else []
    stored = shape.stored_names((RECORD_KEY,), file.name.instant_time)
    return [name for name in stored if name != RECORD_KEY and name in present]


def _column_bytes(group: pq.RowGroupMetaData, names: Collection[str]) -> int:
    columns = (group.column(number) for number in range(group.num_columns))
    return sum(chunk.total_compressed_size for chunk in columns if chunk.path_in_schema.partition(".")[0] in names)


def read_keys_of_commit(storage: Storage, file: BaseFile, instant_time: str) -> pa.ChunkedArray:
    """Read the record keys of the rows that a commit itself has written to a base file. Raise as `read_keys`."""
    location = f"{storage.location}/{file.path}"
    with (
        open_rows(storage, file.path) as source,
        open_parquet(source, location, read_dictionary=[COMMIT_TIME]) as parquet,
    ):
        missing = {RECORD_KEY, COMMIT_TIME} - set(parquet.schema_arrow.names)
        if missing:
            raise CorruptTableError(f"{location} has no column {', '.join(sorted(missing))}; restore it from a copy")
        time = instant_time.encode()
        groups = overlapping_groups(
            parquet.metadata, column_number(parquet.metadata, COMMIT_TIME), lambda low, high: low <= time <= high
        )
        batches = row_batches(parquet, location, _BATCH_ROWS, columns=[RECORD_KEY, COMMIT_TIME], row_groups=groups)
        own = (batch.filter(pc.equal(batch.column(COMMIT_TIME), instant_time)) for batch in batches)
        return pa.chunked_array([batch.column(RECORD_KEY) for batch in own], pa.string())


def match_keys(columns: Sequence[KeyColumn], keys: pa.ChunkedArray) -> list[Ints]:
    """Return for each key column the ascending positions in ``keys`` of the keys that the column contains."""
    return [pairs for pairs, _ in locate_keys(columns, keys)]


def locate_keys(columns: Sequence[KeyColumn], keys: pa.ChunkedArray) -> list[tuple[Ints, Ints]]:
    """Return for each key column the positions in ``keys`` of its keys, and each such key's row number in the file.

    The row number is -1 if it is unknown or if the file has several rows with the key. One hash table of ``keys`` is
    used for all columns; every stored key is looked up once.
    """
    stored = pa.chunked_array([chunk for column in columns for chunk in column.keys.chunks], pa.string())
    matches = pc.index_in(stored, value_set=keys)
    is_hit = np.asarray(pc.is_valid(matches))
    positions = np.asarray(matches.drop_null()).astype(np.int64)
    places = np.flatnonzero(is_hit)
    ends = np.cumsum([0, *(len(column.keys) for column in columns)])
    hits = np.searchsorted(places, ends)
    parts = zip(columns, ends.tolist(), hits.tolist(), hits[1:].tolist(), strict=False)
    return [
        _distinct(positions[first:last], column.row_numbers(places[first:last] - start))
        for column, start, first, last in parts
    ]


def _distinct(positions: Ints, rows: Ints) -> tuple[Ints, Ints]:
    keys, first, count = np.unique(positions, return_index=True, return_counts=True)
    return keys, np.where(count > 1, -1, rows[first])


def add_log_keys(
    storage: Storage,
    snapshot: Snapshot,
    slices: Sequence[FileSlice],
    keys: pa.ChunkedArray,
    tagged: Tagged,
    pool: Executor,
) -> Tagged:
    """Find the keys that only log files contain, and return ``tagged`` with entries for them.

    Args:
        slices: the file slices to which the positions in ``tagged.files`` refer.
    """
    logs_of = {
        position: logs for position, piece in enumerate(slices) if (logs := logs_with_keys(snapshot, piece)) is not None
    }
    return add_keys_of_logs(storage, logs_of, keys, tagged, pool)


@dataclass(frozen=True, slots=True)
class LogsWithKeys:
    """The log files of a slice that may contain keys which its base file lacks. Picklable.

    Attributes:
        logs: the log files.
        visible: the instants whose log blocks are valid; blocks of others are not read.
        shape: how the keys are made if no file holds them.
    """

    logs: tuple[LogFile, ...]
    visible: VisibleInstants
    shape: StoredShape = AS_STORED


def logs_with_keys(snapshot: Snapshot, piece: FileSlice) -> LogsWithKeys | None:
    """Return the slice's log files if they may contain keys that the base file lacks, else None."""
    updating = snapshot.live.updating if isinstance(snapshot.live, ListedSlices) else frozenset()
    if all(piece.base is not None and log.path in updating for log in piece.logs):
        return None
    return _all_logs(snapshot, piece)


def _all_logs(snapshot: Snapshot, piece: FileSlice) -> LogsWithKeys:
    return LogsWithKeys(piece.logs, snapshot.merge_rules(piece).visible, snapshot.key_shape)


def add_keys_of_logs(
    storage: Storage,
    logs: Mapping[int, LogsWithKeys],
    keys: pa.ChunkedArray,
    tagged: Tagged,
    pool: Executor,
) -> Tagged:
    """Return ``tagged`` with entries for the keys found in log files.

    Args:
        logs: maps the position of a slice, as in ``tagged.files``, to its log files.
    """
    if not logs:
        return tagged
    columns = list(pool.map(lambda logs_of_file: _read_log_keys(storage, logs_of_file), logs.values()))
    matches = match_keys(columns, keys)
    pairs, first = np.unique(
        np.concatenate(
            [
                np.stack([tagged.keys, tagged.files], 1),
                *(
                    np.stack([positions, np.full(len(positions), file)], 1)
                    for positions, file in zip(matches, logs, strict=True)
                ),
            ]
        ),
        axis=0,
        return_index=True,
    )
    new = np.setdiff1d(tagged.new, pairs[:, 0], assume_unique=True)
    new = new[sort_texts(keys.take(pa.array(new)))]
    return replace(
        tagged,
        keys=pairs[:, 0].copy(),
        files=pairs[:, 1].copy(),
        new=new,
        base_rows=_extend_base_rows(tagged.base_rows, first),
    )


def _extend_base_rows(base_rows: Ints | None, first: Ints) -> Ints | None:
    """Return the base-file row numbers of entries after those from log files were added; None if they are unknown.

    Entries from log files get the row number -1.

    Args:
        base_rows: The row numbers of the old entries; None if they are unknown.
        first: For each entry of the result, its position in the list of the old entries and then the entries from
            log files.
    """
    if base_rows is None:
        return None
    is_stored = first < len(base_rows)
    return (
        np.where(is_stored, base_rows[np.where(is_stored, first, 0)], -1) if len(base_rows) else np.full(len(first), -1)
    )


def read_slice_keys(storage: Storage, snapshot: Snapshot, piece: FileSlice) -> KeyColumn:
    """Read every key in the files of a slice, even if its row is deleted. Keys may repeat."""
    parts = [read_keys(storage, piece.base, shape=snapshot.key_shape)] if piece.base is not None else []
    if piece.logs:
        parts.append(_read_log_keys(storage, _all_logs(snapshot, piece)))
    chunks = [chunk for part in parts for chunk in part.keys.chunks]
    return KeyColumn(pa.chunked_array(chunks, pa.string()), sum(part.size_bytes for part in parts))


def _read_log_keys(storage: Storage, of: LogsWithKeys) -> KeyColumn:
    """Read the keys of all data rows in a slice's log files."""
    parts = read_shaped_parts(storage, of.logs, of.visible, [RECORD_KEY], of.shape)
    return KeyColumn(pa.chunked_array(_collect_keys(parts), pa.string()), sum(log.size_bytes for log in of.logs))


def read_logged_keys(storage: Storage, log: LogFile, shape: StoredShape = AS_STORED) -> KeyColumn:
    """Read the keys of all data rows in one log file, whether or not their commits have completed."""
    parts = read_shaped_parts(storage, [log], lambda _: True, [RECORD_KEY], shape)
    return KeyColumn(pa.chunked_array(_collect_keys(parts), pa.string()), log.size_bytes)


def _collect_keys(parts: Iterable[object]) -> list[pa.Array]:
    rows = (part.rows for part in parts if isinstance(part, LogRows))
    return [chunk for table in rows for chunk in table.column(RECORD_KEY).cast(pa.string()).chunks]


Bools = npt.NDArray[np.bool_]

_CHUNK_ROWS = 1 << 18
_BATCH_BYTES = 64 << 20


@dataclass(frozen=True, slots=True)
class DeletingSlice:
    """A slice whose log files may have deleted rows, and the rules for reading it. Picklable.

    Attributes:
        file_slice: the slice.
        merging: the rules by which a read merges its base file and log files.
        columns: the table's columns, with Hudi's meta columns.
    """

    file_slice: FileSlice
    merging: SliceMergeRules
    columns: pa.Schema


def find_deleting_slices(
    storage: Storage, snapshot: Snapshot, slices: Sequence[FileSlice]
) -> Mapping[int, DeletingSlice]:
    """Return a mapping of position to slice for the slices whose log files may delete rows.

    A log file may delete rows unless its commit says that it does not.
    """
    upserting = snapshot.live.upserting if isinstance(snapshot.live, ListedSlices) else frozenset()
    deleting = [
        position for position, piece in enumerate(slices) if any(log.path not in upserting for log in piece.logs)
    ]
    if not deleting:
        return {}
    columns = _stored_columns(storage, snapshot)
    return {
        position: DeletingSlice(slices[position], snapshot.merge_rules(slices[position]), columns)
        for position in deleting
    }


def _stored_columns(storage: Storage, snapshot: Snapshot) -> pa.Schema:
    return with_meta_columns(snapshot.columns(storage.location))


def read_live_keys(storage: Storage, snapshot: Snapshot, piece: FileSlice) -> pa.ChunkedArray:
    """Read the keys of the rows that a slice has. Keys whose row is deleted are left out."""
    if piece.base is not None and not piece.logs:
        return read_keys(storage, piece.base, shape=snapshot.key_shape).keys
    merged = DeletingSlice(piece, snapshot.merge_rules(piece), _stored_columns(storage, snapshot))
    chunks = [chunk for part in _live_keys(storage, merged) for chunk in part.chunks]
    return pa.chunked_array(chunks, pa.string())


def flag_deleted_pairs(
    storage: Storage, deleting: Mapping[int, DeletingSlice], keys: pa.ChunkedArray, at: Ints, files: Ints
) -> Bools:
    """Return a flag for each pair of a key and a file slice: whether the key's row in that slice is deleted.

    Args:
        deleting: maps the position of a slice, numbered as in ``files``, to the slice, if it may have deleted rows.
        at: for each pair the position of its key in ``keys``.
        files: for each pair the position of its slice.
    """
    gone = np.zeros(len(at), bool)
    for file, piece in deleting.items():
        pairs = np.flatnonzero(files == file)
        if len(pairs):
            sought = keys.take(pa.array(at[pairs]))
            live = np.zeros(len(pairs), bool)
            for part in _live_keys(storage, piece):
                live[match_keys([KeyColumn(part, 0)], sought)[0]] = True
            gone[pairs] = ~live
    return gone


def _live_keys(storage: Storage, of: DeletingSlice) -> Iterator[pa.ChunkedArray]:
    batches = read_slice(
        storage,
        of.file_slice,
        of.merging,
        of.columns,
        [RECORD_KEY],
        most_rows=_CHUNK_ROWS,
        most_bytes=_BATCH_BYTES,
        makes_keys=True,
    )
    for batch in batches:
        yield pa.chunked_array([batch.column(RECORD_KEY)], pa.string())


def mark_deleted_rows(storage: Storage, snapshot: Snapshot, keys: pa.ChunkedArray, tagged: Tagged) -> Tagged:
    """Return ``tagged`` with flags for the rows that log files have deleted."""
    deleting = find_deleting_slices(storage, snapshot, tagged.searched)
    gone = flag_deleted_pairs(storage, deleting, keys, tagged.keys, tagged.files)
    return replace(tagged, is_deleted=gone) if gone.any() else tagged


def drop_deleted_places(storage: Storage, snapshot: Snapshot, keys: pa.ChunkedArray, tagged: Tagged) -> Tagged:
    """Return ``tagged`` without the entries whose row is deleted, but with at least one entry per key.

    If a key's row is deleted in all its slices, the first entry stays. If a key has one entry, as nearly all keys have,
    this entry stays without a check.
    """
    several = np.flatnonzero(np.bincount(tagged.keys, minlength=1)[tagged.keys] > 1)
    if not len(several):
        return tagged
    deleting = find_deleting_slices(storage, snapshot, tagged.searched)
    gone = np.zeros(len(tagged.keys), bool)
    gone[several] = flag_deleted_pairs(storage, deleting, keys, tagged.keys[several], tagged.files[several])
    selected = select_one_place(tagged.keys, gone)
    base_rows = None if tagged.base_rows is None else tagged.base_rows[selected]
    return replace(tagged, keys=tagged.keys[selected], files=tagged.files[selected], base_rows=base_rows)


def select_one_place(keys: Ints, gone: Bools) -> Bools:
    """Return a flag for each pair: True if its row exists, or if it is the first pair of a key without existing rows.

    The next version of such a key is written to that pair's slice, so that the key is not stored in two slices.
    """
    if not gone.any():
        return ~gone
    homeless = np.flatnonzero(gone & ~np.isin(keys, keys[~gone]))
    selected = ~gone
    selected[homeless[np.unique(keys[homeless], return_index=True)[1]]] = True
    return selected
