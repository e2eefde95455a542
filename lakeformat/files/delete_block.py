"""The content of a delete block: keys and ordering values as columns.

An Avro record without a header, ``HoodieDeleteRecordList``: an array of record key, partition path and ordering value.
The last is a union of a record for each Java type, so that values of several types may stand in one block.
"""

from __future__ import annotations

import json
import struct
from array import array
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lakeformat.codec.avro_columns import decode_columns
from lakeformat.codec.avro_types import AvroType, record_type
from lakeformat.codec.log_block import AVRO_CONTENT_VERSION, LogBlock
from lakeformat.errors import LakeformatError, UnsupportedTableError
from lakeformat.files.data_block import damaged_content
from lakeformat.merge.log_records import LogDeletes

__all__ = ["deletes"]

Ints: TypeAlias = npt.NDArray[np.int64]

_HEAD: Final = struct.Struct(">ii")
_DECIMAL: Final = {"type": "bytes", "logicalType": "decimal", "precision": 30, "scale": 15}
#: The union of an ordering value: null, then one wrapper each of these, of which the last stands within arrays alone:
#: in its place the outer union has the array (Hudi: ``HoodieDeleteRecord.avsc``).
_WRAPPED: Final[tuple[Any, ...]] = (
    "boolean",
    "int",
    "long",
    "float",
    "double",
    "bytes",
    "string",
    {"type": "int", "logicalType": "date"},
    _DECIMAL,
    "long",  # Microseconds of a day.
    {"type": "long", "logicalType": "timestamp-micros"},
    {"type": "int", "logicalType": "date"},  # Within an array of values only: alone, this branch is the array.
)
_NULL, _INT, _TIME, _ARRAY = 0, 2, 10, 12
#: Of a record: start and end of its key, branch of its value, start and end of that.
_PLACES: Final = 5
#: Looking for records alike costs as much as to read some; where fewer are found it is left for so many records.
_FEW_ALIKE: Final = 16
_HOPS_BETWEEN: Final = 128


def _wrapper(avro: Any) -> AvroType:
    return record_type(
        json.dumps({"type": "record", "name": "w", "fields": [{"name": "value", "type": avro}]}), name="delete blocks"
    )


_WRAPPERS: Final = (None, *map(_wrapper, _WRAPPED))
_KEYS: Final = record_type(
    json.dumps({"type": "record", "name": "k", "fields": [{"name": "recordKey", "type": ["null", "string"]}]}),
    name="delete blocks",
)


@dataclass(frozen=True, slots=True)
class _Values:
    """Ordering values: of which branch of the union each is, and where its wrapper starts and ends."""

    branches: Ints
    starts: Ints
    ends: Ints


def deletes(block: LogBlock, content: Any) -> LogDeletes:
    """The keys of a block, and a column of ordering values for each ordering field.

    An ordering value that is null, or the int 0 standing alone (Hudi: ``OrderingValues.getDefault``), is null: such a
    delete deletes whatever is there. Where all are, there is no column. Types are those of the wrappers; a timestamp
    column's values may come as microseconds or milliseconds in a long.

    Args:
        content: its bytes, or a ``pyarrow.Buffer`` of them.

    Raises:
        CorruptTableError: the content is not what it should be.
        UnsupportedTableError: the version of the content is not known, or ordering values have types that cannot be
            compared.
    """
    try:
        data = np.frombuffer(content, np.uint8)
        version, length = _HEAD.unpack_from(data.data)
        if version != AVRO_CONTENT_VERSION:
            raise UnsupportedTableError(
                f"{block.name} holds deletes of version {version}, which old releases of Hudi wrote; compact the table "
                "with Apache Hudi"
            )
        if length != len(data) - _HEAD.size:
            raise ValueError(f"{len(data) - _HEAD.size} bytes of deletes, not {length}")
        keys, values = _hopped(data.data, _HEAD.size)
        return LogDeletes(block.instant_time, _texts(data, keys), _ordering(data, values, block))
    except LakeformatError:
        raise
    except (ValueError, IndexError, struct.error) as error:
        raise damaged_content(block, error) from None


def _texts(data: npt.NDArray[np.uint8], keys: tuple[Ints, Ints]) -> pa.Array:
    found = decode_columns(data, *keys, _KEYS).column(0).combine_chunks()
    if found.null_count:
        raise ValueError("a record key is null")
    return found


