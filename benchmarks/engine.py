"""What an engine is to the benchmark."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from benchmarks.workload import Content

#: What a read step answers: it must be equal in all engines. None where a step has nothing to compare.
Answer = int | list[int] | None


@dataclass(frozen=True, slots=True)
class Told:
    """What a step may return beside its answer.

    Attributes:
        figures: the engine's own, by name.
        seconds: what the part took that the step is about, where that is not all it did.
    """

    answer: Answer
    figures: Mapping[str, float]
    seconds: float | None = None


class Engine(Protocol):
    """What every engine offers; a step of the registry's table names a method, and only those are called.

    An engine that maps files has a method ``unmapped()``, too, which gives an engine that reads the same by calls.

    ``upsert``, ``delete``, ``tag`` and ``inserts50`` read their rows from a Parquet file themselves: that is
    part of the step.
    """

    def load(self, table: Path) -> None:
        """Create a table at ``table`` from the base files."""

    def upsert(self, rows: Path) -> None:
        """Replace rows of equal key unless their ``ts`` is greater; insert the others."""

    def delete(self, keys: Path) -> None:
        """Delete the rows of these keys."""

    def content(self) -> Content:
        """Row count and sum(amount)."""

    def versions(self) -> dict[str, str]:
        """Names and versions of what was measured."""

    def close(self) -> None:
        """End the session."""


class StepUnavailableError(Exception):
    """The engine's installed version has no such operation: the step is left out of the table."""
