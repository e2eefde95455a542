"""Rewriting of one clustering group into base files (Hudi: ``MultipleSparkJobExecutionStrategy``).

Rows keep commit time, sequence number, key and partition; only the meta column for the file name changes. There are
three ways to rewrite a group:

- If there are no sort columns, the rows keep their stored order; see `joined_files`.
- If the group fits into the buffer, it is read whole and sorted in memory. The new files are then encoded in parallel.
- If the group is larger, its rows are divided into ranges of the sort order, and each range is written to its own
  files. A sample of the whole group determines the ends of the ranges.

Ranges are written in two steps, each of many tasks, in threads or on executors:

1. *Spill*: file slices are read in blocks. Each block is sorted and cut at the ends of the ranges. The part of a block
   that belongs to one range is a run. The runs are written to an Arrow file.
2. *Merge*: the runs of one range, from all spill files, are merged into base files.

Memory: the buffer, shared by all groups that are rewritten in parallel; one row group per thread; for the bloom
filters, the keys of the files being written. The spill step needs the buffer. The merge step needs a row group, and for
each run of its range a block of about `BLOCK_BYTES`; a range has at most one run per sorted block.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Executor, Future
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lakeformat.arrow.conform import conform
from lakeformat.arrow.gather import combine_column, combine_table, gather
from lakeformat.arrow.kinds import Kind, kind_of
from lakeformat.arrow.row_bytes import decoded_bytes, split_positions
from lakeformat.files.base_file import (
    ROW_GROUP_ROWS,
    BaseFileWriter,
    copied_schema,
    stored_schema,
)
from lakeformat.layout import Curve, Positions, cell_ends, cut_places
from lakeformat.model.commit import WriteStat
from lakeformat.model.files import BaseFileName, join_path
from lakeformat.model.record import RECORD_KEY
from lakeformat.services.cluster.group_source import GroupSource, SliceToCluster
from lakeformat.services.cluster.settings import RewriteSettings
from lakeformat.storage.port import Storage
from lakeformat.transaction.order.written_file import WrittenFile
from lakeformat.write.handles.direct import RunCursor, merge_sorted
from lakeformat.write.rows.stage import BLOCK_BYTES, Run, split_into_blocks
from lakeformat.write.workload.buckets import derive_file_id, measure_row_bytes, split_evenly

__all__ = [
    "CurveRanges",
    "FileMaker",
    "MemoryRewriter",
    "RowGroupCutter",
    "SpillFile",
    "TooLargeError",
    "fit_ranges",
    "gather_results",
    "merge_range",
    "rows_per_file",
    "spill_schema",
    "write_spill_file",
]

Ints = npt.NDArray[np.int64]
#: If the files of a group together have at most this fraction of the target size, the group is written as one file
#: without a measurement of its row size, because the new file almost surely does not exceed the target size.
_SURELY_ONE: Final = 0.6
#: Number of rows per file with which a whole group is written to one file, because no group has so many rows.
_ALL: Final = 1 << 62


@dataclass(frozen=True)
class FileMaker:
    """Writes the base files of one group.

    Attributes:
        number: text that identifies the group, or a range of its rows, within the clustering; part of the seed of the
            file ids.
        encoded: names of the text columns whose values are dictionary-encoded.
    """

    storage: Storage
    settings: RewriteSettings
    partition_path: str
    number: str
    encoded: frozenset[str] = frozenset()

    def write(self, at: int, tables: Iterable[pa.Table]) -> WrittenFile:
        """Write one base file; ``at`` is its number within the group. Each table becomes one row group or several."""

        def fill(writer: BaseFileWriter) -> None:
            for table in tables:
                writer.write(table)
            writer.close()

        return self.write_with(at, partial(BaseFileWriter, inherited=None, encoded=self.encoded), fill)

    def write_with(self, at: int, make: Callable[..., BaseFileWriter], fill: Callable[[Any], None]) -> WrittenFile:
        """Write one base file: ``make`` returns its writer, and ``fill`` gives it rows and closes it."""
        settings = self.settings
        file_id = settings.file_ids.get(self.number.partition("-")[0])
        if file_id is None:
            file_id = derive_file_id(f"{settings.write_id}/{self.number}", 0, at)
        name = BaseFileName(file_id, settings.write_token, settings.instant_time)
        path = f"{settings.folder}/{name}"
        with (
            self.storage.open_output(path) as sink,
            make(sink, self.partition_path, name, settings.files) as writer,
        ):
            fill(writer)
        stat = WriteStat(
            file_id,
            join_path(self.partition_path, str(name)),
            self.partition_path,
            None,
            writer.rows,
            num_inserts=writer.rows,
            size_bytes=writer.size_bytes,
        )
        return WrittenFile(path, stat, writer.facts, copied_rows=writer.copied_rows, copied_bytes=writer.copied_bytes)

    def stream(self, tables: Iterator[pa.Table], rows: int, per_file: int) -> Iterator[WrittenFile]:
        """Write base files with nearly equal numbers of rows, at most ``per_file`` each.

        Memory: a row group and a table.

        Args:
            rows: number of rows in all tables together.
        """
        row_groups = RowGroupCutter(tables, self.settings.files.row_group_bytes)
        for number, count in enumerate(split_evenly(rows, per_file) if rows else ()):
            yield self.write(number, row_groups.take(count))


class RowGroupCutter:
    """Cuts a stream of tables into tables of the size of a row group."""

    def __init__(self, tables: Iterator[pa.Table], most_bytes: int) -> None:
        self._tables, self._rest, self._most_bytes = tables, list[pa.Table](), most_bytes

    def take(self, count: int) -> Iterator[pa.Table]:
        """Yield the next ``count`` rows, one row group at a time."""
        while count:
            table = self._group(min(count, ROW_GROUP_ROWS))
            yield table
            count -= table.num_rows

    def _group(self, rows: int) -> pa.Table:
        """Return the next ``rows`` rows as one table, or fewer if they would exceed about ``most_bytes``."""
        held_bytes = sum(map(decoded_bytes, self._rest))
        while sum(table.num_rows for table in self._rest) < rows and (held_bytes < self._most_bytes or not self._rest):
            self._rest.append(next(self._tables))
            held_bytes += decoded_bytes(self._rest[-1])
        whole = pa.concat_tables(self._rest)
        rest = whole.slice(rows)
        self._rest = [rest] if rest.num_rows else []
        return combine_table(whole.slice(0, rows).unify_dictionaries())


class TooLargeError(Exception):
    """The rows of a group do not fit into the buffer."""


class MemoryRewriter:
    """Rewrites groups that fit into memory.

    Args:
        pool: threads that do the work; the caller's thread only waits.
    """

    def __init__(self, storage: Storage, settings: RewriteSettings, pool: Executor) -> None:
        self.storage, self.settings, self.pool = storage, settings, pool

    def run(self, number: str, source: GroupSource) -> list[WrittenFile]:
        """Write the group's new files. Memory: at most twice the group's rows, and one row group per thread.

        Raises:
            TooLargeError: the rows exceed the buffer; nothing was written.
        """
        rows = self._read(source)
        if not rows.num_rows:
            return []
        sorted_rows = self.pool.submit(self.settings.ordering.order, rows).result()
        order, places = (np.arange(rows.num_rows), None) if sorted_rows is None else sorted_rows
        per_file = self.pool.submit(rows_per_file, rows, order, source.stored_bytes, self.settings).result()
        maker = FileMaker(self.storage, self.settings, source.partition_path, number, frozenset(source.encoded))
        parts = np.split(order, _file_starts(len(order), per_file, places))
        most = self.settings.files.row_group_bytes
        return gather_results(
            [
                self.pool.submit(
                    maker.write,
                    number,
                    (gather(rows, run) for run in split_positions(rows, part, ROW_GROUP_ROWS, most)),
                )
                for number, part in enumerate(parts)
            ]
        )

    def _read(self, source: GroupSource) -> pa.Table:
        few = len(source.slices) < pa.cpu_count()
        sizes = [0] * len(source.slices)

        def read(number: int) -> pa.Table:
            batches = []
            for batch in source.batches(source.slices[number], threads=few):
                batches.append(batch)
                sizes[number] += decoded_bytes(batch)
                if sum(sizes) > self.settings.buffer_bytes:
                    raise TooLargeError
            return pa.Table.from_batches(batches, source.batch_schema)

        tables = gather_results([self.pool.submit(read, number) for number in range(len(source.slices))])
        rows = pa.concat_tables(tables).unify_dictionaries()
        del tables
        arrays = gather_results([self.pool.submit(combine_column, column) for column in rows.columns])
        names, copies = rows.schema.names, self.settings.files.key_texts
        keys = arrays[names.index(RECORD_KEY)]
        # A column that equals the record key shares the key's array, to save memory.
        columns = [
            keys if name in copies and array.equals(keys) else array for name, array in zip(names, arrays, strict=True)
        ]
        return pa.Table.from_arrays(columns, schema=rows.schema)


def gather_results(jobs: Sequence[Future[Any]]) -> list[Any]:
    """Return the results of all jobs. If one fails, cancel the others and wait for them before raising."""
    try:
        return [job.result() for job in jobs]
    except BaseException:
        for job in jobs:
            job.cancel()
        for job in jobs:
            with suppress(BaseException):
                job.result()
        raise


def _file_starts(rows: int, per_file: int, places: Positions | None) -> Ints:
    """Return the row number, in sorted order, at which each file except the first begins.

    If the rows are not sorted by a curve, all files have nearly the same number of rows. If they are, the numbers
    differ somewhat, because files end at cell boundaries of the curve, so that filters can skip more files.

    Args:
        places: sorted positions of the rows on the curve; None if the rows are not sorted by a curve.
    """
    counts = split_evenly(rows, per_file)
    return np.cumsum(counts)[:-1] if places is None else cut_places(places, len(counts))


def rows_per_file(rows: pa.Table, order: Ints, stored_bytes: int, settings: RewriteSettings) -> int:
    """Return how many rows make a file of the target size, estimated from the bytes of some rows.

    If the whole group surely fits into one file, return `_ALL`, a number that exceeds every group.

    Args:
        order: row numbers of ``rows`` in the order in which they will be written.
        stored_bytes: bytes of the whole group's files.
    """
    target = settings.files.max_file_bytes
    if stored_bytes <= _SURELY_ONE * target:
        return _ALL
    return max(1, int(target / measure_row_bytes(rows, order, settings.files)))


#: Name of the column in spill files that contains each row's position on the linear, Z-order or Hilbert curve.
_PLACE: Final = "_lakeformat_place"
#: If a range has at most this many times the number of rows of a file of the target size, it is written as one file,
#: otherwise as several.
_LEEWAY: Final = 1.4


@dataclass(frozen=True)
class CurveRanges:
    """Division of a group's rows into ranges of positions on a linear, Z-order or Hilbert curve. Picklable.

    Attributes:
        ends: the greatest position in each range except the last, ascending.
        per_file: number of rows of a file of the target size.
    """

    curve: Curve
    ends: npt.NDArray[np.uint64]
    per_file: int

    @property
    def count(self) -> int:
        """Return the number of ranges."""
        return len(self.ends) + 1


@dataclass(frozen=True, slots=True)
class SpillFile:
    """A spill file and its runs. The ``number`` of a run is the number of the range that the run's rows belong to."""

    path: str
    runs: tuple[Run, ...]


