"""Checks of everything except data files: timeline, archive, markers, foreign folders.

The module also finds rows that were lost because two writers ran at once: one commit hides a file that the other commit
wrote, so readers do not see the rows of that file.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from operator import attrgetter
from typing import Final

import pyarrow.compute as pc

from lakeformat.beside.verbs import find_lags
from lakeformat.codec.log_blocks import parse_blocks
from lakeformat.config.beside_options import FORMATS, BesideOptions
from lakeformat.errors import CorruptTableError, LakeformatError
from lakeformat.file_system_view.context import TableContext
from lakeformat.file_system_view.file_groups import Listing, list_files
from lakeformat.files.footers import open_base, open_parquet, row_batches
from lakeformat.model.commit import CommitMetadata
from lakeformat.model.files import PARTITION_MARKER, BaseFile
from lakeformat.model.instant import COMMIT_ACTIONS, COMPLETES_AS, WRITE_ACTIONS, Action, Instant, State
from lakeformat.model.record import COMMIT_TIME, RECORD_KEY
from lakeformat.services.doctor.damaged_instants import find_decided, how_mended, is_mendable, read_completed, read_plan
from lakeformat.services.doctor.findings import Finding, Kind
from lakeformat.services.doctor.lost_writes import LostWrite, find_lost_writes, read_plan_sources
from lakeformat.storage.port import HOODIE, FileInfo, Storage
from lakeformat.timeline.archive import LOG_NAME, VERSION_NAME, find_version_damage
from lakeformat.timeline.lost_commits import find_lost_commits
from lakeformat.timeline.store import TimelineStore
from lakeformat.timeline.timeline import Timeline
from lakeformat.transaction.order import claims

__all__ = [
    "check_archive",
    "check_beside",
    "check_instants",
    "check_markers",
    "describe_lost_writes",
    "find_dead_instants",
    "find_foreign_folders",
    "find_table_lost_writes",
]

_MARKERS: Final = f"{HOODIE}/.temp"
_BACK: Final = "restore it from a copy"
#: Number of the newest archived commits that the search for lost writes includes.
_NEWEST: Final = 100
#: If an instant of these actions is dead, `recover` rolls it back or finishes it, whichever program began it.
_RECOVERED: Final = COMMIT_ACTIONS | {Action.ROLLBACK, Action.SAVEPOINT}
_time: Final = attrgetter("time")
_completed_at: Final = attrgetter("completed_at")
#: Maps an action whose dead instants `recover` leaves alone to advice on finishing them.
_FINISHED_BY: Final = {
    Action.CLEAN: "clean() finishes it",
    Action.RESTORE: "restore() to the same instant finishes it",
    Action.COMPACTION: "lakeformat compact TABLE --run {time} runs its plan",
    Action.CLUSTERING: "run_clustering() or cancel_clustering() it",
}


def check_instants(
    context: TableContext, timeline: Timeline, can_restore: Callable[[str], bool]
) -> Iterator[tuple[Instant, Finding]]:
    """Yield each instant whose metadata or plan cannot be read, and each commit without its file, with its finding."""
    store, damaged = context.store, list[tuple[Instant, str]]()
    for instant in timeline.instants:
        try:
            if instant.action in COMMIT_ACTIONS and instant.state is State.COMPLETED:
                store.read_commit(instant)
            elif instant.state is State.COMPLETED:
                read_completed(store, instant)
            elif is_mendable(instant) and claims.is_without_life(store, instant, context.clock):
                read_plan(store, instant)
        except CorruptTableError as error:
            damaged.append((instant, f"{error}".partition("; ")[0]))
    lost = () if timeline.is_being_undone else find_lost_commits(store, timeline)
    damaged = [problem for problem in damaged if problem[0] not in lost]
    damaged += [(instant, f"the completed file of commit {instant.time} is gone") for instant in lost]
    commits = {i.time for i, _ in damaged if i in lost or not is_mendable(i)}
    first: Instant | None = None
    for instant, why in sorted(damaged, key=lambda problem: problem[0].completed_at):
        if instant.time not in commits and _has_log_of(store, instant):
            cure = f"{why}: {_BACK}; only that helps, because log files exist in slices that it has opened"
            yield instant, Finding(Kind.DAMAGED_INSTANT, store.path(instant), cure)
        elif instant.time not in commits:
            cure = f"{why}: no row is lost; {_BACK}, or lakeformat repair --yes {how_mended(store, instant)}"
            yield instant, Finding(Kind.DAMAGED_INSTANT, store.path(instant), cure, mends=True)
        elif first is not None:
            cure = f"{why}: {_BACK}; first do what is said of {first.time}, which is damaged, too"
            yield instant, Finding(Kind.DAMAGED_INSTANT, store.path(instant), cure)
        else:
            first = instant
            yield instant, _make_damage(store, timeline, instant, why, can_restore, len(commits) - 1)


def _has_log_of(store: TimelineStore, plan: Instant) -> bool:
    """Tell whether a log file belongs to a slice that a compaction plan has opened. In layout 2 it belongs to none."""
    if plan.action is not Action.COMPACTION or store.layout.has_completion_times:
        return False
    return any(log.name.instant_time == plan.time for log in list_files(store.storage).logs)


def _make_damage(
    store: TimelineStore,
    timeline: Timeline,
    instant: Instant,
    why: str,
    can_restore: Callable[[str], bool],
    damaged_later: int,
) -> Finding:
    """Return the finding of a commit whose file is damaged or gone, with what brings the table back.

    Args:
        damaged_later: number of later commits whose files are damaged or gone, too.
    """
    path = store.path(instant)
    end_of = _completed_at if instant.state is State.COMPLETED else _time
    others = [commit for commit in timeline.commits if commit != instant]
    later = max(damaged_later, sum(end_of(commit) > end_of(instant) for commit in others))
    if find_decided(store, instant) is not None:
        cure = f"{why}: no row is lost; lakeformat repair --yes writes it again, as it was decided"
        return Finding(Kind.DAMAGED_INSTANT, path, cure, mends=True)
    held = sorted(i.time for i in timeline.of_action(Action.SAVEPOINT) if i.time >= instant.time)
    first = "".join(f"lakeformat savepoint TABLE --delete {time}, then " for time in held)
    before = max((commit for commit in others if end_of(commit) < end_of(instant)), default=None, key=end_of)
    if before and not can_restore(before.time):
        cure = f"{_BACK}; only that helps, because files of the commit before have been cleaned away"
        return Finding(Kind.DAMAGED_INSTANT, path, f"{why}: {cure}")
    if not later:
        cure = f"{first}lakeformat rollback, or repair --yes, gives up the rows of this commit alone"
        return Finding(Kind.DAMAGED_INSTANT, path, f"{why}: {_BACK}; {cure}", mends=not held)
    cure = "only that helps"
    if before:
        cure = f"{first}lakeformat restore {before.time} gives it up with {later:,} later commits"
    return Finding(Kind.DAMAGED_INSTANT, path, f"{why}: {_BACK}; {cure}")


def check_archive(store: TimelineStore) -> tuple[list[Finding], frozenset[str], list[tuple[Instant, CommitMetadata]]]:
    """Check the archive.

    Returns:
        Findings for files that cannot be read; the times of the archived commits that could be read; instant and
        metadata of the newest archived commits.
    """
    folder = store.config().archive_folder
    findings: list[Finding] = []
    times: frozenset[str] = frozenset()
    newest: list[tuple[Instant, CommitMetadata]] = []
    try:
        archived = store.read_archived()
        commits = archived.completed_in("")
        times = frozenset(commit.time for commit in commits)
        since = min(sorted(times)[-_NEWEST:], default="")
        newest += (pair for pair in archived.commits(commits) if pair[0].time >= since)
        if store.layout.has_completion_times and (damage := find_version_damage(store.storage, folder)):
            cure = f"{_BACK}, or let archive() write it again: it {damage}"
            findings.append(Finding(Kind.TORN_ARCHIVE, f"{folder}/{VERSION_NAME}", cure))
    except (LakeformatError, OSError) as error:  # pyarrow raises OSError for damaged Parquet pages.
        cure = f"{_BACK} ({error}); until then older history cannot be read"
        findings.append(Finding(Kind.TORN_ARCHIVE, folder, cure))
    for entry in store.storage.list(folder):
        if LOG_NAME.fullmatch(entry.name):
            lost = entry.size_bytes - _measure_whole_blocks(store.storage, entry)
            if lost or not entry.size_bytes:
                cure = f"{_BACK}; readers skip bytes that are not a block, and the instants in them"
                findings.append(Finding(Kind.TORN_ARCHIVE, entry.path, cure, size_bytes=lost))
    return findings, times, newest


def _measure_whole_blocks(storage: Storage, entry: FileInfo) -> int:
    """Return how many bytes of an archive file of timeline layout 1 are whole blocks."""
    with storage.open_input(entry.path) as source, suppress(CorruptTableError):
        return sum(block.size_bytes for block in parse_blocks(source, entry.path, entry.size_bytes))
    return entry.size_bytes  # Count all bytes as whole, because `check_archive` reports the unreadable file.


def check_markers(storage: Storage, timeline: Timeline) -> Iterator[Finding]:
    """Yield a finding for each marker folder whose instant is no longer pending: its writer left the folder behind."""
    pending = {instant.time for instant in timeline.pending}
    newest = timeline.last_time or ""
    for entry in storage.list(_MARKERS):
        if entry.is_folder and entry.name.isdigit() and entry.name not in pending and entry.name <= newest:
            yield Finding(Kind.STALE_MARKERS, entry.path, "lakeformat repair --yes removes them", mends=True)


def find_dead_instants(context: TableContext, timeline: Timeline) -> Iterator[Finding]:
    """Yield a finding for each pending instant whose writer is dead. Plans that wait to be run are not reported."""
    for instant in timeline.pending:
        if not _is_plan(context.store, instant) and claims.is_without_life(context.store, instant, context.clock):
            is_ours = claims.read_claim(context.storage, instant.time) is not None
            mends = instant.action in _RECOVERED or (is_ours and instant.action in WRITE_ACTIONS | {Action.RESTORE})
            cure = "lakeformat repair --yes rolls it back or finishes it, as the next write does"
            if instant.action is Action.SAVEPOINT:
                cure = f"make it again, if it was complete: lakeformat savepoint {instant.time}; {cure}"
            if not mends:
                cure = _FINISHED_BY.get(instant.action, "finish it with the program that began it").format(
                    time=instant.time
                )
            yield Finding(Kind.DEAD_INSTANT, context.store.path(instant), cure, mends=mends)


def _is_plan(store: TimelineStore, instant: Instant) -> bool:
    if instant.action in COMPLETES_AS:
        return instant.state is State.REQUESTED
    if instant.action is not Action.REPLACE_COMMIT or instant.state is not State.REQUESTED:
        return False
    try:
        request = store.read_requested_replace(instant)
    except CorruptTableError:
        return False
    return request is not None and request.plan is not None


def find_foreign_folders(storage: Storage) -> Iterator[Finding]:
    """Yield a finding for each folder inside a partition: no reader looks into it. Links are not followed."""
    yield from _find_foreign_folders_in(storage, "")


def _find_foreign_folders_in(storage: Storage, folder: str) -> Iterator[Finding]:
    entries = storage.list(folder)
    is_partition = any(entry.name.startswith(PARTITION_MARKER) for entry in entries)
    for entry in entries:
        if not entry.is_folder or entry.path == HOODIE or _is_face(storage, entry.path):
            continue
        if is_partition:
            below = sum(file.size_bytes for file in storage.list(entry.path) if not file.is_folder)
            cure = "no reader looks into it: move it out of the table, or load its rows"
            yield Finding(Kind.FOREIGN_FOLDER, entry.path, cure, size_bytes=below)
        else:
            yield from _find_foreign_folders_in(storage, entry.path)


def _is_face(storage: Storage, path: str) -> bool:
    """Tell whether a folder holds the metadata of another format beside the table. A partition may have its name."""
    return path in FORMATS.values() and not any(entry.name.startswith(PARTITION_MARKER) for entry in storage.list(path))


def check_beside(context: TableContext, options: BesideOptions) -> Iterator[Finding]:
    """Yield a finding for each format whose metadata beside the table is behind it, or damaged."""
    for name, lag in find_lags(context, options):
        yield Finding(Kind.BESIDE, FORMATS[name], lag.text, mends=lag.can_follow)


_ROWS: Final = 1 << 16
#: Maximum number of keys that a finding names.
_MAX_KEYS: Final = 5


def find_table_lost_writes(
    store: TimelineStore, timeline: Timeline, commits: Sequence[tuple[Instant, CommitMetadata]]
) -> list[LostWrite]:
    """Find files that a commit wrote and a concurrent commit hid, if one of these commits is on the timeline.

    Args:
        commits: instant and metadata of the timeline's commits and of the newest archived commits.
    """
    sources = read_plan_sources(store, timeline, timeline.commit_times)
    lost = find_lost_writes(commits, sources, by_name=not timeline.layout.has_completion_times)
    return [write for write in lost if {write.lost_commit, write.hiding_commit} & timeline.commit_times]


def describe_lost_writes(lost: Iterable[LostWrite], listing: Listing, storage: Storage | None) -> Iterator[Finding]:
    """Yield a finding for each hidden file; its cure names the commit whose rows must be written again.

    Args:
        storage: storage to read the keys in the files; None to name no keys.
    """
    bases = {file.path: file for file in listing.bases}
    present = bases.keys() | {file.path for file in listing.logs}
    for write in lost:
        stat = write.stat
        counts = f"{stat.num_inserts:,} inserted, {stat.num_updates:,} updated, {stat.num_deletes:,} deleted"
        keys = _keys(storage, bases[stat.path], write.lost_commit) if storage is not None and stat.path in bases else ""
        where = "they are in this file" if stat.path in present else "the file has been cleaned"
        yield Finding(
            Kind.LOST_WRITE,
            stat.path,
            f"commit {write.hiding_commit} was made beside commit {write.lost_commit} and hides this file: write the "
            f"rows of commit {write.lost_commit} to this file group again ({counts}{keys}; {where}), with one writer "
            "at a time",
            rows=stat.num_inserts + stat.num_updates + stat.num_deletes,
            size_bytes=stat.size_bytes,
        )


def _keys(storage: Storage, base: BaseFile, instant_time: str) -> str:
    """Return a text with up to `_MAX_KEYS` keys that the commit wrote to the file; "" if the file cannot be read."""
    names: list[str] = []
    try:
        with open_base(storage, base) as source, open_parquet(source, base.path) as parquet:
            if not {RECORD_KEY, COMMIT_TIME} <= set(parquet.schema_arrow.names):
                return ""
            for batch in row_batches(parquet, base.path, _ROWS, columns=[RECORD_KEY, COMMIT_TIME]):
                written = batch.filter(pc.equal(batch.column(COMMIT_TIME), instant_time))
                names += written.column(RECORD_KEY).slice(0, _MAX_KEYS + 1 - len(names)).to_pylist()
                if len(names) > _MAX_KEYS:
                    break
    except CorruptTableError:
        return ""
    more = ", ..." if len(names) > _MAX_KEYS else ""
    return f"; keys {', '.join(map(repr, names[:_MAX_KEYS]))}{more}" if names else ""
