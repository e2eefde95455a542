"""The merge and create handles: each writes one bucket to one base file.

Hudi calls them ``HoodieMergeHandle`` and ``HoodieCreateHandle``.

Memory: one row group of the base file, and a part of the bucket's rows of at most the same size. The parts are copied
from the source when they are needed. Merges also keep the bucket's keys and a few copies of the footer's bloom filter,
which has about three bytes per row of the file.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from lakeformat.arrow.conform import conform_array
from lakeformat.arrow.gather import gather, gather_column, replace_values
from lakeformat.arrow.kinds import Kind, kind_of
from lakeformat.arrow.logical_types import is_vector
from lakeformat.arrow.row_bytes import split_positions
from lakeformat.arrow.same_values import has_same_values
from lakeformat.errors import SchemaMismatchError
from lakeformat.files.base_file import (
    ROW_GROUP_ROWS,
    BaseFileWriter,
    FileSettings,
    FilterAndRange,
    inherit_filter_and_range,
    make_growable_filter,
    stamp_rows,
    stamp_rows_with,
)
from lakeformat.files.footers import find_dictionary_texts, open_base, open_parquet, parse_key_footer
from lakeformat.files.stored_shape import AS_STORED, FileShape, StoredShape
from lakeformat.keys.record_keys import make_seqnos
from lakeformat.merge import MergeRule, ReadRule, flag_deleted_rows, make_read_rule, stored_wins, top_columns
from lakeformat.model.commit import WriteStat
from lakeformat.model.files import BaseFile, BaseFileName, LogFileName, join_path
from lakeformat.model.operation import Operation
from lakeformat.model.record import COMMIT_SEQNO, COMMIT_TIME, IS_DELETED, RECORD_KEY
from lakeformat.storage.port import Storage
from lakeformat.transaction.order.written_file import WrittenFile
from lakeformat.write.handles.cdc_log import ChangeLog, ChangeLogSettings, HandleMerger, log_changes
from lakeformat.write.handles.row_group_copies import RowGroupCopies, find_touched_groups, open_writer, plan_copies
from lakeformat.write.handles.row_group_merge import StoredRows
from lakeformat.write.plan.job import WriteJob
from lakeformat.write.rows.incoming import Incoming
from lakeformat.write.rows.prepare import deleted_rows_of
from lakeformat.write.workload.buckets import Bucket

__all__ = [
    "HandleSettings",
    "KeyFinder",
    "KeyMerger",
    "check_inserts",
    "create",
    "drop_rows",
    "make_token",
    "mask_of_deletes",
    "merge",
    "open_merger",
    "preview_copies",
    "replace_rows",
]


#: The rule of readers that take the last version of a row.
_LAST_VERSION: Final = ReadRule()
#: Number of replaced values that are compared before all others.
_FIRST_VALUES: Final = 16


def replace_rows(
    table: pa.Table,
    mask: npt.NDArray[np.bool_],
    rows: pa.Table,
    instant: str,
) -> pa.Table:
    """Replace the rows for which ``mask`` is true by ``rows``, in order.

    A column that ``rows`` lacks, or whose values stay the same, keeps its memory.

    Args:
        table: the stored rows, one chunk per column.
        instant: the commit time of the new rows.
    """
    where, positions, new_columns = pa.array(mask), np.flatnonzero(mask), set(rows.schema.names)
    columns = []
    for field in table.schema:
        old = table.column(field.name).chunk(0)  # The table is one record batch, so it has one chunk.
        if field.name == COMMIT_TIME:
            columns.append(_stamp(old, mask, instant))
            continue
        if field.name == RECORD_KEY or field.name not in new_columns:  # The keys are equal, so keep the stored one.
            columns.append(old)
            continue
        new = rows.column(field.name).combine_chunks()
        if is_vector(new.type):
            new = conform_array(new, field.type)
        if _stays_the_same(old, positions, new):
            columns.append(old)
            continue
        if kind_of(field.type) is Kind.DICTIONARY:
            new = new.dictionary_encode()
        columns.append(replace_values(old, where, new))
    return pa.Table.from_arrays(columns, schema=table.schema)


def _stays_the_same(old: pa.Array, positions: npt.NDArray[np.int64], new: pa.Array) -> bool:
    """Tell whether the values at some positions are those that would replace them. The first ones most often tell."""
    return all(
        has_same_values(old.take(pa.array(positions[part])), new[part])
        for part in (slice(_FIRST_VALUES), slice(len(positions)))
    )


def _stamp(old: pa.DictionaryArray, mask: npt.NDArray[np.bool_], instant: str) -> pa.DictionaryArray:
    values = pa.concat_arrays([old.dictionary, pa.array([instant], old.dictionary.type)])
    codes = pc.if_else(pa.array(mask), pa.scalar(len(old.dictionary), old.indices.type), old.indices)
    return pa.DictionaryArray.from_arrays(codes, values)


def drop_rows(rows: pa.Table, dropped: npt.NDArray[np.bool_]) -> pa.Table:
    """Return the rows for which the mask ``dropped`` is false."""
    return rows.filter(pa.array(~dropped)) if dropped.any() else rows


def make_token(number: int | str, instant_time: str) -> str:
    """Return a write token with a file's number and the last digits of the write's instant.

    In timeline layout 1 the rest of a log file's name does not hold the instant of the write. Without it two writers
    could choose the same name, and one would replace the other's file.
    """
    return f"{number}-{instant_time[-9:]}-0"


@dataclass(frozen=True, slots=True)
class HandleSettings:
    """Settings that all buckets of one write share.

    Attributes:
        instant_time: the commit's instant.
        files: settings of base files.
        rule: how a stored row and an incoming one are merged.
        is_delete: whether the rows are keys to delete.
        folder: where files are written if they are moved to their partitions later; None writes to the partitions.
        write_token: part of the files' names, unique to this attempt; None makes one from the bucket's number and the
            instant.
        idle_cores: whether there are fewer buckets than cores, so that a merge may decode and encode on two cores.
        make_merger: function that creates the merger of a bucket; None uses `KeyMerger` (upserts and deletes by key).
        read_rule: the rule by which readers of log files choose between versions. It has no ordering fields if they
            take the last version, or if the table takes no log files.
        fills_nulls: whether readers of log files fill fields of a row's newer version from the older version.
        change_log: settings of the change data files; None if the table has none.
        copies_groups: whether a merge copies row groups and columns that it does not change byte for byte.
        shape: how base files with other columns store the table's columns.
    """

    instant_time: str
    files: FileSettings
    rule: MergeRule
    is_delete: bool
    folder: str | None = None
    write_token: str | None = None
    idle_cores: bool = False
    make_merger: Callable[[Bucket, pa.Table, int, HandleSettings], HandleMerger] | None = None
    read_rule: ReadRule = _LAST_VERSION
    fills_nulls: bool = False
    change_log: ChangeLogSettings | None = None
    copies_groups: bool = False
    shape: StoredShape = AS_STORED

    @classmethod
    def of(cls, job: WriteJob, instant_time: str, schema: pa.Schema) -> HandleSettings:
        """Return the settings of a write to a table with this schema."""
        config, files = job.config, job.files(schema)
        mode = config.change_logging
        return cls(
            instant_time,
            files,
            job.rule,
            job.operation is Operation.DELETE,
            read_rule=make_read_rule(config.merge_settings) if config.takes_logs else ReadRule(),
            fills_nulls=config.takes_logs and config.merge_settings.partial_update is not None,
            change_log=ChangeLogSettings.of(mode, schema, config.name, files.row_group_bytes) if mode else None,
            copies_groups=job.options.write.copy_row_groups,
            shape=job.shape_with(schema),
        )

    def shape_of(self, base: BaseFile) -> FileShape | None:
        """Return how a base file stores the table's columns; None if it stores them as they are."""
        return self.shape.in_folder(base.partition_path).of_file(base.name.instant_time)

    def file_name(self, bucket: Bucket, task: int) -> BaseFileName:
        """Return the name of a bucket's base file."""
        return BaseFileName(bucket.file_id, self.token(task), self.instant_time)

    def token(self, task: int) -> str:
        """Return the write token in the name of a bucket's file."""
        return self.write_token or make_token(task, self.instant_time)

    def path_of(self, bucket: Bucket, name: BaseFileName | LogFileName) -> str:
        """Return the path to which a bucket's file is written: in ``folder`` if it is set, else in the partition."""
        return join_path(bucket.partition_path if self.folder is None else self.folder, str(name))

    def change_data_path(self, bucket: Bucket, task: int) -> str | None:
        """Return the path of the change data file beside a bucket's base file; None if changes are not logged."""
        if self.change_log is None:
            return None
        return self.path_of(bucket, LogFileName(bucket.file_id, self.instant_time, 1, self.token(task), is_cdc=True))


