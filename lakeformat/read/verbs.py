"""The read methods of a table: rows, changes, the files that a read touches, the layout report, and the history."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final, Literal, overload

import pyarrow as pa

from lakeformat.arrow.conform import reader_schema
from lakeformat.arrow.result_table import ResultTable
from lakeformat.config.foreign_names import check_arguments
from lakeformat.config.resolve import Options
from lakeformat.file_system_view.context import TableContext
from lakeformat.file_system_view.snapshot import Snapshot
from lakeformat.layout.layout_report import LayoutReport
from lakeformat.model.instant import AsOf, Moment
from lakeformat.model.table_config import TableConfig
from lakeformat.predicate import Where
from lakeformat.public import public
from lakeformat.read.cdc.images import ChangeImages, change_images
from lakeformat.read.incremental import incremental_snapshot
from lakeformat.read.query import load_requested_snapshot, with_time_zone
from lakeformat.read.report import overview_html, report_layout
from lakeformat.read.scan import Changes, ReadArguments, Scan, list_files_table, make_scan
from lakeformat.timeline.history import History, read_history

if TYPE_CHECKING:
    import duckdb
    import pandas as pd
    import polars as pl
    from typing_extensions import Unpack

    from lakeformat.read.dataset import TableDataset

__all__ = ["ArrowReadVerbs", "ReadVerbs"]

_NO_ROWS: Final = "a table has no rows in memory; write read(columns, where=...), to_arrow() or to_pandas()"

#: Maps arguments that other libraries pass on their own to advice. `polars.scan_pyarrow_dataset` passes ``filter``.
_ADVICE: Final = {"filter": "write where=...; for polars give to_pyarrow_dataset(), or call to_polars(lazy=True)"}


@public
class ReadVerbs:
    """The methods of `lakeformat.Table` and Spark's `LakehouseTable` that inspect a table, in the calling process.

    None of these methods returns rows.
    """

    context: TableContext
    options: Options

    def _options_in(self, time_zone: str | None) -> Options:
        """Return the table's options with `time_zone` for a read's condition; unchanged if `time_zone` is None."""
        return with_time_zone(self.options, time_zone)

    @property
    def location(self) -> str:
        """Return the table's folder or URL."""
        return self.context.storage.location

    @property
    def path(self) -> str:
        """Return `location`."""
        return self.location

    @property
    def uri(self) -> str:
        """Return the table's URL; a folder's begins with ``file://``."""
        return f"file://{self.location}" if self.location.startswith("/") else self.location

    @property
    def name(self) -> str:
        """Return the table's name, ``hoodie.table.name``."""
        return self.config.name

    @property
    def config(self) -> TableConfig:
        """Return the table's settings, read from ``hoodie.properties`` at each call."""
        return self.context.store.config()

    def exists(self) -> bool:
        """Tell whether the path holds a table; see also `lakeformat.exists`."""
        return self.context.store.exists()

    def snapshot(self, as_of: AsOf | None = None) -> Snapshot:
        """Return the table's settings, columns and files at an instant.

        Args:
            as_of: an instant time, a version number, a date or a datetime; see `lakeformat.Table.read`. Now by default.

        Raises:
            InstantNotAvailableError: files of that instant are deleted.
        """
        return load_requested_snapshot(self.context, self.options, as_of)

    def count(self, where: Where | None = None, *, as_of: AsOf | None = None, time_zone: str | None = None) -> int:
        """Count the rows. If there is no condition and no log files, only the file index and footers are read.

        Args:
            where: a Spark SQL condition or a ``pyarrow.compute`` expression; all rows by default.
            as_of: an instant time, a version number, a date or a datetime; now by default.
            time_zone: the zone of times without a zone in ``where``; as in `lakeformat.Table.read`.

        Raises:
            InvalidInputError: the condition cannot be answered exactly.
            InstantNotAvailableError: files of ``as_of`` are deleted.
        """
        options = self._options_in(time_zone)
        return make_scan(self.context.storage, self.snapshot(as_of), options, where=where).count()

    def explain(
        self,
        columns: Sequence[str] | str | None = None,
        *,
        where: Where | None = None,
        as_of: AsOf | None = None,
        time_zone: str | None = None,
    ) -> str:
        """Describe how many files, row groups and bytes a read touches after each pruning step. No row is read.

        Args:
            columns: wanted columns; all by default.
            where, as_of, time_zone: as in `count`.

        Returns:
            the description, a few lines of text.

        Raises:
            InvalidInputError: an unknown column, or a condition that cannot be answered exactly.
            InstantNotAvailableError: files of ``as_of`` are deleted.
        """
        options = self._options_in(time_zone)
        return make_scan(self.context.storage, self.snapshot(as_of), options, columns, where=where).explain()

    def files(self, *, as_of: AsOf | None = None) -> ResultTable:
        """List the live files, as Arrow rows that print as a table. No file is opened. Memory: some 200 bytes a file.

        Args:
            as_of: an instant time, a version number, a date or a datetime; now by default.

        Returns:
            a row for each file slice: path in the table, partition path, file id, instant, bytes, rows, log files.
            ``rows`` are those of the base file; they are null if only its footer has the number. ``log_files`` is a
            list of paths; it is null if the slice has no log files.

        Raises:
            InstantNotAvailableError: files of ``as_of`` are deleted.
        """
        return ResultTable(list_files_table(self.snapshot(as_of)))

    def layout_report(
        self,
        columns: Sequence[str],
        *,
        target_file_bytes: int | None = None,
        selectivity: float = 0.01,
        sample_rows: int = 200_000,
        as_of: AsOf | None = None,
    ) -> LayoutReport:
        """Estimate the share of the files that filters skip now, and the share that they would skip in other layouts.

        Nothing is written.

        Examples:
            >>> report = table.layout_report(["x", "y"])
            >>> print(report)
            300 rows in 3 files, judged by a sample of 300 rows...
            >>> report.to_png("layout.png")

        Args:
            columns: the columns that the layouts sort by; fields of structs by path (``a.b``).
            target_file_bytes: size of the new files; by default each partition keeps its number of files.
            selectivity: the share of the rows that each filter selects, between 0 and 1.
            sample_rows: rows in the sample. Memory: these rows of the columns, and a row group of them per core.
            as_of: an instant time, a version number, a date or a datetime; now by default.

        Raises:
            InvalidInputError: no columns, or an unknown one.
            SchemaMismatchError: the values of a column have no order.
        """
        return report_layout(
            self.context.storage,
            self.snapshot(as_of),
            columns,
            target_file_bytes=target_file_bytes,
            selectivity=selectivity,
            sample_rows=sample_rows,
        )

    def history(self, limit: int | None = None, *, actions: bool = False) -> History:
        """List completed commits, newest first.

        Args:
            limit: maximum number of commits; by default all, including those in the archive.
            actions: whether to list cleans, rollbacks, restores and savepoints too; false by default.

        Returns:
            a list of `lakeformat.HistoryEntry` that prints as a table.
        """
        return read_history(self.context.store, limit, actions=actions)

    if not TYPE_CHECKING:

        def __iter__(self):
            raise TypeError(_NO_ROWS)  # Also for `list(table)` and `pandas.DataFrame(table)`.

        def __getitem__(self, columns):
            raise TypeError(_NO_ROWS)

    def _repr_html_(self) -> str:
        """Return what notebooks show: the kind of the table, its size and its columns."""
        return overview_html(self.context)


