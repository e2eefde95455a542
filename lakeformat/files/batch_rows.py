"""How many rows of a row group are decoded at a time, so that a batch stays small in bytes.

A footer tells what plain pages hold, but of dictionaries, and of texts that share their beginnings, only the encoded
size: ten pages may hold a gigabyte of text. Such a column is asked: a dictionary for its longest value, and where that
may be too much, the column alone is decoded once and measured.

Memory: of a column that is measured its dictionary and places, or `_WINDOW` values.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from lakeformat.codec.row_bytes import decoded_bytes, value_ends

__all__ = ["MOST_BYTES", "OpenParquet", "leaves_of", "rows_at_a_time"]

#: Decoded bytes of a batch, about, unless the caller says otherwise.
MOST_BYTES: Final = 128 << 20

#: Bytes of a decoded value, by physical type.
_WIDTHS: Final = {"BOOLEAN": 1, "INT32": 4, "FLOAT": 4, "INT64": 8, "DOUBLE": 8, "INT96": 8}
#: Encodings whose values may be far larger than their pages.
_DENSE: Final = frozenset({"PLAIN_DICTIONARY", "RLE_DICTIONARY", "DELTA_BYTE_ARRAY"})
#: Rows measured together.
_WINDOW: Final = 64
#: A row group of this many batches may hold most of its bytes in a few rows: it is read in shorter ones.
_LARGE: Final = 8
_SHORT_ROWS: Final = 1024


class OpenParquet(pq.ParquetFile):  # type: ignore[misc]
    """A Parquet file that knows where it came from, so that it can be opened once more with other options."""

    def __init__(self, source: Any, **options: Any) -> None:
        super().__init__(source, page_checksum_verification=True, **options)
        self.from_source = source
        self.as_dictionaries = frozenset(options.get("read_dictionary") or ())

    def with_dictionary(self, path: str) -> OpenParquet:
        """The same file; the column at this path comes as a dictionary."""
        return OpenParquet(self.from_source, metadata=self.metadata, read_dictionary=[path])


def leaves_of(parquet: pq.ParquetFile, columns: Iterable[str]) -> list[int]:
    """Positions of the leaf columns below these columns."""
    schema, wanted = parquet.metadata.schema, set(columns)
    paths = [schema.column(at).path for at in range(len(schema))]
    return [at for at, path in enumerate(paths) if path in wanted or path.partition(".")[0] in wanted]


def rows_at_a_time(parquet: OpenParquet, group: int, leaves: Sequence[int], rows: int, most_bytes: int) -> int:
    """Rows of a batch of this row group: ``rows``, or as many as take ``most_bytes`` decoded, at least one.

    Args:
        leaves: positions of the leaf columns that are read.
    """
    found = parquet.metadata.row_group(group)
    known, dense = 0, list[str]()
    for at in leaves:
        chunk = found.column(at)
        kind, values, stored = chunk.physical_type, chunk.num_values, chunk.total_uncompressed_size
        if kind in _WIDTHS:
            known += _WIDTHS[kind] * values
        elif kind == "FIXED_LEN_BYTE_ARRAY":
            known += parquet.metadata.schema.column(at).length * values
        else:
            known += stored + 4 * values
            path = chunk.path_in_schema
            if values * stored > most_bytes and path not in parquet.as_dictionaries and _DENSE & {*chunk.encodings}:
                dense.append(path)
    windows = -(-found.num_rows // _WINDOW)
    measured = np.zeros(windows, np.int64)
    for path in dense:
        longest = _longest(parquet, group, path)
        if longest is not None and known + longest * found.num_rows <= most_bytes:
            known += longest * found.num_rows
        else:
            measured += _measured(parquet, group, path, windows, is_dictionary=longest is not None)
    if known + int(measured.sum()) <= most_bytes:
        return rows
    short = min(rows, _SHORT_ROWS) if known > _LARGE * most_bytes else rows
    return _step(measured + known // windows, found.num_rows, short, most_bytes)


def _longest(parquet: OpenParquet, group: int, path: str) -> int | None:
    """Bytes of the longest value in the dictionary; None where there is no dictionary to be had."""
    values = _first_column(parquet.with_dictionary(path), group, path, 1)
    if values is None or not pa.types.is_dictionary(values.type):
        return None
    return int(np.diff(value_ends(values.dictionary)).max(initial=0))


def _first_column(parquet: OpenParquet, group: int, path: str, rows: int) -> pa.Array | None:
    if "." in path or "DELTA_BYTE_ARRAY" in _encodings(parquet, group, path):
        return None  # Of lists, and of such texts, Arrow makes no dictionaries.
    batch = next(parquet.iter_batches(rows, row_groups=[group], columns=[path], use_threads=False), None)
    return None if batch is None else batch.column(0)


def _encodings(parquet: OpenParquet, group: int, path: str) -> Sequence[str]:
    found = parquet.metadata.row_group(group)
    chunks = (found.column(at) for at in range(found.num_columns))
    return next(chunk.encodings for chunk in chunks if chunk.path_in_schema == path)


def _measured(
    parquet: OpenParquet, group: int, path: str, windows: int, *, is_dictionary: bool
) -> npt.NDArray[np.int64]:
    """Decoded bytes of a column, window by window."""
    found = np.zeros(windows, np.int64)
    rows = 1024 * _WINDOW if is_dictionary else _WINDOW
    again = parquet.with_dictionary(path) if is_dictionary else parquet
    first = 0
    for batch in again.iter_batches(rows, row_groups=[group], columns=[path], use_threads=False):
        if is_dictionary:
            starts = np.arange(0, batch.num_rows, _WINDOW)
            ends = value_ends(batch.column(0))
            sums = ends[np.minimum(starts + _WINDOW, batch.num_rows)] - ends[starts]
            found[first // _WINDOW :][: len(sums)] += sums
        else:
            found[min(first // _WINDOW, windows - 1)] += decoded_bytes(batch)
        first += batch.num_rows
    return found


def _step(windows: npt.NDArray[np.int64], group_rows: int, rows: int, most_bytes: int) -> int:
    """The most rows, by halves, of which no batch takes more."""
    count = max(1, min(rows, group_rows) // _WINDOW)
    while count > 1 and int(np.add.reduceat(windows, np.arange(0, len(windows), count)).max()) > most_bytes:
        count //= 2
    worst = int(windows.max(initial=0))
    if count > 1 or worst <= most_bytes:
        return min(rows, count * _WINDOW)
    return max(1, min(rows, _WINDOW * most_bytes // worst))
