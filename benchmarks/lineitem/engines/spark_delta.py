"""Delta Lake on Spark 4.1. Its plain writes have no option for the size of files."""

from __future__ import annotations

from pathlib import Path

from benchmarks.engines.delta import PACKAGE, SETTINGS
from benchmarks.engines.spark_session import open_spark
from benchmarks.lineitem.engines.on_spark import OnSpark

__all__ = ["SparkDelta", "open_engine"]


class SparkDelta(OnSpark):
    """A Delta table with the defaults."""

    def __init__(self, table: Path) -> None:
        self._table = str(table)
        self.name = f"delta.`{table}`"
        self.spark = open_spark(table, PACKAGE, SETTINGS)

    def load(self, rows: Path) -> None:
        self.rows(rows).write.format("delta").save(self._table)

    def append(self, rows: Path) -> None:
        self.rows(rows).write.format("delta").mode("append").save(self._table)

    def overwrite(self, rows: Path) -> None:
        self.rows(rows).write.format("delta").mode("overwrite").save(self._table)

    def versions(self) -> dict[str, str]:
        return {**super().versions(), "delta": PACKAGE.rpartition(":")[2]}


def open_engine(table: Path) -> SparkDelta:
    """Return the engine of this module."""
    return SparkDelta(table)
