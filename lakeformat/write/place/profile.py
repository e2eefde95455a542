"""Steps 2 to 5 of a write: combine, tag, profile, buckets (Hudi: ``WorkloadProfile``, ``UpsertPartitioner``)."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import TypeAlias, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lakeformat.codec.gather import gather
from lakeformat.errors import SchemaMismatchError
from lakeformat.files.base_file import FileSettings
from lakeformat.index.port import TagCounts, Tagged
from lakeformat.model.commit import CommitMetadata, WriteStat
from lakeformat.model.files import FileGroupId, FileSlice
from lakeformat.model.operation import Operation
from lakeformat.model.record import IS_DELETED, RECORD_KEY
from lakeformat.storage.port import Storage
from lakeformat.table_state.live import ListedSlices
from lakeformat.table_state.snapshot import Snapshot
from lakeformat.timeline.report import Report
from lakeformat.timeline.store import TimelineStore
from lakeformat.transaction.folders import check_new_folders
from lakeformat.transaction.written import Written
from lakeformat.write.decide.job import WriteJob
from lakeformat.write.place.appends import Appending
from lakeformat.write.place.buckets import Bucket, BucketLoad, FileSizing, assign, assign_to_buckets, derive_file_id
from lakeformat.write.place.duplicates import refuse_doubled, stored_keys, without_stored
from lakeformat.write.place.route import RoutedBucket
from lakeformat.write.place.sizing import encoded_bytes, file_sizing, measured_row_bytes, most_bytes
from lakeformat.write.place.spread import SpreadSettings, own_partitions, spread
from lakeformat.write.rows.delete_marker import deleted_rows_of
from lakeformat.write.rows.prepare import ANY_PARTITION, combine, winning

__all__ = ["BucketPlan", "appending_of", "check_opened", "false_positives", "plan_buckets", "workload_profile"]

Ints: TypeAlias = npt.NDArray[np.int64]
T = TypeVar("T")


@dataclass(frozen=True)
class BucketPlan:
    """Buckets of all partitions.

    Attributes:
        rows: partition path -> the rows that buckets point into; nothing points to those that others of their key
            have replaced.
        new: partition path -> positions of rows whose keys no file holds.
        sizing: partition path -> how inserts were spread there.
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
        rows: partition path -> prepared rows, as they came.
        snapshot: the table.
        schema: the table's columns after this write.
        report: takes counts and seconds of each step.
        insertable: tells the rows that may be inserted; None is all.
    """
    with report.step("combine") as counted:
        rows, winners = _combined(job, rows)
        kept = (rows[path].num_rows if won is None else len(won) for path, won in winners.items())
        counted["rows"] = sum(kept)
    if not job.prepare.whole:
        rows, winners = _searched(rows, snapshot), _searched(winners, snapshot)
    elif not job.tags and ANY_PARTITION in rows:
        rows = own_partitions(rows[ANY_PARTITION])
        winners = dict.fromkeys(rows)
    keyed = {path: _keys_of(table, winners[path]) for path, table in rows.items()}
    if job.dup_policy == "fail":
        refuse_doubled(keyed)
    with report.step("tag") as counted:
        tagged = _tag(storage, job, keyed, snapshot)
        tagged = {path: _among_all(found, winners[path]) for path, found in tagged.items()}
        if insertable is not None:
            tagged = {p: found.inserting(insertable(rows[p])[found.new]) for p, found in tagged.items()}
        counted.update(TagCounts.total(found.counts for found in tagged.values()))
        if job.dup_policy != "none":
            counted["dropped"] = sum(len(stored_keys(found)) for found in tagged.values())
            tagged = without_stored(rows, tagged, fail=job.dup_policy == "fail")
        if job.prepare.whole and ANY_PARTITION in rows:
            settings = SpreadSettings.of(job, schema, may_move=insertable is None)
            whole, tagged = spread(storage, snapshot, rows[ANY_PARTITION], tagged[ANY_PARTITION], settings)
            rows = dict.fromkeys(tagged, whole)
            counted["moved"] = sum(len(np.unique(found.keys[found.leaving])) for found in tagged.values())
    with report.step("profile") as counted:
        placed = {path: _without_deletes(job, rows[path], found) for path, found in tagged.items()}
        inserts = {path: found.new for path, found in placed.items()}
        closed = frozenset(TimelineStore(storage).pending_clustering(snapshot.timeline))
        appending = appending_of(storage, job, snapshot, looks=insertable is not None)
        files = job.files(schema)

        def size(path: str) -> FileSizing:
            return _sizing(job, rows[path], inserts[path], _open_files(job, snapshot, path, closed, appending), files)

        sizing = _side_by_side(size, tagged)
        counted["row_bytes"] = round(_mean_row_bytes(sizing, inserts), 1)
        buckets = _buckets(job, placed, snapshot, sizing, closed, appending)
        check_opened(storage, snapshot, buckets)
    return BucketPlan(rows, buckets, {path: found.new for path, found in tagged.items()}, sizing)


def _side_by_side(size: Callable[[str], FileSizing], paths: Collection[str]) -> Mapping[str, FileSizing]:
    with ThreadPoolExecutor(max(1, pa.cpu_count())) as pool:
        return dict(zip(paths, pool.map(size, paths), strict=True))


def _combined(job: WriteJob, rows: Mapping[str, pa.Table]) -> tuple[Mapping[str, pa.Table], Mapping[str, Ints | None]]:
    """The rows, and which of each partition's are left when each key keeps one; None is all.

    The others stay where they are, so that nothing is copied, unless rows are made of several.
    """
    rule = job.prepare.rule
    if job.combine and (rule.folds or (job.prepare.whole and not job.tags)):
        rows = {path: combine(table, rule) for path, table in rows.items()}
    elif job.combine:
        return rows, {path: winning(table, rule) for path, table in rows.items()}
    return rows, dict.fromkeys(rows)


def _keys_of(rows: pa.Table, winners: Ints | None) -> pa.Table:
    keys = rows.select([RECORD_KEY])
    return keys if winners is None else gather(keys, winners)


def _among_all(found: Tagged, winners: Ints | None) -> Tagged:
    """Positions among all rows instead of those that are left."""
    return found if winners is None else replace(found, keys=winners[found.keys], new=winners[found.new])


def _searched(rows: Mapping[str, T], snapshot: Snapshot) -> Mapping[str, T]:
    """Deletes that name no partition are looked for in every one."""
    if ANY_PARTITION not in rows:
        return rows
    return dict.fromkeys(snapshot.slices, rows[ANY_PARTITION])


def _tag(storage: Storage, job: WriteJob, rows: Mapping[str, pa.Table], snapshot: Snapshot) -> Mapping[str, Tagged]:
    keys = {path: table.column(RECORD_KEY) for path, table in rows.items()}
    find = job.index.locate if job.tags else job.index.place
    return find(storage, snapshot, keys)


def _without_deletes(job: WriteJob, rows: pa.Table, found: Tagged) -> Tagged:
    """Without new rows that will not stand in a file: deletes of keys that nobody has write nothing."""
    deleted = np.ones(rows.num_rows, bool) if job.operation is Operation.DELETE else deleted_rows_of(rows)
    return found.inserting(~deleted[found.new]) if deleted.any() else found


def appending_of(storage: Storage, job: WriteJob, snapshot: Snapshot, *, looks: bool = False) -> Appending:
    """How a write treats the slices of this table.

    Args:
        looks: whether stored rows are looked at, whatever the job's rule.
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
    """Return whether the input may hold a delete that readers of log files would let win over a newer row.

    They take a null, and the int 0, for "delete whatever is there"; see `lakeformat.write.make.changes`.
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
    """Slices of a partition that may be topped up: a pending clustering is going to replace the others."""
    slices = snapshot.slices.get(path, ()) if job.joins else ()
    closed |= appending.closed(slices, job.options.write.small_bytes, float("inf"))
    return tuple(piece for piece in slices if piece.group not in closed)


def _sizing(
    job: WriteJob, rows: pa.Table, new: np.ndarray, files: Sequence[FileSlice], settings: FileSettings
) -> FileSizing:
    """How the inserts of a partition are spread. Few rows, that fit into one file in any case, are not measured."""
    small, most = job.options.write.small_bytes, job.options.write.file_bytes
    smallest = min((file.size_bytes for file in files if file.size_bytes < small), default=0)
    at_most = most_bytes(rows, len(new), len(settings.schema))
    if not len(new) or smallest + at_most <= most:
        return file_sizing(job.options, max(1.0, at_most / max(len(new), 1)))
    try:
        row_bytes = measured_row_bytes(rows, new, settings)
    except SchemaMismatchError:  # The source of a merge may hold values that only its clauses make fit.
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
    """For the report: keys that filters let through and merges did not find; nothing where no filter is asked."""
    asks = job.tags and not job.index_settings.has_buckets
    return {"false_positives": sum(file.missed for file in written)} if asks else {}


def check_opened(
    storage: Storage, snapshot: Snapshot, buckets: Iterable[Bucket | RoutedBucket], written: Iterable[Written] = ()
) -> None:
    """Hold the partitions in which a write opens file groups, or tasks have, against one another and the table's.

    Raises:
        InvalidInputError: the folder of one would lie in that of another; see `check_new_folders`.
    """
    opened = {bucket.partition_path for bucket in buckets if bucket.changes is None}
    check_new_folders(storage, snapshot, opened.union(file.stat.partition_path for file in written))


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
