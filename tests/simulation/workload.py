"""Runs of writers, services and readers of one table, each decided by a seed, and their histories."""

from __future__ import annotations

import functools
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from lakeformat import concurrency
from lakeformat.codec.timeline_files.commit import decode_commit
from lakeformat.codec.timeline_files.recovery import decode_restore_plan, decode_rollback_plan
from lakeformat.config.resolve import resolve
from lakeformat.errors import (
    CommitStateUnknownError,
    CorruptTableError,
    InstantNotAvailableError,
    LakeformatError,
    LockTimeoutError,
    StorageError,
    WriteConflictError,
)
from lakeformat.locks import lease
from lakeformat.metadata_table.names import FOLDER
from lakeformat.model.instant import COMMIT_ACTIONS, State
from lakeformat.model.instant import Action as TimelineAction
from lakeformat.model.table_config import METADATA_PARTITIONS, PROPERTIES_PATH
from lakeformat.storage.port import HOODIE
from lakeformat.table import Table
from lakeformat.timeline.timeline_layout import LAYOUT_1, LAYOUT_2
from lakeformat.timeline.void_commits import is_void
from lakeformat.transaction.order import claims, decisions
from lakeformat.write.intake import create_table
from tests.helpers.hudi_view import find_disagreements, open_hudi_view
from tests.helpers.new_metadata_table import make_metadata_table
from tests.simulation.history import Action, Anomaly, Commit, History, Operation, Outcome, Read, find_anomalies
from tests.simulation.leftovers import list_leftovers
from tests.simulation.scheduler import Client, Killed, Scheduler, SimulatedThreads
from tests.simulation.storage import Bucket, Faults, Mutation, SimClock, SimIds, SimStorage

__all__ = ["Plan", "Run", "make_plan", "run"]

#: Key of the extra metadata of each commit: the name of its operation.
OPERATION_KEY: Final = "sim.operation"
#: Virtual time at which writers begin; the table's first commits are older.
_BEGIN: Final = 6 * 3600.0
_SCHEMA: Final = pa.schema([("id", pa.string()), ("part", pa.string()), ("v", pa.string())])
#: Keys that are in the table from the beginning, and their partitions. They are never deleted.
_BASE: Final[Mapping[str, str]] = {f"k{at}": "abc"[at % 3] for at in range(6)}
#: Keys that several writers may insert at once.
_CONTENDED: Final = ("x0", "x1")
#: The operations of the table's first commits.
_OLD: Final = [Operation(f"old{at}", Action.SET, tuple(_BASE), 0, 0, Outcome.UNKNOWN) for at in range(6)]
_REFUSED: Final = (WriteConflictError, LockTimeoutError, StorageError)


@dataclass(frozen=True)
class Plan:
    """What happens in a run.

    Attributes:
        options: the options of the table.
        verbs: the names of the writers' methods of `_Writer`, with their weights.
        walls: names of guarantees of the storage that are switched off.
        has_metadata_table: whether the table has a metadata table, and a reader that lists files by Hudi's rules.
        inside_bytes: maximum size of a decided file inside the state file.
        recorded: the random decisions of a run that was recorded; None to decide by the seed.
    """

    seed: int
    options: Mapping[str, Any]
    writers: int
    rounds: int
    readers: int
    verbs: Mapping[str, int]
    faults: Faults
    walls: frozenset[str] = frozenset()
    inside_bytes: int = decisions._INSIDE_BYTES
    has_metadata_table: bool = False
    recorded: Mapping[str, Any] | None = None


_COPY_ON_WRITE: Final = {"append": 12, "upsert": 5, "insert": 3, "delete": 1, "clean": 1, "archive": 1}
_SERVICES: Final = {"cluster": 1, "restore": 1, "rollback": 1}


def make_plan(seed: int, **changes: Any) -> Plan:
    """Make the plan of a seed."""
    scheduler = Scheduler(seed)
    draw = scheduler.random
    kind = draw.random()
    options: dict[str, Any] = {"hoodie.write.table.version": 6 if kind < 0.15 else 9}
    verbs: dict[str, int] = dict(_COPY_ON_WRITE)
    if kind > 0.85:
        options["hoodie.datasource.write.table.type"] = "MERGE_ON_READ"
        verbs["compact"] = 1
    if draw.random() < 0.4:
        verbs.update(_SERVICES)
    faults = Faults(
        lost=draw.choice((0.0, 0.02, 0.1, 0.2)),
        late=draw.choice((0.2, 0.6)),
        refused=draw.choice((0.0, 0.0, 0.01)),
        killed=draw.choice((0.0, 0.002, 0.008)),
        stopped=draw.choice((0.0, 0.003, 0.01)),
        jump=draw.choice((0.0, 0.0, 0.003)),
    )
    plan = {
        "seed": seed, "options": options, "writers": draw.choice((2, 3, 3, 4)), "rounds": draw.choice((3, 4, 5)),
        "readers": 1, "verbs": verbs, "faults": faults,
        "inside_bytes": draw.choice((0, *[decisions._INSIDE_BYTES] * 3)),
    }  # fmt: skip
    return Plan(**{**plan, **changes})


