"""Decoding of Avro records into Arrow columns, field by field for all records at once.

The caller gives the start of each record. The decoder has an array with the current byte position in each record. It
decodes one field of all records, moves all positions past the field, and continues with the next field. If a few
records have very long lists, this is slower than to decode record by record. In this case fastavro decodes the records,
with the same result.

No input is trusted. `AvroBytes` raises ``IndexError`` for a position past the end and ``ValueError`` for an impossible
length. Its results are never larger than the input plus a fixed number of bytes per position. One byte may be the null
of a struct with many fields or of a long ``fixed``: data whose columns would take far more than its bytes are refused.

Memory: the requested columns, and about ten integers per record for the column in progress.
"""

from __future__ import annotations

import io
from collections.abc import Collection, Iterator
from decimal import Context, Decimal
from itertools import chain, count
from typing import Any, Final, TypeAlias

import fastavro
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lakeformat.arrow.kinds import Kind, kind_of
from lakeformat.arrow.logical_types import is_vector, vector_from_bytes
from lakeformat.codec.avro.memory import check_memory
from lakeformat.codec.avro.schema import PRIMITIVES, AvroType

__all__ = ["AvroBytes", "Ints", "decode_columns", "decode_row_by_row"]

Ints: TypeAlias = npt.NDArray[np.int64]
_Words: TypeAlias = npt.NDArray[np.uint64]

_WORD: Final = 8
_MOST_BYTES: Final = np.iinfo(np.int32).max
_ONES: Final = np.uint64(0x0101010101010101)
_LOW_BITS: Final = np.uint64(0x7F7F7F7F7F7F7F7F)
_HIGH_BITS: Final = np.uint64(0x8080808080808080)
#: The steps that remove the gaps between the 7-bit groups of a varint. Each step joins pairs of neighbouring groups, of
#: 7, 14 and then 28 bits. A step is (mask of lower groups, mask of upper groups, right shift of the upper groups).
_JOINED: Final = tuple(
    (np.uint64(low), np.uint64(low << width), np.uint64(shift))
    for low, width, shift in (
        (0x007F007F007F007F, 8, 1),
        (0x00003FFF00003FFF, 16, 2),
        (0x000000000FFFFFFF, 32, 4),
    )
)


