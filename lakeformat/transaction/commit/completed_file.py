"""The completed file of a commit: the one point at which a write becomes visible.

A write becomes visible when its completed file is created, at once and with all its bytes; the creation fails if the
file exists. The commit is decided before (`lakeformat.transaction.order.decisions`), so that it is checked against
every other commit.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final

from lakeformat.errors import CommitStateUnknownError, CorruptTableError, StorageError, WriteConflictError
from lakeformat.model.commit import CommitMetadata
from lakeformat.model.instant import Instant, State
from lakeformat.storage.port import Clock, Lease, OutcomeUnknownError
from lakeformat.timeline.store import TimelineStore
from lakeformat.timeline.timeline import Timeline
from lakeformat.transaction.order.commit_order import order_of
from lakeformat.transaction.order.decisions import Decision, DecisionState, Kind, decide, fingerprint
from lakeformat.transaction.order.foreign_writes import ADVICE
from lakeformat.transaction.undo.rollback import was_rolled_back

__all__ = ["TOKEN_KEY", "OpenCommit", "check_barrier", "check_pending", "put_completed"]

_LOG: Final = logging.getLogger("lakeformat.write")

#: Key of ``extraMetadata``. Its value, the write's id, shows whether an existing completed file is ours.
TOKEN_KEY: Final = "lakeformat.commit.token"
_READ_TRIES: Final = 3


@dataclass(frozen=True, slots=True)
class OpenCommit:
    """A pending instant of this writer. Picklable: Spark carries it from ``writer()`` to ``commit()``.

    Attributes:
        token: the write's id, stored in the completed file under `TOKEN_KEY`; also the name of the stage folder.
        known: times of the commits completed when the write began.
        begun: number of the decisions made when the write began (`DecisionState.number`).
    """

    instant: Instant
    token: str
    known: frozenset[str]
    begun: int = 0

    @property
    def time(self) -> str:
        """Return the instant time."""
        return self.instant.time


def put_completed(
    store: TimelineStore,
    clock: Clock,
    commit: OpenCommit,
    *,
    check: Callable[[Timeline], CommitMetadata],
    before_put: Callable[[], None],
    lease: Lease | None = None,
) -> Instant:
    """Check for conflicts, make the commit visible, and return the completed instant.

    On storage with locks, call it under the table's lock.

    Args:
        check: raises an error if the commit conflicts with a commit on the given timeline. It returns the commit's
            metadata.
        before_put: called once, directly before the commit is decided; an error that it raises stops the commit.
        lease: the lease of the lock that Hudi's writers respect, too; None if Hudi does not write to the table.

    Raises:
        WriteConflictError: nothing was published; the caller must undo the write.
        CommitStateUnknownError: the commit may or may not be visible; the caller must delete nothing.
    """
    published: list[Instant] = []

    def make_decision(state: DecisionState, timeline: Timeline) -> Decision:
        check_pending(store, commit, timeline, state)
        metadata = check(timeline)
        metadata = replace(metadata, extra={**metadata.extra, TOKEN_KEY: commit.token})
        if not published:
            before_put()
        completed, data = store.encode_completed(_inflight(commit), metadata, clock, timeline)
        published.append(completed)
        return Decision(
            kind=Kind.COMMIT,
            instant_time=commit.time,
            path=store.path(completed),
            data=data,
            seen=fingerprint(timeline),
        )

    try:
        decide(store, make_decision, lease=lease)
    except FileExistsError:
        return _read_own_or_refuse(store, commit)
    except OutcomeUnknownError as error:
        raise _make_unknown_error(store, commit, error) from None
    except StorageError as error:
        if not order_of(store).is_alone or (ours := _read_own_completed(store, commit)) is None:
            raise
        _LOG.warning(
            "commit %s of %s is visible although storage reported: %s", commit.time, store.storage.location, error
        )
        return ours
    return published[-1]


def check_pending(store: TimelineStore, commit: OpenCommit, timeline: Timeline, state: DecisionState) -> None:
    """Raise `WriteConflictError` if our instant is no longer pending, or may not be published any more."""
    current = timeline.find(commit.time)
    is_pending = current is not None and current.state is State.INFLIGHT
    location = store.storage.location
    if (
        not is_pending
        or state.has_undone(commit.time, commit.token)
        or commit.time <= state.archived_to
        or was_rolled_back(store, timeline, commit.time)
    ):
        raise WriteConflictError(
            f"instant {commit.time} of {location} was rolled back by another writer while it ran; run the write "
            f"again; {ADVICE}"
        )
    check_barrier(location, commit.time, commit.begun, state)


def check_barrier(location: str, instant_time: str, begun: int, state: DecisionState) -> None:
    """Raise `WriteConflictError` if a commit was undone, or the table was upgraded, since an instant began.

    Args:
        begun: number of the decisions made when the instant began.
    """
    if begun < state.barrier:
        raise WriteConflictError(
            f"{location} was restored or upgraded while instant {instant_time} ran; run the write again"
        )


def _read_own_or_refuse(store: TimelineStore, commit: OpenCommit) -> Instant:
    ours = _read_own_completed(store, commit)
    if ours is None:
        raise WriteConflictError(
            f"instant {commit.time} of {store.storage.location} was completed by another writer; run the write again"
        )
    return ours


def _read_own_completed(store: TimelineStore, commit: OpenCommit) -> Instant | None:
    """Read the completed file back. Return its instant if it is ours, None if it is another writer's or missing.

    Raises:
        CommitStateUnknownError: the timeline or the file cannot be read.
    """
    reason: Exception | None = None
    for _ in range(_READ_TRIES):
        try:
            current = store.load().find(commit.time)
            if current is None or current.state is not State.COMPLETED:
                return None
            return current if store.read_commit(current).extra.get(TOKEN_KEY) == commit.token else None
        except FileNotFoundError:
            return None
        except (StorageError, CorruptTableError) as error:
            reason = error
    raise _make_unknown_error(store, commit, reason)


def _make_unknown_error(store: TimelineStore, commit: OpenCommit, reason: Exception | None) -> CommitStateUnknownError:
    path = store.path(commit.instant.at(State.COMPLETED))
    return CommitStateUnknownError(
        f"cannot tell whether commit {commit.time} is visible ({reason}); all files are kept: look for "
        f"{store.storage.location}/{path} before running the write again"
    )


def _inflight(commit: OpenCommit) -> Instant:
    return commit.instant.at(State.INFLIGHT)
