"""Going back, with its effects (Hudi: ``BaseHoodieWriteClient.restoreToInstant``, ``rollback``).

All checks come first: Hudi's own fail half-way and leave a table that nobody can write to. What is done then, and how
it is finished after a crash, stands in `lakeformat.transaction.undo`.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Final

from lakeformat.codec.restore_files import RestorePlan, encode_restore_plan
from lakeformat.config.resolve import Options
from lakeformat.errors import InstantNotAvailableError, InvalidInputError, LakeformatError, WriteConflictError
from lakeformat.model.files import BaseFileName
from lakeformat.model.instant import Action, Instant, State
from lakeformat.model.one_line import OneLine
from lakeformat.model.table_config import TableConfig
from lakeformat.services.restore.facts import clustering_plans, state_at, state_before
from lakeformat.services.restore.plan import after, check_not_saved, last_commit, target_of
from lakeformat.table_state.engine import Engine
from lakeformat.table_state.file_groups import list_files
from lakeformat.timeline.timeline import Timeline
from lakeformat.transaction import claims
from lakeformat.transaction.heartbeat import alive
from lakeformat.transaction.metadata_table import drop_metadata_table
from lakeformat.transaction.rollback import recover
from lakeformat.transaction.undo import Undoing, files_of, kept_logs

__all__ = ["RestoreResult", "RestoreSession"]

_LOG: Final = logging.getLogger("lakeformat.services")
#: Pending ones of these may delete files, or bring rows back.
_IN_THE_WAY: Final = frozenset({Action.CLEAN, Action.ROLLBACK, Action.RESTORE, Action.INDEXING})
_PLANS: Final = frozenset({Action.COMPACTION, Action.LOG_COMPACTION})


@dataclass(frozen=True, slots=True, repr=False)
class RestoreResult(OneLine):
    """What was undone.

    Attributes:
        instant_time: of the restore or rollback; "" if nothing was to do, and of a dry run.
        target: the commit that the table has gone back to; None if it is empty now.
        undone: the instants that are gone, in the order in which they went; of a dry run those that would go.
    """

    instant_time: str
    target: str | None
    undone: tuple[str, ...]

    def __str__(self) -> str:
        if not self.undone:
            return f"the table stands at {self.target}: nothing to undo"
        did = "undone" if self.instant_time else "dry run: would undo"
        return f"{did} {len(self.undone)}, back to {self.target or 'an empty table'}: {', '.join(self.undone)}"


class RestoreSession:
    """Goes back in one table, of any version and kind that can be read. The lock is held throughout."""

    def __init__(self, engine: Engine, options: Options) -> None:
        self.engine, self.options = engine, options
        self.store, self.storage = engine.store, engine.storage

    def plan_restore(self, to: str) -> RestoreResult:
        """Say what `restore` would undo, and refuse what cannot be gone back to. Nothing is locked or changed."""
        config, timeline = self._config(), self.store.load()
        target = target_of(timeline, to, self.storage.location, doing="restore")
        undone = after(timeline, target, clustering_plans(self.store, timeline))
        if undone:
            check_not_saved(timeline, undone, self.storage.location)
            state_at(self.engine, config, timeline, target, doing="restore")
            self._check_savepoint(timeline, target)
            self._check_logs(timeline, undone)
        return RestoreResult("", to, tuple(i.time for i in undone))

    def plan_rollback(self, instant_time: str | None) -> RestoreResult:
        """Say what `rollback` would undo, and refuse what it would refuse. Nothing is locked or changed."""
        config, timeline = self._config(), self.store.load()
        victim = self._victim(timeline, instant_time)
        check_not_saved(timeline, (victim,), self.storage.location)
        before = state_before(self.engine, config, timeline, (victim,), doing=f"roll {victim.time} back")
        return RestoreResult("", before.instant_time, (victim.time,))

    def restore(self, to: str) -> RestoreResult:
        """Undo everything after a commit."""
        with self._locked(restoring=to) as config:
            timeline = self.store.load()
            target = target_of(timeline, to, self.storage.location, doing="restore")
            plans = clustering_plans(self.store, timeline)
            undone = after(timeline, target, plans)
            if not undone:
                return RestoreResult("", to, ())
            self._check(timeline, undone, plans)
            state_at(self.engine, config, timeline, target, doing="restore")
            self._check_savepoint(timeline, target)
            self._check_logs(timeline, undone)
            self._drop_metadata_table()
            plan = RestorePlan(tuple((i.time, i.action.value) for i in undone), to)
            restore = claims.take_instant(
                self.store, config, self.engine.clock, Action.RESTORE,
                kind=claims.PROCESS, token="", data=encode_restore_plan(plan),
            )  # fmt: skip
            with alive(self.storage, restore.time):
                Undoing(self.store, config, self.engine.clock).restore(restore, plan)
        return self._told(RestoreResult(restore.time, to, tuple(i.time for i in undone)))

    def rollback(self, instant_time: str | None) -> RestoreResult:
        """Undo the commit that completed last."""
        with self._locked() as config:
            timeline = self.store.load()
            victim = self._victim(timeline, instant_time)
            self._check(timeline, (victim,), clustering_plans(self.store, timeline))
            self._check_plans_after(timeline, victim)
            before = state_before(self.engine, config, timeline, (victim,), doing=f"roll {victim.time} back")
            files = files_of(
                victim, self.store.commit(victim), list_files(self.storage), self._kept_logs(timeline, (victim,))
            )
            self._drop_metadata_table()
            undoing = Undoing(self.store, config, self.engine.clock)
            rollback = undoing.begin(victim, files)
            try:
                with alive(self.storage, rollback.time):
                    undoing.roll_back(rollback)
            except Exception:
                with suppress(LakeformatError):  # Else the next writer does the same.
                    if not undoing.has_begun(rollback):
                        undoing.give_up(rollback)
                raise
        return self._told(RestoreResult(rollback.time, before.instant_time, (victim.time,)))

    def _config(self) -> TableConfig:
        config = self.store.config()
        config.check_readable(self.storage.location)
        return config

    @contextmanager
    def _locked(self, *, restoring: str | None = None) -> Iterator[TableConfig]:
        config = self._config()
        with self.storage.lock(self.options.lock_seconds):
            recover(self.store, config, self.engine.clock, restoring=restoring)
            yield config

    def _victim(self, timeline: Timeline, instant_time: str | None) -> Instant:
        location, last = self.storage.location, last_commit(timeline)
        if last is None:
            raise InstantNotAvailableError(f"{location} has no commit on its timeline: there is nothing to roll back")
        if instant_time is None or instant_time == last.time:
            self._check_not_the_last_left(timeline, last)
            return last
        target_of(timeline, instant_time, location, doing="roll back")
        raise InvalidInputError(
            f"{location}: {instant_time} is not the last commit, which is {last.time}; restore() to the one before"
        )

    # --- checks ---------------------------------------------------------------------------------------

    def _check_not_the_last_left(self, timeline: Timeline, victim: Instant) -> None:
        """Files of archived commits count only while the timeline has a commit (Hudi: ``isBeforeTimelineStarts``)."""
        if len(timeline.commits) == 1 and self.store.archived().completed_in(""):
            raise InstantNotAvailableError(
                f"{self.storage.location}: cannot roll {victim.time} back: all commits before it are archived, and "
                "their files count only beside one that is not; write again first, or keep more "
                "(hoodie.keep.min.commits)"
            )

    def _check(self, timeline: Timeline, undone: Sequence[Instant], plans: frozenset[str]) -> None:
        """Nobody writes or deletes, and no savepoint is in the way."""
        check_not_saved(timeline, undone, self.storage.location)
        for instant in timeline.pending:
            if instant.action in _IN_THE_WAY:
                hint = "call clean(), which finishes it" if instant.action is Action.CLEAN else "wait for it"
                raise WriteConflictError(
                    f"{self.store.path(instant)} is pending in {self.storage.location}; {hint}, then run this again"
                )
        for instant in timeline.pending_writes:
            if instant.state is State.REQUESTED and (instant.time in plans or instant.action in _PLANS):
                continue  # A plan that nobody runs.
            raise WriteConflictError(
                f"{self.store.path(instant)} is being written in {self.storage.location}; wait for it, or stop its "
                "writer, then run this again"
            )

    def _check_plans_after(self, timeline: Timeline, victim: Instant) -> None:
        """No plan rests on the files of the commit. A restore undoes such plans, too."""
        for instant in timeline.pending_writes:
            if instant.time > victim.time:
                raise WriteConflictError(
                    f"{self.store.path(instant)} in {self.storage.location} was planned with the files of commit "
                    f"{victim.time}; run or cancel it first, or restore() to the commit before"
                )

    def _check_savepoint(self, timeline: Timeline, target: Instant) -> None:
        """Every base file that a savepoint of the target names is there (Hudi's cleaner may have taken some)."""
        for instant in timeline.of_action(Action.SAVEPOINT):
            if instant.time != target.time or instant.state is not State.COMPLETED:
                continue
            there = {(file.partition_path, str(file.name)) for file in list_files(self.storage).bases}
            for partition, names in self.store.savepoint(instant).files.items():
                for name in names:
                    if BaseFileName.match(name) and (partition, name) not in there:
                        raise InstantNotAvailableError(
                            f"{self.storage.location}: cannot restore to savepoint {target.time}: its file {name} of "
                            f"{partition!r} has been deleted; bring it back from a copy, or choose another instant"
                        )

    def _kept_logs(self, timeline: Timeline, undone: Sequence[Instant]) -> frozenset[str]:
        return kept_logs(self.store, timeline, frozenset(instant.time for instant in undone))

    def _check_logs(self, timeline: Timeline, undone: Sequence[Instant]) -> None:
        """No log file holds rows of a commit that stays beside those of one that goes: refused before anything."""
        kept, listing = self._kept_logs(timeline, undone), list_files(self.storage)
        for instant in undone:
            files_of(instant, self.store.commit(instant) if instant.state is State.COMPLETED else None, listing, kept)

    # --- effects --------------------------------------------------------------------------------------

    def _drop_metadata_table(self) -> None:
        if drop_metadata_table(self.store, self.engine.clock):
            _LOG.warning("dropped the metadata table of %s: it would list files that go", self.storage.location)

    def _told(self, result: RestoreResult) -> RestoreResult:
        _LOG.info("%s: %s", self.storage.location, result)
        return result
