"""The tasks of a shuffled write: rows are routed to buckets (step 5), then buckets are written to files (step 6).

Between the two steps, Spark shuffles the rows by bucket. Memory of the first step: one record batch of a stage file
(`StageWriter`'s buffer; memory-mapped on local disks). Memory of the second step: one bucket's rows, and a row group of
its base file.

With a bucket index, tasks may append rows without a shuffle or a lookup, because a hash gives the file group. When the
write begins, the driver creates a `BucketPlaces` value with all that a task must know: the slices of the buckets, and
the names of their next log files. If several tasks append to one bucket, each task writes its own log file. The task's
number is part of the file's name, and readers read the files in the order of these numbers. Memory: the write buffer,
and the memory of `append` for one bucket's rows.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lakeformat.arrow.conform import conform
from lakeformat.arrow.gather import gather, gather_column
from lakeformat.arrow.row_bytes import split_rows
from lakeformat.arrow.text_order import sort_texts
from lakeformat.file_system_view.snapshot import Snapshot
from lakeformat.index.port import TableBuckets
from lakeformat.index.stored_keys import flag_deleted_pairs, select_one_place
from lakeformat.model.commit import WriteStat
from lakeformat.model.operation import Operation
from lakeformat.model.record import RECORD_KEY
from lakeformat.storage.port import Storage
from lakeformat.transaction.order.written_file import WrittenFile, stage_folder
from lakeformat.write.handles.append_handle import append
from lakeformat.write.handles.base_file_handles import HandleSettings, create, merge
from lakeformat.write.plan.job import WriteJob
from lakeformat.write.rows.bad_rows import BadRows
from lakeformat.write.rows.prepare import PrepareSettings, combine, prepare
from lakeformat.write.rows.stage import (
    ARRIVAL,
    BATCH_BYTES,
    BATCH_ROWS,
    TASK,
    StagedTask,
    arrival_numbers,
    read_staged_batches,
)
from lakeformat.write.tagging.tag_units import Hits, TagFile, read_hits
from lakeformat.write.tagging.tagger import refuse_repeated_keys
from lakeformat.write.workload.buckets import AppendRules, Bucket, LogPlace, derive_file_id, make_bucket_id
from lakeformat.write.workload.shuffle_plan import HashedRoute, PartitionRoute

__all__ = [
    "BUCKET",
    "LOOKUP",
    "MOVED",
    "BucketPlaces",
    "BucketSettings",
    "append_in_task",
    "may_append_in_tasks",
    "read_buckets",
    "route_rows",
    "routed_schema",
    "task_folder",
    "write_buckets",
]

Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]

#: Name of a column that exists only during the shuffle: the number of the row's bucket.
BUCKET: Final = "_lakeformat_bucket"
#: Name of a column that exists only during the shuffle: whether the row's key was found in the bucket's file slice.
LOOKUP: Final = "_lakeformat_lookup"
#: Name of a column that exists only during the shuffle: whether the row moves to another partition (global indexes), so
#: that it is deleted from the bucket's file slice.
MOVED: Final = "_lakeformat_moved"
_ROUTING: Final = (
    pa.field(TASK, pa.int32()),
    pa.field(BUCKET, pa.int32()),
    pa.field(LOOKUP, pa.bool_()),
    pa.field(MOVED, pa.bool_()),
    pa.field(ARRIVAL, pa.int64()),
)


def routed_schema(settings: PrepareSettings) -> pa.Schema:
    """Return the schema of prepared rows, preceded by the columns that exist only during the shuffle."""
    return pa.schema([*_ROUTING, *settings.prepared_schema])


def route_rows(
    storage: Storage,
    stage: int,
    staged: StagedTask,
    tag_files: Sequence[TagFile],
    routes: Mapping[str, PartitionRoute],
    task_values: Sequence[int],
    settings: PrepareSettings,
) -> Iterator[pa.RecordBatch]:
    """Yield one stage file's rows with their buckets, for the shuffle.

    If several file slices hold a row's key, the row is yielded once for each of these slices.

    Args:
        stage: the stage file's number.
        tag_files: the files in which the key lookup has recorded the file slices of this stage file's rows.
        routes: for each partition path, the rule that assigns its rows to buckets.
        task_values: for each bucket, the value of the `TASK` column, by which Spark finds the bucket's task.
    """
    hits = read_hits(storage, tag_files)
    values = np.asarray(task_values, np.int32)
    for source in sorted({run.partition_path for run in staged.runs}):
        paths = [source] if source in routes else [path for path in routes if path in hits or routes[path].hashed]
        hits_of = {path: hits.get(path) for path in paths}
        for path, hits_of_path in hits_of.items():
            if hits_of_path is not None and routes[path].deleting:
                hits_of[path] = _choose_slices(storage, staged, source, hits_of_path, routes[path])
        first = 0
        for batch in read_staged_batches(storage, staged, source):
            start = 0
            for rows in split_rows(batch, BATCH_ROWS, BATCH_BYTES):
                positions, buckets, lookups, is_moved = _route(rows, first + start, hits_of, routes)
                if len(positions):
                    arrival = arrival_numbers(stage, first + start + positions)
                    taken = conform(rows.take(pa.array(positions)), settings.prepared_schema)
                    columns = [values[buckets], buckets.astype(np.int32), lookups, is_moved, arrival]
                    arrays = [*map(pa.array, columns), *taken.columns]
                    yield pa.RecordBatch.from_arrays(arrays, schema=routed_schema(settings))
                start += rows.num_rows
            first += batch.num_rows


def read_buckets(
    storage: Storage,
    numbers: Collection[int],
    staged: Sequence[StagedTask],
    tag_files: Sequence[Sequence[TagFile]],
    routes: Mapping[str, PartitionRoute],
    settings: BucketSettings,
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of some buckets, bucket by bucket, for `write_buckets`: the write step without a shuffle.

    Of each stage file only the rows of the buckets' partitions are read. Memory: all rows of these buckets.

    Args:
        numbers: numbers of the buckets.
        staged: all stage files.
        tag_files: for each stage file, the files in which the key lookup has recorded the file slices of its rows.
    """
    batches_of: dict[int, list[pa.RecordBatch]] = {number: [] for number in sorted(numbers)}
    partitions = {settings.buckets[number].partition_path for number in numbers}
    near = {path: route for path, route in routes.items() if path in partitions}
    values = list(range(len(settings.buckets)))
    for stage, task in enumerate(staged):
        # Rows whose partition has no route may be in any partition: a delete that does not name it.
        runs = tuple(r for r in task.runs if r.partition_path in near or r.partition_path not in routes)
        tags = [tag for tag in tag_files[stage] if tag.partition_path in near]
        for batch in route_rows(storage, stage, replace(task, runs=runs), tags, near, values, settings.prepare):
            buckets = batch.column(BUCKET).to_numpy()
            for number in np.unique(buckets).tolist():
                if number in batches_of:
                    batches_of[number].append(batch.filter(pa.array(buckets == number)))
    for number in list(batches_of):
        yield from batches_of.pop(number)


