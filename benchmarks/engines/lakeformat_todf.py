"""lakeformat read by Spark's own scan: ``read(via="native")``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from benchmarks.engines.lakeformat_spark import LakeformatSpark
from benchmarks.workload import Dataset
from lakeformat.spark import LakehouseTable


class LakeformatToDF(LakeformatSpark):
    """The table of `LakeformatSpark`, read with ``via="native"`` and no other argument."""

    def frame(self) -> Any:
        return LakehouseTable.forPath(self.spark, str(self._table)).read(meta_columns=True, via="native")


def open_engine(dataset: Dataset, table: Path) -> LakeformatToDF:
    """Return the engine of this module."""
    return LakeformatToDF(dataset, table)
