"""Staged rows: rows that Spark tasks have prepared, on storage until ``commit()`` merges them into the table.

Each task attempt writes one Arrow file of runs. A run holds one partition's rows in order of arrival. The reader maps
the file, so rows only need memory while they are read.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lakeformat.arrow.gather import combine_table
from lakeformat.arrow.row_bytes import decoded_bytes, split_rows
from lakeformat.keys.record_keys import GeneratedKeys
from lakeformat.storage.port import Storage
from lakeformat.write.rows.bad_rows import BadRows
from lakeformat.write.rows.bulk_insert_order import Layout
from lakeformat.write.rows.prepare import PrepareSettings, combine, prepare

__all__ = [
    "ARRIVAL",
    "BATCH_BYTES",
    "BATCH_ROWS",
    "BLOCK_BYTES",
    "TASK",
    "Run",
    "StageReader",
    "StageWriter",
    "StagedTask",
    "arrival_numbers",
    "read_staged_batches",
    "rows_by_partition",
    "split_into_blocks",
]


#: Name of a column that exists only during a shuffle: the value that Spark hashes to find the task of a row.
TASK: Final = "_lakeformat_task"
#: Name of a column that exists only during a shuffle: the row's position in the input, by which tasks sort the rows to
#: restore the input order.
ARRIVAL: Final = "_lakeformat_arrival"
#: Maximum number of rows in one batch that is passed to Spark.
BATCH_ROWS: Final = 16_384
#: Maximum bytes of one batch that is passed to Spark.
BATCH_BYTES: Final = 16 << 20
#: A row's position in the input is computed as the number of its stage file times this constant, plus the row's
#: position in the stage file. No stage file has so many rows, so no two rows get the same position.
_STAGE_ROWS: Final = 1 << 40
#: Maximum bytes of a record batch (block) of a sorted run. The merge of runs has one block per run in memory.
BLOCK_BYTES: Final = 1 << 20


@dataclass(frozen=True, slots=True)
class Run:
    """Some rows of one partition in a stage file: the record batches from ``first`` to ``last``, exclusive.

    Attributes:
        rows: number of rows.
        number: number of the output file that the layout has chosen for the rows.
    """

    partition_path: str
    first: int
    last: int
    rows: int
    number: int = 0


@dataclass(frozen=True, slots=True)
class StagedTask:
    """A task's report to ``commit()``: its stage file, the runs of rows in this file, and the number of input rows.

    Attributes:
        size_bytes: bytes of the rows of all runs in memory.
    """

    path: str
    runs: tuple[Run, ...]
    rows: int
    size_bytes: int = 0


def rows_by_partition(tasks: Iterable[StagedTask]) -> dict[str, int]:
    """Return a mapping of partition path to its number of staged rows. Rows of equal keys are counted separately."""
    counts: dict[str, int] = {}
    for task in tasks:
        for run in task.runs:
            counts[run.partition_path] = counts.get(run.partition_path, 0) + run.rows
    return counts


def arrival_numbers(stage: int, at: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Return the positions in the input of rows of a stage file, for the column `ARRIVAL`.

    Args:
        stage: the stage file's number.
        at: positions of the rows among those of the stage file.
    """
    return stage * _STAGE_ROWS + at


