"""Checks of a whole table, and repairs of proved damage.

A check reads every live file once and changes nothing. Other processes may write meanwhile; the check does not read
their new files. A repair makes the checks itself, under the lock, so that no other lakeformat writer changes the table
between checks and repair. It moves removed files to ``.hoodie/.lakeformat/removed`` unless ``keep`` is False. Each step
of a repair can be repeated safely, so if the process dies, call the repair again.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from lakeformat.beside.verbs import open_session
from lakeformat.codec import properties
from lakeformat.concurrency import tries
from lakeformat.config.beside_options import FORMATS
from lakeformat.config.resolve import Options
from lakeformat.errors import CorruptTableError, LakeformatError
from lakeformat.file_system_view.context import TableContext
from lakeformat.file_system_view.file_groups import Listing, list_files, visible_files
from lakeformat.file_system_view.file_index.stored import FOLDER
from lakeformat.file_system_view.live_files import ListedSlices
from lakeformat.file_system_view.slices import build_slices
from lakeformat.file_system_view.snapshot import FileNames, Snapshot, make_latest_base, table_schema
from lakeformat.locks import lock_table
from lakeformat.metadata_table.index_definitions import SecondaryIndex, find_secondary_indexes
from lakeformat.model.files import FileSlice, join_path, match_data_file
from lakeformat.model.instant import Action, Instant, State
from lakeformat.model.table_config import PROPERTIES_PATH, TableConfig, TableType
from lakeformat.services.doctor import file_checks, plan, timeline_checks
from lakeformat.services.doctor.damaged_instants import find_decided, is_mendable, mend_instant
from lakeformat.services.doctor.file_checks import check_partition, check_rings
from lakeformat.services.doctor.findings import Finding, Findings, Kind
from lakeformat.services.doctor.lost_properties import fits_rows, make_properties
from lakeformat.services.doctor.lost_writes import LostWrite
from lakeformat.services.doctor.metadata_checks import check_metadata_table, check_secondary_indexes
from lakeformat.services.restore.run import RestoreSession
from lakeformat.services.savepoint import SavepointSession
from lakeformat.storage.port import Lease, own_path
from lakeformat.timeline.timeline import Timeline
from lakeformat.transaction.order import claims
from lakeformat.transaction.order.conflict import conflict_of
from lakeformat.transaction.order.decisions import STATE_PATH, read_state, settle
from lakeformat.transaction.order.properties_file import save_copy
from lakeformat.transaction.undo.markers import prepare_partition
from lakeformat.transaction.undo.recovery import recover
from lakeformat.transaction.undo.traces import Moment, Traces
from lakeformat.transaction.upkeep.metadata_commits import drop_metadata_table
from lakeformat.transaction.upkeep.metadata_creation import MADE_PARTITIONS, make_partitions

__all__ = ["REMOVED", "DoctorSession"]

_LOG: Final = logging.getLogger("lakeformat.services")
#: Folder to which repairs move the files that they remove. Each repair makes a subfolder, named by its time.
REMOVED: Final = own_path("removed")


#: Seconds before each further try of a check that met files which another process was archiving.
_PAUSES: Final = (0.0, 0.1, 0.3)


#: Kinds of findings that may be files of a running write.
_LEFTOVERS: Final = frozenset({Kind.ORPHAN, Kind.STALE_MARKERS})


#: Kinds of findings that a repair mends before all others.
_FIRST: Final = frozenset({Kind.DAMAGED_INSTANT})


def _instant_of(path: str) -> str:
    """Return the instant time in the name of a data file, or the name of a folder of markers."""
    name = path.rpartition("/")[2]
    file = match_data_file(name)
    return file.instant_time if file is not None else name


@dataclass(frozen=True)
class _TableState:
    """Result of all checks that open no data file. ``facts`` is None if a commit cannot be read."""

    config: TableConfig
    timeline: Timeline
    found: tuple[Finding, ...]
    facts: plan.Facts | None = None
    lost: tuple[LostWrite, ...] = ()


class DoctorSession:
    """Checks and repairs of one table, of any table version and table type that lakeformat can read."""

    def __init__(self, context: TableContext, options: Options) -> None:
        self.context, self.options = context, options
        self.store, self.storage = context.store, context.storage

    def check(self, *, contents: bool = True) -> Findings:
        """Return findings for all problems of the table.

        Args:
            contents: whether to read the rows of all live files.
        """
        for is_last in tries(_PAUSES):
            try:
                return self._check(contents=contents)
            except FileNotFoundError as error:
                if is_last:
                    raise conflict_of(self.storage.location, error) from None
        raise AssertionError("the last try returns or raises")

    def _check(self, *, contents: bool) -> Findings:
        if lost := self._find_lost_properties() or self._find_damaged_state():
            return Findings(lost)
        state = self._inspect()
        findings = list(state.found)
        if state.facts is not None:
            findings += timeline_checks.describe_lost_writes(
                state.lost, state.facts.listing, self.storage if contents else None
            )
            findings += check_rings(self.storage, state.timeline, state.facts.slices)
        if state.facts is not None and contents:
            findings += self._check_contents(state, state.facts)
            findings += self._check_index(findings)
        return Findings(tuple(findings))

    def repair(self, *, dry_run: bool, keep: bool) -> Findings:
        """Repair damage that has exactly one safe repair.

        Args:
            dry_run: whether to change nothing and only return what would be repaired.
            keep: whether to keep removed files in `REMOVED`; if False, delete them and all of `REMOVED`.

        Raises:
            CorruptTableError: the state file is damaged: it says what other writers have decided.
        """
        read_state(self.storage)
        lost = self._find_lost_properties()
        if dry_run:
            return Findings(lost or self._list_repairable(), "to repair")
        if lost:
            self._write_lost_properties()
        self.store.config().check_changeable(self.storage.location)
        given_up = (*lost, *self._mend_instants())
        with lock_table(self.storage, self.options.lock, service=True, clock=self.context.clock) as lease:
            mended = tuple(finding for finding in self._list_repairable() if finding.kind not in _FIRST)
            if any(finding.kind is Kind.DEAD_INSTANT for finding in mended):
                recover(self.store, self.store.config(), self.context.clock, allows_lost=True)
                after = self._list_repairable()
                finished = tuple(finding for finding in mended if finding.kind is Kind.DEAD_INSTANT)
                mended = (*finished, *(finding for finding in after if finding.kind is not Kind.DEAD_INSTANT))
            aside = f"{REMOVED}/{self.context.clock.now_ms()}"
            for finding in mended:
                self._repair_finding(finding, aside, keep=keep)
            if any(finding.kind is Kind.METADATA_TABLE for finding in mended):
                self._replace_metadata_table(lease)
            if not keep:
                self.storage.delete_folder(REMOVED)
            state, _, timeline = settle(self.store)
            claims.forget_heartbeats(self.storage, state, timeline, self.context.clock)
        mended = (*given_up, *mended)
        _LOG.info("%s: mended %s findings", self.storage.location, len(mended))
        return Findings(mended, "repaired")

    def _find_lost_properties(self) -> tuple[Finding, ...]:
        """Return a finding if ``hoodie.properties`` is lost or damaged, with what the rows prove about it."""
        why = "the rows have another key than it names"
        is_readable = False
        try:
            config = self.store.config()
            config.check_readable(self.storage.location)
            is_readable = True
            if config.has_virtual_keys or fits_rows(self.context, config, self.options):
                return ()
        except CorruptTableError as error:
            why = f"{error}".partition("; ")[0]
        try:
            made = make_properties(self.context, self.options)
        except CorruptTableError as error:
            return () if is_readable else (Finding(Kind.PROPERTIES, PROPERTIES_PATH, f"{why}; {error}"),)
        cure = f"{why}; restore it from a copy, or lakeformat repair --yes makes it again: {made.why}"
        return (Finding(Kind.PROPERTIES, PROPERTIES_PATH, cure, mends=True),)

    def _find_damaged_state(self) -> tuple[Finding, ...]:
        """Return a finding if the file of decisions is damaged. On storage with locks there is none."""
        try:
            read_state(self.storage)
        except CorruptTableError as error:
            return (Finding(Kind.DAMAGED_INSTANT, STATE_PATH, str(error)),)
        return ()

    def _write_lost_properties(self) -> None:
        """Write ``hoodie.properties`` again.

        Raises:
            CorruptTableError: the table's files do not prove what it was.
        """
        made = make_properties(self.context, self.options)
        data = properties.encode(dict(made.values), comments=[f"Made again by a repair: {made.why}"])
        self.storage.replace(PROPERTIES_PATH, data)
        save_copy(self.storage, data)
        _LOG.warning("%s/%s was made again: %s", self.storage.location, PROPERTIES_PATH, made.why)

    def _mend_instants(self) -> tuple[Finding, ...]:
        """Mend damaged instants: roll the newest commit back, mend the other files. Return their findings.

        The lock keeps other processes from archiving meanwhile. The commit is rolled back by its time, because another
        process may undo it and write before this one has the lock again.
        """
        commits: list[str] = []
        with lock_table(self.storage, self.options.lock, service=True, clock=self.context.clock):
            damaged = [problem for problem in self._check_instants(self.store.load()) if problem[1].mends]
            for instant, _ in damaged:
                if (decided := find_decided(self.store, instant)) is not None:
                    self.storage.replace(decided.path, decided.data)
                elif not is_mendable(instant):
                    commits.append(instant.time)
                else:
                    self._mend_instant(instant)
        if commits:
            RestoreSession(self.context, self.options).rollback(max(commits))
        return tuple(finding for _, finding in damaged)

    def _mend_instant(self, instant: Instant) -> None:
        is_savepoint = instant.action is Action.SAVEPOINT
        files = SavepointSession(self.context, self.options).list_files(instant.time) if is_savepoint else {}
        mend_instant(self.store, instant, files, self.context.clock.now_ms())

    def _check_instants(self, timeline: Timeline) -> Iterator[tuple[Instant, Finding]]:
        return timeline_checks.check_instants(self.context, timeline, self._can_restore)

    def _list_repairable(self) -> tuple[Finding, ...]:
        findings = self._inspect().found
        return tuple(finding for finding in (*findings, *self._check_index(findings)) if finding.mends)

    def _check_index(self, findings: Sequence[Finding]) -> Iterator[Finding]:
        """Check the bounds in the file index, unless another check has found damage of the index or the timeline."""
        if not any(finding.kind in {Kind.FILE_INDEX, Kind.DAMAGED_INSTANT} for finding in findings):
            yield from file_checks.check_index_bounds(self.context)

    def _repair_finding(self, finding: Finding, aside: str, *, keep: bool) -> None:
        match finding.kind:
            case Kind.ORPHAN if keep:
                self.storage.move(finding.path, f"{aside}/{finding.path}")
            case Kind.ORPHAN:
                self.storage.delete(finding.path)
            case Kind.STALE_MARKERS:
                Traces(store=self.store, time=_instant_of(finding.path)).take_back(Moment.FILES)
            case Kind.FILE_INDEX:
                self.storage.delete_folder(FOLDER)
            case Kind.BESIDE:
                name = next(name for name, folder in FORMATS.items() if folder == finding.path)
                open_session(self.context, self.options.beside, name).mend()
            case Kind.NO_PARTITION_FILE:
                newest = self.store.load().newest_time
                prepare_partition(self.storage, finding.path, newest or "")

    def _replace_metadata_table(self, lease: Lease) -> None:
        """Drop the metadata table, and make it again if that is possible now."""
        named = self.store.config().metadata_partitions
        names = frozenset(named) & {partition.value for partition in MADE_PARTITIONS}
        clock, options = self.context.clock, self.options
        secondary: tuple[SecondaryIndex, ...] = ()
        with suppress(CorruptTableError):
            secondary = find_secondary_indexes(self.storage, named)
        drop_metadata_table(self.store, clock)
        if not names:
            return
        try:
            make_partitions(self.store, clock, options.metadata, names, options.lock, lease)
            for index in secondary:
                make_partitions(self.store, clock, options.metadata, (), options.lock, lease, index)
        except LakeformatError as error:
            _LOG.warning("the metadata table of %s was dropped, and not made again: %s", self.storage.location, error)

    # --- inspecting -----------------------------------------------------------------------------------

    def _inspect(self) -> _TableState:
        """Run all checks that need no data file to be opened."""
        config = self.store.config()
        config.check_readable(self.storage.location)
        timeline = self.store.load()
        torn, archived, newest = timeline_checks.check_archive(self.store)
        findings = [*(finding for _, finding in self._check_instants(timeline)), *torn]
        if any(finding.kind is Kind.DAMAGED_INSTANT for finding in findings):
            return _TableState(config, timeline, tuple(findings))  # The other checks cannot run without all commits.
        try:
            facts = self._collect_facts(config, timeline, archived)
        except CorruptTableError:
            if not torn:
                raise
            return _TableState(config, timeline, tuple(findings))  # The archive says when older commits completed.
        saved = self._list_saved_files(timeline)
        findings += plan.find_incomplete(facts, lambda path: self.storage.info(path) is not None)
        unmarked = {finding.path for finding in findings if finding.kind is Kind.NO_PARTITION_FILE}
        findings += plan.find_miscounts(facts)
        lost = timeline_checks.find_table_lost_writes(self.store, timeline, [*newest, *facts.commits])
        findings += plan.find_orphans(facts)
        findings += plan.find_gaps(facts)
        if not torn:
            findings += plan.find_unarchived(facts)
        findings += plan.find_lost_saved_files(saved, facts.listing, unmarked)
        findings += timeline_checks.check_markers(self.storage, timeline)
        findings += timeline_checks.find_dead_instants(self.context, timeline)
        findings += file_checks.check_index_files(
            self.context, frozenset(piece.base for piece in facts.slices if piece.base)
        )
        damaged = {finding.path for finding in findings if finding.kind is Kind.OTHER_SIZE}
        findings += check_metadata_table(self.store, config, facts, damaged)
        findings += timeline_checks.find_foreign_folders(self.storage)
        findings += timeline_checks.check_beside(self.context, self.options.beside)
        findings = self._drop_leftovers_of_new_writes(findings, timeline)
        return _TableState(config, timeline, tuple(findings), facts, tuple(lost))

    def _drop_leftovers_of_new_writes(self, findings: Sequence[Finding], before: Timeline) -> list[Finding]:
        """Return the findings without files of writes that began after the timeline was loaded.

        On storage without locks a repair does not exclude writers, so it must not remove their files.
        """
        if not any(finding.kind in _LEFTOVERS for finding in findings):
            return list(findings)
        claimed = claims.list_claimed_times(self.storage)
        now = self.store.load()
        new = claimed.union(i.time for i in now.pending) | (now.commit_times - before.commit_times)
        return [
            finding for finding in findings if finding.kind not in _LEFTOVERS or _instant_of(finding.path) not in new
        ]

    def _list_saved_files(self, timeline: Timeline) -> dict[str, tuple[str, ...]]:
        done = (i for i in timeline.of_action(Action.SAVEPOINT) if i.state is State.COMPLETED)
        return {
            instant.time: tuple(
                join_path(path, name)
                for path, names in self.store.read_savepoint(instant).files.items()
                for name in names
            )
            for instant in done
        }

    def _collect_facts(self, config: TableConfig, timeline: Timeline, archived: frozenset[str]) -> plan.Facts:
        """List the table as `list_snapshot` does, but accept a damaged table. Memory: one object per file."""
        commits = [(instant, self.store.read_commit(instant)) for instant in timeline.commits]
        replaced = frozenset(group for _, metadata in commits for group in metadata.replaced_groups)
        listing = list_files(self.storage)
        names = FileNames({instant.time: metadata for instant, metadata in commits})
        bases = visible_files(listing.bases, timeline, replaced, names)
        logs = listing.logs if config.table_type is TableType.MERGE_ON_READ else ()
        counts = make_latest_base(self.store, timeline, logs)
        slices: tuple[FileSlice, ...] = build_slices(bases, logs, replaced, counts)
        saved = frozenset(path for paths in self._list_saved_files(timeline).values() for path in paths)
        listing = Listing(listing.bases, tuple(logs), listing.change_data)
        is_cow = config.table_type is TableType.COPY_ON_WRITE
        return plan.Facts(
            timeline, commits, listing, slices, replaced, saved, archived, config.archive_folder, is_cow,
            self._can_restore,
        )  # fmt: skip

    def _can_restore(self, instant_time: str) -> bool:
        return RestoreSession(self.context, self.options).can_restore(instant_time)

    def _check_contents(self, state: _TableState, facts: plan.Facts) -> Iterator[Finding]:
        timeline = state.timeline
        bases = tuple(piece.base for piece in facts.slices if piece.base is not None)
        try:
            schema = table_schema(self.store, state.config, timeline.commits, bases)
        except CorruptTableError as error:
            yield Finding(Kind.DAMAGED, bases[-1].path if bases else "", str(error))
            return
        newest = timeline.commits[-1].time if timeline.commits else None
        snapshot = Snapshot(state.config, timeline, newest, schema, ListedSlices(tuple(facts.slices)))
        missing = {finding.path for finding in state.found if finding.kind is Kind.MISSING}
        by_partition: dict[str, list[FileSlice]] = {}
        for piece in facts.slices:
            if not any(file.path in missing for file in piece.files):
                by_partition.setdefault(piece.group.partition_path, []).append(piece)
        rows_of: dict[str, int] = {}
        writers = {stat.path: instant.time for instant, stat in facts.stats()}
        for path, slices in by_partition.items():
            yield from check_partition(self.storage, snapshot, path, slices, rows_of, writers, facts.advise)
        yield from plan.find_row_mismatches(facts, rows_of)
        if not missing and facts.slices:
            yield from check_secondary_indexes(self.store, snapshot)
