"""The incoming rows of one bucket, copied from their source when the merge needs them.

Memory: the bucket's rows if they have at most ``most_bytes``; otherwise ``most_bytes`` at a time.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lakeformat.arrow.gather import combine_column, gather, gather_column
from lakeformat.arrow.row_bytes import row_sizes, split_positions
from lakeformat.files.base_file import ROW_GROUP_BYTES
from lakeformat.files.footers import open_base, open_parquet, row_batches
from lakeformat.files.open_slice import SliceMergeRules
from lakeformat.files.slice_reader import read_slice
from lakeformat.model.files import FileSlice
from lakeformat.model.record import META_COLUMNS, RECORD_KEY
from lakeformat.storage.port import Storage

__all__ = ["Incoming", "slice_batches"]

Ints = npt.NDArray[np.int64]


class Incoming:
    """Selected rows of a table, which are copied all at once, or in parts when they are needed.

    Args:
        source: prepared rows, in memory or memory-mapped.
        at: positions of the rows in the source.
        most_bytes: if the rows have at most this many bytes, they are all copied at once. Otherwise, parts of at most
            this size are copied when they are needed.
    """

    def __init__(self, source: pa.Table, positions: Ints, most_bytes: int) -> None:
        self.num_rows, self._most_bytes = len(positions), most_bytes
        whole = next(split_positions(source, positions, max(len(positions), 1), most_bytes), positions)
        self._at: Ints | None = None
        if len(whole) == len(positions):
            source = gather(source, positions)
        else:
            self._at = positions
        self.rows = source

    def column(self, name: str, count: int) -> pa.ChunkedArray | pa.Array:
        """Return the first ``count`` values of a column. All of them are copied to memory, so they should be small."""
        column = self.rows.column(name)
        column = combine_column(column.slice(0, count) if self._at is None else gather_column(column, self._at[:count]))
        return column.chunk(0) if column.num_chunks == 1 else column

    def take(self, at: Ints, columns: Sequence[str] | None = None) -> pa.Table:
        """Return the rows at these positions; ``columns`` selects some columns, None returns all."""
        rows = self.rows if columns is None else self.rows.select(columns)
        return gather(rows, at if self._at is None else self._at[at])

    def split_into_runs(self, at: Ints, most_rows: int) -> Iterator[Ints]:
        """Split the positions into runs of at most ``most_rows`` whose rows are small enough to be copied at once."""
        if self._at is None:
            yield from (at[start : start + most_rows] for start in range(0, len(at), most_rows))
            return
        start = 0
        for run in split_positions(self.rows, self._at[at], most_rows, self._most_bytes):
            yield at[start : start + len(run)]
            start += len(run)

    def split_batch(self, batch: pa.RecordBatch, matches: pa.Array) -> Iterator[tuple[pa.RecordBatch, pa.Array]]:
        """Split a batch of stored rows into parts whose matching incoming rows are small enough to be copied at once.

        Yield each part with its part of ``matches``.

        Args:
            matches: for each stored row, the position of the incoming row with its key, or null.
        """
        if self._at is None:
            yield batch, matches
            return
        hit = np.asarray(pc.is_valid(matches))
        sizes = np.zeros(len(hit), np.int64)
        sizes[hit] = row_sizes(self.rows, self._at[np.asarray(matches.drop_null()).astype(np.int64)])
        ends = np.cumsum(sizes)
        start = 0
        while start < len(hit):
            before = int(ends[start - 1]) if start else 0
            end = max(int(np.searchsorted(ends, before + self._most_bytes, side="right")), start + 1)
            yield batch.slice(start, end - start), matches.slice(start, end - start)
            start = end


def slice_batches(
    storage: Storage,
    piece: FileSlice,
    merging: SliceMergeRules | None,
    stored: pa.Schema,
    columns: pa.Schema,
    most_rows: int,
) -> Iterator[pa.RecordBatch]:
    """Yield a slice's rows in batches, with the record key and ``columns``.

    Without merging rules, columns that the slice's base file lacks are missing. Otherwise, such columns are null.
    Memory: a batch; if the slice has log files, the memory of `read_slice`.

    Args:
        merging: the rules by which a read merges the files; None if the base file alone has the rows.
        stored: the table's columns.
    """
    if merging is None:
        if piece.base is None:
            return
        where = f"{storage.location}/{piece.base.path}"
        with open_base(storage, piece.base) as source, open_parquet(source, where) as parquet:
            present = set(parquet.schema_arrow.names)
            names = [RECORD_KEY, *(name for name in columns.names if name in present and name != RECORD_KEY)]
            yield from row_batches(parquet, where, most_rows, columns=names)
        return
    own_names = set(columns.names)
    meta = [pa.field(name, pa.string()) for name in META_COLUMNS if name not in own_names]
    others = [field for field in stored if field.name not in own_names]
    table = pa.schema([*meta, *columns, *others])
    yield from read_slice(
        storage,
        piece,
        merging,
        table,
        [RECORD_KEY, *(name for name in columns.names if name != RECORD_KEY)],
        most_rows=most_rows,
        most_bytes=ROW_GROUP_BYTES,
        makes_keys=True,
    )
