"""The stored files of the file index: Parquet, named by a digest of their content, which therefore never changes.

==============================  ===========================================================================
``delta-<instant>-<digest>``    the files one commit wrote, with their statistics; the groups it replaced
``shard-<digest>``              up to 100,000 live files, in order of partition path and file id
``manifest-<instant>-<digest>`` a snapshot: its shards with range, counts and bounds; the commits it covers
==============================  ===========================================================================

The read functions return None for a file that is incomplete, damaged or of another format.

Deltas and shards are tables of files with their column bounds. Besides `FILE_COLUMNS` such a table has three columns
for each indexed column: ``min/<path>`` and ``max/<path>`` (of the column's type when they were written) and
``nulls/<path>`` (int64). A float column also has ``nans/<path>`` (int64). Null means unknown. Files written before NaN
was counted have no ``nans/`` column, and older releases ignore it.
"""

from __future__ import annotations

import hashlib
import json
import logging
import re
import threading
from collections import OrderedDict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import groupby
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from lakeformat.arrow.conform import reader_schema
from lakeformat.arrow.kinds import Kind, kind_of
from lakeformat.arrow.listing_file import open_listing
from lakeformat.codec.json_text import parse_json
from lakeformat.codec.stored_types import with_meta_columns
from lakeformat.errors import InvalidInputError, StorageError
from lakeformat.file_system_view.live_files import FILE_COLUMNS, file_columns
from lakeformat.files.column_stats import FileStats, fold_file_stats
from lakeformat.files.footer_bounds import is_exact_conversion
from lakeformat.model.files import BaseFile, FileGroupId
from lakeformat.predicate import ColumnBounds, resolve_column
from lakeformat.storage.port import FileInfo, Storage, own_path

__all__ = [
    "FOLDER",
    "KINDS",
    "CoveredTimeline",
    "IndexManifest",
    "IndexName",
    "bounds_schema",
    "column_names",
    "concat_files",
    "file_table",
    "fold_bounds",
    "group_key",
    "group_keys",
    "indexed_paths",
    "is_held",
    "join_equal",
    "newest_versions",
    "read_columns",
    "read_delta",
    "read_index_manifest",
    "remove_files",
    "sort_files",
    "stored_bounds",
    "with_bounds",
    "write_file",
]

_LOG: Final = logging.getLogger("lakeformat.file_index")

FOLDER: Final = own_path("index")
#: Version of the file format. Increase it with any change that older releases would misread.
_FORMAT: Final = 1
_FACTS: Final = b"lakeformat.index"
_NAME: Final = re.compile(r"(delta|manifest|shard)-(?:(\d{14}|\d{17})-)?([0-9a-f]{32})\.parquet")
_CACHED_BYTES: Final = 256 << 20
#: Maximum number of rows of a table that is stored uncompressed. Its file consists mostly of the footer, and the
#: compression of its few values, column by column, takes longer than all the rest of the writing.
_PLAIN_ROWS: Final = 8
#: Memory in bytes that the cache counts for a column in addition to its values. For small files, this overhead of Arrow
#: is larger than the values.
_COLUMN_BYTES: Final = 2048


@dataclass(frozen=True, slots=True)
class IndexName:
    """The name of a file of the index. ``instant_time`` is "" for shards."""

    kind: str
    instant_time: str
    digest: str

    @staticmethod
    @lru_cache(maxsize=1 << 12)  # Cached: each read and write lists the index, and most names stay the same.
    def parse(name: str) -> IndexName | None:
        """Parse a file name. Return None if it is not a file of the index."""
        match = _NAME.fullmatch(name)
        return IndexName(match[1], match[2] or "", match[3]) if match else None


@dataclass(frozen=True)
class CoveredTimeline:
    """The state of the timeline from which a snapshot of the index was made.

    Attributes:
        commits: times of all completed commits that were active.
        pending: times of the pending instants that might become commits.
        archive: the mark of the archive's state (`Timeline.archive`).
    """

    commits: frozenset[str]
    pending: frozenset[str]
    archive: str | None


@dataclass(frozen=True)
class IndexManifest:
    """A snapshot of the index: its shards, and the timeline that they cover.

    Attributes:
        name: path of the manifest file.
        shards: a row per shard, in order: ``path``, ``stored_bytes``, ``files``, ``size_bytes``, ``first`` and ``last``
            (keys of file groups), ``rows``, and the bounds of all files of the shard together.
    """

    name: str
    covered: CoveredTimeline
    shards: pa.Table


