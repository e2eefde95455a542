"""Merging one file slice into a base file (Hudi: ``HoodieCompactor.compact``).

Rows keep commit time, sequence number and key; their meta column for the file name changes. Row groups of the base file
that no log record changes are copied byte for byte.
Memory: one version of each record in the slice's log files, and two row groups. Slices that are compacted in parallel
share a memory buffer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from itertools import groupby
from typing import TypeAlias

import pyarrow as pa

from lakeformat.codec.avro.schema import with_meta
from lakeformat.concurrency import run_ahead, thread_pool
from lakeformat.display import progress
from lakeformat.file_system_view.context import TableContext
from lakeformat.files.base_file import (
    ROW_GROUP_ROWS,
    BaseFileWriter,
    FileSettings,
    FilterAndRange,
    copied_schema,
    inherit_filter_and_range,
    make_growable_filter,
)
from lakeformat.files.footers import open_base, parse_key_footer
from lakeformat.files.open_slice import SliceMergeRules
from lakeformat.files.slice_reader import LOGS_IN_MEMORY, MergedSlice, open_merged_slice
from lakeformat.files.spliced_base_file import SplicedBaseFileWriter
from lakeformat.model.commit import LogsMerged, WriteStat
from lakeformat.model.files import BaseFileName, FileSlice, join_path
from lakeformat.storage.port import Storage
from lakeformat.transaction.order.written_file import WrittenFile
from lakeformat.write.handles.row_group_copies import (
    CopyStep,
    RowGroupCopies,
    find_groups_of_rows,
    find_touched_groups,
    list_copy_steps,
    open_writer,
    plan_copies,
    take_copy_step,
)
from lakeformat.write.rows.arrow_pool import reuse_memory

__all__ = ["CompactSettings", "Compactor", "SliceToCompact", "compact_in_process", "compact_slice", "count_parallel"]


@dataclass(frozen=True, slots=True)
class SliceToCompact:
    """File slice of a plan, with what is needed to merge it. Picklable.

    Attributes:
        number: position of the slice in its plan; part of the name of the new file until it is published.
        merging: rules for merging the slice's log records.
    """

    number: int
    file_slice: FileSlice
    merging: SliceMergeRules


@dataclass(frozen=True)
class CompactSettings:
    """Settings shared by all slices of one run. Picklable.

    Attributes:
        folder: staging folder of the new files, until they are published.
        names_base: whether the write stats name the old base file.
        buffer_bytes: memory for log records in bytes, per core.
        copies_groups: whether row groups of the base file that no log record changes are copied byte for byte.
    """

    instant_time: str
    folder: str
    files: FileSettings
    names_base: bool
    buffer_bytes: int
    write_token: str = "0-0-0"
    copies_groups: bool = False


#: Function that compacts slices, in this or other processes. It returns the new base files in the staging folder.
Compactor: TypeAlias = Callable[[TableContext, Sequence[SliceToCompact], CompactSettings], Sequence[WrittenFile]]


def compact_slice(storage: Storage, one: SliceToCompact, settings: CompactSettings, *, threads: bool) -> WrittenFile:
    """Merge a slice and write its new base file to the staging folder.

    Args:
        threads: whether to decode columns in parallel.

    Raises:
        CorruptTableError, UnsupportedTableError: a file is missing, damaged or of an unknown kind. The message
            names the file.
    """
    piece, group = one.file_slice, one.file_slice.group
    name = BaseFileName(group.file_id, settings.write_token, settings.instant_time)
    path = f"{settings.folder}/{one.number}-{name}"
    table = with_meta(settings.files.schema)
    with (
        ExitStack() as files,
        open_merged_slice(storage, piece, one.merging, table, copied_schema(table).names) as merged,
        storage.open_output(path) as sink,
    ):
        inherited, most = _inherit_keys(storage, piece, merged), settings.files.row_group_bytes
        rows = merged.log_records + (merged.footer.num_rows if merged.footer else 0)
        filter_and_range = inherited or FilterAndRange(make_growable_filter(rows, settings.files.fpp))
        copies = _find_copies(storage, piece, merged, settings, files)
        with open_writer(sink, group.partition_path, name, settings.files, filter_and_range, copies) as writer:
            _write_base_rows(writer, merged, copies, threads=threads, reads_keys=inherited is None)
            for batch in merged.log_batches(ROW_GROUP_ROWS, most):
                writer.write(pa.Table.from_batches([batch]))
            writer.close()
        counts = merged.counts
    stat = WriteStat(
        group.file_id,
        join_path(group.partition_path, str(name)),
        group.partition_path,
        piece.base_instant,
        writer.rows,
        num_deletes=counts.deleted,
        num_updates=counts.updated,
        num_inserts=counts.added,
        size_bytes=writer.size_bytes,
        base_name=str(piece.base.name) if piece.base and settings.names_base else "",
        merged=LogsMerged(len(piece.logs), sum(log.size_bytes for log in piece.logs), merged.blocks, counts.records),
    )
    return WrittenFile(path, stat, writer.facts, copied_rows=writer.copied_rows, copied_bytes=writer.copied_bytes)


def _find_copies(
    storage: Storage, piece: FileSlice, merged: MergedSlice, settings: CompactSettings, files: ExitStack
) -> RowGroupCopies:
    """Choose the row groups of the slice's base file that are copied byte for byte.

    Args:
        files: closes the base file from which they are copied.
    """
    metadata, base = merged.footer, piece.base
    if metadata is None or base is None:
        return RowGroupCopies(0)
    count = metadata.num_row_groups
    if not (settings.copies_groups and merged.keeps_other_rows):
        return RowGroupCopies(count)
    if merged.row_numbers is not None:
        touched, appended = find_groups_of_rows(metadata, merged.row_numbers), 0
    else:
        touched, appended = find_touched_groups(metadata, merged.log_keys), len(merged.log_keys)
    reopen = partial(files.enter_context, open_base(storage, base))
    return plan_copies(reopen, metadata, touched, settings.files, appended=appended, examines=False)


def _write_base_rows(
    writer: BaseFileWriter, merged: MergedSlice, copies: RowGroupCopies, *, threads: bool, reads_keys: bool
) -> None:
    """Write the rows of the base file, merged with the log records, and copy row groups."""
    new_keys = None if reads_keys else pa.array([], pa.string())
    steps = _read_base_rows(writer, merged, copies, threads=threads, reads_keys=reads_keys)
    for step in run_ahead(steps) if threads else steps:  # One thread alone reads the base file.
        if isinstance(step, pa.RecordBatch):
            writer.write(pa.Table.from_batches([step]), new_keys=new_keys)
        elif isinstance(writer, SplicedBaseFileWriter):
            take_copy_step(writer, step, merged.footer, copies.stored, reads_keys=reads_keys)


def _read_base_rows(
    writer: BaseFileWriter, merged: MergedSlice, copies: RowGroupCopies, *, threads: bool, reads_keys: bool
) -> Iterator[pa.RecordBatch | CopyStep]:
    """Read what is needed of each row group, and yield how its rows are written."""
    most = writer.settings.row_group_bytes
    counted: Sequence[str] = ()
    if isinstance(writer, SplicedBaseFileWriter):
        counted = writer.counted_columns(reads_keys=reads_keys)
    for is_copied, run in groupby(range(copies.count), key=copies.untouched.__contains__):
        if not is_copied:
            yield from merged.base_batches(ROW_GROUP_ROWS, most, [*run], threads=threads)
            continue
        for group_number in run:
            batches = merged.stored_batches(group_number, counted, ROW_GROUP_ROWS, most) if counted else ()
            yield from list_copy_steps(group_number, batches)


def _inherit_keys(storage: Storage, piece: FileSlice, merged: MergedSlice) -> FilterAndRange | None:
    """Return the old base file's bloom filter and key range, to which the new file adds the keys of the log files.

    Return None if the slice has no base file, or if the filter does not suit that many keys.
    """
    if piece.base is None or merged.footer is None:
        return None
    return inherit_filter_and_range(storage, parse_key_footer(piece.base, merged.footer), merged.log_records)


def count_parallel(log_bytes: Sequence[int], buffer_bytes: int, cores: int) -> int:
    """Return how many slices can be compacted at once: at least 1, at most the number of cores and of slices.

    It is the greatest number for which the log records of the largest slices fit into the buffer together. If those of
    one slice do not fit, it is 1.
    """
    taken = 0
    for count, size in enumerate(sorted(log_bytes, reverse=True)[:cores]):
        taken += size * LOGS_IN_MEMORY
        if taken > buffer_bytes:
            return max(1, count)
    return max(1, min(cores, len(log_bytes)))


def compact_in_process(
    context: TableContext, slices: Sequence[SliceToCompact], settings: CompactSettings
) -> list[WrittenFile]:
    """Write the new base files of all slices, largest first, as many at once as cores and memory allow."""
    cores = max(1, pa.cpu_count())
    order = sorted(slices, key=lambda work: -work.file_slice.size_bytes)
    logs = [sum(log.size_bytes for log in work.file_slice.logs) for work in order]
    threads = count_parallel(logs, cores * settings.buffer_bytes, cores)
    idle = threads < cores

    with (
        reuse_memory(),
        progress("compact", sum(work.file_slice.size_bytes for work in order)) as shown,
        thread_pool(threads) as pool,
    ):

        def compact(work: SliceToCompact) -> WrittenFile:
            written = compact_slice(context.storage, work, settings, threads=idle)
            shown.advance(work.file_slice.size_bytes, rows=written.stat.num_writes, files=1)
            return written

        return [*pool.map(compact, order)]
