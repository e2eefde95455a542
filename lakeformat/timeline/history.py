"""What commits say they did."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from lakeformat.timeline.report import read_report, steps_table
from lakeformat.timeline.store import TimelineStore

__all__ = ["HistoryEntry", "read_history"]


@dataclass(frozen=True, slots=True)
class HistoryEntry:
    """One completed commit.

    Attributes:
        operation: ``upsert``, ``insert`` ...; of other writers as they call it.
        report: what the write did, step by step; None for commits of other writers.
    """

    instant_time: str
    action: str
    operation: str
    rows_written: int
    files_written: int
    report: Mapping[str, Any] | None

    def describe(self) -> str:
        """The commit on one line; for commits of ours a line a step: seconds, and what it counted."""
        head = f"{self.operation} {self.instant_time}: rows {self.rows_written:,}; files {self.files_written:,}"
        return "\n".join([head, steps_table(self.report["steps"])]) if self.report else head


def read_history(store: TimelineStore) -> list[HistoryEntry]:
    """Completed commits on the active timeline, newest first."""
    entries = []
    for instant in reversed(store.load().commits):
        metadata = store.commit(instant)
        stats = list(metadata.all_stats())
        entries.append(
            HistoryEntry(
                instant.time,
                instant.action.value,
                metadata.operation.lower(),
                sum(stat.num_writes for stat in stats),
                len(stats),
                read_report(metadata.extra),
            )
        )
    return entries
