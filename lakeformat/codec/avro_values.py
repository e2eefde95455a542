"""Columns as Avro binary, value by value: a column of the table becomes a column of bytes; no row is touched by itself.

Types are those that `lakeformat.codec.avro_schema.to_avro` writes. Memory: the bytes, and while integers are made some
eighty bytes a value.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

__all__ = ["AvroEncoder", "bytes_of", "integers", "joined", "plain_bytes", "sized", "varints"]

_NULL: Final = pa.scalar(None, pa.binary())
_FORMS: Final[Mapping[str, str]] = {"boolean": "u1", "float": "<f4", "double": "<f8"}
_INTEGERS: Final = frozenset({"int", "long"})


class AvroEncoder:
    """Encodes columns by an Avro type; remembers its named types, so that a later one may be a name."""

    def __init__(self) -> None:
        self._named: dict[str, Any] = {}

    def encoded(self, column: pa.Array, avro: Any) -> pa.Array:
        """Each value as bytes; null where the column is null and the type has no branch for it.

        Args:
            column: of the Arrow type that goes with the Avro type.
            avro: JSON of the type; a union is one of null and another type.
        """
        if isinstance(avro, list):
            return self._union(column, avro)
        kind = avro["type"] if isinstance(avro, dict) else avro
        if kind == "record":
            self._named[avro["name"]] = avro
            return self.record(column.flatten(), avro)
        if kind == "fixed":
            return _fixed(column, avro["size"])
        if kind == "array":
            return _blocks(column, self.encoded(column.values, avro["items"]))
        if kind == "map":
            entries = column.values
            values = self.encoded(entries.field(1), avro["values"])
            return _blocks(column, joined(sized(entries.field(0)), values))
        if kind in _INTEGERS:
            return integers(column)
        if kind in _FORMS:
            return plain_bytes(column, _FORMS[kind])
        return sized(column) if kind in {"string", "bytes"} else self.encoded(column, self._named[kind])

    def record(self, columns: list[pa.Array], avro: Any) -> pa.Array:
        """Records, from the columns of their fields."""
        fields = zip(columns, avro["fields"], strict=True)
        return joined(b"", *(self.encoded(column, field["type"]) for column, field in fields))

    def _union(self, column: pa.Array, branches: list[Any]) -> pa.Array:
        none = branches.index("null")
        values = joined(bytes([2 * (1 - none)]), self.encoded(column, branches[1 - none]))
        return pc.if_else(column.is_valid(), values, pa.scalar(bytes([2 * none]), pa.binary()))


def joined(*parts: pa.Array | bytes) -> pa.Array:
    """Values put behind one another, some of them the same everywhere; null where one is."""
    plain = [pa.scalar(part, pa.binary()) if isinstance(part, bytes) else part for part in parts]
    return pc.binary_join_element_wise(*plain, pa.scalar(b"", pa.binary()))


def sized(texts: pa.Array) -> pa.Array:
    """Each behind its length in bytes."""
    return joined(integers(pc.binary_length(texts)), texts.cast(pa.binary()))


def plain_bytes(column: pa.Array, form: str) -> pa.Array:
    """Numbers and flags in their numpy form; null where the column is."""
    zero = False if column.type == pa.bool_() else 0.0
    values = column.fill_null(zero).to_numpy(zero_copy_only=False).astype(form)
    return _where_known(_cells(values.view(np.uint8).reshape(len(values), values.itemsize)), column)


def varints(numbers: npt.NDArray[np.int64]) -> pa.Array:
    """Avro's form of ints and longs."""
    zigzag = ((numbers << 1) ^ (numbers >> 63)).view(np.uint64)
    groups = zigzag[:, None] >> np.arange(0, 70, 7, dtype=np.uint64)
    more = np.zeros(groups.shape, bool)
    more[:, :-1] = groups[:, 1:] != 0
    taken = np.concatenate([np.ones((len(numbers), 1), bool), more[:, :-1]], axis=1)
    data = ((groups & np.uint64(0x7F)) | (more * np.uint64(0x80))).astype(np.uint8)[taken]
    ends = np.zeros(len(numbers) + 1, np.int32)
    np.cumsum(taken.sum(axis=1), out=ends[1:])
    return pa.Array.from_buffers(pa.binary(), len(numbers), [None, pa.py_buffer(ends), pa.py_buffer(data)])


def bytes_of(values: pa.Array) -> bytes:
    """All of them, one behind the other."""
    ends = _ends(values)
    part: bytes = _data(values).slice(int(ends[0]), int(ends[-1] - ends[0])).to_pybytes()
    return part


def integers(column: pa.Array) -> pa.Array:
    """Whole numbers, dates and timestamps in Avro's form; null where the column is."""
    kind = column.type
    if pa.types.is_timestamp(kind):
        column = column.view(pa.int64())
    elif pa.types.is_date32(kind):
        column = column.view(pa.int32())
    return _where_known(varints(column.fill_null(0).to_numpy(zero_copy_only=False).astype(np.int64)), column)


def _fixed(column: pa.Array, size: int) -> pa.Array:
    """Bytes of one length; a decimal's are the last of its unscaled value, most significant first."""
    if not pa.types.is_decimal(column.type):
        return column.cast(pa.binary())
    width = column.type.byte_width
    raw = np.frombuffer(column.buffers()[1], np.uint8, len(column) * width, column.offset * width)
    return _where_known(_cells(raw.reshape(-1, width)[:, size - 1 :: -1]), column)


def _blocks(lists: pa.Array, values: pa.Array) -> pa.Array:
    """Lists or maps as one block of all their values: how many, the values, and a block of none."""
    values = values.fill_null(b"")  # Those of lists that are null themselves.
    starts = np.asarray(lists.offsets)
    ends = _ends(values)[starts]
    grouped = pa.Array.from_buffers(pa.binary(), len(lists), [None, pa.py_buffer(ends), _data(values)])
    counts = np.diff(starts).astype(np.int64)
    return pc.if_else(pa.array(counts > 0), joined(varints(counts), grouped, b"\0"), pa.scalar(b"\0", pa.binary()))


def _cells(raw: npt.NDArray[np.uint8]) -> pa.Array:
    """The rows of a matrix of bytes."""
    rows, width = raw.shape
    ends = np.arange(rows + 1, dtype=np.int32) * np.int32(width)
    data = pa.py_buffer(np.ascontiguousarray(raw))
    return pa.Array.from_buffers(pa.binary(), rows, [None, pa.py_buffer(ends), data])


def _ends(values: pa.Array) -> npt.NDArray[np.int32]:
    return np.frombuffer(values.buffers()[1], np.int32, len(values) + 1, 4 * values.offset)


def _data(values: pa.Array) -> pa.Buffer:
    return values.buffers()[2] or pa.py_buffer(b"")


def _where_known(values: pa.Array, column: pa.Array) -> pa.Array:
    return pc.if_else(column.is_valid(), values, _NULL)
