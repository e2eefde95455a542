"""Direct writing of base files, without a key lookup: step 6 without step 4 (bulk_insert, inserts, overwrites).

The rows need not be tagged or combined. The files are written into the stage folder; ``commit()`` moves only the files
of successful tasks into their partitions. So readers never see the files of failed, repeated or slow task attempts.

Sorted runs on storage are merged into one sorted stream per file group, batch by batch. Memory: one block of about
`BLOCK_BYTES` per run of a partition, and a copy of the blocks that a merge step uses. A task's input has one run per
``lakeformat.write.buffer.bytes``.

An ``insert`` repacks: it reads back the small files that its tasks have just written, and writes their rows again,
together with the table's small files. This is necessary because a task does not know the table's small files, so it
writes a small file of its own. Without repacking, a thousand inserts of half a row group each would leave a thousand
small files. Memory: the decoded rows of the merged files, at most
`_MOST_EXPANSION` times ``lakeformat.write.buffer.bytes``.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Executor, Future
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final, TypeAlias

import numpy as np
import pyarrow as pa

from lakeformat.arrow.conform import conform
from lakeformat.arrow.gather import combine_table, gather
from lakeformat.arrow.row_bytes import decoded_bytes, split_rows
from lakeformat.config.resolve import Options
from lakeformat.file_system_view.snapshot import Snapshot
from lakeformat.files.base_file import ROW_GROUP_ROWS, BaseFileWriter, FileSettings, stamp_rows
from lakeformat.files.footers import open_parquet, row_batches
from lakeformat.files.stored_shape import AS_STORED, StoredShape
from lakeformat.keys.record_keys import GeneratedKeys
from lakeformat.merge.order import KeyHashes, have_repeats, key_hashes
from lakeformat.model.commit import WriteStat
from lakeformat.model.files import BaseFile, BaseFileName, join_path
from lakeformat.model.record import RECORD_KEY
from lakeformat.storage.port import Storage
from lakeformat.transaction.order.conflict import PendingActionError
from lakeformat.transaction.order.written_file import WrittenFile
from lakeformat.write.rows.bad_rows import BadRows
from lakeformat.write.rows.bulk_insert_order import Layout, sort_order
from lakeformat.write.rows.prepare import PrepareSettings, deleted_rows_of, prepare
from lakeformat.write.rows.stage import Run, StagedTask, StageWriter
from lakeformat.write.workload.buckets import derive_file_id
from lakeformat.write.workload.small_files import SmallFile, choose_files_to_fill, fills_all_small_files

__all__ = [
    "DirectSettings",
    "DirectWriter",
    "Order",
    "RunCursor",
    "choose_small_files",
    "merge_runs",
    "merge_sorted",
    "read_files_back",
    "read_written",
    "stage_runs",
    "write_rows",
    "write_runs",
]

_MAX_OPEN_FILES: Final = 16
#: When at least this many rows are buffered, they are split by partition. With a greater number, splitting takes less
#: time per row, but rows wait longer in the buffer.
_ENOUGH_ROWS: Final = 262_144
#: When a file reaches this fraction of the maximum file size, it is closed, because no more than a tiny row group would
#: fit into the rest.
_FULL_SHARE: Final = 0.9


@dataclass(frozen=True, slots=True)
class DirectSettings:
    """Settings of one task attempt of a direct write.

    Attributes:
        folder: stage folder of this task attempt.
        task: number of the task, the same in every attempt; it is part of the names of its files.
        write_token: a token that is unique to the attempt.
        tail_bytes: if the last rows of a partition have fewer bytes in memory, `DirectWriter.finish` returns them and
            does not write them to a file.
        buffer_bytes: maximum bytes of buffered rows.
        holds_tails: whether a partition gets its first file only when its rows are more than such last rows, or when
            the buffer is full. So a small input is encoded once, by the caller that merges it into small files.
        finds_repeated_keys: whether `DirectWriter.has_repeated_keys` will be asked. It costs 8 bytes per row.
        closed_partitions: for each partition path that must not get rows, the message of the error if it gets some.
    """

    folder: str
    instant_time: str
    write_id: str
    task: int
    write_token: str
    tail_bytes: int
    buffer_bytes: int
    holds_tails: bool = False
    finds_repeated_keys: bool = False
    closed_partitions: Mapping[str, str] = field(default_factory=dict)


@dataclass
class _OpenFile:
    """A base file being written."""

    writer: BaseFileWriter
    stack: ExitStack
    name: BaseFileName
    path: str


@dataclass
class _Partition:
    """The buffered rows of one partition, and the base file to which its rows are being written, if one is open.

    Attributes:
        hashes: hashes of the keys of all rows that have arrived, if repeated keys are to be found.
    """

    waiting: list[pa.Table] = field(default_factory=list)
    bytes: int = 0
    open: _OpenFile | None = None
    job: Future[None] | None = None
    files: int = 0
    hashes: list[KeyHashes] = field(default_factory=list)


class DirectWriter:
    """A writer that splits rows by partition and streams them into base files of at most the target size.

    Memory: the buffer, one row group per open file, and the keys of open files (for their filters).

    Attributes:
        bad_rows: collects the rows that cannot be written; None refuses them.
    """

    def __init__(
        self,
        storage: Storage,
        prepare_settings: PrepareSettings,
        files: FileSettings,
        settings: DirectSettings,
        pool: Executor,
        bad_rows: BadRows | None = None,
    ) -> None:
        self.bad_rows = bad_rows
        self.storage, self.prepare_settings, self.files, self.settings = (
            storage,
            prepare_settings,
            files,
            settings,
        )
        self.pool = pool
        self.rows = 0
        self._incoming: list[pa.RecordBatch] = []
        self._incoming_bytes = self._incoming_rows = 0
        self._partitions: dict[str, _Partition] = {}
        self._written: list[WrittenFile] = []
        self._counter = 0
        generated = prepare_settings.keys.generates_keys
        self._new_keys = GeneratedKeys(settings.instant_time, settings.task) if generated else None

    def append(self, batch: pa.RecordBatch) -> None:
        """Add one batch of input rows to the buffer. When the buffer is full, split it by partition and write rows."""
        self.rows += batch.num_rows
        enough = max(self.settings.buffer_bytes // 2, 1)
        for part in split_rows(batch, _ENOUGH_ROWS, enough):
            self._incoming.append(part)
            self._incoming_bytes += decoded_bytes(part)
            self._incoming_rows += part.num_rows
            if self._incoming_rows >= _ENOUGH_ROWS or self._incoming_bytes >= enough:
                self._distribute()

    def _distribute(self) -> None:
        """Prepare the buffered input rows and add them to the buffers of their partitions.

        Start to write each partition that has enough rows for a row group. If too many bytes remain in memory, write
        the largest partitions, too.
        """
        if not self._incoming:
            return
        rows = pa.Table.from_batches(self._incoming)
        self._incoming, self._incoming_bytes, self._incoming_rows = [], 0, 0
        keys = self._new_keys.take(rows.num_rows) if self._new_keys else None
        for path, part in prepare(rows, self.prepare_settings, keys, self.bad_rows).items():
            if path in self.settings.closed_partitions:
                raise PendingActionError(self.settings.closed_partitions[path])
            partition = self._partitions.setdefault(path, _Partition())
            partition.waiting.append(part)
            partition.bytes += part.nbytes
            if self.settings.finds_repeated_keys:
                partition.hashes.append(key_hashes(part.column(RECORD_KEY)))
        held_bytes = self.settings.tail_bytes if self.settings.holds_tails else 0
        for path, partition in self._partitions.items():
            rows_waiting = sum(table.num_rows for table in partition.waiting)
            if rows_waiting >= ROW_GROUP_ROWS and (partition.files or partition.bytes >= held_bytes):
                self._start(path, partition, rows_waiting - rows_waiting % ROW_GROUP_ROWS)
        while sum(p.bytes for p in self._partitions.values()) > self.settings.buffer_bytes // 2:
            path = max(self._partitions, key=lambda p: self._partitions[p].bytes)
            self._start(path, self._partitions[path])

    def append_group(self, path: str, tables: Iterable[pa.Table]) -> None:
        """Write all prepared rows that have one output file number, in order, to base files that get no other rows.

        Memory: two row groups, and one of the tables.

        Args:
            path: partition path of the rows.
            tables: the rows, sorted and divided into tables.
        """
        partition = self._partitions.setdefault(path, _Partition())
        waiting = size = 0
        for table in tables:
            self.rows += table.num_rows
            partition.waiting.append(table)
            waiting, size = waiting + table.num_rows, size + table.nbytes
            if waiting >= ROW_GROUP_ROWS:
                self._start(path, partition, waiting - waiting % ROW_GROUP_ROWS)
                waiting, size = waiting % ROW_GROUP_ROWS, partition.bytes
            elif size >= self.files.row_group_bytes:
                self._start(path, partition)
                waiting = size = 0
        if partition.waiting:
            self._start(path, partition)
        self._wait(partition)
        self._close(partition)

    def _start(self, path: str, partition: _Partition, count: int | None = None) -> None:
        """Start a thread of the pool that writes a partition's first ``count`` buffered rows; None writes all."""
        self._wait(partition)
        waiting = pa.concat_tables(partition.waiting)
        rows = waiting.slice(0, count)
        rest = waiting.slice(rows.num_rows)
        partition.waiting = [rest] if rest.num_rows else []
        partition.bytes = rest.nbytes if rest.num_rows else 0
        if partition.open is None:
            self._make_room()
            partition.open = self._new_file(path, partition)
        first, self._counter = self._counter, self._counter + rows.num_rows
        partition.job = self.pool.submit(self._write, path, partition, rows, first)

    def _make_room(self) -> None:
        """If `_MAX_OPEN_FILES` files are open, close the largest of them."""
        opened = {path: p for path, p in self._partitions.items() if p.open is not None}
        if len(opened) >= _MAX_OPEN_FILES:
            for partition in opened.values():
                self._wait(partition)
            largest = max(opened.values(), key=lambda p: p.open.writer.size_bytes if p.open else 0)
            self._close(largest)

    @staticmethod
    def _wait(partition: _Partition) -> None:
        if partition.job is not None:
            partition.job.result()
            partition.job = None

    def _new_file(self, partition_path: str, partition: _Partition) -> _OpenFile:
        settings = self.settings
        file_id = derive_file_id(f"{settings.write_id}/{partition_path}", settings.task, partition.files)
        partition.files += 1
        name = BaseFileName(file_id, settings.write_token, settings.instant_time)
        path = f"{settings.folder}/{name}"
        stack = ExitStack()
        sink: Any = stack.enter_context(self.storage.open_output(path))
        writer = stack.enter_context(BaseFileWriter(sink, partition_path, name, self.files))
        return _OpenFile(writer, stack, name, path)

    def _write(self, path: str, partition: _Partition, rows: pa.Table, first: int) -> None:
        """Write rows of one partition to its files. Threads run this, but never two at once for one partition."""
        if (deleted := deleted_rows_of(rows)).any():
            rows = rows.filter(pa.array(~deleted))
        stamped_rows = stamp_rows(rows, self.files.schema, self.settings.instant_time, self.settings.task, first)
        start = 0
        while start < stamped_rows.num_rows:
            partition.open = partition.open or self._new_file(path, partition)
            writer = partition.open.writer
            group = stamped_rows.slice(start, self._rows_that_fit(writer, stamped_rows))
            writer.write(group)
            start += group.num_rows
            if writer.expected_bytes >= _FULL_SHARE * self.files.max_file_bytes:
                self._close(partition)

    def _rows_that_fit(self, writer: BaseFileWriter, rows: pa.Table) -> int:
        """Return the number of rows for the next row group: as many as fit into the file, at most `ROW_GROUP_ROWS`.

        If the file is empty, a row is assumed to be as large as in memory. On disk it is smaller, so the file does not
        get too large.
        """
        row_bytes = writer.expected_bytes / writer.rows if writer.rows else rows.nbytes / rows.num_rows
        room = int((self.files.max_file_bytes - writer.expected_bytes) / max(row_bytes, 1.0))
        return min(max(room, 1), ROW_GROUP_ROWS)

    def _close(self, partition: _Partition) -> None:
        opened, partition.open = partition.open, None
        if opened is None:
            return
        opened.writer.close()
        opened.stack.close()
        writer = opened.writer
        if not writer.rows:
            self.storage.delete(opened.path)
            return
        stat = WriteStat(
            opened.name.file_id,
            join_path(writer.partition_path, str(opened.name)),
            writer.partition_path,
            None,
            writer.rows,
            num_inserts=writer.rows,
            size_bytes=writer.size_bytes,
        )
        self._written.append(WrittenFile(opened.path, stat, writer.facts, decoded_bytes=writer.decoded_bytes))

    def finish(self) -> tuple[tuple[WrittenFile, ...], Mapping[str, pa.Table]]:
        """Write the remaining rows and close all files. Return the files, and the rows that were too few for a file.

        The files are ordered by partition path, and those of one partition by the arrival of their rows. The rows are
        returned as a mapping of partition path to rows.
        """
        self._distribute()
        tails: dict[str, pa.Table] = {}
        for path, partition in self._partitions.items():
            self._wait(partition)
            if not partition.waiting:
                continue
            if partition.open is None and partition.bytes < self.settings.tail_bytes:
                tails[path] = pa.concat_tables(partition.waiting)
            else:
                self._start(path, partition)
        closing = []
        for partition in self._partitions.values():
            self._wait(partition)
            closing.append(self.pool.submit(self._close, partition))
        for job in closing:
            job.result()
        return tuple(sorted(self._written, key=lambda written: written.stat.partition_path)), tails

    def has_repeated_keys(self) -> bool:
        """Tell whether a key occurs twice in one partition, among all rows that `append` was given."""
        return any(have_repeats(partition.hashes) for partition in self._partitions.values())

    def abandon(self) -> None:
        """Discard the open files after a failure. The caller deletes the stage folder."""
        for partition in self._partitions.values():
            if partition.job is not None:
                partition.job.exception()
            if partition.open is not None:
                error = RuntimeError("abandoned")
                partition.open.stack.__exit__(RuntimeError, error, None)
                partition.open = None


