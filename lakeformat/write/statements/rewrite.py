"""Update and delete by condition: file slices with a matching row are changed; other files are not touched.

The files are those that Hudi's SQL ``UPDATE`` and ``DELETE`` write. The commit's operation is UPSERT or DELETE.
Unchanged rows keep their meta columns, except the file name. A file that loses all its rows is written without rows.
The event-time rule decides between a stored and an incoming row of one key. Here there are no incoming rows: stored
rows are changed in place, so the rule is not applied. Memory: per thread one row group of a base file.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from lakeformat.arrow.conform import conform, reader_schema
from lakeformat.codec.stored_types import with_meta_columns
from lakeformat.file_system_view.snapshot import Snapshot
from lakeformat.files.base_file import constant_column
from lakeformat.files.footer_bounds import row_group_bounds
from lakeformat.files.slice_skipping import Skipping
from lakeformat.keys.record_keys import make_seqnos
from lakeformat.model.record import COMMIT_SEQNO, COMMIT_TIME, FILE_NAME, PARTITION_PATH, RECORD_KEY
from lakeformat.predicate import Predicate, columns_of, mask, may_match
from lakeformat.read.run.session import Matches
from lakeformat.storage.port import Storage
from lakeformat.transaction.commit.result import WriteResult
from lakeformat.transaction.order.conflict import StalePlanError
from lakeformat.transaction.order.outcome import Outcome
from lakeformat.transaction.order.written_file import WrittenFile, count_copies
from lakeformat.write.handles.append_handle import append
from lakeformat.write.handles.base_file_handles import HandleSettings, drop_rows, merge, replace_rows
from lakeformat.write.rows.schema import make_nested_nullable
from lakeformat.write.session import WriteSession
from lakeformat.write.statements.assign import Assignment
from lakeformat.write.workload.buckets import Bucket
from lakeformat.write.workload.profile import BucketPlan, make_append_rules, workload_profile

__all__ = [
    "BucketWriter",
    "Rewrite",
    "check_columns",
    "convert_for_readers",
    "reader_columns",
    "rewrite",
    "rewrite_bucket",
]


#: A function that writes buckets to files, in this or another process.
BucketWriter: TypeAlias = Callable[[Sequence[Bucket], HandleSettings], Sequence[WrittenFile]]


@dataclass(frozen=True)
class Rewrite:
    """One planned update or delete.

    Attributes:
        schema: the table's columns when the statement was planned.
        predicate: the condition on the meta columns and the columns of ``schema``, with the types that readers get.
        assignments: the new values of matching rows; if empty, matching rows are deleted.
    """

    schema: pa.Schema
    predicate: Predicate
    assignments: tuple[Assignment, ...] = ()


def rewrite(
    session: WriteSession,
    change: Rewrite,
    find: Callable[[Snapshot], Matches],
    bucket_writer: BucketWriter | None = None,
) -> WriteResult:
    """Run a planned update or delete as one commit.

    Args:
        find: function that returns the file slices with a matching row.
        bucket_writer: function that writes the new files in other processes; None writes them in this process.

    Raises:
        InvalidInputError: if a function of the assignments returns values that its column cannot hold. Nothing was
            published.
        WriteConflictError, LockTimeoutError: if another writer interfered. A retry is safe.
    """
    return session.transaction.retry(lambda: _attempt(session, change, find, bucket_writer))


def _attempt(
    session: WriteSession, change: Rewrite, find: Callable[[Snapshot], Matches], bucket_writer: BucketWriter | None
) -> WriteResult:
    snapshot = session.context.snapshot()
    if (skipped := session.transaction.skip_known_batch(snapshot)) is not None:
        return skipped
    check_columns(snapshot, change.schema)
    with session.transaction.report.step("find") as counted:
        matches = find(snapshot)
        counted.update(matches.counts)
    compacting = session.context.store.read_compaction_groups(snapshot.timeline)
    append_rules = make_append_rules(session.job, snapshot, compacting, reads_stored=True)
    buckets = tuple(
        Bucket(
            piece.group.partition_path,
            piece.group.file_id,
            piece.base,
            log_place=append_rules.place(piece) if append_rules.takes_logs else None,
        )
        for piece in matches.slices
    )
    plan = BucketPlan({bucket.partition_path: pa.table({}) for bucket in buckets}, buckets, {})
    with session.transaction.run_unlocked(snapshot.timeline.commit_times, snapshot.timeline) as begun:
        profile = workload_profile(session.job.operation, buckets, ())
        commit = session.transaction.move_to_inflight(begun, profile, snapshot)
        handles = replace(
            HandleSettings.of(session.job, commit.time, change.schema),
            make_merger=lambda bucket, _, task, settings: _RewriteMerger(change, bucket, task, settings),
        )
        with session.transaction.report.step("write") as counted:
            written = (
                session.write_buckets(plan, handles)
                if bucket_writer is None
                else session.place_files(commit, bucket_writer(buckets, handles))
            )
            counted.update(buckets=len(buckets), **count_copies(written))
        session.transaction.publish(commit, Outcome(schema=change.schema, written=written, snapshot=snapshot))
    return session.transaction.close(commit)


def rewrite_bucket(storage: Storage, bucket: Bucket, task: int, handles: HandleSettings) -> Iterator[WrittenFile]:
    """Apply an update or delete to one slice. Yield the file written to ``handles.folder``; none if no row matches."""
    if handles.folder is None:
        return
    written: WrittenFile | None = None
    if bucket.log_place is not None:
        written = append(storage, bucket, bucket.log_place, pa.table({}), task, handles)
    elif bucket.base is not None:
        written = merge(storage, bucket, bucket.base, pa.table({}), task, handles)
    if written is not None:
        yield written


def check_columns(snapshot: Snapshot, planned_schema: pa.Schema) -> None:
    """Refuse to run a plan if the table's columns have changed since it was made.

    Raises:
        StalePlanError: if another writer has changed the table's columns.
    """
    if snapshot.schema is None or not make_nested_nullable(snapshot.schema).equals(
        make_nested_nullable(planned_schema)
    ):
        raise StalePlanError(
            f"commit {snapshot.instant_time} changed the table's columns meanwhile; run the write again"
        )


def convert_for_readers(batch: pa.RecordBatch, bucket: Bucket, schema: pa.Schema) -> pa.RecordBatch:
    """Convert a batch of stored rows to the types that readers get, and add partition path and file name if missing.

    Args:
        schema: the columns to return, with the types that readers get.
    """
    missing = set(schema.names).difference(batch.schema.names)
    for name, value in ((PARTITION_PATH, bucket.partition_path), (FILE_NAME, bucket.file_name)):
        if name in missing:
            batch = batch.append_column(name, constant_column(value, batch.num_rows))
    shaped: pa.RecordBatch = conform(batch, schema)
    return shaped


def reader_columns(schema: pa.Schema) -> pa.Schema:
    """Return the meta columns and the table's columns, with the types that readers get."""
    return with_meta_columns(reader_schema(schema))


