"""Comparison of data files with commits. Pure: `run` lists the folders and reads the commits."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from lakeformat.file_system_view.file_groups import Listing
from lakeformat.model.commit import CommitMetadata, WriteStat
from lakeformat.model.files import BaseFile, BaseFileName, FileGroupId, FileSlice, LogFile, LogFileName, join_path
from lakeformat.model.instant import Instant
from lakeformat.services.doctor.findings import Finding, Kind
from lakeformat.timeline.timeline import Timeline

__all__ = [
    "Facts",
    "advise",
    "find_gaps",
    "find_incomplete",
    "find_lost_saved_files",
    "find_miscounts",
    "find_orphans",
    "find_row_mismatches",
    "find_unarchived",
]


@dataclass(frozen=True)
class Facts:
    """Facts about a table that the checks compare.

    Attributes:
        listing: all base and log files in the folders; of a copy-on-write table no log files.
        commits: instant and metadata of each completed commit of the active timeline, oldest first.
        slices: the live file slices.
        replaced: file groups that active commits have replaced.
        saved: paths that savepoints name.
        archived: times of the commits in the archive.
        archive: the archive's folder.
        is_copy_on_write: whether the table is copy-on-write, so that no base file has rows merged from log files.
        can_restore: tells whether the table can be restored to a commit.
    """

    timeline: Timeline
    commits: Sequence[tuple[Instant, CommitMetadata]]
    listing: Listing
    slices: Sequence[FileSlice]
    replaced: frozenset[FileGroupId]
    saved: frozenset[str]
    archived: frozenset[str]
    archive: str
    is_copy_on_write: bool
    can_restore: Callable[[str], bool]

    def advise(self, instant_time: str) -> str:
        """Return how to come back from a lost file of a commit."""
        return advise(self.timeline, instant_time, self.can_restore)

    def stats(self) -> Iterator[tuple[Instant, WriteStat]]:
        """Yield instant and write stat of every file that the active commits wrote."""
        for instant, metadata in self.commits:
            for stat in metadata.all_stats():
                yield instant, stat


def advise(timeline: Timeline, instant_time: str, can_restore: Callable[[str], bool]) -> str:
    """Return the end of a cure: how to come back from a lost file of a commit, by commands.

    Args:
        can_restore: tells whether the table can be restored to a commit.
    """
    back = "restore it from a copy"
    commits = sorted(timeline.commits, key=lambda commit: (commit.completed_at, commit.time))
    places = [number for number, commit in enumerate(commits) if commit.time == instant_time]
    if not places:
        return f"{back}: its commit {instant_time} is archived, so nothing else helps"
    before, later = commits[: places[0]], len(commits) - 1 - places[0]
    if before and not can_restore(before[-1].time):
        return f"{back}: files of the commit before {instant_time} have been cleaned away, so nothing else helps"
    if not later:
        return f"{back}, or lakeformat rollback gives up commit {instant_time} alone"
    if not before:
        return f"{back}: commit {instant_time} is the oldest on the timeline, so nothing else helps"
    return f"{back}, or lakeformat restore {before[-1].time} gives up commit {instant_time} and {later:,} later ones"


def find_orphans(facts: Facts) -> Iterator[Finding]:
    """Yield data files that no commit wrote, although the instant time in their name is within the timeline.

    Files of an instant older than the timeline are skipped: nothing is known about that instant. Files of a pending
    instant, or of one later than the newest, are skipped: their writer may be running. Log files of timeline layout 1
    are skipped: they carry the instant of their slice, not of their writer. Files of an instant that is missing from
    the timeline (`find_gaps`) are skipped: it may come back from a copy.
    """
    timeline, gap_times = facts.timeline, {time for time, _ in _list_gaps(facts)}
    committed = {stat.path for _, stat in facts.stats()}
    pending = {instant.time for instant in timeline.pending}
    newest = timeline.last_time or ""
    logs: Iterable[LogFile] = facts.listing.logs if timeline.layout.has_completion_times else ()
    files: tuple[BaseFile | LogFile, ...] = (*facts.listing.bases, *logs)
    for file in files:
        time = file.name.instant_time
        if file.path in facts.saved or time in pending or time > newest or time in gap_times:
            continue
        is_unnamed = isinstance(file, BaseFile) and time in timeline.commit_times and file.path not in committed
        if is_unnamed or not timeline.is_committed(time):
            yield Finding(
                Kind.ORPHAN, file.path, "lakeformat repair --yes puts it aside", size_bytes=file.size_bytes, mends=True
            )


def find_incomplete(facts: Facts, exists: Callable[[str], bool]) -> Iterator[Finding]:
    """Yield files of the newest slices that are missing, or whose size differs from the commit's.

    Args:
        exists: returns whether a path exists, even in a folder that the listing skips for lack of a partition marker.
    """
    live = {piece.group: piece for piece in facts.slices}
    expected: dict[FileGroupId, tuple[str, str, int, int]] = {}
    for instant, stat in facts.stats():
        if stat.is_base:
            group = stat.group
            promise = instant.time, stat.path, stat.size_bytes, stat.num_writes
            expected[group] = max(expected.get(group, ("", "", 0, 0)), promise)
    unmarked: set[str] = set()
    for group, (time, path, size_bytes, rows) in sorted(expected.items()):
        if group in facts.replaced:
            continue
        base = live[group].base if group in live else None
        if base is None or base.name.instant_time < time:
            if exists(path):
                unmarked.add(group.partition_path)
            else:
                yield Finding(Kind.MISSING, path, facts.advise(time), rows, size_bytes)
        elif base.name.instant_time == time and size_bytes and size_bytes != base.size_bytes:
            yield Finding(Kind.OTHER_SIZE, path, facts.advise(time), rows, base.size_bytes)
    for path in sorted(unmarked):
        yield Finding(Kind.NO_PARTITION_FILE, path, "lakeformat repair --yes marks it again", mends=True)
    yield from _find_incomplete_logs(facts, live)


def _find_incomplete_logs(facts: Facts, live: Mapping[FileGroupId, FileSlice]) -> Iterator[Finding]:
    size_of = {log.path: log.size_bytes for log in facts.listing.logs}
    for instant, stat in facts.stats():
        name = LogFileName.match(stat.path.rpartition("/")[2])
        piece = live.get(stat.group)
        if name is None or name.is_cdc or piece is None:
            continue
        if stat.path in size_of and size_of[stat.path] < stat.size_bytes:
            cure = facts.advise(instant.time)
            yield Finding(Kind.OTHER_SIZE, stat.path, cure, stat.num_writes, size_of[stat.path])
        elif stat.path not in size_of and (stat.prev_commit or name.instant_time) >= piece.base_instant:
            cure = facts.advise(instant.time)
            yield Finding(Kind.MISSING, stat.path, cure, stat.num_writes, stat.size_bytes)


def find_miscounts(facts: Facts) -> Iterator[Finding]:
    """Yield files whose row counts in the commit contradict each other. The files themselves are not read.

    The commit states for each file the number of rows, and of inserted, updated and deleted rows. The rules are:

    - A file has at least the inserted and updated rows. A base file without a previous file has exactly these rows.
    - In a copy-on-write table, a base file has at most the rows of the previous file of its group and the inserted
      rows. It has at least this number minus the deletes. It may have more, because a deleted key need not have been
      in the previous file.

    Source: Hudi's ``HoodieMergeHandle``, ``HoodieCreateHandle`` and ``HoodieAppendHandle``.
    """
    wrote: dict[tuple[FileGroupId, str], int] = {}
    for instant, stat in facts.stats():
        written = stat.num_inserts + stat.num_updates
        least, most = written, stat.num_writes
        if stat.is_base:
            group = stat.group
            before = wrote.get((group, stat.prev_commit or ""))
            wrote[group, instant.time] = stat.num_writes
            if stat.prev_commit is None:
                most = written
            elif before is not None and facts.is_copy_on_write:
                least = max(least, before + stat.num_inserts - stat.num_deletes)
                most = before + stat.num_inserts
        if not least <= stat.num_writes <= most or min(stat.num_inserts, stat.num_updates, stat.num_deletes) < 0:
            counts = f"{stat.num_writes:,} rows, {stat.num_inserts:,} inserted, {stat.num_updates:,} updated"
            cure = f"history() shows them ({counts}, {stat.num_deletes:,} deleted); rows are read as they are"
            yield Finding(Kind.OTHER_COUNTS, stat.path, f"{cure}: bring commit {instant.time} back from a copy")


def find_gaps(facts: Facts) -> Iterator[Finding]:
    """Yield instants on which commits rest, but that are missing from the timeline."""
    commits = facts.timeline.commit_times
    for gap, commit in sorted(dict(reversed(list(_list_gaps(facts)))).items()):
        target = max((time for time in commits if time < gap), default="")
        else_ = "only that helps"
        if target and facts.can_restore(target):
            else_ = f"else lakeformat restore {target} gives all later commits up"
        cure = f"commit {commit} rests on it: restore it from a copy; {else_}"
        yield Finding(Kind.TIMELINE_GAP, f"{facts.timeline.layout.folder}/{gap}", cure)


def _list_gaps(facts: Facts) -> Iterator[tuple[str, str]]:
    """Yield each missing instant with a commit that has rewritten files of it, or has appended to its slices."""
    for instant, stat in facts.stats():
        before = stat.base_instant or ""
        is_known = not before.isdigit() or facts.timeline.is_committed(before) or facts.timeline.find(before)
        if not is_known and before != instant.time:
            yield before, instant.time


def find_unarchived(facts: Facts) -> Iterator[Finding]:
    """Yield instants older than the timeline that base files or commits name but that the archive lacks."""
    oldest = facts.timeline.oldest_write
    file_times = {file.name.instant_time for file in facts.listing.bases}
    before = {stat.prev_commit for _, stat in facts.stats() if stat.is_base}
    explained = facts.archived | facts.timeline.commit_times
    for time in sorted(file_time for file_time in file_times | before if file_time and file_time.isdigit()):
        if oldest is not None and time < oldest and time not in explained:
            cure = (
                f"the archive does not hold commit {time}: bring it back from a copy; rows are right, history lacks it"
            )
            yield Finding(Kind.TIMELINE_GAP, f"{facts.archive}/{time}", cure)


def find_lost_saved_files(
    saved: Mapping[str, Iterable[str]], listing: Listing, unmarked: Collection[str]
) -> Iterator[Finding]:
    """Yield base files that savepoints name but that do not exist.

    Args:
        saved: maps the instant time of each savepoint to the paths of its files.
        unmarked: partitions without a marker, whose files are not in the listing.
    """
    present = {file.path for file in listing.bases}
    for time, paths in saved.items():
        for path in paths:
            folder, _, name = path.rpartition("/")
            if BaseFileName.match(name) and path not in present and folder not in unmarked:
                yield Finding(Kind.SAVEPOINT, path, f"bring it back from a copy, or delete_savepoint('{time}')")


def find_row_mismatches(facts: Facts, rows_of: Mapping[str, int]) -> Iterator[Finding]:
    """Yield live base files whose row count differs from their commit's.

    Args:
        rows_of: maps the path of a base file to the number of rows in its footer.
    """
    for _, stat in facts.stats():
        rows = rows_of.get(join_path(stat.partition_path, stat.path.rpartition("/")[2]))
        if rows is not None and rows != stat.num_writes:
            cure = "statistics alone are wrong, rows are read as they are: upsert them again to have them right"
            yield Finding(Kind.OTHER_ROWS, stat.path, cure, rows=abs(rows - stat.num_writes))
