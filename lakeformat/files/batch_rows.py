"""The choice of the number of rows that are decoded at a time, so that a batch stays small in bytes.

A footer gives the decoded size of plain pages. For a column that is encoded with a dictionary or by common prefixes,
the footer gives only the encoded size, and ten pages may decode to a gigabyte of text. Such a column is measured:

1. Its longest dictionary value is measured. This value, times the number of rows, limits the decoded size.
2. If there is no dictionary, or the decoded size may still be too large, the column alone is decoded once and measured.

Memory: the dictionary and indices of a column that is measured, or `_WINDOW` values.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from lakeformat.arrow.conform import conform_array, is_any_list, with_element
from lakeformat.arrow.kinds import Kind, kind_of
from lakeformat.arrow.listing_file import SAFE_OPTIONS
from lakeformat.arrow.row_bytes import decoded_bytes, value_ends

__all__ = ["MOST_BYTES", "OpenParquet", "choose_batch_rows", "leaf_positions"]

#: Default for the approximate maximum size of a decoded batch, in bytes.
MOST_BYTES: Final = 128 << 20

#: Bytes of a decoded value, by physical type.
_WIDTHS: Final = {"BOOLEAN": 1, "INT32": 4, "FLOAT": 4, "INT64": 8, "DOUBLE": 8, "INT96": 8}
#: Encodings whose values may be far larger than their pages.
_DENSE: Final = frozenset({"PLAIN_DICTIONARY", "RLE_DICTIONARY", "DELTA_BYTE_ARRAY"})
#: Number of rows for which the decoded size of a column is measured together.
_WINDOW: Final = 64
_MOST_WINDOWS: Final = 1 << 21
#: Files in memory and mapped files of at most this many bytes are decoded without reading ahead.
_SMALL_FILE: Final = 4 << 20
#: If the columns that are not decoded to measure them take more than this many times the bytes of a batch, a batch has
#: at most `_SHORT_ROWS` rows. Only the average size of the rows is known, and a few rows may take most of the bytes.
_LARGE: Final = 8
_SHORT_ROWS: Final = 1024


class OpenParquet(pq.ParquetFile):  # type: ignore[misc]
    """A Parquet file that keeps its source, so that it can be opened again with other options.

    INT96 is read as a moment in UTC, in microseconds, as Spark, Hive and Impala write it. Arrow by itself gives
    timestamps without a zone, in nanoseconds, which only reach from 1677 to 2262.
    """

    def __init__(self, source: Any, **options: Any) -> None:
        super().__init__(
            source,
            coerce_int96_timestamp_unit="us",
            pre_buffer=_gains_by_reading_ahead(source),
            **SAFE_OPTIONS,
            **options,
        )
        self.from_source = source
        self.as_dictionaries = frozenset(options.get("read_dictionary") or ())

    @property
    def schema_arrow(self) -> pa.Schema:
        """Return the Arrow schema of the file."""
        return self._moments or super().schema_arrow

    def iter_batches(self, *args: Any, **named: Any) -> Iterator[pa.RecordBatch]:
        """Yield batches, as the method of pyarrow does."""
        batches = super().iter_batches(*args, **named)
        return batches if self._moments is None else (_with_moments(batch, self._moments) for batch in batches)

    def read(self, *args: Any, **named: Any) -> pa.Table:
        """Read the file, as the method of pyarrow does."""
        table = super().read(*args, **named)
        return table if self._moments is None else _with_moments(table, self._moments)

    @cached_property
    def _moments(self) -> pa.Schema | None:
        """Return the Arrow schema with INT96 as moments in UTC; None if the file has no INT96."""
        if " int96 " not in str(self.schema):
            return None
        leaves = (self.schema.column(leaf).physical_type == "INT96" for leaf in range(len(self.schema)))
        schema = super().schema_arrow
        return pa.schema([field.with_type(_zoned(field.type, leaves)) for field in schema], schema.metadata)

    def with_dictionary(self, path: str) -> OpenParquet:
        """Open the same file again and read the column at this path as a dictionary."""
        return OpenParquet(self.from_source, metadata=self.metadata, read_dictionary=[path])


def _gains_by_reading_ahead(source: Any) -> bool:
    """Tell whether Arrow should request the pages of all columns before it decodes them, in another thread.

    This pays for files that answer slowly. For a small file in memory it costs a third of the whole read.
    """
    return not isinstance(source, (pa.MemoryMappedFile, pa.BufferReader)) or source.size() > _SMALL_FILE


def _zoned(kind: pa.DataType, leaves: Iterator[bool]) -> pa.DataType:
    """Give the leaves of a type that are stored as INT96 the zone UTC.

    Args:
        leaves: tells for each leaf of the type, in order, whether it is stored as INT96.
    """
    if kind_of(kind) is Kind.STRUCT:
        return pa.struct([field.with_type(_zoned(field.type, leaves)) for field in kind])
    if kind_of(kind) is Kind.MAP:
        return pa.map_(_zoned(kind.key_type, leaves), kind.item_field.with_type(_zoned(kind.item_type, leaves)))
    if is_any_list(kind):
        return with_element(kind, kind.value_field.with_type(_zoned(kind.value_type, leaves)))
    if isinstance(kind, pa.BaseExtensionType):
        _zoned(kind.storage_type, leaves)
        return kind
    return pa.timestamp("us", "UTC") if next(leaves, False) else kind


def _with_moments(rows: Any, zoned: pa.Schema) -> Any:
    """Return a table or batch of some of a file's columns with the types of the file's schema."""
    fields = [field.with_type(_like(field.type, zoned.field(field.name).type)) for field in rows.schema]
    columns = [
        pa.chunked_array([conform_array(chunk, field.type) for chunk in column.chunks], field.type)
        if isinstance(column, pa.ChunkedArray)
        else conform_array(column, field.type)
        for field, column in zip(fields, rows.columns, strict=True)
    ]
    schema = pa.schema(fields, rows.schema.metadata)
    return rows.select([]) if not columns else type(rows).from_arrays(columns, schema=schema)


def _like(kind: pa.DataType, zoned: pa.DataType) -> pa.DataType:
    """Return the type of a column as `zoned` has it, without the fields of structs that were not read."""
    if kind.equals(zoned) or kind_of(kind) is Kind.DICTIONARY:
        return kind
    if kind_of(kind) is Kind.STRUCT:
        return pa.struct([field.with_type(_like(field.type, zoned.field(field.name).type)) for field in kind])
    return zoned


def leaf_positions(parquet: pq.ParquetFile, columns: Iterable[str]) -> list[int]:
    """Return the positions, in the file's schema, of all leaf columns of the given columns."""
    schema, names = parquet.metadata.schema, set(columns)
    paths = [schema.column(leaf).path for leaf in range(len(schema))]
    return [leaf for leaf, path in enumerate(paths) if path in names or path.partition(".")[0] in names]


