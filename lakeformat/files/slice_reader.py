"""The rows of a file slice that has log files: its base file streams, what its log files say is in memory.

Memory: one version of each record in the log files, in the columns read, and one of their blocks; of the base file one
batch.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa

from lakeformat.codec.conform import conform
from lakeformat.codec.row_bytes import pieces
from lakeformat.errors import CorruptTableError
from lakeformat.files.footers import open_parquet, row_batches
from lakeformat.files.log_reader import read_parts
from lakeformat.merge.fold import folded_parts
from lakeformat.merge.read_rule import ReadRule
from lakeformat.merge.slice_merge import SliceMerge
from lakeformat.model.files import BaseFile, FileSlice
from lakeformat.model.instant import VisibleInstants
from lakeformat.storage.port import Storage

__all__ = ["SliceMerging", "read_slice", "vanished"]


@dataclass(frozen=True, slots=True)
class SliceMerging:
    """How the files of a slice become rows. Picklable.

    Attributes:
        rule: which version of a record is read.
        visible: instants whose blocks count.
    """

    rule: ReadRule
    visible: VisibleInstants


def read_slice(
    storage: Storage,
    piece: FileSlice,
    merging: SliceMerging,
    table: pa.Schema,
    columns: Sequence[str],
    *,
    most_rows: int,
    most_bytes: int,
    threads: bool = True,
) -> Iterator[pa.RecordBatch]:
    """The slice's rows at the instant, unfiltered: those of the base file in its order, then those of the logs alone.

    Args:
        table: all columns as readers see them, meta columns included.
        columns: those wanted.
        most_rows, most_bytes: of a batch.
        threads: decode columns of the base file side by side.

    Raises:
        CorruptTableError: a file is missing or damaged; names the file.
        UnsupportedTableError: a log file holds what is not known here; names the file.
    """
    rule = merging.rule.within(table.names)
    names = dict.fromkeys((*columns, *rule.needed_of_base()))
    schema = pa.schema([table.field(name) for name in names if name in table.names])
    of_logs = {*schema.names, *rule.needed_of_logs()}
    parts = read_parts(storage, piece.logs, is_committed=merging.visible, columns=of_logs)
    merge = SliceMerge(folded_parts(parts, rule, schema), rule)
    wanted = pa.schema([table.field(name) for name in columns])
    if piece.base is not None:
        for batch in _base_batches(storage, piece.base, schema, most_rows, most_bytes, threads=threads):
            yield conform(merge.merge_batch(batch), wanted)
    for rows in merge.remaining(most_rows, most_bytes):
        yield from conform(rows, wanted).combine_chunks().to_batches()


def _base_batches(
    storage: Storage, base: BaseFile, schema: pa.Schema, most_rows: int, most_bytes: int, *, threads: bool
) -> Iterator[pa.RecordBatch]:
    try:
        with storage.open_input(base.path) as source, open_parquet(source, base.path) as parquet:
            present = set(parquet.schema_arrow.names)
            columns = [name for name in schema.names if name in present]
            batches = row_batches(
                parquet, base.path, most_rows, columns=columns, threads=threads, most_bytes=most_bytes
            )
            for batch in (each for one in batches for each in pieces(one, most_rows, most_bytes)):
                yield conform(batch, schema)
    except FileNotFoundError:
        raise vanished(base.path) from None


def vanished(path: str) -> CorruptTableError:
    """For a file that was planned to be read, and is not there."""
    return CorruptTableError(
        f"{path} vanished while it was read; read again, or keep more history (hoodie.cleaner.commits.retained)"
    )
