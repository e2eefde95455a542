"""What a write answers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from lakeformat.timeline.report import steps_table, summary

__all__ = ["WriteResult"]


@dataclass(frozen=True, slots=True)
class WriteResult:
    """A published write, or one that had been published before.

    Attributes:
        instant_time: its instant; of a skipped write the table's newest.
        report: what ``history()`` shows later.
        skipped: why nothing was written, if so: the batch is in the table already.
    """

    instant_time: str
    operation: str
    report: Mapping[str, Any]
    skipped: str = ""

    def __str__(self) -> str:
        """One line: rows, files, seconds."""
        if self.skipped:
            return f"{self.operation} skipped: {self.skipped}"
        return summary(self.instant_time, self.operation, self.report)

    def describe(self) -> str:
        """The summary, and a line a step: seconds, and what it counted."""
        return "\n".join([str(self), steps_table(self.report["steps"])])
