"""The methods that change rows. They have the same signatures in plain Python and in Spark."""

from __future__ import annotations

import inspect
import logging
from collections.abc import Callable, Mapping, Sequence
from functools import wraps
from typing import TYPE_CHECKING, Any, ClassVar, Final, Generic, ParamSpec, TypeVar, cast

import pyarrow as pa
import pyarrow.compute as pc

from lakeformat.config.foreign_names import check_write_arguments
from lakeformat.config.resolve import Options
from lakeformat.errors import InvalidInputError
from lakeformat.merge import MergeFunction
from lakeformat.model.operation import Operation, operation_of
from lakeformat.predicate import Where
from lakeformat.public import public
from lakeformat.services.after_write import ServiceHost
from lakeformat.services.alter.alter import Alter, alter_columns
from lakeformat.services.bad_rows import read_bad_rows
from lakeformat.transaction.commit.hooks import HookArguments
from lakeformat.transaction.commit.result import WriteResult
from lakeformat.write.plan.merging import upsert_options
from lakeformat.write.preview import WritePlan, plan_rows
from lakeformat.write.rows.arrow_input import Rows
from lakeformat.write.rows.bulk_insert_order import PARTITIONER, SORT_COLUMNS, Partitioner
from lakeformat.write.statements.clauses import Clause, Merge

if TYPE_CHECKING:
    from typing_extensions import Unpack

__all__ = ["PARTITIONS_TO_DELETE", "WriteVerbs"]

#: Type of the rows that a table class accepts: `Rows` in plain Python, a DataFrame in Spark.
RowsT = TypeVar("RowsT")
_Arguments = ParamSpec("_Arguments")
_Result = TypeVar("_Result")

_LOG: Final = logging.getLogger("lakeformat.write")
_OPERATION: Final = "hoodie.datasource.write.operation"
PARTITIONS_TO_DELETE: Final = "hoodie.datasource.write.partitions.to.delete"


def _refuse_unknown_arguments(method: Callable[_Arguments, _Result]) -> Callable[_Arguments, _Result]:
    """Wrap a writing method. An unknown keyword argument raises an error that suggests the nearest known argument."""
    parameters = list(inspect.signature(method).parameters.values())[1:]
    own = [parameter.name for parameter in parameters if parameter.kind is not inspect.Parameter.VAR_KEYWORD]
    names = (*own, *HookArguments.__annotations__)

    @wraps(method)
    def checked(*given: _Arguments.args, **named: _Arguments.kwargs) -> _Result:
        table = cast("WriteVerbs[Any]", given[0])
        check_write_arguments(named, names, method.__name__, table._options_are_given)
        return method(*given, **named)

    return checked


