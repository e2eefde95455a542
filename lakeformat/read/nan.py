"""Where float columns may hold NaN: no Parquet statistic tells, the file index does of files that were counted."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lakeformat.predicate import ColumnBounds

__all__ = ["nan_free_columns"]


def nan_free_columns(bounds: Mapping[str, ColumnBounds], files: npt.NDArray[np.int64]) -> list[tuple[str, ...]]:
    """For each of these files the float columns, by path, that are known to hold no NaN in it."""
    flags = [(path, of.nan_free[files]) for path, of in bounds.items() if pa.types.is_floating(of.minimum.type)]
    if not flags:
        return [()] * len(files)
    known: dict[tuple[bool, ...], tuple[str, ...]] = {}  # Most files are alike.
    found = []
    for row in zip(*(column.tolist() for _, column in flags), strict=True):
        if row not in known:
            known[row] = tuple(path for (path, _), flag in zip(flags, row, strict=True) if flag)
        found.append(known[row])
    return found
