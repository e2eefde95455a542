"""Steps 3 and 5 of a read (``docs/design/read-path.md``): pruning of files by name, and packing of files into splits.

No file is opened. Splits have about equal bytes. Large files are cut between row groups.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lakeformat.file_system_view.folder_values import find_misplaced_rows, partition_column_values
from lakeformat.files.open_slice import SliceMergeRules
from lakeformat.files.stored_shape import StoredShape
from lakeformat.model.files import BaseFileName, FileSlice
from lakeformat.model.keys import KeySettings
from lakeformat.model.record import COMMIT_TIME, FILE_NAME, PARTITION_PATH
from lakeformat.predicate import ColumnBounds, Predicate, may_match

__all__ = ["FilePart", "Part", "SlicePart", "Split", "pack_splits", "prune_by_name"]

Flags = npt.NDArray[np.bool_]


def prune_by_name(
    files: pa.Table,
    predicate: Predicate,
    filter_paths: Collection[str],
    keys: KeySettings,
    schema: pa.Schema,
    bounds: Mapping[str, ColumnBounds],
    *,
    meta_columns: bool = True,
    trusts_folders: bool = False,
) -> tuple[Flags, Flags]:
    """Decide by partition path, file name and instant which files may contain a matching row.

    Args:
        files: a table of `lakeformat.file_system_view.live_files.FILE_COLUMNS`.
        filter_paths: paths of the columns whose bounds can rule out rows (`ReadQuery.filter_paths`).
        bounds: mapping of these column paths to their known bounds, an entry per file.
        meta_columns: whether rows have the meta columns.
        trusts_folders: whether rows always have the partition values of their folder.

    Returns:
        two flags per file: whether the file may hold a match, and whether the first flag is in doubt. It is in doubt if
        only the folder's partition value rules the file out, and rows of the file may have another partition value.
        With ``trusts_folders``, no flag is in doubt.
    """
    count = files.num_rows
    unknown = pa.nulls(count, pa.int64())
    folders = files.column("partition_path").combine_chunks().dictionary_encode()
    newest = files.column("instant_time").combine_chunks()
    names = {
        PARTITION_PATH: _single_value_bounds(folders.dictionary_decode()),
        FILE_NAME: _single_value_bounds(files.column("name").combine_chunks()),
        COMMIT_TIME: ColumnBounds(pa.nulls(count, pa.string()), newest, unknown),
    }
    if not meta_columns:
        names.clear()
    values_of = partition_column_values(folders.dictionary.to_pylist(), keys, schema)
    values = {name: of.take(folders.indices) for name, of in values_of.items() if name in filter_paths}
    flags = may_match(predicate, {**names, **{name: _single_value_bounds(of) for name, of in values.items()}}, unknown)
    doubted = np.zeros(count, np.bool_)
    by_value = ~flags & may_match(predicate, names, unknown) if values and not flags.all() else doubted
    if by_value.any() and not trusts_folders:
        off, is_known = find_misplaced_rows(values, bounds)
        flags |= by_value & off & is_known
        doubted = by_value & ~is_known
    return flags, doubted


def _single_value_bounds(values: pa.Array) -> ColumnBounds:
    """Return the bounds of a column with one value in each file; they are null if the value is not known."""
    nulls = pc.if_else(pc.is_valid(values), pa.scalar(0, pa.int64()), pa.scalar(None, pa.int64()))
    return ColumnBounds(values, values, nulls)


@dataclass(frozen=True, slots=True)
class FilePart:
    """Row groups of one base file.

    Attributes:
        size_bytes: compressed bytes of the row groups.
        row_groups: numbers of the row groups; None means all.
        nan_free: paths of the filter's float columns that hold no NaN in this file. The file's footer does not show
            this.
        shape: the conversion of the file's columns into the table's; None if they are the same.
        rows: number of rows of the row groups; None if it is not known.
    """

    path: str
    size_bytes: int
    row_groups: tuple[int, ...] | None = None
    nan_free: tuple[str, ...] = ()
    shape: StoredShape | None = None
    rows: int | None = None

    @property
    def columns_without_statistics(self) -> frozenset[str]:
        """Return the columns whose statistics in the file's footer do not describe the table's column."""
        return frozenset() if self.shape is None else self.shape.columns_without_statistics(self.instant_time)

    @property
    def instant_time(self) -> str:
        """Return the instant time of the commit that wrote the file."""
        return BaseFileName.parse(self.path.rpartition("/")[2]).instant_time


@dataclass(frozen=True, slots=True)
class SlicePart:
    """A file slice with log files. It is never divided among splits, because its files must be merged. Picklable.

    Attributes:
        merging: how the files are merged, and which log blocks are visible.
        replacing_only: whether to read only the rows that the log files changed or added; see
            `lakeformat.files.replaced_rows`. Another reader reads the other rows of the base file.
    """

    slice: FileSlice
    merging: SliceMergeRules
    replacing_only: bool = False

    @property
    def path(self) -> str:
        """Return the path of the base file, or of the first log file if there is no base file."""
        return (self.slice.base or self.slice.logs[0]).path

    @property
    def size_bytes(self) -> int:
        """Return the total size of the files to read in bytes."""
        return self.log_bytes if self.replacing_only else self.slice.size_bytes

    @property
    def rows(self) -> None:
        """Return None: the number of rows is known only after the log files are merged."""

    @property
    def log_bytes(self) -> int:
        """Return the bytes of the log files, which are read before the first row."""
        return sum(log.size_bytes for log in self.slice.logs)


Part: TypeAlias = FilePart | SlicePart


@dataclass(frozen=True, slots=True)
class Split:
    """The files, row groups and slices that one task reads. Picklable."""

    parts: tuple[Part, ...]

    @property
    def size_bytes(self) -> int:
        """Return the compressed bytes of all parts."""
        return sum(part.size_bytes for part in self.parts)

    @property
    def rows(self) -> int | None:
        """Return the number of rows of all parts; None if that of one part is not known."""
        return _sum_known(part.rows for part in self.parts)


def _sum_known(counts: Iterable[int | None]) -> int | None:
    """Return the sum of the counts; None if one of them is None."""
    listed = list(counts)
    known_counts = [count for count in listed if count is not None]
    return sum(known_counts) if len(known_counts) == len(listed) else None


def pack_splits(parts: Iterable[Part], split_bytes: int, at_least: int = 1) -> tuple[Split, ...]:
    """Group parts, in order, into splits of about ``split_bytes`` at most.

    Args:
        at_least: the wanted number of splits. Splits are made smaller than ``split_bytes`` to get about this many.
    """
    listed = list(parts)
    total = sum(part.size_bytes for part in listed)
    limit = max(1, min(split_bytes, -(-total // max(1, at_least))))
    splits: list[Split] = []
    current: list[Part] = []
    size = 0
    for part in listed:
        # A split ends where its size is nearest to the limit, which keeps the sizes even.
        if current and size + part.size_bytes / 2 > limit:
            splits.append(Split(tuple(current)))
            current, size = [], 0
        current.append(part)
        size += part.size_bytes
    if current:
        splits.append(Split(_join_parts(current)))
    return tuple(Split(_join_parts(split.parts)) for split in splits)


def _join_parts(parts: Sequence[Part]) -> tuple[Part, ...]:
    """Join adjacent parts of one file into one part with the row groups of both."""
    joined: list[Part] = []
    for part in parts:
        last = joined[-1] if joined else None
        if isinstance(part, FilePart) and isinstance(last, FilePart) and last.path == part.path and part.row_groups:
            groups = (*(last.row_groups or ()), *part.row_groups)
            rows = _sum_known((last.rows, part.rows))
            joined[-1] = replace(part, size_bytes=last.size_bytes + part.size_bytes, row_groups=groups, rows=rows)
        else:
            joined.append(part)
    return tuple(joined)
