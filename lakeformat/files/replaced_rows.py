"""The rows of a base file that its log files replace or delete, and the rows that take their place.

An engine with its own Parquet scan reads a slice in two parts: the base file without the replaced rows, and the
replacing rows. Together they are the rows of `read_slice`. Both parts find the replaced rows in the same way, so that
no row is lost or doubled:

- By the row numbers in the log files, if every log record has one; else by record key, in the base file's key column.
- If rows are replaced as a whole and the base file's row wins by its ordering value, the row is not replaced. Only its
  ordering value is read.
- If a merged row may have values of both files, those row groups of the base file that have replaced rows are read.

Memory: the records of the log files, as in `read_slice`, 16 bytes for each of them, and one batch of the base file.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lakeformat.arrow.conform import conform
from lakeformat.arrow.gather import gather
from lakeformat.arrow.row_bytes import split_positions
from lakeformat.files.open_slice import OpenSlice, SliceMergeRules
from lakeformat.files.slice_skipping import groups_with_keys
from lakeformat.merge.slice_merge import SliceMerge
from lakeformat.merge.versions import Versions
from lakeformat.model.files import FileSlice
from lakeformat.storage.port import Storage

__all__ = ["find_numbered_rows", "find_replaced_rows", "read_replacing_rows"]

Ints = npt.NDArray[np.int64]

#: Number of rows, and bytes, of a batch of key or ordering columns. Each batch builds a hash table of the log keys.
_KEY_ROWS: Final = 1 << 20
_KEY_BYTES: Final = 64 << 20


@dataclass(frozen=True, slots=True)
class _Replaced:
    """The replaced rows of a base file.

    Attributes:
        rows: their row numbers, ascending.
        matched: for each of them the position of the record in the log files' `Versions`.
        in_base: for each log record whether the base file has a row of it, replaced or not.
    """

    rows: Ints
    matched: Ints
    in_base: npt.NDArray[np.bool_]


def find_replaced_rows(storage: Storage, piece: FileSlice, merging: SliceMergeRules, table: pa.Schema) -> Ints:
    """Return the ascending row numbers of the base file's rows that the log files replace or delete.

    Args:
        merging: the merge. The files must store the table's columns as they are, and all commits must be selected.
        table: all columns as readers see them, meta columns included.

    Raises:
        CorruptTableError, UnsupportedTableError: as `read_slice`.
    """
    with ExitStack() as stack:
        opened = OpenSlice(storage, piece, merging, table, (), stack)
        logs = opened.logs(keys=False)
        return _find(opened, logs, opened.merge(logs), table).rows


def find_numbered_rows(storage: Storage, piece: FileSlice, merging: SliceMergeRules, table: pa.Schema) -> Ints | None:
    """Return the rows of `find_replaced_rows`, without reading columns of the base file.

    Return None if such columns are needed: a log record has no row number, or a row of the base file may win.

    Arguments and errors as in `find_replaced_rows`.
    """
    with ExitStack() as stack:
        opened = OpenSlice(storage, piece, merging, table, (), stack)
        if not opened.has_row_numbers:
            return None
        logs = opened.logs(keys=False)
        merge = opened.merge(logs)
        replaces_all = opened.by_position and (not merge.rule.ordering or opened.combines_fields)
        return _find(opened, logs, merge, table).rows if replaces_all else None


def read_replacing_rows(
    storage: Storage,
    piece: FileSlice,
    merging: SliceMergeRules,
    table: pa.Schema,
    columns: Sequence[str],
    *,
    most_rows: int,
    most_bytes: int,
    threads: bool = True,
) -> Iterator[pa.RecordBatch]:
    """Yield the rows that take the place of the rows of `find_replaced_rows`, and those that only the log files have.

    Arguments and errors as in `find_replaced_rows` and `read_slice`.
    """
    with ExitStack() as stack:
        opened = OpenSlice(storage, piece, merging, table, columns, stack)
        logs = opened.logs()
        merge = opened.merge(logs)
        replaced = _find(opened, logs, merge, table)
        schema = pa.schema([table.field(name) for name in columns])
        if opened.combines_fields:
            for start, batch in opened.base_batches(
                most_rows, most_bytes, _groups_of(opened, replaced.rows), threads=threads
            ):
                first, end = np.searchsorted(replaced.rows, [start, start + batch.num_rows])
                rows = batch.take(pa.array(replaced.rows[first:end] - start))
                for merged in merge.merge_matches(rows, np.arange(end - first), replaced.matched[first:end]):
                    yield conform(merged, schema)
        replacing = replaced.matched[:0] if opened.combines_fields else replaced.matched
        rows_left = np.concatenate([logs.row[replacing], logs.row[~replaced.in_base]])
        for some in split_positions(logs.rows, rows_left[rows_left >= 0], most_rows, most_bytes):
            yield from conform(gather(logs.rows, some), schema).combine_chunks().to_batches()


def _find(opened: OpenSlice, logs: Versions, merge: SliceMerge, table: pa.Schema) -> _Replaced:
    in_base = np.zeros(len(logs), bool)
    if opened.parquet is None or not len(logs):
        return _Replaced(np.zeros(0, np.int64), np.zeros(0, np.int64), in_base)
    keeps_base = bool(merge.rule.ordering) and not opened.combines_fields
    if opened.by_position and not keeps_base:
        order = np.argsort(logs.position, kind="stable")
        return _Replaced(logs.position[order], order, ~in_base)
    footer = opened.parquet.metadata
    groups = _groups_of(opened, logs.position) if opened.by_position else groups_with_keys(footer, logs.keys, table)
    names = tuple(dict.fromkeys(merge.rule.base_columns(by_position=opened.by_position)))
    pairs: list[tuple[Ints, Ints]] = []
    for start, batch in opened.base_batches(_KEY_ROWS, _KEY_BYTES, groups, threads=True, columns=names):
        positions, matched = merge.find_matches(batch, start if opened.by_position else None)
        in_base[matched] = True
        if keeps_base:
            replaced = ~merge.base_wins(batch, positions, matched)
            positions, matched = positions[replaced], matched[replaced]
        pairs.append((positions + start, matched))
    none = np.zeros(0, np.int64)
    rows = np.concatenate([none, *(rows for rows, _ in pairs)])
    records = np.concatenate([none, *(records for _, records in pairs)])
    return _Replaced(rows, records, in_base)


def _groups_of(opened: OpenSlice, rows: Ints) -> list[int]:
    """Return the row groups of the base file that have these rows."""
    assert opened.parquet is not None  # noqa: S101  Callers check that there is a base file.
    footer = opened.parquet.metadata
    ends = np.cumsum([footer.row_group(group).num_rows for group in range(footer.num_row_groups)])
    groups: list[int] = np.unique(np.searchsorted(ends, rows, side="right")).tolist()
    return groups
