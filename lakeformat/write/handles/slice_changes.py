"""Changes of a file slice's rows before they are appended, and rewrites of slices that cannot be appended to.

Readers of log files apply only the table's merge rule. If a write uses another rule (only some columns, a merger,
MERGE clauses, a condition), the rule is applied here to the stored rows, and the resulting rows are appended whole.
If the table has an ordering column, readers would ignore a resulting row whose ordering value is less than that of the
stored row. Deleting the stored row in the log first does not help, because readers would still merge the new row with
the deleted one (see below). In this case the slice is rewritten to a base file. (Hudi also rewrites small file groups
in a deltacommit.)

Deletes must have the same result as in copy-on-write tables. There, a delete has no effect if the stored row has a
greater ordering value, where a null is less than every value; and a deleted version has no effect on later versions.
Readers of log files differ in two cases, for which the writer reads stored rows first:

- Readers apply a delete with a null, or with the int 0, to any version, and under Debezium's payload classes before
  version 9 every delete. So such a delete is appended only if no stored row is newer (`mask_late_deletes`).
- If the log files have deleted a key, readers would merge a new row of that key with the deleted row of the base file.
  The deleted row would win if its ordering value is greater, and in tables that fill nulls its values would fill the
  nulls of the new row. So the slice is rewritten to a base file (`logs_delete_any`).

Memory: the contents of the log files, one batch of stored rows, and the rows changed in it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lakeformat.arrow.conform import conform
from lakeformat.codec.stored_types import with_meta_columns
from lakeformat.files.base_file import (
    ROW_GROUP_ROWS,
    BaseFileWriter,
    FilterAndRange,
    make_growable_filter,
    stored_schema,
)
from lakeformat.files.log_reader import read_shaped_parts
from lakeformat.files.slice_reader import MergedSlice, open_merged_slice
from lakeformat.merge import ReadRule, ordering_columns, stored_wins, top_columns
from lakeformat.merge.versions import LogDeletes, LogPart, deleting_rows
from lakeformat.model.commit import WriteStat
from lakeformat.model.files import join_path
from lakeformat.model.record import COMMIT_TIME, FILE_NAME, PARTITION_PATH, RECORD_KEY
from lakeformat.storage.port import Storage
from lakeformat.transaction.order.conflict import PendingActionError
from lakeformat.transaction.order.written_file import WrittenFile
from lakeformat.write.handles.base_file_handles import HandleSettings, KeyMerger, open_merger
from lakeformat.write.handles.cdc_log import HandleMerger
from lakeformat.write.workload.buckets import Bucket, LogPlace

__all__ = [
    "ChangedRows",
    "NotAppendableError",
    "logs_delete_any",
    "mask_late_deletes",
    "open_changed_rows",
    "rewrite_slice",
]


Mask = npt.NDArray[np.bool_]


class NotAppendableError(Exception):
    """Raised if rows cannot be appended to a log file, because readers would not see the change."""


class ChangedRows:
    """The rows of a slice that a write changes, and their counts.

    Attributes:
        merger: the merger that changes the rows, and counts updates and deletes.
        deleted: keys of deleted rows; complete when the iterator of ``rows`` is exhausted.
        inserts: number of new rows so far.
    """

    def __init__(
        self,
        merger: HandleMerger,
        batches: Iterator[pa.RecordBatch],
        settings: HandleSettings,
        loses_to_hidden_version: Callable[[pa.Table], bool],
    ) -> None:
        self.merger, self._stored_batches, self._settings, self._loses_to_hidden_version = (
            merger,
            batches,
            settings,
            loses_to_hidden_version,
        )
        self.deleted: list[pa.Array] = []
        self.inserts = 0

    def rows(self) -> Iterator[pa.Table]:
        """Yield the stored rows that the merger has changed, then the new rows, all with meta columns.

        Raises:
            NotAppendableError: if readers of log files would not see one of these rows.
        """
        for batch in self._stored_batches:
            before = self.merger.updates, self.merger.deletes
            parts = list(self.merger.apply(batch, self.merger.find(batch)))
            if (self.merger.updates, self.merger.deletes) == before:
                continue
            merged = pa.concat_tables(parts, promote_options="permissive")
            changed = merged.filter(pc.equal(_text(merged, COMMIT_TIME), self._settings.instant_time))
            if self.merger.deletes > before[1]:
                gone = pc.invert(pc.is_in(batch.column(RECORD_KEY), value_set=_text(merged, RECORD_KEY)))
                self.deleted.append(batch.column(RECORD_KEY).filter(gone).cast(pa.string()))
            if changed.num_rows:
                self._check_seen_by_readers(batch, changed)
                yield changed
        for rows in self.merger.emit_inserts():
            self.inserts += rows.num_rows
            if rows.num_rows:
                if self._loses_to_hidden_version(rows):
                    raise NotAppendableError
                yield rows

    def _check_seen_by_readers(self, stored: pa.RecordBatch, changed: pa.Table) -> None:
        if self._settings.fills_nulls:
            raise NotAppendableError
        rule = self._settings.read_rule
        if not rule.ordering:
            return
        positions = pc.index_in(_text(changed, RECORD_KEY), value_set=stored.column(RECORD_KEY).cast(pa.string()))
        before = stored.select(top_columns(rule.ordering, stored.schema.names)).take(positions.combine_chunks())
        if stored_wins(_ordering_values(before, rule), _ordering_values(changed, rule)).any():
            raise NotAppendableError


@contextmanager
def open_changed_rows(
    storage: Storage, bucket: Bucket, place: LogPlace, source: pa.Table, task: int, settings: HandleSettings
) -> Iterator[ChangedRows]:
    """Yield the rows that a bucket's rows change in the slice, as `ChangedRows`. The settings choose the merger."""
    with _open_merged(storage, place, settings) as merged:
        merger = (settings.make_merger or KeyMerger)(bucket, source, task, settings)
        yield ChangedRows(
            merger,
            _stored_batches(merged, settings),
            settings,
            lambda rows: _loses_to_hidden_version(storage, place, rows, settings),
        )


