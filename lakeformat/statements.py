"""UPDATE, DELETE and MERGE by condition: a statement checked against the table, then carried out as one commit."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from lakeformat.config.resolve import Options
from lakeformat.predicate import Always, bind, parse_where
from lakeformat.read.matching import find_matches
from lakeformat.read.query import readable_schema
from lakeformat.timeline.snapshot import Snapshot, load_snapshot
from lakeformat.write.assign import plan_assignments
from lakeformat.write.clauses import Clause
from lakeformat.write.job import Operation, rewrite_job
from lakeformat.write.memory import reused_memory
from lakeformat.write.merge_into import check_distinct, merge_into, plan_merge
from lakeformat.write.prepare import prepare
from lakeformat.write.rewrite import Rewrite, rewrite
from lakeformat.write.session import Engine, WriteResult, WriteSession

__all__ = ["delete_where", "merge_rows", "update"]


def update(engine: Engine, options: Options, values: Mapping[str, Any], where: str | None) -> WriteResult:
    """See `lakeformat.Table.update`."""
    snapshot = _writable(engine)
    schema = snapshot.columns(engine.storage.location)
    change = Rewrite(schema, _condition(where, schema), plan_assignments(values, schema, snapshot.config))
    return _rewritten(engine, options, snapshot, Operation.UPSERT, change)


def delete_where(engine: Engine, options: Options, where: str) -> WriteResult:
    """See `lakeformat.Table.delete`."""
    snapshot = _writable(engine)
    schema = snapshot.columns(engine.storage.location)
    return _rewritten(engine, options, snapshot, Operation.DELETE, Rewrite(schema, _condition(where, schema)))


def merge_rows(engine: Engine, options: Options, rows: pa.RecordBatchReader, clauses: Sequence[Clause]) -> WriteResult:
    """See `lakeformat.Merge.execute`. Memory: the source, plus per thread one row group."""
    snapshot = _writable(engine)
    job, plan = plan_merge(engine.store, snapshot, options, rows.schema, clauses, engine.ids)
    with reused_memory():
        source = rows.read_all()
        prepared = prepare(source, job.prepare)
        check_distinct(prepared, anywhere=plan.anywhere)
        return merge_into(WriteSession(engine, job), plan, prepared, source.num_rows)


def _writable(engine: Engine) -> Snapshot:
    config = engine.store.config()
    config.check_writable(engine.storage.location)
    return load_snapshot(engine.store, config=config)


def _condition(where: str | None, schema: pa.Schema) -> Any:
    return Always(True) if where is None else bind(parse_where(where), readable_schema(schema, meta_columns=True))


def _rewritten(
    engine: Engine, options: Options, snapshot: Snapshot, operation: Operation, change: Rewrite
) -> WriteResult:
    session = WriteSession(engine, rewrite_job(snapshot, options, operation, engine.ids))
    skipping = options["hoodie.enable.data.skipping"]
    with reused_memory():
        return rewrite(
            session, change, lambda now: find_matches(engine.storage, now, change.predicate, skipping=skipping)
        )
