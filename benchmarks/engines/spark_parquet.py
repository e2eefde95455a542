"""Plain Parquet on Spark: the reference for a source and a sink on Spark."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from benchmarks.engines.spark_session import SparkReads, open_spark
from benchmarks.workload import Dataset


class SparkParquet(SparkReads):
    """A folder of Parquet files partitioned by ``part``. Spark can neither upsert into it nor delete from it."""

    def __init__(self, dataset: Dataset, table: Path) -> None:
        self._dataset, self._table = dataset, table
        self.spark = open_spark(table)

    def load(self, table: Path) -> None:
        rows = self.spark.read.parquet(*map(str, self._dataset.base_files()))
        rows.write.partitionBy("part").parquet(str(table))

    def frame(self) -> Any:
        return self.spark.read.parquet(str(self._table))


def open_engine(dataset: Dataset, table: Path) -> SparkParquet:
    """Return the engine of this module."""
    return SparkParquet(dataset, table)
