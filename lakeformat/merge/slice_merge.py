"""The merge of a slice's base file with its log files into rows (Hudi: ``KeyBasedFileGroupRecordBuffer``).

Memory: one version of each record in the log files; one batch of the base file, or 64 MB of batches if there are many
log keys; and the log rows in one output batch, at most 16 MB and one row.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lakeformat.arrow.gather import gather, gather_array, gather_column, replace_and_take, replace_values
from lakeformat.arrow.row_bytes import row_sizes, split_positions
from lakeformat.merge.fields import incoming_cells, known_values
from lakeformat.merge.order import ordering_columns, stored_wins, top_columns
from lakeformat.merge.rules import ReadRule
from lakeformat.merge.versions import Versions
from lakeformat.model.record import META_COLUMNS, PARTITION_PATH, RECORD_KEY

__all__ = ["MergeCounts", "SliceMerge"]

Ints = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]

#: Columns that need no merge, because they are equal in a base-file row and a log row of the same record.
_SAME: Final = frozenset({RECORD_KEY, PARTITION_PATH})
#: Base rows are collected until there are this many for each log key. Then their keys are looked up among the log keys
#: in one call. Each call first builds a hash table of all log keys, so calls for a few rows would be slow.
_ROWS_PER_KEY: Final = 4
#: Base rows are looked up as soon as they have this many bytes, even if they are fewer than `_ROWS_PER_KEY` requires.
_HELD_BYTES: Final = 64 << 20
#: Target size in bytes of the log rows in one output batch.
_PART_BYTES: Final = 16 << 20


@dataclass(frozen=True, slots=True)
class MergeCounts:
    """Counts of records in the log files, by their effect on the base file.

    Attributes:
        records: number of records in the log files.
        updated: number of records that are also in the base file and whose version in the log files is a row. Records
            whose base-file row wins are counted, too.
        deleted: number of records that are also in the base file and whose version in the log files is a delete.
            Records whose base-file row wins are counted, too.
        added: number of records that are not in the base file and that the log files do not delete.
    """

    records: int
    updated: int
    deleted: int
    added: int


class SliceMerge:
    """The merge of one base file's batches with the slice's log files.

    Batches may be merged in any order and by several threads, but all batches of a slice must be merged by one object.
    After the last batch, `log_only_rows` yields the rows that are only in the log files.

    Args:
        logs: one version of each record, as `fold_parts` returns them.
        rule: the rule by which they were folded.
    """

    def __init__(self, logs: Versions, rule: ReadRule) -> None:
        self._logs, self._rule = logs, rule
        self._keys = logs.keys.combine_chunks()
        self._matched = np.zeros(len(logs), bool)
        self._is_large = logs.rows.nbytes > _PART_BYTES

    @property
    def counts(self) -> MergeCounts:
        """Return the counts for the batches merged so far. They are complete after the last batch."""
        matched, deleted = self._matched, self._logs.deleted
        return MergeCounts(
            len(matched),
            int((matched & ~deleted).sum()),
            int((matched & deleted).sum()),
            int((~matched & ~deleted).sum()),
        )

    def merge_batch(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Merge one batch of the base file with the log files. Return the rows that are not deleted, in their order.

        If a key occurs more than once in the base file, all its rows are merged with the key's record in the log files.

        Args:
            batch: rows with the columns of the schema that was used to fold the log files.
        """
        parts = [*self._merge_found(batch, pc.index_in(batch.column(RECORD_KEY), value_set=self._keys))]
        return parts[0] if len(parts) == 1 else pa.concat_batches(parts)

    def merge(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Merge the batches, one after the other, as `merge_batch` does.

        If there are many log keys, the keys of several batches are looked up at once.

        Memory: 64 MB of batches, and one batch.
        """
        held: list[pa.RecordBatch] = []
        rows = size = 0
        for batch in batches:
            held.append(batch)
            rows, size = rows + batch.num_rows, size + batch.nbytes
            if rows >= _ROWS_PER_KEY * len(self._keys) or size >= _HELD_BYTES:
                yield from self._merge_held(held)
                held, rows, size = [], 0, 0
        yield from self._merge_held(held)

    @property
    def rule(self) -> ReadRule:
        """Return the rule of the merge. It has no ordering fields if no row of the base file can win by them."""
        return self._rule

    def find_matches(self, batch: pa.RecordBatch, start: int | None) -> tuple[Ints, Ints]:
        """Return the positions of the batch's rows that the log files have too, and their positions in `Versions`.

        Args:
            batch: rows of the base file. The record keys are needed only if ``start`` is None.
            start: the batch's first row number in the base file, if every log record has a row number; else None.
        """
        if start is None:
            return _matched_pairs(pc.index_in(batch.column(RECORD_KEY), value_set=self._keys))
        order, places = self._by_row_number
        first, end = np.searchsorted(places, [start, start + batch.num_rows])
        return places[first:end] - start, order[first:end]

    @cached_property
    def _by_row_number(self) -> tuple[Ints, Ints]:
        """Return the positions of the records in `Versions`, by ascending row number, and these row numbers."""
        order = np.argsort(self._logs.position, kind="stable")
        return order, self._logs.position[order]

    def merge_rows(self, batches: Iterable[tuple[int, pa.RecordBatch]]) -> Iterator[pa.RecordBatch]:
        """Merge batches with log files by row number in the base file, not by key.

        Every record in the log files must have a row number.

        Args:
            batches: pairs of a batch's first row number in the base file, and the batch.
        """
        for start, batch in batches:
            positions, matched = self.find_matches(batch, start)
            if len(matched):
                yield from self.merge_matches(batch, positions, matched)
            else:
                yield batch

    def _merge_held(self, batches: list[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        keys = pa.chunked_array([batch.column(RECORD_KEY) for batch in batches], pa.string())
        matches, start = pc.index_in(keys, value_set=self._keys).combine_chunks(), 0
        for batch in batches:
            yield from self._merge_found(batch, matches.slice(start, batch.num_rows))
            start += batch.num_rows

    def _merge_found(self, batch: pa.RecordBatch, matches: pa.Array) -> Iterator[pa.RecordBatch]:
        if matches.null_count == len(matches):
            yield batch
            return
        yield from self.merge_matches(batch, *_matched_pairs(matches))

    def merge_matches(self, batch: pa.RecordBatch, positions: Ints, matched: Ints) -> Iterator[pa.RecordBatch]:
        """Merge rows of a batch with the same records in the log files.

        The output is split into several batches if it contains more than 16 MB of log rows.

        Args:
            positions: ascending positions of the rows in the batch.
            matched: for each of them the position of the same record in the log files' `Versions`.
        """
        if not self._is_large:
            yield self._merge_rows_at(batch, positions, matched)
            return
        sizes = np.zeros(len(matched), np.int64)
        held = self._logs.row[matched] >= 0
        sizes[held] = row_sizes(self._logs.rows, self._logs.row[matched[held]])
        of_part = np.cumsum(sizes) // _PART_BYTES
        ends = [*(np.flatnonzero(np.diff(of_part)) + 1).tolist(), len(matched)]
        first = start = 0
        for end in ends:
            stop = int(positions[end]) if end < len(positions) else batch.num_rows
            part = batch.slice(start, stop - start)
            yield self._merge_rows_at(part, positions[first:end] - start, matched[first:end])
            first, start = end, stop

    def _merge_rows_at(self, batch: pa.RecordBatch, positions: Ints, matched: Ints) -> pa.RecordBatch:
        self._matched[matched] = True
        base_wins = self.base_wins(batch, positions, matched)
        deleted = self._logs.deleted[matched]
        kept = np.ones(batch.num_rows, bool)
        kept[positions[deleted & ~base_wins]] = False
        kept_rows = None if kept.all() else pa.array(np.flatnonzero(kept))
        pairs = _Pairs(
            batch.num_rows, positions[~deleted], self._logs.row[matched[~deleted]], base_wins[~deleted], kept_rows
        )
        return self._fill(batch, pairs)

    def log_only_rows(self, most_rows: int, most_bytes: int) -> Iterator[pa.Table]:
        """Yield the log rows whose records were in no merged batch, in the order in which they were written.

        Each table has at most ``most_rows`` rows and about ``most_bytes`` bytes.
        """
        rows = self._logs.rows
        rows_left = self._logs.row[~self._matched & ~self._logs.deleted]
        for some in split_positions(rows, rows_left, most_rows, most_bytes):
            yield gather(rows, some)

    def base_wins(self, batch: pa.RecordBatch, positions: Ints, matched: Ints) -> Mask:
        """Return a flag per pair: whether the row of the base file wins by its ordering values.

        Args:
            positions, matched: as in `merge_matches`.
        """
        if not self._rule.ordering:
            return np.zeros(len(positions), bool)
        names = self._rule.ordering
        rows = batch.select(top_columns(names, batch.schema.names)).take(pa.array(positions))
        stored = ordering_columns(rows, names, is_sequence=self._rule.is_sequence)
        written = [gather_column(column, matched).combine_chunks() for column in self._logs.ordering]
        return stored_wins(stored, written) & ~self._logs.unconditional[matched]

    def _fill(self, batch: pa.RecordBatch, pairs: _Pairs) -> pa.RecordBatch:
        """Return the rows of the batch that are not deleted, with values of the log rows where these win."""
        whole = pairs.cells(None, None)
        latest = replace(pairs, base_wins=np.zeros_like(pairs.base_wins)).cells(None, None)
        opens = pairs.base_wins.any() and self._rule.partial is not None
        columns = []
        for name, column in zip(batch.schema.names, batch.columns, strict=True):
            base_known = (
                known_values(column.take(pa.array(pairs.base)), self._rule.partial, self._rule.unavailable)
                if opens
                else None
            )
            log_known = self._logs.known.get(name)
            if name in _SAME:
                cells = None
            elif self._rule.takes_last_meta and name in META_COLUMNS:
                cells = latest
            else:
                cells = whole if base_known is log_known is None else pairs.cells(base_known, log_known)
            columns.append(
                pairs.select_kept(column)
                if cells is None
                else cells.replace_values(column, self._logs.rows.column(name))
            )
        return pa.RecordBatch.from_arrays(columns, schema=batch.schema)


@dataclass(frozen=True, slots=True)
class _Pairs:
    """The records that have a row both in a batch of the base file and in the log files.

    Attributes:
        rows: row count of the batch.
        base: for each record the position of its row in the batch.
        log: for each record the position of its row among the log rows.
        base_wins: for each record whether the base file's row wins.
        kept_rows: positions in the batch of rows that log files do not delete; None for all.
    """

    rows: int
    base: Ints
    log: Ints
    base_wins: Mask
    kept_rows: pa.Array | None

    def select_kept(self, column: pa.Array) -> pa.Array:
        """Return the column's values in the rows that log files do not delete, unchanged."""
        return column if self.kept_rows is None else gather_array(column, self.kept_rows)

    def cells(self, base_known: Mask | None, log_known: Mask | None) -> _Cells | None:
        """Return the values of a column that log rows replace; None if there are none.

        Args:
            base_known: for each entry of ``base`` whether it sets the column; None if all do.
            log_known: for each log row whether it sets the column; None if all do.
        """
        all_known = np.ones(len(self.base), bool)
        taken = incoming_cells(
            all_known if base_known is None else base_known,
            all_known if log_known is None else log_known[self.log],
            self.base_wins,
        )
        if not taken.any():
            return None
        return _Cells.of(self.rows, self.base[taken], self.log[taken], self.kept_rows)


@dataclass(frozen=True, slots=True)
class _Cells:
    """The values of a column that log rows replace.

    Attributes:
        base: positions in the batch of the values to replace.
        log: positions of the log rows that replace them.
        kept_rows: positions in the batch of rows that log files do not delete; None for all.
        among: for each entry of ``base`` its index in ``kept_rows``.
        mask: a flag per row of the batch: whether its value is replaced; None if ``kept_rows`` is not None.
    """

    base: Ints
    log: Ints
    kept_rows: pa.Array | None
    among: Ints
    mask: pa.Array | None

    @classmethod
    def of(cls, rows: int, base: Ints, log: Ints, kept_rows: pa.Array | None) -> _Cells:
        """Return the cells for a batch of ``rows`` rows, with ``among`` and ``mask`` computed once for all columns."""
        if kept_rows is not None:
            return cls(base, log, kept_rows, np.searchsorted(np.asarray(kept_rows), base), None)
        mask = np.zeros(rows, bool)
        mask[base] = True
        return cls(base, log, None, base, pa.array(mask))

    def replace_values(self, column: pa.Array, logs: pa.ChunkedArray) -> pa.Array:
        """Return the column's values in the rows that are not deleted, with the log rows' values in place."""
        values = gather_column(logs, self.log).combine_chunks()
        if self.kept_rows is not None:
            return replace_and_take(column, self.base, values, self.kept_rows, self.among)
        return replace_values(column, self.mask, values)


def _matched_pairs(matches: pa.Array) -> tuple[Ints, Ints]:
    """Return the positions of the rows that have a match, and their matches.

    Args:
        matches: for each row the position of its match; null if it has none.
    """
    return np.flatnonzero(np.asarray(matches.is_valid())), np.asarray(matches.drop_null()).astype(np.int64)
