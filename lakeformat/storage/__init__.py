"""Access to files: the storage port, its adapters, the clock and the ids."""

from __future__ import annotations

import os
from typing import Any
from urllib.parse import urlsplit

from lakeformat.errors import InvalidOptionError
from lakeformat.storage.local import LocalStorage
from lakeformat.storage.memory import MemoryStorage
from lakeformat.storage.port import Clock, FileInfo, Ids, Locks, RandomIds, Storage, SystemClock
from lakeformat.storage.remote import FsspecStorage
from lakeformat.storage.scratch import change_scratch, make_scratch

__all__ = [
    "Clock",
    "FileInfo",
    "FsspecStorage",
    "Ids",
    "LocalStorage",
    "Locks",
    "MemoryStorage",
    "RandomIds",
    "Storage",
    "SystemClock",
    "change_scratch",
    "make_scratch",
    "open_storage",
]


def open_storage(path: str | os.PathLike[str], *, sync: bool = False, **options: Any) -> Storage:
    """Return the storage for a path or URL. Plain paths and ``file:`` are local; other URLs are opened with fsspec.

    Like Hadoop's ``Path``, this does not decode or shorten a URL, so that Spark and lakeformat open the same table.

    Args:
        sync: Whether a local storage flushes data files to the disk before they are committed; ignored for others.
        options: fsspec's ``storage_options``; ignored for local paths.

    Raises:
        InvalidOptionError: A ``file:`` URL has a host or no absolute path.
    """
    text = os.fspath(path)
    scheme = urlsplit(text).scheme
    if scheme == "file":
        text = _local_path(text)
    elif len(scheme) > 1:
        return FsspecStorage(text, options)
    return LocalStorage(os.path.abspath(os.path.expanduser(text)), sync)


def _local_path(url: str) -> str:
    path = url[len("file:") :]
    if path.startswith("//"):
        path = path[2:]
    if not path.startswith("/"):
        raise InvalidOptionError(f"{url!r} names no local path; write file:/// and the path from the root")
    return path
