"""The encoders of log-file blocks, in the form that Hudi writes. `block_content` decodes these blocks."""

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

from lakeformat.arrow.kinds import Kind, kind_of
from lakeformat.codec.avro.encode import (
    AvroEncoder,
    encode_integers,
    encode_plain,
    encode_varints,
    join_bytes,
    prefix_length,
    to_bytes,
)
from lakeformat.codec.log_blocks import AVRO_CONTENT_VERSION, BlockKind, HeaderKey, encode_block, encode_positions
from lakeformat.errors import SchemaMismatchError

__all__ = [
    "BaseRows",
    "encode_avro_block",
    "encode_change_block",
    "encode_delete_block",
    "encode_parquet_block",
    "encode_rollback_block",
    "fits_delete_blocks",
]

#: Branches of an ordering value's union, as Avro writes them.
_INT, _LONG, _STRING, _DECIMAL, _ARRAY = (bytes([2 * branch]) for branch in (2, 3, 7, 9, 12))
#: The ordering value of a delete that always deletes its record: an ``IntWrapper`` of 0 (Hudi:
#: ``OrderingValues.getDefault``).
_ALWAYS: Final = _INT + b"\0"
_PRESENT: Final = b"\x02"
#: Digits of every stored decimal before the point, and as many after it (Hudi: ``DecimalWrapper``).
_DIGITS: Final = 15
#: Size of every stored decimal in bytes.
_DECIMAL_BYTES: Final = 13
_FIXED: Final[Mapping[pa.DataType, tuple[bytes, str]]] = {
    pa.bool_(): (bytes([2]), "u1"),
    pa.float32(): (bytes([8]), "<f4"),
    pa.float64(): (bytes([10]), "<f8"),
}


@dataclass(frozen=True, slots=True)
class BaseRows:
    """The base-file rows to which the records of a block belong.

    If a block holds these row numbers, readers need not compare keys.

    Attributes:
        rows: row numbers, ascending, one for each record.
        instant_time: instant of the base file.
        names_base_file: whether the block names the base file, as from table version 8 on. If not, the log file's name
            does.
    """

    rows: npt.NDArray[np.int64]
    instant_time: str
    names_base_file: bool

    def header(self) -> Mapping[HeaderKey, str]:
        """Return the header entries of these rows (Hudi: ``addRecordPositionsToHeader``)."""
        entries = {HeaderKey.RECORD_POSITIONS: encode_positions(self.rows, by_lakeformat=not self.names_base_file)}
        if self.names_base_file:
            entries[HeaderKey.BASE_FILE_INSTANT_TIME_OF_RECORD_POSITIONS] = self.instant_time
        return entries


def encode_parquet_block(file: bytes, *, instant_time: str, schema: str, base_rows: BaseRows | None = None) -> bytes:
    """Make a Parquet data block.

    Args:
        file: a whole Parquet file; its rows have all meta columns.
        instant_time: instant of the deltacommit.
        schema: schema of the rows, meta columns included, as Avro text.
        base_rows: the base-file rows of its records; None if some records are new or the rows are unknown.
    """
    return encode_block(BlockKind.PARQUET_DATA, _make_header(instant_time, schema, base_rows), file)


def encode_avro_block(rows: pa.Table, *, instant_time: str, schema: str, base_rows: BaseRows | None = None) -> bytes:
    """Make an Avro data block (Hudi: ``HoodieAvroDataBlock``).

    Args:
        rows: a column for each field of the schema, in its order.
        instant_time, schema, base_rows: as in `encode_parquet_block`.
    """
    return encode_block(
        BlockKind.AVRO_DATA, _make_header(instant_time, schema, base_rows), _encode_records(rows, schema)
    )


def encode_delete_block(
    keys: pa.Array,
    *,
    partition_path: str,
    instant_time: str,
    schema: str,
    ordering: Sequence[pa.Array] = (),
    base_rows: BaseRows | None = None,
) -> bytes:
    """Make a delete block in the form that Hudi 0.14 and later write and read; several ordering fields need Hudi 1.1.

    Args:
        keys: record keys, text.
        partition_path: partition path of all keys; "" in a table without partitions.
        ordering: for each ordering field as many values as keys. A key whose values are all null is always deleted;
            without ordering fields, every key is always deleted.
        base_rows: the base-file rows of its keys; None if they are unknown.

    Raises:
        SchemaMismatchError: delete blocks cannot hold the type of an ordering value.
    """
    path = partition_path.encode()
    place = _PRESENT + encode_varints(np.array([len(path)]))[0].as_py() + path
    records = join_bytes(_PRESENT, prefix_length(keys), place, _encode_orderings(ordering, len(keys)))
    listed = encode_varints(np.array([len(keys)]))[0].as_py() + to_bytes(records) + b"\0" if len(keys) else b"\0"
    content = struct.pack(">ii", AVRO_CONTENT_VERSION, len(listed)) + listed
    return encode_block(BlockKind.DELETE, _make_header(instant_time, schema, base_rows), content)


