"""Room on a local disk for what a process keeps aside while it runs."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager

from lakeformat.storage.local import LocalStorage
from lakeformat.storage.port import Storage

__all__ = ["mapped_storage", "temporary_folder", "temporary_storage"]


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
