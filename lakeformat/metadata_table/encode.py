"""Encoding of records: the columns of one partition of the metadata table become the keys and values of an HFile.

It is the inverse of `lakeformat.metadata_table.parts`, and has the same columns. The schema of the records is the one
that the metadata table has already, because releases of Hudi differ in the fields. A field without a column is null.
Memory: the encoded values twice, and about a hundred bytes per record.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Mapping
from typing import Any, Final, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakeformat.codec.avro.encode import AvroEncoder, encode_integers, encode_varints, join_bytes
from lakeformat.metadata_table.names import ALL_PARTITIONS, MetadataPartition, RecordKind
from lakeformat.metadata_table.parts import COLUMNS, KINDS, PART
from lakeformat.metadata_table.record_schema import KIND

__all__ = ["encode_parts"]

Fields: TypeAlias = Mapping[str, pa.Array | None]

_UUID_LENGTH: Final = 36


def encode_parts(partition: MetadataPartition, rows: pa.Table, schema: str) -> pa.Table:
    """Encode records. Return the columns ``key`` and ``value``, in the order of the rows.

    Args:
        rows: Columns of the partition, as `lakeformat.metadata_table.parts.decode_parts` returns them. In
            `MetadataPartition.FILES` each key becomes one record, with all files of its rows.
        schema: The Avro schema of the values, as JSON.
    """
    rows = rows.combine_chunks()
    if partition.has_places and len(rows):
        # The value does not have the key: each one is encoded once.
        first, codes = _distinct_places(rows)
        values = _encode(partition, rows.take(first), schema)["value"]
        return pa.table({"key": _one(rows, "key"), "value": values.combine_chunks().take(codes)})
    return _encode(partition, rows, schema)


def _distinct_places(rows: pa.Table) -> tuple[pa.Array, pa.Array]:
    """Return the row numbers of the first row of each place, and for each row the number of its place."""
    codes = np.zeros(len(rows), np.int64)
    for name in rows.column_names:
        if name != "key":
            column = _one(rows, name).dictionary_encode("encode")
            own = np.asarray(column.indices).astype(np.int64)
            _, codes = np.unique(codes * len(column.dictionary) + own, return_inverse=True)
    _, first = np.unique(codes, return_index=True)
    return pa.array(first), pa.array(codes)


def _encode(partition: MetadataPartition, rows: pa.Table, schema: str) -> pa.Table:
    keys, part = _PARTS[partition.kind](partition, rows)
    record = json.loads(schema)
    encoder = _RecordEncoder()
    pieces: list[pa.Array | bytes] = []
    for field in record["fields"]:
        name = field["name"]
        if name == KIND:
            first, *others = KINDS[partition.kind]
            kinds = pc.if_else(pc.equal(keys, ALL_PARTITIONS), first, others[0] if others else first)
            pieces.append(encode_integers(kinds.cast(pa.int64())))
        elif name == PART[partition.kind]:
            pieces.append(encoder.part(part, field["type"]))
        else:  # In a stored value the key is empty: the key of the cell is the record's.
            pieces.append(_null(field["type"]) if isinstance(field["type"], list) else b"\0")
    return pa.table({"key": keys, "value": join_bytes(*pieces)})


class _RecordEncoder(AvroEncoder):
    """An encoder that knows the unions of wrappers, which bounds are: a struct with a field for each wrapper."""

    def part(self, fields: Fields | pa.Array, avro: list[Any]) -> pa.Array:
        """Encode the part of each record, which is a union with null."""
        if isinstance(fields, pa.Array):
            return self.encode(fields, avro)
        branch = next(kind for kind in avro if kind != "null")
        pieces: list[pa.Array | bytes] = [_index(avro, branch)]
        for field in branch["fields"]:
            column = fields.get(field["name"])
            pieces.append(_null(field["type"]) if column is None else self.encode(column, field["type"]))
        return join_bytes(*pieces)

    def _union(self, column: pa.Array, branches: list[Any]) -> pa.Array:
        if len(branches) == 2:
            return super()._union(column, branches)
        for branch in branches:
            if isinstance(branch, dict):
                self._named[branch["name"]] = branch
        names = [_name(branch) for branch in branches]
        values = pa.nulls(len(column), pa.binary())
        for number, wrapper in enumerate(column.type):
            inner = self._named[wrapper.name]["fields"][0]["type"]
            index = encode_varints(np.array([names.index(wrapper.name)]))[0].as_py()
            values = pc.coalesce(values, join_bytes(index, self.encode(column.field(number), inner)))
        return values.fill_null(_null(branches))


def _name(branch: Any) -> str:
    text: str = branch["name"] if isinstance(branch, dict) else branch
    return text.rpartition(".")[2]


def _index(branches: list[Any], branch: Any) -> bytes:
    return bytes([2 * branches.index(branch)])


def _null(avro: Any) -> bytes:
    return _index(avro, "null")


# --- the fields of each part -----------------------------------------------------------------------


def _files_part(_: MetadataPartition, rows: pa.Table) -> tuple[pa.Array, pa.Array]:
    """Return the keys, and for each a map of file name to size and whether the file is deleted.

    A row without a file name makes a record without files, if its key has no other row.
    """
    rows = rows.sort_by([("key", "ascending"), ("file_name", "ascending")])
    coded = _one(rows, "key").dictionary_encode()
    is_file = np.asarray(rows["file_name"].is_valid())
    counts = np.bincount(np.asarray(coded.indices)[is_file], minlength=len(coded.dictionary))
    starts = np.concatenate([[0], np.cumsum(counts)]).astype(np.int32)
    rows = rows.filter(pa.array(is_file))
    info = pa.StructArray.from_arrays([_one(rows, "size_bytes"), _one(rows, "is_deleted")], ["size", "isDeleted"])
    return coded.dictionary, pa.MapArray.from_arrays(pa.array(starts), _one(rows, "file_name"), info)


def _plain_part(partition: MetadataPartition, rows: pa.Table) -> tuple[pa.Array, dict[str, pa.Array | None]]:
    """Return the keys, and the columns under the names of the fields."""
    there = set(rows.column_names)
    fields: dict[str, pa.Array | None] = {
        field: _one(rows, column) for column, (field, _) in COLUMNS[partition.kind].items() if column in there
    }
    return _one(rows, "key"), fields


def _statistics_part(partition: MetadataPartition, rows: pa.Table) -> tuple[pa.Array, Fields]:
    keys, fields = _plain_part(partition, rows)
    for bound in ("min", "max"):
        wrappers = [name for name in rows.column_names if name.startswith(f"{bound}.")]
        if wrappers:
            columns = [_one(rows, name) for name in wrappers]
            fields[f"{bound}Value"] = pa.StructArray.from_arrays(columns, [name.partition(".")[2] for name in wrappers])
    if "value_type" in rows.column_names:
        kinds = _one(rows, "value_type")
        names = ["typeOrdinal", "additionalInfo"]
        fields["valueType"] = pa.StructArray.from_arrays([kinds, _one(rows, "value_info")], names, mask=kinds.is_null())
    return keys, fields


def _locations_part(partition: MetadataPartition, rows: pa.Table) -> tuple[pa.Array, Fields]:
    """Return the keys, and the fields of each place: the numbers of the UUID in a file id, or the file id as text."""
    keys, fields = _plain_part(partition, rows)
    coded = _one(rows, "file_id").dictionary_encode()
    numbers = [_numbers_of(file_id) for file_id in coded.dictionary.to_pylist()]
    high, low, index = (
        pa.array([None if split_id is None else split_id[part] for split_id in numbers], pa.int64())
        for part in range(3)
    )
    is_text = pa.array([split_id is None for split_id in numbers], pa.bool_())
    fields |= {
        "fileIdHighBits": high.fill_null(-1).take(coded.indices),
        "fileIdLowBits": low.fill_null(-1).take(coded.indices),
        "fileIndex": index.fill_null(-1).take(coded.indices),
        "fileId": pc.if_else(is_text, coded.dictionary, "").take(coded.indices),
        "fileIdEncoding": is_text.cast(pa.int32()).take(coded.indices),
    }
    return keys, fields


def _numbers_of(file_id: str) -> tuple[int, int, int] | None:
    """Return the upper and lower bits of the UUID in a file id, and the number after it; None for another form."""
    text, rest = file_id[:_UUID_LENGTH], file_id[_UUID_LENGTH:]
    if not rest.startswith("-") or not rest[1:].isdecimal() or str(int(rest[1:])) != rest[1:]:
        return None
    try:
        raw = uuid.UUID(text).bytes
    except ValueError:
        return None
    if str(uuid.UUID(bytes=raw)) != text:
        return None
    return int.from_bytes(raw[:8], "big", signed=True), int.from_bytes(raw[8:], "big", signed=True), int(rest[1:])


def _one(rows: pa.Table, name: str) -> pa.Array:
    return rows[name].combine_chunks()


_PARTS: Final[Mapping[RecordKind, Callable[[MetadataPartition, pa.Table], tuple[pa.Array, Any]]]] = {
    RecordKind.FILES: _files_part,
    RecordKind.COLUMN_STATS: _statistics_part,
    RecordKind.PARTITION_STATS: _statistics_part,
    RecordKind.BLOOM_FILTERS: _plain_part,
    RecordKind.RECORD_INDEX: _locations_part,
    RecordKind.SECONDARY_INDEX: _plain_part,
}