class AvroBytes:
    """Avro data, with methods that decode the values at an array of byte positions, which must not be negative."""

    def __init__(self, data: npt.NDArray[np.uint8]) -> None:
        if len(data) > _MOST_BYTES:
            raise ValueError("more than 2 GiB")
        self.size: Final = len(data)
        self._data: Final = data
        padded = data if len(data) >= _WORD else np.concatenate([data, np.zeros(_WORD - len(data), np.uint8)])
        self._buffer: Final = pa.py_buffer(data)
        self._last = len(padded) - _WORD
        #: Entry ``i`` is the little-endian number in the 8 bytes from byte ``i`` of the data on.
        self._words: Any = np.ndarray(self._last + 1, "<u8", padded, strides=(1,))

    def bytes_at(self, pos: Ints) -> npt.NDArray[np.uint8]:
        """Return the value of the byte at each position."""
        return self._data[pos]

    def varints(self, pos: Ints) -> tuple[Ints, Ints]:
        """Decode a zigzag varint at each position; return the numbers and the positions after them."""
        first = self._data[pos]
        if not (first & 0x80).any():
            return (first >> 1).astype(np.int64) ^ -(first & 1).astype(np.int64), pos + 1
        word = self._word_at(pos)
        stops = ~word & _HIGH_BITS
        lowest = stops & (~stops + np.uint64(1))
        mask = lowest | (lowest - np.uint64(1))
        value = word & mask & _LOW_BITS
        for low, high, shift in _JOINED:
            value = (value & low) | ((value & high) >> shift)
        after = pos + ((mask & _ONES) * _ONES >> np.uint64(56)).astype(np.int64)
        long = np.flatnonzero(stops == 0)
        if long.size:
            value[long], after[long] = self._long_varints(pos[long])
        return (value >> np.uint64(1)).astype(np.int64) ^ -(value & np.uint64(1)).astype(np.int64), after

    def _long_varints(self, pos: Ints) -> tuple[_Words, Ints]:
        """Decode varints of more than 8 bytes, byte by byte; return the zigzag numbers and the positions after them."""
        value, after, open_ = np.zeros(len(pos), np.uint64), pos.copy(), np.arange(len(pos))
        for shift in range(0, 70, 7):
            byte = self._data[after[open_]]
            value[open_] |= (byte & 0x7F).astype(np.uint64) << np.uint64(shift)
            after[open_] += 1
            open_ = open_[(byte & 0x80) != 0]
            if not open_.size:
                return value, after
        raise ValueError("a number takes more than 64 bits")

    def lengths(self, pos: Ints) -> tuple[Ints, Ints]:
        """Decode the length of a string or bytes value at each position; return the lengths and where the values start.

        Raises:
            ValueError: A length is negative or runs past the end, or all lengths together exceed the data.
        """
        lengths, pos = self.varints(pos)
        if (lengths < 0).any() or (lengths > self.size - pos).any() or lengths.sum() > self.size:
            raise ValueError("a text is longer than the rest of the data")
        return lengths, pos

    def texts(self, pos: Ints, lengths: Ints) -> pa.Array:
        """Return a ``binary`` array with copies of the values that start at ``pos`` and have ``lengths`` bytes.

        The data is viewed as an Arrow array in which such values and the bytes between them alternate. So one ``take``
        of every second entry copies all values.
        """
        offsets = np.empty(2 * len(pos), np.int32)
        offsets[0::2], offsets[1::2] = pos, pos + lengths
        texts_and_gaps = pa.Array.from_buffers(
            pa.binary(), len(offsets) - 1, [None, pa.py_buffer(offsets), self._buffer]
        )
        return texts_and_gaps.take(pa.array(np.arange(0, len(offsets), 2)))

    def floats(self, pos: Ints, size: int) -> npt.NDArray[Any]:
        """Decode a floating-point number of ``size`` bytes, 4 or 8, at each position."""
        self._check(pos, size)
        word = self._word_at(pos)
        return word.view(np.float64) if size == _WORD else word.astype(np.uint32).view(np.float32)

    def matrix(self, pos: Ints, size: int) -> npt.NDArray[np.uint8]:
        """Return a matrix whose rows are the ``size`` bytes from each position on."""
        self._check(pos, size)
        if size * len(pos) > self.size:
            raise ValueError("a value runs past the end")
        rows: npt.NDArray[np.uint8] = self._data[pos[:, None] + np.arange(size)]
        return rows

    def right_aligned(self, pos: Ints, lengths: Ints, size: int) -> npt.NDArray[np.uint8]:
        """Read at each position a signed big-endian number of 1 to ``size`` bytes; ``lengths`` are their sizes.

        Return a matrix with one number in each row, sign-extended to ``size`` bytes.
        """
        if (lengths < 1).any() or (lengths > size).any():
            raise ValueError("a decimal has no digits, or more than its type")
        places = (pos + lengths)[:, None] + np.arange(-size, 0)
        own = places >= pos[:, None]
        sign = np.where(self._data[pos] & 0x80, 0xFF, 0).astype(np.uint8)
        aligned: npt.NDArray[np.uint8] = np.where(own, self._data[np.maximum(places, 0)], sign[:, None])
        return aligned

    def _check(self, pos: Ints, size: int) -> None:
        if pos.max() + size > self.size:
            raise ValueError("a value runs past the end")

    def _word_at(self, pos: Ints) -> _Words:
        """Return the 8 bytes from each position on as a little-endian number. Bytes past the end count as 0."""
        starts = pos if pos.max() <= self._last else np.minimum(pos, self._last)
        words: _Words = self._words[starts]
        return words if starts is pos else words >> (8 * (pos - starts)).astype(np.uint64)


