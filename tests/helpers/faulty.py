"""A storage that fails on cue: it records every call, and one of them kills the process or reports an error."""

from __future__ import annotations

import enum
import hashlib
import itertools
import os
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import pytest

from lakeformat.errors import StorageError
from lakeformat.storage import FileInfo, LocalStorage
from lakeformat.storage.port import OWN, Lease, NoLocks, OutcomeUnknownError, Version, VersionChangedError
from lakeformat.transaction.order.decisions import STATE_PATH

__all__ = [
    "MODES",
    "Call",
    "CountingIds",
    "Crash",
    "Fault",
    "FaultyStorage",
    "HoldingStorage",
    "Mode",
    "SetClock",
    "SteppingClock",
    "UnlockedStorage",
    "at",
    "is_decided",
    "once",
]

T = TypeVar("T")


class Crash(BaseException):
    """The death of the process."""


class Mode(enum.Enum):
    """How much of the failing call has been done when it fails."""

    BEFORE = "nothing"
    TORN = "half"
    AFTER = "all"


#: All modes as parameters. The mode BEFORE runs at night only: it leaves what a death after the previous call leaves.
MODES = [pytest.param(mode, marks=pytest.mark.nightly if mode is Mode.BEFORE else ()) for mode in Mode]


@dataclass(frozen=True)
class Call:
    """One call to storage. ``changes`` tells whether the call changes something on disk."""

    name: str
    path: str
    changes: bool


@dataclass(frozen=True)
class Fault:
    """The call that fails, and how it fails.

    Attributes:
        when: called with the number of each call, from 0, and the call; true for the call that fails.
        mode: how much of the call happens.
        kills: the process dies and makes no further call; otherwise the call raises ``raises``.
        blinds: after an error, reads fail too.
        raises: the error for a caller that stays alive.
    """

    when: Callable[[int, Call], bool]
    mode: Mode
    kills: bool = True
    blinds: bool = False
    raises: type[BaseException] = StorageError


def at(number: int) -> Callable[[int, Call], bool]:
    """Return a condition that is true for the call of this number."""
    return lambda index, _: index == number


def is_decided(call: Call) -> bool:
    """Tell whether the call decides a step on storage without locks."""
    return call.name == "replace_if" and call.path == STATE_PATH


def once(when: Callable[[Call], bool], act: Callable[[Call], object]) -> Callable[[Call], None]:
    """Return a callback for `FaultyStorage.meanwhile` that acts once, before the first call that satisfies ``when``."""
    done: list[Call] = []

    def meanwhile(call: Call) -> None:
        if not done and when(call):
            done.append(call)
            act(call)

    return meanwhile