#: A function that takes rows and returns their positions in sorted order. Rows that are equal must keep their order.
Order: TypeAlias = Callable[[pa.Table], np.ndarray]


def write_rows(writer: DirectWriter, batches: Iterable[pa.RecordBatch], layout: Layout | None) -> None:
    """Write a stream of rows to base files, in the order of the layout; None keeps the input order."""
    if layout is None:
        for batch in batches:
            writer.append(batch)
        return
    path = f"{writer.settings.folder}/runs.arrow"
    staged = stage_runs(
        writer.storage, path, writer.prepare_settings, writer.settings, batches, layout, writer.bad_rows
    )
    write_runs(writer, [staged], layout)
    if staged.path:
        writer.storage.delete(staged.path)


def stage_runs(
    storage: Storage,
    path: str,
    prepared: PrepareSettings,
    settings: DirectSettings,
    batches: Iterable[pa.RecordBatch],
    layout: Layout,
    bad_rows: BadRows | None = None,
) -> StagedTask:
    """Write a stream of rows as sorted runs into one stage file. Memory: ``settings.buffer_bytes``.

    Args:
        bad_rows: collects the rows that cannot be written; None refuses them.
    """
    keys = GeneratedKeys(settings.instant_time, settings.task) if prepared.keys.generates_keys else None
    half = settings.buffer_bytes // 2  # Only half, because a run and its sorted copy are in memory together.
    with StageWriter(
        storage,
        path,
        prepared,
        combined=False,
        buffer_bytes=half,
        layout=layout,
        new_keys=keys,
        bad_rows=bad_rows,
    ) as stage:
        for batch in batches:
            stage.append(batch)
        return stage.finish()


