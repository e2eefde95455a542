"""What the undo of completed writes changes in each partition of the metadata table.

The undo also removes the deltacommits of the writes (`lakeformat.transaction.undo.traces`), which takes back what they
recorded. If base files of the metadata table have merged such a deltacommit, its removal does not help. Therefore the
deltacommit of the undo deletes the records of all files that go. If a write was merged, the record index also gets the
earlier places of all keys in the file groups that the writes have touched.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from lakeformat.concurrency import run_all
from lakeformat.errors import CorruptTableError, InstantNotAvailableError
from lakeformat.file_system_view.snapshot import Snapshot, list_snapshot
from lakeformat.index.stored_keys import read_keys, read_live_keys, read_logged_keys
from lakeformat.metadata_table.compaction import may_have_merged
from lakeformat.metadata_table.deltacommit import MetadataChanges, fits_log_files
from lakeformat.metadata_table.index_definitions import is_partitioned_index
from lakeformat.metadata_table.metadata_table import MetadataTable
from lakeformat.metadata_table.names import MetadataPartition
from lakeformat.model.files import BaseFile, BaseFileName, FileGroupId, LogFile, LogFileName, join_path, match_data_file
from lakeformat.model.instant import Instant, State, parse_instant_time
from lakeformat.model.table_config import TableConfig
from lakeformat.storage.port import Clock, Storage
from lakeformat.timeline.damaged_commits import read_commit_if_whole
from lakeformat.timeline.store import TimelineStore
from lakeformat.timeline.timeline import Timeline
from lakeformat.transaction.upkeep.key_changes import join_places
from lakeformat.transaction.upkeep.metadata_commits import add_undo
from lakeformat.transaction.upkeep.metadata_deletions import changes_of_deletion, lose_keys
from lakeformat.transaction.upkeep.secondary_changes import undo_value_changes

__all__ = ["record_undo"]

#: Maximum number of files whose keys are read at once.
_THREADS: Final = 8
_NO_KEYS: Final = pa.nulls(0, pa.string())
_KEYS: Final = MetadataPartition.RECORD_INDEX
_RANGES: Final = MetadataPartition.PARTITION_STATS

#: Maps each undone instant to its files that go: partition path to bare names.
Undone = Mapping[Instant, Mapping[str, Sequence[str]]]


def record_undo(store: TimelineStore, config: TableConfig, clock: Clock, undo_time: str, undone: Undone) -> None:
    """Write the deltacommit of a rollback or restore of completed writes, if the table has a metadata table.

    Call it when the undo is pending, before any write is hidden and before any file is deleted.
    """
    make_changes = partial(_changes_of_undo, store, config, undo_time, undone)
    add_undo(store, clock, undo_time, [instant.time for instant in undone], make_changes)


def _changes_of_undo(
    store: TimelineStore, config: TableConfig, undo_time: str, undone: Undone, table: MetadataTable, without: Timeline
) -> MetadataChanges:
    """Return what the undo changes.

    Args:
        table, without: the metadata table and the timeline as they are without the undone writes.
    """
    files: dict[str, dict[str, None]] = {}
    for names_of in undone.values():
        for path, names in names_of.items():
            files.setdefault(path, {}).update(dict.fromkeys(names))
    changes = changes_of_deletion(table, files)
    done = [instant for instant in undone if instant.state is State.COMPLETED]
    if not any(may_have_merged(table, instant.time) for instant in done):
        return changes
    changes |= MetadataChanges(lost=frozenset({_RANGES.value} & set(table.names)))
    if not table.has(_KEYS):
        return changes
    without_keys = changes | lose_keys(table)
    if config.has_virtual_keys or is_partitioned_index(table):
        return without_keys
    try:
        snapshot = list_snapshot(store, config, without, is_time_travel=True)
    except (CorruptTableError, InstantNotAvailableError):
        return without_keys
    commits = [read_commit_if_whole(store, instant) for instant in done]
    if None in commits:  # It is not known which file groups a damaged commit has replaced.
        return without_keys
    touched = {group for commit in commits if commit is not None for group in commit.replaced_groups}
    touched |= {FileGroupId(path, file_id) for path, names in files.items() for file_id in _ids_of(names)}
    added = _read_places(store.storage, snapshot, touched)
    if not fits_log_files(table, _KEYS, added["key"]):
        return without_keys
    old = _read_old_keys(store.storage, files)
    gone = _find_gone(table, old, added["key"], {group.file_id for group in touched})
    began = pa.repeat(parse_instant_time(undo_time, config.zone), len(added))
    keys = MetadataChanges({_KEYS: added.append_column("instant_ms", began)}, {_KEYS: gone})
    return changes | keys | undo_value_changes(store, table, snapshot, touched, old)


def _ids_of(names: Mapping[str, None]) -> Iterator[str]:
    for name in names:
        parsed = match_data_file(name)
        if parsed is not None:
            yield parsed.file_id


def _read_places(storage: Storage, snapshot: Snapshot, groups: set[FileGroupId]) -> pa.Table:
    """Return the keys that are live in file groups: ``key``, ``partition_path``, ``file_id``. No key occurs twice."""
    pieces = [
        piece
        for path in sorted({group.partition_path for group in groups})
        for piece in snapshot.slices.get(path, ())
        if piece.group in groups
    ]
    keys_of = run_all(partial(read_live_keys, storage, snapshot), pieces, threads=_THREADS)
    return join_places((piece.group, _joined(keys)) for piece, keys in zip(pieces, keys_of, strict=True))


def _read_old_keys(storage: Storage, files: Mapping[str, Mapping[str, None]]) -> pa.Array:
    """Return the keys of all rows in files that still exist."""
    pairs = [(path, name) for path, names in files.items() for name in names]

    def read(file: tuple[str, str]) -> pa.Array:
        path, name = file
        info = storage.info(join_path(path, name))
        base, log = BaseFileName.match(name), LogFileName.match(name)
        if info is None or (base is None and log is None):
            return _NO_KEYS
        if base is not None:
            return _joined(read_keys(storage, BaseFile(path, base, info.size_bytes)).keys)
        assert log is not None  # noqa: S101  One of the two is there.
        return _joined(read_logged_keys(storage, LogFile(path, log, info.size_bytes)).keys)

    return pc.unique(pa.concat_arrays([_NO_KEYS, *run_all(read, pairs, threads=_THREADS)]))


def _joined(keys: pa.ChunkedArray) -> pa.Array:
    return pa.concat_arrays([_NO_KEYS, *keys.chunks])


def _find_gone(table: MetadataTable, old: pa.Array, live: pa.ChunkedArray, touched: set[str]) -> pa.Array:
    """Return the keys that are in no file group any more: the index places them in a touched one, where they are not.

    Args:
        old: the keys of files that go.
        live: keys that are live in the touched file groups.
        touched: ids of the file groups.
    """
    places = table.record_index(old.filter(pc.invert(pc.is_in(old, value_set=live))))
    is_gone = pc.is_in(places["file_id"], value_set=pa.array(sorted(touched), pa.string()))
    return _joined(places["key"].filter(is_gone))
