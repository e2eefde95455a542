"""The rows that the commits of a range wrote: an incremental query in plain Python."""

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
    """Keyword arguments of every method that reads changes; see `lakeformat.Table.read`."""

    where: Where | None
    limit: int | None
    meta_columns: bool | None
    time_zone: str | None


@dataclass(frozen=True)
class Changes:
    """The rows that the commits of a range wrote, each once, as it was at the range's end.

    Deleted rows are not among them. Nothing is read before a method that returns rows is called.

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
        """Return the exclusive begin of the range."""
        return self.range.since

    @property
    def until(self) -> str:
        """Return the last commit of the range, which is the next call's ``since``. If the range is empty, return ``since``."""
        return self.range.until

    def __repr__(self) -> str:
        return f"Changes(since={self.since!r}, until={self.until!r})"

    def read(self, columns: Sequence[str] | str | None = None, **how: Unpack[ChangeArguments]) -> Scan:
        """Return a read of these rows that has not started.

        Args:
            columns: wanted columns, in order; all by default.
            how: ``where``, ``limit``, ``meta_columns`` and ``time_zone``, as in `lakeformat.Table.read`.

        Raises:
            InvalidInputError: an unknown column, or a condition that cannot be answered exactly.
            InvalidOptionError: an unknown argument.
        """
        check_arguments(how, ("columns", *ChangeArguments.__annotations__))
        return scan_of(self.storage, self.snapshot, self.options, columns, **how)

    def to_batches(
        self, columns: Sequence[str] | str | None = None, **how: Unpack[ChangeArguments]
    ) -> pa.RecordBatchReader:
        """Return the rows as a stream of Arrow batches. Arguments and errors as in `read`."""
        return self.read(columns, **how).to_batches()

    def to_arrow(self, columns: Sequence[str] | str | None = None, **how: Unpack[ChangeArguments]) -> pa.Table:
        """Return the rows as an Arrow table, in memory. Arguments and errors as in `read`."""
        return self.read(columns, **how).to_arrow()

    def to_pandas(self, columns: Sequence[str] | str | None = None, **how: Unpack[ChangeArguments]) -> pd.DataFrame:
        """Return the rows as a pandas frame. Arguments and errors as in `read`."""
        return self.read(columns, **how).to_pandas()

    def to_polars(self, columns: Sequence[str] | str | None = None, **how: Unpack[ChangeArguments]) -> pl.DataFrame:
        """Return the rows as a polars frame. Arguments and errors as in `read`."""
        return self.read(columns, **how).to_polars()

    def count(self, where: Where | None = None, *, time_zone: str | None = None) -> int:
        """Count the rows that have changed. Arguments and errors as in `read`."""
        return self.read(where=where, time_zone=time_zone).count()

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        """Return the rows as a capsule of the Arrow PyCapsule protocol."""
        return self.read().__arrow_c_stream__(requested_schema)