def create(
    storage: Storage, bucket: Bucket, source: pa.Table, task: int, settings: HandleSettings
) -> WrittenFile | None:
    """Write the first base file of a new file group. If all rows are deletes, return None and leave no file."""
    name = settings.file_name(bucket, task)
    path, target = join_path(bucket.partition_path, str(name)), settings.path_of(bucket, name)
    written = 0
    with (
        storage.open_output(target) as sink,
        BaseFileWriter(sink, bucket.partition_path, name, settings.files) as writer,
    ):
        start = 0
        for part in split_positions(source, bucket.rows, ROW_GROUP_ROWS, settings.files.row_group_bytes):
            taken = gather(source, part)
            rows = stamp_rows(taken, settings.files.schema, settings.instant_time, task, start)
            writer.write(check_inserts(drop_rows(rows, mask_of_deletes(taken, settings)), settings))
            start += len(part)
        writer.close()
        written = writer.rows
        size = writer.size_bytes
    if not written:
        storage.delete(target)
        return None
    stat = WriteStat(bucket.file_id, path, bucket.partition_path, None, written, num_inserts=written, size_bytes=size)
    return WrittenFile(target, stat, writer.facts)


def merge(
    storage: Storage, bucket: Bucket, base: BaseFile, source: pa.Table, task: int, settings: HandleSettings
) -> WrittenFile | None:
    """Write the next base file of a file group, from the base file ``base`` and the bucket's rows.

    If nothing changes, return None and leave no file. An updated row keeps its position; inserts follow. A row that is
    only copied keeps its meta columns, except the file name. Source: Hudi's ``HoodieMergeHandle``.
    """
    name = settings.file_name(bucket, task)
    path, target = join_path(bucket.partition_path, str(name)), settings.path_of(bucket, name)
    stat = WriteStat(bucket.file_id, path, bucket.partition_path, base.name.instant_time, 0, base_name=str(base.name))
    where, converted = f"{storage.location}/{base.path}", settings.shape_of(base)
    with (
        ExitStack() as files,
        open_base(storage, base) as opened,
        _open_for_merge(opened, where, settings, is_converted=converted is not None) as (parquet, encoded),
        storage.open_output(target) as sink,
        open_merger(storage, bucket, source, task, settings) as (merger, log),
    ):
        metadata = parquet.metadata
        inherited = inherit_filter_and_range(storage, parse_key_footer(base, metadata), len(bucket.rows))
        filter_and_range = inherited or FilterAndRange(
            make_growable_filter(metadata.num_rows + len(bucket.rows), settings.files.fpp)
        )
        reopen = partial(files.enter_context, open_base(storage, base))
        copies = RowGroupCopies(metadata.num_row_groups)
        if converted is None:
            copies = _find_copies(reopen, metadata, merger, bucket, settings)
        most_bytes = settings.files.row_group_bytes
        stored = StoredRows(
            parquet, where, merger, copies, inherited is None, settings.idle_cores, most_bytes, converted
        )
        with open_writer(
            sink, bucket.partition_path, name, settings.files, filter_and_range, copies, encoded
        ) as writer:
            stored.write_to(writer)
            stored_rows = writer.rows
            for rows in merger.emit_inserts():
                writer.write(rows)
            writer.close()
        stat = replace(
            stat,
            num_writes=writer.rows,
            num_deletes=merger.deletes,
            num_updates=merger.updates,
            num_inserts=writer.rows - stored_rows,
            size_bytes=writer.size_bytes,
        )
    if not (stat.num_deletes or stat.num_updates or stat.num_inserts):
        storage.delete(target)
        return None
    stat = replace(stat, cdc_stats=log.stats(bucket.partition_path) if log else ())
    return WrittenFile(
        target,
        stat,
        writer.facts,
        unmatched_lookups=merger.unmatched_lookups,
        copied_rows=writer.copied_rows,
        copied_bytes=writer.copied_bytes,
    )


