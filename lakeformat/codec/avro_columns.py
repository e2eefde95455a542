"""Decoding of Avro records into Arrow columns, field by field for all records at once.

The start of each record must be known. The positions of all records then advance together, one field at a time. Only
Arrow copies the bytes of texts.

Memory: the requested columns, and about ten integers per record for the column in progress.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Final, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lakeformat.codec.avro_bytes import AvroBytes, Ints
from lakeformat.codec.avro_rows import columns_of_rows
from lakeformat.codec.avro_types import AvroType

__all__ = ["decode_columns"]

#: The decoded values, None if they are not wanted, and the positions after them.
Step: TypeAlias = "tuple[pa.Array | None, Ints]"

#: After `_MANY_ROUNDS` rounds over the items of lists, a round must decode `_FEW_ITEMS` items on average to pay off.
_MANY_ROUNDS: Final = 1000
_FEW_ITEMS: Final = 32


def decode_columns(
    data: npt.NDArray[np.uint8], starts: Ints, ends: Ints, record: AvroType, wanted: Collection[str] | None = None
) -> pa.Table:
    """Decode columns of the records whose bytes lie exactly between ``starts`` and ``ends``.

    Args:
        data: Bytes that hold the records.
        record: The schema that the records were written with.
        wanted: Names of the columns to decode; names that are not in the schema are ignored. None for all columns.

    Raises:
        ValueError: The bytes are not records of this schema.
    """
    try:
        return _Lockstep(AvroBytes(data)).table(starts, ends, record, wanted)
    except _LongLists:
        return columns_of_rows(data, starts, ends, record, wanted)
    except (IndexError, pa.ArrowInvalid) as error:
        raise ValueError(f"a value runs past the end, or does not fit its type: {error}") from None


class _LongLists(Exception):  # noqa: N818 (a signal, not an error)
    """A signal that a few records hold very long lists, which decode faster record by record."""


class _Lockstep:
    """A decoder that moves the positions of all records forward together."""

    def __init__(self, data: AvroBytes) -> None:
        self._data = data
        self._rounds = self._items = 0

    def table(self, starts: Ints, ends: Ints, record: AvroType, wanted: Collection[str] | None) -> pa.Table:
        arrays, fields, pos = [], [], starts
        chosen = frozenset(record.names if wanted is None else wanted)
        for field, child in zip(record.arrow, record.children, strict=True):
            array, pos = self._step(child, pos, field.name in chosen)
            if array is not None:
                arrays.append(array)
                fields.append(field)
        if not np.array_equal(pos, ends):
            raise ValueError("the records are not as long as they say")
        if not arrays:  # A table without columns must still know its rows.
            return pa.table({"": pa.nulls(len(starts))}).select([])
        return pa.Table.from_arrays(arrays, schema=pa.schema(fields))

    def _step(self, one: AvroType, pos: Ints, want: bool) -> Step:
        if not len(pos):
            return (pa.array([], one.arrow) if want else None), pos
        if one.branch is None:
            return self._values(one, pos, want)
        branch, pos = self._data.bytes_at(pos), pos + 1
        present = branch == 2 * one.branch
        if present.all():
            return self._values(one, pos, want)
        if (branch & 1).any() or (branch >= 2 * one.branches).any():
            raise ValueError("a value is of a branch that its union does not have")
        if not present.any():
            return (pa.nulls(len(pos), one.arrow) if want else None), pos
        values, pos[present] = self._values(one, pos[present], want)
        if values is None:
            return None, pos
        return values.take(pa.array(np.cumsum(present) - 1, mask=~present)), pos

    def _values(self, one: AvroType, pos: Ints, want: bool) -> Step:
        """Decode values none of which is null."""
        match one.kind:
            case "int" | "long":
                values, pos = self._data.varints(pos)
                return (_integers(one, values) if want else None), pos
            case "string" | "bytes":
                lengths, pos = self._data.lengths(pos)
                return (self._text(one, pos, lengths) if want else None), pos + lengths
            case "double" | "float":
                size = 8 if one.kind == "double" else 4
                return (pa.array(self._data.floats(pos, size)) if want else None), pos + size
            case "boolean":
                return (_booleans(self._data.bytes_at(pos)) if want else None), pos + 1
            case "record":
                return self._record(one, pos, want)
            case "fixed":
                return (self._fixed(one, pos) if want else None), pos + one.size
            case "enum":
                places, pos = self._data.varints(pos)
                if (places < 0).any() or (places >= len(one.symbols)).any():
                    raise ValueError("a value is not a symbol of its enum")
                return (pa.array(one.symbols, one.arrow).take(pa.array(places)) if want else None), pos
        return self._collection(one, pos, want)

    def _text(self, one: AvroType, pos: Ints, lengths: Ints) -> pa.Array:
        if pa.types.is_decimal(one.arrow):
            return _decimals(self._data.right_aligned(pos, lengths, 16), one.arrow)
        return self._data.texts(pos, lengths).cast(one.arrow)  # The cast to text checks the UTF-8.

    def _fixed(self, one: AvroType, pos: Ints) -> pa.Array:
        raw = self._data.matrix(pos, one.size)
        if not pa.types.is_decimal(one.arrow):
            return pa.Array.from_buffers(one.arrow, len(pos), [None, pa.py_buffer(raw)])
        if not one.size:
            raise ValueError("a decimal takes no bytes")
        sign = np.where(raw[:, :1] & 0x80, 0xFF, 0).astype(np.uint8)
        if one.size > 16 and (raw[:, : one.size - 16] != sign).any():
            raise ValueError("a decimal has more digits than its type")
        return _decimals(np.concatenate([sign.repeat(max(16 - one.size, 0), 1), raw[:, -16:]], axis=1), one.arrow)

    def _record(self, one: AvroType, pos: Ints, want: bool) -> Step:
        arrays, rows = [], len(pos)
        for child in one.children:
            array, pos = self._step(child, pos, want)
            arrays.append(array)
        if not want:
            return None, pos
        if not arrays:
            return pa.Array.from_buffers(one.arrow, rows, [None]), pos
        return pa.StructArray.from_arrays(arrays, fields=list(one.arrow)), pos

    def _collection(self, one: AvroType, pos: Ints, want: bool) -> Step:
        """Decode arrays or maps. Round n decodes the n-th item of a block for all rows whose block has one.

        A value is a sequence of blocks and ends with an empty block.
        """
        pos = pos.copy()
        rounds = _Rounds(len(pos))
        open_rows = np.arange(len(pos))
        while open_rows.size:
            left, pos[open_rows] = self._counts(pos[open_rows])
            open_rows, left = open_rows[left > 0], left[left > 0]
            if left.sum() > self._data.size:
                raise ValueError("a list has more items than bytes")
            todo = open_rows
            while todo.size:
                self._count_round(len(todo))
                key, at = self._map_key(pos[todo], want) if one.kind == "map" else (None, pos[todo])
                item, pos[todo] = self._step(one.children[0], at, want)
                rounds.add(todo, key, item)
                left = left - 1
                todo, left = todo[left > 0], left[left > 0]
        return (rounds.array(one) if want else None), pos

    def _count_round(self, items: int) -> None:
        self._rounds, self._items = self._rounds + 1, self._items + items
        if self._rounds > _MANY_ROUNDS and self._items < _FEW_ITEMS * self._rounds:
            raise _LongLists

    def _map_key(self, pos: Ints, want: bool) -> Step:
        lengths, pos = self._data.lengths(pos)
        return (self._data.texts(pos, lengths).cast(pa.string()) if want else None), pos + lengths

    def _counts(self, pos: Ints) -> tuple[Ints, Ints]:
        """Read the number of items in the next blocks. After a negative number comes the block's size in bytes."""
        counts, pos = self._data.varints(pos)
        sized = counts < 0
        if sized.any():
            counts = np.abs(counts)
            _, pos[sized] = self._data.varints(pos[sized])
        return counts, pos


