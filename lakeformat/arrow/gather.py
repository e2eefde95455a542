"""Gathering of rows by position, faster than Arrow for texts of one length.

Arrow gathers texts value by value. Keys mostly have one length, so they are gathered as fixed-width values. An array of
texts, or of lists of texts, holds at most 2 GiB; a greater result has several chunks.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

__all__ = [
    "combine_column",
    "combine_table",
    "gather",
    "gather_array",
    "gather_column",
    "keep_rows",
    "replace_and_take",
    "replace_values",
]

Ints = npt.NDArray[np.int64]

#: Arrays with fewer values are gathered without a check of their lengths.
_FEW: Final = 64
_MOST_BYTES: Final = np.iinfo(np.int32).max
#: Average bytes per value from which the bytes, not the number of chunks, decide the cost of gathering.
_LARGE_VALUE: Final = 1024


def gather(rows: pa.Table, at: Ints) -> pa.Table:
    """Return the rows at the positions ``at``, like `pa.Table.take`. Columns that share memory share it in the result.

    Columns of one chunk are gathered several times faster than others. Memory: the result, or twice the result if
    the rows come from several chunks out of order; never the source.
    """
    spots: dict[tuple[int, ...], _ChunkPositions] = {}
    cache: dict[Any, pa.ChunkedArray] = {}
    columns = []
    for column in rows.columns:
        identity = str(column.type), *map(_memory_identity, column.chunks)
        if identity not in cache:
            cache[identity] = _gather_column(column, at, spots)
        columns.append(cache[identity])
    return pa.Table.from_arrays(columns, schema=rows.schema)


def gather_column(column: pa.ChunkedArray, at: Ints) -> pa.ChunkedArray:
    """Return the column's values at the positions ``at``."""
    return _gather_column(column, at, {})


def keep_rows(columns: list[pa.ChunkedArray], at: Ints | None) -> list[pa.ChunkedArray]:
    """Return the columns with only the rows at the positions ``at``, and empty the list ``columns`` to free memory.

    The new columns have one chunk. A column of large values keeps its chunks, and a chunk of which all rows are kept is
    not copied. Columns that share memory share it in the result.

    Memory: the columns, and a copy of the column in progress; of a column of large values a copy of one chunk.

    Args:
        columns: The columns of a table; the list is emptied from its end.
        at: Ascending positions; None for all rows.
    """
    spots: dict[tuple[int, ...], _ChunkPositions] = {}
    cache: dict[Any, pa.ChunkedArray] = {}
    results = []
    while columns:
        column = columns.pop()
        identity = str(column.type), *map(_memory_identity, column.chunks)
        if identity not in cache:
            kind, large = column.type, column.nbytes >= _LARGE_VALUE * max(len(column), 1)
            if at is None:
                cache[identity] = column if large else combine_column(column)
            elif large:
                chunks = column.chunks
                del column
                cache[identity] = pa.chunked_array(_gather_chunks(chunks, at), kind)
            else:
                cache[identity] = combine_column(_gather_column(column, at, spots))
        results.append(cache[identity])
    return results[::-1]


def _gather_chunks(chunks: list[pa.Array], at: Ints) -> Iterator[pa.Array]:
    """Yield the kept rows of each chunk, and drop each chunk after use."""
    first, chunks = 0, chunks[::-1]
    while chunks:
        chunk = chunks.pop()
        low, high = np.searchsorted(at, [first, first + len(chunk)]).tolist()
        if high - low == len(chunk) > 0:
            yield chunk
        elif low < high:
            yield gather_array(chunk, pa.array(at[low:high] - first))
        first += len(chunk)


@dataclass(frozen=True)
class _ChunkPositions:
    """Positions in a column, split by chunk.

    Attributes:
        parts: (index of a chunk, positions in that chunk), in the order of the chunks.
        back: Positions that restore the requested order from the concatenated parts; None if they are in that order.
    """

    parts: Sequence[tuple[int, pa.Array]]
    back: pa.Array | None

    @classmethod
    def of(cls, lengths: Sequence[int], at: Ints) -> _ChunkPositions:
        """Split positions of a column whose chunks have these lengths."""
        ends = np.cumsum(lengths)
        owners = np.searchsorted(ends, at, side="right")
        back = None
        if (np.diff(owners) < 0).any():
            order = np.argsort(owners, kind="stable")
            at, owners = at[order], owners[order]
            inverse = np.empty(len(order), np.int64)
            inverse[order] = np.arange(len(order))
            back = pa.array(inverse)
        starts = [0, *(np.flatnonzero(np.diff(owners)) + 1).tolist()] if len(at) else []
        parts = []
        for start, end in zip(starts, [*starts[1:], len(at)], strict=False):
            owner = int(owners[start])
            parts.append((owner, pa.array(at[start:end] - (ends[owner] - lengths[owner]))))
        return cls(parts, back)


def _gather_column(column: pa.ChunkedArray, at: Ints, spots: dict[tuple[int, ...], _ChunkPositions]) -> pa.ChunkedArray:
    try:
        return pa.chunked_array(_gather_parts(column, at, spots), column.type)
    except (pa.ArrowInvalid, pa.ArrowCapacityError):  # More than an array can hold.
        if len(at) < 2:
            raise
        halves = [_gather_column(column, part, {}) for part in np.array_split(at, 2)]
        return pa.chunked_array([chunk for half in halves for chunk in half.chunks], column.type)


