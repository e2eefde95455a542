"""deltalake and polars as oracles: what readers of Delta see of a table."""

from __future__ import annotations

from typing import Any

import polars as pl
import pyarrow as pa
from deltalake import DeltaTable

from lakeformat import Table

__all__ = ["assert_delta_shows", "delta_rows"]


def delta_rows(location: str, **how: Any) -> list[str]:
    """Return the rows that deltalake reads as sorted texts, so that NaN is equal to itself."""
    return as_texts(DeltaTable(location).to_pyarrow_table(**how))


def as_texts(rows: pa.Table) -> list[str]:
    """Return rows as sorted texts with their columns by name."""
    return sorted(repr(sorted(row.items())) for row in rows.to_pylist())


def assert_delta_shows(table: Table, *, with_polars: bool = False) -> None:
    """Assert that the newest version of the Delta log beside a table has the table's rows and columns."""
    ours, location = table.to_arrow(), table.location
    assert delta_rows(location) == as_texts(ours)
    if with_polars:
        theirs = pl.scan_delta(location).collect()
        assert theirs.columns == ours.schema.names
        assert sorted(map(repr, theirs.rows())) == sorted(map(repr, pl.from_arrow(ours).rows()))
