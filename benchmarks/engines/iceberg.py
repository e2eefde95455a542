"""Apache Iceberg on Spark 4.1, copy-on-write."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar, Final

from benchmarks.engines.rounds import InRounds
from benchmarks.engines.spark_session import SparkReads, open_spark
from benchmarks.workload import ZORDER_FILE_BYTES, Dataset

PACKAGE: Final = "org.apache.iceberg:iceberg-spark-runtime-4.1_2.13:1.11.0"
SETTINGS: Final = {
    "spark.sql.extensions": "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions",
    "spark.sql.catalog.bench": "org.apache.iceberg.spark.SparkCatalog",
    "spark.sql.catalog.bench.type": "hadoop",
}


class Iceberg(InRounds, SparkReads):
    """A table of a hadoop catalog whose warehouse is the folder that holds the table's folder."""

    mode = "copy-on-write"
    properties: ClassVar[Mapping[str, str]] = {}

    def __init__(self, dataset: Dataset, table: Path) -> None:
        self._dataset, self._table = dataset, table
        self.spark = open_spark(table, PACKAGE, {**SETTINGS, "spark.sql.catalog.bench.warehouse": str(table.parent)})

    def load(self, table: Path) -> None:
        rows = self.spark.read.parquet(*map(str, self._dataset.base_files()))
        writer = rows.writeTo(self._name(table)).using("iceberg").partitionedBy(rows["part"])
        for operation in ("delete", "update", "merge"):
            writer = writer.tableProperty(f"write.{operation}.mode", self.mode)
        for name, value in self.properties.items():
            writer = writer.tableProperty(name, value)
        writer.create()

    def upsert(self, rows: Path) -> None:
        self._merge(rows, "when matched and s.ts >= t.ts then update set * when not matched then insert *")

    def delete(self, keys: Path) -> None:
        self._merge(keys, "when matched then delete")

    def compact(self) -> None:
        name = self._name(self._table).removeprefix("bench.")
        self.spark.sql(
            f"call bench.system.rewrite_data_files(table => '{name}', options => map('rewrite-all', 'true'))"
        )

    def zorder(self) -> None:
        options = f"map('target-file-size-bytes', '{ZORDER_FILE_BYTES}', 'rewrite-all', 'true')"
        name = self._name(self._table).removeprefix("bench.")
        self.spark.sql(
            f"call bench.system.rewrite_data_files(table => '{name}', strategy => 'sort', "
            f"sort_order => 'zorder(x, y)', options => {options})"
        )

    def frame(self) -> Any:
        return self.spark.table(self._name(self._table))

    def versions(self) -> dict[str, str]:
        return {**super().versions(), "iceberg": PACKAGE.rpartition(":")[2]}

    def _merge(self, rows: Path, clauses: str) -> None:
        self.spark.read.parquet(str(rows)).createOrReplaceTempView("s")
        same_row = "t.part = s.part and t.id = s.id"
        self.spark.sql(f"merge into {self._name(self._table)} t using s on {same_row} {clauses}")

    def _name(self, table: Path) -> str:
        return f"bench.`{table.name}`"


def open_engine(dataset: Dataset, table: Path) -> Iceberg:
    """Return the engine of this module."""
    return Iceberg(dataset, table)
