"""Moving a table to another version (Hudi: ``UpgradeDowngrade``).

The table's lock is held, and no instant may be pending. A change of version has these steps:

1. A table with log files is compacted, by a commit of its own, because the two timeline layouts name log files
   differently.
2. The timeline is copied to the folder of the new layout, which readers do not read yet.
3. One replacement of ``hoodie.properties`` makes the copy the table's timeline.
4. The old timeline files are deleted.

If the process dies, the table has the old version or the new one, and the next change of version removes the files of
the other layout. Memory: one file of the timeline; for an archive that moves, 500 commits.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from typing import Final

from lakeformat.codec.timeline_files.archive import InstantToArchive
from lakeformat.codec.timeline_files.commit import commit_to_avro, commit_to_json, decode_commit
from lakeformat.config.resolve import Options
from lakeformat.errors import (
    CorruptTableError,
    InvalidInputError,
    LakeformatError,
    UnsupportedTableError,
    WriteConflictError,
)
from lakeformat.file_system_view.context import TableContext
from lakeformat.file_system_view.live_files import ListedSlices
from lakeformat.file_system_view.snapshot import Snapshot
from lakeformat.locks import lock_table
from lakeformat.metadata_table.index_definitions import (
    keep_definitions,
    read_statistics_form,
)
from lakeformat.metadata_table.metadata_table import open_metadata_table
from lakeformat.metadata_table.names import MetadataPartition
from lakeformat.model.commit import CommitMetadata
from lakeformat.model.instant import COMMIT_ACTIONS, Action, Instant, State, format_instant_time
from lakeformat.model.keys import KeyGeneratorKind, KeySettings
from lakeformat.model.table_config import PROPERTIES_PATH, TIMELINE_PATH, TableConfig
from lakeformat.model.table_properties import payload_ordering
from lakeformat.model.table_version import SINGLE_KEY_NAMES, WRITTEN_VERSIONS, table_version
from lakeformat.public import OneLine, public
from lakeformat.services.upgrade.plan import convert_properties, list_moves, make_completion_times
from lakeformat.storage.port import Lease, OutcomeUnknownError, Version
from lakeformat.timeline.archive import read_archive_logs, read_lsm_history
from lakeformat.timeline.archive_writer import write_archive_log, write_history
from lakeformat.timeline.store import MOVED
from lakeformat.timeline.timeline import Timeline
from lakeformat.timeline.timeline_layout import LAYOUT_1, LAYOUT_2, TimelineLayout, layout_of
from lakeformat.timeline.void_commits import encode_void, is_void
from lakeformat.transaction.order import claims
from lakeformat.transaction.order.commit_order import order_of
from lakeformat.transaction.order.decisions import Decision, DecisionState, Kind, decide, prepare_removal, read_state
from lakeformat.transaction.order.properties_file import write_properties
from lakeformat.transaction.undo.recovery import recover
from lakeformat.transaction.undo.traces import delete_files_of
from lakeformat.transaction.upkeep.metadata_commits import drop_metadata_table, write_version
from lakeformat.transaction.upkeep.metadata_creation import MADE_PARTITIONS, drop_indexes, make_partitions
from lakeformat.write.intake import probe_keys
from lakeformat.write.plan.table_settings import key_settings

__all__ = ["VersionChange", "VersionSession"]

_LOG: Final = logging.getLogger("lakeformat.services")
#: Partitions of the metadata table that are alike in versions 8 and 9.
_IN_VERSION_8: Final = frozenset(
    partition.value
    for partition in (MetadataPartition.FILES, MetadataPartition.BLOOM_FILTERS, MetadataPartition.RECORD_INDEX)
)
#: Maximum number of archived commits in memory.
_AT_A_TIME: Final = 500
#: Number of commits in one block of an archive of layout 1.
_PER_BLOCK: Final = 10


#: Maximum number of attempts to move a table while other writers keep appending log files.
_TRIES: Final = 3


#: Seconds for which the lease of the lock must still last before the timeline of the other layout is deleted.
_LEASE_SECONDS: Final = 30.0


class _UncompactedError(WriteConflictError):
    """The table has log files, or a compaction is pending."""


@public
@dataclass(frozen=True, slots=True, repr=False)
class VersionChange(OneLine):
    """Result of a change of version.

    Attributes:
        before, after: table versions.
        files: number of timeline files that were moved.
        skipped: why nothing was done; "" otherwise.
    """

    before: int
    after: int
    files: int = 0
    skipped: str = ""

    def __str__(self) -> str:
        if self.skipped:
            return self.skipped
        moved = f"; {self.files:,} files of the timeline were moved" if self.files else ""
        return f"the table is of version {self.after} now, and was of version {self.before}{moved}"


class VersionSession:
    """Moves one table between table versions.

    Args:
        compact: function that runs the pending compactions and merges all log files.
    """

    def __init__(self, context: TableContext, options: Options, compact: Callable[[], object]) -> None:
        self.context, self.options, self._compact = context, options, compact
        self.storage, self.store = context.storage, context.store

    def move(self, to: int, *, is_upgrade: bool) -> VersionChange:
        """Move the table to a version. Does nothing if the table has that version.

        Raises:
            InvalidInputError: the version does not exist, is earlier in an upgrade, or is later in a downgrade.
            WriteConflictError: an instant is pending, or other writers keep appending log files.
            UnsupportedTableError: the table cannot be moved to that version.
        """
        if to not in WRITTEN_VERSIONS:
            raise InvalidInputError(
                f"table version {to!r} is not one of {', '.join(map(str, WRITTEN_VERSIONS))}; name one"
            )
        remaining_tries = _TRIES
        while True:
            remaining_tries -= 1
            with lock_table(self.storage, self.options.lock, service=True, clock=self.context.clock) as lease:
                try:
                    return self._move_locked(to, lease, is_upgrade=is_upgrade)
                except _UncompactedError:
                    if not remaining_tries:
                        raise
            self._compact()

    def _move_locked(self, to: int, lease: Lease, *, is_upgrade: bool) -> VersionChange:
        """Do the work of `move`, but raise an error instead of compacting log files. Call under the lock."""
        config = self.store.config()
        config.check_changeable(self.storage.location)
        self._end_dead_move()
        lease.check(_LEASE_SECONDS)
        self._remove_old_layout(config)
        before = config.version
        if before == to:
            return VersionChange(before, to, skipped=f"the table is of version {to} already")
        if (to > before) is not is_upgrade:
            verbs = ("downgrade", "upgrade") if is_upgrade else ("upgrade", "downgrade")
            raise InvalidInputError(
                f"{self.storage.location} is of table version {before}: to {to} it is {verbs[0]}({to}), "
                f"not {verbs[1]}({to})"
            )
        keys = key_settings(config, self.options)
        convert_properties(config, to, keys)  # Raise errors before any change.
        if table_version(to).names_single_keys and not config.traits.names_single_keys:
            self._check_keys(keys)
        partitions = frozenset(config.metadata_partitions)
        self._prepare(config, to)
        version = self._decide_begin(before)
        try:
            if not _changes_layout(before, to):
                write_version(self.store, to)
            values = convert_properties(self.store.config(), to, key_settings(config, self.options))
            files = self._copy(config, TableConfig(values)) if _changes_layout(before, to) else 0
            write_properties(self.store, values, self.context.clock, version)
        except OutcomeUnknownError:  # The table stays closed to writers until the move is run again.
            raise
        except Exception:
            with suppress(LakeformatError):
                self._decide_end()
            raise
        self._decide_end()
        lease.check(_LEASE_SECONDS)
        self._remove_old_layout(self.store.config())
        self._make_metadata_table(partitions, lease)
        _LOG.info("%s is of table version %d now, and was of %d", self.storage.location, to, before)
        return VersionChange(before, to, files)

    def _check_keys(self, keys: KeySettings) -> None:
        """Refuse a table whose keys Hudi would write otherwise in the new version, and so write rows twice."""
        if keys.kind is not KeyGeneratorKind.COMPLEX or len(keys.record_fields) != 1:
            return
        snapshot = self.context.snapshot()
        if snapshot.live.count and not probe_keys(self.storage, snapshot, keys, self.options).single_key_prefixed:
            raise UnsupportedTableError(
                f"{self.storage.location} has keys of one field as value, and from table version {SINGLE_KEY_NAMES} on "
                "Hudi's complex key generator writes field:value, so it would write rows twice; keep the version, or "
                "write the rows into a new table"
            )

    def _decide_begin(self, before: int) -> Version | None:
        """Decide that the move begins: nothing else can be decided until it ends.

        Return the version of the properties file; None on storage with locks.

        Raises:
            WriteConflictError: an instant is pending, or another process has moved the table.
        """
        token = self.context.ids.token()

        def check(_: DecisionState, timeline: Timeline) -> Decision:
            if timeline.pending:
                raise WriteConflictError(
                    f"{self.store.path(timeline.pending[0])} is pending in {self.storage.location}: a table can change "
                    "its version only if nothing is pending; wait for it"
                )
            return Decision(kind=Kind.UPGRADE, instant_time=str(before), is_barrier=True, moving=token)

        decide(self.store, check)
        version = order_of(self.store).version_of(PROPERTIES_PATH)
        if self.store.config().version != before:
            self._decide_end()
            raise WriteConflictError(
                f"another process has moved {self.storage.location} meanwhile; look at its version"
            )
        return version

    def _decide_end(self) -> None:
        """Decide that the move has ended. No write that began meanwhile may be published."""
        ended = Decision(kind=Kind.UPGRADE, instant_time="", is_barrier=True, moving="")
        decide(self.store, lambda *_: ended)
        if not order_of(self.store).is_alone:
            # The instants of these writes may be on the timeline that is removed, so no writer would undo them. A
            # completed write may have a claim, too, for a moment.
            claimed = claims.list_claimed_times(self.storage)
            timeline = self.store.load()
            begun = frozenset(time for time in claimed if not timeline.is_committed(time))
            for instant_time in sorted(begun):
                prepare_removal(self.store, instant_time)
            if begun:
                delete_files_of(self.store, begun)

    def _end_dead_move(self) -> None:
        """End a move whose process died. If that process only sleeps, it cannot replace the properties any more."""
        if not read_state(self.storage)[0].moving:
            return
        version = self.storage.read_versioned(PROPERTIES_PATH)[1]
        write_properties(self.store, self.store.config().values, self.context.clock, version)
        self._decide_end()

    # --- before ---------------------------------------------------------------------------------------

    def _prepare(self, config: TableConfig, to: int) -> None:
        """Undo the work of dead writers, check that the table can be moved, and fit or drop the metadata table."""
        recover(self.store, config, self.context.clock)
        # Sort compactions last: only if nothing else is pending, `move` runs the compactions and tries again.
        pending = sorted(
            self.store.load().pending, key=lambda instant: (instant.action is Action.COMPACTION, instant.time)
        )
        if pending:
            kind = _UncompactedError if pending[0].action is Action.COMPACTION else WriteConflictError
            raise kind(
                f"{self.store.path(pending[0])} is pending in {self.storage.location}: a table can change its "
                "version only if nothing is pending; run or cancel the plan, or write to the table, which rolls back "
                "dead writes"
            )
        ordering = payload_ordering(to, config.merge_mode)
        if _changes_layout(config.version, to) or ordering:
            snapshot = self.context.snapshot(config=config)
            self._check_slices(snapshot)
            self._check_ordering(snapshot, ordering, to)
        if _changes_layout(config.version, to) or not self._fit_metadata_table(config, to):
            drop_metadata_table(self.store, self.context.clock)
            # Version 6 has no definitions; those that are left would say in which form bounds are written.
            keep_definitions(self.storage, ())

    def _fit_metadata_table(self, config: TableConfig, to: int) -> bool:
        """Drop the partitions of the metadata table that the new version does not know. Return False if it is damaged.

        Version 9 stores types beside bounds, which version 8 does not read.
        Hudi: ``UpgradeDowngradeUtils.dropNonV1IndexPartitions``.
        """
        if table_version(to).stores_bound_types:
            return True
        try:
            table = open_metadata_table(self.storage, config, self.store.load())
            if table is None:
                return not config.has_metadata_table
            has_types = table.has(MetadataPartition.COLUMN_STATS) and read_statistics_form(table).stores_types
        except (CorruptTableError, UnsupportedTableError):
            return False
        kept_names = _IN_VERSION_8 | (frozenset() if has_types else {MetadataPartition.COLUMN_STATS.value})
        lost = {*config.metadata_partitions, *config.pending_metadata_partitions} - kept_names
        if lost:
            drop_indexes(self.store, self.context.clock, lost)
        return True

    def _make_metadata_table(self, before: frozenset[str], lease: Lease) -> None:
        """Make the partitions of the metadata table again that were dropped because their form differs.

        If that is not possible, Hudi makes them; a warning says so.
        """
        lost = before - frozenset(self.store.config().metadata_partitions)
        made = lost & {partition.value for partition in MADE_PARTITIONS}
        clock, options = self.context.clock, self.options
        try:
            first = made - {MetadataPartition.PARTITION_STATS.value}  # Not every table can have these.
            for names in (first, made - first) if made else ():
                if names:
                    make_partitions(self.store, clock, options.metadata, names, options.lock, lease)
                    lost -= names
            reason = "lakeformat does not make them"
        except LakeformatError as error:
            reason = str(error)
        if lost:
            _LOG.warning(
                "%s of the metadata table of %s were dropped, because their form differs in the new version (%s): "
                "Hudi makes them again with hoodie.metadata.enable=true",
                ", ".join(sorted(lost)),
                self.storage.location,
                reason,
            )

    def _check_slices(self, snapshot: Snapshot) -> None:
        live = snapshot.live
        with_logs = sum(bool(piece.logs) for piece in live.slices) if isinstance(live, ListedSlices) else 0
        if with_logs:
            raise _UncompactedError(
                f"{self.storage.location} has {with_logs} file slice(s) with log files, which versions name or "
                "merge in different ways, and others write new ones while these are compacted; let its writers rest"
            )

    def _check_ordering(self, snapshot: Snapshot, ordering: Sequence[str], to: int) -> None:
        """Refuse a version in which the table's payload class orders rows by columns that the table lacks."""
        columns = ordering if snapshot.schema is None else snapshot.schema.names
        for name in ordering:
            if name not in columns:
                raise UnsupportedTableError(
                    f"{self.storage.location} has no column {name!r}, by which its payload class "
                    f"{snapshot.config.merge_mode} orders rows in version {to}; add the column, or keep the version"
                )

    # --- the timeline ---------------------------------------------------------------------------------

    def _copy(self, config: TableConfig, moved: TableConfig) -> int:
        """Write the timeline in the layout of the new version. Return the number of timeline files written.

        Args:
            moved: the table's configuration in the new version.
        """
        old, new = _layout(config), _layout(moved)
        entries = [
            (instant, entry)
            for entry in self.storage.list(old.folder)
            if not entry.is_folder and (instant := old.parse(entry.name)) is not None
        ]
        ends: dict[str, str] = {}
        if new.has_completion_times:
            self.storage.delete_folder(new.folder)  # It may have files of a failed or earlier move.
            done = ((moved, entry) for moved, entry in entries if moved.state is State.COMPLETED)
            ends = make_completion_times({i.time: format_instant_time(e.modified_ms, config.zone) for i, e in done})
        self._copy_archive(config, moved)
        planned_moves = list_moves(
            (moved for moved, _ in entries),
            new,
            clusterings=self._find_clusterings([i for i, _ in entries]),
            completed_at=ends,
        )
        recode = commit_to_avro if new.has_completion_times else commit_to_json
        for move in planned_moves:
            data, path = self.storage.read(old.path(move.old)), old.path(move.old)
            if move.old.action in COMMIT_ACTIONS and move.old.state is not State.REQUESTED:
                replaces = move.old.action is Action.REPLACE_COMMIT and move.old.state is State.COMPLETED
                name = f"{self.storage.location}/{path}"
                data = recode(data, replace=replaces, name=name)
                if move.old.state is State.COMPLETED and is_void(commit := decode_commit(data, name=name)):
                    data = encode_void(new, commit, commit.schema_text, is_replace=replaces)
            elif move.old.action is Action.CLEAN and not data and not new.has_completion_times:
                # Copy the clean's plan to its inflight file too, because Hudi 0.15 needs it there to archive the clean.
                data = self.storage.read(old.path(move.old.at(State.REQUESTED)))
            self.storage.create(new.path(move.new), data)
        return len(planned_moves)

    def _copy_archive(self, config: TableConfig, moved: TableConfig) -> None:
        """Copy archived commits to the new layout's archive, except those that an earlier move left there."""
        old, new = (place.archive_folder for place in (config, moved))
        logs_to_history = not config.traits.has_completion_times
        read, other = (
            (read_archive_logs, read_lsm_history) if logs_to_history else (read_lsm_history, read_archive_logs)
        )
        archived = read(self.storage, old)
        moved_times = frozenset(other(self.storage, new).columns.column("time").to_pylist())
        commits = archived.commits(
            [instant for instant in archived.completed_in("") if instant.time not in moved_times]
        )
        while portion := [self._read_leaving(*pair) for pair in islice(commits, _AT_A_TIME)]:
            if logs_to_history:
                write_history(self.storage, new, portion)
            else:
                write_archive_log(self.storage, new, portion, per_block=_PER_BLOCK)

    def _read_leaving(self, instant: Instant, metadata: CommitMetadata) -> InstantToArchive:
        data = LAYOUT_2.encode_commit(metadata, replace=instant.action is Action.REPLACE_COMMIT)
        name = f"{self.storage.location} (archived instant {instant.time})"
        return InstantToArchive(instant.time, instant.completed_at, instant.action.value, data, b"", name)

    def _find_clusterings(self, instants: list[Instant]) -> frozenset[str]:
        """Return the times of the replacecommits that have a clustering plan."""
        requested = (i for i in instants if i.action is Action.REPLACE_COMMIT and i.state is State.REQUESTED)
        requests = ((i.time, self.store.read_requested_replace(i)) for i in requested)
        return frozenset(time for time, request in requests if request is not None and request.plan is not None)

    def _remove_old_layout(self, config: TableConfig) -> None:
        """Remove the timeline files of the layout that the table does not use.

        While files of layout 2 are removed, the file `MOVED` shows readers of that folder that the timeline has moved.
        """
        other = LAYOUT_1 if config.traits.has_completion_times else LAYOUT_2
        if other.folder == config.timeline_folder:
            return
        names = [entry.name for entry in self.storage.list(other.folder) if not entry.is_folder]
        old_files = [name for name in names if other.parse(name) is not None]
        if other is LAYOUT_2 and names:
            self.storage.replace(f"{other.folder}/{MOVED}", b"")
        for name in old_files:
            self.storage.delete(f"{other.folder}/{name}")
        if other is LAYOUT_2 and names:
            self.storage.delete_folder(other.folder)


def _changes_layout(before: int, to: int) -> bool:
    return table_version(before).timeline_layout != table_version(to).timeline_layout


def _layout(config: TableConfig) -> TimelineLayout:
    layout = layout_of(config)
    if layout is None or layout.folder not in {LAYOUT_1.folder, LAYOUT_2.folder}:
        raise UnsupportedTableError(
            f"a timeline in {config.timeline_folder} ({TIMELINE_PATH}) is not moved; use Apache Hudi for it"
        )
    return layout
