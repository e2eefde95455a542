"""The storage port, through which all other modules access files, the clock and random ids.

Only adapters know what a path really is. Paths are relative to the table's folder, with ``/`` between segments; ``""``
is the folder itself. The docstring of each call says what an adapter must promise.
``tests/helpers/storage_contract.py`` checks it.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Final, Protocol

from lakeformat.errors import CorruptTableError, StorageError

__all__ = [
    "HOODIE",
    "OWN",
    "Clock",
    "FileInfo",
    "Ids",
    "Locks",
    "OutcomeUnknownError",
    "RandomIds",
    "Storage",
    "SystemClock",
    "check_folder",
    "check_path",
    "own_path",
]

HOODIE: Final = ".hoodie"
#: Folder of lakeformat's own files: lock, stage, claims. Hudi and hudi-rs ignore it.
OWN: Final = f"{HOODIE}/.lakeformat"


class OutcomeUnknownError(StorageError):
    """A call got no answer. It may have been carried out, or may be carried out later."""


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
    """The locks of a table: one lock for the whole table, and holds on files. Local files are locked by ``flock``.

    A write holds the lock while it begins and while it publishes. No code may depend on the lock between these two
    times, because a later adapter may have locks that expire.
    """

    def hold(self, path: str) -> AbstractContextManager[None]:
        """Hold a file, if it is there, while the block runs. If the holder dies, the hold ends.

        If `has_lock` is False, this does nothing. Raise `LockTimeoutError` if another holder has the file.
        """

    def is_held(self, path: str) -> bool:
        """Tell whether a file is held now; always False if `has_lock` is False."""

    def lock(self, timeout_seconds: float) -> AbstractContextManager[None]:
        """Hold the table's lock while the block runs. If the holder dies, the lock is free.

        If `has_lock` is False, the lock excludes no other process. Raise `LockTimeoutError` if another holder still has
        the lock after the timeout.
        """

    @property
    def has_lock(self) -> bool:
        """Tell whether `lock` and `hold` exclude other processes."""


class Storage(Locks, Protocol):
    """The files under one folder. Adapters are picklable, because Spark sends them to its workers.

    ``FileNotFoundError`` and ``FileExistsError`` are answers and pass through. An adapter turns every other error into
    a `StorageError` whose message is one line that names the path.
    """

    @property
    def location(self) -> str:
        """Return the folder's location, for messages and for cache keys; it never holds a secret."""

    def create(self, path: str, data: bytes) -> None:
        """Make a file if there is none. Readers see the whole file or nothing, and only one of two callers succeeds.

        The file is durable when the call returns.

        Raises:
            FileExistsError: There is such a file; it is unchanged.
            OutcomeUnknownError: The call failed, but the file may exist, or may be made later.
        """

    def replace(self, path: str, data: bytes) -> None:
        """Replace a file's whole content. Readers see the old bytes or the new bytes."""

    def read(self, path: str) -> bytes:
        """Read a whole file. Raise ``FileNotFoundError`` if there is no such file."""

    def info(self, path: str) -> FileInfo | None:
        """Return the entry at the path now (never from a cache), or None."""

    def list(self, path: str) -> Sequence[FileInfo]:
        """List the direct children now (never from a cache), by name; empty if there is no such folder."""

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
        """Make an empty file, or renew its modification time (for heartbeats)."""

    def delete(self, path: str) -> bool:
        """Remove a file, never a folder. Return False if there was no such file."""

    def delete_folder(self, path: str) -> None:
        """Remove a folder inside ``.hoodie`` with its contents. Symbolic links are removed, not followed."""

    def remove_empty(self, path: str) -> bool:
        """Remove an empty folder. Return False if it is not empty.

        If folders are only parts of names, there is nothing to remove.
        """


class Clock(Protocol):
    """A source of time."""

    def now_ms(self) -> int:
        """Return the time in epoch milliseconds."""

    def seconds(self) -> float:
        """Return a monotonic reading in seconds, for durations."""


class Ids(Protocol):
    """A source of random ids."""

    def token(self) -> str:
        """Return a new unique text of 32 hexadecimal characters."""


def check_path(path: str) -> str:
    """Return the path unchanged if it stays inside the table.

    Raises:
        CorruptTableError: The path is absolute, has an empty, ``.`` or ``..`` segment, or holds a NUL. Such paths come
            only from damaged or hostile files.
    """
    if not path:
        return path
    if path.startswith("/") or "\0" in path or any(part in {"", ".", ".."} for part in path.split("/")):
        raise CorruptTableError(f"path {path!r} leads out of the table; check the file that names it")
    return path


def check_folder(path: str) -> str:
    """Return the path unchanged if `Storage.delete_folder` may remove it.

    Raises:
        CorruptTableError: See `check_path`.
        StorageError: The path is not inside ``.hoodie``.
    """
    if not check_path(path).startswith(f"{HOODIE}/"):
        raise StorageError(f"refusing to delete folder {path!r}: only folders of {HOODIE} are removed whole")
    return path


def own_path(*parts: str) -> str:
    """Return a path in lakeformat's own folder of the table."""
    return "/".join((OWN, *parts))


class SystemClock:
    """The wall clock and the monotonic timer of this machine."""

    def now_ms(self) -> int:
        """Return the time in epoch milliseconds."""
        return time.time_ns() // 1_000_000

    def seconds(self) -> float:
        """Return a monotonic reading in seconds."""
        return time.perf_counter()


class RandomIds:
    """Random 128-bit tokens."""

    def token(self) -> str:
        """Return 32 random hexadecimal characters."""
        return uuid.uuid4().hex