def _choose_slices(storage: Storage, staged: StagedTask, source: str, hits: Hits, route: PartitionRoute) -> Hits:
    """Drop each pair of row and file slice whose log files have deleted the row. Keep at least one pair per row.

    Only rows whose keys were found in several slices are checked. Memory: the keys of these rows.
    """
    rows, files = hits.rows, hits.files
    several = np.flatnonzero(np.bincount(rows, minlength=1)[rows] > 1)
    if not len(several):
        return hits
    distinct_rows, key_positions = np.unique(rows[several], return_inverse=True)
    gone = np.zeros(len(rows), bool)
    keys = _take_keys(read_staged_batches(storage, staged, source), distinct_rows)
    gone[several] = flag_deleted_pairs(storage, route.deleting, keys, key_positions, files[several])
    return hits.take(select_one_place(rows, gone))


def _pairs_of_new_rows(hits: Hits) -> Bools:
    """Return a mask of one pair for each row that a duplicate policy keeps although its key was found.

    Log files have deleted such a row in all slices that hold its key. It goes to the first of these slices.
    """
    kept = np.flatnonzero(~np.isin(hits.rows, hits.rows[~hits.is_deleted]))
    mask = np.zeros(len(hits.rows), bool)
    mask[kept[np.unique(hits.rows[kept], return_index=True)[1]]] = True
    return mask


def _take_keys(batches: Iterable[pa.RecordBatch], rows: Ints) -> pa.ChunkedArray:
    """Return the record keys of the rows at these ascending positions. Positions count through all batches."""
    first, parts = 0, []
    for batch in batches:
        low, high = np.searchsorted(rows, [first, first + batch.num_rows])
        parts.append(batch.column(RECORD_KEY).take(pa.array(rows[low:high] - first)))
        first += batch.num_rows
    return pa.chunked_array(parts, pa.string())


