"""What the deletion of files changes in each partition of the metadata table."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

import pyarrow as pa

from lakeformat.metadata_table.deltacommit import MetadataChanges, rows_of_files
from lakeformat.metadata_table.index_definitions import read_secondary_indexes, read_statistics_form
from lakeformat.metadata_table.metadata_table import MetadataTable
from lakeformat.metadata_table.names import FIXED_PARTITIONS, MetadataPartition, bloom_key
from lakeformat.metadata_table.new_records import statistics_keys
from lakeformat.model.files import BaseFileName

__all__ = ["changes_of_deletion", "find_unmaintained", "lose_keys"]

_FILES: Final = MetadataPartition.FILES
_COLUMNS: Final = MetadataPartition.COLUMN_STATS
_FILTERS: Final = MetadataPartition.BLOOM_FILTERS
_KEYS: Final = MetadataPartition.RECORD_INDEX
_MAINTAINED: Final = frozenset(partition.value for partition in FIXED_PARTITIONS)


def find_unmaintained(table: MetadataTable) -> frozenset[str]:
    """Return the names of the partitions that lakeformat does not keep up to date."""
    secondary = [index.partition.value for index in read_secondary_indexes(table)]
    return frozenset(table.names) - _MAINTAINED - frozenset(secondary if table.has(_KEYS) else ())


def lose_keys(table: MetadataTable) -> MetadataChanges:
    """Return that the record index cannot follow, nor the secondary indexes, which need it."""
    secondary = (index.partition.value for index in read_secondary_indexes(table))
    return MetadataChanges(lost=frozenset({_KEYS.value, *secondary}))


def changes_of_deletion(
    table: MetadataTable, deleted: Mapping[str, Iterable[str]], removed: Sequence[str] = ()
) -> MetadataChanges:
    """Return what changes if files go.

    Args:
        deleted: maps partition path to the names of the files.
        removed: paths of partitions that do not exist any more.
    """
    files = [(path, name) for path, names in deleted.items() for name in names]
    keys: dict[MetadataPartition, pa.Array] = {}
    if table.has(_COLUMNS):
        keys[_COLUMNS] = statistics_keys(files, read_statistics_form(table).columns)
    if table.has(_FILTERS):
        bases = [bloom_key(*file) for file in files if BaseFileName.match(file[1])]
        keys[_FILTERS] = pa.array(bases, pa.string())
    return MetadataChanges({_FILES: rows_of_files((), files, removed=removed)}, keys, find_unmaintained(table))
