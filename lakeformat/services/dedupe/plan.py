"""The choice of the row to keep of each key. Pure: `run` reads the rows."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lakeformat.merge.order import key_codes, last_of_each, ordering_ranks
from lakeformat.merge.versions import field_values
from lakeformat.model.record import COMMIT_TIME, RECORD_KEY

__all__ = ["doubled_keys", "kept_rows", "ranking_fields"]


def doubled_keys(keys: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return the keys that occur more than once, each once."""
    counts = pa.table({"key": keys}).group_by("key").aggregate([("key", "count")])
    return counts.filter(pc.greater(counts.column("key_count"), 1)).column("key")


def ranking_fields(ordering_fields: Sequence[str], *, by_event_time: bool) -> tuple[str, ...]:
    """Return the fields that decide which row of a key is the newest, most important first.

    Args:
        by_event_time: whether the table's merge mode lets the greatest ordering value win; else the latest commit wins.
    """
    return (*ordering_fields, COMMIT_TIME) if by_event_time else (COMMIT_TIME, *ordering_fields)


def kept_rows(rows: pa.Table, fields: Sequence[str]) -> npt.NDArray[np.bool_]:
    """Return, for each row, whether it is the newest of its key.

    Null is older than every value. If rows are equal in all fields, the last one is the newest.

    Args:
        rows: rows with the record key and the fields; fields of structs by path.
        fields: see `ranking_fields`.
    """
    kept = np.ones(rows.num_rows, bool)
    codes = key_codes(rows.column(RECORD_KEY))
    if codes is not None:
        ranks = ordering_ranks([field_values(rows, field) for field in fields])
        winners = last_of_each(codes, np.arange(rows.num_rows), ranks)
        kept[:] = False
        kept[winners[winners >= 0]] = True
    return kept
