"""Rows by position. Arrow gathers text value by value; keys mostly have one length, and go as fixed-width values."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

__all__ = ["gather", "gather_array", "one_array", "one_chunk", "replaced"]

#: Fewer values are not worth a look at their lengths.
_FEW: Final = 64
_MOST_BYTES: Final = np.iinfo(np.int32).max


def gather(rows: pa.Table, at: npt.NDArray[np.int64]) -> pa.Table:
    """The rows at these positions, as `pa.Table.take` gives them; columns that share their memory go on sharing it.

    Columns of one chunk are gathered several times faster than others. Memory: the result.
    """
    places = pa.array(at)
    found: dict[Any, pa.Array] = {}
    columns = []
    for column in rows.columns:
        if column.num_chunks != 1:
            columns.append(column.take(places))
            continue
        chunk = column.chunk(0)
        place = _place(chunk)
        if place not in found:
            found[place] = gather_array(chunk, places)
        columns.append(found[place])
    return pa.Table.from_arrays(columns, schema=rows.schema)


def one_chunk(rows: pa.Table) -> pa.Table:
    """As `pa.Table.combine_chunks`, but columns that share their memory go on sharing it."""
    found: dict[Any, pa.Array] = {}
    columns = []
    for column in rows.columns:
        place = str(column.type), *map(_place, column.chunks)
        if place not in found:
            found[place] = one_array(column)
        columns.append(found[place])
    return pa.Table.from_arrays(columns, schema=rows.schema)


def one_array(column: pa.ChunkedArray) -> pa.Array:
    """The column's values as one array; a single chunk is not copied."""
    return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()


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
