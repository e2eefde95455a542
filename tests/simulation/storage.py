"""An object store in memory whose requests are lost, delayed and refused as a seed decides."""

from __future__ import annotations

import hashlib
import itertools
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final

import pyarrow as pa

from lakeformat.errors import StorageError
from lakeformat.storage.port import (
    HOODIE,
    FileInfo,
    NoLocks,
    OutcomeUnknownError,
    Version,
    VersionChangedError,
    check_folder,
    check_path,
    check_version,
)
from tests.simulation.scheduler import Client, Killed, Scheduler

__all__ = ["EPOCH_MS", "Bucket", "Faults", "Mutation", "SimClock", "SimIds", "SimStorage"]

#: Storage time at virtual time 0.
EPOCH_MS: Final = 1_767_225_600_000
_RUNS: Final = itertools.count()


@dataclass(frozen=True)
class Faults:
    """The probabilities of faults, per request.

    Attributes:
        lost: a request gets no answer; it was carried out, was not, or will be later.
        late: share of the lost writing requests that are carried out later.
        late_seconds: greatest delay of a late request.
        refused: the store answers 503 and does nothing.
        killed: the client ends.
        stopped: the client stops for 12 to 200 seconds.
        stopped_at: the only path before whose requests a client stops; "" for all paths.
        jump: the client's clock jumps by up to 10 minutes.
    """

    lost: float = 0.0
    late: float = 0.4
    late_seconds: float = 40.0
    refused: float = 0.0
    killed: float = 0.0
    stopped: float = 0.0
    stopped_at: str = ""
    jump: float = 0.0


@dataclass(frozen=True)
class Mutation:
    """One change of the bucket.

    Attributes:
        is_late: whether the request was carried out without an answer to its client.
        data: the new content; empty for a data file.
    """

    time: float
    kind: str
    path: str
    client: str
    is_late: bool = False
    data: bytes = b""


@dataclass
class _Object:
    data: bytes
    modified_ms: int
    tag: str


class Bucket:
    """The files of one table, with a journal of all changes and a digest of all requests.

    Attributes:
        journal: the changes in their order.
        trace: one line per request; None to keep only the digest.
        walls: names of guarantees of the store that are switched off, to show that the protocol needs them.
    """

    def __init__(self, scheduler: Scheduler, faults: Faults, *, keeps_trace: bool = False) -> None:
        self.scheduler, self.faults = scheduler, faults
        self.objects: dict[str, _Object] = {}
        self.journal: list[Mutation] = []
        self.trace: list[str] | None = [] if keeps_trace else None
        self.walls: frozenset[str] = frozenset()
        self.latency = 0.02
        self.run = next(_RUNS)
        self._digest = hashlib.blake2b(digest_size=16)
        self._tags = itertools.count(1)

    def adopt(self, objects: Mapping[str, _Object], journal: Sequence[Mutation]) -> None:
        """Begin with the files of another bucket."""
        self.objects = {path: replace(found, tag=f"old{at}") for at, (path, found) in enumerate(objects.items())}
        self.journal = list(journal)

    def digest(self) -> str:
        """Return a digest of all requests so far."""
        return self._digest.hexdigest()

    def note(self, verb: str, path: str, outcome: str) -> None:
        """Add a request to the digest and to the trace."""
        line = f"{self.scheduler.now:.4f} {self.scheduler.client.name} {verb} {path} {outcome}"
        self._digest.update(line.encode())
        if self.trace is not None:
            self.trace.append(line)

    def put(self, path: str, data: bytes, client: str, *, is_late: bool = False) -> str:
        """Create or replace an object; return its new tag."""
        tag = f"{next(self._tags)}"
        self.objects[path] = _Object(bytes(data), EPOCH_MS + int(self.scheduler.now * 1000), tag)
        kept = bytes(data) if path.startswith(HOODIE) else b""
        self.journal.append(Mutation(self.scheduler.now, "put", path, client, is_late, kept))
        return tag

    def remove(self, path: str, client: str) -> bool:
        """Remove an object; return whether it existed."""
        if self.objects.pop(path, None) is None:
            return False
        self.journal.append(Mutation(self.scheduler.now, "delete", path, client))
        return True


def _draw_trouble(faults: Faults, path: str, draw: random.Random) -> tuple[str, float] | None:
    """Draw what happens to a client before a request: it is killed, stops for seconds, or its clock jumps by ms."""
    drawn = draw.random()
    if drawn < faults.killed:
        return "kill", 0
    drawn -= faults.killed
    if drawn < faults.stopped and faults.stopped_at in {"", path}:
        return "stop", draw.uniform(12, 200)
    return ("jump", draw.randint(-600_000, 600_000)) if drawn - faults.stopped < faults.jump else None