def _route(
    rows: pa.RecordBatch,
    first: int,
    hits_of: Mapping[str, Hits | None],
    routes: Mapping[str, PartitionRoute],
) -> tuple[Ints, Ints, Bools, Bools]:
    """Return four arrays: positions of the batch's rows, their buckets, whether the bucket's slice has their key, and
    whether they move from this slice to another partition.

    A row whose key is in several file slices is returned once for each.

    Args:
        first: position of the batch's first row among the rows of the partition.
        hits_of: for each partition path, the rows whose keys its slices have; None if there are none.
    """
    hashed = [route.hashed for path in hits_of if (route := routes[path]).hashed is not None]
    if hashed:
        kept, numbers, lookups = _route_by_hash(rows.column(RECORD_KEY), hashed)
        for path in hits_of:
            if routes[path].drops_stored:  # Then the rows belong to this partition only.
                is_stored, lookups = _mask_hits(hits_of[path], first, rows.num_rows)
                is_kept = ~is_stored[kept]
                kept, numbers, lookups = kept[is_kept], numbers[is_kept], lookups[kept[is_kept]]
        return kept, numbers, lookups, np.zeros(len(kept), bool)
    positions: list[Ints] = []
    buckets: list[Ints] = []
    leaving: list[Bools] = []
    is_new = np.ones(rows.num_rows, bool)
    for path, hits in hits_of.items():
        if hits is not None:
            here = hits.take(slice(*np.searchsorted(hits.rows, [first, first + rows.num_rows])))
            is_new[here.rows - first] = False
            if routes[path].drops_stored:
                here = here.take(_pairs_of_new_rows(here))
            positions.append(here.rows - first)
            leaving.append(here.is_leaving)
            buckets.append(_buckets_of_files(here.files, routes[path].by_file))
    located = sum(map(len, positions))
    for path in hits_of:
        if routes[path].inserts:
            new = np.flatnonzero(is_new)
            positions.append(new)
            buckets.append(_buckets_of_new_keys(rows.column(RECORD_KEY).take(pa.array(new)), routes[path]))
    taken = np.concatenate([*positions, np.empty(0, np.int64)])
    lookups = np.arange(len(taken)) < located
    is_moved = np.concatenate([*leaving, np.zeros(len(taken) - located, bool)])
    return taken, np.concatenate([*buckets, np.empty(0, np.int64)]), lookups, is_moved


def _route_by_hash(keys: pa.Array, routes: Sequence[HashedRoute]) -> tuple[Ints, Ints, Bools]:
    """Return positions of rows, their buckets, and whether the bucket may have their key, if a hash decides.

    Args:
        routes: the rules of the partitions to which the rows go.
    """
    positions: list[Ints] = []
    buckets: list[Ints] = []
    lookups: list[Bools] = []
    for route in routes:
        numbers = route.hashing.numbers(pa.chunked_array([keys]))
        bucket_at = np.full(route.hashing.buckets, -1)
        bucket_at[[*route.by_bucket]] = [*route.by_bucket.values()]
        is_stored = np.zeros(route.hashing.buckets, bool)
        is_stored[[*route.stored]] = True
        kept = np.flatnonzero(bucket_at[numbers] >= 0)
        positions.append(kept)
        buckets.append(bucket_at[numbers[kept]])
        lookups.append(is_stored[numbers[kept]])
    return np.concatenate(positions), np.concatenate(buckets), np.concatenate(lookups)


def _mask_hits(hits: Hits | None, first: int, count: int) -> tuple[Bools, Bools]:
    """Return two masks of ``count`` rows from position ``first``: which are stored, and which are deleted in logs."""
    is_stored, is_deleted = np.zeros((2, count), bool)
    if hits is not None:
        here = hits.take(slice(*np.searchsorted(hits.rows, [first, first + count])))
        is_stored[here.rows[~here.is_deleted] - first] = True
        is_deleted[here.rows[here.is_deleted] - first] = True
    return is_stored, is_deleted


def _buckets_of_files(files: Ints, by_file: Mapping[int, int]) -> Ints:
    stored = np.asarray(list(by_file), np.int64)
    numbers = np.asarray(list(by_file.values()), np.int64)
    return numbers[np.searchsorted(stored, files)]  # This is correct because ``by_file`` has ascending keys.


def _buckets_of_new_keys(keys: pa.Array, route: PartitionRoute) -> Ints:
    """Return the bucket of each new key: ``inserts[n]``, where n is the number of cuts up to and including the key."""
    if not route.cuts or not len(keys):
        return np.full(len(keys), route.inserts[0], np.int64)
    cuts = pa.array(route.cuts, keys.type)
    # The sort is stable, so a cut comes before a key that is equal to it, and the sum below counts the cut.
    order = np.asarray(pc.sort_indices(pa.concat_arrays([cuts, keys])))
    is_key = order >= len(cuts)
    below = np.empty(len(keys), np.int64)
    below[order[is_key] - len(cuts)] = np.cumsum(~is_key)[is_key]
    return np.asarray(route.inserts, np.int64)[below]