def _find_copies(
    open_source: Callable[[], Any], metadata: Any, merger: HandleMerger, bucket: Bucket, settings: HandleSettings
) -> RowGroupCopies:
    """Choose the row groups of a bucket's base file that its merge copies byte for byte."""
    if not settings.copies_groups:
        return RowGroupCopies(metadata.num_row_groups)
    touched = merger.find_touched_groups(metadata)
    return plan_copies(open_source, metadata, touched, settings.files, appended=bucket.inserts)


def preview_copies(
    open_source: Callable[[], Any], metadata: Any, bucket: Bucket, source: pa.Table, settings: HandleSettings
) -> RowGroupCopies:
    """Return the row groups of a bucket's base file that an upsert or delete surely copies byte for byte.

    Args:
        open_source: opens the base file; called only if row groups may be copied.
        metadata: the footer of the base file.
        source: the rows to which the bucket's positions refer.
    """
    return _find_copies(open_source, metadata, KeyMerger(bucket, source, 0, settings), bucket, settings)


@contextmanager
def open_merger(
    storage: Storage, bucket: Bucket, source: pa.Table, task: int, settings: HandleSettings
) -> Iterator[tuple[HandleMerger, ChangeLog | None]]:
    """Yield the merger of a bucket's base file, and its change log; None if the table logs no changes.

    The file of the change log is complete when the ``with`` block ends.
    """
    merger = (settings.make_merger or KeyMerger)(bucket, source, task, settings)
    target = settings.change_data_path(bucket, task)
    if settings.change_log is None or target is None:
        yield merger, None
        return
    with log_changes(storage, merger, target, settings.instant_time, settings.change_log) as both:
        yield both


