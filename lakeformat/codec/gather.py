"""Rows by position. Arrow gathers text value by value; keys mostly have one length, and go as fixed-width values.

An array of text holds 2 GiB at most, and so do lists of text: what is more comes in several chunks.
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
    "gather",
    "gather_array",
    "gather_column",
    "joined",
    "keep_rows",
    "one_chunk",
    "replaced",
    "replaced_among",
]

Ints = npt.NDArray[np.int64]

#: Fewer values are not worth a look at their lengths.
_FEW: Final = 64
_MOST_BYTES: Final = np.iinfo(np.int32).max
#: Bytes of a value on average, from which on a column costs by its bytes, whatever the number of its chunks.
_LARGE_VALUE: Final = 1024


def gather(rows: pa.Table, at: Ints) -> pa.Table:
    """The rows at these positions, as `pa.Table.take` gives them; columns that share their memory go on sharing it.

    Columns of one chunk are gathered several times faster than others. Memory: the result, twice where it comes
    from several chunks out of order; never the source.
    """
    spots: dict[tuple[int, ...], _Spots] = {}
    found: dict[Any, pa.ChunkedArray] = {}
    columns = []
    for column in rows.columns:
        place = str(column.type), *map(_place, column.chunks)
        if place not in found:
            found[place] = _gathered(column, at, spots)
        columns.append(found[place])
    return pa.Table.from_arrays(columns, schema=rows.schema)


def gather_column(column: pa.ChunkedArray, at: Ints) -> pa.ChunkedArray:
    """The column's values at these positions."""
    return _gathered(column, at, {})


def keep_rows(columns: list[pa.ChunkedArray], at: Ints | None) -> list[pa.ChunkedArray]:
    """Take the rows at these positions, and empty the list: what is taken from is let go of early.

    Columns come in one chunk; those of large values keep their chunks, and a chunk that is kept whole is not copied.
    Columns that share their memory go on sharing it.

    Memory: the columns, and a second time the column at work; of a column of large values one chunk of it.

    Args:
        columns: emptied from its end.
        at: ascending; None: all rows.
    """
    spots: dict[tuple[int, ...], _Spots] = {}
    found: dict[Any, pa.ChunkedArray] = {}
    taken = []
    while columns:
        column = columns.pop()
        place = str(column.type), *map(_place, column.chunks)
        if place not in found:
            kind, large = column.type, column.nbytes >= _LARGE_VALUE * max(len(column), 1)
            if at is None:
                found[place] = column if large else joined(column)
            elif large:
                chunks = column.chunks
                del column
                found[place] = pa.chunked_array(_kept(chunks, at), kind)
            else:
                found[place] = joined(_gathered(column, at, spots))
        taken.append(found[place])
    return taken[::-1]


def _kept(chunks: list[pa.Array], at: Ints) -> Iterator[pa.Array]:
    """Yield what is left of each chunk, and let go of the chunk."""
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
class _Spots:
    """Positions by chunk: which chunks are met, in order, and where in them.

    Attributes:
        back: puts what the chunks give in the order that was asked for; None if it is.
    """

    parts: Sequence[tuple[int, pa.Array]]
    back: pa.Array | None

    @classmethod
    def of(cls, lengths: Sequence[int], at: Ints) -> _Spots:
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


def _gathered(column: pa.ChunkedArray, at: Ints, spots: dict[tuple[int, ...], _Spots]) -> pa.ChunkedArray:
    try:
        return pa.chunked_array(_taken(column, at, spots), column.type)
    except (pa.ArrowInvalid, pa.ArrowCapacityError):  # More than an array can hold.
        if len(at) < 2:
            raise
        halves = [_gathered(column, part, {}) for part in np.array_split(at, 2)]
        return pa.chunked_array([chunk for half in halves for chunk in half.chunks], column.type)


