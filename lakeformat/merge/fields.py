"""Field by field: what the newer of two rows leaves open is the other's. Structs, lists and maps count whole.

Memory: a few integers a row, and one column at a time in a second copy.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lakeformat.codec.gather import gather_column
from lakeformat.merge.order import key_codes, ordering_ranks
from lakeformat.model.record import IS_DELETED

__all__ = ["KeyRuns", "filled", "folded_rows", "incoming_cells"]

Ints = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]


def incoming_cells(stored_known: Mask, incoming_known: Mask, stored_is_newer: Mask) -> Mask:
    """Where, of pairs of rows, the field is the incoming row's: the newer row's if known, else the other's."""
    return np.where(stored_is_newer, ~stored_known, incoming_known)


def filled(stored: pa.Table, incoming: pa.Table, stored_is_newer: Mask) -> pa.Table:
    """Row by row, the fields of the newer row, its nulls filled from the other (Hudi: ``mergeRecords``).

    Args:
        stored: rows with the columns of ``incoming``, in any order.
        incoming: as many rows.
        stored_is_newer: which of the two is the newer, one flag a row.
    """
    at = np.arange(incoming.num_rows)
    columns = []
    for name in incoming.schema.names:
        both = pa.chunked_array([*stored.column(name).chunks, *incoming.column(name).chunks])
        known = np.asarray(both.is_valid())
        taken = incoming_cells(known[: len(at)], known[len(at) :], stored_is_newer)
        columns.append(gather_column(both, np.where(taken, at + len(at), at)))
    return pa.Table.from_arrays(columns, schema=incoming.schema)


def folded_rows(rows: pa.Table, key: str, ordering: pa.ChunkedArray | None) -> pa.Table:
    """One row per key, made of all its rows (Hudi: ``PartialUpdateAvroPayload.preCombine``, in order of arrival).

    Each row meets what the rows before it made: with a greater or equal ordering value, or without ordering, it
    brings its fields that are not null; with a lesser one it fills what is still null. A null ordering value is
    less than all others. Whether the key is deleted is for the newest row alone to say.

    Args:
        key: the column that names the row.
        ordering: the ordering values, None to let each row be newer than those before it.
    """
    found = key_codes(rows.column(key))
    if found is None:
        return rows
    ranks = None if ordering is None else ordering_ranks([ordering])
    runs = KeyRuns.of(found, np.arange(rows.num_rows), ranks)
    newest = runs.newest()
    by_arrival = np.argsort(newest)
    columns = []
    for field in rows.schema:
        column = rows.column(field.name)
        chosen = newest
        if column.null_count and field.name != IS_DELETED:
            chosen = runs.bringing(np.asarray(pc.is_valid(column)))
        columns.append(gather_column(column, chosen[by_arrival]))
    return pa.Table.from_arrays(columns, schema=rows.schema)


@dataclass(frozen=True, slots=True)
class KeyRuns:
    """Rows in runs of one key each, in order of arrival, every run a history that leads to one row.

    Attributes:
        at: the rows' positions, run by run.
        run: for each of ``at`` the number of its run, from 0.
        newest_so_far: for each of ``at``, whether no earlier row of its run ranks above it.
    """

    at: Ints
    run: Ints
    newest_so_far: Mask

    @classmethod
    def of(cls, codes: npt.NDArray[np.int32] | Ints, at: Ints, ranks: Ints | None) -> KeyRuns:
        """Runs of the rows ``at``, ascending positions; codes and ranks are of all rows, as `last_of_each` has them."""
        at = at[np.argsort(codes[at], kind="stable")]
        ordered = codes[at].astype(np.int64)
        run = np.cumsum(np.diff(ordered, prepend=ordered[:1]) != 0)
        if ranks is None:
            return cls(at, run, np.ones(len(at), bool))
        # Ranks of a later key start higher than those of the keys before it.
        rank = ordered * (len(ranks) + 1) + ranks[at]
        return cls(at, run, rank == np.maximum.accumulate(rank))

    def newest(self) -> Ints:
        """By run, the position of the row that wins."""
        return self.at[self.last(self.newest_so_far)]

    def latest(self) -> Ints:
        """By run, the position of the row that came last."""
        return self.at[self.last(np.ones(len(self.at), bool))]

    def bringing(self, known: Mask) -> Ints:
        """By run, the position of the row whose field is taken; where none knows it, the newest.

        Args:
            known: of all rows, whether they know the field.
        """
        knowing = known[self.at]
        brought, filling = self.last(self.newest_so_far & knowing), self.first(knowing)
        chosen = np.where(filling < len(self.at), filling, self.last(self.newest_so_far))
        return self.at[np.where(brought >= 0, brought, chosen)]

    def first(self, wanted: Mask) -> Ints:
        """In each run, the first place in ``at`` that is wanted; the length of ``at`` where none is."""
        return self._assigned(np.flatnonzero(wanted)[::-1], len(self.at))

    def last(self, wanted: Mask) -> Ints:
        """In each run, the last place in ``at`` that is wanted; -1 where none is."""
        return self._assigned(np.flatnonzero(wanted), -1)

    def _assigned(self, places: Ints, otherwise: int) -> Ints:
        """By run, the last of these places."""
        found: Ints = np.full(int(self.run[-1]) + 1 if len(self.run) else 0, otherwise)
        found[self.run[places]] = places
        return found
