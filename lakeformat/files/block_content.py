"""The contents of log blocks as columns: the rows of data blocks, the keys and ordering values of delete blocks.

The content of a delete block is an Avro record without a header, ``HoodieDeleteRecordList``: an array of record key,
partition path and ordering value. The ordering value is a union with one record for each Java type, so a block may hold
values of several types.
"""

from __future__ import annotations

import json
import struct
from array import array
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lakeformat.arrow.conform import conform
from lakeformat.codec.avro.columns import decode_columns
from lakeformat.codec.avro.schema import AvroType, from_avro, record_type
from lakeformat.codec.log_blocks import AVRO_CONTENT_VERSION, HeaderKey, LogBlock
from lakeformat.errors import CorruptTableError, LakeformatError, SchemaMismatchError, UnsupportedTableError
from lakeformat.files.batch_rows import OpenParquet, choose_batch_rows, leaf_positions
from lakeformat.merge.versions import LogDeletes, LogRows

__all__ = ["damaged_block_error", "decode_avro_rows", "decode_deletes", "decode_parquet_rows"]

_HEAD: Final = struct.Struct(">ii")
_LENGTH: Final = struct.Struct(">i")
#: Maximum characters of a schema that is cached.
_MOST_CACHED: Final = 1 << 20
#: A Parquet block with more decoded bytes is read in chunks of this size.
_CHUNK_BYTES: Final = 16 << 20


def decode_avro_rows(block: LogBlock, content: Any, columns: Collection[str] | None = None) -> LogRows:
    """Decode the rows of an Avro data block. Columns have the types that `from_avro` gives for the block's schema.

    The content is a version (4 bytes), the number of records (4), and each record after its length (4).

    Args:
        content: bytes, or a ``pyarrow.Buffer`` of them.
        columns: names of the columns to decode, in any order; None for all. Names that the block does not have are
            skipped. The result has the order of the block's schema.

    Raises:
        CorruptTableError: the content does not match its header.
        UnsupportedTableError: a column's type, or the version of the content, is unknown.
    """
    try:
        data = np.frombuffer(content, np.uint8)
        version, count = _HEAD.unpack_from(data.data)
        if version != AVRO_CONTENT_VERSION:
            raise UnsupportedTableError(
                f"{block.name} holds Avro records of version {version}, which old releases of Hudi wrote; compact the "
                "table with Apache Hudi"
            )
        record = _record_type(block)
        starts, ends = _locate_records(data, count)
        rows = decode_columns(data, starts, ends, record, columns)
    except LakeformatError:
        raise
    except (ValueError, struct.error) as error:
        raise damaged_block_error(block, error) from None
    return LogRows(block.instant_time, rows, block.is_partial)


def _record_type(block: LogBlock) -> AvroType:
    text = block.require(HeaderKey.SCHEMA)
    try:
        return _parse_record(text) if len(text) <= _MOST_CACHED else record_type(text, name=block.name)
    except LakeformatError:  # The cached parser's error does not name the block, so parse again to get one that does.
        return record_type(text, name=block.name)


def _schema(block: LogBlock) -> pa.Schema:
    text = block.require(HeaderKey.SCHEMA)
    try:
        return _parse_schema(text) if len(text) <= _MOST_CACHED else from_avro(text, name=block.name)
    except LakeformatError:  # The cached parser's error does not name the block, so parse again to get one that does.
        return from_avro(text, name=block.name)


@lru_cache(maxsize=64)
def _parse_schema(text: str) -> pa.Schema:
    return from_avro(text, name="a log block")


@lru_cache(maxsize=64)
def _parse_record(text: str) -> AvroType:
    """Parse the Avro schema of a block, and cache the result.

    Without the cache, half the time of reading many small blocks is spent on parsing.
    """
    return record_type(text, name="a log block")


