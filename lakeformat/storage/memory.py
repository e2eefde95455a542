"""A folder in memory: for tests, for trying things out, never shared between processes."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final

import pyarrow as pa

from lakeformat.errors import LockTimeoutError
from lakeformat.storage.port import Clock, FileInfo, SystemClock, check_folder, check_path

__all__ = ["MemoryStorage"]

_NUMBERS: Final = itertools.count()


class MemoryStorage:
    """Files in a dictionary; every call is atomic."""

    has_lock = True

    def __init__(self, clock: Clock | None = None) -> None:
        self._files: dict[str, tuple[bytes, int]] = {}
        self._guard = threading.Lock()
        self._held: set[str] = set()
        self._table_lock = threading.Lock()
        self._clock = clock or SystemClock()
        self._number = next(_NUMBERS)

    @property
    def location(self) -> str:
        """A name no other one of this process ever had."""
        return f"memory:{self._number}"

    def create(self, path: str, data: bytes) -> None:
        """Make a file if there is none."""
        with self._guard:
            if check_path(path) in self._files:
                raise FileExistsError(path)
            self._files[path] = (bytes(data), self._clock.now_ms())

    def replace(self, path: str, data: bytes) -> None:
        """Set a file's content."""
        with self._guard:
            self._files[check_path(path)] = (bytes(data), self._clock.now_ms())

    def read(self, path: str) -> bytes:
        """A whole file."""
        with self._guard:
            if check_path(path) not in self._files:
                raise FileNotFoundError(path)
            return self._files[path][0]

    def info(self, path: str) -> FileInfo | None:
        """What stands there now."""
        with self._guard:
            if check_path(path) in self._files:
                data, modified = self._files[path]
                return FileInfo(path, len(data), modified)
            inside = f"{path}/" if path else ""
            return FileInfo(path, 0, 0, True) if any(f.startswith(inside) for f in self._files) else None

    def list(self, path: str) -> Sequence[FileInfo]:
        """The direct children, by name."""
        inside = f"{check_path(path)}/" if path else ""
        found: dict[str, FileInfo] = {}
        with self._guard:
            for name, (data, modified) in self._files.items():
                if name.startswith(inside):
                    child, slash, _ = name[len(inside) :].partition("/")
                    below = inside + child
                    found[below] = FileInfo(below, 0 if slash else len(data), modified, bool(slash))
        return [found[name] for name in sorted(found)]

    def open_input(self, path: str) -> Any:
        """A reader over the bytes."""
        return pa.BufferReader(self.read(path))

    @contextmanager
    def open_output(self, path: str) -> Iterator[Any]:
        """Appears when the block ends well."""
        check_path(path)
        with pa.BufferOutputStream() as sink:
            yield sink
            data = sink.getvalue().to_pybytes()
        self.replace(path, data)

    def move(self, source: str, target: str) -> None:
        """Rename."""
        with self._guard:
            check_path(target)
            if check_path(source) not in self._files:
                raise FileNotFoundError(source)
            self._files[target] = self._files.pop(source)

    def touch(self, path: str) -> None:
        """Make or renew an empty file."""
        with self._guard:
            self._files[check_path(path)] = (b"", self._clock.now_ms())

    def delete(self, path: str) -> bool:
        """Remove a file."""
        with self._guard:
            return self._files.pop(check_path(path), None) is not None

    def delete_folder(self, path: str) -> None:
        """Remove a folder of ``.hoodie``."""
        inside = f"{check_folder(path)}/"
        with self._guard:
            for name in [name for name in self._files if name.startswith(inside)]:
                del self._files[name]

    def remove_empty(self, path: str) -> bool:
        """Folders are names alone."""
        inside = f"{check_path(path)}/"
        with self._guard:
            return not any(name.startswith(inside) for name in self._files)

    @contextmanager
    def hold(self, path: str) -> Iterator[None]:
        """A name among those that are held."""
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
        """Whether its name is among them."""
        with self._guard:
            return check_path(path) in self._files and path in self._held

    @contextmanager
    def lock(self, timeout_seconds: float) -> Iterator[None]:
        """A lock among the threads of this process."""
        if not self._table_lock.acquire(timeout=max(timeout_seconds, 0)):
            raise LockTimeoutError(
                f"another writer held the lock of {self.location} for {timeout_seconds:g} s; run the write again"
            )
        try:
            yield
        finally:
            self._table_lock.release()
