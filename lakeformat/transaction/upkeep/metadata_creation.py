"""Making and dropping of partitions of the metadata table of a table of ours.

A partition is made of the files that exist, while no write is pending and the lock is held. Its files are written
first, then its definition, and at last its name into the table's properties. So a maker that dies leaves nothing that a
reader or writer looks at. Every write that publishes later reads the properties under the lock, and keeps the
partition.

On storage without locks a write that began before may publish without keeping it. The metadata table then lacks its
commit. Readers see that and list folders, and the next write drops the metadata table.
"""

from __future__ import annotations

import logging
from collections.abc import Collection
from contextlib import ExitStack, suppress
from typing import Final

from lakeformat.config.lock_options import LockSettings
from lakeformat.config.metadata_options import MetadataOptions
from lakeformat.errors import CorruptTableError, LakeformatError, UnsupportedTableError, WriteConflictError
from lakeformat.file_system_view.schema_history import has_column_ids
from lakeformat.locks import excludes_writers, lock_table
from lakeformat.metadata_table.creation import begin_metadata_table, make_partition
from lakeformat.metadata_table.index_definitions import (
    INDEX_DEFINITIONS,
    SecondaryIndex,
    StatisticsForm,
    add_definitions,
    read_statistics_form,
)
from lakeformat.metadata_table.metadata_table import MetadataTable, open_metadata_table
from lakeformat.metadata_table.names import FOLDER, MetadataPartition, RecordKind, partition_of_name
from lakeformat.model.table_config import INDEX_DEFS, METADATA_PARTITIONS, PROPERTIES_PATH, TableConfig
from lakeformat.storage.port import Clock, Lease, Storage
from lakeformat.timeline.store import TimelineStore
from lakeformat.timeline.timeline import Timeline
from lakeformat.transaction.order.commit_order import order_of
from lakeformat.transaction.order.properties_file import write_properties
from lakeformat.transaction.order.settings import TransactionSettings
from lakeformat.transaction.upkeep.metadata_commits import drop_metadata_table, forget_partitions
from lakeformat.transaction.upkeep.metadata_contents import FirstContents
from lakeformat.transaction.upkeep.partition_statistics import can_have_partition_stats

__all__ = ["MADE_PARTITIONS", "drop_indexes", "drop_statistics", "make_missing_partitions", "make_partitions"]

_LOG: Final = logging.getLogger("lakeformat.write")
#: The partitions that can be made, in the order in which they are made.
MADE_PARTITIONS: Final = (
    MetadataPartition.FILES,
    MetadataPartition.COLUMN_STATS,
    MetadataPartition.PARTITION_STATS,
    MetadataPartition.BLOOM_FILTERS,
    MetadataPartition.RECORD_INDEX,
)
_STATISTICS: Final = frozenset({MetadataPartition.COLUMN_STATS.value, MetadataPartition.PARTITION_STATS.value})
#: Seconds for which the lease of the lock must still last before the properties are replaced.
_LEASE_SECONDS: Final = 30.0


def make_missing_partitions(
    store: TimelineStore, clock: Clock, settings: TransactionSettings, lease: Lease, timeline: Timeline
) -> None:
    """Make the partitions that the options ask for and the table lacks.

    Call it under the lock before a write begins. If another write is pending, the next write makes them. If they cannot
    be made, log a warning.

    Args:
        timeline: the newest timeline.
    """
    storage, lock = store.storage, settings.lock
    asked, config = frozenset(settings.metadata.names), store.known_config
    if not (can_have_partition_stats(config) and order_of(store).is_alone):
        asked -= {MetadataPartition.PARTITION_STATS.value}
    if asked <= frozenset(config.metadata_partitions):
        return
    if timeline.pending:
        _LOG.info(
            "the metadata table of %s is not made now, because %s is pending; the next write tries again",
            storage.location,
            timeline.pending[0].time,
        )
        return
    try:
        with ExitStack() as stack:
            if not excludes_writers(storage, lock):
                lease = stack.enter_context(lock_table(storage, lock, service=True, clock=clock))
            try:
                make_partitions(store, clock, settings.metadata, asked, lock, lease)
            except UnsupportedTableError as error:
                if asked.isdisjoint(_STATISTICS):
                    raise
                _LOG.warning("column_stats and partition_stats are left out: %s", error)
                make_partitions(store, clock, settings.metadata, asked - _STATISTICS, lock, lease)
    except LakeformatError as error:
        _LOG.warning("could not make the metadata table of %s: %s", storage.location, error)


def make_partitions(
    store: TimelineStore,
    clock: Clock,
    options: MetadataOptions,
    names: Collection[str],
    lock: LockSettings,
    lease: Lease,
    secondary: SecondaryIndex | None = None,
) -> tuple[str, ...]:
    """Make partitions of the metadata table that the table lacks, and ``files`` if it has none. Return their names.

    Call it under the lock. A metadata table that cannot be read, or lacks commits, is replaced.

    Args:
        names: names of `MADE_PARTITIONS`.
        lock: the settings of the lock that is held.
        secondary: a secondary index to make; None for none. It needs the record index.

    Raises:
        WriteConflictError: an instant is pending, or the properties have changed meanwhile.
        UnsupportedTableError: a partition cannot be made.
    """
    storage = store.storage
    version = order_of(store).version_of(PROPERTIES_PATH)
    config = store.config()
    timeline = store.load()
    _check(store, config, timeline, lock)
    table = _open(store, config, timeline)
    if table is None and config.has_metadata_table:
        drop_metadata_table(store, clock)
        version = order_of(store).version_of(PROPERTIES_PATH)
        config = store.config()
    present = () if table is None else table.names
    missing = [partition for partition in _with_needed(names, secondary) if partition.value not in present]
    if not missing:
        return ()
    form = _known_form(store, timeline, table, missing)
    contents = FirstContents(store, config, timeline, options, form)
    is_new = table is None
    table = begin_metadata_table(storage, config, timeline) if table is None else table
    made = tuple(partition.value for partition in missing)
    try:
        for partition in missing:
            is_fixed = secondary is None or partition != secondary.partition
            first = contents.of(partition) if is_fixed else contents.of_secondary(secondary, table)
            table = make_partition(table, partition, first, timeline, clock)
            lease.check(_LEASE_SECONDS)
    except LakeformatError:
        for folder in [FOLDER] if is_new else [partition.folder for partition in missing]:
            storage.delete_folder(folder)
        raise
    values = {**config.values, METADATA_PARTITIONS: ",".join(sorted({*present, *made}))}
    if config.traits.has_index_definitions:
        _define(storage, config, contents, made, secondary)
        values[INDEX_DEFS] = config.get(INDEX_DEFS) or INDEX_DEFINITIONS
    write_properties(store, values, clock, version)
    store.config()  # So that the next write of this process knows it.
    _LOG.info("made %s of the metadata table of %s", ", ".join(made), storage.location)
    return made


