"""lakeformat on Spark, merge-on-read: updates and deletes are appended."""

from __future__ import annotations

from pathlib import Path

from benchmarks.engines.lakeformat_spark import LakeformatSpark
from benchmarks.workload import Dataset
from lakeformat.spark import LakehouseTable


class LakeformatSparkMergeOnRead(LakeformatSpark):
    """The table of `LakeformatSpark` as a merge-on-read table."""

    table_type = "MERGE_ON_READ"

    def compact(self) -> None:
        LakehouseTable.forPath(self.spark, str(self._table)).compact()


def open_engine(dataset: Dataset, table: Path) -> LakeformatSparkMergeOnRead:
    """Return the engine of this module."""
    return LakeformatSparkMergeOnRead(dataset, table)