def _make_header(instant_time: str, schema: str, base_rows: BaseRows | None) -> Mapping[HeaderKey, str]:
    entries = {} if base_rows is None else base_rows.header()
    return {HeaderKey.INSTANT_TIME: instant_time, HeaderKey.SCHEMA: schema, **entries}


def encode_change_block(rows: pa.Table, *, instant_time: str, schema: str) -> bytes:
    """Make a data block of a CDC log file (Hudi: ``HoodieCDCDataBlock``).

    Args:
        rows: a column for each field of the schema, in its order.
        schema: Avro schema of the records, as text. It depends on the mode in which the table logs changes.
    """
    header = {HeaderKey.INSTANT_TIME: instant_time, HeaderKey.SCHEMA: schema}
    return encode_block(BlockKind.CDC_DATA, header, _encode_records(rows, schema))


def _encode_records(rows: pa.Table, schema: str) -> bytes:
    columns = [column.combine_chunks() for column in rows.columns]
    records = AvroEncoder().record(columns, json.loads(schema))
    content = to_bytes(join_bytes(encode_plain(pc.binary_length(records), ">i4"), records))
    return struct.pack(">ii", AVRO_CONTENT_VERSION, rows.num_rows) + content


def encode_rollback_block(*, instant_time: str, target: str) -> bytes:
    """Make a rollback command block (table version 6). Readers skip the earlier blocks of the instant that it names.

    Args:
        instant_time: instant of the rollback.
        target: instant that is rolled back, whose blocks in the same file slice are skipped.
    """
    header = {
        HeaderKey.INSTANT_TIME: instant_time,
        HeaderKey.TARGET_INSTANT_TIME: target,
        HeaderKey.COMMAND_BLOCK_TYPE: "0",
    }
    return encode_block(BlockKind.COMMAND, header, b"")


def _encode_orderings(columns: Sequence[pa.Array], rows: int) -> pa.Array:
    if not columns:
        return pa.repeat(pa.scalar(_ALWAYS, pa.binary()), rows)
    if len(columns) == 1:
        return pc.fill_null(_encode_values(columns[0]), pa.scalar(_ALWAYS, pa.binary()))
    is_known = np.any([np.asarray(column.is_valid()) for column in columns], axis=0)
    values = [pc.fill_null(_encode_values(column), pa.scalar(b"\0", pa.binary())) for column in columns]
    count: bytes = encode_varints(np.array([len(columns)]))[0].as_py()
    return pc.if_else(
        pa.array(is_known), join_bytes(_ARRAY + _PRESENT + count, *values, b"\0"), pa.scalar(_ALWAYS, pa.binary())
    )


def fits_delete_blocks(kind: pa.DataType) -> bool:
    """Tell whether delete blocks can store every ordering value of a type."""
    if kind_of(kind) is Kind.DECIMAL:
        return bool(kind.scale <= _DIGITS and kind.precision - kind.scale <= _DIGITS)
    return kind_of(kind) in (Kind.DATE, Kind.TIMESTAMP, Kind.TEXT) or kind in (pa.int32(), pa.int64(), *_FIXED)


def _encode_values(column: pa.Array) -> pa.Array:
    """Encode a column as union branch and value; null if the value is null.

    Timestamps and dates are stored as the integers that Hudi's records hold: Hudi 1.x cannot read a ``DateWrapper``.
    """
    kind = column.type
    if kind == pa.int32() or kind_of(kind) is Kind.DATE:
        return join_bytes(_INT, encode_integers(column))
    if kind == pa.int64() or kind_of(kind) is Kind.TIMESTAMP:
        return join_bytes(_LONG, encode_integers(column))
    if kind == pa.string():
        return join_bytes(_STRING, prefix_length(column))
    if kind in _FIXED:
        branch, form = _FIXED[kind]
        return join_bytes(branch, encode_plain(column, form))
    if kind_of(kind) is Kind.DECIMAL:
        return join_bytes(_DECIMAL, prefix_length(_encode_decimals(column)))
    raise SchemaMismatchError(
        f"an ordering field of type {kind} has no known form in delete blocks; order by a number, a date, a text or a "
        "timestamp"
    )


def _encode_decimals(column: pa.Array) -> pa.Array:
    """Convert decimals to the only decimal type that delete blocks can store, and encode them."""
    try:
        wide = column.cast(pa.decimal128(2 * _DIGITS, _DIGITS))
    except pa.ArrowInvalid:
        raise SchemaMismatchError(
            f"an ordering value of type {column.type} has more than {_DIGITS} digits on one side of the point, which "
            "delete blocks cannot hold; order by another column"
        ) from None
    return AvroEncoder().encode(wide, {"type": "fixed", "name": "decimal", "size": _DECIMAL_BYTES})
