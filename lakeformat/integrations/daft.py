"""Tables as DataFrames of daft: ``pip install 'lakeformat[daft]'``.

Examples::

    from lakeformat.integrations.daft import read_table, write_table

    frame = read_table("/data/flights", ["carrier", "distance"], where="month = 3")
    result = write_table(frame, "/data/far", "upsert")
"""

from __future__ import annotations

import datetime as dt
import math
import operator
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from lakeformat.arrow.kinds import Kind, kind_of
from lakeformat.extras import install_line

try:
    import daft
    from daft.expressions.visitor import PredicateVisitor
    from daft.io.pushdowns import Pushdowns
    from daft.io.sink import DataSink
    from daft.io.sink import WriteResult as SinkResult
    from daft.io.source import DataSource, DataSourceTask
    from daft.recordbatch import MicroPartition, RecordBatch
except ModuleNotFoundError as error:
    raise ImportError(f"lakeformat.integrations.daft needs {error.name}; {install_line('daft')}") from None

from lakeformat.integrations.staging import StagedFile, StagedWrite
from lakeformat.integrations.tables import TableOrPath, make_scan
from lakeformat.model.operation import Operation
from lakeformat.read.lazy_frame import LARGEST_EXACT, join_known
from lakeformat.read.parts import ReadPart
from lakeformat.transaction.commit.result import WriteResult

__all__ = ["LakeformatSink", "LakeformatSource", "read_table", "write_table"]


def read_table(table: TableOrPath, columns: list[str] | None = None, **options: Any) -> daft.DataFrame:
    """Return a daft DataFrame over one snapshot of a table. Nothing is read yet.

    Each task reads one part of the table. Only the columns that the frame needs are read. Comparisons of a column with
    a value, null and ``is_in``, joined by AND and OR, become a condition of the read, which skips files.

    Args:
        table: the table, or its path.
        columns: wanted columns; all by default.
        options: ``where``, ``as_of``, ``meta_columns`` and ``time_zone`` as in `lakeformat.Table.read`; for a path also
            the options of `lakeformat.open`.

    Raises:
        LakeformatError: as in `lakeformat.open` and `lakeformat.Table.read`.
    """
    return LakeformatSource(table, columns, **options).read()


def write_table(
    frame: daft.DataFrame, table: TableOrPath, operation: Operation | str | None = None, **arguments: Any
) -> WriteResult:
    """Compute a daft DataFrame, and write its rows to a table in one commit.

    The tasks write the rows to Arrow files beside the table. Then this process reads the files as a stream and makes
    one commit. If a task fails, the table is unchanged. daft does not keep the order of rows: if two of them have the
    same key, and the table has no ordering field, either may win.

    Args:
        table: an existing table, or its path.
        operation: as in `lakeformat.Table.write`. By default the option ``hoodie.datasource.write.operation`` of the
            table, else ``upsert``, or ``insert`` for a table without record key.
        arguments: ``combine``, ``options``, ``validators``, ``callbacks`` and ``extra_metadata`` as in
            `lakeformat.Table.write`.

    Returns:
        as `lakeformat.Table.write`.

    Raises:
        LakeformatError: as in `lakeformat.Table.write`.
    """
    sink = LakeformatSink(table, operation, **arguments)
    try:
        frame.write_sink(sink)
    except BaseException:
        sink.discard()
        raise
    return sink.result


class LakeformatSource(DataSource):
    """A read of a table as a source of daft. Arguments as in `read_table`.

    Raises:
        InvalidInputError: the read has a limit, or is verified.
    """

    def __init__(self, table: TableOrPath, columns: list[str] | None = None, **options: Any) -> None:
        self._scan = make_scan(table, columns, options)
        self._scan.check_whole("a source of daft")

    @property
    def name(self) -> str:
        """Return the name that plans show."""
        return f"lakeformat({self._scan.storage.location})"

    @property
    def schema(self) -> daft.Schema:
        """Return the columns."""
        return daft.Schema.from_pyarrow_schema(self._scan.schema)

    async def get_tasks(self, pushdowns: Pushdowns) -> AsyncIterator[DataSourceTask]:
        """Yield a task for each part in which rows may match. daft applies the filters again."""
        where = None if pushdowns.filters is None else _Translation(self._scan.schema).visit(pushdowns.filters)
        columns = self._choose_columns(pushdowns)
        for part in self._scan.narrow(columns, where).parts():
            yield _PartTask(part)

    def _choose_columns(self, pushdowns: Pushdowns) -> list[str]:
        """Return the columns of the result and of the filters; one column if there are none, to count the rows."""
        names: list[str] = self._scan.schema.names
        if pushdowns.columns is None:
            return names
        asked = {*pushdowns.columns, *pushdowns.filter_required_column_names()}
        return [name for name in names if name in asked] or names[:1]


