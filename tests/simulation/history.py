"""A checker of histories: the answers that writers got and what readers saw, against the commits of the table.

Each operation writes its own token: it appends the token to the values of keys, sets values to it, or deletes keys. So
the value of a key tells which operations made it, in which order. The commits in their order give the content of the
table after each of them. A history is right if every reader saw one of these contents, at the right time, and if each
writer got a true answer about its commit.

A writer that got no answer (killed, or `CommitStateUnknownError`) may have committed or not.
"""

from __future__ import annotations

import bisect
import enum
import itertools
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

__all__ = ["Action", "Anomaly", "Commit", "History", "Kind", "Operation", "Outcome", "Read", "find_anomalies"]


class Outcome(str, enum.Enum):
    """The answer that the writer got."""

    ACKNOWLEDGED = "acknowledged"
    REFUSED = "refused"
    UNKNOWN = "unknown"


class Action(str, enum.Enum):
    """What an operation does with its keys."""

    APPEND = "append"
    SET = "set"
    DELETE = "delete"


@dataclass(frozen=True)
class Operation:
    """One write. Its name is its token.

    Attributes:
        began, ended: times by one clock; ``ended`` is infinite if the writer was killed.
        instant: the instant of its commit; None if it was not acknowledged, or had nothing to do.
    """

    name: str
    action: Action
    keys: tuple[str, ...]
    began: float
    ended: float
    outcome: Outcome
    instant: str | None = None


@dataclass(frozen=True)
class Commit:
    """A completed commit. Commits are given in the order in which they became visible.

    Attributes:
        operation: name of the operation that made it; None if it changes no rows, such as a clustering.
        visible: time at which readers see it; None if that is not known.
        undone: time at which a restore or rollback has removed it; None if none has.
    """

    instant: str
    completion: str
    operation: str | None = None
    visible: float | None = None
    undone: float | None = None


@dataclass(frozen=True)
class Read:
    """One read of the whole table: (key, value) of all rows. Reads of one reader are given in their order."""

    reader: str
    began: float
    ended: float
    rows: tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class History:
    """All that happened to one table, and its content before."""

    initial: Mapping[str, str]
    operations: Sequence[Operation]
    commits: Sequence[Commit]
    reads: Sequence[Read] = ()


class Kind(str, enum.Enum):
    """The kinds of anomalies."""

    NOT_VISIBLE = "acknowledged but not visible"
    REFUSED_VISIBLE = "refused but visible"
    DOUBLED = "an operation committed twice"
    TWO_FILES = "an instant completed twice"
    TIMES = "completion times not unique or not rising"
    DUPLICATE_KEY = "a key twice"
    LOST_KEY = "a key lost"
    LOST_UPDATE = "lost update"
    ABORTED_READ = "aborted read"
    INTERMEDIATE_READ = "intermediate read"
    WENT_BACK = "a reader went back"
    STALE_READ = "a read misses an acknowledged commit"
    UNEXPLAINED = "a content that no order of commits explains"


@dataclass(frozen=True)
class Anomaly:
    """One violation."""

    kind: Kind
    text: str

    def __str__(self) -> str:
        return f"{self.kind.value}: {self.text}"


END: Final = ";"


def find_anomalies(history: History) -> list[Anomaly]:
    """Check a history. Return all violations; an empty list if there is none."""
    return [*_check_commits(history), *_check_reads(history)]


def apply(content: dict[str, str], operation: Operation) -> dict[str, str]:
    """Return the content after an operation."""
    result, token = dict(content), operation.name + END
    for key in operation.keys:
        if operation.action is Action.SET:
            result[key] = token
        elif operation.action is Action.DELETE:
            result.pop(key, None)
        elif key in result:
            result[key] += token
    return result


# --- writers ----------------------------------------------------------------------------------------------


def _check_commits(history: History) -> list[Anomaly]:
    found: list[Anomaly] = []
    counts = Counter(commit.operation for commit in history.commits if commit.operation)
    lasting = Counter(commit.operation for commit in history.commits if commit.operation and commit.undone is None)
    instants = Counter(commit.instant for commit in history.commits)
    for operation in history.operations:
        is_there = counts[operation.name] > 0
        is_acknowledged = operation.outcome is Outcome.ACKNOWLEDGED and operation.instant is not None
        if is_acknowledged and not is_there:
            found.append(Anomaly(Kind.NOT_VISIBLE, f"{operation.name} as {operation.instant}"))
        if operation.outcome is Outcome.REFUSED and lasting[operation.name]:
            found.append(Anomaly(Kind.REFUSED_VISIBLE, operation.name))
    found += [Anomaly(Kind.DOUBLED, name) for name, count in lasting.items() if count > 1]
    found += [Anomaly(Kind.TWO_FILES, instant) for instant, count in instants.items() if count > 1]
    ends = [commit.completion for commit in history.commits if commit.completion]
    found += [
        Anomaly(Kind.TIMES, f"{end} follows {before}") for before, end in itertools.pairwise(ends) if end <= before
    ]
    return found


# --- readers ----------------------------------------------------------------------------------------------


@dataclass
class _Contents:
    """The contents of the table: one at the beginning, and one after each commit and each undo.

    Attributes:
        times: the time from which each content is visible; None if it is not known.
        last: the operation whose commit made each content.
    """

    states: list[dict[str, str]] = field(default_factory=list)
    times: list[float | None] = field(default_factory=list)
    last: list[str | None] = field(default_factory=list)


