"""The driver's plan of steps 4 and 5 of a shuffled write: the units of key lookup, and the buckets of the rows.

All functions are pure and see only numbers of rows and sampled keys. Memory: one record per touched base file and per
stage file, and `_SAMPLES` keys per new file. `tag_units` and `bucket_tasks` carry out the plan in tasks.
"""

from __future__ import annotations

import heapq
import struct
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import chain, count
from typing import Final

import mmh3
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakeformat.index.port import PartitionBuckets, TableBuckets, TagCounts
from lakeformat.index.stored_filters import StoredFilters
from lakeformat.index.stored_keys import DeletingSlice, LogsWithKeys
from lakeformat.metadata_table.metadata_table import MetadataTable
from lakeformat.model.files import BaseFile, FileGroupId, FileSlice
from lakeformat.write.rows.prepare import ANY_PARTITION
from lakeformat.write.workload.buckets import (
    AppendRules,
    Bucket,
    FileSizing,
    InsertShare,
    derive_file_id,
    files_to_fill,
    make_buckets,
    number_shares,
    slices_by_bucket,
    spread_inserts,
)
from lakeformat.write.workload.small_files import SmallFile

__all__ = [
    "HashedRoute",
    "KeyUse",
    "PartitionRoute",
    "RoutePlan",
    "TagResult",
    "TagUnit",
    "assign_to_tasks",
    "cut_key_ranges",
    "find_shuffle_values",
    "may_skip_shuffle",
    "plan_routes",
    "plan_units",
    "split_by_bytes",
]

_NO_APPENDS: Final = AppendRules()
#: Number of keys to sample for each file that the incoming rows could fill.
_SAMPLES: Final = 64
#: Minimum number of keys to sample per partition.
_LEAST_SAMPLE: Final = 1024
#: A write without a shuffle reads each staged row at most this many times on average.
_MOST_READS: Final = 3
#: A write without a shuffle opens stage files at most this many times, over all tasks and partitions.
_MOST_OPENED: Final = 1024


@dataclass(frozen=True, slots=True)
class KeyUse:
    """How a write uses the keys of its rows.

    Attributes:
        looks_up: whether the keys are looked up in the table.
        hashing: how keys belong to buckets; None if the table has no bucket index.
        drops_stored: whether a row is dropped if the table has its key (``hoodie.datasource.insert.dup.policy``).
        drops_new: whether a row is dropped if the table does not have its key (deletes).
    """

    looks_up: bool
    hashing: TableBuckets | None = None
    drops_stored: bool = False
    drops_new: bool = False


_LOOKS_UP: Final = KeyUse(looks_up=True)


@dataclass(frozen=True, slots=True)
class TagUnit:
    """A unit of key lookup: some file slices of one partition, and the staged rows whose keys are looked up in them.

    Attributes:
        source: the partition under which the rows are staged: that of the slices, or `ANY_PARTITION`.
        first_slice: position of ``slices[0]`` among the partition's slices.
        sample_step: n if every n-th staged key is returned as a sample; 0 if no key is.
        exact: whether every key that an index finds must also be compared with the files' key columns. This is
            necessary if the table takes log files, or if the partition has several units: one unit could report a false
            positive for a key that another unit has found.
        logs: for positions in ``slices``, the log files of the slice that may hold keys which its base file lacks.
        hashing: how keys belong to the partition's buckets; None without a bucket index. Keys are looked up only for a
            duplicate policy then.
        finds_deleted: whether to find out which of the found rows log files have deleted.
        deleting: if so, for positions in ``slices``, the slices whose log files may have deleted rows.
        index: the metadata table whose record index is asked before any file is searched; None for no index.
        decides: whether a key that is not in the record index is in none of the slices.
        stages: numbers of the stage files whose keys are looked up; None for all.
        filters: the bloom filters of the metadata table, which leave files out; None to ask none.
    """

    partition_path: str
    source: str
    slices: tuple[FileSlice, ...]
    first_slice: int
    sample_step: int
    exact: bool
    logs: Mapping[int, LogsWithKeys] = field(default_factory=dict)
    hashing: PartitionBuckets | None = None
    finds_deleted: bool = False
    deleting: Mapping[int, DeletingSlice] = field(default_factory=dict)
    index: MetadataTable | None = None
    decides: bool = True
    stages: tuple[int, ...] | None = None
    filters: StoredFilters | None = None

    @property
    def bases(self) -> tuple[BaseFile, ...]:
        """Return the base files of the slices that have one."""
        return tuple(piece.base for piece in self.slices if piece.base is not None)


