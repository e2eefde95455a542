"""The exchanged way, decided from counts: which unit looks for which keys, which bucket takes which row.

Values in, values out; no row is ever here. The driver holds, per write: a line per base file that is touched,
per stage file, and `_SAMPLES` keys per new file. The effects are in `tag_units` and `bucket_tasks`.
"""

from __future__ import annotations

import heapq
import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import Final

import mmh3
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakeformat.index.deleted_rows import DeletingSlice
from lakeformat.index.log_keys import LogsWithKeys
from lakeformat.index.port import TagCounts
from lakeformat.model.files import BaseFile, FileGroupId, FileSlice
from lakeformat.write.place.appends import Appending
from lakeformat.write.place.buckets import FileSizing, LogPlace, SmallFile, changed, derive_file_id, spread_inserts
from lakeformat.write.rows.prepare import ANY_PARTITION

__all__ = [
    "PartitionRoute",
    "RoutePlan",
    "RoutedBucket",
    "TagResult",
    "TagUnit",
    "bundle",
    "key_ranges",
    "plan_routes",
    "plan_units",
    "shuffle_values",
]

_WRITES_BASES: Final = Appending()
#: Keys of a sample per file that the incoming rows could fill, and at least per partition.
_SAMPLES: Final = 64
_LEAST_SAMPLE: Final = 1024


@dataclass(frozen=True, slots=True)
class TagUnit:
    """Some file slices of one partition, and the staged rows to look for in them.

    Attributes:
        source: the partition under which the rows are staged: the slices' own, or `ANY_PARTITION`.
        first_slice: position of ``slices[0]`` among the partition's slices.
        sample_step: of every so many staged keys one is told; 0 for none.
        exact: the partition has other units, so a guess about a key may contradict what they find.
        logs: position among ``slices`` -> log files that may hold keys which the base file lacks.
    """

    partition_path: str
    source: str
    slices: tuple[FileSlice, ...]
    first_slice: int
    sample_step: int
    exact: bool
    logs: Mapping[int, LogsWithKeys] = field(default_factory=dict)

    @property
    def bases(self) -> tuple[BaseFile, ...]:
        """The base files."""
        return tuple(piece.base for piece in self.slices if piece.base is not None)


@dataclass(frozen=True)
class TagResult:
    """What a unit found; the rows themselves are in its tag file.

    Attributes:
        path: the tag file; ``""`` if nothing was found.
        stages: per record batch of the tag file, the number of the stage file it points into.
        hits: position of a slice among the partition's -> rows that are in it.
        located: rows that are in at least one of the unit's slices.
        sample: the sampled keys, by a partition's first unit only.
        sample_hits: which of the sampled keys are in one of the unit's slices.
    """

    path: str
    stages: tuple[int, ...]
    hits: Mapping[int, int]
    located: int
    sample: tuple[str, ...] = ()
    sample_hits: tuple[int, ...] = ()
    counts: TagCounts = field(default_factory=TagCounts)


@dataclass(frozen=True, slots=True)
class RoutedBucket:
    """Work for one file group; ``updates`` and ``inserts`` are rows as counted, inserts roughly."""

    partition_path: str
    file_id: str
    base: BaseFile | None
    updates: int
    inserts: int
    onto: LogPlace | None = None

    @property
    def changes(self) -> str | None:
        """The instant that opened the slice which the rows go into; None for a new file group."""
        return changed(self.base, self.onto)


@dataclass(frozen=True, slots=True)
class PartitionRoute:
    """Where the rows of one partition go.

    Attributes:
        by_file: position of a slice among the partition's -> bucket.
        cuts: ascending keys; new keys below the first go to the first of ``inserts``, and so on.
        inserts: buckets for new keys, one more than cuts; none if new keys are dropped (deletes).
        deleting: position -> the slices whose log files may have deleted rows.
    """

    by_file: Mapping[int, int]
    cuts: tuple[str, ...]
    inserts: tuple[int, ...]
    deleting: Mapping[int, DeletingSlice] = field(default_factory=dict)


@dataclass(frozen=True)
class RoutePlan:
    """All buckets of a write, and per partition path the way to them."""

    buckets: tuple[RoutedBucket, ...]
    routes: Mapping[str, PartitionRoute]


