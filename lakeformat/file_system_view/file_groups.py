"""Selection of a snapshot's base files from the timeline and a listing (Hudi: ``HoodieTableFileSystemView``)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from lakeformat.errors import CorruptTableError, InstantNotAvailableError
from lakeformat.model.commit import CommitMetadata
from lakeformat.model.files import (
    PARTITION_MARKER,
    BaseFile,
    BaseFileName,
    FileGroupId,
    LogFile,
    LogFileName,
    has_rows,
    join_path,
)
from lakeformat.model.instant import Instant
from lakeformat.storage.port import HOODIE, FileInfo, Storage
from lakeformat.timeline.timeline import Timeline

__all__ = [
    "Listing",
    "check_complete",
    "find_missing_before",
    "is_partition",
    "list_base_files",
    "list_files",
    "list_partitions",
    "make_listing",
    "measure_files",
    "visible_files",
]


@dataclass(frozen=True)
class Listing:
    """The base files and log files of a table, committed or not.

    Attributes:
        change_data: CDC log files (``.cdc``). They hold no rows of the table, so they are not in ``logs``.
    """

    bases: tuple[BaseFile, ...]
    logs: tuple[LogFile, ...]
    change_data: tuple[LogFile, ...] = ()


def list_files(storage: Storage) -> Listing:
    """List the files in all partition folders of the table. Each folder is listed once."""
    return make_listing(_entries(_walk_folders(storage, "")))


def measure_files(storage: Storage) -> tuple[int, int]:
    """Return the number and the bytes of the base files and log files in all partition folders. Makes no objects."""
    sizes = [size for _, name, size in _entries(_walk_folders(storage, "")) if has_rows(name)]
    return len(sizes), sum(sizes)


def list_partitions(storage: Storage, partitions: Iterable[str]) -> Listing:
    """List the files in the folders of the given partition paths."""
    return make_listing(_entries((path, storage.list(path)) for path in partitions))


def _entries(folders: Iterable[tuple[str, Sequence[FileInfo]]]) -> Iterator[tuple[str, str, int]]:
    for partition, entries in folders:
        for entry in entries:
            yield partition, entry.name, entry.size_bytes


def make_listing(entries: Iterable[tuple[str, str, int]]) -> Listing:
    """Make the listing of some files, each with its partition path, name and size. Leave out files of other kinds."""
    bases: list[BaseFile] = []
    logs: list[LogFile] = []
    change_data: list[LogFile] = []
    for partition, name, size_bytes in entries:
        if not name.startswith(".") and (base := BaseFileName.match(name)) is not None:
            bases.append(BaseFile(partition, base, size_bytes))
        elif (log := LogFileName.match(name)) is not None:
            (change_data if log.is_cdc else logs).append(LogFile(partition, log, size_bytes))
    return Listing(tuple(bases), tuple(logs), tuple(change_data))


def list_base_files(storage: Storage) -> tuple[BaseFile, ...]:
    """List the base files in all partition folders of the table."""
    return list_files(storage).bases


def is_partition(folder: str, entries: Iterable[FileInfo]) -> bool:
    """Tell whether a folder with these entries is a partition: it has a partition marker."""
    marker = join_path(folder, PARTITION_MARKER)
    return any(entry.path.startswith(marker) for entry in entries)


def _walk_folders(storage: Storage, folder: str) -> Iterator[tuple[str, list[FileInfo]]]:
    entries = storage.list(folder)
    if is_partition(folder, entries):
        yield folder, [entry for entry in entries if not entry.is_folder]
    for entry in entries:
        if entry.is_folder and entry.path != HOODIE:
            yield from _walk_folders(storage, entry.path)


def visible_files(
    listed: Iterable[BaseFile],
    timeline: Timeline,
    replaced: frozenset[FileGroupId],
    file_names: Callable[[str], Mapping[FileGroupId, str]],
) -> tuple[BaseFile, ...]:
    """Return the newest committed base file of each file group that is not replaced, sorted by partition and file id.

    Args:
        listed: all base files found.
        timeline: the timeline up to the wanted instant.
        replaced: file groups that replacecommits of the timeline hide.
        file_names: returns, for the time of an active commit, a mapping of file group to the file name in the commit's
            write stats. A listed file with the commit's time that is not named there is skipped, because a failed task
            attempt or a failed writer left it.
    """
    active = timeline.commit_times
    newest: dict[FileGroupId, BaseFile] = {}
    committed = {time: timeline.is_committed(time) for time in {file.name.instant_time for file in listed}}
    last = timeline.newest_time or ""
    for file in listed:
        time = file.name.instant_time
        if not committed[time] or time > last or file.group in replaced:
            continue
        if time in active and file_names(time).get(file.group) != str(file.name):
            continue
        latest = newest.get(file.group)
        if latest is None or latest.name.instant_time < time:
            newest[file.group] = file
    return tuple(newest[group] for group in sorted(newest))


def check_complete(
    files: Iterable[BaseFile],
    commits: Iterable[tuple[str, CommitMetadata]],
    replaced: frozenset[FileGroupId],
    *,
    location: str,
    is_time_travel: bool,
) -> None:
    """Check that the newest base file that the commits name for each file group exists with its full size.

    Raises:
        InstantNotAvailableError: when time travelling, a file has been cleaned away.
        CorruptTableError: a file is missing, or its size is not the one in its commit.
    """
    present = {file.group: file for file in files}
    promised: dict[FileGroupId, tuple[str, str, int]] = {}
    for time, metadata in commits:
        for stat in metadata.all_stats():
            if stat.path.endswith(".parquet") and stat.is_base:
                group = stat.group
                promised[group] = max(promised.get(group, ("", "", 0)), (time, stat.path, stat.size_bytes))
    for group, (time, path, size_bytes) in promised.items():
        if group in replaced:
            continue
        file = present.get(group)
        if file is None or file.name.instant_time < time:
            if is_time_travel:
                raise InstantNotAvailableError(
                    f"{location}/{path} of instant {time} has been cleaned away; ask for a later instant, or keep "
                    "more history (hoodie.cleaner.commits.retained)"
                )
            raise CorruptTableError(
                f"{location}/{path} of instant {time} is missing; restore it from a copy, and run lakeformat check to "
                "see what else is"
            )
        if file.name.instant_time == time and size_bytes and size_bytes != file.size_bytes:
            raise CorruptTableError(
                f"{location}/{path} has {file.size_bytes} bytes where instant {time} wrote {size_bytes}; "
                "restore it from a copy"
            )


def find_missing_before(
    undone: Sequence[tuple[Instant, CommitMetadata]], listing: Listing, location: str
) -> str | None:
    """Return the reason why the state before some commits cannot be read any more; None if it can be read.

    It can be read if, for all file groups that the commits rewrote or replaced, the base files from before the commits
    still exist. The other file groups need no check, because they have not changed.
    """
    times = {instant.time for instant, _ in undone}
    bases = {(file.group, file.name.instant_time) for file in listing.bases}
    with_base = {group for group, time in bases if time not in times}
    with_logs = {file.group for file in listing.logs if file.name.instant_time not in times}
    made = {
        stat.group
        for _, metadata in undone
        for stat in metadata.all_stats()
        if stat.prev_commit is None or stat.prev_commit in times
    }
    for instant, metadata in undone:
        for stat in metadata.all_stats():
            group, before = stat.group, stat.prev_commit
            if before is None or before in times or BaseFileName.match(stat.path.rpartition("/")[2]) is None:
                continue
            had_logs_alone = group in with_logs and group not in with_base
            if (group, before) not in bases and not had_logs_alone:
                return (
                    f"{location}: file group {stat.file_id} of {stat.partition_path!r} has no version of {before} any "
                    f"more, which commit {instant.time} rewrote: it has been cleaned away"
                )
        for partition, ids in metadata.replaced.items():
            gone = {FileGroupId(partition, file_id) for file_id in ids} - with_base - with_logs - made
            if gone:
                return (
                    f"{location}: file group {min(gone).file_id} of {partition!r}, which commit {instant.time} "
                    "replaced, has been cleaned away"
                )
    return None
