"""Step 3: leave out files by their folder and name, without opening them."""

from __future__ import annotations

from collections.abc import Collection, Mapping

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lakeformat.file_system_view.folder_values import find_misplaced_rows, partition_column_values
from lakeformat.model.keys import KeySettings
from lakeformat.model.record import COMMIT_TIME, FILE_NAME, PARTITION_PATH
from lakeformat.predicate import ColumnBounds, Predicate, may_match

__all__ = ["prune_by_name"]

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
    """Decide by partition path, file name and instant which files may hold a match.

    Args:
        files: a table of `lakeformat.file_system_view.live_files.FILE_COLUMNS`.
        filter_paths: paths of the columns of the filter; see `ReadQuery.filter_paths`.
        bounds: known bounds of the filter's columns.
        meta_columns: whether rows have the meta columns.
        trusts_folders: whether rows have the partition values of their folder by definition.

    Returns:
        two flags per file: whether it may hold a match, and whether only a partition value leaves it out although it is
        not known whether its rows have that value.
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
    found = partition_column_values(folders.dictionary.to_pylist(), keys, schema)
    values = {name: of.take(folders.indices) for name, of in found.items() if name in filter_paths}
    flags = may_match(predicate, {**names, **{name: _single_value_bounds(of) for name, of in values.items()}}, unknown)
    doubted = np.zeros(count, np.bool_)
    by_value = ~flags & may_match(predicate, names, unknown) if values and not flags.all() else doubted
    if by_value.any() and not trusts_folders:
        off, known = find_misplaced_rows(values, bounds)
        flags |= by_value & off & known
        doubted = by_value & ~known
    return flags, doubted


def _single_value_bounds(values: pa.Array) -> ColumnBounds:
    """Return the bounds of a column that has one value per file; null if the value is not known."""
    nulls = pc.if_else(pc.is_valid(values), pa.scalar(0, pa.int64()), pa.scalar(None, pa.int64()))
    return ColumnBounds(values, values, nulls)
