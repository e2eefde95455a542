"""The step of some shuffled writes that follows the key lookup, in tasks: the rows of a key meet.

All rows of a key go to one task, by a hash of the key. The task writes its rows to a stage file again, by partition,
and their slices to a tag file. The steps that follow are those of any shuffled write. Two kinds of writes need this:

- Under a global index a key has one row in the whole table. The task combines the rows of a key, and assigns the row to
  partitions by the function that plain Python's writes use
  (`lakeformat.write.tagging.global_index.route_to_partitions`).
- In a merge by clauses a key that comes twice is refused, and clauses choose the new rows to insert. Under a bucket
  index no key has been looked up: a row counts as located if its bucket has a file slice, and the writer of the bucket
  finds out whether the slice holds the key.

Memory: the rows of one task; if rows move and the merge rule compares them with the stored rows, also that function's.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lakeformat.arrow.conform import conform
from lakeformat.arrow.gather import gather
from lakeformat.arrow.row_bytes import split_rows
from lakeformat.arrow.text_order import sort_texts
from lakeformat.codec.bloom import hash_chain
from lakeformat.files.open_slice import SliceMergeRules
from lakeformat.index.port import PartitionBuckets, TableBuckets, Tagged
from lakeformat.model.files import FileSlice
from lakeformat.model.record import RECORD_KEY
from lakeformat.storage.port import Storage
from lakeformat.write.plan.job import WriteJob
from lakeformat.write.rows.incoming import slice_batches
from lakeformat.write.rows.prepare import ANY_PARTITION, PrepareSettings, combine
from lakeformat.write.rows.stage import (
    ARRIVAL,
    BATCH_BYTES,
    BATCH_ROWS,
    TASK,
    StagedTask,
    StageWriter,
    arrival_numbers,
    read_staged_batches,
)
from lakeformat.write.tagging.global_index import RoutingSettings, group_by_partition, route_to_partitions
from lakeformat.write.tagging.tag_units import HITS_SCHEMA, Hits, TagFile, hits_batch, read_hits
from lakeformat.write.tagging.tagger import (
    InsertFilter,
    choose_new,
    drop_stored_rows,
    find_repeated_keys,
    find_stored_keys,
    refuse_repeated_keys,
)
from lakeformat.write.workload.profile import drop_deletes_of_new_keys

__all__ = [
    "FoundSlice",
    "ResolveSettings",
    "ResolveTasks",
    "ResolvedPartition",
    "ResolvedTask",
    "keyed_schema",
    "resolve_rows",
    "route_by_key",
]

#: Name of a column that exists only during the shuffle by key: for each row the slices that hold its key, each as twice
#: its number, plus 1 if the slice's log files have deleted the row.
_PLACES: Final = "_lakeformat_places"
#: Name of a column that exists only during the shuffle by key: the partition path under which the row was staged.
_SOURCE: Final = "_lakeformat_source"


@dataclass(frozen=True, slots=True)
class FoundSlice:
    """A file slice that holds keys of the input. Picklable.

    Attributes:
        number: a number by which the row lists of the shuffle name the slice. Under a global index it is the slice's
            position among all slices that were searched. Under a bucket index it is its position in
            `ResolveSettings.slices`.
        at: its position in its partition.
        merging: the rules by which a read merges its files; None if it has no log files.
    """

    number: int
    at: int
    file_slice: FileSlice
    merging: SliceMergeRules | None


@dataclass(frozen=True)
class ResolveSettings:
    """Settings that are the same for all tasks of the step. Picklable.

    Attributes:
        slices: the slices that hold keys of the input, by ascending number; with a bucket index, those that may.
        stored: the table's columns before this write; empty if no slice holds a key.
        sample_step: n if about every n-th new key of a partition is returned as a sample; 0 if none is.
        insert_filter: the function by which a merge chooses the new rows to insert; None for other writes. If given,
            keys that come more than once are reported.
        hashing: how keys belong to buckets; None without a bucket index.
    """

    job: WriteJob
    routing: RoutingSettings
    slices: tuple[FoundSlice, ...]
    stored: pa.Schema
    sample_step: int
    insert_filter: InsertFilter | None = None
    hashing: TableBuckets | None = None

    def slices_of(self, source: str) -> tuple[FoundSlice, ...]:
        """Return the slices in which the keys of rows that were staged under this partition path are looked up."""
        if source == ANY_PARTITION:
            return self.slices
        return tuple(piece for piece in self.slices if piece.file_slice.group.partition_path == source)

    @property
    def widened(self) -> PrepareSettings:
        """Return the settings of prepared rows that have all of the table's columns."""
        columns = pa.schema([field.with_nullable(True) for field in self.routing.schema])
        return replace(self.job.prepare, schema=columns)


