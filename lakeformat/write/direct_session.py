"""The direct write in one process: plain Python's bulk_insert, insert and overwrites. It skips step 4, the tagging.

A write that keeps one row per key (an overwrite) is direct, too: keys that repeat are rare. The writer keeps a hash of
each key. Only if a key repeats, the written files are read back, combined and written again, in the same transaction.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from typing import TypeAlias

import pyarrow as pa

from lakeformat.concurrency import thread_pool
from lakeformat.errors import WriteConflictError
from lakeformat.file_system_view.snapshot import Snapshot
from lakeformat.storage.port import Storage
from lakeformat.transaction.commit.completed_file import OpenCommit
from lakeformat.transaction.commit.result import WriteResult
from lakeformat.transaction.order.written_file import WrittenFile, stage_folder
from lakeformat.write.handles.direct import DirectSettings, DirectWriter, read_written, write_rows
from lakeformat.write.intake import prepare_input
from lakeformat.write.rows.bad_rows import BadRows
from lakeformat.write.session import WriteSession, find_closed_partitions
from lakeformat.write.workload.buckets import tail_bytes

__all__ = ["write_direct"]


def write_direct(
    session: WriteSession,
    rows: Iterable[pa.RecordBatch],
    read_again: Callable[[], Iterable[pa.RecordBatch]] | None = None,
    bad_rows: BadRows | None = None,
    planned_snapshot: Snapshot | None = None,
) -> WriteResult:
    """Stream rows into base files, and publish them.

    Memory: twice the write buffer, one row group per open file, and the keys of open files. If one row per key is kept,
    8 bytes per row, and that of `prepare_input` if a key repeats.

    Args:
        rows: the rows of the first attempt.
        read_again: returns the rows for another attempt after a conflict; None if they can be read only once.
        bad_rows: collects the rows that cannot be written; None refuses them. ``read_again`` clears it.
        planned_snapshot: the snapshot from which the job was planned. The first attempt uses it while it is new.

    Raises:
        SchemaMismatchError, InvalidInputError: if the rows cannot be written. Nothing was published.
        WriteConflictError, LockTimeoutError: if another writer interfered. A retry is safe.
    """
    planned = [planned_snapshot]

    def refresh() -> Snapshot:
        return session.refresh(planned.pop() if planned else None)

    if read_again is None:
        return _write_stream(session, rows, bad_rows, refresh)
    unread = [rows]
    return session.transaction.retry(
        lambda: _write_direct(
            session, unread.pop() if unread else read_again(), lambda begin: begin(), bad_rows, refresh
        )
    )


def _write_stream(
    session: WriteSession, rows: Iterable[pa.RecordBatch], bad_rows: BadRows | None, refresh: Callable[[], Snapshot]
) -> WriteResult:
    """Write rows that can be read only once. After a conflict, only what comes before the rows is repeated."""
    has_begun = False

    def run_begin(begin: Callable[[], _Begun]) -> _Begun:
        nonlocal has_begun
        begun = session.transaction.retry(begin)
        has_begun = True
        return begun

    try:
        return _write_direct(session, rows, run_begin, bad_rows, refresh)
    except WriteConflictError as error:
        if has_begun:
            error.args = (f"{error}; its rows came as a stream, which has been read: give them anew",)
        raise


_Begun: TypeAlias = tuple[Snapshot, OpenCommit | WriteResult]


def _write_direct(
    session: WriteSession,
    rows: Iterable[pa.RecordBatch],
    run_begin: Callable[[Callable[[], _Begun]], _Begun],
    bad_rows: BadRows | None,
    refresh: Callable[[], Snapshot],
) -> WriteResult:
    """Make one attempt of `write_direct`.

    Args:
        run_begin: runs the begin of the transaction, once or with retries.
        refresh: returns the table's present state.
    """
    context, transaction = session.context, session.transaction
    with ExitStack() as life, thread_pool(max(1, pa.cpu_count())) as pool:

        def begin() -> _Begun:
            snapshot = refresh()
            if (skipped := transaction.skip_known_batch(snapshot)) is not None:
                return snapshot, skipped
            session.job = session.job.at(snapshot)
            return snapshot, life.enter_context(
                transaction.run_unlocked(snapshot.timeline.commit_times, snapshot.timeline)
            )

        snapshot, commit = run_begin(begin)
        if isinstance(commit, WriteResult):
            return commit
        job = session.job
        schema = job.final_schema(snapshot)
        closed = find_closed_partitions(session, snapshot)
        settings = DirectSettings(
            folder=stage_folder(job.write_id),
            instant_time=commit.time,
            write_id=job.write_id,
            task=0,
            write_token="0-0-0",  # noqa: S106  Part of a file name, not a secret.
            tail_bytes=tail_bytes(job, tasks=False),
            buffer_bytes=job.options.write.buffer_bytes * 2,
            holds_tails=True,
            finds_repeated_keys=job.needs_combining,
            closed_partitions=closed,
        )
        writer = DirectWriter(context.storage, job.prepare, job.files(schema), settings, pool, bad_rows)
        life.enter_context(transaction.staging())
        try:
            with transaction.report.step("encode") as counted:
                write_rows(writer, rows, job.layout)
                written, tails = writer.finish()
                counted["files"] = len(written)
                repeats = job.needs_combining and writer.has_repeated_keys()
        except BaseException:
            writer.abandon()
            raise
        if not repeats:
            return session.run_direct(commit, written, tails, writer.rows, snapshot)
        arrived = _read_back(context.storage, written, tails, job.prepare.schema)
        with prepare_input(context.storage, job, arrived) as (prepared, _):
            return session.run_direct(commit, (), prepared, writer.rows, snapshot)


def _read_back(
    storage: Storage, written: Sequence[WrittenFile], tails: Mapping[str, pa.Table], schema: pa.Schema
) -> pa.RecordBatchReader:
    """Return the rows of written files and the tails, each partition's in order of arrival. Memory: one row group.

    Args:
        written, tails: what `DirectWriter.finish` returned.
    """

    def read() -> Iterator[pa.RecordBatch]:
        for file in written:
            yield from read_written(storage, file, schema)
        for rows in tails.values():
            yield from rows.select(schema.names).to_batches()

    return pa.RecordBatchReader.from_batches(schema, read())
