"""Steps 4 and 5 of a write: combine, tag, profile, buckets (Hudi: ``WorkloadProfile``, ``UpsertPartitioner``)."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import TypeAlias, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lakeformat.arrow.gather import gather
from lakeformat.errors import SchemaMismatchError
from lakeformat.file_system_view.live_files import ListedSlices
from lakeformat.file_system_view.snapshot import Snapshot
from lakeformat.files.base_file import FileSettings
from lakeformat.index.port import TagCounts, Tagged
from lakeformat.model.commit import CommitMetadata, WriteStat
from lakeformat.model.files import FileGroupId, FileSlice
from lakeformat.model.operation import Operation
from lakeformat.model.record import IS_DELETED, RECORD_KEY
from lakeformat.storage.port import Storage
from lakeformat.timeline.store import TimelineStore
from lakeformat.timeline.write_report import Report
from lakeformat.transaction.conflict import check_new_folders
from lakeformat.transaction.written_file import Written
from lakeformat.write.plan.job import WriteJob
from lakeformat.write.rows.prepare import ANY_PARTITION, combine, deleted_rows_of, winning_rows
from lakeformat.write.workload.buckets import (
    Appending,
    Bucket,
    BucketLoad,
    FileSizing,
    assign,
    assign_to_buckets,
    derive_file_id,
    encoded_bytes,
    file_sizing,
    max_encoded_bytes,
    measure_row_bytes,
)
from lakeformat.write.workload.duplicates import drop_stored, refuse_repeated, stored_keys
from lakeformat.write.workload.global_index import SpreadSettings, own_partitions, spread
from lakeformat.write.workload.shuffle_plan import RoutedBucket

__all__ = ["BucketPlan", "appending_of", "check_opened", "false_positives", "plan_buckets", "workload_profile"]

Ints: TypeAlias = npt.NDArray[np.int64]
T = TypeVar("T")


@dataclass(frozen=True)
class BucketPlan:
    """Buckets of all partitions.

    Attributes:
        rows: partition path -> the rows that buckets point into. No bucket points to a row that another row of its key
            has replaced.
        new: partition path -> positions of the rows whose keys no file holds.
        sizing: partition path -> the sizes by which inserts were divided over files.
    """

    rows: Mapping[str, pa.Table]
    buckets: tuple[Bucket, ...]
    new: Mapping[str, np.ndarray]
    sizing: Mapping[str, FileSizing] = field(default_factory=dict)


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
        rows: partition path -> prepared rows, not combined.
        snapshot: the table.
        schema: the table's columns after this write.
        report: takes the counts and seconds of each step.
        insertable: returns a mask of the rows that may be inserted; None allows all rows.
    """
    with report.step("combine") as counted:
        rows, winners = _combine(job, rows)
        kept = (rows[path].num_rows if won is None else len(won) for path, won in winners.items())
        counted["rows"] = sum(kept)
    if not job.prepare.whole:
        rows, winners = _in_all_partitions(rows, snapshot), _in_all_partitions(winners, snapshot)
    elif not job.tags and ANY_PARTITION in rows:
        rows = own_partitions(rows[ANY_PARTITION])
        winners = dict.fromkeys(rows)
    keyed = {path: _key_column(table, winners[path]) for path, table in rows.items()}
    if job.dup_policy == "fail":
        refuse_repeated(keyed)
    with report.step("tag") as counted:
        tagged = _tag(storage, job, keyed, snapshot)
        tagged = {path: _to_all_positions(found, winners[path]) for path, found in tagged.items()}
        if insertable is not None:
            tagged = {p: found.inserting(insertable(rows[p])[found.new]) for p, found in tagged.items()}
        counted.update(TagCounts.total(found.counts for found in tagged.values()))
        if job.dup_policy != "none":
            counted["dropped"] = sum(len(stored_keys(found)) for found in tagged.values())
            tagged = drop_stored(rows, tagged, fail=job.dup_policy == "fail")
        if job.prepare.whole and ANY_PARTITION in rows:
            settings = SpreadSettings.of(job, schema, may_move=insertable is None)
            whole, tagged = spread(storage, snapshot, rows[ANY_PARTITION], tagged[ANY_PARTITION], settings)
            rows = dict.fromkeys(tagged, whole)
            counted["moved"] = sum(len(np.unique(found.keys[found.leaving])) for found in tagged.values())
    with report.step("profile") as counted:
        placed = {path: _drop_deletes_of_new(job, rows[path], found) for path, found in tagged.items()}
        inserts = {path: found.new for path, found in placed.items()}
        closed = frozenset(TimelineStore(storage).pending_clustering(snapshot.timeline))
        appending = appending_of(storage, job, snapshot, looks=insertable is not None)
        files = job.files(schema)

        def size(path: str) -> FileSizing:
            return _sizing(job, rows[path], inserts[path], _open_files(job, snapshot, path, closed, appending), files)

        sizing = _size_in_threads(size, tagged)
        counted["row_bytes"] = round(_mean_row_bytes(sizing, inserts), 1)
        buckets = _buckets(job, placed, snapshot, sizing, closed, appending)
        check_opened(storage, snapshot, buckets)
    return BucketPlan(rows, buckets, {path: found.new for path, found in tagged.items()}, sizing)


