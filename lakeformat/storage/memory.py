"""Storage in memory, for tests and experiments. Processes cannot share it."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final

import pyarrow as pa

from lakeformat.errors import LockTimeoutError
from lakeformat.storage.port import (
    Clock,
    EndlessLease,
    FileInfo,
    Lease,
    SystemClock,
    Version,
    check_folder,
    check_path,
    check_version,
)

__all__ = ["MemoryStorage"]

_NUMBERS: Final = itertools.count()


class MemoryStorage:
    """A storage whose files are in a dictionary. Every call is atomic."""

    has_lock = True
    has_versions = True
    has_folders = False

    def __init__(self, clock: Clock | None = None) -> None:
        self._files: dict[str, tuple[bytes, int]] = {}
        self._versions: dict[str, int] = {}
        self._guard = threading.Lock()
        self._held: set[str] = set()
        self._table_lock = threading.Lock()
        self._clock = clock or SystemClock()
        self._number = next(_NUMBERS)
        self._subfolders: dict[str, MemoryStorage] = {}

    @property
    def location(self) -> str:
        """Return a name that is unique in this process."""
        return f"memory:{self._number}"

    def subfolder(self, path: str) -> MemoryStorage:
        """Return a storage of its own, the same for each call with this path. `list` does not show its files."""
        with self._guard:
            return self._subfolders.setdefault(check_path(path), MemoryStorage(self._clock))

    def create(self, path: str, data: bytes) -> None:
        """Create a file. Raise ``FileExistsError`` if it exists."""
        with self._guard:
            if check_path(path) in self._files:
                raise FileExistsError(path)
            self._put(path, data)

    def read_versioned(self, path: str) -> tuple[bytes, Version]:
        """Read a whole file and its version."""
        with self._guard:
            if check_path(path) not in self._files:
                raise FileNotFoundError(path)
            return self._files[path][0], self._version(path)

    def replace_if(self, path: str, data: bytes, version: Version | None) -> Version:
        """Replace a file if its version has not changed."""
        with self._guard:
            present = self._version(path) if check_path(path) in self._files else None
            check_version(path, self.location, present, version)
            self._put(path, data)
            return self._version(path)

    def _version(self, path: str) -> Version:
        return Version(str(self._versions[path]))

    def _put(self, path: str, data: bytes) -> None:
        self._files[path] = (bytes(data), self._clock.now_ms())
        self._versions[path] = next(_NUMBERS)

    def replace(self, path: str, data: bytes) -> None:
        """Create a file, or replace its whole content."""
        with self._guard:
            self._put(check_path(path), data)

    def read(self, path: str) -> bytes:
        """Read a whole file."""
        with self._guard:
            if check_path(path) not in self._files:
                raise FileNotFoundError(path)
            return self._files[path][0]

    def info(self, path: str) -> FileInfo | None:
        """Return the path's kind, size and modification time; None if nothing is there."""
        with self._guard:
            if check_path(path) in self._files:
                data, modified = self._files[path]
                return FileInfo(path, len(data), modified)
            inside = f"{path}/" if path else ""
            return FileInfo(path, 0, 0, True) if any(f.startswith(inside) for f in self._files) else None

    def list(self, path: str) -> Sequence[FileInfo]:
        """List the direct children, sorted by name."""
        inside = f"{check_path(path)}/" if path else ""
        entries: dict[str, FileInfo] = {}
        with self._guard:
            for name, (data, modified) in self._files.items():
                if name.startswith(inside):
                    child, slash, _ = name[len(inside) :].partition("/")
                    below = inside + child
                    entries[below] = FileInfo(below, 0 if slash else len(data), modified, bool(slash))
        return [entries[name] for name in sorted(entries)]

    def list_at_once(self, path: str) -> Sequence[FileInfo]:
        """Return `list`, which excludes changes."""
        return self.list(path)

    def open_input(self, path: str) -> Any:
        """Open a reader over the file's bytes."""
        return pa.BufferReader(self.read(path))

    @contextmanager
    def open_output(self, path: str) -> Iterator[Any]:
        """Collect the bytes that the block writes, and create the file if the block does not raise."""
        check_path(path)
        with pa.BufferOutputStream() as sink:
            yield sink
            data = sink.getvalue().to_pybytes()
        self.replace(path, data)

    def move(self, source: str, target: str) -> None:
        """Rename a file."""
        with self._guard:
            check_path(target)
            if check_path(source) not in self._files:
                raise FileNotFoundError(source)
            self._put(target, self._files.pop(source)[0])

    def touch(self, path: str) -> None:
        """Create an empty file; an existing file becomes empty."""
        with self._guard:
            self._put(check_path(path), b"")

    def make_folder(self, path: str) -> None:
        """Do nothing: folders exist only as parts of file names."""
        check_path(path)

    def delete(self, path: str) -> None:
        """Remove a file, if there is one."""
        with self._guard:
            self._files.pop(check_path(path), None)

    def delete_all(self, paths: Sequence[str]) -> None:
        """Remove files, if they are there."""
        for path in paths:
            self.delete(path)

    def delete_folder(self, path: str) -> None:
        """Remove a folder of ``.hoodie``."""
        inside = f"{check_folder(path)}/"
        with self._guard:
            for name in [name for name in self._files if name.startswith(inside)]:
                del self._files[name]

    def remove_empty(self, path: str) -> bool:
        """Tell whether the folder has no files. Nothing is removed: folders exist only as parts of file names."""
        inside = f"{check_path(path)}/"
        with self._guard:
            return not any(name.startswith(inside) for name in self._files)

    @contextmanager
    def hold(self, path: str) -> Iterator[None]:
        """Lock a file while the block runs, if the file exists. Raise `LockTimeoutError` if it is locked."""
        with self._guard:
            is_there = check_path(path) in self._files
            if path in self._held:
                raise LockTimeoutError(f"another writer holds {path} in {self.location}; run the write again")
            if is_there:
                self._held.add(path)
        try:
            yield
        finally:
            with self._guard:
                if is_there:
                    self._held.discard(path)

    def is_held(self, path: str) -> bool:
        """Tell whether a file exists and is locked."""
        with self._guard:
            return check_path(path) in self._files and path in self._held

    @contextmanager
    def lock(self, timeout_seconds: float) -> Iterator[Lease]:
        """Hold the table's lock, which excludes other threads of this process."""
        if not self._table_lock.acquire(timeout=max(timeout_seconds, 0)):
            raise LockTimeoutError(
                f"another writer held the lock of {self.location} for {timeout_seconds:g} s; run the write again"
            )
        try:
            yield EndlessLease()
        finally:
            self._table_lock.release()
