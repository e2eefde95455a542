"""Step 5: the bytes of a row in a base file. A sample of the rows is encoded and measured.

Hudi takes ``averageBytesPerRecord`` from earlier commits, or ``hoodie.copyonwrite.record.size.estimate``. Neither fits
rows that are wider or narrower than the earlier ones. Here the writer of base files writes a run of the new rows into
memory, with the meta columns, filter, footer, codec and dictionaries of a real file.

Memory: the rows of half a row group, and the same rows encoded.
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

__all__ = ["encoded_bytes", "file_sizing", "max_encoded_bytes", "measure_row_bytes"]

_NAME: Final = BaseFileName("00000000-0000-0000-0000-000000000000-0", "0-0-0", "20000101000000000")
#: Number of runs measured if runs are short; the widest run counts.
_RUNS: Final = 3
#: Most rows in a measured run; more rows hardly change the result.
_MOST_ROWS: Final = ROW_GROUP_ROWS // 2
#: Least rows in a measured run; a shorter run does not represent the other rows.
_LEAST_ROWS: Final = 64
#: Upper bound of the bytes of a row's meta columns, filter and levels, without the key.
_META_BYTES: Final = 128
#: Upper bound of the bytes of a column's footer entries.
_COLUMN_BYTES: Final = 1024


def file_sizing(options: Options, row_bytes: float, empty_bytes: int = 0) -> FileSizing:
    """Return how inserts are spread over files, for rows of this size.

    Args:
        row_bytes: bytes of one more row in a file.
        empty_bytes: bytes of a file without rows.
    """
    per_file = None
    if not options.write.auto_split:
        per_file = options.write.split_rows
    most, small = options.write.file_bytes, options.write.small_bytes
    return FileSizing(row_bytes, most, small, empty_bytes, per_file)


def encoded_bytes(rows: pa.Table, files: FileSettings) -> int:
    """Return the size in bytes of a base file with exactly these prepared rows. Columns that the rows lack are null,
    even required ones.
    """
    files = replace(files, schema=pa.schema([field.with_nullable(True) for field in files.schema]))
    sink = pa.BufferOutputStream()
    with BaseFileWriter(sink, "", _NAME, files) as writer:
        if rows.num_rows:
            writer.write(stamped(rows, files.schema, _NAME.instant_time, 0, 0))
        writer.close()
        return writer.size_bytes


def max_encoded_bytes(rows: pa.Table, count: int, columns: int) -> float:
    """Return an upper bound of the bytes that ``count`` of these rows take in a file, without encoding them."""
    share = count / max(rows.num_rows, 1)
    return float(2 * rows.nbytes * share + _META_BYTES * count + _COLUMN_BYTES * columns)


def measure_row_bytes(rows: pa.Table, new: npt.NDArray[np.int64], files: FileSettings) -> float:
    """Return the bytes of one more row in a file of the target size, without the constant bytes of a file.

    Savings by dictionaries and codecs depend on the number of rows. So as many rows are encoded as a file will hold,
    but at most half a row group.

    Args:
        rows: prepared rows of one partition.
        new: positions of the rows to insert, in the order in which they will be written; at least one.
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
