"""Last looks before a commit is published: what others have added meanwhile that file groups do not tell."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor

import pyarrow as pa

from lakeformat.errors import WriteConflictError
from lakeformat.index.bucket import bucket_of
from lakeformat.index.tagging import TagSettings, tag_files
from lakeformat.model.commit import CommitMetadata
from lakeformat.model.files import BaseFile, BaseFileName
from lakeformat.model.record import RECORD_KEY
from lakeformat.storage.port import Storage
from lakeformat.write.job import Operation, WriteJob
from lakeformat.write.profile import BucketPlan

__all__ = ["late_check"]

#: Told of the commits completed since the write began, by instant time; raises `WriteConflictError`.
LateCheck = Callable[[Sequence[tuple[str, CommitMetadata]]], None]


def late_check(storage: Storage, job: WriteJob, plan: BucketPlan) -> LateCheck | None:
    """What this write must not share with another one, beside the file groups it merges into; None for nothing."""
    if job.index_settings.has_buckets:
        return _bucket_check(plan)
    if not job.tags or job.operation is Operation.DELETE:
        return None
    return _new_key_check(storage, plan, anywhere=job.prepare.whole)


def _bucket_check(plan: BucketPlan) -> LateCheck:
    """Two writers may open the same bucket (Hudi: ``BucketIndexConcurrentFileWritesConflictResolutionStrategy``)."""
    opened = {(b.partition_path, bucket_of(b.file_id)): b.file_id for b in plan.buckets if b.base is None}

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


def _new_key_check(storage: Storage, plan: BucketPlan, *, anywhere: bool) -> LateCheck:
    """A check of our new keys against what others wrote meanwhile.

    Two writers may insert one new key into different files; Hudi does not look, we do.

    Args:
        anywhere: the key alone identifies a row, so that files of all partitions count.
    """

    def check(others: Sequence[tuple[str, CommitMetadata]]) -> None:
        for time, metadata in others:
            for path, new in plan.new.items():
                stats = metadata.all_stats() if anywhere else metadata.stats.get(path, ())
                files = [
                    BaseFile(s.partition_path, BaseFileName.parse(s.path.rpartition("/")[2]), s.size_bytes)
                    for s in stats
                    if s.path and s.num_writes
                ]
                keys = plan.rows[path].column(RECORD_KEY).take(pa.array(new))
                with ThreadPoolExecutor(1) as pool:
                    found = tag_files(storage, files, keys, TagSettings("SIMPLE"), pool)
                if len(found.keys):
                    raise WriteConflictError(
                        f"commit {time} inserted {len(found.keys)} of the same new keys, e.g. "
                        f"{keys[int(found.keys[0])].as_py()!r}; run the write again, it will start from {time}"
                    )

    return check
