"""Processes that write one table at once, are killed and stopped, and keep a history in files of this machine.

A writer notes each write in its journal before it begins, and the outcome afterwards. A killed writer leaves a write
without an outcome. A reader notes what it reads. `run_fleet` starts the processes, disturbs them by a seed, and checks
the history against the table's commits (`tests.simulation.history`).
"""

from __future__ import annotations

import functools
import json
import logging
import os
import random
import select
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final

import pyarrow as pa

import lakeformat
from lakeformat.config.resolve import resolve
from lakeformat.errors import (
    CommitStateUnknownError,
    CorruptTableError,
    LakeformatError,
    LockTimeoutError,
    StorageError,
    WriteConflictError,
)
from lakeformat.model.files import BaseFileName, LogFileName
from lakeformat.storage import Storage, open_storage
from lakeformat.storage.port import HOODIE, OWN, SystemClock
from lakeformat.timeline.store import TimelineStore
from lakeformat.transaction.order.claims import HEARTBEATS
from tests.helpers.tables import a_schema
from tests.simulation.history import Action, Commit, History, Operation, Outcome, Read, find_anomalies

__all__ = ["Disturbances", "Fleet", "FleetResult", "create_table", "list_leftovers", "run_fleet"]

#: Key of the extra metadata of each commit: the name of its write.
OPERATION_KEY: Final = "test.operation"
SCHEMA: Final = a_schema(id="string", part="string", v="string")
PARTITIONS: Final = 8
#: Keys that are in the table from the beginning, with their partitions. All writers update them.
SHARED: Final[Mapping[str, str]] = {f"k{number}": f"p{number % PARTITIONS}" for number in range(2 * PARTITIONS)}
FIRST: Final = "first;"
ROOT: Final = Path(__file__).parents[2]
#: Seconds between two reads.
READ_PAUSE: Final = 0.2
#: Errors that say that a write did not happen. Any other error ends the writer.
REFUSALS: Final = (WriteConflictError, LockTimeoutError, StorageError, CorruptTableError)
_HOUR_MS: Final = 3_600_000


@dataclass(frozen=True)
class Disturbances:
    """What happens to the writers.

    Attributes:
        kills: number of times that a writer is killed and replaced by a new process.
        stops: number of times that a writer is stopped.
        stop_seconds: length of a stop.
        mean_seconds: mean time between two disturbances.
        jump_ms: maximum size of the jumps of a writer's clock.
    """

    kills: int = 0
    stops: int = 0
    stop_seconds: float = 5.0
    mean_seconds: float = 1.0
    jump_ms: int = 0


@dataclass(frozen=True)
class Fleet:
    """The writers of one table, and a reader.

    Attributes:
        url: the table.
        storage_options: the options of the writers, who may use a proxy.
        direct_options: the options of the reader and of the last checks.
        options: the options of each write.
    """

    url: str
    writers: int
    commits: int
    storage_options: Mapping[str, Any] = field(default_factory=dict)
    direct_options: Mapping[str, Any] = field(default_factory=dict)
    options: Mapping[str, Any] = field(default_factory=dict)
    disturbances: Disturbances = Disturbances()
    seed: int = 0


@dataclass
class FleetResult:
    """What the processes noted, and what is wrong.

    Attributes:
        outcomes: number of writes by outcome.
        errors: number of refusals by the class of the error.
        problems: all that is wrong, as text.
    """

    outcomes: Counter[Outcome]
    errors: Counter[str]
    kills: int
    stops: int
    reads: int
    seconds: float
    problems: list[str]


# --- the processes ----------------------------------------------------------------------------------------


class Journal:
    """A file of JSON lines. A line is in the file when `note` returns, even if the process is killed then."""

    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_CREAT | os.O_APPEND | os.O_WRONLY)

    def note(self, **fields: Any) -> None:
        """Append a line with the time, which is the same for all processes of this machine."""
        os.write(self._file, json.dumps({**fields, "time": time.monotonic()}).encode() + b"\n")


def read_journal(path: Path) -> list[dict[str, Any]]:
    """Return the lines of a journal; none if there is no file."""
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


class JumpingClock(SystemClock):
    """A clock that is wrong by a number of milliseconds, which may be changed."""

    def __init__(self, offset_ms: int = 0) -> None:
        self.offset_ms = offset_ms

    def now_ms(self) -> int:
        """Return the time in epoch milliseconds."""
        return super().now_ms() + self.offset_ms


