"""The rows of a file slice: its base file's, changed by its log files (Hudi: ``KeyBasedFileGroupRecordBuffer``).

Memory: one version of each record in the log files, and of the base file one batch at a time.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lakeformat.codec.gather import gather, gather_column, replaced
from lakeformat.codec.row_bytes import runs
from lakeformat.merge.fields import incoming_cells
from lakeformat.merge.order import stored_wins
from lakeformat.merge.read_rule import ReadRule
from lakeformat.merge.versions import Versions, field_values, known_values
from lakeformat.model.record import META_COLUMNS, RECORD_KEY

__all__ = ["SliceMerge"]

Ints = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]


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

    def merge_batch(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The rows that are left of a batch of the base file, each in its place.

        A key that the base file holds more than once is changed everywhere.

        Args:
            batch: columns as the schema says by which the logs were folded.
        """
        matches = pc.index_in(batch.column(RECORD_KEY), value_set=self._keys)
        if matches.null_count == len(matches):
            return batch
        hit = np.flatnonzero(np.asarray(matches.is_valid()))
        met = np.asarray(matches.drop_null()).astype(np.int64)
        self._met[met] = True
        base_wins = self._base_wins(batch, hit, met)
        deleted = self._logs.deleted[met]
        pairs = _Pairs(hit[~deleted], self._logs.row[met[~deleted]], base_wins[~deleted])
        merged = self._filled(batch, pairs) if len(pairs.base) else batch
        gone = hit[deleted & ~base_wins]
        if not len(gone):
            return merged
        left = np.ones(batch.num_rows, bool)
        left[gone] = False
        return merged.filter(pa.array(left))

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
        """The batch with all that the log files say of its records, but for deletes."""
        every = pairs.cells(None, None)
        columns = []
        for name, column in zip(batch.schema.names, batch.columns, strict=True):
            base_known = known_values(column.take(pa.array(pairs.base)), self._rule) if pairs.base_wins.any() else None
            log_known = self._logs.known.get(name)
            one = base_known is None and log_known is None
            cells = every if one else pairs.cells(base_known, log_known)
            if self._rule.by_payload and name in META_COLUMNS:
                cells = np.ones(len(pairs.base), bool)
            columns.append(_replaced(column, self._logs.rows.column(name), pairs, cells))
        return pa.RecordBatch.from_arrays(columns, schema=batch.schema)


@dataclass(frozen=True, slots=True)
class _Pairs:
    """Records that base and log files hold: positions in a batch, positions of log rows, and which of the two wins."""

    base: Ints
    log: Ints
    base_wins: Mask

    def cells(self, base_known: Mask | None, log_known: Mask | None) -> Mask:
        """Of which pairs a field is the log row's. None: known in all; ``log_known`` is of all log rows."""
        known = np.ones(len(self.base), bool)
        return incoming_cells(
            known if base_known is None else base_known,
            known if log_known is None else log_known[self.log],
            self.base_wins,
        )


def _replaced(column: pa.Array, logs: pa.ChunkedArray, pairs: _Pairs, cells: Mask) -> pa.Array:
    if not cells.any():
        return column
    mask = np.zeros(len(column), bool)
    mask[pairs.base[cells]] = True
    return replaced(column, pa.array(mask), gather_column(logs, pairs.log[cells]).combine_chunks())