@public
class WriteVerbs(ServiceHost, Generic[RowsT]):
    """The methods that write rows. The subclass for plain Python or Spark sets the type of rows and writes files."""

    #: Last part of the error message about an unknown argument: it says which call accepts options.
    _options_are_given: ClassVar[str]

    def _options_in(self, time_zone: str | None) -> Options:
        """Return the table's options with a time zone for conditions; None means the default zone of the subclass."""
        raise NotImplementedError

    def _write(
        self,
        rows: RowsT | None,
        operation: Operation,
        hooks: HookArguments,
        options: Mapping[str, Any] | None = None,
        *,
        combine: bool = False,
    ) -> WriteResult:
        """Write the rows with this operation, then run the services that are due.

        Args:
            rows: the rows; None for an operation that needs none, such as ``delete_partition``.
            options: option values for this write alone.
            combine: whether to keep one row per key of an insert or overwrite.
        """
        values = {**(options or {}), _OPERATION: operation.value}
        resolved = self.options.with_values(**values)
        return self._end_write(self._run_operation(rows, operation, resolved, hooks, combine=combine), resolved)

    def _run_operation(
        self, rows: RowsT | None, operation: Operation, options: Options, hooks: HookArguments, *, combine: bool
    ) -> WriteResult:
        """Write the rows. The options have those of the table and of this write, the operation included."""
        raise NotImplementedError

    def _delete_where(self, where: Where, options: Options, hooks: HookArguments) -> WriteResult:
        raise NotImplementedError

    def _update(
        self, values: Mapping[str, Any], where: Where | None, options: Options, hooks: HookArguments
    ) -> WriteResult:
        raise NotImplementedError

    def _merge(self, rows: RowsT, clauses: tuple[Clause, ...], options: Options, hooks: HookArguments) -> WriteResult:
        raise NotImplementedError

    def _arrow_rows(self, rows: RowsT) -> Rows:
        """Return the rows as `lakeformat.Rows`. A Spark DataFrame is collected into this process."""
        raise NotImplementedError

    @_refuse_unknown_arguments
    def upsert(
        self,
        rows: RowsT,
        *,
        partial_update: bool | str | Sequence[str] | None = None,
        merger: MergeFunction | str | None = None,
        **hooks: Unpack[HookArguments],
    ) -> WriteResult:
        """Update the rows whose keys are in the table, and insert the others.

        Args:
            rows: in plain Python any of `lakeformat.Rows`: an Arrow table, batch, reader, dataset or iterable of
                batches, anything with ``__arrow_c_stream__`` (pandas, polars, duckdb), a polars LazyFrame, a list of
                dicts, or a dict of lists. In Spark a DataFrame, which is evaluated once.
            partial_update: columns to overwrite in stored rows, with nulls too; other columns keep their stored
                values. True means the columns of ``rows``; or give names. By default the option
                ``lakeformat.write.partial.update``.
            merger: a function ``(stored, incoming) -> merged`` on two Arrow tables, or ``package.module:function``;
                see `lakeformat.merge.Merger`. By default the option ``lakeformat.write.merger``. In Spark a function
                is pickled and sent to the executors.
            hooks: ``validators``, ``callbacks`` and ``extra_metadata`` of this write, see
                `lakeformat.HookArguments`.

        Returns:
            the instant time of the commit, the counts of rows and files, and the duration of each step.

        Raises:
            SchemaMismatchError, InvalidInputError: the rows cannot be written; nothing was published.
            InvalidOptionError: an unknown argument or a bad value.
            ValidationFailedError: a validator refused the write; nothing was published.
            WriteConflictError, LockTimeoutError: another writer changed the same files or held the lock; a retry is
                safe.
        """
        return self._write(rows, Operation.UPSERT, hooks, upsert_options(partial_update, merger))

    @_refuse_unknown_arguments
    def insert(self, rows: RowsT, **hooks: Unpack[HookArguments]) -> WriteResult:
        """Add the rows, to small files where it pays. Stored keys are not searched, so a key can be in the table twice.

        Args:
            rows, hooks: as in `upsert`.

        Returns:
            as in `upsert`.

        Raises:
            LakeformatError: as in `upsert`.
        """
        return self._write(rows, Operation.INSERT, hooks)

    @_refuse_unknown_arguments
    def bulk_insert(
        self,
        rows: RowsT,
        *,
        sort_columns: Sequence[str] = (),
        partitioner: Partitioner | None = None,
        **hooks: Unpack[HookArguments],
    ) -> WriteResult:
        """Add the rows as new files. Stored keys are not searched, so a key can be in the table twice.

        In plain Python rows are streamed: memory does not grow with the input. In Spark each task writes its own
        files. Only the rows of a task that are too few to fill a file are shuffled.

        Args:
            rows: as in `upsert`.
            sort_columns: sort each partition's rows by these columns. By default
                ``hoodie.bulkinsert.sort.mode`` decides.
            partitioner: a function that gets an Arrow table with some rows of one partition, and returns an integer
                array with the output file's number for each row. Rows with the same number are written to one file,
                or to several if they exceed the maximum file size. In Spark the function is pickled and sent to the
                executors.
            hooks: as in `upsert`.

        Returns:
            as in `upsert`.

        Raises:
            LakeformatError: as in `upsert`.
        """
        options: dict[str, Any] = {SORT_COLUMNS: tuple(sort_columns)} if sort_columns else {}
        if partitioner is not None:
            options[PARTITIONER] = partitioner
        return self._write(rows, Operation.BULK_INSERT, hooks, options)

    @_refuse_unknown_arguments
    def delete(
        self,
        keys: RowsT | None = None,
        *,
        where: Where | None = None,
        time_zone: str | None = None,
        **hooks: Unpack[HookArguments],
    ) -> WriteResult:
        """Delete the rows with these keys, or those that a condition selects.

        Args:
            keys: rows, as in `upsert`, with the key columns and the partition columns. Without partition columns
                every partition is searched. Other columns are ignored.
            where: a Spark SQL condition or a ``pyarrow.compute`` expression. Rows for which it is null are kept.
                ``true`` deletes every row.
            time_zone: the zone of times without a zone in ``where``. By default the option ``time_zone``, else UTC
                (in Spark the session's zone).
            hooks: as in `upsert`.

        Returns:
            as in `upsert`.

        Raises:
            InvalidInputError: neither or both of ``keys`` and ``where`` are given, or the condition cannot be
                evaluated exactly.
            ValidationFailedError: a validator refused the write; nothing was published.
            WriteConflictError, LockTimeoutError: another writer changed the same files or held the lock; a retry is
                safe.
        """
        if isinstance(keys, str | pc.Expression):
            shown = repr(keys) if isinstance(keys, str) else "..."
            raise InvalidInputError(f"delete({shown}) gives a condition in place of keys; say delete(where={shown})")
        if (keys is None) == (where is None):
            raise InvalidInputError("delete takes keys or a condition: give keys, or where='...'; where='true' is all")
        if where is not None:
            return self._end_write(self._delete_where(where, self._options_in(time_zone), hooks))
        return self._write(keys, Operation.DELETE, hooks)

    @_refuse_unknown_arguments
    def update(
        self,
        set: Mapping[str, Any],  # noqa: A002  Named like SQL's SET clause.
        where: Where | None = None,
        *,
        time_zone: str | None = None,
        **hooks: Unpack[HookArguments],
    ) -> WriteResult:
        """Set columns of the rows that a condition selects. Only files that contain such rows are rewritten.

        The rows stay in their partitions and file groups, so record key and partition columns cannot be set. The
        ordering column can be set, also to a smaller value. In log files, readers would ignore a row whose ordering
        value has become smaller. Therefore such a row's file slice is rewritten to a base file.

        Args:
            set: mapping of column name to new value: a Python value, an Arrow scalar, or a function. A function gets
                some of the selected rows (a ``pa.RecordBatch`` with the meta columns) and returns an Arrow array
                with one value per row. All functions get the rows as they were before the update. In Spark a value
                can also be a Spark column expression; then Spark computes all values, the other values must be
                literals, and the rows are merged by key.
            where: as in `delete`; None selects every row. With Spark expressions only SQL text is allowed.
            time_zone: as in `delete`.
            hooks: as in `upsert`.

        Returns:
            as in `upsert`.

        Raises:
            SchemaMismatchError: a column cannot be set, or the column's type cannot store a value exactly.
            InvalidInputError: the condition cannot be evaluated exactly, or a function fails.
            ValidationFailedError: a validator refused the write; nothing was published.
            WriteConflictError, LockTimeoutError: another writer changed the same files or held the lock; a retry is
                safe.
        """
        _warn_of_quotes(set)
        return self._end_write(self._update(set, where, self._options_in(time_zone), hooks))

    @_refuse_unknown_arguments
    def merge(self, rows: RowsT, *, time_zone: str | None = None, **hooks: Unpack[HookArguments]) -> Merge:
        """Start to merge source rows into the table by record key. `lakeformat.Merge.execute` writes the result.

        Examples:
            >>> merge = table.merge(marked).when_matched_delete("op = 'd'").when_matched_update()
            >>> merge.when_not_matched_insert("op <> 'd'").execute().report["rows"]
            {'incoming': 40, 'inserted': 16, 'updated': 16, 'deleted': 4}

        Args:
            rows: the source, as in `upsert`; each key at most once. If the rows lack the partition columns, every
                partition is searched, and no row can be inserted. Columns that the table does not have can be used
                in conditions and functions.
            time_zone: the zone of times without a zone in the clauses' conditions; as in `delete`.
            hooks: as in `upsert`.

        Returns:
            a merge without clauses; its ``when_...`` methods add them.
        """
        options = self._options_in(time_zone)
        return Merge(lambda clauses: self._end_write(self._merge(rows, clauses, options, hooks)))

    @_refuse_unknown_arguments
    def alter(self, **hooks: Unpack[HookArguments]) -> Alter:
        """Change columns: rename, drop, move, widen and add them, without a rewrite of files.

        ``table.alter().rename("name", "title").drop("note").execute()`` makes two changes in one commit.

        Args:
            hooks: as in `upsert`.

        Returns:
            a change without changes; its methods add them, and ``execute()`` makes all of them in one commit.
        """

        def set_defaults(values: Mapping[str, Any]) -> WriteResult:
            return self._end_write(self._update(values, None, self.options, hooks))

        return Alter(lambda changes: alter_columns(self.context, self.options, changes, set_defaults, hooks))

    @_refuse_unknown_arguments
    def overwrite(self, rows: RowsT, **hooks: Unpack[HookArguments]) -> WriteResult:
        """Replace the contents of the table by these rows, in one commit. Without rows the table becomes empty.

        If several rows have the same key, one of them is written.

        Args:
            rows, hooks: as in `upsert`.

        Returns:
            as in `upsert`.

        Raises:
            LakeformatError: as in `upsert`.
        """
        return self._write(rows, Operation.INSERT_OVERWRITE_TABLE, hooks, combine=True)

    @_refuse_unknown_arguments
    def insert_overwrite(self, rows: RowsT, **hooks: Unpack[HookArguments]) -> WriteResult:
        """Replace the contents of the partitions that these rows belong to. Other partitions stay as they are.

        If several rows have the same key, one of them is written.

        Args:
            rows, hooks: as in `upsert`.

        Returns:
            as in `upsert`.

        Raises:
            LakeformatError: as in `upsert`.
        """
        return self._write(rows, Operation.INSERT_OVERWRITE, hooks, combine=True)

    @_refuse_unknown_arguments
    def delete_partitions(self, partitions: str | Sequence[str], **hooks: Unpack[HookArguments]) -> WriteResult:
        """Delete whole partitions. No data file is read or written, so the time does not depend on their size.

        Args:
            partitions: partition paths relative to the table's folder (``month=1``); ``*`` matches any text.
            hooks: as in `upsert`.

        Returns:
            as in `upsert`.

        Raises:
            InvalidInputError: no partition is named or found, or a path leads out of the table's folder.
            WriteConflictError, LockTimeoutError: another writer changed the same files or held the lock; a retry is
                safe.
        """
        paths = (partitions,) if isinstance(partitions, str) else tuple(partitions)
        if not paths:
            raise InvalidInputError("no partition is named; give partition paths")
        return self._write(None, Operation.DELETE_PARTITION, hooks, {PARTITIONS_TO_DELETE: paths})

    @_refuse_unknown_arguments
    def write(
        self,
        rows: RowsT,
        operation: Operation | str,
        *,
        combine: bool = False,
        options: Mapping[str, Any] | None = None,
        **hooks: Unpack[HookArguments],
    ) -> WriteResult:
        """Write rows with any of Hudi's operations. Methods such as `upsert` are simpler to call.

        Args:
            rows: as in `upsert`.
            operation: a `lakeformat.Operation`, or its name as a value of ``hoodie.datasource.write.operation``.
            combine: whether to keep one row per key of an insert or overwrite; false by default.
            options: mapping of option name to parsed value, for this write alone.
            hooks: as in `upsert`.

        Returns:
            as in `upsert`.

        Raises:
            InvalidInputError: an unknown operation.
            LakeformatError: as in `upsert`.
        """
        return self._write(rows, operation_of(operation), hooks, options, combine=combine)

    def bad_rows(self, columns: Sequence[str] | None = None, *, where: Where | None = None) -> pa.Table:
        """Return the rows that writes with ``lakeformat.write.bad_rows=aside`` have put aside, as an Arrow table.

        The rows are in a Hudi table of their own. By default it is in ``.hoodie/.lakeformat/bad_rows`` of the table;
        the option ``hoodie.errortable.base.path`` names another place. `lakeformat.open` and Spark read it, too. Delete
        rows there when you have dealt with them. Memory: the returned rows.

        Args:
            columns: wanted columns; all by default. ``row_json`` has the row as JSON text. ``reason``, ``column_name``
                and ``message`` say what is wrong with it. ``task`` and ``row_number`` say where it was in the input,
                from 0 on; the number is null for a duplicate key. ``instant_time``, ``operation``, ``table_name`` and
                ``write_id`` say which write put it aside.
            where: a SQL condition or a ``pyarrow.compute`` expression; all rows by default.

        Returns:
            the rows; none if no row was put aside.

        Raises:
            InvalidInputError: the condition cannot be evaluated exactly.
        """
        return read_bad_rows(self.context, self.options, columns, where)

    def plan_upsert(self, rows: RowsT) -> WritePlan:
        """Plan which files `upsert` of these rows would write, without writing or locking anything; see `plan`."""
        return self.plan(rows, Operation.UPSERT)

    def plan_insert(self, rows: RowsT) -> WritePlan:
        """Plan which files `insert` of these rows would write; see `plan`."""
        return self.plan(rows, Operation.INSERT)

    def plan_delete(self, keys: RowsT) -> WritePlan:
        """Plan which files `delete` of these keys would write; see `plan`."""
        return self.plan(keys, Operation.DELETE)

    def plan(self, rows: RowsT, operation: Operation | str) -> WritePlan:
        """Plan which files a write of these rows would write. Nothing is written, and no lock is taken.

        The rows and their keys are loaded into the memory of this process; in Spark this is the driver.

        Args:
            rows: as in `upsert`.
            operation: a `lakeformat.Operation` or its name.

        Returns:
            the files that would be written. Printed, the plan is a table.

        Raises:
            InvalidInputError: an unknown operation.
            LakeformatError: as in the write itself, except errors about values that cannot be stored.
        """
        return plan_rows(self.context, self.options, self._arrow_rows(rows), operation_of(operation))


def _warn_of_quotes(values: Mapping[str, Any]) -> None:
    """Warn about texts with quotes around them. In Delta's ``update`` a text is SQL, here it is the value."""
    for name, value in values.items() if isinstance(values, Mapping) else ():
        if isinstance(value, str) and len(value) > 1 and value[0] == value[-1] and value[0] in "'\"":
            _LOG.warning(
                "update: column %r gets the text %s with its quotes, which are no SQL; write {%r: %r} to leave "
                "them out",
                name,
                value,
                name,
                value[1:-1],
            )
