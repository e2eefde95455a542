"""A change of a table's columns as one commit without files (Hudi: ``AlterTableCommand``, ``ALTER_SCHEMA``)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pyarrow as pa

from lakeformat.beside.verbs import sync_result
from lakeformat.catalog.verbs import check_catalogs, register_result
from lakeformat.codec.column_ids import number_columns
from lakeformat.config.resolve import Options
from lakeformat.errors import InvalidInputError, UnsupportedTableError
from lakeformat.file_system_view.context import TableContext
from lakeformat.file_system_view.snapshot import Snapshot
from lakeformat.model.operation import Operation
from lakeformat.model.record import OPERATION
from lakeformat.public import public
from lakeformat.services.alter.changes import (
    AddColumn,
    Change,
    Columns,
    DropColumn,
    MoveColumn,
    RenameColumn,
    RetypeColumn,
    add_last,
)
from lakeformat.services.job_check import check_job
from lakeformat.transaction.commit.hooks import HookArguments, hooks_of
from lakeformat.transaction.commit.pending_plans import check_no_plans
from lakeformat.transaction.commit.result import WriteResult
from lakeformat.transaction.commit.transaction import Transaction
from lakeformat.transaction.order.outcome import Outcome
from lakeformat.transaction.order.settings import make_transaction_settings
from lakeformat.transaction.upkeep.metadata_creation import drop_statistics
from lakeformat.write.workload.profile import workload_profile

__all__ = ["Alter", "alter_columns"]


@public
class Alter:
    """A change of a table's columns. Its methods collect changes and return it; `execute` makes them in one commit.

    No file is rewritten: columns have ids, as in Hudi's schema on read (``hoodie.schema.on.read.enable``), and readers
    find the values of a renamed column by its id. A field of a struct is named ``column.field``, of a list of structs
    ``column.element.field``, of a map of structs ``column.value.field``.
    """

    def __init__(self, run: Callable[[tuple[Change, ...]], WriteResult], changes: tuple[Change, ...] = ()) -> None:
        self._run, self._changes = run, changes

    def add(
        self,
        column: str,
        data_type: pa.DataType | str,
        *,
        after: str | None = None,
        first: bool = False,
        default: Any = None,
    ) -> Alter:
        """Add a column.

        Args:
            column: its name, or the path of a new field.
            data_type: its Arrow type, or the name of one, such as ``int64``.
            after: the column, or the field beside it, that it follows; by default it comes last.
            first: whether it comes before all others.
            default: the value of the rows that are stored, written by an update in a second commit; null by default.
                Rows of later writes have the value that they bring.
        """
        if default is not None and "." in column:
            raise InvalidInputError(f"field {column!r} cannot have a default; update the rows after the change")
        return self._with(AddColumn(column, _arrow_type(data_type), _after(after, first=first), default))

    def rename(self, column: str, name: str) -> Alter:
        """Give a column, or the field at a path, another name. Keys, partition and ordering columns keep theirs."""
        return self._with(RenameColumn(column, name))

    def drop(self, *columns: str) -> Alter:
        """Remove columns. A column that is added later under the same name does not get their values."""
        return self._with(*map(DropColumn, columns))

    def retype(self, column: str, data_type: pa.DataType | str) -> Alter:
        """Widen the type of a column.

        An int may become long, double or string, a long or date string, a float double; a decimal gets more digits.
        """
        return self._with(RetypeColumn(column, _arrow_type(data_type)))

    def move(self, column: str, *, after: str | None = None, first: bool = False) -> Alter:
        """Put a column in another place: after a column, or first."""
        place = _after(after, first=first)
        if place is None:
            raise InvalidInputError(f"move of {column!r} names no place; give after= or first=True")
        return self._with(MoveColumn(column, place))

    def execute(self) -> WriteResult:
        """Make the changes, in one commit; defaults of new columns are written by another commit after it.

        Returns:
            the result of the change.

        Raises:
            InvalidInputError: a change does not fit the columns, or there is none; nothing was published.
            SchemaMismatchError: a type cannot be stored; nothing was published.
            UnsupportedTableError: the table's columns cannot be altered.
            WriteConflictError, LockTimeoutError: another writer interfered; a retry is safe.
        """
        if not self._changes:
            raise InvalidInputError("nothing is to be altered; call add, rename, drop, retype or move first")
        return self._run(self._changes)

    def _with(self, *changes: Change) -> Alter:
        return Alter(self._run, (*self._changes, *changes))


def _defaults_of(changes: Sequence[Change]) -> dict[str, Any]:
    """Return the values that the stored rows get in new columns, by the name of the column."""
    return {
        change.path: change.default
        for change in changes
        if isinstance(change, AddColumn) and change.default is not None
    }


def _after(after: str | None, *, first: bool) -> str | None:
    if first and after is not None:
        raise InvalidInputError(f"a column cannot come first and after {after!r}; give one of both")
    return "" if first else after


def _arrow_type(kind: pa.DataType | str) -> pa.DataType:
    if not isinstance(kind, str):
        return kind
    try:
        return pa.type_for_alias(kind)
    except ValueError:
        raise InvalidInputError(f"{kind!r} is no Arrow type; write int64, string, pa.decimal128(10, 2)") from None


def alter_columns(
    context: TableContext,
    options: Options,
    changes: Sequence[Change],
    update: Callable[[Mapping[str, Any]], object],
    hooks: HookArguments | None = None,
) -> WriteResult:
    """Change the columns of a table in one commit. Raise the errors of `Alter.execute`.

    Columns get ids with the first change that needs them. New columns at the end need none.
    A write that runs meanwhile is refused, or this change is: files have the names of their instant.

    Args:
        update: called after the commit if new columns have defaults, to set them in all rows.
    """
    snapshot = context.snapshot()
    check_job(options)
    check_catalogs(options, snapshot.schema or pa.schema([]))
    config = snapshot.config
    settings = make_transaction_settings(Operation.ALTER_SCHEMA, config, options, context.ids.token())
    transaction = Transaction(context, settings, hooks_of(options, **(hooks or {})))

    def attempt() -> WriteResult:
        with transaction.hold_lock():
            return _alter_once(transaction, context, changes)

    result: WriteResult = transaction.retry(attempt)
    if values := _defaults_of(changes):
        update(values)
    return register_result(sync_result(result, context, options), context, options)


def _alter_once(transaction: Transaction, context: TableContext, changes: Sequence[Change]) -> WriteResult:
    snapshot = context.snapshot()
    _check_altered(snapshot, context)
    schema = snapshot.columns(context.storage.location)
    by_name = None if snapshot.schemas else add_last(schema, changes)
    before = None if by_name is not None else _columns_of(snapshot, schema)
    if before is not None:
        before.apply(changes, 0)  # Refuse before an instant begins.
    with transaction.run_unlocked(snapshot.timeline.commit_times, snapshot.timeline) as begun:
        profile = workload_profile(Operation.ALTER_SCHEMA, (), ())
        commit = transaction.move_to_inflight(begun, profile, snapshot)
        if not all(isinstance(change, AddColumn) for change in changes):
            drop_statistics(context.store, context.clock)
        if before is None:
            outcome = Outcome(schema=by_name or schema, written=(), snapshot=snapshot)
        else:
            after = before.apply(changes, int(begun.time))
            schemas = (*(snapshot.schemas or (before.schema,)), after.schema)
            outcome = Outcome(schema=after.arrow, written=(), snapshot=snapshot, altered=schemas)
        transaction.publish(commit, outcome)
    return transaction.close(commit, has_stage=False)


def _check_altered(snapshot: Snapshot, context: TableContext) -> None:
    """Refuse a table whose columns cannot be altered now."""
    location = context.storage.location
    if snapshot.has_operations:
        raise UnsupportedTableError(
            f"{location}: the columns of a table whose rows hold their operation ({OPERATION}) cannot be altered; use "
            "Apache Hudi for that"
        )
    snapshot.config.check_writable(location)
    check_no_plans(context.store, snapshot.timeline)


def _columns_of(snapshot: Snapshot, schema: pa.Schema) -> Columns:
    """Return the table's columns with their ids; those of a table without ids get some."""
    config = snapshot.config
    fixed = dict.fromkeys(config.record_fields, "part of the record key")
    fixed |= dict.fromkeys(config.partition_fields, "a partition column")
    fixed |= dict.fromkeys(config.merge_settings.ordering_fields, "the ordering column")
    return Columns.of(snapshot.schemas[-1] if snapshot.schemas else number_columns(schema), schema, fixed)
