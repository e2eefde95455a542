"""Records about base files and log files, from their footers: column statistics and bloom filters.

Hudi reads a file that has no statistics. It is not known what Hudi does if a file has statistics of some indexed
columns only. So a file gets statistics of all indexed columns or of none. The statistics of a log file are those of the
rows in its data blocks; deletes do not count. A base file without rows has no stored statistics, but a log file without
rows has. Hudi: ``HoodieTableMetadataUtil``, ``HoodieAppendHandle``.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from lakeformat.files.footer_bounds import fold_files, row_group_bounds
from lakeformat.files.footers import BLOOM, BLOOM_TYPE
from lakeformat.metadata_table.bounds import wrapped_bounds
from lakeformat.metadata_table.names import bloom_key, statistics_prefix
from lakeformat.model.files import BaseFile, LogFile
from lakeformat.model.record import COMMIT_SEQNO
from lakeformat.predicate import ColumnBounds

__all__ = [
    "MeasuredFile",
    "NewFile",
    "NewLog",
    "filter_rows",
    "statistics_keys",
    "statistics_rows",
    "stored_statistics",
]


@dataclass(frozen=True, slots=True)
class NewFile:
    """A base file that a commit has written.

    Attributes:
        footer: Its Parquet footer.
        nan_free: Paths of its float columns that have no NaN, because footers do not count NaN.
    """

    file: BaseFile
    footer: pq.FileMetaData
    nan_free: frozenset[str] = frozenset()

    @property
    def name(self) -> str:
        """Return the bare name of the file."""
        return str(self.file.name)

    @property
    def footers(self) -> tuple[pq.FileMetaData, ...]:
        """Return the footer of the file."""
        return (self.footer,)


@dataclass(frozen=True, slots=True)
class NewLog:
    """A log file that a commit has written.

    Attributes:
        footers: The Parquet footers of its data blocks.
        nan_free: Paths of its float columns that have no NaN.
    """

    file: LogFile
    footers: tuple[pq.FileMetaData, ...]
    nan_free: frozenset[str] = frozenset()

    @property
    def name(self) -> str:
        """Return the bare name of the file."""
        return str(self.file.name)


MeasuredFile: TypeAlias = NewFile | NewLog


def filter_rows(files: Sequence[NewFile], instant_time: str) -> pa.Table | None:
    """Return the records of `MetadataPartition.BLOOM_FILTERS`; None if a file has no bloom filter.

    Args:
        instant_time: The time of the commit.
    """
    entries = [file.footer.metadata or {} for file in files]
    if not all(BLOOM in entry and BLOOM_TYPE in entry for entry in entries):
        return None
    keys = [bloom_key(file.file.partition_path, file.name) for file in files]
    return pa.table(
        {
            "key": pa.array(keys, pa.string()),
            "type": pa.array([entry[BLOOM_TYPE].decode() for entry in entries], pa.string()),
            "instant_time": pa.repeat(instant_time, len(files)),
            "filter": pa.array([entry[BLOOM] for entry in entries], pa.binary()),
            "is_deleted": pa.repeat(False, len(files)),
        }
    )


def statistics_rows(
    files: Sequence[MeasuredFile], columns: Sequence[str], schema: pa.Schema, *, stores_types: bool
) -> pa.Table | None:
    """Return the records of `MetadataPartition.COLUMN_STATS` of the files whose bounds are all known; None if none is.

    Args:
        columns: Names of the indexed columns. Those that the schema lacks, or that have another type than an indexed
            column can have, are skipped.
        schema: The table's columns, with the meta columns.
        stores_types: Whether the type of a column is stored beside its bounds (from table version 9 on).
    """
    there = [column for column in columns if column.partition(".")[0] in frozenset(schema.names)]
    footers = [(number, footer, file.nan_free) for number, file in enumerate(files) for footer in file.footers]
    file_of = np.array([number for number, _, _ in footers], np.int64)
    bounds, counts, owners = row_group_bounds(
        [footer for _, footer, _ in footers], there, schema, [of for *_, of in footers]
    )
    folded, counts = fold_files(bounds, counts, file_of[owners], len(files))
    bounds = {
        column: _sequence_bounds(of_column) if column == COMMIT_SEQNO else of_column
        for column, of_column in folded.items()
    }
    wrapped = {
        column: columns_of
        for column, of_column in bounds.items()
        if (columns_of := wrapped_bounds(of_column.minimum, of_column.maximum, stores_types=stores_types)) is not None
    }
    if not wrapped:
        return None
    is_known = pa.array(np.logical_and.reduce([_is_known(bounds[column], counts) for column in wrapped]))
    ends = pa.array([bloom_key(file.file.partition_path, file.name) for file in files], pa.string())
    names = pa.array([file.name for file in files], pa.string())
    tables = []
    for column, stored in wrapped.items():
        sizes, unpacked = _chunk_bytes(files, column)
        rows = {
            "key": pc.binary_join_element_wise(statistics_prefix(column), ends, ""),
            "file_name": names,
            "column_name": pa.repeat(column, len(files)),
            "values": counts,
            "nulls": bounds[column].null_count,
            "size_bytes": sizes,
            "unpacked_bytes": unpacked,
            "is_deleted": pa.repeat(False, len(files)),
            "is_tight": pa.repeat(False, len(files)),
            **stored,
        }
        tables.append(pa.table(rows).filter(is_known))
    return pa.concat_tables(tables, promote_options="default")


def stored_statistics(rows: pa.Table) -> pa.Table:
    """Return the records that the metadata table stores: those of base files without rows are left out."""
    is_log = pc.starts_with(rows["file_name"], ".")
    return rows.filter(pc.or_(is_log, pc.not_equal(rows["values"], 0)))


def _sequence_bounds(bounds: ColumnBounds) -> ColumnBounds:
    """Return bounds of sequence numbers, which begin with a digit: lakeformat's files have no statistics of them."""
    low, high = (pc.fill_null(bound, end) for bound, end in ((bounds.minimum, "0"), (bounds.maximum, ":")))
    return ColumnBounds(low, high, pc.fill_null(bounds.null_count, 0), bounds.nan_count)


