"""Rows as the engines in Python read them, and the content of a table as Arrow."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds

__all__ = ["CONTENT_COLUMNS", "content_of", "stream"]

CONTENT_COLUMNS: Final = ("l_extendedprice", "l_orderkey")


def stream(rows: Path) -> pa.RecordBatchReader:
    """Return the rows of a file, batch by batch."""
    return ds.dataset(rows).scanner().to_reader()


def content_of(rows: pa.Table) -> list[int]:
    """Return what `LineitemEngine.content` promises."""
    price = Decimal(pc.sum(rows["l_extendedprice"]).as_py())
    return [rows.num_rows, int(price * 100), int(pc.sum(rows["l_orderkey"]).as_py())]
