"""Who wins when a key comes twice: the order of rows, on columns."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

__all__ = ["deleted_rows", "key_codes", "latest_rows", "stored_wins"]


def latest_rows(keys: pa.ChunkedArray, ordering: pa.ChunkedArray | None) -> npt.NDArray[np.int64] | None:
    """Positions of the rows that remain when each key keeps one row, in order of arrival.

    The greatest ordering value wins, nulls lose; on a tie, and without ordering, the later row wins (Hudi:
    ``preCombine`` of the payload classes). None means: every key is there once, keep all.
    """
    codes = key_codes(keys)
    if codes is None:
        return None
    if ordering is None:
        order = np.argsort(codes, kind="stable")
    else:
        ranks = np.asarray(pc.rank(ordering, sort_keys="ascending", tiebreaker="dense")).astype(np.int64)
        ranks[np.asarray(pc.is_null(ordering))] = -1
        order = np.lexsort((ranks, codes))
    ranked = codes[order]
    last_of_key = np.append(ranked[1:] != ranked[:-1], True)
    winners: npt.NDArray[np.int64] = np.sort(order[last_of_key])
    return winners


def key_codes(keys: pa.ChunkedArray) -> npt.NDArray[np.int32] | None:
    """A number for each row, equal where keys are. None means: every key is there once."""
    encoded = pc.dictionary_encode(keys)
    chunks = encoded.chunks if isinstance(encoded, pa.ChunkedArray) else [encoded]
    if sum(len(chunk) for chunk in chunks) == (len(chunks[-1].dictionary) if chunks else 0):
        return None
    codes: npt.NDArray[np.int32] = np.concatenate([chunk.indices.to_numpy(zero_copy_only=False) for chunk in chunks])
    return codes


def stored_wins(stored: pa.Array, incoming: pa.Array) -> npt.NDArray[np.bool_]:
    """Event-time rule, row by row: the stored row stays only if its ordering value is greater.

    Null is less than everything, NaN greater than everything (Hudi: ``DefaultHoodieRecordPayload``).
    """
    greater = pc.greater(stored, incoming)
    if pa.types.is_floating(stored.type):
        greater = pc.or_(greater, pc.and_(pc.is_nan(stored), pc.invert(pc.is_nan(incoming))))
    known = pc.fill_null(greater, False)
    wins = pc.or_(known, pc.and_(pc.is_valid(stored), pc.is_null(incoming)))
    result: npt.NDArray[np.bool_] = np.asarray(wins)
    return result


def deleted_rows(flags: Any | None, rows: int) -> npt.NDArray[np.bool_]:
    """Which rows the ``_hoodie_is_deleted`` column marks; none without the column."""
    if flags is None:
        return np.zeros(rows, bool)
    return np.asarray(pc.fill_null(flags, False)).astype(bool)