class FaultyStorage:
    """A `LocalStorage` that records its calls and can fail. A torn call leaves what the real adapter may leave.

    Args:
        fault: the call that fails; None to record only.
        meanwhile: the actions of other processes, called before each call.
    """

    def __init__(
        self,
        inner: LocalStorage,
        fault: Fault | None = None,
        meanwhile: Callable[[Call], object] | None = None,
    ) -> None:
        self.inner, self.fault, self.meanwhile = inner, fault, meanwhile
        self.calls: list[Call] = []
        self.dead = self.blind = False
        self._guard = threading.Lock()

    @property
    def location(self) -> str:
        return self.inner.location

    def subfolder(self, path: str) -> FaultyStorage:
        return _FaultySubfolder(self, path)

    @property
    def has_lock(self) -> bool:
        return self.inner.has_lock

    @property
    def has_versions(self) -> bool:
        return self.inner.has_versions

    @property
    def has_folders(self) -> bool:
        return self.inner.has_folders

    def _enter(self, name: str, path: str, changes: bool) -> Mode | None:
        """Record the call. Return the mode if the call fails after doing something, else None."""
        with self._guard:
            number = len(self.calls)
            call = Call(name, path, changes)
            self.calls.append(call)
        if self.dead:
            raise Crash
        if self.meanwhile is not None:
            self.meanwhile(call)
        if self.blind and not changes:
            raise StorageError(f"cannot {name} {path}: injected; try again")
        if self.fault is None or not self.fault.when(number, call):
            return None
        if self.fault.mode is Mode.BEFORE or not changes:
            self._strike(name, path)
        return self.fault.mode

    def _strike(self, name: str, path: str) -> None:
        assert self.fault is not None
        if self.fault.kills:
            self.dead = True
            raise Crash
        self.blind = self.fault.blinds
        raise self.fault.raises(f"cannot {name} {path}: injected; try again")

    def _change(self, name: str, path: str, whole: Callable[[], T], torn: Callable[[], object] | None = None) -> T:
        mode = self._enter(name, path, True)
        if mode is None:
            return whole()
        with suppress(FileExistsError, FileNotFoundError, VersionChangedError):
            if mode is Mode.AFTER:
                whole()
            elif torn is not None:
                torn()
        self._strike(name, path)
        raise AssertionError("unreachable")

    def _leave_aside(self, data: bytes) -> None:
        folder = Path(self.inner.root, OWN, "tmp")
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"torn-{len(self.calls)}").write_bytes(data[: len(data) // 2])

    def create(self, path: str, data: bytes) -> None:
        self._change("create", path, lambda: self.inner.create(path, data), lambda: self._leave_aside(data))

    def read_versioned(self, path: str) -> tuple[bytes, Version]:
        self._enter("read_versioned", path, False)
        return self.inner.read_versioned(path)

    def replace_if(self, path: str, data: bytes, version: Version | None) -> Version:
        def torn() -> None:
            self._leave_aside(data)

        return self._change("replace_if", path, lambda: self.inner.replace_if(path, data, version), torn)

    def replace(self, path: str, data: bytes) -> None:
        self._change("replace", path, lambda: self.inner.replace(path, data), lambda: self._leave_aside(data))

    def move(self, source: str, target: str) -> None:
        self._change("move", source, lambda: self.inner.move(source, target))

    def touch(self, path: str) -> None:
        self._change("touch", path, lambda: self.inner.touch(path))

    def make_folder(self, path: str) -> None:
        self._change("make_folder", path, lambda: self.inner.make_folder(path))

    def delete(self, path: str) -> None:
        self._change("delete", path, lambda: self.inner.delete(path))

    def delete_all(self, paths: Sequence[str]) -> None:
        for path in paths:
            self.delete(path)

    def delete_folder(self, path: str) -> None:
        def half() -> None:
            files = sorted(p for p in Path(self.inner.root, path).rglob("*") if p.is_file())
            for file in files[: len(files) // 2]:
                file.unlink()

        self._change("delete_folder", path, lambda: self.inner.delete_folder(path), half)

    def remove_empty(self, path: str) -> bool:
        return self._change("remove_empty", path, lambda: self.inner.remove_empty(path))

    def read(self, path: str) -> bytes:
        self._enter("read", path, False)
        return self.inner.read(path)

    def info(self, path: str) -> FileInfo | None:
        self._enter("info", path, False)
        return self.inner.info(path)

    def list(self, path: str) -> Sequence[FileInfo]:
        self._enter("list", path, False)
        return self.inner.list(path)

    def list_at_once(self, path: str) -> Sequence[FileInfo]:
        self._enter("list", path, False)
        return self.inner.list_at_once(path)

    def open_input(self, path: str) -> Any:
        self._enter("open_input", path, False)
        return self.inner.open_input(path)

    @contextmanager
    def open_output(self, path: str) -> Iterator[Any]:
        mode = self._enter("open_output", path, True)
        try:
            with self.inner.open_output(path) as sink:
                try:
                    yield sink
                except BaseException:
                    if not self.dead:
                        raise
                if mode is not None and self.fault is not None and not self.fault.kills:
                    # The error is raised inside the block, so the adapter removes the file.
                    self._strike("open_output", path)
        finally:
            if self.dead:  # A dead process removes and writes nothing.
                raise Crash
        if mode is not None:
            if mode is Mode.TORN:
                file = Path(self.inner.root, path)
                os.truncate(file, file.stat().st_size // 2)
            self._strike("open_output", path)

    @contextmanager
    def hold(self, path: str) -> Iterator[None]:
        self._enter("hold", path, False)
        with self.inner.hold(path):
            yield

    def is_held(self, path: str) -> bool:
        self._enter("is_held", path, False)
        return self.inner.is_held(path)

    @contextmanager
    def lock(self, timeout_seconds: float) -> Iterator[Lease]:
        mode = self._enter("lock", "", True)
        with self.inner.lock(timeout_seconds) as lease:
            if mode is not None:
                self._strike("lock", "")
            yield lease


class _FaultySubfolder(FaultyStorage):
    """A folder inside a `FaultyStorage`. Its calls are recorded there, and fail there."""

    def __init__(self, parent: FaultyStorage, path: str) -> None:
        super().__init__(parent.inner.subfolder(path))
        self._parent, self._path = parent, path

    def _enter(self, name: str, path: str, changes: bool) -> Mode | None:
        try:
            return self._parent._enter(name, f"{self._path}/{path}".rstrip("/"), changes)
        finally:
            self.fault, self.dead = self._parent.fault, self._parent.dead

    def _strike(self, name: str, path: str) -> None:
        try:
            self._parent._strike(name, f"{self._path}/{path}".rstrip("/"))
        finally:
            self.dead = self._parent.dead


class UnlockedStorage(NoLocks, LocalStorage):
    """A storage whose lock excludes no other process, like an object store."""


class HoldingStorage(FaultyStorage):
    """A storage that holds back files of some names and does not answer, until the files are delivered.

    Args:
        holds: called with the path of each file to create; true for a file that is held back.
        raises: the error for the caller instead of an answer.
    """

    def __init__(
        self,
        inner: LocalStorage,
        holds: Callable[[str], object],
        raises: type[BaseException] = OutcomeUnknownError,
        meanwhile: Callable[[Call], object] | None = None,
    ) -> None:
        super().__init__(inner, meanwhile=meanwhile)
        self.holds, self.raises = holds, raises
        self.held: list[tuple[str, bytes]] = []

    def create(self, path: str, data: bytes) -> None:
        if not self.holds(path):
            super().create(path, data)
            return
        self._enter("create", path, True)
        self.held.append((path, data))
        raise self.raises("no answer")

    def deliver(self) -> set[str]:
        """Create the files that were held back, unless a file of the name exists. Return the names that were free."""
        free: set[str] = set()
        for path, data in self.held:
            with suppress(FileExistsError):
                self.inner.create(path, data)
                free.add(path)
        return free


class SteppingClock:
    """A clock that advances one millisecond per call. It starts behind the real clock, so no file looks old."""

    def __init__(self, start_ms: int = 1_735_689_600_000) -> None:
        self._millis = itertools.count(start_ms)

    def now_ms(self) -> int:
        return next(self._millis)

    def seconds(self) -> float:
        return next(self._millis) / 1000


class SetClock:
    """A clock that stays at the time that is set."""

    def __init__(self, at_ms: int) -> None:
        self.at_ms = at_ms

    def now_ms(self) -> int:
        return self.at_ms

    def seconds(self) -> float:
        return self.at_ms / 1000


class CountingIds:
    """A source of ids that are the same in every run."""

    def __init__(self, name: str) -> None:
        self._names = (f"{name}-{number}" for number in itertools.count())

    def token(self) -> str:
        return hashlib.sha256(next(self._names).encode()).hexdigest()[:32]
