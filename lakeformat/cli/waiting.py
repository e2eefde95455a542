"""What people see while they wait for rows: after one second, how many rows have been read."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["show_reading"]


def show_reading(rows: pa.RecordBatchReader, *, hides: bool) -> pa.RecordBatchReader:
    """Return the rows. If stderr is a terminal, the number of rows that were read is shown there after one second.

    Args:
        hides: whether it goes away with the first rows, because they are shown on the same terminal.
    """
    import pyarrow as pa

    if not sys.stderr.isatty():
        return rows
    return pa.RecordBatchReader.from_batches(rows.schema, _show_waiting(rows, hides=hides))


#: Seconds after which the progress of a read is shown.
_SILENT_SECONDS: Final = 1.0


def _show_waiting(rows: pa.RecordBatchReader, *, hides: bool) -> Iterator[pa.RecordBatch]:
    from threading import Lock, Timer

    from rich.console import Console
    from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    columns = (SpinnerColumn(), TextColumn("reading, {task.completed:,} rows"), TimeElapsedColumn())
    progress = Progress(*columns, console=Console(stderr=True), transient=True)
    task, lock, is_over = progress.add_task("read", total=None), Lock(), False

    def start() -> None:
        with lock:
            if not is_over:
                progress.start()

    timer = Timer(_SILENT_SECONDS, start)
    timer.daemon = True
    timer.start()
    try:
        for batch in rows:
            if hides and batch.num_rows:
                with lock:
                    is_over = True
                    progress.stop()
            yield batch
            progress.advance(task, batch.num_rows)
    finally:
        timer.cancel()
        with lock:
            is_over = True
            progress.stop()
