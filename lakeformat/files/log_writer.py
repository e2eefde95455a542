"""Blocks as Hudi writes them, to be put one behind the other into a log file: the inverse of the readers."""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lakeformat.codec.log_block import AVRO_CONTENT_VERSION, BlockKind, HeaderKey
from lakeformat.codec.log_envelope import block_bytes
from lakeformat.codec.roaring import encode_positions
from lakeformat.errors import SchemaMismatchError

__all__ = ["BaseRows", "delete_block", "parquet_block", "rollback_block"]

#: Branches of an ordering value's union, as Avro writes them.
_INT, _LONG, _STRING, _ARRAY = (bytes([2 * branch]) for branch in (2, 3, 7, 12))
#: ``IntWrapper`` of 0: delete whatever is there (Hudi: ``OrderingValues.getDefault``).
_WHATEVER: Final = _INT + b"\0"
_PRESENT: Final = b"\x02"
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
    place = _PRESENT + _zigzag(np.array([len(path)]))[0].as_py() + path
    records = _joined(_PRESENT, _sized(keys), place, _orderings(ordering, len(keys)))
    listed = _zigzag(np.array([len(keys)]))[0].as_py() + _bytes_of(records) + b"\0" if len(keys) else b"\0"
    content = struct.pack(">ii", AVRO_CONTENT_VERSION, len(listed)) + listed
    return block_bytes(BlockKind.DELETE, _header(instant_time, schema, base_rows), content)


def _header(instant_time: str, schema: str, base_rows: BaseRows | None) -> Mapping[HeaderKey, str]:
    told = {} if base_rows is None else base_rows.header()
    return {HeaderKey.INSTANT_TIME: instant_time, HeaderKey.SCHEMA: schema, **told}


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
    count: bytes = _zigzag(np.array([len(columns)]))[0].as_py()
    return pc.if_else(
        pa.array(known), _joined(_ARRAY + _PRESENT + count, *values, b"\0"), pa.scalar(_WHATEVER, pa.binary())
    )


def _wrapped(column: pa.Array) -> pa.Array:
    """Branch and value; null where the column is. Timestamps go as the long they are, as Hudi's records hold them."""
    kind = column.type
    if kind == pa.int32():
        return _joined(_INT, _numbers(column))
    if kind == pa.int64() or pa.types.is_timestamp(kind):
        return _joined(_LONG, _numbers(column.view(pa.int64())))
    if kind == pa.string():
        return _joined(_STRING, _sized(column))
    if kind in _FIXED:
        branch, form = _FIXED[kind]
        plain = column.fill_null(False if kind == pa.bool_() else 0.0).to_numpy(zero_copy_only=False).astype(form)
        raw = pa.Array.from_buffers(pa.binary(plain.itemsize), len(plain), [None, pa.py_buffer(plain)]).cast(
            pa.binary()
        )
        return _where_known(_joined(branch, raw), column)
    raise SchemaMismatchError(
        f"an ordering field of type {kind} has no known form in delete blocks; order by a number, a text or a timestamp"
    )


def _numbers(column: pa.Array) -> pa.Array:
    return _where_known(_zigzag(column.fill_null(0).to_numpy(zero_copy_only=False).astype(np.int64)), column)


def _sized(texts: pa.Array) -> pa.Array:
    """Each behind its length in bytes."""
    return _joined(_numbers(pc.binary_length(texts)), texts.cast(pa.binary()))


def _where_known(values: pa.Array, column: pa.Array) -> pa.Array:
    return pc.if_else(column.is_valid(), values, pa.scalar(None, pa.binary()))


def _joined(*parts: pa.Array | bytes) -> pa.Array:
    plain = [pa.scalar(part, pa.binary()) if isinstance(part, bytes) else part for part in parts]
    return pc.binary_join_element_wise(*plain, pa.scalar(b"", pa.binary()))


def _zigzag(numbers: npt.NDArray[np.int64]) -> pa.Array:
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


def _bytes_of(values: pa.Array) -> bytes:
    """All of them, one behind the other."""
    flat = values.buffers()[2]
    ends = np.frombuffer(values.buffers()[1], np.int32, len(values) + 1, 4 * values.offset)
    return flat.slice(int(ends[0]), int(ends[-1] - ends[0])).to_pybytes() if flat is not None else b""
