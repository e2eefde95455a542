"""Log files that tasks have appended are published: nothing passes through the process that does it but their names."""

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
    """What tasks must know to append by themselves; None where they may not.

    Raises:
        InvalidOptionError, UnsupportedTableError, CorruptTableError: the table is none of these buckets.
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
    """Move the tasks' files into their partitions and publish them. Call it under the lock; the caller undoes.

    Args:
        schema: the table's columns as tasks wrote them.
        places: what the tasks were told.
        arrived: rows of the input.

    Raises:
        WriteConflictError: another writer was in the way; a retry is safe.
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
    for one in (file.stat for file in written):
        is_new = one.prev_commit == instant_time
        entry = WriteStat(
            "" if is_new else one.file_id,
            "",
            one.partition_path,
            None if is_new else one.prev_commit,
            0,
            num_updates=one.num_updates,
            num_inserts=one.num_inserts,
        )
        stats.setdefault(one.partition_path, []).append(entry)
    return CommitMetadata(job.operation.name, {path: tuple(entries) for path, entries in stats.items()})