def write_runs(writer: DirectWriter, tasks: Iterable[StagedTask], layout: Layout) -> None:
    """Merge the sorted runs of all stage files. Write each partition's rows, by output file number, to base files."""
    for partition, rows in merge_runs(writer.storage, tasks, layout.columns):
        writer.append_group(partition, rows)


class RunCursor:
    """A reader of one run of a stage file, block by block.

    Attributes:
        head: the rows of the present block that are not yet used; empty at the end of the run.
    """

    def __init__(self, reader: Any, run: Run) -> None:
        self._reader, self._next, self._last = reader, run.first, run.last
        self.head = pa.Table.from_batches([], reader.schema)
        self.advance(0)

    def advance(self, rows: int) -> None:
        """Drop the first ``rows`` rows of ``head``. If none remain, read the run's next block into ``head``."""
        self.head = self.head.slice(rows)
        while not self.head.num_rows and self._next < self._last:
            self.head = pa.Table.from_batches([self._reader.get_batch(self._next)])
            self._next += 1


def merge_runs(
    storage: Storage, tasks: Iterable[StagedTask], columns: tuple[str, ...]
) -> Iterator[tuple[str, Iterator[pa.Table]]]:
    """Merge the runs that have the same partition path and output file number. Yield the partition path and the rows.

    The results are ordered by partition path and file number. The rows of one result must be consumed before the next
    result is requested.

    Args:
        tasks: stage files whose runs are sorted by ``columns``.
        columns: the sort columns. If empty, rows keep the order of tasks and arrival.
    """
    with ExitStack() as stack:
        groups: dict[tuple[str, int], list[tuple[Any, Run]]] = {}
        for task in tasks:
            if task.path:
                reader = pa.ipc.open_file(stack.enter_context(storage.open_input(task.path)))
                for run in task.runs:
                    groups.setdefault((run.partition_path, run.number), []).append((reader, run))
        for (partition, _), runs in sorted(groups.items(), key=lambda group: group[0]):
            yield partition, _group_rows(runs, columns)


