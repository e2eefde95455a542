"""Apache Iceberg on Spark 4.1."""

from __future__ import annotations

from pathlib import Path

from benchmarks.engines.iceberg import PACKAGE, SETTINGS
from benchmarks.engines.spark_session import open_spark
from benchmarks.lineitem.engines.on_spark import OnSpark
from benchmarks.lineitem.steps import FILE_BYTES

__all__ = ["SparkIceberg", "open_engine"]


class SparkIceberg(OnSpark):
    """A table of a hadoop catalog; its property asks for files of 120 MB. By default it is copy-on-write."""

    def __init__(self, table: Path) -> None:
        self.name = f"bench.`{table.name}`"
        self.spark = open_spark(table, PACKAGE, {**SETTINGS, "spark.sql.catalog.bench.warehouse": str(table.parent)})

    def load(self, rows: Path) -> None:
        writer = self.rows(rows).writeTo(self.name).using("iceberg")
        writer.tableProperty("write.target-file-size-bytes", str(FILE_BYTES)).create()

    def append(self, rows: Path) -> None:
        self.rows(rows).writeTo(self.name).append()

    def overwrite(self, rows: Path) -> None:
        from pyspark.sql.functions import lit

        self.rows(rows).writeTo(self.name).overwrite(lit(True))

    def versions(self) -> dict[str, str]:
        return {**super().versions(), "iceberg": PACKAGE.rpartition(":")[2]}


def open_engine(table: Path) -> SparkIceberg:
    """Return the engine of this module."""
    return SparkIceberg(table)
