"""UPDATE, DELETE by condition, and MERGE: each is checked against the table and then run as one commit."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

import pyarrow as pa

from lakeformat.concurrency import Attempts
from lakeformat.config.resolve import Options
from lakeformat.file_system_view.context import TableContext
from lakeformat.file_system_view.snapshot import Snapshot
from lakeformat.model.operation import Operation
from lakeformat.predicate import Always, Predicate, Where, bind_where
from lakeformat.read.query import readable_schema
from lakeformat.read.run.session import find_matches
from lakeformat.services.after_write import check_services
from lakeformat.services.bad_rows import put_aside_rows
from lakeformat.transaction.commit.hooks import HookArguments, check_validators, hooks_of
from lakeformat.transaction.commit.result import WriteResult
from lakeformat.transaction.order.conflict import StalePlanError, repeat_after
from lakeformat.write.intake import prepare_input
from lakeformat.write.plan.job import WriteJob, rewrite_job
from lakeformat.write.rows.arrow_input import fit_to_table
from lakeformat.write.rows.arrow_pool import reuse_memory
from lakeformat.write.rows.bad_rows import BadRows
from lakeformat.write.rows.schema import make_nested_nullable
from lakeformat.write.session import WriteSession
from lakeformat.write.statements.assign import plan_assignments
from lakeformat.write.statements.clauses import Clause
from lakeformat.write.statements.merge_into import check_distinct, merge_into, plan_merge, take_out_repeats
from lakeformat.write.statements.rewrite import BucketWriter, Rewrite, rewrite

if TYPE_CHECKING:
    from typing_extensions import Unpack

__all__ = ["Runner", "bind_condition", "delete_where", "merge_rows", "update"]

#: A function that gets the `WriteJob` of a write and returns a function that writes the files of given buckets in Spark
#: tasks.
Runner: TypeAlias = Callable[[WriteJob], BucketWriter]


def update(
    context: TableContext,
    options: Options,
    values: Mapping[str, Any],
    where: Where | None,
    runner: Runner | None = None,
    **hooks: Unpack[HookArguments],
) -> WriteResult:
    """Set columns of the rows that a condition selects; see `lakeformat.Table.update`.

    Args:
        runner: makes the function that writes the files in Spark tasks; None writes the files in this process.
    """

    def run() -> WriteResult:
        snapshot = context.writable_snapshot()
        schema = snapshot.columns(context.storage.location)
        nullable_schema = make_nested_nullable(schema)
        change = Rewrite(
            nullable_schema,
            bind_condition(where, schema, options),
            plan_assignments(values, nullable_schema, snapshot.config),
        )
        return _run_rewrite(context, options, snapshot, Operation.UPSERT, change, runner, hooks)

    return repeat_after(StalePlanError, run, Attempts(options.patience, context.ids.token))


def delete_where(
    context: TableContext,
    options: Options,
    where: Where,
    runner: Runner | None = None,
    **hooks: Unpack[HookArguments],
) -> WriteResult:
    """Delete the rows that a condition selects; see `lakeformat.Table.delete`. ``runner`` is as in `update`."""

    def run() -> WriteResult:
        snapshot = context.writable_snapshot()
        schema = snapshot.columns(context.storage.location)
        change = Rewrite(schema, bind_condition(where, schema, options))
        return _run_rewrite(context, options, snapshot, Operation.DELETE, change, runner, hooks)

    return repeat_after(StalePlanError, run, Attempts(options.patience, context.ids.token))


def merge_rows(
    context: TableContext,
    options: Options,
    rows: pa.RecordBatchReader,
    clauses: Sequence[Clause],
    source_snapshot: Snapshot | None = None,
    *,
    requires_one_match: bool = False,
    bad_rows: BadRows | None = None,
    **hooks: Unpack[HookArguments],
) -> WriteResult:
    """Merge source rows into the table by record key; see `lakeformat.Merge.execute`.

    Memory: that of `prepare_input`, plus two row groups per thread.

    Args:
        source_snapshot: the snapshot that the rows were computed from; None if they were not computed from the table.
            If another writer has changed the files of these rows since, the merge raises `WriteConflictError`.
        requires_one_match: whether each source row must change exactly one row of the table.
        bad_rows: collects the rows that cannot be written, as the options say; None refuses them.
    """
    snapshot = source_snapshot or context.writable_snapshot()
    rows = fit_to_table(rows, snapshot.schema)
    job, plan = plan_merge(
        context.store, snapshot, options, rows.schema, clauses, context.ids, requires_one_match=requires_one_match
    )
    session = _open_session(context, job, snapshot, plan.schema, hooks, "merge")
    with (
        reuse_memory(),
        put_aside_rows(session, bad_rows),
        prepare_input(context.storage, job, rows, bad_rows) as (rows_and_count, input_rows),
    ):
        prepared = rows_and_count
        if bad_rows is not None and source_snapshot is None:
            prepared = take_out_repeats(prepared, bad_rows, ",".join(job.prepare.keys.record_fields))
        check_distinct(prepared, is_global=plan.is_global, context=context, source_snapshot=source_snapshot)
        return merge_into(session, plan, prepared, input_rows, source_snapshot)


def bind_condition(where: Where | None, schema: pa.Schema, options: Options) -> Predicate:
    """Return a condition as a predicate on the table's columns and meta columns; a condition None matches every row.

    Args:
        where: the condition.
        schema: the table's columns.
        options: their time zone, or UTC if they have none, is the zone of times in the condition without a zone.
    """
    if where is None:
        return Always(True)
    return bind_where(where, readable_schema(schema, meta_columns=True), options.read.time_zone or "UTC")


def _open_session(
    context: TableContext, job: WriteJob, snapshot: Snapshot, schema: pa.Schema, arguments: HookArguments, verb: str
) -> WriteSession:
    hooks = hooks_of(job.options, **arguments).with_verb(verb)
    check_validators(hooks.validators, schema)
    check_services(context.storage, job.options, snapshot, schema)
    return WriteSession(context, job, hooks)


def _run_rewrite(
    context: TableContext,
    options: Options,
    snapshot: Snapshot,
    operation: Operation,
    change: Rewrite,
    runner: Runner | None,
    hooks: HookArguments,
) -> WriteResult:
    job = rewrite_job(snapshot, options, operation, context.ids.token())
    verb = "update" if change.assignments else "delete"
    session = _open_session(context, job, snapshot, change.schema, hooks, verb)
    handle = runner(session.job) if runner else None
    skipping = options.read.skipping
    with reuse_memory(), session.transaction.staging():
        return rewrite(
            session,
            change,
            lambda now: find_matches(context.storage, now, change.predicate, skipping=skipping),
            handle,
        )
