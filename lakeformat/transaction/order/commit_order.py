"""The order of commits, which makes a step of one process certain for all others.

There are two implementations. On storage with locks the caller holds the table's lock, which excludes all others. On
other storage the steps are decided (`lakeformat.transaction.order.decisions`), and requests may be carried out late.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar

from lakeformat.errors import WriteConflictError
from lakeformat.model.instant import Instant, State
from lakeformat.model.table_config import TableConfig
from lakeformat.storage.port import Clock, Version
from lakeformat.timeline.store import TimelineStore
from lakeformat.timeline.timeline import Timeline
from lakeformat.transaction.order import claims
from lakeformat.transaction.order.conflict import PendingActionError
from lakeformat.transaction.order.decisions import (
    LATEST_REQUEST_MS,
    Decision,
    DecisionState,
    Kind,
    decide,
    encode_void_commit,
)

__all__ = ["CommitOrder", "check_requested", "order_of"]


@dataclass(frozen=True)
class CommitOrder(ABC):
    """How one process may change a table beside others. On storage with locks, call it under the table's lock."""

    store: TimelineStore
    #: Whether no other process can change the table now.
    is_alone: ClassVar[bool]
    #: Milliseconds after which a request can still be carried out.
    late_ms: ClassVar[int]

    @abstractmethod
    def config(self) -> TableConfig:
        """Return the properties by which a step goes. Who replaces the file checks its version."""

    @abstractmethod
    def version_of(self, path: str) -> Version | None:
        """Return the version that a file must still have when it is replaced; None if no other process replaces it."""

    @abstractmethod
    def take_over(self, instant: Instant, clock: Clock) -> bool:
        """Take over a dead writer's instant, to finish it. Return False if its writer lives or another was first."""

    @abstractmethod
    def may_act(self, undo: Instant) -> bool:
        """Tell whether the process of a rollback may still carry it out."""

    @abstractmethod
    def start(self, undo: Instant) -> Instant:
        """Begin a rollback or a restore: create its inflight file. From then on it is not given up.

        Raises:
            WriteConflictError: another process took this one for dead and has given the undo up. Nothing was changed.
        """

    @abstractmethod
    def hide(self, commit: Instant, rollback: Instant) -> None:
        """Make a completed commit invisible, so that its files may be deleted."""

    @abstractmethod
    def forbid(self, instant_time: str, state: DecisionState, timeline: Timeline) -> bool:
        """Make it impossible that a claimed instant which is not pending begins. Return False if its writer lives.

        Args:
            state, timeline: the state and the timeline as they were read a moment ago.
        """


class _UnderLock(CommitOrder):
    is_alone, late_ms = True, 0

    def config(self) -> TableConfig:
        return self.store.config()

    def version_of(self, path: str) -> None:
        return None

    def take_over(self, instant: Instant, clock: Clock) -> bool:
        return True

    def may_act(self, undo: Instant) -> bool:
        return False

    def start(self, undo: Instant) -> Instant:
        return self.store.start(undo)

    def hide(self, commit: Instant, rollback: Instant) -> None:
        self.store.undo(commit)

    def forbid(self, instant_time: str, state: DecisionState, timeline: Timeline) -> bool:
        return True


class _ByDecisions(CommitOrder):
    is_alone, late_ms = False, LATEST_REQUEST_MS

    def config(self) -> TableConfig:
        return self.store.known_config

    def version_of(self, path: str) -> Version:
        return self.store.storage.read_versioned(path)[1]

    def take_over(self, instant: Instant, clock: Clock) -> bool:
        return claims.take_over_claim(self.store, instant, clock, token=f"{instant.time}-{clock.now_ms()}")

    def may_act(self, undo: Instant) -> bool:
        return undo.state is not State.REQUESTED

    def start(self, undo: Instant) -> Instant:
        store, started = self.store, undo.at(State.INFLIGHT)

        def check(state: DecisionState, timeline: Timeline) -> Decision:
            check_requested(store, undo, timeline)
            if undo.time in state.undone_times:
                raise WriteConflictError(
                    f"another process took {store.path(undo)} of {store.storage.location} for dead; run it again"
                )
            return Decision(kind=Kind.UNDO, instant_time=undo.time, path=store.path(started))

        decide(store, check)
        return started

    def hide(self, commit: Instant, rollback: Instant) -> None:
        """Let a void commit take the completed file's name, or a late request may create the file again.

        That is not needed if the file is older than any request can be late.
        """
        storage, path = self.store.storage, self.store.path(commit)
        done, begun = storage.info(path), storage.info(claims.claim_path(rollback.time))
        if done is not None and begun is not None and begun.modified_ms - done.modified_ms >= self.late_ms:
            self.store.undo(commit)
        else:
            storage.replace(path, encode_void_commit(self.store, path, storage.read(path)))

    def forbid(self, instant_time: str, state: DecisionState, timeline: Timeline) -> bool:
        if instant_time in timeline.taken_times or instant_time in state.undone:
            return True
        removal = Decision(kind=Kind.REMOVE, instant_time=instant_time, undoes=instant_time)
        return decide(self.store, lambda _, now: None if instant_time in now.taken_times else removal) is not None


def order_of(store: TimelineStore) -> CommitOrder:
    """Return the order of commits of a table."""
    return _UnderLock(store) if store.storage.has_lock else _ByDecisions(store)


def check_requested(store: TimelineStore, undo: Instant, timeline: Timeline) -> None:
    """Raise `WriteConflictError` if a rollback or restore is not requested any more."""
    current = next((instant for instant in timeline.of_action(undo.action) if instant.time == undo.time), undo)
    if current.state is not State.REQUESTED:
        raise PendingActionError(f"{store.path(undo)} is running in {store.storage.location}; wait for it")
