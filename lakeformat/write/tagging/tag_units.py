"""Step 4 of a shuffled write, in tasks: look up a partition's staged keys in some of its file slices.

The keys are looked up in blocks of `_BLOCK_BYTES`. Memory: one block with its lookup results, whatever the size of the
table or the input, and the keys of log files that may hold keys which the base file lacks. The key columns of the files
are read once per block.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from concurrent.futures import Executor
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lakeformat.index.bloom import point_to_slices
from lakeformat.index.port import PartitionBuckets, TagCounts, Tagged
from lakeformat.index.record_index import SearchedSlices, count_look_up, look_up, tag_by_places, warn_not_used
from lakeformat.index.stored_keys import add_keys_of_logs, flag_deleted_pairs
from lakeformat.index.tagging import TagSettings, tag_files
from lakeformat.metadata_table.metadata_table import MetadataTable
from lakeformat.storage.port import Storage
from lakeformat.write.rows.stage import StagedTask, read_staged_batches
from lakeformat.write.workload.shuffle_plan import TagResult, TagUnit

__all__ = ["HITS_SCHEMA", "Hits", "TagFile", "hits_batch", "read_hits", "tag_unit"]

Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]

#: Maximum bytes of a block of keys that are looked up together.
_BLOCK_BYTES: Final = 64 << 20
#: The columns of a tag file, named as the attributes of `Hits`.
HITS_SCHEMA: Final = pa.schema(
    [("rows", pa.int64()), ("files", pa.int64()), ("is_deleted", pa.bool_()), ("is_leaving", pa.bool_())]
)


@dataclass(frozen=True)
class _KeyRun:
    """Consecutive record keys of one partition in one stage file.

    Attributes:
        stage: number of the stage file.
        first: position of the first key among the partition's rows in the stage file.
    """

    stage: int
    first: int
    keys: pa.Array


@dataclass(frozen=True)
class Hits:
    """The locations of one stage file's rows in the slices of one partition: arrays of equal length.

    Attributes:
        rows: positions of rows among those of the stage file, ascending. A row may occur several times.
        files: positions of slices that hold the rows' keys.
        is_deleted: whether the slice's log files have deleted the row, if the lookup has found that out.
        is_leaving: whether the row moves to another partition, so that it is deleted from the slice.
    """

    rows: Ints
    files: Ints
    is_deleted: Bools
    is_leaving: Bools

    def take(self, at: Ints | Bools | slice) -> Hits:
        """Return the locations at these positions, or those that a mask selects."""
        return Hits(self.rows[at], self.files[at], self.is_deleted[at], self.is_leaving[at])


def hits_batch(hits: Hits) -> pa.RecordBatch:
    """Return the locations as a record batch of a tag file."""
    return pa.record_batch([pa.array(getattr(hits, name)) for name in HITS_SCHEMA.names], schema=HITS_SCHEMA)


@dataclass(frozen=True)
class TagFile:
    """The part of a tag file that concerns one stage file. Tag files record which file slices hold the staged rows.

    Attributes:
        path: path of the tag file.
        partition_path: partition path of the file slices that hold the rows.
        batches: the numbers of the record batches in the tag file that locate rows of the stage file.
    """

    path: str
    partition_path: str
    batches: tuple[int, ...]


def tag_unit(
    storage: Storage,
    unit: TagUnit,
    staged: Sequence[StagedTask],
    settings: TagSettings,
    path: str,
    pool: Executor,
) -> TagResult:
    """Look up staged keys in the unit's file slices, and write to a tag file which slices hold which rows.

    Args:
        staged: all stage files of the write. A row is identified by the number of its stage file and its position
            there.
        path: path of the tag file to write. No file is written if no key is found.
    """
    if unit.hashing is not None and not unit.finds_deleted:
        return _count_buckets(storage, unit, unit.hashing, staged)
    with ExitStack() as stack:
        collector = _TagCollector(storage, unit, path, stack)
        for block in _read_blocks(storage, unit.source, staged, unit.stages):
            collector.add(block, settings, pool)
        return collector.finish()


def _count_buckets(
    storage: Storage, unit: TagUnit, hashing: PartitionBuckets, staged: Sequence[StagedTask]
) -> TagResult:
    """Count the staged rows of each bucket of a bucket index. No file of the table is read."""
    rows = np.zeros(hashing.buckets, np.int64)
    for block in _read_blocks(storage, unit.source, staged):
        keys = pa.chunked_array([piece.keys for piece in block], pa.string())
        rows += np.bincount(hashing.numbers(keys), minlength=hashing.buckets)
    counted = {bucket: int(rows[bucket]) for bucket in np.flatnonzero(rows).tolist()}
    return TagResult("", (), {}, 0, counts=TagCounts(keys=int(rows.sum())), buckets=counted)


def _read_blocks(
    storage: Storage, source: str, staged: Sequence[StagedTask], stages: Collection[int] | None = None
) -> Iterator[list[_KeyRun]]:
    """Yield the keys of stage files in blocks; of all stage files if ``stages`` is None."""
    block: list[_KeyRun] = []
    size = 0
    for stage, task in ((stage, task) for stage, task in enumerate(staged) if stages is None or stage in stages):
        first = 0
        for batch in read_staged_batches(storage, task, source, columns=1):
            parts = -(-batch.nbytes // _BLOCK_BYTES) or 1
            rows = max(1, -(-batch.num_rows // parts))
            for start in range(0, batch.num_rows, rows):
                keys = batch.column(0).slice(start, rows)
                if block and size + keys.nbytes > _BLOCK_BYTES:
                    yield block
                    block, size = [], 0
                block.append(_KeyRun(stage, first + start, keys))
                size += keys.nbytes
            first += batch.num_rows
    if block:
        yield block


@dataclass
class _TagCollector:
    """The results of one unit's key lookup: it counts the rows found, and writes their locations to the tag file."""

    storage: Storage
    unit: TagUnit
    path: str
    stack: ExitStack
    counts: TagCounts = field(default_factory=TagCounts)
    stages: list[int] = field(default_factory=list)
    hits: Ints = field(init=False)
    deleted: Ints = field(init=False)
    buckets: Ints = field(init=False)
    located: int = 0
    rows: int = 0
    sample: list[str] = field(default_factory=list)
    sample_hits: list[int] = field(default_factory=list)
    example: str = ""
    writer: Any = None

    def __post_init__(self) -> None:
        self.hits, self.deleted = np.zeros((2, len(self.unit.slices)), np.int64)
        self.buckets = np.zeros(0 if self.unit.hashing is None else self.unit.hashing.buckets, np.int64)

    def add(self, block: Sequence[_KeyRun], settings: TagSettings, pool: Executor) -> None:
        """Look up one block of keys. Write which slices hold which rows, as one record batch per run of keys."""
        keys = pa.concat_arrays([piece.keys for piece in block])
        hits = _locate(self.storage, self.unit, keys, settings, pool, self.counts)
        self.hits += np.bincount(hits.files, minlength=len(self.hits))
        self.deleted += np.bincount(hits.files[hits.is_deleted], minlength=len(self.deleted))
        is_hit = np.zeros(len(keys), bool)
        is_hit[hits.rows] = True
        stored = np.unique(hits.rows[~hits.is_deleted])
        self.located += len(stored)
        if len(stored) and not self.example:
            self.example = keys[int(stored[0])].as_py()
        self._sample(keys, is_hit)
        if self.unit.hashing is not None:
            numbers = self.unit.hashing.numbers(pa.chunked_array([keys]))
            self.buckets += np.bincount(np.delete(numbers, stored), minlength=len(self.buckets))
        start = 0
        for piece in block:
            low, high = np.searchsorted(hits.rows, [start, start + len(piece.keys)])
            if low < high:
                part = hits.take(slice(low, high))
                first_row, first_file = piece.first - start, self.unit.first_slice
                self._write(piece.stage, replace(part, rows=part.rows + first_row, files=part.files + first_file))
            start += len(piece.keys)
        self.rows += len(keys)

    def _sample(self, keys: pa.Array, is_hit: npt.NDArray[np.bool_]) -> None:
        """Sample every n-th key, where n is ``sample_step``.

        All units of a partition read the same keys in the same order, so they sample the same keys. Only the first unit
        returns the sampled keys; each unit returns the positions of those that it has found.
        """
        step = self.unit.sample_step
        if not step:
            return
        positions = np.arange(-self.rows % step, len(keys), step)
        self.sample_hits += ((self.rows + positions[is_hit[positions]]) // step).tolist()
        if self.unit.first_slice == 0:
            self.sample += keys.take(pa.array(positions)).to_pylist()

    def _write(self, stage: int, hits: Hits) -> None:
        if self.writer is None:
            sink = self.stack.enter_context(self.storage.open_output(self.path))
            self.writer = self.stack.enter_context(pa.ipc.new_file(sink, HITS_SCHEMA))
        self.writer.write_batch(hits_batch(hits))
        self.stages.append(stage)

    def finish(self) -> TagResult:
        """Close the tag file and return the unit's result."""
        self.stack.close()
        first = self.unit.first_slice
        return TagResult(
            self.path if self.stages else "",
            tuple(self.stages),
            _numbered(self.hits, first),
            self.located,
            tuple(self.sample),
            tuple(self.sample_hits),
            self.counts,
            _numbered(self.buckets, 0),
            example=self.example,
            deleted=_numbered(self.deleted, first),
        )


def _numbered(counts: Ints, first: int) -> Mapping[int, int]:
    """Return the counts that are not 0, by their positions plus ``first``."""
    return {first + number: int(counts[number]) for number in np.flatnonzero(counts).tolist()}


def _locate(
    storage: Storage, unit: TagUnit, keys: pa.Array, settings: TagSettings, pool: Executor, counts: TagCounts
) -> Hits:
    """Look up the keys in the unit's slices. Return the positions of the found keys, and of their slices.

    A key that occurs several times is looked up once.
    """
    if not unit.slices:
        nothing, none = np.empty(0, np.int64), np.empty(0, bool)
        return Hits(nothing, nothing, none, none)
    encoded = keys.dictionary_encode()
    distinct = encoded.dictionary
    column = pa.chunked_array([distinct])
    settings = replace(settings, exact=unit.exact, filters=unit.filters)
    tagged = None if unit.index is None else _ask_index(storage, unit, unit.index, column, settings, pool)
    if tagged is None:
        tagged = tag_files(storage, unit.bases, column, settings, pool)
        tagged = add_keys_of_logs(storage, unit.logs, column, point_to_slices(tagged, unit.slices), pool)
        is_deleted = flag_deleted_pairs(storage, unit.deleting, column, tagged.keys, tagged.files)
        tagged = replace(tagged, is_deleted=is_deleted)
    counts.add(tagged.counts)
    is_deleted = np.zeros(len(tagged.keys), bool) if tagged.is_deleted is None else tagged.is_deleted
    hits = Hits(tagged.keys, tagged.files, is_deleted, np.zeros(len(is_deleted), bool))
    if len(distinct) < len(keys):
        hits = _expand_to_rows(encoded.indices.to_numpy(), len(distinct), hits)
    return hits.take(np.lexsort((hits.files, hits.rows)))


def _ask_index(
    storage: Storage, unit: TagUnit, index: MetadataTable, keys: pa.ChunkedArray, settings: TagSettings, pool: Executor
) -> Tagged | None:
    """Look up keys in the record index first; return None if it cannot be read."""
    places = look_up(index, keys)
    if isinstance(places, str):
        warn_not_used(storage, places)
        return None
    searched = SearchedSlices(unit.slices, unit.logs, unit.deleting)
    tagged = tag_by_places(storage, places.rows, searched, keys, settings, pool, decides=unit.decides)
    count_look_up(tagged, len(keys), places)
    return tagged


def _expand_to_rows(codes: npt.NDArray[np.int32], distinct: int, hits: Hits) -> Hits:
    """Replace each distinct key by all rows that have it.

    Args:
        codes: for each row, the number of its key among the distinct keys.
        distinct: how many distinct keys there are.
        hits: the numbers of the distinct keys that were found, in place of rows.
    """
    keys = hits.rows
    order = np.argsort(codes, kind="stable").astype(np.int64)
    times = np.bincount(codes, minlength=distinct)
    first = np.cumsum(times) - times
    copies = times[keys]
    within = np.arange(copies.sum()) - np.repeat(np.cumsum(copies) - copies, copies)
    pairs = np.repeat(np.arange(len(keys)), copies)
    return replace(hits.take(pairs), rows=order[np.repeat(first[keys], copies) + within])


def read_hits(storage: Storage, tags: Sequence[TagFile]) -> Mapping[str, Hits]:
    """Read the locations of one stage file's rows from its tag files. Return them by the slices' partition path."""
    batches_of: dict[str, list[pa.RecordBatch]] = {}
    for tag in tags:
        with storage.open_input(tag.path) as source:
            reader = pa.ipc.open_file(source)
            batches_of.setdefault(tag.partition_path, []).extend(reader.get_batch(number) for number in tag.batches)
    hits: dict[str, Hits] = {}
    for path, batches in batches_of.items():
        table = pa.Table.from_batches(batches, HITS_SCHEMA)
        table = table.take(pc.sort_indices(table, [("rows", "ascending"), ("files", "ascending")]))
        hits[path] = Hits(*(np.asarray(column) for column in table.columns))
    return hits
