"""The completed file of a commit: the one point at which a write becomes visible.

A write becomes visible when its completed file is created, at once and with all its bytes; the creation fails if the
file exists. If the lock does not exclude other processes, another writer may publish a conflicting commit at any time.
So the timeline is then checked twice more: directly before the file is created, when the write can still be stopped,
and afterwards, when lost rows can only be reported.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Final

from lakeformat.errors import (
    CommitStateUnknownError,
    CorruptTableError,
    LakeformatError,
    StorageError,
    WriteConflictError,
)
from lakeformat.model.commit import CommitMetadata
from lakeformat.model.instant import Action, Instant, State
from lakeformat.storage.port import Clock, OutcomeUnknownError
from lakeformat.timeline.store import TimelineStore, put_once
from lakeformat.timeline.timeline import Timeline
from lakeformat.transaction.commit_notes import Note, drop_note, fingerprint, give_up, put_note
from lakeformat.transaction.lost_writes import check_late_commits
from lakeformat.transaction.rollback import was_rolled_back

__all__ = ["TOKEN_KEY", "NewKeyCheck", "OpenCommit", "load_if_pending", "put_completed"]

_LOG: Final = logging.getLogger("lakeformat.write")

#: Key of ``extraMetadata``. Its value, the write's id, shows whether an existing completed file is ours.
TOKEN_KEY: Final = "lakeformat.commit.token"
_READ_TRIES: Final = 3

#: A check that gets a list of (instant time, metadata), one for each commit completed since the write began. It raises
#: `WriteConflictError` if one of them conflicts with the keys or partitions that are new in our write.
NewKeyCheck = Callable[[Sequence[tuple[str, CommitMetadata]]], None]


@dataclass(frozen=True, slots=True)
class OpenCommit:
    """A pending instant of this writer. Picklable: Spark carries it from ``writer()`` to ``commit()``.

    Attributes:
        token: the write's id, stored in the completed file under `TOKEN_KEY`; also the name of the stage folder.
        known: times of the commits completed when the write began.
    """

    instant: Instant
    token: str
    known: frozenset[str]

    @property
    def time(self) -> str:
        """Return the instant time."""
        return self.instant.time


def put_completed(
    store: TimelineStore,
    clock: Clock,
    commit: OpenCommit,
    metadata: CommitMetadata,
    *,
    check: Callable[[], Timeline],
    check_new_keys: NewKeyCheck | None = None,
    before_put: Callable[[], None],
    tidy: Callable[[], None],
) -> Instant:
    """Check for conflicts, make the commit visible, and return the completed instant. Call it under the lock.

    Args:
        check: loads the timeline, raises an error on conflicts, and returns that timeline.
        check_new_keys: the part of ``check`` that is about keys and partitions new in the write. If the lock does not
            exclude other processes, it is called again after the commit.
        before_put: called directly before the completed file is created; an error that it raises stops the commit.
        tidy: removes markers, stage folder and claim. It is called before `CommitStateUnknownError` is raised for a
            commit that is complete, because the caller deletes nothing after this error.

    Raises:
        WriteConflictError: nothing was published; the caller must undo the write.
        CommitStateUnknownError: the commit may or may not be visible; the caller must delete nothing.
    """
    metadata = replace(metadata, extra={**metadata.extra, TOKEN_KEY: commit.token})
    seen = check()
    before_put()
    if store.storage.has_lock:
        return _complete(store, commit, lambda: store.complete(_inflight(commit), metadata, clock))
    seen, note, completed = _put_checked_note(store, clock, commit, metadata, check, seen)

    def put() -> Instant:
        put_once(store.storage, note.path, note.data)
        return completed

    completed = _complete(store, commit, put)
    drop_note(store.storage, commit.time)
    try:
        check_late_commits(store, completed, metadata, seen, check_new_keys)
    except CommitStateUnknownError:
        tidy()
        raise
    return completed


def load_if_pending(store: TimelineStore, commit: OpenCommit) -> Timeline:
    """Load the timeline. Raise `WriteConflictError` if our instant is no longer pending on it."""
    timeline = store.load()
    current = timeline.find(commit.time)
    is_pending = current is not None and current.state is State.INFLIGHT
    if not is_pending or was_rolled_back(store, timeline, commit.time):
        raise WriteConflictError(
            f"instant {commit.time} of {store.storage.location} was rolled back by another writer while it ran; "
            "run the write again"
        )
    return timeline


def _put_checked_note(
    store: TimelineStore,
    clock: Clock,
    commit: OpenCommit,
    metadata: CommitMetadata,
    check: Callable[[], Timeline],
    checked: Timeline,
) -> tuple[Timeline, Note, Instant]:
    """Write the commit note for the completed file, then check that no other commit completed since the last check.

    If another commit has completed, check for conflicts and write the note again. Another writer may be undoing our
    commit meanwhile. It creates its rollback instant and then looks for our note; we write the note and then look for
    a rollback. So either we see the rollback and stop, or that writer sees the note.

    Returns:
        the timeline that was checked for conflicts, the commit note, and the completed instant.
    """
    try:
        while True:
            completed, data = store.encode_completed(_inflight(commit), metadata, clock)
            note = Note(store.path(completed), fingerprint(checked), data)
            put_note(store.storage, commit.time, note)
            now = load_if_pending(store, commit)
            if _conflict_instants(now) == _conflict_instants(checked):
                return now, note, completed
            checked = check()
    except FileExistsError:
        drop_note(store.storage, commit.time)
        raise WriteConflictError(
            f"instant {commit.time} of {store.storage.location} was completed by another writer; run the write again"
        ) from None
    except BaseException:
        drop_note(store.storage, commit.time)  # The completed file was never created, so no note may announce it.
        raise


def _complete(store: TimelineStore, commit: OpenCommit, put: Callable[[], Instant]) -> Instant:
    try:
        return put()
    except FileExistsError:
        ours = _read_own_completed(store, commit)
        if ours is None:
            drop_note(store.storage, commit.time)
            raise WriteConflictError(
                f"instant {commit.time} of {store.storage.location} was completed by another writer; "
                "run the write again"
            ) from None
    except OutcomeUnknownError as error:
        raise _make_unknown_error(store, commit, error) from None
    except StorageError as error:
        ours = _read_own_completed(store, commit)
        if ours is None:
            drop_note(store.storage, commit.time)
            raise
        _LOG.warning(
            "commit %s of %s is visible although storage reported: %s", commit.time, store.storage.location, error
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
    with suppress(LakeformatError):  # The next writer then need not wait until our heartbeat expires.
        give_up(store.storage, commit.time)
    path = store.path(commit.instant.at(State.COMPLETED))
    return CommitStateUnknownError(
        f"cannot tell whether commit {commit.time} is visible ({reason}); all files are kept: look for "
        f"{store.storage.location}/{path} before running the write again"
    )


def _inflight(commit: OpenCommit) -> Instant:
    return commit.instant.at(State.INFLIGHT)


def _conflict_instants(timeline: Timeline) -> frozenset[Instant]:
    """Return the instants that a write can conflict with: all except pending commits and deltacommits."""
    plain = {Action.COMMIT, Action.DELTA_COMMIT}
    return frozenset(i for i in timeline.instants if i.state is State.COMPLETED or i.action not in plain)