class _Cache:
    """A cache of columns of index files. It is bounded in size and safe for threads.

    Entries never become stale, because a file's name contains a digest of its content.
    """

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


def _weight(value: pa.Table | pa.Array | tuple[pa.Table, object]) -> int:
    rows = value[0] if isinstance(value, tuple) else value
    columns: int = rows.num_columns if isinstance(rows, pa.Table) else 1
    return int(rows.nbytes) + _COLUMN_BYTES * columns


#: Maps (table location, file path, column name) to the column's values. The column name "" maps to the rows and the
#: metadata of a whole small file, or to an empty table with a shard's schema.
_CACHE: Final = _Cache()


def write_file(storage: Storage, kind: str, instant_time: str, table: pa.Table, facts: Mapping[str, Any]) -> FileInfo:
    """Write one file of the index. An existing file of the same name has the same content.

    Raises:
        StorageError: the file could not be written.
    """
    sink = pa.BufferOutputStream()
    text = json.dumps({"format": _FORMAT, **facts}, separators=(",", ":"), sort_keys=True)
    whole = table.replace_schema_metadata({_FACTS: text})
    names = set(whole.column_names)
    dictionaries = [name for name in ("partition_path", "instant_time") if name in names]
    codec = "zstd" if whole.num_rows > _PLAIN_ROWS else "none"
    pq.write_table(whole, sink, compression=codec, use_dictionary=dictionaries, write_statistics=False)
    data = sink.getvalue()
    digest = hashlib.blake2b(data, digest_size=16).hexdigest()
    path = f"{FOLDER}/{kind}-{instant_time}-{digest}.parquet" if instant_time else f"{FOLDER}/{kind}-{digest}.parquet"
    with storage.open_output(path) as out:
        out.write(data)
    if kind == "delta":  # The next write of this process reads it.
        _CACHE.put((storage.location, path, ""), (table.replace_schema_metadata(None), {"format": _FORMAT, **facts}))
    return FileInfo(path, data.size, 0)


def _open_parquet(storage: Storage, path: str) -> pq.ParquetFile | None:
    name = IndexName.parse(path.rpartition("/")[2])
    try:
        data = storage.read(path)
        if name is None or hashlib.blake2b(data, digest_size=16).hexdigest() != name.digest:
            _LOG.warning(
                "%s of the file index is not used: another process is writing it, or it is damaged; "
                "the next write replaces a damaged one",
                path,
            )
            return None
        return open_listing(pa.BufferReader(data), len(data))
    except FileNotFoundError:
        return None
    except (StorageError, pa.ArrowException, OSError) as error:
        _warn_of_damage(path, error)
        return None


def _warn_of_damage(path: str, error: Exception) -> None:
    _LOG.warning("%s of the file index cannot be read and is not used: %s", path, error)


def _read_rows(parquet: pq.ParquetFile, path: str, columns: Sequence[str] | None = None) -> pa.Table | None:
    """Read some or all columns. Return None if a page is damaged, or if the footer gives another number of rows."""
    try:
        table = parquet.read(columns, use_threads=columns is not None)
        if table.num_columns and table.num_rows != parquet.metadata.num_rows:
            raise pa.ArrowInvalid(f"{table.num_rows} rows, and its footer says {parquet.metadata.num_rows}")
    except (pa.ArrowException, OSError) as error:
        _warn_of_damage(path, error)
        return None
    return table


def _read_facts(schema: pa.Schema) -> dict[str, Any] | None:
    try:
        facts = parse_json((schema.metadata or {})[_FACTS])
        return facts if facts["format"] == _FORMAT else None
    except (KeyError, TypeError, ValueError):
        return None


def remove_files(storage: Storage, paths: Collection[str]) -> None:
    """Delete files of the index that no snapshot needs any more."""
    storage.delete_all(sorted(paths))
    _CACHE.forget(storage.location, paths)


def _read_whole(storage: Storage, path: str) -> tuple[pa.Table, dict[str, Any]] | None:
    """Read a delta or manifest through the cache. Return its rows and metadata; None if it is damaged or missing."""
    key = (storage.location, path, "")
    whole: tuple[pa.Table, dict[str, Any]] | None = _CACHE.get(key)
    if whole is None:
        parquet = _open_parquet(storage, path)
        table = None if parquet is None else _read_rows(parquet, path)
        facts = None if table is None else _read_facts(table.schema)
        if table is None or facts is None:
            return None
        whole = table.replace_schema_metadata(None), facts
        _CACHE.put(key, whole)
    return whole


