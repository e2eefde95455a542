"""One transaction: begin, work while a thread shows life, publish under the lock, undo or try again.

Every writer and every service goes through it. Some hold the lock for the whole of their work (`Transaction.running`),
others only to begin and to publish (`Transaction.begun`); a writer that dies is rolled back by the next one.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from typing import Final, TypeVar

from lakeformat.errors import CommitStateUnknownError, LakeformatError, WriteConflictError
from lakeformat.model.commit import CommitMetadata
from lakeformat.model.files import FileGroupId
from lakeformat.model.instant import Action
from lakeformat.model.operation import Operation
from lakeformat.table_state.engine import Engine
from lakeformat.table_state.snapshot import Snapshot
from lakeformat.timeline.report import Report
from lakeformat.transaction.batch_ids import last_batches
from lakeformat.transaction.claims import PROCESS
from lakeformat.transaction.commit import CommitProtocol, OpenCommit
from lakeformat.transaction.followers import Callbacks, FileIndexFollower, Follower, MetadataTableDropper, Published
from lakeformat.transaction.heartbeat import alive
from lakeformat.transaction.hooks import Hooks
from lakeformat.transaction.late_look import warn_of_writers
from lakeformat.transaction.publish import Outcome, Publication
from lakeformat.transaction.purpose import Purpose
from lakeformat.transaction.result import WriteResult
from lakeformat.transaction.rollback import recover
from lakeformat.transaction.written import stage_folder

__all__ = ["Transaction"]

_LOG: Final = logging.getLogger("lakeformat.write")
_Answer = TypeVar("_Answer")


class Transaction:
    """Makes the work of one write visible, as a whole or not at all.

    Attributes:
        report: of the try that runs.
    """

    def __init__(self, engine: Engine, purpose: Purpose, hooks: Hooks) -> None:
        self.engine, self.purpose, self.hooks = engine, purpose, hooks
        self.storage, self.store = engine.storage, engine.store
        self.protocol = CommitProtocol(engine.store, engine.clock)
        self.report = Report(engine.clock, purpose.operation.value)
        self.followers: tuple[Follower, ...] = (
            MetadataTableDropper(engine),
            *([FileIndexFollower(engine, purpose.index)] if purpose.keeps_index else []),
            Callbacks(hooks.callbacks),
        )
        self._published: Published | None = None

    @contextmanager
    def locked(self, *, keeping: str | None = None) -> Iterator[None]:
        """Hold the table's lock, with what dead writers left cleared away; afterwards tell of what was published.

        Args:
            keeping: see `recover`.
        """
        warn_of_writers(self.storage)
        with self.storage.lock(self.purpose.wait_seconds):
            self._check_version()
            recover(self.store, self.purpose.config, self.engine.clock, keeping=keeping)
            yield
        published, self._published = self._published, None
        if published is not None:
            for follower in self.followers:
                follower.after_release(published)

    def _check_version(self) -> None:
        planned, found = self.purpose.config.version, self.store.config().version
        if planned != found:
            raise WriteConflictError(
                f"{self.storage.location} was moved from table version {planned} to {found} meanwhile; run the write "
                "again"
            )

    def retried(self, attempt: Callable[[], _Answer]) -> _Answer:
        """Run, and again after a conflict, as often as the options allow.

        Raises:
            WriteConflictError: the last try's.
        """
        tries = 1 + self.purpose.retries
        while True:
            tries -= 1
            try:
                return attempt()
            except WriteConflictError as error:
                if not tries:
                    raise
                _LOG.warning("%s; trying again, %d tries left", error, tries)
                self.report = Report(self.engine.clock, self.purpose.operation.value)

    def retried_under_lock(self, attempt: Callable[[], _Answer]) -> _Answer:
        """As `retried`, every try as a whole under the lock."""

        def locked() -> _Answer:
            with self.locked():
                return attempt()

        return self.retried(locked)

    def skipped(self, snapshot: Snapshot) -> WriteResult | None:
        """The answer to a batch that is in the table already, None for all else. Call it under the lock."""
        batch = self.purpose.batch
        last = last_batches(self.store, snapshot.timeline, batch.app).get(batch.app) if batch else None
        if batch is None or last is None or batch.id > last:
            return None
        return self.nothing(
            snapshot, f"batch {batch.id} of {batch.app!r} is in the table already, its last one is {last}"
        )

    def nothing(self, snapshot: Snapshot, why: str) -> WriteResult:
        """The result of a write that has nothing to do; also logged."""
        operation = self.purpose.operation.value
        result = WriteResult(snapshot.instant_time or "", operation, self.report.as_dict(), why)
        _LOG.info("%s: %s", self.storage.location, result)
        return result

    # --- begin ----------------------------------------------------------------------------------------

    def begin(self, known: frozenset[str], *, lives_by: str = PROCESS, plan: bytes | None = None) -> OpenCommit:
        """Take the instant, of a write that starts from these commits. Call it under the lock.

        Of a claim that lives by its process, `alive` must begin before the lock goes.

        Args:
            plan: what the requested file holds, if not what every instant of the action has.
        """
        purpose, action = self.purpose, self.purpose.operation.action
        if purpose.operation is Operation.CLUSTER:
            action = self.store.layout.clustering
        elif action is Action.COMMIT and purpose.config.takes_logs:
            action = Action.DELTA_COMMIT
        return self.protocol.begin(purpose.config, action, known, token=purpose.write_id, lives_by=lives_by, plan=plan)

    def inflight(
        self,
        commit: OpenCommit,
        profile: CommitMetadata,
        snapshot: Snapshot,
        overwritten: Iterable[str] | None = None,
        *,
        is_certain: bool = True,
    ) -> OpenCommit:
        """The second step, when it is known which file groups the write touches, and before they are rewritten.

        Args:
            overwritten: partitions whose file groups are replaced.
            is_certain: False if the write may turn out to change nothing in the file groups of the profile.

        Raises:
            WriteConflictError: a pending clustering has one of them.
        """
        touched = {FileGroupId(one.partition_path, one.file_id) for one in profile.all_stats() if one.file_id}
        replaced = {piece.group for path in overwritten or () for piece in snapshot.slices.get(path, ())}
        self.protocol.check_plans(snapshot.timeline, frozenset(replaced | touched if is_certain else replaced))
        return self.protocol.inflight(commit, profile)

    def overwritten(self, partitions: Iterable[str], snapshot: Snapshot) -> frozenset[str] | None:
        """Partitions whose contents the write replaces, if it has rows for these; None if it replaces none."""
        if not self.purpose.operation.overwrites:
            return None
        whole = self.purpose.operation is Operation.INSERT_OVERWRITE_TABLE
        return frozenset({*snapshot.slices, *partitions} if whole else partitions)

    # --- work -----------------------------------------------------------------------------------------

    @contextmanager
    def running(self, commit: OpenCommit) -> Iterator[None]:
        """Show life while the block runs, under the lock, and roll back whatever it leaves if it raises.

        An unknown outcome stays as it is.
        """
        with alive(self.storage, commit.time), self.on_failure(lambda _: self.undo(commit)):
            yield

    @contextmanager
    def begun(self, known: frozenset[str] | None = None) -> Iterator[OpenCommit]:
        """An instant of ours while the block runs, without the lock: kept alive, and undone if the block raises.

        Args:
            known: the commits the write starts from; those completed now by default.
        """
        with ExitStack() as life:
            with self.locked():
                known = known if known is not None else self.store.load().commit_times
                commit = self.begin(known)
                life.enter_context(alive(self.storage, commit.time))
            with self.on_failure(lambda _: self.undo(commit), takes_lock=True):
                yield commit

    @contextmanager
    def on_failure(self, undo: Callable[[BaseException], None], *, takes_lock: bool = False) -> Iterator[None]:
        """Undo if the block raises, unless it may have been published. What cannot be undone is the next writer's.

        Args:
            undo: given the failure; called under the lock.
            takes_lock: False if the block runs under it.
        """
        try:
            yield
        except CommitStateUnknownError:
            raise
        except BaseException as error:
            with suppress(LakeformatError, OSError), ExitStack() as lock:
                if takes_lock:
                    lock.enter_context(self.locked())
                undo(error)
            raise

    def undo(self, commit: OpenCommit) -> None:
        """Roll a failed write of ours back, unless it has completed. Call it under the lock."""
        self.protocol.undo(self.purpose.config, commit)

    # --- publish --------------------------------------------------------------------------------------

    def publish(self, commit: OpenCommit, outcome: Outcome) -> None:
        """Validate and publish with everything the commit carries. Call it under the lock; see `Publication`."""
        publication = Publication(
            engine=self.engine,
            purpose=self.purpose,
            hooks=self.hooks,
            report=self.report,
            protocol=self.protocol,
            followers=self.followers,
        )
        self._published = publication.finish(commit, outcome)

    def closed(self, commit: OpenCommit) -> WriteResult:
        """Tidy up after the commit. Returns what the caller gets; also logged."""
        self.protocol.tidy(commit)
        result = WriteResult(commit.time, self.purpose.operation.value, self.report.as_dict())
        _LOG.info("%s: %s", self.storage.location, result)
        return result

    # --- the stage ------------------------------------------------------------------------------------

    def forget_stage(self) -> None:
        """Remove the write's stage folder; what fails here goes with a later write."""
        with suppress(LakeformatError, OSError):
            self.storage.delete_folder(stage_folder(self.purpose.write_id))

    @contextmanager
    def forgotten_on_failure(self) -> Iterator[None]:
        """The stage goes if the block raises, unless what it published may need it."""
        try:
            yield
        except CommitStateUnknownError:
            raise
        except BaseException:
            self.forget_stage()
            raise
