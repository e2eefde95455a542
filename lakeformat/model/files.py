"""Files of a table: names on disk, file groups, and what is inside a partition."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from lakeformat.errors import CorruptTableError

__all__ = ["BaseFile", "BaseFileName", "FileGroupId", "join_path"]

_NAME: Final = re.compile(r"([^_/]+)_(\d+-\d+-\d+)_(\d{14}|\d{17})\.parquet")


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


@dataclass(frozen=True, slots=True)
class BaseFile:
    """One version of a file group: a Parquet file that stands in a partition's folder."""

    partition_path: str
    name: BaseFileName
    size_bytes: int

    @property
    def group(self) -> FileGroupId:
        """The file group this file is a version of."""
        return FileGroupId(self.partition_path, self.name.file_id)

    @property
    def path(self) -> str:
        """Path relative to the table."""
        return join_path(self.partition_path, str(self.name))
