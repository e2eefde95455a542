"""Blocks as Hudi writes them, to be put one behind the other into a log file: the inverse of the readers."""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lakeformat.codec.avro_values import AvroEncoder, bytes_of, integers, joined, plain_bytes, sized, varints
from lakeformat.codec.log_block import AVRO_CONTENT_VERSION, BlockKind, HeaderKey
from lakeformat.codec.log_envelope import block_bytes
from lakeformat.codec.roaring import encode_positions
from lakeformat.errors import SchemaMismatchError

__all__ = ["BaseRows", "change_block", "delete_block", "delete_blocks_hold", "parquet_block", "rollback_block"]

#: Branches of an ordering value's union, as Avro writes them.
_INT, _LONG, _STRING, _DECIMAL, _ARRAY = (bytes([2 * branch]) for branch in (2, 3, 7, 9, 12))
#: ``IntWrapper`` of 0: delete whatever is there (Hudi: ``OrderingValues.getDefault``).
_WHATEVER: Final = _INT + b"\0"
_PRESENT: Final = b"\x02"
#: Every decimal is stored with so many digits before and behind the point, in so many bytes (Hudi: ``DecimalWrapper``).
_DIGITS: Final = 15
_DECIMAL_BYTES: Final = 13
_FIXED: Final[Mapping[pa.DataType, tuple[bytes, str]]] = {
    pa.bool_(): (bytes([2]), "u1"),
    pa.float32(): (bytes([8]), "<f4"),
    pa.float64(): (bytes([10]), "<f8"),
}


@dataclass(frozen=True, slots=True)
class BaseRows:
    """Which rows of a base file the records of a block stand for, ascending: readers then need not look at keys.

    Attributes:
        rows: numbers of them, one for each record.
        instant_time: of the base file.
        is_told: whether the block names the base file, as from table version 8 on; else the log file is named by it.
    """

    rows: npt.NDArray[np.int64]
    instant_time: str
    is_told: bool

    def header(self) -> Mapping[HeaderKey, str]:
        """What a block tells of them (Hudi: ``addRecordPositionsToHeader``)."""
        told = {HeaderKey.RECORD_POSITIONS: encode_positions(self.rows, is_ours=not self.is_told)}
        if self.is_told:
            told[HeaderKey.BASE_FILE_INSTANT_TIME_OF_RECORD_POSITIONS] = self.instant_time
        return told


def parquet_block(file: bytes, *, instant_time: str, schema: str, base_rows: BaseRows | None = None) -> bytes:
    """A data block.

    Args:
        file: a whole Parquet file; its rows have all meta columns.
        instant_time: of the deltacommit.
        schema: of the rows, meta columns included, as Avro text.
        base_rows: of its rows; None where some are new, or nobody looked.
    """
    return block_bytes(BlockKind.PARQUET_DATA, _header(instant_time, schema, base_rows), file)


def delete_block(
    keys: pa.Array,
    *,
    partition_path: str,
    instant_time: str,
    schema: str,
    ordering: Sequence[pa.Array] = (),
    base_rows: BaseRows | None = None,
) -> bytes:
    """A block of deletes, in the form that releases from 0.14 on write and read; several ordering fields need 1.1.

    Args:
        keys: record keys, text.
        partition_path: of all of them, "" in a table without partitions.
        ordering: for each ordering field as many values as keys; a key whose values are all null is deleted whatever
            is there. None at all: every key is.
        base_rows: of its keys; None where nobody looked.

    Raises:
        SchemaMismatchError: an ordering value is of a type that has no known form in delete blocks.
    """
    path = partition_path.encode()
    place = _PRESENT + varints(np.array([len(path)]))[0].as_py() + path
    records = joined(_PRESENT, sized(keys), place, _orderings(ordering, len(keys)))
    listed = varints(np.array([len(keys)]))[0].as_py() + bytes_of(records) + b"\0" if len(keys) else b"\0"
    content = struct.pack(">ii", AVRO_CONTENT_VERSION, len(listed)) + listed
    return block_bytes(BlockKind.DELETE, _header(instant_time, schema, base_rows), content)


