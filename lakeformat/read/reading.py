"""The read verbs of a table: rows, what a read would touch, what layouts would skip, and the past."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal, overload

import pyarrow as pa

from lakeformat.codec.conform import read_schema
from lakeformat.config.other_arguments import check_arguments
from lakeformat.config.resolve import Options
from lakeformat.layout.report import LayoutReport
from lakeformat.model.instant import AsOf
from lakeformat.predicate import Where
from lakeformat.read.changes import Changes
from lakeformat.read.images import ChangeImages, change_images
from lakeformat.read.incremental import changed_snapshot
from lakeformat.read.known_files import known_files
from lakeformat.read.layout_report import report_layout
from lakeformat.read.overview import overview_html
from lakeformat.read.query import asked_snapshot
from lakeformat.read.scan import Scan, ScanArguments, scan_of
from lakeformat.table_state.engine import Engine
from lakeformat.table_state.snapshot import Snapshot
from lakeformat.timeline.history import History, read_history

if TYPE_CHECKING:
    import duckdb
    import pandas as pd
    import polars as pl
    from typing_extensions import Unpack

__all__ = ["Reading"]


class Reading:
    """Reads a table into Arrow. A host says where the table is."""

    engine: Engine
    options: Options

    def snapshot(self, as_of: AsOf | None = None) -> Snapshot:
        """Settings, schema and files now or at an instant: a datetime, a date, or any form of ``as.of.instant``."""
        return asked_snapshot(self.engine, self.options, as_of)

    @property
    def schema(self) -> pa.Schema:
        """The table's columns, without the meta columns."""
        return read_schema(self.snapshot().columns(self.engine.storage.location))

    def scan(
        self, columns: Sequence[str] | str | None = None, where: Where | None = None, **how: Unpack[ScanArguments]
    ) -> Scan:
        """A read, not made yet: its ways out (``to_arrow``, ``to_pandas`` ...) all give the rows of this moment.

        Args:
            columns: wanted columns, in order; all by default.
            where: a Spark SQL condition, or a ``pyarrow.compute`` expression, for which Arrow's rules of NaN hold.
            how: ``as_of``: an instant, a date or a datetime, without a zone of its own in the timeline's (UTC in tables
                made here); now by default. ``limit``: at most so many rows, whichever come first. ``meta_columns``:
                whether the five ``_hoodie_`` columns come first (default false; ``columns`` may name some of them).
                ``verify``: read what skipping leaves out, too, and check that it holds no match (default false).
                ``time_zone``: what a text or a time without a zone in ``where`` means to a timestamp column (default:
                the option ``time_zone``, else UTC).

        Raises:
            InvalidInputError: an unknown column, or a condition that cannot be answered exactly.
            InvalidOptionError: an argument that there is not.
            InstantNotAvailableError: the files of ``as_of`` are gone.
        """
        check_arguments(how, ("columns", "where", *ScanArguments.__annotations__))
        snapshot = self.snapshot(how.get("as_of"))
        return scan_of(
            self.engine.storage,
            snapshot,
            self.options,
            columns,
            where,
            limit=how.get("limit"),
            meta_columns=how.get("meta_columns"),
            verify=how.get("verify"),
            time_zone=how.get("time_zone"),
        )

    def to_batches(
        self, columns: Sequence[str] | str | None = None, where: Where | None = None, **how: Unpack[ScanArguments]
    ) -> pa.RecordBatchReader:
        """The rows as a stream of Arrow batches, one file at a time; arguments and errors as of `scan`.

        Raises:
            SkippingError: with ``verify``, while the batches are read: skipping would have lost rows; names the files.
        """
        return self.scan(columns, where, **how).to_batches()

    def to_arrow(
        self, columns: Sequence[str] | str | None = None, where: Where | None = None, **how: Unpack[ScanArguments]
    ) -> pa.Table:
        """The rows in memory; arguments and errors as of `to_batches`."""
        return self.scan(columns, where, **how).to_arrow()

    def to_pandas(
        self, columns: Sequence[str] | str | None = None, where: Where | None = None, **how: Unpack[ScanArguments]
    ) -> pd.DataFrame:
        """The rows as a pandas frame; arguments and errors as of `to_batches`."""
        return self.scan(columns, where, **how).to_pandas()

    def to_polars(
        self, columns: Sequence[str] | str | None = None, where: Where | None = None, **how: Unpack[ScanArguments]
    ) -> pl.DataFrame:
        """The rows as a polars frame; arguments and errors as of `to_batches`."""
        return self.scan(columns, where, **how).to_polars()

    def to_duckdb(
        self, columns: Sequence[str] | str | None = None, where: Where | None = None, **how: Unpack[ScanArguments]
    ) -> duckdb.DuckDBPyRelation:
        """The rows as a duckdb relation, in memory; arguments and errors as of `to_batches`."""
        return self.scan(columns, where, **how).to_duckdb()

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        """The Arrow PyCapsule protocol: ``polars.DataFrame(table)``, ``pyarrow.table(table)`` read all rows."""
        return self.scan().__arrow_c_stream__(requested_schema)

    def count(self, where: Where | None = None, *, as_of: AsOf | None = None, time_zone: str | None = None) -> int:
        """Count the rows; without a condition the file index or the footers tell. Arguments as of `scan`."""
        return self.scan(where=where, as_of=as_of, time_zone=time_zone).count()

    def __len__(self) -> int:
        return self.count()

    def __bool__(self) -> bool:
        return True

    def exists(self) -> bool:
        """Whether a table stands at the path; see also `lakeformat.exists`."""
        return self.engine.store.exists()

    def files(self, *, as_of: AsOf | None = None) -> pa.Table:
        """The live files, a row for each file slice: path in the table, partition, file id, instant, bytes, rows.

        ``rows`` are those of the base file, null where only its footer could tell; ``log_files`` are of merge-on-read
        tables. Memory: some 200 bytes a file; no file is opened.
        """
        return known_files(self.snapshot(as_of))

    @overload
    def changes(
        self, since: AsOf | None = None, until: AsOf | None = None, *, images: Literal[False] = False
    ) -> Changes: ...

    @overload
    def changes(
        self, since: AsOf | None = None, until: AsOf | None = None, *, images: Literal[True]
    ) -> ChangeImages: ...

    def changes(
        self, since: AsOf | None = None, until: AsOf | None = None, *, images: bool = False
    ) -> Changes | ChangeImages:
        """The rows that commits after ``since``, up to and including ``until``, wrote: an incremental query.

        Examples:
            >>> changes = table.changes(since="000")
            >>> rows, seen = changes.to_arrow(), changes.until
            >>> table.changes(since=seen).count()
            0

        Args:
            since: exclusive; an instant, from table version 8 on a completion time, a date or a datetime; ``"000"`` for
                everything. By default the option ``hoodie.datasource.read.begin.instanttime``.
            until: inclusive; by default the option of the end, else now.
            images: every change instead, deletes too, with the row before and after it; nothing needs to have been
                switched on for it while the table was written.

        Raises:
            InvalidOptionError: no begin, or a bound that is none.
            InstantNotAvailableError: with ``images``, commits of the range were archived or their files cleaned away;
                without, the range ends before what is still there; see
                ``hoodie.datasource.read.incr.fallback.fulltablescan.enable``.
        """
        if images:
            return change_images(self.engine, self.options, since=since, until=until)
        snapshot = changed_snapshot(self.engine, self.options, since=since, until=until)
        assert snapshot.changes is not None  # noqa: S101  Just made.
        return Changes(self.engine.storage, snapshot, self.options, snapshot.changes)

    def explain(
        self,
        columns: Sequence[str] | None = None,
        where: Where | None = None,
        *,
        as_of: AsOf | None = None,
        time_zone: str | None = None,
    ) -> str:
        """Say how many files, row groups and bytes a read touches, after each pruning step. Arguments as of `scan`."""
        return self.scan(columns, where, as_of=as_of, time_zone=time_zone).explain()

    def layout_report(
        self,
        columns: Sequence[str],
        *,
        target_file_bytes: int | None = None,
        selectivity: float = 0.01,
        sample_rows: int = 200_000,
        as_of: AsOf | None = None,
    ) -> LayoutReport:
        """Which share of the files filters skip now, and would skip in other layouts. Nothing is written.

        Examples:
            >>> report = table.layout_report(["x", "y"])
            >>> print(report)
            300 rows in 3 files, judged by a sample of 300 rows...
            >>> report.to_png("layout.png")

        Args:
            columns: to lay the rows out by; fields of structs by path (``a.b``).
            target_file_bytes: size of the files to come; by default each partition keeps its number of files.
            selectivity: the share of the rows that each filter shall hold.
            sample_rows: rows to judge by. Memory: these rows of the columns, and a row group of them per core.

        Raises:
            InvalidInputError: no columns, or an unknown one.
            SchemaMismatchError: a column has no order.
        """
        return report_layout(
            self.engine.storage,
            self.snapshot(as_of),
            columns,
            target_file_bytes=target_file_bytes,
            selectivity=selectivity,
            sample_rows=sample_rows,
        )

    def history(self, limit: int | None = None, *, actions: bool = False) -> History:
        """Completed commits, newest first.

        Args:
            limit: so many; by default all, those in the archive, too.
            actions: list cleans, rollbacks, restores and savepoints, too.
        """
        return read_history(self.engine.store, limit, actions=actions)

    def _repr_html_(self) -> str:
        """What notebooks show: what kind of table it is, how large, and its columns."""
        return overview_html(self.engine)
