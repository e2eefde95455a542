"""The append handle: it writes one bucket to one log file of a file slice (Hudi: ``HoodieAppendHandle``).

Rows to store go into Parquet data blocks; the keys to delete go into delete blocks at the end of the file. Memory: the
keys of the bucket's rows, and one data block, both as Arrow rows and encoded. A data block has at most
`ROW_GROUP_ROWS` rows and ``row_group_bytes`` bytes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lakeformat.arrow.conform import conform
from lakeformat.arrow.gather import gather_column
from lakeformat.arrow.kinds import Kind, field_type, kind_of
from lakeformat.arrow.logical_types import vector_footer
from lakeformat.codec.stored_types import with_meta_columns
from lakeformat.files.base_file import (
    ROW_GROUP_ROWS,
    FileSettings,
    parquet_writer,
    stamp_rows_with,
    stored_schema,
)
from lakeformat.files.log_writer import BaseRows, encode_avro_block, encode_delete_block, encode_parquet_block
from lakeformat.keys.record_keys import make_seqnos
from lakeformat.merge import top_columns
from lakeformat.merge.versions import are_unconditional
from lakeformat.model.commit import WriteStat
from lakeformat.model.files import join_path
from lakeformat.model.record import RECORD_KEY
from lakeformat.storage.port import Storage
from lakeformat.transaction.order.written_file import WrittenFile
from lakeformat.write.handles.base_file_handles import HandleSettings, check_inserts, mask_of_deletes
from lakeformat.write.handles.slice_changes import (
    NotAppendableError,
    logs_delete_any,
    mask_late_deletes,
    open_changed_rows,
    rewrite_slice,
)
from lakeformat.write.rows.incoming import Incoming
from lakeformat.write.workload.buckets import Bucket, LogPlace, log_name

__all__ = ["append", "log_file_name"]

Ints = npt.NDArray[np.int64]

#: If a data block has at least this many bytes, some of its rows are tested, to see which columns are worth
#: compressing. Smaller blocks are not tested: the test would take longer than writing the block, and small blocks are
#: frequent, because one input batch may write a block to each of many buckets.
_LEAST_SAMPLED_BYTES: Final = 64 << 10
#: Number of a data block's rows that are tested, to see which columns are worth compressing. A test of more rows would
#: choose the columns better, but compaction rewrites the rows anyway, so the longer test is not worth its time.
_SAMPLE_ROWS: Final = 1024
#: Maximum position in the base file that a log block may record for a row, because Hudi's readers use 31 bits for it.
_LAST_ROW: Final = (1 << 31) - 1


def log_file_name(bucket: Bucket, place: LogPlace, task: int, settings: HandleSettings) -> str:
    """Return the name of a bucket's log file, without a folder."""
    return str(log_name(place, bucket.file_id, settings.instant_time, settings.token(task)))


def append(
    storage: Storage, bucket: Bucket, place: LogPlace, source: pa.Table, task: int, settings: HandleSettings
) -> WrittenFile | None:
    """Write the bucket's rows to the next log file of a slice, or to the first of a new file group.

    If readers of log files would not see the change (`lakeformat.write.handles.slice_changes` explains when), write a
    base file instead. If nothing changes, return None and leave no file.

    Raises:
        WriteConflictError: if a base file is necessary but a pending compaction will write it.
    """
    needs_stored_rows = (
        settings.make_merger is not None or settings.rule.merger is not None or settings.rule.columns is not None
    )
    if needs_stored_rows and place.merging is not None:
        try:
            return _append_changes(storage, bucket, place, source, task, settings)
        except NotAppendableError:
            return rewrite_slice(storage, bucket, place, source, task, settings)
    incoming = Incoming(source, bucket.rows, settings.files.row_group_bytes)
    deleted = mask_of_deletes(incoming, settings)
    deleted[: bucket.moved_rows] = True
    deletes, kept_rows = np.flatnonzero(deleted), np.flatnonzero(~deleted)
    if bucket.opened_at is None:
        deletes = deletes[:0]  # A new file group has no rows to delete.
    try:
        if place.deleting_logs and len(kept_rows):
            keys = incoming.column(RECORD_KEY, len(bucket.rows)).filter(pa.array(~deleted))
            if logs_delete_any(storage, place, keys):
                raise NotAppendableError
        deletes = _drop_late_deletes(storage, bucket, place, incoming, deletes, settings)
    except NotAppendableError:
        return rewrite_slice(storage, bucket, place, source, task, settings)
    return _append_rows(storage, bucket, place, incoming, (kept_rows, deletes), task, settings)


