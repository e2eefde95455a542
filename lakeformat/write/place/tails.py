"""The limit below which a partition's remaining rows are packed together instead of becoming a file of their own."""

from __future__ import annotations

from typing import Final

from lakeformat.model.operation import Operation
from lakeformat.write.decide.job import WriteJob

__all__ = ["tail_bytes"]

#: Limit for remaining rows that are only packed with those of other tasks. The driver reads and writes them alone, so
#: larger ones are not worth it.
_DRIVER_BYTES: Final = 8 << 20


def tail_bytes(job: WriteJob, *, tasks: bool) -> int:
    """Return the limit for remaining rows, in bytes of Arrow. Smaller remainders are packed when the write is
    published.

    If a layout has ordered the rows, or if a single task writes and the operation is not ``insert``, the limit is 0:
    the remainder becomes a file. An ``insert`` fills the table's small files, so its limit is
    ``hoodie.parquet.small.file.limit``. Other operations can only pack remainders of several tasks; their limit is the
    same option, but at most 8 MiB.

    Args:
        tasks: whether several tasks write the rows.
    """
    small = job.options.write.small_bytes
    if job.layout is not None:
        return 0
    if job.operation is Operation.INSERT:
        return small
    return min(small, _DRIVER_BYTES) if tasks else 0
