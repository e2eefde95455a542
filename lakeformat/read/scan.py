"""Reads that have not started: `Scan` of the rows of a snapshot, `Changes` of the rows that a range of commits wrote.

Both return batches or Arrow, pandas, polars or duckdb data. The module also lists the files of a snapshot and counts
its rows without reading them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final, Literal, TypedDict, overload

import pyarrow as pa
import pyarrow.compute as pc

from lakeformat.arrow.result_table import SHOWN_ROWS, import_package, preview, preview_html, to_frame
from lakeformat.concurrency import thread_pool
from lakeformat.config.foreign_names import check_arguments
from lakeformat.config.resolve import Options
from lakeformat.errors import InvalidInputError
from lakeformat.file_system_view.live_files import Portion, file_objects, log_slice_flags
from lakeformat.file_system_view.snapshot import ChangeRange, Snapshot
from lakeformat.files.footers import read_metadata
from lakeformat.model.files import FileSlice
from lakeformat.model.instant import AsOf
from lakeformat.model.record import RECORD_KEY
from lakeformat.predicate import Always, Where, columns_of
from lakeformat.public import public
from lakeformat.read.parts import ReadPart
from lakeformat.read.query import ReadQuery, make_query, readable_schema, with_time_zone
from lakeformat.read.run.parallel import read_all
from lakeformat.read.run.session import ReadPlan, plan_read
from lakeformat.read.run.verify import read_verified
from lakeformat.storage.port import Storage
from lakeformat.telemetry import Operation, record_batches

if TYPE_CHECKING:
    import duckdb
    import pandas as pd
    import polars as pl
    from typing_extensions import Unpack

    from lakeformat.read.dataset import TableDataset

__all__ = [
    "FILES_SCHEMA",
    "ChangeArguments",
    "Changes",
    "Explanation",
    "ReadArguments",
    "Scan",
    "check_limit",
    "count_known_rows",
    "list_files_table",
    "make_scan",
]

#: Columns of a list of file slices. ``path``: the base file, relative to the table; null if a slice has none. ``rows``:
#: row count of the base file; null if only its footer has the count. ``size_bytes``: bytes of all files of the slice.
FILES_SCHEMA: Final = pa.schema(
    [
        pa.field("path", pa.string()),
        pa.field("partition_path", pa.string()),
        pa.field("file_id", pa.string()),
        pa.field("instant_time", pa.string()),
        pa.field("size_bytes", pa.int64()),
        pa.field("rows", pa.int64()),
        pa.field("log_files", pa.list_(pa.string())),
    ]
)


class Explanation(str):
    """The description of a read's plan: a text that a shell and a notebook show as its lines, not in quotes."""

    plan: ReadPlan

    def __new__(cls, plan: ReadPlan) -> Explanation:
        """Make the text of a plan."""
        text = super().__new__(cls, plan.describe())
        text.plan = plan
        return text

    def __repr__(self) -> str:
        return str(self)

    def _repr_html_(self) -> str:
        return self.plan._repr_html_()

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.plan,)


def list_files_table(snapshot: Snapshot) -> pa.Table:
    """Return the live file slices, one per row (`FILES_SCHEMA`). No file is opened. Memory: 200 bytes per slice."""
    portions = [_files_of_portion(portion) for portion in snapshot.live.portions()]
    return pa.concat_tables([FILES_SCHEMA.empty_table(), *portions])


def _files_of_portion(portion: Portion) -> pa.Table:
    files = portion.files
    names, partitions = files["name"], files["partition_path"]
    folders = pc.if_else(pc.equal(partitions, ""), "", pc.binary_join_element_wise(partitions, "", "/"))
    columns = [
        pc.binary_join_element_wise(folders, names, ""),
        partitions,
        pc.replace_substring_regex(names, "_.*", ""),
        files["instant_time"],
        files["size_bytes"],
        files["rows"],
        pa.nulls(files.num_rows, pa.list_(pa.string())),
    ]
    plain = pa.Table.from_arrays(columns, schema=FILES_SCHEMA)
    logged = log_slice_flags(portion)
    if portion.slices is None or not logged.any():
        return plain
    slices = pa.Table.from_pylist([_row_of_slice(piece) for piece in portion.slices if piece is not None], FILES_SCHEMA)
    return pa.concat_tables([plain.filter(pa.array(~logged)), slices]).sort_by(
        [("partition_path", "ascending"), ("file_id", "ascending")]
    )


