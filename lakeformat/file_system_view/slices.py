"""Assembly of a snapshot's file slices from base files and log files (Hudi: ``AbstractTableFileSystemView``).

A slice is the newest base file of a file group in the snapshot, with the log files that were written for it or for a
later base file. The later base file is that of a pending compaction: until the compaction completes, new log files
belong to the old base file.

Up to table version 6, a log file's name contains the instant of its base file, or of the pending compaction. From
version 8 on, the name contains the instant that wrote the log file. The log file was written for the newest base file
that was begun before this instant completed.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from typing import TypeAlias

from lakeformat.errors import CorruptTableError, InstantNotAvailableError
from lakeformat.model.commit import CommitMetadata
from lakeformat.model.files import BaseFile, FileGroupId, FileSlice, LogFile, LogFileName

__all__ = ["LatestBase", "build_slices", "check_logs", "find_absent_logs"]

#: A function that returns the greatest instant of a base file that a log file may belong to; None if the log file is
#: not visible.
LatestBase: TypeAlias = Callable[[LogFile], str | None]


def build_slices(
    bases: Iterable[BaseFile],
    logs: Iterable[LogFile],
    replaced: Collection[FileGroupId],
    latest_base: LatestBase,
) -> tuple[FileSlice, ...]:
    """Return the newest slice of each file group, sorted by partition and file id.

    Args:
        bases: the newest committed base file of each file group.
        logs: all log files found.
        replaced: file groups that replacecommits hide.
        latest_base: returns the greatest instant of a base file that a log file may belong to (`LatestBase`).
    """
    base_of = {base.group: base for base in bases}
    logs_of: dict[FileGroupId, list[LogFile]] = {}
    for log in logs:
        group = log.group
        instant = None if group in replaced else latest_base(log)
        base = base_of.get(group)
        if instant is not None and (base is None or base.name.instant_time <= instant):
            logs_of.setdefault(group, []).append(log)
    return tuple(_slice(group, base_of.get(group), logs_of.get(group, ())) for group in sorted({*base_of, *logs_of}))


def _slice(group: FileGroupId, base: BaseFile | None, logs: Iterable[LogFile]) -> FileSlice:
    ordered = tuple(sorted(logs, key=lambda log: log.name.order))
    return FileSlice(group, base.name.instant_time if base else ordered[0].name.instant_time, base, ordered)


def find_absent_logs(commits: Iterable[tuple[str, CommitMetadata]], listed: Iterable[LogFile]) -> list[LogFile]:
    """Return the log files that commits have written and that do not exist any more: they were cleaned or lost."""
    there = {log.path for log in listed}
    absent = []
    for _, metadata in commits:
        for stat in metadata.all_stats():
            if (".log." in stat.path or ".deletes." in stat.path) and stat.path not in there:
                name = LogFileName.match(stat.path.rpartition("/")[2])
                if name is not None and not name.is_cdc:
                    absent.append(LogFile(stat.partition_path, name, stat.size_bytes))
    return absent


def check_logs(
    slices: Iterable[FileSlice],
    commits: Iterable[tuple[str, CommitMetadata]],
    latest_base: LatestBase,
    replaced: Collection[FileGroupId],
    *,
    location: str,
    is_time_travel: bool,
) -> None:
    """Check that the log files that the commits name for these slices exist with their full size.

    Raises:
        InstantNotAvailableError: when time travelling, a file has been cleaned away.
        CorruptTableError: a file is missing or shorter than its commit says. A file group without any file is not
            reported, because an archived replacecommit may have hidden it.
    """
    of_group = {piece.group: piece for piece in slices}
    sizes = {log.path: log.size_bytes for piece in of_group.values() for log in piece.logs}
    for time, metadata in commits:
        for stat in metadata.all_stats():
            if sizes.get(stat.path, -1) >= stat.size_bytes:
                continue
            name = LogFileName.match(stat.path.rpartition("/")[2])
            group = stat.group
            live = of_group.get(group)
            if name is None or name.is_cdc or group in replaced or (live is None and not is_time_travel):
                continue
            promised = LogFile(stat.partition_path, name, stat.size_bytes)
            counts = latest_base(promised)
            if counts is None or (live is not None and counts < live.base_instant):
                continue
            stored_bytes = sizes.get(promised.path)
            if stored_bytes is None and is_time_travel:
                raise InstantNotAvailableError(
                    f"{location}/{promised.path} of instant {time} has been cleaned away; ask for a later instant, or "
                    "keep more history (hoodie.cleaner.commits.retained)"
                )
            if stored_bytes is None or stored_bytes < promised.size_bytes:
                what = (
                    "is missing"
                    if stored_bytes is None
                    else f"has {stored_bytes} bytes of the {promised.size_bytes} written"
                )
                raise CorruptTableError(
                    f"{location}/{promised.path} of instant {time} {what}; restore it from a copy, and run lakeformat "
                    "check to see what else is"
                )
