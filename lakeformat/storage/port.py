"""The storage port: the protocols through which all other modules access files, the clock and random ids.

Each adapter implements them for one kind of storage. Paths are relative to the table's folder, with ``/`` between
segments; ``""`` is the folder itself. The docstring of each method says what every adapter must guarantee.
``tests/helpers/storage_contract.py`` checks these guarantees.
"""

from __future__ import annotations

import math
import os
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import Any, Final, Protocol, TypeVar

from lakeformat.errors import CorruptTableError, StorageError

__all__ = [
    "HOODIE",
    "OWN",
    "Clock",
    "EndlessLease",
    "FileInfo",
    "Ids",
    "Lease",
    "Locks",
    "NoLocks",
    "OutcomeUnknownError",
    "RandomIds",
    "Storage",
    "SystemClock",
    "Version",
    "VersionChangedError",
    "check_folder",
    "check_path",
    "check_version",
    "is_remote",
    "list_until_none_goes",
    "own_path",
]

HOODIE: Final = ".hoodie"
#: Folder of lakeformat's own files: lock, stage, claims. Hudi and hudi-rs ignore it.
OWN: Final = f"{HOODIE}/.lakeformat"
#: Maximum number of times that a folder is listed from which other processes delete files meanwhile.
_MOST_LISTINGS: Final = 100


class OutcomeUnknownError(StorageError):
    """The storage did not respond to a call, which may have been carried out or may be carried out later."""


class VersionChangedError(StorageError):
    """A file was not replaced, because its content has changed since the caller read it.

    Attributes:
        found: the content and the version that were read after that; None if they are not known.
    """

    def __init__(self, message: str, found: tuple[bytes, Version] | None = None) -> None:
        super().__init__(message)
        self.found = found


@dataclass(frozen=True, slots=True)
class Version:
    """The version of a file's content, as the storage names it (on object stores the etag)."""

    tag: str


def is_remote(storage: Locks) -> bool:
    """Tell whether each call may be a request to a server, which takes long. A storage with locks is local."""
    return not storage.has_lock


def check_version(path: str, location: str, found: Version | None, expected: Version | None) -> None:
    """Check, for `Storage.replace_if`, that a file has the version that the caller has read.

    Args:
        found: the file's version now; None if there is no such file.
        expected: the version that the caller has read; None if there was no such file.

    Raises:
        FileExistsError: ``expected`` is None, and the file exists.
        VersionChangedError: the file has another version, or is gone.
    """
    if expected is None and found is not None:
        raise FileExistsError(path)
    if found != expected:
        raise VersionChangedError(f"{path} of {location} has changed; read it again")


class Lease(Protocol):
    """A lock that this process holds for a limited time, which a thread prolongs."""

    def remaining(self) -> float:
        """Return the seconds until the lease ends; infinity if it never ends."""

    def check(self, seconds: float) -> None:
        """Raise `LockLostError` if the lease ends before this many seconds have passed."""


class EndlessLease:
    """The lease of a lock that ends only when it is released."""

    def remaining(self) -> float:
        """Return infinity."""
        return math.inf

    def check(self, seconds: float) -> None:
        """Do nothing."""


@dataclass(frozen=True, slots=True)
class FileInfo:
    """One entry of a listing. The size is in bytes (0 for folders), the time in epoch milliseconds."""

    path: str
    size_bytes: int
    modified_ms: int
    is_folder: bool = False

    @property
    def name(self) -> str:
        """Return the last segment of the path."""
        return self.path.rpartition("/")[2]