class _PartTask(DataSourceTask):
    """A task that reads one part of a table."""

    def __init__(self, part: ReadPart) -> None:
        self._part = part

    @property
    def schema(self) -> daft.Schema:
        """Return the columns."""
        return daft.Schema.from_pyarrow_schema(self._part.schema)

    async def read(self) -> AsyncIterator[RecordBatch]:
        """Yield the rows of the part."""
        for batch in self._part.to_batches():
            yield RecordBatch.from_arrow_record_batches([batch], batch.schema)


class LakeformatSink(DataSink[list[StagedFile]]):
    """A write to a table as a sink of daft. Arguments and errors as in `write_table`.

    If a task of ``frame.write_sink(sink)`` fails, call `discard`; `write_table` does so itself.

    Attributes:
        result: the result of the commit, once the frame is written.
    """

    result: WriteResult

    def __init__(self, table: TableOrPath, operation: Operation | str | None = None, **arguments: Any) -> None:
        self._write = StagedWrite(table, operation, arguments)

    def name(self) -> str:
        """Return the name that plans show."""
        return "lakeformat"

    def schema(self) -> daft.Schema:
        """Return the columns of the frame that ``write_sink`` returns: the commit and its number of input rows."""
        return _summary("", "", 0).schema()

    def write(self, micropartitions: Iterator[MicroPartition]) -> Iterator[SinkResult[list[StagedFile]]]:
        """Write rows to the stage folder, and yield the files."""
        files = self._write.stage.write(rows_in.to_arrow() for rows_in in micropartitions)
        size, rows = (sum(getattr(file, name) for file in files) for name in ("size_bytes", "rows"))
        yield SinkResult(result=files, bytes_written=size, rows_written=rows)

    def finalize(self, write_results: list[SinkResult[list[StagedFile]]]) -> MicroPartition:
        """Write the rows of all tasks to the table in one commit, and describe it."""
        self.result = self._write.commit(file for result in write_results for file in result.result)
        rows = sum(result.rows_written for result in write_results)
        return _summary(self.result.instant_time, self.result.operation, rows)

    def discard(self) -> None:
        """Delete the rows that tasks have written."""
        self._write.stage.discard()


def _summary(instant_time: str, operation: str, rows: int) -> MicroPartition:
    return MicroPartition.from_arrow(
        pa.table({"instant_time": [instant_time], "operation": [operation], "rows": pa.array([rows], pa.int64())})
    )


