"""The merge of rows field by field: a field that the newer row does not set is copied from the older row.

Structs, lists and maps are copied as a whole. Memory: a few integers per row, and a second copy of one column at a
time.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lakeformat.arrow.gather import gather_column
from lakeformat.merge.order import flag_deleted_rows, key_codes, ordering_ranks
from lakeformat.model.merge_settings import PartialUpdate
from lakeformat.model.record import IS_DELETED

__all__ = ["KeyRuns", "fill_unset", "fold_rows", "incoming_cells", "known_values"]

Ints = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]


def known_values(
    column: pa.ChunkedArray | pa.Array, partial: PartialUpdate | None, unavailable: str = ""
) -> Mask | None:
    """Return a flag per value of a column: whether it counts as set; None if all are set.

    Hudi: ``PartialUpdateHandler``.

    Args:
        partial: which values count as not set.
        unavailable: the text that marks a value as not set under ``FILL_UNAVAILABLE``.
    """
    if partial is PartialUpdate.IGNORE_DEFAULTS:
        return np.asarray(pc.is_valid(column)) if column.null_count else None
    kind = column.type
    if kind in (pa.string(), pa.binary()) and partial is PartialUpdate.FILL_UNAVAILABLE and unavailable:
        is_unset = pc.fill_null(pc.equal(column, pa.scalar(unavailable).cast(kind)), False)
        if pc.any(is_unset).as_py():
            return ~np.asarray(is_unset).astype(bool)
    return None


def incoming_cells(stored_known: Mask, incoming_known: Mask, stored_is_newer: Mask) -> Mask:
    """Tell for each pair of rows whether the merged row gets the incoming row's value of a field.

    The merged row gets the newer row's value if that row sets the field, else the older row's value.

    Args:
        stored_known: whether the stored rows set the field.
        incoming_known: whether the incoming rows set the field.
        stored_is_newer: whether the stored rows are the newer ones.
    """
    return np.where(stored_is_newer, ~stored_known, incoming_known)


def fill_unset(
    stored: pa.Table,
    incoming: pa.Table,
    stored_is_newer: Mask,
    partial: PartialUpdate | None = PartialUpdate.IGNORE_DEFAULTS,
    unavailable: str = "",
) -> pa.Table:
    """Merge pairs of rows: return the newer row of each, with the older row's values in fields that it does not set.

    Args:
        stored: rows with the columns of ``incoming``, in any order.
        incoming: the rows to merge with those of ``stored``, in the same order.
        stored_is_newer: a flag per pair: whether the stored row is the newer one.
        partial, unavailable: which values count as not set; see `known_values`.
    """
    positions = np.arange(incoming.num_rows)
    columns = []
    for name in incoming.schema.names:
        both = pa.chunked_array([*stored.column(name).chunks, *incoming.column(name).chunks])
        is_set = known_values(both, partial, unavailable)
        if is_set is None:
            is_set = np.ones(len(both), bool)
        taken = incoming_cells(is_set[: len(positions)], is_set[len(positions) :], stored_is_newer)
        columns.append(gather_column(both, np.where(taken, positions + len(positions), positions)))
    return pa.Table.from_arrays(columns, schema=incoming.schema)


def fold_rows(
    rows: pa.Table,
    key: str,
    ordering: Sequence[pa.ChunkedArray],
    partial: PartialUpdate | None = PartialUpdate.IGNORE_DEFAULTS,
    unavailable: str = "",
) -> pa.Table:
    """Merge all rows of a key into one row, in order of arrival.

    Each row is merged with the result of the rows before it:

    - If its ordering value is not smaller than that of the result, or if there is no ordering, the fields that it sets
      replace those of the result.
    - If its ordering value is smaller, it only fills fields that the result does not set.

    A null ordering value is less than all others. Only the newest row decides whether the key is deleted.

    Under ``IGNORE_DEFAULTS`` rows that are deletes fill fields as others do (Hudi:
    ``PartialUpdateAvroPayload.preCombine``). Under ``FILL_UNAVAILABLE`` a delete that wins takes all fields of the rows
    before it away, and fills none (Hudi 1.2.0: ``BufferedRecordMerger.deltaMerge``).

    Args:
        rows: rows in order of arrival.
        key: name of the record key's column.
        ordering: a column for each ordering field; if empty, each row is newer than the rows before it.
        partial, unavailable: which values count as not set; see `known_values`.
    """
    codes = key_codes(rows.column(key))
    if codes is None:
        return rows
    ranks = ordering_ranks(ordering) if ordering else None
    runs = KeyRuns.group(codes, np.arange(rows.num_rows), ranks)
    newest = runs.newest()
    by_arrival = np.argsort(newest)
    filling = runs
    if partial is PartialUpdate.FILL_UNAVAILABLE and IS_DELETED in rows.schema.names:
        deleted = flag_deleted_rows(rows.column(IS_DELETED), rows.num_rows)
        kept = np.sort(np.concatenate([runs.find_contributors(deleted), newest[deleted[newest]]]))
        filling = KeyRuns.group(codes, kept, ranks)
    columns = []
    for field in rows.schema:
        column = rows.column(field.name)
        chosen = newest
        is_set = known_values(column, partial, unavailable)
        if is_set is not None and field.name != IS_DELETED:
            chosen = filling.choose_field_rows(is_set)
        columns.append(gather_column(column, chosen[by_arrival]))
    return pa.Table.from_arrays(columns, schema=rows.schema)


@dataclass(frozen=True, slots=True)
class KeyRuns:
    """Rows grouped into runs, to merge each run into one row. A run is the rows of one key in order of arrival.

    Attributes:
        positions: the rows' positions in the input, run by run.
        runs: for each entry of ``positions`` the number of its run, from 0.
        newest_so_far: for each entry of ``positions`` whether its rank is at least that of the run's earlier rows.
    """

    positions: Ints
    runs: Ints
    newest_so_far: Mask

    @classmethod
    def group(cls, codes: npt.NDArray[np.int32] | Ints, at: Ints, ranks: Ints | None) -> KeyRuns:
        """Group the rows at the ascending positions ``at`` by their codes.

        Args:
            codes: a code for each row of the input, equal for equal keys.
            at: positions of the rows to group.
            ranks: the rank of each row of the input by its ordering value; None if all are equal.
        """
        at = at[np.argsort(codes[at], kind="stable")]
        ordered = codes[at].astype(np.int64)
        run = np.cumsum(np.diff(ordered, prepend=ordered[:1]) != 0)
        if ranks is None:
            return cls(at, run, np.ones(len(at), bool))
        # Make the ranks of each run greater than those of earlier runs, so that one running maximum serves all runs.
        rank = ordered * (len(ranks) + 1) + ranks[at]
        return cls(at, run, rank == np.maximum.accumulate(rank))

    def newest(self) -> Ints:
        """Return for each run the position of its newest row: the last of those with the greatest rank."""
        return self.positions[self.last(self.newest_so_far)]

    def latest(self) -> Ints:
        """Return for each run the position of the row that arrived last."""
        return self.positions[self.last(np.ones(len(self.positions), bool))]

    def choose_field_rows(self, known: Mask) -> Ints:
        """Return for each run the position of the row whose value of a field goes into the merged row.

        A run is the rows of one key: consecutive entries of ``positions``, in order of arrival. The first of these rows
        that exists is chosen:

        1. The last row that sets the field and was the newest when it arrived (see ``newest_so_far``).
        2. The first row that sets the field: it was not the newest, but fills a null.
        3. The newest row; the field stays null.

        Args:
            known: a flag for each row of the input: whether it sets the field.
        """
        knowing = known[self.positions]
        replacing, first_known = self.last(self.newest_so_far & knowing), self.first(knowing)
        chosen = np.where(first_known < len(self.positions), first_known, self.last(self.newest_so_far))
        return self.positions[np.where(replacing >= 0, replacing, chosen)]

    def find_contributors(self, deleted: Mask) -> Ints:
        """Return the ascending positions of the rows whose fields may go into the merged rows.

        For each run, find the last delete that won against all rows before it. Fields of rows before this delete must
        not return. So only rows after it contribute, beginning with the first that wins against the delete. Rows that
        are deletes do not contribute.

        Args:
            deleted: a flag for each row of the input: whether it is a delete.
        """
        places, gone = np.arange(len(self.positions)), deleted[self.positions]
        since_delete = places > self.last(gone & self.newest_so_far)[self.runs]
        # Skip rows whose ordering value is smaller than the delete's, until one with an equal or greater value follows.
        start = self.first(since_delete & self.newest_so_far)[self.runs]
        return np.sort(self.positions[~gone & (places >= start)])

    def first(self, wanted: Mask) -> Ints:
        """Return for each run the index in ``positions`` of its first wanted row.

        For a run without wanted rows, return the length of ``positions``.

        Args:
            wanted: a flag for each entry of ``positions``.
        """
        return self._last_place(np.flatnonzero(wanted)[::-1], len(self.positions))

    def last(self, wanted: Mask) -> Ints:
        """Return for each run the index in ``positions`` of its last wanted row; -1 for a run without wanted rows."""
        return self._last_place(np.flatnonzero(wanted), -1)

    def _last_place(self, places: Ints, otherwise: int) -> Ints:
        """Return for each run the index that ``places`` lists last for it; ``otherwise`` if it lists none."""
        last_places: Ints = np.full(int(self.runs[-1]) + 1 if len(self.runs) else 0, otherwise)
        last_places[self.runs[places]] = places
        return last_places