def _locate_records(data: npt.NDArray[np.uint8], count: int) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Find the start and end of each record. This needs a loop, because each length gives the start of the next."""
    if not 0 <= count <= len(data) // _LENGTH.size:
        raise ValueError(f"{count} records in {len(data)} bytes")
    bounds, offset, length_at, buffer = array("q", [_HEAD.size]), _HEAD.size, _LENGTH.unpack_from, data.data
    for _ in range(count):
        (length,) = length_at(buffer, offset)
        if length < 0:
            raise ValueError("a record has a negative length")
        offset += _LENGTH.size + length
        bounds.append(offset)
    if offset != len(data):
        raise ValueError(f"its records end at byte {offset} of {len(data)}")
    places = np.array(bounds, np.int64)
    return places[:-1] + _LENGTH.size, places[1:]


def decode_parquet_rows(block: LogBlock, content: Any, columns: Collection[str] | None = None) -> LogRows:
    """Decode the rows of a Parquet data block, whose content is a Parquet file.

    Arguments and errors are those of `decode_avro_rows`.
    """
    schema = _schema(block)
    try:
        with OpenParquet(pa.BufferReader(content)) as parquet:
            stored = set(parquet.schema_arrow.names)
            present = stored if columns is None else stored.intersection(columns)
            names = [name for name in schema.names if name in present]
            rows = _read(parquet, names)
            if rows.num_rows != parquet.metadata.num_rows:
                raise ValueError(f"it has {rows.num_rows} rows, and its footer says {parquet.metadata.num_rows}")
        typed = conform(rows.select(names), pa.schema([schema.field(name) for name in names]))
    except (pa.ArrowException, OSError, ValueError, SchemaMismatchError) as error:
        raise damaged_block_error(block, error) from None
    return LogRows(block.instant_time, typed, block.is_partial)


def _read(parquet: OpenParquet, columns: Sequence[str]) -> pa.Table:
    """Read the columns. Large columns are read in several chunks, which the merge frees one by one."""
    if not columns:  # Without a column the footer's row count would be believed.
        return _read(parquet, parquet.schema_arrow.names[:1]).select([])
    leaves = leaf_positions(parquet, columns)
    counts = [parquet.metadata.row_group(group).num_rows for group in range(parquet.num_row_groups)]
    steps = [
        choose_batch_rows(parquet, group, leaves, max(count, 1), _CHUNK_BYTES) for group, count in enumerate(counts)
    ]
    if all(step >= count for step, count in zip(steps, counts, strict=True)):
        return parquet.read(columns=columns, use_threads=False)
    batches = [
        batch
        for group, step in enumerate(steps)
        for batch in parquet.iter_batches(step, row_groups=[group], columns=columns, use_threads=False)
    ]
    return pa.Table.from_batches(batches)


def damaged_block_error(block: LogBlock, error: Exception) -> CorruptTableError:
    """Make the error for a block whose content cannot be decoded."""
    reason = (str(error) or type(error).__name__)[:300]
    return CorruptTableError(f"{block.name} cannot be read: {reason}; restore the file")


Ints: TypeAlias = npt.NDArray[np.int64]

_DECIMAL: Final = {"type": "bytes", "logicalType": "decimal", "precision": 30, "scale": 15}
#: Avro types of the ordering value of a delete, in the order of the union's branches after null (Hudi:
#: ``HoodieDeleteRecord.avsc``). The last type is only for values inside an array. Outside an array, the same branch
#: number means that the ordering value is an array.
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
    "long",  # A time of day, in microseconds.
    {"type": "long", "logicalType": "timestamp-micros"},
    {"type": "int", "logicalType": "date"},  # Only inside an array. Outside, this branch is the array itself.
)
_NULL, _INT, _TIME, _ARRAY = 0, 2, 10, 12
#: Number of integers that describe one record of a delete block: start and end of its key, union branch of its ordering
#: value, start and end of this value. Variables with such integers are named ``places``.
_PLACES: Final = 5
#: If a search for records of equal layout finds at least this many, another search follows soon. If it finds fewer, it
#: cost more than reading them one by one, and `_RECORDS_BETWEEN` records are read one by one first.
_FEW_ALIKE: Final = 16
#: Number of records that are read one by one after a search that found fewer than `_FEW_ALIKE`.
_RECORDS_BETWEEN: Final = 128


def _make_wrapper(avro: Any) -> AvroType:
    return record_type(
        json.dumps({"type": "record", "name": "w", "fields": [{"name": "value", "type": avro}]}), name="delete blocks"
    )


_WRAPPERS: Final = (None, *map(_make_wrapper, _WRAPPED))
_KEYS: Final = record_type(
    json.dumps({"type": "record", "name": "k", "fields": [{"name": "recordKey", "type": ["null", "string"]}]}),
    name="delete blocks",
)


@dataclass(frozen=True, slots=True)
class _Values:
    """The ordering values of a delete block: for each value its union branch, and its start and end in the content."""

    branches: Ints
    starts: Ints
    ends: Ints


def decode_deletes(block: LogBlock, content: Any) -> LogDeletes:
    """Decode the keys of a delete block, and one column of ordering values for each ordering field.

    An ordering value that is null, or a single int 0 (Hudi: ``OrderingValues.getDefault``), becomes null: such a delete
    always deletes its record. If all ordering values are null, there is no column. The column types are those of the
    wrappers; timestamps may be longs, in microseconds or milliseconds.

    Args:
        content: the bytes of the content, or a ``pyarrow.Buffer`` of them.

    Raises:
        CorruptTableError: the content is damaged.
        UnsupportedTableError: the version of the content is unknown, or ordering values have types that cannot be
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
        keys, values = _find_records(data.data, _HEAD.size)
        return LogDeletes(block.instant_time, _decode_keys(data, keys), _decode_ordering(data, values, block))
    except LakeformatError:
        raise
    except (ValueError, IndexError, struct.error) as error:
        raise damaged_block_error(block, error) from None