def _group_rows(runs: Sequence[tuple[Any, Run]], columns: tuple[str, ...]) -> Iterator[pa.Table]:
    if columns:
        yield from merge_sorted([RunCursor(reader, run) for reader, run in runs], partial(sort_order, columns=columns))
        return
    for reader, run in runs:
        for number in range(run.first, run.last):
            yield pa.Table.from_batches([reader.get_batch(number)])


def merge_sorted(cursors: Iterable[RunCursor], order: Order) -> Iterator[pa.Table]:
    """Merge runs, each sorted by ``order``, into one sorted stream of tables.

    The head of a run is its rows in memory. Each step has two parts:

    1. Find the smallest last row of all heads. No row that is not yet in memory sorts before it, because such a row
       follows the last row of its own run's head.
    2. Yield the rows of all heads up to this row, in sorted order. If only one head has such rows, it is yielded
       without a sort. So runs that do not overlap are never sorted.
    """
    alive = [cursor for cursor in cursors if cursor.head.num_rows]
    while alive:
        first_end, participants = _find_first_end(alive, order)
        if len(participants) == 1:
            yield alive[first_end].head
            alive[first_end].advance(alive[first_end].head.num_rows)
        else:
            yield _merge_step([alive[number] for number in participants], participants.index(first_end), order)
        alive = [cursor for cursor in alive if cursor.head.num_rows]