def _row_of_slice(piece: FileSlice) -> dict[str, object]:
    return {
        "path": piece.base.path if piece.base else None,
        "partition_path": piece.group.partition_path,
        "file_id": piece.group.file_id,
        "instant_time": piece.base_instant,
        "size_bytes": piece.size_bytes,
        "log_files": [log.path for log in piece.logs],
    }


def count_known_rows(storage: Storage, snapshot: Snapshot) -> int | None:
    """Count the rows of a snapshot by the file index, and by the footers of files whose row count is not in the index.

    Returns:
        the number of rows; None if log files must be merged, or if the snapshot has a range of commits.

    Raises:
        CorruptTableError: a needed footer is damaged; the message names the file.
    """
    if snapshot.live.has_logs or snapshot.changes is not None:
        return None
    total = 0
    with thread_pool(max(2, pa.cpu_count())) as pool:
        for portion in snapshot.live.portions():
            counts = portion.files["rows"]
            total += pc.sum(counts, min_count=0).as_py()
            unknown = file_objects(portion.files.filter(pc.is_null(counts)))
            total += sum(pool.map(lambda file: int(read_metadata(storage, file).num_rows), unknown))
    return total


class ReadArguments(TypedDict, total=False):
    """Keyword arguments of every method that reads rows. `lakeformat.Table.read` explains them."""

    where: Where | None
    as_of: AsOf | None
    limit: int | None
    meta_columns: bool | None
    verify: bool | None
    time_zone: str | None


public(ReadArguments)


