"""The file groups of one partition of a metadata table, each with its newest slice."""

from __future__ import annotations

from dataclasses import dataclass

from lakeformat.errors import CorruptTableError, UnsupportedTableError
from lakeformat.metadata_table.instants import MetadataInstants
from lakeformat.metadata_table.names import BaseName, LogName, MetadataPartition, group_number
from lakeformat.model.files import LogFile, LogFileName
from lakeformat.storage.port import Storage

__all__ = ["MetadataSlice", "list_slices"]


@dataclass(frozen=True, slots=True)
class MetadataSlice:
    """The newest slice of one file group: a base file and the log files after it.

    Attributes:
        number: Number of the file group, from 0 on; it holds the keys whose hash gives this number.
        base: Path of the base file; None if there is none.
        logs: Log files in the order in which they are merged.
    """

    number: int
    base: str | None
    logs: tuple[LogFile, ...]


def list_slices(
    storage: Storage, partition: MetadataPartition, instants: MetadataInstants
) -> tuple[MetadataSlice, ...]:
    """List the newest slices of a partition, by number of the file group.

    Nothing stores how many file groups a partition has: all that have a file count, as in Hudi.

    Raises:
        CorruptTableError: A file group is missing.
        UnsupportedTableError: The partition has file groups of a kind that is not supported.
    """
    bases: dict[int, tuple[str, str]] = {}
    logs: dict[int, list[LogFile]] = {}
    where = f"{storage.location}/{partition.folder}"
    for entry in storage.list(partition.folder):
        name = LogName.match(entry.name) or BaseName.match(entry.name)
        if name is None or entry.is_folder:
            continue
        number = group_number(partition, name.file_id)
        if number is None:
            raise UnsupportedTableError(
                f"{where} has file group {name.file_id!r}, which is not supported; drop the index with Hudi, or run "
                "repair(), which drops the metadata table"
            )
        found = logs.setdefault(number, [])
        if isinstance(name, LogName):
            parts = LogFileName(name.file_id, name.instant_time, name.version, name.write_token)
            found.append(LogFile(partition.folder, parts, entry.size_bytes))
        elif instants.has_base(name.instant_time):
            bases[number] = max(bases.get(number, ("", "")), (name.instant_time, entry.path))
    missing = set(range(max(logs, default=0) + 1)) - logs.keys()
    if missing:
        raise CorruptTableError(
            f"{where} lacks file group {min(missing)} of {max(logs, default=0) + 1}; run repair(), which drops the "
            "metadata table, and Hudi makes it again"
        )
    return tuple(_slice(number, bases.get(number), logs[number], instants) for number in sorted(logs))


def _slice(number: int, base: tuple[str, str] | None, logs: list[LogFile], instants: MetadataInstants) -> MetadataSlice:
    first, path = base or ("", None)
    own = [
        log for log in logs if (latest := instants.latest_base(log.name.instant_time)) is not None and latest >= first
    ]
    return MetadataSlice(number, path, tuple(sorted(own, key=lambda log: log.name.order)))
