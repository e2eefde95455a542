"""The direct way in one process: plain Python's bulk_insert, insert and overwrites."""

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
from lakeformat.write.make.sorted_runs import take_rows
from lakeformat.write.place.tails import tail_bytes
from lakeformat.write.session import WriteSession

__all__ = ["closed_to", "write_direct"]


def write_direct(session: WriteSession, rows: Iterable[pa.RecordBatch]) -> WriteResult:
    """Stream rows into base files under the lock, and publish them.

    Memory: twice the write buffer, one row group per open file, and the keys of open files.

    Raises:
        SchemaMismatchError, InvalidInputError: the rows cannot be written; nothing was published.
        WriteConflictError, LockTimeoutError: another writer was in the way; a retry is safe.
    """
    engine, job, transaction = session.engine, session.job, session.transaction
    with transaction.locked():
        snapshot = engine.snapshot()
        if (skipped := transaction.skipped(snapshot)) is not None:
            return skipped
        schema = job.final_schema(snapshot)
        closed = closed_to(session, snapshot)
        commit = transaction.begin(snapshot.timeline.commit_times)
        with transaction.running(commit), ThreadPoolExecutor(max(1, pa.cpu_count())) as pool:
            settings = DirectSettings(
                folder=stage_folder(job.write_id),
                instant_time=commit.time,
                write_id=job.write_id,
                task=0,
                write_token="0-0-0",  # noqa: S106  A file name's part, no secret.
                tail_bytes=tail_bytes(job, tasks=False),
                buffer_bytes=job.options.write.buffer_bytes * 2,
                closed=closed,
            )
            writer = DirectWriter(engine.storage, job.prepare, job.files(schema), settings, pool)
            try:
                with transaction.report.step("encode") as counted:
                    take_rows(writer, rows, job.layout)
                    written, tails = writer.finish()
                    counted["files"] = len(written)
            except BaseException:
                writer.abandon()
                transaction.forget_stage()
                raise
            return session.run_direct(commit, written, tails, writer.rows, snapshot)


def closed_to(session: WriteSession, snapshot: Snapshot) -> Mapping[str, str]:
    """Partitions that an overwrite must not have rows for -> why: a pending clustering is going to rewrite them.

    Raises:
        WriteConflictError: the whole table is to be replaced.
    """
    if not session.job.operation.overwrites:
        return {}
    closed = session.transaction.protocol.closed_partitions(snapshot)
    if closed and session.job.operation is Operation.INSERT_OVERWRITE_TABLE:
        raise WriteConflictError(next(iter(closed.values())))
    return closed
