"""The columns of a base file that a merge needs beside the requested ones. Pure."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from lakeformat.files.footer_bounds import row_group_bounds
from lakeformat.merge.read_rule import ReadRule
from lakeformat.merge.versions import Versions

__all__ = ["base_may_win", "points_to_rows"]


def base_may_win(footer: pq.FileMetaData, logs: Versions, rule: ReadRule, table: pa.Schema) -> bool:
    """Tell from footers whether a row of the base file may be newer than a log file's version of its record.

    Args:
        logs: one version of each record.
        table: all columns as readers see them.
    """
    if not rule.ordering:
        return False
    name, conditional = rule.ordering[0], ~logs.unconditional
    if len(rule.ordering) > 1 or not _is_exact(table, name):
        return True
    if not conditional.any():
        return False
    written = logs.ordering[0].filter(pa.array(conditional)) if not conditional.all() else logs.ordering[0]
    bounds, _, _ = row_group_bounds([footer], [name], table)
    highest = bounds[name].maximum
    if written.null_count or highest.null_count or not len(highest):
        return True
    return bool(pc.greater(pc.max(highest), pc.min(written)).as_py())


def points_to_rows(logs: Versions, rows: int) -> bool:
    """Tell whether each version has its own row number in the base file. If so, the keys of the base file are not read.

    Args:
        logs: one version of each record.
        rows: row count of the base file.
    """
    if not len(logs):
        return True
    positions = np.sort(logs.position)
    return bool(positions[0] >= 0 and positions[-1] < rows and (np.diff(positions) > 0).all())


def _is_exact(table: pa.Schema, name: str) -> bool:
    """Tell whether all values of the column are ordered. Floats are not, because of NaN."""
    if name not in table.names:
        return False
    kind = table.field(name).type
    return bool(pa.types.is_integer(kind) or pa.types.is_timestamp(kind) or pa.types.is_date(kind))
