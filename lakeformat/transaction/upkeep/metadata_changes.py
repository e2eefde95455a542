"""What a commit changes in each partition of the metadata table."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from lakeformat.codec.stored_types import with_meta_columns
from lakeformat.concurrency import run_all
from lakeformat.file_system_view.folder_values import stored_columns
from lakeformat.metadata_table.deltacommit import MetadataChanges, fits_log_files, rows_of_files
from lakeformat.metadata_table.index_definitions import (
    is_partitioned_index,
    read_statistics_form,
)
from lakeformat.metadata_table.metadata_table import MetadataTable
from lakeformat.metadata_table.names import MetadataPartition
from lakeformat.metadata_table.new_records import MeasuredFile, NewFile, filter_rows, stored_statistics
from lakeformat.model.commit import WriteStat
from lakeformat.model.instant import parse_instant_time
from lakeformat.transaction.order.written_file import WrittenFile
from lakeformat.transaction.upkeep.key_changes import find_key_changes
from lakeformat.transaction.upkeep.metadata_deletions import find_unmaintained, lose_keys
from lakeformat.transaction.upkeep.new_files import IndexedColumns, read_base, read_log
from lakeformat.transaction.upkeep.partition_statistics import (
    can_have_partition_stats,
    combines_fields,
    find_partition_changes,
)
from lakeformat.transaction.upkeep.pending_commit import PendingCommit
from lakeformat.transaction.upkeep.secondary_changes import changes_of_values

__all__ = ["changes_of_commit"]

_COLUMNS: Final = MetadataPartition.COLUMN_STATS
_PARTITIONS: Final = MetadataPartition.PARTITION_STATS
_FILTERS: Final = MetadataPartition.BLOOM_FILTERS
_KEYS: Final = MetadataPartition.RECORD_INDEX
#: Maximum number of footers that are read at once.
_THREADS: Final = 8


def changes_of_commit(table: MetadataTable, commit: PendingCommit) -> MetadataChanges:
    """Return what a commit changes."""
    named = [file for stat in commit.metadata.all_stats() for file in _files_of(stat)]
    changes = MetadataChanges({MetadataPartition.FILES: rows_of_files(named)}, lost=find_unmaintained(table))
    columns = _columns_of(table, commit)
    bases = _read_bases(commit, columns) if columns or table.has(_FILTERS) else []
    if table.has(_FILTERS):
        changes |= _changes_of_filters(commit, bases)
    if columns:
        changes |= _changes_of_statistics(table, commit, columns, bases)
    elif table.has(_PARTITIONS):
        changes |= MetadataChanges(lost=frozenset({_PARTITIONS.value}))
    if table.has(_KEYS):
        changes |= _changes_of_keys(table, commit)
    return changes


def _files_of(stat: WriteStat) -> Iterator[tuple[str, str, int]]:
    """Yield partition path, name and size of the files that a write stat names: change data files, too."""
    for path, size in ((stat.path, stat.size_bytes), *stat.cdc_stats):
        yield stat.partition_path, path.rpartition("/")[2], size


def _columns_of(table: MetadataTable, commit: PendingCommit) -> IndexedColumns | None:
    """Return the columns that have statistics; None if the metadata table has no statistics."""
    if not table.has(_COLUMNS):
        return None
    stored = with_meta_columns(stored_columns(commit.schema, commit.outcome.snapshot.config))
    return IndexedColumns(read_statistics_form(table, commit.schema), stored)


def _read_bases(commit: PendingCommit, columns: IndexedColumns | None) -> list[NewFile]:
    """Read the footers of the base files among the written files. Look for NaN, if it is not known."""
    floats = columns.floats if columns else ()

    def read(file: WrittenFile) -> NewFile:
        leaves = file.facts.leaves if file.facts else ()
        counts = {leaf.path: leaf.nan_count for leaf in leaves if leaf.nan_count is not None}
        return read_base(commit.storage, file.stat.base_file, floats, counts)

    return list(run_all(read, [file for file in commit.outcome.written if file.stat.is_base], threads=_THREADS))


def _changes_of_filters(commit: PendingCommit, bases: Sequence[NewFile]) -> MetadataChanges:
    filters = filter_rows(bases, commit.time)
    return (
        MetadataChanges(lost=frozenset({_FILTERS.value})) if filters is None else MetadataChanges({_FILTERS: filters})
    )


def _changes_of_statistics(
    table: MetadataTable, commit: PendingCommit, columns: IndexedColumns, bases: Sequence[NewFile]
) -> MetadataChanges:
    """Return what a commit changes in the statistics of files and of partitions.

    Both are lost if a file lacks statistics that it must have.

    Args:
        bases: the base files that the commit has written.
    """
    logs = [] if combines_fields(commit.config) else _read_logs(commit, columns)
    measured_rows = columns.rows_of_files([*bases, *logs])
    files = [(stat.partition_path, stat.path.rpartition("/")[2]) for stat in commit.metadata.all_stats()]
    if can_have_partition_stats(commit.config) and columns.find_unmeasured(files, measured_rows):
        return MetadataChanges(lost=frozenset({_COLUMNS.value, _PARTITIONS.value}.intersection(table.names)))
    changes = MetadataChanges()
    if table.has(_PARTITIONS):
        changes = find_partition_changes(table, commit, columns, measured_rows)
    measured = [rows for rows in (measured_rows, changes.rows.get(_COLUMNS)) if rows is not None]
    if measured:
        stored = stored_statistics(pa.concat_tables(measured, promote_options="default"))
        changes |= MetadataChanges({_COLUMNS: stored})
    return changes


def _read_logs(commit: PendingCommit, columns: IndexedColumns) -> list[MeasuredFile]:
    """Read the footers of the log files among the written files."""

    def read(file: WrittenFile) -> MeasuredFile | None:
        log = file.stat.log_file
        return None if log is None else read_log(commit.storage, log, columns.form.columns, columns.floats)

    written = [file for file in commit.outcome.written if not file.stat.is_base]
    return [log for log in run_all(read, written, threads=_THREADS) if log is not None]


def _changes_of_keys(table: MetadataTable, commit: PendingCommit) -> MetadataChanges:
    """Return what a commit changes in the record index, and in the secondary indexes, which need it."""
    if commit.config.has_virtual_keys or is_partitioned_index(table):
        return lose_keys(table)
    key_changes = find_key_changes(commit)
    if not fits_log_files(table, _KEYS, key_changes.added["key"]):
        return lose_keys(table)
    removed = key_changes.removed
    if len(key_changes.doubtful):
        places = table.record_index(key_changes.doubtful)
        is_gone = pc.is_in(places["file_id"], value_set=pa.array(sorted(key_changes.touched), pa.string()))
        removed = pa.concat_arrays([removed, places["key"].filter(is_gone).combine_chunks()])
    began = pa.repeat(parse_instant_time(commit.time, commit.config.zone), len(key_changes.added))
    keys = MetadataChanges({_KEYS: key_changes.added.append_column("instant_ms", began)}, {_KEYS: removed})
    return keys | changes_of_values(table, commit)