@dataclass(frozen=True)
class ResolveTasks:
    """The step as the driver gives it to its tasks.

    Attributes:
        stage_tasks: all stage files; the position of a stage file is its number.
        tag_files: for each stage file, the files in which the key lookup has recorded the file slices of its rows.
        tasks: the number of tasks among which the keys are divided.
    """

    stage_tasks: tuple[StagedTask, ...]
    tag_files: tuple[tuple[TagFile, ...], ...]
    tasks: int
    settings: ResolveSettings


@dataclass(frozen=True)
class ResolvedPartition:
    """The numbers of the rows that one task assigns to a partition.

    Attributes:
        located: number of rows that go to slices that hold their keys, counted once for each slice.
        hits: these rows by the slice's position in the partition.
        sample: some keys of the rows that are new in the partition.
        buckets: with a bucket index, the number of rows of each bucket; empty without one.
    """

    partition_path: str
    located: int
    hits: dict[int, int]
    sample: tuple[str, ...]
    buckets: dict[int, int] = field(default_factory=dict)


@dataclass(frozen=True)
class ResolvedTask:
    """What one task returns.

    Attributes:
        staged: the rows by partition, in a new stage file.
        tag_path: the tag file, with one batch for each of ``partitions``.
        is_widened: whether the rows have all of the table's columns, because some were merged with stored rows.
        moved: number of locations from which rows move to another partition.
        dropped: number of rows that the duplicate policy has dropped.
        repeated: number of keys of a merge that come more than once. If there are any, no rows are written.
        example: one of these keys; "" if there are none.
    """

    staged: StagedTask
    tag_path: str
    partitions: tuple[ResolvedPartition, ...]
    is_widened: bool
    moved: int = 0
    dropped: int = 0
    repeated: int = 0
    example: str = ""


def keyed_schema(settings: PrepareSettings) -> pa.Schema:
    """Return the schema of prepared rows, preceded by the columns that exist only during the shuffle by key."""
    routing = pa.schema(
        [(TASK, pa.int32()), (ARRIVAL, pa.int64()), (_PLACES, pa.list_(pa.int64())), (_SOURCE, pa.string())]
    )
    return pa.schema([*routing, *settings.prepared_schema])


def route_by_key(
    storage: Storage,
    stage: int,
    staged: StagedTask,
    tag_files: Sequence[TagFile],
    task_values: Sequence[int],
    settings: ResolveSettings,
) -> Iterator[pa.RecordBatch]:
    """Yield one stage file's rows with their tasks and with the slices that hold their keys, for the shuffle by key.

    Args:
        stage: the stage file's number.
        tag_files: the files in which the key lookup has recorded the file slices of this stage file's rows.
        task_values: for each task, the value of the `TASK` column by which Spark finds it.
    """
    hits_of = read_hits(storage, tag_files)
    values, prepare = np.asarray(task_values, np.int32), settings.job.prepare
    for source in sorted({run.partition_path for run in staged.runs}):
        hits = hits_of.get(ANY_PARTITION) if prepare.is_global else _number_slices(hits_of, source, settings)
        first = 0
        for batch in read_staged_batches(storage, staged, source):
            start = 0
            for rows in split_rows(batch, BATCH_ROWS, BATCH_BYTES):
                numbers = np.arange(rows.num_rows) + first + start
                chosen = values[hash_chain(rows.column(RECORD_KEY), 1)[0] % len(values)]
                columns = [pa.array(chosen), pa.array(arrival_numbers(stage, numbers)), _list_places(hits, numbers)]
                columns += [pa.repeat(source, len(numbers)), *conform(rows, prepare.prepared_schema).columns]
                yield pa.RecordBatch.from_arrays(columns, schema=keyed_schema(prepare))
                start += rows.num_rows
            first += batch.num_rows


