"""The data files of a table (base files and log files) and their names, and file groups and file slices."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from lakeformat.errors import CorruptTableError

__all__ = [
    "BOOTSTRAP_TIME",
    "PARTITION_MARKER",
    "BaseFile",
    "BaseFileName",
    "FileGroupId",
    "FileSlice",
    "LogFile",
    "LogFileName",
    "has_rows",
    "join_path",
    "match_data_file",
]

#: Name of the file that marks a folder as a partition: Hudi ignores folders without it.
PARTITION_MARKER: Final = ".hoodie_partition_metadata"
#: The instant of a bootstrap that only makes meta columns (Hudi: ``METADATA_BOOTSTRAP_INSTANT_TS``).
BOOTSTRAP_TIME: Final = "00000000000001"
_NAME: Final = re.compile(r"([^_/]+)_(\d+-\d+-\d+)_(\d{14}|\d{17})\.parquet")
#: A log file of table version 10: a file of rows (``log``), deletes or changes (``cdc``) in the format of base files.
_NATIVE_NAME: Final = re.compile(r"([^._/]+)_(\d+-\d+-\d+)_(\d{14}|\d{17})_(\d+)\.((log|deletes|cdc)\.[^./]+)")
_NATIVE_KINDS: Final = ("log", "deletes", "cdc")
_LOG_NAME: Final = re.compile(r"\.([^._/]+)_(\d{14}|\d{17})\.log\.(\d+)(?:_(\d+-\d+-\d+)(\.cdc)?)?")


def join_path(partition_path: str, name: str) -> str:
    """Return ``partition_path/name``, or just the name if the partition path is empty."""
    return f"{partition_path}/{name}" if partition_path else name


@dataclass(frozen=True, slots=True)
class BaseFileName:
    """The parts of a base file's name, ``<file id>_<write token>_<instant time>.parquet``.

    >>> BaseFileName.parse("6f1c-0_2-15-40_20251120083000123.parquet").file_id
    '6f1c-0'
    """

    file_id: str
    write_token: str
    instant_time: str

    @classmethod
    def match(cls, name: str) -> BaseFileName | None:
        """Parse a file name. Return None if it is not the name of a base file."""
        matched = _NAME.fullmatch(name)
        return cls(*matched.groups()) if matched else None

    @classmethod
    def parse(cls, name: str) -> BaseFileName:
        """Parse a file name. Raise `CorruptTableError` if it is not the name of a base file."""
        parsed = cls.match(name)
        if parsed is None:
            raise CorruptTableError(f"not a base file name: {name!r}")
        return parsed

    def __str__(self) -> str:
        return f"{self.file_id}_{self.write_token}_{self.instant_time}.parquet"


@dataclass(frozen=True, slots=True, order=True)
class FileGroupId:
    """The identity of a file group: a partition path and a file id."""

    partition_path: str
    file_id: str


class _FileOfGroup:
    """The common part of `BaseFile` and `LogFile`: a file in a partition's folder whose name has the file id."""

    __slots__ = ()

    partition_path: str
    name: BaseFileName | LogFileName

    @property
    def group(self) -> FileGroupId:
        """Return the file group of this file."""
        return FileGroupId(self.partition_path, self.name.file_id)

    @property
    def path(self) -> str:
        """Return the file's path, relative to the table."""
        return join_path(self.partition_path, str(self.name))


@dataclass(frozen=True, slots=True)
class BaseFile(_FileOfGroup):
    """A base file: a Parquet file with all rows of a file group at one instant."""

    partition_path: str
    name: BaseFileName
    size_bytes: int