def _make_contents(history: History) -> _Contents:
    operations = {operation.name: operation for operation in history.operations}
    contents = _Contents([dict(history.initial)], [float("-inf")], [None])
    events: list[tuple[float, int, Commit, bool]] = []
    clock = float("-inf")
    for at, commit in enumerate(history.commits):
        clock = clock if commit.visible is None else commit.visible
        events.append((clock, at, commit, False))
        if commit.undone is not None:
            events.append((commit.undone, at, commit, True))
    events.sort(key=lambda event: (event[0], event[3], event[1]))
    live: dict[int, Commit] = {}
    for time, at, commit, is_undo in events:
        if is_undo:
            live.pop(at, None)
        else:
            live[at] = commit
        if is_undo:
            state = dict(history.initial)
            for position in sorted(live):
                known = operations.get(live[position].operation or "")
                state = apply(state, known) if known else state
        else:
            known = operations.get(commit.operation or "")
            state = apply(contents.states[-1], known) if known else contents.states[-1]
        if is_undo and contents.times[-1] == time and contents.last[-1] == "":
            contents.states[-1] = state  # A restore undoes several commits at once.
            continue
        contents.states.append(state)
        contents.times.append(None if commit.visible is None else time)
        contents.last.append("" if is_undo else commit.operation)
    return contents


def _check_reads(history: History) -> list[Anomaly]:
    contents = _make_contents(history)
    newest: dict[str, int] = {}
    found: list[Anomaly] = []
    for read in history.reads:
        doubled = [key for key, count in Counter(key for key, _ in read.rows).items() if count > 1]
        if doubled:
            found.append(Anomaly(Kind.DUPLICATE_KEY, f"{', '.join(doubled)} read by {read.reader} at {read.began:g}"))
            continue
        rows = dict(read.rows)
        first, last = _range_of(read, history, contents)
        possible = [at for at in range(first, last + 1) if contents.states[at] == rows]
        since = newest.get(read.reader, 0)
        if possible and possible[-1] >= since:
            newest[read.reader] = next(at for at in possible if at >= since)
        else:
            found.append(_explain(read, rows, history, contents, first, last, since))
    return found


def _range_of(read: Read, history: History, contents: _Contents) -> tuple[int, int]:
    """Return the first and the last content that the read may have seen."""
    if all(time is not None for time in contents.times):
        times = [time for time in contents.times if time is not None]
        return bisect.bisect_right(times, read.began) - 1, bisect.bisect_right(times, read.ended) - 1
    operations = {operation.name: operation for operation in history.operations}
    first, last = 0, len(contents.states) - 1
    for at, name in enumerate(contents.last):
        operation = operations.get(name or "")
        if operation is None:
            continue
        if operation.outcome is Outcome.ACKNOWLEDGED and operation.ended <= read.began:
            first = max(first, at)
        if operation.began > read.ended:
            last = min(last, at - 1)
    return first, last


def _explain(
    read: Read, rows: dict[str, str], history: History, contents: _Contents, first: int, last: int, since: int
) -> Anomaly:
    where = f"{read.reader} at {read.began:g} to {read.ended:g}"
    if rows in contents.states[first : last + 1]:
        return Anomaly(Kind.WENT_BACK, f"{where}, behind its last read (content {since})")
    if rows in contents.states[:first]:
        at = max(at for at in range(first) if contents.states[at] == rows)
        kind = Kind.WENT_BACK if since > at else Kind.STALE_READ
        return Anomaly(kind, f"{where} saw content {at} of {first}; {_difference(rows, contents.states[first])}")
    committed = {commit.operation for commit in history.commits}
    tokens = {token for value in rows.values() for token in value.split(END) if token}
    known = {operation.name: operation for operation in history.operations}
    aborted = sorted(token for token in tokens if token in known and token not in committed)
    if aborted:
        return Anomaly(Kind.ABORTED_READ, f"{where} saw {', '.join(aborted)}, which is not committed")
    return _explain_content(where, rows, known, contents, last)


def _explain_content(
    where: str, rows: dict[str, str], known: Mapping[str, Operation], contents: _Contents, last: int
) -> Anomaly:
    """Compare with the newest content that the read may have seen."""
    expected = contents.states[last]
    text = f"{where}: {_difference(rows, expected)}"
    if missing := sorted(expected.keys() - rows.keys()):
        return Anomaly(Kind.LOST_KEY, f"{', '.join(missing)}; {text}")
    for name, operation in known.items():
        seen = [key for key in operation.keys if name in rows.get(key, "").split(END)]
        due = [key for key in operation.keys if name in expected.get(key, "").split(END)]
        if operation.action is not Action.DELETE and set(due) - set(seen):
            kind = Kind.INTERMEDIATE_READ if seen else Kind.LOST_UPDATE
            return Anomaly(kind, f"{name} is missing in {', '.join(sorted(set(due) - set(seen)))}; {text}")
    return Anomaly(Kind.UNEXPLAINED, text)


def _difference(rows: Mapping[str, str], expected: Mapping[str, str]) -> str:
    different = sorted(key for key in {*rows, *expected} if rows.get(key) != expected.get(key))
    return "; ".join(f"{key} is {rows.get(key)!r}, not {expected.get(key)!r}" for key in different[:4])
