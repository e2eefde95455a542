"""lakeformat from plain Python."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

import lakeformat
from benchmarks.lineitem.engines.arrow_rows import CONTENT_COLUMNS, content_of, stream
from benchmarks.lineitem.steps import KEY_COLUMNS, Step

__all__ = ["Lakeformat", "open_engine"]


class Lakeformat:
    """A copy-on-write table with the defaults that a user gets; its files are of Hudi's 120 MB."""

    def __init__(self, table: Path) -> None:
        self._table = str(table)

    def load(self, rows: Path) -> None:
        table = lakeformat.create(self._table, pq.read_schema(rows), record_key=list(KEY_COLUMNS))
        table.bulk_insert(stream(rows))

    def append(self, rows: Path) -> None:
        self._open().insert(pq.read_table(rows))

    def overwrite(self, rows: Path) -> None:
        self._open().overwrite(stream(rows))

    def delete(self, step: Step) -> None:
        self._open().delete(where=step.condition())

    def merge(self, rows: Path) -> None:
        self._open().upsert(pq.read_table(rows))

    def cdc(self, rows: Path) -> None:
        merge = self._open().merge(pq.read_table(rows)).when_matched_delete("op = 'D'").when_matched_update()
        merge.when_not_matched_insert("op <> 'D'").execute()

    def content(self) -> list[int]:
        return content_of(self._open().to_arrow(columns=CONTENT_COLUMNS))

    def versions(self) -> dict[str, str]:
        return {"lakeformat": lakeformat.__version__, "pyarrow": pa.__version__}

    def close(self) -> None:
        """Do nothing: the engine holds nothing open."""

    def _open(self) -> Any:
        return lakeformat.open(self._table)


def open_engine(table: Path) -> Lakeformat:
    """Return the engine of this module."""
    return Lakeformat(table)