#: Bytes of the records that are Python objects at a time.
_OBJECTS_OF_BYTES: Final = 512 << 10
#: Bytes that the columns of some data may always take, and for each byte of the data.
_ALLOWED: Final = 128 << 20
_ALLOWED_EACH: Final = 64
_PLAIN_TYPES: Final = {**PRIMITIVES, "enum": pa.string()}
_EXACT: Final = Context(prec=400)


def decode_row_by_row(
    data: npt.NDArray[np.uint8],
    starts: npt.NDArray[np.int64],
    ends: npt.NDArray[np.int64],
    record: AvroType,
    wanted: Collection[str] | None = None,
) -> pa.Table:
    """Decode records one by one by fastavro. Arguments and result are those of `decode_columns`.

    Memory: a Python object for every value of a row, or of the rows in `_OBJECTS_OF_BYTES`.

    Raises:
        ValueError: The bytes are not records of this schema.
    """
    plain = _plain_schema(record, count())
    schema = fastavro.parse_schema(plain)
    tables, first, last = list[pa.Table](), 0, 0
    for last in range(1, len(starts) + 1):
        if last == len(starts) or ends[last] - starts[first] > _OBJECTS_OF_BYTES:
            rows = [_read_row(data[starts[row] : ends[row]].tobytes(), plain, schema) for row in range(first, last)]
            tables.append(_make_table(rows, record, wanted))
            first = last
    if not tables or not tables[0].num_columns:  # Arrow loses the number of rows if it joins tables without columns.
        return _make_table([None] * len(starts), record, ()) if tables else _make_table([], record, wanted)
    return tables[0] if len(tables) == 1 else pa.concat_tables(tables).combine_chunks()


def _read_row(data: bytes, plain: Any, schema: Any) -> Any:
    """Decode one record to Python objects. Refuse one whose objects would take far more memory than its bytes."""
    file = io.BytesIO(data)
    try:
        if len(data) > _OBJECTS_OF_BYTES:
            check_memory(data, plain)
        row = fastavro.schemaless_reader(file, schema, None)
    except (EOFError, LookupError, TypeError, OverflowError, MemoryError) as error:
        raise ValueError(f"a record cannot be read: {error}") from None
    if file.read(1):
        raise ValueError("the records are not as long as they say")
    return row


def _make_table(rows: list[Any], record: AvroType, names: Collection[str] | None) -> pa.Table:
    chosen = None if names is None else frozenset(names)
    columns = {
        field.name: _column(child, [row[field.name] for row in rows])
        for field, child in zip(record.arrow, record.children, strict=True)
        if chosen is None or field.name in chosen
    }
    if not columns:
        return pa.table({"": pa.nulls(len(rows))}).select([])
    arrow_schema = pa.schema([field for field in record.arrow if field.name in columns])
    return pa.Table.from_arrays(list(columns.values()), schema=arrow_schema)


def _plain_schema(avro_type: AvroType, ids: Iterator[int]) -> Any:
    """Return the Avro schema of a type as JSON, without logical types and with a generated name for each named type."""
    if avro_type.branch is not None:
        branches: list[Any] = ["null"] * avro_type.branches
        branches[avro_type.branch] = _plain_branch(avro_type, ids)
        return branches
    return _plain_branch(avro_type, ids)