def _drop_late_deletes(
    storage: Storage, bucket: Bucket, place: LogPlace, incoming: Incoming, deletes: Ints, settings: HandleSettings
) -> Ints:
    """Return the deletes to write: those among ``deletes`` whose stored row is not newer.

    If the stored row is newer, the delete must have no effect. But readers of log files apply some deletes to every
    version of the row. So such a delete is only written if no newer row is stored. These are the deletes whose ordering
    value is the int 0, or null, also in one of several fields, and every delete under Debezium's payload classes before
    version 9.

    Args:
        deletes: the deletes, as positions among the bucket's rows. The result has the same form.

    Raises:
        NotAppendableError: if the slice holds a key several times, and the delete wins over only some of its rows.
    """
    if place.merging is None or not settings.rule.orders_deletes or settings.is_delete:
        return deletes
    delete_rows = deletes[deletes >= bucket.moved_rows]
    values = _ordering_values(incoming, delete_rows, settings)
    by_payload = settings.read_rule.by_payload
    weak = are_unconditional(values, len(delete_rows)) | _have_nulls(values, len(delete_rows)) | by_payload
    if not weak.any():
        return deletes
    weak_rows = delete_rows[weak]
    keys = gather_column(_column(incoming, RECORD_KEY, bucket), weak_rows).combine_chunks()
    values = _ordering_values(incoming, weak_rows, settings)
    late = mask_late_deletes(storage, place, keys, values, settings)
    return np.setdiff1d(deletes, weak_rows[late])


def _append_rows(
    storage: Storage,
    bucket: Bucket,
    place: LogPlace,
    incoming: Incoming,
    rows: tuple[Ints, Ints],
    task: int,
    settings: HandleSettings,
) -> WrittenFile | None:
    """Write incoming rows to a log file, unmerged: data blocks of rows, then a block of the keys to delete.

    If there is nothing to write, return None.

    Args:
        rows: two arrays of positions among the bucket's rows: the rows to store, and the deletes.
    """
    kept_rows, deletes = rows
    if not len(kept_rows) and not len(deletes):
        return None
    kept_rows, deletes = _sort_in_base_order(kept_rows, bucket), _sort_in_base_order(deletes, bucket)
    numbers = pa.chunked_array([make_seqnos(settings.instant_time, task, 0, len(bucket.rows))])
    with _log_file(storage, bucket, place, task, settings) as file:
        for part in incoming.split_into_runs(kept_rows, ROW_GROUP_ROWS):
            rows = stamp_rows_with(
                incoming.take(part), settings.files.schema, settings.instant_time, gather_column(numbers, part)
            )
            file.add(check_inserts(rows, settings), _base_rows(part, bucket, place))
        if len(deletes):
            file.delete(*_keys_to_delete(incoming, deletes, bucket, settings), _base_rows(deletes, bucket, place))
    updates = int((kept_rows < bucket.updates).sum())
    return file.finish(updates=updates, inserts=len(kept_rows) - updates, deletes=len(deletes))


def _sort_in_base_order(rows: Ints, bucket: Bucket) -> Ints:
    """Sort rows of the bucket by their positions in the base file. If one of the rows is new, keep the given order."""
    if bucket.base_rows is None or (rows >= bucket.updates).any():
        return rows
    return rows[np.argsort(bucket.base_rows[rows], kind="stable")]