def is_held(storage: Storage, path: str) -> bool:
    """Tell whether a delta or manifest is in the cache, so that it is read without a request."""
    return _CACHE.get((storage.location, path, "")) is not None


def read_delta(storage: Storage, path: str) -> tuple[pa.Table, frozenset[FileGroupId]] | None:
    """Read from a delta the files that a commit wrote and the file groups that it replaced; None if it is damaged."""
    whole = _read_whole(storage, path)
    if whole is None:
        return None
    table, facts = whole
    replaced = frozenset(FileGroupId(path, file_id) for path, ids in facts["replaced"].items() for file_id in ids)
    return table, replaced


def read_index_manifest(storage: Storage, path: str) -> IndexManifest | None:
    """Read a manifest, but not the shards that it names. Return None if the manifest is damaged or missing."""
    whole = _read_whole(storage, path)
    if whole is None:
        return None
    table, facts = whole
    covered = CoveredTimeline(frozenset(facts["commits"]), frozenset(facts["pending"]), facts.get("archive", ""))
    return IndexManifest(path, covered, table)


def read_columns(storage: Storage, path: str, columns: Sequence[str]) -> pa.Table | None:
    """Read columns of a shard, and skip those that it lacks. Return None if the shard is damaged or missing.

    Memory: the shard's bytes while it is read, then the columns (in a cache of 256 MB per process).
    """
    stored = _CACHE.get((storage.location, path, ""))
    names = None if stored is None else frozenset(stored.column_names)
    held = {name: _CACHE.get((storage.location, path, name)) for name in columns if names is None or name in names}
    missing = [name for name, column in held.items() if column is None]
    if names is None or missing:
        parquet = _open_shard(storage, path)
        if parquet is None:
            return None
        names = frozenset(parquet.schema_arrow.names)
        held = {name: column for name, column in held.items() if name in names}
        read = _read_rows(parquet, path, [name for name in missing if name in names])
        if read is None:
            return None
        for name in read.column_names:
            held[name] = read.column(name).combine_chunks()
            _CACHE.put((storage.location, path, name), held[name])
    return pa.table({name: held[name] for name in columns if name in held})


def column_names(storage: Storage, path: str) -> Sequence[str] | None:
    """Return the names of a shard's columns; None if it is damaged or missing."""
    stored = _CACHE.get((storage.location, path, ""))
    if stored is not None:
        return tuple(stored.column_names)
    parquet = _open_shard(storage, path)
    return None if parquet is None else tuple(parquet.schema_arrow.names)


def _open_shard(storage: Storage, path: str) -> pq.ParquetFile | None:
    """Open a shard, and cache its schema. Return None if it is damaged or missing."""
    parquet = _open_parquet(storage, path)
    if parquet is None or _read_facts(parquet.schema_arrow) is None:
        return None
    _CACHE.put((storage.location, path, ""), parquet.schema_arrow.empty_table())
    return parquet


LOW, HIGH, NULLS, NANS = "min/", "max/", "nulls/", "nans/"
KINDS: Final = (LOW, HIGH, NULLS, NANS)
#: Separator in the key of a file group (`group_key`). Partition paths and file ids cannot contain it.
_SEPARATOR: Final = "\x00"


def bounds_schema(table: pa.Schema) -> pa.Schema:
    """Return the columns that may have bounds, with the types that readers see: the meta columns and the table's."""
    return with_meta_columns(reader_schema(table))


def file_table(
    files: Sequence[tuple[BaseFile, FileStats | None]], columns: Sequence[str], schema: pa.Schema
) -> pa.Table:
    """Return a table of files with their known column statistics, sorted by partition path and file id.

    Args:
        columns: paths of the indexed columns.
        schema: the result of `bounds_schema`.
    """
    facts = [stats or FileStats(()) for _, stats in files]
    lacking = [stats is None for _, stats in files]
    is_known = pa.array([not lacks for lacks in lacking], pa.bool_()) if any(lacking) else None
    bounds, rows = fold_file_stats(facts, columns, schema)
    table = file_columns([file for file, _ in files])
    groups = pa.array([len(stats.group_rows) for stats in facts], pa.int32())
    place = FILE_COLUMNS.get_field_index("rows")
    table = table.set_column(place, FILE_COLUMNS.field("rows"), _replace_known(is_known, rows))
    table = table.set_column(place + 1, FILE_COLUMNS.field("row_groups"), _replace_known(is_known, groups))
    replaced = {
        path: ColumnBounds(*(_replace_known(is_known, part) for part in _parts(of))) for path, of in bounds.items()
    }
    return sort_files(with_bounds(table, replaced))


