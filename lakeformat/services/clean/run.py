"""Planning and running cleans (Hudi: ``CleanPlanActionExecutor``, ``CleanActionExecutor``).

A clean has three steps:

1. Under the lock, the plan is made and written to the timeline.
2. Without the lock, files are deleted in parallel.
3. Under the lock again, folders of empty partitions are removed and the clean is completed.

If the process dies, the clean stays pending. The next clean, by lakeformat or Hudi, finishes it. If lakeformat finishes
it, files that the table needs are not deleted, even if the plan names them.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext, suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import Final, TypeAlias

from lakeformat.codec.timeline_files.clean import CleanMetadata, CleanPartition, CleanPlan, encode_clean_plan
from lakeformat.concurrency import Attempts, thread_pool
from lakeformat.config.resolve import Options
from lakeformat.config.retention_options import CLEAN_AFTER, CLEAN_INCREMENTALLY, CleanedPartitions
from lakeformat.display import FILES, progress
from lakeformat.errors import StorageError, WriteConflictError
from lakeformat.file_system_view.context import TableContext
from lakeformat.locks import lock_table
from lakeformat.model.files import PARTITION_MARKER, FileGroupId, join_path, match_data_file
from lakeformat.model.instant import Action, Instant, State
from lakeformat.model.table_config import TableConfig
from lakeformat.public import OneLine, public
from lakeformat.services.clean.candidates import (
    SAVEPOINTS,
    LastSearch,
    find_changed_partitions,
    list_partition_files,
    list_savepoints,
    read_delete_constraints,
    read_last_search,
    write_search_note,
)
from lakeformat.services.clean.plan import (
    CleanedFile,
    DeleteConstraints,
    FilesToDelete,
    Policy,
    Retention,
    choose_files,
    find_earliest_to_retain,
)
from lakeformat.storage.port import Lease, Storage, check_path, is_remote
from lakeformat.timeline.timeline import Timeline
from lakeformat.transaction.order import claims
from lakeformat.transaction.order.claims import keep_alive
from lakeformat.transaction.order.commit_order import order_of
from lakeformat.transaction.order.conflict import conflict_of, is_stuck
from lakeformat.transaction.order.decisions import Decision, DecisionState, Kind, decide, settle
from lakeformat.transaction.upkeep.metadata_commits import add_changes
from lakeformat.transaction.upkeep.metadata_deletions import changes_of_deletion

__all__ = ["CleanResult", "CleanSession", "Deleter", "delete_in_process", "read_last_clean"]

_LOG: Final = logging.getLogger("lakeformat.services")
#: While one of these actions is pending, no new clean is planned.
_BLOCKING_ACTIONS: Final = frozenset({Action.CLEAN, Action.RESTORE, Action.ROLLBACK})
_COMPACTIONS: Final = frozenset({Action.COMPACTION, Action.LOG_COMPACTION})
#: Maximum number of files that are deleted in parallel.
_DELETE_THREADS: Final = 16
#: Usual maximum number of files in one plan. A limit, because a plan is decoded in memory.
_MOST_FILES: Final = 100_000

#: Function that deletes the files at these paths, in this or other processes. It returns a mapping of path to error
#: text, with the files that could not be deleted.
Deleter: TypeAlias = Callable[[Storage, Sequence[str]], Mapping[str, str]]


@public
@dataclass(frozen=True, slots=True, repr=False)
class CleanResult(OneLine):
    """Files that a clean deleted, or would delete.

    Attributes:
        instant_time: instant time of the clean, of the last one if there were several; "" if there was nothing to do,
            and for a dry run.
        policy: Hudi's name of the policy.
        earliest: the oldest commit that stays readable; None if the policy is versions, or if all commits stay.
        files: deleted files, each with its path and size.
        partitions: partitions whose folder was removed too.
        skipped: why nothing was done; "" otherwise.
    """

    instant_time: str
    policy: str
    earliest: str | None
    files: tuple[CleanedFile, ...] = ()
    partitions: tuple[str, ...] = ()
    skipped: str = ""

    @property
    def size_bytes(self) -> int:
        """Return the size of all files in bytes."""
        return sum(file.size_bytes for file in self.files)

    def __str__(self) -> str:
        if self.skipped:
            return f"clean: {self.skipped}"
        head = f"clean {self.instant_time}" if self.instant_time else "clean (dry run)"
        return f"{head}: {len(self.files):,} files, {self.size_bytes:,} bytes; {len(self.partitions)} partitions"


def delete_in_process(storage: Storage, paths: Sequence[str]) -> Mapping[str, str]:
    """Delete files with threads of this process. Return a mapping of path to error text for those that failed."""
    failed: dict[str, str] = {}
    if is_remote(storage):  # Many by one request. If that fails, each by one of its own, which says what failed.
        with suppress(StorageError):
            storage.delete_all(paths)
            return failed

    def delete(path: str) -> None:
        try:
            storage.delete(path)
        except StorageError as error:
            failed[path] = str(error)

    with progress("clean", len(paths), FILES) as shown, thread_pool(_DELETE_THREADS) as pool:
        for _ in pool.map(delete, paths):
            shown.advance(1)
    return failed


def read_last_clean(context: TableContext, timeline: Timeline) -> CleanMetadata | None:
    """Return the metadata of the newest completed clean; None if there is no such clean or no metadata."""
    cleans = [clean for clean in timeline.of_action(Action.CLEAN) if clean.state is State.COMPLETED]
    return context.store.read_clean(cleans[-1]) if cleans else None


class _PlanOvertakenError(WriteConflictError):
    """The plan of a clean was not decided, because another process was first."""


@dataclass(frozen=True, slots=True)
class _Scope:
    """The partitions in which a clean may find files to delete.

    Attributes:
        seen: the state of the decisions, and the timeline, from which the scope was found.
        partitions: the partitions to search; None for all.
        known_earliest: `LastSearch.earliest` of the last search.
    """

    seen: tuple[DecisionState, Timeline]
    earliest: Instant | None
    partitions: frozenset[str] | None
    known_earliest: str


@dataclass(frozen=True, slots=True)
class _Search:
    """Files that a clean may delete.

    Attributes:
        seen: the state of the decisions, and the timeline, before the search.
        is_all: False if more could be deleted than one plan may contain.
    """

    seen: tuple[DecisionState, Timeline]
    earliest: Instant | None
    to_delete: tuple[FilesToDelete, ...]
    last_search: LastSearch
    is_all: bool = True

    @property
    def files(self) -> tuple[CleanedFile, ...]:
        return tuple(file for choice in self.to_delete for file in choice.files)

    @property
    def emptied_partitions(self) -> tuple[str, ...]:
        return tuple(choice.path for choice in self.to_delete if choice.is_whole)


@dataclass(frozen=True, slots=True)
class _Work:
    """A clean that this process carries out. Files at ``kept_paths`` stay, although the plan may name them."""

    instant: Instant
    plan: CleanPlan
    kept_paths: frozenset[str] = frozenset()


class CleanSession:
    """Plans and carries out cleans of one table, of any table version and table type that lakeformat can read.

    Args:
        deleter: function that deletes files; `delete_in_process` by default.
        most_files: maximum number of files in one plan, unless one partition has more.
    """

    def __init__(
        self, context: TableContext, options: Options, deleter: Deleter | None = None, most_files: int = _MOST_FILES
    ) -> None:
        self.context, self.options, self._deleter = context, options, deleter or delete_in_process
        self._most_files, self._cleaned = most_files, CleanedPartitions.of(options)
        self.store, self.storage = context.store, context.storage

    def clean(self, retention: Retention, *, only_if_due: bool = False, newest: Timeline | None = None) -> CleanResult:
        """Finish cleans whose process died. Then delete the files that ``retention`` does not keep.

        Args:
            retention: the commits, hours or versions to keep.
            only_if_due: whether to do nothing if too few commits have completed since the last clean.
            newest: the timeline, if the caller has loaded it and the properties a moment ago.

        Raises:
            CorruptTableError: the files to keep cannot be determined; nothing was deleted.
            StorageError: files could not be deleted; the clean stays pending, and the next one continues with it.
            LockTimeoutError: another writer held the lock for too long.
        """
        config = self.store.config() if newest is None else self.store.known_config
        config.check_changeable(self.storage.location)
        newest = self._finish_dead_cleans(config, newest)
        # Most cleans have nothing to delete. That is found without the lock, for which other processes would wait. On
        # storage without locks, folders are listed only under the service's lock: another process may be listing them.
        first: _Scope | None = None
        first_search: _Search | None = None
        with suppress(FileNotFoundError):  # Another process has archived a commit: search again under the lock.
            first, why = self._find_scope(config, retention, only_if_due, newest)
            first_search = self._search(first, retention) if first is not None and self._is_cheap(first) else None
            if first is None or (first_search is not None and not first_search.files):
                return CleanResult("", retention.policy.value, None, skipped=why or "nothing to delete")
        attempts = Attempts(self.options.patience, self.context.ids.token, level=logging.INFO)
        deleted, removed = tuple[CleanedFile, ...](), tuple[str, ...]()
        while True:
            result = CleanResult("", retention.policy.value, None, skipped="another process is cleaning")
            search: _Search | None = None

            def plan_clean() -> _Work | None:
                nonlocal result, search, first, first_search
                before, scope, first, why = first, first, None, ""
                if scope is None or order_of(self.store).is_alone:
                    scope, why = self._find_scope(config, retention, only_if_due, before=before)
                # Since the first search no write has begun, but a running one may have filled an empty partition.
                is_same = first_search is not None and scope == before and not first_search.emptied_partitions
                search, first_search = first_search if is_same else None, None
                if search is None and scope is not None:
                    search = self._search(scope, retention)
                if search is None or not search.files:
                    result = replace(result, skipped=why or "nothing to delete")
                    return None
                return self._put_plan(config, retention, search)

            try:
                with self._plan_and_keep_alive(plan_clean) as work:
                    if work is None or search is None:
                        return result
                    self._carry_out(work)
            except (_PlanOvertakenError, FileNotFoundError) as error:  # Planning is cheap: plan again.
                if not attempts.wait(error, is_stuck=is_stuck(error)):
                    raise conflict_of(self.storage.location, error) from error
                continue
            done = _make_result(search, retention, work.instant.time)
            _LOG.info("%s: %s", self.storage.location, done)
            deleted, removed = (*deleted, *done.files), (*removed, *done.partitions)
            if search.is_all:
                return replace(done, files=deleted, partitions=removed)

    def _finish_dead_cleans(self, config: TableConfig, newest: Timeline | None) -> Timeline | None:
        """Finish cleans whose process died. Return the newest timeline; None if it is not known."""
        while self._has_dead_clean(newest := newest or self.store.load()):
            newest = None
            with self._plan_and_keep_alive(lambda: self._claim_dead_clean(config)) as work:
                if work is None:
                    return None
                _LOG.warning("%s: finishing clean %s, whose process died", self.storage.location, work.instant.time)
                self._carry_out(work)
        return newest

    def may_be_due(self, retention: Retention, timeline: Timeline, since: str = "~") -> bool:
        """Tell, from a timeline alone, whether there may be files to delete.

        Args:
            since: instant time of a write. If several writers commit without locks, each search costs all of them. So
                nothing is due if a clean has been planned since this write began, or if fewer commits have begun since
                the last clean than writes are running. A later write will find the rest.
        """
        if not order_of(self.store).is_alone:
            last = max((clean.time for clean in timeline.of_action(Action.CLEAN)), default="")
            begun = sum(commit.time > last for commit in timeline.commits)
            if last > since or begun < len(timeline.pending_writes):
                return False
        if _has_pending_clean(timeline):
            return True
        config, now_ms = self.store.known_config, self.context.clock.now_ms()
        if retention.policy is Policy.VERSIONS:
            return True
        return find_earliest_to_retain(timeline, retention, now_ms, config.zone) is not None

    def dry_run(self, retention: Retention) -> CleanResult:
        """Return what `clean` would delete now. Changes nothing and does not take the lock."""
        config = self.store.config()
        config.check_changeable(self.storage.location)
        scope, why = self._find_scope(config, retention, False)
        search = self._search(scope, retention, writes_note=False) if scope is not None else None
        if search is None or not search.files:
            return CleanResult("", retention.policy.value, None, skipped=why or "nothing to delete")
        return _make_result(search, retention, "")

    # --- planning, under the lock ---------------------------------------------------------------------

    @contextmanager
    def _plan_and_keep_alive(self, plan: Callable[[], _Work | None]) -> Iterator[_Work | None]:
        """Call ``plan`` under the lock; then release the lock, and send the clean's heartbeats while the block runs."""
        with ExitStack() as life:
            with self._lock():
                work = plan()
                if work is not None:
                    life.enter_context(keep_alive(self.storage, work.instant.time))
            yield work

    def _lock(self) -> AbstractContextManager[Lease]:
        return lock_table(self.storage, self.options.lock, service=True, clock=self.context.clock)

    def _has_dead_clean(self, timeline: Timeline) -> bool:
        """Tell whether there is a pending clean whose process may be dead. Only the lock makes it certain."""
        pending = [clean for clean in timeline.of_action(Action.CLEAN) if clean.state is not State.COMPLETED]
        return any(order_of(self.store).is_alone or not self._is_alive(clean) for clean in pending)

    def _claim_dead_clean(self, config: TableConfig) -> _Work | None:
        """Claim a pending clean whose process is dead. Return None if there is no such clean."""
        timeline = self.store.load()
        for clean in timeline.of_action(Action.CLEAN):
            if clean.state is State.COMPLETED or self._is_alive(clean):
                continue
            if not self._take_over(clean):
                continue
            if not self.store.read(clean.at(State.REQUESTED)):
                self.store.erase(clean)  # The clean's process died before it wrote a plan: nothing to finish.
                claims.release(self.storage, clean.time)
                continue
            if claims.read_claim(self.storage, clean.time) is None:  # Another program planned the clean: claim it.
                with suppress(FileExistsError):
                    claims.claim_plan(self.storage, clean.time, token=self.context.ids.token())
                    return self._continue(clean, timeline)
                continue
            return self._continue(clean, timeline)
        return None

    def _continue(self, clean: Instant, timeline: Timeline) -> _Work:
        """Return the work of a claimed clean whose process died. Start it if it is only requested."""
        plan = self.store.read_clean_plan(clean)
        if clean.state is State.REQUESTED:
            clean = self._start(clean, plan)
        return _Work(clean, plan, self._needed_files(timeline, plan))

    def _take_over(self, clean: Instant) -> bool:
        """Take over the claim of a dead clean, if it has one. Return False if another process was first."""
        is_claimed = claims.read_claim(self.storage, clean.time) is not None
        return not is_claimed or order_of(self.store).take_over(clean, self.context.clock)

    def _is_alive(self, clean: Instant) -> bool:
        claim = claims.read_claim(self.storage, clean.time)
        if claim is not None:
            return claims.is_alive(self.store, clean, claim, self.context.clock)
        return claims.has_live_heartbeat(self.store, clean, self.context.clock, grace_ms=claims.FOREIGN_GRACE_MS)

    def _is_cheap(self, scope: _Scope) -> bool:
        """Tell whether the search may be done without the table's lock."""
        return order_of(self.store).is_alone or scope.partitions == frozenset()

    def _find_scope(
        self,
        config: TableConfig,
        retention: Retention,
        only_if_due: bool,
        newest: Timeline | None = None,
        before: _Scope | None = None,
    ) -> tuple[_Scope | None, str]:
        """Find the partitions to search. Return the result and "", or None and the reason why there is none.

        Args:
            newest: a timeline that was loaded a moment ago (`settle`), if the result is found again under the lock.
            before: the result of a moment ago; it is returned again if the timeline has not changed.
        """
        state, _, timeline = settle(self.store, listed=newest)
        if before is not None and before.seen == (state, timeline):
            return before, ""
        pending = next((i for i in timeline.pending if i.action in _BLOCKING_ACTIONS), None)
        if pending is not None:
            return None, f"{self.store.path(pending)} is pending"
        last = read_last_clean(self.context, timeline)
        if only_if_due and last is not None:
            since = sum(commit.time > last.last_completed for commit in timeline.commits)
            if since < self.options[CLEAN_AFTER]:
                return None, f"only {since} commits since the last one"
        earliest = find_earliest_to_retain(timeline, retention, self.context.clock.now_ms(), config.zone)
        if earliest is None and retention.policy is not Policy.VERSIONS:
            return None, ""
        last_search = read_last_search(self.storage, last, retention)
        if earliest is not None and last is not None and earliest.time < last.earliest_commit_to_retain:
            return None, ""  # An earlier clean kept fewer commits and left nothing to delete.
        time = earliest.time if earliest else None
        incremental = self.options[CLEAN_INCREMENTALLY]
        partitions = find_changed_partitions(self.store, timeline, time, last_search) if incremental else None
        return _Scope((state, timeline), earliest, partitions, last_search.earliest), ""

    def _search(self, scope: _Scope, retention: Retention, *, writes_note: bool = True) -> _Search:
        """Search for files to delete."""
        timeline, time = scope.seen[1], scope.earliest.time if scope.earliest else None
        to_delete, is_all = self._choose_files(timeline, retention, time, scope.partitions)
        saved = frozenset(instant.time for instant in list_savepoints(timeline))
        if not order_of(self.store).is_alone:
            # Another process may be about to write the first files into an empty partition, whose marker must stay.
            to_delete = tuple(replace(choice, is_whole=False) for choice in to_delete)
        last_search = LastSearch(time or scope.known_earliest, timeline.commit_times, saved)
        search = _Search(scope.seen, scope.earliest, to_delete, last_search, is_all)
        if writes_note and not to_delete:
            self._note_search(search, retention)
        return search

    def _note_search(self, search: _Search, retention: Retention) -> None:
        """Record the search. The next one covers all partitions if this one left some out, or files for later."""
        is_whole = search.is_all and self._cleaned.are_all
        write_search_note(self.storage, search.last_search, retention, searches_all=not is_whole)

    def _choose_files(
        self, timeline: Timeline, retention: Retention, earliest: str | None, partitions: frozenset[str] | None
    ) -> tuple[tuple[FilesToDelete, ...], bool]:
        """Choose the files to delete. Return them by partition, and whether one plan could contain all of them."""
        if partitions is not None and not partitions:
            return (), True
        constraints, count = read_delete_constraints(self.store, timeline), 0
        to_delete: list[FilesToDelete] = []
        for partition in list_partition_files(self.store, timeline, partitions):
            if partition.path not in self._cleaned:
                continue
            choice = choose_files(partition, retention, earliest, constraints)
            if choice.files and count and count + len(choice.files) > self._most_files:
                return tuple(to_delete), False
            if choice.files:
                to_delete.append(choice)
                count += len(choice.files)
        return tuple(to_delete), True

    def _put_plan(self, config: TableConfig, retention: Retention, search: _Search) -> _Work:
        last_search = search.last_search
        plan = CleanPlan(
            retention.policy.value,
            (search.earliest.time, search.earliest.action.value) if search.earliest else None,
            max(last_search.commits or ()),
            {choice.path: tuple(file.name for file in choice.files) for choice in search.to_delete},
            search.emptied_partitions,
            {SAVEPOINTS: ",".join(sorted(last_search.savepoints))} if last_search.savepoints else {},
        )
        clean = claims.claim_instant(
            self.store, config, self.context.clock, Action.CLEAN,
            claims.Claim(claims.PROCESS, self.context.ids.token()), data=None, seen=search.seen,
        )  # fmt: skip
        self._decide_plan(clean, plan, search)
        clean = self._start(clean, plan)
        self._note_search(search, retention)
        return _Work(clean, plan)

    def _decide_plan(self, clean: Instant, plan: CleanPlan, search: _Search) -> None:
        """Decide the plan: create its requested file.

        Commits that completed since the search need no check: they make no old slice newest. A restore or rollback
        does, and a compaction plan or savepoint needs old slices. Another clean may have deleted the same files.

        Raises:
            _PlanOvertakenError: a clean, restore, rollback, savepoint or compaction plan was made since the search.
        """
        before, seen = search.seen
        cleans = {other.time for other in seen.of_action(Action.CLEAN)} | {clean.time}

        def check(state: DecisionState, timeline: Timeline) -> Decision:
            is_blocked = any(i.action in _BLOCKING_ACTIONS and i.time != clean.time for i in timeline.pending)
            is_blocked |= any(other.time not in cleans for other in timeline.of_action(Action.CLEAN))
            saved = frozenset(instant.time for instant in list_savepoints(timeline))
            plans = frozenset(i for i in timeline.pending if i.action in _COMPACTIONS) - frozenset(seen.pending)
            if is_blocked or plans or saved != search.last_search.savepoints or before.number < state.barrier:
                raise _PlanOvertakenError(
                    f"{self.storage.location} was restored, cleaned or compacted, or a savepoint was made, while clean "
                    f"{clean.time} was planned; run it again"
                )
            data = encode_clean_plan(plan, self.storage.location)
            return Decision(kind=Kind.PLAN, instant_time=clean.time, path=self.store.path(clean), data=data)

        claims.decide_claimed(self.store, clean, check)

    def _start(self, clean: Instant, plan: CleanPlan) -> Instant:
        """Make the clean inflight."""
        # Write the plan to the inflight file too: Hudi 0.15 cannot archive a clean of layout 1 without it.
        data = None if self.store.layout.has_completion_times else encode_clean_plan(plan, self.storage.location)
        return self.store.start(clean, data)

    def _needed_files(self, timeline: Timeline, plan: CleanPlan) -> frozenset[str]:
        """Return paths that must stay, even if the plan names them: files of newest slices and of savepoints."""
        constraints: DeleteConstraints = read_delete_constraints(self.store, timeline)
        needed = {join_path(path, name) for path, names in constraints.saved.items() for name in names}
        for partition in list_partition_files(self.store, timeline, frozenset(plan.files)):
            for file_id, slices in partition.groups.items():
                if FileGroupId(partition.path, file_id) not in constraints.replaced:
                    needed.update(file.path for file in slices[0].files)
        return frozenset(needed)

    # --- deleting without the lock, completing under it -----------------------------------------------

    def _carry_out(self, work: _Work) -> None:
        started = self.context.clock.now_ms()
        names_of = {path: _choose_deletable(path, names, work.kept_paths) for path, names in work.plan.files.items()}
        paths = [join_path(path, name) for path, names in names_of.items() for name in names]
        failed = self._deleter(self.storage, [check_path(path) for path in paths])
        if failed:
            path, why = next(iter(sorted(failed.items())))
            raise StorageError(
                f"{self.storage.location}: clean {work.instant.time} could not delete {len(failed)} files, e.g. "
                f"{path} ({why}); it stays pending, and the next clean continues with it"
            )
        # Without locks the completion is decided, so the clean need not wait for the lock again.
        with self._lock() if order_of(self.store).is_alone else nullcontext():
            self._complete(work, names_of, started)

    def _complete(self, work: _Work, names_of: Mapping[str, Sequence[str]], started: int) -> None:
        gone = frozenset(path for path in work.plan.partitions if self._remove_partition(path))
        partitions = tuple(
            CleanPartition(path, tuple(names), tuple(set(work.plan.files[path]).difference(names)), path in gone)
            for path, names in names_of.items()
        )
        bare = tuple(CleanPartition(path, is_folder_deleted=True) for path in sorted(gone.difference(names_of)))
        metadata = CleanMetadata(
            start_time=work.instant.time,
            earliest_commit_to_retain=work.plan.earliest[0] if work.plan.earliest else "",
            last_completed=work.plan.last_completed,
            time_taken_ms=self.context.clock.now_ms() - started,
            policy=work.plan.policy,
            partitions=(*partitions, *bare),
            extra=work.plan.extra,
        )
        make_changes = partial(changes_of_deletion, deleted=names_of, removed=sorted(gone))
        most, clock = self.options.metadata.compact_commits, self.context.clock
        add_changes(self.store, clock, work.instant.time, make_changes, compact_commits=most)
        self._decide_completion(work.instant, metadata)
        claims.release(self.storage, work.instant.time)

    def _decide_completion(self, clean: Instant, metadata: CleanMetadata) -> None:
        """Create the completed file, unless another process has completed the clean."""

        def check(_: DecisionState, timeline: Timeline) -> Decision | None:
            if not any(i.time == clean.time and i.state is State.INFLIGHT for i in timeline.of_action(Action.CLEAN)):
                return None
            done, data = self.store.encode_completed(clean, metadata, self.context.clock, timeline)
            return Decision(kind=Kind.PLAN, instant_time=clean.time, path=self.store.path(done), data=data)

        with suppress(FileExistsError):
            decide(self.store, check)

    def _remove_partition(self, path: str) -> bool:
        """Remove a partition's folder if no data is left in it and no write is pending.

        Return whether it was removed.
        """
        if not order_of(self.store).is_alone:
            return False  # Another process may be about to write the first files into the partition.
        entries = self.storage.list(check_path(path))
        marks = [entry.path for entry in entries if PARTITION_MARKER in entry.name]
        if len(marks) < len(entries) or self.store.load().pending_writes:
            return False
        for mark in marks:
            self.storage.delete(mark)
        while path and self.storage.remove_empty(path):
            path = path.rpartition("/")[0]
        return True


def _has_pending_clean(timeline: Timeline) -> bool:
    return any(clean.state is not State.COMPLETED for clean in timeline.of_action(Action.CLEAN))


def _choose_deletable(path: str, names: Sequence[str], kept_paths: frozenset[str]) -> list[str]:
    """Return the names that are data files and whose paths are not in ``kept_paths``: these may be deleted."""
    data_files = (name for name in names if match_data_file(name))
    return [name for name in data_files if join_path(path, name) not in kept_paths]


def _make_result(search: _Search, retention: Retention, instant_time: str) -> CleanResult:
    earliest = search.earliest.time if search.earliest else None
    return CleanResult(instant_time, retention.policy.value, earliest, search.files, search.emptied_partitions)
