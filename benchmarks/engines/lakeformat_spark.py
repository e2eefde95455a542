"""lakeformat on Spark as the docs teach it: written with ``save()``, read with ``read(spark, path)``."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

from benchmarks.engine import StepUnavailableError
from benchmarks.engines.lakeformat_python import Lakeformat
from benchmarks.engines.rounds import InRounds
from benchmarks.engines.spark_session import SparkReads, consume, open_spark
from benchmarks.workload import ORDERING, PARTITION, RECORD_KEY, SCHEMA, ZORDER_FILE_BYTES, Dataset
from lakeformat.spark import LakehouseTable, read, register

TABLE_OPTIONS: Final = {
    "hoodie.table.name": "bench",
    "hoodie.datasource.write.recordkey.field": RECORD_KEY,
    "hoodie.datasource.write.partitionpath.field": PARTITION,
    "hoodie.datasource.write.precombine.field": ORDERING,
}


class LakeformatSpark(InRounds, SparkReads):
    """A table that is written with Spark's ``save()`` and read with ``read(spark, path)``."""

    table_type = "COPY_ON_WRITE"

    def __init__(self, dataset: Dataset, table: Path) -> None:
        self._dataset, self._table = dataset, table
        self.spark = open_spark(table)
        register(self.spark)

    def load(self, table: Path) -> None:
        rows = self.spark.read.parquet(*map(str, self._dataset.base_files()))
        self._write(rows, "bulk_insert", table)

    def upsert(self, rows: Path) -> None:
        self._write(self.spark.read.parquet(str(rows)), "upsert", self._table)

    def delete(self, keys: Path) -> None:
        self._write(self.spark.read.parquet(str(keys)).select(RECORD_KEY, PARTITION), "delete", self._table)

    def frame(self) -> Any:
        return read(self.spark, str(self._table))

    def zorder(self) -> None:
        table = LakehouseTable.forPath(self.spark, str(self._table))
        if not hasattr(table, "cluster"):
            raise StepUnavailableError("this version has no cluster()")
        table.cluster(by=["x", "y"], curve="z-order", target_file_bytes=ZORDER_FILE_BYTES)

    def unmapped(self) -> Lakeformat:
        """Return the plain Python engine, which reads the same ranges of the same files."""
        return Lakeformat(self._dataset, self._table, mapped=False)

    def native(self) -> None:
        consume(LakehouseTable.forPath(self.spark, str(self._table)).read(columns=SCHEMA.names, via="native"))

    def _write(self, rows: Any, operation: str, table: Path) -> None:
        options = {
            **TABLE_OPTIONS,
            "hoodie.datasource.write.table.type": self.table_type,
            "hoodie.datasource.write.operation": operation,
            **self.write_options,
        }
        rows.write.format("lakehouse").options(**options).mode("append").save(str(table))


def open_engine(dataset: Dataset, table: Path) -> LakeformatSpark:
    """Return the engine of this module."""
    return LakeformatSpark(dataset, table)
