"""Which rests of a partition are packed together, and which become files of their own."""

from __future__ import annotations

from typing import Final

from lakeformat.model.operation import Operation
from lakeformat.write.decide.job import WriteJob

__all__ = ["tail_bytes"]

#: Rests that only meet other tasks' rests: the driver reads and writes them alone, so larger ones are not worth it.
_DRIVER_BYTES: Final = 8 << 20


def tail_bytes(job: WriteJob, *, tasks: bool) -> int:
    """Below how many bytes of Arrow a partition's rest is left to be packed when the write is published.

    A rest is packed where it finds company. An ``insert`` tops up the table's small files: whatever is below
    ``hoodie.parquet.small.file.limit`` would be one more of them. What joins no file of the table meets the rests of
    other tasks at most: below that limit, too, but not above 8 MiB. One writer's rest without the one or the other,
    and one that a layout has put in order, is a file as it is.

    Args:
        tasks: several tasks write the rows.
    """
    small = job.options.write.small_bytes
    if job.layout is not None:
        return 0
    if job.operation is Operation.INSERT:
        return small
    return min(small, _DRIVER_BYTES) if tasks else 0