# --- step 6: write buckets to files -------------------------------------------------------------------


@dataclass(frozen=True)
class BucketSettings:
    """Settings that are the same for all tasks that write buckets.

    Attributes:
        buckets: all buckets of the write, by number.
        needs_combining: whether the rows are reduced to one per key, across stage files.
        refuses_repeated: whether a key that comes more than once raises an error.
        handles: settings of the handles, with the stage folder as ``folder``.
        first_task: number that is added to a bucket's number to get the task number in sequence numbers.
    """

    buckets: tuple[Bucket, ...]
    prepare: PrepareSettings
    needs_combining: bool
    handles: HandleSettings
    first_task: int = 0
    refuses_repeated: bool = False


def write_buckets(
    storage: Storage, batches: Iterable[pa.RecordBatch], settings: BucketSettings, attempt: str
) -> Iterator[WrittenFile]:
    """Write each bucket to a file, one after the other.

    Args:
        batches: routed rows. The rows of a bucket are consecutive, and no other task has rows of that bucket.
        attempt: two numbers, ``stage-attempt``, unique to this attempt; part of the files' names.

    Raises:
        DuplicateKeyError: a key comes more than once, and the settings refuse that.
    """
    number, waiting = -1, list[pa.RecordBatch]()
    for batch in batches:
        buckets = batch.column(BUCKET).to_numpy()
        bounds = [0, *(np.flatnonzero(np.diff(buckets)) + 1).tolist(), len(buckets)]
        for start, end in pairwise(bounds):
            if start == end:
                continue
            if int(buckets[start]) != number:
                yield from _write_bucket(storage, number, waiting, settings, attempt)
                number, waiting = int(buckets[start]), []
            waiting.append(batch.slice(start, end - start))
    yield from _write_bucket(storage, number, waiting, settings, attempt)


def _write_bucket(
    storage: Storage, number: int, batches: Sequence[pa.RecordBatch], settings: BucketSettings, attempt: str
) -> Iterator[WrittenFile]:
    if not batches:
        return
    routed = settings.buckets[number]
    handles = replace(settings.handles, write_token=f"{number}-{attempt}")
    rows, bucket = _make_bucket(pa.Table.from_batches(batches), routed, settings)
    written: WrittenFile | None
    if routed.log_place is not None:
        written = append(storage, bucket, routed.log_place, rows, settings.first_task + number, handles)
    elif routed.base is None:
        written = create(storage, bucket, rows, settings.first_task + number, handles)
    else:
        written = merge(storage, bucket, routed.base, rows, settings.first_task + number, handles)
    if written is not None:
        yield written


def _make_bucket(table: pa.Table, routed: Bucket, settings: BucketSettings) -> tuple[pa.Table, Bucket]:
    """Return a bucket's rows, one per key if the write combines rows, and the bucket with their positions.

    In the bucket, rows whose keys were found come first, in order of arrival, and among them those that move to
    another partition; new rows follow in key order.
    """
    order = np.asarray(pc.sort_indices(table.column(ARRIVAL))).astype(np.int64)
    if (np.diff(order) < 0).any():
        table = gather(table, order)
    if settings.needs_combining:
        table = combine(table, settings.prepare.rule)
    if settings.refuses_repeated:
        refuse_repeated_keys({routed.partition_path: table})
    lookup, is_moved = table.column(LOOKUP).to_numpy(), table.column(MOVED).to_numpy()
    new = np.flatnonzero(~lookup)
    new = new[sort_texts(gather_column(table.column(RECORD_KEY), new))]
    updates = np.concatenate([np.flatnonzero(is_moved), np.flatnonzero(lookup & ~is_moved)])
    rows = conform(table, settings.prepare.prepared_schema)
    return rows, routed.with_rows(updates, new, moved_rows=int(is_moved.sum()))


