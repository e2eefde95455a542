"""What commits say they did."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from lakeformat.codec.html import html_rows
from lakeformat.timeline.report import read_report, steps_table
from lakeformat.timeline.store import TimelineStore

__all__ = ["History", "HistoryEntry", "read_history"]


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


class History(list[HistoryEntry]):
    """Commits, newest first: a list, which notebooks show as a table."""

    def _repr_html_(self) -> str:
        return html_rows(
            ("instant", "operation", "rows written", "inserted", "updated", "deleted", "files", "seconds"),
            [
                (
                    each.instant_time,
                    each.operation,
                    each.rows_written,
                    *_counts(each),
                    each.files_written,
                    _seconds(each),
                )
                for each in self
            ],
        )


def _counts(entry: HistoryEntry) -> tuple[Any, ...]:
    rows = (entry.report or {}).get("rows", {})
    return tuple(rows.get(name) for name in ("inserted", "updated", "deleted"))


def _seconds(entry: HistoryEntry) -> Any:
    return (entry.report or {}).get("seconds")


def read_history(store: TimelineStore) -> History:
    """Completed commits on the active timeline, newest first."""
    entries = History()
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
