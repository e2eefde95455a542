"""Tables on disk for tests of distributed engines, whose workers may be other processes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa

from lakeformat import Table
from lakeformat.storage import LocalStorage
from lakeformat.storage.port import own_path
from tests.helpers.skipping_tables import SMALL
from tests.helpers.tables import a_table

__all__ = ["SCHEMA", "RecordedReads", "batch", "has_log_files", "in_order", "is_clean", "new_engine_table", "opened"]

SCHEMA = pa.schema([("id", pa.int64()), ("v", pa.float64()), ("s", pa.string())])
#: Every row group is a part of its own.
_MANY_PARTS = {"lakeformat.read.split.bytes": 1000}


class RecordedReads(LocalStorage):
    """A storage that writes the path of each opened data file to a file beside the table, in whatever process."""

    def open_input(self, path: str) -> Any:
        if not path.startswith(".hoodie"):
            with open(f"{self.location}.opened", "a", encoding="utf-8") as log:
                log.write(f"{path}\n")
        return super().open_input(path)


def batch(first: int) -> pa.Table:
    """Return twelve rows: some values are null, some are NaN."""
    ids = range(first, first + 12)
    values = [None if n % 5 == 0 else float("nan") if n % 7 == 0 else n / 2 for n in ids]
    return pa.table([[*ids], values, [None if n % 4 == 0 else f"s{n % 3}" for n in ids]], schema=SCHEMA)


def new_engine_table(folder: Path, *, merge_on_read: bool, **options: Any) -> Table:
    """Return a table of three files and some parts. In a merge-on-read table the first file has a log file."""
    storage = RecordedReads(str(folder / "table"))
    rows = [batch(0), batch(100), batch(200)]
    table = a_table(storage, rows=rows, merge_on_read=merge_on_read, **{**SMALL, **_MANY_PARTS, **options})
    table.upsert(batch(0).slice(0, 2).set_column(2, "s", pa.array(["changed", "changed"])))
    return table


def opened(table: Table, query: Callable[[], Any]) -> set[str]:
    """Return the file groups whose files a query opens, in whatever process."""
    log = Path(f"{table.location}.opened")
    log.write_text("", encoding="utf-8")
    query()
    return {path.lstrip(".").partition("_")[0] for path in log.read_text(encoding="utf-8").splitlines()}


def has_log_files(table: Table) -> bool:
    """Tell whether a slice of the table has log files. Such a small table has no file index, so plans open footers."""
    return bool(table.files()["log_files"].drop_null())


def in_order(rows: pa.Table) -> str:
    """Return the rows by id as text, in which NaN equals NaN and the types of texts do not matter."""
    listed: list[dict[str, Any]] = rows.to_pylist()
    return str(sorted(listed, key=lambda row: row["id"]))


def is_clean(table: Table) -> bool:
    """Tell whether the table has no staged rows left."""
    return not any(entry.is_folder for entry in table.context.storage.list(own_path("stage")))
