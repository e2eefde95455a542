"""Deltacommits of a metadata table: what a commit of the table changes in it, written as log files.

A deltacommit has the instant time of the table's commit and is completed before it. While the commit is pending, no
reader counts the deltacommit. So a writer that undoes a commit must remove its deltacommit before the commit's pending
files. Hudi: ``HoodieBackedTableMetadataWriter``.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakeformat.codec.hfile_writer import MAX_KEY, encode_hfile
from lakeformat.codec.log_blocks import BlockKind, HeaderKey, encode_block
from lakeformat.files.log_reader import read_blocks
from lakeformat.files.log_writer import encode_delete_block
from lakeformat.metadata_table.encode import encode_parts
from lakeformat.metadata_table.file_groups import MetadataSlice, list_logs
from lakeformat.metadata_table.metadata_table import MetadataTable
from lakeformat.metadata_table.names import (
    ALL_PARTITIONS,
    MetadataPartition,
    file_groups_of,
    file_id,
    log_name,
    stored_partition,
)
from lakeformat.metadata_table.record_schema import without_meta_columns
from lakeformat.model.commit import CommitMetadata, WriteStat
from lakeformat.model.instant import Action, Instant, State, next_instant_time
from lakeformat.storage.port import Clock
from lakeformat.timeline.store import put_once

__all__ = ["MetadataChanges", "fits_log_files", "remove_deltacommit", "rows_of_files", "write_deltacommit"]

_OPERATION: Final = "UPSERT_PREPPED"
_NO_KEYS: Final = pa.nulls(0, pa.string())
#: Most bytes of a cell of an index of keys, without its key.
_RECORD_BYTES: Final = 400
#: Bytes of records that surely fit into an HFile, which may have 2 GiB, if the keys of the groups are not quite even.
_FILE_BYTES: Final = 1 << 30


@dataclass(frozen=True, slots=True)
class MetadataChanges:
    """What an action changes in the metadata table.

    Attributes:
        rows: Maps a partition to new records, with the columns of `lakeformat.metadata_table.parts.decode_parts`.
        deleted: Maps a partition to the keys of records to delete.
        lost: Names of the partitions that cannot follow. They must be dropped.
    """

    rows: Mapping[MetadataPartition, pa.Table] = field(default_factory=dict)
    deleted: Mapping[MetadataPartition, pa.Array] = field(default_factory=dict)
    lost: frozenset[str] = frozenset()

    def __or__(self, other: MetadataChanges) -> MetadataChanges:
        """Return the changes of both. For a partition that both change, the other's records count."""
        return MetadataChanges({**self.rows, **other.rows}, {**self.deleted, **other.deleted}, self.lost | other.lost)


def rows_of_files(
    written: Iterable[tuple[str, str, int]], deleted: Iterable[tuple[str, str]] = (), *, removed: Sequence[str] = ()
) -> pa.Table:
    """Return the records of `MetadataPartition.FILES` for files that an action has written or deleted.

    Args:
        written: Partition path, name and size in bytes of each new file.
        deleted: Partition path and name of each file that does not exist any more.
        removed: Paths of partitions that do not exist any more.
    """
    entries: list[tuple[str, str | None, int | None, bool | None]]
    entries = [(stored_partition(path), name, size, False) for path, name, size in written]
    partitions = [(ALL_PARTITIONS, partition, 0, False) for partition in dict.fromkeys(entry[0] for entry in entries)]
    partitions += [(ALL_PARTITIONS, stored_partition(path), 0, True) for path in removed]
    entries += [(stored_partition(path), name, 0, True) for path, name in deleted]
    entries += partitions or [(ALL_PARTITIONS, None, None, None)]
    types = {"key": pa.string(), "file_name": pa.string(), "size_bytes": pa.int64(), "is_deleted": pa.bool_()}
    columns = zip(zip(*entries, strict=True), types.items(), strict=True)
    return pa.table({name: pa.array(values, data_type) for values, (name, data_type) in columns})


def fits_log_files(table: MetadataTable, partition: MetadataPartition, keys: pa.ChunkedArray) -> bool:
    """Tell whether new keys of an index of keys fit into one log file for each of its file groups."""
    sizes = pc.binary_length(keys)
    most_bytes = (pc.sum(sizes).as_py() or 0) + _RECORD_BYTES * len(keys)
    return (pc.max(sizes).as_py() or 0) <= MAX_KEY and most_bytes <= len(table.list_slices(partition)) * _FILE_BYTES


