"""The rows of a file slice: its base file's, changed by its log files (Hudi: ``KeyBasedFileGroupRecordBuffer``).

Memory: one version of each record in the log files; of the base file one batch at a time, or 64 MB, and of the rows
that come into it 16 MB and a row.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lakeformat.codec.gather import gather, gather_array, gather_column, replaced, replaced_among
from lakeformat.codec.row_bytes import bytes_at, runs
from lakeformat.merge.fields import incoming_cells
from lakeformat.merge.order import stored_wins
from lakeformat.merge.read_rule import ReadRule
from lakeformat.merge.versions import Versions, field_values, known_values
from lakeformat.model.record import META_COLUMNS, PARTITION_PATH, RECORD_KEY

__all__ = ["MergeCounts", "SliceMerge"]

Ints = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]

#: Columns that are the same in a base file's row and a log row that meet.
_SAME: Final = frozenset({RECORD_KEY, PARTITION_PATH})
#: Looking keys up begins with a table of those of the logs: it pays to look up some times as many at once.
_ROWS_PER_KEY: Final = 4
_HELD_BYTES: Final = 64 << 20
#: Bytes of log rows that come into a batch at once.
_PART_BYTES: Final = 16 << 20


@dataclass(frozen=True, slots=True)
class MergeCounts:
    """What the log files did to the base file's rows, in records.

    Attributes:
        records: of the log files, one version of each.
        updated, deleted: of those that the base file holds; one that the base file's own row wins over counts, too.
        added: that no base file holds.
    """

    records: int
    updated: int
    deleted: int
    added: int


class SliceMerge:
    """Merges the batches of one base file with what the slice's log files say.

    Batches may come in any order and from several threads. Rows of the log files alone are told by `remaining` when
    the last batch has been merged: all batches of a slice belong to one such object.

    Args:
        logs: one version of each record, as `folded_parts` leaves them.
        rule: the rule they were folded by.
    """

    def __init__(self, logs: Versions, rule: ReadRule) -> None:
        self._logs, self._rule = logs, rule
        self._keys = logs.keys.combine_chunks()
        self._met = np.zeros(len(logs), bool)
        self._is_large = logs.rows.nbytes > _PART_BYTES

    @property
    def counts(self) -> MergeCounts:
        """So far; of the whole slice when the last batch has been merged."""
        met, deleted = self._met, self._logs.deleted
        return MergeCounts(
            len(met), int((met & ~deleted).sum()), int((met & deleted).sum()), int((~met & ~deleted).sum())
        )

    def merge_batch(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The rows that are left of a batch of the base file, each in its place.

        A key that the base file holds more than once is changed everywhere.

        Args:
            batch: columns as the schema says by which the logs were folded.
        """
        parts = [*self._merged(batch, pc.index_in(batch.column(RECORD_KEY), value_set=self._keys))]
        return parts[0] if len(parts) == 1 else pa.concat_batches(parts)

    def merge(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """The same of batch after batch, some of them looked up at once where there are many keys to look among.

        Memory: 64 MB of batches, and one.
        """
        held: list[pa.RecordBatch] = []
        rows = size = 0
        for batch in batches:
            held.append(batch)
            rows, size = rows + batch.num_rows, size + batch.nbytes
            if rows >= _ROWS_PER_KEY * len(self._keys) or size >= _HELD_BYTES:
                yield from self._all_merged(held)
                held, rows, size = [], 0, 0
        yield from self._all_merged(held)

    def merge_rows(self, batches: Iterable[tuple[int, pa.RecordBatch]]) -> Iterator[pa.RecordBatch]:
        """The same of log files that say which rows they change: nobody looks at keys.

        Args:
            batches: each behind the number of its first row in the base file.
        """
        order = np.argsort(self._logs.position, kind="stable")
        places = self._logs.position[order]
        for start, batch in batches:
            first, end = np.searchsorted(places, [start, start + batch.num_rows])
            met = order[first:end]
            if len(met):
                yield from self._met_at(batch, places[first:end] - start, met)
            else:
                yield batch

    def _all_merged(self, batches: list[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        keys = pa.chunked_array([batch.column(RECORD_KEY) for batch in batches], pa.string())
        matches, start = pc.index_in(keys, value_set=self._keys).combine_chunks(), 0
        for batch in batches:
            yield from self._merged(batch, matches.slice(start, batch.num_rows))
            start += batch.num_rows

    def _merged(self, batch: pa.RecordBatch, matches: pa.Array) -> Iterator[pa.RecordBatch]:
        if matches.null_count == len(matches):
            yield batch
            return
        hit = np.flatnonzero(np.asarray(matches.is_valid()))
        yield from self._met_at(batch, hit, np.asarray(matches.drop_null()).astype(np.int64))

    def _met_at(self, batch: pa.RecordBatch, hit: Ints, met: Ints) -> Iterator[pa.RecordBatch]:
        """The batch, some rows of which meet a version of their record each: rows ascending, and the versions.

        It is cut where the rows of the log files that come into it are many bytes, however small its own are.
        """
        if not self._is_large:
            yield self._met_all(batch, hit, met)
            return
        sizes = np.zeros(len(met), np.int64)
        held = self._logs.row[met] >= 0
        sizes[held] = bytes_at(self._logs.rows, self._logs.row[met[held]])
        of_part = np.cumsum(sizes) // _PART_BYTES
        ends = [*(np.flatnonzero(np.diff(of_part)) + 1).tolist(), len(met)]
        first = start = 0
        for end in ends:
            stop = int(hit[end]) if end < len(hit) else batch.num_rows
            part = batch.slice(start, stop - start)
            yield self._met_all(part, hit[first:end] - start, met[first:end])
            first, start = end, stop

    def _met_all(self, batch: pa.RecordBatch, hit: Ints, met: Ints) -> pa.RecordBatch:
        self._met[met] = True
        base_wins = self._base_wins(batch, hit, met)
        deleted = self._logs.deleted[met]
        left = np.ones(batch.num_rows, bool)
        left[hit[deleted & ~base_wins]] = False
        kept = None if left.all() else pa.array(np.flatnonzero(left))
        pairs = _Pairs(batch.num_rows, hit[~deleted], self._logs.row[met[~deleted]], base_wins[~deleted], kept)
        return self._filled(batch, pairs)

    def remaining(self, most_rows: int, most_bytes: int) -> Iterator[pa.Table]:
        """The rows that no batch held, in the order in which they were written, so many rows and bytes at a time."""
        rows = self._logs.rows
        left = self._logs.row[~self._met & ~self._logs.deleted]
        for at in runs(rows, left, most_rows, most_bytes):
            yield gather(rows, at)

    def _base_wins(self, batch: pa.RecordBatch, hit: Ints, met: Ints) -> Mask:
        if not self._rule.ordering:
            return np.zeros(len(hit), bool)
        at = pa.array(hit)
        stored = [field_values(batch, name).take(at) for name in self._rule.ordering]
        written = [gather_column(column, met).combine_chunks() for column in self._logs.ordering]
        return stored_wins(stored, written) & ~self._logs.unconditional[met]

    def _filled(self, batch: pa.RecordBatch, pairs: _Pairs) -> pa.RecordBatch:
        """What is left of the batch, with all that the log files say of its records."""
        whole = pairs.cells(None, None)
        latest = replace(pairs, base_wins=np.zeros_like(pairs.base_wins)).cells(None, None)
        opens = pairs.base_wins.any() and self._rule.partial is not None
        columns = []
        for name, column in zip(batch.schema.names, batch.columns, strict=True):
            base_known = known_values(column.take(pa.array(pairs.base)), self._rule) if opens else None
            log_known = self._logs.known.get(name)
            if name in _SAME:
                cells = None
            elif self._rule.by_payload and name in META_COLUMNS:
                cells = latest
            else:
                cells = whole if base_known is log_known is None else pairs.cells(base_known, log_known)
            columns.append(pairs.left(column) if cells is None else cells.put(column, self._logs.rows.column(name)))
        return pa.RecordBatch.from_arrays(columns, schema=batch.schema)


@dataclass(frozen=True, slots=True)
class _Pairs:
    """Records that base and log files hold.

    Attributes:
        rows: of the batch.
        base: positions in the batch.
        log: positions of log rows.
        base_wins: which of the two wins.
        kept: positions in the batch of rows that log files do not delete; None for all.
    """

    rows: int
    base: Ints
    log: Ints
    base_wins: Mask
    kept: pa.Array | None

    def left(self, column: pa.Array) -> pa.Array:
        """The column's values that are left as they are."""
        return column if self.kept is None else gather_array(column, self.kept)

    def cells(self, base_known: Mask | None, log_known: Mask | None) -> _Cells | None:
        """Where a field is the log row's; None: nowhere.

        Args:
            base_known: which of ``base`` know the field, None for all.
            log_known: the same of all log rows.
        """
        known = np.ones(len(self.base), bool)
        taken = incoming_cells(
            known if base_known is None else base_known,
            known if log_known is None else log_known[self.log],
            self.base_wins,
        )
        if not taken.any():
            return None
        return _Cells.of(self.rows, self.base[taken], self.log[taken], self.kept)


@dataclass(frozen=True, slots=True)
class _Cells:
    """Values of a column that log rows replace: where in the batch, and by which log rows.

    Attributes:
        kept: as of `_Pairs`.
        among: where in ``kept`` those of ``base`` stand.
        mask: the same rows of the batch as ``base``, where all are kept.
    """

    base: Ints
    log: Ints
    kept: pa.Array | None
    among: Ints
    mask: pa.Array | None

    @classmethod
    def of(cls, rows: int, base: Ints, log: Ints, kept: pa.Array | None) -> _Cells:
        """Of a batch of so many rows; what every column needs is made once."""
        if kept is not None:
            return cls(base, log, kept, np.searchsorted(np.asarray(kept), base), None)
        mask = np.zeros(rows, bool)
        mask[base] = True
        return cls(base, log, None, base, pa.array(mask))

    def put(self, column: pa.Array, logs: pa.ChunkedArray) -> pa.Array:
        """What is left of the column, with the values of these log rows."""
        values = gather_column(logs, self.log).combine_chunks()
        if self.kept is not None:
            return replaced_among(column, self.base, values, self.kept, self.among)
        return replaced(column, self.mask, values)
