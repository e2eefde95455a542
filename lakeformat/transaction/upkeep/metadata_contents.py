"""The records with which new partitions of the metadata table begin: what they say about the files that exist.

Hudi: the ``initialize…Partition`` methods of ``HoodieBackedTableMetadataWriter``.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property, partial
from math import ceil
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakeformat.codec.stored_types import with_meta_columns
from lakeformat.concurrency import run_all
from lakeformat.config.metadata_options import MetadataOptions
from lakeformat.errors import UnsupportedTableError
from lakeformat.file_system_view.file_groups import Listing, list_files
from lakeformat.file_system_view.folder_values import stored_columns
from lakeformat.file_system_view.snapshot import FileNames, Snapshot, list_snapshot
from lakeformat.index.stored_keys import read_live_keys
from lakeformat.metadata_table.creation import split_rows
from lakeformat.metadata_table.deltacommit import rows_of_files
from lakeformat.metadata_table.index_definitions import SecondaryIndex, StatisticsForm, choose_columns
from lakeformat.metadata_table.metadata_table import MetadataTable
from lakeformat.metadata_table.names import MetadataPartition, file_groups_of
from lakeformat.metadata_table.new_records import filter_rows, stored_statistics
from lakeformat.metadata_table.parts import no_rows
from lakeformat.model.files import BaseFile, FileSlice, LogFile
from lakeformat.model.instant import parse_instant_time
from lakeformat.model.merge_settings import RecordMergeMode
from lakeformat.model.table_config import TableConfig
from lakeformat.timeline.store import TimelineStore
from lakeformat.timeline.timeline import Timeline
from lakeformat.transaction.order.commit_order import order_of
from lakeformat.transaction.upkeep.new_files import IndexedColumns, measure_files, read_base
from lakeformat.transaction.upkeep.partition_statistics import can_have_partition_stats, combines_fields
from lakeformat.transaction.upkeep.secondary_changes import index_type, read_index_keys

__all__ = ["FirstContents"]

#: Maximum number of files that are read at once.
_THREADS: Final = 8
#: Number of footers that are in memory at once.
_FOOTERS: Final = 256
#: Bytes of a record of the record index by which Hudi counts file groups.
_HUDI_RECORD_BYTES: Final = 48
#: Bytes of a cell of the record index, without its key.
_RECORD_BYTES: Final = 120


class FirstContents:
    """The first records of each partition of the metadata table of one table.

    Call it while no write of the table is pending. Memory: an object for each file, and all record keys for the record
    index.

    Args:
        timeline: the table's active timeline.
        known: the form of the column statistics that the table has already; None if it has none.
    """

    def __init__(
        self,
        store: TimelineStore,
        config: TableConfig,
        timeline: Timeline,
        options: MetadataOptions,
        form: StatisticsForm | None,
    ) -> None:
        self._store, self._config, self._timeline, self._options = store, config, timeline, options
        self._storage, self._form = store.storage, form

    def of(self, partition: MetadataPartition) -> Iterable[pa.Table]:
        """Return the records of each file group of a partition.

        Raises:
            UnsupportedTableError: the partition cannot be made of these files.
        """
        options = self._options
        match partition:
            case MetadataPartition.FILES:
                return [rows_of_files(self._list_files())]
            case MetadataPartition.COLUMN_STATS:
                self._check_statistics()
                return split_rows(partition, stored_statistics(self._statistics), options.statistics_groups)
            case MetadataPartition.PARTITION_STATS:
                return split_rows(partition, self._read_partition_statistics(), options.partition_groups)
            case MetadataPartition.BLOOM_FILTERS:
                return split_rows(partition, self._read_filters(), options.filter_groups)
            case MetadataPartition.RECORD_INDEX:
                return self._read_places()
            case _:
                raise AssertionError(partition)

    def of_secondary(self, index: SecondaryIndex | None, table: MetadataTable) -> Iterable[pa.Table]:
        """Return the records of each file group of a secondary index. It has as many as the record index.

        Memory: the keys and values of all rows.

        Args:
            table: the metadata table, with a record index.

        Raises:
            UnsupportedTableError: the column cannot be indexed, or a key is in several file groups.
        """
        assert index is not None  # noqa: S101  The caller has one.
        location, snapshot = self._storage.location, self._snapshot
        if not self._config.traits.stores_bound_types or self._config.has_virtual_keys or snapshot.schemas:
            raise UnsupportedTableError(
                f"{location} cannot have a secondary index: it needs table version 9 with stored record keys, and "
                "columns without ids; upgrade() the table"
            )
        if index_type(snapshot.columns(location), index.column) is None:
            raise UnsupportedTableError(
                f"{location} cannot have a secondary index of {index.column!r}: its type must be text, an integer or a "
                "timestamp of microseconds in UTC"
            )
        read = partial(read_index_keys, self._storage, snapshot, [index])
        entries = list(run_all(read, list(snapshot.each_slice()), threads=_THREADS))
        keys = pa.chunked_array([pc.unique(entry.keys) for entry in entries], pa.string())
        if pc.count_distinct(keys).as_py() < len(keys):
            raise UnsupportedTableError(
                f"{location} cannot have a secondary index: a key has rows in several file groups, and queries by the "
                "index would miss some; remove them by dedupe()"
            )
        stored = pa.concat_arrays([pa.nulls(0, pa.string()), *(entry.of[index.partition] for entry in entries)])
        rows = pa.table({"key": pc.unique(stored)})
        rows = rows.append_column("is_deleted", pa.repeat(False, len(rows)))
        return split_rows(index.partition, rows, len(table.list_slices(MetadataPartition.RECORD_INDEX)))

    @cached_property
    def columns(self) -> IndexedColumns:
        """Return the columns that have statistics."""
        schema, form = self._snapshot.columns(self._storage.location), self._form
        if form is None:
            traits = self._config.traits
            names = choose_columns(schema, self._options.columns, self._options.most_columns, traits)
            form = StatisticsForm(names, traits.stores_bound_types)
        return IndexedColumns(form, with_meta_columns(stored_columns(schema, self._config)))

    @cached_property
    def _snapshot(self) -> Snapshot:
        return list_snapshot(self._store, self._config, self._timeline)

    @cached_property
    def _listing(self) -> Listing:
        """Return the files of completed commits, replaced ones included."""
        timeline, listing = self._timeline, list_files(self._storage)
        active = FileNames({commit.time: self._store.read_commit(commit) for commit in timeline.commits})

        def is_committed(file: BaseFile) -> bool:
            time = file.name.instant_time
            if not timeline.is_committed(time):
                return False
            return time not in timeline.commit_times or active(time).get(file.group) == str(file.name)

        logs = [[log for log in files if self._is_committed_log(log)] for files in (listing.logs, listing.change_data)]
        return Listing(tuple(filter(is_committed, listing.bases)), tuple(logs[0]), tuple(logs[1]))

    def _is_committed_log(self, log: LogFile) -> bool:
        """Tell whether a log file belongs to a completed instant. Readers look at each of its blocks besides."""
        return self._timeline.is_committed(log.name.instant_time)

    def _list_files(self) -> Iterator[tuple[str, str, int]]:
        listing = self._listing
        for files in (listing.bases, listing.logs, listing.change_data):
            for file in files:
                yield file.partition_path, file.path.rpartition("/")[2], file.size_bytes

    # --- statistics and bloom filters -----------------------------------------------------------------

    def _measure(self, files: Sequence[BaseFile | LogFile]) -> pa.Table:
        """Return the statistics of files. Files whose bounds are not all known have none."""
        tables = [no_rows(MetadataPartition.COLUMN_STATS)]
        for start in range(0, len(files), _FOOTERS):
            measured = measure_files(self._storage, files[start : start + _FOOTERS], self.columns)
            rows = self.columns.rows_of_files(measured)
            tables += [] if rows is None else [rows]
        return pa.concat_tables(tables, promote_options="default")

    @cached_property
    def _statistics(self) -> pa.Table:
        """Return the statistics of all files; of log files only if no reader joins fields of several versions."""
        listing = self._listing
        return self._measure([*listing.bases, *(() if combines_fields(self._config) else listing.logs)])

    def _check_statistics(self) -> None:
        """Refuse statistics if they lack a live file, and must not."""
        if not can_have_partition_stats(self._config):
            return
        live = [(file.partition_path, str(file.name)) for piece in self._snapshot.each_slice() for file in piece.files]
        if lacking := self.columns.find_unmeasured(live, self._statistics):
            raise UnsupportedTableError(
                f"column_stats of the metadata table of {self._storage.location} cannot be made: the bounds of "
                f"{'/'.join(lacking[0])} are not known, and Hudi would lose its rows; name columns without NaN by "
                "hoodie.metadata.index.column.stats.column.list"
            )

    def _read_partition_statistics(self) -> pa.Table:
        live = [file for piece in self._snapshot.each_slice() for file in piece.files]
        has_logs = any(isinstance(file, LogFile) for file in live)
        statistics = self._measure(live) if has_logs and combines_fields(self._config) else self._statistics
        names = [(file.partition_path, str(file.name)) for file in live]
        statistics = statistics.filter(pc.is_in(statistics["key"], value_set=self.columns.keys_of(names)))
        lacking = self.columns.find_unmeasured(names, statistics)
        config = self._config
        is_custom = has_logs and config.merge_settings.mode is RecordMergeMode.CUSTOM
        can_have = can_have_partition_stats(config) and order_of(self._store).is_alone
        if lacking or is_custom or not can_have:
            why = f"the bounds of {'/'.join(lacking[0])} are not known" if lacking else "its settings do not allow it"
            raise UnsupportedTableError(
                f"partition_stats of the metadata table of {self._storage.location} cannot be made: {why}; they need a "
                "partitioned table of version 8 or 9 on storage with locks, no custom merging, and bounds of all files"
            )
        partitions = sorted({path for path, _ in names})
        if not partitions:
            return no_rows(MetadataPartition.PARTITION_STATS)
        return self.columns.rows_of_partitions(partitions, statistics)

    def _read_filters(self) -> pa.Table:
        newest = self._timeline.newest_time or ""
        bases = self._listing.bases
        portions = (bases[start : start + _FOOTERS] for start in range(0, len(bases), _FOOTERS))
        read = partial(read_base, self._storage)
        filters = [filter_rows(list(run_all(read, portion, threads=_THREADS)), newest) for portion in portions]
        if any(rows is None for rows in filters):
            raise UnsupportedTableError(
                f"{self._storage.location} has base files without a bloom filter, so bloom_filters of the metadata "
                "table cannot be made; rewrite them by cluster()"
            )
        return pa.concat_tables([no_rows(MetadataPartition.BLOOM_FILTERS), *filters], promote_options="default")

    # --- the record index -----------------------------------------------------------------------------

    def _read_places(self) -> Iterator[pa.Table]:
        """Yield the keys of each file group of the record index with their places. If a key has several, one counts."""
        if self._config.has_virtual_keys:
            raise UnsupportedTableError(
                f"{self._storage.location} does not store record keys (hoodie.populate.meta.fields=false), so it "
                "cannot have a record index"
            )
        slices = list(self._snapshot.each_slice())
        keys = list(run_all(partial(read_live_keys, self._storage, self._snapshot), slices, threads=_THREADS))
        groups = self._count_groups(keys)
        sorted_keys = [_sort_by_group(keys_of_file, groups) for keys_of_file in keys]
        del keys
        for number in range(groups):
            parts = [(rows.slice(ends[number], ends[number + 1] - ends[number])) for rows, ends in sorted_keys]
            yield self._locate(slices, parts)

    def _count_groups(self, keys: Sequence[pa.ChunkedArray]) -> int:
        """Return the number of file groups: Hudi's, or more if the records would be larger than Hudi assumes."""
        options = self._options
        if options.least_key_groups == options.most_key_groups:
            return options.least_key_groups
        expected = ceil(sum(map(len, keys)) * options.growth)
        by_rows = expected // max(1, options.group_bytes // _HUDI_RECORD_BYTES)
        stored: int = sum(keys_of_file.nbytes + _RECORD_BYTES * len(keys_of_file) for keys_of_file in keys)
        by_bytes = ceil(stored * options.growth / options.group_bytes)
        return max(options.least_key_groups, min(max(by_rows, by_bytes), options.most_key_groups))

    def _locate(self, slices: Sequence[FileSlice], parts: Sequence[pa.Array]) -> pa.Table:
        """Return the records of the keys, which are given for each slice."""
        codes = np.repeat(np.arange(len(parts)), [len(part) for part in parts])
        keys = pa.concat_arrays([pa.nulls(0, pa.string()), *parts])
        rows = pa.table({"key": keys, "code": codes})
        if pc.count_distinct(keys).as_py() < len(keys):
            rows = rows.group_by("key").aggregate([("code", "max")]).rename_columns(["key", "code"])
        zone = self._config.zone
        places = pa.table(
            {
                "partition_path": pa.array([piece.group.partition_path for piece in slices], pa.string()),
                "file_id": pa.array([piece.group.file_id for piece in slices], pa.string()),
                "instant_ms": pa.array([parse_instant_time(piece.base_instant, zone) for piece in slices], pa.int64()),
            }
        )
        located = places.take(rows["code"])
        return pa.table({"key": rows["key"], **dict(zip(located.column_names, located.columns, strict=True))})


def _sort_by_group(keys: pa.ChunkedArray, groups: int) -> tuple[pa.Array, np.ndarray]:
    """Return keys in the order of their file groups, and where the keys of each begin; at last their number."""
    whole = keys.combine_chunks() if keys.num_chunks != 1 else keys.chunk(0)
    numbers = file_groups_of(MetadataPartition.RECORD_INDEX, whole, groups)
    order = np.argsort(numbers, kind="stable")
    return whole.take(pa.array(order)), np.searchsorted(numbers[order], np.arange(groups + 1))