@dataclass
class Run:
    """The outcome of a run.

    Attributes:
        anomalies: what is wrong.
        digest: equal for equal runs.
        leftovers: files that should not be there at the end.
        crashes: errors that no client should get.
        errors: text of each error that a client got, with the name of its operation.
        disagreements: what the metadata table says that is not so, at the end.
        keeps_metadata_table: whether the table has its metadata table at the end.
        decided, unmet: the random decisions, and the recorded ones that were not asked for (`Scheduler`).
    """

    plan: Plan
    bucket: Bucket
    history: History
    anomalies: list[Anomaly] = field(default_factory=list)
    leftovers: list[str] = field(default_factory=list)
    crashes: list[BaseException] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)
    disagreements: list[str] = field(default_factory=list)
    keeps_metadata_table: bool = False
    decided: Mapping[str, Any] = field(default_factory=dict)
    unmet: frozenset[str] = frozenset()

    @property
    def digest(self) -> str:
        """Return the digest of all requests."""
        return self.bucket.digest()

    def problems(self) -> list[str]:
        """Return all that is wrong, as text."""
        crashes = (f"{type(error).__name__}: {error}" for error in self.crashes)
        left = (f"left over: {path}" for path in self.leftovers)
        return [*map(str, self.anomalies), *crashes, *self.disagreements, *left]


# --- the clients ------------------------------------------------------------------------------------------


@dataclass
class _World:
    """All that the clients of a run share."""

    plan: Plan
    scheduler: Scheduler
    bucket: Bucket
    operations: list[Operation] = field(default_factory=list)
    reads: list[Read] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)
    disagreements: list[str] = field(default_factory=list)
    busy: int = 0

    def open(self, client: Client, **more: Any) -> Table:
        """Open the table as a client."""
        options = {
            **more,
            **self.plan.options,
            "hoodie.clean.automatic": False,
            "hoodie.archive.automatic": False,
            "lakeformat.file.index": False,
        }
        return Table(
            SimStorage(self.bucket, client),
            resolve(options),
            clock=SimClock(self.scheduler, client),
            ids=SimIds(self.scheduler),
        )

    def has_deleted_since(self, position: int) -> bool:
        """Tell whether a data file, or a file of the metadata table, was deleted since the journal had this length."""
        changes = (change for change in self.bucket.journal[position:] if change.kind == "delete")
        return any(not change.path.startswith(HOODIE) or change.path.startswith(f"{FOLDER}/") for change in changes)


