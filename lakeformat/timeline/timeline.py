"""The timeline as an immutable value: all active instants of a table, with methods that search them."""

from __future__ import annotations

from collections.abc import Collection, Container, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Final

from lakeformat.model.instant import (
    COMMIT_ACTIONS,
    COMPLETES_AS,
    WRITE_ACTIONS,
    Action,
    Instant,
    State,
    VisibleInstants,
)
from lakeformat.timeline.timeline_layout import LAYOUT_1, TimelineLayout

__all__ = ["NOW", "LastTimeline", "TableState", "Timeline"]


@dataclass(frozen=True)
class Timeline:
    """The active instants, each once in its latest state (requested, inflight, completed).

    Attributes:
        instants: The instants, oldest first.
        archive: A digest of the archive's listing, which changes whenever instants are archived; "" if there are no
            archived instants, None if the archive was not listed.
        plans: Requested or inflight compactions and clusterings that have completed as commits of the same time.
        layout: Layout of the timeline's files.
        voids: Void commits (`lakeformat.timeline.void_commits`): completed files of undone commits, which are not
            commits. They are not in ``instants``.
    """

    instants: tuple[Instant, ...]
    archive: str | None = None
    plans: tuple[Instant, ...] = ()
    layout: TimelineLayout = LAYOUT_1
    voids: tuple[Instant, ...] = ()

    @classmethod
    def of_file_names(
        cls, names: Iterable[str], archive: str | None = None, layout: TimelineLayout = LAYOUT_1
    ) -> Timeline:
        """Make the timeline from the file names in the timeline's folder. Ignore files that are not instants."""
        return cls((), layout=layout).with_file_names(names, archive)

    def with_file_names(self, names: Iterable[str], archive: str | None) -> Timeline:
        """Return the timeline with further files, and with another `archive`. Ignore files that are not instants."""
        furthest = {(i.time, i.action._value_): i for i in (*self.instants, *self.plans)}
        parse = self.layout.parse
        for name in names:
            instant = parse(name)
            if instant is None:
                continue
            key = instant.time, instant.action._value_
            seen = furthest.get(key)
            if seen is None or instant.state > seen.state:
                furthest[key] = instant
            elif instant.state == seen.state and instant.completed_at < seen.completed_at:
                furthest[key] = instant  # Completed twice: the first one counts, in whichever order they are read.
        # A compaction or clustering completes as a commit of the same time. Its requested and inflight files remain,
        # but it is no longer pending.
        instants = [furthest[key] for key in sorted(furthest)]
        completed = {i.time for i in instants if i.state is State.COMPLETED and i.action in COMMIT_ACTIONS}
        plans = tuple(i for i in instants if i.action in COMPLETES_AS and i.time in completed)
        others = [i for i in instants if i not in plans] if plans else instants
        return Timeline(tuple(others), archive, plans, self.layout)

    @cached_property
    def commits(self) -> tuple[Instant, ...]:
        """Return completed commits, deltacommits and replacecommits, oldest first by instant time."""
        return tuple(i for i in self.instants if i.state is State.COMPLETED and i.action in COMMIT_ACTIONS)

    @cached_property
    def pending(self) -> tuple[Instant, ...]:
        """Return all requested and inflight instants, oldest first."""
        return tuple(i for i in self.instants if i.state is not State.COMPLETED)

    @cached_property
    def pending_writes(self) -> tuple[Instant, ...]:
        """Return the pending instants that complete as commits."""
        return tuple(i for i in self.pending if i.action in WRITE_ACTIONS)

    @property
    def is_being_undone(self) -> bool:
        """Tell whether a rollback or restore is pending."""
        return any(i.action in {Action.ROLLBACK, Action.RESTORE} for i in self.pending)

    @property
    def has_writes(self) -> bool:
        """Tell whether there is a commit, completed or pending. A first write that failed leaves a table without."""
        return bool(self.commits or self.pending_writes)

    @cached_property
    def commit_times(self) -> frozenset[str]:
        """Return the times of `commits`."""
        return frozenset(i.time for i in self.commits)

    @cached_property
    def oldest_write(self) -> str | None:
        """Return the time of the oldest write without a savepoint, or of the oldest write if all have savepoints.

        Writes after a savepoint may be archived, but all writes from this time on are active. A void commit counts as a
        write, so that it is never older than this time. None if there are no writes.
        Hudi: ``HoodieTimeline.getFirstNonSavepointCommit``.
        """
        writes = [i.time for i in (*self.instants, *self.voids) if i.action in WRITE_ACTIONS]
        held = {i.time for i in self.instants if i.action is Action.SAVEPOINT}
        return min((time for time in writes if time not in held), default=min(writes, default=None))

    @cached_property
    def _completions(self) -> Mapping[str, str]:
        return {i.time: i.completed_at for i in self.commits}

    @property
    def newest_time(self) -> str | None:
        """Return the greatest instant time, including pending instants and void commits."""
        return max((i.time for i in (*self.instants, *self.voids)), default=None)

    @property
    def last_time(self) -> str | None:
        """Return the greatest of all instant and completion times, or None. The next instant time must be later."""
        return max((i.completed_at for i in (*self.instants, *self.voids)), default=None)

    @cached_property
    def taken_times(self) -> frozenset[str]:
        """Return the times of all instants, including void commits: no new instant may have one of them."""
        return frozenset(i.time for i in (*self.instants, *self.plans, *self.voids))

    def is_committed(self, instant_time: str) -> bool:
        """Tell whether files of this instant are valid: it is a completed commit, or older than `oldest_write`.

        An instant older than `oldest_write` is archived, and only completed writes are archived.

        Hudi: ``HoodieTimeline.containsOrBeforeTimelineStarts``.
        """
        if instant_time in self.commit_times:
            return True
        return self.oldest_write is not None and instant_time < self.oldest_write

    def visible(self, until: str | None) -> VisibleInstants:
        """Return the instants whose log blocks a reader must read.

        Args:
            until: the last instant time to include; None for no limit.
        """
        cut = self if until is None else self.as_of(until)
        return VisibleInstants(cut.commit_times, cut.oldest_write or "")

    def completion_time(self, instant_time: str) -> str | None:
        """Return the completion time of a commit (in layout 1 its instant time); None if it is pending or archived."""
        return self._completions.get(instant_time)

    def completed_in(self, after: str, until: str | None = None) -> tuple[Instant, ...]:
        """Return the commits completed after ``after``, up to and including ``until``, ordered by completion time.

        This is the range of an incremental query. ``until=None`` means no upper bound.

        Bounds are completion times in layout 2 and instant times in layout 1. They are compared as text.
        """
        commits = (i for i in self.commits if after < i.completed_at and (until is None or i.completed_at <= until))
        return tuple(sorted(commits, key=lambda i: (i.completed_at, i.time)))

    def hollow_commit(self, plans: Container[str] = ()) -> Instant | None:
        """Return the oldest pending commit that is older than a completed commit; None if there is none.

        An incremental query must not read past such a commit. When the commit completes, its time lies before the start
        of the next query's range, so no query would return its rows. In layout 2 the result is always None, because
        ranges use completion times. Hudi: ``TimelineUtils.handleHollowCommitIfNeeded``.

        Args:
            plans: Instant times of pending clusterings, which are not returned.
        """
        newest = max(self.commit_times, default="")
        writes = (i for i in self.pending if i.action in COMMIT_ACTIONS and i.time not in plans and i.time < newest)
        return None if self.layout.has_completion_times else next(writes, None)

    def as_of(self, instant_time: str) -> Timeline:
        """Return the timeline with only the instants up to and including this time.

        Time travel uses instant times in both layouts.
        """
        return replace(
            self,
            instants=tuple(i for i in self.instants if i.time <= instant_time),
            plans=tuple(i for i in self.plans if i.time <= instant_time),
            archive=None,
            voids=tuple(i for i in self.voids if i.time <= instant_time),
        )

    def without(self, gone: Collection[Instant]) -> Timeline:
        """Return the timeline without some instants or void commits."""
        instants, voids = (tuple(i for i in group if i not in gone) for group in (self.instants, self.voids))
        return replace(self, instants=instants, voids=voids)

    def with_voids(self, times: frozenset[str]) -> Timeline:
        """Return the timeline with the completed commits of these times as void commits."""
        if not times:
            return self
        voids = tuple(i for i in self.commits if i.time in times)
        return replace(self, instants=tuple(i for i in self.instants if i not in voids), voids=voids)

    def with_pending(self, times: frozenset[str]) -> Timeline:
        """Return the timeline as it was before the writes of these times completed.

        These writes become inflight. A write that completed a plan becomes the pending plan again.
        """
        if not times:
            return self
        planned = {i.time: i for i in self.plans if i.time in times}
        late = (i.time in times and i.action in WRITE_ACTIONS for i in self.instants)
        instants = (
            planned.get(i.time, i.at(State.INFLIGHT)) if is_late else i
            for i, is_late in zip(self.instants, late, strict=True)
        )
        return replace(self, instants=tuple(instants), plans=tuple(i for i in self.plans if i.time not in planned))

    def with_completed(self, instant_time: str) -> Timeline:
        """Return the timeline as if the pending commit of this time were completed, without a completion time."""
        done = (
            i.at(State.COMPLETED) if i.time == instant_time and i.action in COMMIT_ACTIONS else i for i in self.instants
        )
        return replace(self, instants=tuple(done))

    def completed_since(self, known: frozenset[str]) -> tuple[Instant, ...]:
        """Return completed commits whose times are not in ``known``. They may be older than the caller's own write."""
        return tuple(i for i in self.commits if i.time not in known)

    def of_action(self, action: Action) -> tuple[Instant, ...]:
        """Return the instants of one action, oldest first."""
        return tuple(i for i in self.instants if i.action is action)

    def find(self, instant_time: str) -> Instant | None:
        """Return the write with this instant time; None if there is none."""
        return next((i for i in self.instants if i.time == instant_time and i.action in WRITE_ACTIONS), None)


