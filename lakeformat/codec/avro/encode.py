"""Encoding of Arrow columns as Avro: each column becomes a binary column with the encoded value of each row.

There is no Python loop over rows. The Avro types are those that `lakeformat.codec.avro.schema.to_avro` writes.
Memory: the encoded bytes, and about eighty bytes per value while integers are encoded.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lakeformat.arrow.kinds import Kind, kind_of
from lakeformat.arrow.logical_types import is_vector, vector_to_bytes

__all__ = [
    "AvroEncoder",
    "decimal_bytes",
    "encode_integers",
    "encode_plain",
    "encode_varints",
    "join_bytes",
    "prefix_length",
    "to_bytes",
]

_NULL: Final = pa.scalar(None, pa.binary())
_FORMS: Final[Mapping[str, str]] = {"boolean": "u1", "float": "<f4", "double": "<f8"}
_INTEGERS: Final = frozenset({"int", "long"})


class AvroEncoder:
    """An encoder of columns by Avro type. It stores named types, since later types may refer to them by name only."""

    def __init__(self) -> None:
        self._named: dict[str, Any] = {}

    def encode(self, column: pa.Array, avro: Any) -> pa.Array:
        """Return a binary column with the encoding of each value.

        A null is encoded if the Avro type is a union with null. Otherwise the result has a null in its place.

        Args:
            column: Values of the Arrow type that belongs to the Avro type.
            avro: The Avro type as parsed JSON. A union must consist of null and one other type.
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
            return _blocks(column, self.encode(column.values, avro["items"]))
        if kind == "map":
            entries = column.values
            values = self.encode(entries.field(1), avro["values"])
            return _blocks(column, join_bytes(prefix_length(entries.field(0)), values))
        if kind == "enum":
            self._named[avro["name"]] = avro
            return encode_integers(pc.index_in(column, pa.array(avro["symbols"], column.type)))
        if kind == "bytes" and kind_of(column.type) is Kind.DECIMAL:
            return prefix_length(decimal_bytes(column))
        if kind in _INTEGERS:
            return encode_integers(column)
        if kind in _FORMS:
            return encode_plain(column, _FORMS[kind])
        return prefix_length(column) if kind in {"string", "bytes"} else self.encode(column, self._named[kind])

    def record(self, columns: list[pa.Array], avro: Any) -> pa.Array:
        """Return a binary column with an encoded record for each row. ``columns`` are the fields of the records."""
        fields = zip(columns, avro["fields"], strict=True)
        return join_bytes(b"", *(self.encode(column, field["type"]) for column, field in fields))

    def _union(self, column: pa.Array, branches: list[Any]) -> pa.Array:
        none = branches.index("null")
        values = join_bytes(bytes([2 * (1 - none)]), self.encode(column, branches[1 - none]))
        return pc.if_else(column.is_valid(), values, pa.scalar(bytes([2 * none]), pa.binary()))


def join_bytes(*parts: pa.Array | bytes) -> pa.Array:
    """Concatenate binary columns row by row. A ``bytes`` part is added to every row. A row with a null part is null."""
    plain = [pa.scalar(part, pa.binary()) if isinstance(part, bytes) else part for part in parts]
    return pc.binary_join_element_wise(*plain, pa.scalar(b"", pa.binary()))


def prefix_length(texts: pa.Array) -> pa.Array:
    """Return each string or bytes value as Avro stores it: its length in bytes, encoded as a long, then its bytes."""
    return join_bytes(encode_integers(pc.binary_length(texts)), texts.cast(pa.binary()))


def encode_plain(column: pa.Array, form: str) -> pa.Array:
    """Encode floats or booleans in the binary form of a numpy dtype, such as ``<f8``. A null stays null."""
    zero = False if column.type == pa.bool_() else 0.0
    values = column.fill_null(zero).to_numpy(zero_copy_only=False).astype(form)
    return _copy_nulls(_to_binary_rows(values.view(np.uint8).reshape(len(values), values.itemsize)), column)


def encode_varints(numbers: npt.NDArray[np.int64]) -> pa.Array:
    """Encode numbers as Avro ints or longs: zigzag varints of seven bits per byte."""
    zigzag = ((numbers << 1) ^ (numbers >> 63)).view(np.uint64)
    groups = zigzag[:, None] >> np.arange(0, 70, 7, dtype=np.uint64)
    more = np.zeros(groups.shape, bool)
    more[:, :-1] = groups[:, 1:] != 0
    taken = np.concatenate([np.ones((len(numbers), 1), bool), more[:, :-1]], axis=1)
    data = ((groups & np.uint64(0x7F)) | (more * np.uint64(0x80))).astype(np.uint8)[taken]
    ends = np.zeros(len(numbers) + 1, np.int32)
    np.cumsum(taken.sum(axis=1), out=ends[1:])
    return pa.Array.from_buffers(pa.binary(), len(numbers), [None, pa.py_buffer(ends), pa.py_buffer(data)])


