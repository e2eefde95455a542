"""Checks of the contents of live files: keys, filters, key ranges, statistics, blocks of log files.

Memory: the keys of one partition; of everything else, one batch of a file.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakeformat.codec.bloom import BloomFilter, hash_chain_blocks
from lakeformat.codec.log_envelope import blocks_of
from lakeformat.errors import CorruptTableError, InvalidInputError, UnsupportedTableError
from lakeformat.files.batch_rows import OpenParquet
from lakeformat.files.footers import MAX_KEY, MIN_KEY, key_footer, open_base, open_parquet, row_batches
from lakeformat.files.key_range import KeyRange
from lakeformat.files.slice_reader import read_slice
from lakeformat.model.files import BaseFile, FileSlice, LogFile
from lakeformat.model.record import PARTITION_PATH, RECORD_KEY
from lakeformat.read.query import readable_schema
from lakeformat.services.doctor.findings import Finding, Kind
from lakeformat.storage.port import Storage
from lakeformat.table_state.snapshot import Snapshot

__all__ = ["check_partition", "parquet_facts"]

_ROWS: Final = 1 << 16
_BYTES: Final = 64 << 20
_BACK: Final = "restore it from a copy, or restore() to an earlier instant"
_REWRITE: Final = "cluster() the partition: it writes its files again, with right filters, key ranges and statistics"
#: Types whose statistics have the same meaning for all writers.
_COMPARED: Final = (pa.int32(), pa.int64(), pa.string(), pa.date32())


def check_partition(
    storage: Storage, snapshot: Snapshot, path: str, slices: Sequence[FileSlice], rows_of: dict[str, int]
) -> Iterator[Finding]:
    """Yield the findings inside the files of one partition.

    Args:
        rows_of: filled with base file path -> number of rows.
    """
    has_keys = not snapshot.config.has_virtual_keys
    found: list[tuple[FileSlice, pa.ChunkedArray]] = []
    for piece in slices:
        parts: list[pa.Array] = []
        try:
            if piece.base is not None:
                yield from _check_base(storage, piece.base, parts, rows_of, has_keys=has_keys)
            for log in piece.logs:
                yield from _check_log(storage, log)
            if piece.logs and has_keys:
                parts = [batch.column(0) for batch in _merged(storage, snapshot, piece)]
        except (CorruptTableError, UnsupportedTableError) as error:
            damaged = piece.base.path if piece.base else piece.logs[0].path
            yield Finding(Kind.DAMAGED, damaged, f"{error}", size_bytes=piece.size_bytes)
            continue
        if parts:
            found.append((piece, pa.chunked_array(parts)))
    yield from _find_duplicates(found)


def _merged(storage: Storage, snapshot: Snapshot, piece: FileSlice) -> Iterator[pa.RecordBatch]:
    table = readable_schema(snapshot.columns(storage.location), meta_columns=True)
    return read_slice(storage, piece, snapshot.merging(piece), table, [RECORD_KEY], most_rows=_ROWS, most_bytes=_BYTES)


def _check_base(
    storage: Storage, base: BaseFile, keys: list[pa.Array], rows_of: dict[str, int], *, has_keys: bool
) -> Iterator[Finding]:
    with open_base(storage, base) as source, open_parquet(source, base.path) as parquet:
        rows_of[base.path] = parquet.metadata.num_rows
        names = parquet.schema_arrow.names
        has_keys = has_keys and RECORD_KEY in names and PARTITION_PATH in names
        footer = key_footer(base, parquet.metadata)
        bloom = footer.bloom(storage) if has_keys else None
        if has_keys and footer.filter_bytes and bloom is None:
            yield Finding(Kind.NO_FILTER, base.path, _REWRITE, size_bytes=footer.filter_bytes)
        seen, misplaced, denied = KeyRange(), 0, 0
        wrong_statistics: dict[str, int] = {}
        for group in range(parquet.metadata.num_row_groups):
            for batch in row_batches(parquet, base.path, _ROWS, columns=names, row_groups=[group]):
                _compare(parquet, group, batch, wrong_statistics)
                if not has_keys:
                    continue
                column = batch.column(RECORD_KEY)
                keys.append(column)
                seen.add(column)
                misplaced += _count_true(pc.not_equal(batch.column(PARTITION_PATH), base.partition_path))
                denied += _denied(bloom, column)
    if misplaced:
        cure = "delete these keys and upsert the rows again"
        yield Finding(Kind.WRONG_PARTITION, base.path, cure, misplaced, base.size_bytes)
    if denied:
        yield Finding(Kind.FILTER_DENIES, base.path, _REWRITE, denied, footer.filter_bytes)
    if has_keys and _is_outside(parquet_facts(footer.metadata), seen):
        yield Finding(Kind.KEY_RANGE, base.path, _REWRITE, size_bytes=base.size_bytes)
    for name, rows in sorted(wrong_statistics.items()):
        cure = f"read column {name} with lakeformat.read.skipping=false until cluster() has written the file again"
        yield Finding(Kind.STATISTICS, base.path, cure, rows, base.size_bytes)


def _count_true(flags: pa.Array) -> int:
    return int(pc.sum(flags).as_py() or 0)


def _denied(bloom: BloomFilter | None, keys: pa.Array) -> int:
    if bloom is None or not len(keys):
        return 0
    try:
        chains = hash_chain_blocks(keys, bloom.hashes)
        return sum(int(np.count_nonzero(~bloom.might_contain(chain))) for _, chain in chains)
    except InvalidInputError:  # An empty key: no reader looks up empty keys in a filter.
        return 0


def parquet_facts(metadata: Any) -> tuple[bytes | None, bytes | None]:
    """Return the least and the greatest key that the footer records; None for each that is missing."""
    entries = (metadata.metadata or {}) if metadata is not None else {}
    return entries.get(MIN_KEY), entries.get(MAX_KEY)


def _is_outside(stated: tuple[bytes | None, bytes | None], seen: KeyRange) -> bool:
    """Tell whether a key that was seen lies outside the range that the footer states."""
    low, high = stated
    if low is None or high is None or seen.minimum is None or seen.maximum is None:
        return False
    wider = KeyRange(low.decode("utf-8", "replace"), high.decode("utf-8", "replace"))
    least, greatest = wider.minimum, wider.maximum
    wider.add(pa.array([seen.minimum, seen.maximum]))
    return (wider.minimum, wider.maximum) != (least, greatest)


def _compare(parquet: OpenParquet, group: int, batch: pa.RecordBatch, wrong_statistics: dict[str, int]) -> None:
    """Add to `lies` the number of values outside the row group's statistics, by column."""
    row_group, read = parquet.metadata.row_group(group), set(batch.schema.names)
    for at in range(row_group.num_columns):
        chunk = row_group.column(at)
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
        whole = sum(block.size_bytes for block in blocks_of(source, log.path, log.size_bytes))
    if whole != log.size_bytes:
        cure = "readers pass it over; compact() leaves it behind"
        yield Finding(Kind.TORN_LOG, log.path, cure, size_bytes=log.size_bytes - whole)


