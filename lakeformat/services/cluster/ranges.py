"""Clustering of a group too large for memory: it is divided along its order, and each range becomes its own files.

There are two steps, each of many tasks, in threads or on executors. *Spill*: file slices are read in blocks. Each block
is sorted, cut at the ends of the ranges and written as runs into one Arrow file. *Merge*: the runs of one range, from
all spill files, are merged into base files. A sample of the whole group determines the ends of the ranges.

Memory: spilling holds the buffer; merging holds one block of about `BLOCK_BYTES` per run, and a row group. There is a
run for every block of the group.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lakeformat.codec.conform import conform
from lakeformat.codec.gather import gather, one_chunk
from lakeformat.files.base_file import stored_schema
from lakeformat.files.stored_rows import stored_shape
from lakeformat.layout import Curve, cell_ends, cut
from lakeformat.services.cluster.rewrite import FileMaker
from lakeformat.services.cluster.settings import RewriteSettings
from lakeformat.services.cluster.source import GroupSource, SliceToCluster
from lakeformat.storage.port import Storage
from lakeformat.transaction.written import Written
from lakeformat.write.make.sorted_runs import RunCursor, merge_sorted
from lakeformat.write.place.sizing import measure_row_bytes
from lakeformat.write.rows.stage import BLOCK_BYTES, Run, in_blocks

__all__ = ["Ranges", "Spilled", "divide", "merge_range", "spill", "spilled_schema"]

#: Column of spilled rows: the row's place on the curve.
_PLACE: Final = "_lakeformat_place"
#: A range is written as one file up to this multiple of a file's target rows.
_LEEWAY: Final = 1.4


@dataclass(frozen=True)
class Ranges:
    """Division of a group into ranges of places. Picklable.

    Attributes:
        ends: the greatest place of each range except the last, ascending.
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
class Spilled:
    """One spill file. The number of a run is the number of its range."""

    path: str
    runs: tuple[Run, ...]


def divide(source: GroupSource, settings: RewriteSettings) -> Ranges:
    """Fit the curve to a sample of the group and cut it into files. Reads the sort columns and one block of rows."""
    ordering = settings.ordering
    sample = source.sample(ordering.top_columns(source.schema), ordering.sample_rows)
    curve = ordering.fitted(sample)
    per_file = _rows_per_file(source, settings)
    places = np.sort(curve.positions(sample))
    count = min(-(-source.rows // per_file), max(len(places), 1))
    if ordering.curved:
        return Ranges(curve, np.unique(cell_ends(places, cut(places, count))), per_file)
    cuts = np.arange(1, count) * len(places) // count
    return Ranges(curve, np.unique(places[cuts]), per_file)


def _rows_per_file(source: GroupSource, settings: RewriteSettings) -> int:
    for one in source.slices:
        for batch in source.batches(one, threads=True, encoded=frozenset()):
            rows = pa.Table.from_batches([batch])
            row_bytes = measure_row_bytes(rows, np.arange(rows.num_rows), settings.files)
            return max(1, int(settings.files.max_file_bytes / row_bytes))
    return 1


def spilled_schema(settings: RewriteSettings) -> pa.Schema:
    """Return the schema of a spill file: the stored columns and the place on the curve."""
    plain = [
        pa.field(field.name, pa.string()) if pa.types.is_dictionary(field.type) else field
        for field in stored_shape(stored_schema(settings.files.schema))
    ]
    return pa.schema([*plain, pa.field(_PLACE, pa.uint64())])


def spill(
    source: GroupSource,
    slices: Sequence[SliceToCluster],
    ranges: Ranges,
    settings: RewriteSettings,
    path: str,
) -> Spilled:
    """Write the rows of some of the group's slices as sorted runs. Memory: the settings' buffer."""
    schema = spilled_schema(settings)
    runs: list[Run] = []
    batches = 0
    with source.storage.open_output(path) as sink, pa.ipc.new_file(sink, schema) as writer:
        for block in _blocks(source, slices, settings.buffer_bytes // 3):
            places = ranges.curve.positions(block)
            order = np.argsort(places) if settings.ordering.curved else settings.ordering.by_columns(block)
            places = places[order]
            ends = [*np.searchsorted(places, ranges.ends, side="right").tolist(), len(places)]
            start = 0
            for number, end in enumerate(ends):
                if end > start:
                    rows = gather(block, order[start:end]).append_column(_PLACE, pa.array(places[start:end]))
                    parts = in_blocks(conform(rows, schema), BLOCK_BYTES)
                    for part in parts:
                        writer.write_batch(part)
                    runs.append(Run(source.partition_path, batches, batches + len(parts), end - start, number))
                    batches += len(parts)
                start = max(start, end)
    return Spilled(path, tuple(runs))


def _blocks(source: GroupSource, slices: Sequence[SliceToCluster], limit: int) -> Iterator[pa.Table]:
    waiting: list[pa.RecordBatch] = []
    size = 0
    for one in slices:
        for batch in source.batches(one, threads=False, encoded=frozenset(), most_bytes=limit):
            waiting.append(batch)
            size += batch.nbytes
            if size >= limit:
                yield _whole(waiting)
                waiting, size = [], 0
    if waiting:
        yield _whole(waiting)


def _whole(batches: Sequence[pa.RecordBatch]) -> pa.Table:
    return one_chunk(pa.Table.from_batches(batches).unify_dictionaries())


def _by_place(rows: pa.Table) -> npt.NDArray[np.int64]:
    return np.argsort(rows.column(_PLACE).to_numpy(), kind="stable")


def merge_range(
    storage: Storage,
    spilled: Sequence[Spilled],
    group: tuple[str, str],
    number: int,
    ranges: Ranges,
    settings: RewriteSettings,
) -> Iterator[Written]:
    """Write the files of one range: one file, or more if many rows share a place.

    Args:
        group: number and partition path of the group.
    """
    order = _by_place if settings.ordering.curved else settings.ordering.by_columns
    with ExitStack() as stack:
        cursors: list[RunCursor] = []
        rows = 0
        for one in spilled:
            own_runs = [run for run in one.runs if run.number == number]
            if own_runs:
                reader: Any = pa.ipc.open_file(stack.enter_context(storage.open_input(one.path)))
                cursors += [RunCursor(reader, run) for run in own_runs]
                rows += sum(run.rows for run in own_runs)
        maker = FileMaker(storage, settings, group[1], f"{group[0]}-{number}")
        tables = (table.drop_columns([_PLACE]) for table in merge_sorted(cursors, order))
        yield from maker.stream(tables, rows, int(_LEEWAY * ranges.per_file))
