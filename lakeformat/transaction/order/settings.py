"""The settings that a transaction needs: operation, table config, batch id, retries, and file index settings."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import pyarrow as pa

from lakeformat.concurrency import Patience
from lakeformat.config.lock_options import LockSettings
from lakeformat.config.metadata_options import MetadataOptions
from lakeformat.config.resolve import Options
from lakeformat.config.retention_options import MIN_COMMITS
from lakeformat.config.write_options import INDEX_COLUMNS, INDEX_COLUMNS_LIMIT, INDEX_COMMITS, INDEX_SHARD_FILES
from lakeformat.files.column_stats import indexed_columns
from lakeformat.model.operation import Operation
from lakeformat.model.table_config import TableConfig
from lakeformat.predicate import column_path, path_parts
from lakeformat.transaction.order.batch_ids import BatchId, batch_of

__all__ = ["FileIndexSettings", "TransactionSettings", "make_transaction_settings"]


@dataclass(frozen=True, slots=True, kw_only=True)
class FileIndexSettings:
    """Settings of the file index.

    Attributes:
        columns: columns whose column statistics the index stores; None for the first ``columns_limit`` leaf columns.
        columns_limit: maximum number of leaf columns if ``columns`` is None.
        partition_fields: columns whose column statistics are always stored.
        commits: number of commits after which a new snapshot of the index is written.
        shard_files: maximum number of files in one shard of the index.
        dropped: columns that not all files hold, so that they have no statistics.
    """

    columns: tuple[str, ...] | None
    columns_limit: int
    partition_fields: tuple[str, ...]
    commits: int
    shard_files: int
    dropped: tuple[str, ...] = ()

    def list_indexed_columns(self, schema: pa.Schema) -> tuple[str, ...]:
        """Return the paths of the columns with column statistics in the file index, including the partition columns."""
        indexed = indexed_columns(schema, self.columns, self.columns_limit)
        paths = dict.fromkeys((*indexed, *self.partition_columns(schema)))
        return tuple(path for path in paths if path_parts(path)[0] not in self.dropped)

    def partition_columns(self, schema: pa.Schema) -> tuple[str, ...]:
        """Return the paths of the partition columns."""
        stored_names = set(schema.names).difference(self.dropped)
        return tuple(column_path([name]) for name in self.partition_fields if name in stored_names)


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionSettings:
    """The part of a write's settings that its transaction needs.

    Attributes:
        write_id: id of the write: the name of its stage folder, and its commit's token.
        batch: the batch id that the options set; None if they set none.
        lock: settings of the table's lock.
        patience: how long the write is repeated after conflicts.
        heartbeat_seconds: time between two heartbeats.
        dead_after_ms: age of the last heartbeat, in milliseconds, at which other writers may undo the write.
        keeps_index: whether the commit is added to the file index; never for a merge-on-read table, whose log files the
            file index does not list.
        metadata: options of the metadata table, with the partitions that the write makes if they are missing.
        first_buckets: number of buckets of a new partition, if the write has a bucket index with consistent hashing;
            else None.
        lacking: properties to add to the table's, if it lacks them.
        overwritten: partition paths that an insert_overwrite replaces; empty for those of its rows.
    """

    operation: Operation
    config: TableConfig
    write_id: str
    batch: BatchId | None
    lock: LockSettings
    patience: Patience
    heartbeat_seconds: float
    dead_after_ms: int
    keeps_index: bool
    index: FileIndexSettings
    metadata: MetadataOptions
    first_buckets: int | None = None
    lacking: Mapping[str, str] = field(default_factory=dict)
    overwritten: frozenset[str] = frozenset()


def make_transaction_settings(
    operation: Operation, config: TableConfig, options: Options, write_id: str
) -> TransactionSettings:
    """Return the settings of a transaction from its operation and the options.

    Raises:
        InvalidOptionError: only one of app and id of the batch is given.
    """
    index_columns, write_options = options[INDEX_COLUMNS], options.write
    return TransactionSettings(
        operation=operation,
        config=config,
        write_id=write_id,
        batch=batch_of(options),
        lock=options.lock,
        patience=options.patience,
        heartbeat_seconds=options.heartbeat_ms / 3000,
        dead_after_ms=options.heartbeat_ms * options.heartbeat_misses,
        keeps_index=options.write.file_index and not config.takes_logs,
        index=FileIndexSettings(
            columns=None if index_columns is None else tuple(index_columns),
            columns_limit=options[INDEX_COLUMNS_LIMIT],
            partition_fields=config.partition_fields,
            commits=min(options[INDEX_COMMITS], options[MIN_COMMITS]),
            shard_files=options[INDEX_SHARD_FILES],
            dropped=config.folder_columns,
        ),
        metadata=options.metadata,
        first_buckets=write_options.buckets if write_options.is_consistent else None,
        overwritten=frozenset(write_options.overwritten),
    )
