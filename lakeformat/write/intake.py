"""The whole input of a write in plain Python: prepared rows by partition, in memory or on a local disk."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from itertools import chain
from typing import Final

import pyarrow as pa

from lakeformat.codec.gather import one_chunk
from lakeformat.errors import LakeformatError
from lakeformat.storage.mapped import mapped_storage
from lakeformat.storage.port import Storage
from lakeformat.transaction.written import stage_folder
from lakeformat.write.decide.job import WriteJob
from lakeformat.write.rows.prepare import prepare
from lakeformat.write.rows.stage import StageReader, StageWriter

__all__ = ["taken_in"]

#: An input of more than so many write buffers goes through a stage file.
_BUFFERS: Final = 4
#: An input in chunks of less than this is put together: rows are then found faster.
_CHUNK_BYTES: Final = 4 << 20


@contextmanager
def taken_in(
    storage: Storage, job: WriteJob, rows: pa.RecordBatchReader
) -> Iterator[tuple[Mapping[str, pa.Table], int]]:
    """Partition path -> prepared rows, and how many rows came in; valid while the block runs.

    A small input stays in memory. A larger one is prepared buffer by buffer and written to a stage file, as a Spark
    task does it, which is mapped.

    Memory: `_BUFFERS` times ``lakeformat.write.buffer.bytes``, and as much while it is prepared.

    Raises:
        SchemaMismatchError, InvalidInputError: rows that cannot be written.
    """
    buffer = job.options.write.buffer_bytes
    waiting: list[pa.RecordBatch] = []
    size = 0
    batches = iter(rows)
    for batch in batches:
        waiting.append(batch)
        size += batch.nbytes
        if size > _BUFFERS * buffer:
            break
    else:
        table = pa.Table.from_batches(waiting, rows.schema)
        if len(waiting) > 1 and size < len(waiting) * _CHUNK_BYTES:
            table = one_chunk(table)
        waiting.clear()
        count = table.num_rows
        prepared = prepare(table, job.prepare)
        del table
        yield prepared, count
        return
    with ExitStack() as stack:
        disk = stack.enter_context(mapped_storage(storage))
        folder = stage_folder(job.write_id)
        stack.callback(_forget, disk, folder)
        path = f"{folder}/input.arrow"
        with StageWriter(disk, path, job.prepare, combined=job.combine, buffer_bytes=buffer) as stage:
            for batch in chain(_drained(waiting), batches):
                stage.append(batch)
            staged = stage.finish()
        yield stack.enter_context(StageReader(disk, [staged], job.prepare)).partitions(), staged.rows


def _drained(batches: list[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The batches, each let go of when the next one is asked for."""
    batches.reverse()
    while batches:
        yield batches.pop()


def _forget(storage: Storage, folder: str) -> None:
    with suppress(LakeformatError, OSError):
        storage.delete_folder(folder)
