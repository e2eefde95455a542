"""Rewriting of one clustering group into base files (Hudi: ``MultipleSparkJobExecutionStrategy``).

Rows keep commit time, sequence number, key and partition; the file name is new. A group that fits into the buffer is
read whole and sorted in memory. Each output file gathers its own rows, so that files are encoded in parallel. A larger
group is sorted through storage (`lakeformat.services.cluster.ranges`). Rows that keep their order are streamed.

Memory: the buffer, shared by all groups at work; one row group per thread; for the bloom filters, the keys of open
files.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Executor, Future
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lakeformat.codec.gather import gather, joined, one_chunk
from lakeformat.codec.row_bytes import decoded_bytes, runs
from lakeformat.files.base_file import ROW_GROUP_ROWS, BaseFileWriter
from lakeformat.layout import Positions, cut
from lakeformat.model.commit import WriteStat
from lakeformat.model.files import BaseFileName, join_path
from lakeformat.model.record import RECORD_KEY
from lakeformat.services.cluster.settings import RewriteSettings
from lakeformat.services.cluster.source import GroupSource
from lakeformat.storage.port import Storage
from lakeformat.transaction.written import Written
from lakeformat.write.place.buckets import derive_file_id, split_evenly
from lakeformat.write.place.sizing import measure_row_bytes

__all__ = ["FileMaker", "MemoryRewrite", "TooLargeError", "gathered", "rows_per_file", "stream_group"]

Ints = npt.NDArray[np.int64]
#: A group below this share of the target size makes one file; its rows are not measured.
_SURELY_ONE: Final = 0.6
#: More rows than any group has.
_ALL: Final = 1 << 62


@dataclass(frozen=True)
class FileMaker:
    """Writes the base files of one group.

    Attributes:
        number: number of the group, or of a part of it; the file ids depend on it.
    """

    storage: Storage
    settings: RewriteSettings
    partition_path: str
    number: str
    encoded: frozenset[str] = frozenset()

    def write(self, at: int, tables: Iterable[pa.Table]) -> Written:
        """Write one file of these rows. Each table makes one row group or several."""
        settings = self.settings
        file_id = derive_file_id(f"{settings.write_id}/{self.number}", 0, at)
        name = BaseFileName(file_id, settings.write_token, settings.instant_time)
        path = f"{settings.folder}/{name}"
        with (
            self.storage.open_output(path) as sink,
            BaseFileWriter(sink, self.partition_path, name, settings.files, None, self.encoded) as writer,
        ):
            for table in tables:
                writer.write(table)
            writer.close()
        stat = WriteStat(
            file_id,
            join_path(self.partition_path, str(name)),
            self.partition_path,
            None,
            writer.rows,
            num_inserts=writer.rows,
            size_bytes=writer.size_bytes,
        )
        return Written(path, stat, writer.facts)

    def stream(self, tables: Iterator[pa.Table], rows: int, per_file: int) -> Iterator[Written]:
        """Write files of nearly equal numbers of rows from a stream of ``rows`` rows.

        Memory: a row group and a table.
        """
        row_groups = _RowGroups(tables, self.settings.files.row_group_bytes)
        for at, count in enumerate(split_evenly(rows, per_file) if rows else ()):
            yield self.write(at, row_groups.take(count))


class _RowGroups:
    """Cuts a stream of tables into row groups."""

    def __init__(self, tables: Iterator[pa.Table], most_bytes: int) -> None:
        self._tables, self._rest, self._most_bytes = tables, list[pa.Table](), most_bytes

    def take(self, count: int) -> Iterator[pa.Table]:
        """Yield the next ``count`` rows, one row group at a time."""
        while count:
            table = self._group(min(count, ROW_GROUP_ROWS))
            yield table
            count -= table.num_rows

    def _group(self, wanted: int) -> pa.Table:
        """Return the next ``wanted`` rows, or fewer if they reach the byte limit."""
        held = sum(map(decoded_bytes, self._rest))
        while sum(table.num_rows for table in self._rest) < wanted and (held < self._most_bytes or not self._rest):
            self._rest.append(next(self._tables))
            held += decoded_bytes(self._rest[-1])
        whole = pa.concat_tables(self._rest)
        rest = whole.slice(wanted)
        self._rest = [rest] if rest.num_rows else []
        return one_chunk(whole.slice(0, wanted).unify_dictionaries())


class TooLargeError(Exception):
    """The rows of a group do not fit into memory."""


class MemoryRewrite:
    """Rewrites groups that fit into memory.

    Args:
        pool: threads that do the work; the caller's thread only waits.
    """

    def __init__(self, storage: Storage, settings: RewriteSettings, pool: Executor) -> None:
        self.storage, self.settings, self.pool = storage, settings, pool

    def run(self, number: str, source: GroupSource) -> list[Written]:
        """Write the group's new files. Memory: at most twice the group's rows, and one row group per file at work.

        Raises:
            TooLargeError: the rows exceed the buffer; nothing was written.
        """
        rows = self._read(source)
        if not rows.num_rows:
            return []
        found = self.pool.submit(self.settings.ordering.order, rows).result()
        order, places = (np.arange(rows.num_rows), None) if found is None else found
        per_file = self.pool.submit(rows_per_file, rows, order, source.stored_bytes, self.settings).result()
        maker = FileMaker(self.storage, self.settings, source.partition_path, number, frozenset(source.encoded))
        parts = np.split(order, _starts(len(order), per_file, places))
        most = self.settings.files.row_group_bytes
        return gathered(
            [
                self.pool.submit(maker.write, at, (gather(rows, run) for run in runs(rows, part, ROW_GROUP_ROWS, most)))
                for at, part in enumerate(parts)
            ]
        )

    def _read(self, source: GroupSource) -> pa.Table:
        few = len(source.slices) < pa.cpu_count()
        sizes = [0] * len(source.slices)

        def read(at: int) -> pa.Table:
            batches = []
            for batch in source.batches(source.slices[at], threads=few):
                batches.append(batch)
                sizes[at] += decoded_bytes(batch)
                if sum(sizes) > self.settings.buffer_bytes:
                    raise TooLargeError
            return pa.Table.from_batches(batches, source.shape)

        tables = gathered([self.pool.submit(read, at) for at in range(len(source.slices))])
        rows = pa.concat_tables(tables).unify_dictionaries()
        del tables
        arrays = gathered([self.pool.submit(joined, column) for column in rows.columns])
        names, copies = rows.schema.names, self.settings.files.key_texts
        keys = arrays[names.index(RECORD_KEY)]
        # If the record key is a copy of a column, both share one array.
        columns = [
            keys if name in copies and array.equals(keys) else array for name, array in zip(names, arrays, strict=True)
        ]
        return pa.Table.from_arrays(columns, schema=rows.schema)


def gathered(jobs: Sequence[Future[Any]]) -> list[Any]:
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


def _starts(rows: int, per_file: int, places: Positions | None) -> Ints:
    """Return the first row of every file except the first: evenly spaced, or at the best cuts of the curve."""
    counts = split_evenly(rows, per_file)
    return np.cumsum(counts)[:-1] if places is None else cut(places, len(counts))


def rows_per_file(rows: pa.Table, order: Ints, stored_bytes: int, settings: RewriteSettings) -> int:
    """Return how many rows make a file of the target size, measured on some rows in their order.

    Args:
        stored_bytes: bytes of the whole group's files.
    """
    target = settings.files.max_file_bytes
    if stored_bytes <= _SURELY_ONE * target:
        return _ALL
    return max(1, int(target / measure_row_bytes(rows, order, settings.files)))


def stream_group(storage: Storage, settings: RewriteSettings, number: str, source: GroupSource) -> Iterator[Written]:
    """Write new files with the rows in their stored order. Memory: a row group."""
    tables = (pa.Table.from_batches([batch]) for one in source.slices for batch in source.batches(one, threads=False))
    first = next(tables)
    per_file = rows_per_file(first, np.arange(first.num_rows), source.stored_bytes, settings)
    maker = FileMaker(storage, settings, source.partition_path, number, source.encoded)

    def all_tables() -> Iterator[pa.Table]:
        yield first
        yield from tables

    yield from maker.stream(all_tables(), source.rows, per_file)