@public
@dataclass(frozen=True)
class Scan:
    """The rows of one snapshot, not read yet. Each method that returns rows reads them again and returns the same rows.

    Whatever accepts Arrow streams (``__arrow_c_stream__``: polars, pandas, duckdb, pyarrow, another table) accepts a
    scan.

    Attributes:
        shows_progress: whether to show the progress of a read that takes over two seconds, on a terminal or in a
            notebook.
    """

    storage: Storage
    snapshot: Snapshot
    query: ReadQuery
    split_bytes: int
    limit: int | None = None
    verify: bool = False
    shows_progress: bool = True

    def __repr__(self) -> str:
        return preview(self._head, self.read_first)

    def _repr_html_(self) -> str:
        return preview_html(self._head, self.read_first)

    def read_first(self) -> pa.Table:
        """Read the rows that a shell and a notebook show."""
        most = SHOWN_ROWS + 1 if self.limit is None else min(self.limit, SHOWN_ROWS + 1)
        return replace(self, limit=most, verify=False, shows_progress=False).to_arrow()

    @property
    def _head(self) -> str:
        return f"Scan({self.storage.location!r}, columns={self.query.schema.names})"

    @property
    def schema(self) -> pa.Schema:
        """Return the columns of the result."""
        return self.query.schema

    def narrow(self, columns: Sequence[str] | None = None, where: Where | None = None) -> Scan:
        """Return a read of fewer columns and rows of the same snapshot. Arguments and errors as `ReadQuery.narrow`."""
        return replace(self, query=self.query.narrow(self.snapshot.columns(self.storage.location), columns, where))

    def parts(self, at_least: int = 1) -> tuple[ReadPart, ...]:
        """Divide the read into parts, which other processes may read by `lakeformat.read_part`.

        Args:
            at_least: wanted number of parts. There may be fewer, because each has some megabytes to read, or more.

        Raises:
            InvalidInputError: the read has a limit, or is verified.
        """
        self.check_whole("a read in parts")
        table = self.snapshot.columns(self.storage.location)
        return tuple(ReadPart(self.storage, split, self.query, table) for split in self.plan(at_least=at_least).splits)

    def plan(self, *, at_least: int = 1, count_row_groups: bool = False) -> ReadPlan:
        """Return the files, row groups and bytes that a read touches after each pruning step.

        ``print(plan.describe())`` shows them.

        Args:
            at_least, count_row_groups: as in `plan_read`; 1 and false by default.
        """
        return plan_read(
            self.storage,
            self.snapshot,
            self.query,
            split_bytes=self.split_bytes,
            at_least=at_least,
            count_row_groups=count_row_groups,
        )

    def explain(self) -> str:
        """Describe how many files, row groups and bytes a read touches after each pruning step.

        The text prints in a shell as `print` shows it, and in a notebook as a table.
        """
        return Explanation(self.plan(count_row_groups=True))

    def count(self) -> int:
        """Count the rows: by the file index and footers if there is no condition and no log file, else by reading."""
        rows = count_known_rows(self.storage, self.snapshot) if isinstance(self.query.predicate, Always) else None
        if rows is None or self.query.predicate != Always(True):
            full = readable_schema(self.snapshot.columns(self.storage.location), meta_columns=True)
            looked_at = columns_of(self.query.predicate)
            columns_to_read = [name for name in full.names if name in looked_at] or [RECORD_KEY]
            narrow = replace(
                self, query=replace(self.query, schema=pa.schema([full.field(columns_to_read[0])])), limit=None
            )
            rows = sum(batch.num_rows for batch in narrow.to_batches())
        return rows if self.limit is None else min(rows, self.limit)

    def to_batches(self) -> pa.RecordBatchReader:
        """Return the rows as a stream of Arrow batches, one file at a time.

        Raises:
            SkippingError: in a verified read, while the batches are read: skipping would have lost rows.
        """
        operation = Operation("read", self.storage.location)
        try:
            return pa.RecordBatchReader.from_batches(self.query.schema, self._open(operation))
        except Exception as error:
            operation.end({}, error=error)
            raise

    def _open(self, operation: Operation) -> Iterator[pa.RecordBatch]:
        """Plan the read. Return its batches. The operation ends after the last batch."""
        live = self.snapshot.live
        files, size_bytes = live.count, live.size_bytes
        if self.verify:
            batches = read_verified(self.storage, self.snapshot, self.query, split_bytes=self.split_bytes)
        else:
            counts: dict[str, Any] = {}
            with operation.step("plan", counts):
                plan = self.plan()
                files, size_bytes = plan.files_after_stats, plan.bytes_after
                counts.update(files=plan.files, files_after=files, bytes_after=size_bytes)
            batches = read_all(
                self.storage,
                self.snapshot,
                self.query,
                plan,
                shows=self.shows_progress,
                to_the_end=self.limit is None,
            )
        if self.limit is not None:
            batches = _take_first(batches, self.limit)
        return record_batches(operation, batches, files, live.count - files, size_bytes)

    def to_arrow(self) -> pa.Table:
        """Return the rows as an Arrow table, in memory."""
        return self.to_batches().read_all()

    def to_pylist(self) -> list[dict[str, Any]]:
        """Return the rows as dicts."""
        rows: list[dict[str, Any]] = self.to_arrow().to_pylist()
        return rows

    def to_pandas(self) -> pd.DataFrame:
        """Return the rows as a pandas frame, converted by `pyarrow.Table.to_pandas`.

        Memory: the frame, and the Arrow columns that are not yet in it: each is released when it is converted.
        """
        import_package("pandas")
        frame: pd.DataFrame = to_frame(self.to_arrow())
        return frame

    @overload
    def to_polars(self, *, lazy: Literal[False] = False) -> pl.DataFrame: ...

    @overload
    def to_polars(self, *, lazy: Literal[True]) -> pl.LazyFrame: ...

    def to_polars(self, *, lazy: bool = False) -> pl.DataFrame | pl.LazyFrame:
        """Return the rows as a polars frame.

        Args:
            lazy: whether to return a frame that reads when it is collected: only the columns, files and row groups that
                its expressions need. False by default.

        Raises:
            InvalidInputError: polars is not installed, or a lazy read has a limit or is verified.
        """
        polars = import_package("polars")
        if not lazy:
            frame: pl.DataFrame = polars.from_arrow(self.to_arrow())
            return frame
        self.check_whole("a lazy frame")
        from lakeformat.read.lazy_frame import make_lazy_frame

        return make_lazy_frame(self)

    def lazy(self) -> pl.LazyFrame:
        """Return ``to_polars(lazy=True)``."""
        return self.to_polars(lazy=True)

    def to_pyarrow_dataset(self) -> TableDataset:
        """Return the rows as a pyarrow dataset, which engines ask for columns and filters. Nothing is read yet.

        Examples:
            >>> import duckdb
            >>> flights = table.read().to_pyarrow_dataset()
            >>> duckdb.sql("select count(*) from flights where distance > 2000").fetchall()
            [(93,)]

        Raises:
            InvalidInputError: the read has a limit, or is verified.
        """
        self.check_whole("a dataset")
        from lakeformat.read.dataset import TableDataset  # `pyarrow.dataset` takes long to import.

        return TableDataset(self)

    def to_duckdb(self, connection: duckdb.DuckDBPyConnection | None = None) -> duckdb.DuckDBPyRelation:
        """Return a duckdb relation over the rows in memory. It may be queried more than once.

        Args:
            connection: the relation's connection; duckdb's default connection by default.
        """
        relation: duckdb.DuckDBPyRelation = (connection or import_package("duckdb")).from_arrow(self.to_arrow())
        return relation

    def check_whole(self, what: str) -> None:
        """Raise `InvalidInputError` if the read has a limit or is verified."""
        if self.limit is not None or self.verify:
            raise InvalidInputError(f"{what} cannot have limit= or verify=; leave these arguments out")

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        """Return the rows as a capsule of the Arrow PyCapsule protocol."""
        return self.to_batches().__arrow_c_stream__(requested_schema)


