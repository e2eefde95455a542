"""A read as a value: what is asked of one snapshot, handed out as batches, Arrow, pandas, polars or duckdb."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, TypedDict

import pyarrow as pa

from lakeformat.config.resolve import Options
from lakeformat.errors import InvalidInputError
from lakeformat.model.instant import AsOf
from lakeformat.model.record import RECORD_KEY
from lakeformat.predicate import Always, Where, columns_of
from lakeformat.read.everything import read_all
from lakeformat.read.known_files import known_rows
from lakeformat.read.query import ReadQuery, in_zone, question, readable_schema
from lakeformat.read.session import ReadPlan, plan_read
from lakeformat.read.verify import read_verified
from lakeformat.storage.port import Storage
from lakeformat.table_state.snapshot import Snapshot

if TYPE_CHECKING:
    import duckdb
    import pandas as pd
    import polars as pl

__all__ = ["ReadArguments", "Scan", "check_limit", "scan_of"]


class ReadArguments(TypedDict, total=False):
    """Keyword arguments of every method that reads rows; see `lakeformat.Table.read`."""

    where: Where | None
    as_of: AsOf | None
    limit: int | None
    meta_columns: bool | None
    verify: bool | None
    time_zone: str | None


@dataclass(frozen=True)
class Scan:
    """Rows of one snapshot, not read yet: each way out reads them anew, and all of them the same rows.

    Anything that takes Arrow streams (``__arrow_c_stream__``: polars, pandas, duckdb, pyarrow, another table) takes a
    scan.

    Attributes:
        shows_progress: on a terminal or in a notebook, once a read takes two seconds.
    """

    storage: Storage
    snapshot: Snapshot
    query: ReadQuery
    split_bytes: int
    limit: int | None = None
    verify: bool = False
    shows_progress: bool = True

    def __repr__(self) -> str:
        return f"Scan({self.storage.location!r}, columns={self.query.schema.names})"

    @property
    def schema(self) -> pa.Schema:
        """The columns to come."""
        return self.query.schema

    def plan(self, *, count_row_groups: bool = False) -> ReadPlan:
        """What would be read, after each step of pruning; ``print(plan)`` shows it."""
        return plan_read(
            self.storage,
            self.snapshot,
            self.query,
            split_bytes=self.split_bytes,
            count_row_groups=count_row_groups,
        )

    def explain(self) -> str:
        """How many files, row groups and bytes a read touches, after each pruning step."""
        return self.plan(count_row_groups=True).describe()

    def count(self) -> int:
        """How many rows: told by the file index and by footers where there is no condition, else counted in batches."""
        found = known_rows(self.storage, self.snapshot) if isinstance(self.query.predicate, Always) else None
        if found is None or self.query.predicate != Always(True):
            full = readable_schema(self.snapshot.columns(self.storage.location), meta_columns=True)
            looked_at = columns_of(self.query.predicate)
            asked = [name for name in full.names if name in looked_at] or [RECORD_KEY]
            narrow = replace(self, query=replace(self.query, schema=pa.schema([full.field(asked[0])])), limit=None)
            found = sum(batch.num_rows for batch in narrow.to_batches())
        return found if self.limit is None else min(found, self.limit)

    def to_batches(self) -> pa.RecordBatchReader:
        """The rows as a stream of Arrow batches, one file at a time.

        Raises:
            SkippingError: of a verified read, while the batches are read: skipping would have lost rows.
        """
        if self.verify:
            batches = read_verified(self.storage, self.snapshot, self.query, split_bytes=self.split_bytes)
        else:
            batches = read_all(
                self.storage,
                self.snapshot,
                self.query,
                self.plan(),
                shows=self.shows_progress,
                to_the_end=self.limit is None,
            )
        if self.limit is not None:
            batches = _first(batches, self.limit)
        return pa.RecordBatchReader.from_batches(self.query.schema, batches)

    def to_arrow(self) -> pa.Table:
        """The rows in memory."""
        return self.to_batches().read_all()

    def to_pylist(self) -> list[dict[str, Any]]:
        """The rows as dicts."""
        rows: list[dict[str, Any]] = self.to_arrow().to_pylist()
        return rows

    def to_pandas(self) -> pd.DataFrame:
        """A pandas frame, its columns as `pyarrow.Table.to_pandas` makes them."""
        _needed("pandas")
        frame: pd.DataFrame = self.to_arrow().to_pandas()
        return frame

    def to_polars(self) -> pl.DataFrame:
        """A polars frame."""
        frame: pl.DataFrame = _needed("polars").from_arrow(self.to_arrow())
        return frame

    def to_duckdb(self, connection: duckdb.DuckDBPyConnection | None = None) -> duckdb.DuckDBPyRelation:
        """A duckdb relation over the rows in memory, which may be asked more than once.

        Args:
            connection: whose relation it is; duckdb's own by default.
        """
        relation: duckdb.DuckDBPyRelation = (connection or _needed("duckdb")).from_arrow(self.to_arrow())
        return relation

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        """The Arrow PyCapsule protocol: rows leave as a stream."""
        return self.to_batches().__arrow_c_stream__(requested_schema)


def scan_of(
    storage: Storage,
    snapshot: Snapshot,
    options: Options,
    columns: Sequence[str] | str | None = None,
    *,
    where: Where | None = None,
    limit: int | None = None,
    meta_columns: bool | None = None,
    verify: bool | None = None,
    time_zone: str | None = None,
) -> Scan:
    """The read that options and arguments ask for; without a word on meta columns, the table's columns alone.

    Raises:
        InvalidInputError: an unknown column, a limit that is none, a condition that cannot be answered exactly.
    """
    check_limit(limit)
    if meta_columns is not None or not options.given("meta_columns"):
        options = options.with_values(meta_columns=bool(meta_columns))
    wanted = [columns] if isinstance(columns, str) else columns
    options = in_zone(options, time_zone)
    query = question(snapshot, storage.location, options, columns=wanted, where=where)
    verified = options.read.verify if verify is None else verify
    return Scan(storage, snapshot, query, options.read.split_bytes, limit, verified)


def check_limit(limit: int | None) -> None:
    """Raise `InvalidInputError` if ``limit`` is not a number of rows."""
    if limit is not None and (isinstance(limit, bool) or not isinstance(limit, int) or limit < 0):
        raise InvalidInputError(f"limit={limit!r} is no number of rows; give 0 or more")


def _first(batches: Iterator[pa.RecordBatch], limit: int) -> Iterator[pa.RecordBatch]:
    """As many rows, and no batch is read after them."""
    while limit > 0 and (batch := next(batches, None)) is not None:
        yield batch.slice(0, limit)
        limit -= batch.num_rows
    if (close := getattr(batches, "close", None)) is not None:
        close()


def _needed(package: str) -> Any:
    """The package; refused in one line where it is missing."""
    from importlib import import_module

    try:
        return import_module(package)
    except ImportError:
        raise InvalidInputError(f"{package} is not installed here; run pip install {package}") from None
