"""The merge of rows field by field: a field that the newer row does not set is copied from the older row.

Structs, lists and maps are copied as a whole. Memory: a few integers per row, and a second copy of one column at a
time.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lakeformat.arrow.gather import gather_column
from lakeformat.merge.order import key_codes, ordering_ranks
from lakeformat.model.record import IS_DELETED

__all__ = ["KeyRuns", "fill_nulls", "fold_rows", "incoming_cells"]

Ints = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]


def incoming_cells(stored_known: Mask, incoming_known: Mask, stored_is_newer: Mask) -> Mask:
    """Tell for each pair of rows whether the merged row gets the incoming row's value of a field.

    The merged row gets the newer row's value if that row sets the field, else the older row's value.

    Args:
        stored_known: whether the stored rows set the field.
        incoming_known: whether the incoming rows set the field.
        stored_is_newer: whether the stored rows are the newer ones.
    """
    return np.where(stored_is_newer, ~stored_known, incoming_known)


def fill_nulls(stored: pa.Table, incoming: pa.Table, stored_is_newer: Mask) -> pa.Table:
    """Merge pairs of rows: return the newer row of each, its nulls filled from the older (Hudi: ``mergeRecords``).

    Args:
        stored: rows with the columns of ``incoming``, in any order.
        incoming: the rows to merge with those of ``stored``, in the same order.
        stored_is_newer: a flag per pair: whether the stored row is the newer one.
    """
    at = np.arange(incoming.num_rows)
    columns = []
    for name in incoming.schema.names:
        both = pa.chunked_array([*stored.column(name).chunks, *incoming.column(name).chunks])
        known = np.asarray(both.is_valid())
        taken = incoming_cells(known[: len(at)], known[len(at) :], stored_is_newer)
        columns.append(gather_column(both, np.where(taken, at + len(at), at)))
    return pa.Table.from_arrays(columns, schema=incoming.schema)


def fold_rows(rows: pa.Table, key: str, ordering: pa.ChunkedArray | None) -> pa.Table:
    """Merge all rows of a key into one row, in order of arrival (Hudi: ``PartialUpdateAvroPayload.preCombine``).

    Each row is merged with the result of the rows before it:

    - If its ordering value is not smaller than that of the result, or if there is no ordering, its non-null fields
      replace those of the result.
    - If its ordering value is smaller, it only fills nulls of the result.

    A null ordering value is less than all others. Only the newest row decides whether the key is deleted.

    Args:
        rows: rows in order of arrival.
        key: name of the record key's column.
        ordering: the ordering values; if None, each row is newer than the rows before it.
    """
    found = key_codes(rows.column(key))
    if found is None:
        return rows
    ranks = None if ordering is None else ordering_ranks([ordering])
    runs = KeyRuns.group(found, np.arange(rows.num_rows), ranks)
    newest = runs.newest()
    by_arrival = np.argsort(newest)
    columns = []
    for field in rows.schema:
        column = rows.column(field.name)
        chosen = newest
        if column.null_count and field.name != IS_DELETED:
            chosen = runs.choose_field_rows(np.asarray(pc.is_valid(column)))
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
        found: Ints = np.full(int(self.runs[-1]) + 1 if len(self.runs) else 0, otherwise)
        found[self.runs[places]] = places
        return found