def _open(fleet: Fleet, storage_options: Mapping[str, Any], clock: JumpingClock) -> lakeformat.Table:
    storage = open_storage(fleet.url, **storage_options)
    return lakeformat.Table(storage, resolve(dict(fleet.options)), clock=clock)


def write(fleet: Fleet, number: int, folder: Path) -> None:
    """Write until the fleet's number of writes is reached, together with the writers that were killed before."""
    path = folder / f"writer-{number}.jsonl"
    done = sum("keys" in line for line in read_journal(path))
    journal, dice = Journal(path), random.Random(f"{fleet.seed}-{number}-{done}")
    clock = JumpingClock()
    table: lakeformat.Table | None = None
    for count in range(done, fleet.commits):
        if fleet.disturbances.jump_ms and dice.random() < 0.2:
            clock.offset_ms = dice.randint(-fleet.disturbances.jump_ms, fleet.disturbances.jump_ms)
        name, rows = f"w{number}-{count}", _choose_rows(number, count, dice)
        batch = pa.table([list(rows), list(rows.values()), [f"{name};"] * len(rows)], schema=SCHEMA)
        journal.note(name=name, keys=list(rows))
        try:
            table = table or _open(fleet, fleet.storage_options, clock)
            result = table.upsert(batch, extra_metadata={OPERATION_KEY: name})
        except CommitStateUnknownError as error:
            journal.note(name=name, outcome=Outcome.UNKNOWN.value, error=f"{type(error).__name__}: {error}")
        except REFUSALS as error:
            journal.note(name=name, outcome=Outcome.REFUSED.value, error=f"{type(error).__name__}: {error}")
        else:
            journal.note(name=name, outcome=Outcome.ACKNOWLEDGED.value, instant=result.instant_time)


def _choose_rows(number: int, count: int, dice: random.Random) -> dict[str, str]:
    """Choose keys with their partitions: keys of all writers, and keys that are new, for this writer or for all."""
    rows = {key: SHARED[key] for key in dice.sample(sorted(SHARED), dice.choice((0, 1, 1, 2)))}
    rows[f"n{number}-{count}"] = f"p{number % PARTITIONS}"
    if dice.random() < 0.25:
        rows[f"x{count // 2}"] = f"p{count // 2 % PARTITIONS}"
    return rows


def read(fleet: Fleet, folder: Path) -> None:
    """Read the table again and again, with pauses that leave the server to the writers, until the parent ends this."""
    journal = Journal(folder / "reader.jsonl")
    table = _open(fleet, fleet.direct_options, JumpingClock())
    while True:
        time.sleep(READ_PAUSE)
        began = time.monotonic()
        try:
            rows = table.to_arrow(columns=["id", "v"])
        except LakeformatError as error:
            journal.note(error=f"{type(error).__name__}: {error}")
        else:
            journal.note(began=began, rows=list(zip(*(rows.column(at).to_pylist() for at in (0, 1)), strict=True)))


def _keep_log(path: Path) -> None:
    """Write warnings to a file. A warning about an error has the error's traceback."""

    def add_traceback(record: logging.LogRecord) -> bool:
        record.exc_info = record.exc_info or sys.exc_info()
        return True

    handler = logging.FileHandler(path)
    handler.addFilter(add_traceback)
    logging.basicConfig(handlers=[handler], format="%(asctime)s %(message)s", level=logging.WARNING)


def main() -> None:
    """Run one process: ``python -m tests.helpers.many_writers FOLDER [WRITER]``."""
    folder = Path(sys.argv[1])
    _keep_log(folder / f"{'-'.join(['log', *sys.argv[2:]])}.txt")
    fields = json.loads((folder / "fleet.json").read_text())
    fleet = Fleet(**{**fields, "disturbances": Disturbances(**fields["disturbances"])})
    if len(sys.argv) > 2:
        write(fleet, int(sys.argv[2]), folder)
    else:
        read(fleet, folder)


# --- the parent -------------------------------------------------------------------------------------------


def create_table(url: str, storage_options: Mapping[str, Any], **options: Any) -> None:
    """Create a table with the shared keys."""
    made = {"hoodie.write.table.version": 9, **options}
    table = lakeformat.create(
        url, SCHEMA, record_key="id", partition_by="part", storage_options=dict(storage_options) or None, **made
    )
    table.upsert(pa.table([list(SHARED), list(SHARED.values()), [FIRST] * len(SHARED)], schema=SCHEMA))


