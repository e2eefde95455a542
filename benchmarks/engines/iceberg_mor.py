"""Apache Iceberg on Spark 4.1, merge-on-read: format version 3, deletion vectors."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar

from benchmarks.engines.iceberg import Iceberg
from benchmarks.workload import Dataset


class IcebergMergeOnRead(Iceberg):
    """The same table, whose updates and deletes mark rows and write new ones beside."""

    mode = "merge-on-read"
    properties: ClassVar = {"format-version": "3"}


def open_engine(dataset: Dataset, table: Path) -> IcebergMergeOnRead:
    """The engine of this module."""
    return IcebergMergeOnRead(dataset, table)