def _find_duplicates(found: Sequence[tuple[FileSlice, pa.ChunkedArray]]) -> Iterator[Finding]:
    """Yield keys that occur more than once, in one file group or in two. `insert` allows such keys."""
    if not found:
        return
    keys = pa.chunked_array([chunk for _, column in found for chunk in column.chunks], pa.string())
    owners = np.repeat(np.arange(len(found), dtype=np.int32), [len(column) for _, column in found])
    rows = pa.table({"key": keys, "owner": owners})
    counts = rows.group_by("key").aggregate([("owner", "min"), ("owner", "max"), ("owner", "count")])
    again = counts.filter(pc.greater(counts.column("owner_count"), 1))
    pairs = again.group_by(["owner_min", "owner_max"]).aggregate(
        [("owner_count", "sum"), ("key", "count"), ("key", "min")]
    )
    for pair in pairs.sort_by([("owner_min", "ascending"), ("owner_max", "ascending")]).to_pylist():
        first, last = found[pair["owner_min"]][0], found[pair["owner_max"]][0]
        extra = pair["owner_count_sum"] - pair["key_count"]
        path = first.files[0].path
        others = f" and {pair['key_count'] - 1:,} more" if pair["key_count"] > 1 else ""
        named = f"{pair['key_min']!r}{others}: lakeformat dedupe, or dedupe(), lists the rows and keeps the newest"
        if first is last:
            yield Finding(Kind.KEY_TWICE, path, f"key {named}", extra, first.size_bytes)
        else:
            cure = f"the other one is {last.files[0].path}; key {named}"
            yield Finding(Kind.KEY_IN_TWO_GROUPS, path, cure, extra, first.size_bytes)