@dataclass(frozen=True)
class TagResult:
    """The result of one `TagUnit`: how many rows each slice holds. The unit's tag file says which rows these are.

    Attributes:
        path: the tag file; ``""`` if no key was found.
        stages: for each record batch of the tag file, the number of the stage file whose rows it locates.
        hits: for each slice that holds staged rows, by its position in the partition, the number of these rows.
        located: number of staged rows whose keys are in at least one of the unit's slices. Rows that log files have
            deleted do not count if the unit finds them.
        sample: the sampled keys; only the first unit of a partition returns them.
        sample_hits: positions, within the sample, of the keys that are in one of the unit's slices.
        buckets: with a bucket index, the number of staged rows of each bucket, without those that count in ``located``;
            empty without one.
        example: a staged key that counts in ``located``; "" if there is none.
        deleted: the part of ``hits`` that the slices' log files have deleted, if the unit finds such rows.
    """

    path: str
    stages: tuple[int, ...]
    hits: Mapping[int, int]
    located: int
    sample: tuple[str, ...] = ()
    sample_hits: tuple[int, ...] = ()
    counts: TagCounts = field(default_factory=TagCounts)
    buckets: Mapping[int, int] = field(default_factory=dict)
    example: str = ""
    deleted: Mapping[int, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class PartitionRoute:
    """The rule by which a task assigns the rows of one partition to buckets.

    Attributes:
        by_file: for each slice that takes rows, by its position in the partition, the number of its bucket.
        cuts: ascending keys that divide the new keys into ranges; keys below the first cut go to the first bucket of
            ``inserts``, and so on.
        inserts: numbers of the buckets for new keys, one more than ``cuts``; empty if new keys are dropped (deletes).
        deleting: the slices whose log files may have deleted rows, by their positions in the partition; empty if the
            key lookup has found the deleted rows.
        drops_stored: whether a row is dropped if its key was found in a slice whose log files have not deleted it.
        hashed: with a bucket index, how keys belong to buckets; ``by_file``, ``cuts`` and ``inserts`` are empty then.
    """

    by_file: Mapping[int, int]
    cuts: tuple[str, ...]
    inserts: tuple[int, ...]
    deleting: Mapping[int, DeletingSlice] = field(default_factory=dict)
    drops_stored: bool = False
    hashed: HashedRoute | None = None


@dataclass(frozen=True, slots=True)
class HashedRoute:
    """The rule by which a task assigns the rows of one partition to buckets, if a hash of the key decides.

    Attributes:
        hashing: how keys belong to the partition's buckets.
        by_bucket: for each bucket of the index that takes rows, the number of its bucket in the write. A row of another
            bucket is dropped (deletes).
        stored: the buckets of the index whose file slice may hold the key of a row; empty if a duplicate policy has
            looked up the keys.
    """

    hashing: PartitionBuckets
    by_bucket: Mapping[int, int]
    stored: frozenset[int]


@dataclass(frozen=True)
class RoutePlan:
    """All buckets of a write, and for each partition path the rule that assigns its rows to them."""

    buckets: tuple[Bucket, ...]
    routes: Mapping[str, PartitionRoute]


# --- step 4: plan the key lookup ----------------------------------------------------------------------


def plan_units(
    incoming: Mapping[str, int],
    slices: Mapping[str, Sequence[FileSlice]],
    *,
    keys: KeyUse,
    sizing: FileSizing | None,
    closed_groups: frozenset[FileGroupId],
    unit_bytes: int,
    append_rules: AppendRules = _NO_APPENDS,
    logs_of: Callable[[FileSlice], LogsWithKeys | None] = lambda _: None,
    deleting_of: Callable[[Sequence[FileSlice]], Mapping[int, DeletingSlice]] = lambda _: {},
    index: MetadataTable | None = None,
    decides: bool = False,
) -> tuple[TagUnit, ...]:
    """Divide the key lookup into units of at most ``unit_bytes``, so that several tasks can share it.

    Args:
        incoming: for each partition path, the number of staged rows.
        slices: for each partition path, its live file slices.
        keys: how the keys are used. If they are not looked up, the units only return samples of the staged keys. With a
            bucket index and without a duplicate policy they only count the rows of each bucket.
        sizing: target file sizes; None if there are no inserts.
        closed_groups: file groups that take no inserts.
        unit_bytes: maximum bytes of the file slices in a unit; a larger slice gets its own unit.
        append_rules: the rules by which rows are appended to slices. If rows are appended, the lookup must be exact.
        logs_of: function that returns the log files of a slice that may hold keys which its base file lacks.
        deleting_of: function that returns, by position, those of the slices whose log files may have deleted rows.
        index: the metadata table whose record index is asked first, for rows that name their partition.
        decides: whether a key that is not in the record index is new.
    """
    units: list[TagUnit] = []
    for source, rows in sorted(incoming.items()):
        targets = sorted(slices) if source == ANY_PARTITION else [source]
        for path in targets:
            own = slices.get(path, ())
            hashing = None if keys.hashing is None else keys.hashing.of(path)
            if hashing is not None and not keys.drops_stored:
                units.append(TagUnit(path, source, (), 0, 0, exact=False, hashing=hashing))
                continue
            small = () if sizing is None else files_to_fill(own, rows, sizing, closed_groups, append_rules)
            step = 0 if sizing is None else _sample_step(rows, small, sizing)
            chunks = list(split_by_bytes(own, unit_bytes)) if keys.looks_up else []
            if (step or hashing is not None) and not chunks:
                chunks = [(0, 0)]
            exact = len(chunks) > 1 or append_rules.takes_logs or keys.drops_stored
            for first, last in chunks:
                chosen = tuple(own[first:last])
                logs = {number: logs for number, piece in enumerate(chosen) if (logs := logs_of(piece)) is not None}
                deleting = deleting_of(chosen) if keys.drops_stored else {}
                asked = index if source != ANY_PARTITION and chosen else None
                facts = (step, exact, logs, hashing, keys.drops_stored, deleting, asked, decides)
                units.append(TagUnit(path, source, chosen, first, *facts))
    return tuple(units)


def split_by_bytes(slices: Sequence[FileSlice], unit_bytes: int) -> Iterator[tuple[int, int]]:
    """Yield ranges of slices of at most so many bytes; a larger slice has its own range."""
    first = size = 0
    for number, piece in enumerate(slices):
        if number > first and size + piece.size_bytes > unit_bytes:
            yield first, number
            first, size = number, 0
        size += piece.size_bytes
    if first < len(slices):
        yield first, len(slices)


def _sample_step(rows: int, small_files: Sequence[SmallFile], sizing: FileSizing) -> int:
    """Return n if every n-th key must be sampled, to divide inserts evenly over files; 0 if they fit into one file."""
    shares = len(spread_inserts(rows, small_files, sizing))
    return 0 if shares <= 1 else max(1, rows // max(_LEAST_SAMPLE, _SAMPLES * shares))


# --- step 5: plan the buckets -------------------------------------------------------------------------


def _new_bucket_id(buckets: PartitionBuckets, bucket: int, file_id: str) -> str:
    return buckets.new_file_id(bucket, file_id)


def plan_routes(
    incoming: Mapping[str, int],
    units: Sequence[TagUnit],
    results: Sequence[TagResult],
    slices: Mapping[str, Sequence[FileSlice]],
    sizing: FileSizing | None,
    closed_groups: frozenset[FileGroupId],
    write_id: str,
    append_rules: AppendRules = _NO_APPENDS,
    keys: KeyUse = _LOOKS_UP,
    bucket_id_of: Callable[[PartitionBuckets, int, str], str] = _new_bucket_id,
    deleting_of: Callable[[Sequence[FileSlice]], Mapping[int, DeletingSlice]] = lambda _: {},
) -> RoutePlan:
    """Plan one bucket per file group, and the rules by which rows go to buckets. New keys fill small files first.

    Args:
        incoming: for each partition path, the number of staged rows.
        slices: for each partition path, its live file slices that may take rows.
        sizing: target file sizes; None if new keys are dropped.
        closed_groups: file groups that take no inserts.
        keys: how the keys are used.
        bucket_id_of: function that returns the id of a new file group of a bucket index, from the partition's buckets,
            the bucket's number and a unique id.
        deleting_of: function that returns, by position, those of the slices whose log files may have deleted rows.
    """
    results_of: dict[str, list[TagResult]] = {}
    for unit, result in zip(units, results, strict=True):
        results_of.setdefault(unit.partition_path, []).append(result)
    buckets: list[Bucket] = []
    routes: dict[str, PartitionRoute] = {}
    new_ids = (derive_file_id(write_id, -1, number) for number in count())
    for path in sorted({*results_of, *(incoming.keys() - {ANY_PARTITION})}):
        own, tagged, first = slices.get(path, ()), results_of.get(path, []), len(buckets)
        if keys.hashing is not None:
            hashing = keys.hashing.of(path)
            pieces = slices_by_bucket(own, hashing)
            counts = _count_hashed(pieces, own, tagged, keys, hashing)

            def make_id(number: int, hashing: PartitionBuckets = hashing) -> str:
                return bucket_id_of(hashing, number, next(new_ids))

            planned = make_buckets(path, pieces, *counts, append_rules, make_id)
            searched = frozenset(n for n, bucket in planned.items() if bucket.updates and not keys.drops_stored)
            hashed = HashedRoute(hashing, {number: first + place for place, number in enumerate(planned)}, searched)
            routes[path] = PartitionRoute({}, (), (), drops_stored=keys.drops_stored, hashed=hashed)
        else:
            hits = ((result.deleted if keys.drops_stored else result.hits).items() for result in tagged)
            updates = dict(chain.from_iterable(hits))
            fills = partial(files_to_fill, own, closed_groups=closed_groups, append_rules=append_rules, updated=updates)
            shares, cuts = _share_inserts(incoming.get(path, 0), tagged, sizing, fills)
            files = number_shares(shares, len(own))
            inserts = {file: share.rows for file, share in zip(files, shares, strict=True)}
            planned = make_buckets(path, dict(enumerate(own)), updates, inserts, append_rules, lambda _: next(new_ids))
            place_of = {number: first + place for place, number in enumerate(planned)}
            by_file = {file: place for file, place in place_of.items() if file < len(own)}
            kept = {} if keys.drops_stored else {n: piece for n, piece in deleting_of(own).items() if n in updates}
            targets = tuple(place_of[file] for file in files)
            routes[path] = PartitionRoute(by_file, cuts, targets, kept, keys.drops_stored)
        buckets += planned.values()
    return RoutePlan(tuple(buckets), routes)


def _share_inserts(
    rows: int,
    results: Sequence[TagResult],
    sizing: FileSizing | None,
    fills: Callable[..., Sequence[SmallFile]],
) -> tuple[Sequence[InsertShare], tuple[str, ...]]:
    """Divide the new rows of one partition over files. Return each file's share, and the keys that divide the shares.

    Args:
        rows: number of staged rows of the partition.
        fills: `files_to_fill` of the partition, which takes the number of new rows and the sizing.
    """
    if sizing is None:
        return (), ()
    # If several units locate a row, it is counted several times, so the number of new rows may be too low. Plan for at
    # least one new row. Without a bucket for new rows, tasks would drop them.
    least = 1 if len(results) > 1 else 0
    new = max(least, rows - sum(result.located for result in results))
    if not new:
        return (), ()
    shares = spread_inserts(new, fills(rows=new, sizing=sizing), sizing)
    cuts = cut_key_ranges(_sample_new_keys(results), [share.rows for share in shares])
    if shares and not cuts:  # There are no key ranges, so all new keys go to one file.
        shares = (max(shares, key=lambda share: share.rows),)
    return shares, cuts


def _count_hashed(
    stored: Collection[int],
    slices: Sequence[FileSlice],
    results: Sequence[TagResult],
    keys: KeyUse,
    hashing: PartitionBuckets,
) -> tuple[Mapping[int, int], Mapping[int, int]]:
    """Return the numbers of updates and of inserts of each bucket of a partition, by its number in the index.

    Args:
        stored: the numbers of the buckets that have a file slice.
    """
    counted = {
        bucket: rows for bucket, rows in _count_of_buckets(results).items() if bucket in stored or not keys.drops_new
    }
    if keys.drops_stored:
        hits = chain.from_iterable(result.deleted.items() for result in results)
        deleted = {hashing.bucket_of(slices[number].group.file_id): rows for number, rows in hits}
        updates = {bucket: deleted.get(bucket, 0) for bucket in counted}
    else:
        updates = {bucket: rows for bucket, rows in counted.items() if keys.looks_up and bucket in stored}
    return updates, {bucket: rows - updates.get(bucket, 0) for bucket, rows in counted.items()}


def _count_of_buckets(results: Sequence[TagResult]) -> Mapping[int, int]:
    """Return the number of rows of each bucket that takes rows.

    Each unit counts all rows of the partition except those that it has found itself, and a key is found in one unit. So
    the least count of a bucket is right.
    """
    first, *others = [result.buckets for result in results] or [{}]
    counts = {
        bucket: min(rows, *(other.get(bucket, 0) for other in others)) if others else rows
        for bucket, rows in first.items()
    }
    return {bucket: rows for bucket, rows in counts.items() if rows}


def _sample_new_keys(results: Sequence[TagResult]) -> pa.Array:
    """Return, in ascending order, the sampled keys that no unit has found in a file."""
    keys = pa.array([key for result in results for key in result.sample], pa.string())
    is_new = np.ones(len(keys), bool)
    for result in results:
        is_new[list(result.sample_hits)] = False
    new = keys.filter(pa.array(is_new))
    return new.take(pc.sort_indices(new))


def cut_key_ranges(sample: pa.Array, rows: Sequence[int]) -> tuple[str, ...]:
    """Return the keys that divide all sorted keys into ranges of about the given numbers of rows.

    The cuts are estimated from an ascending sample of the keys. The first cut is the first key of the second range, the
    second cut that of the third range, and so on.

    >>> cut_key_ranges(pa.array(["a", "b", "c", "d"]), [10, 10])
    ('c',)
    """
    if len(rows) < 2 or not len(sample):
        return ()
    ends = np.cumsum(rows)[:-1] * len(sample) // sum(rows)
    return tuple(sample.take(pa.array(ends)).to_pylist())


# --- assign work to tasks -----------------------------------------------------------------------------


def assign_to_tasks(weights: Sequence[int], *, task_weight: int, at_least: int) -> list[int]:
    """Assign each piece of work to a task, so that the tasks' weights are about equal and near ``task_weight``.

    Returns:
        the number of each piece's task; tasks are numbered from 0 without gaps.
    """
    tasks = min(len(weights), max(at_least, -(-sum(weights) // task_weight)))
    loads = [(0, task) for task in range(tasks)]
    chosen = [0] * len(weights)
    # Assign the heaviest piece first, each to the task with the least total weight. Every piece counts at least 1,
    # because pieces of weight 0 would all go to the same task, and other tasks would get none.
    for number in sorted(range(len(weights)), key=lambda at: (-weights[at], at)):
        load, task = loads[0]
        chosen[number] = task
        heapq.heapreplace(loads, (load + max(1, weights[number]), task))
    return chosen


def find_shuffle_values(tasks: int) -> list[int]:
    """Return a 32-bit value for each task. Spark's ``repartition(tasks, value)`` sends rows with it to this task.

    Source: Spark's ``HashPartitioning``: Murmur3 with seed 42, modulo the number of tasks. With other values, the rows
    of a bucket would still go to one task, but some tasks might get many buckets and others none.
    """
    values: dict[int, int] = {}
    for value in count():
        if len(values) == tasks:
            break
        values.setdefault(mmh3.hash(struct.pack("<i", value), 42) % tasks, value)
    return [values[task] for task in range(tasks)]


def may_skip_shuffle(
    stages: Sequence[Mapping[str, int]], buckets: Sequence[Bucket], tasks: Sequence[int], *, most_rows: int
) -> bool:
    """Tell whether each task should read its rows from the stage files itself, as less work than a shuffle.

    A task then reads all rows of its partitions. So the answer is yes if few rows are read more than once, few files
    are opened, and no task gets more than ``most_rows`` rows, because it has all of them in memory.

    Args:
        stages: for each stage file a mapping of partition path to its number of rows.
        buckets: all buckets of the write.
        tasks: for each bucket, the number of the task that writes it.
    """
    own: dict[int, int] = {}
    partitions: dict[int, set[str]] = {}
    for bucket, task in zip(buckets, tasks, strict=True):
        own[task] = own.get(task, 0) + bucket.updates + bucket.inserts
        partitions.setdefault(task, set()).add(bucket.partition_path)
    if max(own.values(), default=0) > most_rows:
        return False
    paths = {bucket.partition_path for bucket in buckets}
    most_reads = _MOST_READS * sum(sum(stage.values()) for stage in stages)
    read = opened = 0
    for wanted_paths in partitions.values():
        for stage in stages:
            rows = [count for path, count in stage.items() if path in wanted_paths or path not in paths]
            read, opened = read + sum(rows), opened + len(rows)
            if read > most_reads or opened > _MOST_OPENED:
                return False
    return True