def write_deltacommit(table: MetadataTable, instant_time: str, changes: MetadataChanges, clock: Clock) -> None:
    """Write and complete a deltacommit. On storage with locks, call it under the table's lock.

    Memory: the encoded records of one partition.

    Args:
        table: The metadata table as it is now.
        instant_time: The instant time of the table's commit, which is pending.

    Raises:
        FileExistsError: The metadata table has a deltacommit of this time already.
        CorruptTableError: The metadata table is damaged, so that records would come into wrong file groups.
    """
    changed = [partition for partition in table.partitions if partition in changes.rows or partition in changes.deleted]
    for partition in changed:
        if partition.has_places:
            table.check_key_groups(partition)
    layout, storage = table.layout, table.storage
    schema = table.read_schema()
    requested = Instant(instant_time, Action.DELTA_COMMIT, State.REQUESTED)
    storage.create(table.path(requested), b"")
    profile = layout.encode_commit(CommitMetadata(_OPERATION, {}))
    put_once(storage, table.path(requested.at(State.INFLIGHT)), profile)
    stats: dict[str, tuple[WriteStat, ...]] = {}
    for partition in changed:
        rows, deleted = changes.rows.get(partition), changes.deleted.get(partition, _NO_KEYS)
        written = tuple(_write_logs(table, partition, instant_time, rows, deleted, schema))
        stats |= {partition.value: written} if written else {}
    done = requested.at(State.COMPLETED)
    if layout.has_completion_times:
        newest = max((*table.instants.completions.values(), instant_time))
        done = replace(done, completion_time=next_instant_time(clock.now_ms(), newest, table.config.zone))
    metadata = CommitMetadata(_OPERATION, stats, {"schema": without_meta_columns(schema)})
    put_once(storage, table.path(done), layout.encode_commit(metadata))


def remove_deltacommit(table: MetadataTable, instant_time: str) -> None:
    """Remove the deltacommit of an action that is undone.

    Its completed file goes first, so that no reader counts it. Its pending files go last: after a crash they show that
    log files may be left. Call it before the action's pending files are removed. It may be called again at any time.
    """
    own = [instant for instant in _list_deltacommits(table) if instant.time == instant_time]
    completed = [table.path(instant) for instant in own if instant.state is State.COMPLETED]
    pending = sorted(table.path(instant) for instant in own if instant.state is not State.COMPLETED)
    logs = (
        path for partition in (table.partitions if own else ()) for path in _logs_of(table, partition, instant_time)
    )
    for path in chain(completed, logs, pending):
        table.storage.delete(path)


def _list_deltacommits(table: MetadataTable) -> list[Instant]:
    parsed = map(table.layout.parse, table.list_timeline())
    return [instant for instant in parsed if instant is not None and instant.action is Action.DELTA_COMMIT]


def _logs_of(table: MetadataTable, partition: MetadataPartition, instant_time: str) -> Iterator[str]:
    """Yield the paths of the log files of a deltacommit."""
    for log in list_logs(table.storage, partition):
        if table.instants.has_completion_times:
            if log.name.instant_time == instant_time:
                yield log.path
        elif {block.header.get(HeaderKey.INSTANT_TIME) for block in read_blocks(table.storage, log)} == {instant_time}:
            yield log.path


def _write_logs(
    table: MetadataTable,
    partition: MetadataPartition,
    instant_time: str,
    rows: pa.Table | None,
    deleted: pa.Array,
    schema: str,
) -> Iterator[WriteStat]:
    """Write a log file in each file group that has records or deletes. Yield the write stats."""
    slices = table.list_slices(partition)
    cells = encode_parts(partition, rows, schema) if rows is not None and len(rows) else None
    keys = _NO_KEYS if cells is None else cells["key"].combine_chunks()
    groups, deleted_groups = (file_groups_of(partition, keys_of, len(slices)) for keys_of in (keys, deleted))
    for number in np.union1d(groups, deleted_groups).tolist():
        own = None if cells is None else cells.filter(pa.array(groups == number))
        gone = deleted.filter(pa.array(deleted_groups == number))
        data = b""
        if own is not None and len(own):
            content = encode_hfile(
                own["key"].combine_chunks(), own["value"].combine_chunks(), info={"schema": schema.encode()}
            )
            header = {HeaderKey.INSTANT_TIME: instant_time, HeaderKey.SCHEMA: schema}
            data = encode_block(BlockKind.HFILE_DATA, header, content)
        if len(gone):
            data += encode_delete_block(gone, partition_path=partition.value, instant_time=instant_time, schema=schema)
        written = 0 if own is None else len(own)
        yield _write_log(table, partition, slices[number], instant_time, data, (written, len(gone)))


def _write_log(
    table: MetadataTable,
    partition: MetadataPartition,
    piece: MetadataSlice,
    instant_time: str,
    data: bytes,
    counts: tuple[int, int],
) -> WriteStat:
    """Write one log file under the name that the layout of the metadata table asks for.

    With completion times it has the instant time of the deltacommit. Without, it has that of the slice and the next
    version; if another writer takes the version meanwhile, the one after it.
    """
    group = file_id(partition, piece.number)
    has_times = table.instants.has_completion_times
    first = instant_time if has_times else piece.instant_time
    version = 1 if has_times else 1 + max((log.name.version for log in piece.logs), default=0)
    while True:
        name = log_name(group, first, version)
        try:
            table.storage.create(f"{partition.folder}/{name}", data)
            break
        except FileExistsError:
            if has_times:
                raise
            version += 1
    return WriteStat(
        file_id=group,
        path=f"{partition.value}/{name}",
        partition_path=partition.value,
        prev_commit=first,
        num_writes=counts[0],
        num_updates=counts[0],
        num_deletes=counts[1],
        size_bytes=len(data),
        log_names=(name,),
    )