class _Rounds:
    """The items of lists or maps in order of decoding: the first items of all rows, then the second items."""

    def __init__(self, rows: int) -> None:
        self._counts = np.zeros(rows, np.int64)
        self._rows: list[Ints] = []
        self._keys: list[pa.Array] = []
        self._items: list[pa.Array] = []

    def add(self, rows: Ints, keys: pa.Array | None, items: pa.Array | None) -> None:
        self._counts[rows] += 1
        if items is not None:
            self._rows.append(rows)
            self._items.append(items)
        if keys is not None:
            self._keys.append(keys)

    def array(self, one: AvroType) -> pa.Array:
        offsets = np.zeros(len(self._counts) + 1, np.int32)
        np.cumsum(self._counts, out=offsets[1:])
        children = self._in_order(self._items, one.children[0].arrow)
        if one.kind == "map":
            fields = [one.arrow.key_field, one.arrow.item_field]
            children = pa.StructArray.from_arrays([self._in_order(self._keys, pa.string()), children], fields=fields)
        return pa.Array.from_buffers(one.arrow, len(self._counts), [None, pa.py_buffer(offsets)], children=[children])

    def _in_order(self, parts: list[pa.Array], kind: pa.DataType) -> pa.Array:
        if not parts:
            return pa.array([], kind)
        if len(parts) == 1:
            return parts[0]
        return pa.concat_arrays(parts).take(pa.array(np.argsort(np.concatenate(self._rows), kind="stable")))


def _integers(one: AvroType, values: Ints) -> pa.Array:
    if one.kind == "long":
        return pa.array(values).view(one.arrow)
    narrow = values.astype(np.int32)
    if not np.array_equal(narrow, values):
        raise ValueError("an int takes more than 32 bits")
    return pa.array(narrow).view(one.arrow)


def _booleans(values: npt.NDArray[np.uint8]) -> pa.Array:
    if (values > 1).any():
        raise ValueError("a boolean is neither 0 nor 1")
    return pa.array(values.astype(bool))


def _decimals(big_endian: npt.NDArray[np.uint8], kind: pa.DataType) -> pa.Array:
    """Make decimals from big-endian numbers of 16 bytes each."""
    little = np.ascontiguousarray(big_endian[:, ::-1])
    array = pa.Array.from_buffers(kind, len(little), [None, pa.py_buffer(little)])
    array.validate(full=True)
    return array
