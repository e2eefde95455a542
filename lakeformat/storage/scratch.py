"""Small files on this machine's disk that processes of one user share, each changed by one of them at a time.

They lie in the system's folder for temporary files, in one that only the user can write to. A file that nobody has
changed for a week goes when the next one is made; one that is gone is never made again.
"""

from __future__ import annotations

import os
import stat
import tempfile
import time
import uuid
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Final

__all__ = ["change_scratch", "new_scratch"]

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