def _gather_parts(column: pa.ChunkedArray, at: Ints, spots: dict[tuple[int, ...], _ChunkPositions]) -> list[pa.Array]:
    lengths = tuple(map(len, column.chunks))
    if lengths not in spots:
        spots[lengths] = (
            _ChunkPositions.of(lengths, at) if len(lengths) != 1 else _ChunkPositions([(0, pa.array(at))], None)
        )
    split = spots[lengths]
    parts = [gather_array(column.chunk(owner), places) for owner, places in split.parts]
    if split.back is None:
        return parts
    return [gather_array(pa.concat_arrays(_unify_dictionaries(parts)), split.back)]


def _unify_dictionaries(parts: list[pa.Array]) -> list[pa.Array]:
    if not pa.types.is_dictionary(parts[0].type):
        return parts
    unified: list[pa.Array] = pa.chunked_array(parts).unify_dictionaries().chunks
    return unified


def combine_table(rows: pa.Table) -> pa.Table:
    """Combine the chunks of each column, like `pa.Table.combine_chunks`. Columns that share memory share it afterwards.

    A column that is too large for one array keeps its chunks.
    """
    cache: dict[Any, pa.ChunkedArray] = {}
    columns = []
    for column in rows.columns:
        identity = str(column.type), *map(_memory_identity, column.chunks)
        if identity not in cache:
            cache[identity] = combine_column(column)
        columns.append(cache[identity])
    return pa.Table.from_arrays(columns, schema=rows.schema)


def combine_column(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Combine the chunks of a column if one array can hold them. A single chunk is not copied."""
    if column.num_chunks == 1:
        return column
    try:
        return pa.chunked_array([column.combine_chunks()], column.type)
    except (pa.ArrowInvalid, pa.ArrowCapacityError):
        return column


def gather_array(values: pa.Array, places: pa.Array) -> pa.Array:
    """Return the values at the positions ``places``, like `pa.Array.take`."""
    width = _width(values)
    if not width or places.null_count or len(places) * width > _MOST_BYTES:
        return values.take(places)
    return _as_text(_as_fixed(values, width).take(places), values.type, width)


def replace_values(old: pa.Array, mask: pa.Array, new: pa.Array) -> pa.Array:
    """Replace the values for which the mask is true by ``new``, in order, like `pc.replace_with_mask`."""
    if pa.types.is_primitive(old.type):
        return pc.replace_with_mask(old, mask, new)
    width = _width(old)
    if width and width == _width(new):
        return _as_text(pc.replace_with_mask(_as_fixed(old, width), mask, _as_fixed(new, width)), old.type, width)
    hit = np.asarray(mask)
    place = np.arange(len(hit))
    place[hit] = len(hit) + np.arange(len(new))
    return pa.concat_arrays([old, new]).take(pa.array(place))  # Three times faster than replace_with_mask on texts.


def replace_and_take(old: pa.Array, at: Ints, new: pa.Array, selected: pa.Array, among: Ints) -> pa.Array:
    """Return the values at the positions ``selected``, with those at the positions ``at`` replaced by ``new`` in order.

    Args:
        at: Ascending positions to replace, all of them in ``selected``.
        selected: Ascending positions to return.
        among: Index in ``selected`` of each position in ``at``.
    """
    width = old.type.bit_width // 8 if pa.types.is_primitive(old.type) else _width(old)
    text = not pa.types.is_primitive(old.type)
    if not width or old.null_count or new.null_count or (text and width != _width(new)):
        mask = np.zeros(len(old), bool)
        mask[at] = True
        return replace_values(old, pa.array(mask), new).take(selected)
    result = (_as_fixed(old, width) if text else old).take(selected)
    values, others = (_raw(values, width) for values in (result, _as_fixed(new, width) if text else new))
    values[among] = others  # In place: no other code has a reference to the result yet.
    return _as_text(result, old.type, width) if text else result


def _raw(values: pa.Array, width: int) -> npt.NDArray[np.void]:
    return np.frombuffer(values.buffers()[1], f"V{width}", len(values), width * values.offset)


def _memory_identity(values: pa.Array) -> Any:
    """Return a value that is equal for arrays of the same memory, and unique for nested and dictionary arrays."""
    if pa.types.is_nested(values.type) or pa.types.is_dictionary(values.type):
        return object()
    addresses = [0 if buffer is None else buffer.address for buffer in values.buffers()]
    return str(values.type), values.offset, len(values), *addresses


def _width(values: pa.Array) -> int:
    """Return the common length of all values in bytes; 0 if lengths differ, a value is null or the type is not text.

    For fewer than `_FEW` values also return 0.
    """
    if not (pa.types.is_string(values.type) or pa.types.is_binary(values.type)):
        return 0
    if len(values) < _FEW or values.null_count:
        return 0
    ends = np.frombuffer(values.buffers()[1], np.int32, len(values) + 1, 4 * values.offset)
    width = int(ends[1] - ends[0])
    return width if ends[-1] - ends[0] == width * len(values) and (np.diff(ends) == width).all() else 0


def _as_fixed(values: pa.Array, width: int) -> pa.Array:
    _, ends, data = values.buffers()
    first = int(np.frombuffer(ends, np.int32, 1, 4 * values.offset)[0])
    return pa.Array.from_buffers(pa.binary(width), len(values), [None, data.slice(first, width * len(values))])


def _as_text(values: pa.Array, kind: pa.DataType, width: int) -> pa.Array:
    ends = np.arange(0, width * len(values) + 1, width, dtype=np.int32)
    return pa.Array.from_buffers(kind, len(values), [None, pa.py_buffer(ends), values.buffers()[1]], 0)
