"""Apache Iceberg on Spark 4.1, merge-on-read: format version 3, deletion vectors."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar

from benchmarks.engines.iceberg import Iceberg
from benchmarks.workload import Dataset


class IcebergMergeOnRead(Iceberg):
    """An Iceberg table in format version 3: updates and deletes mark old rows and write new rows into new files."""

    mode = "merge-on-read"
    properties: ClassVar = {"format-version": "3"}


def open_engine(dataset: Dataset, table: Path) -> IcebergMergeOnRead:
    """Return the engine of this module."""
    return IcebergMergeOnRead(dataset, table)