def _taken(column: pa.ChunkedArray, at: Ints, spots: dict[tuple[int, ...], _Spots]) -> list[pa.Array]:
    lengths = tuple(map(len, column.chunks))
    if lengths not in spots:
        spots[lengths] = _Spots.of(lengths, at) if len(lengths) != 1 else _Spots([(0, pa.array(at))], None)
    found = spots[lengths]
    parts = [gather_array(column.chunk(owner), places) for owner, places in found.parts]
    if found.back is None:
        return parts
    return [gather_array(pa.concat_arrays(_of_one_dictionary(parts)), found.back)]


def _of_one_dictionary(parts: list[pa.Array]) -> list[pa.Array]:
    if not pa.types.is_dictionary(parts[0].type):
        return parts
    unified: list[pa.Array] = pa.chunked_array(parts).unify_dictionaries().chunks
    return unified


def one_chunk(rows: pa.Table) -> pa.Table:
    """As `pa.Table.combine_chunks`, but columns that share their memory go on sharing it.

    A column of more than an array can hold stays in its chunks.
    """
    found: dict[Any, pa.ChunkedArray] = {}
    columns = []
    for column in rows.columns:
        place = str(column.type), *map(_place, column.chunks)
        if place not in found:
            found[place] = joined(column)
        columns.append(found[place])
    return pa.Table.from_arrays(columns, schema=rows.schema)


def joined(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """The column in one chunk, if an array can hold it; a single chunk is not copied."""
    if column.num_chunks == 1:
        return column
    try:
        return pa.chunked_array([column.combine_chunks()], column.type)
    except (pa.ArrowInvalid, pa.ArrowCapacityError):
        return column


def gather_array(values: pa.Array, places: pa.Array) -> pa.Array:
    """The values at these positions, as `pa.Array.take` gives them."""
    width = _width(values)
    if not width or places.null_count or len(places) * width > _MOST_BYTES:
        return values.take(places)
    return _as_text(_as_fixed(values, width).take(places), values.type, width)


def replaced(old: pa.Array, mask: pa.Array, new: pa.Array) -> pa.Array:
    """The old values, in order with the new ones where the mask is true, as `pc.replace_with_mask` gives them."""
    if pa.types.is_primitive(old.type):
        return pc.replace_with_mask(old, mask, new)
    width = _width(old)
    if width and width == _width(new):
        return _as_text(pc.replace_with_mask(_as_fixed(old, width), mask, _as_fixed(new, width)), old.type, width)
    hit = np.asarray(mask)
    place = np.arange(len(hit))
    place[hit] = len(hit) + np.arange(len(new))
    return pa.concat_arrays([old, new]).take(pa.array(place))  # Three times faster than replacing text.


def replaced_among(old: pa.Array, at: Ints, new: pa.Array, left: pa.Array, among: Ints) -> pa.Array:
    """The old values at some positions, in order with the new ones in place of those at others.

    Args:
        at: positions that are replaced, ascending, all of them among ``left``.
        left: positions that are left, ascending.
        among: where in ``left`` those of ``at`` stand.
    """
    width = old.type.bit_width // 8 if pa.types.is_primitive(old.type) else _width(old)
    text = not pa.types.is_primitive(old.type)
    if not width or old.null_count or new.null_count or (text and width != _width(new)):
        mask = np.zeros(len(old), bool)
        mask[at] = True
        return replaced(old, pa.array(mask), new).take(left)
    found = (_as_fixed(old, width) if text else old).take(left)
    values, others = (_raw(values, width) for values in (found, _as_fixed(new, width) if text else new))
    values[among] = others  # What was taken is nobody else's yet.
    return _as_text(found, old.type, width) if text else found


def _raw(values: pa.Array, width: int) -> npt.NDArray[np.void]:
    return np.frombuffer(values.buffers()[1], f"V{width}", len(values), width * values.offset)


def _place(values: pa.Array) -> Any:
    """Equal for arrays of the same memory. Of nested ones and dictionaries none is taken for another."""
    if pa.types.is_nested(values.type) or pa.types.is_dictionary(values.type):
        return object()
    addresses = [0 if buffer is None else buffer.address for buffer in values.buffers()]
    return str(values.type), values.offset, len(values), *addresses


def _width(values: pa.Array) -> int:
    """The length in bytes of all values; 0 where they differ, are null, or are no text."""
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
