"""The bad rows of one task of a write: collected with their reasons, and staged until they are put aside.

Memory: `_MOST_BYTES` of bad rows as text. More of them are written to a file in the stage folder of the write.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lakeformat.arrow.kinds import Kind, kind_of
from lakeformat.model.record import PARTITION_PATH, RECORD_KEY
from lakeformat.storage.port import Storage
from lakeformat.write.rows.faults import Fault, Reason

__all__ = ["STAGED_COLUMNS", "BadRows", "StagedBadRows", "json_text", "json_texts"]

#: Bytes of collected rows above which they are written to a file.
_MOST_BYTES: Final = 8 << 20
#: Number of bad rows that become text at once.
_ROWS_AT_ONCE: Final = 16_384
#: Columns that rows get on the way, and the beginning of the names of those of SQL statements.
_ADDED: Final = frozenset({RECORD_KEY, PARTITION_PATH})
_ADDED_FOR_STATEMENTS: Final = "lakeformat_"
#: The columns of bad rows until they are put aside.
STAGED_COLUMNS: Final = pa.schema(
    [
        ("reason", pa.string()),
        ("column_name", pa.string()),
        ("message", pa.string()),
        ("row_json", pa.string()),
        ("task", pa.int32()),
        ("row_number", pa.int64()),
    ]
)


@dataclass(frozen=True, slots=True)
class StagedBadRows:
    """The bad rows of one task. Picklable.

    Attributes:
        path: the file with the rows in the stage folder; "" if there is none.
        counts: maps each reason to its number of rows.
        held: rows that are in memory; always empty for a task of Spark.
        uncounted: number of bad rows that were found before the input rows were counted.
    """

    path: str = ""
    counts: Mapping[str, int] = field(default_factory=dict)
    held: tuple[pa.RecordBatch, ...] = ()
    uncounted: int = 0

    @property
    def rows(self) -> int:
        """Return the number of bad rows."""
        return sum(self.counts.values())

    def read(self, storage: Storage) -> Iterator[pa.RecordBatch]:
        """Yield the rows, in order of their discovery. Memory: one batch."""
        if self.path:
            with storage.open_input(self.path) as source:
                reader = pa.ipc.open_file(source)
                for number in range(reader.num_record_batches):
                    yield reader.get_batch(number)
        yield from self.held


class BadRows:
    """The collector of the bad rows of one task, in order of their discovery.

    Args:
        storage: where a file of many bad rows is written.
        path: the path of this file, in the stage folder of the write.
        task: number of the task.
    """

    def __init__(self, storage: Storage, path: str = "", task: int = 0) -> None:
        self._storage, self.path, self._task = storage, path, task
        self._batches: list[pa.RecordBatch] = []
        self._counts: dict[str, int] = {}
        self._bytes = self._seen = self._uncounted = 0
        self._stack = ExitStack()
        self._writer: Any = None
        self._unread: npt.NDArray[np.int64] = np.empty(0, np.int64)

    @property
    def unread(self) -> int:
        """Return the number of collected rows that could not be read, and whose positions are known."""
        return len(self._unread)

    @property
    def has_file(self) -> bool:
        """Tell whether collected rows are in a file."""
        return self._writer is not None

    def clear(self) -> None:
        """Forget all rows, because the input is read again."""
        self._stack.close()
        self._stack, self._writer, self._unread = ExitStack(), None, np.empty(0, np.int64)
        self._batches, self._counts = [], {}
        self._bytes = self._seen = self._uncounted = 0

    def take_out(self, rows: pa.Table, faults: Sequence[Fault]) -> npt.NDArray[np.int64]:
        """Collect the rows with faults. Return the positions of the other rows.

        Args:
            rows: the next rows of the task's input.
            faults: their faults. A row is in one of them only.
        """
        is_good = np.ones(rows.num_rows, bool)
        for fault in faults:
            is_good[fault.rows] = False
            for start in range(0, len(fault.rows), _ROWS_AT_ONCE):
                some = fault.slice(start, start + _ROWS_AT_ONCE)
                self._add(some, json_texts(rows.take(pa.array(some.rows))), self._positions(some.rows))
        return np.flatnonzero(is_good)

    def advance(self, count: int) -> None:
        """Count the rows of the task's input, good and bad, after they were checked."""
        self._seen += count

    def take_out_unread(self, faults: Sequence[Fault], texts: Sequence[str], first: int = 0) -> None:
        """Collect rows that could not be read into Arrow, so that `take_out` never sees them.

        Args:
            faults: the faults; their positions are those in the input, from ``first`` on.
            texts: the bad rows as JSON, in order of position.
            first: position in the input of the first row that was looked at; later calls have greater ones.
        """
        rows_out = np.sort(np.concatenate([fault.rows for fault in faults]))
        self._unread = np.concatenate([self._unread, rows_out + first])
        self._uncounted += len(rows_out)
        for fault in faults:
            own = np.searchsorted(rows_out, fault.rows)
            self._add(fault, [texts[row] for row in own.tolist()], fault.rows + first)

    def add_lines(self, lines: Sequence[tuple[str, str]]) -> None:
        """Collect lines of a file that cannot be split into values. Their positions are not known.

        Args:
            lines: pairs of a line and a message.
        """
        messages = pa.array([message for _, message in lines], pa.string())
        fault = Fault(Reason.DAMAGED_LINE, "", np.arange(len(lines)), messages)
        self._uncounted += len(lines)
        self._add(fault, [json.dumps(text, ensure_ascii=False) for text, _ in lines], None)

    def add_duplicates(self, rows: pa.Table, reason: Reason, column: str, message: str) -> None:
        """Collect prepared rows whose keys come more than once, or are stored. Their positions are not known."""
        fault = Fault.same(reason, column, np.arange(rows.num_rows), message)
        self._add(fault, json_texts(rows), None)

    def _positions(self, rows: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        positions = rows + self._seen
        # Before position n of the input there are those unread rows whose number of read predecessors is at most n.
        return positions + np.searchsorted(self._unread - np.arange(len(self._unread)), positions, side="right")

    def _add(self, fault: Fault, texts: Sequence[str], positions: npt.NDArray[np.int64] | None) -> None:
        count = len(fault.rows)
        if not count:
            return
        columns = [
            pa.repeat(fault.reason.value, count),
            pa.repeat(fault.column, count),
            fault.messages,
            pa.array(texts, pa.string()),
            pa.repeat(pa.scalar(self._task, pa.int32()), count),
            pa.nulls(count, pa.int64()) if positions is None else pa.array(positions, pa.int64()),
        ]
        batch = pa.RecordBatch.from_arrays(columns, schema=STAGED_COLUMNS)
        self._counts[fault.reason.value] = self._counts.get(fault.reason.value, 0) + count
        self._batches.append(batch)
        self._bytes += batch.nbytes
        if self._bytes > _MOST_BYTES and self.path:
            self._flush()

    def _flush(self) -> None:
        if self._writer is None:
            sink = self._stack.enter_context(self._storage.open_output(self.path))
            self._writer = self._stack.enter_context(pa.ipc.new_file(sink, STAGED_COLUMNS))
        for batch in self._batches:
            self._writer.write_batch(batch)
        self._batches, self._bytes = [], 0

    def finish(self, *, in_file: bool) -> StagedBadRows:
        """Return the collected rows. More may be collected later, unless there is a file.

        Args:
            in_file: whether all rows go to the file, so that another process can read them.
        """
        if self._batches and (in_file or self._writer is not None):
            self._flush()
        has_file = self._writer is not None
        self._stack.close()
        return StagedBadRows(self.path if has_file else "", dict(self._counts), tuple(self._batches), self._uncounted)


def json_texts(rows: pa.Table) -> list[str]:
    """Return each row as JSON text. Values that JSON has no form for become text.

    Columns that lakeformat itself has added are left out.
    """
    rows = rows.select([n for n in rows.schema.names if n not in _ADDED and not n.startswith(_ADDED_FOR_STATEMENTS)])
    columns = [_plain_values(column) for column in rows.columns]
    names = rows.schema.names
    return [json_text(dict(zip(names, values, strict=True))) for values in zip(*columns, strict=True)]


def json_text(row: Mapping[str, Any]) -> str:
    """Return a row as JSON text. Values that JSON has no form for become text."""
    return json.dumps(_plain(row), ensure_ascii=False, default=str)


def _plain_values(column: pa.ChunkedArray) -> list[Any]:
    kind = column.type
    if kind_of(kind).is_temporal:
        return list(column.cast(pa.string()).to_pylist())
    if kind_of(kind) is Kind.TEXT:
        column = column.cast(pa.large_binary())
    try:
        values = column.to_pylist(maps_as_pydicts="lossy")
    except (ValueError, OverflowError):  # Damaged text, or a time that Python has no object for.
        values = [_text_of(scalar) for scalar in column]
    return list(values)


def _text_of(scalar: pa.Scalar) -> Any:
    try:
        return scalar.as_py()
    except (ValueError, OverflowError):
        return "(this value cannot be shown)"


def _plain(value: Any) -> Any:
    """Return a value as JSON can hold it."""
    if isinstance(value, bytes):
        return value.decode("utf-8", "backslashreplace")
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, Mapping):
        return {str(_plain(key)): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return value