def _base_rows(rows: Ints, bucket: Bucket, place: LogPlace) -> BaseRows | None:
    """Return the positions in the base file of a log block's rows; None if the block must not record them.

    If a block records these positions, readers do not compare keys: they apply each row to the stored row at its
    position. So the positions must be ascending and refer to the slice's present base file.
    """
    base = place.file_slice.base if place.file_slice is not None else None
    if base is None or base != bucket.base or bucket.base_rows is None or (rows >= bucket.updates).any():
        return None
    instant = base.name.instant_time
    if place.named_after not in {None, instant}:
        return None  # A pending compaction replaces this base file, so its row positions would be wrong.
    numbers = bucket.base_rows[rows]
    if not len(numbers) or numbers[0] < 0 or (np.diff(numbers) <= 0).any() or numbers[-1] > _LAST_ROW:
        return None
    return BaseRows(numbers, instant, place.named_after is None)


def _append_changes(
    storage: Storage, bucket: Bucket, place: LogPlace, source: pa.Table, task: int, settings: HandleSettings
) -> WrittenFile | None:
    """Write a log file of the rows that the merger changes, deletes or adds. If nothing changes, return None.

    Raises:
        NotAppendableError: if readers of log files would not see a change. No file is left.
    """
    with (
        open_changed_rows(storage, bucket, place, source, task, settings) as changed,
        _log_file(storage, bucket, place, task, settings) as file,
    ):
        for rows in changed.rows():
            file.add(rows)
        deletes = pa.concat_arrays([pa.array([], pa.string()), *changed.deleted])
        if len(deletes):
            file.delete(deletes, [])
    written = file.finish(updates=changed.merger.updates, inserts=changed.inserts, deletes=len(deletes))
    if not written.stat.num_writes and not len(deletes):
        storage.delete(written.staged_path)
        return None
    return written


class _LogFile:
    """A log file that is written block by block."""

    def __init__(self, sink: Any, target: str, bucket: Bucket, place: LogPlace, settings: HandleSettings) -> None:
        self._sink, self._target, self._bucket, self._place, self._settings = sink, target, bucket, place, settings
        self._size = 0

    def add(self, rows: pa.Table, base_rows: BaseRows | None = None) -> None:
        """Write a data block of rows. Its ``_hoodie_file_name`` column holds the file id, as in Hudi's log files."""
        self._put(_data_block(rows, self._bucket, self._settings, base_rows))

    def delete(self, keys: pa.Array, ordering: Sequence[pa.Array], base_rows: BaseRows | None = None) -> None:
        """Write delete blocks: record keys, and an array of their values for each ordering field, or no array.

        Deletes with and without an ordering value go into different blocks: hudi-rs refuses a block of both. If one of
        several ordering values is null, none is written: Hudi 1.2.0 cannot read a null among several.
        """
        every = np.ones(len(keys), bool)
        always = _have_nulls(ordering, len(keys)) if ordering else every
        for rows, values in ((np.flatnonzero(~always), ordering), (np.flatnonzero(always), ())):
            if not len(rows):
                continue
            block = encode_delete_block(
                keys.take(pa.array(rows)),
                partition_path=self._bucket.partition_path,
                instant_time=self._settings.instant_time,
                schema=self._settings.files.avro_schema,
                ordering=[values_of_row.take(pa.array(rows)) for values_of_row in values],
                base_rows=None if base_rows is None else replace(base_rows, rows=base_rows.rows[rows]),
            )
            self._put(block)

    def _put(self, block: bytes) -> None:
        self._sink.write(block)
        self._size += len(block)

    def finish(self, *, updates: int, inserts: int, deletes: int) -> WrittenFile:
        """Return the finished log file, with its `WriteStat` for the commit."""
        bucket, name = self._bucket, self._target.rpartition("/")[2]
        stat = WriteStat(
            bucket.file_id,
            join_path(bucket.partition_path, name),
            bucket.partition_path,
            self._place.opened_at or self._settings.instant_time,
            updates + inserts,
            num_deletes=deletes,
            num_updates=updates,
            num_inserts=inserts,
            size_bytes=self._size,
            base_name=self._place.base_name,
            log_names=(*self._place.log_names, name),
        )
        return WrittenFile(self._target, stat)


@contextmanager
def _log_file(
    storage: Storage, bucket: Bucket, place: LogPlace, task: int, settings: HandleSettings
) -> Iterator[_LogFile]:
    name = log_file_name(bucket, place, task, settings)
    target = join_path(bucket.partition_path if settings.folder is None else settings.folder, name)
    with storage.open_output(target) as sink:
        yield _LogFile(sink, target, bucket, place, settings)


