"""Apache Hudi itself on Spark 3.5, merge-on-read."""

from __future__ import annotations

from pathlib import Path
from types import MappingProxyType

from benchmarks.engines.hudi import Hudi
from benchmarks.workload import Dataset


class HudiMergeOnRead(Hudi):
    """The same table, whose upserts and deletes append log files; compacted when asked."""

    table_type = "MERGE_ON_READ"
    #: Else every fifth write compacts, and is timed as a write.
    options = MappingProxyType({"hoodie.compact.inline.max.delta.commits": "1000"})


def open_engine(dataset: Dataset, table: Path) -> HudiMergeOnRead:
    """The engine of this module."""
    return HudiMergeOnRead(dataset, table)
