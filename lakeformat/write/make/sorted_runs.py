"""An external sort: sorted runs on storage are merged into one sorted stream per file group, batch by batch.

Memory: one block of about `BLOCK_BYTES` per run of a partition, and a copy of the blocks that a merge step uses. A
task's input has one run per ``lakeformat.write.buffer.bytes``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack
from functools import partial
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa

from lakeformat.codec.gather import gather, one_chunk
from lakeformat.keys.record_keys import GeneratedKeys
from lakeformat.storage.port import Storage
from lakeformat.write.make.direct import DirectSettings, DirectWriter
from lakeformat.write.rows.layout import Layout, sort_order
from lakeformat.write.rows.prepare import PrepareSettings
from lakeformat.write.rows.stage import Run, StagedTask, StageWriter

__all__ = ["Order", "RunCursor", "merge_runs", "merge_sorted", "stage_runs", "write_rows", "write_runs"]

#: A function that returns the positions that sort the rows; the sort is stable.
Order: TypeAlias = Callable[[pa.Table], np.ndarray]


def write_rows(writer: DirectWriter, batches: Iterable[pa.RecordBatch], layout: Layout | None) -> None:
    """Write a stream of rows to base files, in the order that the layout defines. Without a layout, keep the input
    order.
    """
    if layout is None:
        for batch in batches:
            writer.append(batch)
        return
    path = f"{writer.settings.folder}/runs.arrow"
    staged = stage_runs(writer.storage, path, writer.prepare_settings, writer.settings, batches, layout)
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
) -> StagedTask:
    """Write a stream of rows as sorted runs into one stage file. Memory: the settings' buffer."""
    keys = GeneratedKeys(settings.instant_time, settings.task) if prepared.keys.generated else None
    half = settings.buffer_bytes // 2  # The sorted copy of a run is in memory together with the run.
    with StageWriter(storage, path, prepared, combined=False, buffer_bytes=half, layout=layout, new_keys=keys) as stage:
        for batch in batches:
            stage.append(batch)
        return stage.finish()


def write_runs(writer: DirectWriter, tasks: Iterable[StagedTask], layout: Layout) -> None:
    """Merge runs into base files, file group by file group."""
    for partition, rows in merge_runs(writer.storage, tasks, layout.columns):
        writer.append_group(partition, rows)


class RunCursor:
    """A position in one run of a stage file; the run is read block by block.

    Attributes:
        head: the next rows, in memory; empty at the end of the run.
    """

    def __init__(self, reader: Any, run: Run) -> None:
        self._reader, self._next, self._last = reader, run.first, run.last
        self.head = pa.Table.from_batches([], reader.schema)
        self.drop(0)

    def drop(self, rows: int) -> None:
        """Move past the first rows of the head."""
        self.head = self.head.slice(rows)
        while not self.head.num_rows and self._next < self._last:
            self.head = pa.Table.from_batches([self._reader.get_batch(self._next)])
            self._next += 1


def merge_runs(
    storage: Storage, tasks: Iterable[StagedTask], columns: tuple[str, ...]
) -> Iterator[tuple[str, Iterator[pa.Table]]]:
    """Yield (partition path, its rows of one file number in order) for each group of runs.

    Groups are ordered by partition path and number. A group must be consumed before the next one is requested.

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
        for at in range(run.first, run.last):
            yield pa.Table.from_batches([reader.get_batch(at)])


def merge_sorted(cursors: Iterable[RunCursor], order: Order) -> Iterator[pa.Table]:
    """Merge runs that are sorted by this order.

    Each step finds the head that ends first. No run has a row left that sorts before that end, so all heads' rows up to
    it are yielded. Heads that begin later take no part, so runs that do not overlap are passed on without a sort.
    """
    alive = [cursor for cursor in cursors if cursor.head.num_rows]
    while alive:
        first_end, participants = _first_end(alive, order)
        if len(participants) == 1:
            yield alive[first_end].head
            alive[first_end].drop(alive[first_end].head.num_rows)
        else:
            yield _merge_step([alive[at] for at in participants], participants.index(first_end), order)
        alive = [cursor for cursor in alive if cursor.head.num_rows]


def _first_end(cursors: Sequence[RunCursor], order: Order) -> tuple[int, list[int]]:
    """Return the head whose last row comes first, and all heads that begin before that row, including itself."""
    ends = [cursor.head.slice(cursor.head.num_rows - 1) for cursor in cursors]
    starts = [cursor.head.slice(0, 1) for cursor in cursors]
    order_of_rows = order(pa.concat_tables([*ends, *starts]))  # Stable: ends sort before equal starts.
    at = int(np.argmax(order_of_rows < len(cursors)))
    first_end = int(order_of_rows[at])
    return first_end, sorted({first_end, *(order_of_rows[:at] - len(cursors)).tolist()})


def _merge_step(cursors: Sequence[RunCursor], first_end: int, order: Order) -> pa.Table:
    """Return all rows of the heads up to the last row of one of them, sorted. Move the heads past these rows."""
    lengths = [cursor.head.num_rows for cursor in cursors]
    rows = one_chunk(pa.concat_tables([cursor.head for cursor in cursors]))
    positions = order(rows)
    last = int(np.flatnonzero(positions == sum(lengths[: first_end + 1]) - 1)[0])
    chosen = positions[: last + 1]
    owners = np.repeat(np.arange(len(cursors)), lengths)[chosen]
    for cursor, count in zip(cursors, np.bincount(owners, minlength=len(cursors)).tolist(), strict=True):
        cursor.drop(count)
    return gather(rows, chosen)
