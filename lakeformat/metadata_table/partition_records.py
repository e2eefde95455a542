"""Records of `MetadataPartition.PARTITION_STATS`: the statistics of all live files of a partition, joined. Pure.

A partition's record covers the rows of its live base files and log files. Hudi 1.2.0 leaves out a partition that has no
record, and a partition whose record has no bounds. So all columns of all files must be known. Hudi:
``HoodieTableMetadataUtil.convertMetadataToPartitionStatRecords``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakeformat.metadata_table.bounds import typed_bounds, wrapped_bounds
from lakeformat.metadata_table.names import bloom_key, partition_of_key, partition_prefix, statistics_prefix
from lakeformat.predicate import resolve_column

__all__ = ["find_unmeasured", "indexed_columns", "partition_rows", "partition_stats_keys"]

_COUNTS = ("values", "nulls", "size_bytes", "unpacked_bytes")


def indexed_columns(columns: Sequence[str], schema: pa.Schema, *, stores_types: bool) -> dict[str, pa.DataType]:
    """Return the columns that have statistics, with their types.

    Args:
        columns: Names of the indexed columns. Those that the schema lacks, or whose type is not indexed, are left out.
        schema: The table's columns, with the meta columns.
    """
    names = frozenset(schema.names)
    types = {name: resolve_column(name, schema)[1] for name in columns if name.partition(".")[0] in names}
    return {
        name: of
        for name, of in types.items()
        if wrapped_bounds(pa.nulls(0, of), pa.nulls(0, of), stores_types=stores_types) is not None
    }


def partition_stats_keys(partitions: Sequence[str], columns: Sequence[str]) -> pa.Array:
    """Return the keys of all records of these partitions."""
    return pa.array([statistics_prefix(column, path) for path in partitions for column in columns], pa.string())


def find_unmeasured(
    files: Sequence[tuple[str, str]], statistics: pa.Table, types: Mapping[str, pa.DataType]
) -> list[tuple[str, str]]:
    """Return the files of which the statistics lack a column, or do not know its bounds.

    Args:
        files: Partition path and name of each file.
        statistics: Rows of `MetadataTable.column_stats`.
        types: The result of `indexed_columns`.
    """
    ends = pa.array([bloom_key(*file) for file in files], pa.string())
    lacking = np.zeros(len(files), np.bool_)
    for column, data_type in types.items():
        rows = _rows_of(statistics, column)
        measured = rows["key"].filter(pa.array(_are_known(rows, data_type)))
        lacking |= ~np.asarray(pc.is_in(pc.binary_join_element_wise(statistics_prefix(column), ends, ""), measured))
    return [files[number] for number in np.flatnonzero(lacking).tolist()]


def partition_rows(
    partitions: Sequence[str], statistics: pa.Table, types: Mapping[str, pa.DataType], *, stores_types: bool
) -> pa.Table:
    """Return a tight record for each partition and column.

    Args:
        partitions: Paths of the partitions. Each has at least one file.
        statistics: Rows of `MetadataTable.column_stats`: of all live files of the partitions, and of no other files.
        types: The result of `indexed_columns`. The bounds of all files are known (`find_unmeasured`).
        stores_types: Whether the type of a column is stored beside its bounds (from table version 9 on).
    """
    paths = pa.array(partitions, pa.string())
    prefixes = pa.array(map(partition_prefix, partitions), pa.string())
    tables = []
    for column, data_type in types.items():
        rows = _rows_of(statistics, column)
        low, high = _bounds(rows, data_type)
        values = {"low": low, "high": high, **{name: rows[name] for name in _COUNTS}}
        owned = pa.table({"owner": pc.index_in(partition_of_key(rows["key"]), prefixes), **values})
        aggregates = [("low", "min"), ("high", "max"), *((name, "sum") for name in _COUNTS)]
        joined = owned.group_by("owner", use_threads=False).aggregate(aggregates).combine_chunks()
        own_paths = paths.take(joined["owner"].combine_chunks())
        bounds = (joined[name].combine_chunks() for name in ("low_min", "high_max"))
        keys = [statistics_prefix(column, path) for path in own_paths.to_pylist()]
        stored = wrapped_bounds(*bounds, stores_types=stores_types)
        assert stored is not None  # noqa: S101  `indexed_columns` has chosen the types.
        record = {
            "key": pa.array(keys, pa.string()),
            "file_name": own_paths,
            "column_name": pa.repeat(column, len(joined)),
            **{name: joined[f"{name}_sum"].combine_chunks() for name in _COUNTS},
            "is_deleted": pa.repeat(False, len(joined)),
            "is_tight": pa.repeat(True, len(joined)),
            **stored,
        }
        tables.append(pa.table(record))
    return pa.concat_tables(tables, promote_options="default")


def _rows_of(statistics: pa.Table, column: str) -> pa.Table:
    return statistics.filter(pc.equal(statistics["column_name"], column)).combine_chunks()


def _bounds(rows: pa.Table, data_type: pa.DataType) -> tuple[pa.Array, pa.Array]:
    """Return the bounds of each row. A column without a value has none: Hudi stores such bounds of booleans."""
    nothing = pa.scalar(None, data_type)
    is_empty = pc.equal(rows["nulls"], rows["values"]).combine_chunks().fill_null(False)
    low, high = (pc.if_else(is_empty, nothing, bound) for bound in typed_bounds(rows, data_type))
    return low, high


def _are_known(rows: pa.Table, data_type: pa.DataType) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    """Return for each row whether its counts and both bounds are known, or that the column has no value."""
    low, high = _bounds(rows, data_type)
    nulls, values = (np.asarray(rows[name].fill_null(-1)) for name in ("nulls", "values"))
    has_bounds = np.asarray(pc.and_(low.is_valid(), high.is_valid()))
    are_known: np.ndarray[tuple[int], np.dtype[np.bool_]] = (
        (nulls >= 0) & (values >= nulls) & (has_bounds | (values == nulls))
    )
    return are_known
