"""Archiving of instants (Hudi: ``TimelineArchiver``).

Instants are archived in batches. For each batch, all steps happen under the lock, in this order:

1. The instants are written to the archive. Therefore a crash can leave an instant both in the archive and on the
   timeline, but it cannot lose an instant.
2. The requested and inflight files of the instants are deleted. If they were deleted after the completed files, a crash
   could leave an instant that looks pending.
3. The completed files of the instants are deleted, oldest first.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import takewhile
from typing import Final

from lakeformat.codec.timeline_files.archive import InstantToArchive
from lakeformat.concurrency import thread_pool
from lakeformat.config.compaction_options import COMPACTION_COMMITS
from lakeformat.config.resolve import Options
from lakeformat.config.retention_options import ARCHIVE_BATCH, CLEANS, HISTORY_BATCH, HISTORY_BYTES, KEPT_MANIFESTS
from lakeformat.file_system_view.context import TableContext
from lakeformat.file_system_view.file_index.load import undone_times
from lakeformat.file_system_view.file_index.update import carry_over, find_provable_manifest
from lakeformat.locks import lock_table
from lakeformat.model.files import match_data_file
from lakeformat.model.instant import COMMIT_ACTIONS, COMPLETES_AS, Action, Instant, State, format_instant_time
from lakeformat.model.table_config import TableConfig, TableType
from lakeformat.public import OneLine, public
from lakeformat.services.archive.plan import ArchiveLimits, archive_limits, choose_instants, extend_for_cleaning
from lakeformat.services.clean.plan import choose_retention, find_earliest_to_retain
from lakeformat.services.clean.run import read_last_clean
from lakeformat.services.cluster.run import write_clustering_note
from lakeformat.storage.port import FileInfo, Lease, check_path
from lakeformat.timeline.archive_writer import (
    HistorySettings,
    compact_history,
    merge_archive_logs,
    write_archive_log,
    write_history,
)
from lakeformat.timeline.timeline import Timeline
from lakeformat.timeline.void_commits import list_logs
from lakeformat.transaction.order import claims
from lakeformat.transaction.order.commit_order import order_of
from lakeformat.transaction.order.decisions import Decision, DecisionState, Kind, decide
from lakeformat.transaction.undo.commit_undo import list_remaining_logs
from lakeformat.transaction.undo.traces import delete_files_of
from lakeformat.transaction.upkeep.metadata_commits import find_archive_limit

__all__ = ["ArchiveResult", "ArchiveSession"]

_LOG: Final = logging.getLogger("lakeformat.services")
#: While one of these actions is pending, nothing is archived.
_BLOCKING_ACTIONS: Final = frozenset({Action.RESTORE, Action.ROLLBACK})
#: Maximum number of commits archived at once. Their metadata is in memory together, and becomes one archive file.
_AT_ONCE: Final = 200
#: Seconds for which the lease of the lock must still last before a step that two processes must not do at once.
_LEASE_SECONDS: Final = 30.0
#: Maximum number of files that are deleted in parallel.
_DELETE_THREADS: Final = 16


@public
@dataclass(frozen=True, slots=True, repr=False)
class ArchiveResult(OneLine):
    """Instants that were archived.

    Attributes:
        instants: completed instants that left the timeline, oldest first.
        skipped: why none was archived; "" otherwise.
    """

    instants: tuple[Instant, ...]
    skipped: str = ""

    def __str__(self) -> str:
        return f"archive: {self.skipped}" if self.skipped else f"archived {len(self.instants)} instants"


class ArchiveSession:
    """Archives instants of one table, of any table version and table type that lakeformat can read."""

    def __init__(self, context: TableContext, options: Options) -> None:
        self.context, self.options = context, options
        self.store, self.storage = context.store, context.storage

    def may_be_due(self, timeline: Timeline, added: int = 0) -> bool:
        """Tell, from a timeline alone, whether there may be instants to archive.

        Args:
            added: number of instants that were added to the timeline since it was loaded.
        """
        if len(timeline.instants) + added <= archive_limits(self.options).most:
            return False
        if not (late_ms := order_of(self.store).late_ms):
            return True
        done = (instant.time for instant in timeline.instants if instant.state is State.COMPLETED)
        old = format_instant_time(self.context.clock.now_ms() - late_ms, self.store.known_config.zone)
        return min(done, default="~") <= old

    def archive(
        self, least: int | None = None, most: int | None = None, *, checks_first: bool = False
    ) -> ArchiveResult:
        """Archive the instants that are due.

        Args:
            least: minimum number of commits that stay; by default the option's value.
            most: commits are archived only if the timeline has more than this; by default the option's value.
            checks_first: whether to check first without the lock, and return without locking if nothing is due.

        Raises:
            CorruptTableError: an instant's file is damaged; this instant and all later ones stay on the timeline.
            LockTimeoutError: another writer held the lock for too long.
        """
        config = self.store.config()
        config.check_changeable(self.storage.location)
        if checks_first and not self._choose_due(config, self.store.load(), (least, most)):
            return ArchiveResult((), "nothing is old enough to archive")
        done: list[Instant] = []
        why = ""
        while True:
            with lock_table(self.storage, self.options.lock, service=True, clock=self.context.clock) as lease:
                gone, why = self._archive_batch(config, (least, most), lease)
            done += gone
            if not gone:
                break
        result = ArchiveResult(tuple(done), "" if done else why)
        if done:
            _LOG.info("%s: %s", self.storage.location, result)
        return result

    def _choose_due(
        self, config: TableConfig, timeline: Timeline, requested: tuple[int | None, int | None]
    ) -> tuple[Instant, ...]:
        limits = self._limits(config, timeline, requested)
        claimed = claims.list_claimed_times(self.storage)
        done = timeline.taken_times - {instant.time for instant in timeline.pending}
        return choose_instants(
            timeline,
            limits,
            claimed=claimed - done | self._list_young_undone(timeline),
            trigger_start=_find_trigger_start(timeline, config, self.options[COMPACTION_COMMITS]),
            has_replaced_files=self._has_replaced_files,
            most=_AT_ONCE,
        )

    def _limits(
        self, config: TableConfig, timeline: Timeline, requested: tuple[int | None, int | None]
    ) -> ArchiveLimits:
        last = read_last_clean(self.context, timeline)
        limits = archive_limits(self.options, requested, last.earliest_commit_to_retain if last else "")
        retention = choose_retention(self.options)
        earliest = find_earliest_to_retain(timeline, retention, self.context.clock.now_ms(), config.zone)
        return extend_for_cleaning(limits, timeline, retention, earliest) if self.options[CLEANS] else limits

    def _has_replaced_files(self, commit: Instant) -> bool:
        """Tell whether files of the groups that a commit replaced exist; a clean must delete them before archiving."""
        for path, ids in self.store.read_commit(commit).replaced.items():
            hidden = frozenset(ids)
            for entry in self.storage.list(path) if hidden else ():
                name = match_data_file(entry.name)
                if name is not None and name.file_id in hidden:
                    return True
        return False

    def _archive_batch(
        self, config: TableConfig, requested: tuple[int | None, int | None], lease: Lease
    ) -> tuple[Sequence[Instant], str]:
        """Archive the oldest instants that are due, with at most `_AT_ONCE` commits. Call under the lock.

        Return the archived instants and "". If none is archived, return an empty tuple and the reason.
        """
        before = self.store.load(config.archive_folder)
        pending = next((i for i in before.pending if i.action in _BLOCKING_ACTIONS), None)
        if pending is not None:
            return (), f"{self.store.path(pending)} is pending"
        chosen = self._choose_due(config, before, requested)
        if config.has_metadata_table:
            limit = find_archive_limit(self.store)
            chosen = tuple(takewhile(lambda instant: instant.time < limit, chosen))
        entries = {entry.name: entry for entry in self.storage.list(self.store.layout.folder) if not entry.is_folder}
        chosen = self._keep_young(chosen, entries)
        if not chosen:
            return (), "nothing is old enough to archive"
        if not self._decide(chosen, before):
            return (), "another process has changed the timeline meanwhile"
        archived = [instant for instant in chosen if instant not in before.voids]
        # Find the file index's manifest now: the commits that prove that it is complete may be archived below.
        manifest = find_provable_manifest(self.store, before)
        write_clustering_note(self.store, before, archived)
        lease.check(_LEASE_SECONDS)
        if archived:
            try:
                read = [self._read(config, instant, entries) for instant in archived]
            except FileNotFoundError:
                return (), "another process has archived the instants meanwhile"
            self._write(config, read)
        self._delete_archived(chosen, entries)
        self.store.forget(chosen)
        lease.check(_LEASE_SECONDS)
        carry_over(self.store, config, manifest, archived)
        return chosen, ""

    def _list_young_undone(self, timeline: Timeline) -> frozenset[str]:
        """Return the times of the instants whose files late requests may still create.

        These are the instants that rollbacks and restores have undone which are younger than a request can be late.
        """
        if not (late_ms := order_of(self.store).late_ms):
            return frozenset()
        undos = (instant for instant in timeline.instants if instant.action in _BLOCKING_ACTIONS)
        return undone_times(self.store, [instant for instant in undos if self.store.age_ms(instant) < late_ms])

    def _keep_young(self, chosen: Sequence[Instant], entries: Mapping[str, FileInfo]) -> tuple[Instant, ...]:
        """Return the instants before the first one that must stay, because late requests may still create its files.

        Otherwise an archived commit could come back. Ages are measured by the storage's clock: between two files of one
        listing. On storage with locks, all may be archived.
        """
        if not (late_ms := order_of(self.store).late_ms):
            return tuple(chosen)
        now = max((entry.modified_ms for entry in entries.values()), default=0)

        def is_old(instant: Instant) -> bool:
            entry = entries.get(self.store.layout.file_name(instant))
            return entry is not None and now - entry.modified_ms >= late_ms

        return tuple(takewhile(is_old, chosen))

    def _decide(self, chosen: Sequence[Instant], before: Timeline) -> bool:
        """Decide that these instants are archived: no older write may be published any more.

        Then delete files that undone writes of that time have left, which late requests may have created. Once their
        instants are older than the oldest write that stays, readers would take them for files of archived commits.

        Args:
            before: the timeline from which the instants were chosen.

        Returns:
            False if they must not be archived, because another process has begun an older write, a savepoint or an
            undo, or has archived some of them.
        """
        newest = max((instant.time for instant in chosen if instant.action in COMMIT_ACTIONS), default="")
        commits = {i.time for i in chosen if i.action in COMMIT_ACTIONS and i not in before.voids}
        saved = before.of_action(Action.SAVEPOINT)
        undone: set[str] = set()

        def check(state: DecisionState, timeline: Timeline) -> Decision | None:
            is_blocked = any(i.action in _BLOCKING_ACTIONS for i in timeline.pending)
            has_older = any(i.time <= newest for i in timeline.pending_writes)
            is_changed = not timeline.commit_times >= commits
            if is_blocked or has_older or is_changed or timeline.of_action(Action.SAVEPOINT) != saved:
                return None
            start = max(newest, timeline.without(chosen).oldest_write or "") if newest else ""
            undone.update(time for time in state.undone_times if time < start)
            undone.difference_update(timeline.commit_times)
            undone.update(instant.time for instant in chosen if instant in before.voids)
            return Decision(kind=Kind.ARCHIVE, instant_time=newest, archived_to=newest)

        if decide(self.store, check) is None:
            return False
        self._delete_late_logs([instant for instant in chosen if instant in before.voids])
        if undone:
            # One run of a plan may have been undone, and a later run completed and archived since.
            undone.difference_update(self.store.read_archived(min(undone)).completion_times(undone))
            delete_files_of(self.store, frozenset(undone))
        return True

    def _delete_late_logs(self, voids: Sequence[Instant]) -> None:
        """Delete the log files of undone commits whose names do not show these commits."""
        paths = {check_path(path) for void in voids for path in list_logs(self.store.read_commit(void))}
        if paths:
            self.storage.delete_all(sorted(paths - list_remaining_logs(self.store, self.store.load(), frozenset())))

    def _read(self, config: TableConfig, instant: Instant, entries: dict[str, FileInfo]) -> InstantToArchive:
        layout = self.store.layout
        requests = (request for request in layout.list_requests(instant) if layout.file_name(request) in entries)
        request = next(requests, None)
        entry = entries[layout.file_name(instant)]
        return InstantToArchive(
            instant.time,
            instant.completion_time or format_instant_time(entry.modified_ms, config.zone),
            instant.action.value,
            self.store.read(instant),
            self.store.read(request) if request else b"",
            f"{self.storage.location}/{self.store.path(instant)}",
        )

    def _write(self, config: TableConfig, instants: Sequence[InstantToArchive]) -> None:
        folder, options = config.archive_folder, self.options
        if not self.store.layout.has_completion_times:
            write_archive_log(self.storage, folder, instants, per_block=options[ARCHIVE_BATCH])
            merge_archive_logs(self.storage, folder)
            return
        write_history(self.storage, folder, instants)
        settings = HistorySettings(options[HISTORY_BATCH], options[HISTORY_BYTES], options[KEPT_MANIFESTS])
        compact_history(self.storage, folder, settings)

    def _delete_archived(self, chosen: Sequence[Instant], entries: dict[str, FileInfo]) -> None:
        """Delete the files of archived instants from the timeline."""
        layout = self.store.layout
        families = {(i.time, action) for i in chosen for action in (i.action, *_PLANS.get(i.action, ()))}
        pending = [
            entry.path
            for name, entry in entries.items()
            if (parsed := layout.parse(name)) is not None
            and parsed.state is not State.COMPLETED
            and (parsed.time, parsed.action) in families
        ]
        with thread_pool(_DELETE_THREADS) as pool:
            list(pool.map(self.storage.delete, pending))
        for instant in chosen:
            self.storage.delete(self.store.path(instant))


#: Maps an action of completed instants (commit) to the actions of its requested and inflight files (compaction).
_PLANS: Final = {done: tuple(p for p, as_ in COMPLETES_AS.items() if as_ is done) for done in COMPLETES_AS.values()}


def _find_trigger_start(timeline: Timeline, config: TableConfig, due_after: int) -> str:
    """Return the time of the oldest instant that decides when a compaction is due.

    Return "~", which is later than every instant time, if there is none.

    Source: Hudi's ``getOldestInstantToRetainForCompaction``.
    """
    if config.table_type is not TableType.MERGE_ON_READ:
        return "~"
    last = max((commit.time for commit in timeline.commits if commit.action is Action.COMMIT), default="")
    deltas = [c.time for c in timeline.commits if c.action is Action.DELTA_COMMIT and c.time > last]
    return deltas[-due_after] if len(deltas) >= due_after else last or min(deltas, default="~")
