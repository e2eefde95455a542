"""A planned read in one process: threads read pieces of the splits in parallel, and rows are returned in order."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from concurrent.futures import FIRST_COMPLETED, Executor, Future, wait
from contextlib import closing
from dataclasses import dataclass, field, replace
from itertools import chain, islice
from typing import Final, Generic, TypeVar

import pyarrow as pa
import pyarrow.parquet as pq

from lakeformat.concurrency import thread_pool
from lakeformat.display import Progress, is_visible, progress
from lakeformat.file_system_view.snapshot import Snapshot
from lakeformat.files.footers import group_bytes, open_parquet
from lakeformat.files.missing_files import missing_file_error
from lakeformat.files.skeletons import open_rows
from lakeformat.read.plan import FilePart, Part, SlicePart, Split, pack_splits
from lakeformat.read.query import ReadQuery
from lakeformat.read.run.batches import read_split
from lakeformat.read.run.session import ReadPlan
from lakeformat.storage.port import Storage

__all__ = ["read_all", "read_in_order"]

T = TypeVar("T")
_END: Final = object()


@dataclass(eq=False)
class _Stream(Generic[T]):
    """An iterator, its values that wait for the consumer, and the step that computes its next value in a thread.

    A step computes one value. The steps of one iterator never run in parallel.
    """

    values: Generator[T, None, None]
    size_of: Callable[[T], int]
    ready: deque[T] = field(default_factory=deque)
    sizes: deque[int] = field(default_factory=deque)
    step: Future[T | object] | None = None
    ended: bool = False

    def collect(self) -> None:
        """If the step is done, add its value to the ready values, or raise its error."""
        if self.step is not None and self.step.done():
            value = self.step.result()
            self.step = None
            if value is _END:
                self.ended = True
            else:
                self.ready.append(value)  # type: ignore[arg-type]
                self.sizes.append(self.size_of(value))  # type: ignore[arg-type]

    def take(self) -> T:
        """Remove and return the next ready value."""
        self.sizes.popleft()
        return self.ready.popleft()


def read_in_order(
    streams: Iterable[Generator[T, None, None]],
    *,
    threads: int,
    held: int,
    held_bytes: int = 0,
    size_of: Callable[[T], int] = lambda _: 0,
    early: Generator[T, None, None] | None = None,
) -> Iterator[T]:
    """Compute the values of several streams in parallel threads, and yield them in order, one stream after the other.

    A thread computes one value and is then free, instead of waiting until the consumer takes the value. So no thread
    hangs if the caller stops early or its process ends. If the caller closes this iterator, the streams are closed.

    Memory: the values that wait for the caller, one value per thread that is being computed, and the first value of
    ``early``.

    Args:
        threads: maximum number of streams that are read in parallel.
        held: maximum number of values that wait for the caller or are being computed. At the limit, no other value is
            begun, except a value that the caller needs next.
        held_bytes: limit of the total size of the waiting values, in bytes. If they take more, no other value is begun,
            except a value that the caller needs next.
        size_of: returns the size of a value in bytes.
        early: one of ``streams``, whose first value takes long to compute. Its first step begins before all others.

    Raises:
        Exception: an error of a stream. It may be raised before all values of the earlier streams have been returned.
    """
    coming = iter(streams)
    active: deque[_Stream[T]] = deque()
    begun = None if early is None else _Stream(early, size_of)
    try:
        with thread_pool(threads) as pool:
            if begun is not None:
                begun.step = pool.submit(next, begun.values, _END)
            while True:
                for stream in active:
                    stream.collect()
                running = sum(not stream.ended for stream in active)
                for values in islice(coming, threads - running):
                    active.append(begun if begun and values is begun.values else _Stream(values, size_of))
                if not active:
                    return
                head = active[0]
                _begin_steps(active, pool, held, held_bytes)
                if head.ready:
                    yield head.take()
                elif head.ended:
                    active.popleft()
                else:
                    wait([stream.step for stream in active if stream.step], return_when=FIRST_COMPLETED)
    finally:
        for stream in (*active, *([begun] if begun else [])):
            stream.values.close()


def _begin_steps(active: deque[_Stream[T]], pool: Executor, held: int, held_bytes: int) -> None:
    """Begin a step in each stream that has none, while the limits allow another value."""
    room = held - sum(len(stream.ready) + (stream.step is not None) for stream in active)
    if sum(sum(stream.sizes) for stream in active) > held_bytes:
        room = 0
    for stream in active:
        # The first stream may exceed the limit: the caller waits for its values, and takes all other values later.
        if not stream.ended and stream.step is None and (room > 0 or (stream is active[0] and not stream.ready)):
            stream.step = pool.submit(next, stream.values, _END)
            room -= 1


#: Compressed bytes that a thread reads at a time; larger files are cut between their row groups.
_PIECE_BYTES: Final = 16 << 20
#: If the slice with the most bytes of log files has at least this many, it is begun before all others.
_HEAVY_LOGS: Final = 2 << 20
_MOST_THREADS: Final = 8
#: Maximum number of batches per thread that wait for the consumer.
_HELD: Final = 4
#: Size of the waiting batches per thread, in bytes, above which no step begins.
_HELD_BYTES: Final = 64 << 20

Footers = Mapping[str, pq.FileMetaData]


def read_all(
    storage: Storage,
    snapshot: Snapshot,
    query: ReadQuery,
    plan: ReadPlan,
    *,
    shows: bool = False,
    to_the_end: bool = True,
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of all splits in the order of the plan, for any number of cores.

    Memory: for each thread (one per core, at most `_MOST_THREADS`), the pages of one row group, the log files of one
    slice, and `_HELD` batches of up to `BATCH_ROWS` rows; the waiting batches of a thread take about `_HELD_BYTES` at
    most. In addition, the footers of one split, and the log files of the slice that has the most.

    Args:
        shows: whether to show the progress, on a terminal or in a notebook.
        to_the_end: whether all rows will be read. If so, the slice with the most bytes of log files begins first, if
            it has at least `_HEAVY_LOGS`: it takes long, and would otherwise delay the end of the read.

    Raises:
        CorruptTableError: a file is missing or damaged; the message names the file.
    """
    if not (shows and is_visible()):
        yield from _read_all(storage, snapshot, query, plan, None, to_the_end=to_the_end)
        return
    with progress("read", sum(split.size_bytes for split in plan.splits)) as shown:
        yield from _read_all(storage, snapshot, query, plan, shown, to_the_end=to_the_end)


