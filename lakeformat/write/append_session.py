"""The driver's side of a write whose tasks append to log files themselves, in a bucket index of a merge-on-read table.

The driver gets only the names and statistics of the log files, and commits them. Memory: one record per log file, and
the table's listing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pyarrow as pa

from lakeformat.concurrency import Attempts
from lakeformat.errors import WriteConflictError
from lakeformat.file_system_view.snapshot import Snapshot
from lakeformat.index.factory import make_hash_index
from lakeformat.model.commit import CommitMetadata, WriteStat
from lakeformat.model.files import FileGroupId, LogFileName, join_path
from lakeformat.model.instant import State
from lakeformat.model.operation import Operation
from lakeformat.model.record import IS_DELETED
from lakeformat.storage.port import Storage
from lakeformat.timeline.store import TimelineStore
from lakeformat.transaction.commit.completed_file import OpenCommit
from lakeformat.transaction.commit.publish import BatchWrittenError
from lakeformat.transaction.commit.result import WriteResult
from lakeformat.transaction.order.conflict import is_stuck
from lakeformat.transaction.order.outcome import Outcome
from lakeformat.transaction.order.written_file import WrittenFile
from lakeformat.write.handles.bucket_tasks import BucketPlaces, may_append_in_tasks
from lakeformat.write.plan.job import WriteJob
from lakeformat.write.session import WriteSession
from lakeformat.write.tagging.key_checks import (
    join_checks,
    make_append_check,
    make_bucket_check,
)
from lakeformat.write.tagging.steps import check_new_partitions
from lakeformat.write.workload.buckets import (
    log_name,
    may_append_beside,
)
from lakeformat.write.workload.profile import make_append_rules

__all__ = ["find_bucket_places", "publish_appended"]


def find_bucket_places(storage: Storage, job: WriteJob, snapshot: Snapshot) -> BucketPlaces | None:
    """Return the log files to which tasks may append each bucket's rows without a shuffle; None if they may not.

    Raises:
        InvalidOptionError, UnsupportedTableError, CorruptTableError: if the table's files do not match the bucket
            index.
    """
    append_rules = make_append_rules(job, snapshot, TimelineStore(storage).read_compaction_groups(snapshot.timeline))
    if not may_append_in_tasks(job, snapshot, append_rules):
        return None
    return BucketPlaces.of(snapshot, append_rules, make_hash_index(job.index_settings).hash(storage, snapshot))


def publish_appended(
    session: WriteSession,
    commit: OpenCommit,
    schema: pa.Schema,
    places: BucketPlaces,
    written: Sequence[WrittenFile],
    input_rows: int,
) -> WriteResult:
    """Publish the log files that tasks have written: move them into their partitions and complete the commit.

    If it fails, the caller rolls back the commit. A log file belongs to its file group only by its name. So if other
    writers have added file slices or opened buckets meanwhile, the log files are renamed, and no row is written again.

    Args:
        schema: the columns that the tasks wrote.
        places: the log files that the driver gave the tasks for each bucket.
        input_rows: number of input rows.

    Raises:
        WriteConflictError: if another writer interfered. A retry is safe.
    """
    job, transaction = session.job, session.transaction
    transaction.report.rows["incoming"] = input_rows
    attempts = Attempts(job.options.patience, session.context.ids.token)
    while True:
        snapshot = session.context.snapshot()
        job.check_unaltered(snapshot)
        written = _move_to_places(session, written, places, snapshot, commit)
        opened = [file for file in written if file.stat.prev_commit == commit.time]
        check_new_partitions(session.storage, snapshot, (), opened)
        if commit.instant.state is State.REQUESTED:
            commit = transaction.move_to_inflight(commit, _profile(job, written, commit.time), snapshot)
        commit = replace(commit, known=snapshot.timeline.commit_times)
        written = session.place_files(commit, written)
        groups = {FileGroupId(file.stat.partition_path, file.stat.file_id) for file in opened}
        kept = {FileGroupId(file.stat.partition_path, file.stat.file_id) for file in written} - groups
        appended = frozenset(kept) if may_append_beside(job) else frozenset()
        check = join_checks([make_bucket_check(groups, job), make_append_check(appended, job, commit.time)])
        try:
            transaction.publish(
                commit,
                Outcome(schema=schema, written=written, snapshot=snapshot, appended=appended, check_new_keys=check),
            )
            break
        except BatchWrittenError as error:
            return transaction.skip_published_batch(commit, snapshot, error)
        except WriteConflictError as error:
            if not attempts.wait(error, is_stuck=is_stuck(error)):
                raise
    return transaction.close(commit)


def _move_to_places(
    session: WriteSession, written: Sequence[WrittenFile], planned: BucketPlaces, snapshot: Snapshot, commit: OpenCommit
) -> list[WrittenFile]:
    """Return the log files with the names and write stats that they must have in the buckets' present file slices.

    Raises:
        WriteConflictError: a file may not be appended to its slice, because its rows were written for another state.
    """
    job, compacting = session.job, session.context.store.read_compaction_groups(snapshot.timeline)
    rules = make_append_rules(job, snapshot, compacting)
    current = BucketPlaces.of(snapshot, rules, planned.hashing)
    # A task drops the deletes of a new bucket. It also does not see that log files have deleted rows.
    takes_deletes = job.operation is Operation.DELETE or IS_DELETED in job.prepare.prepared_schema.names
    deleting = {
        (piece.group.partition_path, piece.group.file_id)
        for piece in (snapshot.each_slice() if job.operation is not Operation.DELETE else ())
        if rules.place(piece).deleting_logs
    }
    moved: list[WrittenFile] = []
    for file in written:
        stat, name = file.stat, LogFileName.match(file.stat.path.rpartition("/")[2])
        key = planned.key_of(stat)
        before, now = planned.groups.get(key), current.groups.get(key)
        if now is None and before is None:
            moved.append(file)
            continue
        # In timeline layout 1 readers skip blocks that are older than the slice in the log file's name.
        is_too_new = now is not None and (now[1].named_after or "") > commit.time
        is_changed = is_too_new or (before is None and takes_deletes)
        if now is None or name is None or is_changed or (stat.partition_path, now[0]) in deleting:
            raise WriteConflictError(
                f"other writers have changed file group {stat.file_id} since the write began; run the write again"
            )
        file_id, place = now
        new = str(log_name(place, file_id, commit.time, name.write_token or ""))
        stat = replace(
            stat,
            file_id=file_id,
            path=join_path(stat.partition_path, new),
            prev_commit=place.opened_at or commit.time,
            base_name=place.base_name,
            log_names=(*place.log_names, new),
        )
        moved.append(replace(file, stat=stat))
    return moved


def _profile(job: WriteJob, written: Sequence[WrittenFile], instant_time: str) -> CommitMetadata:
    stats: dict[str, list[WriteStat]] = {}
    for stat in (file.stat for file in written):
        is_new = stat.prev_commit == instant_time
        entry = WriteStat(
            "" if is_new else stat.file_id,
            "",
            stat.partition_path,
            None if is_new else stat.prev_commit,
            0,
            num_updates=stat.num_updates,
            num_inserts=stat.num_inserts,
        )
        stats.setdefault(stat.partition_path, []).append(entry)
    return CommitMetadata(job.operation.name, {path: tuple(entries) for path, entries in stats.items()})
