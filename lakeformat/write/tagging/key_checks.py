"""Checks whether new keys are also in other commits, before publishing (step 7), or in other partitions (step 8).

Before publishing, the checks look for keys or buckets that another commit has added since the write began. The conflict
check by file groups does not find them, because the other commit uses other file groups.

After the commit, an upsert logs a warning if it has inserted a key that is also in another partition. Without a global
index, a key identifies a row only within its partition, so this is not an error. But it often is a mistake: the user
expects that the upsert replaces the row in the other partition. A complete search would read all files of the table.
So only two cheap searches are made: among the new keys of the input and, if the table has few and small files, in these
files.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import Final

import numpy as np
import pyarrow as pa

from lakeformat.concurrency import thread_pool
from lakeformat.errors import LakeformatError, WriteConflictError
from lakeformat.file_system_view.snapshot import Snapshot
from lakeformat.files.stored_shape import StoredShape
from lakeformat.index.bucket import bucket_of
from lakeformat.index.stored_keys import match_keys, read_keys, read_logged_keys
from lakeformat.index.tagging import TagSettings, tag_files
from lakeformat.merge.order import key_codes
from lakeformat.model.commit import CommitMetadata, WriteStat
from lakeformat.model.files import FileGroupId, LogFile, LogFileName
from lakeformat.model.operation import Operation
from lakeformat.model.record import RECORD_KEY
from lakeformat.storage.port import Storage
from lakeformat.transaction.order.conflict import OverlapError
from lakeformat.transaction.order.outcome import NewKeyCheck
from lakeformat.transaction.order.written_file import WrittenFile
from lakeformat.write.plan.job import WriteJob
from lakeformat.write.workload.buckets import Bucket, may_append_beside
from lakeformat.write.workload.profile import BucketPlan

__all__ = [
    "join_checks",
    "list_appended_groups",
    "make_append_check",
    "make_bucket_check",
    "make_commit_check",
    "make_new_file_check",
    "warn_of_moved_keys",
]


def join_checks(checks: Sequence[NewKeyCheck]) -> NewKeyCheck | None:
    """Return a function that runs all checks; None if there are none."""
    if not checks:
        return None

    def check(others: Sequence[tuple[str, CommitMetadata]]) -> None:
        for run_check in checks:
            run_check(others)

    return check


def make_commit_check(storage: Storage, job: WriteJob, plan: BucketPlan) -> NewKeyCheck | None:
    """Return a function that raises `WriteConflictError` if another commit has added the same keys or buckets.

    Return None if the write needs no check.
    """
    if job.index_settings.has_buckets:
        opened = (FileGroupId(b.partition_path, b.file_id) for b in plan.buckets if b.opened_at is None)
        return make_bucket_check(opened, job)
    if not job.needs_tagging or job.operation is Operation.DELETE:
        return None
    return _make_new_key_check(storage, plan, job)


def make_bucket_check(opened_groups: Iterable[FileGroupId], job: WriteJob) -> NewKeyCheck:
    """Return a function that raises `WriteConflictError` if another commit has opened one of the same buckets.

    The buckets are those of ``opened_groups``, the file groups that this write opens. If writers do not block each
    other, the other commit may open the same file group, because both ids are fixed
    (`lakeformat.index.bucket.FIXED_FILE_ID`). Under consistent hashing all ids are fixed.

    Source: Hudi's ``BucketIndexConcurrentFileWritesConflictResolutionStrategy``.
    """
    if job.index_settings.is_consistent:
        is_free = job.options.lock.is_non_blocking and may_append_beside(job)
        return _make_group_check(frozenset() if is_free else frozenset(opened_groups))
    opened = {(group.partition_path, bucket_of(group.file_id)): group.file_id for group in opened_groups}

    def check(others: Sequence[tuple[str, CommitMetadata]]) -> None:
        for time, metadata in others:
            for stat in metadata.all_stats():
                ours = opened.get((stat.partition_path, bucket_of(stat.file_id)))
                if ours is not None and ours != stat.file_id:
                    raise WriteConflictError(
                        f"commit {time} opened the same bucket, with file group {stat.file_id} where ours is {ours}; "
                        f"run the write again, it will start from {time}"
                    )

    return check


def _make_group_check(opened: frozenset[FileGroupId]) -> NewKeyCheck:
    """Return a function that raises `WriteConflictError` if another commit has written to one of these file groups."""

    def check(others: Sequence[tuple[str, CommitMetadata]]) -> None:
        for time, metadata in others:
            for stat in metadata.all_stats():
                if stat.group in opened:
                    raise WriteConflictError(
                        f"commit {time} opened the same bucket, file group {stat.file_id}; run the write again, it "
                        f"will start from {time}"
                    )

    return check


def list_appended_groups(job: WriteJob, buckets: Iterable[Bucket]) -> frozenset[FileGroupId]:
    """Return the file groups to which a write may append although other writers append to them at the same time.

    These are groups of a bucket index whose stored rows the write does not read (Hudi: ``NON_BLOCKING_CONCURRENCY_
    CONTROL``). Readers merge the log files of a group by key. In timeline layout 1 there are none, because there two
    writers would use the same version number. A duplicate policy reads the stored keys, so there are none, either.
    """
    if not may_append_beside(job) or job.dup_policy != "none":
        return frozenset()
    return frozenset(
        FileGroupId(bucket.partition_path, bucket.file_id)
        for bucket in buckets
        if bucket.opened_at is not None and bucket.log_place is not None and bucket.log_place.merging is None
    )


def make_append_check(appended: frozenset[FileGroupId], job: WriteJob, instant_time: str) -> NewKeyCheck:
    """Return a function that raises `OverlapError` if another commit has done more than appending rows to these groups.

    Appends conflict only if readers take the last version of a row, and would take that of the other commit for the
    last one, because its instant is greater.

    Args:
        appended: the file groups to which this write appends (`list_appended_groups`).
        instant_time: this write's instant.
    """
    is_ordered = job.config.orders_versions

    def check(others: Sequence[tuple[str, CommitMetadata]]) -> None:
        for time, metadata in others:
            changed = {*metadata.replaced_groups}
            for stat in metadata.all_stats():
                is_append = _log_file_of(stat) is not None and not stat.num_deletes
                if not is_append or (time > instant_time and not is_ordered):
                    changed.add(stat.group)
            if shared := changed & appended:
                raise OverlapError(
                    f"commit {instant_time} overlaps commit {time} in {len(shared)} file group(s), e.g. "
                    f"{min(shared).file_id}; run the write again, it will start from {time}",
                    file_ids={group.file_id for group in shared},
                )

    return check


def _make_new_key_check(storage: Storage, plan: BucketPlan, job: WriteJob) -> NewKeyCheck:
    """Return a function that raises `WriteConflictError` if another commit inserted one of this write's new keys.

    If two writers insert the same new key into different files, the table holds the key twice. Hudi does not check
    this; lakeformat does. If the key alone identifies a row, files of all partitions are checked.
    """
    is_global = job.prepare.is_global

    def check(others: Sequence[tuple[str, CommitMetadata]]) -> None:
        for time, metadata in others:
            for path, new in plan.new.items():
                stats = metadata.all_stats() if is_global else metadata.stats.get(path, ())
                keys = plan.rows[path].column(RECORD_KEY).take(pa.array(new))
                _refuse_shared_keys(storage, keys, time, stats, job.shape)

    return check


def make_new_file_check(storage: Storage, written: Sequence[WrittenFile], job: WriteJob) -> NewKeyCheck:
    """Return a function that raises `WriteConflictError` if another commit inserted a key of these new files.

    The function reads the keys from the files, so it cannot distinguish inserted from updated keys. If a key was in two
    file groups before, and each commit has updated it in one of them, this counts as a conflict, too. That is rare, and
    running the write again is always correct. If the key alone identifies a row, files of all partitions are checked.
    Memory: the keys of one file.
    """
    is_global = job.prepare.is_global

    def check(others: Sequence[tuple[str, CommitMetadata]]) -> None:
        new_stats = (file.stat for file in written if file.stat.num_inserts and not _log_file_of(file.stat))
        for file in (stat.base_file for stat in new_stats):
            path = file.partition_path
            other_commits = [
                (time, [*metadata.all_stats()] if is_global else metadata.stats.get(path, ()))
                for time, metadata in others
                if is_global or path in metadata.stats
            ]
            if other_commits:
                keys = read_keys(storage, file, shape=job.shape).keys
                for time, stats in other_commits:
                    _refuse_shared_keys(storage, keys, time, stats, job.shape)

    return check


def _refuse_shared_keys(
    storage: Storage, keys: pa.ChunkedArray, time: str, stats: Iterable[WriteStat], shape: StoredShape
) -> None:
    """Raise `WriteConflictError` if a file of the other commit ``time`` holds one of this write's keys."""
    written = [stat for stat in stats if stat.path and stat.num_writes]
    files = [stat.base_file for stat in written if not _log_file_of(stat)]
    with thread_pool(1) as pool:
        shared = tag_files(storage, files, keys, TagSettings("SIMPLE", shape=shape), pool).keys
    if not len(shared):
        logs = [log for stat in written if stat.num_inserts and (log := _log_file_of(stat))]
        shared = np.concatenate(
            [np.empty(0, np.int64), *match_keys([read_logged_keys(storage, log, shape) for log in logs], keys)]
        )
    if len(shared):
        raise WriteConflictError(
            f"commit {time} inserted {len(shared)} of the same new keys, e.g. "
            f"{keys[int(shared[0])].as_py()!r}; run the write again, it will start from {time}"
        )


