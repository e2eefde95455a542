"""Footers of the files that a commit has written, and of live files, for their records in the metadata table.

`IndexedColumns` says of which columns the metadata table stores statistics.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from lakeformat.arrow.kinds import Kind, kind_of
from lakeformat.codec.log_blocks import BlockKind, LogBlock
from lakeformat.concurrency import run_all
from lakeformat.files.footers import open_base, open_parquet
from lakeformat.files.log_reader import decode_blocks, read_blocks
from lakeformat.files.slice_skipping import read_block_footers
from lakeformat.merge.versions import LogRows
from lakeformat.metadata_table import partition_records
from lakeformat.metadata_table.index_definitions import StatisticsForm
from lakeformat.metadata_table.new_records import MeasuredFile, NewFile, NewLog, statistics_keys, statistics_rows
from lakeformat.model.files import BaseFile, LogFile
from lakeformat.storage.port import Storage

__all__ = ["IndexedColumns", "measure_files", "read_base", "read_log"]

#: Maximum number of files that are read at once.
_THREADS: Final = 8
_DATA: Final = frozenset({BlockKind.AVRO_DATA, BlockKind.PARQUET_DATA})
#: Kinds of blocks without rows.
_ROWLESS: Final = frozenset({BlockKind.DELETE, BlockKind.COMMAND})


@dataclass(frozen=True)
class IndexedColumns:
    """The columns of a table of which its metadata table stores statistics.

    Attributes:
        form: their names, and how their bounds are stored. Columns that the schema lacks, or whose type is not indexed,
            have no statistics.
        schema: the columns of the table's files, with the meta columns.
    """

    form: StatisticsForm
    schema: pa.Schema

    @cached_property
    def types(self) -> Mapping[str, pa.DataType]:
        """Return the columns that have statistics, with their types."""
        return partition_records.indexed_columns(self.form.columns, self.schema, stores_types=self.form.stores_types)

    @cached_property
    def floats(self) -> tuple[str, ...]:
        """Return the float columns among them. Footers do not count their NaN."""
        floats = (field.name for field in self.schema if kind_of(field.type) is Kind.FLOAT)
        return tuple(name for name in floats if name in self.form.columns)

    def rows_of_files(self, files: Sequence[MeasuredFile]) -> pa.Table | None:
        """Return the statistics of the files whose bounds are all known; None if none is."""
        if not files:
            return None
        return statistics_rows(files, self.form.columns, self.schema, stores_types=self.form.stores_types)

    def rows_of_partitions(self, partitions: Sequence[str], statistics: pa.Table) -> pa.Table:
        """Return the statistics of partitions, from those of all their files."""
        return partition_records.partition_rows(partitions, statistics, self.types, stores_types=self.form.stores_types)

    def keys_of(self, files: Iterable[tuple[str, str]]) -> pa.Array:
        """Return the keys of the statistics of files, which are given by partition path and name."""
        return statistics_keys(files, list(self.types))

    def find_unmeasured(self, files: Sequence[tuple[str, str]], statistics: pa.Table | None) -> list[tuple[str, str]]:
        """Return the files of which the statistics lack a column, or do not know its bounds."""
        return [*files] if statistics is None else partition_records.find_unmeasured(files, statistics, self.types)


def measure_files(storage: Storage, files: Sequence[BaseFile | LogFile], columns: IndexedColumns) -> list[MeasuredFile]:
    """Read the footers of base files and of the blocks of log files. Leave out log files with blocks of unknown kinds.

    Float columns are read, to look for NaN.
    """
    floats = columns.floats

    def read(file: BaseFile | LogFile) -> MeasuredFile | None:
        if isinstance(file, BaseFile):
            return read_base(storage, file, floats)
        return read_log(storage, file, columns.form.columns, floats)

    return [file for file in run_all(read, files, threads=_THREADS) if file is not None]


def read_base(
    storage: Storage, base: BaseFile, floats: Iterable[str] = (), nan_counts: dict[str, int] | None = None
) -> NewFile:
    """Read the footer of a base file. Look for NaN in these columns.

    Args:
        floats: names of float columns.
        nan_counts: maps columns to their numbers of NaN, where they are known.
    """
    counts = dict(nan_counts or {})
    with open_base(storage, base) as source:
        parquet = open_parquet(source, base.path)
        there = frozenset(parquet.schema_arrow.names)
        for name in floats:
            if name not in counts and name in there:
                counts[name] = _count_nan(parquet.read([name])[name])
        return NewFile(base, parquet.metadata, frozenset(name for name, count in counts.items() if not count))


def read_log(storage: Storage, log: LogFile, columns: Collection[str], floats: Collection[str] = ()) -> NewLog | None:
    """Read the footers of the data blocks of a log file. Return None if it has blocks of an unknown kind.

    Rows of Avro blocks are decoded, and so are float columns, to look for NaN. Memory: these columns of one block.

    Args:
        columns: names of the columns that are needed.
        floats: names of the float columns among them.
    """
    blocks = read_blocks(storage, log)
    if any(block.kind not in _DATA | _ROWLESS for block in blocks):
        return None
    data = [block for block in blocks if block.kind in _DATA]
    footers = read_block_footers(storage, data)
    wanted_columns = {*columns} if footers is None else {*floats}
    made: list[pq.FileMetaData] = []
    has_nan = dict.fromkeys(floats, False)
    for rows in _read_rows(storage, data, wanted_columns) if wanted_columns else ():
        for name in rows.schema.names:
            if name in has_nan and _count_nan(rows[name]):
                has_nan[name] = True
        if footers is None:
            made.append(_make_footer(rows))
    return NewLog(log, tuple(footers or made), frozenset(name for name, nan_found in has_nan.items() if not nan_found))


def _read_rows(storage: Storage, blocks: Sequence[LogBlock], columns: Collection[str]) -> Iterable[pa.Table]:
    for part in decode_blocks(storage, blocks, columns=columns):
        if isinstance(part, LogRows):
            yield part.rows


def _make_footer(rows: pa.Table) -> pq.FileMetaData:
    """Return the footer that the rows have in a Parquet file: it has their bounds and counts."""
    sink = pa.BufferOutputStream()
    pq.write_table(rows, sink, compression="none", use_dictionary=False)
    return pq.read_metadata(pa.BufferReader(sink.getvalue()))


def _count_nan(values: pa.ChunkedArray) -> int:
    return pc.sum(pc.is_nan(values)).as_py() or 0