@dataclass(frozen=True)
class BucketPlaces:
    """The log files to which tasks append the rows of each bucket of a bucket index. The value can be pickled.

    Attributes:
        groups: for the partition path and number of each existing bucket, its file id and the log file to write.
        hashing: how keys belong to buckets.
    """

    groups: Mapping[tuple[str, int], tuple[str, LogPlace]]
    hashing: TableBuckets

    @classmethod
    def of(cls, snapshot: Snapshot, append_rules: AppendRules, hashing: TableBuckets) -> BucketPlaces:
        """Return the log files to write for the buckets that have a file slice in the snapshot."""
        groups: dict[tuple[str, int], tuple[str, LogPlace]] = {}
        for path, pieces in snapshot.slices.items():
            buckets = hashing.of(path)
            for piece in pieces:
                number = buckets.bucket_of(piece.group.file_id)
                if number is not None:  # Else the file group is of a bucket that was split or merged since.
                    place = replace(append_rules.place(piece), merging=None, deleting_logs=())
                    groups[path, number] = piece.group.file_id, place
        return cls(groups, hashing)

    def key_of(self, stat: WriteStat) -> tuple[str, int]:
        """Return the partition path and the bucket number of a written file; -1 if it belongs to no bucket."""
        number = self.hashing.of(stat.partition_path).bucket_of(stat.file_id)
        return stat.partition_path, -1 if number is None else number


def may_append_in_tasks(job: WriteJob, snapshot: Snapshot, append_rules: AppendRules) -> bool:
    """Tell whether tasks may append rows to log files without reading stored rows or the rows of other tasks."""
    rule, prepare_settings = job.rule, job.prepare
    if not append_rules.opens_logs or job.dup_policy != "none" or prepare_settings.searches_all_partitions:
        return False
    if append_rules.reads_stored or rule.partial is not None or prepare_settings.keys.generates_keys:
        return False
    # If log files have deleted a row, readers may prefer the deleted version to an incoming row with the same key. Only
    # a write that reads stored rows can notice this, and tasks do not read them. A DELETE writes no rows, so tasks may
    # append it in any case.
    return job.operation is Operation.DELETE or not any(
        append_rules.place(piece).deleting_logs for piece in snapshot.each_slice()
    )


def append_in_task(
    storage: Storage,
    job: WriteJob,
    handles: HandleSettings,
    places: BucketPlaces,
    batches: Iterable[pa.RecordBatch],
    task: int,
    attempt: int,
    bad_rows: BadRows | None = None,
) -> tuple[int, tuple[WrittenFile, ...]]:
    """Write a task's input rows to log files in ``handles.folder``. Return the number of input rows, and the files.

    Args:
        task: the task's number. If two tasks write the same key, readers treat the row of the task with the higher
            number as the later row.
        attempt: a number that no other task attempt has; it is part of the files' names.
        bad_rows: collects the rows that cannot be written; None refuses them.
    """
    taken_rows, written = 0, list[WrittenFile]()
    for round_number, rows in enumerate(_group_into_buffers(batches, job.options.write.buffer_bytes)):
        taken_rows += rows.num_rows
        named = replace(handles, write_token=f"{task:010d}-{round_number:06d}-{attempt}")
        for path, part in prepare(rows, job.prepare, bad_rows=bad_rows).items():
            combined_rows = combine(part, job.rule) if job.needs_combining else part
            for bucket, place in _split_by_bucket(path, combined_rows, places, job):
                log_file = append(storage, bucket, place, combined_rows, task, named)
                written += [log_file] if log_file is not None else []
    return taken_rows, tuple(written)


def _group_into_buffers(batches: Iterable[pa.RecordBatch], most_bytes: int) -> Iterator[pa.Table]:
    """Concatenate the batches into tables of about ``most_bytes`` each."""
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


def _split_by_bucket(
    path: str, rows: pa.Table, places: BucketPlaces, job: WriteJob
) -> Iterator[tuple[Bucket, LogPlace]]:
    buckets = places.hashing.of(path)
    numbers = buckets.numbers(rows.column(RECORD_KEY))
    order = np.argsort(numbers, kind="stable")
    for rows_of_bucket in np.split(order, np.flatnonzero(np.diff(numbers[order])) + 1):
        if not len(rows_of_bucket):
            continue
        number = int(numbers[rows_of_bucket[0]])
        group = places.groups.get((path, number))
        opened = make_bucket_id(job, buckets, number, derive_file_id(f"{job.write_id}/{path}", -2, number))
        file_id, place = group or (opened, LogPlace())
        base = place.file_slice.base if place.file_slice is not None else None
        updates, inserts = (rows_of_bucket, rows_of_bucket[:0]) if group else (rows_of_bucket[:0], rows_of_bucket)
        yield Bucket(path, file_id, base, log_place=place).with_rows(updates, inserts), place


def task_folder(job: WriteJob) -> str:
    """Return the folder for the tasks' log files. It is deleted later, with all files of failed task attempts."""
    return f"{stage_folder(job.write_id)}/files"
