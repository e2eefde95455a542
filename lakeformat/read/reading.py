"""The read verbs of a table: rows, what a read would touch, what layouts would skip, and the past."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, overload

import pyarrow as pa

from lakeformat.codec.conform import read_schema
from lakeformat.config.resolve import Options
from lakeformat.layout.report import LayoutReport
from lakeformat.model.instant import AsOf
from lakeformat.predicate import Where
from lakeformat.read.changes import Changes
from lakeformat.read.everything import read_all
from lakeformat.read.images import ChangeImages, change_images
from lakeformat.read.incremental import changed_snapshot
from lakeformat.read.layout_report import report_layout
from lakeformat.read.query import ReadQuery, asked_snapshot, question
from lakeformat.read.session import ReadPlan, plan_read
from lakeformat.read.verify import read_verified
from lakeformat.table_state.engine import Engine
from lakeformat.table_state.snapshot import Snapshot
from lakeformat.timeline.history import HistoryEntry, read_history

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

    def _question(
        self, columns: Sequence[str] | None, where: Where | None, as_of: AsOf | None, meta_columns: bool | None = None
    ) -> tuple[Snapshot, ReadQuery]:
        snapshot = self.snapshot(as_of)
        options = self.options if meta_columns is None else self.options.with_values(meta_columns=meta_columns)
        return snapshot, question(snapshot, self.engine.storage.location, options, columns=columns, where=where)

    def _plan(self, snapshot: Snapshot, query: ReadQuery) -> ReadPlan:
        return plan_read(self.engine.storage, snapshot, query, split_bytes=self.options["lakeformat.read.split.bytes"])

    def to_batches(
        self,
        columns: Sequence[str] | None = None,
        where: Where | None = None,
        *,
        as_of: AsOf | None = None,
        meta_columns: bool | None = None,
        verify: bool | None = None,
    ) -> pa.RecordBatchReader:
        """The rows as a stream of Arrow batches, one file at a time.

        Args:
            columns: wanted columns, in order; all by default.
            where: a Spark SQL condition, or a ``pyarrow.compute`` expression, for which Arrow's rules of NaN hold.
            as_of: an instant, a date or a datetime, without a zone of its own in the timeline's (UTC in tables made
                here); now by default.
            meta_columns: whether the five ``_hoodie_`` columns come first (default true).
            verify: read what skipping leaves out, too, and check that it holds no match (default false).

        Raises:
            SkippingError: with ``verify``, while the batches are read: skipping would have lost rows; names the files.
        """
        snapshot, query = self._question(columns, where, as_of, meta_columns)
        if self.options["lakeformat.read.verify"] if verify is None else verify:
            split_bytes = self.options["lakeformat.read.split.bytes"]
            batches = read_verified(self.engine.storage, snapshot, query, split_bytes=split_bytes)
        else:
            batches = read_all(self.engine.storage, snapshot, query, self._plan(snapshot, query))
        return pa.RecordBatchReader.from_batches(query.schema, batches)

    def to_arrow(
        self,
        columns: Sequence[str] | None = None,
        where: Where | None = None,
        *,
        as_of: AsOf | None = None,
        meta_columns: bool | None = None,
        verify: bool | None = None,
    ) -> pa.Table:
        """The rows in memory; arguments and errors as of `to_batches`."""
        return self.to_batches(columns, where, as_of=as_of, meta_columns=meta_columns, verify=verify).read_all()

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

        >>> changes = table.changes(since="000")  # doctest: +SKIP
        >>> rows, seen = changes.to_arrow(), changes.until  # doctest: +SKIP

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
        self, columns: Sequence[str] | None = None, where: Where | None = None, *, as_of: AsOf | None = None
    ) -> str:
        """How many files, row groups and bytes a read touches, after each pruning step."""
        snapshot, query = self._question(columns, where, as_of)
        split_bytes = self.options["lakeformat.read.split.bytes"]
        plan = plan_read(self.engine.storage, snapshot, query, split_bytes=split_bytes, count_row_groups=True)
        return plan.describe()

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

        >>> report = table.layout_report(["x", "y"])  # doctest: +SKIP
        >>> print(report)  # doctest: +SKIP
        >>> report.to_png("layout.png")  # doctest: +SKIP

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

    def history(self) -> list[HistoryEntry]:
        """Completed commits on the active timeline, newest first."""
        return read_history(self.engine.store)
