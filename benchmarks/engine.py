"""The interface between the benchmark and an engine."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from benchmarks.workload import Content

#: The result of a read step, which must be equal in all engines; None if the step has nothing to compare.
Answer = int | list[int] | None


@dataclass(frozen=True, slots=True)
class StepResult:
    """An answer with figures or with a time of its own.

    Attributes:
        figures: the engine's own figures, by name.
        seconds: the time of the part that the step measures, if the step does other work, too.
    """

    answer: Answer
    figures: Mapping[str, float]
    seconds: float | None = None


class Engine(Protocol):
    """The methods of an engine. Each step names one method; an engine needs only the methods of its steps.

    An engine that maps files also has a method ``unmapped()``, which returns an engine that reads the same files by
    calls.

    ``upsert``, ``delete``, ``tag`` and ``inserts50`` read their rows from a Parquet file themselves. This reading is
    part of the step.
    """

    def load(self, table: Path) -> None:
        """Create a table at ``table`` from the base files."""

    def upsert(self, rows: Path) -> None:
        """Replace rows of equal key unless their ``ts`` is greater; insert the others."""

    def delete(self, keys: Path) -> None:
        """Delete the rows of these keys."""

    def content(self) -> Content:
        """Return the row count and sum(amount)."""

    def versions(self) -> dict[str, str]:
        """Return the names and versions of the measured packages."""

    def close(self) -> None:
        """End the session."""


class StepUnavailableError(Exception):
    """The error of a step that the installed version of the engine lacks. The table then leaves out the step."""
