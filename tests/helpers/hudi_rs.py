"""Reads by hudi-rs, an independent implementation of Hudi's format: the oracle of most tests."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
from hudi import HudiReadOptions, HudiTableBuilder

__all__ = ["assert_same_rows", "read", "refusal", "rows_by_key"]


def read(path: str | Path, as_of: str | None = None) -> pa.Table | None:
    """Read the table now or at an instant. Return None if hudi-rs has no file to take the columns from."""
    options = HudiReadOptions()
    if as_of is not None:
        options = options.with_as_of_timestamp(as_of)
    batches = HudiTableBuilder.from_base_uri(str(path)).build().read(options)
    return pa.Table.from_batches(batches) if batches else None


def refusal(path: str | Path) -> str:
    """Return the error of hudi-rs for a kind of table that it does not read; "" for other tables."""
    try:
        read(path)
    except Exception as failure:
        if type(failure).__name__ != "HudiCoreError":  # Its class is not exported.
            raise
        return str(failure)
    return ""


def rows_by_key(rows: pa.Table | None) -> list[dict[str, Any]]:
    """Return rows as dictionaries, meta columns included, sorted by partition, key and sequence number."""
    if rows is None:
        return []
    listed = rows.to_pylist(maps_as_pydicts="strict")
    order = ("_hoodie_partition_path", "_hoodie_record_key", "_hoodie_commit_seqno")
    return sorted(listed, key=lambda row: [str(row[name]) for name in order])


def assert_same_rows(table: Any, as_of: str | None = None) -> list[dict[str, Any]]:
    """Check that hudi-rs and lakeformat read the same rows, meta columns included. Return the rows.

    Args:
        table: a `lakeformat.Table` on a local folder.
        as_of: an instant; None for now.
    """
    theirs = rows_by_key(read(table.context.storage.location, as_of))
    ours = rows_by_key(table.to_arrow(as_of=as_of, meta_columns=True))
    # Files older than a column lack it, and hudi-rs may then leave out the column.
    columns = dict.fromkeys(ours[0]) if ours else {}
    assert [{**columns, **row} for row in theirs] == ours
    return ours