class _Writer:
    """A client that writes. If it is killed, another one carries on with its next operation."""

    def __init__(self, world: _World, number: int) -> None:
        self.world, self.number = world, number
        self.left = world.plan.rounds
        self.lives = 0
        self.count = 0
        self.own: list[str] = []

    def start(self, delay: float) -> None:
        world = self.world
        self.lives += 1
        name = f"w{self.number}.{self.lives}"
        clock_ms = world.scheduler.decide(f"{name} clock", lambda draw: draw.randint(-3000, 3000), 0)
        client = Client(name, clock_ms=clock_ms)
        world.busy += 1
        world.scheduler.spawn(client, functools.partial(self._work, client), delay=delay)

    def _work(self, client: Client) -> None:
        world, decide, verbs = self.world, self._decide, self.world.plan.verbs
        try:
            table = world.open(client)
            while self.left:
                self.left -= 1
                verb = decide(
                    "verb", lambda draw: draw.choices(list(verbs), list(verbs.values()))[0], next(iter(verbs))
                )
                getattr(self, verb)(table)
                world.scheduler.pause(decide("pause", lambda draw: draw.expovariate(1 / 2.0), 2.0))
        except Killed:
            if self.left:
                self.start(decide("restart", lambda draw: draw.uniform(0.5, 200), 100.0))
            raise
        finally:
            world.busy -= 1

    def _decide(self, what: str, draw: Callable[[random.Random], Any], usual: Any) -> Any:
        return self.world.scheduler.decide(f"w{self.number} {what}", draw, usual)

    def _choose_keys(self, *counts: int) -> list[str]:
        def choose(draw: random.Random) -> list[str]:
            return sorted(draw.sample(sorted(_BASE), draw.choice(counts)))

        return list(self._decide("keys", choose, [next(iter(_BASE))]))

    def _run(self, action: Action, keys: Sequence[str], write: Callable[[str], Any]) -> bool:
        """Carry out an operation, and note the answer that the writer gets. Return whether it was acknowledged."""
        world, scheduler = self.world, self.world.scheduler
        self.count += 1
        name = f"w{self.number}-{self.count}"
        began, outcome, instant = scheduler.now, Outcome.UNKNOWN, None
        ended, before = float("inf"), len(world.bucket.journal)
        try:
            result = write(name)
            outcome, instant = Outcome.ACKNOWLEDGED, None if result.skipped else result.instant_time
            ended = scheduler.now
        except CommitStateUnknownError as error:
            world.errors.append(f"{name}: {type(error).__name__}: {error}")
            ended = scheduler.now
        except _REFUSED as error:
            world.errors.append(f"{name}: {type(error).__name__}: {error}")
            outcome, ended = Outcome.REFUSED, scheduler.now
        except CorruptTableError as error:
            if not world.has_deleted_since(before):
                raise
            world.errors.append(f"{name}: {type(error).__name__}: {error}")
            outcome, ended = Outcome.REFUSED, scheduler.now
        finally:
            world.operations.append(Operation(name, action, tuple(keys), began, ended, outcome, instant))
        return outcome is Outcome.ACKNOWLEDGED

    def _service(self, verb: str, run: Callable[[], Any]) -> None:
        before = len(self.world.bucket.journal)
        try:
            run()
        except (*_REFUSED, CommitStateUnknownError, CorruptTableError, InstantNotAvailableError) as error:
            if isinstance(error, CorruptTableError) and not self.world.has_deleted_since(before):
                raise
            self.world.errors.append(f"w{self.number} {verb}: {type(error).__name__}: {error}")

    def append(self, table: Table) -> None:
        """Append a token to stored values, as a read-modify-write."""
        keys = self._choose_keys(1, 2, 2)
        where = f"id in ({', '.join(repr(key) for key in keys)})"

        def write(name: str) -> Any:
            def add(batch: pa.RecordBatch) -> pa.Array:
                return pc.binary_join_element_wise(batch.column("v"), f"{name};", "")

            return table.update({"v": add}, where, extra_metadata={OPERATION_KEY: name})

        self._run(Action.APPEND, keys, write)

    def _upsert(self, table: Table, keys: Sequence[str]) -> bool:
        def write(name: str) -> Any:
            parts = [_BASE.get(key, "abc"[int(key[1:]) % 3]) for key in keys]
            rows = pa.table([list(keys), parts, [f"{name};"] * len(keys)], schema=_SCHEMA)
            return table.upsert(rows, extra_metadata={OPERATION_KEY: name})

        return self._run(Action.SET, keys, write)

    def upsert(self, table: Table) -> None:
        """Set values, whatever they were."""
        self._upsert(table, self._choose_keys(1, 2))

    def insert(self, table: Table) -> None:
        """Upsert a new key: one of its own, or one that others may insert, too."""
        contended = self._decide("new key", lambda draw: draw.choice(_CONTENDED) if draw.random() < 0.4 else None, None)
        if contended is not None:
            self._upsert(table, [contended])
            return
        key = f"n{self.number * 100 + self.count}"
        if self._upsert(table, [key]):
            self.own.append(key)

    def delete(self, table: Table) -> None:
        """Delete a key that this writer has inserted, for ever."""
        if not self.own:
            return self.insert(table)
        key = self.own.pop()

        def write(name: str) -> Any:
            rows = pa.table({"id": [key], "part": ["abc"[int(key[1:]) % 3]]})
            return table.delete(rows, extra_metadata={OPERATION_KEY: name})

        self._run(Action.DELETE, [key], write)
        return None

    def clean(self, table: Table) -> None:
        """Delete old files."""
        self._service("clean", lambda: table.clean(commits=3))

    def archive(self, table: Table) -> None:
        """Archive old commits."""
        self._service("archive", lambda: table.archive(min_commits=4, max_commits=5))

    def cluster(self, table: Table) -> None:
        """Cluster one partition."""
        part = self._decide("part", lambda draw: draw.choice("abc"), "a")
        self._service("cluster", lambda: table.cluster(by="id", partitions=part))

    def compact(self, table: Table) -> None:
        """Compact all log files."""
        self._service("compact", table.compact)

    def rollback(self, table: Table) -> None:
        """Undo the last commit."""
        self._service("rollback", table.rollback)

    def restore(self, table: Table) -> None:
        """Go back to the commit before the last one."""

        def run() -> None:
            commits = table.context.store.load().commits
            if len(commits) > 2:
                table.restore(commits[-2].time)

        self._service("restore", run)