class _Writers:
    """The running writers."""

    def __init__(self, fleet: Fleet, folder: Path) -> None:
        self._fleet, self._folder = fleet, folder
        self._running: dict[int, subprocess.Popen[bytes]] = {}
        self._stopped: dict[int, float] = {}
        self._dice = random.Random(fleet.seed)
        self.kills = self.stops = 0

    def start(self, number: int) -> None:
        self._running[number] = _start(self._folder, str(number))

    def run(self) -> None:
        """Start the writers and disturb them until all have ended."""
        disturbances = self._fleet.disturbances
        plan = ["kill"] * disturbances.kills + ["stop"] * disturbances.stops
        self._dice.shuffle(plan)
        for number in range(self._fleet.writers):
            self.start(number)
        due = time.monotonic() + 2.0
        while self._running:
            ends = [*self._stopped.values(), *([due] if plan else [])]
            self._wait(min(ends, default=time.monotonic() + 60.0))
            self._continue()
            awake = sorted(self._running.keys() - self._stopped.keys())
            if plan and awake and time.monotonic() >= due:
                self._disturb(plan.pop(), self._dice.choice(awake))
                due = time.monotonic() + self._dice.expovariate(1 / disturbances.mean_seconds)

    def _disturb(self, kind: str, number: int) -> None:
        process = self._running[number]
        if kind == "stop":
            process.send_signal(signal.SIGSTOP)
            self._stopped[number] = time.monotonic() + self._fleet.disturbances.stop_seconds
            self.stops += 1
            return
        process.kill()
        if process.wait() == -signal.SIGKILL:
            self.kills += 1
            self.start(number)

    def _continue(self) -> None:
        for number, end in list(self._stopped.items()):
            if time.monotonic() >= end:
                self._running[number].send_signal(signal.SIGCONT)
                del self._stopped[number]

    def _wait(self, until: float) -> None:
        """Wait until this time, or until a writer ends."""
        with ExitStack() as stack:
            watched: dict[int, int] = {}
            for number, process in self._running.items():
                if process.poll() is None:
                    watched[descriptor := os.pidfd_open(process.pid)] = number
                    stack.callback(os.close, descriptor)
            if len(watched) == len(self._running):
                select.select(list(watched), [], [], max(0.0, until - time.monotonic()))
        for number, process in list(self._running.items()):
            if process.poll() is not None:
                assert process.returncode == 0, f"writer {number} has failed with {process.returncode}"
                del self._running[number]
                self._stopped.pop(number, None)  # It had ended before it was stopped.

    def close(self) -> None:
        """Kill the writers that still run."""
        for process in self._running.values():
            process.kill()
            process.wait()


def _start(folder: Path, *arguments: str) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "tests.helpers.many_writers", str(folder), *arguments]
    return subprocess.Popen(command, cwd=ROOT)


@contextmanager
def _reader(folder: Path) -> Iterator[None]:
    process = _start(folder)
    try:
        yield
        assert process.poll() is None, "the reader has failed"
    finally:
        process.kill()
        process.wait()


def run_fleet(fleet: Fleet, folder: Path, *, deliver: Callable[[], object] = lambda: None) -> FleetResult:
    """Run the writers and the reader, write once more, repair, and check everything.

    Args:
        folder: an empty folder for the journals.
        deliver: called when the writers have ended; delivers the requests that a proxy has held back.
    """
    (folder / "fleet.json").write_text(json.dumps(asdict(fleet)))
    writers = _Writers(fleet, folder)
    began = time.monotonic()
    try:
        with _reader(folder):
            writers.run()
    finally:
        writers.close()
    seconds = time.monotonic() - began
    deliver()
    # An hour later all writers that were killed count as dead.
    table = _open(fleet, fleet.direct_options, JumpingClock(_HOUR_MS))
    last = "last"
    began = time.monotonic()
    result = table.upsert(
        pa.table([["k0"], [SHARED["k0"]], [f"{last};"]], schema=SCHEMA), extra_metadata={OPERATION_KEY: last}
    )
    written = Operation(last, Action.SET, ("k0",), began, time.monotonic(), Outcome.ACKNOWLEDGED, result.instant_time)
    table.repair(dry_run=False)
    return _check(fleet, folder, writers, written, seconds)