def _replace_known(is_known: pa.Array | None, values: pa.Array | None) -> pa.Array | None:
    """Return the values with null where ``is_known`` is False. None as ``is_known`` means that all are known."""
    if is_known is None or values is None:
        return values
    return pc.if_else(is_known, values, pa.scalar(None, values.type))


def _parts(bounds: ColumnBounds) -> tuple[pa.Array, pa.Array, pa.Array, pa.Array | None]:
    return bounds.minimum, bounds.maximum, bounds.null_count, bounds.nan_count


def with_bounds(table: pa.Table, bounds: Mapping[str, ColumnBounds]) -> pa.Table:
    """Add bounds to a table of files as columns: minimum, maximum and nulls of each path, and NaN of a float column."""
    more: dict[str, pa.Array] = {}
    for path, of in bounds.items():
        more |= {f"{kind}{path}": part for kind, part in zip(KINDS, _parts(of), strict=True) if part is not None}
    schema = pa.schema([*table.schema, *(pa.field(name, part.type) for name, part in more.items())])
    return pa.Table.from_arrays([*table.columns, *more.values()], schema=schema)


def indexed_paths(names: Iterable[str]) -> list[str]:
    """Return the paths of the columns that have bounds in an index file with these column names."""
    return [name.removeprefix(NULLS) for name in names if name.startswith(NULLS)]


def stored_bounds(table: pa.Table, columns: Iterable[str], schema: pa.Schema) -> dict[str, ColumnBounds]:
    """Return a mapping of column path to the stored bounds, converted to the column types that the schema has now.

    If a conversion may change a value, the bounds of the column are unknown.

    Args:
        columns: column paths. The result has no entry if the table has no bounds of a path, or the schema no such leaf.
    """
    stored: dict[str, ColumnBounds] = {}
    names = set(table.column_names)
    for path in columns:
        if f"{NULLS}{path}" not in names:
            continue
        leaf = _leaf(path, schema)
        if leaf is None:
            continue
        low, high = (_as_type(table.column(f"{kind}{path}"), leaf) for kind in (LOW, HIGH))
        counts = table.column(f"{NULLS}{path}").combine_chunks().cast(pa.int64())
        nans = _nan_counts(table, path, counts) if kind_of(leaf) is Kind.FLOAT else None
        if low is None or high is None:
            low = high = pa.nulls(len(counts), leaf)
        stored[path] = ColumnBounds(low, high, counts, nans)
    return stored


def _nan_counts(table: pa.Table, path: str, nulls: pa.Array) -> pa.Array:
    """Return the NaN counts of a float column: 0 if the bounds were stored as integers, null if NaN was not counted."""
    if table.schema.get_field_index(f"{NANS}{path}") >= 0:
        return table.column(f"{NANS}{path}").combine_chunks().cast(pa.int64())
    was_float = kind_of(table.schema.field(f"{LOW}{path}").type) is Kind.FLOAT
    nothing = pa.scalar(None, pa.int64())
    return pc.if_else(pc.is_valid(nulls), nothing if was_float else pa.scalar(0, pa.int64()), nothing)


def _as_type(column: pa.ChunkedArray, kind: pa.DataType) -> pa.Array | None:
    values = column.combine_chunks()
    if values.type.equals(kind):
        return values
    if not is_exact_conversion(values.type, kind):
        return None
    try:
        return values.cast(kind)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        return None


def concat_files(tables: Sequence[pa.Table], schema: pa.Schema, paths: Sequence[str] | None = None) -> pa.Table:
    """Concatenate tables of files. Bounds that a table lacks are unknown for its files.

    Args:
        schema: the columns that may have bounds, from `bounds_schema`. It gives the types of the bounds.
        paths: column paths whose bounds the result has; None means all that any of the tables has.
    """
    tables = join_equal(tables)
    if paths is None:
        paths = list(dict.fromkeys(path for table in tables for path in indexed_paths(table.column_names)))
    types = {path: of for path in paths if (of := _leaf(path, schema)) is not None}
    parts = []
    for table in tables:
        bounds = stored_bounds(table, types, schema)
        whole = {path: bounds.get(path) or _unknown(table.num_rows, of) for path, of in types.items()}
        parts.append(with_bounds(table.select(FILE_COLUMNS.names).cast(FILE_COLUMNS), whole))
    return pa.concat_tables(parts)