def _number_slices(hits_of: Mapping[str, Hits], source: str, settings: ResolveSettings) -> Hits | None:
    """Return the locations of the rows that were staged under ``source``, with the numbers of the slices as ``files``.

    Args:
        hits_of: for each partition path, the locations of the stage file's rows in its slices.
    """
    numbers: dict[str, dict[int, int]] = {}
    for piece in settings.slices_of(source):
        numbers.setdefault(piece.file_slice.group.partition_path, {})[piece.at] = piece.number
    parts = [
        replace(hits_of[path], files=np.asarray([at_of[number] for number in hits_of[path].files.tolist()], np.int64))
        for path, at_of in numbers.items()
        if path in hits_of
    ]
    if not parts:
        return None
    joined = Hits(*(np.concatenate([getattr(part, name) for part in parts]) for name in HITS_SCHEMA.names))
    return joined.take(np.lexsort((joined.files, joined.rows)))


def _list_places(hits: Hits | None, positions: npt.NDArray[np.int64]) -> pa.Array:
    """Return for each of these consecutive rows of a stage file the list of its places."""
    if hits is None:
        return pa.ListArray.from_arrays(np.zeros(len(positions) + 1, np.int32), pa.array([], pa.int64()))
    low, high = np.searchsorted(hits.rows, [positions[0], positions[-1] + 1])
    counts = np.bincount(hits.rows[low:high] - positions[0], minlength=len(positions))
    offsets = np.concatenate([[0], np.cumsum(counts)]).astype(np.int32)
    return pa.ListArray.from_arrays(offsets, pa.array(hits.files[low:high] * 2 + hits.is_deleted[low:high]))


def resolve_rows(
    storage: Storage, batches: Iterable[pa.RecordBatch], settings: ResolveSettings, path: str
) -> ResolvedTask | None:
    """Assign a task's rows to partitions, and write them to a stage file and a tag file. Return None without rows.

    Args:
        batches: all rows of the task's keys, from `route_by_key`.
        path: path of the stage file, without its ending.

    Raises:
        DuplicateKeyError: a key comes more than once or is stored, and the duplicate policy refuses that.
    """
    job, schema = settings.job, keyed_schema(settings.job.prepare)
    table = pa.Table.from_batches([conform(batch, schema) for batch in batches], schema)
    if not table.num_rows:
        return None
    table = gather(table, np.asarray(pc.sort_indices(table.column(ARRIVAL))).astype(np.int64))
    if job.prepare.is_global:
        return _resolve_globally(storage, table, settings, path)
    return _resolve_in_partitions(storage, table, settings, path)


def _resolve_in_partitions(storage: Storage, table: pa.Table, settings: ResolveSettings, path: str) -> ResolvedTask:
    """Resolve the rows of a merge without a global index: a row belongs to the partition under which it was staged.

    A row that was staged under `ANY_PARTITION` belongs to each partition in which its key was found.
    """
    columns = settings.job.prepare.prepared_schema.names
    sources = {
        name: table.filter(pc.equal(table.column(_SOURCE), name))
        for name in pc.unique(table.column(_SOURCE)).to_pylist()
    }
    for rows in sources.values():
        if (refused := _report_repeated(rows, settings)) is not None:
            return refused
    parts: dict[str, tuple[pa.Table, Tagged]] = {}
    for source, rows in sources.items():
        slices = settings.slices_of(source)
        if settings.hashing is None:
            tagged = _read_places(rows.column(_PLACES), rows.column(RECORD_KEY), slices)
        else:
            tagged = _find_places(settings.hashing, rows.column(RECORD_KEY), slices)
        prepared = rows.select(columns)
        new = tagged.new if source != ANY_PARTITION else tagged.new[:0]
        new = choose_new(prepared, new, settings.insert_filter)
        owners = [piece.group.partition_path for piece in tagged.searched]
        names = sorted({source, *owners})
        codes = np.searchsorted(names, owners)[tagged.files] if owners else np.empty(0, np.int64)
        own = np.full(len(new), names.index(source))
        leaving = np.zeros(len(tagged.keys), bool)
        for name, own_tags in group_by_partition(names, tagged, codes, leaving, new, own).items():
            parts[name] = prepared, drop_deletes_of_new_keys(settings.job, prepared, own_tags)
    return _write_resolved(storage, parts, settings, path)


