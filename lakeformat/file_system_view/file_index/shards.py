"""The live files of a table, read from the file index: the shards of a manifest, and the changes of later commits.

Memory: the requested columns of the opened shards, and the files of the replayed commits. A file takes about 100 bytes
as a row of a table, and about 400 bytes as an object.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from typing import Final, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lakeformat.concurrency import thread_pool
from lakeformat.errors import CorruptTableError
from lakeformat.file_system_view.file_index.replay import IndexChanges
from lakeformat.file_system_view.file_index.stored import (
    KINDS,
    IndexManifest,
    column_names,
    concat_files,
    group_keys,
    indexed_paths,
    join_equal,
    newest_versions,
    read_columns,
    stored_bounds,
)
from lakeformat.file_system_view.live_files import FILE_COLUMNS, ListedFiles, LiveFiles, Portion, file_objects
from lakeformat.model.files import BaseFile
from lakeformat.model.record import PARTITION_PATH
from lakeformat.predicate import ColumnBounds, Predicate, may_match
from lakeformat.storage.port import Storage

__all__ = ["IndexDamagedError", "IndexedFiles", "ShardPart"]

_LOG: Final = logging.getLogger("lakeformat.file_index")
_T = TypeVar("_T")
_READERS: Final = 4
_NO_FILES: Final = FILE_COLUMNS.empty_table()
#: Results of at most this many files are kept with the snapshot: a small write asks seven times for the same few files.
_KEPT_FILES: Final = 1000


class IndexDamagedError(CorruptTableError):
    """The error for a shard that cannot be read. `IndexedFiles` catches it and lists the folders instead."""


class ShardPart:
    """One shard with the changes that fall into its range of file groups.

    Attributes:
        path: path of the shard's file; "" if the manifest has no shard, so that later commits wrote all files.
        at: row of the shard in the manifest; -1 if the manifest has no shard.
        added: the files that later commits wrote, as a table.
        hidden: keys (`group_key`) of the file groups that later commits replaced.
    """

    def __init__(self, path: str, number: int, added: pa.Table, hidden: pa.Array) -> None:
        self.path, self.at, self.added, self.hidden = path, number, added, hidden
        self._kept: dict[tuple[str, ...], pa.Table] = {}

    @property
    def changed(self) -> bool:
        """Tell whether a later commit changed, or may have changed, files of the shard."""
        return bool(self.added.num_rows or len(self.hidden))

    def read(self, storage: Storage, schema: pa.Schema, paths: Sequence[str] | None) -> pa.Table:
        """Return the live files of the shard, sorted, with bounds of these column paths (None for all known ones).

        Raises:
            IndexDamagedError: the shard cannot be read.
        """
        key = None if paths is None else tuple(paths)
        if key in self._kept:
            return self._kept[key]
        table = self._read(storage, schema, paths)
        if key is not None and table.num_rows <= _KEPT_FILES:
            self._kept[key] = table
        return table

    def _read(self, storage: Storage, schema: pa.Schema, paths: Sequence[str] | None) -> pa.Table:
        if not self.path:
            return newest_versions(concat_files([self.added], schema, paths), self.hidden)
        if paths is None:
            paths = list(dict.fromkeys([*self._paths(storage), *indexed_paths(self.added.column_names)]))
        columns = [*FILE_COLUMNS.names, *(f"{kind}{path}" for path in paths for kind in KINDS)]
        stored = read_columns(storage, self.path, columns)
        if stored is None:
            raise IndexDamagedError(
                f"{self.path} of the file index is damaged or missing; the next write makes it again"
            )
        if not self.changed:
            return stored
        return newest_versions(concat_files([stored, self.added], schema, paths), self.hidden)

    def _paths(self, storage: Storage) -> list[str]:
        names = column_names(storage, self.path)
        if names is None:
            raise IndexDamagedError(
                f"{self.path} of the file index is damaged or missing; the next write makes it again"
            )
        return indexed_paths(names)


class IndexedFiles:
    """The live files, read from the file index. If a shard cannot be read, a listing replaces the index from then on.

    Args:
        schema: the columns that may have bounds, from `bounds_schema`.
        listed: lists the folders and returns the same files.
    """

    def __init__(
        self,
        storage: Storage,
        manifest: IndexManifest,
        changes: IndexChanges,
        schema: pa.Schema,
        listed: Callable[[], ListedFiles],
    ) -> None:
        self.storage, self.manifest, self.changes, self.schema = storage, manifest, changes, schema
        self._list = listed
        self._listed: ListedFiles | None = None
        self._objects: dict[str, tuple[BaseFile, ...]] = {}

    def _try_index(self, ask: Callable[[IndexedFiles], _T], other: Callable[[LiveFiles], _T]) -> _T:
        if self._listed is None:
            try:
                return ask(self)
            except IndexDamagedError as error:
                _LOG.warning("%s; listing %s", error, self.storage.location)
                self._listed = self._list()
        return other(self._listed)

    @property
    def is_whole(self) -> bool:
        """Tell whether no shard was found damaged so far."""
        return self._listed is None

    @cached_property
    def parts(self) -> tuple[ShardPart, ...]:
        """Return the shards in order, each with the changes in its range of file groups."""
        shards = self.manifest.shards
        # Mostly all commits have written the same columns. Then `ShardPart.read` converts those that are asked for.
        tables = join_equal([table for table in self.changes.files if table.num_rows])
        added = tables[0] if len(tables) == 1 else concat_files(tables, self.schema) if tables else _NO_FILES
        hidden = self.changes.replaced
        paths, starts = shards.column("path").to_pylist(), shards.column("first").combine_chunks()
        if not paths:
            return (ShardPart("", -1, added, hidden),) if added.num_rows else ()
        if len(paths) == 1:
            return (ShardPart(paths[0], 0, added, hidden),)
        owners, hidden_owners = _find_owners(starts, group_keys(added)), _find_owners(starts, hidden)
        parts = []
        for number, path in enumerate(paths):
            own_files = added.filter(pa.array(owners == number)) if added.num_rows else added
            parts.append(ShardPart(path, number, own_files, hidden.filter(pa.array(hidden_owners == number))))
        return tuple(parts)

    @property
    def count(self) -> int:
        """Return the number of files."""
        return self._try_index(lambda own: own._totals[0], lambda other: other.count)

    @property
    def has_logs(self) -> bool:
        """Return False: the file index is not used for tables that may have log files."""
        return False

    @property
    def size_bytes(self) -> int:
        """Return the total size of all files in bytes."""
        return self._try_index(lambda own: own._totals[1], lambda other: other.size_bytes)

    @cached_property
    def _totals(self) -> tuple[int, int]:
        counts, sizes = (self.manifest.shards.column(name).to_pylist() for name in ("files", "size_bytes"))
        files = size_bytes = 0
        for part, table in self._read([part for part in self.parts if part.changed], ()):
            counts, sizes = _replace_by_zero(counts, part.at), _replace_by_zero(sizes, part.at)
            files += table.num_rows
            size_bytes += pc.sum(table.column("size_bytes")).as_py() or 0
        return files + sum(counts), size_bytes + sum(sizes)

    def partitions(self) -> Sequence[str]:
        """Return the partition paths that have files, sorted."""
        return self._try_index(IndexedFiles._partitions, lambda other: other.partitions())

    def _partitions(self) -> Sequence[str]:
        paths: set[str] = set()
        for _, table in self._read(self.parts, ()):
            paths.update(pc.unique(table.column("partition_path")).to_pylist())
        return tuple(sorted(paths))

    def of_partition(self, partition_path: str) -> tuple[BaseFile, ...]:
        """Return the base files of one partition, sorted by file id."""
        return self._try_index(
            lambda own: own._read_files_of(partition_path), lambda other: other.of_partition(partition_path)
        )

    def _read_files_of(self, partition_path: str) -> tuple[BaseFile, ...]:
        kept = self._objects.get(partition_path)
        if kept is not None:
            return kept
        tables = self._read_tables_of(partition_path, ())
        files = tuple(file for table in tables for file in file_objects(table))
        if len(self._objects) + len(files) <= _KEPT_FILES:
            self._objects[partition_path] = files
        return files

    def _read_tables_of(self, partition_path: str, columns: Sequence[str]) -> list[pa.Table]:
        starts = self.manifest.shards.column("first").combine_chunks()
        low, high = _find_owners(starts, pa.array([f"{partition_path}\x00", f"{partition_path}\x01"])).tolist()
        own_files = [part for part in self.parts if part.at < 0 or low <= part.at <= high]
        tables = (table for _, table in self._read(own_files, columns))
        return [table.filter(pc.equal(table.column("partition_path"), partition_path)) for table in tables]

    def bounds_in(self, partition_path: str, column: str) -> ColumnBounds | None:
        """Return the bounds of a column in a partition, an entry per file as in `of_partition`; None if not known."""

        def ask(own: IndexedFiles) -> ColumnBounds | None:
            tables = own._read_tables_of(partition_path, (column,))
            return (
                stored_bounds(concat_files(tables, own.schema), (column,), own.schema).get(column) if tables else None
            )

        return self._try_index(ask, lambda other: other.bounds_in(partition_path, column))

    def portions(self, columns: Sequence[str] = (), predicate: Predicate | None = None) -> Iterator[Portion]:
        """Yield the files, a portion per shard, without shards that the predicate rules out.

        All needed shards are read before the first portion is returned.
        """
        portions = self._try_index(
            lambda own: [
                Portion(table.select(FILE_COLUMNS.names), stored_bounds(table, columns, own.schema))
                for _, table in own._read(own._may_match(predicate), columns)
            ],
            lambda other: list(other.portions(columns, predicate)),
        )
        yield from portions

    def _may_match(self, predicate: Predicate | None) -> list[ShardPart]:
        if predicate is None:
            return list(self.parts)
        shards = self.manifest.shards
        bounds = stored_bounds(shards, indexed_paths(shards.column_names), self.schema)
        first, last = (_folders(shards.column(name)) for name in ("first", "last"))
        bounds[PARTITION_PATH] = ColumnBounds(first, last, pa.array(np.zeros(len(first), np.int64)))
        flags = may_match(predicate, bounds, shards.column("rows").combine_chunks())
        return [part for part in self.parts if part.changed or flags[part.at]]

    def _read(self, parts: Sequence[ShardPart], paths: Sequence[str]) -> Iterator[tuple[ShardPart, pa.Table]]:
        if len(parts) < 2:
            yield from ((part, part.read(self.storage, self.schema, paths)) for part in parts)
            return
        with thread_pool(_READERS) as pool:
            yield from zip(
                parts, pool.map(lambda part: part.read(self.storage, self.schema, paths), parts), strict=True
            )


def _find_owners(starts: pa.Array, keys: pa.Array) -> npt.NDArray[np.int64]:
    """Return for each key the index of the last shard whose first key is not greater; if there is none, 0."""
    if not len(keys):
        return np.empty(0, np.int64)
    order = np.asarray(pc.sort_indices(pa.concat_arrays([starts.cast(pa.string()), keys.cast(pa.string())])))
    is_key = order >= len(starts)
    owners = np.empty(len(keys), np.int64)
    owners[order[is_key] - len(starts)] = np.maximum(np.cumsum(~is_key)[is_key] - 1, 0)
    return owners


def _folders(keys: pa.ChunkedArray) -> pa.Array:
    """Return the partition paths of file group keys."""
    return pc.list_element(pc.split_pattern(keys.combine_chunks(), "\x00", max_splits=1), 0)


def _replace_by_zero(values: Sequence[int], number: int) -> list[int]:
    return [0 if place == number else value for place, value in enumerate(values)]