class KeyFinder:
    """The part of a merger that finds stored rows by the record keys of a bucket's rows."""

    def __init__(self, bucket: Bucket, source: pa.Table, settings: HandleSettings) -> None:
        self.incoming = Incoming(source, bucket.rows, settings.files.row_group_bytes)
        self._keys = self.incoming.column(RECORD_KEY, bucket.updates)
        self._found = np.zeros(len(bucket.rows), bool)

    @property
    def unmatched_lookups(self) -> int:
        """Return the number of rows that the index located in this base file, but that no batch so far has held."""
        return len(self._keys) - int(self._found[: len(self._keys)].sum())

    @property
    def lookup_columns(self) -> Collection[str]:
        """Return the record key column."""
        return (RECORD_KEY,)

    def find_touched_groups(self, metadata: pq.FileMetaData) -> Sequence[bool]:
        """Tell for each row group whether one of the keys is in its key range."""
        return find_touched_groups(metadata, self._keys)

    def find(self, batch: pa.RecordBatch) -> pa.Array | None:
        """Return for each stored row the position of the row with its key, or null; None if no row has one."""
        if not len(self._keys):
            return None
        matches = pc.index_in(batch.column(RECORD_KEY), value_set=self._keys)
        return matches if matches.null_count < len(matches) else None

    def needed_columns(self, found: pa.Array) -> Collection[str] | None:
        """Return None: merge rules and clauses may need all columns."""
        return None