def _report_repeated(rows: pa.Table, settings: ResolveSettings) -> ResolvedTask | None:
    """Return the result of a task that has got a key twice in the rows of a merge; None if each key comes once."""
    if settings.insert_filter is None:
        return None
    repeated = find_repeated_keys(rows.column(RECORD_KEY))
    if not len(repeated):
        return None
    nothing = StagedTask("", (), 0)
    return ResolvedTask(nothing, "", (), is_widened=False, repeated=len(repeated), example=repeated[0].as_py())


def _resolve_globally(storage: Storage, table: pa.Table, settings: ResolveSettings, path: str) -> ResolvedTask:
    """Resolve rows whose key alone identifies them."""
    job = settings.job
    if (refused := _report_repeated(table, settings)) is not None:
        return refused
    prepared = table.select(job.prepare.prepared_schema.names)
    rows = combine(prepared, job.rule) if job.needs_combining else prepared
    if job.dup_policy == "fail":
        refuse_repeated_keys({ANY_PARTITION: rows})
    first = pc.index_in(rows.column(RECORD_KEY), value_set=prepared.column(RECORD_KEY))
    tagged = _read_places(table.column(_PLACES).take(first), rows.column(RECORD_KEY), settings.slices)
    dropped = 0
    if job.dup_policy != "none":
        dropped = len(find_stored_keys(tagged))
        tagged = drop_stored_rows({ANY_PARTITION: rows}, {ANY_PARTITION: tagged}, fail=job.dup_policy == "fail")[
            ANY_PARTITION
        ]
    merging = {piece.file_slice.group: piece.merging for piece in settings.slices}

    def read_slice(piece: FileSlice, columns: pa.Schema, most_rows: int) -> Iterator[pa.RecordBatch]:
        return slice_batches(storage, piece, merging[piece.group], settings.stored, columns, most_rows)

    whole, by_partition = route_to_partitions(
        storage, read_slice, rows, tagged, settings.routing, settings.insert_filter
    )
    parts = {name: (whole, drop_deletes_of_new_keys(job, whole, own_tags)) for name, own_tags in by_partition.items()}
    return replace(_write_resolved(storage, parts, settings, path, is_widened=whole is not rows), dropped=dropped)


