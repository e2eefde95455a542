"""Apache Hudi on Spark 3.5, copy-on-write, with its default index. Its files are of 120 MB by default."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

from benchmarks.engines.hudi import SETTINGS, VERSION
from benchmarks.engines.spark_session import open_spark
from benchmarks.lineitem.engines.on_spark import OnSpark
from benchmarks.lineitem.steps import KEY_COLUMNS

__all__ = ["SparkHudi", "open_engine"]

_OPTIONS: Final = {
    "hoodie.table.name": "lineitem",
    "hoodie.datasource.write.recordkey.field": ",".join(KEY_COLUMNS),
}


class SparkHudi(OnSpark):
    """A Hudi table: rows are written by the DataFrame API, deletes by condition and the CDC batch are SQL."""

    name = "lineitem"

    def __init__(self, table: Path) -> None:
        self._table = str(table)
        self.spark = open_spark(table, settings=SETTINGS)

    def load(self, rows: Path) -> None:
        self._write(rows, "bulk_insert")
        self.spark.sql(f"create table {self.name} using hudi location '{self._table}'")

    def append(self, rows: Path) -> None:
        self._write(rows, "insert")

    def overwrite(self, rows: Path) -> None:
        self._write(rows, "insert_overwrite_table")

    def merge(self, rows: Path) -> None:
        self._write(rows, "upsert")

    def content(self) -> list[int]:
        self.spark.catalog.refreshTable(self.name)
        return super().content()

    def versions(self) -> dict[str, str]:
        return {**super().versions(), "hudi": VERSION}

    def _write(self, file: Path, operation: str) -> None:
        rows: Any = self.rows(file).write.format("hudi").options(**_OPTIONS)
        rows.option("hoodie.datasource.write.operation", operation).mode("append").save(self._table)


def open_engine(table: Path) -> SparkHudi:
    """Return the engine of this module."""
    return SparkHudi(table)
