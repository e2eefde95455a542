"""Files of a table: names on disk, file groups, and what is inside a partition."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from lakeformat.errors import CorruptTableError

__all__ = [
    "PARTITION_MARKER",
    "BaseFile",
    "BaseFileName",
    "FileGroupId",
    "FileSlice",
    "LogFile",
    "LogFileName",
    "join_path",
]

#: A folder without this file is no partition.
PARTITION_MARKER: Final = ".hoodie_partition_metadata"
_NAME: Final = re.compile(r"([^_/]+)_(\d+-\d+-\d+)_(\d{14}|\d{17})\.parquet")
_LOG_NAME: Final = re.compile(r"\.([^._/]+)_(\d{14}|\d{17})\.log\.(\d+)(?:_(\d+-\d+-\d+)(\.cdc)?)?")


def join_path(partition_path: str, name: str) -> str:
    """``partition/name``, or just the name in a table without partitions."""
    return f"{partition_path}/{name}" if partition_path else name


@dataclass(frozen=True, slots=True)
class BaseFileName:
    """``<file id>_<write token>_<instant time>.parquet``: all that a listing tells us.

    >>> BaseFileName.parse("6f1c-0_2-15-40_20251120083000123.parquet").file_id
    '6f1c-0'
    """

    file_id: str
    write_token: str
    instant_time: str

    @classmethod
    def match(cls, name: str) -> BaseFileName | None:
        """Inverse of ``str()``, None for any other name."""
        found = _NAME.fullmatch(name)
        return cls(*found.groups()) if found else None

    @classmethod
    def parse(cls, name: str) -> BaseFileName:
        """Inverse of ``str()``; raises `CorruptTableError` for any other name."""
        parsed = cls.match(name)
        if parsed is None:
            raise CorruptTableError(f"not a base file name: {name!r}")
        return parsed

    def __str__(self) -> str:
        return f"{self.file_id}_{self.write_token}_{self.instant_time}.parquet"


@dataclass(frozen=True, slots=True, order=True)
class FileGroupId:
    """All versions of one base file: a partition and a file id."""

    partition_path: str
    file_id: str


class _OfGroup:
    """A file that stands in a partition's folder, named after its file group."""

    __slots__ = ()

    partition_path: str
    name: BaseFileName | LogFileName

    @property
    def group(self) -> FileGroupId:
        """The file group this file belongs to."""
        return FileGroupId(self.partition_path, self.name.file_id)

    @property
    def path(self) -> str:
        """Path relative to the table."""
        return join_path(self.partition_path, str(self.name))


@dataclass(frozen=True, slots=True)
class BaseFile(_OfGroup):
    """One version of a file group: a Parquet file that stands in a partition's folder."""

    partition_path: str
    name: BaseFileName
    size_bytes: int


@dataclass(frozen=True, slots=True)
class LogFileName:
    """``.<file id>_<instant time>.log.<version>_<write token>``, ``.cdc`` at the end of change data.

    The instant is the slice's base instant up to table version 6, that of the writing deltacommit from version 8 on.

    >>> LogFileName.match(".6f1c-0_20251120083000123.log.1_0-41-26").version
    1
    """

    file_id: str
    instant_time: str
    version: int
    write_token: str | None = None
    is_cdc: bool = False

    @classmethod
    def match(cls, name: str) -> LogFileName | None:
        """Inverse of ``str()``, None for any other name (Hudi: ``FSUtils.LOG_FILE_PATTERN``)."""
        found = _LOG_NAME.fullmatch(name)
        if found is None:
            return None
        file_id, time, version, token, cdc = found.groups()
        return cls(file_id, time, int(version), token, cdc is not None)

    def __str__(self) -> str:
        token = "" if self.write_token is None else f"_{self.write_token}"
        return f".{self.file_id}_{self.instant_time}.log.{self.version}{token}{'.cdc' * self.is_cdc}"

    @property
    def order(self) -> tuple[str, int, str]:
        """Where the file stands among the log files of a slice (Hudi: ``HoodieLogFile.LogFileComparator``)."""
        return self.instant_time, self.version, self.write_token or ""


@dataclass(frozen=True, slots=True)
class LogFile(_OfGroup):
    """What was appended to a file group: a file of blocks in a partition's folder."""

    partition_path: str
    name: LogFileName
    size_bytes: int


@dataclass(frozen=True, slots=True)
class FileSlice:
    """One version of a file group: a base file, and what was appended since.

    Attributes:
        base_instant: time of the base file's commit, or of the compaction or commit that opened the slice.
        base: None where the slice is logs only.
        logs: in the order in which they are merged.
    """

    group: FileGroupId
    base_instant: str
    base: BaseFile | None
    logs: tuple[LogFile, ...] = ()

    @property
    def files(self) -> tuple[BaseFile | LogFile, ...]:
        """All of them, the base file first."""
        return (self.base, *self.logs) if self.base is not None else self.logs

    @property
    def earliest(self) -> str:
        """No block of its log files is of an earlier instant: one that began before the slice may end in it."""
        return min((self.base_instant, *(log.name.instant_time for log in self.logs)))

    @property
    def size_bytes(self) -> int:
        """Of all its files."""
        return sum(log.size_bytes for log in self.logs) + (self.base.size_bytes if self.base else 0)
