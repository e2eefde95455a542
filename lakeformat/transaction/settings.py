"""The purpose of a write: operation, table config, batch and index settings that its transaction needs.

Batches that may be sent twice: a write whose (app, id) is in the table already is skipped.

The extra metadata of each commit holds the last id of every app. Each commit copies all of them from the earlier ones,
so that none is lost when commits are archived. The order of instant times is not the order of publishing, so all active
commits are read.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

import pyarrow as pa

from lakeformat.config.file_index_options import (
    INDEX_COLUMNS,
    INDEX_COLUMNS_LIMIT,
    INDEX_COMMITS,
    INDEX_SHARD_FILES,
)
from lakeformat.config.resolve import Options
from lakeformat.config.retention_options import MIN_COMMITS
from lakeformat.config.stream_options import BATCH_APP, BATCH_ID
from lakeformat.errors import InvalidOptionError
from lakeformat.files.column_stats import indexed_columns
from lakeformat.model.commit import CommitMetadata
from lakeformat.model.operation import Operation
from lakeformat.model.table_config import TableConfig
from lakeformat.predicate import column_path
from lakeformat.timeline.store import TimelineStore
from lakeformat.timeline.timeline import Timeline

__all__ = ["BATCHES_KEY", "BatchId", "IndexUpkeep", "Purpose", "batch_of", "last_batches", "purpose_of", "with_batch"]

#: Key of ``extraMetadata``: a JSON object, app -> last id.
BATCHES_KEY: Final = "lakeformat.batches"
#: Archived commits that are read together.
_AT_ONCE: Final = 100


@dataclass(frozen=True, slots=True)
class BatchId:
    """One batch of one application: a streaming query, a nightly job. Ids of an app only grow."""

    app: str
    id: int


def batch_of(options: Options) -> BatchId | None:
    """Return the batch that the options name, None if they name none.

    Raises:
        InvalidOptionError: only one of app and id is given.
    """
    app, number = options[BATCH_APP], options[BATCH_ID]
    if (not app) != (number is None):
        raise InvalidOptionError(f"{BATCH_APP} and {BATCH_ID} need each other; give both or none")
    return BatchId(app, number) if app else None


def last_batches(store: TimelineStore, timeline: Timeline, app: str | None = None) -> Mapping[str, int]:
    """Return the greatest id of each app that any active commit holds.

    Args:
        app: an app that must be in the result if it ever wrote. If no active commit holds it, the archive is searched,
            because commits of other programs do not copy the ids.
    """
    last = _greatest_ids(store.commit(instant) for instant in timeline.commits)
    if app is None or app in last:
        return last
    archive = store.archived()
    older = sorted(archive.completed_in(""), reverse=True)
    for start in range(0, len(older), _AT_ONCE):
        found = _greatest_ids(metadata for _, metadata in archive.commits(older[start : start + _AT_ONCE]))
        if found:  # These commits hold the ids of all earlier ones.
            return {**found, **last}
    return last


def _greatest_ids(commits: Iterable[CommitMetadata]) -> dict[str, int]:
    last: dict[str, int] = {}
    for metadata in commits:
        for app, number in _read_ids(metadata.extra):
            last[app] = max(number, last.get(app, number))
    return last


def _read_ids(extra: Mapping[str, str]) -> Iterable[tuple[str, int]]:
    try:
        found = json.loads(extra.get(BATCHES_KEY, "{}"))
    except (ValueError, RecursionError):
        return ()
    entries = found.items() if isinstance(found, dict) else ()
    return [(app, number) for app, number in entries if type(number) is int]


def with_batch(last: Mapping[str, int], batch: BatchId | None) -> Mapping[str, str]:
    """Return the extra metadata entry with the last ids, including this batch; empty if no app ever named a batch."""
    known = {**last, batch.app: batch.id} if batch else dict(last)
    return {BATCHES_KEY: json.dumps(known, separators=(",", ":"), sort_keys=True)} if known else {}


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexUpkeep:
    """Settings of the file index.

    Attributes:
        columns: columns whose statistics are kept; None for all up to ``columns_limit``.
        columns_limit: number of leaf columns of the table.
        partition_fields: columns whose statistics are kept in any case.
        commits, shard_files: see `IndexWriter`.
    """

    columns: tuple[str, ...] | None
    columns_limit: int
    partition_fields: tuple[str, ...]
    commits: int
    shard_files: int

    def indexed(self, schema: pa.Schema) -> tuple[str, ...]:
        """Return the paths of the columns whose statistics the file index keeps, including the partition columns."""
        wanted = indexed_columns(schema, self.columns, self.columns_limit)
        return tuple(dict.fromkeys((*wanted, *self.partition_columns(schema))))

    def partition_columns(self, schema: pa.Schema) -> tuple[str, ...]:
        """Return the paths of the partition columns."""
        known = set(schema.names)
        return tuple(column_path([name]) for name in self.partition_fields if name in known)


@dataclass(frozen=True, slots=True, kw_only=True)
class Purpose:
    """The part of a write's settings that its transaction needs.

    Attributes:
        write_id: name of the stage folder, and the commit's token.
        batch: the batch that the write brings, if it names one.
        wait_seconds: longest wait for the table's lock.
        retries: number of further attempts after a conflict.
        keeps_index: whether the commit is added to the file index, which does not know log files.
    """

    operation: Operation
    config: TableConfig
    write_id: str
    batch: BatchId | None
    wait_seconds: float
    retries: int
    keeps_index: bool
    index: IndexUpkeep


def purpose_of(operation: Operation, config: TableConfig, options: Options, write_id: str) -> Purpose:
    """Return the purpose of a write from its operation and the options.

    Raises:
        InvalidOptionError: only one of app and id of the batch is given.
    """
    wanted = options[INDEX_COLUMNS]
    return Purpose(
        operation=operation,
        config=config,
        write_id=write_id,
        batch=batch_of(options),
        wait_seconds=options.lock_seconds,
        retries=options["hoodie.write.num.retries.on.conflict.failures"],
        keeps_index=options.write.file_index and not config.takes_logs,
        index=IndexUpkeep(
            columns=None if wanted is None else tuple(wanted),
            columns_limit=options[INDEX_COLUMNS_LIMIT],
            partition_fields=config.partition_fields,
            commits=min(options[INDEX_COMMITS], options[MIN_COMMITS]),
            shard_files=options[INDEX_SHARD_FILES],
        ),
    )
