"""Sizes of rows in memory, and splitting of rows by size. A dictionary column counts as if it were decoded."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lakeformat.arrow.kinds import OFFSETS, Kind, kind_of

__all__ = ["decoded_bytes", "row_sizes", "split_positions", "split_rows", "value_ends"]

Ints = npt.NDArray[np.int64]

#: If the length of a dictionary's longest value times the number of rows is at most this many bytes, this product is
#: used as the size of the column. If it is larger, the lengths of the values of all rows are added.
_LITTLE_BYTES: Final = 4 << 20


def decoded_bytes(rows: pa.Table | pa.RecordBatch) -> int:
    """Return the size of the rows in bytes, as if dictionaries were decoded.

    If the arrays of ``rows`` are slices of larger arrays, only the slices count. The result is close to the exact size
    and never below it.
    """
    return sum(_bytes(chunk) for column in rows.columns for chunk in getattr(column, "chunks", (column,)))


def _bytes(values: pa.Array) -> int:
    if kind_of(values.type) is not Kind.DICTIONARY:
        return int(values.nbytes)
    lengths = np.diff(value_ends(values.dictionary))
    most = int(lengths.max(initial=0)) * len(values)
    return most if most <= _LITTLE_BYTES else int(lengths[_indices(values)].sum())


def _indices(values: pa.DictionaryArray) -> npt.NDArray[Any]:
    indices = values.indices
    array: npt.NDArray[Any] = np.asarray(indices.fill_null(0) if indices.null_count else indices)
    return array


def value_ends(values: pa.Array) -> Ints:
    """Return the byte offset at which each value starts, and as last entry the total size. The first entry is 0."""
    kind, count = values.type, len(values)
    if not count:
        return np.zeros(1, np.int64)
    match kind_of(kind):
        case Kind.NULL:
            return np.zeros(count + 1, np.int64)
        case Kind.DICTIONARY:
            lengths = np.diff(value_ends(values.dictionary))
            return _to_ends(lengths[_indices(values)] if len(lengths) else np.zeros(count, np.int64))
        case Kind.STRUCT:
            ends: Ints = np.zeros(count + 1, np.int64)
            for number in range(kind.num_fields):
                ends += value_ends(values.field(number))
            return ends
        case Kind.MAP:
            return _within(values, value_ends(values.keys) + value_ends(values.items))
        case Kind.LIST if pa.types.is_list(kind) or pa.types.is_large_list(kind):
            return _within(values, value_ends(values.values))
        case Kind.TEXT | Kind.BYTES if kind in OFFSETS:
            width = np.dtype(OFFSETS[kind])
            return _from_zero(np.frombuffer(values.buffers()[1], width, count + 1, width.itemsize * values.offset))
    return _to_ends(np.full(count, max(int(values.nbytes) // count, 1), np.int64))


def _within(values: Any, children: Ints) -> Ints:
    offsets: npt.NDArray[Any] = np.asarray(values.offsets)
    return _from_zero(children[offsets])


def _from_zero(ends: npt.NDArray[Any]) -> Ints:
    shifted: Ints = ends.astype(np.int64)
    shifted -= shifted[0]
    return shifted


def _to_ends(lengths: Ints) -> Ints:
    ends: Ints = np.concatenate([[0], np.cumsum(lengths)])
    return ends


def split_rows(rows: Any, most_rows: int, most_bytes: int) -> Iterator[Any]:
    """Yield consecutive parts of a table or batch, each of at most ``most_rows`` rows and ``most_bytes`` bytes.

    A row of more than ``most_bytes`` bytes becomes a part of its own.
    """
    for start in range(0, rows.num_rows, most_rows):
        yield from _halve(rows.slice(start, most_rows) if rows.num_rows > most_rows else rows, most_bytes)


def _halve(rows: Any, most_bytes: int) -> Iterator[Any]:
    if rows.num_rows < 2 or decoded_bytes(rows) <= most_bytes:
        yield rows
        return
    half = rows.num_rows // 2
    yield from _halve(rows.slice(0, half), most_bytes)
    yield from _halve(rows.slice(half), most_bytes)


def split_positions(rows: pa.Table, at: Ints, most_rows: int, most_bytes: int) -> Iterator[Ints]:
    """Split the row positions ``at`` into parts that each select at most ``most_rows`` rows and ``most_bytes`` bytes.

    A row of more than ``most_bytes`` bytes becomes a part of its own.
    """
    if rows.nbytes <= most_bytes or not len(at):
        yield from (at[start : start + most_rows] for start in range(0, len(at), most_rows))
        return
    ends = _to_ends(row_sizes(rows, at))
    start = 0
    while start < len(at):
        fitting = int(np.searchsorted(ends, ends[start] + most_bytes, side="right")) - 1
        end = min(max(fitting, start + 1), start + most_rows)
        yield at[start:end]
        start = end


def row_sizes(rows: pa.Table, at: Ints) -> Ints:
    """Return the size in bytes of each row at the positions ``at``, without copying the rows."""
    order = np.argsort(at, kind="stable")
    ordered, sizes = at[order], np.zeros(len(at), np.int64)
    for column in rows.columns:
        first = 0
        for chunk in column.chunks:
            low, high = np.searchsorted(ordered, [first, first + len(chunk)]).tolist()
            if low < high:
                sizes[low:high] += _lengths(chunk, ordered[low:high] - first)
            first += len(chunk)
    result = np.empty(len(at), np.int64)
    result[order] = sizes
    return result


def _lengths(values: pa.Array, rows: Ints) -> Any:
    kind = values.type
    if pa.types.is_string(kind) or pa.types.is_binary(kind):
        ends = np.frombuffer(values.buffers()[1], np.int32, len(values) + 1, 4 * values.offset)
        return ends[rows + 1] - ends[rows]
    if kind_of(kind).is_nested or kind_of(kind) is Kind.DICTIONARY:
        return np.diff(value_ends(values))[rows]
    return max(values.nbytes // len(values), 1)
