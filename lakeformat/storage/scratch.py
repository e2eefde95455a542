"""Temporary files and folders on this machine's disk.

Scratch files are small files that processes of one user share; only one process at a time changes a file. They are in
the system's folder for temporary files, in a subfolder that only the user can access. A file that was not changed for a
week is deleted when the next scratch file is created. `change_scratch` does not create a deleted file again, but
raises an error.
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

__all__ = ["change_scratch", "make_scratch", "open_mapped_storage", "temporary_folder", "temporary_storage"]

_LIFETIME_S: Final = 7 * 86400


def make_scratch() -> str:
    """Create a new empty scratch file and return its path.

    Raises:
        OSError: The file cannot be created. Windows always raises this, because it has no file locks of the
            needed kind.
    """
    folder = _make_folder()
    _delete_old(folder)
    path = folder / uuid.uuid4().hex
    path.touch(0o600, exist_ok=False)
    return str(path)


def change_scratch(path: str, change: Callable[[bytes], bytes]) -> None:
    """Replace a scratch file's bytes with ``change(bytes)``, while other processes that call this wait.

    A process that dies during the write may leave a partly written file.

    Raises:
        OSError: The file cannot be read or written, or was removed.
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


def _make_folder() -> Path:
    """Create the user's folder for scratch files if it is missing, and return its path.

    Raises:
        PermissionError: other users can access the folder.
    """
    if not hasattr(os, "getuid"):
        raise OSError("this system has no file locks")
    folder = Path(tempfile.gettempdir()) / f"lakeformat-{os.getuid()}"
    with suppress(FileExistsError):
        folder.mkdir(0o700)
    status = folder.lstat()
    if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.getuid() or stat.S_IMODE(status.st_mode) & 0o077:
        raise PermissionError(f"{folder} is not a folder of this user alone")
    return folder


def _delete_old(folder: Path) -> None:
    oldest = time.time() - _LIFETIME_S
    for entry in os.scandir(folder):
        with suppress(OSError):
            if entry.stat(follow_symlinks=False).st_mtime < oldest:
                os.unlink(entry)


@contextmanager
def open_mapped_storage(storage: Storage) -> Iterator[Storage]:
    """Yield a storage whose files can be memory-mapped: the storage itself if it is local, else a temporary folder."""
    if isinstance(storage, LocalStorage):
        yield storage
        return
    with temporary_storage() as folder:
        yield folder


@contextmanager
def temporary_storage() -> Iterator[Storage]:
    """Make a temporary folder on a local disk, yield its storage, and remove it after the block."""
    with temporary_folder() as folder:
        yield LocalStorage(folder)


@contextmanager
def temporary_folder() -> Iterator[str]:
    """Make a temporary folder on a local disk, yield its path, and remove it with its contents after the block."""
    with tempfile.TemporaryDirectory(prefix="lakeformat-") as folder:
        yield folder