def _find_first_end(cursors: Sequence[RunCursor], order: Order) -> tuple[int, list[int]]:
    """Find the run whose last row in memory is the smallest in sort order.

    Return the index of this run, and the sorted indexes of the runs to merge next: this run, and each run whose first
    row in memory sorts before that last row.
    """
    ends = [cursor.head.slice(cursor.head.num_rows - 1) for cursor in cursors]
    starts = [cursor.head.slice(0, 1) for cursor in cursors]
    # The sort is stable, so an end comes before a start that is equal to it. A run with such a start can wait.
    order_of_rows = order(pa.concat_tables([*ends, *starts]))
    place = int(np.argmax(order_of_rows < len(cursors)))
    first_end = int(order_of_rows[place])
    return first_end, sorted({first_end, *(order_of_rows[:place] - len(cursors)).tolist()})


def _merge_step(cursors: Sequence[RunCursor], first_end: int, order: Order) -> pa.Table:
    """Merge the runs' rows in memory up to the last row of run ``first_end``. Return them, and advance past them."""
    lengths = [cursor.head.num_rows for cursor in cursors]
    rows = combine_table(pa.concat_tables([cursor.head for cursor in cursors]))
    positions = order(rows)
    last = int(np.flatnonzero(positions == sum(lengths[: first_end + 1]) - 1)[0])
    chosen = positions[: last + 1]
    owners = np.repeat(np.arange(len(cursors)), lengths)[chosen]
    for cursor, count in zip(cursors, np.bincount(owners, minlength=len(cursors)).tolist(), strict=True):
        cursor.advance(count)
    return gather(rows, chosen)


