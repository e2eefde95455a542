"""Update and delete by predicate: the base files that hold a match are written anew, the others are not touched.

Source: what Hudi's SQL ``UPDATE`` and ``DELETE`` leave on disk: a commit of operation UPSERT or DELETE; unchanged
rows keep their meta columns but the file name; a file that loses all its rows is written with none. Rows are
changed where they stand, so the event-time rule, which decides between two rows of one key, does not come in.

Memory: per thread one row group of a base file.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

import numpy as np
import pyarrow as pa

from lakeformat.codec.conform import conform, read_schema
from lakeformat.errors import WriteConflictError
from lakeformat.files.base_file import constant
from lakeformat.keys.seqnos import seqnos
from lakeformat.model.record import COMMIT_SEQNO, FILE_NAME, META_COLUMNS, PARTITION_PATH, RECORD_KEY
from lakeformat.predicate import Predicate, columns_of, mask
from lakeformat.read.matching import Found
from lakeformat.storage.port import Storage
from lakeformat.table_state.snapshot import Snapshot
from lakeformat.transaction.publish import Outcome
from lakeformat.transaction.result import WriteResult
from lakeformat.transaction.written import Written
from lakeformat.write.make.append import append
from lakeformat.write.make.handles import HandleSettings, merge
from lakeformat.write.make.put_rows import drop_rows, replace_rows
from lakeformat.write.place.buckets import Bucket
from lakeformat.write.place.profile import BucketPlan, appending_of, workload_profile
from lakeformat.write.rows.schema import optional_within
from lakeformat.write.session import WriteSession
from lakeformat.write.statements.assign import Assignment

__all__ = ["Handle", "Rewrite", "check_columns", "readable", "rewrite", "rewritten", "with_names"]


#: Buckets to finished files, in whatever process.
Handle: TypeAlias = Callable[[Sequence[Bucket], HandleSettings], Sequence[Written]]


@dataclass(frozen=True)
class Rewrite:
    """One update or delete, decided.

    Attributes:
        schema: the table's columns when it was decided.
        predicate: bound to the meta columns and `schema`, as readers see them.
        assignments: what matching rows get; none deletes them.
    """

    schema: pa.Schema
    predicate: Predicate
    assignments: tuple[Assignment, ...] = ()


def rewrite(
    session: WriteSession, change: Rewrite, find: Callable[[Snapshot], Found], handle: Handle | None = None
) -> WriteResult:
    """Carry an update or delete out, as one commit.

    Args:
        find: tells the files with a match; asked under the lock.
        handle: makes the new versions where others than this process do it; asked under the lock.

    Raises:
        InvalidInputError: a function of the assignments gives what its column cannot hold; nothing was published.
        WriteConflictError, LockTimeoutError: another writer was in the way; a retry is safe.
    """
    return session.transaction.retried_under_lock(lambda: _attempt(session, change, find, handle))


def _attempt(
    session: WriteSession, change: Rewrite, find: Callable[[Snapshot], Found], handle: Handle | None
) -> WriteResult:
    snapshot = session.engine.snapshot()
    if (skipped := session.transaction.skipped(snapshot)) is not None:
        return skipped
    check_columns(snapshot, change.schema)
    with session.transaction.report.step("find") as counted:
        found = find(snapshot)
        counted.update(found.counts)
    nothing = np.empty(0, np.int64)
    appending = appending_of(session.storage, session.job, snapshot, looks=True)
    buckets = tuple(
        Bucket(
            piece.group.partition_path,
            piece.group.file_id,
            piece.base,
            nothing,
            0,
            onto=appending.place(piece) if appending.is_on else None,
        )
        for piece in found.slices
    )
    plan = BucketPlan({bucket.partition_path: pa.table({}) for bucket in buckets}, buckets, {})
    commit = session.transaction.begin(snapshot.timeline.commit_times)
    with session.transaction.running(commit):
        commit = session.transaction.inflight(commit, workload_profile(session.job.operation, buckets, ()), snapshot)
        handles = replace(
            HandleSettings.of(session.job, commit.time, change.schema),
            merger=lambda bucket, _, task, settings: _Changes(change, bucket, task, settings),
        )
        with session.transaction.report.step("write") as counted:
            ours = session.handle(plan, handles) if handle is None else session.place(commit, handle(buckets, handles))
            counted["buckets"] = len(buckets)
        session.transaction.publish(commit, Outcome(schema=change.schema, written=ours, snapshot=snapshot))
    return session.transaction.closed(commit)


def rewritten(storage: Storage, bucket: Bucket, task: int, handles: HandleSettings) -> Iterator[Written]:
    """Write a slice's changes to the handles' folder: a log file, or its next base file; none if no row matches."""
    if handles.folder is None:
        return
    written: Written | None = None
    if bucket.onto is not None:
        written = append(storage, bucket, bucket.onto, pa.table({}), task, handles)
    elif bucket.base is not None:
        written = merge(storage, bucket, bucket.base, pa.table({}), task, handles)
    if written is not None:
        yield written


def check_columns(snapshot: Snapshot, planned: pa.Schema) -> None:
    """Refuse to go on with a plan for other columns.

    Raises:
        WriteConflictError: another writer has changed the table's columns.
    """
    if snapshot.schema is None or not optional_within(snapshot.schema).equals(optional_within(planned)):
        raise WriteConflictError(
            f"commit {snapshot.instant_time} changed the table's columns meanwhile; run the write again"
        )


def with_names(batch: pa.RecordBatch, bucket: Bucket, schema: pa.Schema) -> pa.RecordBatch:
    """A merge's batch as readers see it.

    Args:
        schema: wanted columns, of the meta columns and the table's; types as readers get them.
    """
    missing = set(schema.names).difference(batch.schema.names)
    for name, value in ((PARTITION_PATH, bucket.partition_path), (FILE_NAME, bucket.file_name)):
        if name in missing:
            batch = batch.append_column(name, constant(value, batch.num_rows))
    shaped: pa.RecordBatch = conform(batch, schema)
    return shaped


def readable(schema: pa.Schema) -> pa.Schema:
    """The table's columns behind the meta columns, as readers get them."""
    return pa.schema([*(pa.field(name, pa.string()) for name in META_COLUMNS), *read_schema(schema)])


