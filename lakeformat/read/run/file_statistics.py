"""Statistics of the files of a read, for engines that scan the files themselves. No rows are read."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lakeformat.arrow.kinds import Kind, kind_of
from lakeformat.concurrency import thread_pool
from lakeformat.file_system_view.live_files import FILE_COLUMNS, file_objects
from lakeformat.file_system_view.snapshot import Snapshot
from lakeformat.files.footer_bounds import fold_files, row_group_bounds
from lakeformat.files.footers import read_metadata
from lakeformat.predicate import ColumnBounds, Comparison, Predicate, may_match
from lakeformat.storage.port import Storage

__all__ = ["NO_FOLDERS", "FileStatistics", "FolderValues", "file_statistics", "find_folder_values", "may_be_zero"]

#: Maximum number of files without bounds in the file index whose footers are read. If there are more, none is read.
_MOST_FOOTERS: Final = 1024


@dataclass(frozen=True)
class FileStatistics:
    """The files of a read, and the bounds of some of their columns, from the file index.

    Attributes:
        files: a table with `FILE_COLUMNS`, a row per file.
        bounds: mapping of column path to bounds with an entry per file. A column without known bounds may be left out.
        without_nan: paths of float columns that are known to hold no NaN in any of the files.
    """

    files: pa.Table
    bounds: Mapping[str, ColumnBounds]
    without_nan: frozenset[str]

    @property
    def rows(self) -> int | None:
        """Return the number of rows of all files; None if it is not known for each file."""
        counts = self.files.column("rows")
        return None if counts.null_count else pc.sum(counts, min_count=0).as_py()


@dataclass(frozen=True)
class FolderValues:
    """The folders in which all rows have the same values of some columns.

    Attributes:
        values: a row per folder, with the values of these columns.
        rows: mapping of folder to its row number in ``values``. Folders that may have several values are left out.
    """

    values: pa.Table
    rows: Mapping[str, int]


NO_FOLDERS: Final = FolderValues(pa.table({}), {})


def file_statistics(
    snapshot: Snapshot, kept: Collection[str], columns: Mapping[str, pa.DataType], predicate: Predicate | None = None
) -> FileStatistics:
    """Return the column statistics of some files from the file index.

    Memory: some 150 bytes per file, and the requested bounds.

    Args:
        kept: paths of the files; other files are left out.
        columns: paths of the columns whose bounds are requested, and their types.
        predicate: the filter that chose the files. It lets the index skip shards without a match.
    """
    kept_paths = pa.array(sorted(kept), pa.string())
    files, parts = [FILE_COLUMNS.empty_table()], list[dict[str, ColumnBounds]]()
    without_nan = {path for path, of in columns.items() if kind_of(of) is Kind.FLOAT}
    for portion in snapshot.live.portions(list(columns), predicate):
        flags = pc.is_in(_paths(portion.files), kept_paths)
        files.append(portion.files.filter(flags))
        rows = files[-1].column("rows").combine_chunks()
        parts.append({path: _bounds(portion.bounds.get(path), of, flags) for path, of in columns.items()})
        for path in [*without_nan]:
            of = portion.bounds.get(path)
            counts = None if of is None else of.nan_count
            if not _is_nan_free(None if counts is None else counts.filter(flags), parts[-1][path].null_count, rows):
                without_nan.discard(path)
    bounds = {path: _concat_bounds([part[path] for part in parts]) for path in columns} if parts else {}
    return FileStatistics(pa.concat_tables(files), bounds, frozenset(without_nan))


def may_be_zero(statistics: FileStatistics, column: str) -> bool:
    """Tell by bounds whether a float column may contain a zero in any of the files."""
    if column not in statistics.bounds:
        return True
    zero = Comparison(column, "=", pa.scalar(0.0, statistics.bounds[column].minimum.type))
    rows = statistics.files.column("rows").combine_chunks()
    return bool(may_match(zero, {column: statistics.bounds[column]}, rows).any())


def _is_nan_free(counts: pa.Array | None, nulls: pa.Array, rows: pa.Array) -> bool:
    """Tell whether no file may hold NaN: in each file the count of NaN is 0, or all values are null."""
    none = pc.fill_null(pc.equal(nulls, rows), False)
    if counts is not None:
        none = pc.or_(none, pc.fill_null(pc.equal(counts, 0), False))
    return bool(pc.all(none, min_count=0).as_py())


def _paths(files: pa.Table) -> pa.Array:
    folders, names = (files.column(name).combine_chunks() for name in ("partition_path", "name"))
    joined = pc.binary_join_element_wise(folders, names, "/")
    return pc.if_else(pc.equal(folders, ""), names, joined)


def _bounds(bounds: ColumnBounds | None, of: pa.DataType, flags: pa.BooleanArray) -> ColumnBounds:
    """Return a column's bounds for the requested files only, with one entry per such file.

    All entries are null, which means unknown, if the index has no bounds of the column, or if the type of the bounds is
    not ``of``.

    Args:
        bounds: the column's bounds from the index, with an entry per file of a portion; None if the index has none.
        of: the requested type of the column.
        flags: for each file of the portion, whether the file is requested.
    """
    if bounds is None or not bounds.minimum.type.equals(of):
        count = pc.sum(flags, min_count=0).as_py()
        return ColumnBounds(pa.nulls(count, of), pa.nulls(count, of), pa.nulls(count, pa.int64()))
    minimum, maximum, nulls = (values.filter(flags) for values in (bounds.minimum, bounds.maximum, bounds.null_count))
    return ColumnBounds(minimum, maximum, nulls.cast(pa.int64()))


def find_folder_values(
    storage: Storage, statistics: FileStatistics, columns: Sequence[str], schema: pa.Schema
) -> FolderValues:
    """Find, from column statistics, the folders in which each of the columns has the same value in all rows.

    Return these folders with their values. Folder names are not trusted, for two reasons:

    - Under a global index that does not move rows, a row may be in the folder of another value.
    - The folder name of a date may represent several values.

    If at most `_MOST_FOOTERS` files have no statistics in the index, their footers are read. If a column has one value
    in only half of the folders or fewer, the column is ignored.

    Args:
        columns: names of columns of the table. Columns without bounds in ``statistics`` give no values.
        schema: the table's columns.
    """
    comparable = [name for name in columns if name in statistics.bounds and _is_comparable(schema.field(name).type)]
    folders = statistics.files.column("partition_path").combine_chunks().dictionary_encode()
    count = len(folders.dictionary)
    if not comparable or not count:
        return NO_FOLDERS
    bounds, rows = _add_footer_statistics(storage, statistics, comparable, schema)
    of_file = folders.indices.to_numpy().astype(np.int64)
    values_of = {name: _find_one_value(bounds[name], rows, of_file, count) for name in comparable}
    chosen = [name for name, (_, same) in values_of.items() if 2 * int(same.sum()) > count]
    if not chosen:
        return NO_FOLDERS
    same = np.logical_and.reduce([values_of[name][1] for name in chosen])
    names = folders.dictionary.filter(pa.array(same)).to_pylist()
    values = pa.table({name: values_of[name][0].filter(pa.array(same)) for name in chosen})
    return FolderValues(values, {name: position for position, name in enumerate(names)})


def _find_one_value(
    bounds: ColumnBounds, rows: pa.Array, of_file: npt.NDArray[np.int64], folders: int
) -> tuple[pa.Array, npt.NDArray[np.bool_]]:
    """Return for each folder a value of the column, and whether all rows in the folder are known to have it."""
    nulls = bounds.null_count
    empty = pc.fill_null(pc.equal(nulls, rows), False)
    single = pc.fill_null(pc.and_(pc.equal(nulls, 0), pc.equal(bounds.minimum, bounds.maximum)), False)
    values = pc.if_else(empty, pa.scalar(None, bounds.minimum.type), bounds.minimum)
    codes = pc.dictionary_encode(values, null_encoding="encode")
    numbers = codes.indices.to_numpy().astype(np.int64)
    lowest, highest = np.full(folders, len(codes.dictionary)), np.full(folders, -1)
    np.minimum.at(lowest, of_file, numbers)
    np.maximum.at(highest, of_file, numbers)
    same = lowest == highest
    same[of_file[~np.asarray(pc.or_(empty, single))]] = False
    return codes.dictionary.take(pa.array(highest)), same


def _add_footer_statistics(
    storage: Storage, statistics: FileStatistics, columns: Sequence[str], schema: pa.Schema
) -> tuple[Mapping[str, ColumnBounds], pa.Array]:
    """Return the bounds and row count of every file. If few files lack statistics in the index, read their footers."""
    rows = statistics.files.column("rows").combine_chunks()
    is_known = np.asarray(pc.is_valid(rows))
    for name in columns:
        is_known = is_known & np.asarray(pc.is_valid(statistics.bounds[name].null_count))
    missing = np.flatnonzero(~is_known)
    if not len(missing) or len(missing) > _MOST_FOOTERS:
        return statistics.bounds, rows
    files = file_objects(statistics.files.take(pa.array(missing)))
    with thread_pool(max(2, pa.cpu_count())) as pool:
        footers = list(pool.map(lambda file: read_metadata(storage, file), files))
    read, read_rows = fold_files(*row_group_bounds(footers, columns, schema), len(files))
    order = np.arange(len(is_known))
    order[missing] = len(is_known) + np.arange(len(missing))
    return (
        {name: _concat_bounds([statistics.bounds[name], read[name]], order) for name in columns},
        pa.concat_arrays([rows, read_rows.cast(pa.int64())]).take(pa.array(order)),
    )


def _is_comparable(of: pa.DataType) -> bool:
    """Tell whether a partition column may have this type, and equal bounds of it prove that all values are equal.

    For floats, equal bounds prove nothing: bounds leave out NaN, and 0.0 and -0.0 compare as equal.
    """
    return kind_of(of) in (Kind.TEXT, Kind.INTEGER, Kind.BOOLEAN, Kind.DATE)


def _concat_bounds(parts: Sequence[ColumnBounds], order: npt.NDArray[np.int64] | None = None) -> ColumnBounds:
    def concat_in_order(arrays: Sequence[pa.Array]) -> pa.Array:
        whole = pa.concat_arrays(arrays)
        return whole if order is None else whole.take(pa.array(order))

    return ColumnBounds(
        concat_in_order([part.minimum for part in parts]),
        concat_in_order([part.maximum for part in parts]),
        concat_in_order([part.null_count.cast(pa.int64()) for part in parts]),
    )
