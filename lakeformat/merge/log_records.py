"""The content of log files as columns: rows written later than the base file, and deleted keys."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

__all__ = ["LogDeletes", "LogPart", "LogRows"]


@dataclass(frozen=True)
class LogRows:
    """The rows of one data block.

    Attributes:
        instant_time: instant of the commit that wrote the block.
        rows: columns as the block's own schema names them, meta columns included.
        is_partial: whether the rows hold only the columns that an update set (Hudi: ``IS_PARTIAL``).
        positions: for each row the number of the base-file row that has its key; None if the block has no positions.
    """

    instant_time: str
    rows: pa.Table
    is_partial: bool = False
    positions: npt.NDArray[np.int64] | None = None


@dataclass(frozen=True)
class LogDeletes:
    """The keys of one delete block.

    Attributes:
        instant_time: instant of the commit that wrote the block.
        keys: record keys, as text.
        ordering: a column for each ordering field, as long as ``keys``; a key whose ordering value is null is always
            deleted. Empty if all keys are.
        positions: as for `LogRows`.
    """

    instant_time: str
    keys: pa.Array
    ordering: tuple[pa.Array, ...] = ()
    positions: npt.NDArray[np.int64] | None = None


#: The content of one block. Parts are merged in the order in which they were written.
LogPart: TypeAlias = LogRows | LogDeletes
