"""Selection of rows by position ("gathering"), faster than `pa.Table.take` for texts that all have the same length.

Arrow copies texts value by value. Record keys mostly have the same length, so this module copies them as fixed-width
values. An array of texts, or of lists of texts, can have at most 2 GiB; a larger result has several chunks.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lakeformat.arrow.kinds import Kind, kind_of
from lakeformat.arrow.same_values import identify_memory

__all__ = [
    "combine_column",
    "combine_table",
    "gather",
    "gather_array",
    "gather_column",
    "keep_rows",
    "replace_and_take",
    "replace_values",
    "scatter",
]

Ints = npt.NDArray[np.int64]

#: Arrays with fewer values are always gathered by Arrow: checking their lengths would cost more than it saves.
_FEW: Final = 64
_MOST_BYTES: Final = np.iinfo(np.int32).max
#: If the values of a column have at least this many bytes on average, `keep_rows` does not combine its chunks. One
#: chunk makes later gathers faster, but by less than the copy costs.
_LARGE_VALUE: Final = 1024


def gather(rows: pa.Table, at: Ints) -> pa.Table:
    """Return the rows at the positions ``at``, like `pa.Table.take`.

    If columns of ``rows`` share memory, the columns of the result share memory too. A column of one chunk is gathered
    several times faster than a column of several chunks. Memory: the result, or twice the result if ``at`` does not
    visit the chunks in their order; ``rows`` is never copied.
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


def scatter(rows: pa.RecordBatch, groups: Sequence[Ints]) -> list[pa.RecordBatch]:
    """Divide rows into groups. Return a copy of each group's rows.

    This is faster than one `gather` for each group, because the lengths of texts are checked once. If columns of
    ``rows`` share memory, the columns of the results share memory too.

    Args:
        groups: For each group, the positions of its rows; no row occurs twice.
    """
    places = [pa.array(group) for group in groups]
    cache: dict[Any, list[pa.Array]] = {}
    columns = []
    for column in rows.columns:
        identity = str(column.type), _memory_identity(column)
        if identity not in cache:
            cache[identity] = _scatter_array(column, places)
        columns.append(cache[identity])
    return [pa.RecordBatch.from_arrays(list(arrays), schema=rows.schema) for arrays in zip(*columns, strict=True)]


def _scatter_array(values: pa.Array, places: Sequence[pa.Array]) -> list[pa.Array]:
    width = _width(values)
    if not width:
        return [values.take(place) for place in places]
    fixed = _as_fixed(values, width)
    return [_as_text(fixed.take(place), values.type, width) for place in places]


def gather_column(column: pa.ChunkedArray, at: Ints) -> pa.ChunkedArray:
    """Return the column's values at the positions ``at``."""
    return _gather_column(column, at, {})


