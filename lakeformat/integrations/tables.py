"""The table argument of every adapter: a `lakeformat.Table`, or its path."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any, TypeAlias

from lakeformat.read.scan import Scan
from lakeformat.table import Table, open_table, scan

__all__ = ["TableOrPath", "make_scan", "open_target"]

TableOrPath: TypeAlias = Table | str | os.PathLike[str]


def make_scan(table: TableOrPath, columns: list[str] | None, options: Mapping[str, Any]) -> Scan:
    """Return a read of a table as `lakeformat.Table.read` does, or of the table at a path as `lakeformat.scan` does.

    Args:
        columns: wanted columns; all by default.
        options: the further arguments of `lakeformat.Table.read`; for a path also those of `lakeformat.open`.

    Raises:
        LakeformatError: as in these functions.
    """
    if isinstance(table, Table):
        return table.read(columns, **options)
    return scan(table, columns, **options)


def open_target(table: TableOrPath) -> Table:
    """Return the table to write to. Options of a table are given to `lakeformat.open`, which returns it.

    Raises:
        TableNotFoundError, UnsupportedTableError: the path holds no table, or one that cannot be written.
    """
    target = table if isinstance(table, Table) else open_table(table)
    target.config.check_writable(target.location)
    return target
