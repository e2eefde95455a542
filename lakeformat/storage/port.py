"""The one door to files. Everything else asks a `Storage`; nothing else knows what a path really is.

Paths are relative to the table's folder, with ``/`` between segments; ``""`` is the folder itself. What an
adapter must promise stands beside each call; ``tests/helpers/storage_contract.py`` checks it.

The real clock and the real randomness.
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
#: Our own corner of the table: lock, stage, claims. Hudi and hudi-rs pass it by.
OWN: Final = f"{HOODIE}/.lakeformat"


class OutcomeUnknownError(StorageError):
    """A call was not answered: it may have been carried out, and it may be carried out later."""


@dataclass(frozen=True, slots=True)
class FileInfo:
    """One entry of a listing. Size in bytes (0 for folders), times in epoch milliseconds."""

    path: str
    size_bytes: int
    modified_ms: int
    is_folder: bool = False

    @property
    def name(self) -> str:
        """The last segment."""
        return self.path.rpartition("/")[2]


class Locks(Protocol):
    """Who may write now: a table's lock, and files held by whoever lives. Today by ``flock`` on local files.

    Begin and publish hold the lock; between them nothing may rest on it, for a lock may become a lease.
    """

    def hold(self, path: str) -> AbstractContextManager[None]:
        """Hold a file, if it is there, while the block runs; the holder's death lets go of it.

        Of no use where `has_lock` is False. Raises `LockTimeoutError` if another holds it.
        """

    def is_held(self, path: str) -> bool:
        """Whether anybody holds a file now; always False where `has_lock` is."""

    def lock(self, timeout_seconds: float) -> AbstractContextManager[None]:
        """Hold the table's lock; the holder's death frees it. Raises `LockTimeoutError`.

        An adapter whose `has_lock` is False hands out a lock that excludes nobody.
        """

    @property
    def has_lock(self) -> bool:
        """Whether `lock` and `hold` keep other processes out."""


class Storage(Locks, Protocol):
    """Files under one folder. Adapters are picklable: they travel to Spark's workers.

    Errors: ``FileNotFoundError`` and ``FileExistsError`` are answers and pass through; everything else an
    adapter meets becomes one `StorageError` line that names the path.
    """

    @property
    def location(self) -> str:
        """The folder, for messages and for cache keys; never holds a secret."""

    def create(self, path: str, data: bytes) -> None:
        """Make a file if there is none: readers see all of it or nothing, and of two callers one wins.

        Durable once it returns. Raises ``FileExistsError`` and leaves the other's bytes alone; raises
        `OutcomeUnknownError` if the file may be made all the same, now or later.
        """

    def replace(self, path: str, data: bytes) -> None:
        """Set a file's whole content: readers see the old or the new bytes."""

    def read(self, path: str) -> bytes:
        """A whole file. Raises ``FileNotFoundError``."""

    def info(self, path: str) -> FileInfo | None:
        """What stands at the path now (never from a cache), or None."""

    def list(self, path: str) -> Sequence[FileInfo]:
        """The direct children now (never from a cache), by name; empty for a folder that is not there."""

    def open_input(self, path: str) -> Any:
        """A seekable ``pyarrow.NativeFile`` (a context manager). Raises ``FileNotFoundError``."""

    def open_output(self, path: str) -> AbstractContextManager[Any]:
        """A new file to stream into (``pyarrow.NativeFile``); leaves no file behind if the block raises.

        Whole and durable after the block. Not exclusive: names of data files are unique by construction.
        """

    def move(self, source: str, target: str) -> None:
        """Rename a data file; the target does not exist. Raises ``FileNotFoundError`` for the source."""

    def touch(self, path: str) -> None:
        """Make an empty file or renew its modification time (heartbeats)."""

    def delete(self, path: str) -> bool:
        """Remove a file, never a folder; False if there was none."""

    def delete_folder(self, path: str) -> None:
        """Remove a folder of ``.hoodie`` and all in it; symbolic links are removed, not followed."""

    def remove_empty(self, path: str) -> bool:
        """Remove a folder in which nothing is; False if something is. Where folders are names alone there is none."""


class Clock(Protocol):
    """Where the time comes from."""

    def now_ms(self) -> int:
        """Epoch milliseconds."""

    def seconds(self) -> float:
        """A monotonic reading in seconds, for durations."""


class Ids(Protocol):
    """Where randomness comes from."""

    def token(self) -> str:
        """A new text nobody else has: 32 hexadecimal characters."""


def check_path(path: str) -> str:
    """The path itself, if it stays inside the table.

    Raises:
        CorruptTableError: it is absolute, climbs out by ``..``, or holds a NUL; such paths only come from
            damaged or hostile files.
    """
    if not path:
        return path
    if path.startswith("/") or "\0" in path or any(part in {"", ".", ".."} for part in path.split("/")):
        raise CorruptTableError(f"path {path!r} leads out of the table; check the file that names it")
    return path


def check_folder(path: str) -> str:
    """The path itself, if `Storage.delete_folder` may remove it.

    Raises:
        CorruptTableError: see `check_path`.
        StorageError: it is no folder inside ``.hoodie``.
    """
    if not check_path(path).startswith(f"{HOODIE}/"):
        raise StorageError(f"refusing to delete folder {path!r}: only folders of {HOODIE} are removed whole")
    return path


def own_path(*parts: str) -> str:
    """A path in our own corner of the table."""
    return "/".join((OWN, *parts))


class SystemClock:
    """Wall clock and monotonic timer of this machine."""

    def now_ms(self) -> int:
        """Epoch milliseconds."""
        return time.time_ns() // 1_000_000

    def seconds(self) -> float:
        """A monotonic reading."""
        return time.perf_counter()


class RandomIds:
    """Random 128-bit tokens."""

    def token(self) -> str:
        """32 hexadecimal characters."""
        return uuid.uuid4().hex
