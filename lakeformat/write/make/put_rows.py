"""Rows put in the place of stored ones, and rows left out: what merge handles do with a batch of the base file."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lakeformat.codec.gather import replaced
from lakeformat.model.record import COMMIT_TIME, RECORD_KEY

__all__ = ["put_rows", "without"]


def put_rows(
    table: pa.Table,
    mask: npt.NDArray[np.bool_],
    rows: pa.Table,
    instant: str,
) -> pa.Table:
    """The table with the rows under the mask replaced by ``rows``, in order; columns ``rows`` lacks stay.

    Args:
        table: one chunk a column.
        instant: the commit time of the new rows.
    """
    where, given = pa.array(mask), set(rows.schema.names)
    columns = []
    for field in table.schema:
        old = table.column(field.name).chunk(0)  # The table is one record batch.
        if field.name == COMMIT_TIME:
            columns.append(_stamp(old, mask, instant))
            continue
        if field.name == RECORD_KEY or field.name not in given:  # Keys that matched are equal.
            columns.append(old)
            continue
        new = rows.column(field.name).combine_chunks()
        if pa.types.is_dictionary(field.type):
            new = new.dictionary_encode()
        columns.append(replaced(old, where, new))
    return pa.Table.from_arrays(columns, schema=table.schema)


def _stamp(old: pa.DictionaryArray, mask: npt.NDArray[np.bool_], instant: str) -> pa.DictionaryArray:
    values = pa.concat_arrays([old.dictionary, pa.array([instant], old.dictionary.type)])
    codes = pc.if_else(pa.array(mask), pa.scalar(len(old.dictionary), old.indices.type), old.indices)
    return pa.DictionaryArray.from_arrays(codes, values)


def without(rows: pa.Table, dropped: npt.NDArray[np.bool_]) -> pa.Table:
    """The rows that are not under the mask."""
    return rows.filter(pa.array(~dropped)) if dropped.any() else rows