class Locks(Protocol):
    """The locks of a table: one lock for the whole table, and locks on single files, called holds.

    A write holds the lock while it begins and while it publishes. No code may depend on the lock between these two
    times, because a later adapter may have locks that expire.
    """

    def hold(self, path: str) -> AbstractContextManager[None]:
        """Lock a file while the block runs, if the file exists. If the process dies, the file is free again.

        If `has_lock` is False, this does nothing. Raise `LockTimeoutError` if the file is locked already.
        """

    def is_held(self, path: str) -> bool:
        """Tell whether a file is locked by `hold` now; always False if `has_lock` is False."""

    def lock(self, timeout_seconds: float) -> AbstractContextManager[Lease]:
        """Hold the table's lock while the block runs. If the process dies, the lock is free again.

        If `has_lock` is False, the lock does not exclude other processes. Raise `LockTimeoutError` if another process
        still holds the lock after the timeout.
        """

    @property
    def has_lock(self) -> bool:
        """Tell whether `lock` and `hold` exclude other processes."""


class NoLocks:
    """The locks of a storage that has none: they do nothing."""

    has_lock = False

    @contextmanager
    def hold(self, path: str) -> Iterator[None]:
        """Do nothing except check the path."""
        check_path(path)
        yield

    def is_held(self, path: str) -> bool:
        """Return False."""
        check_path(path)
        return False

    @contextmanager
    def lock(self, timeout_seconds: float) -> Iterator[Lease]:
        """Do nothing, and yield an endless lease."""
        yield EndlessLease()


_Entry = TypeVar("_Entry", FileInfo, "os.DirEntry[str]")


class Storage(Locks, Protocol):
    """The files under one folder. Adapters are picklable, because Spark sends them to its workers.

    The methods raise ``FileNotFoundError`` and ``FileExistsError`` where their docstrings say so. An adapter turns
    every other error into a `StorageError` whose message is one line that names the path.
    """

    @property
    def location(self) -> str:
        """Return the folder's path or URL, for messages and cache keys. It never contains a secret."""

    def subfolder(self, path: str) -> Storage:
        """Return the storage of a folder inside this one. It has its own locks, and paths relative to that folder."""

    @property
    def has_folders(self) -> bool:
        """Tell whether a folder stays when its last file is deleted. On object stores folders are parts of names."""

    def create(self, path: str, data: bytes) -> None:
        """Create a file. If several callers create the same file, only one succeeds.

        Readers see the whole file or no file. The file is durable when the call returns.

        Raises:
            FileExistsError: The file exists already; it is unchanged.
            OutcomeUnknownError: The storage did not respond; the file may exist, or may be created later.
        """

    @property
    def has_versions(self) -> bool:
        """Tell whether `create` and `replace_if` let only one of several processes succeed."""

    def read_versioned(self, path: str) -> tuple[bytes, Version]:
        """Read a whole file and its version. Raise ``FileNotFoundError`` if there is no such file."""

    def replace_if(self, path: str, data: bytes, version: Version | None) -> Version:
        """Replace a file's whole content if its version has not changed, and return the new version.

        If the storage does not say that the file was replaced, the file is read. If it has the bytes of this call, the
        call has succeeded. Therefore no two calls may write the same bytes.

        Args:
            version: the version that the caller has read; None to create the file.

        Raises:
            FileExistsError: ``version`` is None, and the file exists.
            VersionChangedError: the file has another version, or is gone; it is unchanged.
            OutcomeUnknownError: the storage did not respond; the file may be replaced, now or later.
        """

    def replace(self, path: str, data: bytes) -> None:
        """Create a file or replace its whole content. Readers see either the old bytes or the new bytes."""

    def read(self, path: str) -> bytes:
        """Read a whole file. Raise ``FileNotFoundError`` if there is no such file."""

    def info(self, path: str) -> FileInfo | None:
        """Return the path's kind, size and modification time now (never from a cache); None if nothing is there."""

    def list(self, path: str) -> Sequence[FileInfo]:
        """List the direct children now (never from a cache), sorted by name; empty if there is no such folder."""

    def list_at_once(self, path: str) -> Sequence[FileInfo]:
        """List the direct children as they were at one moment, sorted by name.

        `list` may show a file that has been deleted, and miss a file that was deleted after it.

        Raises:
            StorageError: Files of the folder were deleted during each of many listings.
        """

    def open_input(self, path: str) -> Any:
        """Open a file as a seekable ``pyarrow.NativeFile`` (a context manager).

        Raise ``FileNotFoundError`` if there is no such file.
        """

    def open_output(self, path: str) -> AbstractContextManager[Any]:
        """Open a new file for streaming (``pyarrow.NativeFile``). If the block raises, no file is left behind.

        The file is complete and durable after the block. The call does not check for an existing file, because names of
        data files are unique by construction.
        """

    def move(self, source: str, target: str) -> None:
        """Rename a data file; the target must not exist. Raise ``FileNotFoundError`` if the source does not exist."""

    def touch(self, path: str) -> None:
        """Create an empty file, or set its modification time to now."""

    def make_folder(self, path: str) -> None:
        """Make a folder and those that it lies in, if they are missing and the storage has folders."""

    def delete(self, path: str) -> None:
        """Remove a file, if there is one, and never a folder."""

    def delete_all(self, paths: Sequence[str]) -> None:
        """Remove files, if they are there, in any order and by few requests. If it fails, some may be removed."""

    def delete_folder(self, path: str) -> None:
        """Remove a folder inside ``.hoodie`` with its contents. Symbolic links are removed, not followed."""

    def remove_empty(self, path: str) -> bool:
        """Remove a folder if it is empty. Return whether the folder is empty or does not exist.

        If the storage has folders only as parts of file names, nothing is removed.
        """