def _read_all(
    storage: Storage,
    snapshot: Snapshot,
    query: ReadQuery,
    plan: ReadPlan,
    shown: Progress | None,
    *,
    to_the_end: bool,
) -> Iterator[pa.RecordBatch]:
    schema = snapshot.schema
    if schema is None:
        return
    heavy = _find_heaviest(plan) if to_the_end else None
    pieces = (piece for split in plan.splits for piece in _cut_pieces(storage, split, heavy))
    threads = min(_MOST_THREADS, pa.cpu_count())
    first = list(islice(pieces, 2))
    alone, seen = len(first) < 2 or threads < 2, set[str]()

    def open_piece(piece: Split, footers: Footers) -> Generator[pa.RecordBatch, None, None]:
        rows = read_split(storage, piece, query, schema, footers=footers, threads=alone)
        return rows if shown is None else _show_progress(rows, piece, shown, seen)

    if alone:
        for piece, footers in chain(first, pieces):
            yield from open_piece(piece, footers)
        return
    early = None if heavy is None else open_piece(Split((heavy,)), {})
    streams = (
        early if early is not None and piece.parts[0] is heavy else open_piece(piece, footers)
        for piece, footers in chain(first, pieces)
    )
    yield from read_in_order(
        streams, threads=threads, held=_HELD * threads, held_bytes=_HELD_BYTES * threads, size_of=_size_of, early=early
    )


def _find_heaviest(plan: ReadPlan) -> SlicePart | None:
    """Return the slice with the most bytes of log files; None if these are less than `_HEAVY_LOGS`."""
    slices = (part for split in plan.splits for part in split.parts if isinstance(part, SlicePart))
    heaviest = max(slices, key=lambda part: part.log_bytes, default=None)
    return heaviest if heaviest is not None and heaviest.log_bytes >= _HEAVY_LOGS else None


def _show_progress(
    rows: Generator[pa.RecordBatch, None, None], piece: Split, shown: Progress, seen: set[str]
) -> Generator[pa.RecordBatch, None, None]:
    """Yield the rows of a split and show the progress: rows after each batch, bytes and files after the last row."""
    with closing(rows):
        for batch in rows:
            yield batch
            shown.advance(0, rows=batch.num_rows)
    paths = {part.path for part in piece.parts} - seen
    seen |= paths
    shown.advance(piece.size_bytes, files=len(paths))


def _size_of(batch: pa.RecordBatch) -> int:
    return int(batch.nbytes)


def _is_small(part: FilePart) -> bool:
    return part.size_bytes <= _PIECE_BYTES or (part.row_groups is not None and len(part.row_groups) == 1)


def _cut_pieces(storage: Storage, split: Split, alone: Part | None) -> Iterator[tuple[Split, Footers]]:
    """Cut a split into smaller splits of about `_PIECE_BYTES`. Yield each with the footers that were read to cut it.

    Args:
        alone: a part of the split that becomes a separate smaller split; None for no such part.
    """
    footers: dict[str, pq.FileMetaData] = {}
    parts: list[Part] = []
    for part in split.parts:
        if isinstance(part, SlicePart) or _is_small(part):
            parts.append(part)
            continue
        where = f"{storage.location}/{part.path}"
        try:
            with open_rows(storage, part.path) as source, open_parquet(source, where) as parquet:
                footer = footers[part.path] = parquet.metadata
        except FileNotFoundError:
            raise missing_file_error(storage, part.path) from None
        groups = range(footer.num_row_groups) if part.row_groups is None else part.row_groups
        parts += [replace(part, size_bytes=group_bytes(footer, group), row_groups=(group,)) for group in groups]
    place_of_alone = next((place for place, part in enumerate(parts) if part is alone), len(parts))
    for some in (parts[:place_of_alone], parts[place_of_alone : place_of_alone + 1], parts[place_of_alone + 1 :]):
        for piece in pack_splits(some, _PIECE_BYTES):
            yield piece, {part.path: footers[part.path] for part in piece.parts if part.path in footers}