def _read(world: _World, table: Table, reader: str) -> None:
    began = world.scheduler.now
    rows = table.to_arrow(columns=["id", "v"])
    pairs = tuple(zip(rows.column("id").to_pylist(), rows.column("v").to_pylist(), strict=True))
    world.reads.append(Read(reader, began, world.scheduler.now, pairs))


def _read_as_hudi(world: _World, table: Table, reader: str) -> None:
    """Read a copy-on-write table as a reader that lists files from the metadata table by Hudi's rules alone.

    It would see each step of an undo, and what a slow writer adds to the metadata table after its undo until the next
    writer removes it. So it does not read then.
    """
    began, view = world.scheduler.now, open_hudi_view(table)
    if view is not None and not view.is_undoing and not view.has_late_deltacommit:
        columns = view.rows(["id", "v"]).to_pydict()
        pairs = tuple(zip(columns["id"], columns["v"], strict=True))
        world.reads.append(Read(reader, began, world.scheduler.now, pairs))


def _start_reader(world: _World, name: str, read: Callable[[_World, Table, str], None]) -> None:
    client = Client(name, has_faults=False)

    def work() -> None:
        table = world.open(client)
        pauses = 2.0
        while world.busy:
            before = len(world.bucket.journal)
            try:
                read(world, table, client.name)
            except (LakeformatError, FileNotFoundError) as error:
                if not world.has_deleted_since(before):
                    raise
                world.errors.append(f"{client.name}: {type(error).__name__}: {error}")
            pauses *= 1.7
            most = pauses
            world.scheduler.pause(
                world.scheduler.decide(f"{name} pause", lambda draw: draw.uniform(0, most), most / 2)  # noqa: B023
            )

    world.scheduler.spawn(client, work)


# --- runs -------------------------------------------------------------------------------------------------


@contextmanager
def _backend(scheduler: Scheduler, inside_bytes: int) -> Iterator[None]:
    """Let the code under test use the scheduler for its threads, its waits and all random numbers."""
    owners: tuple[Any, ...] = (claims, decisions)
    before = [owner._IDS for owner in owners]
    usual_bytes, decisions._INSIDE_BYTES = decisions._INSIDE_BYTES, inside_bytes
    lease._RANDOM.seed(float(scheduler.decide("lease", lambda draw: repr(draw.random()), "0.5")))
    for owner in owners:
        owner._IDS = SimIds(scheduler)
    try:
        with concurrency.use_backend(SimulatedThreads(scheduler)):
            yield
    finally:
        decisions._INSIDE_BYTES = usual_bytes
        for owner, ids in zip(owners, before, strict=True):
            owner._IDS = ids


@functools.cache
def _template(
    options: tuple[tuple[str, Any], ...], *, has_metadata_table: bool
) -> tuple[dict[str, Any], list[Mutation]]:
    """Make a table with a few old commits. Return the objects of its bucket, and its journal."""
    plan = Plan(0, dict(options), 0, 0, 0, {}, Faults())
    world = _World(plan, Scheduler(0), Bucket(Scheduler(0), Faults()))
    world.bucket.scheduler = world.scheduler

    def work() -> None:
        table = world.open(client, recordkey="id", partitionpath="part")
        create_table(table.context.store, table.options, _SCHEMA, table.context.clock, must_be_new=True)
        if has_metadata_table:
            make_metadata_table(table)
        for at in range(6):
            rows = pa.table([list(_BASE), list(_BASE.values()), [f"old{at};"] * len(_BASE)], schema=_SCHEMA)
            table.upsert(rows, extra_metadata={OPERATION_KEY: f"old{at}"})
            world.scheduler.pause(60)

    client = Client("t0", has_faults=False)
    with _backend(world.scheduler, plan.inside_bytes):
        world.scheduler.spawn(client, work)
        world.scheduler.run()
    if world.scheduler.errors:
        raise world.scheduler.errors[0]
    return world.bucket.objects, world.bucket.journal


