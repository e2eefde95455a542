"""Tables as dask DataFrames: ``pip install 'lakeformat[dask]'``.

Examples::

    from lakeformat.integrations.dask import read_table, write_table

    frame = read_table("/data/flights", ["carrier", "distance"], where="month = 3")
    result = write_table(frame, "/data/far", "upsert")
"""

from __future__ import annotations

from functools import partial
from typing import Any

import pyarrow as pa

from lakeformat.extras import install_line

try:
    import dask
    import dask.dataframe as dd
    import pandas as pd
except ModuleNotFoundError as error:
    raise ImportError(f"lakeformat.integrations.dask needs {error.name}; {install_line('dask')}") from None

from lakeformat.integrations.staging import Stage, StagedFile, StagedWrite
from lakeformat.integrations.tables import TableOrPath, make_scan
from lakeformat.model.operation import Operation
from lakeformat.read.parts import ReadPart
from lakeformat.transaction.commit.result import WriteResult

__all__ = ["read_table", "write_table"]


def read_table(
    table: TableOrPath, columns: list[str] | None = None, *, at_least: int = 1, **options: Any
) -> dd.DataFrame:
    """Return a dask DataFrame over one snapshot of a table. Nothing is read yet.

    Each partition is one part of the table; its divisions are unknown. Only the columns that a computation needs are
    read. dask does not pass filters to its sources, so give a condition as ``where`` to skip files. Columns have the
    pandas types of Arrow (``pd.ArrowDtype``), because numpy's types depend on whether a partition has nulls.

    Args:
        table: the table, or its path.
        columns: wanted columns; all by default.
        at_least: wanted number of partitions. There may be fewer, because each has some megabytes to read, or more.
        options: ``where``, ``as_of``, ``meta_columns`` and ``time_zone`` as in `lakeformat.Table.read`; for a path also
            the options of `lakeformat.open`.

    Raises:
        LakeformatError: as in `lakeformat.open` and `lakeformat.Table.read`.
    """
    scan = make_scan(table, columns, options)
    parts = scan.parts(at_least)
    meta = _to_pandas(scan.schema.empty_table())
    if not parts:
        return dd.from_pandas(meta, npartitions=1)
    return dd.from_map(_read_partition, parts, meta=meta, label="read-lakeformat")


def _read_partition(part: ReadPart, columns: list[str] | None = None) -> pd.DataFrame:
    """Return the rows of a part. dask gives the columns that a computation needs."""
    return _to_pandas(part.narrow(columns).to_batches().read_all())


def _to_pandas(rows: pa.Table) -> pd.DataFrame:
    return rows.to_pandas(types_mapper=pd.ArrowDtype)


def write_table(
    frame: dd.DataFrame, table: TableOrPath, operation: Operation | str | None = None, **arguments: Any
) -> WriteResult:
    """Compute a dask DataFrame, and write its rows to a table in one commit.

    A task for each partition writes the rows to an Arrow file beside the table. Then this process reads the files as a
    stream and makes one commit. If a task fails, the table is unchanged. If two rows have the same key, and the table
    has no ordering field, the row of the later partition wins. The index is written only if the table has a column of
    its name.

    Args:
        table: an existing table, or its path.
        operation: as in `lakeformat.Table.write`. By default the option ``hoodie.datasource.write.operation`` of the
            table, else ``upsert``, or ``insert`` for a table without record key.
        arguments: ``combine``, ``options``, ``validators``, ``callbacks`` and ``extra_metadata`` as in
            `lakeformat.Table.write`.

    Returns:
        as `lakeformat.Table.write`.

    Raises:
        LakeformatError: as in `lakeformat.Table.write`.
    """
    write = StagedWrite(table, operation, arguments)
    kept = [name for name in frame._meta.index.names if name in write.column_names()]
    stage = dask.delayed(partial(_stage_partition, write.stage, kept), pure=False)
    try:
        staged = dask.compute(*(stage(part, number) for number, part in enumerate(frame.to_delayed())))
    except BaseException:
        write.stage.discard()
        raise
    return write.commit(file for files in staged for file in files)


def _stage_partition(stage: Stage, kept: list[str], frame: pd.DataFrame, number: int) -> list[StagedFile]:
    """Write the rows of a partition to the stage folder. ``kept`` are the levels of the index that are columns."""
    rows = frame.reset_index(level=kept) if kept else frame
    return stage.write([pa.Table.from_pandas(rows, preserve_index=False)], number)
