"""What a commit, or an undo, changes in secondary indexes: which record keys get another value of the indexed column.

An index has a record for each row: the value and the record key. The rows of each touched file group are compared as
they are before and after, merged, so the answer is the same for every way of writing. A compaction and a clustering
change no values. Queries find the rows of a record key where the record index places it, so a key that is in two file
groups cannot be indexed: the index is dropped then. Memory: the keys and values of the touched file groups.

Hudi: ``SecondaryIndexRecordGenerationUtils``.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from lakeformat.arrow.kinds import Kind, field_type, kind_of
from lakeformat.codec.stored_types import with_meta_columns
from lakeformat.concurrency import run_all
from lakeformat.file_system_view.live_files import ListedSlices
from lakeformat.file_system_view.snapshot import Snapshot, list_snapshot
from lakeformat.files.slice_reader import read_slice
from lakeformat.index.stored_keys import read_live_keys
from lakeformat.metadata_table.deltacommit import MetadataChanges, fits_log_files
from lakeformat.metadata_table.index_definitions import SecondaryIndex, read_secondary_indexes
from lakeformat.metadata_table.metadata_table import MetadataTable
from lakeformat.metadata_table.names import MetadataPartition
from lakeformat.metadata_table.secondary_keys import index_texts, join_secondary_keys, record_keys_of
from lakeformat.model.files import FileGroupId, FileSlice
from lakeformat.model.operation import Operation
from lakeformat.model.record import RECORD_KEY
from lakeformat.storage.port import Storage
from lakeformat.timeline.store import TimelineStore
from lakeformat.transaction.order.commit_order import order_of
from lakeformat.transaction.order.outcome import make_proposed_snapshot
from lakeformat.transaction.upkeep.pending_commit import PendingCommit

__all__ = ["changes_of_values", "index_type", "read_index_keys", "undo_value_changes"]

#: Maximum number of file groups that are read at once.
_THREADS: Final = 4
_BATCH_ROWS: Final = 1 << 18
_BATCH_BYTES: Final = 64 << 20
_NO_KEYS: Final = pa.nulls(0, pa.string())
#: Operations that leave the rows of the table as they are.
_NO_CHANGE: Final = frozenset({Operation.COMPACT.name, Operation.CLUSTER.name})


@dataclass(frozen=True, slots=True)
class _Entries:
    """The rows of one file group.

    Attributes:
        keys: Their record keys.
        of: For each index its keys.
    """

    keys: pa.Array
    of: Mapping[MetadataPartition, pa.Array]

    def minus(self, others: _Entries) -> _Entries:
        """Return the keys that the others do not have."""
        rest = {index: _minus(keys, others.of[index]) for index, keys in self.of.items()}
        return _Entries(_minus(self.keys, others.keys), rest)


def _minus(keys: pa.Array, others: pa.Array) -> pa.Array:
    return pc.unique(keys.filter(pc.invert(pc.is_in(keys, value_set=others))))


def _join(arrays: Iterable[pa.Array]) -> pa.Array:
    return pa.concat_arrays([_NO_KEYS, *arrays])


def index_type(schema: pa.Schema | None, column: str) -> pa.DataType | None:
    """Return the type of a column that may have a secondary index; None if it cannot.

    Hudi stores the text of a value. Numbers with a fraction are left out: Java and Arrow write some in other ways.
    """
    kind = None if schema is None else field_type(schema, column)
    if kind is None:
        return None
    match kind_of(kind):
        case Kind.TEXT:
            return kind
        case Kind.INTEGER:
            return None if kind == pa.uint64() else kind
        case Kind.TIMESTAMP:
            return kind if kind.unit == "us" and kind.tz is not None else None
        case _:
            return None


def _values(batch: pa.RecordBatch, column: str) -> pa.Array:
    """Return the values of a column, or of a field of a struct."""
    first, *names = column.split(".")
    values = batch.column(first)
    return pc.struct_field(values, names) if names else values


def read_index_keys(
    storage: Storage, snapshot: Snapshot, indexes: Sequence[SecondaryIndex], piece: FileSlice
) -> _Entries:
    """Read what indexes have of the rows of one file slice."""
    table = with_meta_columns(snapshot.columns(storage.location))
    columns = list(dict.fromkeys([RECORD_KEY, *(index.column.partition(".")[0] for index in indexes)]))
    batches = list(
        read_slice(
            storage,
            piece,
            snapshot.merge_rules(piece),
            table,
            columns,
            most_rows=_BATCH_ROWS,
            most_bytes=_BATCH_BYTES,
            threads=False,
        )
    )
    keys = [batch.column(RECORD_KEY).cast(pa.string()) for batch in batches]
    of = {
        index.partition: _join(
            join_secondary_keys(index_texts(_values(batch, index.column)), own)
            for batch, own in zip(batches, keys, strict=True)
        )
        for index in indexes
    }
    return _Entries(_join(keys), of)


def changes_of_values(table: MetadataTable, commit: PendingCommit) -> MetadataChanges:
    """Return what a commit changes in all secondary indexes."""
    indexes = read_secondary_indexes(table)
    if not indexes or commit.metadata.operation in _NO_CHANGE:
        return MetadataChanges()
    kept = [index for index in indexes if _can_follow(commit, index)]
    value_changes = _find_value_changes(table, commit, kept) if kept else None
    if value_changes is None:
        return MetadataChanges(lost=_names_of(indexes))
    return _fitting(table, *value_changes) | MetadataChanges(
        lost=_names_of(index for index in indexes if index not in kept)
    )


def _names_of(indexes: Iterable[SecondaryIndex]) -> frozenset[str]:
    return frozenset(index.partition.value for index in indexes)


def _can_follow(commit: PendingCommit, index: SecondaryIndex) -> bool:
    """Tell whether the texts of the values before a commit are those after it."""
    snapshot = commit.outcome.snapshot
    if commit.config.has_virtual_keys or snapshot.schemas or commit.outcome.altered is not None:
        return False
    after = index_type(commit.schema, index.column)
    return after is not None and (snapshot.schema is None or index_type(snapshot.schema, index.column) == after)


_Keys = Mapping[MetadataPartition, pa.Array]


def _fitting(table: MetadataTable, added: _Keys, removed: _Keys) -> MetadataChanges:
    """Return the changes of the indexes whose new keys can be written; the other indexes are lost."""
    fits = {index for index, keys in added.items() if fits_log_files(table, index, pa.chunked_array([keys]))}
    rows = {index: pa.table({"key": added[index], "is_deleted": pa.repeat(False, len(added[index]))}) for index in fits}
    deleted = {index: removed[index] for index in fits}
    return MetadataChanges(rows, deleted, frozenset(index.value for index in added.keys() - fits))


def _find_value_changes(
    table: MetadataTable, commit: PendingCommit, indexes: Sequence[SecondaryIndex]
) -> tuple[_Keys, _Keys] | None:
    """Return the keys that a commit adds to each index, and those that it removes; None if they are not known."""
    storage, stats, replaced = commit.storage, list(commit.metadata.all_stats()), commit.metadata.replaced
    touched = {*commit.metadata.replaced_groups, *(stat.group for stat in stats)}
    snapshot = _newest_before(commit, touched)
    if snapshot is None:
        return None
    paths = sorted({group.partition_path for group in touched})
    pieces = [piece for path in paths for piece in snapshot.slices.get(path, ()) if piece.group in touched]
    before = replace(snapshot, live=ListedSlices(tuple(pieces)), timeline=commit.store.load())
    after = make_proposed_snapshot(before, commit.schema, stats, replaced, commit.time)
    old, new = (_read_groups(storage, groups, indexes) for groups in (before, after))
    nothing = _Entries(_NO_KEYS, {index.partition: _NO_KEYS for index in indexes})
    came = [entries.minus(old.get(group, nothing)) for group, entries in new.items()]
    went = [entries.minus(new.get(group, nothing)) for group, entries in old.items()]
    stored = _join(pc.unique(entries.keys) for entries in new.values())
    appeared = _minus(_join(entries.keys for entries in came), _join(entries.keys for entries in went))
    if len(pc.unique(stored)) < len(stored) or _are_elsewhere(storage, table, snapshot, appeared, touched):
        return None
    added = {index: pc.unique(_join(entries.of[index] for entries in came)) for index in nothing.of}
    removed = {index: _minus(_join(entries.of[index] for entries in went), added[index]) for index in nothing.of}
    return added, removed


def _newest_before(commit: PendingCommit, touched: Collection[FileGroupId]) -> Snapshot | None:
    """Return the table as it is before the commit; None if others may write to the same file groups meanwhile."""
    if commit.outcome.appended.isdisjoint(touched):
        return commit.outcome.snapshot
    store = commit.store
    return list_snapshot(store, commit.config, store.load()) if order_of(store).is_alone else None


def _read_groups(
    storage: Storage, snapshot: Snapshot, indexes: Sequence[SecondaryIndex]
) -> Mapping[FileGroupId, _Entries]:
    pieces = list(snapshot.each_slice())
    read: Callable[[FileSlice], _Entries] = partial(read_index_keys, storage, snapshot, indexes)
    read_entries = run_all(read, pieces, threads=_THREADS)
    return {piece.group: entries for piece, entries in zip(pieces, read_entries, strict=True)}


def _are_elsewhere(
    storage: Storage, table: MetadataTable, snapshot: Snapshot, keys: pa.Array, touched: Collection[FileGroupId]
) -> bool:
    """Tell whether a key is in another live file group than the touched ones.

    The record index names the file groups that may have it; a key that a log file has deleted may still have a place.
    """
    if not len(keys) or not snapshot.live.count:
        return False
    places = table.record_index(keys).select(["partition_path", "file_id"]).group_by(["partition_path", "file_id"])
    groups = {FileGroupId(row["partition_path"], row["file_id"]) for row in places.aggregate([]).to_pylist()}
    others = groups - frozenset(touched)
    paths = {group.partition_path for group in others}
    pieces = [piece for path in paths for piece in _slices(snapshot, path) if piece.group in others]
    live_keys = run_all(partial(read_live_keys, storage, snapshot), pieces, threads=_THREADS)
    return any(pc.any(pc.is_in(live, value_set=keys)).as_py() for live in live_keys)


def _slices(snapshot: Snapshot, path: str) -> Sequence[FileSlice]:
    return snapshot.slices.get(path, ())


def undo_value_changes(
    store: TimelineStore, table: MetadataTable, snapshot: Snapshot, touched: Collection[FileGroupId], old: pa.Array
) -> MetadataChanges:
    """Return what an undo changes in secondary indexes whose base files may have merged the undone commits.

    Memory: the indexes as they are, and the keys and values of the touched file groups.

    Args:
        table, snapshot: the metadata table and the table as they are without the undone commits.
        touched: the file groups that the commits have written or replaced.
        old: the record keys of all rows in files that go.
    """
    named = read_secondary_indexes(table)
    indexes = [
        secondary for secondary in named if index_type(snapshot.schema, secondary.column) and not snapshot.schemas
    ]
    pieces = [piece for path in {g.partition_path for g in touched} for piece in _slices(snapshot, path)]
    live = replace(snapshot, live=ListedSlices(tuple(piece for piece in pieces if piece.group in touched)))
    entries_of = _read_groups(store.storage, live, indexes) if indexes else {}
    keys = _join([old, *(entries.keys for entries in entries_of.values())])
    added, removed = {}, {}
    for index in (secondary.partition for secondary in indexes):
        right = pc.unique(_join(entries.of[index] for entries in entries_of.values()))
        stored = table.secondary_index(index)
        stored = stored.filter(pc.is_in(record_keys_of(stored), value_set=keys))
        added[index], removed[index] = _minus(right, stored), _minus(stored, right)
    lost = _names_of(index for index in named if index not in indexes)
    return _fitting(table, added, removed) | MetadataChanges(lost=lost)