def to_bytes(values: pa.Array) -> bytes:
    """Return the concatenation of all values of a binary column as one ``bytes``."""
    ends = _ends(values)
    part: bytes = _data(values).slice(int(ends[0]), int(ends[-1] - ends[0])).to_pybytes()
    return part


def encode_integers(column: pa.Array) -> pa.Array:
    """Encode integers, dates and timestamps as Avro ints or longs. A null stays null."""
    kind = column.type
    if kind_of(kind) is Kind.TIMESTAMP:
        column = column.view(pa.int64())
    elif kind_of(kind) is Kind.DATE:
        column = column.view(pa.int32())
    return _copy_nulls(encode_varints(column.fill_null(0).to_numpy(zero_copy_only=False).astype(np.int64)), column)


def decimal_bytes(column: pa.Array) -> pa.Array:
    """Return the unscaled value of each decimal, big-endian, in as few bytes as its sign allows. A null stays null.

    Java: ``BigInteger.toByteArray``.
    """
    raw = _decimal_rows(column)[:, ::-1]
    sign = np.where(raw[:, :1] >> 7, np.uint8(255), np.uint8(0))
    differs = raw != sign
    first = np.where(differs.any(axis=1), differs.argmax(axis=1), raw.shape[1] - 1)
    first -= (raw[np.arange(len(raw)), first] ^ sign[:, 0]) >> 7  # The first bit must be the sign.
    ends = np.zeros(len(raw) + 1, np.int32)
    np.cumsum(raw.shape[1] - first, out=ends[1:])
    data = raw[np.arange(raw.shape[1]) >= first[:, None]]
    values = pa.Array.from_buffers(pa.binary(), len(raw), [None, pa.py_buffer(ends), pa.py_buffer(data)])
    return _copy_nulls(values, column)


def _fixed(column: pa.Array, size: int) -> pa.Array:
    """Encode values as ``fixed``. A decimal becomes the last ``size`` bytes of its unscaled value, big-endian."""
    if kind_of(column.type) is not Kind.DECIMAL:
        return (vector_to_bytes(column) if is_vector(column.type) else column).cast(pa.binary())
    return _copy_nulls(_to_binary_rows(_decimal_rows(column)[:, size - 1 :: -1]), column)


def _decimal_rows(column: pa.Array) -> npt.NDArray[np.uint8]:
    """Return the bytes of decimals, little-endian, a row for each."""
    width = column.type.byte_width
    return np.frombuffer(column.buffers()[1], np.uint8, len(column) * width, column.offset * width).reshape(-1, width)


def _blocks(lists: pa.Array, values: pa.Array) -> pa.Array:
    """Encode lists or maps. Each becomes one block (the number of its items, then the items) and an empty block.

    If a list or map has no items, its encoding is the empty block alone.

    Args:
        lists: The lists or maps, of which only the offsets are used.
        values: The encoded items of all lists.
    """
    values = values.fill_null(b"")  # Only items of null lists can be null, and these are not used.
    starts = np.asarray(lists.offsets)
    ends = _ends(values)[starts]
    grouped = pa.Array.from_buffers(pa.binary(), len(lists), [None, pa.py_buffer(ends), _data(values)])
    counts = np.diff(starts).astype(np.int64)
    return pc.if_else(
        pa.array(counts > 0), join_bytes(encode_varints(counts), grouped, b"\0"), pa.scalar(b"\0", pa.binary())
    )


def _to_binary_rows(raw: npt.NDArray[np.uint8]) -> pa.Array:
    """Return a binary array whose values are the rows of a matrix of bytes."""
    rows, width = raw.shape
    ends = np.arange(rows + 1, dtype=np.int32) * np.int32(width)
    data = pa.py_buffer(np.ascontiguousarray(raw))
    return pa.Array.from_buffers(pa.binary(), rows, [None, pa.py_buffer(ends), data])


def _ends(values: pa.Array) -> npt.NDArray[np.int32]:
    return np.frombuffer(values.buffers()[1], np.int32, len(values) + 1, 4 * values.offset)


def _data(values: pa.Array) -> pa.Buffer:
    return values.buffers()[2] or pa.py_buffer(b"")


def _copy_nulls(values: pa.Array, column: pa.Array) -> pa.Array:
    return pc.if_else(column.is_valid(), values, _NULL)