def _hopped(data: memoryview, at: int) -> tuple[tuple[Ints, Ints], _Values]:
    """Where keys start and end, and where values do.

    Only a record tells where the next one is. But where keys are of one length, and values take as many bytes, records
    follow one another in steps; whether they do is seen of many at once.
    """
    parts: list[Ints] = []
    hopped = array("q")
    count, at = _count(data, at)
    while count:
        hops = 0
        while count:
            places, branch_at = _record(data, at)
            hopped.extend(places)
            at, count, hops = places[-1], count - 1, hops - 1
            if hops < 0 and count:
                alike = _alike(data, places, branch_at, count)
                if alike:
                    parts += [_ints(hopped).reshape(-1, _PLACES), _repeated(places, alike)]
                    del hopped[:]
                at, count = at + alike * (places[-1] - places[0]), count - alike
                hops = 0 if alike >= _FEW_ALIKE else _HOPS_BETWEEN
        count, at = _count(data, at)
    if at != len(data):
        raise ValueError(f"its records end at byte {at} of {len(data)}")
    parts.append(_ints(hopped).reshape(-1, _PLACES))
    key_starts, key_ends, branches, starts, ends = np.concatenate(parts).T.copy()
    return (key_starts, key_ends), _Values(branches, starts, ends)


def _record(data: memoryview, at: int) -> tuple[tuple[int, ...], int]:
    """Where its key starts and ends, the branch of its value, where that starts and ends; and where the branch is."""
    key_end = _after_optional_text(data, at)
    branch_at = _after_optional_text(data, key_end)
    branch, start = _varint(data, branch_at)
    end = _wrapped(data, start)[1] if branch == _ARRAY else _after_value(data, branch, start)
    return (at, key_end, branch, start, end), branch_at