# --- tagging ------------------------------------------------------------------------------------------


def plan_units(
    incoming: Mapping[str, int],
    slices: Mapping[str, Sequence[FileSlice]],
    *,
    tags: bool,
    sizing: FileSizing | None,
    closed: frozenset[FileGroupId],
    unit_bytes: int,
    appending: Appending = _WRITES_BASES,
    logs_of: Callable[[FileSlice], LogsWithKeys | None] = lambda _: None,
) -> tuple[TagUnit, ...]:
    """Cut the search into units of bounded size.

    Args:
        incoming: partition path of staged rows -> how many.
        slices: partition path -> live slices.
        tags: whether keys are looked up at all; if not, units only sample.
        sizing: how new files are cut; None if there are no inserts.
        closed: file groups that take no inserts.
        unit_bytes: files of a unit, in bytes.
        appending: how slices are treated; where rows are appended no guess about a key is allowed.
        logs_of: tells the log files of a slice that may hold keys of their own.
    """
    units: list[TagUnit] = []
    for source, rows in sorted(incoming.items()):
        targets = sorted(slices) if source == ANY_PARTITION else [source]
        for path in targets:
            own = slices.get(path, ())
            small = () if sizing is None else _small_files(own, rows, sizing, closed, appending)
            step = 0 if sizing is None else _sample_step(rows, small, sizing)
            chunks = list(_chunks(own, unit_bytes)) if tags else []
            if step and not chunks:
                chunks = [(0, 0)]
            exact = len(chunks) > 1 or appending.is_on
            for first, last in chunks:
                chosen = tuple(own[first:last])
                logs = {at: logs for at, piece in enumerate(chosen) if (logs := logs_of(piece)) is not None}
                units.append(TagUnit(path, source, chosen, first, step, exact, logs))
    return tuple(units)


def _chunks(slices: Sequence[FileSlice], unit_bytes: int) -> Iterator[tuple[int, int]]:
    first = size = 0
    for at, piece in enumerate(slices):
        if at > first and size + piece.size_bytes > unit_bytes:
            yield first, at
            first, size = at, 0
        size += piece.size_bytes
    if first < len(slices):
        yield first, len(slices)


def _small_files(
    slices: Sequence[FileSlice], rows: int, sizing: FileSizing, closed: frozenset[FileGroupId], appending: Appending
) -> list[SmallFile]:
    """Slices that may take some of so many new rows."""
    closed |= appending.closed(slices, sizing.small_file_bytes, rows * sizing.row_bytes)
    return [
        SmallFile(at, piece.group.file_id, piece.size_bytes)
        for at, piece in enumerate(slices)
        if piece.size_bytes < sizing.small_file_bytes and piece.group not in closed
    ]


