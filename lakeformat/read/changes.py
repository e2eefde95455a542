"""What commits of a range wrote, ready to be read: an incremental query in plain Python."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa

from lakeformat.config.resolve import Options
from lakeformat.predicate import Where
from lakeformat.read.everything import read_all
from lakeformat.read.query import question
from lakeformat.read.session import plan_read
from lakeformat.storage.port import Storage
from lakeformat.table_state.snapshot import ChangeRange, Snapshot

__all__ = ["Changes"]


@dataclass(frozen=True)
class Changes:
    """The rows that commits of a range wrote, each once, as it was at the range's end.

    Deleted rows are not among them. Nothing is read before it is asked for.

    Attributes:
        snapshot: the table at the range's end.
        range: the commits whose rows count.
    """

    storage: Storage
    snapshot: Snapshot
    options: Options
    range: ChangeRange

    @property
    def since(self) -> str:
        """Where the range begins, exclusive."""
        return self.range.since

    @property
    def until(self) -> str:
        """The last commit that it covers: what the next call's ``since`` should be. ``since`` of an empty range."""
        return self.range.until

    def __repr__(self) -> str:
        return f"Changes(since={self.since!r}, until={self.until!r})"

    def to_batches(
        self,
        columns: Sequence[str] | None = None,
        where: Where | None = None,
        *,
        meta_columns: bool | None = None,
    ) -> pa.RecordBatchReader:
        """The rows as a stream of Arrow batches; arguments and errors as of `lakeformat.Table.to_batches`."""
        options = self.options if meta_columns is None else self.options.with_values(meta_columns=meta_columns)
        query = question(self.snapshot, self.storage.location, options, columns=columns, where=where)
        plan = plan_read(self.storage, self.snapshot, query, split_bytes=options["lakeformat.read.split.bytes"])
        return pa.RecordBatchReader.from_batches(query.schema, read_all(self.storage, self.snapshot, query, plan))

    def to_arrow(
        self,
        columns: Sequence[str] | None = None,
        where: Where | None = None,
        *,
        meta_columns: bool | None = None,
    ) -> pa.Table:
        """The rows in memory."""
        return self.to_batches(columns, where, meta_columns=meta_columns).read_all()