class KeyMerger(KeyFinder):
    """A merger that applies a bucket's rows to the base file's batches by key. Rows that never match are inserts."""

    def __init__(self, bucket: Bucket, source: pa.Table, task: int, settings: HandleSettings) -> None:
        super().__init__(bucket, source, settings)
        self.task, self.settings = task, settings
        self.updates = self.deletes = 0
        count = len(bucket.rows)
        self._find_deletes = mask_of_deletes(self.incoming, settings)
        self._find_deletes[: bucket.moved_rows] = True
        self._seqnos = pa.chunked_array([make_seqnos(settings.instant_time, task, 0, count)])
        self._first_at = np.zeros(count, np.int64)
        self._next_seqno = count

    def apply(self, batch: pa.RecordBatch, found: pa.Array | None) -> Iterator[pa.Table]:
        """Yield a batch of stored rows, in one or several parts, with matched rows updated or deleted."""
        if found is None:
            yield pa.Table.from_batches([batch])
            return
        for part, matches in self.incoming.split_batch(batch, found):
            yield self._apply_part(part, matches)

    def _apply_part(self, batch: pa.RecordBatch, matches: pa.Array) -> pa.Table:
        table = pa.Table.from_batches([batch])
        hit = np.asarray(pc.is_valid(matches))
        if not hit.any():
            return table
        rows = np.asarray(matches.drop_null()).astype(np.int64)
        is_repeat = self._mark_found(rows)
        newer = self._stored_is_newer(batch, hit, rows)
        gone = self._find_deletes[rows]
        if newer.any():
            kept = self._mask_kept(table, hit, newer, gone)
            hit[np.flatnonzero(hit)[kept]] = False
            rows, is_repeat, newer, gone = rows[~kept], is_repeat[~kept], newer[~kept], gone[~kept]
        dropped, replaced = hit.copy(), hit.copy()
        dropped[np.flatnonzero(hit)[~gone]] = False
        replaced[np.flatnonzero(hit)[gone]] = False
        if replaced.any():
            taken = self._take_rows(rows[~gone], is_repeat[~gone])
            taken, unwanted = self._merge_rows(table, replaced, taken, newer[~gone])
            table = replace_rows(table, replaced, taken, self.settings.instant_time)
            dropped[np.flatnonzero(replaced)[unwanted]] = True
        deletes = int(dropped.sum())
        self.deletes += deletes
        self.updates += len(rows) - deletes
        return drop_rows(table, dropped) if deletes else table

    def _mask_kept(
        self,
        table: pa.Table,
        hit: npt.NDArray[np.bool_],
        newer: npt.NDArray[np.bool_],
        gone: npt.NDArray[np.bool_],
    ) -> npt.NDArray[np.bool_]:
        """Return a mask of the matched stored rows that stay unchanged; the others are merged or deleted."""
        rule, names = self.settings.rule, self.settings.files.schema.names
        stored = table.select([] if rule.keeps_whole_rows else names).filter(pa.array(hit))
        return rule.mask_kept(stored, newer, gone)

    def _merge_rows(
        self,
        table: pa.Table,
        replaced: npt.NDArray[np.bool_],
        taken: pa.Table,
        stored_is_newer: npt.NDArray[np.bool_],
    ) -> tuple[pa.Table, npt.NDArray[np.bool_]]:
        """Return the new contents of the stored rows for which ``replaced`` is true, and a mask of those to delete."""
        rule, names = self.settings.rule, self.settings.files.schema.names
        if not rule.makes_rows:
            # Stored and incoming row have the same key. So columns that hold copies of the key need not be replaced.
            copies = self.settings.files.key_texts
            unchanged = [n for n in names if n in copies or (rule.columns is not None and n not in rule.columns)]
            return taken.drop_columns(unchanged), np.zeros(taken.num_rows, bool)
        stored = table.select(names).filter(pa.array(replaced))
        merged_rows, unwanted = rule.make_rows(stored, taken.select(names), stored_is_newer)
        merged_columns = set(merged_rows.schema.names)
        fields = [
            (merged_rows if field.name in merged_columns else taken).schema.field(field.name) for field in taken.schema
        ]
        arrays = [(merged_rows if field.name in merged_columns else taken).column(field.name) for field in fields]
        return pa.Table.from_arrays(arrays, schema=pa.schema(fields)), unwanted

    def _mark_found(self, rows: npt.NDArray[np.int64]) -> npt.NDArray[np.bool_]:
        """Mark incoming rows as matched. Return a mask that is true for rows that had matched a stored row before.

        An incoming row matches several stored rows if inserts have written its key more than once.

        Args:
            rows: positions of incoming rows, one for each matched stored row.
        """
        positions = np.arange(len(rows))
        # The assignment runs backwards. So if a row occurs twice, the index of its first occurrence is stored.
        self._first_at[rows[::-1]] = positions[::-1]
        is_repeat: npt.NDArray[np.bool_] = self._found[rows] | (self._first_at[rows] != positions)
        self._found[rows] = True
        return is_repeat

    def _take_rows(self, rows: npt.NDArray[np.int64], is_repeat: npt.NDArray[np.bool_]) -> pa.Table:
        """Return the incoming rows at these positions with meta columns. Repeated rows get new sequence numbers."""
        taken = self._stamp_rows(rows)
        copies = int(is_repeat.sum())
        if not copies:
            return taken
        position = taken.schema.get_field_index(COMMIT_SEQNO)
        fresh = make_seqnos(self.settings.instant_time, self.task, self._next_seqno, copies)
        self._next_seqno += copies
        numbers = pc.replace_with_mask(taken.column(position).combine_chunks(), pa.array(is_repeat), fresh)
        return taken.set_column(position, COMMIT_SEQNO, numbers)

    def _stamp_rows(self, rows: npt.NDArray[np.int64]) -> pa.Table:
        """Return the incoming rows at these positions with their meta columns."""
        numbers = gather_column(self._seqnos, rows)
        return stamp_rows_with(
            self.incoming.take(rows), self.settings.files.schema, self.settings.instant_time, numbers
        )

    def _stored_is_newer(
        self, batch: pa.RecordBatch, hit: npt.NDArray[np.bool_], rows: npt.NDArray[np.int64]
    ) -> npt.NDArray[np.bool_]:
        rule = self.settings.rule
        if not rule.stored_may_win:
            return np.zeros(len(rows), bool)
        tops = top_columns(rule.ordering, batch.schema.names)
        stored = rule.ordering_columns(batch.select(tops).filter(pa.array(hit)))
        incoming = rule.ordering_columns(self.incoming.take(rows, tops))
        return stored_wins(stored, [column.combine_chunks() for column in incoming])

    def emit_inserts(self) -> Iterator[pa.Table]:
        """Yield the incoming rows whose keys no stored row has, except deletes."""
        unwritten = np.flatnonzero(~(self._found | self._find_deletes))
        for part in self.incoming.split_into_runs(unwritten, ROW_GROUP_ROWS):
            yield check_inserts(self._stamp_rows(part), self.settings)


