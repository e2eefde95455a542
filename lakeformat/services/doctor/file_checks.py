"""Checks of the contents of live files, of the file index against their footers, and of the rings of buckets.

The contents are keys, bloom filters, key ranges, column statistics and log blocks. A wrong file index makes readers
skip rows. Memory: the keys of one partition; of everything else, one batch of a file.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakeformat.codec.bloom import BloomFilter, hash_chain_blocks
from lakeformat.codec.log_blocks import parse_blocks
from lakeformat.errors import CorruptTableError, InvalidInputError, LakeformatError, UnsupportedTableError
from lakeformat.file_system_view.context import TableContext
from lakeformat.file_system_view.file_index.shards import IndexedFiles, ShardPart
from lakeformat.file_system_view.file_index.stored import FOLDER, fold_bounds, indexed_paths, stored_bounds
from lakeformat.file_system_view.hashing_rings import list_stored_rings, load_ring, ring_folder, uses_consistent_hashing
from lakeformat.file_system_view.live_files import file_objects
from lakeformat.file_system_view.snapshot import Snapshot
from lakeformat.files.batch_rows import OpenParquet
from lakeformat.files.footer_bounds import fold_files, row_group_bounds
from lakeformat.files.footers import (
    MAX_KEY,
    MIN_KEY,
    KeyRange,
    open_base,
    open_parquet,
    parse_key_footer,
    read_metadata,
    row_batches,
)
from lakeformat.files.slice_reader import read_slice
from lakeformat.model.files import BaseFile, FileSlice, LogFile
from lakeformat.model.record import PARTITION_PATH, RECORD_KEY
from lakeformat.predicate import ColumnBounds
from lakeformat.read.query import readable_schema
from lakeformat.services.doctor.findings import Finding, Kind
from lakeformat.storage.port import Storage
from lakeformat.timeline.timeline import Timeline

__all__ = ["check_index_bounds", "check_index_files", "check_partition", "check_rings", "footer_key_range"]

_ROWS: Final = 1 << 16
_BYTES: Final = 64 << 20
_REWRITE: Final = "cluster() the partition: it writes its files again, with right filters, key ranges and statistics"
#: Column types whose minimum and maximum in the footer are checked against the values. For these types, all writers
#: give minimum and maximum the same meaning.
_COMPARED: Final = (pa.int32(), pa.int64(), pa.string(), pa.date32())


def check_partition(
    storage: Storage,
    snapshot: Snapshot,
    path: str,
    slices: Sequence[FileSlice],
    rows_of: dict[str, int],
    writers: Mapping[str, str],
    advise: Callable[[str], str],
) -> Iterator[Finding]:
    """Yield the findings inside the files of one partition.

    Args:
        rows_of: mapping that this function fills: path of a base file to the number of rows in its footer.
        writers: maps the path of a file to the time of the commit that wrote it.
        advise: returns how to come back from a lost file of a commit.
    """
    has_keys = not snapshot.config.has_virtual_keys
    keys_of_slices: list[tuple[FileSlice, pa.ChunkedArray]] = []
    for piece in slices:
        parts: list[pa.Array] = []
        try:
            if piece.base is not None:
                yield from _check_base(storage, piece.base, parts, rows_of, has_keys=has_keys)
            for log in piece.logs:
                yield from _check_log(storage, log)
            if piece.logs and has_keys:
                parts = [batch.column(0) for batch in _read_merged_keys(storage, snapshot, piece)]
        except (CorruptTableError, UnsupportedTableError) as error:
            named = [file for file in piece.files if file.path in str(error)] or piece.files
            time = writers.get(named[0].path, named[0].name.instant_time)
            why = str(error).partition("; ")[0]
            cure = f"{why}: {advise(time)}"
            yield Finding(Kind.DAMAGED, named[0].path, cure, size_bytes=named[0].size_bytes)
            continue
        if parts:
            keys_of_slices.append((piece, pa.chunked_array(parts)))
    yield from _find_duplicates(keys_of_slices)


def _read_merged_keys(storage: Storage, snapshot: Snapshot, piece: FileSlice) -> Iterator[pa.RecordBatch]:
    table = readable_schema(snapshot.columns(storage.location), meta_columns=True)
    return read_slice(
        storage, piece, snapshot.merge_rules(piece), table, [RECORD_KEY], most_rows=_ROWS, most_bytes=_BYTES
    )


def _check_base(
    storage: Storage, base: BaseFile, keys: list[pa.Array], rows_of: dict[str, int], *, has_keys: bool
) -> Iterator[Finding]:
    with open_base(storage, base) as source, open_parquet(source, base.path) as parquet:
        rows_of[base.path] = parquet.metadata.num_rows
        names = parquet.schema_arrow.names
        has_keys = has_keys and RECORD_KEY in names and PARTITION_PATH in names
        footer = parse_key_footer(base, parquet.metadata)
        bloom = footer.bloom(storage) if has_keys else None
        if has_keys and footer.filter_bytes and bloom is None:
            yield Finding(Kind.NO_FILTER, base.path, _REWRITE, size_bytes=footer.filter_bytes)
        seen, misplaced, denied = KeyRange(), 0, 0
        wrong_statistics: dict[str, int] = {}
        for group in range(parquet.metadata.num_row_groups):
            for batch in row_batches(parquet, base.path, _ROWS, columns=names, row_groups=[group]):
                _count_outside_statistics(parquet, group, batch, wrong_statistics)
                if not has_keys:
                    continue
                column = batch.column(RECORD_KEY)
                keys.append(column)
                seen.add(column)
                misplaced += _count_true(pc.not_equal(batch.column(PARTITION_PATH), base.partition_path))
                denied += _count_denied(bloom, column)
    if misplaced:
        cure = "delete these keys and upsert the rows again"
        yield Finding(Kind.WRONG_PARTITION, base.path, cure, misplaced, base.size_bytes)
    if denied:
        yield Finding(Kind.FILTER_DENIES, base.path, _REWRITE, denied, footer.filter_bytes)
    if has_keys and _is_outside(footer_key_range(footer.metadata), seen):
        yield Finding(Kind.KEY_RANGE, base.path, _REWRITE, size_bytes=base.size_bytes)
    for name, rows in sorted(wrong_statistics.items()):
        cure = f"read column {name} with lakeformat.read.skipping=false until cluster() has written the file again"
        yield Finding(Kind.STATISTICS, base.path, cure, rows, base.size_bytes)


def _count_true(flags: pa.Array) -> int:
    return int(pc.sum(flags).as_py() or 0)


def _count_denied(bloom: BloomFilter | None, keys: pa.Array) -> int:
    if bloom is None or not len(keys):
        return 0
    try:
        chains = hash_chain_blocks(keys, bloom.hashes)
        return sum(int(np.count_nonzero(~bloom.might_contain(chain))) for _, chain in chains)
    except InvalidInputError:  # Raised for an empty key, which no reader looks up in a bloom filter.
        return 0


def footer_key_range(metadata: Any) -> tuple[bytes | None, bytes | None]:
    """Return the smallest and the greatest key that the footer records; None for each that is missing."""
    entries = (metadata.metadata or {}) if metadata is not None else {}
    return entries.get(MIN_KEY), entries.get(MAX_KEY)


def _is_outside(stated: tuple[bytes | None, bytes | None], seen: KeyRange) -> bool:
    """Tell whether the key range found in a file exceeds the range in its footer. False if either range is missing."""
    low, high = stated
    if low is None or high is None or seen.minimum is None or seen.maximum is None:
        return False
    wider = KeyRange(low.decode("utf-8", "replace"), high.decode("utf-8", "replace"))
    least, greatest = wider.minimum, wider.maximum
    wider.add(pa.array([seen.minimum, seen.maximum]))
    return (wider.minimum, wider.maximum) != (least, greatest)


def _count_outside_statistics(
    parquet: OpenParquet, group: int, batch: pa.RecordBatch, wrong_statistics: dict[str, int]
) -> None:
    """Count values outside the footer's minimum and maximum of their column in the row group.

    Add the counts to ``wrong_statistics``, by column name.
    """
    row_group, read = parquet.metadata.row_group(group), set(batch.schema.names)
    for leaf in range(row_group.num_columns):
        chunk = row_group.column(leaf)
        name = chunk.path_in_schema
        if name not in read or batch.schema.field(name).type not in _COMPARED:
            continue
        statistics = chunk.statistics
        if statistics is None or not statistics.has_min_max:
            continue
        column = batch.column(name)
        low, high = (pa.scalar(value, column.type) for value in (statistics.min, statistics.max))
        outside = _count_true(pc.or_(pc.less(column, low), pc.greater(column, high)))
        if outside:
            wrong_statistics[name] = wrong_statistics.get(name, 0) + outside


def _check_log(storage: Storage, log: LogFile) -> Iterator[Finding]:
    with storage.open_input(log.path) as source:
        whole = sum(block.size_bytes for block in parse_blocks(source, log.path, log.size_bytes))
    if whole != log.size_bytes:
        cure = "readers pass it over; compact() leaves it behind"
        yield Finding(Kind.TORN_LOG, log.path, cure, size_bytes=log.size_bytes - whole)


def _find_duplicates(keys_of_slices: Sequence[tuple[FileSlice, pa.ChunkedArray]]) -> Iterator[Finding]:
    """Yield a finding for each file group, or pair of groups, with keys that occur twice. `insert` allows such keys."""
    if not keys_of_slices:
        return
    keys = pa.chunked_array([chunk for _, column in keys_of_slices for chunk in column.chunks], pa.string())
    owners = np.repeat(np.arange(len(keys_of_slices), dtype=np.int32), [len(column) for _, column in keys_of_slices])
    rows = pa.table({"key": keys, "owner": owners})
    counts = rows.group_by("key").aggregate([("owner", "min"), ("owner", "max"), ("owner", "count")])
    repeated = counts.filter(pc.greater(counts.column("owner_count"), 1))
    pairs = repeated.group_by(["owner_min", "owner_max"]).aggregate(
        [("owner_count", "sum"), ("key", "count"), ("key", "min")]
    )
    for pair in pairs.sort_by([("owner_min", "ascending"), ("owner_max", "ascending")]).to_pylist():
        first, last = keys_of_slices[pair["owner_min"]][0], keys_of_slices[pair["owner_max"]][0]
        extra = pair["owner_count_sum"] - pair["key_count"]
        path = first.files[0].path
        others = f" and {pair['key_count'] - 1:,} more" if pair["key_count"] > 1 else ""
        text = f"{pair['key_min']!r}{others}: lakeformat dedupe, or dedupe(), lists the rows and keeps the newest"
        if first is last:
            yield Finding(Kind.KEY_TWICE, path, f"key {text}", extra, first.size_bytes)
        else:
            cure = f"the other one is {last.files[0].path}; key {text}"
            yield Finding(Kind.KEY_IN_TWO_GROUPS, path, cure, extra, first.size_bytes)


#: Maximum number of footers in memory at once.
_AT_ONCE: Final = 1000


def check_index_files(context: TableContext, files: frozenset[BaseFile]) -> Iterator[Finding]:
    """Yield a finding if the file index is in use and lists other files than ``files``, the live files in a listing."""
    try:
        live = _load_index_in_use(context)
        if live is None:
            return
        indexed = frozenset(file for portion in live.portions() for file in file_objects(portion.files))
        if indexed == files:
            return
        gone, lacking = len(indexed - files), len(files - indexed)
        why = f"live files that only the index names: {gone}, that only the folders hold: {lacking}"
    except LakeformatError as error:
        why = f"{error}"
    yield _make_finding(why)


def check_index_bounds(context: TableContext) -> Iterator[Finding]:
    """Yield a finding if the index's row counts or bounds contradict the footers of the files.

    Reads the footers of all files that the index lists. Other checks report damaged and missing files. Memory: one
    shard of the index and a thousand footers.
    """
    with suppress(LakeformatError):  # Ignore an unreadable index here: `check_index_files` reports it.
        live = _load_index_in_use(context)
        wrong = sum(_count_wrong_files(context.storage, live, part) for part in live.parts) if live is not None else 0
        if wrong:
            files = f"{wrong} file{'s' * (wrong != 1)}"
            yield _make_finding(f"the index has other row counts or bounds than the footers of {files}")


def _load_index_in_use(context: TableContext) -> IndexedFiles | None:
    """Return the live files by the file index; None if there is no index, or if reads do not use it."""
    if not context.use_index or not context.storage.list(FOLDER):
        return None
    live = context.snapshot().live
    return live if isinstance(live, IndexedFiles) else None


def _make_finding(why: str) -> Finding:
    cure = f"{why}; lakeformat repair --yes removes the index, and the next write makes it again"
    return Finding(Kind.FILE_INDEX, FOLDER, cure, mends=True)


def _count_wrong_files(storage: Storage, live: IndexedFiles, part: ShardPart) -> int:
    """Count the files of one shard whose row count or bounds in the index are wrong."""
    stored = part.read(storage, live.schema, None)
    paths = indexed_paths(stored.column_names)
    wrong = 0
    if part.path and not part.changed:
        row = live.manifest.shards.slice(part.at, 1)
        summed, rows = fold_bounds(stored, live.schema)
        wrong = stored.num_rows * _count_wrong_bounds(row, rows, stored_bounds(row, paths, live.schema), summed)
    for start in range(0, stored.num_rows, _AT_ONCE):
        some = stored.slice(start, _AT_ONCE)
        footers, positions = [], []
        for number, file in enumerate(file_objects(some)):
            with suppress(CorruptTableError):
                footers.append(read_metadata(storage, file))
                positions.append(number)
        some = some.take(pa.array(positions, pa.int64()))
        bounds, rows, owner = row_group_bounds(footers, paths, live.schema)
        folded, rows = fold_files(bounds, rows, owner, len(footers))
        wrong += _count_wrong_bounds(some, rows, stored_bounds(some, paths, live.schema), folded)
    return wrong


def _count_wrong_bounds(
    files: pa.Table, rows: pa.Array, indexed: Mapping[str, ColumnBounds], true: Mapping[str, ColumnBounds]
) -> int:
    """Count files whose row count or bounds in the index are wrong. Wider bounds and missing ones are not wrong."""
    wrong = _flags(pc.not_equal(files.column("rows").combine_chunks(), rows))
    for path in indexed.keys() & true.keys():
        stated, actual = indexed[path], true[path]
        wrong = pc.or_(wrong, _flags(pc.greater(stated.minimum, actual.minimum)))
        wrong = pc.or_(wrong, _flags(pc.less(stated.maximum, actual.maximum)))
        wrong = pc.or_(wrong, _flags(pc.not_equal(stated.null_count, actual.null_count)))
    return int(pc.sum(wrong).as_py() or 0)


def _flags(flags: pa.Array) -> pa.Array:
    return pc.fill_null(flags, False)


def check_rings(storage: Storage, timeline: Timeline, slices: Iterable[FileSlice]) -> Iterator[Finding]:
    """Yield a finding for each partition whose ring is damaged, or has no bucket for a live file group."""
    if not uses_consistent_hashing(storage):
        return
    ids_of: dict[str, list[str]] = {}
    for piece in slices:
        ids_of.setdefault(piece.group.partition_path, []).append(piece.group.file_id)
    for path, ids in ids_of.items():
        try:
            load_ring(storage, timeline, list_stored_rings(storage, path), ids)
        except CorruptTableError as error:
            yield Finding(Kind.BUCKETS, ring_folder(path), str(error))
