"""What a commit changes in each partition of the metadata table.

A partition of the metadata table that cannot follow is named, so that the caller drops it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from lakeformat.concurrency import run_all
from lakeformat.files.footers import open_base, open_parquet
from lakeformat.metadata_table.deltacommit import MetadataChanges, fits_log_files, rows_of_files
from lakeformat.metadata_table.index_definitions import is_partitioned_index, read_statistics_form
from lakeformat.metadata_table.metadata_table import MetadataTable
from lakeformat.metadata_table.names import MetadataPartition
from lakeformat.metadata_table.new_records import (
    NewFile,
    filter_rows,
    statistics_rows,
)
from lakeformat.model.commit import CommitMetadata, WriteStat
from lakeformat.model.instant import parse_instant_time
from lakeformat.model.record import META_COLUMNS
from lakeformat.model.table_config import TableConfig
from lakeformat.transaction.key_changes import find_key_changes
from lakeformat.transaction.metadata_deletions import find_unmaintained
from lakeformat.transaction.publish import Outcome
from lakeformat.transaction.written_file import WrittenFile

__all__ = ["changes_of_commit"]

_FILES: Final = MetadataPartition.FILES
_COLUMNS: Final = MetadataPartition.COLUMN_STATS
_FILTERS: Final = MetadataPartition.BLOOM_FILTERS
_KEYS: Final = MetadataPartition.RECORD_INDEX
#: Maximum number of footers that are read at once.
_THREADS: Final = 8


def changes_of_commit(
    table: MetadataTable, config: TableConfig, instant_time: str, metadata: CommitMetadata, outcome: Outcome
) -> tuple[MetadataChanges, frozenset[str]]:
    """Return what a commit changes, and the names of the partitions that cannot follow.

    Log files get no statistics, so readers do not skip them.

    Args:
        config: the table's properties.
        instant_time: the time of the commit.
        metadata: its metadata, with the write stats.
    """
    lost = set(find_unmaintained(table))
    written = [file for stat in metadata.all_stats() for file in _files_of(stat)]
    rows: dict[MetadataPartition, pa.Table] = {_FILES: rows_of_files(written)}
    deleted: dict[MetadataPartition, pa.Array] = {}
    schema = outcome.files_schema or outcome.schema
    form = read_statistics_form(table, schema) if table.has(_COLUMNS) else None
    floats = [
        field.name for field in schema if pa.types.is_floating(field.type) and form and field.name in form.columns
    ]
    files = _read_footers(table, outcome.written, floats) if form or table.has(_FILTERS) else []
    if table.has(_FILTERS):
        filters = filter_rows(files, instant_time)
        if filters is None:
            lost.add(_FILTERS.value)
        else:
            rows[_FILTERS] = filters
    if form and files:
        stored = pa.schema([*((name, pa.string()) for name in META_COLUMNS), *schema])
        known = statistics_rows(files, form.columns, stored, stores_types=form.stores_types)
        rows |= {} if known is None else {_COLUMNS: known}
    if table.has(_KEYS):
        found = _find_key_changes(table, config, instant_time, metadata, outcome)
        if found is None:
            lost.add(_KEYS.value)
        else:
            rows[_KEYS], deleted[_KEYS] = found
    return MetadataChanges(rows, deleted), frozenset(lost)


def _find_key_changes(
    table: MetadataTable, config: TableConfig, instant_time: str, metadata: CommitMetadata, outcome: Outcome
) -> tuple[pa.Table, pa.Array] | None:
    """Return the new records of the record index, and the keys to delete; None if they are not known."""
    if config.has_virtual_keys or is_partitioned_index(table):
        return None
    found = find_key_changes(table.storage, outcome.snapshot, metadata, outcome.replaced_ids)
    if not fits_log_files(table, _KEYS, found.added["key"]):
        return None
    removed = found.removed
    if len(found.doubtful):
        places = table.record_index(found.doubtful)
        is_gone = pc.is_in(places["file_id"], value_set=pa.array(sorted(found.touched), pa.string()))
        removed = pa.concat_arrays([removed, places["key"].filter(is_gone).combine_chunks()])
    began = pa.repeat(parse_instant_time(instant_time, config.zone), len(found.added))
    return found.added.append_column("instant_ms", began), removed


def _files_of(stat: WriteStat) -> Iterator[tuple[str, str, int]]:
    """Yield partition path, name and size of the files that a write stat names: change data files, too."""
    for path, size in ((stat.path, stat.size_bytes), *stat.cdc_stats):
        yield stat.partition_path, path.rpartition("/")[2], size


def _read_footers(table: MetadataTable, written: Sequence[WrittenFile], floats: Sequence[str]) -> list[NewFile]:
    """Read the footers of the base files among the written files. Look for NaN in these columns, if it is not known."""

    def read(file: WrittenFile) -> NewFile:
        base = file.stat.base_file
        leaves = file.facts.leaves if file.facts else ()
        counts = {leaf.path: leaf.nan_count for leaf in leaves if leaf.nan_count is not None}
        with open_base(table.storage, base) as source:
            parquet = open_parquet(source, base.path)
            for name in floats:
                if name not in counts:
                    counts[name] = pc.sum(pc.is_nan(parquet.read([name])[name])).as_py() or 0
        return NewFile(base, parquet.metadata, frozenset(name for name, count in counts.items() if not count))

    return list(run_all(read, [file for file in written if file.stat.is_base], threads=_THREADS))