class _Translation(PredicateVisitor["pc.Expression | None"]):
    """The translation of filters to Arrow expressions that are true for every row that the filter selects.

    The translation of a filter is None if no such expression is known. daft takes NaN for the largest value, so an
    expression on floats that larger values satisfy is also true for NaN.
    """

    def __init__(self, schema: pa.Schema) -> None:
        self._schema = schema

    def visit_and(self, left: daft.Expression, right: daft.Expression) -> pc.Expression | None:
        """Join the sides that are known."""
        return join_known(self.visit(left), self.visit(right))

    def visit_or(self, left: daft.Expression, right: daft.Expression) -> pc.Expression | None:
        """Join the sides if both are known."""
        first, other = self.visit(left), self.visit(right)
        return None if first is None or other is None else first | other

    def visit_equal(self, left: daft.Expression, right: daft.Expression) -> pc.Expression | None:
        """Translate ``=``."""
        return self._compare(operator.eq, operator.eq, left, right)

    def visit_less_than(self, left: daft.Expression, right: daft.Expression) -> pc.Expression | None:
        """Translate ``<``."""
        return self._compare(operator.lt, operator.gt, left, right)

    def visit_less_than_or_equal(self, left: daft.Expression, right: daft.Expression) -> pc.Expression | None:
        """Translate ``<=``."""
        return self._compare(operator.le, operator.ge, left, right)

    def visit_greater_than(self, left: daft.Expression, right: daft.Expression) -> pc.Expression | None:
        """Translate ``>``."""
        return self._compare(operator.gt, operator.lt, left, right)

    def visit_greater_than_or_equal(self, left: daft.Expression, right: daft.Expression) -> pc.Expression | None:
        """Translate ``>=``."""
        return self._compare(operator.ge, operator.le, left, right)

    def visit_between(
        self, expr: daft.Expression, lower: daft.Expression, upper: daft.Expression
    ) -> pc.Expression | None:
        """Translate ``between``."""
        return self.visit_and(expr >= lower, expr <= upper)

    def visit_is_in(self, expr: daft.Expression, items: list[daft.Expression]) -> pc.Expression | None:
        """Translate ``is_in`` as comparisons joined by OR."""
        compared = [self.visit_equal(expr, item) for item in items]
        pushed = [each for each in compared if each is not None]
        if not pushed or len(pushed) < len(compared):
            return None
        joined = pushed[0]
        for term in pushed[1:]:
            joined = joined | term
        return joined

    def visit_is_null(self, expr: daft.Expression) -> pc.Expression | None:
        """Translate ``is null`` of a column."""
        return pc.field(expr.column_name()).is_null() if expr.is_column() else None

    def visit_not_null(self, expr: daft.Expression) -> pc.Expression | None:
        """Translate ``is not null`` of a column."""
        return pc.field(expr.column_name()).is_valid() if expr.is_column() else None

    def visit_alias(self, expr: daft.Expression, alias: str) -> pc.Expression | None:
        """Translate the expression that has a name."""
        return self.visit(expr)

    def visit_not(self, expr: daft.Expression) -> None:
        """Return None: the opposite of a translation may be false for rows that the filter selects."""

    def visit_not_equal(self, left: daft.Expression, right: daft.Expression) -> None:
        """Return None: ``!=`` skips next to nothing."""

    def visit_col(self, name: str) -> None:
        """Return None."""

    def visit_lit(self, value: Any) -> None:
        """Return None."""

    def visit_cast(self, expr: daft.Expression, dtype: Any) -> None:
        """Return None."""

    def visit_function(self, name: str, args: list[daft.Expression]) -> None:
        """Return None."""

    def visit_coalesce(self, args: list[daft.Expression]) -> None:
        """Return None."""

    def _compare(
        self,
        compare: Callable[[Any, Any], pc.Expression],
        swapped: Callable[[Any, Any], pc.Expression],
        left: daft.Expression,
        right: daft.Expression,
    ) -> pc.Expression | None:
        """Translate the comparison of a column with a value.

        Args:
            compare, swapped: the comparison, and that of the same meaning with exchanged sides.
        """
        if right.is_column():
            compare, left, right = swapped, right, left
        if not left.is_column() or not right.is_literal():
            return None
        kind = self._schema.field(left.column_name()).type
        value = right.as_py()
        if not _is_exact(value, kind):
            return None
        field = pc.field(left.column_name())
        compared = compare(field, pa.scalar(value, kind))
        takes_nan = kind_of(kind) is Kind.FLOAT and compare in (operator.gt, operator.ge)
        return compared | pc.is_nan(field) if takes_nan else compared


def _is_exact(value: Any, kind: pa.DataType) -> bool:
    """Tell whether a literal is compared with a column of a type as a value of this type."""
    if isinstance(value, bool):
        return kind_of(kind) is Kind.BOOLEAN
    if isinstance(value, int):
        if kind_of(kind) is Kind.INTEGER:
            return bool(-(1 << (kind.bit_width - 1)) <= value < 1 << (kind.bit_width - 1))
        return bool(kind == pa.float64()) and abs(value) <= LARGEST_EXACT
    if isinstance(value, float):
        return bool(kind == pa.float64()) and not math.isnan(value)
    if isinstance(value, str):
        return kind_of(kind) is Kind.TEXT
    if isinstance(value, dt.datetime):
        return kind_of(kind) is Kind.TIMESTAMP and (value.tzinfo is None) == (kind.tz is None)
    return isinstance(value, dt.date) and kind_of(kind) is Kind.DATE
