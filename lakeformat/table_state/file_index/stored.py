"""The stored files of the file index: Parquet, named by a digest of their content, so that a name is used only once.

==============================  ===========================================================================
``delta-<instant>-<digest>``    the files one commit wrote, with their statistics; the groups it replaced
``shard-<digest>``              up to 100,000 live files, in order of partition path and file id
``manifest-<instant>-<digest>`` a snapshot: its shards with range, counts and bounds; the commits it covers
==============================  ===========================================================================

The read functions return None for a file that is torn, damaged or of another format.
"""

from __future__ import annotations

import hashlib
import json
import logging
import re
import threading
from collections import OrderedDict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

from lakeformat.errors import StorageError
from lakeformat.model.files import FileGroupId
from lakeformat.storage.port import FileInfo, Storage, own_path

__all__ = [
    "FOLDER",
    "Covered",
    "IndexName",
    "Manifest",
    "column_names",
    "read_columns",
    "read_delta",
    "read_manifest",
    "remove_files",
    "write_file",
]

_LOG: Final = logging.getLogger("lakeformat.file_index")

FOLDER: Final = own_path("index")
#: Increase it when this release could not understand the files of a later one.
_FORMAT: Final = 1
_FACTS: Final = b"lakeformat.index"
_NAME: Final = re.compile(r"(delta|manifest|shard)-(?:(\d{14}|\d{17})-)?([0-9a-f]{32})\.parquet")
_CACHED_BYTES: Final = 256 << 20
#: Memory of an Arrow column in addition to its values; it dominates for small files.
_COLUMN_BYTES: Final = 2048


@dataclass(frozen=True, slots=True)
class IndexName:
    """The name of a file of the index. ``instant_time`` is "" for shards."""

    kind: str
    instant_time: str
    digest: str

    @classmethod
    def parse(cls, name: str) -> IndexName | None:
        """Parse a file name. Return None if it is not a file of the index."""
        found = _NAME.fullmatch(name)
        return cls(found[1], found[2] or "", found[3]) if found else None


@dataclass(frozen=True)
class Covered:
    """The timeline that a snapshot of the index covers.

    Attributes:
        commits: times of all completed commits that were active.
        pending: times of the pending instants that might become commits.
        archive: `Timeline.archive`.
    """

    commits: frozenset[str]
    pending: frozenset[str]
    archive: str | None


@dataclass(frozen=True)
class Manifest:
    """A snapshot of the index.

    Attributes:
        shards: a row per shard, in order: ``path``, ``stored_bytes``, ``files``, ``size_bytes``, ``first`` and ``last``
            (keys of file groups), ``rows``, and the bounds of all files of the shard together.
    """

    name: str
    covered: Covered
    shards: pa.Table


class _Cache:
    """A cache of columns of files, whose names prove their content. Its size is bounded; it is safe for threads."""

    def __init__(self) -> None:
        self._entries: OrderedDict[tuple[str, str, str], Any] = OrderedDict()
        self._bytes = 0
        self._guard = threading.Lock()

    def get(self, key: tuple[str, str, str]) -> Any:
        with self._guard:
            if key in self._entries:
                self._entries.move_to_end(key)
            return self._entries.get(key)

    def put(self, key: tuple[str, str, str], value: Any) -> None:
        with self._guard:
            if key not in self._entries:
                self._entries[key] = value
                self._bytes += _weight(value)
            while self._bytes > _CACHED_BYTES:
                self._bytes -= _weight(self._entries.popitem(last=False)[1])

    def forget(self, location: str, paths: Collection[str]) -> None:
        """Remove the columns of deleted files."""
        with self._guard:
            for key in [key for key in self._entries if key[0] == location and key[1] in paths]:
                self._bytes -= _weight(self._entries.pop(key))


def _weight(value: pa.Table | pa.Array) -> int:
    columns: int = value.num_columns if isinstance(value, pa.Table) else 1
    return int(value.nbytes) + _COLUMN_BYTES * columns


#: (location, file, column) -> the column. With "" as the column: a whole small file, or a shard's schema without rows.
_CACHE: Final = _Cache()


def write_file(storage: Storage, kind: str, instant_time: str, table: pa.Table, facts: Mapping[str, Any]) -> FileInfo:
    """Write one file of the index. An existing file of the same name has the same content.

    Raises:
        StorageError: the file could not be written.
    """
    sink = pa.BufferOutputStream()
    text = json.dumps({"format": _FORMAT, **facts}, separators=(",", ":"), sort_keys=True)
    whole = table.replace_schema_metadata({_FACTS: text})
    known = set(whole.column_names)
    dictionaries = [name for name in ("partition_path", "instant_time") if name in known]
    pq.write_table(whole, sink, compression="zstd", use_dictionary=dictionaries, write_statistics=False)
    data = sink.getvalue()
    digest = hashlib.blake2b(data, digest_size=16).hexdigest()
    path = f"{FOLDER}/{kind}-{instant_time}-{digest}.parquet" if instant_time else f"{FOLDER}/{kind}-{digest}.parquet"
    with storage.open_output(path) as out:
        out.write(data)
    return FileInfo(path, data.size, 0)