def run(plan: Plan, *, keeps_trace: bool = False) -> Run:
    """Carry out a plan, wait until all is quiet, write once more, and check everything."""
    objects, journal = _template(tuple(sorted(plan.options.items())), has_metadata_table=plan.has_metadata_table)
    scheduler = Scheduler(plan.seed, plan.recorded)
    scheduler.now = _BEGIN
    bucket = Bucket(scheduler, plan.faults, keeps_trace=keeps_trace)
    bucket.walls = plan.walls
    bucket.latency = scheduler.decide("latency", lambda draw: draw.choice((0.005, 0.02, 0.1)), 0.02)
    bucket.adopt(objects, journal)
    world = _World(plan, scheduler, bucket)
    with _backend(scheduler, plan.inside_bytes):
        for number in range(plan.writers):
            begins = scheduler.decide(f"w{number} begin", lambda draw: draw.uniform(0, 3), number)
            _Writer(world, number).start(begins)
        for number in range(plan.readers):
            _start_reader(world, f"r{number}", _read)
        if plan.has_metadata_table and "hoodie.datasource.write.table.type" not in plan.options:
            _start_reader(world, "hudi", _read_as_hudi)
        scheduler.run()
        scheduler.now += 1000.0
        _finish(world)
    history = make_history(world.bucket, world.operations, world.reads)
    leftovers = list_leftovers(bucket)
    keeps = METADATA_PARTITIONS.encode() in bucket.objects[PROPERTIES_PATH].data
    return Run(
        plan, bucket, history, find_anomalies(history), leftovers, scheduler.errors, world.errors,
        world.disagreements, keeps, scheduler.decided, frozenset(scheduler.unmet),
    )  # fmt: skip


#: Seconds after which nothing that was written before is young.
_LATER: Final = 2 * 3600.0


def _finish(world: _World) -> None:
    """Write once more without faults, finish the plans of services, archive, repair, and read.

    Archiving takes place when everything is old, and before the repair: what late requests have created may still be
    there, and must not become visible when its instant is older than the timeline.
    """
    client = Client("last", has_faults=False)

    def work() -> None:
        table = world.open(client)
        writer = _Writer(world, 9)
        writer._upsert(table, ["k0"])
        table.clean(commits=3)
        if table.config.takes_logs:
            table.compact()
        _read(world, table, client.name)
        world.disagreements += find_disagreements(table)
        world.scheduler.pause(_LATER)
        writer._upsert(table, ["k1"])
        table.archive(min_commits=1, max_commits=2)
        _read(world, table, client.name)
        world.disagreements += find_disagreements(table)
        table.repair(keep=False)
        _read(world, table, client.name)

    world.scheduler.spawn(client, work)
    world.scheduler.run()


# --- what the bucket shows --------------------------------------------------------------------------------


def make_history(bucket: Bucket, operations: Sequence[Operation], reads: Sequence[Read]) -> History:
    """Make the history from what the clients noted and from the bucket's journal."""
    commits: list[Commit] = []
    undone: dict[str, float] = {}
    plans: set[str] = set()
    rollbacks: dict[str, str] = {}
    begun: set[str] = set()
    for change in bucket.journal:
        layout = LAYOUT_2 if change.path.startswith(f"{LAYOUT_2.folder}/") else LAYOUT_1
        folder, _, name = change.path.rpartition("/")
        instant = layout.parse(name) if folder == layout.folder else None
        if instant is None:
            continue
        if instant.action is TimelineAction.ROLLBACK:
            if instant.state is State.REQUESTED and change.data and instant.time not in begun:
                rollbacks[instant.time] = decode_rollback_plan(change.data, name=name).instant_time
                plans.add(rollbacks[instant.time])
            elif instant.state is not State.REQUESTED and change.kind == "put":
                begun.add(instant.time)  # From then on it is not given up, though a restore removes it at its end.
                rollbacks.pop(instant.time, None)
            elif change.kind == "delete" and instant.time in rollbacks:  # The rollback was given up.
                plans.discard(rollbacks.pop(instant.time))
        elif instant.action is TimelineAction.RESTORE and instant.state is State.INFLIGHT and change.kind == "put":
            requested = layout.path(instant.at(State.REQUESTED))
            data = next(m.data for m in bucket.journal if m.path == requested and m.kind == "put")
            for time in decode_restore_plan(data, name=name).times:
                undone.setdefault(time, change.time)
        if instant.state is not State.COMPLETED or instant.action not in COMMIT_ACTIONS:
            continue
        if change.kind == "delete":
            if instant.time in plans:
                undone.setdefault(instant.time, change.time)
            continue
        metadata = decode_commit(change.data, name=name)
        if is_void(metadata) and instant.time in plans:
            undone.setdefault(instant.time, change.time)
            continue
        extra = metadata.extra
        commits.append(Commit(instant.time, instant.completion_time or "", extra.get(OPERATION_KEY), change.time))
    commits = [Commit(c.instant, c.completion, c.operation, c.visible, undone.get(c.instant)) for c in commits]
    return History({}, [*_OLD, *operations], commits, reads)
