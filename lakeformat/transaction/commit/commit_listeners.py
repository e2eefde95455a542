"""Listeners of a commit: deltacommits of the metadata table, update of the file index, and callbacks.

A listener is called four times: for its counts, before the commit is visible, when it is visible, and after the lock is
released. An error in the first two calls stops the commit. In the later calls a listener must raise no error: the
caller would assume that the write failed, repeat the write, and so store its rows twice.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Final

import pyarrow as pa

from lakeformat.errors import LakeformatError
from lakeformat.file_system_view.context import TableContext
from lakeformat.file_system_view.file_index.update import IndexWriter
from lakeformat.file_system_view.schema_history import delete_old_schemas, write_schemas
from lakeformat.file_system_view.snapshot import Snapshot
from lakeformat.model.commit import CommitMetadata
from lakeformat.model.files import FileGroupId
from lakeformat.model.hashing_metadata import HashRing
from lakeformat.model.instant import Instant
from lakeformat.timeline.write_report import Report
from lakeformat.transaction.commit.completed_file import OpenCommit
from lakeformat.transaction.commit.hashing_commits import mark_rings, put_rings
from lakeformat.transaction.commit.hooks import Callback, CommitMessage, notify
from lakeformat.transaction.commit.pending_plans import check_no_plans
from lakeformat.transaction.order.outcome import Outcome
from lakeformat.transaction.order.settings import FileIndexSettings
from lakeformat.transaction.order.written_file import WrittenFile
from lakeformat.transaction.upkeep.metadata_changes import changes_of_commit
from lakeformat.transaction.upkeep.metadata_commits import add_changes
from lakeformat.transaction.upkeep.pending_commit import PendingCommit

__all__ = [
    "Callbacks",
    "CommitListener",
    "FileIndexUpdater",
    "HashingMetadataWriter",
    "MetadataTableWriter",
    "PublishedCommit",
    "SchemaHistoryWriter",
]

_INDEX_LOG: Final = logging.getLogger("lakeformat.file_index")


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishedCommit:
    """A commit that is visible.

    Attributes:
        instant: the completed instant.
        schema: the table's columns after the commit.
        written: the files that the commit wrote.
        base: snapshot of the table before the commit, as the write read it.
        hidden: file groups that the commit replaces.
        message: the argument with which the user's callbacks are called.
    """

    commit: OpenCommit
    instant: Instant
    schema: pa.Schema
    written: Sequence[WrittenFile]
    base: Snapshot
    hidden: frozenset[FileGroupId]
    message: CommitMessage


class CommitListener:
    """Base class of commit listeners. By default each method does nothing."""

    def add_counts(self, report: Report) -> None:
        """Add counts to the report of the write, before validators look at it. An error stops the commit."""

    def before_publish(self, commit: OpenCommit, metadata: CommitMetadata, outcome: Outcome) -> None:
        """Run under the lock, directly before the completed file is created. An error stops the commit."""

    def after_publish(self, published: PublishedCommit) -> None:
        """Run under the lock, when the commit is visible. Raise nothing."""

    def after_release(self, published: PublishedCommit) -> None:
        """Run after the lock is released; slow work belongs here. Raise nothing."""


@dataclass(frozen=True)
class MetadataTableWriter(CommitListener):
    """A listener that adds the commit to Hudi's metadata table, if the table has one.

    Attributes:
        compact_commits: number of log files of a file group that are not compacted; see `add_changes`.
    """

    context: TableContext
    compact_commits: int

    def before_publish(self, commit: OpenCommit, metadata: CommitMetadata, outcome: Outcome) -> None:
        """Write the deltacommit of the commit."""
        store = self.context.store
        pending = PendingCommit(
            store=store, config=store.known_config, time=commit.time, metadata=metadata, outcome=outcome
        )
        make_changes = partial(changes_of_commit, commit=pending)
        clock, most = self.context.clock, self.compact_commits
        add_changes(store, clock, commit.time, make_changes, compact_commits=most)


class HashingMetadataWriter(CommitListener):
    """A listener that writes the hashing metadata of a table with consistent hashing.

    Args:
        first_buckets: number of buckets of a new partition, if the write has a bucket index with consistent hashing;
            else None.
    """

    def __init__(self, context: TableContext, first_buckets: int | None) -> None:
        self._context, self._first_buckets = context, first_buckets
        self._rings: tuple[HashRing, ...] = ()

    def before_publish(self, commit: OpenCommit, metadata: CommitMetadata, outcome: Outcome) -> None:
        """Write the rings that the commit changes. Without the commit, readers pass over them."""
        self._rings = put_rings(self._context, commit, metadata, outcome, self._first_buckets)

    def after_publish(self, published: PublishedCommit) -> None:
        """Write the markers of the rings."""
        mark_rings(self._context.storage, self._rings)


@dataclass(frozen=True)
class SchemaHistoryWriter(CommitListener):
    """A listener that stores the history of a table's columns, if they have ids (schema on read).

    Each commit repeats the whole history, because Hudi looks only at the files of commits that are not archived
    (``FileBasedInternalSchemaStorageManager``).
    """

    context: TableContext

    def before_publish(self, commit: OpenCommit, metadata: CommitMetadata, outcome: Outcome) -> None:
        """Write the ``.schemacommit`` file of the commit. Without the commit, readers pass over it."""
        if outcome.altered is not None:
            check_no_plans(self.context.store, self.context.store.load())
        if schemas := outcome.schemas_after(commit.time):
            write_schemas(self.context.store, self.context.clock, commit.time, schemas)

    def after_release(self, published: PublishedCommit) -> None:
        """Delete the files of archived commits."""
        if published.base.schemas:
            with suppress(LakeformatError, OSError):
                delete_old_schemas(self.context.storage, published.base.timeline)


@dataclass(frozen=True)
class FileIndexUpdater(CommitListener):
    """A listener that adds the commit to the file index."""

    context: TableContext
    settings: FileIndexSettings

    def after_publish(self, published: PublishedCommit) -> None:
        """Write the commit's changes to the file index. If that fails, log it; the next write adds the changes."""
        commit, schema, settings = published.commit, published.schema, self.settings
        try:
            files = [(file.stat.base_file, file.facts) for file in published.written]
            index = IndexWriter(
                self.context.store,
                self.context.clock,
                settings.list_indexed_columns(schema),
                schema,
                settings.commits,
                settings.shard_files,
            )
            index.add_commit(published.base, published.instant, files, published.hidden)
        except Exception as error:  # If the write seemed to fail, the caller would repeat it.
            _INDEX_LOG.warning(
                "the file index of %s lacks commit %s until the next write adds it: %s",
                self.context.storage.location,
                commit.time,
                error,
            )


@dataclass(frozen=True)
class Callbacks(CommitListener):
    """A listener that calls the user's callbacks."""

    callbacks: Sequence[Callback]

    def after_release(self, published: PublishedCommit) -> None:
        """Call each callback. Log the errors that callbacks raise."""
        notify(self.callbacks, published.message)
