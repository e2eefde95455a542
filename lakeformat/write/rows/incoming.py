"""The rows of one bucket on their way into its base file: taken from the source when they are wanted.

Memory: the bucket's rows if they are few bytes, else as many bytes at a time.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lakeformat.codec.gather import gather, gather_column, joined
from lakeformat.codec.row_bytes import bytes_at, runs

__all__ = ["Incoming"]

Ints = npt.NDArray[np.int64]


class Incoming:
    """Some rows of a table, by position.

    Args:
        source: prepared rows, in memory or mapped.
        at: which of them.
        most_bytes: up to this many bytes they are gathered at once; of more rows, so many at a time.
    """

    def __init__(self, source: pa.Table, at: Ints, most_bytes: int) -> None:
        self.num_rows, self._most_bytes = len(at), most_bytes
        whole = next(runs(source, at, max(len(at), 1), most_bytes), at)
        self._at: Ints | None = None
        if len(whole) == len(at):
            source = gather(source, at)
        else:
            self._at = at
        self.rows = source

    def column(self, name: str, count: int) -> pa.ChunkedArray | pa.Array:
        """A column's first ``count`` values, of which it is expected that they are few bytes."""
        column = self.rows.column(name)
        column = joined(column.slice(0, count) if self._at is None else gather_column(column, self._at[:count]))
        return column.chunk(0) if column.num_chunks == 1 else column

    def taken(self, at: Ints, columns: Sequence[str] | None = None) -> pa.Table:
        """These of the rows, all columns or some."""
        rows = self.rows if columns is None else self.rows.select(columns)
        return gather(rows, at if self._at is None else self._at[at])

    def runs(self, at: Ints, most_rows: int) -> Iterator[Ints]:
        """Of these rows as many at a time as may be taken."""
        if self._at is None:
            yield from (at[start : start + most_rows] for start in range(0, len(at), most_rows))
            return
        start = 0
        for run in runs(self.rows, self._at[at], most_rows, self._most_bytes):
            yield at[start : start + len(run)]
            start += len(run)

    def parts(self, batch: pa.RecordBatch, matches: pa.Array) -> Iterator[tuple[pa.RecordBatch, pa.Array]]:
        """A batch of stored rows, and the rows that match them, in parts whose matches may be taken at once.

        Args:
            matches: for each stored row the position of a row here, or null.
        """
        if self._at is None:
            yield batch, matches
            return
        hit = np.asarray(pc.is_valid(matches))
        sizes = np.zeros(len(hit), np.int64)
        sizes[hit] = bytes_at(self.rows, self._at[np.asarray(matches.drop_null()).astype(np.int64)])
        ends = np.cumsum(sizes)
        start = 0
        while start < len(hit):
            before = int(ends[start - 1]) if start else 0
            end = max(int(np.searchsorted(ends, before + self._most_bytes, side="right")), start + 1)
            yield batch.slice(start, end - start), matches.slice(start, end - start)
            start = end