def _read_places(places: pa.ChunkedArray, keys: pa.ChunkedArray, slices: Sequence[FoundSlice]) -> Tagged:
    """Return the locations of the rows, from the lists that `route_by_key` has made. Slices get numbers without gaps.

    Args:
        places: for each row its list.
        keys: for each row its key.
    """
    lengths = np.asarray(pc.list_value_length(places)).astype(np.int64)
    values = np.asarray(pc.list_flatten(places)).astype(np.int64)
    new = np.flatnonzero(lengths == 0)
    is_deleted = values % 2 == 1
    return Tagged(
        np.repeat(np.arange(len(lengths)), lengths),
        np.searchsorted(np.asarray([piece.number for piece in slices], np.int64), values // 2),
        new[sort_texts(keys.take(pa.array(new)))],
        searched=tuple(piece.file_slice for piece in slices),
        is_deleted=is_deleted if is_deleted.any() else None,
    )


def _find_places(hashing: TableBuckets, keys: pa.ChunkedArray, slices: Sequence[FoundSlice]) -> Tagged:
    """Return as the locations of each row the slices of its bucket, whether or not they hold its key."""
    sorted_numbers: dict[PartitionBuckets, tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]] = {}
    rows_of: list[npt.NDArray[np.int64]] = []
    is_new = np.ones(len(keys), bool)
    for group in (piece.file_slice.group for piece in slices):
        buckets = hashing.of(group.partition_path)
        if buckets not in sorted_numbers:
            numbers = buckets.numbers(keys)
            order = np.argsort(numbers, kind="stable")
            sorted_numbers[buckets] = order, numbers[order]
        order, ascending = sorted_numbers[buckets]
        low, high = np.searchsorted(ascending, [(number := buckets.bucket_of(group.file_id) or 0), number + 1])
        rows_of.append(order[low:high])
        is_new[rows_of[-1]] = False
    new = np.flatnonzero(is_new)
    return Tagged(
        np.concatenate([*rows_of, np.empty(0, np.int64)]),
        np.repeat(np.arange(len(slices)), [len(rows) for rows in rows_of]),
        new[sort_texts(keys.take(pa.array(new)))],
        searched=tuple(piece.file_slice for piece in slices),
    )


def _write_resolved(
    storage: Storage,
    parts: Mapping[str, tuple[pa.Table, Tagged]],
    settings: ResolveSettings,
    path: str,
    *,
    is_widened: bool = False,
) -> ResolvedTask:
    """Write the rows by partition to a stage file, those with slices first, and their slices to a tag file.

    Args:
        parts: for each partition path, a table with its rows, and the locations of those that go there.
        path: path of the stage file, without its ending.
        is_widened: whether the rows have all of the table's columns.
    """
    prepare = settings.widened if is_widened else settings.job.prepare
    position = {piece.file_slice.group: piece.at for piece in settings.slices}
    partitions: list[ResolvedPartition] = []
    moved = 0
    tag_path = f"{path}-tags.arrow"
    with ExitStack() as stack:
        stage = stack.enter_context(
            StageWriter(storage, f"{path}.arrow", prepare, combined=False, buffer_bytes=0),
        )
        tags = stack.enter_context(
            pa.ipc.new_file(stack.enter_context(storage.open_output(tag_path)), HITS_SCHEMA),
        )
        for name, (rows, places) in sorted(parts.items()):
            positions = np.concatenate([places.keys, places.new])
            if not len(positions):
                continue
            stage.append_prepared({name: conform(gather(rows, positions), prepare.prepared_schema)})
            files = np.asarray([position[piece.group] for piece in places.searched], np.int64)[places.files]
            none = np.zeros(len(files), bool)
            leaving = none if places.is_leaving is None else places.is_leaving
            tags.write_batch(hits_batch(Hits(np.arange(len(files)), files, none, leaving)))
            numbers, counts = np.unique(files, return_counts=True)
            step = settings.sample_step
            sampled = places.new[step // 2 :: step] if step else places.new[:0]
            sample = rows.column(RECORD_KEY).take(pa.array(sampled)).to_pylist()
            hits = dict(zip(numbers.tolist(), counts.tolist(), strict=True))
            hashing = None if settings.hashing is None else settings.hashing.of(name)
            buckets = _count_buckets(rows.column(RECORD_KEY).take(pa.array(positions)), hashing)
            partitions.append(ResolvedPartition(name, len(files), hits, tuple(sample), buckets))
            moved += len(np.unique(places.keys[leaving]))
        staged = stage.finish()
    return ResolvedTask(staged, tag_path, tuple(partitions), is_widened, moved)


def _count_buckets(keys: pa.ChunkedArray, hashing: PartitionBuckets | None) -> dict[int, int]:
    if hashing is None:
        return {}
    numbers, counts = np.unique(hashing.numbers(keys), return_counts=True)
    return dict(zip(numbers.tolist(), counts.tolist(), strict=True))
