"""Lost writes: files of a commit that a later commit hides without having read them.

Hudi's table format orders the files of a file group only by time. So writes can be lost in three ways:

- Two commits rewrite one file group from the same earlier file. The later commit hides the earlier commit's rows.
- A commit replaces a file group. The group's files that this commit did not read are hidden.
- A commit ends a slice with a newer base file. The slice's log files that this commit did not read are hidden.

Conflict checks prevent this. If several processes write to storage where only one is safe, or another program ignores
the lock, it can still happen. `find_lost_writes` finds it afterwards, for ``check()``.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field

from lakeformat.errors import CorruptTableError
from lakeformat.model.commit import CommitMetadata, WriteStat
from lakeformat.model.files import BaseFileName, FileGroupId, LogFileName
from lakeformat.model.instant import Action, Instant
from lakeformat.model.service_plans import ClusteringPlan, CompactionPlan
from lakeformat.timeline.store import TimelineStore
from lakeformat.timeline.timeline import Timeline

__all__ = [
    "LostWrite",
    "ReadSlice",
    "Sources",
    "find_lost_writes",
    "list_read_slices",
    "read_plan_sources",
]


@dataclass(frozen=True, slots=True)
class LostWrite:
    """One file of a commit whose rows are not in the table.

    Attributes:
        lost_commit: instant time of the commit that wrote the file.
        hiding_commit: instant time of the commit that hides it.
        stat: the file's write stat.
    """

    group: FileGroupId
    lost_commit: str
    hiding_commit: str
    stat: WriteStat


@dataclass(frozen=True, slots=True)
class ReadSlice:
    """The file slice of one file group that a clustering or compaction plan reads.

    Attributes:
        base_instant: instant time of the slice's base file; "" if the plan does not contain it.
        log_names: bare names of its log files.
        replaces: True if the plan's commit hides the whole file group, False if only this slice and earlier ones.
    """

    base_instant: str
    log_names: frozenset[str]
    replaces: bool


#: Maps the instant time of a completed clustering or compaction to the slice that it read of each file group.
Sources = Mapping[str, Mapping[FileGroupId, ReadSlice]]


def list_read_slices(plan: ClusteringPlan | CompactionPlan) -> Mapping[FileGroupId, ReadSlice]:
    """Return a mapping of each file group of a plan to the slice that the plan reads."""
    if isinstance(plan, CompactionPlan):
        return {op.group: ReadSlice(op.base_instant, frozenset(op.log_names), replaces=False) for op in plan.operations}
    slices = (piece for group in plan.groups for piece in group.slices)
    return {piece.group: ReadSlice(_instant(piece.name), frozenset(piece.log_names), replaces=True) for piece in slices}


def _instant(base_name: str) -> str:
    name = BaseFileName.match(base_name)
    return name.instant_time if name is not None else ""


@dataclass
class _History:
    """The base and log files of one file group with their commits, and the times of the commits that replaced it."""

    bases: dict[str, WriteStat] = field(default_factory=dict)
    logs: list[tuple[Instant, WriteStat, LogFileName]] = field(default_factory=list)
    replaced: list[str] = field(default_factory=list)


def find_lost_writes(
    commits: Iterable[tuple[Instant, CommitMetadata]], sources: Sources, *, by_name: bool
) -> Iterator[LostWrite]:
    """Yield the files of these commits that another of the commits hides without having read them, by file group.

    Args:
        sources: the slices that completed plans have read.
        by_name: True if the instant in a log file's name is that of its file slice (timeline layout 1).
    """
    histories = _collect_histories(commits)
    copies = {
        (instant.time, group.partition_path, name.instant_time)
        for group, history in histories.items()
        for instant, _, name in history.logs
    }
    for group, history in sorted(histories.items()):
        plans = [(time, read_slice[group]) for time, read_slice in sources.items() if group in read_slice]
        conflicts = [*_find_forks(history), *_find_replaced_files(history, plans, by_name=by_name)]
        conflicts += _find_hidden_logs(history, plans) if by_name else _find_unread_logs(history, plans)
        kept: dict[tuple[str, str], tuple[str, WriteStat]] = {}
        for lost, by, stat in conflicts:
            # Beside a plan that resizes buckets, Hudi writes rows also to the new buckets, in log files of its instant.
            if stat.is_base or (lost, group.partition_path, by) not in copies:
                kept.setdefault((lost, stat.path), (by, stat))
        yield from (LostWrite(group, lost, by, stat) for (lost, _), (by, stat) in sorted(kept.items()))


def _collect_histories(commits: Iterable[tuple[Instant, CommitMetadata]]) -> dict[FileGroupId, _History]:
    histories: dict[FileGroupId, _History] = {}
    for instant, metadata in commits:
        for stat in metadata.all_stats():
            history = histories.setdefault(stat.group, _History())
            name = LogFileName.match(stat.path.rpartition("/")[2])
            if stat.is_base:
                history.bases[instant.time] = stat
            elif name is not None and not name.is_cdc:
                history.logs.append((instant, stat, name))
        for group in metadata.replaced_groups:
            histories.setdefault(group, _History()).replaced.append(instant.time)
    return histories


_Found = tuple[str, str, WriteStat]


def _find_forks(history: _History) -> Iterator[_Found]:
    """Find the base files of a file group whose rows are lost: its newest base file was not made from them.

    A commit names the earlier base file from which it made a new one. The newest base file, the file from which it was
    made, and so on, form a chain. Each base file outside this chain is lost. Base files older than the oldest file of
    the chain are skipped, because the commits that link them to the chain may be archived. For each lost file, yield
    its commit's time, the time of the commit that hides it, and its write stat.
    """
    bases = history.bases
    if not bases:
        return
    made_into: dict[str, str] = {}  # Maps the time of a base file to the time of the base file made from it.
    made = max(bases)
    while (before := _find_origin(bases, made)) is not None:
        made_into[before] = made
        if before not in bases:
            break
        made = before
    line = {*made_into, *made_into.values(), made}
    floor = min(line)
    for time in sorted(bases):
        if time > floor and time not in line:
            fork = _find_origin(bases, time)
            while fork in bases and fork not in line:
                fork = _find_origin(bases, fork)
            yield time, made_into.get(fork or "", max(bases)), bases[time]


def _find_origin(bases: Mapping[str, WriteStat], time: str) -> str | None:
    """Return the instant time of the base file from which the base file of this time was made.

    Return None if the base file is the first of its group, or if its commit does not name an earlier base file.
    """
    before = bases[time].prev_commit
    return before if before is not None and before.isdigit() and before < time else None


def _find_replaced_files(
    history: _History, plans: Sequence[tuple[str, ReadSlice]], *, by_name: bool
) -> Iterator[_Found]:
    """Find files of a replaced group that are newer than the replacing commit, or that its plan did not read."""
    for by in history.replaced:
        read_slice = next((read_piece for time, read_piece in plans if time == by and read_piece.replaces), None)
        since = read_slice.base_instant if read_slice else ""
        for time, stat in history.bases.items():
            if time > by or (since and since < time):
                yield time, by, stat
        for instant, stat, name in history.logs:
            is_read = read_slice is None or not since or str(name) in read_slice.log_names
            is_of_slice = name.instant_time == since if by_name else instant.completed_at > since
            if instant.time > by or (not is_read and is_of_slice):
                yield instant.time, by, stat


def _find_hidden_logs(history: _History, plans: Sequence[tuple[str, ReadSlice]]) -> Iterator[_Found]:
    """Find log files that were added to a slice after the group's next base file had ended it (layout 1)."""
    ended = {stat.prev_commit: time for time, stat in sorted(history.bases.items(), reverse=True) if stat.prev_commit}
    ended |= {
        read_slice.base_instant: time for time, read_slice in plans if not read_slice.replaces and time in history.bases
    }
    for instant, stat, name in history.logs:
        by = ended.get(name.instant_time)
        if by is not None and instant.time > by:
            yield instant.time, by, stat


def _find_unread_logs(history: _History, plans: Sequence[tuple[str, ReadSlice]]) -> Iterator[_Found]:
    """Find log files of a slice that a compaction merged without reading these files (layout 2)."""
    for by, read_slice in plans:
        if read_slice.replaces or by not in history.bases:
            continue
        for instant, stat, name in history.logs:
            if read_slice.base_instant < instant.completed_at < by and str(name) not in read_slice.log_names:
                yield instant.time, by, stat


def read_plan_sources(store: TimelineStore, timeline: Timeline, times: Collection[str]) -> Sources:
    """Return the slices that the clusterings and compactions of these instant times have read, by file group."""
    sources: dict[str, Mapping[FileGroupId, ReadSlice]] = {}
    for instant in (*timeline.commits, *timeline.plans):
        if instant.time not in times:
            continue
        with suppress(FileNotFoundError, CorruptTableError):
            if instant.action is Action.REPLACE_COMMIT:
                requested = store.read_requested_replace(instant)
                plan: ClusteringPlan | CompactionPlan | None = requested.plan if requested is not None else None
            else:
                plan = store.read_compaction_plan(instant) if instant.action is Action.COMPACTION else None
            if plan is not None:
                sources[instant.time] = list_read_slices(plan)
    return sources
