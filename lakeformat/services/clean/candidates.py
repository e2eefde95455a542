"""Inputs of a clean's plan: the partitions to search, their files, and the files to keep.

The search note, a file in lakeformat's own folder, records the last search, so that the next search can skip unchanged
partitions. The timeline cannot record every search, because, as in Hudi, a clean that finds no files leaves no instant.
Without the note, a table in which cleans find nothing would be searched in full after every commit. The note decides
only which partitions are searched, never which files are deleted. So losing the note only makes the next search slower.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, Final

from lakeformat.codec.json_text import parse_json
from lakeformat.codec.timeline_files.clean import CleanMetadata
from lakeformat.codec.timeline_files.recovery import decode_savepoint
from lakeformat.concurrency import run_all
from lakeformat.file_system_view.file_groups import is_partition
from lakeformat.model.files import PARTITION_MARKER, BaseFileName, FileGroupId, LogFileName
from lakeformat.model.instant import Action, Instant, State
from lakeformat.services.clean.plan import DeleteConstraints, ListedFile, PartitionFiles, Retention, Slice
from lakeformat.storage.port import HOODIE, FileInfo, Storage, is_remote, own_path
from lakeformat.timeline.store import TimelineStore
from lakeformat.timeline.timeline import Timeline

__all__ = [
    "SAVEPOINTS",
    "LastSearch",
    "find_changed_partitions",
    "list_partition_files",
    "list_savepoints",
    "read_delete_constraints",
    "read_last_search",
    "write_search_note",
]

_PATH: Final = own_path("cleaned")
#: Maximum number of folders that are listed at once.
_LIST_THREADS: Final = 16
#: Hudi's key in a clean's ``extraMetadata``. Its value lists the savepoints that existed when the clean was planned.
SAVEPOINTS: Final = "savepointed_timestamps"


@dataclass(frozen=True, slots=True)
class LastSearch:
    """What the last search for files to delete covered.

    Attributes:
        earliest: time of the oldest commit that the search kept readable; files that only older commits needed are
            deleted. "" if there was no search.
        commits: times of the commits on the timeline at the search; None if they are unknown, or were recorded for
            another retention.
        savepoints: times of the savepoints on the timeline at the search.
    """

    earliest: str = ""
    commits: frozenset[str] | None = None
    savepoints: frozenset[str] = frozenset()


def read_last_search(storage: Storage, clean: CleanMetadata | None, retention: Retention) -> LastSearch:
    """Return what the last search covered, from the metadata of the newest clean and from the search note.

    If neither records a search, or the next search must cover all partitions, the result is empty.

    Args:
        clean: metadata of the newest completed clean; None if there is none.
    """
    noted = _read_note(storage)
    if noted is not None and noted["again"]:
        return LastSearch()
    cleaned = clean.earliest_commit_to_retain if clean else ""
    listed = clean.extra.get(SAVEPOINTS, "") if clean else ""
    savepoints = frozenset(filter(None, listed.split(",")))
    if noted is None:
        return LastSearch(cleaned, None, savepoints)
    # Every search writes the note, so the note is at least as new as the clean. The savepoints of the clean count only
    # if the clean has a later earliest commit, which shows that the clean is newer than the note.
    savepoints = frozenset(noted["savepoints"]) | (savepoints if cleaned > noted["earliest"] else frozenset())
    commits = frozenset(noted["commits"]) if noted["kept"] == _retention_text(retention) else None
    return LastSearch(max(cleaned, noted["earliest"]), commits, savepoints)


def write_search_note(
    storage: Storage, search: LastSearch, retention: Retention, *, searches_all: bool = False
) -> None:
    """Write the search note, the file that records the last search, unless its stored content is the same.

    Args:
        searches_all: whether the next search must cover all partitions, because this clean cannot delete all files
            that were found.
    """
    document = {
        "earliest": search.earliest,
        "again": searches_all,
        "commits": sorted(search.commits or ()),
        "savepoints": sorted(search.savepoints),
        "kept": _retention_text(retention),
    }
    if document != _read_note(storage):
        storage.replace(_PATH, json.dumps(document).encode())


def _retention_text(retention: Retention) -> str:
    return f"{retention.policy.value} {retention.count}"


def _read_note(storage: Storage) -> dict[str, Any] | None:
    try:
        note = parse_json(storage.read(_PATH))
        texts = [note["earliest"], note["kept"], *note["commits"], *note["savepoints"]]
        again = note["again"]
    except (FileNotFoundError, ValueError, KeyError, TypeError, RecursionError):
        return None
    return note if isinstance(again, bool) and all(isinstance(text, str) for text in texts) else None


def list_savepoints(timeline: Timeline) -> tuple[Instant, ...]:
    """Return the instants of completed and pending savepoints. The files of a pending savepoint are not known yet."""
    return timeline.of_action(Action.SAVEPOINT)


def read_delete_constraints(store: TimelineStore, timeline: Timeline) -> DeleteConstraints:
    """Return the restrictions on deleting files that apply under every policy.

    Raises:
        CorruptTableError: a savepoint or plan cannot be read; then nothing may be deleted.
    """
    replaced: dict[FileGroupId, str] = {}
    for instant in timeline.commits:
        if instant.action is Action.REPLACE_COMMIT:
            groups = store.read_commit(instant).replaced
            replaced.update((FileGroupId(path, id_), instant.time) for path, ids in groups.items() for id_ in ids)
    saved: dict[str, frozenset[str]] = {}
    for instant in list_savepoints(timeline):
        if instant.state is State.COMPLETED:
            files = decode_savepoint(store.read(instant), name=store.path(instant)).files
            saved.update((path, saved.get(path, frozenset()).union(names)) for path, names in files.items())
    compacting: dict[FileGroupId, str] = {}
    for instant in timeline.pending:
        if instant.action in {Action.COMPACTION, Action.LOG_COMPACTION}:
            plan = store.read_compaction_plan(instant)
            for operation in plan.operations if plan else ():
                compacting[operation.group] = min(
                    operation.base_instant, compacting.get(operation.group, operation.base_instant)
                )
    return DeleteConstraints(replaced, saved, compacting)


def find_changed_partitions(
    store: TimelineStore, timeline: Timeline, earliest: str | None, last: LastSearch
) -> frozenset[str] | None:
    """Return the partitions in which files may have become deletable since the last search; None means all partitions.

    These are the partitions to which the following commits wrote:

    - If the policy is commits or hours: the commits before ``earliest`` that were not before the last search's
      ``earliest``, or that were not on the timeline at the last search (Hudi:
      ``CleanPlanner.getPartitionPathsForIncrementalCleaning``).
    - If the policy is versions: the commits that were not on the timeline at the last search.

    If a savepoint was deleted since the last search, or if some of these commits may have been archived, these are all
    partitions.

    Args:
        earliest: time of the earliest commit to retain; None if the policy is versions.
    """
    first = timeline.commits[0].time if timeline.commits else ""
    gone = last.savepoints - {instant.time for instant in list_savepoints(timeline)}
    if gone:
        return None
    if earliest is None:
        if last.commits is None or first > max(last.commits, default=""):
            return None
        changed = [commit for commit in timeline.commits if commit.time not in last.commits]
    else:
        if last.earliest < first:
            return None
        seen = timeline.commit_times if last.commits is None else last.commits
        changed = [
            commit
            for commit in timeline.commits
            if commit.time < earliest and (commit.time >= last.earliest or commit.time not in seen)
        ]
    metadatas = (store.read_commit(commit) for commit in changed)
    return frozenset(path for metadata in metadatas for path in (*metadata.stats, *metadata.replaced))


def list_partition_files(
    store: TimelineStore, timeline: Timeline, partitions: Collection[str] | None
) -> Iterator[PartitionFiles]:
    """Yield the contents of the given partitions; of all partitions if ``partitions`` is None.

    Each folder is listed once. Memory: the entries of `_LIST_THREADS` folders.
    """
    slice_rule = _Layout2Rule(store, timeline) if timeline.layout.has_completion_times else _make_layout1_rule(timeline)
    sort = _SliceSorter(timeline, _cache_written_names(store, timeline), slice_rule)
    listed = _walk_folders(store, "") if partitions is None else _list_folders(store, sorted(partitions))
    for path, entries in listed:
        if is_partition(path, entries):
            yield sort.sort_folder(path, entries)


def _list_folders(store: TimelineStore, folders: Sequence[str]) -> Iterator[tuple[str, Sequence[FileInfo]]]:
    threads = _LIST_THREADS if is_remote(store.storage) else 1  # A local folder is listed faster than a thread starts.
    for start in range(0, len(folders), _LIST_THREADS):
        some = folders[start : start + _LIST_THREADS]
        yield from zip(some, run_all(_lister(store), some, threads=threads), strict=True)


def _lister(store: TimelineStore) -> Callable[[str], Sequence[FileInfo]]:
    """Return the function that lists a folder. On a disk it looks only at the files that are asked for their size."""
    return store.storage.list if is_remote(store.storage) else store.storage.list_at_once


def _walk_folders(store: TimelineStore, folder: str) -> Iterator[tuple[str, Sequence[FileInfo]]]:
    entries = _lister(store)(folder)
    yield folder, entries
    for entry in entries:
        if entry.is_folder and entry.path != HOODIE:
            yield from _walk_folders(store, entry.path)


#: Function that finds the slice of each log file of a file group. Its arguments are the names of the log files, and the
#: instant times of the group's base files, oldest first. For each log file it yields the base instant of the slice, or
#: None if the log file belongs to no slice.
_SliceRule = Callable[[Sequence[LogFileName], Sequence[str]], Iterable[str | None]]


@dataclass(frozen=True)
class _SliceSorter:
    """Assigns the files of a folder to slices.

    Attributes:
        names: returns the names of the files that the active commit of an instant time wrote.
        slice_rule: function that finds the slice of each log file; it depends on the table's timeline layout.
    """

    timeline: Timeline
    names: Callable[[str], Collection[str]]
    slice_rule: _SliceRule

    def sort_folder(self, path: str, entries: Iterable[FileInfo]) -> PartitionFiles:
        by_id: dict[str, dict[str, list[ListedFile]]] = {}
        logs: dict[str, list[tuple[LogFileName, ListedFile]]] = {}
        others = 0
        for entry in entries:
            name = entry.name
            base = None if name.startswith(".") else BaseFileName.match(name)
            log = LogFileName.match(name) if base is None else None
            if entry.is_folder:
                others += entry.path != HOODIE
            elif base is not None and self._is_committed(base):
                by_id.setdefault(base.file_id, {}).setdefault(base.instant_time, []).append(entry)
            elif log is not None:
                logs.setdefault(log.file_id, []).append((log, entry))
            else:
                others += not name.startswith(PARTITION_MARKER) and not name.endswith(".crc")
        for file_id, of_group in logs.items():
            others += self._add_logs(by_id.setdefault(file_id, {}), of_group)
        groups = {
            file_id: [Slice(time, tuple(slices[time])) for time in sorted(slices, reverse=True)]
            for file_id, slices in by_id.items()
            if slices
        }
        return PartitionFiles(path, groups, others)

    def _is_committed(self, base: BaseFileName) -> bool:
        """Tell whether the base file is committed. If its commit is on the active timeline, the commit must name it."""
        time = base.instant_time
        active = time in self.timeline.commit_times
        return str(base) in self.names(time) if active else self.timeline.is_committed(time)

    def _add_logs(self, slices: dict[str, list[ListedFile]], logs: Sequence[tuple[LogFileName, ListedFile]]) -> int:
        """Add a file group's log files to its slices, keyed by base instant. Return the number that fit no slice."""
        skipped = 0
        plain = [(name, file) for name, file in logs if not name.is_cdc]
        for (_, file), time in zip(plain, self.slice_rule([name for name, _ in plain], sorted(slices)), strict=True):
            if time is None:
                skipped += 1
            else:
                slices.setdefault(time, []).append(file)
        for name, file in ((name, file) for name, file in logs if name.is_cdc):
            time = max((opened for opened in slices if opened <= name.instant_time), default=None)
            if time is None or not self.timeline.is_committed(name.instant_time):
                skipped += 1
            else:
                slices[time].append(file)
        return skipped


