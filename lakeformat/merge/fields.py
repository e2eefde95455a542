"""Field by field: what is null in the newer of two rows is taken from the other. Structs, lists and maps count whole.

Memory: a few integers a row, and one column at a time in a second copy.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lakeformat.codec.gather import gather_column
from lakeformat.merge.order import key_codes
from lakeformat.model.record import IS_DELETED

__all__ = ["filled", "folded_rows"]


def filled(stored: pa.Table, incoming: pa.Table, stored_is_newer: npt.NDArray[np.bool_]) -> pa.Table:
    """Row by row, the fields of the newer row, its nulls filled from the other (Hudi: ``mergeRecords``).

    Args:
        stored: rows with the columns of ``incoming``, in any order.
        incoming: as many rows.
        stored_is_newer: which of the two is the newer, one flag a row.
    """
    at = np.arange(incoming.num_rows)
    first = np.where(stored_is_newer, at, at + incoming.num_rows)
    second = np.where(stored_is_newer, at + incoming.num_rows, at)
    columns = []
    for name in incoming.schema.names:
        both = pa.chunked_array([*stored.column(name).chunks, *incoming.column(name).chunks])
        known = np.asarray(both.is_valid())
        columns.append(gather_column(both, np.where(known[first], first, second)))
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
    order = np.argsort(found, kind="stable")
    codes = found[order].astype(np.int64)
    starts = np.flatnonzero(np.append(True, codes[1:] != codes[:-1]))
    at = np.arange(len(codes))
    # A row is the newest so far if no earlier row of its key ranks above it. Ranks of a later key start higher.
    rank = codes * (rows.num_rows + 1) + _ranks(ordering, rows.num_rows)[order]
    newest_so_far = rank == np.maximum.accumulate(rank)
    newest = _last(newest_so_far, at, starts)
    by_arrival = np.argsort(order[newest])
    columns = []
    for field in rows.schema:
        column = rows.column(field.name)
        chosen = newest
        if column.null_count and field.name != IS_DELETED:
            known = np.asarray(pc.is_valid(column))[order]
            brought = _last(newest_so_far & known, at, starts)
            filling = np.minimum.reduceat(np.where(known, at, len(at)), starts)
            chosen = np.where(brought >= 0, brought, np.where(filling < len(at), filling, newest))
        columns.append(gather_column(column, order[chosen][by_arrival].astype(np.int64)))
    return pa.Table.from_arrays(columns, schema=rows.schema)


def _ranks(ordering: pa.ChunkedArray | None, rows: int) -> npt.NDArray[np.int64]:
    """Ordering values as numbers from 0 (null) to the number of rows."""
    if ordering is None:
        return np.zeros(rows, np.int64)
    ranks = np.asarray(pc.rank(ordering, sort_keys="ascending", tiebreaker="dense")).astype(np.int64)
    ranks[np.asarray(pc.is_null(ordering))] = 0
    return ranks


def _last(
    wanted: npt.NDArray[np.bool_], at: npt.NDArray[np.int64], starts: npt.NDArray[np.int64]
) -> npt.NDArray[np.int64]:
    """In each run of rows, the last position that is wanted; -1 where none is."""
    found: npt.NDArray[np.int64] = np.maximum.reduceat(np.where(wanted, at, -1), starts)
    return found
