"""Tables in memory for tests of data skipping, and changes of the statistics in their footers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa

from lakeformat import Table
from lakeformat.storage import MemoryStorage
from lakeformat.storage.port import own_path
from tests.helpers.tables import a_table
from tests.helpers.thrift_footer import Struct, with_statistics

__all__ = ["Reads", "batch", "edit_footers", "new_table", "rows"]

#: Each insert opens a file; a row group holds three rows.
SMALL = {"hoodie.parquet.small.file.limit": 0, "lakeformat.parquet.row.group.rows": 3}


IDS = pa.schema([("id", pa.int64())])


class Reads(MemoryStorage):
    """A storage that records which files were opened."""

    def __init__(self) -> None:
        super().__init__()
        self.opened: list[str] = []

    def open_input(self, path: str) -> Any:
        self.opened.append(path)
        return super().open_input(path)


def new_table(schema: pa.Schema = IDS, **options: Any) -> Table:
    """Create an empty table with the key ``id`` in memory. The first rows can add columns."""
    return a_table(Reads(), schema=schema, **{**SMALL, **options})


def rows(table: Table, where: str, **arguments: Any) -> list[Any]:
    """Return the ids of the matching rows, sorted."""
    return sorted(table.to_arrow(["id"], where=where, **arguments)["id"].to_pylist())


def edit_footers(table: Table, edit: Callable[[str, Struct], None], *, which: slice = slice(None)) -> list[str]:
    """Change the statistics of some base files, oldest first, as another writer may do. Return their paths."""
    storage = table.context.storage
    paths = [file.path for file in sorted(table.snapshot().files, key=lambda file: file.name.instant_time)][which]
    for path in paths:
        storage.replace(path, with_statistics(storage.read(path), edit))
    storage.delete_folder(own_path("index"))  # The index still has the original statistics.
    return paths


def batch(**columns: Any) -> pa.Table:
    """Return rows from columns; the ids are 0, 1, 2 ... unless given."""
    count = len(next(iter(columns.values())))
    return pa.table({"id": pa.array(range(count), pa.int64()), **columns})