def _make_layout1_rule(timeline: Timeline) -> _SliceRule:
    """Return the function that finds the slices of log files in tables up to table version 6.

    In these tables, a log file's name contains the base instant of its slice. The base instant need not be that of a
    base file: a slice that a pending compaction has opened has no base file yet.
    """
    compactions = {i.time for i in timeline.pending if i.action is Action.COMPACTION}

    def of(logs: Sequence[LogFileName], bases: Sequence[str]) -> Iterable[str | None]:
        for log in logs:
            time = log.instant_time
            yield time if time in bases or time in compactions or timeline.is_committed(time) else None

    return of


@dataclass(frozen=True)
class _Layout2Rule:
    """Function that finds the slices of log files in tables from table version 8 on.

    The base instant of the slice is the instant time of the newest base file that began before the log file's commit
    completed. If there is no such base file, the slice has no base file, and its base instant is the instant time of
    the first commit that wrote log files to the slice.
    """

    store: TimelineStore
    timeline: Timeline

    def __call__(self, logs: Sequence[LogFileName], bases: Sequence[str]) -> Iterable[str | None]:
        ends = self.store.completion_times(self.timeline, {log.instant_time for log in logs})
        ordered = sorted(ends.values())
        early = [end for end in ordered if not bases or end < bases[0]]
        first = min((time for time, end in ends.items() if end in early), default=None)
        for log in logs:
            end = ends.get(log.instant_time)
            if end is None:
                yield None
            else:
                yield max((base for base in bases if base <= end), default=first)


def _cache_written_names(store: TimelineStore, timeline: Timeline) -> Callable[[str], Collection[str]]:
    """Return a function from the time of an active commit to the names of the files that the commit wrote."""
    of_time = {instant.time: instant for instant in timeline.commits}

    @cache
    def names(time: str) -> Collection[str]:
        return frozenset(stat.path.rpartition("/")[2] for stat in store.read_commit(of_time[time]).all_stats())

    return names
