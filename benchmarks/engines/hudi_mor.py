"""Apache Hudi itself on Spark 3.5, merge-on-read."""

from __future__ import annotations

from pathlib import Path
from types import MappingProxyType

from benchmarks.engines.hudi import Hudi
from benchmarks.workload import Dataset


class HudiMergeOnRead(Hudi):
    """A merge-on-read table of Hudi: upserts and deletes append log files; only the step ``compact`` compacts."""

    table_type = "MERGE_ON_READ"
    #: By default every fifth write compacts, and its time would include the compaction.
    options = MappingProxyType({"hoodie.compact.inline.max.delta.commits": "1000"})


def open_engine(dataset: Dataset, table: Path) -> HudiMergeOnRead:
    """Return the engine of this module."""
    return HudiMergeOnRead(dataset, table)