def _log_file_of(stat: WriteStat) -> LogFile | None:
    """Return the log file that a write stat describes; None if it describes a base file."""
    name = LogFileName.match(stat.path.rpartition("/")[2])
    return LogFile(stat.partition_path, name, stat.size_bytes) if name is not None else None


_LOG: Final = logging.getLogger("lakeformat.write")
#: Maximum number and maximum total bytes of a table's live file slices. In a larger table, new keys are not searched
#: for in the files of other partitions.
_FILES, _BYTES = 32, 64 << 20
#: Maximum number of a partition's new keys that are searched for in the files of other partitions.
_KEYS: Final = 1_000
#: If an input has more new keys than this, it is not searched for keys that occur in two of its partitions.
_BATCH_KEYS: Final = 100_000
#: For each table location, the number of this process's writes whose new keys were searched for in other partitions.
_CHECK_COUNTS: Final[dict[str, int]] = {}
#: Maximum number of writes per table whose new keys are searched for in other partitions.
_MAX_CHECKS: Final = 10
_MAX_TABLES: Final = 10_000


def warn_of_moved_keys(storage: Storage, job: WriteJob, plan: BucketPlan, snapshot: Snapshot) -> None:
    """Warn, once per process and table, if a new key of an upsert is also in another partition.

    Args:
        snapshot: the table before the write.
    """
    is_checked = job.operation is Operation.UPSERT and job.index_settings.type.warns_of_moved_keys
    if not is_checked or not job.config.partition_fields or not any(len(new) for new in plan.new.values()):
        return
    checks = _CHECK_COUNTS.get(storage.location, 0)
    if checks >= _MAX_CHECKS:
        return
    if len(_CHECK_COUNTS) >= _MAX_TABLES:
        _CHECK_COUNTS.clear()
    _CHECK_COUNTS[storage.location] = checks + 1
    with suppress(LakeformatError, OSError):  # The commit is complete, so an error here must not fail it.
        moved = _find_moved_key_in_batch(plan) or _find_moved_key_in_files(storage, plan, snapshot)
        if moved is not None:
            _CHECK_COUNTS[storage.location] = _MAX_CHECKS
            key, here, there = moved
            _LOG.warning(
                "table %s: the upsert put key %r into partition %r, and partition %r has a row of that key, too: "
                "without a global index a key names a row within its partition; delete the other row, or upsert with "
                "hoodie.index.type=GLOBAL_BLOOM, which moves rows",
                storage.location,
                key,
                here,
                there,
            )


