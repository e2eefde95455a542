"""lakeformat read by plain ``load(path)``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from benchmarks.engines.lakeformat_spark import LakeformatSpark
from benchmarks.workload import Dataset


class LakeformatLoad(LakeformatSpark):
    """The table of `LakeformatSpark`, read without options and without settings."""

    def frame(self) -> Any:
        return self.spark.read.format("lakehouse").load(str(self._table))


def open_engine(dataset: Dataset, table: Path) -> LakeformatLoad:
    """Return the engine of this module."""
    return LakeformatLoad(dataset, table)