def _define(
    storage: Storage,
    config: TableConfig,
    contents: FirstContents,
    made: Collection[str],
    secondary: SecondaryIndex | None,
) -> None:
    """Store the definitions of the partitions that were made."""
    columns = contents.columns.form.columns if MetadataPartition.COLUMN_STATS.value in made else None
    has_record_index = MetadataPartition.RECORD_INDEX.value in made
    add_definitions(storage, config.traits, columns, has_record_index=has_record_index, secondary=secondary)


def _known_form(
    store: TimelineStore, timeline: Timeline, table: MetadataTable | None, missing: Collection[MetadataPartition]
) -> StatisticsForm | None:
    """Return the form of the column statistics that the table has; None if it has none. Refuse what cannot be made."""
    if not _STATISTICS.isdisjoint(partition.value for partition in missing):
        _check_names(store, timeline)
    has_statistics = table is not None and table.has(MetadataPartition.COLUMN_STATS)
    return read_statistics_form(table) if table is not None and has_statistics else None


def _with_needed(names: Collection[str], secondary: SecondaryIndex | None) -> list[MetadataPartition]:
    """Return the partitions of these names with those that they need, and the one of a secondary index, in order."""
    needs_statistics = MetadataPartition.PARTITION_STATS.value in names
    needed = [MetadataPartition.FILES, *([MetadataPartition.COLUMN_STATS] if needs_statistics else [])]
    needed += [] if secondary is None else [MetadataPartition.RECORD_INDEX]
    partitions = [partition for partition in MADE_PARTITIONS if partition.value in names or partition in needed]
    return partitions if secondary is None else [*partitions, secondary.partition]


def _check(store: TimelineStore, config: TableConfig, timeline: Timeline, lock: LockSettings) -> None:
    location = store.storage.location
    if timeline.pending:
        raise WriteConflictError(
            f"{store.path(timeline.pending[0])} is pending in {location}: its metadata table can be extended only if "
            "nothing is pending; wait for it, or run or cancel the plan"
        )
    if not config.traits.has_completion_times and not excludes_writers(store.storage, lock):
        raise UnsupportedTableError(
            f"{location} is of table version {config.version} on storage without locks: its metadata table cannot be "
            "made safely; upgrade the table, or name a lock provider (hoodie.write.lock.provider)"
        )


def _check_names(store: TimelineStore, timeline: Timeline) -> None:
    """Refuse column statistics if columns have ids: statistics go by the names of columns in their files."""
    if has_column_ids(store, timeline):
        raise UnsupportedTableError(
            f"{store.storage.location} has columns with ids (schema on read), and column statistics go by names; leave "
            "the statistics out"
        )


def _with_dependent(names: Collection[str], existing: Collection[str]) -> frozenset[str]:
    """Return the names with those of the known indexes that need them: secondary indexes need the record index."""
    needs_keys = MetadataPartition.RECORD_INDEX.value in names
    parsed = ((name, partition_of_name(name)) for name in existing if needs_keys)
    return frozenset(names) | {
        name for name, partition in parsed if partition and partition.kind is RecordKind.SECONDARY_INDEX
    }


def drop_statistics(store: TimelineStore, clock: Clock) -> None:
    """Drop the column statistics before columns get other names. Call it under the lock."""
    if dropped := drop_indexes(store, clock, _STATISTICS):
        _LOG.warning("dropped %s of %s, because columns get other names", ", ".join(dropped), store.storage.location)


def _open(store: TimelineStore, config: TableConfig, timeline: Timeline) -> MetadataTable | None:
    """Open the metadata table. Return None if there is none, or if it cannot be used."""
    with suppress(CorruptTableError, UnsupportedTableError):
        table = open_metadata_table(store.storage, config, timeline)
        if table is not None and table.instants.find_lacking(timeline) is None:
            table.check_file_groups()
            return table
    return None


def drop_indexes(store: TimelineStore, clock: Clock, names: Collection[str]) -> tuple[str, ...]:
    """Drop partitions of the metadata table; all of it with ``files``. Call it under the lock. Return their names."""
    config = store.config()
    existing = (*config.metadata_partitions, *config.pending_metadata_partitions)
    dropped = tuple(name for name in existing if name in _with_dependent(names, existing))
    if MetadataPartition.FILES.value in dropped:
        drop_metadata_table(store, clock)
        dropped = existing
    elif dropped:
        forget_partitions(store, clock, dropped)
        for name in dropped:
            store.storage.delete_folder(f"{FOLDER}/{name}")
    return dropped