def _data_block(rows: pa.Table, bucket: Bucket, settings: HandleSettings, base_rows: BaseRows | None) -> bytes:
    """Return an encoded data block. Its ``_hoodie_file_name`` column holds the file id, as in Hudi's log files."""
    schema = stored_schema(settings.files.file_schema)
    table = settings.files.stored_rows(rows, schema, bucket.partition_path, bucket.file_id)
    if not _is_ordered_by_text(settings):
        return _parquet_block(table, settings.files, settings.instant_time, base_rows)
    plain = conform(table, with_meta_columns(settings.files.file_schema))
    return encode_avro_block(
        plain, instant_time=settings.instant_time, schema=settings.files.avro_schema, base_rows=base_rows
    )


def _is_ordered_by_text(settings: HandleSettings) -> bool:
    """Tell whether readers compare texts to choose between versions. Then data blocks must be Avro.

    Hudi 1.2.0 reads the rows of a Parquet block into one buffer. It keeps a text as a place in this buffer, which the
    next row overwrites. So it compares wrong texts, and an older row may win.
    """
    fields = (field_type(settings.files.schema, name) for name in settings.read_rule.ordering)
    return any(kind is not None and kind_of(kind) is Kind.TEXT for kind in fields)


def _parquet_block(rows: pa.Table, files: FileSettings, instant_time: str, base_rows: BaseRows | None) -> bytes:
    sink = pa.BufferOutputStream()
    sample = rows if rows.nbytes >= _LEAST_SAMPLED_BYTES else None
    with parquet_writer(sink, rows.schema, files, sample, checked_rows=_SAMPLE_ROWS) as writer:
        writer.write_table(rows)
        if vector_footer(files.schema):  # The block's header has the columns, too.
            writer.add_key_value_metadata(files.footer)
    return encode_parquet_block(
        sink.getvalue().to_pybytes(), instant_time=instant_time, schema=files.avro_schema, base_rows=base_rows
    )


def _keys_to_delete(
    incoming: Incoming, deletes: Ints, bucket: Bucket, settings: HandleSettings
) -> tuple[pa.Array, Sequence[pa.Array]]:
    """Return the record keys to delete, and an array of their values for each ordering field.

    If the deletes have no ordering values, there are no arrays.
    """
    keys = gather_column(_column(incoming, RECORD_KEY, bucket), deletes).combine_chunks()
    if not settings.rule.orders_deletes or settings.is_delete or settings.read_rule.by_payload:
        return keys, []  # Without an ordering value, a delete removes every version of its row.
    # If a row moves to another partition, its delete in this partition gets nulls as ordering values. Readers apply
    # such a delete to every version of the row.
    moved = pa.array(deletes < bucket.moved_rows)
    columns = _ordering_values(incoming, deletes, settings)
    return keys, [pc.if_else(moved, pa.scalar(None, column.type), column) for column in columns]


def _ordering_values(incoming: Incoming, rows: Ints, settings: HandleSettings) -> list[pa.Array]:
    """Return an array for each ordering field with the values of the rows at these positions.

    Dates become integers, as delete blocks store them.
    """
    rule = settings.rule
    taken = incoming.take(rows, top_columns(rule.ordering, incoming.rows.schema.names))
    columns = [column.combine_chunks() for column in rule.ordering_columns(taken)]
    return [column.cast(pa.int32()) if kind_of(column.type) is Kind.DATE else column for column in columns]


def _have_nulls(columns: Sequence[pa.Array], rows: int) -> npt.NDArray[np.bool_]:
    """Return a mask of the rows that have a null in one of the columns."""
    flags = np.zeros(rows, bool)
    for column in columns:
        flags |= np.asarray(column.is_null())
    return flags


def _column(incoming: Incoming, name: str, bucket: Bucket) -> pa.ChunkedArray:
    values = incoming.column(name, len(bucket.rows))
    return values if isinstance(values, pa.ChunkedArray) else pa.chunked_array([values])
