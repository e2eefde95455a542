"""The timeline as a value: all active instants of a table, and what may be asked of them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Final

from lakeformat.model.instant import COMMIT_ACTIONS, Action, Instant, State

__all__ = ["Timeline"]

#: Pending forms of what completes as a commit or replacecommit.
_WRITES_FILES: Final = COMMIT_ACTIONS | {Action.COMPACTION}


@dataclass(frozen=True)
class Timeline:
    """Active instants, oldest first, each in its furthest state.

    Attributes:
        archive: a mark that changes whenever instants are archived, "" while none ever was; None if nobody looked.
    """

    instants: tuple[Instant, ...]
    archive: str | None = None

    @classmethod
    def of_file_names(cls, names: Iterable[str], archive: str | None = None) -> Timeline:
        """From the names in the ``.hoodie`` folder; files that are no instants are passed over."""
        furthest: dict[tuple[str, Action], Instant] = {}
        for name in names:
            instant = Instant.parse(name)
            if instant is None:
                continue
            known = furthest.get((instant.time, instant.action))
            if known is None or instant.state > known.state:
                furthest[instant.time, instant.action] = instant
        # A compaction completes as a commit of the same time: its pending files then say nothing more.
        completed = {i.time for i in furthest.values() if i.state is State.COMPLETED and i.action in COMMIT_ACTIONS}
        kept = (i for i in furthest.values() if i.action is not Action.COMPACTION or i.time not in completed)
        return cls(tuple(sorted(kept, key=lambda i: (i.time, i.action.value))), archive)

    @cached_property
    def commits(self) -> tuple[Instant, ...]:
        """Completed commits, deltacommits and replacecommits, oldest first."""
        return tuple(i for i in self.instants if i.state is State.COMPLETED and i.action in COMMIT_ACTIONS)

    @cached_property
    def pending(self) -> tuple[Instant, ...]:
        """Everything not completed, oldest first."""
        return tuple(i for i in self.instants if i.state is not State.COMPLETED)

    @cached_property
    def pending_writes(self) -> tuple[Instant, ...]:
        """Those of `pending` that complete as commits."""
        return tuple(i for i in self.pending if i.action in _WRITES_FILES)

    @cached_property
    def commit_times(self) -> frozenset[str]:
        """Times of `commits`."""
        return frozenset(i.time for i in self.commits)

    @cached_property
    def _first_write(self) -> str | None:
        return min((i.time for i in self.instants if i.action in _WRITES_FILES), default=None)

    @property
    def newest_time(self) -> str | None:
        """The greatest instant time of all, pending ones included."""
        return max((i.time for i in self.instants), default=None)

    def is_committed(self, instant_time: str) -> bool:
        """Whether files of this instant count: completed here, or older than all that is active (archived).

        Hudi: ``HoodieTimeline.containsOrBeforeTimelineStarts``.
        """
        if instant_time in self.commit_times:
            return True
        return self._first_write is not None and instant_time < self._first_write

    def as_of(self, instant_time: str) -> Timeline:
        """Only what had a time up to and including this one."""
        return Timeline(tuple(i for i in self.instants if i.time <= instant_time))

    def without(self, times: frozenset[str]) -> Timeline:
        """As it was before the commits of these times completed: they stand as pending."""
        if not times:
            return self
        late = (i.time in times and i.action in _WRITES_FILES for i in self.instants)
        instants = (i.at(State.INFLIGHT) if is_late else i for i, is_late in zip(self.instants, late, strict=True))
        return Timeline(tuple(instants), self.archive)

    def completed_since(self, known: frozenset[str]) -> tuple[Instant, ...]:
        """Commits completed now that were not among ``known``; their times may be older than ours."""
        return tuple(i for i in self.commits if i.time not in known)

    def of_action(self, action: Action) -> tuple[Instant, ...]:
        """Instants of one action, oldest first."""
        return tuple(i for i in self.instants if i.action is action)

    def find(self, instant_time: str) -> Instant | None:
        """The commit-like instant of a time, in its furthest state."""
        return next((i for i in self.instants if i.time == instant_time and i.action in _WRITES_FILES), None)
