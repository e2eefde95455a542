"""Checks of partitions: new folders inside other partitions, and files with rows of another partition."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Final

import numpy as np
import pyarrow as pa

from lakeformat.concurrency import thread_pool
from lakeformat.errors import InvalidInputError
from lakeformat.file_system_view.file_index.stored import bounds_schema
from lakeformat.file_system_view.folder_values import (
    OFF_FOLDER,
    find_misplaced_rows,
    partition_column_values,
    reading_key_settings,
)
from lakeformat.file_system_view.snapshot import Snapshot
from lakeformat.files.column_stats import fold_file_stats
from lakeformat.keys.partition_paths import find_nested_pair, folders_above
from lakeformat.model.files import PARTITION_MARKER, join_path
from lakeformat.model.table_config import TableConfig
from lakeformat.storage.port import Storage
from lakeformat.transaction.order.written_file import WrittenFile

__all__ = ["check_nesting", "check_new_folders", "make_off_folder_entry"]

#: Number of folders that are looked up at the same time.
_TRIES: Final = 16


def make_off_folder_entry(written: Sequence[WrittenFile], config: TableConfig, schema: pa.Schema) -> Mapping[str, str]:
    """Return the extra metadata entry that lists the written files that may contain rows of another partition.

    Such a row's partition value differs from the one in the folder's name, so readers must not skip its file by the
    folder's name. If the folders' names do not contain the values of stored columns, the entry lists no file. Else, if
    the column statistics of a written file are not known, there is no entry: the result is an empty mapping.
    """
    keys = reading_key_settings(config)
    if not keys.partition_fields or config.drops_partition_columns:
        return {OFF_FOLDER: "[]"}
    full = bounds_schema(schema)
    folders = pa.array([file.stat.partition_path for file in written], pa.string()).dictionary_encode()
    values = partition_column_values(folders.dictionary.to_pylist(), keys, full)
    facts = [file.facts for file in written]
    if not values or any(values_of is None for values_of in facts):
        return {} if values else {OFF_FOLDER: "[]"}
    stats = [fact for fact in facts if fact is not None]
    bounds, rows = fold_file_stats(stats, tuple(values), full)
    off, _ = find_misplaced_rows({name: column.take(folders.indices) for name, column in values.items()}, bounds)
    off &= np.asarray(rows) > 0
    return {OFF_FOLDER: json.dumps([written[number].stat.path for number in np.flatnonzero(off).tolist()])}


def check_new_folders(storage: Storage, snapshot: Snapshot, opened: Iterable[str]) -> None:
    """Raise an error if the folder of a new partition would lie in that of another partition, or contain one.

    A partition without files counts as long as its folder exists. Nested partitions are dangerous: Hudi and hudi-rs do
    not look for partitions below a partition, so they would miss the rows of one of the two.

    Args:
        opened: partition paths that get new file groups.

    Raises:
        InvalidInputError: two folders would be nested, or the name of a folder must give values that files do not hold,
            and does not; the message names the partitions and the remedy.
    """
    _check_segments(snapshot.config, opened := frozenset(opened))
    if snapshot.config.url_encode or not snapshot.config.partition_fields:
        return
    existing = frozenset(snapshot.live.partitions())
    new = opened - existing
    check_nesting(new, existing)
    if snapshot.instant_time is None:
        return
    inner = {outer: path for path in new for outer in folders_above(path)}
    with thread_pool(_TRIES) as pool:
        markers = pool.map(lambda outer: storage.info(join_path(outer, PARTITION_MARKER)), inner)
        for (outer, path), marker in zip(inner.items(), markers, strict=True):
            if marker is not None:
                raise _nested_error(outer, path)


def _check_segments(config: TableConfig, opened: frozenset[str]) -> None:
    """Raise an error if a path has other folders than one for each partition column that files do not hold."""
    columns = config.dropped_columns
    for path in opened if len(columns) > 1 else ():
        if path.count("/") != len(columns) - 1:
            raise InvalidInputError(
                f"partition {path!r} does not give the values of {', '.join(columns)}, which files do not hold; write "
                "values without '/', or create the table again with "
                "hoodie.datasource.write.partitionpath.urlencode=true"
            )


def check_nesting(new: Collection[str], existing: Collection[str]) -> None:
    """Raise an error if a new partition lies in another new or existing one, or contains an existing one.

    Raises:
        InvalidInputError: there is such a pair; the message names both partitions and the remedy.
    """
    pair = find_nested_pair(new, existing)
    if pair is not None:
        raise _nested_error(*pair)


def _nested_error(outer: str, inner: str) -> InvalidInputError:
    return InvalidInputError(
        f"the folder of partition {inner!r} would lie in that of partition {outer!r}, and other readers would lose "
        "rows; write values without '/', or create the table again with "
        "hoodie.datasource.write.partitionpath.urlencode=true"
    )
