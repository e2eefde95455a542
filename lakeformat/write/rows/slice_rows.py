"""Rows of a file slice as writes look at them: its base file's, or what readers make of it and its log files."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa

from lakeformat.files.base_file import ROW_GROUP_BYTES
from lakeformat.files.footers import open_base, open_parquet, row_batches
from lakeformat.files.slice_reader import read_slice
from lakeformat.model.files import FileSlice
from lakeformat.model.record import META_COLUMNS, RECORD_KEY
from lakeformat.storage.port import Storage
from lakeformat.table_state.snapshot import Snapshot

__all__ = ["slice_batches"]


def slice_batches(
    storage: Storage, snapshot: Snapshot, piece: FileSlice, columns: pa.Schema, most_rows: int
) -> Iterator[pa.RecordBatch]:
    """Record keys and some of the table's columns; those that the files lack are left out or null.

    Memory: a batch; of a slice with log files what `read_slice` says.
    """
    if piece.base is not None and not piece.logs:
        where = f"{storage.location}/{piece.base.path}"
        with open_base(storage, piece.base) as source, open_parquet(source, where) as parquet:
            present = set(parquet.schema_arrow.names)
            names = [RECORD_KEY, *(name for name in columns.names if name in present and name != RECORD_KEY)]
            yield from row_batches(parquet, where, most_rows, columns=names)
        return
    stored = snapshot.columns(storage.location)
    asked = set(columns.names)
    meta = [pa.field(name, pa.string()) for name in META_COLUMNS if name not in asked]
    others = [field for field in stored if field.name not in asked]
    table = pa.schema([*meta, *columns, *others])
    yield from read_slice(
        storage,
        piece,
        snapshot.merging(piece),
        table,
        [RECORD_KEY, *(name for name in columns.names if name != RECORD_KEY)],
        most_rows=most_rows,
        most_bytes=ROW_GROUP_BYTES,
    )