class _RewriteMerger:
    """The merger of an update or delete: it changes or drops the matching rows of one file slice."""

    def __init__(self, change: Rewrite, bucket: Bucket, task: int, settings: HandleSettings) -> None:
        self.change, self.bucket, self.task, self.settings = change, bucket, task, settings
        self.updates = self.deletes = self.unmatched_lookups = 0
        self._readable = reader_columns(change.schema)
        # A condition may use no column. The record key is always read, because a batch needs a column to have rows.
        names = {RECORD_KEY, *columns_of(change.predicate)}
        self._filtered = pa.schema([field for field in self._readable if field.name in names])
        widest = sum(assignment.literal_bytes for assignment in change.assignments)
        self._most_rows = max(1, settings.files.row_group_bytes // max(widest, 1))

    @property
    def lookup_columns(self) -> Collection[str]:
        return tuple(self._filtered.names)

    def find_touched_groups(self, metadata: pq.FileMetaData) -> Sequence[bool]:
        skipping = Skipping(self.change.predicate, self._readable)
        bounds, rows, _ = row_group_bounds([metadata], skipping.paths, skipping.table)
        touched: list[bool] = may_match(skipping.predicate, bounds, rows).tolist()
        return touched

    def find(self, batch: pa.RecordBatch) -> pa.Array | None:
        """Return for each row whether it matches the condition; None if none does."""
        hit = mask(self.change.predicate, convert_for_readers(batch, self.bucket, self._filtered))
        flags = pa.array(np.asarray(hit))
        return flags if flags.true_count else None

    def needed_columns(self, found: pa.Array) -> Collection[str] | None:
        """Return the columns that change, if the new values are literals; no column, if all rows are deleted."""
        if not self.change.assignments:
            return () if found.true_count == len(found) else None
        if len(found) > self._most_rows or not all(assignment.is_literal for assignment in self.change.assignments):
            return None
        return {COMMIT_TIME, COMMIT_SEQNO, *(assignment.field.name for assignment in self.change.assignments)}

    def apply(self, batch: pa.RecordBatch, found: pa.Array | None) -> Iterator[pa.Table]:
        if found is None:
            yield pa.Table.from_batches([batch])
            return
        for start in range(0, batch.num_rows, self._most_rows):
            yield self._apply_part(batch.slice(start, self._most_rows), found.slice(start, self._most_rows))

    def _apply_part(self, batch: pa.RecordBatch, matches: pa.Array) -> pa.Table:
        table = pa.Table.from_batches([batch])
        hit = np.asarray(matches)
        count = int(hit.sum())
        if not count:
            return table
        if not self.change.assignments:
            self.deletes += count
            return drop_rows(table, hit)
        columns = {COMMIT_SEQNO: make_seqnos(self.settings.instant_time, self.task, self.updates, count)}
        self.updates += count
        rows = convert_for_readers(batch.filter(pa.array(hit)), self.bucket, self._readable)
        columns.update({assignment.field.name: assignment.values(rows) for assignment in self.change.assignments})
        return replace_rows(table, hit, pa.table(columns), self.settings.instant_time)

    def emit_inserts(self) -> Iterator[pa.Table]:
        return iter(())
