"""The direct write in one process: plain Python's bulk_insert, insert and overwrites. Rows are not tagged (step 4)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor

import pyarrow as pa

from lakeformat.errors import WriteConflictError
from lakeformat.model.operation import Operation
from lakeformat.table_state.snapshot import Snapshot
from lakeformat.transaction.result import WriteResult
from lakeformat.transaction.written import stage_folder
from lakeformat.write.make.direct import DirectSettings, DirectWriter
from lakeformat.write.make.sorted_runs import write_rows
from lakeformat.write.place.tails import tail_bytes
from lakeformat.write.session import WriteSession

__all__ = ["closed_partitions", "write_direct"]


def write_direct(session: WriteSession, rows: Iterable[pa.RecordBatch]) -> WriteResult:
    """Stream rows into base files under the lock, and publish them.

    Memory: twice the write buffer, one row group per open file, and the keys of open files.

    Raises:
        SchemaMismatchError, InvalidInputError: if the rows cannot be written. Nothing was published.
        WriteConflictError, LockTimeoutError: if another writer interfered. A retry is safe.
    """
    engine, job, transaction = session.engine, session.job, session.transaction
    with transaction.locked():
        snapshot = engine.snapshot()
        if (skipped := transaction.skipped(snapshot)) is not None:
            return skipped
        schema = job.final_schema(snapshot)
        closed = closed_partitions(session, snapshot)
        commit = transaction.begin(snapshot.timeline.commit_times)
        with transaction.running(commit), ThreadPoolExecutor(max(1, pa.cpu_count())) as pool:
            settings = DirectSettings(
                folder=stage_folder(job.write_id),
                instant_time=commit.time,
                write_id=job.write_id,
                task=0,
                write_token="0-0-0",  # noqa: S106  Part of a file name, not a secret.
                tail_bytes=tail_bytes(job, tasks=False),
                buffer_bytes=job.options.write.buffer_bytes * 2,
                closed=closed,
            )
            writer = DirectWriter(engine.storage, job.prepare, job.files(schema), settings, pool)
            try:
                with transaction.report.step("encode") as counted:
                    write_rows(writer, rows, job.layout)
                    written, tails = writer.finish()
                    counted["files"] = len(written)
            except BaseException:
                writer.abandon()
                transaction.forget_stage()
                raise
            return session.run_direct(commit, written, tails, writer.rows, snapshot)


def closed_partitions(session: WriteSession, snapshot: Snapshot) -> Mapping[str, str]:
    """Return the partitions that an overwrite must not write to -> the reason: a pending clustering will rewrite them.

    Raises:
        WriteConflictError: if the whole table is to be replaced and any partition is closed.
    """
    if not session.job.operation.overwrites:
        return {}
    closed = session.transaction.protocol.closed_partitions(snapshot)
    if closed and session.job.operation is Operation.INSERT_OVERWRITE_TABLE:
        raise WriteConflictError(next(iter(closed.values())))
    return closed
