"""lakeformat on Spark with the exchanged write: Spark's shuffle brings rows to their file group, not the driver."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from benchmarks.engines.lakeformat_spark import TABLE_OPTIONS, LakeformatSpark
from benchmarks.workload import Dataset
from lakeformat.spark import LakehouseTable


class LakeformatExchanged(LakeformatSpark):
    """The table of `LakeformatSpark`, written through `LakehouseTable`. It is read by ``read``."""

    def _write(self, rows: Any, operation: str, table: Path) -> None:
        getattr(LakehouseTable.forPath(self.spark, str(table), **TABLE_OPTIONS), operation)(rows)


def open_engine(dataset: Dataset, table: Path) -> LakeformatExchanged:
    """Return the engine of this module."""
    return LakeformatExchanged(dataset, table)