def logs_delete_any(storage: Storage, place: LogPlace, keys: pa.ChunkedArray | pa.Array) -> bool:
    """Tell whether the slice's log files delete one of these keys.

    If they do, a row with this key must not be appended: readers would merge it with the deleted row of the base file.
    """
    if place.merging is None or not place.deleting_logs or not len(keys):
        return False
    rule = place.merging.rule
    columns = [RECORD_KEY, *rule.deleting_columns]
    merging = place.merging
    for part in read_shaped_parts(storage, place.deleting_logs, merging.visible, columns, merging.shape):
        gone = part.keys if isinstance(part, LogDeletes) else _deleted_keys(part.rows, rule)
        if len(gone) and pc.any(pc.is_in(keys, value_set=gone)).as_py():
            return True
    return False


def _deleted_keys(rows: pa.Table, rule: ReadRule) -> pa.ChunkedArray:
    """Return the record keys of the rows of a data block that are marked as deletes."""
    deleted = deleting_rows(rows, rule)
    return _text(rows.filter(pa.array(deleted)), RECORD_KEY) if deleted.any() else pa.chunked_array([], pa.string())


def mask_late_deletes(
    storage: Storage, place: LogPlace, keys: pa.Array, values: Sequence[pa.Array], settings: HandleSettings
) -> Mask:
    """Return a mask of the deletes that must have no effect, because a newer row with their key is stored.

    Args:
        keys: record keys to delete, each once.
        values: for each ordering field, the values of the deletes.

    Raises:
        NotAppendableError: if the slice holds a key several times, and the delete wins over only some of its rows.
    """
    rule, lost, won = settings.rule, np.zeros(len(keys), bool), np.zeros(len(keys), bool)
    columns = [RECORD_KEY, *top_columns(rule.ordering, settings.files.schema.names)]
    with _open_merged(storage, place, settings, columns) as merged:
        for batch in merged.batches(ROW_GROUP_ROWS, settings.files.row_group_bytes, threads=settings.idle_cores):
            positions = pc.index_in(batch.column(RECORD_KEY).cast(pa.string()), value_set=keys)
            hit = positions.is_valid()
            stored = rule.ordering_columns(batch.filter(hit))
            positions = positions.drop_null()
            newer = stored_wins(
                [column.cast(deletes.type) for column, deletes in zip(stored, values, strict=True)],
                [deletes.take(positions) for deletes in values],
            )
            lost[np.asarray(positions)[newer]] = True
            won[np.asarray(positions)[~newer]] = True
    if (lost & won).any():
        raise NotAppendableError
    return lost


def _loses_to_hidden_version(storage: Storage, place: LogPlace, rows: pa.Table, settings: HandleSettings) -> bool:
    """Tell whether readers would prefer a hidden version of a key to the new row with this key.

    A new row's key is not among the rows that readers get from the slice. If the slice's files hold versions of the key
    nevertheless, log files have deleted them. These hidden versions are rows of the base file or of log files, and
    deletes with an ordering value.
    """
    if place.file_slice is None or place.merging is None or not place.deleting_logs:
        return False
    rule, keys = settings.read_rule, _text(rows, RECORD_KEY)
    tops = top_columns(rule.ordering, rows.schema.names)
    has_keys = False
    merging, logs = place.merging, place.file_slice.logs
    for part in read_shaped_parts(storage, logs, merging.visible, [RECORD_KEY, *tops], merging.shape):
        part_keys = part.keys if isinstance(part, LogDeletes) else _text(part.rows, RECORD_KEY)
        positions = pc.index_in(part_keys, value_set=keys)
        if positions.null_count == len(positions):
            continue
        if not rule.ordering or settings.fills_nulls or rule.by_payload:
            return True
        has_keys = True
        before = _logged_ordering(part, rule, tops)
        if before and _has_newer_stored(before, positions, rows, rule):
            return True
    if not has_keys or place.file_slice.base is None:
        return False
    with _open_merged(storage, replace(place, file_slice=replace(place.file_slice, logs=())), settings) as base:
        for batch in _stored_batches(base, settings):
            positions = pc.index_in(_text(pa.Table.from_batches([batch]), RECORD_KEY), value_set=keys)
            if _has_newer_stored(_ordering_values(batch, rule), positions, rows, rule):
                return True
    return False


