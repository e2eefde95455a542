"""Who must be told of a commit: the metadata table, the file index, callbacks.

A follower is called before the commit is visible, after it, and once the lock is let go. What is raised before stops
the commit; afterwards nothing may, for whoever took that for the write's failure would write its rows twice.
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
        instant: completed.
        schema: the table's columns after it.
        base: the table before, as the write saw it.
        hidden: file groups that it replaces.
    """

    commit: OpenCommit
    instant: Instant
    schema: pa.Schema
    written: Sequence[Written]
    base: Snapshot
    hidden: frozenset[FileGroupId]
    message: CommitMessage


class Follower:
    """One who is told. Each call does nothing by default."""

    def before_publish(self, commit: OpenCommit) -> None:
        """Under the lock, when nothing but the completed file is missing. What it raises stops the commit."""

    def after_publish(self, published: Published) -> None:
        """Under the lock, with the commit visible. Raises nothing."""

    def after_release(self, published: Published) -> None:
        """With the lock let go: the place for what may take long. Raises nothing."""


@dataclass(frozen=True)
class MetadataTableDropper(Follower):
    """Takes a metadata table away that would not know the commit."""

    engine: Engine

    def before_publish(self, commit: OpenCommit) -> None:
        """See `drop_metadata_table`."""
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
    """Keeps the file index."""

    engine: Engine
    upkeep: IndexUpkeep

    def after_publish(self, published: Published) -> None:
        """Write what the commit changed; an index that fails is caught up by the next write."""
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
        except Exception as error:  # Whoever took one for the write's failure would write its rows twice.
            _INDEX_LOG.warning(
                "the file index of %s does not know commit %s yet, the next write adds it: %s",
                self.engine.storage.location,
                commit.time,
                error,
            )


@dataclass(frozen=True)
class Callbacks(Follower):
    """Calls what the user asked to be called."""

    callbacks: Sequence[Callback]

    def after_release(self, published: Published) -> None:
        """See `notify`."""
        notify(self.callbacks, published.message)
