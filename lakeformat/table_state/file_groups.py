"""Timeline x listing: which file versions a snapshot is made of (Hudi: ``HoodieTableFileSystemView``)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Final

from lakeformat.errors import CorruptTableError, InstantNotAvailableError
from lakeformat.model.commit import CommitMetadata
from lakeformat.model.files import BaseFile, BaseFileName, FileGroupId
from lakeformat.storage.port import HOODIE, FileInfo, Storage
from lakeformat.timeline.timeline import Timeline

__all__ = ["PARTITION_MARKER", "check_complete", "list_base_files", "visible_files"]

#: A folder without this file is no partition.
PARTITION_MARKER: Final = ".hoodie_partition_metadata"


def list_base_files(storage: Storage) -> tuple[BaseFile, ...]:
    """Every base file of every partition folder, of any instant. One listing a folder."""
    return tuple(
        BaseFile(partition, name, entry.size_bytes)
        for partition, entries in _walk(storage, "")
        for entry in entries
        if (name := BaseFileName.match(entry.name)) is not None and not entry.is_folder
    )


def _walk(storage: Storage, folder: str) -> Iterator[tuple[str, list[FileInfo]]]:
    entries = storage.list(folder)
    if any(entry.name.startswith(PARTITION_MARKER) for entry in entries):
        yield folder, [entry for entry in entries if not entry.is_folder]
    for entry in entries:
        if entry.is_folder and entry.path != HOODIE:
            yield from _walk(storage, entry.path)


def visible_files(
    listed: Iterable[BaseFile],
    timeline: Timeline,
    replaced: frozenset[FileGroupId],
    named_by: Callable[[str], Mapping[FileGroupId, str]],
) -> tuple[BaseFile, ...]:
    """The newest committed version of each file group that no replacecommit hides, by partition and id.

    Args:
        listed: all base files found.
        timeline: cut at the wanted instant.
        replaced: groups that replacecommits of the timeline hide.
        named_by: instant time -> group -> file name, as the statistics of an active commit say. A file they do
            not name is none of the table's: a task attempt that lost, or a writer that did, left it behind.
    """
    active = timeline.commit_times
    newest: dict[FileGroupId, BaseFile] = {}
    committed = {time: timeline.is_committed(time) for time in {file.name.instant_time for file in listed}}
    last = timeline.newest_time or ""
    for file in listed:
        time = file.name.instant_time
        if not committed[time] or time > last or file.group in replaced:
            continue
        if time in active and named_by(time).get(file.group) != str(file.name):
            continue
        known = newest.get(file.group)
        if known is None or known.name.instant_time < time:
            newest[file.group] = file
    return tuple(newest[group] for group in sorted(newest))


def check_complete(
    files: Iterable[BaseFile],
    commits: Iterable[tuple[str, CommitMetadata]],
    replaced: frozenset[FileGroupId],
    *,
    location: str,
    travelling: bool,
) -> None:
    """Make sure that every file version the commits promise is there, whole.

    Raises:
        InstantNotAvailableError: when time travelling, a file has been cleaned away.
        CorruptTableError: a file is missing or has another size than its commit says.
    """
    found = {file.group: file for file in files}
    promised: dict[FileGroupId, tuple[str, str, int]] = {}
    for time, metadata in commits:
        for stat in metadata.all_stats():
            if stat.path:
                group = FileGroupId(stat.partition_path, stat.file_id)
                promised[group] = max(promised.get(group, ("", "", 0)), (time, stat.path, stat.size_bytes))
    for group, (time, path, size_bytes) in promised.items():
        if group in replaced:
            continue
        file = found.get(group)
        if file is None or file.name.instant_time < time:
            if travelling:
                raise InstantNotAvailableError(
                    f"{location}/{path} of instant {time} has been cleaned away; ask for a later instant, or keep "
                    "more history (hoodie.cleaner.commits.retained)"
                )
            raise CorruptTableError(f"{location}/{path} of instant {time} is missing; restore it from a copy")
        if file.name.instant_time == time and size_bytes and size_bytes != file.size_bytes:
            raise CorruptTableError(
                f"{location}/{path} has {file.size_bytes} bytes where instant {time} wrote {size_bytes}; "
                "restore it from a copy"
            )
