"""The commit of log files that tasks have appended themselves. The committing process sees only the files' names."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from lakeformat.index.bucket import BucketIndex
from lakeformat.model.commit import CommitMetadata, WriteStat
from lakeformat.model.files import FileGroupId
from lakeformat.storage.port import Storage
from lakeformat.table_state.snapshot import Snapshot
from lakeformat.transaction.commit import OpenCommit
from lakeformat.transaction.result import WriteResult
from lakeformat.transaction.written import Written
from lakeformat.write.decide.job import WriteJob
from lakeformat.write.make.bucket_appends import BucketPlaces, check_places, may_append_in_tasks
from lakeformat.write.place.new_key_check import bucket_check
from lakeformat.write.place.profile import appending_of, check_opened
from lakeformat.write.session import WriteSession

__all__ = ["bucket_places", "publish_appended"]


def bucket_places(storage: Storage, job: WriteJob, snapshot: Snapshot) -> BucketPlaces | None:
    """Return what tasks need to append rows on their own; None if they may not.

    Raises:
        InvalidOptionError, UnsupportedTableError, CorruptTableError: if the table's files do not match the bucket
            index.
    """
    appending = appending_of(storage, job, snapshot)
    if not may_append_in_tasks(job, snapshot, appending):
        return None
    return BucketPlaces.of(snapshot, appending, BucketIndex(job.index_settings).rule(storage, snapshot))


def publish_appended(
    session: WriteSession,
    commit: OpenCommit,
    schema: pa.Schema,
    places: BucketPlaces,
    written: Sequence[Written],
    arrived: int,
) -> WriteResult:
    """Move the tasks' files into their partitions and publish them (steps 5 and 7).

    Call this under the lock. If it fails, the caller rolls back the commit.

    Args:
        schema: the columns that the tasks wrote.
        places: the places that the tasks were given.
        arrived: number of input rows.

    Raises:
        WriteConflictError: if another writer interfered. A retry is safe.
    """
    job, snapshot = session.job, session.engine.snapshot()
    session.transaction.report.rows["incoming"] = arrived
    if not session.engine.store.layout.tells_completion:
        appending = appending_of(session.storage, job, snapshot)
        check_places(written, places, BucketPlaces.of(snapshot, appending, places.rule))
    opened = [file for file in written if file.stat.prev_commit == commit.time]
    check_opened(session.storage, snapshot, (), opened)
    commit = session.transaction.inflight(commit, _profile(job, written, commit.time), snapshot)
    groups = {FileGroupId(file.stat.partition_path, file.stat.file_id) for file in opened}
    return session.publish_written(commit, schema, written, snapshot, (), bucket_check(groups))


def _profile(job: WriteJob, written: Sequence[Written], instant_time: str) -> CommitMetadata:
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
