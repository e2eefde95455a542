"""Checks right before a commit is published: keys or buckets that another commit has added since the write began.

The conflict check by file groups does not see them, because the other commit uses other file groups.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pyarrow as pa

from lakeformat.errors import WriteConflictError
from lakeformat.index.bucket import bucket_of
from lakeformat.index.key_columns import matches, read_keys
from lakeformat.index.log_keys import logged_keys
from lakeformat.index.tagging import TagSettings, tag_files
from lakeformat.model.commit import CommitMetadata, WriteStat
from lakeformat.model.files import FileGroupId, LogFile, LogFileName
from lakeformat.model.operation import Operation
from lakeformat.model.record import RECORD_KEY
from lakeformat.storage.port import Storage
from lakeformat.transaction.commit import NewKeyCheck
from lakeformat.transaction.written import Written
from lakeformat.write.decide.job import WriteJob
from lakeformat.write.place.profile import BucketPlan

__all__ = ["bucket_check", "late_check", "new_file_check"]


def late_check(storage: Storage, job: WriteJob, plan: BucketPlan) -> NewKeyCheck | None:
    """Return the check for new keys or buckets that another writer may also have added; None if none is necessary."""
    if job.index_settings.has_buckets:
        return bucket_check(FileGroupId(b.partition_path, b.file_id) for b in plan.buckets if b.changes is None)
    if not job.tags or job.operation is Operation.DELETE:
        return None
    return _new_key_check(storage, plan, anywhere=job.prepare.whole)


def bucket_check(opened_groups: Iterable[FileGroupId]) -> NewKeyCheck:
    """Return a check that no other commit opened one of these buckets.

    Source: Hudi's ``BucketIndexConcurrentFileWritesConflictResolutionStrategy``.
    """
    opened = {(group.partition_path, bucket_of(group.file_id)): group.file_id for group in opened_groups}

    def check(others: Sequence[tuple[str, CommitMetadata]]) -> None:
        for time, metadata in others:
            for stat in metadata.all_stats():
                ours = opened.get((stat.partition_path, bucket_of(stat.file_id)))
                if ours is not None:
                    raise WriteConflictError(
                        f"commit {time} opened the same bucket, with file group {stat.file_id} where ours is {ours}; "
                        f"run the write again, it will start from {time}"
                    )

    return check


def _new_key_check(storage: Storage, plan: BucketPlan, *, anywhere: bool) -> NewKeyCheck:
    """Return a check that no other commit inserted one of this write's new keys.

    Two writers may insert the same new key into different files. Hudi does not check this; lakeformat does.

    Args:
        anywhere: whether the key alone identifies a row, so that files of all partitions are checked.
    """

    def check(others: Sequence[tuple[str, CommitMetadata]]) -> None:
        for time, metadata in others:
            for path, new in plan.new.items():
                stats = metadata.all_stats() if anywhere else metadata.stats.get(path, ())
                keys = plan.rows[path].column(RECORD_KEY).take(pa.array(new))
                _refuse_shared(storage, keys, time, stats)

    return check


def new_file_check(storage: Storage, written: Sequence[Written]) -> NewKeyCheck:
    """Return the check of `_new_key_check` for files that are written already; it reads them one by one.

    Memory: the keys of one written file. A key that was in two file groups before is also taken for a conflict. That is
    rare, and running the write again is always right.
    """

    def check(others: Sequence[tuple[str, CommitMetadata]]) -> None:
        new_stats = (file.stat for file in written if file.stat.num_inserts and not _log_of(file.stat))
        for file in (stat.base_file for stat in new_stats):
            path = file.partition_path
            other_commits = [(time, metadata.stats[path]) for time, metadata in others if path in metadata.stats]
            if other_commits:
                keys = read_keys(storage, file).keys
                for time, stats in other_commits:
                    _refuse_shared(storage, keys, time, stats)

    return check


def _refuse_shared(storage: Storage, keys: pa.ChunkedArray, time: str, stats: Iterable[WriteStat]) -> None:
    """Raise `WriteConflictError` if a file of this commit holds one of our new keys."""
    written = [stat for stat in stats if stat.path and stat.num_writes]
    files = [stat.base_file for stat in written if not _log_of(stat)]
    with ThreadPoolExecutor(1) as pool:
        shared = tag_files(storage, files, keys, TagSettings("SIMPLE"), pool).keys
    if not len(shared):
        logs = [log for stat in written if stat.num_inserts and (log := _log_of(stat))]
        shared = np.concatenate([np.empty(0, np.int64), *matches([logged_keys(storage, log) for log in logs], keys)])
    if len(shared):
        raise WriteConflictError(
            f"commit {time} inserted {len(shared)} of the same new keys, e.g. "
            f"{keys[int(shared[0])].as_py()!r}; run the write again, it will start from {time}"
        )


def _log_of(stat: WriteStat) -> LogFile | None:
    """Return the log file that the statistics describe; None for a base file."""
    name = LogFileName.match(stat.path.rpartition("/")[2])
    return LogFile(stat.partition_path, name, stat.size_bytes) if name is not None else None
