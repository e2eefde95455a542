"""A commit directly before it becomes visible: what its part of the metadata table is made of."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

from lakeformat.model.commit import CommitMetadata
from lakeformat.model.table_config import TableConfig
from lakeformat.storage.port import Storage
from lakeformat.timeline.store import TimelineStore
from lakeformat.transaction.order.outcome import Outcome

__all__ = ["PendingCommit"]


@dataclass(frozen=True, slots=True, kw_only=True)
class PendingCommit:
    """A commit directly before it becomes visible.

    Attributes:
        store: the timeline of the table.
        config: the table's properties.
        time: the instant time of the commit.
        metadata: its metadata, with the write stats.
        outcome: the result of the write.
    """

    store: TimelineStore
    config: TableConfig
    time: str
    metadata: CommitMetadata
    outcome: Outcome

    @property
    def storage(self) -> Storage:
        """Return the table's storage."""
        return self.store.storage

    @property
    def schema(self) -> pa.Schema:
        """Return the columns of the files of the commit."""
        return self.outcome.files_schema or self.outcome.schema
