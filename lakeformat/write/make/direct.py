"""Direct writing: base files are written as rows come in (bulk_insert, large inserts, overwrites).

Such rows need not be tagged or combined. The files are written into the stage folder; ``commit()`` moves the files that
it is given into their partitions. So readers never see the files of failed, repeated or slow task attempts.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from concurrent.futures import Executor, Future
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any, Final

import pyarrow as pa

from lakeformat.codec.row_bytes import decoded_bytes, pieces
from lakeformat.errors import WriteConflictError
from lakeformat.files.base_file import ROW_GROUP_ROWS, BaseFileWriter, FileSettings, stamped
from lakeformat.keys.record_keys import GeneratedKeys
from lakeformat.model.commit import WriteStat
from lakeformat.model.files import BaseFileName, join_path
from lakeformat.storage.port import Storage
from lakeformat.transaction.written import Written
from lakeformat.write.place.buckets import derive_file_id
from lakeformat.write.rows.delete_marker import deleted_rows_of
from lakeformat.write.rows.prepare import PrepareSettings, prepare

__all__ = ["DirectSettings", "DirectWriter"]

_MAX_OPEN: Final = 16
#: Rows that are split by partition at a time. More rows cost less per row, fewer rows wait less.
_ENOUGH_ROWS: Final = 262_144
#: A file is closed at this share of its size limit, because the remaining room would make a tiny row group.
_FULL: Final = 0.9


@dataclass(frozen=True, slots=True)
class DirectSettings:
    """How one task writes.

    Attributes:
        folder: stage folder of this task attempt.
        task: number of the task, the same in every attempt; it is part of the names of its files.
        write_token: a token that is unique to the attempt.
        tail_bytes: if a partition's remaining rows have fewer bytes of Arrow, they are returned, not written.
        buffer_bytes: memory for rows that wait for a file.
        closed: partitions that take no rows -> the reason.
    """

    folder: str
    instant_time: str
    write_id: str
    task: int
    write_token: str
    tail_bytes: int
    buffer_bytes: int
    closed: Mapping[str, str] = field(default_factory=dict)


@dataclass
class _OpenFile:
    """A base file being written."""

    writer: BaseFileWriter
    stack: ExitStack
    name: BaseFileName
    path: str


@dataclass
class _Partition:
    """The rows of one partition that wait for a file, and the file if one is open."""

    waiting: list[pa.Table] = field(default_factory=list)
    bytes: int = 0
    open: _OpenFile | None = None
    job: Future[None] | None = None
    files: int = 0


class DirectWriter:
    """A writer that splits rows by partition and streams them into base files of at most the target size.

    Memory: the buffer, one row group per open file, and the keys of open files (for their filters).
    """

    def __init__(
        self,
        storage: Storage,
        prepare_settings: PrepareSettings,
        files: FileSettings,
        settings: DirectSettings,
        pool: Executor,
    ) -> None:
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
        self._written: list[Written] = []
        self._counter = 0
        generated = prepare_settings.keys.generated
        self._new_keys = GeneratedKeys(settings.instant_time, settings.task) if generated else None

    def append(self, batch: pa.RecordBatch) -> None:
        """Take one batch of the input."""
        self.rows += batch.num_rows
        enough = max(self.settings.buffer_bytes // 2, 1)
        for part in pieces(batch, _ENOUGH_ROWS, enough):
            self._incoming.append(part)
            self._incoming_bytes += decoded_bytes(part)
            self._incoming_rows += part.num_rows
            if self._incoming_rows >= _ENOUGH_ROWS or self._incoming_bytes >= enough:
                self._distribute()

    def _distribute(self) -> None:
        """Prepare the waiting input, and start to write each partition that has enough rows for a row group."""
        if not self._incoming:
            return
        rows = pa.Table.from_batches(self._incoming)
        self._incoming, self._incoming_bytes, self._incoming_rows = [], 0, 0
        for path, part in prepare(
            rows, self.prepare_settings, self._new_keys.take(rows.num_rows) if self._new_keys else None
        ).items():
            if path in self.settings.closed:
                raise WriteConflictError(self.settings.closed[path])
            partition = self._partitions.setdefault(path, _Partition())
            partition.waiting.append(part)
            partition.bytes += part.nbytes
        for path, partition in self._partitions.items():
            rows_waiting = sum(table.num_rows for table in partition.waiting)
            if rows_waiting >= ROW_GROUP_ROWS:
                self._start(path, partition, rows_waiting - rows_waiting % ROW_GROUP_ROWS)
        while sum(p.bytes for p in self._partitions.values()) > self.settings.buffer_bytes // 2:
            path = max(self._partitions, key=lambda p: self._partitions[p].bytes)
            self._start(path, self._partitions[path])

    def append_group(self, path: str, tables: Iterable[pa.Table]) -> None:
        """Write all prepared rows of one file group, in order. No other rows of the partition go into its files.

        Memory: two row groups and one table.
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
        """Start to write the first ``count`` waiting rows, or all."""
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
        """Close the open file with most bytes, if too many files are open."""
        opened = {path: p for path, p in self._partitions.items() if p.open is not None}
        if len(opened) >= _MAX_OPEN:
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
        """Write rows of one partition. It runs in the pool, never twice at the same time for one partition."""
        rows = rows.filter(pa.array(~deleted_rows_of(rows)))
        stamped_rows = stamped(rows, self.files.schema, self.settings.instant_time, self.settings.task, first)
        start = 0
        while start < stamped_rows.num_rows:
            partition.open = partition.open or self._new_file(path, partition)
            writer = partition.open.writer
            group = stamped_rows.slice(start, self._rows_that_fit(writer, stamped_rows))
            writer.write(group)
            start += group.num_rows
            if writer.expected_bytes >= _FULL * self.files.max_file_bytes:
                self._close(partition)

    def _rows_that_fit(self, writer: BaseFileWriter, rows: pa.Table) -> int:
        """Return the number of rows of the next row group.

        For a new file the estimate uses the rows' size in memory, which is larger than on disk.
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
        self._written.append(Written(opened.path, stat, writer.facts, decoded_bytes=writer.decoded_bytes))

    def finish(self) -> tuple[tuple[Written, ...], Mapping[str, pa.Table]]:
        """Close all files. Return them, and the remaining rows by partition that were too few for a file."""
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
        return tuple(sorted(self._written, key=lambda w: w.staged_path)), tails

    def abandon(self) -> None:
        """Drop open files after a failure. The stage folder is deleted later."""
        for partition in self._partitions.values():
            if partition.job is not None:
                partition.job.exception()
            if partition.open is not None:
                error = RuntimeError("abandoned")
                partition.open.stack.__exit__(RuntimeError, error, None)
                partition.open = None