def _decode_keys(data: npt.NDArray[np.uint8], keys: tuple[Ints, Ints]) -> pa.Array:
    keys_read = decode_columns(data, *keys, _KEYS).column(0).combine_chunks()
    if keys_read.null_count:
        raise ValueError("a record key is null")
    return keys_read


def _find_records(data: memoryview, offset: int) -> tuple[tuple[Ints, Ints], _Values]:
    """Find the start and end of all record keys and ordering values.

    In general, records are read one by one, because the start of a record is known only after the previous record has
    been read. But records with keys and ordering values of equal lengths follow one another at equal distances. Many
    such records are checked at once.
    """
    parts: list[Ints] = []
    places_read = array("q")
    count, offset = _read_count(data, offset)
    while count:
        until_search = 0
        while count:
            places, branch_at = _locate_record(data, offset)
            places_read.extend(places)
            offset, count, until_search = places[-1], count - 1, until_search - 1
            if until_search < 0 and count:
                alike = _count_alike(data, places, branch_at, count)
                if alike:
                    parts += [_ints(places_read).reshape(-1, _PLACES), _repeat_places(places, alike)]
                    del places_read[:]
                offset, count = offset + alike * (places[-1] - places[0]), count - alike
                until_search = 0 if alike >= _FEW_ALIKE else _RECORDS_BETWEEN
        count, offset = _read_count(data, offset)
    if offset != len(data):
        raise ValueError(f"its records end at byte {offset} of {len(data)}")
    parts.append(_ints(places_read).reshape(-1, _PLACES))
    key_starts, key_ends, branches, starts, ends = np.concatenate(parts).T.copy()
    return (key_starts, key_ends), _Values(branches, starts, ends)


