"""What a commit changes in the statistics of partitions in the metadata table.

Hudi joins the statistics of all live files of each partition that the commit has written, its own files included. So
does this module. Hudi leaves out a partition of which it has no record: a record is deleted only if the partition has
no file any more, and if anything is not known, all records are given up. Without a lock another commit may complete
meanwhile, whose files the records would lack, so they are given up, too. The same holds if a commit that began later
has ended before: its records count as newer, and lack the files of this one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from lakeformat.file_system_view.file_groups import list_partitions, make_listing, visible_files
from lakeformat.file_system_view.slices import build_slices
from lakeformat.file_system_view.snapshot import FileNames, make_latest_base
from lakeformat.metadata_table.deltacommit import MetadataChanges
from lakeformat.metadata_table.metadata_table import MetadataTable
from lakeformat.metadata_table.names import MetadataPartition
from lakeformat.metadata_table.partition_records import partition_stats_keys
from lakeformat.model.files import BaseFile, LogFile
from lakeformat.model.instant import COMMIT_ACTIONS
from lakeformat.model.merge_settings import RecordMergeMode
from lakeformat.model.table_config import TableConfig
from lakeformat.timeline.timeline import Timeline
from lakeformat.transaction.order import claims
from lakeformat.transaction.order.commit_order import order_of
from lakeformat.transaction.upkeep.new_files import IndexedColumns, measure_files
from lakeformat.transaction.upkeep.pending_commit import PendingCommit

__all__ = ["can_have_partition_stats", "combines_fields", "find_partition_changes", "live_after"]

_PARTITIONS: Final = MetadataPartition.PARTITION_STATS
_NOT_KNOWN: Final = MetadataChanges(lost=frozenset({_PARTITIONS.value}))
#: An instant after all others: log files of the pending commit belong to the newest base file.
_ALWAYS: Final = "9" * 17


def can_have_partition_stats(config: TableConfig) -> bool:
    """Tell whether Hudi keeps statistics of the table's partitions.

    Such a table must have statistics of all its files, or of none. Hudi 1.2.0 joins the statistics of the files
    that have some to those of a partition, and calls these tight. A filter that they rule out then loses the rows
    of the other files.
    """
    return bool(config.partition_fields) and config.traits.has_partition_statistics


def combines_fields(config: TableConfig) -> bool:
    """Tell whether a row may be made of fields of several versions.

    Such a row may match a condition although none of the versions does. So log files get no statistics: Hudi then
    reads their slices.
    """
    settings = config.merge_settings
    return settings.partial_update is not None or settings.mode is RecordMergeMode.CUSTOM


def find_partition_changes(
    table: MetadataTable, commit: PendingCommit, columns: IndexedColumns, written: pa.Table | None
) -> MetadataChanges:
    """Return the changes in the partitions that a commit has written or replaced.

    Among them are statistics of older files that had none. Memory: the statistics of the live files of these
    partitions.

    Args:
        written: records of `MetadataPartition.COLUMN_STATS` of the files that the commit has written.
    """
    metadata, config, store = commit.metadata, commit.config, commit.store
    if not order_of(store).is_alone:
        return _NOT_KNOWN
    touched = sorted({*metadata.stats, *metadata.replaced})
    timeline = store.load()
    if _is_out_of_order(commit, timeline, frozenset(touched)):
        return _NOT_KNOWN
    live = live_after(table, commit, timeline, touched)
    if config.merge_settings.mode is RecordMergeMode.CUSTOM and any(isinstance(file, LogFile) for file in live):
        return _NOT_KNOWN  # The rows of the table may have other values than its files.
    file_of = {(file.partition_path, str(file.name)): file for file in live}
    own = {(stat.partition_path, stat.path.rpartition("/")[2]) for stat in metadata.all_stats()}
    stored = table.column_stats(keys=columns.keys_of(name for name in file_of if name not in own))
    statistics = pa.concat_tables([stored, *([] if written is None else [written])], promote_options="default")
    lacking = columns.find_unmeasured(list(file_of), statistics)
    measured = None
    if lacking:
        measured = columns.rows_of_files(measure_files(store.storage, [file_of[name] for name in lacking], columns))
        if measured is None or columns.find_unmeasured(lacking, measured):
            return _NOT_KNOWN
        is_replaced = pc.is_in(statistics["key"], value_set=columns.keys_of(lacking))
        statistics = pa.concat_tables([statistics.filter(pc.invert(is_replaced)), measured], promote_options="default")
    with_files = sorted({file.partition_path for file in live})
    rows = {_PARTITIONS: columns.rows_of_partitions(with_files, statistics)} if with_files else {}
    if measured is not None and not combines_fields(config):
        rows[MetadataPartition.COLUMN_STATS] = measured
    gone = [path for path in touched if path not in frozenset(with_files)]
    return MetadataChanges(rows, {_PARTITIONS: partition_stats_keys(gone, columns.form.columns)})


def _is_out_of_order(commit: PendingCommit, timeline: Timeline, touched: frozenset[str]) -> bool:
    """Tell whether records of one commit may hide those of another that began earlier and completes later.

    Writers of lakeformat see that when they complete. One of another program would not, so it counts while it runs.
    """
    store = commit.store
    later = (store.read_commit(instant) for instant in timeline.commits if instant.time > commit.time)
    if any(not touched.isdisjoint({*commit.stats, *commit.replaced}) for commit in later):
        return True
    earlier = {i.time for i in timeline.pending_writes if i.time < commit.time and i.action in COMMIT_ACTIONS}
    return bool(earlier) and not earlier <= claims.list_claimed_times(store.storage)


def live_after(
    table: MetadataTable, commit: PendingCommit, timeline: Timeline, partitions: Sequence[str]
) -> list[BaseFile | LogFile]:
    """Return the files of some partitions that a read will merge when a pending commit is completed.

    The metadata table lists the files, if its timeline agrees with the table's; else the folders are listed.

    Args:
        timeline: the table's timeline now.
    """
    store, metadata = commit.store, commit.metadata
    if table.instants.find_lacking(timeline) is None and table.instants.find_unknown(timeline) is None:
        listed = table.files(partitions)
        columns = (listed[name].to_pylist() for name in ("partition_path", "file_name", "size_bytes"))
        listing = make_listing(zip(*columns, strict=True))
    else:
        listing = list_partitions(store.storage, partitions)
    commits = {instant.time: store.read_commit(instant) for instant in timeline.commits}
    replaced = frozenset(group for commit in (*commits.values(), metadata) for group in commit.replaced_groups)
    bases = {file.group: file for file in visible_files(listing.bases, timeline, replaced, FileNames(commits))}
    bases |= {stat.base_file.group: stat.base_file for stat in metadata.all_stats() if stat.is_base}
    own = {log.path: log for stat in metadata.all_stats() if (log := stat.log_file) is not None}
    logs = [log for log in listing.logs if log.path not in own]
    latest_base = make_latest_base(store, timeline, logs)
    pieces = build_slices(
        bases.values(), [*logs, *own.values()], replaced, lambda log: _ALWAYS if log.path in own else latest_base(log)
    )
    return [file for piece in pieces for file in piece.files]