def _check(fleet: Fleet, folder: Path, writers: _Writers, last: Operation, seconds: float) -> FleetResult:
    table = _open(fleet, fleet.direct_options, JumpingClock(_HOUR_MS))
    lines = [line for number in range(fleet.writers) for line in read_journal(folder / f"writer-{number}.jsonl")]
    operations = [*make_operations(lines), last]
    reads, failures = make_reads(read_journal(folder / "reader.jsonl"))
    rows = table.to_arrow(columns=["id", "v"])
    now = time.monotonic()
    reads.append(Read("last", now, now, tuple(zip(*(rows.column(at).to_pylist() for at in (0, 1)), strict=True))))
    history = History(dict.fromkeys(SHARED, FIRST), operations, list_commits(table.context.store), reads)
    problems = [str(anomaly) for anomaly in find_anomalies(history)]
    problems += [f"reader: {failure}" for failure in failures]
    errors = [line["error"] for line in lines if "error" in line]
    problems += [f"writer: {error}" for error in errors if error.startswith(CorruptTableError.__name__)]
    problems += [f"check: {finding}" for finding in table.check()]
    problems += [f"left over: {path}" for path in list_leftovers(table.context.storage)]
    return FleetResult(
        Counter(operation.outcome for operation in operations),
        Counter(error.partition(":")[0] for error in errors),
        writers.kills,
        writers.stops,
        len(reads),
        seconds,
        problems,
    )


# --- what happened ----------------------------------------------------------------------------------------


def make_operations(lines: Sequence[Mapping[str, Any]]) -> list[Operation]:
    """Return the writes that the journals note. The outcome of a killed writer's write is unknown."""
    ends = {line["name"]: line for line in lines if "outcome" in line}
    operations = []
    for line in lines:
        if "keys" not in line:
            continue
        end = ends.get(line["name"], {"outcome": Outcome.UNKNOWN.value, "time": float("inf")})
        operations.append(
            Operation(
                line["name"],
                Action.SET,
                tuple(line["keys"]),
                line["time"],
                end["time"],
                Outcome(end["outcome"]),
                end.get("instant"),
            )
        )
    return operations


def make_reads(lines: Sequence[Mapping[str, Any]]) -> tuple[list[Read], list[str]]:
    """Return the reads that the reader's journal notes, and the errors of the reads that failed."""
    reads = [
        Read("reader", line["began"], line["time"], tuple((key, value) for key, value in line["rows"]))
        for line in lines
        if "rows" in line
    ]
    return reads, [line["error"] for line in lines if "error" in line]


def list_commits(store: TimelineStore) -> list[Commit]:
    """Return all commits, archived ones too, in the order of their completion."""
    timeline, archived = store.load(), store.read_archived()
    found = {instant.time: (instant, store.read_commit(instant)) for instant in timeline.commits}
    found |= {instant.time: (instant, metadata) for instant, metadata in archived.commits(archived.completed_in(""))}
    commits = [
        Commit(instant.time, instant.completion_time or "", metadata.extra.get(OPERATION_KEY))
        for instant, metadata in found.values()
    ]
    return sorted(commits, key=lambda commit: (commit.completion, commit.instant))


#: Folders that are empty when no writer is at work.
_TEMPORARY: Final = (
    f"{HOODIE}/.temp",
    HEARTBEATS,
    *(f"{OWN}/{name}" for name in ("pending", "publishing", "stage")),
)


def list_leftovers(storage: Storage) -> list[str]:
    """Return everything that must be gone when no writer is at work.

    This is: pending instants, data files that no commit names, markers, heartbeats, claims, and staged files.
    """
    store = TimelineStore(storage)
    timeline, archived = store.load(), store.read_archived()
    metadata = [store.read_commit(instant) for instant in timeline.commits]
    metadata += [each for _, each in archived.commits(archived.completed_in(""))]
    named = {path for each in metadata for stat in each.all_stats() for path in (stat.path, *dict(stat.cdc_stats))}
    is_data = functools.partial(_is_data_file, has_logs=timeline.layout.has_completion_times)
    files = [path for path in _walk(storage, "") if is_data(path) and path not in named]
    temporary = [path for folder in _TEMPORARY for path in _walk(storage, folder)]
    return [*(timeline.layout.file_name(instant) for instant in timeline.pending), *files, *temporary]


def _is_data_file(path: str, *, has_logs: bool) -> bool:
    name = path.rpartition("/")[2]
    return bool(BaseFileName.match(name)) or name.endswith(".cdc") or (has_logs and bool(LogFileName.match(name)))


def _walk(storage: Storage, folder: str) -> Iterator[str]:
    for entry in storage.list(folder):
        if not entry.is_folder:
            yield entry.path
        elif entry.path != HOODIE:
            yield from _walk(storage, entry.path)


if __name__ == "__main__":
    main()