#: Small files of a write are read back and written again, up to a maximum total size. Their rows in memory may have at
#: most this many times that size.
_MOST_EXPANSION: Final = 4


def choose_small_files(
    written: Sequence[WrittenFile],
    tails: Mapping[str, pa.Table],
    snapshot: Snapshot,
    options: Options,
) -> tuple[WrittenFile, ...]:
    """Choose small files of this write whose rows are read back and written into larger files, smallest file first.

    A file is only chosen if its partition has another small file of this write, or one of the table that takes inserts,
    or rows that are not yet in a file. The chosen files have at most as many bytes as a write may keep in memory. Later
    writes fill the small files that are not chosen.

    Args:
        written: files that tasks have just written.
        tails: for each partition path, the rows that are not yet in a file.
    """
    at_most_bytes = options.write.buffer_bytes
    small = [file for file in written if file.stat.size_bytes < options.write.small_bytes]
    mates = Counter(file.stat.partition_path for file in small)
    mates.update(path for path, rows in tails.items() if rows.num_rows)
    added: Counter[str] = Counter()
    for file in small:
        added[file.stat.partition_path] += file.stat.size_bytes
    for path, size in added.items():
        mates[path] += len(_find_fillable(snapshot.by_partition.get(path, ()), size, options))
    chosen: list[WrittenFile] = []
    decoded = _MOST_EXPANSION * at_most_bytes
    for file in sorted(small, key=lambda file: (file.stat.size_bytes, file.staged_path)):
        at_most_bytes -= file.stat.size_bytes
        decoded -= file.decoded_bytes
        if at_most_bytes < 0 or decoded < 0:
            break
        if mates[file.stat.partition_path] > 1:
            chosen.append(file)
    return tuple(chosen)


def _find_fillable(files: Sequence[BaseFile], added_bytes: int, options: Options) -> Sequence[SmallFile]:
    """Return the small files of a partition that take so many bytes of inserts."""
    small = [
        SmallFile(number, file.name.file_id, file.size_bytes)
        for number, file in enumerate(files)
        if file.size_bytes < options.write.small_bytes
    ]
    if fills_all_small_files(options):
        return small
    return choose_files_to_fill([file.size_bytes for file in files], small, added_bytes, options.write.file_bytes)


def read_written(
    storage: Storage, file: WrittenFile, schema: pa.Schema, shape: StoredShape = AS_STORED
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of an unpublished file; ``shape`` makes keys that it does not hold. Memory: one row group."""
    time = BaseFileName.parse(file.stat.path.rpartition("/")[2]).instant_time
    names = shape.stored_names(schema.names, time)
    with storage.open_input(file.staged_path) as source, open_parquet(source, file.staged_path) as parquet:
        for batch in row_batches(parquet, file.staged_path, ROW_GROUP_ROWS, columns=names):
            yield conform(shape.restore(batch, schema.names, time), schema)


def read_files_back(
    storage: Storage,
    chosen: Sequence[WrittenFile],
    tails: Mapping[str, pa.Table],
    prepared: pa.Schema,
    shape: StoredShape,
) -> Mapping[str, pa.Table]:
    """Read the files that `choose_small_files` chose. Return by partition path their rows, followed by its ``tails``.

    Args:
        tails: for each partition path, the rows that are not yet in a file.
        prepared: the schema of the returned rows.
        shape: how the record keys are made if the files do not hold them.
    """
    parts: dict[str, list[pa.Table]] = {}
    for file in sorted(chosen, key=lambda file: file.staged_path):
        tables = (pa.Table.from_batches([batch]) for batch in read_written(storage, file, prepared, shape))
        parts.setdefault(file.stat.partition_path, []).extend(tables)
    for path, rows in tails.items():
        parts.setdefault(path, []).append(rows)
    return {path: pa.concat_tables(tables) for path, tables in sorted(parts.items())}
