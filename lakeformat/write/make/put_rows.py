"""Replacing and dropping rows of a batch of a base file, as merge handles do."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lakeformat.codec.gather import replaced
from lakeformat.model.record import COMMIT_TIME, RECORD_KEY

__all__ = ["drop_rows", "replace_rows"]


def replace_rows(
    table: pa.Table,
    mask: npt.NDArray[np.bool_],
    rows: pa.Table,
    instant: str,
) -> pa.Table:
    """Replace the rows under the mask by ``rows``, in order. Columns that ``rows`` lacks keep their values.

    Args:
        table: the stored rows, one chunk per column.
        instant: the commit time of the new rows.
    """
    where, new_columns = pa.array(mask), set(rows.schema.names)
    columns = []
    for field in table.schema:
        old = table.column(field.name).chunk(0)  # The table is one record batch.
        if field.name == COMMIT_TIME:
            columns.append(_stamp(old, mask, instant))
            continue
        if field.name == RECORD_KEY or field.name not in new_columns:  # Keys that matched are equal.
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


def drop_rows(rows: pa.Table, dropped: npt.NDArray[np.bool_]) -> pa.Table:
    """Return the rows that are not under the mask."""
    return rows.filter(pa.array(~dropped)) if dropped.any() else rows