def mask_of_deletes(rows: Incoming | pa.Table, settings: HandleSettings) -> npt.NDArray[np.bool_]:
    """Return a mask of the prepared rows that are deletes."""
    if settings.is_delete:
        return np.ones(rows.num_rows, bool)
    if isinstance(rows, pa.Table):
        return deleted_rows_of(rows)
    flags = rows.column(IS_DELETED, rows.num_rows) if IS_DELETED in rows.rows.schema.names else None
    return flag_deleted_rows(flags, rows.num_rows)


def check_inserts(rows: pa.Table, settings: HandleSettings) -> pa.Table:
    """Return the new rows unchanged. Refuse them if a column that must not be null has nulls.

    The input of a partial update may lack such a column: an updated row keeps its stored value. A new row has none.

    Raises:
        SchemaMismatchError: if such a column is null; the message names the column.
    """
    for field in settings.files.schema if settings.rule.columns is not None else ():
        missing = rows.column(field.name).null_count if not field.nullable else 0
        if missing:
            raise SchemaMismatchError(
                f"the input has no column {field.name!r}, which may not be null in this table, and {missing} of its "
                "rows have new keys; add the column, or leave these rows out"
            )
    return rows


@contextmanager
def _open_for_merge(
    source: Any, path: str, settings: HandleSettings, *, is_converted: bool
) -> Iterator[tuple[Any, frozenset[str]]]:
    """Open a base file for a merge. Yield it, and the names of the text columns that stay dictionary-encoded."""
    metadata = open_parquet(source, path).metadata
    encoded = frozenset[str]() if is_converted else _encoded_text(metadata, settings)
    with open_parquet(source, path, metadata=metadata, read_dictionary=[COMMIT_TIME, *encoded]) as parquet:
        yield parquet, encoded


def _encoded_text(metadata: Any, settings: HandleSettings) -> frozenset[str]:
    """Return the names of the text columns that may stay dictionary-encoded during a merge.

    The ordering columns are never among them, because the merge compares its values. If the merge computes new values
    from stored ones, the set is empty.
    """
    rule = settings.rule
    if settings.make_merger or rule.makes_rows:
        return frozenset()
    texts = {field.name for field in settings.files.schema if kind_of(field.type) is Kind.TEXT} - {*rule.ordering}
    return find_dictionary_texts([metadata], texts)
