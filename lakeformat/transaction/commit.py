"""The commit protocol: begin, publish, undo (reliability: requested -> inflight -> files -> completed).

A write becomes visible at one point: when its completed file, with all its bytes, is put if absent. If the lock does
not exclude other processes, the timeline is read again directly before that file is put, and once more afterwards.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import Final

from lakeformat.codec.timeline_files.service_plans import encode_requested_replace
from lakeformat.errors import (
    CommitStateUnknownError,
    CorruptTableError,
    LakeformatError,
    StorageError,
    WriteConflictError,
)
from lakeformat.file_system_view.snapshot import Snapshot
from lakeformat.model.commit import CommitMetadata
from lakeformat.model.files import FileGroupId
from lakeformat.model.instant import Action, Instant, State
from lakeformat.model.table_config import TableConfig
from lakeformat.storage.port import Clock, OutcomeUnknownError, Storage
from lakeformat.timeline.store import TimelineStore, put_once
from lakeformat.timeline.timeline import Timeline
from lakeformat.transaction import claims
from lakeformat.transaction.claims import way_past
from lakeformat.transaction.commit_notes import Note, drop_note, fingerprint, give_up, put_note
from lakeformat.transaction.conflict import beside_compactions, check_conflicts, check_plans
from lakeformat.transaction.lost_writes import look_again
from lakeformat.transaction.markers import forget_markers
from lakeformat.transaction.rollback import roll_back, was_rolled_back
from lakeformat.transaction.written_file import stage_folder

__all__ = ["TOKEN_KEY", "CommitProtocol", "NewKeyCheck", "OpenCommit"]

_LOG: Final = logging.getLogger("lakeformat.write")

#: Key of ``extraMetadata``; its value distinguishes our completed file from another writer's of the same name.
TOKEN_KEY: Final = "lakeformat.commit.token"
_LOOKS: Final = 3

#: Gets (instant time, metadata) of the commits completed since the write began; raises `WriteConflictError`.
NewKeyCheck = Callable[[Sequence[tuple[str, CommitMetadata]]], None]


@dataclass(frozen=True, slots=True)
class OpenCommit:
    """A pending instant of this writer. Picklable: Spark carries it from ``writer()`` to ``commit()``.

    Attributes:
        token: the write's id. It distinguishes our completed file from another writer's, and names the stage folder.
        known: times of the commits completed when the write began.
    """

    instant: Instant
    token: str
    known: frozenset[str]

    @property
    def time(self) -> str:
        """Return the instant time."""
        return self.instant.time


@dataclass(frozen=True)
class CommitProtocol:
    """The steps of the commit protocol on one table."""

    store: TimelineStore
    clock: Clock

    @property
    def _storage(self) -> Storage:
        return self.store.storage

    def begin(
        self,
        config: TableConfig,
        action: Action,
        known: frozenset[str],
        *,
        token: str,
        lives_by: str = claims.PROCESS,
        plan: bytes | None = None,
    ) -> OpenCommit:
        """Claim and request the next instant. Call it under the lock, after recovery.

        Args:
            known: times of the commits that the write starts from. Take them from the snapshot that the write reads: a
                foreign program may commit between two loads of the timeline.
            lives_by: the kind of the claim; see `lakeformat.transaction.claims`.
            plan: content of the requested file; by default the content that every instant of the action has.
        """
        data = plan or (encode_requested_replace() if action is Action.REPLACE_COMMIT else b"")
        instant = claims.take_instant(self.store, config, self.clock, action, kind=lives_by, token=token, data=data)
        return OpenCommit(instant, token, known)

    def inflight(self, commit: OpenCommit, profile: CommitMetadata | None) -> OpenCommit:
        """Move the instant from requested to inflight.

        Args:
            profile: the workload profile, which the inflight file keeps in Hudi's form; None for a clustering.

        Raises:
            WriteConflictError: another writer has taken the step.
        """
        try:
            instant = self.store.start(commit.instant, profile)
        except FileExistsError:
            raise WriteConflictError(
                f"instant {commit.time} was taken over by another writer; run the write again"
            ) from None
        return OpenCommit(instant, commit.token, commit.known)

    def check_plans(self, timeline: Timeline, touched: frozenset[FileGroupId], *, ours: str | None = None) -> None:
        """Refuse to touch file groups that a pending clustering is going to rewrite. Call it before expensive work.

        Args:
            ours: instant time of this writer's own plan, which does not count.

        Raises:
            WriteConflictError: the message says what to do.
        """
        planned = {group: time for group, time in self.store.pending_clustering(timeline).items() if time != ours}
        check_plans(touched, planned, partial(way_past, self.store))

    def closed_partitions(self, snapshot: Snapshot) -> Mapping[str, str]:
        """Return the partitions that cannot be replaced because a pending clustering rewrites their files -> why."""
        planned = {group.partition_path for group in self.store.pending_clustering(snapshot.timeline)}
        closed: dict[str, str] = {}
        for path in sorted(planned):
            live = frozenset(piece.group for piece in snapshot.slices.get(path, ()))
            try:
                self.check_plans(snapshot.timeline, live)
            except WriteConflictError as error:
                closed[path] = str(error)
        return closed

    def publish(
        self,
        commit: OpenCommit,
        metadata: CommitMetadata,
        *,
        touched: frozenset[FileGroupId],
        overwritten: frozenset[str] | None = None,
        check_new_keys: NewKeyCheck | None = None,
        before: Callable[[], None] | None = None,
    ) -> Instant:
        """Check for conflicts, make the commit visible, and return the completed instant. Call it under the lock.

        Args:
            before: called when only the completed file is missing; an error that it raises stops the commit.

        Raises:
            WriteConflictError: nothing was published; the caller undoes.
            CommitStateUnknownError: the commit may or may not be visible; the caller leaves everything as it is.
        """
        metadata = replace(metadata, extra={**metadata.extra, TOKEN_KEY: commit.token})

        def check() -> Timeline:
            timeline = self._load_still_pending(commit)
            completed = [(i.time, self.store.commit(i)) for i in timeline.completed_since(commit.known)]
            completed += self.store.archived_unseen(timeline, commit.known)
            by_name = not self.store.layout.tells_completion
            others = beside_compactions(commit.time, metadata, completed, by_name=by_name)
            check_conflicts(commit.time, touched, others, overwritten)
            self.check_plans(timeline, touched, ours=commit.time)
            if check_new_keys is not None and others:
                check_new_keys(others)
            return timeline

        seen = check()
        if before is not None:
            before()
        if self._storage.has_lock:
            return self._complete(commit, lambda: self.store.complete(_inflight(commit), metadata, self.clock))
        seen, note, done = self._put_checked_note(commit, metadata, check, seen)

        def put() -> Instant:
            put_once(self._storage, note.path, note.data)
            return done

        done = self._complete(commit, put)
        drop_note(self._storage, commit.time)
        try:
            look_again(self.store, done, metadata, seen, check_new_keys)
        except CommitStateUnknownError:
            self.tidy(commit)  # The commit is complete, but the caller does not tidy up after this error.
            raise
        return done

    def _load_still_pending(self, commit: OpenCommit) -> Timeline:
        """Load the timeline. Raise `WriteConflictError` if our instant is no longer pending on it."""
        timeline = self.store.load()
        current = timeline.find(commit.time)
        is_pending = current is not None and current.state is State.INFLIGHT
        if not is_pending or was_rolled_back(self.store, timeline, commit.time):
            raise WriteConflictError(
                f"instant {commit.time} was rolled back by another writer while it ran; run the write again"
            )
        return timeline

    def _put_checked_note(
        self, commit: OpenCommit, metadata: CommitMetadata, check: Callable[[], Timeline], seen: Timeline
    ) -> tuple[Timeline, Note, Instant]:
        """Note the completed file. Repeat the check until the timeline loaded after the note is the checked one.

        A writer that undoes us puts its rollback before it looks for our note. So at least one of the two sees the
        other.

        Returns:
            the timeline that was checked, the note, and the completed instant.
        """
        try:
            while True:
                done, data = self.store.finished(_inflight(commit), metadata, self.clock)
                note = Note(self.store.path(done), fingerprint(seen), data)
                put_note(self._storage, commit.time, note)
                now = self._load_still_pending(commit)
                if _conflict_instants(now) == _conflict_instants(seen):
                    return now, note, done
                seen = check()
        except FileExistsError:
            drop_note(self._storage, commit.time)
            raise WriteConflictError(
                f"instant {commit.time} was completed by another writer; run the write again"
            ) from None
        except BaseException:
            drop_note(self._storage, commit.time)  # Nothing was put.
            raise

    def _complete(self, commit: OpenCommit, put: Callable[[], Instant]) -> Instant:
        try:
            return put()
        except FileExistsError:
            ours = self._completed_by_us(commit)
            if ours is None:
                drop_note(self._storage, commit.time)
                raise WriteConflictError(
                    f"instant {commit.time} was completed by another writer; run the write again"
                ) from None
        except OutcomeUnknownError as error:
            raise self._state_unknown(commit, error) from None
        except StorageError as error:
            ours = self._completed_by_us(commit)
            if ours is None:
                drop_note(self._storage, commit.time)
                raise
            _LOG.warning("commit %s is visible although storage reported: %s", commit.time, error)
        return ours

    def _completed_by_us(self, commit: OpenCommit) -> Instant | None:
        """Read the completed file back. Return its instant if it is ours, None if it is another writer's or missing.

        Raises:
            CommitStateUnknownError: the file cannot be read.
        """
        reason: Exception | None = None
        for _ in range(_LOOKS):
            try:
                current = self.store.load().find(commit.time)
                if current is None or current.state is not State.COMPLETED:
                    return None
                return current if self.store.commit(current).extra.get(TOKEN_KEY) == commit.token else None
            except FileNotFoundError:
                return None
            except (StorageError, CorruptTableError) as error:
                reason = error
        raise self._state_unknown(commit, reason)

    def _state_unknown(self, commit: OpenCommit, reason: Exception | None) -> CommitStateUnknownError:
        with suppress(LakeformatError):  # Without this the next writer waits until our heartbeat expires.
            give_up(self._storage, commit.time)
        path = self.store.path(commit.instant.at(State.COMPLETED))
        return CommitStateUnknownError(
            f"cannot tell whether commit {commit.time} is visible ({reason}); all files are kept: look for "
            f"{self._storage.location}/{path} before running the write again"
        )

    def tidy(self, commit: OpenCommit) -> None:
        """Remove markers, stage folder and claim after the commit. If storage fails, the next writer removes them."""
        try:
            forget_markers(self._storage, commit.time)
            self._storage.delete_folder(stage_folder(commit.token))
            claims.release(self._storage, commit.time)
        except StorageError as error:
            _LOG.warning("leftovers of commit %s stay until the next write: %s", commit.time, error)

    def undo(self, config: TableConfig, commit: OpenCommit) -> None:
        """Roll back this writer's failed write, unless it has completed. Call it under the lock."""
        roll_back(self.store, config, self.clock, commit.instant)


def _inflight(commit: OpenCommit) -> Instant:
    return commit.instant.at(State.INFLIGHT)


def _conflict_instants(timeline: Timeline) -> frozenset[Instant]:
    """Return the instants that a write can conflict with: all except pending plain writes."""
    plain = {Action.COMMIT, Action.DELTA_COMMIT}
    return frozenset(i for i in timeline.instants if i.state is State.COMPLETED or i.action not in plain)