def keep_rows(columns: list[pa.ChunkedArray], at: Ints | None) -> list[pa.ChunkedArray]:
    """Return each column with only the rows at the positions ``at``. Empty the list ``columns`` to free memory.

    Each new column has one chunk. A column of large values (`_LARGE_VALUE`) keeps its chunks instead, and a chunk that
    loses no row is not copied. If columns share memory, the columns of the result share memory too.

    Memory: the columns, and a copy of the column in progress; for a column of large values, a copy of one chunk.

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


def _gather_chunks(chunks: list[pa.Array], rows: Ints) -> Iterator[pa.Array]:
    """Yield from each chunk the rows at ``rows``, positions in the whole column. Release each chunk after use."""
    first, chunks = 0, chunks[::-1]
    while chunks:
        chunk = chunks.pop()
        low, high = np.searchsorted(rows, [first, first + len(chunk)]).tolist()
        if high - low == len(chunk) > 0:
            yield chunk
        elif low < high:
            yield gather_array(chunk, pa.array(rows[low:high] - first))
        first += len(chunk)


@dataclass(frozen=True)
class _ChunkPositions:
    """Positions in a column, grouped by the chunk that they lie in.

    Attributes:
        parts: Pairs of a chunk's index and the positions within that chunk, in the order of the chunks.
        back: Indices that bring the concatenated values of ``parts`` into the requested order; None if the values
            already are in that order.
    """

    parts: Sequence[tuple[int, pa.Array]]
    back: pa.Array | None

    @classmethod
    def of(cls, lengths: Sequence[int], at: Ints) -> _ChunkPositions:
        """Group the positions ``at`` by chunk. ``lengths`` are the numbers of values of the chunks."""
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


def _gather_column(
    column: pa.ChunkedArray, rows: Ints, spots: dict[tuple[int, ...], _ChunkPositions]
) -> pa.ChunkedArray:
    try:
        return pa.chunked_array(_gather_parts(column, rows, spots), column.type)
    except (pa.ArrowInvalid, pa.ArrowCapacityError):  # The result is over 2 GiB, the limit of one array.
        if len(rows) < 2:
            raise
        halves = [_gather_column(column, part, {}) for part in np.array_split(rows, 2)]
        return pa.chunked_array([chunk for half in halves for chunk in half.chunks], column.type)


def _gather_parts(column: pa.ChunkedArray, rows: Ints, spots: dict[tuple[int, ...], _ChunkPositions]) -> list[pa.Array]:
    lengths = tuple(map(len, column.chunks))
    if lengths not in spots:
        spots[lengths] = (
            _ChunkPositions.of(lengths, rows) if len(lengths) != 1 else _ChunkPositions([(0, pa.array(rows))], None)
        )
    split = spots[lengths]
    parts = [gather_array(column.chunk(owner), places) for owner, places in split.parts]
    if split.back is None:
        return parts
    return [gather_array(pa.concat_arrays(_unify_dictionaries(parts)), split.back)]


def _unify_dictionaries(parts: list[pa.Array]) -> list[pa.Array]:
    if kind_of(parts[0].type) is not Kind.DICTIONARY:
        return parts
    unified: list[pa.Array] = pa.chunked_array(parts).unify_dictionaries().chunks
    return unified


def combine_table(rows: pa.Table) -> pa.Table:
    """Return the table with one chunk per column, like `pa.Table.combine_chunks`.

    If columns share memory, the columns of the result share memory too. A column that is too large for one array keeps
    its chunks.
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
    """Return the column as one chunk, or unchanged if its values exceed the 2 GiB of one array."""
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
    """Replace the values of ``old`` where ``mask`` is true by those of ``new``, in order (`pc.replace_with_mask`)."""
    if pa.types.is_primitive(old.type):
        return pc.replace_with_mask(old, mask, new)
    width = _width(old)
    if width and width == _width(new):
        return _as_text(pc.replace_with_mask(_as_fixed(old, width), mask, _as_fixed(new, width)), old.type, width)
    hit = np.asarray(mask)
    place = np.arange(len(hit))
    place[hit] = len(hit) + np.arange(len(new))
    return pa.concat_arrays([old, new]).take(pa.array(place))  # For strings 3 times faster than replace_with_mask.


def replace_and_take(old: pa.Array, at: Ints, new: pa.Array, selected: pa.Array, among: Ints) -> pa.Array:
    """Replace the values at the positions ``at`` by ``new``, then return the values at the positions ``selected``.

    Args:
        at: Ascending positions in ``old`` to replace. Each of them must also be in ``selected``.
        new: One value for each position in ``at``.
        selected: Ascending positions in ``old`` to return.
        among: For each position in ``at``, its index in ``selected``.
    """
    width = old.type.bit_width // 8 if pa.types.is_primitive(old.type) else _width(old)
    text = not pa.types.is_primitive(old.type)
    if not width or old.null_count or new.null_count or (text and width != _width(new)):
        mask = np.zeros(len(old), bool)
        mask[at] = True
        return replace_values(old, pa.array(mask), new).take(selected)
    result = (_as_fixed(old, width) if text else old).take(selected)
    values, others = (_raw(values, width) for values in (result, _as_fixed(new, width) if text else new))
    values[among] = others  # Writes into the buffer of `result`, which nothing else refers to yet.
    return _as_text(result, old.type, width) if text else result


def _raw(values: pa.Array, width: int) -> npt.NDArray[np.void]:
    return np.frombuffer(values.buffers()[1], f"V{width}", len(values), width * values.offset)


def _memory_identity(values: pa.Array) -> Any:
    """Return a value that is equal for arrays that share memory, but always unique for nested and dictionary arrays."""
    if kind_of(values.type).is_nested or kind_of(values.type) is Kind.DICTIONARY:
        return object()
    return identify_memory(values)


def _width(values: pa.Array) -> int:
    """Return the length in bytes that all values have, or 0 if they cannot be gathered as fixed-width values.

    The result is 0 if lengths differ, a value is null, the type is not string or binary, or there are fewer than `_FEW`
    values.
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