def _alike(data: memoryview, places: tuple[int, ...], branch_at: int, most: int) -> int:
    """How many records behind this one, of so many, have their key and value at the same distances.

    They do if the bytes that tell lengths and branches are the same, and numbers end at the same byte.
    """
    begin, key_end, branch, start, end = places
    if branch == _ARRAY:
        return 0
    step, told = end - begin, np.zeros(end - begin, np.uint8)
    told[: _text_at(data, begin) - begin] = 0xFF
    told[key_end - begin : _text_at(data, key_end) - begin] = 0xFF
    told[branch_at - begin : start - begin] = 0xFF
    if _HOPS[branch] is _after_varint:
        told[start - begin :] = 0x80
    elif _HOPS[branch] is _after_text:
        told[start - begin : _varint(data, start)[1] - begin] = 0xFF
    at, whole = np.flatnonzero(told), np.frombuffer(data, np.uint8)
    told = told[at]
    here = whole[begin + at] & told
    most, found, window = min(most, (len(data) - end) // step), 0, _FEW_ALIKE
    while found < most:
        rows = min(window, most - found)
        first = end + found * step
        there = whole[first : first + rows * step].reshape(rows, step)[:, at] & told
        same = (there == here).all(axis=1)
        if not same.all():
            return found + int(np.argmin(same))
        found, window = found + rows, 4 * window
    return found


def _repeated(places: tuple[int, ...], times: int) -> Ints:
    """The places of so many records behind one, laid out as it is."""
    step = places[-1] - places[0]
    moved = np.array([step, step, 0, step, step], np.int64)
    return np.array(places, np.int64) + moved * np.arange(1, times + 1)[:, None]


def _text_at(data: memoryview, at: int) -> int:
    """Where an optional text starts, or ends if it is null."""
    return _varint(data, at + 1)[1] if data[at] else at + 1


def _ordering(data: npt.NDArray[np.uint8], values: _Values, block: LogBlock) -> tuple[pa.Array, ...]:
    several = np.flatnonzero(values.branches == _ARRAY)
    if not several.size:
        column = _column(data, values, block, zero_is_null=True)
        return () if column is None else (column,)
    alone = _Values(np.where(values.branches == _ARRAY, _NULL, values.branches), values.starts, values.ends)
    if _column(data, alone, block, zero_is_null=True) is not None:
        raise UnsupportedTableError(f"{block.name} has ordering values of one and of several fields; compact the table")
    inside = [_wrapped(data.data, at)[0] for at in values.starts[several].tolist()]
    fields = len(inside[0])
    if any(len(one) != fields for one in inside):
        raise ValueError("ordering values are of different lengths")
    columns = []
    for number in range(fields):
        own = np.array([one[number] for one in inside], np.int64)
        places = np.zeros((3, len(values.branches)), np.int64)
        places[:, several] = own.T
        found = _column(data, _Values(*places), block, zero_is_null=False)
        columns.append(pa.nulls(len(values.branches), pa.int32()) if found is None else found)
    return tuple(columns)


def _column(data: npt.NDArray[np.uint8], values: _Values, block: LogBlock, *, zero_is_null: bool) -> pa.Array | None:
    """The values as one column; None where all are null."""
    parts, rows = [], []
    for branch in np.unique(values.branches[values.branches != _NULL]).tolist():
        at = np.flatnonzero(values.branches == branch)
        found = decode_columns(data, values.starts[at], values.ends[at], _WRAPPERS[branch])
        part = found.column(0).combine_chunks()
        if branch == _INT and zero_is_null:
            kept = pc.not_equal(part, 0)
            at, part = at[np.asarray(kept)], part.filter(kept)
        if len(part):
            parts.append(part.view(pa.time64("us")) if branch == _TIME else part)
            rows.append(at)
    if not parts:
        return None
    try:
        joined = pa.chunked_array([part.cast(_common_type(parts)) for part in parts]).combine_chunks()
    except pa.ArrowException:
        kinds = ", ".join(str(part.type) for part in parts)
        raise UnsupportedTableError(
            f"{block.name} has ordering values of types that cannot be compared ({kinds}); compact the table"
        ) from None
    place = np.full(len(values.branches), -1)
    place[np.concatenate(rows)] = np.arange(len(joined))
    return joined.take(pa.array(place, mask=place < 0))


def _common_type(parts: list[pa.Array]) -> pa.DataType:
    kinds = [part.type for part in parts]
    schemas = [pa.schema([("value", kind)]) for kind in kinds]
    return pa.unify_schemas(schemas, promote_options="permissive").field(0).type if len(kinds) > 1 else kinds[0]


def _wrapped(data: memoryview, at: int) -> tuple[list[tuple[int, int, int]], int]:
    """The values of an ``ArrayWrapper``, branch, start and end of each, and where it ends itself."""
    present, at = _varint(data, at)
    if present not in (0, 1):
        raise ValueError("a list of ordering values is neither null nor there")
    found: list[tuple[int, int, int]] = []
    count, at = _count(data, at) if present else (0, at)
    while count:
        for _ in range(count):
            branch, start = _varint(data, at)
            at = _after_value(data, branch, start)
            found.append((branch, start, at))
        count, at = _count(data, at)
    return found, at


def _after_value(data: memoryview, branch: int, at: int) -> int:
    if not 0 <= branch < len(_HOPS):
        raise ValueError("an ordering value is of an unknown type")
    hop = _HOPS[branch]
    if isinstance(hop, int):
        return at + hop
    return hop(data, at)


def _after_optional_text(data: memoryview, at: int) -> int:
    branch = data[at]
    if branch not in (0, 2):
        raise ValueError("a text is neither null nor there")
    return _after_text(data, at + 1) if branch else at + 1


def _after_text(data: memoryview, at: int) -> int:
    length, at = _varint(data, at)
    if not 0 <= length <= len(data) - at:
        raise ValueError("a text is longer than what is there")
    return at + length


def _count(data: memoryview, at: int) -> tuple[int, int]:
    """How many items come next. A negative number is followed by how many bytes they take."""
    count, at = _varint(data, at)
    if count < 0:
        _, at = _varint(data, at)
    return abs(count), at


def _varint(data: memoryview, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return (value >> 1) ^ -(value & 1), at
        shift += 7
        if shift > 63:
            raise ValueError("a number takes more than 64 bits")


def _ints(values: array[int]) -> Ints:
    return np.array(values, np.int64)


def _after_varint(data: memoryview, at: int) -> int:
    return _varint(data, at)[1]


#: By branch of an ordering value that is no array: the bytes it takes, or what finds its end.
_HOPS: Final[tuple[int | Callable[[memoryview, int], int], ...]] = (
    0,
    1,
    _after_varint,
    _after_varint,
    4,
    8,
    _after_text,
    _after_text,
    _after_varint,
    _after_text,
    _after_varint,
    _after_varint,
    _after_varint,
)