def _size_in_threads(size: Callable[[str], FileSizing], paths: Collection[str]) -> Mapping[str, FileSizing]:
    with ThreadPoolExecutor(max(1, pa.cpu_count())) as pool:
        return dict(zip(paths, pool.map(size, paths), strict=True))


def _combine(job: WriteJob, rows: Mapping[str, pa.Table]) -> tuple[Mapping[str, pa.Table], Mapping[str, Ints | None]]:
    """Combine rows of the same key. Return the rows, and the positions of those that remain per partition; None is all.

    If the rule only chooses a row, the rows are not copied. If it makes a row of several, new rows are returned.
    """
    rule = job.prepare.rule
    if job.combine and (rule.folds or (job.prepare.whole and not job.tags)):
        rows = {path: combine(table, rule) for path, table in rows.items()}
    elif job.combine:
        return rows, {path: winning_rows(table, rule) for path, table in rows.items()}
    return rows, dict.fromkeys(rows)


def _key_column(rows: pa.Table, winners: Ints | None) -> pa.Table:
    keys = rows.select([RECORD_KEY])
    return keys if winners is None else gather(keys, winners)


def _to_all_positions(found: Tagged, winners: Ints | None) -> Tagged:
    """Turn positions among the rows that remain into positions among all rows."""
    return found if winners is None else replace(found, keys=winners[found.keys], new=winners[found.new])


def _in_all_partitions(rows: Mapping[str, T], snapshot: Snapshot) -> Mapping[str, T]:
    """Copy the entry of rows without a partition (deletes) to every partition."""
    if ANY_PARTITION not in rows:
        return rows
    return dict.fromkeys(snapshot.slices, rows[ANY_PARTITION])


def _tag(storage: Storage, job: WriteJob, rows: Mapping[str, pa.Table], snapshot: Snapshot) -> Mapping[str, Tagged]:
    keys = {path: table.column(RECORD_KEY) for path, table in rows.items()}
    find = job.index.locate if job.tags else job.index.place
    return find(storage, snapshot, keys)


def _drop_deletes_of_new(job: WriteJob, rows: pa.Table, found: Tagged) -> Tagged:
    """Drop deletes among the new rows: a delete of a key that no file holds writes nothing."""
    deleted = np.ones(rows.num_rows, bool) if job.operation is Operation.DELETE else deleted_rows_of(rows)
    return found.inserting(~deleted[found.new]) if deleted.any() else found


def appending_of(storage: Storage, job: WriteJob, snapshot: Snapshot, *, looks: bool = False) -> Appending:
    """Return how a write treats the slices of this table.

    Args:
        looks: whether stored rows are read, whatever the job's rule.
    """
    if not job.config.takes_logs:
        return Appending()
    live = snapshot.live
    return Appending(
        is_on=True,
        has_buckets=(has_buckets := job.index_settings.has_buckets),
        opens_logs=has_buckets and job.operation.joins,
        by_commit=snapshot.timeline.layout.tells_completion,
        compacting=TimelineStore(storage).pending_compactions(snapshot.timeline),
        looks=looks or job.rule.merger is not None or job.rule.columns is not None or _may_delete_late(job),
        orders=job.config.orders_versions,
        fills=job.config.merge_settings.partial_update is not None,
        upserting=live.upserting if isinstance(live, ListedSlices) else frozenset(),
        merging=snapshot.merging,
    )


