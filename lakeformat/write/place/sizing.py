"""Bytes of a row as it will stand in a base file: the rows themselves are encoded and measured.

Hudi takes ``averageBytesPerRecord`` from earlier commits, or ``hoodie.copyonwrite.record.size.estimate``: both say
nothing of rows that are wider or narrower than those before. Here a run of the new rows goes through the writer of
base files into memory, with meta columns, filter, footer, codec and dictionaries as they will be.

Memory: the rows of half a row group, and the same encoded.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lakeformat.codec.gather import gather
from lakeformat.config.resolve import Options
from lakeformat.files.base_file import ROW_GROUP_ROWS, BaseFileWriter, FileSettings, stamped
from lakeformat.model.files import BaseFileName
from lakeformat.write.place.buckets import FileSizing

__all__ = ["encoded_bytes", "file_sizing", "measured_row_bytes", "most_bytes"]

_NAME: Final = BaseFileName("00000000-0000-0000-0000-000000000000-0", "0-0-0", "20000101000000000")
#: Runs of rows measured, of short ones; the widest counts.
_RUNS: Final = 3
#: More rows of a large write say little more.
_MOST_ROWS: Final = ROW_GROUP_ROWS // 2
#: A run shorter than that says nothing of the rows behind it.
_LEAST_ROWS: Final = 64
#: Meta columns, filter and levels of a row come to less than this many bytes, without the key.
_META_BYTES: Final = 128
#: Footer entries of a column and its row groups.
_COLUMN_BYTES: Final = 1024


def file_sizing(options: Options, row_bytes: float, empty_bytes: int = 0) -> FileSizing:
    """How inserts are spread, for rows of this size.

    Args:
        empty_bytes: of a file without rows.
    """
    per_file = None
    if not options.write.auto_split:
        per_file = options.write.split_rows
    most, small = options.write.file_bytes, options.write.small_bytes
    return FileSizing(row_bytes, most, small, empty_bytes, per_file)


def encoded_bytes(rows: pa.Table, files: FileSettings) -> int:
    """Size of the base file that holds exactly these prepared rows; columns they lack are null, required or not."""
    files = replace(files, schema=pa.schema([field.with_nullable(True) for field in files.schema]))
    sink = pa.BufferOutputStream()
    with BaseFileWriter(sink, "", _NAME, files) as writer:
        if rows.num_rows:
            writer.write(stamped(rows, files.schema, _NAME.instant_time, 0, 0))
        writer.close()
        return writer.size_bytes


def most_bytes(rows: pa.Table, count: int, columns: int) -> float:
    """More than ``count`` of these rows can take in a file, known without encoding them."""
    share = count / max(rows.num_rows, 1)
    return float(2 * rows.nbytes * share + _META_BYTES * count + _COLUMN_BYTES * columns)


def measured_row_bytes(rows: pa.Table, new: npt.NDArray[np.int64], files: FileSettings) -> float:
    """Bytes of one more row in a file of the wanted size, without what every file costs.

    What a dictionary or a codec saves depends on how many rows are together, so as many are encoded as a file
    will hold, half a row group at most.

    Args:
        rows: prepared rows of one partition.
        new: positions of those to insert, in the order in which they will be written; at least one.
    """
    empty = encoded_bytes(rows.slice(0, 0), files)
    most = max(1, min(_MOST_ROWS, int(files.row_group_bytes // 2 * rows.num_rows // max(rows.nbytes, 1))))
    run = min(len(new), most)
    while True:
        last = len(new) - run
        starts = [last // 2] if run == most else np.unique(np.linspace(0, last, _RUNS, dtype=np.int64)).tolist()
        sizes = [encoded_bytes(gather(rows, new[start : start + run]), files) for start in starts]
        row_bytes = max(1.0, (max(sizes) - empty) / run)
        fitting = math.ceil(files.max_file_bytes / row_bytes)
        if fitting >= run or run <= min(_LEAST_ROWS, most):
            return row_bytes
        run = min(max(fitting, _LEAST_ROWS), most)
