"""JSON lines of Arrow rows, column by column: one object per row, with the texts that Python's ``json`` would write.

Values that JSON has no form for (dates, times, decimals, bytes) become text. Memory: one batch and its text.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from json.encoder import encode_basestring
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from lakeformat.cli.output import to_plain

__all__ = ["json_lines"]

_ROWS_AT_ONCE: Final = 1 << 15
#: Matches texts in which JSON escapes a character.
_ESCAPED: Final = '["\\\\\\x00-\\x1f]'


def json_lines(batch: pa.RecordBatch) -> Iterator[memoryview]:
    """Yield the lines of a batch as UTF-8, some rows at a time."""
    names = [json.dumps(name, ensure_ascii=False) for name in batch.schema.names]
    for start in range(0, batch.num_rows, _ROWS_AT_ONCE):
        rows = batch.slice(start, _ROWS_AT_ONCE)
        parts: list[Any] = []
        for number, name in enumerate(names):
            values = pc.fill_null(_texts(rows.column(number)).cast(pa.large_string()), "null")
            parts += [pa.scalar(f"{', ' if number else '{'}{name}: ", pa.large_string()), values]
        if not parts:
            yield memoryview(b"{}\n" * rows.num_rows)
            continue
        ends = (pa.scalar("}\n", pa.large_string()), pa.scalar("", pa.large_string()))
        yield _joined_bytes(pc.binary_join_element_wise(*parts, *ends))


def _joined_bytes(lines: pa.LargeStringArray) -> memoryview:
    """Return the bytes of all texts, one after the other, without a copy."""
    _, offsets, data = lines.buffers()
    ends = memoryview(offsets).cast("q")
    return memoryview(data)[ends[lines.offset] : ends[lines.offset + len(lines)]]


def _texts(values: pa.Array) -> pa.Array:
    """Return the values as JSON texts; null stays null."""
    kind = values.type
    if kind in _PLAIN:
        return values.cast(pa.string())
    if kind in _CONVERTED:
        return _CONVERTED[kind](values)
    if isinstance(kind, pa.Decimal128Type | pa.Decimal256Type):
        return _quoted(values.cast(pa.string()))
    plain = values.to_pylist(maps_as_pydicts="lossy")
    texts = [None if value is None else json.dumps(to_plain(value), ensure_ascii=False) for value in plain]
    return pa.array(texts, pa.large_string())


def _floats(values: pa.Array) -> pa.Array:
    """Return the texts of Python: Arrow writes 1.0 as 1, and JSON would not tell it from an integer."""
    dumps = json.dumps
    return pa.array([None if value is None else dumps(value) for value in values.to_pylist()], pa.string())


def _strings(values: pa.Array) -> pa.Array:
    if not pc.any(pc.match_substring_regex(values, _ESCAPED)).as_py():
        return _quoted(values)
    texts = [None if value is None else encode_basestring(value) for value in values.to_pylist()]
    return pa.array(texts, pa.large_string())


def _quoted(values: pa.Array) -> pa.Array:
    quote, nothing = pa.scalar('"', values.type), pa.scalar("", values.type)
    return pc.binary_join_element_wise(quote, values, quote, nothing)


def _local_times(values: pa.Array) -> pa.Array:
    """Return the texts of Python's ``datetime``, which have no fraction if it is 0."""
    return _quoted(_datetime_texts(values))


def _moments(values: pa.Array) -> pa.Array:
    texts = _datetime_texts(values.cast(pa.timestamp(values.type.unit)))
    return _quoted(pc.binary_join_element_wise(texts, pa.scalar("+00:00"), pa.scalar("")))


def _datetime_texts(values: pa.Array) -> pa.Array:
    return pc.replace_substring_regex(values.cast(pa.timestamp("us")).cast(pa.string()), r"\.000000$", "")


#: Types whose values are the same texts in Arrow and in JSON.
_PLAIN: Final = frozenset(
    {pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64(), pa.bool_()}
)
_CONVERTED: Final[dict[pa.DataType, Callable[[pa.Array], pa.Array]]] = {
    pa.float32(): _floats,
    pa.float64(): _floats,
    pa.string(): _strings,
    pa.large_string(): _strings,
    pa.date32(): lambda values: _quoted(values.cast(pa.string())),
    pa.timestamp("ms"): _local_times,
    pa.timestamp("us"): _local_times,
    pa.timestamp("ms", "UTC"): _moments,
    pa.timestamp("us", "UTC"): _moments,
}
