"""Taking completed commits back: one (a rollback), or all after an instant (a restore). Call it under the table's lock.

What is to go is on the timeline before anything goes. Of a commit first the completed file is deleted, which takes its
rows away for everybody; then its data files, which nobody can see any more; then what is left of it on the timeline.

A rollback can be given up until the completed file is gone; from then on whoever comes next finishes it. A restore can
be given up until it is inflight; from then on readers of ours see the table as it will be (`TimelineStore.load`).
Sources: Hudi's ``CopyOnWriteRollbackActionExecutor`` and ``BaseRestoreActionExecutor``.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

import pyarrow as pa

from lakeformat.codec.avro_records import (
    RollbackMetadata,
    RollbackPartition,
    RollbackPlan,
    RollbackRequest,
    decode_rollback,
    encode_rollback_plan,
)
from lakeformat.codec.restore_files import Restored, RestorePlan
from lakeformat.errors import CorruptTableError, UnsupportedTableError, WriteConflictError
from lakeformat.model.commit import CommitMetadata
from lakeformat.model.files import BaseFileName, LogFileName, join_path
from lakeformat.model.instant import WRITE_ACTIONS, Action, Instant, State
from lakeformat.model.table_config import TableConfig
from lakeformat.storage.port import Clock, check_path
from lakeformat.table_state.file_groups import Listing, list_files
from lakeformat.timeline.store import TimelineStore
from lakeformat.timeline.timeline import Timeline
from lakeformat.transaction import claims
from lakeformat.transaction.heartbeat import alive
from lakeformat.transaction.markers import forget_markers

__all__ = ["Undoing", "files_of", "finish_restores", "give_up_or_finish", "kept_logs"]

_LOG: Final = logging.getLogger("lakeformat.services")


def files_of(
    victim: Instant, metadata: CommitMetadata | None, listing: Listing, kept: frozenset[str]
) -> Mapping[str, tuple[str, ...]]:
    """The files that go with an instant: partition path -> bare names.

    Those that its commit names, and those that have its time in their names: attempts that lost, log files of a slice
    that it opened.

    Args:
        kept: paths of log files that commits name which stay.

    Raises:
        UnsupportedTableError: it has appended to a log file of a commit that stays.
    """
    named: set[tuple[str, str]] = set()
    for stat in metadata.all_stats() if metadata else ():
        for path in (stat.path, *(path for path, _ in stat.cdc_stats)):
            if not path:
                continue
            folder, _, name = check_path(path).rpartition("/")
            if path in kept:
                raise UnsupportedTableError(
                    f"commit {victim.time} has appended to {path}, which holds rows of commits that stay; use Apache "
                    "Hudi to go back"
                )
            if BaseFileName.match(name) or LogFileName.match(name):
                named.add((folder, name))
    named.update(
        (file.partition_path, str(file.name))
        for file in (*listing.bases, *listing.logs, *listing.change_data)
        if file.name.instant_time == victim.time
    )
    found: dict[str, list[str]] = {}
    for partition, name in sorted(named):
        found.setdefault(partition, []).append(name)
    return {partition: tuple(names) for partition, names in found.items()}


def kept_logs(store: TimelineStore, timeline: Timeline, undone: frozenset[str]) -> frozenset[str]:
    """Paths of the log files that commits name which stay."""
    return frozenset(
        stat.path
        for commit in timeline.commits
        if commit.time not in undone
        for stat in store.commit(commit).all_stats()
        if LogFileName.match(stat.path.rpartition("/")[2])
    )


@dataclass(frozen=True)
class Undoing:
    """Undoes commits of one table."""

    store: TimelineStore
    config: TableConfig
    clock: Clock

    # --- a rollback -----------------------------------------------------------------------------------

    def begin(self, victim: Instant, files: Mapping[str, Sequence[str]]) -> Instant:
        """Put the rollback of a commit on the timeline; nothing has changed yet."""
        location = self.store.storage.location
        requests = tuple(
            RollbackRequest(partition, "", "", tuple(f"{location}/{join_path(partition, name)}" for name in names))
            for partition, names in files.items()
        )
        plan = RollbackPlan(victim.time, victim.action.value, requests)
        return claims.take_instant(
            self.store, self.config, self.clock, Action.ROLLBACK,
            kind=claims.PROCESS, token="", data=encode_rollback_plan(plan), undoes=True,
        )  # fmt: skip

    def roll_back(self, rollback: Instant) -> RollbackMetadata:
        """Carry a planned rollback out, from wherever it stopped.

        Raises:
            CorruptTableError: its plan is gone.
        """
        started = self.clock.now_ms()
        store = self.store
        plan = self._plan(rollback)
        if rollback.state is State.REQUESTED:
            rollback = store.start(rollback)
        for victim in self._standing(plan.instant_time):
            if victim.state is State.COMPLETED:
                store.undo(victim)
        deleted = self._delete(plan)
        forget_markers(store.storage, plan.instant_time)
        metadata = RollbackMetadata(
            start_time=rollback.time,
            time_taken_ms=self.clock.now_ms() - started,
            instants=((plan.instant_time, plan.action),),
            partitions=tuple(RollbackPartition(path, names) for path, names in deleted.items()),
        )
        self._forget(plan)  # First: without a rollback beside it, it would pass for a write of somebody else.
        with suppress(FileExistsError):
            store.complete(rollback, metadata, self.clock)
        claims.release(store.storage, rollback.time)
        return metadata

    def give_up(self, rollback: Instant) -> None:
        """Take a rollback off the timeline that has changed nothing."""
        self.store.erase(rollback)
        claims.release(self.store.storage, rollback.time)

    def has_begun(self, rollback: Instant) -> bool:
        """Whether its commit is no longer complete."""
        plan = self.store.rollback_plan(rollback)
        standing = self._standing(plan.instant_time) if plan else ()
        return not any(victim.state is State.COMPLETED for victim in standing)

    def _plan(self, rollback: Instant) -> RollbackPlan:
        plan = self.store.rollback_plan(rollback)
        if plan is None:
            path = self.store.path(rollback.at(State.REQUESTED))
            raise CorruptTableError(f"{self.store.storage.location}/{path} is gone; restore it from a copy")
        if any(request.log_blocks_to_delete for request in plan.requests):
            raise UnsupportedTableError(
                f"{self.store.path(rollback)} is another program's and cancels blocks of log files; finish it there"
            )
        return plan

    def _standing(self, time: str) -> tuple[Instant, ...]:
        """What stands on the timeline of a write, its plan included."""
        timeline = self.store.load(as_stored=True)
        found = (*timeline.instants, *timeline.plans)
        return tuple(i for i in found if i.time == time and i.action in WRITE_ACTIONS)

    def _delete(self, plan: RollbackPlan) -> dict[str, tuple[str, ...]]:
        """Delete by partition and bare name, as many at once as there are cores."""
        deleted: dict[str, tuple[str, ...]] = {}
        paths: list[str] = []
        for request in plan.requests:
            deleted[request.partition_path] = request.files_to_delete
            names = (name.rpartition("/")[2] for name in request.files_to_delete)
            paths += [check_path(join_path(request.partition_path, name)) for name in names]
        with ThreadPoolExecutor(max(1, pa.cpu_count())) as pool:
            for _ in pool.map(self.store.storage.delete, paths):
                pass
        return deleted

    def _forget(self, plan: RollbackPlan) -> None:
        """What is left of the commit on the timeline, and its claim."""
        for victim in self._standing(plan.instant_time):
            for request in self.store.layout.requests(victim.at(State.COMPLETED)):
                self.store.erase(request)
            self.store.erase(victim)
        claims.release(self.store.storage, plan.instant_time)

    # --- a restore ------------------------------------------------------------------------------------

    def restore(self, restore: Instant, plan: RestorePlan) -> None:
        """Carry a restore out, from wherever it stopped: roll each instant back, newest first.

        The rollbacks stay on the timeline until the restore is complete, for they know the files; then they go.
        Memory: an object a file of the table.
        """
        started, store = self.clock.now_ms(), self.store
        if restore.state is State.REQUESTED:
            restore = store.start(restore)
        listing: Listing | None = None
        done: dict[str, RollbackMetadata] = {}
        known = self._rollbacks_since(restore)
        for time, _ in plan.instants:
            rollback = known.get(time)
            if rollback is None:
                victim = next(iter(self._standing(time)), None)
                if victim is None:
                    continue
                listing = listing or list_files(store.storage)
                rollback = self.begin(victim, self._files(victim, plan, listing))
            done[time] = self._rolled_back(rollback)
        metadata = Restored(restore.time, self.clock.now_ms() - started, plan, done)
        with suppress(FileExistsError):
            store.complete(restore, metadata, self.clock)
        for rollback in self._rollbacks_since(restore).values():
            store.remove(rollback)
        claims.release(store.storage, restore.time)

    def _files(self, victim: Instant, plan: RestorePlan, listing: Listing) -> Mapping[str, tuple[str, ...]]:
        metadata = self.store.commit(victim) if victim.state is State.COMPLETED else None
        return files_of(victim, metadata, listing, kept_logs(self.store, self.store.load(as_stored=True), plan.times))

    def _rolled_back(self, rollback: Instant) -> RollbackMetadata:
        if rollback.state is not State.COMPLETED:
            return self.roll_back(rollback)
        claims.release(self.store.storage, rollback.time)
        return decode_rollback(self.store.read(rollback), name=self.store.path(rollback))

    def _rollbacks_since(self, restore: Instant) -> dict[str, Instant]:
        """Instant time -> its rollback, of those that the restore has begun."""
        found: dict[str, Instant] = {}
        for rollback in self.store.load(as_stored=True).of_action(Action.ROLLBACK):
            plan = self.store.rollback_plan(rollback) if rollback.time > restore.time else None
            if plan is not None:
                found[plan.instant_time] = rollback
        return found


def give_up_or_finish(undoing: Undoing, rollback: Instant) -> None:
    """A rollback of a completed commit whose process died: give it up if the commit still stands."""
    if undoing.has_begun(rollback):
        _LOG.warning("finishing rollback %s, whose process died", rollback.time)
        undoing.roll_back(rollback)
    else:
        undoing.give_up(rollback)


def finish_restores(undoing: Undoing, restores: Iterable[Instant], *, adopting: str | None = None) -> None:
    """Finish restores whose process died, or take them back where nothing has happened yet.

    Args:
        adopting: the instant that is to be gone back to: another program's restore to there is finished, too.

    Raises:
        WriteConflictError: one is running, or is another program's: nobody may write before it is over.
    """
    store, storage = undoing.store, undoing.store.storage
    for restore in restores:
        claim = claims.read_claim(storage, restore.time)
        plan = store.restore_plan(restore)
        if claim is None and (plan is None or plan.target != adopting):
            to = f"restore('{plan.target}')" if plan and plan.target else "the same restore"
            raise WriteConflictError(
                f"another program's {store.path(restore)} is pending in {storage.location}; wait for it, or run {to} "
                "again to finish it"
            )
        if claim is not None:
            lives = claims.is_alive(store, restore, claim, undoing.clock)
        else:
            lives = claims.heartbeat_alive(store, restore, undoing.clock, without=claims.FOREIGN_GRACE_MS)
        if lives:
            raise WriteConflictError(f"{store.path(restore)} is running in {storage.location}; wait for it")
        if plan is None or (restore.state is State.REQUESTED and claim is not None):
            store.erase(restore)
            claims.release(storage, restore.time)
            continue
        if claim is None:
            claims.claim_plan(storage, restore.time, token="")
        _LOG.warning("finishing restore %s to %s, whose process died", restore.time, plan.target)
        with alive(storage, restore.time):
            undoing.restore(restore, plan)
