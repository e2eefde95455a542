"""What log files say of records, as columns: rows written later than the base file, and keys deleted since."""

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
        instant_time: of the commit that wrote the block.
        rows: columns as the block's own schema names them, meta columns included.
        is_partial: the rows hold some of the table's columns only, those that an update set (Hudi: ``IS_PARTIAL``).
        positions: of each row the number of the row in the slice's base file that has its key; None if nobody says.
    """

    instant_time: str
    rows: pa.Table
    is_partial: bool = False
    positions: npt.NDArray[np.int64] | None = None


@dataclass(frozen=True)
class LogDeletes:
    """The keys of one delete block.

    Attributes:
        instant_time: of the commit that wrote the block.
        keys: record keys, as text.
        ordering: a column for each ordering field, as long as ``keys``; a null deletes whatever is there. Empty if
            all do.
        positions: as of rows.
    """

    instant_time: str
    keys: pa.Array
    ordering: tuple[pa.Array, ...] = ()
    positions: npt.NDArray[np.int64] | None = None


#: What one block says. Parts stand in the order in which they are to be merged, the later written ones last.
LogPart: TypeAlias = LogRows | LogDeletes