class Clock(Protocol):
    """A source of time."""

    def now_ms(self) -> int:
        """Return the time in epoch milliseconds."""

    def seconds(self) -> float:
        """Return a monotonic time in seconds, for measuring durations."""


class Ids(Protocol):
    """A source of random ids."""

    def token(self) -> str:
        """Return a new unique text of 32 hexadecimal characters."""


def list_until_none_goes(
    seen: Sequence[_Entry], list_again: Callable[[], Sequence[_Entry]], path: str, location: str
) -> Sequence[_Entry]:
    """List a folder again until a listing has all children of the one before, at first of ``seen``. Return the last.

    So no child that it lacks was deleted after one that it has. A child that was created during the last listing may be
    missing.

    Raises:
        StorageError: Files of the folder were deleted during each of many listings.
    """
    for _ in range(_MOST_LISTINGS):
        again = list_again()
        if {entry.name for entry in seen} <= {entry.name for entry in again}:
            return again
        seen = again
    raise StorageError(f"cannot list {path} in {location}: files of it are deleted all the time; try again")


_NO_NAMES: Final = frozenset({"", ".", ".."})


def check_path(path: str) -> str:
    """Return the path unchanged if it stays inside the table.

    Raises:
        CorruptTableError: The path is absolute, has an empty, ``.`` or ``..`` segment, or contains a NUL. Such
            paths come only from damaged or malicious files.
    """
    if not path:
        return path
    if path.startswith("/") or "\0" in path or not _NO_NAMES.isdisjoint(path.split("/")):
        raise CorruptTableError(f"path {path!r} leads out of the table; check the file that names it")
    return path


def check_folder(path: str) -> str:
    """Return the path unchanged if `Storage.delete_folder` may remove it.

    Raises:
        CorruptTableError: The path leads out of the table.
        StorageError: The path is not inside ``.hoodie``.
    """
    if not check_path(path).startswith(f"{HOODIE}/"):
        raise StorageError(f"refusing to delete folder {path!r}: only folders of {HOODIE} are removed whole")
    return path


def own_path(*parts: str) -> str:
    """Return the path of a file in lakeformat's own folder of the table."""
    return "/".join((OWN, *parts))


class SystemClock:
    """The wall clock and the monotonic timer of this machine."""

    def now_ms(self) -> int:
        """Return the time in epoch milliseconds."""
        return time.time_ns() // 1_000_000

    def seconds(self) -> float:
        """Return a monotonic time in seconds."""
        return time.perf_counter()


class RandomIds:
    """Random 128-bit tokens."""

    def token(self) -> str:
        """Return 32 random hexadecimal characters."""
        return uuid.uuid4().hex
