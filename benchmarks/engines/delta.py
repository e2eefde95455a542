"""Delta Lake on Spark 4.1."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

from benchmarks.engines.spark_session import SparkReads, open_spark
from benchmarks.workload import ZORDER_FILE_BYTES, Dataset

PACKAGE: Final = "io.delta:delta-spark_4.1_2.13:4.2.0"
SETTINGS: Final = {
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
    "spark.databricks.delta.optimize.maxFileSize": str(ZORDER_FILE_BYTES),
}


class Delta(SparkReads):
    """A Delta table partitioned by ``part``; upserts and deletes are MERGE statements."""

    deletion_vectors = False

    def __init__(self, dataset: Dataset, table: Path) -> None:
        self._dataset, self._table = dataset, table
        self.spark = open_spark(table, PACKAGE, SETTINGS)

    def load(self, table: Path) -> None:
        rows = self.spark.read.parquet(*map(str, self._dataset.base_files()))
        vectors = str(self.deletion_vectors).lower()
        rows.write.format("delta").option("delta.enableDeletionVectors", vectors).partitionBy("part").save(str(table))

    def upsert(self, rows: Path) -> None:
        self._merge(rows, "when matched and s.ts >= t.ts then update set * when not matched then insert *")

    def delete(self, keys: Path) -> None:
        self._merge(keys, "when matched then delete")

    def zorder(self) -> None:
        self.spark.sql(f"optimize delta.`{self._table}` zorder by (x, y)")

    def frame(self) -> Any:
        return self.spark.read.format("delta").load(str(self._table))

    def versions(self) -> dict[str, str]:
        return {**super().versions(), "delta": PACKAGE.rpartition(":")[2]}

    def _merge(self, rows: Path, clauses: str) -> None:
        self.spark.read.parquet(str(rows)).createOrReplaceTempView("s")
        same_row = "t.part = s.part and t.id = s.id"
        self.spark.sql(f"merge into delta.`{self._table}` t using s on {same_row} {clauses}")


def open_engine(dataset: Dataset, table: Path) -> Delta:
    """Return the engine of this module."""
    return Delta(dataset, table)
