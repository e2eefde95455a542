"""A table that is clustered while an older write completes that changes the columns."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa

import lakeformat
from lakeformat.file_system_view.context import TableContext
from lakeformat.file_system_view.file_index.load import load_snapshot
from lakeformat.services.cluster.local_rewriter import Group, rewrite_in_process
from lakeformat.services.cluster.run import ClusterSession, make_cluster_request
from lakeformat.services.cluster.settings import RewriteSettings
from lakeformat.transaction.order.written_file import WrittenFile
from lakeformat.write.intake import plan_job
from lakeformat.write.rows.prepare import prepare
from lakeformat.write.session import WriteSession

__all__ = ["cluster_overtaken_by", "make"]


def make(path: Path) -> lakeformat.Table:
    """Create a table of two files with a column of integers."""
    schema = pa.schema({"id": pa.int64(), "v": pa.int32()})
    table = lakeformat.create(path, schema, record_key="id", **{"hoodie.parquet.small.file.limit": 0})
    table.bulk_insert(pa.table({"id": [1, 2], "v": [4, 3]}, schema=schema))
    table.bulk_insert(pa.table({"id": [3, 4], "v": [2, 1]}, schema=schema))
    return table


def cluster_overtaken_by(table: lakeformat.Table, rows: pa.Table) -> str:
    """Bulk insert rows by a write with an older instant than the clustering. Return the instant of the clustering."""
    context = table.context
    options = table.options.with_values(**{"hoodie.datasource.write.operation": "bulk_insert"})
    snapshot = load_snapshot(context.store)
    job = plan_job(context.store, snapshot, options, rows.schema, context.ids)
    older = WriteSession(context, job)
    with older.transaction.hold_lock():
        commit = older.transaction.begin(snapshot.timeline.commit_times, claim_kind="heartbeat")

    def overtaken(context: TableContext, groups: Sequence[Group], settings: RewriteSettings) -> Sequence[WrittenFile]:
        with older.transaction.hold_lock():
            older.run_direct(commit, [], prepare(rows, job.prepare), rows.num_rows)
        return rewrite_in_process(context, groups, settings)

    return (
        ClusterSession(context, table.options, overtaken).cluster(make_cluster_request(table.options, "v")).instant_time
    )