def make_scan(
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
    """Make a read from options and arguments. If neither sets ``meta_columns``, the meta columns are left out.

    Raises:
        InvalidInputError: a column is not known, the limit is not a number of rows, or the condition cannot be answered
            exactly.
    """
    check_limit(limit)
    if meta_columns is not None or not options.is_set("meta_columns"):
        options = options.with_values(meta_columns=bool(meta_columns))
    asked = [columns] if isinstance(columns, str) else columns
    options = with_time_zone(options, time_zone)
    query = make_query(snapshot, storage.location, options, columns=asked, where=where)
    verified = options.read.verify if verify is None else verify
    return Scan(storage, snapshot, query, options.read.split_bytes, limit, verified)


def check_limit(limit: int | None) -> None:
    """Raise `InvalidInputError` if ``limit`` is not a number of rows."""
    if limit is not None and (isinstance(limit, bool) or not isinstance(limit, int) or limit < 0):
        raise InvalidInputError(f"limit={limit!r} is not a number of rows; give 0 or more")


def _take_first(batches: Iterator[pa.RecordBatch], limit: int) -> Iterator[pa.RecordBatch]:
    """Yield the first `limit` rows, and read no batch after them."""
    while limit > 0 and (batch := next(batches, None)) is not None:
        yield batch.slice(0, limit)
        limit -= batch.num_rows
    if (close := getattr(batches, "close", None)) is not None:
        close()


class ChangeArguments(TypedDict, total=False):
    """Keyword arguments of every method that reads changes. `lakeformat.Table.read` explains them."""

    where: Where | None
    limit: int | None
    meta_columns: bool | None
    time_zone: str | None


public(ChangeArguments)


@public
@dataclass(frozen=True)
class Changes:
    """The rows that the commits of a range wrote. Each row is returned once, as it was at the end of the range.

    Rows that were deleted in the range are not returned. Nothing is read before a method that returns rows is called.

    Attributes:
        snapshot: the table at the range's end.
        range: the range of commits that wrote the rows.
    """

    storage: Storage
    snapshot: Snapshot
    options: Options
    range: ChangeRange

    @property
    def since(self) -> str:
        """Return the exclusive start of the range."""
        return self.range.since

    @property
    def until(self) -> str:
        """Return the last commit of the range, for the next call's ``since``; ``since`` if the range is empty."""
        return self.range.until

    def __repr__(self) -> str:
        return preview(self._head, lambda: self.read().read_first())

    def _repr_html_(self) -> str:
        return preview_html(self._head, lambda: self.read().read_first())

    @property
    def _head(self) -> str:
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
        return make_scan(self.storage, self.snapshot, self.options, columns, **how)

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