def join_equal(tables: Sequence[pa.Table]) -> list[pa.Table]:
    """Concatenate the neighbours that have the same columns: most commits in a row write the same kind of delta."""
    runs = groupby(tables, key=lambda table: table.schema)
    return [pa.concat_tables(run).combine_chunks() for _, run in runs]


def _unknown(count: int, of: pa.DataType) -> ColumnBounds:
    counts = pa.nulls(count, pa.int64())
    return ColumnBounds(pa.nulls(count, of), pa.nulls(count, of), counts, counts if kind_of(of) is Kind.FLOAT else None)


def _leaf(path: str, schema: pa.Schema) -> pa.DataType | None:
    """Return the type of a leaf column; None if the schema has no such leaf."""
    try:
        of = resolve_column(path, schema)[1]
    except InvalidInputError:
        return None
    return None if kind_of(of).is_nested else of


def group_key(group: FileGroupId) -> str:
    """Return a text that identifies a file group. These texts sort by partition path and file id."""
    return f"{group.partition_path}{_SEPARATOR}{group.file_id}"


def group_keys(files: pa.Table) -> pa.Array:
    """Return for each row of a table of files the `group_key` text of its file group."""
    ids = pc.struct_field(pc.extract_regex(files.column("name"), r"^(?P<id>[^_]+)_"), 0)
    return pc.binary_join_element_wise(files.column("partition_path"), ids, _SEPARATOR).combine_chunks()


def sort_files(files: pa.Table) -> pa.Table:
    """Sort files by partition path and file id."""
    if files.num_rows < 2:
        return files
    return files.take(pc.sort_indices(group_keys(files)))


def newest_versions(files: pa.Table, hidden: pa.Array) -> pa.Table:
    """Return the newest file of each file group, sorted. If several rows have the newest instant, keep the last row.

    Args:
        hidden: keys (`group_key`) of replaced file groups. The result does not contain them.
    """
    if files.num_rows < 2 and not len(hidden):
        return files
    keys = group_keys(files)
    if len(hidden):
        kept = pc.invert(pc.is_in(keys, value_set=hidden.cast(keys.type)))
        files, keys = files.filter(kept), keys.filter(kept)
    order = pc.sort_indices(
        pa.table({"key": keys, "time": files.column("instant_time")}),
        sort_keys=[("key", "ascending"), ("time", "ascending")],
    )
    sorted_keys = keys.take(order)
    last: npt.NDArray[np.bool_] = np.ones(len(keys), bool)
    if len(keys) > 1:
        last[:-1] = np.asarray(pc.not_equal(sorted_keys.slice(1), sorted_keys.slice(0, len(keys) - 1)))
    return files.take(order.filter(pa.array(last)))


def fold_bounds(files: pa.Table, schema: pa.Schema) -> tuple[dict[str, ColumnBounds], pa.Array]:
    """Return the joint bounds and the row count of all files, so that `may_match` can test a whole shard at once.

    If one file that may contain values has unknown bounds, the joint minimum and maximum are unknown. If one file has
    an unknown count, the joint count is unknown.
    """
    rows = files.column("rows").combine_chunks()
    folded: dict[str, ColumnBounds] = {}
    for path, of in stored_bounds(files, indexed_paths(files.column_names), schema).items():
        all_null = pc.fill_null(pc.equal(of.null_count, rows), False)
        unknown = pc.and_not(pc.is_null(of.minimum), all_null)
        ends = pc.min_max(of.minimum)["min"], pc.min_max(of.maximum)["max"]
        if pc.any(unknown).as_py():
            ends = pa.scalar(None, of.minimum.type), pa.scalar(None, of.minimum.type)
        # Build the array from the Arrow scalar, because Python's types cannot hold all dates and timestamps.
        low, high = (pa.repeat(end, 1) for end in ends)
        nans = None if of.nan_count is None else _sum(of.nan_count)
        folded[path] = ColumnBounds(low, high, _sum(of.null_count), nans)
    return folded, _sum(rows)


def _sum(counts: pa.Array) -> pa.Array:
    return pa.array([None if counts.null_count else pc.sum(counts).as_py() or 0], pa.int64())
