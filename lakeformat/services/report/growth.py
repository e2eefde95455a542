"""The size of a table after each of its commits, from the write stats of the commits. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, TypeAlias

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


_Group: TypeAlias = tuple[str, str]
#: The instant time, the rows and the bytes of a base file; the instant time in a log file's name, and its bytes.
_Base: TypeAlias = tuple[str, int, int]
_Log: TypeAlias = tuple[str, int]
_NO_BASE: Final[_Base] = ("", 0, 0)


class _LiveFiles:
    """The newest file slices of all file groups, while commits are replayed, and the sums over them."""

    def __init__(self) -> None:
        self._bases: dict[_Group, _Base] = {}
        self._logs: dict[_Group, dict[str, _Log]] = {}
        self._rows = self._bytes = self._files = 0

    def size_at(self, instant_time: str) -> TableSize:
        """Return the sums."""
        return TableSize(instant_time, self._rows, self._bytes, self._files)

    def remove(self, group: _Group) -> None:
        """Remove the files of a group that was replaced."""
        self._count_base(self._bases.pop(group, _NO_BASE), _NO_BASE)
        self._keep_logs(group, "~")

    def add(self, instant_time: str, stat: WriteStat) -> None:
        """Add a written file. A new base file takes the place of older files."""
        group, name = (stat.partition_path, stat.file_id), stat.path.rpartition("/")[2]
        before = self._bases.get(group, _NO_BASE)
        log = LogFileName.match(name)
        if log is not None or name.startswith("."):
            if log is not None and not log.is_cdc and log.instant_time >= before[0]:
                self._count_logs(group, {**self._logs.get(group, {}), stat.path: (log.instant_time, stat.size_bytes)})
        elif instant_time >= before[0]:
            self._bases[group] = after = (instant_time, stat.num_writes, stat.size_bytes)
            self._count_base(before, after)
            self._keep_logs(group, instant_time)

    def _count_base(self, before: _Base, after: _Base) -> None:
        self._rows += after[1] - before[1]
        self._bytes += after[2] - before[2]
        self._files += (after[0] != "") - (before[0] != "")

    def _keep_logs(self, group: _Group, since: str) -> None:
        if logs := self._logs.get(group):
            self._count_logs(group, {path: log for path, log in logs.items() if log[0] >= since})

    def _count_logs(self, group: _Group, after: dict[str, _Log]) -> None:
        before = self._logs.get(group, {})
        self._bytes += sum(size for _, size in after.values()) - sum(size for _, size in before.values())
        self._files += len(after) - len(before)
        self._logs[group] = after


def sizes_over_time(commits: Iterable[tuple[Instant, CommitMetadata]]) -> tuple[TableSize, ...]:
    """Return the size of the table after each commit.

    Args:
        commits: all commits of the table with their metadata, in the order in which they completed.
    """
    live = _LiveFiles()
    sizes = []
    for instant, metadata in commits:
        for group in metadata.replaced_groups:
            live.remove((group.partition_path, group.file_id))
        for stat in metadata.all_stats():
            if stat.path:
                live.add(instant.time, stat)
        sizes.append(live.size_at(instant.time))
    return tuple(sizes)