def _sample_step(rows: int, small_files: Sequence[SmallFile], sizing: FileSizing) -> int:
    """One key of how many is needed to cut new files evenly; 0 if all inserts fit into one file."""
    shares = len(spread_inserts(rows, small_files, sizing))
    return 0 if shares <= 1 else max(1, rows // max(_LEAST_SAMPLE, _SAMPLES * shares))


# --- buckets ------------------------------------------------------------------------------------------


def plan_routes(
    incoming: Mapping[str, int],
    units: Sequence[TagUnit],
    results: Sequence[TagResult],
    slices: Mapping[str, Sequence[FileSlice]],
    sizing: FileSizing | None,
    closed: frozenset[FileGroupId],
    write_id: str,
    appending: Appending = _WRITES_BASES,
    deleting_of: Callable[[Sequence[FileSlice]], Mapping[int, DeletingSlice]] = lambda _: {},
) -> RoutePlan:
    """Update buckets by file group, small files topped up, the rest into new file groups by key range.

    Args:
        slices: partition path -> live slices that rows may go into.
        sizing: None if new keys are dropped.
        closed: file groups that take no inserts.
        deleting_of: tells the slices whose log files may have deleted rows, by position.
    """
    found: dict[str, list[TagResult]] = {}
    for unit, result in zip(units, results, strict=True):
        found.setdefault(unit.partition_path, []).append(result)
    buckets: list[RoutedBucket] = []
    routes: dict[str, PartitionRoute] = {}
    numbers = count()
    for path in sorted({*found, *(incoming.keys() - {ANY_PARTITION})}):
        own, tagged = slices.get(path, ()), found.get(path, [])
        updates = {at: rows for result in tagged for at, rows in result.hits.items()}
        shares = []
        if sizing is not None:
            # A row that several units locate counts several times: one bucket stands ready in any case.
            least = 1 if len(tagged) > 1 else 0
            new = max(least, incoming[path] - sum(result.located for result in tagged))
            shares = list(spread_inserts(new, _small_files(own, new, sizing, closed, appending), sizing)) if new else []
        cuts = key_ranges(_new_sample(tagged), [share.rows for share in shares])
        if shares and not cuts:  # Too few new keys for one to be in the sample, or for a second file.
            shares = [max(shares, key=lambda share: share.rows)]
        tops = {share.small.at: share.rows for share in shares if share.small is not None}
        by_file: dict[int, int] = {}
        for at in sorted({*updates, *tops}):
            by_file[at] = len(buckets)
            piece, top = own[at], tops.get(at, 0)
            onto = appending.place(piece) if appending.appends_to(piece, inserts=top) else None
            buckets.append(RoutedBucket(path, piece.group.file_id, piece.base, updates.get(at, 0), top, onto))
        inserts: list[int] = []
        for share in shares:
            if share.small is not None:
                inserts.append(by_file[share.small.at])
                continue
            inserts.append(len(buckets))
            buckets.append(RoutedBucket(path, derive_file_id(write_id, -1, next(numbers)), None, 0, share.rows))
        deleting = {at: piece for at, piece in deleting_of(own).items() if at in updates}
        routes[path] = PartitionRoute(by_file, cuts, tuple(inserts), deleting)
    return RoutePlan(tuple(buckets), routes)


def _new_sample(results: Sequence[TagResult]) -> pa.Array:
    """The sampled keys that no unit located, ascending."""
    keys = pa.array([key for result in results for key in result.sample], pa.string())
    is_new = np.ones(len(keys), bool)
    for result in results:
        is_new[list(result.sample_hits)] = False
    new = keys.filter(pa.array(is_new))
    return new.take(pc.sort_indices(new))


def key_ranges(sample: pa.Array, rows: Sequence[int]) -> tuple[str, ...]:
    """Keys that cut all keys into runs of about these many rows each, going by an ascending sample.

    >>> key_ranges(pa.array(["a", "b", "c", "d"]), [10, 10])
    ('c',)
    """
    if len(rows) < 2 or not len(sample):
        return ()
    ends = np.cumsum(rows)[:-1] * len(sample) // sum(rows)
    return tuple(sample.take(pa.array(ends)).to_pylist())


# --- tasks --------------------------------------------------------------------------------------------


def bundle(weights: Sequence[int], *, task_weight: int, at_least: int) -> list[int]:
    """Give each piece of work a task, so that tasks are about equal and near ``task_weight``.

    Returns:
        the task of each piece, tasks numbered from 0 without gaps.
    """
    tasks = min(len(weights), max(at_least, -(-sum(weights) // task_weight)))
    loads = [(0, task) for task in range(tasks)]
    chosen = [0] * len(weights)
    # Heaviest first, each to the task with least to do; a piece weighs at least one, so none stays idle.
    for at in sorted(range(len(weights)), key=lambda at: (-weights[at], at)):
        load, task = loads[0]
        chosen[at] = task
        heapq.heapreplace(loads, (load + max(1, weights[at]), task))
    return chosen


def shuffle_values(tasks: int) -> list[int]:
    """A 32-bit value for each task that Spark's ``repartition(tasks, value)`` sends to that very task.

    Source: Spark's ``HashPartitioning``: Murmur3 with seed 42, modulo. Other values meet in the right tasks just
    as well, only less evenly.
    """
    found: dict[int, int] = {}
    for value in count():
        if len(found) == tasks:
            break
        found.setdefault(mmh3.hash(struct.pack("<i", value), 42) % tasks, value)
    return [found[task] for task in range(tasks)]