def _find_moved_key_in_batch(plan: BucketPlan) -> tuple[str, str, str] | None:
    """Find a new key that the input has in two partitions. Return the key and both partition paths, or None."""
    paths = [path for path, new in plan.new.items() if len(new)]
    if len(paths) < 2 or sum(len(plan.new[path]) for path in paths) > _BATCH_KEYS:
        return None
    columns = [plan.rows[path].column(RECORD_KEY).take(pa.array(plan.new[path])) for path in paths]
    keys = pa.chunked_array([chunk for column in columns for chunk in column.chunks], pa.string())
    owners = np.repeat(np.arange(len(paths)), [len(column) for column in columns])
    codes = key_codes(keys)
    if codes is None:
        return None
    least, most = np.full(len(codes), len(paths)), np.full(len(codes), -1)
    np.minimum.at(least, codes, owners)
    np.maximum.at(most, codes, owners)
    shared = np.flatnonzero(least[codes] < most[codes])
    if not len(shared):
        return None
    code = codes[shared[0]]
    return str(keys[int(shared[0])].as_py()), paths[most[code]], paths[least[code]]


def _find_moved_key_in_files(storage: Storage, plan: BucketPlan, snapshot: Snapshot) -> tuple[str, str, str] | None:
    """Find a new key that is in a base file of another partition. Return the key and both partition paths, or None."""
    if snapshot.live.count > _FILES or snapshot.live.size_bytes > _BYTES:
        return None
    bases = [piece.base for piece in snapshot.each_slice() if piece.base is not None]
    for path, new in plan.new.items():
        others = [base for base in bases if base.partition_path != path]
        if not len(new) or not others:
            continue
        keys = plan.rows[path].column(RECORD_KEY).take(pa.array(new[:_KEYS]))
        with thread_pool(2) as pool:
            tagged = tag_files(storage, others, keys, TagSettings(exact=True, shape=snapshot.key_shape), pool)
        if len(tagged.keys):
            return str(keys[int(tagged.keys[0])].as_py()), path, others[int(tagged.files[0])].partition_path
    return None