@dataclass(frozen=True, slots=True)
class TableState:
    """A state of a table that a read asks for: the newest, or an earlier one.

    Attributes:
        as_of: time of the newest visible instant; None for the newest of all.
        hidden_times: times of instants that are treated as pending, even if they have completed.
    """

    as_of: str | None = None
    hidden_times: frozenset[str] = frozenset()

    def cut(self, timeline: Timeline) -> Timeline:
        """Return the timeline as it was in this state."""
        whole = timeline.with_pending(self.hidden_times)
        return whole if self.as_of is None else whole.as_of(self.as_of)


#: The newest state of a table.
NOW: Final = TableState()


class LastTimeline:
    """The timeline of the last listing, from which the next one is made: few names differ. Threads can share it."""

    def __init__(self) -> None:
        self._last: tuple[tuple[str, ...], Timeline] = (), Timeline(())

    def follow(self, names: tuple[str, ...], archive: str | None, layout: TimelineLayout) -> Timeline:
        """Return the timeline of the file names in a listing."""
        before, last = self._last
        if names == before and (last.archive, last.layout) == (archive, layout):
            return last
        added = set(names).difference(before)
        if last.layout == layout and len(names) - len(added) == len(before):  # No file is gone.
            timeline = last.with_file_names(sorted(added), archive)
        else:
            timeline = Timeline.of_file_names(names, archive, layout)
        self._last = names, timeline
        return timeline