def _logged_ordering(part: LogPart, rule: ReadRule, tops: Sequence[str]) -> list[pa.Array]:
    """Return the ordering values in a log block, a column for each ordering field; empty if it has none."""
    if isinstance(part, LogDeletes):
        return list(part.ordering)
    if any(part.rows.schema.get_field_index(name) < 0 for name in tops):
        return []
    return _ordering_values(part.rows, rule)


def _has_newer_stored(before: Sequence[pa.Array], positions: Any, rows: pa.Table, rule: ReadRule) -> bool:
    """Tell whether any stored row is newer, by its ordering values, than the incoming row with the same key.

    Args:
        before: a column of the stored rows for each ordering field.
        positions: for each stored row, the position in ``rows`` of the incoming row with its key; null for none.
    """
    hit, after = pc.is_valid(positions), _ordering_values(rows, rule)
    pairs = zip(before, after, strict=True)
    stored = [_combine_chunks(column.filter(hit)).cast(new.type) for column, new in pairs]
    return bool(stored_wins(stored, [_combine_chunks(new.take(positions.filter(hit))) for new in after]).any())


def _ordering_values(rows: pa.Table | pa.RecordBatch, rule: ReadRule) -> list[pa.Array]:
    columns = ordering_columns(rows, rule.ordering, is_sequence=rule.is_sequence)
    return [_combine_chunks(column) for column in columns]


def rewrite_slice(
    storage: Storage, bucket: Bucket, place: LogPlace, source: pa.Table, task: int, settings: HandleSettings
) -> WrittenFile | None:
    """Apply the bucket's change to the slice, and write all its rows to a base file.

    If nothing changes, return None and leave no file.

    Raises:
        WriteConflictError: if a pending compaction will write a base file for this file group.
    """
    if place.is_compacting:
        raise PendingActionError(
            f"a pending compaction has file group {bucket.file_id}, and the write must make a base file of it; run the "
            "compaction first"
        )
    name = settings.file_name(bucket, task)
    target = settings.path_of(bucket, name)
    with (
        _open_merged(storage, place, settings) as merged,
        storage.open_output(target) as sink,
        open_merger(storage, bucket, source, task, settings) as (merger, log),
    ):
        filter_and_range = FilterAndRange(make_growable_filter(merged.most_rows + len(bucket.rows), settings.files.fpp))
        with BaseFileWriter(sink, bucket.partition_path, name, settings.files, filter_and_range) as writer:
            for batch in _stored_batches(merged, settings):
                for rows in merger.apply(batch, merger.find(batch)):
                    writer.write(rows)
            stored_rows = writer.rows
            for rows in merger.emit_inserts():
                writer.write(rows)
            writer.close()
    inserts = writer.rows - stored_rows
    if not (merger.updates or merger.deletes or inserts):
        storage.delete(target)
        return None
    stat = WriteStat(
        bucket.file_id,
        join_path(bucket.partition_path, str(name)),
        bucket.partition_path,
        place.opened_at,
        writer.rows,
        num_deletes=merger.deletes,
        num_updates=merger.updates,
        num_inserts=inserts,
        size_bytes=writer.size_bytes,
        base_name=place.base_name,
        cdc_stats=log.stats(bucket.partition_path) if log else (),
    )
    return WrittenFile(target, stat, writer.facts)


@contextmanager
def _open_merged(
    storage: Storage, place: LogPlace, settings: HandleSettings, columns: Sequence[str] = ()
) -> Iterator[MergedSlice]:
    assert place.file_slice is not None  # noqa: S101  The caller does not pass buckets that open a slice.
    assert place.merging is not None  # noqa: S101  No caller gets here without merge rules.
    table = with_meta_columns(settings.files.schema)
    names = columns or [name for name in table.names if name != PARTITION_PATH]
    with open_merged_slice(storage, place.file_slice, place.merging, table, names) as merged:
        yield merged


def _stored_batches(merged: MergedSlice, settings: HandleSettings) -> Iterator[pa.RecordBatch]:
    """Yield the slice's rows in batches, in the columns that mergers expect. Each row has the name of its own file."""
    shape = stored_schema(settings.files.schema)
    stored = pa.schema([field for field in shape if field.name != PARTITION_PATH])
    for batch in merged.batches(ROW_GROUP_ROWS, settings.files.row_group_bytes, threads=settings.idle_cores):
        shaped = conform(batch, stored)
        position = stored.get_field_index(FILE_NAME)
        yield shaped.set_column(position, FILE_NAME, batch.column(FILE_NAME))


def _text(rows: pa.Table, name: str) -> pa.ChunkedArray:
    return rows.column(name).cast(pa.string())


def _combine_chunks(column: Any) -> pa.Array:
    return column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
