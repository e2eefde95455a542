"""The history of a table: its commits, and on request its cleans, rollbacks, restores and savepoints."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final, TypeGuard

import pyarrow as pa

from lakeformat.arrow.result_table import to_frame
from lakeformat.codec.timeline_files.recovery import decode_restore, decode_rollback
from lakeformat.display import cut_text, html_rows, text_rows
from lakeformat.model.commit import CommitMetadata
from lakeformat.model.instant import Action, Instant, State
from lakeformat.public import OneLine, public
from lakeformat.timeline.archive import ArchivedTimeline
from lakeformat.timeline.store import TimelineStore
from lakeformat.timeline.versions import join_commit_times
from lakeformat.timeline.write_report import format_steps, format_summary, read_report

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["DEDUPE", "STATEMENT_KEY", "VERB_KEY", "History", "HistoryEntry", "read_history", "shown_entries"]

#: Key of a commit's extra metadata: the text of the SQL statement that made the commit.
STATEMENT_KEY: Final = "lakeformat.statement"
#: Key of a commit's extra metadata: the verb that made the commit, such as ``update``.
VERB_KEY: Final = "lakeformat.verb"
#: The verb of a commit that removed duplicate keys. Its operation is Hudi's clustering.
DEDUPE: Final = "dedupe"
#: Verbs that the history shows in place of the commit's operation. For example, an update has the operation ``upsert``.
_VERBS: Final = frozenset({"update", "delete", "merge", DEDUPE})
_ACTIONS: Final = (Action.CLEAN, Action.ROLLBACK, Action.RESTORE, Action.SAVEPOINT)


@public
@dataclass(frozen=True, slots=True, repr=False)
class HistoryEntry(OneLine):
    """One completed commit, or one clean, rollback, restore or savepoint.

    Attributes:
        instant_time: The instant time. For a savepoint it is the time of the commit that the savepoint protects.
        action: The action on the timeline: ``commit``, ``deltacommit``, ``replacecommit``, ``clean`` ...
        operation: For a commit, its operation or verb: ``upsert``, ``insert``, ``update``, ``delete``, ``merge`` ... or
            the operation that another writer stored. For another entry, its action.
        rows_written: Number of rows in the files that the commit wrote; 0 if the entry is not a commit.
        files_written: Number of files that the commit wrote; 0 if the entry is not a commit.
        report: Counts and times of the write's steps; None if the commit is another program's.
        statement: The SQL statement that made the commit; "" if there was none or it was not stored.
        detail: The result of a clean, rollback, restore or savepoint, in words; "" for commits and archived entries.
        version: For a commit, its number, which ``as_of`` and ``restore`` take: commits are numbered from 0, oldest
            first. None for another entry.
    """

    instant_time: str
    action: str
    operation: str
    rows_written: int
    files_written: int
    report: Mapping[str, Any] | None
    statement: str = ""
    detail: str = ""
    version: int | None = None

    @property
    def is_commit(self) -> bool:
        """Tell whether the entry is a commit; if not, it is a clean, rollback, restore or savepoint."""
        return self.action not in {action.value for action in _ACTIONS}

    def __str__(self) -> str:
        if not self.is_commit:
            return f"{self.operation} {self.instant_time}" + (f": {self.detail}" if self.detail else "")
        if self.report:
            return format_summary(self.instant_time, self.operation, self.report)
        return f"{self.operation} {self.instant_time}: rows {self.rows_written:,}; files {self.files_written:,}"

    def describe(self) -> str:
        """Return a line for the entry, its SQL statement if there is one, and a line per step of the report."""
        statement = [f"  {' '.join(self.statement.split())}"] if self.statement else []
        steps = [format_steps(self.report["steps"])] if self.report else []
        return "\n".join([str(self), *statement, *steps])


@public
class History(list[HistoryEntry]):
    """A list of entries, newest first, which prints as a table.

    Attributes:
        others: Maps each action to its number of instants on the active timeline that are not in the list.
    """

    def __init__(self, entries: Iterable[HistoryEntry] = (), others: Mapping[str, int] | None = None) -> None:
        super().__init__(entries)
        self.others = dict(others or {})

    def __repr__(self) -> str:
        if not self:
            return self._head
        more = len(self) - _SHOWN
        note = f"… {more:,} older {'entry' if more == 1 else 'entries'}" if more > 0 else ""
        return f"{self._head}\n{text_rows(*shown_entries(self[:_SHOWN], _DETAIL), note=note)}"

    __str__ = __repr__

    def _repr_html_(self) -> str:
        return html_rows(*shown_entries(self, _LONG_DETAIL), caption=self._head)

    @property
    def _head(self) -> str:
        newest = f", newest {self[0].operation} {self[0].instant_time}" if self else ""
        others = ", ".join(f"{count:,} {what}{'s' * (count != 1)}" for what, count in self.others.items())
        more = f"; {others} with history(actions=True)" if others else ""
        return f"History({len(self):,} {'entry' if len(self) == 1 else 'entries'}{newest}{more})"

    def to_arrow(self) -> pa.Table:
        """Return the entries as an Arrow table. ``detail`` has the statement of a commit if there is one."""
        columns = zip(*map(_row, self), strict=True) if self else [()] * len(_SCHEMA)
        return pa.table(
            [pa.array(list(column), kind) for column, kind in zip(columns, _SCHEMA.types, strict=True)], _SCHEMA
        )

    def to_pandas(self) -> pd.DataFrame:
        """Return the entries as a pandas frame; see `to_arrow`."""
        return to_frame(self.to_arrow())


#: Number of entries that a shell shows; and of characters of a detail, in a shell and in a notebook.
_SHOWN, _DETAIL, _LONG_DETAIL = 30, 60, 400
_SCHEMA: Final = pa.schema(
    [
        ("version", pa.int64()),
        ("instant_time", pa.string()),
        ("operation", pa.string()),
        ("inserted", pa.int64()),
        ("updated", pa.int64()),
        ("deleted", pa.int64()),
        ("rows_written", pa.int64()),
        ("files_written", pa.int64()),
        ("seconds", pa.float64()),
        ("detail", pa.string()),
    ]
)
#: The headings of these columns where people look.
_NAMES: Final = (
    *("version", "instant", "operation", "inserted", "updated", "deleted", "rows written", "files", "seconds"),
    "what",
)


def shown_entries(entries: Iterable[HistoryEntry], most: int) -> tuple[Sequence[str], list[tuple[Any, ...]]]:
    """Return the headings and the rows for people. If no entry has a detail, its column is left out.

    Args:
        most: characters of a detail that are shown.
    """
    rows = [(*row[:-1], cut_text(row[-1], most)) for row in map(_row, entries)]
    wide = len(_NAMES) - (not any(row[-1] for row in rows))
    return _NAMES[:wide], [row[:wide] for row in rows]


def _row(entry: HistoryEntry) -> tuple[Any, ...]:
    """Return the values of an entry for `_SCHEMA`."""
    written = (entry.rows_written, entry.files_written) if entry.is_commit else (None, None)
    words = " ".join((entry.statement or entry.detail).split())
    first, last = (entry.version, entry.instant_time, entry.operation), (_seconds(entry), words)
    return (*first, *_counts(entry), *written, *last)


def _counts(entry: HistoryEntry) -> tuple[Any, ...]:
    rows = (entry.report or {}).get("rows", {})
    counts = (rows.get(name) for name in ("inserted", "updated", "deleted"))
    return tuple(int(count) if _is_number(count) else None for count in counts)


def _seconds(entry: HistoryEntry) -> float | None:
    seconds = (entry.report or {}).get("seconds")
    return float(seconds) if _is_number(seconds) else None


def _is_number(value: object) -> TypeGuard[int | float]:
    return isinstance(value, int | float) and not isinstance(value, bool)


def read_history(store: TimelineStore, limit: int | None = None, *, actions: bool = False) -> History:
    """Read completed commits, newest first: those on the active timeline, then those that have been archived.

    Args:
        limit: Maximum number of entries; None for all. Archived commits are decoded only if the active timeline has
            fewer. Their times are always read, because they count in the numbers of the versions.
        actions: Whether to list cleans, rollbacks, restores and savepoints too.
    """
    timeline = store.load()
    archive = store.read_archived()
    archived = archive.completed_in("")
    completed = [i for i in timeline.instants if i.state is State.COMPLETED and i.action in _ACTIONS]
    active = sorted([*timeline.commits, *(completed if actions else ())], key=_order, reverse=True)[:limit]
    entries = [_active_entry(store, instant) for instant in active]
    if limit is None or len(entries) < limit:
        remaining = None if limit is None else limit - len(entries)
        older = [instant for instant in archived if instant.time not in timeline.commit_times]
        entries += _archived_entries(archive, older, remaining, completed if actions else None)
    versions = {time: version for version, time in enumerate(join_commit_times(timeline, archived))}
    entries = [replace(entry, version=versions[entry.instant_time]) if entry.is_commit else entry for entry in entries]
    counts = {action.value: sum(i.action is action for i in completed) for action in _ACTIONS}
    return History(entries, {} if actions else {name: count for name, count in counts.items() if count})


def _order(instant: Instant) -> tuple[str, bool]:
    """Return a sort key by time. A savepoint follows its commit, which has the same time."""
    return instant.time, instant.action is Action.SAVEPOINT


def _active_entry(store: TimelineStore, instant: Instant) -> HistoryEntry:
    if instant.action in _ACTIONS:
        return _other_entry(instant, _describe_detail(store, instant))
    return _entry(instant, store.read_commit(instant))


def _archived_entries(
    archive: ArchivedTimeline, older: list[Instant], limit: int | None, completed: Collection[Instant] | None
) -> list[HistoryEntry]:
    """Read archived entries. For actions that are not commits, the archive has no details.

    Args:
        older: Commits that are only in the archive.
        completed: Completed actions on the active timeline that are not commits; None to list only commits.
    """
    if completed is not None:
        known_pairs = {(instant.time, instant.action) for instant in completed}
        older = older + [
            instant for instant in archive.of_actions(_ACTIONS) if (instant.time, instant.action) not in known_pairs
        ]
    older = sorted(older, key=_order, reverse=True)[:limit]
    commits = [instant for instant in older if instant.action not in _ACTIONS]
    entries = {instant.time: _entry(instant, metadata) for instant, metadata in archive.commits(commits)}
    return [_other_entry(instant) if instant.action in _ACTIONS else entries[instant.time] for instant in older]


def _entry(instant: Instant, metadata: CommitMetadata) -> HistoryEntry:
    stats = list(metadata.all_stats())
    statement = metadata.extra.get(STATEMENT_KEY, "")
    words = statement.split(maxsplit=1)
    verb = words[0].lower() if words else metadata.extra.get(VERB_KEY, "")
    return HistoryEntry(
        instant.time,
        instant.action.value,
        verb if verb in _VERBS else metadata.operation.lower(),
        sum(stat.num_writes for stat in stats),
        len(stats),
        read_report(metadata.extra),
        statement,
    )


def _other_entry(instant: Instant, detail: str = "") -> HistoryEntry:
    return HistoryEntry(instant.time, instant.action.value, instant.action.value, 0, 0, None, "", detail)


def _describe_detail(store: TimelineStore, instant: Instant) -> str:
    """Describe what a clean, rollback, restore or savepoint did."""
    name = f"{store.storage.location}/{store.path(instant)}"
    match instant.action:
        case Action.CLEAN:
            cleaned = store.read_clean(instant)
            files = sum(len(partition.deleted) for partition in cleaned.partitions) if cleaned else 0
            earliest = cleaned.earliest_commit_to_retain if cleaned else ""
            return f"{files:,} files deleted" + (f"; commits from {earliest} on are kept" if earliest else "")
        case Action.ROLLBACK:
            undone = decode_rollback(store.read(instant), name=name).instants
            return f"undid {', '.join(time for time, _ in undone)}"
        case Action.RESTORE:
            plan = store.read_restore_plan(instant)
            times = decode_restore(store.read(instant), name=name).instants
            back = f"back to {plan.target}; " if plan is not None and plan.target else ""
            return f"{back}undid {', '.join(times)}"
    saved = store.read_savepoint(instant)
    return ": ".join(filter(None, ("keeps this commit", " ".join(filter(None, (saved.saved_by, saved.comments))))))
