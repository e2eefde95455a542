"""The size of a table after each of its commits, from the write stats of the commits. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Final

from lakeformat.model.commit import CommitMetadata, WriteStat
from lakeformat.model.files import LogFileName
from lakeformat.model.instant import Instant

__all__ = ["TableSize", "sizes_over_time"]


@dataclass(frozen=True, slots=True)
class TableSize:
    """The live files of a table after a commit.

    Attributes:
        rows: rows in the base files; rows in log files are not counted.
        size_bytes, files: bytes and number of the live base and log files.
    """

    instant_time: str
    rows: int
    size_bytes: int
    files: int


@dataclass(frozen=True, slots=True)
class _Slice:
    """The newest file slice of a file group, while commits are replayed.

    Attributes:
        base_instant: instant time of the base file; "" if there is none.
        rows, base_bytes: those of the base file.
        logs: maps the path of each log file to the instant time in its name, and its bytes.
    """

    base_instant: str
    rows: int
    base_bytes: int
    logs: Mapping[str, tuple[str, int]]

    @property
    def log_bytes(self) -> int:
        """Return the bytes of the log files."""
        return sum(size for _, size in self.logs.values()) if self.logs else 0

    def add(self, instant_time: str, stat: WriteStat) -> _Slice:
        """Return the slice with a written file. A new base file takes the place of older files."""
        name = stat.path.rpartition("/")[2]
        if name.startswith("."):
            log = LogFileName.match(name)
            if log is None or log.is_cdc or log.instant_time < self.base_instant:
                return self
            return replace(self, logs={**self.logs, stat.path: (log.instant_time, stat.size_bytes)})
        if instant_time < self.base_instant:
            return self
        logs = {path: log for path, log in self.logs.items() if log[0] >= instant_time} if self.logs else _NO_LOGS
        return _Slice(instant_time, stat.num_writes, stat.size_bytes, logs)


_NO_LOGS: Final[Mapping[str, tuple[str, int]]] = {}
_NOTHING: Final = _Slice("", 0, 0, _NO_LOGS)


def sizes_over_time(commits: Iterable[tuple[Instant, CommitMetadata]]) -> tuple[TableSize, ...]:
    """Return the size of the table after each commit.

    Args:
        commits: all commits of the table with their metadata, in the order in which they completed.
    """
    slices: dict[tuple[str, str], _Slice] = {}
    rows = size_bytes = files = 0
    found = []
    for instant, metadata in commits:
        replaced = ((group.partition_path, group.file_id) for group in metadata.replaced_groups)
        changes = [(slices.pop(key, _NOTHING), _NOTHING) for key in replaced]
        for stat in metadata.all_stats():
            if stat.path:
                key = stat.partition_path, stat.file_id
                before = slices.get(key, _NOTHING)
                slices[key] = after = before.add(instant.time, stat)
                changes.append((before, after))
        for before, after in changes:
            rows += after.rows - before.rows
            size_bytes += after.base_bytes - before.base_bytes
            files += (after.base_instant != "") - (before.base_instant != "")
            if before.logs or after.logs:
                size_bytes += after.log_bytes - before.log_bytes
                files += len(after.logs) - len(before.logs)
        found.append(TableSize(instant.time, rows, size_bytes, files))
    return tuple(found)