class StageWriter:
    """A writer of a stage file. It collects input batches; when its buffer is full, it writes the rows by partition.

    Args:
        layout: the order of the rows of a run, and their division over output files; None keeps the input order.
        new_keys: generator of record keys, for a table without record key fields; else None.
        bad_rows: collects the rows that cannot be written; None refuses them.

    Memory: ``buffer_bytes`` of input rows, twice that while a run is written.
    """

    def __init__(
        self,
        storage: Storage,
        path: str,
        settings: PrepareSettings,
        *,
        combined: bool,
        buffer_bytes: int,
        layout: Layout | None = None,
        new_keys: GeneratedKeys | None = None,
        bad_rows: BadRows | None = None,
    ) -> None:
        self._layout, self._new_keys, self._bad_rows = layout, new_keys, bad_rows
        self.path, self._settings, self._limit = path, settings, buffer_bytes
        self._combined = combined and settings.rule.combines_parts
        self._buffer: list[pa.RecordBatch] = []
        self._bytes = self._rows = self._batches = self._staged_bytes = 0
        self._runs: list[Run] = []
        self._stack = ExitStack()
        self._storage = storage
        self._writer: Any = None

    def __enter__(self) -> StageWriter:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.__exit__(kind, error, trace)

    def append(self, batch: pa.RecordBatch) -> None:
        """Add one batch of input rows to the buffer. When the buffer is full, write its rows as a run per partition."""
        self._rows += batch.num_rows
        for part in split_rows(batch, max(batch.num_rows, 1), max(self._limit, BLOCK_BYTES)):
            self._buffer.append(part)
            self._bytes += decoded_bytes(part)
            if self._bytes >= self._limit:
                self._flush()

    def append_prepared(self, rows: Mapping[str, pa.Table]) -> None:
        """Write rows that are already prepared, as one run per partition."""
        for partition, table in rows.items():
            self._write(partition, table)
            self._rows += table.num_rows

    def _flush(self) -> None:
        if not self._buffer:
            return
        table = pa.Table.from_batches(self._buffer)
        self._buffer, self._bytes = [], 0
        keys = self._new_keys.take(table.num_rows) if self._new_keys else None
        for partition, rows in prepare(table, self._settings, keys, self._bad_rows).items():
            if self._layout is not None:
                for number, part in self._layout.arrange(rows):
                    self._write(partition, part, number)
            else:
                self._write(partition, combine(rows, self._settings.rule) if self._combined else rows)

    def _write(self, partition: str, rows: pa.Table, number: int = 0) -> None:
        if self._writer is None:
            sink = self._stack.enter_context(self._storage.open_output(self.path))
            self._writer = self._stack.enter_context(pa.ipc.new_file(sink, self._settings.prepared_schema))
        batches = split_into_blocks(rows, BLOCK_BYTES) if self._layout else combine_table(rows).to_batches()
        for batch in batches:
            self._writer.write_batch(batch)
            self._staged_bytes += batch.nbytes
        self._runs.append(Run(partition, self._batches, self._batches + len(batches), rows.num_rows, number))
        self._batches += len(batches)

    def finish(self) -> StagedTask:
        """Write the buffered rows and close the file. If there were no rows, no file is created."""
        self._flush()
        self._stack.close()
        path = self.path if self._writer is not None else ""
        return StagedTask(path, tuple(self._runs), self._rows, self._staged_bytes)


def split_into_blocks(rows: pa.Table, most_bytes: int) -> list[pa.RecordBatch]:
    """Split the rows into batches of at most ``most_bytes``; a larger row gets a batch of its own."""
    blocks = [
        batch for part in combine_table(rows).to_batches() for batch in split_rows(part, part.num_rows, most_bytes)
    ]
    return [block for block in blocks if block.num_rows]


class StageReader:
    """A reader of the rows that all tasks have staged. Close it before the stage folder is deleted."""

    def __init__(self, storage: Storage, tasks: Iterable[StagedTask], settings: PrepareSettings) -> None:
        self._stack = ExitStack()
        self._settings = settings
        self._parts: dict[str, list[pa.RecordBatch]] = {}
        for task in tasks:
            if task.path:
                source = self._stack.enter_context(storage.open_input(task.path))
                reader = pa.ipc.open_file(source)
                for run in task.runs:
                    batches = [reader.get_batch(number) for number in range(run.first, run.last)]
                    self._parts.setdefault(run.partition_path, []).extend(batches)

    def __enter__(self) -> StageReader:
        return self

    def __exit__(self, *error: object) -> None:
        self._parts.clear()
        self._stack.close()

    def read_partitions(self) -> Mapping[str, pa.Table]:
        """Return a mapping of partition path to the rows of all tasks, in order of task and arrival."""
        schema = self._settings.prepared_schema
        parts: Sequence[tuple[str, list[pa.RecordBatch]]] = sorted(self._parts.items())
        return {partition: pa.Table.from_batches(batches, schema) for partition, batches in parts}


def read_staged_batches(
    storage: Storage, task: StagedTask, partition_path: str, *, columns: int | None = None
) -> Iterator[pa.RecordBatch]:
    """Yield one partition's rows in one stage file, batch by batch, in order of arrival.

    Args:
        columns: the number of leading columns to read; None reads all.
    """
    runs = [run for run in task.runs if run.partition_path == partition_path]
    if not runs:
        return
    numbers = None if columns is None else list(range(columns))
    with storage.open_input(task.path) as source:
        reader = pa.ipc.open_file(source, options=pa.ipc.IpcReadOptions(included_fields=numbers))
        for run in runs:
            for number in range(run.first, run.last):
                yield reader.get_batch(number)
