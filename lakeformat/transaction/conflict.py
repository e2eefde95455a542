"""Conflict checks between commits (Hudi: ``SimpleConcurrentFileWritesConflictResolutionStrategy``).

Partition folders: a check that new ones do not nest, and the measurement of rows that lie off their folder.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Final

import numpy as np
import pyarrow as pa

from lakeformat.errors import InvalidInputError, WriteConflictError
from lakeformat.file_system_view.file_index.stored import bounds_schema
from lakeformat.file_system_view.folder_values import OFF_FOLDER, folder_values, off_folder, reading_keys
from lakeformat.file_system_view.snapshot import Snapshot
from lakeformat.files.column_stats import fold
from lakeformat.keys.partition_paths import folders_above, nested_pair
from lakeformat.model.commit import CommitMetadata, WriteStat
from lakeformat.model.files import PARTITION_MARKER, FileGroupId, LogFileName, join_path
from lakeformat.model.table_config import TableConfig
from lakeformat.storage.port import Storage
from lakeformat.transaction.written_file import Written

__all__ = [
    "OverlapError",
    "beside_compactions",
    "check_beside",
    "check_conflicts",
    "check_new_folders",
    "check_plans",
    "is_hidden",
    "measured",
    "touched_groups",
]


class OverlapError(WriteConflictError):
    """A completed commit changed the same file groups, so files made from their old versions cannot be published."""


def touched_groups(metadata: CommitMetadata) -> frozenset[FileGroupId]:
    """Return the file groups that a commit wrote or replaced."""
    written = {FileGroupId(stat.partition_path, stat.file_id) for stat in metadata.all_stats()}
    replaced = {FileGroupId(partition, id_) for partition, ids in metadata.replaced.items() for id_ in ids}
    return frozenset(written | replaced)


def is_hidden(stat: WriteStat, time: str, compacted: str, *, by_name: bool) -> bool:
    """Tell whether the base file of a compaction that did not read this file would hide it.

    Args:
        stat: statistics of a file of the commit at `time`.
        compacted: the compaction's instant time.
        by_name: whether the name of a log file gives its slice (timeline layout 1). If not, a log file that is written
            while the compaction runs belongs to the slice that the compaction opens.
    """
    log = LogFileName.match(stat.path.rpartition("/")[2])
    return time < compacted if log is None else by_name and log.instant_time < compacted


def beside_compactions(
    time: str, ours: CommitMetadata, others: Iterable[tuple[str, CommitMetadata]], *, by_name: bool
) -> list[tuple[str, CommitMetadata]]:
    """Return the other commits, reduced for compactions to the files that would hide ours: the rest changes no rows.

    Args:
        time: instant time of our commit.
        by_name: see `is_hidden`.
    """
    return [
        (other, _keep_hiding(metadata, other, time, ours, by_name=by_name) if metadata.compacted else metadata)
        for other, metadata in others
    ]


def _keep_hiding(
    compaction: CommitMetadata, compacted: str, time: str, ours: CommitMetadata, *, by_name: bool
) -> CommitMetadata:
    """Reduce a compaction to the files that hide ours."""
    hidden = {
        FileGroupId(stat.partition_path, stat.file_id)
        for stat in ours.all_stats()
        if is_hidden(stat, time, compacted, by_name=by_name)
    }
    kept = (
        (path, tuple(stat for stat in stats if FileGroupId(path, stat.file_id) in hidden))
        for path, stats in compaction.stats.items()
    )
    return replace(compaction, stats={path: stats for path, stats in kept if stats})


def check_conflicts(
    ours: str,
    touched: frozenset[FileGroupId],
    others: Iterable[tuple[str, CommitMetadata]],
    overwritten: frozenset[str] | None,
) -> None:
    """Refuse to publish over another writer's commit.

    Args:
        ours: our instant time, for the message.
        touched: file groups that we wrote a new version of, or replace; new groups cannot conflict.
        others: commits completed since we started, whatever their instant time.
        overwritten: partitions whose whole contents we replace; None if we replace none.

    Raises:
        OverlapError: the message names both instants.
    """
    for time, metadata in others:
        theirs = touched_groups(metadata)
        shared = touched & theirs
        if overwritten is not None:
            shared |= {group for group in theirs if group.partition_path in overwritten}
        if shared:
            raise OverlapError(
                f"commit {ours} overlaps commit {time} in {len(shared)} file group(s), e.g. {min(shared).file_id}; "
                f"run the write again, it will start from {time}",
                file_ids={group.file_id for group in shared},
            )


def check_plans(
    touched: frozenset[FileGroupId], planned: Mapping[FileGroupId, str], way_past: Callable[[str], str]
) -> None:
    """Refuse to change file groups that a pending clustering is going to rewrite.

    Args:
        touched: file groups that the write has rows for, or replaces.
        planned: file groups that pending clusterings are going to replace -> the plan's instant.
        way_past: returns advice about a pending plan.

    Raises:
        WriteConflictError: the message names the plan's instant.
    """
    waiting = touched & planned.keys()
    if waiting:
        first = min(waiting)
        raise WriteConflictError(
            f"the write touches {len(waiting)} file group(s), e.g. {first.file_id}, that the pending clustering "
            f"{planned[first]} is going to rewrite; {way_past(planned[first])}",
            file_ids={group.file_id for group in waiting},
        )


#: Folders that are looked up at the same time.
_LOOKS: Final = 16


def measured(written: Sequence[Written], config: TableConfig, schema: pa.Schema) -> Mapping[str, str]:
    """Return the extra metadata entry that lists the written files with rows that may lie off their folder.

    A row lies off its folder if its partition value is not the one that the folder names. The result is empty if the
    statistics of a file are not known.

    Args:
        schema: the table's columns.
    """
    full, keys = bounds_schema(schema), reading_keys(config)
    folders = pa.array([file.stat.partition_path for file in written], pa.string()).dictionary_encode()
    values = folder_values(folders.dictionary.to_pylist(), keys, full)
    facts = [file.facts for file in written]
    if not values or any(each is None for each in facts):
        return {} if values else {OFF_FOLDER: "[]"}
    stats = [each for each in facts if each is not None]
    bounds, rows = fold(stats, tuple(values), full)
    off, _ = off_folder({name: each.take(folders.indices) for name, each in values.items()}, bounds)
    off &= np.asarray(rows) > 0
    return {OFF_FOLDER: json.dumps([written[at].stat.path for at in np.flatnonzero(off).tolist()])}


def check_new_folders(storage: Storage, snapshot: Snapshot, opened: Iterable[str]) -> None:
    """Refuse partitions whose folders would lie in each other or in existing ones, including emptied ones.

    Hudi and hudi-rs do not look for partitions below a partition: they would miss the rows of the inner one or of the
    outer one.

    Args:
        opened: partition paths that get new file groups.

    Raises:
        InvalidInputError: the message names both partitions and the remedy.
    """
    if snapshot.config.url_encode or not snapshot.config.partition_fields:
        return
    existing = frozenset(snapshot.live.partitions())
    new = frozenset(opened) - existing
    check_beside(new, existing)
    if snapshot.instant_time is None:
        return
    inner = {outer: path for path in new for outer in folders_above(path)}
    with ThreadPoolExecutor(_LOOKS) as pool:
        found = pool.map(lambda outer: storage.info(join_path(outer, PARTITION_MARKER)), inner)
        for (outer, path), marker in zip(inner.items(), found, strict=True):
            if marker is not None:
                raise _nested_error(outer, path)


def check_beside(new: Collection[str], existing: Collection[str]) -> None:
    """Refuse new partitions that lie in each other or in an existing one, or that contain an existing one.

    Raises:
        InvalidInputError: the message names both partitions and the remedy.
    """
    pair = nested_pair(new, existing)
    if pair is not None:
        raise _nested_error(*pair)


def _nested_error(outer: str, inner: str) -> InvalidInputError:
    return InvalidInputError(
        f"the folder of partition {inner!r} would lie in that of partition {outer!r}, and other readers would lose "
        "rows; write values without '/', or make the table anew with "
        "hoodie.datasource.write.partitionpath.urlencode=true"
    )