@dataclass(frozen=True, slots=True)
class LogFileName:
    """The parts of a log file's name, ``.<file id>_<instant time>.log.<version>_<write token>``.

    The name of a change data file ends in ``.cdc``. The native log files of table version 10 are named
    ``<file id>_<write token>_<instant time>_<version>.<native>``, where ``native`` is ``log.parquet``,
    ``deletes.parquet`` or ``cdc.parquet``, or the same of another format. Up to table version 6 the instant time is the
    base instant of the slice; from version 8 on it is the instant of the deltacommit that wrote the file.

    >>> LogFileName.match(".6f1c-0_20251120083000123.log.1_0-41-26").version
    1
    >>> LogFileName.match("6f1c-0_0-41-26_20251120080000123_1.deletes.parquet").native_kind
    'deletes'
    """

    file_id: str
    instant_time: str
    version: int
    write_token: str | None = None
    is_cdc: bool = False
    native: str = ""

    @classmethod
    def match(cls, name: str) -> LogFileName | None:
        """Parse a file name (Hudi: ``FSUtils.LOG_FILE_PATTERN``). Return None if it is not the name of a log file."""
        if not name.startswith("."):
            native = _NATIVE_NAME.fullmatch(name)
            if native is None:
                return None
            file_id, token, time, version, form, kind = native.groups()
            return cls(file_id, time, int(version), token, kind == "cdc", form)
        matched = _LOG_NAME.fullmatch(name)
        if matched is None:
            return None
        file_id, time, version, token, cdc = matched.groups()
        return cls(file_id, time, int(version), token, cdc is not None)

    @property
    def native_kind(self) -> str:
        """Return what a native log file holds: ``log``, ``deletes`` or ``cdc``; an empty text for an inline one."""
        return self.native.partition(".")[0]

    @property
    def native_format(self) -> str:
        """Return the format of a native log file; an empty text for an inline one."""
        return self.native.partition(".")[2]

    def __str__(self) -> str:
        if self.native:
            return f"{self.file_id}_{self.write_token}_{self.instant_time}_{self.version}.{self.native}"
        token = "" if self.write_token is None else f"_{self.write_token}"
        return f".{self.file_id}_{self.instant_time}.log.{self.version}{token}{'.cdc' * self.is_cdc}"

    @property
    def order(self) -> tuple[str, int, str, int]:
        """Return the key by which the log files of a slice are sorted (Hudi: ``HoodieLogFile.LogFileComparator``).

        The deletes of a native flush come after its rows.
        """
        kind = _NATIVE_KINDS.index(self.native_kind) if self.native else 0
        return self.instant_time, self.version, self.write_token or "", kind


def match_data_file(name: str) -> BaseFileName | LogFileName | None:
    """Parse the bare name of a base file or log file. Return None for files of other kinds."""
    return BaseFileName.match(name) or LogFileName.match(name)


def has_rows(name: str) -> bool:
    """Tell whether a bare name is that of a base file, or of a log file that is not one of change data."""
    if _NAME.fullmatch(name) is not None:
        return True
    log = LogFileName.match(name)
    return log is not None and not log.is_cdc


@dataclass(frozen=True, slots=True)
class LogFile(_FileOfGroup):
    """A log file: a file of blocks with rows and deletes that are merged over the base file of its slice."""

    partition_path: str
    name: LogFileName
    size_bytes: int


@dataclass(frozen=True, slots=True)
class FileSlice:
    """One version of a file group: a base file and the log files that were written for it later.

    Attributes:
        base_instant: Instant time of the base file. If there is no base file, the time of the instant that began the
            slice.
        base: The base file; None if the slice has only log files.
        logs: Log files in the order in which they are merged.
    """

    group: FileGroupId
    base_instant: str
    base: BaseFile | None
    logs: tuple[LogFile, ...] = ()

    @property
    def files(self) -> tuple[BaseFile | LogFile, ...]:
        """Return all files of the slice, the base file first."""
        return (self.base, *self.logs) if self.base is not None else self.logs

    @property
    def earliest(self) -> str:
        """Return a lower bound of the instant times of all blocks in the slice's log files.

        The bound can be less than the base instant: in timeline layout 2, a deltacommit that began before the slice's
        base instant but completed after it may have written log files of the slice.
        """
        return min((self.base_instant, *(log.name.instant_time for log in self.logs)))

    @property
    def size_bytes(self) -> int:
        """Return the size of all files of the slice together, in bytes."""
        return sum(log.size_bytes for log in self.logs) + (self.base.size_bytes if self.base else 0)
