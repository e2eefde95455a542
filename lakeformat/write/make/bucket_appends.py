"""Appending to buckets in tasks: a hash gives the file group, so rows are neither shuffled nor looked up.

When the write begins, the driver makes one value with all that a task must know: the slices of the buckets, and the
places of their next log files. Several tasks may append to one bucket. Each task writes its own file, and readers read
these files in the order of the tasks' numbers, which are part of the files' names.

Memory: the write buffer, and what `append` needs for one bucket's rows.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from lakeformat.codec.java_hash import FieldRule
from lakeformat.errors import WriteConflictError
from lakeformat.index.bucket import bucket_file_id, bucket_ids, bucket_of
from lakeformat.model.operation import Operation
from lakeformat.model.record import RECORD_KEY
from lakeformat.storage.port import Storage
from lakeformat.table_state.snapshot import Snapshot
from lakeformat.transaction.written import Written, stage_folder
from lakeformat.write.decide.job import WriteJob
from lakeformat.write.make.append import append
from lakeformat.write.make.handles import HandleSettings
from lakeformat.write.place.appends import Appending
from lakeformat.write.place.buckets import Bucket, LogPlace, derive_file_id
from lakeformat.write.rows.prepare import combine, prepare

__all__ = ["BucketPlaces", "append_in_task", "check_places", "may_append_in_tasks", "task_folder"]


@dataclass(frozen=True)
class BucketPlaces:
    """The places where the rows of each bucket are appended. Picklable.

    Attributes:
        groups: (partition path, bucket) -> (file id, place) of existing buckets.
        rule: how keys are hashed.
    """

    groups: Mapping[tuple[str, int], tuple[str, LogPlace]]
    rule: FieldRule

    @classmethod
    def of(cls, snapshot: Snapshot, appending: Appending, rule: FieldRule) -> BucketPlaces:
        """Return the places of a table with a bucket index."""
        groups = {
            (piece.group.partition_path, bucket_of(piece.group.file_id) or 0): (
                piece.group.file_id,
                replace(appending.place(piece), merging=None, deleting=()),
            )
            for piece in snapshot.each_slice()
        }
        return cls(groups, rule)


def may_append_in_tasks(job: WriteJob, snapshot: Snapshot, appending: Appending) -> bool:
    """Tell whether tasks may append without reading stored rows or the rows of other tasks."""
    rule, prepare_settings = job.rule, job.prepare
    if not appending.opens_logs or job.dup_policy != "none" or prepare_settings.search_all:
        return False
    if appending.looks or rule.fills_nulls or prepare_settings.keys.generated:
        return False
    # An old version may outlive its delete, so a write that brings a newer version must read stored rows.
    return job.operation is Operation.DELETE or not any(
        appending.place(piece).deleting for piece in snapshot.each_slice()
    )


def append_in_task(
    storage: Storage,
    job: WriteJob,
    handles: HandleSettings,
    places: BucketPlaces,
    batches: Iterable[pa.RecordBatch],
    task: int,
    attempt: int,
) -> tuple[int, tuple[Written, ...]]:
    """Write rows to log files in the handles' folder. Return the number of rows taken, and the files.

    Args:
        task: the task's number; rows of a task with a higher number are later rows.
        attempt: a number that no other attempt has.
    """
    arrived, written = 0, list[Written]()
    for round_number, rows in enumerate(_in_buffers(batches, job.options.write.buffer_bytes)):
        arrived += rows.num_rows
        named = replace(handles, write_token=f"{task:010d}-{round_number:06d}-{attempt}")
        for path, part in prepare(rows, job.prepare).items():
            combined_rows = combine(part, job.rule) if job.combine else part
            for bucket, place in _buckets(path, combined_rows, places, job):
                log_file = append(storage, bucket, place, combined_rows, task, named)
                written += [log_file] if log_file is not None else []
    return arrived, tuple(written)


def _in_buffers(batches: Iterable[pa.RecordBatch], most_bytes: int) -> Iterator[pa.Table]:
    """Yield the batches as tables of about ``most_bytes``."""
    waiting: list[pa.RecordBatch] = []
    size = 0
    for batch in batches:
        waiting.append(batch)
        size += batch.nbytes
        if size >= most_bytes:
            yield pa.Table.from_batches(waiting)
            waiting, size = [], 0
    if waiting:
        yield pa.Table.from_batches(waiting)


def _buckets(path: str, rows: pa.Table, places: BucketPlaces, job: WriteJob) -> Iterator[tuple[Bucket, LogPlace]]:
    settings = job.index_settings
    numbers = bucket_ids(rows.column(RECORD_KEY), settings.hash_fields, settings.buckets, places.rule)
    order = np.argsort(numbers, kind="stable")
    for at in np.split(order, np.flatnonzero(np.diff(numbers[order])) + 1):
        if not len(at):
            continue
        number = int(numbers[at[0]])
        known = places.groups.get((path, number))
        opened = bucket_file_id(number, derive_file_id(f"{job.write_id}/{path}", -2, number))
        file_id, place = known or (opened, LogPlace())
        base = place.piece.base if place.piece is not None else None
        yield Bucket(path, file_id, base, at, len(at) if known else 0, onto=place), place


def check_places(written: Iterable[Written], then: BucketPlaces, now: BucketPlaces) -> None:
    """Refuse to publish log files whose slice has been closed since the write began, by a compaction planned meanwhile.

    Raises:
        WriteConflictError: if a slice was closed. A retry starts from the table's state at that time.
    """
    for stat in (file.stat for file in written):
        key = (stat.partition_path, bucket_of(stat.file_id) or 0)
        before, after = then.groups.get(key), now.groups.get(key)
        if (before and _version_of(before[1])) != (after and _version_of(after[1])):
            raise WriteConflictError(
                f"file group {stat.file_id} has another slice since the write began; run the write again"
            )


def _version_of(place: LogPlace) -> tuple[str | None, int]:
    return place.named_after, place.version


def task_folder(job: WriteJob) -> str:
    """Return the folder for the tasks' log files. It is deleted with the files of lost attempts."""
    return f"{stage_folder(job.write_id)}/files"
