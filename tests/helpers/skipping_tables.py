"""Tables in memory for tests of skipping, and ways to spoil what their files say of themselves."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa

from lakeformat import Table
from lakeformat.config.resolve import resolve
from lakeformat.storage import MemoryStorage, SystemClock
from lakeformat.storage.port import own_path
from lakeformat.write.intake import create_table
from tests.helpers.thrift_footer import Struct, with_statistics

__all__ = ["Reads", "batch", "edit_footers", "new_table", "rows"]

#: Each insert opens a file; a row group holds three rows.
SMALL = {"hoodie.parquet.small.file.limit": 0, "lakeformat.parquet.row.group.rows": 3}


IDS = pa.schema([("id", pa.int64())])


class Reads(MemoryStorage):
    """Remembers which files were opened."""

    def __init__(self) -> None:
        super().__init__()
        self.opened: list[str] = []

    def open_input(self, path: str) -> Any:
        self.opened.append(path)
        return super().open_input(path)


def new_table(schema: pa.Schema = IDS, **options: Any) -> Table:
    """An empty table with the key ``id``, in memory; columns may come with the first rows."""
    table = Table(Reads(), resolve({"recordkey": "id", "name": "t", **SMALL, **options}))
    create_table(table.engine.store, table.options, schema, SystemClock())
    return table


def rows(table: Table, where: str, **arguments: Any) -> list[Any]:
    """Ids of the matching rows, sorted."""
    return sorted(table.to_arrow(["id"], where=where, **arguments)["id"].to_pylist())


def edit_footers(table: Table, edit: Callable[[str, Struct], None], *, which: slice = slice(None)) -> list[str]:
    """Give some base files, oldest first, other statistics, as another writer may have; returns their paths."""
    storage = table.engine.storage
    paths = [file.path for file in sorted(table.snapshot().files, key=lambda file: file.name.instant_time)][which]
    for path in paths:
        storage.replace(path, with_statistics(storage.read(path), edit))
    storage.delete_folder(own_path("index"))  # It knows the true ones.
    return paths


def batch(**columns: Any) -> pa.Table:
    """Columns as lists or arrays, with ids 0, 1, 2 ... if none are given."""
    count = len(next(iter(columns.values())))
    return pa.table({"id": pa.array(range(count), pa.int64()), **columns})
