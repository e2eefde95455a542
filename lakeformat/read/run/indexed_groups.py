"""File groups that a secondary index names for a value: a read of these rows opens no others.

The index gives the record keys of a value, and the record index the file group of each key. Both know rows as they are
merged, so the answer is right for slices with log files, but not for base files alone. As in Hudi a key has one place.

Hudi: ``SecondaryIndexSupport``, ``HoodieBackedTableMetadata.getSecondaryIndexRecords``.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from typing import Final

import pyarrow as pa

from lakeformat.errors import LakeformatError
from lakeformat.file_system_view.snapshot import Snapshot
from lakeformat.index.stored_filters import open_for_look_ups
from lakeformat.metadata_table.index_definitions import is_partitioned_index, read_secondary_indexes
from lakeformat.metadata_table.metadata_table import MetadataTable
from lakeformat.metadata_table.names import MetadataPartition, RecordKind, partition_of_name
from lakeformat.metadata_table.secondary_keys import index_texts, record_keys_of
from lakeformat.model.files import FileGroupId
from lakeformat.model.table_config import TableType
from lakeformat.predicate import And, Comparison, In, Predicate, path_parts
from lakeformat.storage.port import Storage

__all__ = ["find_indexed_groups"]

_LOG: Final = logging.getLogger("lakeformat.read")
#: Maximum number of values that are looked up.
_VALUES: Final = 1000


def find_indexed_groups(storage: Storage, snapshot: Snapshot, predicate: Predicate) -> frozenset[FileGroupId] | None:
    """Return the file groups that may hold a matching row, by secondary indexes; None if they do not tell.

    Memory: the keys that have the wanted values.
    """
    config, live = snapshot.config, snapshot.live
    kinds = {partition.kind for name in config.metadata_partitions if (partition := partition_of_name(name))}
    is_merged = config.table_type is TableType.COPY_ON_WRITE or (live.has_logs and snapshot.merges)
    if RecordKind.SECONDARY_INDEX not in kinds or not is_merged or snapshot.changes or snapshot.schemas:
        return None
    values_of = dict(_wanted_values(predicate))
    if not values_of:
        return None
    try:
        table = open_for_look_ups(storage, snapshot, MetadataPartition.RECORD_INDEX)
        if isinstance(table, str) or is_partitioned_index(table):
            return None
        return _look_up(table, values_of)
    except (LakeformatError, OSError) as error:
        _LOG.warning("table %s: its secondary indexes are not used: %s", storage.location, error)
        return None


def _look_up(table: MetadataTable, values_of: Mapping[str, pa.Array]) -> frozenset[FileGroupId] | None:
    groups_found: frozenset[FileGroupId] | None = None
    for index in read_secondary_indexes(table):
        if (values := values_of.get(index.column)) is None:
            continue
        keys = record_keys_of(table.secondary_index(index.partition, values))
        places = table.look_up(keys).rows.group_by(["partition_path", "file_id"]).aggregate([]).to_pylist()
        groups = frozenset(FileGroupId(row["partition_path"], row["file_id"]) for row in places)
        groups_found = groups if groups_found is None else groups_found & groups
    return groups_found


def _wanted_values(predicate: Predicate) -> Iterator[tuple[str, pa.Array]]:
    """Yield the columns that must be equal to a value, with the values as secondary indexes store them."""
    match predicate:
        case And(operands):
            for operand in operands:
                yield from _wanted_values(operand)
        case Comparison(column, "=" | "<=>", pa.Scalar() as value) if value.is_valid:
            yield ".".join(path_parts(column)), index_texts(pa.array([value.as_py()], value.type))
        case In(column, pa.Array() as values) if len(values) <= _VALUES:
            yield ".".join(path_parts(column)), index_texts(values.drop_null())
