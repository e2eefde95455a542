"""The parts of records as columns: the values of an HFile, decoded for one partition of the metadata table.

Bounds are in columns ``min.<wrapper>`` and ``max.<wrapper>``, such as ``min.LongWrapper``. A row has at most one
minimum and one maximum. A column without any value is left out. `lakeformat.metadata_table.bounds` makes typed bounds
of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakeformat.codec.avro.columns import decode_columns
from lakeformat.errors import CorruptTableError
from lakeformat.metadata_table.names import MetadataPartition, RecordKind
from lakeformat.metadata_table.record_schema import KIND, part_type

__all__ = ["COLUMNS", "KINDS", "PART", "decode_parts", "no_rows"]

PART: Final[Mapping[RecordKind, str]] = {
    RecordKind.FILES: "filesystemMetadata",
    RecordKind.COLUMN_STATS: "ColumnStatsMetadata",
    RecordKind.PARTITION_STATS: "ColumnStatsMetadata",
    RecordKind.BLOOM_FILTERS: "BloomFilterMetadata",
    RecordKind.RECORD_INDEX: "recordIndexMetadata",
    RecordKind.SECONDARY_INDEX: "SecondaryIndexMetadata",
}
#: Numbers of the kinds of records that a partition may have.
KINDS: Final[Mapping[RecordKind, tuple[int, ...]]] = {
    RecordKind.FILES: (1, 2),
    RecordKind.COLUMN_STATS: (3,),
    RecordKind.PARTITION_STATS: (6,),
    RecordKind.BLOOM_FILTERS: (4,),
    RecordKind.RECORD_INDEX: (5,),
    RecordKind.SECONDARY_INDEX: (7,),
}
#: Bytes of keys and values that are decoded at once.
_BATCH_BYTES: Final = 64 << 20
_STATISTICS: Final = {
    "file_name": ("fileName", pa.string()),
    "column_name": ("columnName", pa.string()),
    "values": ("valueCount", pa.int64()),
    "nulls": ("nullCount", pa.int64()),
    "size_bytes": ("totalSize", pa.int64()),
    "unpacked_bytes": ("totalUncompressedSize", pa.int64()),
    "is_deleted": ("isDeleted", pa.bool_()),
    "is_tight": ("isTightBound", pa.bool_()),
}
#: Maps the columns of each partition to the field of the part, and its type. Older releases lack some of the fields.
COLUMNS: Final[Mapping[RecordKind, Mapping[str, tuple[str, pa.DataType]]]] = {
    RecordKind.FILES: {
        "file_name": ("", pa.string()),
        "size_bytes": ("", pa.int64()),
        "is_deleted": ("", pa.bool_()),
    },
    RecordKind.COLUMN_STATS: _STATISTICS,
    RecordKind.PARTITION_STATS: _STATISTICS,
    RecordKind.BLOOM_FILTERS: {
        "type": ("type", pa.string()),
        "instant_time": ("timestamp", pa.string()),
        "filter": ("bloomFilter", pa.binary()),
        "is_deleted": ("isDeleted", pa.bool_()),
    },
    RecordKind.RECORD_INDEX: {
        "partition_path": ("partitionName", pa.string()),
        "file_id": ("fileId", pa.string()),
        "instant_ms": ("instantTime", pa.int64()),
    },
    RecordKind.SECONDARY_INDEX: {"is_deleted": ("isDeleted", pa.bool_())},
}


def decode_parts(partition: MetadataPartition, cells: pa.Table, schema: str, name: str) -> pa.Table:
    """Decode the values of cells. Return the column ``key`` and the columns of the partition.

    `MetadataPartition.FILES` has a row for each file of a record, all others a row for each record.

    Args:
        cells: Columns ``key`` and ``value`` of an HFile.
        schema: The Avro schema of the values, as JSON.
        name: Path of the file, for messages.

    Raises:
        CorruptTableError: A value is not a record of this partition.
        UnsupportedTableError: The schema has a type that is not supported.
    """
    record = part_type(schema, PART[partition.kind])
    tables = [no_rows(partition)]
    for batch in _join_batches(cells):
        if not len(batch):
            continue
        keys, values = batch.column("key"), batch.column("value")
        _, offsets, data = values.buffers()
        ends = np.frombuffer(offsets, np.int32, len(values) + 1, values.offset * 4).astype(np.int64)
        content = np.frombuffer(data, np.uint8) if data else np.empty(0, np.uint8)
        try:
            rows = decode_columns(content, ends[:-1], ends[1:], record, {KIND, PART[partition.kind]})
            if not pc.all(pc.is_in(rows[KIND], value_set=pa.array(KINDS[partition.kind], pa.int32()))).as_py():
                raise ValueError("a record is of another kind")
            part = rows[PART[partition.kind]].combine_chunks()
            tables.append(_DECODERS[partition.kind](partition, keys, part))
        except (ValueError, pa.ArrowException) as error:
            raise CorruptTableError(
                f"{name} has records that cannot be read ({str(error)[:200]}); restore it, or run repair(), which "
                "makes the metadata table again"
            ) from None
    return pa.concat_tables(tables, promote_options="default")


def _join_batches(cells: pa.Table) -> Iterator[pa.RecordBatch]:
    """Yield the cells in batches of about `_BATCH_BYTES`: decoding many blocks of few records each would be slow."""
    step = max(1, len(cells) * _BATCH_BYTES // max(1, cells.nbytes))
    for start in range(0, len(cells), step):
        yield from cells.slice(start, step).combine_chunks().to_batches()


def no_rows(partition: MetadataPartition) -> pa.Table:
    """Return the columns that `decode_parts` returns at least, without rows."""
    fields = {name: data_type for name, (_, data_type) in COLUMNS[partition.kind].items()}
    return pa.schema({"key": pa.string(), **fields}).empty_table()


def _plain_columns(partition: MetadataPartition, keys: pa.Array, part: pa.StructArray) -> dict[str, pa.Array]:
    """Return the columns of a partition. A field that the part does not have is null."""
    if part.null_count:
        raise ValueError("a record lacks its part")
    fields = {field.name: part.field(number) for number, field in enumerate(part.type)}
    return {"key": keys} | {
        name: fields[field] if field in fields else pa.nulls(len(keys), data_type)
        for name, (field, data_type) in COLUMNS[partition.kind].items()
    }


def _decode_files(_: MetadataPartition, keys: pa.Array, part: pa.MapArray) -> pa.Table:
    """Return a row for each file. A record without files has no row."""
    counts = np.diff(np.asarray(part.offsets))
    owners = pa.array(np.repeat(np.arange(len(keys)), counts))
    info = part.items
    return pa.table(
        {
            "key": keys.take(owners),
            "file_name": part.keys,
            "size_bytes": info.field("size"),
            "is_deleted": info.field("isDeleted"),
        }
    )


def _decode_statistics(partition: MetadataPartition, keys: pa.Array, part: pa.StructArray) -> pa.Table:
    columns = _plain_columns(partition, keys, part)
    for bound in ("min", "max"):
        union = part.field(f"{bound}Value")
        for number, wrapper in enumerate(union.type):
            values = union.field(number)
            if values.null_count < len(values):
                columns[f"{bound}.{wrapper.name}"] = values
    if part.type.get_field_index("valueType") >= 0:
        kinds = part.field("valueType")
        columns["value_type"], columns["value_info"] = kinds.flatten()
    return pa.table(columns)


def _decode_fields(partition: MetadataPartition, keys: pa.Array, part: pa.StructArray) -> pa.Table:
    return pa.table(_plain_columns(partition, keys, part))


def _decode_locations(partition: MetadataPartition, keys: pa.Array, part: pa.StructArray) -> pa.Table:
    columns = _plain_columns(partition, keys, part)
    encoding = np.asarray(part.field("fileIdEncoding"))
    if ((encoding != 0) & (encoding != 1)).any():
        raise ValueError("a file id has an unknown encoding")
    if (encoding == 0).any():
        uuids = _file_ids(part)
        columns["file_id"] = uuids if (encoding == 0).all() else pc.if_else(encoding == 0, uuids, columns["file_id"])
    if columns["partition_path"].null_count or columns["file_id"].null_count:
        raise ValueError("a key has no location")
    return pa.table(columns)


def _file_ids(part: pa.StructArray) -> pa.Array:
    """Return the file ids that are stored as the numbers of a UUID. Each id is formatted once."""
    raw = np.empty(len(part), np.dtype([("high", ">i8"), ("low", ">i8"), ("index", ">i4")]))
    for name, field in (("high", "fileIdHighBits"), ("low", "fileIdLowBits"), ("index", "fileIndex")):
        raw[name] = np.asarray(part.field(field).fill_null(0))
    fixed = pa.Array.from_buffers(pa.binary(raw.itemsize), len(raw), [None, pa.py_buffer(raw)])
    coded = fixed.dictionary_encode()
    return pa.array([_file_id(value) for value in coded.dictionary.to_pylist()], pa.string()).take(coded.indices)


def _file_id(raw: bytes) -> str:
    text = raw[:16].hex()
    index = int.from_bytes(raw[16:], "big", signed=True)
    uuid = "-".join((text[:8], text[8:12], text[12:16], text[16:20], text[20:]))
    return uuid if index == -1 else f"{uuid}-{index}"


_DECODERS: Final[Mapping[RecordKind, Callable[[MetadataPartition, pa.Array, pa.Array], pa.Table]]] = {
    RecordKind.FILES: _decode_files,
    RecordKind.COLUMN_STATS: _decode_statistics,
    RecordKind.PARTITION_STATS: _decode_statistics,
    RecordKind.BLOOM_FILTERS: _decode_fields,
    RecordKind.RECORD_INDEX: _decode_locations,
    RecordKind.SECONDARY_INDEX: _decode_fields,
}
