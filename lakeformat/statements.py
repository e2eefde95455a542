"""UPDATE, DELETE and MERGE by condition: a statement checked against the table, then carried out as one commit."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

import pyarrow as pa

from lakeformat.config.resolve import Options
from lakeformat.model.operation import Operation
from lakeformat.predicate import Always, Predicate, Where, bind_where
from lakeformat.read.matching import find_matches
from lakeformat.read.query import readable_schema
from lakeformat.services.inline import check_services
from lakeformat.table_state.engine import Engine
from lakeformat.table_state.snapshot import Snapshot
from lakeformat.transaction.hooks import HookArguments, hooks_of
from lakeformat.transaction.result import WriteResult
from lakeformat.transaction.validators import check_validators
from lakeformat.write.decide.job import WriteJob, rewrite_job
from lakeformat.write.intake import prepare_input
from lakeformat.write.rows.arrow_input import fitted
from lakeformat.write.rows.arrow_pool import reused_memory
from lakeformat.write.rows.schema import optional_within
from lakeformat.write.session import WriteSession
from lakeformat.write.statements.assign import plan_assignments
from lakeformat.write.statements.clauses import Clause
from lakeformat.write.statements.merge_into import check_distinct, merge_into, plan_merge
from lakeformat.write.statements.rewrite import Handle, Rewrite, rewrite

if TYPE_CHECKING:
    from typing_extensions import Unpack

__all__ = ["Runner", "condition", "delete_where", "merge_rows", "update"]

#: Makes, for one write, what writes its files in other processes.
Runner: TypeAlias = Callable[[WriteJob], Handle]


def update(
    engine: Engine,
    options: Options,
    values: Mapping[str, Any],
    where: Where | None,
    runner: Runner | None = None,
    **hooks: Unpack[HookArguments],
) -> WriteResult:
    """See `lakeformat.Table.update`. ``runner``: who writes the files; None is this process."""
    snapshot = engine.writable()
    schema = snapshot.columns(engine.storage.location)
    kept = optional_within(schema)
    change = Rewrite(kept, condition(where, schema, options), plan_assignments(values, kept, snapshot.config))
    return _rewritten(engine, options, snapshot, Operation.UPSERT, change, runner, hooks)


def delete_where(
    engine: Engine,
    options: Options,
    where: Where,
    runner: Runner | None = None,
    **hooks: Unpack[HookArguments],
) -> WriteResult:
    """See `lakeformat.Table.delete`. ``runner`` as for `update`."""
    snapshot = engine.writable()
    schema = snapshot.columns(engine.storage.location)
    change = Rewrite(schema, condition(where, schema, options))
    return _rewritten(engine, options, snapshot, Operation.DELETE, change, runner, hooks)


def merge_rows(
    engine: Engine,
    options: Options,
    rows: pa.RecordBatchReader,
    clauses: Sequence[Clause],
    seen: Snapshot | None = None,
    *,
    exact: bool = False,
    **hooks: Unpack[HookArguments],
) -> WriteResult:
    """See `lakeformat.Merge.execute`. Memory: as `prepare_input` says, plus per thread two row groups.

    Args:
        seen: the table that the rows were computed from: what others have changed since is a conflict.
        exact: each row must change one row of the table.
    """
    snapshot = seen or engine.writable()
    rows = fitted(rows, snapshot.schema)
    job, plan = plan_merge(engine.store, snapshot, options, rows.schema, clauses, engine.ids, exact=exact)
    session = _session(engine, job, snapshot, plan.schema, hooks, "merge")
    with reused_memory(), prepare_input(engine.storage, job, rows) as (prepared, arrived):
        check_distinct(prepared, anywhere=plan.anywhere, engine=engine, seen=seen)
        return merge_into(session, plan, prepared, arrived, seen)


def condition(where: Where | None, schema: pa.Schema, options: Options) -> Predicate:
    """Bind the condition to the columns as readers see them; None is every row. The options name its time zone."""
    if where is None:
        return Always(True)
    return bind_where(where, readable_schema(schema, meta_columns=True), options.read.time_zone or "UTC")


def _session(
    engine: Engine, job: WriteJob, snapshot: Snapshot, schema: pa.Schema, arguments: HookArguments, verb: str
) -> WriteSession:
    hooks = hooks_of(job.options, **arguments).of_verb(verb)
    check_validators(hooks.validators, schema)
    check_services(job.options, snapshot, schema)
    return WriteSession(engine, job, hooks)


def _rewritten(
    engine: Engine,
    options: Options,
    snapshot: Snapshot,
    operation: Operation,
    change: Rewrite,
    runner: Runner | None,
    hooks: HookArguments,
) -> WriteResult:
    job = rewrite_job(snapshot, options, operation, engine.ids)
    verb = "update" if change.assignments else "delete"
    session = _session(engine, job, snapshot, change.schema, hooks, verb)
    handle = runner(session.job) if runner else None
    skipping = options.read.skipping
    try:
        with reused_memory():
            return rewrite(
                session,
                change,
                lambda now: find_matches(engine.storage, now, change.predicate, skipping=skipping),
                handle,
            )
    except BaseException:
        if handle is not None:
            session.transaction.forget_stage()
        raise
