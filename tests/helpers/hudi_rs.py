"""Tables as hudi-rs reads them: an implementation of Hudi's format that we did not write."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
from hudi import HudiReadOptions, HudiTableBuilder

__all__ = ["assert_same_rows", "read", "refusal", "rows_by_key"]


def read(path: str | Path, as_of: str | None = None) -> pa.Table | None:
    """The table now, or at an instant; None where hudi-rs has no file to take the columns from."""
    options = HudiReadOptions()
    if as_of is not None:
        options = options.with_as_of_timestamp(as_of)
    batches = HudiTableBuilder.from_base_uri(str(path)).build().read(options)
    return pa.Table.from_batches(batches) if batches else None


def refusal(path: str | Path) -> str:
    """What hudi-rs says of a table of a kind that it does not read; "" of others."""
    try:
        read(path)
    except Exception as failure:
        if type(failure).__name__ != "HudiCoreError":  # Its class is not exported.
            raise
        return str(failure)
    return ""


def rows_by_key(rows: pa.Table | None) -> list[dict[str, Any]]:
    """Rows as dictionaries, meta columns included, sorted by partition, key and sequence number."""
    if rows is None:
        return []
    listed = rows.to_pylist(maps_as_pydicts="strict")
    order = ("_hoodie_partition_path", "_hoodie_record_key", "_hoodie_commit_seqno")
    return sorted(listed, key=lambda row: [str(row[name]) for name in order])


def assert_same_rows(table: Any, as_of: str | None = None) -> list[dict[str, Any]]:
    """hudi-rs and we read the same rows, meta columns included; returns them.

    Args:
        table: a `lakeformat.Table` on a local folder.
        as_of: an instant; None for now.
    """
    theirs = rows_by_key(read(table.engine.storage.location, as_of))
    ours = rows_by_key(table.to_arrow(as_of=as_of, meta_columns=True))
    # Files older than a column lack it; hudi-rs then may leave it out of its answer.
    columns = dict.fromkeys(ours[0]) if ours else {}
    assert [{**columns, **row} for row in theirs] == ours
    return ours