def _plain_branch(avro_type: AvroType, ids: Iterator[int]) -> Any:
    """Return the result of `_plain_schema` without the union with null: only the schema of the type itself."""
    match avro_type.kind:
        case "record":
            children = zip(avro_type.names, avro_type.children, strict=True)
            fields = [{"name": name, "type": _plain_schema(child, ids)} for name, child in children]
            return {"type": "record", "name": f"r{next(ids)}", "fields": fields}
        case "array":
            return {"type": "array", "items": _plain_schema(avro_type.children[0], ids)}
        case "map":
            return {"type": "map", "values": _plain_schema(avro_type.children[0], ids)}
        case "fixed":
            return {"type": "fixed", "name": f"f{next(ids)}", "size": avro_type.size}
        case "enum":
            return {"type": "enum", "name": f"e{next(ids)}", "symbols": list(avro_type.symbols)}
        case "union":
            raise ValueError("a union of several types cannot be decoded record by record")
    return avro_type.kind


def _column(avro_type: AvroType, values: list[Any]) -> pa.Array:
    if kind_of(avro_type.arrow) is Kind.DECIMAL:
        numbers = [None if v is None else Decimal(int.from_bytes(v, "big", signed=True)) for v in values]
        scaled = [None if n is None else n.scaleb(-avro_type.arrow.scale, _EXACT) for n in numbers]
        return pa.array(scaled, avro_type.arrow)
    match avro_type.kind:
        case "record":
            return _struct(avro_type, values)
        case "array":
            items = _column(avro_type.children[0], list(chain.from_iterable(v or () for v in values)))
            return _lists(avro_type, values, items)
        case "map":
            pairs = [pair for value in values for pair in (value or {}).items()]
            keys = pa.array([key for key, _ in pairs], pa.string())
            fields = [avro_type.arrow.key_field, avro_type.arrow.item_field]
            inner = _column(avro_type.children[0], [item for _, item in pairs])
            return _lists(avro_type, values, pa.StructArray.from_arrays([keys, inner], fields=fields))
        case "fixed":
            plain = pa.array(values, pa.binary(avro_type.size))
            return _as_fixed(plain, avro_type.arrow)
    return pa.array(values, _PLAIN_TYPES[avro_type.kind]).view(avro_type.arrow)


def _struct(avro_type: AvroType, values: list[Any]) -> pa.Array:
    missing = pa.array([value is None for value in values], pa.bool_())
    arrays = [
        _column(child, [None if value is None else value[name] for value in values])
        for name, child in zip(avro_type.names, avro_type.children, strict=True)
    ]
    if not arrays:
        return pa.array(values, avro_type.arrow)
    return pa.StructArray.from_arrays(arrays, fields=list(avro_type.arrow), mask=missing)


def _lists(avro_type: AvroType, values: list[Any], children: pa.Array) -> pa.Array:
    lengths = [0 if value is None else len(value) for value in values]
    offsets = np.cumsum([0, *lengths], dtype=np.int32)
    valid = pa.array([value is not None for value in values], pa.bool_())
    return pa.Array.from_buffers(
        avro_type.arrow, len(values), [valid.buffers()[1], pa.py_buffer(offsets)], children=[children]
    )


#: The result of decoding a type in all records: the values (None if they are not wanted), and the positions after them.
Step: TypeAlias = "tuple[pa.Array | None, Ints]"

#: Lists are decoded in rounds: round ``n`` decodes the ``n``-th item of every list that has at least ``n`` items. After
#: this number of rounds, the decoder checks whether decoding record by record would be faster.
_MANY_ROUNDS: Final = 1000
#: If a round decodes fewer list items than this on average, decoding record by record is faster.
_FEW_ITEMS: Final = 32


def decode_columns(
    data: npt.NDArray[np.uint8], starts: Ints, ends: Ints, record: AvroType, wanted: Collection[str] | None = None
) -> pa.Table:
    """Decode columns of the records in ``data``. Return a table with one row per record.

    Args:
        data: Bytes that contain the records.
        starts: Position of the first byte of each record.
        ends: Position after the last byte of each record.
        record: The schema with which the records were written.
        wanted: Names of the columns to decode; names that are not in the schema are ignored. None for all columns.

    Raises:
        ValueError: The bytes are not records of this schema.
    """
    try:
        return _Lockstep(AvroBytes(data)).table(starts, ends, record, wanted)
    except _LongLists:
        return decode_row_by_row(data, starts, ends, record, wanted)
    except (IndexError, pa.ArrowInvalid) as error:
        raise ValueError(f"a value runs past the end, or does not fit its type: {error}") from None