def choose_batch_rows(parquet: OpenParquet, group: int, leaves: Sequence[int], rows: int, most_bytes: int) -> int:
    """Return the number of rows of a batch: at most ``rows``, at most ``most_bytes`` when decoded, but at least 1.

    Args:
        leaves: positions of the leaf columns that are read.
    """
    row_group = parquet.metadata.row_group(group)
    known_bytes, dense = 0, list[str]()
    for leaf in leaves:
        chunk = row_group.column(leaf)
        kind, values, stored = chunk.physical_type, chunk.num_values, chunk.total_uncompressed_size
        if kind in _WIDTHS:
            known_bytes += _WIDTHS[kind] * values
        elif kind == "FIXED_LEN_BYTE_ARRAY":
            known_bytes += parquet.metadata.schema.column(leaf).length * values
        else:
            known_bytes += stored + 4 * values
            path = chunk.path_in_schema
            if values * stored > most_bytes and path not in parquet.as_dictionaries and _DENSE & {*chunk.encodings}:
                dense.append(path)
    windows = -(-row_group.num_rows // _WINDOW)
    if windows > _MOST_WINDOWS:  # Too many to measure them, or a footer that lies.
        return min(rows, _SHORT_ROWS)
    measured = np.zeros(windows, np.int64)
    for path in dense:
        longest = _measure_longest(parquet, group, path)
        if longest is not None and known_bytes + longest * row_group.num_rows <= most_bytes:
            known_bytes += longest * row_group.num_rows
        else:
            measured += _measure_windows(parquet, group, path, windows, is_dictionary=longest is not None)
    if known_bytes + int(measured.sum()) <= most_bytes:
        return rows
    short = min(rows, _SHORT_ROWS) if known_bytes > _LARGE * most_bytes else rows
    return _fit_rows(measured + known_bytes // windows, row_group.num_rows, short, most_bytes)


def _measure_longest(parquet: OpenParquet, group: int, path: str) -> int | None:
    """Return the bytes of the longest value in the column's dictionary, or None if there is no dictionary to read."""
    values = _read_first(parquet.with_dictionary(path), group, path, 1)
    if values is None or kind_of(values.type) is not Kind.DICTIONARY:
        return None
    return int(np.diff(value_ends(values.dictionary)).max(initial=0))


def _read_first(parquet: OpenParquet, group: int, path: str, rows: int) -> pa.Array | None:
    if "." in path or "DELTA_BYTE_ARRAY" in _find_encodings(parquet, group, path):
        return None  # Arrow cannot read nested columns and delta-encoded strings as dictionaries, so none is measured.
    batch = next(parquet.iter_batches(rows, row_groups=[group], columns=[path], use_threads=False), None)
    return None if batch is None else batch.column(0)


def _find_encodings(parquet: OpenParquet, group: int, path: str) -> Sequence[str]:
    row_group = parquet.metadata.row_group(group)
    chunks = (row_group.column(column) for column in range(row_group.num_columns))
    return next(chunk.encodings for chunk in chunks if chunk.path_in_schema == path)


def _measure_windows(
    parquet: OpenParquet, group: int, path: str, windows: int, *, is_dictionary: bool
) -> npt.NDArray[np.int64]:
    """Measure the decoded bytes of a column, one number for each window of `_WINDOW` rows."""
    sums_by_window = np.zeros(windows, np.int64)
    rows = 1024 * _WINDOW if is_dictionary else _WINDOW
    source = parquet.with_dictionary(path) if is_dictionary else parquet
    first = 0
    for batch in source.iter_batches(rows, row_groups=[group], columns=[path], use_threads=False):
        if is_dictionary:
            starts = np.arange(0, batch.num_rows, _WINDOW)
            ends = value_ends(batch.column(0))
            sums = ends[np.minimum(starts + _WINDOW, batch.num_rows)] - ends[starts]
            sums_by_window[first // _WINDOW :][: len(sums)] += sums
        else:
            sums_by_window[min(first // _WINDOW, windows - 1)] += decoded_bytes(batch)
        first += batch.num_rows
    return sums_by_window


def _fit_rows(windows: npt.NDArray[np.int64], group_rows: int, rows: int, most_bytes: int) -> int:
    """Return a number of rows with which no batch takes more than ``most_bytes``, found by halving; at least 1.

    Args:
        windows: decoded bytes of each window of `_WINDOW` rows.
    """
    count = max(1, min(rows, group_rows) // _WINDOW)
    while count > 1 and int(np.add.reduceat(windows, np.arange(0, len(windows), count)).max()) > most_bytes:
        count //= 2
    worst = int(windows.max(initial=0))
    if count > 1 or worst <= most_bytes:
        return min(rows, count * _WINDOW)
    return max(1, min(rows, _WINDOW * most_bytes // worst))