def _locate_record(data: memoryview, offset: int) -> tuple[tuple[int, ...], int]:
    """Read one record of a delete block, without decoding its values.

    Return start and end of its key, union branch, start and end of its ordering value; then the position of the branch.
    """
    key_end = _skip_optional_text(data, offset)
    branch_at = _skip_optional_text(data, key_end)
    branch, start = _read_varint(data, branch_at)
    end = _locate_array(data, start)[1] if branch == _ARRAY else _skip_value(data, branch, start)
    return (offset, key_end, branch, start, end), branch_at


def _count_alike(data: memoryview, places: tuple[int, ...], branch_at: int, most: int) -> int:
    """Count the records directly after the record at `places`, up to ``most``, that have the same layout.

    In such records, key and ordering value start and end at the same distances from the start of the record. A record
    has the same layout if these bytes are equal: the lengths of key and partition path, the union branches, and the
    length of an ordering value that is a text. If the ordering value is a varint, only the highest bit of each of its
    bytes must be equal, because this bit says whether the varint ends with the byte.
    """
    begin, key_end, branch, start, end = places
    if branch == _ARRAY:
        return 0
    step, mask = end - begin, np.zeros(end - begin, np.uint8)
    mask[: _find_text_start(data, begin) - begin] = 0xFF
    mask[key_end - begin : _find_text_start(data, key_end) - begin] = 0xFF
    mask[branch_at - begin : start - begin] = 0xFF
    if _VALUE_ENDS[branch] is _skip_varint:
        mask[start - begin :] = 0x80
    elif _VALUE_ENDS[branch] is _skip_text:
        mask[start - begin : _read_varint(data, start)[1] - begin] = 0xFF
    marked, whole = np.flatnonzero(mask), np.frombuffer(data, np.uint8)
    mask = mask[marked]
    pattern = whole[begin + marked] & mask
    most, alike, window = min(most, (len(data) - end) // step), 0, _FEW_ALIKE
    while alike < most:
        rows = min(window, most - alike)
        first = end + alike * step
        bits = whole[first : first + rows * step].reshape(rows, step)[:, marked] & mask
        same = (bits == pattern).all(axis=1)
        if not same.all():
            return alike + int(np.argmin(same))
        alike, window = alike + rows, 4 * window
    return alike


def _repeat_places(places: tuple[int, ...], times: int) -> Ints:
    """Return the positions in the next ``times`` records, which have the same layout as the record at `places`.

    Each row of the result has the form of ``places``: start and end of the key, union branch, start and end of the
    ordering value.
    """
    step = places[-1] - places[0]
    moved = np.array([step, step, 0, step, step], np.int64)
    return np.array(places, np.int64) + moved * np.arange(1, times + 1)[:, None]


def _find_text_start(data: memoryview, offset: int) -> int:
    """Return the start of an optional text, or its end if it is null."""
    return _read_varint(data, offset + 1)[1] if data[offset] else offset + 1


def _decode_ordering(data: npt.NDArray[np.uint8], values: _Values, block: LogBlock) -> tuple[pa.Array, ...]:
    several = np.flatnonzero(values.branches == _ARRAY)
    if not several.size:
        column = _decode_column(data, values, block, zero_is_null=True)
        return () if column is None else (column,)
    alone = _Values(np.where(values.branches == _ARRAY, _NULL, values.branches), values.starts, values.ends)
    if _decode_column(data, alone, block, zero_is_null=True) is not None:
        raise UnsupportedTableError(f"{block.name} has ordering values of one and of several fields; compact the table")
    inside = [_locate_array(data.data, start)[0] for start in values.starts[several].tolist()]
    fields = len(inside[0])
    if any(len(items) != fields for items in inside):
        raise ValueError("ordering values are of different lengths")
    columns = []
    for number in range(fields):
        own = np.array([items[number] for items in inside], np.int64)
        places = np.zeros((3, len(values.branches)), np.int64)
        places[:, several] = own.T
        decoded = _decode_column(data, _Values(*places), block, zero_is_null=False)
        columns.append(pa.nulls(len(values.branches), pa.int32()) if decoded is None else decoded)
    return tuple(columns)


def _decode_column(
    data: npt.NDArray[np.uint8], values: _Values, block: LogBlock, *, zero_is_null: bool
) -> pa.Array | None:
    """Decode the ordering values as one column; None if all are null. With ``zero_is_null``, an int 0 becomes null."""
    parts, rows = [], []
    for branch in np.unique(values.branches[values.branches != _NULL]).tolist():
        rows_of_branch = np.flatnonzero(values.branches == branch)
        decoded = decode_columns(data, values.starts[rows_of_branch], values.ends[rows_of_branch], _WRAPPERS[branch])
        part = decoded.column(0).combine_chunks()
        if branch == _INT and zero_is_null:
            nonzero = pc.not_equal(part, 0)
            rows_of_branch, part = rows_of_branch[np.asarray(nonzero)], part.filter(nonzero)
        if len(part):
            parts.append(part.view(pa.time64("us")) if branch == _TIME else part)
            rows.append(rows_of_branch)
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


def _locate_array(data: memoryview, offset: int) -> tuple[list[tuple[int, int, int]], int]:
    """Return the union branch, start and end of each value of an ``ArrayWrapper``, then the end of the wrapper."""
    present, offset = _read_varint(data, offset)
    if present not in (0, 1):
        raise ValueError("a list of ordering values has an unknown union branch")
    items: list[tuple[int, int, int]] = []
    count, offset = _read_count(data, offset) if present else (0, offset)
    while count:
        for _ in range(count):
            branch, start = _read_varint(data, offset)
            offset = _skip_value(data, branch, start)
            items.append((branch, start, offset))
        count, offset = _read_count(data, offset)
    return items, offset


def _skip_value(data: memoryview, branch: int, offset: int) -> int:
    if not 0 <= branch < len(_VALUE_ENDS):
        raise ValueError("an ordering value is of an unknown type")
    end_or_size = _VALUE_ENDS[branch]
    if isinstance(end_or_size, int):
        return offset + end_or_size
    return end_or_size(data, offset)


def _skip_optional_text(data: memoryview, offset: int) -> int:
    branch = data[offset]
    if branch not in (0, 2):
        raise ValueError("an optional text has an unknown union branch")
    return _skip_text(data, offset + 1) if branch else offset + 1


def _skip_text(data: memoryview, offset: int) -> int:
    length, offset = _read_varint(data, offset)
    if not 0 <= length <= len(data) - offset:
        raise ValueError("a text is longer than the rest of the block")
    return offset + length


def _read_count(data: memoryview, offset: int) -> tuple[int, int]:
    """Read the item count at the start of a block of an Avro array. Return it with the position of the first item.

    In Avro, if the count is negative, it is followed by the size of the items in bytes. In this case the size is
    skipped, and the count is returned as a positive number.
    """
    count, offset = _read_varint(data, offset)
    if count < 0:
        _, offset = _read_varint(data, offset)
    return abs(count), offset


def _read_varint(data: memoryview, offset: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[offset]
        offset += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return (value >> 1) ^ -(value & 1), offset
        shift += 7
        if shift > 63:
            raise ValueError("a number takes more than 64 bits")


def _ints(values: array[int]) -> Ints:
    return np.array(values, np.int64)


def _skip_varint(data: memoryview, offset: int) -> int:
    return _read_varint(data, offset)[1]


#: For each union branch of an ordering value, its size in bytes or the function that finds its end. The last entry is
#: only for values inside an array. Outside an array, this branch is the array itself, which `_locate_array` reads.
_VALUE_ENDS: Final[tuple[int | Callable[[memoryview, int], int], ...]] = (
    0,
    1,
    _skip_varint,
    _skip_varint,
    4,
    8,
    _skip_text,
    _skip_text,
    _skip_varint,
    _skip_text,
    _skip_varint,
    _skip_varint,
    _skip_varint,
)