def _is_known(bounds: ColumnBounds, counts: pa.Array) -> npt.NDArray[np.bool_]:
    """Return for each file whether both bounds are known, or that the column has no value."""
    has_bounds = pc.and_(bounds.minimum.is_valid(), bounds.maximum.is_valid())
    if bounds.nan_count is not None:
        has_bounds = pc.and_(has_bounds, pc.equal(bounds.nan_count, 0).fill_null(False))
    is_empty = pc.equal(bounds.null_count, counts).fill_null(False)
    return np.asarray(pc.and_(bounds.null_count.is_valid(), pc.or_(has_bounds, is_empty)))


def _chunk_bytes(files: Sequence[MeasuredFile], column: str) -> tuple[pa.Array, pa.Array]:
    """Return the size of a column in each file, as stored and unpacked, in bytes; 0 for log files, as Hudi does."""
    sizes = np.zeros((2, len(files)), np.int64)
    for file_number, file in enumerate(files):
        if isinstance(file, NewLog):
            continue
        place = _leaf_of(file.footer, column)
        for number in range(file.footer.num_row_groups if place is not None else 0):
            chunk = file.footer.row_group(number).column(place)
            sizes[:, file_number] += (chunk.total_compressed_size, chunk.total_uncompressed_size)
    return pa.array(sizes[0]), pa.array(sizes[1])


def _leaf_of(footer: pq.FileMetaData, column: str) -> int | None:
    schema = footer.schema
    leaves = (number for number in range(len(schema)) if schema.column(number).path == column)
    return next(leaves, None)


def statistics_keys(files: Iterable[tuple[str, str]], columns: Sequence[str]) -> pa.Array:
    """Return the keys of all records of `MetadataPartition.COLUMN_STATS` about these files.

    Args:
        files: Partition path and name of each file.
    """
    ends = [bloom_key(*file) for file in files]
    return pa.array([statistics_prefix(column) + end for column in columns for end in ends], pa.string())
