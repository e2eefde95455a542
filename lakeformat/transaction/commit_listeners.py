"""Listeners of a commit: removal of the metadata table, update of the file index, and callbacks.

A listener is called three times: before the commit is visible, when it is visible, and after the lock is released. An
error in the first call stops the commit. In the later calls a listener must raise no error: the caller would assume
that the write failed, repeat the write, and so store its rows twice.

lakeformat does not maintain Hudi's metadata table, so it removes that table before a commit becomes visible. Hudi's
writers list files through the metadata table. If the metadata table lacks a commit, they do not see the commit's files
and lose its rows (table-version-6, section 7).
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import Final

import pyarrow as pa

from lakeformat.codec import properties
from lakeformat.errors import WriteConflictError
from lakeformat.file_system_view.context import TableContext
from lakeformat.file_system_view.file_index.update import IndexWriter
from lakeformat.file_system_view.snapshot import Snapshot
from lakeformat.model.files import FileGroupId
from lakeformat.model.instant import Instant
from lakeformat.model.table_config import METADATA_INFLIGHT, METADATA_PARTITIONS, PROPERTIES_PATH
from lakeformat.storage.port import HOODIE, Clock, Version, VersionChangedError
from lakeformat.timeline.store import TimelineStore
from lakeformat.transaction.commit import OpenCommit
from lakeformat.transaction.hooks import Callback, CommitMessage, notify
from lakeformat.transaction.settings import FileIndexSettings
from lakeformat.transaction.written_file import WrittenFile

__all__ = [
    "Callbacks",
    "CommitListener",
    "FileIndexUpdater",
    "MetadataTableDropper",
    "PublishedCommit",
    "drop_metadata_table",
    "write_properties",
]

_FOLDER: Final = f"{HOODIE}/metadata"


def write_properties(
    store: TimelineStore, values: Mapping[str, str], clock: Clock, version: Version | None = None
) -> None:
    """Replace ``hoodie.properties``. Keep a backup copy meanwhile. Call it under the table's lock.

    Args:
        version: the version of the file that is to be replaced, on storage without locks; None for any version.

    Raises:
        WriteConflictError: the file has another version.
    """
    storage = store.storage
    updated = datetime.fromtimestamp(clock.now_ms() / 1000, timezone.utc).isoformat().replace("+00:00", "Z")
    data = properties.encode(dict(values), comments=[f"Updated at {updated}"])
    backup = f"{PROPERTIES_PATH}.backup"
    storage.replace(backup, storage.read(PROPERTIES_PATH))
    try:
        if version is None:
            storage.replace(PROPERTIES_PATH, data)
        else:
            storage.replace_if(PROPERTIES_PATH, data, version)
    except VersionChangedError:
        storage.delete(backup)
        raise WriteConflictError(
            f"another process has changed {storage.location}/{PROPERTIES_PATH} meanwhile; run this again"
        ) from None
    storage.delete(backup)


def drop_metadata_table(store: TimelineStore, clock: Clock) -> bool:
    """Remove the metadata table from the properties, then delete its folder. Return whether there was one."""
    storage = store.storage
    config = store.config() if storage.has_lock else store.known_config
    if not storage.has_lock and not config.has_metadata_table:
        return False  # A folder without the property is one that readers ignore; repair() removes it.
    if config.has_metadata_table:
        version = None if storage.has_lock else storage.read_versioned(PROPERTIES_PATH)[1]
        config = store.config()
        kept = {k: v for k, v in config.values.items() if k not in {METADATA_PARTITIONS, METADATA_INFLIGHT}}
        write_properties(store, kept, clock, version)
    if storage.info(_FOLDER) is not None:
        storage.delete_folder(_FOLDER)
        return True
    return config.has_metadata_table


_LOG: Final = logging.getLogger("lakeformat.write")
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

    def before_publish(self, commit: OpenCommit) -> None:
        """Run under the lock, directly before the completed file is created. An error stops the commit."""

    def after_publish(self, published: PublishedCommit) -> None:
        """Run under the lock, when the commit is visible. Raise nothing."""

    def after_release(self, published: PublishedCommit) -> None:
        """Run after the lock is released; slow work belongs here. Raise nothing."""


@dataclass(frozen=True)
class MetadataTableDropper(CommitListener):
    """A listener that removes Hudi's metadata table before the commit, because that table would lack the commit."""

    context: TableContext

    def before_publish(self, commit: OpenCommit) -> None:
        """Remove the metadata table with `drop_metadata_table`. Log a warning if there was one."""
        if drop_metadata_table(self.context.store, self.context.clock):
            _LOG.warning(
                "dropped the metadata table of %s, which would lack commit %s: Hudi now lists folders, and reads "
                "without statistics and indexes, until a Hudi writer with hoodie.metadata.enable=true builds that "
                "table again from all files; if Hudi also writes to this table, set hoodie.metadata.enable=false there",
                self.context.storage.location,
                commit.time,
            )


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
