"""The content of a data block: rows as columns."""

from __future__ import annotations

import struct
from array import array
from collections.abc import Collection, Sequence
from functools import lru_cache
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lakeformat.codec.avro_columns import decode_columns
from lakeformat.codec.avro_schema import from_avro
from lakeformat.codec.avro_types import AvroType, record_type
from lakeformat.codec.conform import conform
from lakeformat.codec.log_block import AVRO_CONTENT_VERSION, HeaderKey, LogBlock
from lakeformat.errors import CorruptTableError, LakeformatError, SchemaMismatchError, UnsupportedTableError
from lakeformat.files.batch_rows import OpenParquet, leaves_of, rows_at_a_time
from lakeformat.merge.log_records import LogRows

__all__ = ["avro_rows", "damaged_content", "parquet_rows"]

_HEAD: Final = struct.Struct(">ii")
_LENGTH: Final = struct.Struct(">i")
#: A Parquet block with more decoded bytes is read in chunks of this size.
_CHUNK_BYTES: Final = 16 << 20


def avro_rows(block: LogBlock, content: Any, columns: Collection[str] | None = None) -> LogRows:
    """Decode the rows of an Avro data block, with the types of base files of its schema (`from_avro`).

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
        raise damaged_content(block, error) from None
    return LogRows(block.instant_time, rows, block.is_partial)


def _record_type(block: LogBlock) -> AvroType:
    text = block.told(HeaderKey.SCHEMA)
    try:
        return _parse_record(text)
    except LakeformatError:  # Parse again with the block's name in the error.
        return record_type(text, name=block.name)


def _schema(block: LogBlock) -> pa.Schema:
    text = block.told(HeaderKey.SCHEMA)
    try:
        return _parse_schema(text)
    except LakeformatError:  # Parse again with the block's name in the error.
        return from_avro(text, name=block.name)


@lru_cache(maxsize=64)
def _parse_schema(text: str) -> pa.Schema:
    return from_avro(text, name="a log block")


@lru_cache(maxsize=64)
def _parse_record(text: str) -> AvroType:
    """Parse a schema, cached: parsing takes half the time if many small blocks share one schema."""
    return record_type(text, name="a log block")


def _locate_records(data: npt.NDArray[np.uint8], count: int) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Find the start and end of each record, in the only loop over records: each length gives the start of the next."""
    if not 0 <= count <= len(data) // _LENGTH.size:
        raise ValueError(f"{count} records in {len(data)} bytes")
    bounds, at, length_at, buffer = array("q", [_HEAD.size]), _HEAD.size, _LENGTH.unpack_from, data.data
    for _ in range(count):
        (length,) = length_at(buffer, at)
        if length < 0:
            raise ValueError("a record has a negative length")
        at += _LENGTH.size + length
        bounds.append(at)
    if at != len(data):
        raise ValueError(f"its records end at byte {at} of {len(data)}")
    places = np.array(bounds, np.int64)
    return places[:-1] + _LENGTH.size, places[1:]


def parquet_rows(block: LogBlock, content: Any, columns: Collection[str] | None = None) -> LogRows:
    """Decode the rows of a Parquet data block, whose content is a Parquet file; see `avro_rows`."""
    schema = _schema(block)
    try:
        with OpenParquet(pa.BufferReader(content)) as parquet:
            stored = set(parquet.schema_arrow.names)
            present = stored if columns is None else stored.intersection(columns)
            wanted = [name for name in schema.names if name in present]
            rows = _read(parquet, wanted)
        typed = conform(rows.select(wanted), pa.schema([schema.field(name) for name in wanted]))
    except (pa.ArrowException, OSError, ValueError, SchemaMismatchError) as error:
        raise damaged_content(block, error) from None
    return LogRows(block.instant_time, typed, block.is_partial)


def _read(parquet: OpenParquet, columns: Sequence[str]) -> pa.Table:
    """Read the columns, large ones in several chunks: the merge frees them one by one."""
    leaves = leaves_of(parquet, columns)
    counts = [parquet.metadata.row_group(at).num_rows for at in range(parquet.num_row_groups)]
    steps = [rows_at_a_time(parquet, at, leaves, max(count, 1), _CHUNK_BYTES) for at, count in enumerate(counts)]
    if all(step >= count for step, count in zip(steps, counts, strict=True)):
        return parquet.read(columns=columns, use_threads=False)
    batches = [
        batch
        for at, step in enumerate(steps)
        for batch in parquet.iter_batches(step, row_groups=[at], columns=columns, use_threads=False)
    ]
    return pa.Table.from_batches(batches)


def damaged_content(block: LogBlock, error: Exception) -> CorruptTableError:
    """Make the error for a block whose content cannot be decoded."""
    reason = (str(error) or type(error).__name__)[:300]
    return CorruptTableError(f"{block.name} cannot be read: {reason}; restore the file")
