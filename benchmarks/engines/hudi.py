"""Apache Hudi itself on Spark 3.5, copy-on-write.

``HUDI_INDEX`` is bloom (default), simple or record_index.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

from benchmarks.engines.rounds import InRounds
from benchmarks.engines.spark_session import ROOT, SparkReads, open_spark
from benchmarks.workload import ORDERING, PARTITION, RECORD_KEY, SCHEMA, ZORDER_FILE_BYTES, Dataset
from tools.interop_setup import HUDI_VERSIONS

VERSION: Final = HUDI_VERSIONS[-1]
JAR: Final = ROOT / ".cache" / "jars" / f"hudi-spark3.5-bundle_2.12-{VERSION}.jar"
SETTINGS: Final = {
    "spark.jars": str(JAR),
    "spark.serializer": "org.apache.spark.serializer.KryoSerializer",
    "spark.kryo.registrator": "org.apache.spark.HoodieSparkKryoRegistrar",
    "spark.sql.extensions": "org.apache.spark.sql.hudi.HoodieSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.hudi.catalog.HoodieCatalog",
}
_TABLE_OPTIONS: Final = {
    "hoodie.table.name": "bench",
    "hoodie.datasource.write.recordkey.field": RECORD_KEY,
    "hoodie.datasource.write.partitionpath.field": PARTITION,
    "hoodie.datasource.write.precombine.field": ORDERING,
    # Hudi stores the column ranges of every file, so a point query can skip files.
    "hoodie.metadata.index.column.stats.enable": "true",
    "hoodie.metadata.index.column.stats.column.list": "x,y",
}
_CLUSTERING: Final = {
    "hoodie.clustering.plan.strategy.target.file.max.bytes": str(ZORDER_FILE_BYTES),
    "hoodie.clustering.plan.strategy.small.file.limit": str(1 << 30),
    "hoodie.clustering.plan.strategy.single.group.clustering.enabled": "true",
}


class Hudi(InRounds, SparkReads):
    """A Hudi table partitioned by ``part``."""

    table_type = "COPY_ON_WRITE"
    options: Mapping[str, str] = MappingProxyType({})

    def __init__(self, dataset: Dataset, table: Path) -> None:
        self._dataset, self._table = dataset, table
        self._index = os.environ.get("HUDI_INDEX", "bloom").upper()
        self.spark = open_spark(table, settings=SETTINGS)

    def load(self, table: Path) -> None:
        rows = self.spark.read.parquet(*map(str, self._dataset.base_files()))
        self._write(rows, "bulk_insert", table, mode="overwrite")

    def upsert(self, rows: Path) -> None:
        self._write(self.spark.read.parquet(str(rows)), "upsert", self._table)

    def delete(self, keys: Path) -> None:
        self._write(self.spark.read.parquet(str(keys)), "delete", self._table)

    def compact(self) -> None:
        self.spark.sql(f"call run_compaction(op => 'scheduleandexecute', path => '{self._table}')").collect()

    def zorder(self) -> None:
        options = ",".join(f"{key}={value}" for key, value in _CLUSTERING.items())
        self.spark.sql(
            f"call run_clustering(path => '{self._table}', order => 'x,y', order_strategy => 'z-order', "
            f"options => '{options}')"
        )

    def frame(self) -> Any:
        rows = self.spark.read.format("hudi").option("hoodie.metadata.enable", "true")
        return rows.option("hoodie.enable.data.skipping", "true").load(str(self._table)).select(*SCHEMA.names)

    def versions(self) -> dict[str, str]:
        return {**super().versions(), "hudi": VERSION, "index": self._index}

    def _write(self, rows: Any, operation: str, table: Path, mode: str = "append") -> None:
        options = {
            **_TABLE_OPTIONS,
            **self.options,
            "hoodie.datasource.write.table.type": self.table_type,
            "hoodie.datasource.write.operation": operation,
            "hoodie.index.type": self._index,
            "hoodie.metadata.record.index.enable": str(self._index == "RECORD_INDEX").lower(),
        }
        rows.write.format("hudi").options(**options).mode(mode).save(str(table))


def open_engine(dataset: Dataset, table: Path) -> Hudi:
    """Return the engine of this module."""
    return Hudi(dataset, table)