class _LongLists(Exception):  # noqa: N818 (a signal, not an error)
    """A signal that a few records have very long lists, so that decoding record by record is faster."""


class _Lockstep:
    """A decoder that decodes a field of all records, then the next field of all records, and so on."""

    def __init__(self, data: AvroBytes) -> None:
        self._data = data
        self._rounds = self._items = 0
        self._left = _ALLOWED + _ALLOWED_EACH * data.size

    def _take(self, size: int) -> None:
        """Count the bytes that values will take, before memory is taken."""
        self._left -= size
        if self._left < 0:
            raise ValueError(f"its {self._data.size:,} bytes would become far larger columns")

    def table(self, starts: Ints, ends: Ints, record: AvroType, wanted: Collection[str] | None) -> pa.Table:
        arrays, fields, pos = [], [], starts
        chosen = frozenset(record.names if wanted is None else wanted)
        for field, child in zip(record.arrow, record.children, strict=True):
            self._take(len(starts) * _width(child) if field.name in chosen else 0)
            array, pos = self._step(child, pos, field.name in chosen)
            if array is not None:
                arrays.append(array)
                fields.append(field)
        if not np.array_equal(pos, ends):
            raise ValueError("the records are not as long as they say")
        if not arrays:  # Arrow loses the number of rows if a table is built without columns.
            return pa.table({"": pa.nulls(len(starts))}).select([])
        return pa.Table.from_arrays(arrays, schema=pa.schema(fields))

    def _step(self, avro_type: AvroType, pos: Ints, want: bool) -> Step:
        if not len(pos):
            return (pa.array([], avro_type.arrow) if want else None), pos
        if avro_type.branch is None:
            return self._values(avro_type, pos, want)
        branch, pos = self._data.bytes_at(pos), pos + 1
        present = branch == 2 * avro_type.branch
        if present.all():
            return self._values(avro_type, pos, want)
        if (branch & 1).any() or (branch >= 2 * avro_type.branches).any():
            raise ValueError("a value is of a branch that its union does not have")
        if not present.any():
            return (pa.nulls(len(pos), avro_type.arrow) if want else None), pos
        values, pos[present] = self._values(avro_type, pos[present], want)
        if values is None:
            return None, pos
        return values.take(pa.array(np.cumsum(present) - 1, mask=~present)), pos

    def _values(self, avro_type: AvroType, pos: Ints, want: bool) -> Step:
        """Decode a value at each position. No value is null: the branches of a union with null are decoded already."""
        match avro_type.kind:
            case "int" | "long":
                values, pos = self._data.varints(pos)
                return (_integers(avro_type, values) if want else None), pos
            case "string" | "bytes":
                lengths, pos = self._data.lengths(pos)
                return (self._text(avro_type, pos, lengths) if want else None), pos + lengths
            case "double" | "float":
                size = 8 if avro_type.kind == "double" else 4
                return (pa.array(self._data.floats(pos, size)) if want else None), pos + size
            case "boolean":
                return (_booleans(self._data.bytes_at(pos)) if want else None), pos + 1
            case "record":
                return self._record(avro_type, pos, want)
            case "fixed":
                return (self._fixed(avro_type, pos) if want else None), pos + avro_type.size
            case "union":
                return self._union(avro_type, pos, want)
            case "enum":
                places, pos = self._data.varints(pos)
                if (places < 0).any() or (places >= len(avro_type.symbols)).any():
                    raise ValueError("a value is not a symbol of its enum")
                self._take(int(np.array([*map(len, avro_type.symbols)])[places].sum()) if want else 0)
                return (pa.array(avro_type.symbols, avro_type.arrow).take(pa.array(places)) if want else None), pos
        return self._collection(avro_type, pos, want)

    def _text(self, avro_type: AvroType, pos: Ints, lengths: Ints) -> pa.Array:
        if kind_of(avro_type.arrow) is Kind.DECIMAL:
            return _decimals(self._data.right_aligned(pos, lengths, 16), avro_type.arrow)
        return self._data.texts(pos, lengths).cast(avro_type.arrow)  # A cast to string refuses invalid UTF-8.

    def _fixed(self, avro_type: AvroType, pos: Ints) -> pa.Array:
        raw = self._data.matrix(pos, avro_type.size)
        if kind_of(avro_type.arrow) is not Kind.DECIMAL:
            plain = pa.Array.from_buffers(pa.binary(avro_type.size), len(pos), [None, pa.py_buffer(raw)])
            return _as_fixed(plain, avro_type.arrow)
        if not avro_type.size:
            raise ValueError("a decimal takes no bytes")
        sign = np.where(raw[:, :1] & 0x80, 0xFF, 0).astype(np.uint8)
        if avro_type.size > 16 and (raw[:, : avro_type.size - 16] != sign).any():
            raise ValueError("a decimal has more digits than its type")
        return _decimals(
            np.concatenate([sign.repeat(max(16 - avro_type.size, 0), 1), raw[:, -16:]], axis=1), avro_type.arrow
        )

    def _record(self, avro_type: AvroType, pos: Ints, want: bool) -> Step:
        arrays, rows = [], len(pos)
        for child in avro_type.children:
            array, pos = self._step(child, pos, want)
            arrays.append(array)
        if not want:
            return None, pos
        if not arrays:
            return pa.Array.from_buffers(avro_type.arrow, rows, [None]), pos
        return pa.StructArray.from_arrays(arrays, fields=list(avro_type.arrow)), pos

    def _union(self, avro_type: AvroType, pos: Ints, want: bool) -> Step:
        """Decode a union of several types: a struct with a field for each type, of which at most one is not null."""
        branches, pos = self._data.varints(pos)
        if (branches < 0).any() or (branches >= avro_type.branches).any():
            raise ValueError("a value is of a branch that its union does not have")
        arrays: list[pa.Array] = []
        for number, child in enumerate(avro_type.children):
            if child.kind == "null":
                continue
            is_own = branches == number
            values = None
            if is_own.any():
                values, pos[is_own] = self._step(child, pos[is_own], want)
            if not want:
                continue
            if values is None:
                arrays.append(pa.nulls(len(pos), child.arrow))
            else:
                arrays.append(values if is_own.all() else values.take(pa.array(np.cumsum(is_own) - 1, mask=~is_own)))
        return (pa.StructArray.from_arrays(arrays, fields=list(avro_type.arrow)) if want else None), pos

    def _collection(self, avro_type: AvroType, pos: Ints, want: bool) -> Step:
        """Decode an array or map at each position: a sequence of blocks of items, ended by an empty block.

        The blocks are decoded in rounds: round ``n`` decodes the ``n``-th item of the current block in all rows whose
        block has at least ``n`` items.
        """
        pos = pos.copy()
        width = _width(avro_type.children[0]) if want else 0
        rounds = _Rounds(len(pos))
        open_rows = np.arange(len(pos))
        while open_rows.size:
            counts, pos[open_rows] = self._counts(pos[open_rows])
            open_rows, counts = open_rows[counts > 0], counts[counts > 0]
            if counts.sum() > self._data.size:
                raise ValueError("a list has more items than bytes")
            todo = open_rows
            while todo.size:
                self._count_round(len(todo))
                self._take(len(todo) * width)
                key, starts = self._map_key(pos[todo], want) if avro_type.kind == "map" else (None, pos[todo])
                item, pos[todo] = self._step(avro_type.children[0], starts, want)
                rounds.add(todo, key, item)
                counts = counts - 1
                todo, counts = todo[counts > 0], counts[counts > 0]
        return (rounds.to_array(avro_type) if want else None), pos

    def _count_round(self, items: int) -> None:
        self._rounds, self._items = self._rounds + 1, self._items + items
        if self._rounds > _MANY_ROUNDS and self._items < _FEW_ITEMS * self._rounds:
            raise _LongLists

    def _map_key(self, pos: Ints, want: bool) -> Step:
        lengths, pos = self._data.lengths(pos)
        return (self._data.texts(pos, lengths).cast(pa.string()) if want else None), pos + lengths

    def _counts(self, pos: Ints) -> tuple[Ints, Ints]:
        """Decode a block header at each position; return the numbers of items and the positions after the headers.

        If the stored number is negative, its absolute value is the number of items, and the header also has the size of
        the block in bytes, which is skipped.
        """
        counts, pos = self._data.varints(pos)
        sized = counts < 0
        if sized.any():
            counts = np.abs(counts)
            _, pos[sized] = self._data.varints(pos[sized])
        return counts, pos