def _may_delete_late(job: WriteJob) -> bool:
    """Tell whether the input may hold a delete that readers of log files would let win over a newer row.

    Such readers take an ordering value of null or the int 0 for "delete any version"; see
    `lakeformat.write.handles.slice_changes`.
    """
    columns, ordering = job.prepare.prepared_schema, job.rule.ordering
    if not job.rule.keeps_whole_rows or ordering is None or IS_DELETED not in columns.names:
        return False
    if ordering not in columns.names:
        return True  # A field of a struct.
    field = columns.field(ordering)
    return bool(field.nullable or field.type in {pa.int32(), pa.date32()})  # A date is stored as an int.


def _open_files(
    job: WriteJob, snapshot: Snapshot, path: str, closed: frozenset[FileGroupId], appending: Appending
) -> tuple[FileSlice, ...]:
    """Return the slices of a partition that may take inserts. A pending clustering will replace the others."""
    slices = snapshot.slices.get(path, ()) if job.joins else ()
    closed |= appending.closed(slices, job.options.write.small_bytes, float("inf"))
    return tuple(piece for piece in slices if piece.group not in closed)


def _sizing(
    job: WriteJob, rows: pa.Table, new: np.ndarray, files: Sequence[FileSlice], settings: FileSettings
) -> FileSizing:
    """Return how the inserts of a partition are divided. If the rows fit into one file in any case, they are not
    measured.
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
    ):  # The source of a MERGE may hold values that fit only after its clauses have changed them.
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
    closed: frozenset[FileGroupId],
    appending: Appending,
) -> tuple[Bucket, ...]:
    buckets: list[Bucket] = []
    numbers = iter(range(1 << 62))

    def next_file_id() -> str:
        return derive_file_id(job.write_id, -1, next(numbers))

    for path, found in placed.items():
        slices = snapshot.slices.get(path, ()) if job.joins else ()
        located, new, size = (found.keys, found.files), found.new, sizing[path]
        if found.new_buckets is not None:
            mine = assign_to_buckets(path, slices, located, new, found.new_buckets, next_file_id)
        else:
            full = closed | appending.closed(slices, job.options.write.small_bytes, len(new) * size.row_bytes)
            mine = assign(
                path,
                slices,
                located,
                new,
                size,
                next_file_id,
                closed=full,
                leaving=found.leaving,
                base_rows=found.base_rows,
            )
        buckets += appending.placed(mine, slices)
    return tuple(buckets)


def false_positives(job: WriteJob, written: Iterable[Written]) -> Mapping[str, int]:
    """Return the count of keys that filters let through and merges did not find; empty if no filter is used."""
    asks = job.tags and not job.index_settings.has_buckets
    return {"false_positives": sum(file.missed for file in written)} if asks else {}


def check_opened(
    storage: Storage, snapshot: Snapshot, buckets: Iterable[Bucket | RoutedBucket], written: Iterable[Written] = ()
) -> None:
    """Refuse new partitions whose folders lie in another partition's folder, or contain one.

    Args:
        written: files that tasks have written already.

    Raises:
        InvalidInputError: names the two folders; see `check_new_folders`.
    """
    opened = {bucket.partition_path for bucket in buckets if bucket.changes is None}
    check_new_folders(storage, snapshot, opened.union(file.stat.partition_path for file in written))


def workload_profile(
    operation: Operation, buckets: Iterable[BucketLoad], written: Iterable[WriteStat]
) -> CommitMetadata:
    """Return the profile that an inflight file holds (Hudi: ``saveWorkloadProfileMetadataToInflight``).

    It has one entry per file group to update, and one with an empty file id for the inserts of a partition.

    Args:
        written: new files that tasks have made already.
    """
    updates: dict[str, list[WriteStat]] = {}
    inserts: dict[str, int] = {stat.partition_path: 0 for stat in written}
    for stat in written:
        inserts[stat.partition_path] += stat.num_inserts
    for bucket in buckets:
        path, new = bucket.partition_path, bucket.inserts
        if bucket.changes is None:
            inserts[path] = inserts.get(path, 0) + new
        else:
            entry = WriteStat(
                bucket.file_id,
                "",
                path,
                bucket.changes,
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
