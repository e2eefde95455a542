"""lakeformat read by plain ``load(path)``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from benchmarks.engines.lakeformat_spark import LakeformatSpark
from benchmarks.workload import Dataset


class LakeformatLoad(LakeformatSpark):
    """No option, no setting."""

    def frame(self) -> Any:
        return self.spark.read.format("lakehouse").load(str(self._table))


def open_engine(dataset: Dataset, table: Path) -> LakeformatLoad:
    """The engine of this module."""
    return LakeformatLoad(dataset, table)
