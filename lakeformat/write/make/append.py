"""Append: one bucket becomes one log file of a file slice (Hudi: ``HoodieAppendHandle``).

Rows stand in Parquet blocks, keys to delete in a block behind them. Memory: the bucket's keys, and one block of rows,
of at most `ROW_GROUP_ROWS` rows and ``row_group_bytes``, with its Parquet file.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lakeformat.codec.gather import gather_column
from lakeformat.files.base_file import (
    ROW_GROUP_ROWS,
    FileSettings,
    constant,
    parquet_writer,
    stamped_with,
    stored_schema,
)
from lakeformat.files.log_writer import delete_block, parquet_block
from lakeformat.keys.record_keys import field_column
from lakeformat.keys.seqnos import seqnos
from lakeformat.model.commit import WriteStat
from lakeformat.model.files import join_path
from lakeformat.model.record import FILE_NAME, PARTITION_PATH, RECORD_KEY
from lakeformat.storage.port import Storage
from lakeformat.transaction.written import Written
from lakeformat.write.make.handles import HandleSettings, deleting, inserted
from lakeformat.write.place.appends import log_name
from lakeformat.write.place.buckets import Bucket, LogPlace
from lakeformat.write.rows.incoming import Incoming

__all__ = ["append", "log_file_name"]


def log_file_name(bucket: Bucket, place: LogPlace, task: int, settings: HandleSettings) -> str:
    """The bare name of a bucket's log file."""
    return str(log_name(place, bucket.file_id, settings.instant_time, settings.token(task)))


def append(
    storage: Storage, bucket: Bucket, place: LogPlace, source: pa.Table, task: int, settings: HandleSettings
) -> Written | None:
    """The next log file of a slice, or the first of a new file group. None, and no file, if nothing changes."""
    name = log_file_name(bucket, place, task, settings)
    target = join_path(bucket.partition_path if settings.folder is None else settings.folder, name)
    incoming = Incoming(source, bucket.rows, settings.files.row_group_bytes)
    deleted = deleting(incoming, settings)
    deleted[: bucket.leaving] = True
    gone = np.flatnonzero(deleted)
    if bucket.changes is None:
        gone = gone[:0]  # Nothing is there to delete.
    kept = np.flatnonzero(~deleted)
    if not len(kept) and not len(gone):
        return None
    numbers = pa.chunked_array([seqnos(settings.instant_time, task, 0, len(deleted))])
    with storage.open_output(target) as sink:
        for part in incoming.runs(kept, ROW_GROUP_ROWS):
            rows = stamped_with(
                incoming.taken(part), settings.files.schema, settings.instant_time, gather_column(numbers, part)
            )
            sink.write(_data(inserted(rows, settings), bucket, settings))
        if len(gone):
            sink.write(_deletes(incoming, gone, bucket, settings))
        size = int(sink.tell())
    updates = int((kept < bucket.lookups).sum())
    stat = WriteStat(
        bucket.file_id,
        join_path(bucket.partition_path, name),
        bucket.partition_path,
        place.opened_at or settings.instant_time,
        len(kept),
        num_deletes=len(gone),
        num_updates=updates,
        num_inserts=len(kept) - updates,
        size_bytes=size,
        base_name=place.base_name,
        log_names=(*place.log_names, name),
    )
    return Written(target, stat)


def _data(rows: pa.Table, bucket: Bucket, settings: HandleSettings) -> bytes:
    """A block of rows; of a log file's row the file name is that of its group, as in Hudi's."""
    schema = stored_schema(settings.files.schema)
    columns = {
        PARTITION_PATH: constant(bucket.partition_path, rows.num_rows),
        FILE_NAME: constant(bucket.file_id, rows.num_rows),
    }
    arrays = [columns[name] if name in columns else rows.column(name) for name in schema.names]
    return _block(pa.Table.from_arrays(arrays, schema=schema), settings.files, settings.instant_time)


def _block(rows: pa.Table, files: FileSettings, instant_time: str) -> bytes:
    sink = pa.BufferOutputStream()
    with parquet_writer(sink, rows.schema, files, rows) as writer:
        writer.write_table(rows)
    return parquet_block(sink.getvalue().to_pybytes(), instant_time=instant_time, schema=files.avro_schema)


def _deletes(incoming: Incoming, gone: npt.NDArray[np.int64], bucket: Bucket, settings: HandleSettings) -> bytes:
    """A block of deletes; those that rows bring are as new as their ordering value says."""
    keys: Any = gather_column(_column(incoming, RECORD_KEY, bucket), gone).combine_chunks()
    ordering = settings.rule.ordering if settings.rule.stored_may_win and not settings.delete else None
    values = []
    if ordering is not None:
        top = ordering if ordering in incoming.rows.schema.names else ordering.partition(".")[0]
        column = field_column(incoming.taken(gone, [top]), ordering, "ordering").combine_chunks()
        # Rows that move away leave nothing behind, whatever they are ordered by.
        values = [pc.if_else(pa.array(gone < bucket.leaving), pa.scalar(None, column.type), column)]
    return delete_block(
        keys,
        partition_path=bucket.partition_path,
        instant_time=settings.instant_time,
        schema=settings.files.avro_schema,
        ordering=values,
    )


def _column(incoming: Incoming, name: str, bucket: Bucket) -> pa.ChunkedArray:
    found = incoming.column(name, len(bucket.rows))
    return found if isinstance(found, pa.ChunkedArray) else pa.chunked_array([found])
