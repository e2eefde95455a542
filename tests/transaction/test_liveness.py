"""A writer shows that it is alive during its whole work."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from threading import Event
from time import monotonic

import pytest

import lakeformat
from lakeformat.concurrency import use_backend
from lakeformat.errors import WriteConflictError
from lakeformat.model.files import BaseFileName
from lakeformat.model.instant import Action
from lakeformat.model.operation import Operation
from lakeformat.timeline.store import TimelineStore
from lakeformat.transaction.order.claims import PROCESS, Claim, HeartbeatThread, claim_instant, read_claim, release
from tests.helpers.faulty import Call, Crash, Fault, FaultyStorage, Mode, UnlockedStorage
from tests.helpers.flights import NEXT, WRITES, Model, copy_of, grow_old, leftovers, open_at, rows_of
from tests.helpers.local_shuffle import write_shuffled

LONG = 60.0


def is_beating(instant_time: str) -> bool:
    return f"heartbeat-{instant_time}" in {thread.name for thread in threading.enumerate()}


class Beats:
    """The threads and time of this machine. It notes which periodic actions have begun and not ended."""

    def __init__(self) -> None:
        self.names = set[str]()

    def thread_pool(self, threads: int) -> AbstractContextManager[Executor]:
        return ThreadPoolExecutor(threads)

    @contextmanager
    def every(self, seconds: float, action: Callable[[], bool], name: str) -> Iterator[None]:
        self.names.add(name)
        yield
        self.names.remove(name)

    def sleep(self, seconds: float) -> None:
        Event().wait(seconds)

    def monotonic(self) -> float:
        return monotonic()


def claimed(table: lakeformat.Table, store: TimelineStore) -> str:
    """Claim an instant as a plain write does. Return its time."""
    clock, token = table.context.clock, table.context.ids.token()
    return claim_instant(store, table.config, clock, Action.COMMIT, Claim(PROCESS, token)).time


def exchange(table: lakeformat.Table) -> None:
    write_shuffled(table, [WRITES[0].rows], Operation.UPSERT)


def cluster(table: lakeformat.Table) -> None:
    table.cluster(["v"])


def run_plan(table: lakeformat.Table) -> None:
    table.schedule_clustering("v")
    table.run_clustering()


WAYS: dict[str, Callable[[lakeformat.Table], object]] = {
    **{write.operation: write.run for write in WRITES if write.writes_files},
    "exchanged": exchange,
    "cluster": cluster,
    "run of a plan": run_plan,
}


@pytest.mark.parametrize("has_lock", [True, False])
@pytest.mark.parametrize("way", WAYS)
def test_every_write_keeps_its_heartbeat_while_it_writes_files(
    way: str, has_lock: bool, template: tuple[Path, Model], tmp_path: Path
) -> None:
    """Every way of writing also keeps its claim, if the storage has locks."""
    copied = copy_of(template[0], tmp_path)
    storage = copied if has_lock else UnlockedStorage(copied.root)
    seen: list[tuple[bool, bool]] = []
    beats = Beats()

    def look(call: Call) -> None:
        name = call.path.rpartition("/")[2]
        if call.name == "open_output" and BaseFileName.match(name):
            time = BaseFileName.parse(name).instant_time
            seen.append((f"heartbeat-{time}" in beats.names, storage.is_held(f".hoodie/.lakeformat/pending/{time}")))

    with use_backend(beats):
        WAYS[way](open_at(FaultyStorage(storage, meanwhile=look), "writer"))
    assert beats.names == set()
    assert set(seen) == {(True, has_lock)}
    assert leftovers(copied) == []


@pytest.mark.parametrize("way", ["exchanged", "upsert", "cluster"])
def test_without_locks_living_writers_are_spared_and_dead_ones_rolled_back(
    way: str, template: tuple[Path, Model], tmp_path: Path
) -> None:
    """A writer is dead if it has not beaten for two minutes. Until then the message says that it may be alive."""
    storage = UnlockedStorage(copy_of(template[0], tmp_path).root)
    dying = FaultyStorage(storage, Fault(lambda _, call: call.path.endswith("/MARKERS0"), Mode.AFTER))
    with pytest.raises(Crash):
        WAYS[way](open_at(dying, "dead"))
    (pending,) = TimelineStore(storage).load().pending
    if way == "cluster":
        pattern = (
            r"running: wait for it \(if its process has died, that shows 2 minutes after its last heartbeat\), then"
        )
        with pytest.raises(WriteConflictError, match=pattern):
            NEXT.run(open_at(storage, "next"))
    else:
        open_at(storage, "next").insert(NEXT.rows.slice(0, 0))
    assert pending in TimelineStore(storage).load().pending
    grow_old(Path(storage.root))
    NEXT.run(open_at(storage, "after"))
    assert rows_of(storage) == NEXT.applied(template[1])
    assert leftovers(storage) == []


def test_heartbeat_lasts_until_the_instant_is_released(template: tuple[Path, Model], tmp_path: Path) -> None:
    """A beat that comes just after the release leaves nothing, either."""
    storage = copy_of(template[0], tmp_path)
    store = TimelineStore(storage)
    table = lakeformat.Table(storage)
    beaten, looked = Event(), Event()

    def notice(call: Call) -> None:
        if call.name == "touch":
            beaten.set()
        if call.name == "read" and read_claim(storage, time) is None:
            looked.set()

    with storage.lock(1):
        time = claimed(table, store)
    with HeartbeatThread(FaultyStorage(storage, meanwhile=notice), time, every_seconds=0.001):
        assert beaten.wait(LONG)
        beaten.clear()
        assert beaten.wait(LONG)
        release(storage, time)
        assert looked.wait(LONG)
    assert storage.list(".hoodie/.heartbeat") == []
    assert not is_beating(time)


def test_failed_heartbeat_is_retried(template: tuple[Path, Model], tmp_path: Path) -> None:
    storage = copy_of(template[0], tmp_path)
    store = TimelineStore(storage)
    table = lakeformat.Table(storage)
    with storage.lock(1):
        time = claimed(table, store)
    failed, again = Event(), Event()

    def failing(_: int, call: Call) -> bool:
        if call.name != "touch":
            return False
        if failed.is_set():
            again.set()
            return False
        failed.set()
        return True

    with HeartbeatThread(FaultyStorage(storage, Fault(failing, Mode.BEFORE, kills=False)), time, every_seconds=0.001):
        assert again.wait(LONG)
    assert len(storage.list(".hoodie/.heartbeat")) == 1