def _width(avro_type: AvroType) -> int:
    """Return the bytes that a value takes at least in its column, a null too."""
    match avro_type.kind:
        case "record" | "union":
            return 1 + sum(map(_width, avro_type.children))
        case "fixed":
            return 16 if kind_of(avro_type.arrow) is Kind.DECIMAL else avro_type.size
        case "string" | "bytes" | "array" | "map" | "enum":
            return 16 if kind_of(avro_type.arrow) is Kind.DECIMAL else 4
        case "null":
            return 0
    return int(avro_type.arrow.bit_width) // 8 + 1


class _Rounds:
    """A buffer of the items of lists or maps, added in rounds: the first items of all rows, then the second items."""

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

    def to_array(self, avro_type: AvroType) -> pa.Array:
        offsets = np.zeros(len(self._counts) + 1, np.int32)
        np.cumsum(self._counts, out=offsets[1:])
        children = self._order_items(self._items, avro_type.children[0].arrow)
        if avro_type.kind == "map":
            fields = [avro_type.arrow.key_field, avro_type.arrow.item_field]
            children = pa.StructArray.from_arrays([self._order_items(self._keys, pa.string()), children], fields=fields)
        return pa.Array.from_buffers(
            avro_type.arrow, len(self._counts), [None, pa.py_buffer(offsets)], children=[children]
        )

    def _order_items(self, parts: list[pa.Array], kind: pa.DataType) -> pa.Array:
        if not parts:
            return pa.array([], kind)
        if len(parts) == 1:
            return parts[0]
        return pa.concat_arrays(parts).take(pa.array(np.argsort(np.concatenate(self._rows), kind="stable")))


def _as_fixed(values: pa.Array, kind: pa.DataType) -> pa.Array:
    """Return bytes of one length as the type of their column: vectors, or bytes."""
    return vector_from_bytes(values, kind) if is_vector(kind) else values


def _integers(avro_type: AvroType, values: Ints) -> pa.Array:
    if avro_type.kind == "long":
        return pa.array(values).view(avro_type.arrow)
    narrow = values.astype(np.int32)
    if not np.array_equal(narrow, values):
        raise ValueError("an int takes more than 32 bits")
    return pa.array(narrow).view(avro_type.arrow)


def _booleans(values: npt.NDArray[np.uint8]) -> pa.Array:
    if (values > 1).any():
        raise ValueError("a boolean is neither 0 nor 1")
    return pa.array(values.astype(bool))


def _decimals(big_endian: npt.NDArray[np.uint8], kind: pa.DataType) -> pa.Array:
    """Return decimals from their unscaled values, a matrix with a big-endian number of 16 bytes in each row."""
    little = np.ascontiguousarray(big_endian[:, ::-1])
    array = pa.Array.from_buffers(kind, len(little), [None, pa.py_buffer(little)])
    array.validate(full=True)
    return array
