"""The rows of a log block that delete their record."""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lakeformat.codec.java_text import java_text
from lakeformat.merge.order import deleted_rows
from lakeformat.merge.read_rule import ReadRule
from lakeformat.model.record import IS_DELETED, OPERATION

__all__ = ["deleting_rows", "marked_rows"]

#: Deletes, and the first half of an update; its second half follows (Hudi 1.2.0: ``isDeleteHoodieOperation``).
_DELETING: Final = pa.array(["D", "-D", "-U"])


def marked_rows(column: pa.ChunkedArray, marker: str) -> pa.ChunkedArray:
    """Tell for each row whether the column's value, as Java writes it, is the marker: true or false, never null."""
    texts = pa.chunked_array([java_text(chunk) for chunk in column.chunks], pa.string())
    return pc.fill_null(pc.equal(texts, marker), False)


def deleting_rows(rows: pa.Table, rule: ReadRule) -> npt.NDArray[np.bool_]:
    """Return the rows that are deletes by ``_hoodie_is_deleted``, ``_hoodie_operation`` or the table's own marker."""
    names = rows.schema.names
    found = deleted_rows(rows.column(IS_DELETED) if IS_DELETED in names else None, rows.num_rows)
    if OPERATION in names:
        found |= np.asarray(pc.is_in(rows.column(OPERATION).cast(pa.string()), value_set=_DELETING))
    if rule.delete_field in names:
        found |= np.asarray(marked_rows(rows.column(rule.delete_field), rule.delete_marker))
    return found
