"""Small files on this machine's disk that processes of one user share, each changed by one of them at a time.

They lie in the system's folder for temporary files, in one that only the user can write to. A file that nobody has
changed for a week goes when the next one is made; one that is gone is never made again.

Room on a local disk for what a process keeps aside while it runs.
"""

from __future__ import annotations

import os
import stat
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from lakeformat.storage.local import LocalStorage
from lakeformat.storage.port import Storage

__all__ = ["change_scratch", "mapped_storage", "new_scratch", "temporary_folder", "temporary_storage"]

_FORGOTTEN_AFTER_S: Final = 7 * 86400


def new_scratch() -> str:
    """The path of a new file, empty.

    Raises:
        OSError: there can be none; on Windows, which has no locks of the kind needed, always.
    """
    folder = _folder()
    _forget_old(folder)
    path = folder / uuid.uuid4().hex
    path.touch(0o600, exist_ok=False)
    return str(path)


def change_scratch(path: str, change: Callable[[bytes], bytes]) -> None:
    """Give what the file holds to ``change`` and write what it returns, while every other process waits.

    A process that dies here may leave a torn file.

    Raises:
        OSError: the file cannot be read or written, or is gone.
    """
    import fcntl

    with open(path, "r+b") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        if not os.fstat(file.fileno()).st_nlink:
            raise FileNotFoundError(f"{path} was removed")
        before = file.read()
        after = change(before)
        if after != before:
            file.seek(0)
            file.truncate()
            file.write(after)


def _folder() -> Path:
    if not hasattr(os, "getuid"):
        raise OSError("this system has no locks of files")
    folder = Path(tempfile.gettempdir()) / f"lakeformat-{os.getuid()}"
    with suppress(FileExistsError):
        folder.mkdir(0o700)
    found = folder.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid() or stat.S_IMODE(found.st_mode) & 0o077:
        raise PermissionError(f"{folder} is not a folder of this user alone")
    return folder


def _forget_old(folder: Path) -> None:
    oldest = time.time() - _FORGOTTEN_AFTER_S
    for entry in os.scandir(folder):
        with suppress(OSError):
            if entry.stat(follow_symlinks=False).st_mtime < oldest:
                os.unlink(entry)


@contextmanager
def mapped_storage(storage: Storage) -> Iterator[Storage]:
    """The storage itself if what it opens costs no memory before it is read, else a temporary folder."""
    if isinstance(storage, LocalStorage):
        yield storage
        return
    with temporary_storage() as folder:
        yield folder


@contextmanager
def temporary_storage() -> Iterator[Storage]:
    """Make a temporary folder on a local disk, which goes with the block."""
    with temporary_folder() as folder:
        yield LocalStorage(folder)


@contextmanager
def temporary_folder() -> Iterator[str]:
    """Make a folder on this machine's disk, and remove it with all that is in it."""
    with tempfile.TemporaryDirectory(prefix="lakeformat-") as folder:
        yield folder
