"""lakeformat on Spark the exchanged way: rows travel to their file group by Spark's shuffle, not to the driver."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from benchmarks.engines.lakeformat_spark import TABLE_OPTIONS, LakeformatSpark
from benchmarks.workload import Dataset
from lakeformat.spark import LakehouseTable


class LakeformatExchanged(LakeformatSpark):
    """The same table written through ``LakehouseTable``; reads are those of ``read``."""

    def _write(self, rows: Any, operation: str, table: Path) -> None:
        getattr(LakehouseTable.forPath(self.spark, str(table), **TABLE_OPTIONS), operation)(rows)


def open_engine(dataset: Dataset, table: Path) -> LakeformatExchanged:
    """The engine of this module."""
    return LakeformatExchanged(dataset, table)
