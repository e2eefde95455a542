"""A table that is clustered while a write completes that began before, and changes the columns."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa

import lakeformat
from lakeformat.file_system_view.context import Engine
from lakeformat.file_system_view.file_index.load import load_snapshot
from lakeformat.services.cluster.local_rewriter import Group, rewrite_here
from lakeformat.services.cluster.run import ClusterSession, request_of
from lakeformat.services.cluster.settings import RewriteSettings
from lakeformat.transaction.written_file import WrittenFile
from lakeformat.write.intake import plan_job
from lakeformat.write.rows.prepare import prepare
from lakeformat.write.session import WriteSession

__all__ = ["cluster_overtaken_by", "make"]


def make(path: Path) -> lakeformat.Table:
    """Two files with a column of integers."""
    schema = pa.schema({"id": pa.int64(), "v": pa.int32()})
    table = lakeformat.create(path, schema, record_key="id", **{"hoodie.parquet.small.file.limit": 0})
    table.bulk_insert(pa.table({"id": [1, 2], "v": [4, 3]}, schema=schema))
    table.bulk_insert(pa.table({"id": [3, 4], "v": [2, 1]}, schema=schema))
    return table


def cluster_overtaken_by(table: lakeformat.Table, rows: pa.Table) -> str:
    """Bulk insert rows by a write that has an older instant than the clustering. Returns the clustering's instant."""
    engine = table.engine
    options = table.options.with_values(**{"hoodie.datasource.write.operation": "bulk_insert"})
    snapshot = load_snapshot(engine.store)
    job = plan_job(engine.store, snapshot, options, rows.schema, engine.ids)
    older = WriteSession(engine, job)
    with older.transaction.locked():
        commit = older.transaction.begin(snapshot.timeline.commit_times, lives_by="heartbeat")

    def overtaken(engine: Engine, groups: Sequence[Group], settings: RewriteSettings) -> Sequence[WrittenFile]:
        with older.transaction.locked():
            older.run_direct(commit, [], prepare(rows, job.prepare), rows.num_rows)
        return rewrite_here(engine, groups, settings)

    return ClusterSession(engine, table.options, overtaken).cluster(request_of(table.options, "v")).instant_time
