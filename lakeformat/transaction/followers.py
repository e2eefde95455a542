"""Followers of a commit: the metadata table, the file index, and callbacks.

A follower is called before the commit is visible, after that, and once the lock is released. An error raised before
stops the commit. An error raised afterwards would look like a failed write, and a caller who repeats the write would
write its rows twice; so followers raise nothing then.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import pyarrow as pa

from lakeformat.model.files import FileGroupId
from lakeformat.model.instant import Instant
from lakeformat.table_state.engine import Engine
from lakeformat.table_state.file_index.keep import IndexWriter
from lakeformat.table_state.snapshot import Snapshot
from lakeformat.transaction.callbacks import Callback, CommitMessage, notify
from lakeformat.transaction.commit import OpenCommit
from lakeformat.transaction.metadata_table import drop_metadata_table
from lakeformat.transaction.purpose import IndexUpkeep
from lakeformat.transaction.written import Written

__all__ = ["Callbacks", "FileIndexFollower", "Follower", "MetadataTableDropper", "Published"]

_LOG: Final = logging.getLogger("lakeformat.write")
_INDEX_LOG: Final = logging.getLogger("lakeformat.file_index")


@dataclass(frozen=True, slots=True, kw_only=True)
class Published:
    """A commit that is visible.

    Attributes:
        instant: the completed instant.
        schema: the table's columns after the commit.
        base: the table before the commit, as the write read it.
        hidden: file groups that the commit replaces.
    """

    commit: OpenCommit
    instant: Instant
    schema: pa.Schema
    written: Sequence[Written]
    base: Snapshot
    hidden: frozenset[FileGroupId]
    message: CommitMessage


class Follower:
    """Base class of followers. By default each method does nothing."""

    def before_publish(self, commit: OpenCommit) -> None:
        """Run under the lock, when only the completed file is missing. An error stops the commit."""

    def after_publish(self, published: Published) -> None:
        """Run under the lock, when the commit is visible. Raise nothing."""

    def after_release(self, published: Published) -> None:
        """Run after the lock is released; slow work belongs here. Raise nothing."""


@dataclass(frozen=True)
class MetadataTableDropper(Follower):
    """Drops the metadata table, which would lack the commit."""

    engine: Engine

    def before_publish(self, commit: OpenCommit) -> None:
        """Drop the metadata table, and log it; see `drop_metadata_table`."""
        if drop_metadata_table(self.engine.store, self.engine.clock):
            _LOG.warning(
                "dropped the metadata table of %s, which would not know commit %s: Hudi lists folders, and reads "
                "without its statistics and indexes, until a writer with hoodie.metadata.enable=true builds them anew "
                "from all files; set that to false where both write",
                self.engine.storage.location,
                commit.time,
            )


@dataclass(frozen=True)
class FileIndexFollower(Follower):
    """Adds the commit to the file index."""

    engine: Engine
    upkeep: IndexUpkeep

    def after_publish(self, published: Published) -> None:
        """Write the commit's changes to the index. If that fails, log it; the next write adds them."""
        commit, schema, upkeep = published.commit, published.schema, self.upkeep
        try:
            files = [(file.stat.base_file, file.facts) for file in published.written]
            index = IndexWriter(
                self.engine.store,
                self.engine.clock,
                upkeep.indexed(schema),
                schema,
                upkeep.commits,
                upkeep.shard_files,
            )
            index.committed(published.base, published.instant, files, published.hidden)
        except Exception as error:  # If it looked like a failed write, the caller would write its rows twice.
            _INDEX_LOG.warning(
                "the file index of %s does not know commit %s yet, the next write adds it: %s",
                self.engine.storage.location,
                commit.time,
                error,
            )


@dataclass(frozen=True)
class Callbacks(Follower):
    """Calls the user's callbacks."""

    callbacks: Sequence[Callback]

    def after_release(self, published: Published) -> None:
        """Call each callback; see `notify`."""
        notify(self.callbacks, published.message)