def fit_ranges(source: GroupSource, settings: RewriteSettings) -> CurveRanges:
    """Fit the curve to a sample of the group's rows. Divide it into ranges, each with the rows of about one file.

    Reads the sort columns of all rows, and one block of rows.
    """
    ordering = settings.ordering
    sample = source.sample(ordering.top_columns(source.schema), ordering.sample_rows)
    curve = ordering.fit_curve(sample)
    per_file = _rows_per_file(source, settings)
    places = np.sort(curve.positions(sample))
    count = min(-(-source.rows // per_file), max(len(places), 1))
    if ordering.is_curved:
        return CurveRanges(curve, np.unique(cell_ends(places, cut_places(places, count))), per_file)
    cuts = np.arange(1, count) * len(places) // count
    return CurveRanges(curve, np.unique(places[cuts]), per_file)


def _rows_per_file(source: GroupSource, settings: RewriteSettings) -> int:
    for piece in source.slices:
        for batch in (batch for batch in source.batches(piece, threads=True, encoded=frozenset()) if batch.num_rows):
            rows = pa.Table.from_batches([batch])
            row_bytes = measure_row_bytes(rows, np.arange(rows.num_rows), settings.files)
            return max(1, int(settings.files.max_file_bytes / row_bytes))
    return 1


def spill_schema(settings: RewriteSettings) -> pa.Schema:
    """Return the schema of a spill file: the stored columns and the position on the curve."""
    plain = [
        pa.field(field.name, pa.string()) if kind_of(field.type) is Kind.DICTIONARY else field
        for field in copied_schema(stored_schema(settings.files.schema))
    ]
    return pa.schema([*plain, pa.field(_PLACE, pa.uint64())])


def write_spill_file(
    source: GroupSource,
    slices: Sequence[SliceToCluster],
    ranges: CurveRanges,
    settings: RewriteSettings,
    path: str,
) -> SpillFile:
    """Write the rows of ``slices`` to a spill file, as sorted runs. Memory: ``settings.buffer_bytes``."""
    schema = spill_schema(settings)
    runs: list[Run] = []
    batches = 0
    with source.storage.open_output(path) as sink, pa.ipc.new_file(sink, schema) as writer:
        for block in _blocks(source, slices, settings.buffer_bytes // 3):
            places = ranges.curve.positions(block)
            order = np.argsort(places) if settings.ordering.is_curved else settings.ordering.by_columns(block)
            places = places[order]
            ends = [*np.searchsorted(places, ranges.ends, side="right").tolist(), len(places)]
            start = 0
            for number, end in enumerate(ends):
                if end > start:
                    rows = gather(block, order[start:end]).append_column(_PLACE, pa.array(places[start:end]))
                    parts = split_into_blocks(conform(rows, schema), BLOCK_BYTES)
                    for part in parts:
                        writer.write_batch(part)
                    runs.append(Run(source.partition_path, batches, batches + len(parts), end - start, number))
                    batches += len(parts)
                start = max(start, end)
    return SpillFile(path, tuple(runs))


def _blocks(source: GroupSource, slices: Sequence[SliceToCluster], limit: int) -> Iterator[pa.Table]:
    waiting: list[pa.RecordBatch] = []
    size = 0
    for piece in slices:
        for batch in source.batches(piece, threads=False, encoded=frozenset(), most_bytes=limit):
            waiting.append(batch)
            size += batch.nbytes
            if size >= limit:
                yield _join_batches(waiting)
                waiting, size = [], 0
    if waiting:
        yield _join_batches(waiting)


def _join_batches(batches: Sequence[pa.RecordBatch]) -> pa.Table:
    return combine_table(pa.Table.from_batches(batches).unify_dictionaries())


def _sort_by_place(rows: pa.Table) -> npt.NDArray[np.int64]:
    return np.argsort(rows.column(_PLACE).to_numpy(), kind="stable")


def merge_range(
    storage: Storage,
    spilled: Sequence[SpillFile],
    group: tuple[str, str],
    number: int,
    ranges: CurveRanges,
    settings: RewriteSettings,
) -> Iterator[WrittenFile]:
    """Merge the runs of one range into base files: one file, or several if many rows have one curve position.

    Args:
        spilled: all spill files of the group.
        group: number and partition path of the group.
        number: number of the range.
    """
    order = _sort_by_place if settings.ordering.is_curved else settings.ordering.by_columns
    with ExitStack() as stack:
        cursors: list[RunCursor] = []
        rows = 0
        for spill in spilled:
            own_runs = [run for run in spill.runs if run.number == number]
            if own_runs:
                reader: Any = pa.ipc.open_file(stack.enter_context(storage.open_input(spill.path)))
                cursors += [RunCursor(reader, run) for run in own_runs]
                rows += sum(run.rows for run in own_runs)
        maker = FileMaker(storage, settings, group[1], f"{group[0]}-{number}")
        tables = (table.drop_columns([_PLACE]) for table in merge_sorted(cursors, order))
        yield from maker.stream(tables, rows, int(_LEEWAY * ranges.per_file))
