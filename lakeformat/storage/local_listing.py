"""Entries of a folder on a local disk."""

from __future__ import annotations

import os
import stat
import time
from collections.abc import Iterable, Sequence
from operator import attrgetter

from lakeformat.storage.port import FileInfo

__all__ = ["ListedFile", "make_info", "make_infos", "scan_folder"]


def scan_folder(real: str) -> Sequence[os.DirEntry[str]]:
    """Return the children of a folder; none if it is missing."""
    try:
        with os.scandir(real) as scan:
            return list(scan)
    except (FileNotFoundError, NotADirectoryError):
        return []


def make_infos(folder: str, children: Iterable[os.DirEntry[str]]) -> list[FileInfo]:
    """Look at the children of a folder. Return those that exist, sorted by name."""
    infos: list[FileInfo] = []
    start = f"{folder}/" if folder else ""
    for child in sorted(children, key=attrgetter("name")):
        try:
            infos.append(make_info(start + child.name, child.stat()))
        except FileNotFoundError:
            continue
    return infos


class ListedFile(FileInfo):
    """An entry of a listing that looks at its file when it is first asked for size or time: few callers ask."""

    __slots__ = ("_entry", "_seen", "_start", "name")
    __setattr__ = object.__setattr__  # A listing makes hundreds of entries, and the frozen base would refuse these.
    _entry: os.DirEntry[str]
    _seen: FileInfo

    def __init__(self, start: str, entry: os.DirEntry[str]) -> None:
        self._start, self._entry = start, entry
        self.name = entry.name  # type: ignore[misc]

    @property
    def path(self) -> str:
        """Return the path."""
        return f"{self._start}{self.name}"

    def _look(self) -> FileInfo:
        try:
            return self._seen
        except AttributeError:
            try:
                seen = make_info(self.path, self._entry.stat())
            except FileNotFoundError:
                seen = FileInfo(self.path, 0, time.time_ns() // 1_000_000, False)
            self._seen = seen
            return seen

    @property
    def size_bytes(self) -> int:
        """Return the size in bytes."""
        return self._look().size_bytes

    @property
    def modified_ms(self) -> int:
        """Return the modification time in milliseconds."""
        return self._look().modified_ms

    @property
    def is_folder(self) -> bool:
        """Tell whether it is a folder."""
        return self._entry.is_dir()

    def __eq__(self, other: object) -> bool:
        return self._look() == (other._look() if isinstance(other, ListedFile) else other)

    def __hash__(self) -> int:
        return hash(self._look())

    def __repr__(self) -> str:
        return repr(self._look())

    def __reduce__(self) -> tuple[object, ...]:
        return FileInfo, (self.path, self.size_bytes, self.modified_ms, self.is_folder)


def make_info(path: str, status: os.stat_result) -> FileInfo:
    """Return the entry of a file or folder."""
    folder = stat.S_ISDIR(status.st_mode)
    return FileInfo(path, 0 if folder else status.st_size, status.st_mtime_ns // 1_000_000, folder)