def _draw_loss(faults: Faults, draw: random.Random) -> tuple[str, float, float] | None:
    """Draw whether a request is lost: how, the seconds until it is carried out, those until the client gives up."""
    if draw.random() >= faults.lost:
        return None
    fate, delay = draw.random(), 0.0
    if fate < faults.late:
        outcome, delay = "late", draw.uniform(0, faults.late_seconds)
    else:
        outcome = "lost answer" if fate < faults.late + (1 - faults.late) / 2 else "lost"
    return outcome, delay, draw.uniform(0.1, 5)


class SimStorage(NoLocks):
    """The storage adapter of one client: each request gives up the turn, and may meet a fault."""

    has_versions = True
    has_folders = False

    def __init__(self, bucket: Bucket, client: Client) -> None:
        self.bucket, self.client = bucket, client
        self._location = f"sim:{bucket.run:08d}/{client.name}"

    @property
    def location(self) -> str:
        """Return a name that is unique in this process, so that clients share no cache."""
        return self._location

    # --- requests -------------------------------------------------------------------------------------

    def _arrive(self, verb: str, path: str) -> None:
        """Wait until the request arrives. It may be refused, and the client may be stopped or killed before."""
        scheduler, faults = self.bucket.scheduler, self.bucket.faults
        check_path(path)
        if scheduler.client.is_dead:
            raise Killed
        request = f"{self.client.name} {verb} {path}"
        if self.client.has_faults:
            self._trouble_client(
                *scheduler.decide(f"{request} trouble", partial(_draw_trouble, faults, path)) or ("", 0)
            )
        mean = self.bucket.latency
        scheduler.pause(scheduler.decide(f"{request} latency", lambda draw: draw.expovariate(1 / mean), mean))
        if (
            self.client.has_faults
            and faults.refused
            and scheduler.decide(f"{request} refused", lambda draw: draw.random() < faults.refused or None)
        ):
            self.bucket.note(verb, path, "refused")
            raise StorageError(f"cannot {verb} {path}: 503")

    def _trouble_client(self, kind: str, how_much: float) -> None:
        if kind == "kill":
            self.client.is_dead = True
            self.bucket.note("kill", "", self.client.name)
            raise Killed
        if kind == "stop":
            self.client.stopped_until = self.bucket.scheduler.now + how_much
            self.bucket.note("stop", "", self.client.name)
        elif kind == "jump":
            self.client.clock_ms += int(how_much)

    def _write(self, verb: str, path: str, apply: Callable[[bool], Any]) -> Any:
        """Carry out a writing request. ``apply`` gets whether the request is late.

        Raises:
            OutcomeUnknownError: the answer was lost.
        """
        self._arrive(verb, path)
        scheduler, faults = self.bucket.scheduler, self.bucket.faults
        loss = None
        if self.client.has_faults and faults.lost:
            loss = scheduler.decide(f"{self.client.name} {verb} {path} loss", partial(_draw_loss, faults))
        if loss is not None:
            outcome, delay, wait = loss
            if outcome == "late":
                scheduler.at(scheduler.now + delay, lambda: self._apply_late(apply))
            elif outcome == "lost answer":
                self._apply_late(apply)
            self.bucket.note(verb, path, outcome)
            scheduler.pause(wait)
            raise OutcomeUnknownError(f"no answer to {verb} {path}")
        try:
            result = apply(False)
        except (StorageError, OSError) as error:
            self.bucket.note(verb, path, type(error).__name__)
            raise
        self.bucket.note(verb, path, "ok")
        return result

    @staticmethod
    def _apply_late(apply: Callable[[bool], Any]) -> None:
        try:
            apply(True)
        except (StorageError, OSError):
            return

    def _again(self, verb: str, path: str, apply: Callable[[bool], Any]) -> Any:
        """Carry out a request that may be repeated, as clients of object stores do."""
        for tries in (2, 1, 0):
            try:
                return self._write(verb, path, apply)
            except OutcomeUnknownError:
                if not tries:
                    raise
        raise AssertionError

    def _look(self, verb: str, path: str) -> None:
        self._arrive(verb, path)
        self.bucket.note(verb, path, "ok")

    # --- conditional writes ---------------------------------------------------------------------------

    def create(self, path: str, data: bytes) -> None:
        """Create a file if it is absent; after an answer that is not success, read it back."""

        def apply(is_late: bool) -> None:
            if path in self.bucket.objects and "create" not in self.bucket.walls:
                raise FileExistsError(path)
            self.bucket.put(path, data, self.client.name, is_late=is_late)

        try:
            self._write("create", path, apply)
        except OutcomeUnknownError:
            try:
                found = self.read(path)
            except FileNotFoundError:
                found = b""
            if not data or found != data:
                raise

    def read_versioned(self, path: str) -> tuple[bytes, Version]:
        """Read a file and its version."""
        self._look("get", path)
        if path not in self.bucket.objects:
            raise FileNotFoundError(path)
        found = self.bucket.objects[path]
        return found.data, Version(found.tag)

    def replace_if(self, path: str, data: bytes, version: Version | None) -> Version:
        """Replace a file if its version is this one; after an answer that is not success, read it back."""

        def apply(is_late: bool) -> Version:
            found = self.bucket.objects.get(path)
            if "if-match" not in self.bucket.walls:
                check_version(path, self.location, Version(found.tag) if found else None, version)
            return Version(self.bucket.put(path, data, self.client.name, is_late=is_late))

        try:
            result: Version = self._write("put-if", path, apply)
        except (OutcomeUnknownError, FileExistsError, VersionChangedError) as error:
            if "read-back" in self.bucket.walls:
                raise
            try:
                found, now = self.read_versioned(path)
            except FileNotFoundError:
                found, now = b"", Version("")
            except StorageError as failure:
                raise OutcomeUnknownError(f"cannot tell whether {path} was written: {failure}") from None
            if found != data:
                if isinstance(error, VersionChangedError) and now.tag:
                    error.found = found, now
                raise
            return now
        return result

    # --- plain requests -------------------------------------------------------------------------------

    def replace(self, path: str, data: bytes) -> None:
        """Create or replace a file."""
        self._again("put", path, lambda late: self.bucket.put(path, data, self.client.name, is_late=late))

    def touch(self, path: str) -> None:
        """Create or replace a file without content."""
        self.replace(path, b"")

    def read(self, path: str) -> bytes:
        """Read a whole file."""
        return self.read_versioned(path)[0]

    def info(self, path: str) -> FileInfo | None:
        """Return what is at a path."""
        self._look("head", path)
        found = self.bucket.objects.get(path)
        if found is not None:
            return FileInfo(path, len(found.data), found.modified_ms)
        inside = f"{path}/" if path else ""
        is_folder = any(name.startswith(inside) for name in self.bucket.objects)
        return FileInfo(path, 0, 0, True) if is_folder else None

    def list(self, path: str) -> Sequence[FileInfo]:
        """List the direct children, sorted by name."""
        self._look("list", path)
        inside = f"{path}/" if path else ""
        entries: dict[str, FileInfo] = {}
        for name, found in self.bucket.objects.items():
            if name.startswith(inside):
                child, slash, _ = name[len(inside) :].partition("/")
                below = inside + child
                if slash:
                    entries[below] = FileInfo(below, 0, 0, True)
                else:
                    entries[below] = FileInfo(below, len(found.data), found.modified_ms)
        return [entries[name] for name in sorted(entries)]

    def list_at_once(self, path: str) -> Sequence[FileInfo]:
        """Return `list`, which gives up no turn after its request."""
        return self.list(path)

    def open_input(self, path: str) -> Any:
        """Read the whole file in one request, so that threads of pyarrow send none."""
        return pa.BufferReader(self.read(path))

    @contextmanager
    def open_output(self, path: str) -> Iterator[Any]:
        """Collect the bytes, and put them in one request at the end of the block."""
        check_path(path)
        with pa.BufferOutputStream() as sink:
            yield sink
            data = sink.getvalue().to_pybytes()
        self.replace(path, data)

    def move(self, source: str, target: str) -> None:
        """Copy a file, then delete the source."""
        data = self.read(source)
        self.replace(target, data)
        self.delete(source)

    def delete(self, path: str) -> bool:
        """Remove a file; return False if there was none."""
        check_path(path)
        result: bool = self._again("delete", path, lambda _: self.bucket.remove(path, self.client.name))
        return result

    def delete_all(self, paths: Sequence[str]) -> None:
        """Remove files, if they are there."""
        for path in paths:
            self.delete(path)

    def delete_folder(self, path: str) -> None:
        """Remove a folder of ``.hoodie``, file by file."""
        inside = f"{check_folder(path)}/"
        self._look("list", path)
        for name in sorted(name for name in self.bucket.objects if name.startswith(inside)):
            self.delete(name)

    def remove_empty(self, path: str) -> bool:
        """Tell whether the folder has no files."""
        return not self.list(path)


class SimClock:
    """The clock of one client."""

    def __init__(self, scheduler: Scheduler, client: Client) -> None:
        self._scheduler, self._client = scheduler, client

    def now_ms(self) -> int:
        """Return the storage's time, moved by the error of the client's clock."""
        return EPOCH_MS + int(self._scheduler.now * 1000) + self._client.clock_ms

    def seconds(self) -> float:
        """Return the virtual time."""
        return self._scheduler.now


class SimIds:
    """Random ids that the seed decides."""

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler

    def token(self) -> str:
        """Return 32 hexadecimal characters."""
        scheduler = self._scheduler
        number = scheduler.decide(f"{scheduler.client.name} id", lambda draw: draw.getrandbits(128))
        return f"{scheduler.random.getrandbits(128) if number is None else number:032x}"
