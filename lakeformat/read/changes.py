"""What commits of a range wrote, ready to be read: an incremental query in plain Python."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypedDict

import pyarrow as pa

from lakeformat.config.other_arguments import check_arguments
from lakeformat.config.resolve import Options
from lakeformat.predicate import Where
from lakeformat.read.scan import Scan, scan_of
from lakeformat.storage.port import Storage
from lakeformat.table_state.snapshot import ChangeRange, Snapshot

if TYPE_CHECKING:
    import pandas as pd
    import polars as pl
    from typing_extensions import Unpack

__all__ = ["ChangeArguments", "Changes"]


class ChangeArguments(TypedDict, total=False):
    """Arguments that every way of reading changes takes; see `lakeformat.Table.scan`."""

    limit: int | None
    meta_columns: bool | None
    time_zone: str | None


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

    def scan(
        self,
        columns: Sequence[str] | str | None = None,
        where: Where | None = None,
        **how: Unpack[ChangeArguments],
    ) -> Scan:
        """What is wanted of these rows, not read yet; arguments and errors as of `lakeformat.Table.scan`."""
        check_arguments(how, ("columns", "where", *ChangeArguments.__annotations__))
        return scan_of(self.storage, self.snapshot, self.options, columns, where, **how)

    def to_batches(
        self, columns: Sequence[str] | str | None = None, where: Where | None = None, **how: Unpack[ChangeArguments]
    ) -> pa.RecordBatchReader:
        """The rows as a stream of Arrow batches; arguments as of `scan`."""
        return self.scan(columns, where, **how).to_batches()

    def to_arrow(
        self, columns: Sequence[str] | str | None = None, where: Where | None = None, **how: Unpack[ChangeArguments]
    ) -> pa.Table:
        """The rows in memory."""
        return self.scan(columns, where, **how).to_arrow()

    def to_pandas(
        self, columns: Sequence[str] | str | None = None, where: Where | None = None, **how: Unpack[ChangeArguments]
    ) -> pd.DataFrame:
        """The rows as a pandas frame."""
        return self.scan(columns, where, **how).to_pandas()

    def to_polars(
        self, columns: Sequence[str] | str | None = None, where: Where | None = None, **how: Unpack[ChangeArguments]
    ) -> pl.DataFrame:
        """The rows as a polars frame."""
        return self.scan(columns, where, **how).to_polars()

    def count(self, where: Where | None = None, *, time_zone: str | None = None) -> int:
        """Count the rows that have changed."""
        return self.scan(where=where, time_zone=time_zone).count()

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        """The Arrow PyCapsule protocol: anything that takes Arrow streams takes the changes."""
        return self.scan().__arrow_c_stream__(requested_schema)
