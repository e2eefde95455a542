"""Log files x base files: the file slices that a snapshot is made of (Hudi: ``AbstractTableFileSystemView``).

A log file belongs to a base file if it was written for that version of the file group or a later one. Up to table
version 6 its name tells: it holds the base file's instant, or that of a compaction which is to follow. From version 8
on the name holds the instant that wrote it, and the log belongs to the newest base file begun before that instant
completed. Either way the slice of a pending compaction needs no rule of its own: its log files follow those before.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from typing import TypeAlias

from lakeformat.errors import CorruptTableError, InstantNotAvailableError
from lakeformat.model.commit import CommitMetadata
from lakeformat.model.files import BaseFile, FileGroupId, FileSlice, LogFile, LogFileName

__all__ = ["CountsFrom", "absent_logs", "check_logs", "slices_of"]

#: Of a log file, the greatest instant of a base file that it may belong to; None if it does not count.
CountsFrom: TypeAlias = Callable[[LogFile], str | None]


def slices_of(
    bases: Iterable[BaseFile],
    logs: Iterable[LogFile],
    replaced: Collection[FileGroupId],
    counts_from: CountsFrom,
) -> tuple[FileSlice, ...]:
    """The newest slice of each file group, by partition and id.

    Args:
        bases: one a file group: its newest committed version.
        replaced: groups that replacecommits hide.
    """
    base_of = {base.group: base for base in bases}
    logs_of: dict[FileGroupId, list[LogFile]] = {}
    for log in logs:
        group = log.group
        instant = None if group in replaced else counts_from(log)
        base = base_of.get(group)
        if instant is not None and (base is None or base.name.instant_time <= instant):
            logs_of.setdefault(group, []).append(log)
    return tuple(_slice(group, base_of.get(group), logs_of.get(group, ())) for group in sorted({*base_of, *logs_of}))


def _slice(group: FileGroupId, base: BaseFile | None, logs: Iterable[LogFile]) -> FileSlice:
    ordered = tuple(sorted(logs, key=lambda log: log.name.order))
    return FileSlice(group, base.name.instant_time if base else ordered[0].name.instant_time, base, ordered)


def absent_logs(commits: Iterable[tuple[str, CommitMetadata]], listed: Iterable[LogFile]) -> list[LogFile]:
    """Find the log files that commits have written and that no folder holds: cleaned ones, and lost ones."""
    there = {log.path for log in listed}
    found = []
    for _, metadata in commits:
        for stat in metadata.all_stats():
            if ".log." in stat.path and stat.path not in there:
                name = LogFileName.match(stat.path.rpartition("/")[2])
                if name is not None and not name.is_cdc:
                    found.append(LogFile(stat.partition_path, name, stat.size_bytes))
    return found


def check_logs(
    slices: Iterable[FileSlice],
    commits: Iterable[tuple[str, CommitMetadata]],
    counts_from: CountsFrom,
    replaced: Collection[FileGroupId],
    *,
    location: str,
    travelling: bool,
) -> None:
    """Make sure that the log files which the commits promise of these slices are there, whole.

    Raises:
        InstantNotAvailableError: when time travelling, a file has been cleaned away.
        CorruptTableError: a file is missing or shorter than its commit says. Of a group without any file it is not
            told: a replacecommit that has been archived may have hidden it.
    """
    of_group = {each.group: each for each in slices}
    sizes = {log.path: log.size_bytes for each in of_group.values() for log in each.logs}
    for time, metadata in commits:
        for stat in metadata.all_stats():
            if sizes.get(stat.path, -1) >= stat.size_bytes:
                continue
            name = LogFileName.match(stat.path.rpartition("/")[2])
            group = FileGroupId(stat.partition_path, stat.file_id)
            live = of_group.get(group)
            if name is None or name.is_cdc or group in replaced or (live is None and not travelling):
                continue
            promised = LogFile(stat.partition_path, name, stat.size_bytes)
            counts = counts_from(promised)
            if counts is None or (live is not None and counts < live.base_instant):
                continue
            found = sizes.get(promised.path)
            if found is None and travelling:
                raise InstantNotAvailableError(
                    f"{location}/{promised.path} of instant {time} has been cleaned away; ask for a later instant, or "
                    "keep more history (hoodie.cleaner.commits.retained)"
                )
            if found is None or found < promised.size_bytes:
                what = "is missing" if found is None else f"has {found} bytes of the {promised.size_bytes} written"
                raise CorruptTableError(
                    f"{location}/{promised.path} of instant {time} {what}; restore it from a copy, and run lakeformat "
                    "check to see what else is"
                )
