"""The merge of rows field by field: a field that the newer row leaves open is taken from the other row.

Structs, lists and maps are taken as a whole. Memory: a few integers a row, and a second copy of one column at a time.
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
    """Tell for each pair of rows whether to take the incoming row's field.

    The field of the newer row is taken if that row knows the field, else the field of the other row.
    """
    return np.where(stored_is_newer, ~stored_known, incoming_known)


def fill_nulls(stored: pa.Table, incoming: pa.Table, stored_is_newer: Mask) -> pa.Table:
    """Merge pairs of rows: take the newer row and fill its nulls from the other (Hudi: ``mergeRecords``).

    Args:
        stored: rows with the columns of ``incoming``, in any order.
        incoming: as many rows.
        stored_is_newer: whether the stored row is the newer one, one flag a row.
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
    """Fold all rows of a key into one row (Hudi: ``PartialUpdateAvroPayload.preCombine``, in order of arrival).

    Each row is merged with the result of the rows before it. With a greater or equal ordering value, or without
    ordering, its non-null fields replace those of the result. With a lesser ordering value it only fills nulls. A null
    ordering value is less than all others. The newest row alone decides whether the key is deleted.

    Args:
        key: the column of the record key.
        ordering: the ordering values; None makes each row newer than those before it.
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
    """Rows grouped into runs of one key, each run in order of arrival. Each run is folded into one row.

    Attributes:
        positions: the rows' positions, run by run.
        runs: for each entry of ``positions`` the number of its run, from 0.
        newest_so_far: for each entry of ``positions``, whether no earlier row of its run ranks above it.
    """

    positions: Ints
    runs: Ints
    newest_so_far: Mask

    @classmethod
    def group(cls, codes: npt.NDArray[np.int32] | Ints, at: Ints, ranks: Ints | None) -> KeyRuns:
        """Group the rows at the ascending positions ``at``. Codes and ranks cover all rows, as for `last_of_each`."""
        at = at[np.argsort(codes[at], kind="stable")]
        ordered = codes[at].astype(np.int64)
        run = np.cumsum(np.diff(ordered, prepend=ordered[:1]) != 0)
        if ranks is None:
            return cls(at, run, np.ones(len(at), bool))
        # Ranks of a later key start higher than those of the keys before it.
        rank = ordered * (len(ranks) + 1) + ranks[at]
        return cls(at, run, rank == np.maximum.accumulate(rank))

    def newest(self) -> Ints:
        """Return for each run the position of the row that wins."""
        return self.positions[self.last(self.newest_so_far)]

    def latest(self) -> Ints:
        """Return for each run the position of the row that arrived last."""
        return self.positions[self.last(np.ones(len(self.positions), bool))]

    def choose_field_rows(self, known: Mask) -> Ints:
        """Return for each run the position of the row whose field is taken.

        If no row of the run knows the field, return the position of the newest row.

        Args:
            known: for all rows, whether they know the field.
        """
        knowing = known[self.positions]
        replacing, first_known = self.last(self.newest_so_far & knowing), self.first(knowing)
        chosen = np.where(first_known < len(self.positions), first_known, self.last(self.newest_so_far))
        return self.positions[np.where(replacing >= 0, replacing, chosen)]

    def first(self, wanted: Mask) -> Ints:
        """Return for each run the first wanted place in ``positions``.

        If a run has none, return the length of ``positions``.
        """
        return self._last_place(np.flatnonzero(wanted)[::-1], len(self.positions))

    def last(self, wanted: Mask) -> Ints:
        """Return for each run the last wanted place in ``positions``. If a run has none, return -1."""
        return self._last_place(np.flatnonzero(wanted), -1)

    def _last_place(self, places: Ints, otherwise: int) -> Ints:
        """Return for each run the last of these places in ``positions``. If a run has none, return ``otherwise``."""
        found: Ints = np.full(int(self.runs[-1]) + 1 if len(self.runs) else 0, otherwise)
        found[self.runs[places]] = places
        return found
