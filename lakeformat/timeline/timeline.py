"""The timeline as a value: all active instants of a table, and what may be asked of them."""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property

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

__all__ = ["Timeline"]


@dataclass(frozen=True)
class Timeline:
    """Active instants, oldest first, each in its furthest state.

    Attributes:
        archive: a mark that changes whenever instants are archived, "" while none ever was; None if nobody looked.
        plans: of commits that stem from a plan (a compaction, a clustering), the plan's own pending instants.
        layout: by which files the instants were found.
    """

    instants: tuple[Instant, ...]
    archive: str | None = None
    plans: tuple[Instant, ...] = ()
    layout: TimelineLayout = LAYOUT_1

    @classmethod
    def of_file_names(
        cls, names: Iterable[str], archive: str | None = None, layout: TimelineLayout = LAYOUT_1
    ) -> Timeline:
        """From the names in the timeline's folder; files that are no instants are passed over."""
        furthest: dict[tuple[str, Action], Instant] = {}
        for name in names:
            instant = layout.parse(name)
            if instant is None:
                continue
            known = furthest.get((instant.time, instant.action))
            if known is None or instant.state > known.state:
                furthest[instant.time, instant.action] = instant
        # A plan completes as a commit of the same time: its pending files then say nothing more.
        completed = {i.time for i in furthest.values() if i.state is State.COMPLETED and i.action in COMMIT_ACTIONS}
        found = sorted(furthest.values(), key=lambda i: (i.time, i.action.value))
        plans = tuple(i for i in found if i.action in COMPLETES_AS and i.time in completed)
        said = frozenset(plans)
        return cls(tuple(i for i in found if i not in said), archive, plans, layout)

    @cached_property
    def commits(self) -> tuple[Instant, ...]:
        """Completed commits, deltacommits and replacecommits, oldest first by when they were requested."""
        return tuple(i for i in self.instants if i.state is State.COMPLETED and i.action in COMMIT_ACTIONS)

    @cached_property
    def pending(self) -> tuple[Instant, ...]:
        """Everything not completed, oldest first."""
        return tuple(i for i in self.instants if i.state is not State.COMPLETED)

    @cached_property
    def pending_writes(self) -> tuple[Instant, ...]:
        """Those of `pending` that complete as commits."""
        return tuple(i for i in self.pending if i.action in WRITE_ACTIONS)

    @cached_property
    def commit_times(self) -> frozenset[str]:
        """Times of `commits`."""
        return frozenset(i.time for i in self.commits)

    @cached_property
    def oldest_write(self) -> str | None:
        """Time of the oldest write, but for those held by savepoints: of what came after them some may be archived.

        Hudi: ``HoodieTimeline.getFirstNonSavepointCommit``.
        """
        writes = [i.time for i in self.instants if i.action in WRITE_ACTIONS]
        held = {i.time for i in self.instants if i.action is Action.SAVEPOINT}
        return min((time for time in writes if time not in held), default=min(writes, default=None))

    @cached_property
    def _completions(self) -> Mapping[str, str]:
        return {i.time: i.completed_at for i in self.commits}

    @property
    def newest_time(self) -> str | None:
        """The greatest instant time of all, pending ones included."""
        return max((i.time for i in self.instants), default=None)

    @property
    def last_time(self) -> str | None:
        """The greatest of all instant and completion times: whatever comes next must be later."""
        return max((i.completed_at for i in self.instants), default=None)

    def is_committed(self, instant_time: str) -> bool:
        """Whether files of this instant count: completed here, or older than all that is active (archived).

        Hudi: ``HoodieTimeline.containsOrBeforeTimelineStarts``.
        """
        if instant_time in self.commit_times:
            return True
        return self.oldest_write is not None and instant_time < self.oldest_write

    def visible(self, until: str | None) -> VisibleInstants:
        """Of which instants blocks of log files count, up to and including one."""
        cut = self if until is None else self.as_of(until)
        return VisibleInstants(cut.commit_times, cut.oldest_write or "")

    def completion_time(self, instant_time: str) -> str | None:
        """When a commit completed: its own time in layout 1; None if it is pending or archived."""
        return self._completions.get(instant_time)

    def completed_in(self, after: str, until: str | None = None) -> tuple[Instant, ...]:
        """Commits completed in (after, until], in that order: what an incremental query asks for.

        Bounds are completion times in layout 2, instant times in layout 1, compared as text.
        """
        found = (i for i in self.commits if after < i.completed_at and (until is None or i.completed_at <= until))
        return tuple(sorted(found, key=lambda i: (i.completed_at, i.time)))

    def hollow_commit(self, plans: Container[str] = ()) -> Instant | None:
        """The oldest pending commit that a completed one has overtaken: a range read past it would never show it.

        None in layout 2, whose ranges go by completion times. Hudi: ``TimelineUtils.handleHollowCommitIfNeeded``.

        Args:
            plans: times of pending clustering plans, which count for nothing.
        """
        newest = max(self.commit_times, default="")
        writes = (i for i in self.pending if i.action in COMMIT_ACTIONS and i.time not in plans and i.time < newest)
        return None if self.layout.tells_completion else next(writes, None)

    def as_of(self, instant_time: str) -> Timeline:
        """Only what had a time up to and including this one: time travel goes by instant times in both layouts."""
        return replace(
            self,
            instants=tuple(i for i in self.instants if i.time <= instant_time),
            plans=tuple(i for i in self.plans if i.time <= instant_time),
            archive=None,
        )

    def without(self, times: frozenset[str]) -> Timeline:
        """As it was before the commits of these times completed: they stand as pending, plans as plans."""
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
        """As it will be when a pending commit has completed; it says nothing of when that is."""
        done = (
            i.at(State.COMPLETED) if i.time == instant_time and i.action in COMMIT_ACTIONS else i for i in self.instants
        )
        return replace(self, instants=tuple(done))

    def completed_since(self, known: frozenset[str]) -> tuple[Instant, ...]:
        """Commits completed now that were not among ``known``; their times may be older than ours."""
        return tuple(i for i in self.commits if i.time not in known)

    def of_action(self, action: Action) -> tuple[Instant, ...]:
        """Instants of one action, oldest first."""
        return tuple(i for i in self.instants if i.action is action)

    def find(self, instant_time: str) -> Instant | None:
        """The commit-like instant of a time, in its furthest state."""
        return next((i for i in self.instants if i.time == instant_time and i.action in WRITE_ACTIONS), None)
