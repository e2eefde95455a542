"""The file groups of one partition of a metadata table, each with its newest slice."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field

from lakeformat.errors import CorruptTableError, UnsupportedTableError
from lakeformat.metadata_table.instants import MetadataInstants
from lakeformat.metadata_table.names import BaseName, LogName, MetadataPartition, file_id, file_id_prefix, group_number
from lakeformat.model.files import LogFile, LogFileName
from lakeformat.storage.port import Storage

__all__ = ["MetadataSlice", "Versions", "is_last_group_named", "list_logs", "list_slices", "list_versions"]


@dataclass(frozen=True, slots=True)
class MetadataSlice:
    """The newest slice of one file group: a base file and the log files after it.

    Attributes:
        number: Number of the file group, from 0 on; it holds the keys whose hash gives this number.
        instant_time: Instant time of the slice: that of the base file, or of the first log file if there is none.
        base: Path of the base file; None if there is none.
        logs: Log files in the order in which they are merged.
    """

    number: int
    instant_time: str
    base: str | None
    logs: tuple[LogFile, ...]


@dataclass(slots=True)
class Versions:
    """All files of one file group.

    Attributes:
        bases: Maps the instant time of each valid base file to its path.
        logs: All log files, also those that no reader counts.
    """

    bases: dict[str, str] = field(default_factory=dict)
    logs: list[LogFile] = field(default_factory=list)


def list_slices(
    storage: Storage, partition: MetadataPartition, instants: MetadataInstants
) -> tuple[MetadataSlice, ...]:
    """List the newest slices of a partition, by number of the file group.

    Nothing stores how many file groups a partition has: all that have a file count, as in Hudi.

    Raises:
        CorruptTableError: A file group is missing.
        UnsupportedTableError: The partition has file groups of a kind that is not supported.
    """
    versions = list_versions(storage, partition, instants)
    missing = set(range(max(versions, default=0) + 1)) - versions.keys()
    if missing:
        raise CorruptTableError(
            f"{storage.location}/{partition.folder} lacks file group {min(missing)} of {max(versions, default=0) + 1}; "
            "run repair(), which makes the metadata table again"
        )
    return tuple(_newest_slice(number, versions[number], instants) for number in sorted(versions))


def list_versions(storage: Storage, partition: MetadataPartition, instants: MetadataInstants) -> dict[int, Versions]:
    """Return all files of a partition by number of the file group. Raise `UnsupportedTableError` as `list_slices`."""
    versions_of: dict[int, Versions] = {}
    for entry in storage.list(partition.folder):
        name = LogName.match(entry.name) or BaseName.match(entry.name)
        if name is None or entry.is_folder:
            continue
        number = group_number(partition, name.file_id)
        if number is None:
            raise UnsupportedTableError(
                f"{storage.location}/{partition.folder} has file group {name.file_id!r}, which is not supported; drop "
                "the index with Hudi, or run repair(), which drops the metadata table"
            )
        versions = versions_of.setdefault(number, Versions())
        if isinstance(name, LogName):
            versions.logs.append(_log_file(partition, name, entry.size_bytes))
        elif instants.has_base(name.instant_time):
            versions.bases[name.instant_time] = max(versions.bases.get(name.instant_time, ""), entry.path)
    return versions_of


def list_logs(storage: Storage, partition: MetadataPartition) -> tuple[LogFile, ...]:
    """List all log files of a partition, also those that no reader counts."""
    logs = ((LogName.match(entry.name), entry) for entry in storage.list(partition.folder) if not entry.is_folder)
    return tuple(_log_file(partition, name, entry.size_bytes) for name, entry in logs if name is not None)


def _log_file(partition: MetadataPartition, name: LogName, size_bytes: int) -> LogFile:
    parts = LogFileName(name.file_id, name.instant_time, name.version, name.write_token)
    return LogFile(partition.folder, parts, size_bytes)


def _newest_slice(number: int, versions: Versions, instants: MetadataInstants) -> MetadataSlice:
    base = max(versions.bases, default="")
    own = [
        log
        for log in versions.logs
        if (latest := instants.latest_base(log.name.instant_time)) is not None and latest >= base
    ]
    first = base or min((log.name.instant_time for log in own), default="")
    return MetadataSlice(number, first, versions.bases.get(base), tuple(sorted(own, key=lambda log: log.name.order)))


def is_last_group_named(storage: Storage, partition: MetadataPartition, groups: int, paths: Iterable[str]) -> bool:
    """Tell whether an instant names the last file group, so that there are surely this many.

    Nothing stores how many file groups a partition has, and their number decides where a key is. If the last group is
    lost, or a file has come under the number after it, each look-up goes to a wrong group, and a key looks new. The
    write stats of deltacommits and compactions name the groups that they have written. Hudi does not look there.

    It reads the instants one after the other until one of them does.

    Args:
        groups: Number of file groups that have files.
        paths: Paths of completed files of instants.

    Raises:
        CorruptTableError: An instant names a file group that has no files.
    """
    pattern = re.compile(re.escape(file_id_prefix(partition)).encode() + rb"-(\d{4,9})-0")
    for path in paths:
        try:
            data = storage.read(path)
        except FileNotFoundError:  # It was archived meanwhile.
            continue
        last = max(map(int, pattern.findall(data)), default=-1)
        if last >= groups:
            raise CorruptTableError(
                f"{storage.location}/{partition.folder} lacks file group {file_id(partition, last)}, which "
                f"{path.rpartition('/')[2]} names; run repair(), which makes the metadata table again"
            )
        if last == groups - 1:
            return True
    return False
