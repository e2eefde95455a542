"""What a commit changes in each partition of the metadata table.

A partition of the metadata table that cannot follow is named, so that the caller drops it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from lakeformat.arrow.kinds import Kind, kind_of
from lakeformat.codec.stored_types import with_meta_columns
from lakeformat.concurrency import run_all
from lakeformat.file_system_view.folder_values import stored_columns
from lakeformat.metadata_table.deltacommit import MetadataChanges, fits_log_files, rows_of_files
from lakeformat.metadata_table.index_definitions import (
    StatisticsForm,
    is_partitioned_index,
    read_secondary_indexes,
    read_statistics_form,
)
from lakeformat.metadata_table.metadata_table import MetadataTable
from lakeformat.metadata_table.names import MetadataPartition
from lakeformat.metadata_table.new_records import (
    MeasuredFile,
    NewFile,
    filter_rows,
    statistics_rows,
    stored_statistics,
)
from lakeformat.metadata_table.partition_records import find_unmeasured, indexed_columns
from lakeformat.model.commit import CommitMetadata, WriteStat
from lakeformat.model.instant import parse_instant_time
from lakeformat.model.table_config import TableConfig
from lakeformat.timeline.store import TimelineStore
from lakeformat.transaction.order.outcome import Outcome
from lakeformat.transaction.order.written_file import WrittenFile
from lakeformat.transaction.upkeep.key_changes import find_key_changes
from lakeformat.transaction.upkeep.metadata_deletions import find_unmaintained
from lakeformat.transaction.upkeep.new_files import read_base, read_log
from lakeformat.transaction.upkeep.partition_statistics import (
    can_have_partition_stats,
    combines_fields,
    find_partition_changes,
)
from lakeformat.transaction.upkeep.secondary_changes import changes_of_values

__all__ = ["changes_of_commit"]

_FILES: Final = MetadataPartition.FILES
_COLUMNS: Final = MetadataPartition.COLUMN_STATS
_PARTITIONS: Final = MetadataPartition.PARTITION_STATS
_FILTERS: Final = MetadataPartition.BLOOM_FILTERS
_KEYS: Final = MetadataPartition.RECORD_INDEX
#: Maximum number of footers that are read at once.
_THREADS: Final = 8


def changes_of_commit(
    table: MetadataTable,
    store: TimelineStore,
    config: TableConfig,
    instant_time: str,
    metadata: CommitMetadata,
    outcome: Outcome,
) -> tuple[MetadataChanges, frozenset[str]]:
    """Return what a commit changes, and the names of the partitions that cannot follow.

    Args:
        config: the table's properties.
        instant_time: the time of the commit.
        metadata: its metadata, with the write stats.
    """
    lost = set(find_unmaintained(table))
    named = [file for stat in metadata.all_stats() for file in _files_of(stat)]
    rows: dict[MetadataPartition, pa.Table] = {_FILES: rows_of_files(named)}
    deleted: dict[MetadataPartition, pa.Array] = {}
    form = read_statistics_form(table, outcome.files_schema or outcome.schema) if table.has(_COLUMNS) else None
    bases = _read_bases(table, form, outcome) if form or table.has(_FILTERS) else []
    if table.has(_FILTERS):
        filters = filter_rows(bases, instant_time)
        if filters is None:
            lost.add(_FILTERS.value)
        else:
            rows[_FILTERS] = filters
    if form:
        found = _find_statistics(store, table, config, instant_time, metadata, outcome, form, bases)
        if found is None:
            lost |= {_COLUMNS.value, _PARTITIONS.value} & set(table.names)
        else:
            rows |= found.rows
            deleted |= found.deleted
    if table.has(_PARTITIONS) and _PARTITIONS not in deleted:
        lost.add(_PARTITIONS.value)
    if table.has(_KEYS):
        keys = _find_key_changes(table, config, instant_time, metadata, outcome)
        if keys is None:
            lost.add(_KEYS.value)
        else:
            rows[_KEYS], deleted[_KEYS] = keys
            values, unknown = changes_of_values(store, table, config, instant_time, metadata, outcome)
            rows |= values.rows
            deleted |= values.deleted
            lost |= unknown
    if _KEYS.value in lost:
        lost |= {index.partition.value for index in read_secondary_indexes(table)}
    return MetadataChanges(rows, deleted), frozenset(lost)


def _find_statistics(
    store: TimelineStore,
    table: MetadataTable,
    config: TableConfig,
    instant_time: str,
    metadata: CommitMetadata,
    outcome: Outcome,
    form: StatisticsForm,
    bases: Sequence[NewFile],
) -> MetadataChanges | None:
    """Return what a commit changes in the statistics of files and of partitions.

    If those of partitions are not known, they are left out. Return None if a file lacks statistics that it must have.

    Args:
        bases: the base files that the commit has written.
    """
    schema = _stored_schema(outcome)
    logs = [] if combines_fields(config) else _read_logs(table, outcome, form)
    written = [*bases, *logs]
    known = statistics_rows(written, form.columns, schema, stores_types=form.stores_types) if written else None
    if can_have_partition_stats(config) and _has_unmeasured(
        metadata, known, indexed_columns(form.columns, schema, stores_types=form.stores_types)
    ):
        return None
    measured = [] if known is None else [known]
    rows: dict[MetadataPartition, pa.Table] = {}
    deleted: dict[MetadataPartition, pa.Array] = {}
    if table.has(_PARTITIONS):
        found = find_partition_changes(store, table, config, instant_time, metadata, form, schema, known)
        if found is not None:
            rows |= {} if found.rows is None else {_PARTITIONS: found.rows}
            deleted[_PARTITIONS] = found.deleted
            measured += [] if found.measured is None else [found.measured]
    if measured:
        rows[_COLUMNS] = stored_statistics(pa.concat_tables(measured, promote_options="default"))
    return MetadataChanges(rows, deleted)


def _has_unmeasured(metadata: CommitMetadata, known: pa.Table | None, types: Mapping[str, pa.DataType]) -> bool:
    """Tell whether the statistics lack a file that the commit has written."""
    files = [(stat.partition_path, stat.path.rpartition("/")[2]) for stat in metadata.all_stats()]
    return bool(files) and (known is None or bool(find_unmeasured(files, known, types)))


def _stored_schema(outcome: Outcome) -> pa.Schema:
    return with_meta_columns(stored_columns(outcome.files_schema or outcome.schema, outcome.snapshot.config))


def _find_key_changes(
    table: MetadataTable, config: TableConfig, instant_time: str, metadata: CommitMetadata, outcome: Outcome
) -> tuple[pa.Table, pa.Array] | None:
    """Return the new records of the record index, and the keys to delete; None if they are not known."""
    if config.has_virtual_keys or is_partitioned_index(table):
        return None
    found = find_key_changes(table.storage, outcome.snapshot, instant_time, metadata, outcome.replaced_ids)
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


def _read_bases(table: MetadataTable, form: StatisticsForm | None, outcome: Outcome) -> list[NewFile]:
    """Read the footers of the base files among the written files. Look for NaN, if it is not known."""
    floats = _floats_of(outcome, form) if form else ()

    def read(file: WrittenFile) -> NewFile:
        leaves = file.facts.leaves if file.facts else ()
        counts = {leaf.path: leaf.nan_count for leaf in leaves if leaf.nan_count is not None}
        return read_base(table.storage, file.stat.base_file, floats, counts)

    return list(run_all(read, [file for file in outcome.written if file.stat.is_base], threads=_THREADS))


def _read_logs(table: MetadataTable, outcome: Outcome, form: StatisticsForm) -> list[MeasuredFile]:
    """Read the footers of the log files among the written files."""
    floats = _floats_of(outcome, form)

    def read(file: WrittenFile) -> MeasuredFile | None:
        log = file.stat.log_file
        return None if log is None else read_log(table.storage, log, form.columns, floats)

    written = [file for file in outcome.written if not file.stat.is_base]
    return [found for found in run_all(read, written, threads=_THREADS) if found is not None]


def _floats_of(outcome: Outcome, form: StatisticsForm) -> list[str]:
    schema = outcome.files_schema or outcome.schema
    return [field.name for field in schema if kind_of(field.type) is Kind.FLOAT and field.name in form.columns]