def _open_parquet(storage: Storage, path: str) -> pq.ParquetFile | None:
    name = IndexName.parse(path.rpartition("/")[2])
    try:
        data = storage.read(path)
        if name is None or hashlib.blake2b(data, digest_size=16).hexdigest() != name.digest:
            _LOG.warning("%s of the file index is damaged and not used; the next write replaces it", path)
            return None
        return pq.ParquetFile(pa.BufferReader(data))
    except FileNotFoundError:
        return None
    except (StorageError, pa.ArrowException, OSError) as error:
        _LOG.warning("%s of the file index cannot be read and is not used: %s", path, error)
        return None


def _facts(schema: pa.Schema) -> dict[str, Any] | None:
    try:
        found = json.loads((schema.metadata or {})[_FACTS])
        return found if found["format"] == _FORMAT else None
    except (KeyError, TypeError, ValueError):
        return None


def remove_files(storage: Storage, paths: Collection[str]) -> None:
    """Delete files of the index that no snapshot needs any more."""
    for path in paths:
        storage.delete(path)
    _CACHE.forget(storage.location, paths)


def _read_whole(storage: Storage, path: str) -> tuple[pa.Table, dict[str, Any]] | None:
    """Return a small file, which is cached, and its facts; None if it is damaged or missing."""
    key = (storage.location, path, "")
    table = _CACHE.get(key)
    if table is None:
        parquet = _open_parquet(storage, path)
        if parquet is None:
            return None
        table = parquet.read(use_threads=False)
        _CACHE.put(key, table)
    facts = _facts(table.schema)
    return None if facts is None else (table.replace_schema_metadata(None), facts)


def read_delta(storage: Storage, path: str) -> tuple[pa.Table, frozenset[FileGroupId]] | None:
    """Read the files that a commit wrote, and the file groups that it replaced; None if the delta is damaged."""
    found = _read_whole(storage, path)
    if found is None:
        return None
    table, facts = found
    replaced = frozenset(FileGroupId(path, file_id) for path, ids in facts["replaced"].items() for file_id in ids)
    return table, replaced


def read_manifest(storage: Storage, path: str) -> Manifest | None:
    """Read a snapshot of the index, without the files of its shards; None if it is damaged."""
    found = _read_whole(storage, path)
    if found is None:
        return None
    table, facts = found
    covered = Covered(frozenset(facts["commits"]), frozenset(facts["pending"]), facts.get("archive", ""))
    return Manifest(path, covered, table)


def read_columns(storage: Storage, path: str, columns: Sequence[str]) -> pa.Table | None:
    """Read those of the given columns that a shard has; None if the shard is damaged or missing.

    Memory: the shard's bytes while it is read, then the columns (in a cache of 256 MB per process).
    """
    known = _CACHE.get((storage.location, path, ""))
    names = None if known is None else frozenset(known.column_names)
    held = {name: _CACHE.get((storage.location, path, name)) for name in columns if names is None or name in names}
    missing = [name for name, column in held.items() if column is None]
    if names is None or missing:
        parquet = _open_shard(storage, path)
        if parquet is None:
            return None
        names = frozenset(parquet.schema_arrow.names)
        held = {name: column for name, column in held.items() if name in names}
        read = parquet.read([name for name in missing if name in names])
        for name in read.column_names:
            held[name] = read.column(name).combine_chunks()
            _CACHE.put((storage.location, path, name), held[name])
    return pa.table({name: held[name] for name in columns if name in held})


def column_names(storage: Storage, path: str) -> Sequence[str] | None:
    """Return the names of a shard's columns; None if it is damaged or missing."""
    known = _CACHE.get((storage.location, path, ""))
    if known is not None:
        return tuple(known.column_names)
    parquet = _open_shard(storage, path)
    return None if parquet is None else tuple(parquet.schema_arrow.names)


def _open_shard(storage: Storage, path: str) -> pq.ParquetFile | None:
    """Open a shard, and cache its schema. Return None if it is damaged or missing."""
    parquet = _open_parquet(storage, path)
    if parquet is None or _facts(parquet.schema_arrow) is None:
        return None
    _CACHE.put((storage.location, path, ""), parquet.schema_arrow.empty_table())
    return parquet
