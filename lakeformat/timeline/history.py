"""What commits say they did."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from lakeformat.codec.html import html_rows
from lakeformat.model.commit import CommitMetadata
from lakeformat.model.instant import Instant
from lakeformat.timeline.report import read_report, steps_table, summary
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
        if self.report:
            head = summary(self.instant_time, self.operation, self.report)
            return "\n".join([head, steps_table(self.report["steps"])])
        return f"{self.operation} {self.instant_time}: rows {self.rows_written:,}; files {self.files_written:,}"


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


def read_history(store: TimelineStore, limit: int | None = None) -> History:
    """Completed commits, newest first: those on the active timeline, then those that have been archived.

    Args:
        limit: so many; the archive is read only if the timeline has fewer.
    """
    timeline = store.load()
    active = timeline.commits if limit is None else timeline.commits[max(0, len(timeline.commits) - limit) :]
    entries = [_entry(instant, store.commit(instant)) for instant in reversed(active)]
    if limit is None or len(entries) < limit:
        archive = store.archived()
        older = [each for each in archive.completed_in("") if each.time not in timeline.commit_times]
        older.sort(key=lambda each: each.time)
        wanted = older if limit is None else older[max(0, len(older) - limit + len(entries)) :]
        found = {instant.time: _entry(instant, metadata) for instant, metadata in archive.commits(wanted)}
        entries += (found[instant.time] for instant in reversed(wanted))
    return History(entries)


def _entry(instant: Instant, metadata: CommitMetadata) -> HistoryEntry:
    stats = list(metadata.all_stats())
    return HistoryEntry(
        instant.time,
        instant.action.value,
        metadata.operation.lower(),
        sum(stat.num_writes for stat in stats),
        len(stats),
        read_report(metadata.extra),
    )