def _header(instant_time: str, schema: str, base_rows: BaseRows | None) -> Mapping[HeaderKey, str]:
    told = {} if base_rows is None else base_rows.header()
    return {HeaderKey.INSTANT_TIME: instant_time, HeaderKey.SCHEMA: schema, **told}


def change_block(rows: pa.Table, *, instant_time: str, schema: str) -> bytes:
    """A block of change data (Hudi: ``HoodieCDCDataBlock``).

    Args:
        rows: the fields of the schema.
        schema: Avro text of the record, of the mode in which the table logs changes.
    """
    columns = [column.combine_chunks() for column in rows.columns]
    records = AvroEncoder().record(columns, json.loads(schema))
    content = bytes_of(joined(plain_bytes(pc.binary_length(records), ">i4"), records))
    content = struct.pack(">ii", AVRO_CONTENT_VERSION, rows.num_rows) + content
    header = {HeaderKey.INSTANT_TIME: instant_time, HeaderKey.SCHEMA: schema}
    return block_bytes(BlockKind.CDC_DATA, header, content)


def rollback_block(*, instant_time: str, target: str) -> bytes:
    """A command: what ``target`` wrote into this slice before is not to be read (table version 6).

    Args:
        instant_time: of the rollback.
    """
    header = {
        HeaderKey.INSTANT_TIME: instant_time,
        HeaderKey.TARGET_INSTANT_TIME: target,
        HeaderKey.COMMAND_BLOCK_TYPE: "0",
    }
    return block_bytes(BlockKind.COMMAND, header, b"")


def _orderings(columns: Sequence[pa.Array], rows: int) -> pa.Array:
    if not columns:
        return pa.repeat(pa.scalar(_WHATEVER, pa.binary()), rows)
    if len(columns) == 1:
        return pc.fill_null(_wrapped(columns[0]), pa.scalar(_WHATEVER, pa.binary()))
    known = np.any([np.asarray(column.is_valid()) for column in columns], axis=0)
    values = [pc.fill_null(_wrapped(column), pa.scalar(b"\0", pa.binary())) for column in columns]
    count: bytes = varints(np.array([len(columns)]))[0].as_py()
    return pc.if_else(
        pa.array(known), joined(_ARRAY + _PRESENT + count, *values, b"\0"), pa.scalar(_WHATEVER, pa.binary())
    )


def delete_blocks_hold(kind: pa.DataType) -> bool:
    """Return whether delete blocks can hold every ordering value of a type."""
    if pa.types.is_decimal(kind):
        return bool(kind.scale <= _DIGITS and kind.precision - kind.scale <= _DIGITS)
    whole = pa.types.is_int32(kind) or pa.types.is_int64(kind) or pa.types.is_date32(kind)
    return bool(whole or pa.types.is_timestamp(kind) or pa.types.is_string(kind) or kind in _FIXED)


def _wrapped(column: pa.Array) -> pa.Array:
    """Branch and value; null where the column is.

    Timestamps and dates go as the integers that Hudi's records hold: of a ``DateWrapper`` Hudi 1.x can read nothing.
    """
    kind = column.type
    if kind == pa.int32() or pa.types.is_date32(kind):
        return joined(_INT, integers(column))
    if kind == pa.int64() or pa.types.is_timestamp(kind):
        return joined(_LONG, integers(column))
    if kind == pa.string():
        return joined(_STRING, sized(column))
    if kind in _FIXED:
        branch, form = _FIXED[kind]
        return joined(branch, plain_bytes(column, form))
    if pa.types.is_decimal(kind):
        return joined(_DECIMAL, sized(_unscaled(column)))
    raise SchemaMismatchError(
        f"an ordering field of type {kind} has no known form in delete blocks; order by a number, a date, a text or a "
        "timestamp"
    )


def _unscaled(column: pa.Array) -> pa.Array:
    """Encode decimals as the one type that delete blocks have for them."""
    try:
        wide = column.cast(pa.decimal128(2 * _DIGITS, _DIGITS))
    except pa.ArrowInvalid:
        raise SchemaMismatchError(
            f"an ordering value of type {column.type} has more than {_DIGITS} digits on one side of the point, which "
            "delete blocks cannot hold; order by another column"
        ) from None
    return AvroEncoder().encoded(wide, {"type": "fixed", "name": "decimal", "size": _DECIMAL_BYTES})
