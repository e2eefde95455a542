"""Step 5 of a write: the workload profile and the buckets (Hudi: ``WorkloadProfile``, ``UpsertPartitioner``)."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lakeformat.arrow.gather import gather
from lakeformat.concurrency import thread_pool
from lakeformat.errors import SchemaMismatchError
from lakeformat.file_system_view.live_files import ListedSlices
from lakeformat.file_system_view.snapshot import Snapshot
from lakeformat.files.base_file import FileSettings
from lakeformat.index.port import PartitionBuckets, Tagged
from lakeformat.model.commit import CommitMetadata, WriteStat
from lakeformat.model.files import FileGroupId, FileSlice
from lakeformat.model.operation import Operation
from lakeformat.model.record import IS_DELETED
from lakeformat.timeline.write_report import Report
from lakeformat.transaction.order.written_file import WrittenFile
from lakeformat.write.plan.job import WriteJob
from lakeformat.write.rows.prepare import deleted_rows_of, winning_rows
from lakeformat.write.workload.buckets import (
    AppendRules,
    Bucket,
    FileSizing,
    assign_to_buckets,
    assign_to_files,
    derive_file_id,
    encoded_bytes,
    file_sizing,
    make_bucket_id,
    max_encoded_bytes,
    measure_row_bytes,
)

__all__ = [
    "BucketPlan",
    "assign_buckets",
    "count_false_positives",
    "drop_deletes_of_new_keys",
    "make_append_rules",
    "workload_profile",
]

Ints: TypeAlias = npt.NDArray[np.int64]
T = TypeVar("T")


@dataclass(frozen=True)
class BucketPlan:
    """The buckets of all partitions, with the rows to which they refer by position.

    Attributes:
        rows: for each partition path, the rows to which its buckets refer. If a row was dropped because another row
            has the same key, it is in no bucket.
        new: for each partition path, the positions of the rows whose keys are in no file.
        sizing: for each partition path, the target file sizes by which its inserts were divided.
    """

    rows: Mapping[str, pa.Table]
    buckets: tuple[Bucket, ...]
    new: Mapping[str, np.ndarray]
    sizing: Mapping[str, FileSizing] = field(default_factory=dict)


def assign_buckets(
    job: WriteJob,
    rows: Mapping[str, pa.Table],
    tagged: Mapping[str, Tagged],
    snapshot: Snapshot,
    schema: pa.Schema,
    report: Report,
    *,
    append_rules: AppendRules,
    closed_groups: frozenset[FileGroupId],
) -> BucketPlan:
    """Decide which file group each tagged row goes to.

    Args:
        rows: for each partition path, its rows, one per key if the write combines rows.
        tagged: for each partition path, the locations that the index has found for these rows.
        snapshot: the table's present state.
        schema: the table's columns after this write.
        report: the report to which the counts and seconds of the step are added.
        append_rules: the rules by which rows are appended to slices, or base files are rewritten.
        closed_groups: file groups that a pending clustering will replace; they take no inserts.
    """
    with report.step("profile") as counted:
        placed = {path: drop_deletes_of_new_keys(job, rows[path], own) for path, own in tagged.items()}
        inserts = {path: own.new for path, own in placed.items()}
        files = job.files(schema)

        def size(path: str) -> FileSizing:
            return _sizing(
                job, rows[path], inserts[path], _open_files(job, snapshot, path, closed_groups, append_rules), files
            )

        sizing = _size_in_threads(size, tagged)
        counted["row_bytes"] = round(_mean_row_bytes(sizing, inserts), 1)
        buckets = _buckets(job, placed, snapshot, sizing, closed_groups, append_rules)
        if job.merges_inserts:
            buckets = tuple(_look_up_inserts(job, rows[bucket.partition_path], bucket) for bucket in buckets)
    return BucketPlan(rows, buckets, {path: own.new for path, own in tagged.items()}, sizing)


def _look_up_inserts(job: WriteJob, rows: pa.Table, bucket: Bucket) -> Bucket:
    """Return the bucket of a small file with one insert per key, each of them to be looked up in the file."""
    if bucket.base is None or not bucket.inserts:
        return bucket
    winners = winning_rows(gather(rows, bucket.rows), job.rule)
    chosen = bucket.rows if winners is None else bucket.rows[winners]
    return bucket.with_rows(chosen, chosen[:0], moved_rows=bucket.moved_rows)


def _size_in_threads(size: Callable[[str], FileSizing], paths: Collection[str]) -> Mapping[str, FileSizing]:
    with thread_pool(max(1, pa.cpu_count())) as pool:
        return dict(zip(paths, pool.map(size, paths), strict=True))


def drop_deletes_of_new_keys(job: WriteJob, rows: pa.Table, tagged: Tagged) -> Tagged:
    """Return ``tagged`` without deletes of keys that no file holds, because such deletes write nothing."""
    deleted = np.ones(rows.num_rows, bool) if job.operation is Operation.DELETE else deleted_rows_of(rows)
    return tagged.with_new_keys(~deleted[tagged.new]) if deleted.any() else tagged


def make_append_rules(
    job: WriteJob, snapshot: Snapshot, compacting: Mapping[FileGroupId, str], *, reads_stored: bool = False
) -> AppendRules:
    """Return the rules by which this write appends rows to slices or rewrites base files.

    Args:
        compacting: for each file group in a pending compaction, the compaction's instant.
        reads_stored: whether the write reads stored rows even if its merge rule does not need them.
    """
    if not job.config.takes_logs:
        return AppendRules()
    live = snapshot.live
    return AppendRules(
        takes_logs=True,
        has_buckets=(has_buckets := job.index_settings.has_buckets),
        opens_logs=has_buckets and job.operation.uses_existing_groups,
        by_commit=snapshot.timeline.layout.has_completion_times,
        compaction_instants=compacting,
        reads_stored=reads_stored
        or job.rule.merger is not None
        or job.rule.columns is not None
        or _may_delete_late(job),
        orders_versions=job.config.orders_versions,
        fills_nulls=job.config.merge_settings.partial_update is not None,
        upserting=live.upserting if isinstance(live, ListedSlices) else frozenset(),
        merging_of=snapshot.merge_rules,
    )


def _may_delete_late(job: WriteJob) -> bool:
    """Tell whether the input may hold a delete that readers of log files would let win over a newer row.

    Such readers apply a delete whose ordering value is null or the int 0 to every version, even to a newer one. Under
    Debezium's payload classes before version 9 they apply every delete so.
    """
    columns, ordering = job.prepare.prepared_schema, job.rule.ordering
    if not job.rule.orders_deletes or IS_DELETED not in columns.names:
        return False
    if job.config.merge_settings.by_payload or not set(ordering) <= set(columns.names):
        return True  # A field of a struct is null if its struct is null.
    fields = [columns.field(name) for name in ordering]
    stored_as_int = len(fields) == 1 and fields[0].type in {pa.int32(), pa.date32()}  # It may be 0.
    return stored_as_int or any(field.nullable for field in fields)


def _open_files(
    job: WriteJob, snapshot: Snapshot, path: str, closed_groups: frozenset[FileGroupId], append_rules: AppendRules
) -> tuple[FileSlice, ...]:
    """Return the slices of a partition that may take inserts."""
    slices = snapshot.slices.get(path, ()) if job.uses_existing_groups else ()
    closed_groups |= append_rules.closed_groups(slices)
    return tuple(piece for piece in slices if piece.group not in closed_groups)


def _sizing(
    job: WriteJob, rows: pa.Table, new: np.ndarray, files: Sequence[FileSlice], settings: FileSettings
) -> FileSizing:
    """Return the target file sizes for the inserts of a partition.

    If the inserts surely fit into one file, no rows are encoded to measure them.
    """
    small, most = job.options.write.small_bytes, job.options.write.file_bytes
    smallest = min((file.size_bytes for file in files if file.size_bytes < small), default=0)
    at_most = max_encoded_bytes(rows, len(new), len(settings.schema))
    if not len(new) or smallest + at_most <= most:
        return file_sizing(job.options, max(1.0, at_most / max(len(new), 1)))
    try:
        row_bytes = measure_row_bytes(rows, new, settings)
    except (
        SchemaMismatchError
    ):  # Values of a MERGE's source need not fit the table, so they cannot be encoded. Use half the upper bound.
        row_bytes = at_most / len(new) / 2
    return file_sizing(job.options, row_bytes, encoded_bytes(rows.slice(0, 0), settings))


def _mean_row_bytes(sizing: Mapping[str, FileSizing], inserts: Mapping[str, np.ndarray]) -> float:
    rows = sum(map(len, inserts.values()))
    return sum(sizing[path].row_bytes * len(new) for path, new in inserts.items()) / max(rows, 1)


def _buckets(
    job: WriteJob,
    placed: Mapping[str, Tagged],
    snapshot: Snapshot,
    sizing: Mapping[str, FileSizing],
    closed_groups: frozenset[FileGroupId],
    append_rules: AppendRules,
) -> tuple[Bucket, ...]:
    buckets: list[Bucket] = []
    numbers = iter(range(1 << 62))

    def next_file_id() -> str:
        return derive_file_id(job.write_id, -1, next(numbers))

    for path, own in placed.items():
        slices = snapshot.slices.get(path, ()) if job.uses_existing_groups else ()
        if own.new_buckets is not None and (hashing := own.buckets) is not None:

            def next_bucket_id(bucket: int, hashing: PartitionBuckets = hashing) -> str:
                return make_bucket_id(job, hashing, bucket, next_file_id())

            buckets += assign_to_buckets(path, slices, own, hashing, next_bucket_id, append_rules=append_rules)
        else:
            buckets += assign_to_files(
                path, slices, own, sizing[path], next_file_id, append_rules=append_rules, closed_groups=closed_groups
            )
    return tuple(buckets)


def count_false_positives(job: WriteJob, written: Iterable[WrittenFile]) -> Mapping[str, int]:
    """Return the report's count of false positives: rows that the index located in files without their keys.

    Return an empty mapping if the write looks up no keys, or has a bucket index.
    """
    asks = job.needs_tagging and not job.index_settings.has_buckets
    return {"false_positives": sum(file.unmatched_lookups for file in written)} if asks else {}


def workload_profile(operation: Operation, buckets: Iterable[Bucket], written: Iterable[WriteStat]) -> CommitMetadata:
    """Return the profile that an inflight file holds (Hudi: ``saveWorkloadProfileMetadataToInflight``).

    The profile has one entry per file group to update, and per partition one entry with an empty file id for inserts.

    Args:
        written: the `WriteStat` of each new file that tasks have already written.
    """
    updates: dict[str, list[WriteStat]] = {}
    inserts: dict[str, int] = {stat.partition_path: 0 for stat in written}
    for stat in written:
        inserts[stat.partition_path] += stat.num_inserts
    for bucket in buckets:
        path, new = bucket.partition_path, bucket.inserts
        if bucket.opened_at is None:
            inserts[path] = inserts.get(path, 0) + new
        else:
            entry = WriteStat(
                bucket.file_id,
                "",
                path,
                bucket.opened_at,
                0,
                num_updates=bucket.updates,
                num_inserts=new,
            )
            updates.setdefault(path, []).append(entry)
    stats = {
        path: (
            *([WriteStat("", "", path, None, 0, num_inserts=inserts[path])] if path in inserts else []),
            *updates.get(path, []),
        )
        for path in sorted({*updates, *inserts})
    }
    return CommitMetadata(operation.name, stats)
