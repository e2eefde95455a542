"""Restores and rollbacks (Hudi: ``BaseHoodieWriteClient.restoreToInstant``, ``rollback``).

Before anything changes, the state that will result is computed, and all of its files are checked to exist. Hudi's own
restore and rollback can fail half-way and leave a table that no process can write to. After the checks,
`lakeformat.transaction.undo.commit_undo` makes the changes; after a crash, the next writer finishes them.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Final

from lakeformat.codec.timeline_files.recovery import RestorePlan, encode_restore_plan
from lakeformat.config.resolve import Options
from lakeformat.errors import InstantNotAvailableError, InvalidInputError, LakeformatError, WriteConflictError
from lakeformat.file_system_view.context import TableContext
from lakeformat.file_system_view.file_groups import find_missing_before, list_files
from lakeformat.file_system_view.snapshot import Snapshot, list_snapshot
from lakeformat.locks import lock_table
from lakeformat.model.files import BaseFileName
from lakeformat.model.instant import Action, Instant, State
from lakeformat.model.table_config import TableConfig
from lakeformat.public import OneLine, public
from lakeformat.services.restore.plan import (
    check_not_saved,
    find_cleaned_base,
    find_last_commit,
    find_target,
    list_instants_after,
)
from lakeformat.timeline.damaged_commits import read_commit_if_whole
from lakeformat.timeline.lost_commits import check_no_lost_commits, find_lost_commits
from lakeformat.timeline.store import TimelineStore
from lakeformat.timeline.timeline import Timeline
from lakeformat.transaction.order import claims
from lakeformat.transaction.order.claims import keep_alive
from lakeformat.transaction.order.conflict import conflict_of
from lakeformat.transaction.order.decisions import Decision, DecisionState, Kind
from lakeformat.transaction.undo.commit_undo import CommitUndo, choose_files, list_remaining_logs
from lakeformat.transaction.undo.recovery import recover

__all__ = ["RestoreResult", "RestoreSession", "list_clustering_plans", "snapshot_at", "snapshot_before"]


def list_clustering_plans(store: TimelineStore, timeline: Timeline) -> frozenset[str]:
    """Return the instant times of pending clusterings, running or not."""
    return frozenset(store.read_clustering_groups(timeline).values())


def snapshot_at(
    context: TableContext, config: TableConfig, timeline: Timeline, target: Instant, *, activity: str
) -> Snapshot:
    """Return the table's snapshot at a completed commit, without all later writes.

    Lists the table twice. Memory: one object per file.

    Args:
        activity: what the caller is about to do, for the error message.

    Raises:
        InstantNotAvailableError: files of that state have been cleaned, or commits after it have been archived.
    """
    store, location = context.store, context.storage.location
    archived = store.read_archived().completed_in(target.completed_at)
    newer = [instant for instant in archived if instant.time not in timeline.commit_times]
    if newer:
        raise InstantNotAvailableError(
            f"{location}: cannot {activity}: commit {newer[0].time}, which came after {target.time}, has been "
            "archived and cannot be undone any more; choose a later instant"
        )
    undone = list_instants_after(timeline, target, list_clustering_plans(store, timeline))
    return snapshot_before(context, config, timeline, undone, activity=activity)


def snapshot_before(
    context: TableContext, config: TableConfig, timeline: Timeline, undone: Sequence[Instant], *, activity: str
) -> Snapshot:
    """Return the table's snapshot as it would be without the writes ``undone``.

    Args:
        activity: what the caller is about to do, for the error message.

    Raises:
        InstantNotAvailableError: files that this snapshot needs no longer exist.
    """
    store, location = context.store, context.storage.location
    read_commits = [(instant, read_commit_if_whole(store, instant)) for instant in undone]
    metadatas = [(instant, metadata) for instant, metadata in read_commits if metadata is not None]
    listing = list_files(context.storage)
    times = frozenset(instant.time for instant in undone)
    remaining = timeline.with_pending(times)
    missing = find_missing_before(metadatas, listing, location)
    if missing is None and len(metadatas) < len(read_commits):
        replaced = {group for commit in remaining.commits for group in store.read_commit(commit).replaced_groups}
        gone = find_cleaned_base(_list_cleaned(store, timeline, min(times)), listing.bases, times, replaced)
        missing = gone and f"{location}: the version before of file group {gone} has been cleaned away"
    if missing is not None:
        raise InstantNotAvailableError(f"cannot {activity}: {missing}; choose a later instant")
    return list_snapshot(store, config, remaining, is_time_travel=True)


def _list_cleaned(store: TimelineStore, timeline: Timeline, since: str) -> Iterator[tuple[str, str]]:
    """Yield partition path and bare name of each file that a clean has deleted since an instant."""
    for clean in timeline.of_action(Action.CLEAN):
        metadata = store.read_clean(clean) if clean.state is State.COMPLETED and clean.time > since else None
        for partition in metadata.partitions if metadata is not None else ():
            for name in (*partition.deleted, *partition.failed):
                yield partition.path, name.rpartition("/")[2]


_LOG: Final = logging.getLogger("lakeformat.services")
#: A pending instant of these actions may delete files or bring rows back. While there is one, nothing is undone.
_BLOCKING_ACTIONS: Final = frozenset({Action.CLEAN, Action.ROLLBACK, Action.RESTORE, Action.INDEXING})
_PLANS: Final = frozenset({Action.COMPACTION, Action.LOG_COMPACTION})


@public
@dataclass(frozen=True, slots=True, repr=False)
class RestoreResult(OneLine):
    """Result of a restore or rollback.

    Attributes:
        instant_time: instant time of the restore or rollback; "" if there was nothing to do, and for a dry run.
        target: the commit whose state the table has now; None if the table is empty now.
        undone: the undone instants, in order; for a dry run, those that would be undone.
    """

    instant_time: str
    target: str | None
    undone: tuple[str, ...]

    def __str__(self) -> str:
        if not self.undone:
            return f"the table is at {self.target}: nothing to undo"
        did = "undone" if self.instant_time else "dry run: would undo"
        return f"{did} {len(self.undone)}, back to {self.target or 'an empty table'}: {', '.join(self.undone)}"


def _make_changed_error(location: str) -> WriteConflictError:
    return WriteConflictError(f"{location} was written to meanwhile; look at its history, then run this again")


class RestoreSession:
    """Restores and rollbacks of one table, of any table version and table type that lakeformat can read.

    The lock is held throughout.
    """

    def __init__(self, context: TableContext, options: Options) -> None:
        self.context, self.options = context, options
        self.store, self.storage = context.store, context.storage

    def plan_restore(self, to: str) -> RestoreResult:
        """Return what `restore` would undo, or raise the same errors. Takes no lock and changes nothing."""
        config, timeline = self._config(), self.store.load()
        target = find_target(timeline, to, self.storage.location, activity="restore")
        undone = list_instants_after(timeline, target, list_clustering_plans(self.store, timeline))
        if undone:
            check_not_saved(timeline, undone, self.storage.location)
            self._check_files(config, timeline, target, undone)
        return RestoreResult("", to, tuple(i.time for i in undone))

    def can_restore(self, to: str) -> bool:
        """Tell whether the table can be restored to a commit, once no savepoint keeps a later one."""
        with suppress(LakeformatError):
            config, timeline = self._config(), self.store.load()
            target = find_target(timeline, to, self.storage.location, activity="restore")
            undone = list_instants_after(timeline, target, list_clustering_plans(self.store, timeline))
            if undone:
                self._check_files(config, timeline, target, undone)
            return True
        return False

    def plan_rollback(self, instant_time: str | None) -> RestoreResult:
        """Return what `rollback` would undo, or raise the same errors. Takes no lock and changes nothing."""
        config, timeline = self._config(), self.store.load()
        commit = self._commit_to_undo(timeline, instant_time)
        check_not_saved(timeline, (commit,), self.storage.location)
        before = snapshot_before(self.context, config, timeline, (commit,), activity=f"roll {commit.time} back")
        return RestoreResult("", before.instant_time, (commit.time,))

    def restore(self, to: str) -> RestoreResult:
        """Undo everything that came after a commit."""
        with self._lock(restoring=to) as config:
            timeline = self.store.load()
            target = find_target(timeline, to, self.storage.location, activity="restore")
            plans = list_clustering_plans(self.store, timeline)
            undone = list_instants_after(timeline, target, plans)
            if not undone:
                return RestoreResult("", to, ())
            self._check_undo(timeline, undone, plans)
            self._check_files(config, timeline, target, undone)
            plan = RestorePlan(tuple((i.time, i.action.value) for i in undone), to)
            restore = claims.claim_instant(
                self.store, config, self.context.clock, Action.RESTORE,
                claims.Claim(claims.PROCESS, None), data=None,
            )  # fmt: skip
            self._decide(restore, plan, target, timeline)
            with keep_alive(self.storage, restore.time):
                CommitUndo(self.store, config, self.context.clock).restore(restore, plan)
        return self._log_result(RestoreResult(restore.time, to, tuple(i.time for i in undone)))

    def rollback(self, instant_time: str | None) -> RestoreResult:
        """Undo the commit that completed last."""
        with self._lock() as config:
            timeline = self.store.load()
            commit = self._commit_to_undo(timeline, instant_time)
            self._check_undo(timeline, (commit,), list_clustering_plans(self.store, timeline))
            self._check_plans_after(timeline, commit)
            before = snapshot_before(self.context, config, timeline, (commit,), activity=f"roll {commit.time} back")
            kept = self._list_remaining_logs(timeline, (commit,))
            files = choose_files(self.store, commit, list_files(self.storage), kept)
            undoing = CommitUndo(self.store, config, self.context.clock)

            def check(state: DecisionState, now: Timeline) -> None:
                self._check_undo(now, (commit,), list_clustering_plans(self.store, now))
                self._check_plans_after(now, commit)
                self._check_unchanged(state, commit, timeline, now)
                if self._find_newest(now) != commit:
                    raise _make_changed_error(self.storage.location)

            rollback = undoing.begin(commit, files, check)
            try:
                with keep_alive(self.storage, rollback.time):
                    undoing.roll_back(rollback)
            except Exception:
                with suppress(LakeformatError):  # If this fails too, the next writer gives the rollback up.
                    if not undoing.has_begun(rollback):
                        undoing.give_up(rollback)
                raise
        return self._log_result(RestoreResult(rollback.time, before.instant_time, (commit.time,)))

    def _decide(self, restore: Instant, plan: RestorePlan, target: Instant, before: Timeline) -> None:
        """Decide a restore: create its requested file. No write that has begun before may be published afterwards.

        Args:
            before: the timeline with which the restore was planned.

        Raises:
            WriteConflictError: another writer has committed or begun since the restore was planned.
        """

        def check(state: DecisionState, timeline: Timeline) -> Decision:
            self._check_unchanged(state, target, before, timeline)
            plans = list_clustering_plans(self.store, timeline)
            undone = list_instants_after(timeline, target, plans)
            if frozenset(instant.time for instant in undone) != plan.times:
                raise _make_changed_error(self.storage.location)
            self._check_undo(timeline, undone, plans, ours=restore.time)
            return Decision(
                kind=Kind.RESTORE,
                instant_time=restore.time,
                path=self.store.path(restore),
                data=encode_restore_plan(plan),
                is_barrier=True,
            )

        claims.decide_claimed(self.store, restore, check)

    def _config(self) -> TableConfig:
        config = self.store.config()
        config.check_changeable(self.storage.location)
        return config

    @contextmanager
    def _lock(self, *, restoring: str | None = None) -> Iterator[TableConfig]:
        config = self._config()
        with lock_table(self.storage, self.options.lock, service=True, clock=self.context.clock):
            recover(self.store, config, self.context.clock, restore_target=restoring, allows_lost=True)
            try:
                yield config
            except FileNotFoundError as error:
                raise conflict_of(self.storage.location, error) from None

    def _commit_to_undo(self, timeline: Timeline, instant_time: str | None) -> Instant:
        """Return the commit that completed last. Raise an error if there is none, or if ``instant_time`` is another."""
        location, last = self.storage.location, self._find_newest(timeline)
        if last is None:
            raise InstantNotAvailableError(f"{location} has no commit on its timeline: there is nothing to roll back")
        if instant_time is None or instant_time == last.time:
            self._check_is_not_only_commit(timeline, last)
            return last
        find_target(timeline, instant_time, location, activity="roll back")
        raise InvalidInputError(
            f"{location}: {instant_time} is not the last commit, which is {last.time}; restore() to the one before"
        )

    def _find_newest(self, timeline: Timeline) -> Instant | None:
        """Return the commit that completed last, or a later one that has lost its completed file.

        Raises:
            CorruptTableError: an earlier commit has lost its file, and others were made since.
        """
        last, newest = find_last_commit(timeline), max(timeline.commit_times, default="")
        lost = find_lost_commits(self.store, timeline)
        if any(instant.time < newest for instant in lost):
            check_no_lost_commits(self.store, timeline)
        return max(lost, key=lambda instant: instant.time, default=last)

    def _check_unchanged(self, state: DecisionState, needed: Instant, before: Timeline, now: Timeline) -> None:
        """Check that the files that were found when the undo was planned can still be there.

        Args:
            needed: a commit that must not be archived.
            before: the timeline with which the undo was planned.

        Raises:
            WriteConflictError: a clean was made since then, or the commit was archived.
        """
        cleans = frozenset(i.time for i in now.of_action(Action.CLEAN))
        if cleans - {i.time for i in before.of_action(Action.CLEAN)} or needed.time <= state.archived_to:
            raise _make_changed_error(self.storage.location)

    # --- checks ---------------------------------------------------------------------------------------

    def _check_is_not_only_commit(self, timeline: Timeline, victim: Instant) -> None:
        """Check that the commit is not the only one on the timeline of a table with archived commits.

        Without a commit on the timeline, readers ignore the files of archived commits, so that the table would appear
        empty (Hudi: ``isBeforeTimelineStarts``).
        """
        if timeline.commit_times <= {victim.time} and self.store.read_archived().completed_in(""):
            raise InstantNotAvailableError(
                f"{self.storage.location}: cannot roll {victim.time} back: all commits before it are archived, and "
                "readers need one commit on the timeline; write again first, or keep more commits "
                "(hoodie.keep.min.commits)"
            )

    def _check_undo(
        self, timeline: Timeline, undone: Sequence[Instant], plans: frozenset[str], ours: str | None = None
    ) -> None:
        """Check that no process writes or deletes, and that no savepoint keeps one of the commits.

        Args:
            ours: instant time of the restore itself, if it is on the timeline.
        """
        check_not_saved(timeline, undone, self.storage.location)
        lost = frozenset(undone) & frozenset(find_lost_commits(self.store, timeline))
        for instant in timeline.pending:
            if instant.time != ours and instant.action in _BLOCKING_ACTIONS:
                hint = "call clean(), which finishes it" if instant.action is Action.CLEAN else "wait for it"
                raise WriteConflictError(
                    f"{self.store.path(instant)} is pending in {self.storage.location}; {hint}, then run this again"
                )
        for instant in timeline.pending_writes:
            if instant.state is State.REQUESTED and (instant.time in plans or instant.action in _PLANS):
                continue  # The plan waits to be run: no process is writing for it.
            if instant.action in _PLANS and claims.is_without_life(self.store, instant, self.context.clock):
                continue  # Its run has died, or its completed file is gone: it can be run again.
            if instant in lost:
                continue
            raise WriteConflictError(
                f"{self.store.path(instant)} is being written in {self.storage.location}; "
                f"{claims.advise_to_wait_for(self.store, instant, self.context.clock)}, or stop its writer, then run "
                "this again"
            )

    def _check_plans_after(self, timeline: Timeline, victim: Instant) -> None:
        """Check that no pending plan is newer than the commit, since such a plan may use the commit's files."""
        for instant in timeline.pending_writes:
            if instant.time > victim.time:
                raise WriteConflictError(
                    f"{self.store.path(instant)} in {self.storage.location} was planned with the files of commit "
                    f"{victim.time}; run or cancel it first, or restore() to the commit before"
                )

    def _check_files(self, config: TableConfig, timeline: Timeline, target: Instant, undone: Sequence[Instant]) -> None:
        """Check that all files of a commit are there, and none of them has rows that would be undone."""
        snapshot_at(self.context, config, timeline, target, activity="restore")
        self._check_savepoint(timeline, target)
        self._check_logs(timeline, undone)

    def _check_savepoint(self, timeline: Timeline, target: Instant) -> None:
        """Check that all base files exist that a savepoint of the commit ``target`` names.

        A savepoint should prevent their deletion, but Hudi's cleaner may have deleted one.
        """
        for instant in timeline.of_action(Action.SAVEPOINT):
            if instant.time != target.time or instant.state is not State.COMPLETED:
                continue
            present = {(file.partition_path, str(file.name)) for file in list_files(self.storage).bases}
            for partition, names in self.store.read_savepoint(instant).files.items():
                for name in names:
                    if BaseFileName.match(name) and (partition, name) not in present:
                        raise InstantNotAvailableError(
                            f"{self.storage.location}: cannot restore to savepoint {target.time}: its file {name} of "
                            f"{partition!r} has been deleted; bring it back from a copy, or choose another instant"
                        )

    def _list_remaining_logs(self, timeline: Timeline, undone: Sequence[Instant]) -> frozenset[str]:
        return list_remaining_logs(self.store, timeline, frozenset(instant.time for instant in undone))

    def _check_logs(self, timeline: Timeline, undone: Sequence[Instant]) -> None:
        """Check, before anything is undone, that no log file mixes rows of undone and of remaining commits."""
        kept, listing = self._list_remaining_logs(timeline, undone), list_files(self.storage)
        for instant in undone:
            choose_files(self.store, instant, listing, kept)

    # --- effects --------------------------------------------------------------------------------------

    def _log_result(self, result: RestoreResult) -> RestoreResult:
        _LOG.info("%s: %s", self.storage.location, result)
        return result
