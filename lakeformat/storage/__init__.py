"""Access to files: the storage port, its adapters, the clock and the ids."""

from __future__ import annotations

import os
from dataclasses import replace
from importlib.util import find_spec
from typing import Any
from urllib.parse import urlsplit

from lakeformat.errors import InvalidOptionError, StorageError
from lakeformat.extras import install_line
from lakeformat.storage.fsspec_storage import FsspecStorage, GcsStorage
from lakeformat.storage.local import LocalStorage
from lakeformat.storage.memory import MemoryStorage
from lakeformat.storage.object_options import load_obstore
from lakeformat.storage.objects import PROTOCOLS, ObjectStorage
from lakeformat.storage.option_names import translate_names
from lakeformat.storage.port import Clock, FileInfo, Ids, Locks, RandomIds, Storage, SystemClock
from lakeformat.storage.remote import RemoteStorage, remove_user
from lakeformat.storage.scratch import change_scratch, make_scratch

__all__ = [
    "Clock",
    "FileInfo",
    "FsspecStorage",
    "GcsStorage",
    "Ids",
    "LocalStorage",
    "Locks",
    "MemoryStorage",
    "ObjectStorage",
    "RandomIds",
    "RemoteStorage",
    "Storage",
    "SystemClock",
    "change_scratch",
    "check_package",
    "make_scratch",
    "open_beside",
    "open_storage",
]


def open_storage(path: str | os.PathLike[str], *, sync: bool = False, **options: Any) -> Storage:
    """Return the storage for a path or URL. Plain paths and ``file:`` are local.

    S3 and Azure are opened with obstore, GCS with gcsfs, and other URLs with their file system of fsspec.

    Like Hadoop's ``Path``, this does not decode or shorten a URL, so that Spark and lakeformat open the same table.

    Args:
        sync: Whether a local storage flushes data files to the disk before they are committed; ignored for others.
        options: ``storage_options`` with the names of fsspec's file systems or of other libraries (see
            `lakeformat.storage.option_names`); ignored for local paths.

    Raises:
        InvalidOptionError: A ``file:`` URL has a host or no absolute path, or an option is not known or given twice.
    """
    text = os.fspath(path)
    scheme = urlsplit(text).scheme
    if scheme == "file":
        text = _local_path(text)
    elif len(scheme) > 1:
        kind = ObjectStorage if scheme in PROTOCOLS else GcsStorage if scheme in {"gs", "gcs"} else FsspecStorage
        return kind(text, translate_names(remove_user(text), options))
    return LocalStorage(os.path.abspath(os.path.expanduser(text)), sync)


def check_package(url: str) -> None:
    """Raise `StorageError` with the line that installs it if the package that opens a URL is missing."""
    scheme = urlsplit(url).scheme
    if scheme in PROTOCOLS:
        load_obstore(scheme)
    elif scheme in {"gs", "gcs"} and find_spec("gcsfs") is None:
        raise StorageError(f"{scheme}:// needs gcsfs; {install_line('gcs')}")


def open_beside(storage: Storage, path: str) -> Storage:
    """Return the storage for another path or URL. A URL of the same protocol is opened with the options of ``storage``.

    Args:
        storage: the storage of a table.
    """
    protocol, separator, _ = path.partition("://")
    if isinstance(storage, RemoteStorage) and separator and protocol == storage.protocol:
        return replace(storage, url=path)
    return open_storage(path, sync=getattr(storage, "sync", False))


def _local_path(url: str) -> str:
    path = url[len("file:") :]
    if path.startswith("//"):
        path = path[2:]
    if not path.startswith("/"):
        raise InvalidOptionError(f"{url!r} names no local path; write file:/// and the path from the root")
    return path
