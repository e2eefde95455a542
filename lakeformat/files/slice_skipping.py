"""The parts of a file slice with log files that a filter needs: none, or the log files and some row groups.

A slice holds no match, and is not read, in these cases:

- If each row comes whole from the base file or from a log block: the bounds of each row group and of each log block
  rule out a match.
- If rows are merged field by field: the joint bounds of all row groups and log blocks rule out a match. Their separate
  bounds are not enough, because a merged row may match by one field of the base row and another of the log row.

If the slice is read, a row group of its base file is skipped under two conditions:

- The filter rules out the rows of the row group.
- No log row that might match has a key in the row group's key range. Otherwise the base row of such a log row could be
  in the row group, and the two must be merged.

Deletes, and log rows that cannot match, need no base row from such a row group: the merged record does not match.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from lakeformat.codec.log_blocks import BlockKind, LogBlock
from lakeformat.files.footer_bounds import fold_files, row_group_bounds
from lakeformat.merge.order import any_within
from lakeformat.merge.versions import Versions
from lakeformat.model.record import RECORD_KEY
from lakeformat.predicate import ColumnBounds, Predicate, columns_of, mask, may_match, path_parts
from lakeformat.predicate.nodes import statistics_paths
from lakeformat.predicate.rows import may_fail
from lakeformat.storage.port import Storage

__all__ = ["Skipping", "SliceFooters", "choose_row_groups", "groups_with_keys", "may_hold_match", "read_block_footers"]

Flags = npt.NDArray[np.bool_]

#: Size of the end of a Parquet file: 4 bytes for the length of the footer, 4 for the magic.
_TAIL_BYTES: Final = 8
_MAGIC: Final = b"PAR1"


@dataclass(frozen=True, slots=True)
class Skipping:
    """The filter that decides what a reader may leave out. Picklable.

    Attributes:
        predicate: the filter, bound to ``table``. Rows that it does not select need not be read.
        table: all columns as readers see them, meta columns included.
    """

    predicate: Predicate
    table: pa.Schema

    @property
    def paths(self) -> list[str]:
        """Return the paths of the columns in the filter."""
        return list(statistics_paths(self.predicate))


@dataclass(frozen=True, slots=True)
class SliceFooters:
    """The facts about a slice that are known without reading rows.

    Attributes:
        base: footer of the base file; None if there is none.
        blocks: footers of the data blocks; None if one of them has no footer, such as an Avro block.
        combines_fields: whether one row may combine fields of base and log rows.
        without_statistics: columns whose statistics in the footers cannot be used.
    """

    base: pq.FileMetaData | None
    blocks: Sequence[pq.FileMetaData] | None
    combines_fields: bool
    without_statistics: Collection[str] = ()


def _read_known_bounds(
    footers: Sequence[pq.FileMetaData], skipping: Skipping, without_statistics: Collection[str]
) -> tuple[Mapping[str, ColumnBounds], pa.Array]:
    """Return the known bounds of the filter's columns in each row group, and the row counts."""
    paths = [path for path in skipping.paths if path_parts(path)[0] not in without_statistics]
    bounds, rows, _ = row_group_bounds(footers, paths, skipping.table)
    return bounds, rows


def may_hold_match(footers: SliceFooters, skipping: Skipping) -> bool:
    """Tell whether the slice may hold a row that the filter selects."""
    if footers.blocks is None:
        return True
    every = [*([footers.base] if footers.base else []), *footers.blocks]
    bounds, rows = _read_known_bounds(every, skipping, footers.without_statistics)
    if footers.combines_fields and len(rows):
        bounds, rows = fold_files(bounds, rows, np.zeros(len(rows), np.int64), 1)
    return bool(may_match(skipping.predicate, bounds, rows).any())


def choose_row_groups(footers: SliceFooters, skipping: Skipping, logs: Versions, *, keys_known: bool) -> list[int]:
    """Return the row groups of the base file that must be read: rows of these may match before or after the merge.

    Args:
        logs: the log records, merged to one per record key, with the filter's columns.
        keys_known: whether the base file's footer has statistics of its record key column.
    """
    assert footers.base is not None  # noqa: S101  Callers check that there is a base file.
    chosen = may_match(skipping.predicate, *_read_known_bounds([footers.base], skipping, footers.without_statistics))
    if chosen.all():
        return list(range(len(chosen)))
    # A log row may lose against its base row, so it must not be tested if it could be an error.
    untested = footers.combines_fields or not keys_known or may_fail(skipping.predicate)
    risky = _risky_keys(logs, skipping, every=untested)
    if len(risky) and not keys_known:
        return list(range(len(chosen)))
    if len(risky):
        chosen[groups_with_keys(footers.base, risky, skipping.table)] = True
    groups: list[int] = np.flatnonzero(chosen).tolist()
    return groups


def groups_with_keys(footer: pq.FileMetaData, keys: pa.Array | pa.ChunkedArray, table: pa.Schema) -> list[int]:
    """Return the row groups of a base file that may hold one of these record keys."""
    ranges, _, _ = row_group_bounds([footer], [RECORD_KEY], table)
    lows, highs = ranges[RECORD_KEY].minimum, ranges[RECORD_KEY].maximum
    return [
        group
        for group, (low, high) in enumerate(zip(lows, highs, strict=True))
        if not (low.is_valid and high.is_valid) or any_within(keys, low, high)
    ]


def _risky_keys(logs: Versions, skipping: Skipping, *, every: bool) -> pa.ChunkedArray:
    """Return the record keys of the log rows that might match the filter after the merge with the base file.

    Args:
        every: whether to return the keys of all log rows. This is needed if a log row that does not match might match
            after the merge.
    """
    held = logs.row >= 0
    if not every and logs.rows.num_rows:
        filtered = columns_of(skipping.predicate)
        needed = logs.rows.select([name for name in logs.rows.schema.names if name in filtered])
        selected = np.asarray(mask(skipping.predicate, needed)).astype(bool)
        held[held] = selected[logs.row[held]]
    return logs.keys.filter(pa.array(held))


def read_block_footers(storage: Storage, blocks: Sequence[LogBlock]) -> Sequence[pq.FileMetaData] | None:
    """Read the Parquet footers of the data blocks. Return None if a block is not Parquet or its footer is damaged."""
    data = [block for block in blocks if block.kind is not BlockKind.DELETE]
    if any(block.kind is not BlockKind.PARQUET_DATA for block in data):
        return None
    footers: list[pq.FileMetaData] = []
    for block in data:
        with storage.open_input(block.path) as source:
            footer = _read_block_footer(source, block)
        if footer is None:
            return None
        footers.append(footer)
    return footers


def _read_block_footer(source: Any, block: LogBlock) -> pq.FileMetaData | None:
    """Read the footer of a Parquet block. Return None if it is damaged: the reader of the block reports the damage."""
    end = block.content_offset + block.content_bytes
    if block.content_bytes < _TAIL_BYTES + len(_MAGIC):
        return None
    source.seek(end - _TAIL_BYTES)
    tail = source.read(_TAIL_BYTES)
    length = int.from_bytes(tail[:4], "little")
    if tail[4:] != _MAGIC or length > block.content_bytes - _TAIL_BYTES - len(_MAGIC):
        return None
    source.seek(end - _TAIL_BYTES - length)
    try:
        return pq.read_metadata(pa.BufferReader(_MAGIC + source.read(length + _TAIL_BYTES)))
    except (pa.ArrowException, OSError):
        return None