class _Changes:
    """The merger of an update or delete: changes the rows of one base file that match."""

    def __init__(self, change: Rewrite, bucket: Bucket, task: int, settings: HandleSettings) -> None:
        self.change, self.bucket, self.task, self.settings = change, bucket, task, settings
        self.updates = self.deletes = self.missed = 0
        self._readable = readable(change.schema)
        wanted = {RECORD_KEY, *columns_of(change.predicate)}  # The key, for filters that look at nothing.
        self._filtered = pa.schema([field for field in self._readable if field.name in wanted])

    def apply(self, batch: pa.RecordBatch) -> Iterator[pa.Table]:
        widest = sum(each.literal_bytes for each in self.change.assignments)
        most_rows = max(1, self.settings.files.row_group_bytes // max(widest, 1))
        for start in range(0, batch.num_rows, most_rows):
            yield self._applied(batch.slice(start, most_rows))

    def _applied(self, batch: pa.RecordBatch) -> pa.Table:
        table = pa.Table.from_batches([batch])
        hit = np.asarray(mask(self.change.predicate, with_names(batch, self.bucket, self._filtered)))
        count = int(hit.sum())
        if not count:
            return table
        if not self.change.assignments:
            self.deletes += count
            return drop_rows(table, hit)
        columns = {COMMIT_SEQNO: seqnos(self.settings.instant_time, self.task, self.updates, count)}
        self.updates += count
        rows = with_names(batch.filter(pa.array(hit)), self.bucket, self._readable)
        columns.update({each.field.name: each.values(rows) for each in self.change.assignments})
        return replace_rows(table, hit, pa.table(columns), self.settings.instant_time)

    def rest(self) -> Iterator[pa.Table]:
        return iter(())
