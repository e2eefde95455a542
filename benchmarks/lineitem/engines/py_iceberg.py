"""pyiceberg: an Iceberg table in plain Python, with its catalog in SQLite."""

from __future__ import annotations

from importlib.metadata import version
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.catalog.sql import SqlCatalog

from benchmarks.engine import StepUnavailableError
from benchmarks.lineitem.engines.arrow_rows import CONTENT_COLUMNS, content_of
from benchmarks.lineitem.steps import FILE_BYTES, KEY_COLUMNS, Step

__all__ = ["PyIceberg", "open_engine"]

_NAME: Final = "bench.lineitem"


class PyIceberg:
    """An Iceberg table; its property asks for files of 120 MB."""

    def __init__(self, table: Path) -> None:
        table.mkdir(parents=True, exist_ok=True)
        self._catalog = SqlCatalog("bench", uri=f"sqlite:///{table}/catalog.db", warehouse=f"file://{table}")

    def load(self, rows: Path) -> None:
        data = pq.read_table(rows)
        self._catalog.create_namespace("bench")
        properties = {"write.target-file-size-bytes": str(FILE_BYTES)}
        self._catalog.create_table(_NAME, data.schema, properties=properties).append(data)

    def append(self, rows: Path) -> None:
        self._table().append(pq.read_table(rows))

    def overwrite(self, rows: Path) -> None:
        self._table().overwrite(pq.read_table(rows))

    def delete(self, step: Step) -> None:
        first, end = step.days or ("", "")
        self._table().delete(f"l_shipdate >= '{first}' and l_shipdate < '{end}'")

    def merge(self, rows: Path) -> None:
        self._table().upsert(pq.read_table(rows), join_cols=list(KEY_COLUMNS))

    def cdc(self, rows: Path) -> None:
        raise StepUnavailableError("pyiceberg has no merge that deletes rows")

    def content(self) -> list[int]:
        return content_of(self._table().scan(selected_fields=CONTENT_COLUMNS).to_arrow())

    def versions(self) -> dict[str, str]:
        return {"pyiceberg": version("pyiceberg"), "pyarrow": pa.__version__}

    def close(self) -> None:
        """Do nothing: the engine holds nothing open."""

    def _table(self) -> Any:
        return self._catalog.load_table(_NAME)


def open_engine(table: Path) -> PyIceberg:
    """Return the engine of this module."""
    return PyIceberg(table)
