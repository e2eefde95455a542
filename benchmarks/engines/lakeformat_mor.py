"""lakeformat from plain Python on a merge-on-read table: updates and deletes are appended."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import lakeformat
from benchmarks.engines.lakeformat_python import Lakeformat
from benchmarks.workload import ORDERING, PARTITION, RECORD_KEY, SCHEMA, Dataset


class LakeformatMergeOnRead(Lakeformat):
    """The table of `Lakeformat` as a merge-on-read table."""

    def _create(self, table: Path) -> Any:
        keys = {"record_key": RECORD_KEY, "partition_by": PARTITION, "ordering": ORDERING}
        return lakeformat.create(str(table), SCHEMA, **keys, table_type="MERGE_ON_READ")

    def compact(self) -> None:
        self._open().compact()


def open_engine(dataset: Dataset, table: Path) -> LakeformatMergeOnRead:
    """Return the engine of this module."""
    return LakeformatMergeOnRead(dataset, table)
