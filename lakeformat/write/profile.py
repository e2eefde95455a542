"""Steps 2 to 5 of a write: combine, tag, profile, buckets (Hudi: ``WorkloadProfile``, ``UpsertPartitioner``)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from lakeformat.codec.conform import conform
from lakeformat.errors import WriteConflictError
from lakeformat.index.port import TagCounts, Tagged
from lakeformat.index.tagging import TagSettings, tag_files
from lakeformat.model.commit import CommitMetadata, WriteStat
from lakeformat.model.files import BaseFile, BaseFileName
from lakeformat.model.record import RECORD_KEY
from lakeformat.storage.port import Storage
from lakeformat.timeline.snapshot import Snapshot
from lakeformat.write.buckets import Bucket, BucketLoad, FileSizing, assign, derive_file_id
from lakeformat.write.duplicates import refuse_doubled, without_stored
from lakeformat.write.job import Operation, WriteJob
from lakeformat.write.prepare import ANY_PARTITION, combine
from lakeformat.write.report import Report

__all__ = ["BucketPlan", "new_key_check", "plan_buckets", "row_bytes", "workload_profile"]

_SAMPLE_ROWS: Final = 16384


@dataclass(frozen=True)
class BucketPlan:
    """Buckets of all partitions.

    Attributes:
        rows: partition path -> the combined rows that buckets point into.
        new: partition path -> positions of rows whose keys no file holds.
    """

    rows: Mapping[str, pa.Table]
    buckets: tuple[Bucket, ...]
    new: Mapping[str, np.ndarray]


def plan_buckets(
    storage: Storage,
    job: WriteJob,
    rows: Mapping[str, pa.Table],
    snapshot: Snapshot,
    schema: pa.Schema,
    report: Report,
    *,
    insertable: Callable[[pa.Table], npt.NDArray[np.bool_]] | None = None,
) -> BucketPlan:
    """Decide which file group each row goes to.

    Args:
        rows: partition path -> prepared rows, as they came.
        snapshot: the table; without files for rows that must only open new file groups.
        schema: the table's columns after this write.
        report: takes counts and seconds of each step.
        insertable: tells the rows that may be inserted; None is all.
    """
    with report.step("combine") as counted:
        if job.combine:
            rows = {path: combine(table, job.prepare.rule) for path, table in rows.items()}
        counted["rows"] = sum(table.num_rows for table in rows.values())
    rows = _searched(rows, snapshot)
    if job.dup_policy == "fail":
        refuse_doubled(rows)
    with report.step("tag") as counted:
        tagged = _tag(storage, job, rows, snapshot)
        if insertable is not None:
            tagged = {p: replace(found, new=found.new[insertable(rows[p])[found.new]]) for p, found in tagged.items()}
        counts = TagCounts()
        for found in tagged.values():
            counts.add(found.counts)
        counted.update({name: getattr(counts, name) for name in counts.__dataclass_fields__})
        if job.dup_policy != "none":
            counted["dropped"] = sum(len(np.unique(found.keys)) for found in tagged.values())
            tagged = without_stored(rows, tagged, fail=job.dup_policy == "fail")
    with report.step("profile") as counted:
        sizing = FileSizing(
            row_bytes(job, rows, schema),
            job.options["hoodie.parquet.max.file.size"],
            job.options["hoodie.parquet.small.file.limit"],
        )
        counted["row_bytes"] = round(sizing.row_bytes, 1)
        buckets = _buckets(job, tagged, snapshot, sizing)
    return BucketPlan(rows, buckets, {path: found.new for path, found in tagged.items()})


def _searched(rows: Mapping[str, pa.Table], snapshot: Snapshot) -> Mapping[str, pa.Table]:
    """Deletes that name no partition are looked for in every one."""
    if ANY_PARTITION not in rows:
        return rows
    return dict.fromkeys(snapshot.by_partition, rows[ANY_PARTITION])


def _tag(storage: Storage, job: WriteJob, rows: Mapping[str, pa.Table], snapshot: Snapshot) -> Mapping[str, Tagged]:
    keys = {path: table.column(RECORD_KEY) for path, table in rows.items()}
    find = job.index.locate if job.tags else job.index.place
    return find(storage, snapshot, keys)


def row_bytes(job: WriteJob, rows: Mapping[str, pa.Table], schema: pa.Schema) -> float:
    """Bytes of a row as it will stand in a file, measured on a sample of the input."""
    sample = next((table.slice(0, _SAMPLE_ROWS) for table in rows.values() if table.num_rows), None)
    if sample is None or job.operation is Operation.DELETE:
        return float(job.options["hoodie.copyonwrite.record.size.estimate"])
    sink = pa.BufferOutputStream()
    optional = pa.schema([field.with_nullable(True) for field in schema])  # A partial update may lack any.
    data = conform(sample, optional).append_column(RECORD_KEY, sample.column(RECORD_KEY))
    pq.write_table(data, sink, compression=job.options["hoodie.parquet.compression.codec"])
    return max(1.0, float(sink.tell()) / int(sample.num_rows))


def _buckets(job: WriteJob, tagged: Mapping[str, Tagged], snapshot: Snapshot, sizing: FileSizing) -> tuple[Bucket, ...]:
    buckets: list[Bucket] = []
    numbers = iter(range(1 << 62))
    for path, found in tagged.items():
        files = () if job.operation.overwrites else snapshot.by_partition.get(path, ())
        new = found.new[:0] if job.operation is Operation.DELETE else found.new
        buckets += assign(
            path,
            files,
            (found.keys, found.files),
            new,
            sizing,
            lambda: derive_file_id(job.write_id, -1, next(numbers)),
        )
    return tuple(buckets)


def workload_profile(
    operation: Operation, buckets: Iterable[BucketLoad], written: Iterable[WriteStat]
) -> CommitMetadata:
    """The profile as an inflight file holds it (Hudi: ``saveWorkloadProfileMetadataToInflight``).

    One entry a file group to update, one with an empty file id for the inserts of a partition.

    Args:
        written: new files that tasks have made already.
    """
    updates: dict[str, list[WriteStat]] = {}
    inserts: dict[str, int] = {stat.partition_path: 0 for stat in written}
    for stat in written:
        inserts[stat.partition_path] += stat.num_inserts
    for bucket in buckets:
        path, new = bucket.partition_path, bucket.inserts
        if bucket.base is None:
            inserts[path] = inserts.get(path, 0) + new
        else:
            entry = WriteStat(
                bucket.file_id,
                "",
                path,
                bucket.base.name.instant_time,
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


def new_key_check(storage: Storage, plan: BucketPlan) -> Callable[[Sequence[tuple[str, CommitMetadata]]], None]:
    """A check of our new keys against what others wrote meanwhile.

    Two writers may insert one new key into different files; Hudi does not look, we do.
    """

    def check(others: Sequence[tuple[str, CommitMetadata]]) -> None:
        for time, metadata in others:
            for path, new in plan.new.items():
                stats = [s for s in metadata.stats.get(path, ()) if s.path and s.num_writes]
                files = [BaseFile(path, BaseFileName.parse(s.path.rpartition("/")[2]), s.size_bytes) for s in stats]
                keys = plan.rows[path].column(RECORD_KEY).take(pa.array(new))
                with ThreadPoolExecutor(1) as pool:
                    found = tag_files(storage, files, keys, TagSettings("SIMPLE"), pool)
                if len(found.keys):
                    raise WriteConflictError(
                        f"commit {time} inserted {len(found.keys)} of the same new keys, e.g. "
                        f"{keys[int(found.keys[0])].as_py()!r}; run the write again, it will start from {time}"
                    )

    return check