@public
class ArrowReadVerbs(ReadVerbs):
    """The read methods that return Arrow data."""

    @property
    def schema(self) -> pa.Schema:
        """Return the table's columns without the meta columns."""
        return reader_schema(self.snapshot().columns(self.context.storage.location))

    def read(
        self,
        columns: Sequence[str] | str | None = None,
        *,
        where: Where | None = None,
        as_of: AsOf | None = None,
        limit: int | None = None,
        meta_columns: bool | None = None,
        verify: bool | None = None,
        time_zone: str | None = None,
    ) -> Scan:
        """Return a read of one snapshot that has not started.

        All its methods (``to_arrow``, ``to_pandas`` ...) return the rows of this snapshot, whenever they are called.

        Args:
            columns: wanted columns, in order; all by default.
            where: a Spark SQL condition, or a ``pyarrow.compute`` expression, for which Arrow's rules of NaN hold.
            as_of: an instant time, a version number of `history`, a date or a datetime; now by default. A datetime
                without a zone is in the timeline's zone, which is UTC in tables made by lakeformat.
            limit: maximum number of rows; any of the matching rows may be returned. All by default.
            meta_columns: whether the five ``_hoodie_`` columns come first. ``columns`` may name some of them in any
                case. By default the option ``meta_columns`` of the table, else false.
            verify: whether to read the files that skipping leaves out too, and check that they contain no match. By
                default the option ``verify`` of the table, which is false.
            time_zone: the zone of texts and times without a zone in ``where`` that are compared with a timestamp
                column. By default the option ``time_zone``, else UTC (in Spark the session's zone).

        Raises:
            InvalidInputError: an unknown column, or a condition that cannot be answered exactly.
            InvalidOptionError: an unknown argument.
            InstantNotAvailableError: files of ``as_of`` are deleted.
        """
        return make_scan(
            self.context.storage,
            self.snapshot(as_of),
            self.options,
            columns,
            where=where,
            limit=limit,
            meta_columns=meta_columns,
            verify=verify,
            time_zone=time_zone,
        )

    def to_batches(
        self, columns: Sequence[str] | str | None = None, **how: Unpack[ReadArguments]
    ) -> pa.RecordBatchReader:
        """Return the rows as a stream of Arrow batches, one file at a time. Arguments and errors as in `read`.

        Raises:
            SkippingError: with ``verify``, while the batches are read, if skipping would have lost rows. The message
                names the files.
        """
        return self._read(columns, how).to_batches()

    def to_arrow(self, columns: Sequence[str] | str | None = None, **how: Unpack[ReadArguments]) -> pa.Table:
        """Return the rows as an Arrow table, in memory. Arguments and errors as in `to_batches`."""
        return self._read(columns, how).to_arrow()

    def to_pandas(self, columns: Sequence[str] | str | None = None, **how: Unpack[ReadArguments]) -> pd.DataFrame:
        """Return the rows as a pandas frame. Arguments and errors as in `to_batches`."""
        return self._read(columns, how).to_pandas()

    @overload
    def to_polars(
        self,
        columns: Sequence[str] | str | None = None,
        *,
        lazy: Literal[False] = False,
        **how: Unpack[ReadArguments],
    ) -> pl.DataFrame: ...

    @overload
    def to_polars(
        self, columns: Sequence[str] | str | None = None, *, lazy: Literal[True], **how: Unpack[ReadArguments]
    ) -> pl.LazyFrame: ...

    def to_polars(
        self, columns: Sequence[str] | str | None = None, *, lazy: bool = False, **how: Unpack[ReadArguments]
    ) -> pl.DataFrame | pl.LazyFrame:
        """Return the rows as a polars frame. Other arguments and errors as in `to_batches`.

        Args:
            lazy: whether to return a frame that reads when it is collected: only the columns, files and row groups that
                its expressions need, as they are now. False by default.
        """
        scan = self._read(columns, how)
        return scan.to_polars(lazy=True) if lazy else scan.to_polars()

    def to_pyarrow_dataset(
        self, columns: Sequence[str] | str | None = None, **how: Unpack[ReadArguments]
    ) -> TableDataset:
        """Return the rows, as they are now, as a pyarrow dataset, for DuckDB, DataFusion, ibis and others.

        An engine asks the dataset for columns and filters. Only the needed columns, files and row groups are read, and
        nothing before a query runs. Arguments and errors as in `read`, but without ``limit`` and ``verify``.

        Examples:
            >>> import duckdb
            >>> flights = table.to_pyarrow_dataset()
            >>> duckdb.sql("select count(*) from flights where distance > 2000").fetchall()
            [(93,)]
        """
        return self._read(columns, how).to_pyarrow_dataset()

    def to_duckdb(
        self, columns: Sequence[str] | str | None = None, **how: Unpack[ReadArguments]
    ) -> duckdb.DuckDBPyRelation:
        """Return the rows as a duckdb relation, in memory. Arguments and errors as in `to_batches`."""
        return self._read(columns, how).to_duckdb()

    def _read(self, columns: Sequence[str] | str | None, how: ReadArguments) -> Scan:
        check_arguments(how, ("columns", *ReadArguments.__annotations__), advice=_ADVICE)
        return self.read(columns, **how)

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        """Return all rows as a capsule of the Arrow PyCapsule protocol, for ``polars.DataFrame(table)`` and others."""
        return self.read().__arrow_c_stream__(requested_schema)

    def __len__(self) -> int:
        return self.count()

    def __bool__(self) -> bool:
        return True

    @overload
    def changes(
        self, since: Moment | None = None, until: Moment | None = None, *, images: Literal[False] = False
    ) -> Changes: ...

    @overload
    def changes(
        self, since: Moment | None = None, until: Moment | None = None, *, images: Literal[True]
    ) -> ChangeImages: ...

    def changes(
        self, since: Moment | None = None, until: Moment | None = None, *, images: bool = False
    ) -> Changes | ChangeImages:
        """Return the rows that commits after ``since``, up to and including ``until``, wrote: an incremental query.

        Examples:
            >>> changes = table.changes(since="000")
            >>> rows, seen = changes.to_arrow(), changes.until
            >>> table.changes(since=seen).count()
            0

        Args:
            since: exclusive; an instant time (from table version 8 on a completion time), a date or a datetime;
                ``"000"`` is before all commits. By default the option
                ``hoodie.datasource.read.begin.instanttime``.
            until: inclusive; by default the option ``hoodie.datasource.read.end.instanttime``, else now.
            images: whether to return every change, deletes too, with the row before and after it. No setting of the
                table (such as Hudi's change data capture) is needed. False by default: each row once, as it is at the
                end.

        Returns:
            `lakeformat.Changes`; with ``images``, `lakeformat.ChangeImages`. Rows are read when one of its methods
            returns them.

        Raises:
            InvalidOptionError: there is no ``since``, or a bound is not an instant.
            InstantNotAvailableError: with ``images``, commits of the range are archived or their files deleted. Without
                ``images``, the range ends before the oldest active commit; see
                ``hoodie.datasource.read.incr.fallback.fulltablescan.enable``.
        """
        if images:
            return change_images(self.context, self.options, since=since, until=until)
        snapshot = incremental_snapshot(self.context, self.options, since=since, until=until)
        assert snapshot.changes is not None  # noqa: S101  `incremental_snapshot` always sets ``changes``.
        return Changes(self.context.storage, snapshot, self.options, snapshot.changes)
