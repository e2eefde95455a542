"""Delta Lake on Spark 4.1 with deletion vectors, its merge-on-read."""

from __future__ import annotations

from pathlib import Path

from benchmarks.engine import StepUnavailableError
from benchmarks.engines.delta import Delta
from benchmarks.workload import Dataset


class DeltaWithVectors(Delta):
    """A Delta table with deletion vectors: updates and deletes mark old rows and write new rows into new files."""

    deletion_vectors = True

    def scan(self) -> None:
        raise StepUnavailableError("Delta 4.2.0 plans no noop write of a table with deletion vectors")

    def compact(self) -> None:
        raise StepUnavailableError("Delta 4.2.0's reorg misses a class of Spark 4.1.4")


def open_engine(dataset: Dataset, table: Path) -> DeltaWithVectors:
    """Return the engine of this module."""
    return DeltaWithVectors(dataset, table)
