"""Step 2 in plain Python: the whole input as prepared rows by partition, in memory or on a local disk."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from itertools import chain
from typing import Final

import pyarrow as pa

from lakeformat.arrow.gather import one_chunk
from lakeformat.errors import LakeformatError
from lakeformat.storage.port import Storage
from lakeformat.storage.scratch import mapped_storage
from lakeformat.transaction.written_file import stage_folder
from lakeformat.write.plan.job import WriteJob
from lakeformat.write.rows.prepare import prepare
from lakeformat.write.rows.stage import StageReader, StageWriter

__all__ = ["prepare_input"]

#: An input of more than this many write buffers goes through a stage file.
_BUFFERS: Final = 4
#: Input chunks of fewer bytes on average are concatenated, because lookups in one chunk are faster.
_CHUNK_BYTES: Final = 4 << 20


@contextmanager
def prepare_input(
    storage: Storage, job: WriteJob, rows: pa.RecordBatchReader
) -> Iterator[tuple[Mapping[str, pa.Table], int]]:
    """Yield partition path -> prepared rows, and the number of input rows. Both are valid inside the ``with`` block.

    A small input stays in memory. A larger one is prepared buffer by buffer and written to a stage file, as in a Spark
    task. The stage file is then memory-mapped.

    Memory: `_BUFFERS` times ``lakeformat.write.buffer.bytes``, and the same again while a small input is prepared.

    Raises:
        SchemaMismatchError, InvalidInputError: if rows cannot be written.
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
        stack.callback(_delete_folder, disk, folder)
        path = f"{folder}/input.arrow"
        with StageWriter(disk, path, job.prepare, combined=job.combine, buffer_bytes=buffer) as stage:
            for batch in chain(_drain(waiting), batches):
                stage.append(batch)
            staged = stage.finish()
        yield stack.enter_context(StageReader(disk, [staged], job.prepare)).partitions(), staged.rows


def _drain(batches: list[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield the batches. Drop the reference to each one when the next is requested."""
    batches.reverse()
    while batches:
        yield batches.pop()


def _delete_folder(storage: Storage, folder: str) -> None:
    with suppress(LakeformatError, OSError):
        storage.delete_folder(folder)
