"""Tables with a timeline and files without rows, for tests of cleans, and storages on which others act."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, Final

from lakeformat.codec.properties import encode
from lakeformat.codec.timeline_files.clean import CleanMetadata, CleanPlan, encode_clean_plan
from lakeformat.codec.timeline_files.commit import encode_commit_avro, encode_commit_json
from lakeformat.codec.timeline_files.recovery import SavepointMetadata, encode_savepoint
from lakeformat.config.resolve import resolve
from lakeformat.file_system_view.context import TableContext
from lakeformat.model.commit import CommitMetadata, WriteStat
from lakeformat.model.files import BaseFileName, LogFileName
from lakeformat.model.instant import State
from lakeformat.services.clean.plan import Policy, Retention
from lakeformat.services.clean.run import CleanSession, Deleter, read_last_clean
from lakeformat.storage import MemoryStorage, Storage
from lakeformat.storage.port import Lease, NoLocks, RandomIds, own_path
from lakeformat.timeline.store import TimelineStore
from lakeformat.transaction.order import claims
from tests.helpers.faulty import SetClock
from tests.helpers.short_timelines import hour, instant

__all__ = [
    "FOUR",
    "META",
    "MINUTE",
    "NOW",
    "Meanwhile",
    "UnlockedMeanwhile",
    "a_commit",
    "a_plan",
    "base",
    "emptied",
    "file",
    "files_of",
    "keep",
    "last_clean",
    "leave_clean",
    "log",
    "make_store",
    "make_table",
    "now_ms",
    "number_of",
    "save",
    "session",
]

META: Final = ".hoodie_partition_metadata"
NOW: Final = 1_800_000_000_000
MINUTE: Final = 60_000
FOUR: Final = {f"c{number}": "p" for number in range(1, 5)}


class Meanwhile(MemoryStorage):
    """A storage in memory on which another process acts once, between the search of a clean and its plan.

    Attributes:
        act: what the other process does.
        before_lock: whether it does so directly before the clean takes the table's lock; else after.
    """

    act: Callable[[], object] | None = None
    before_lock = False

    def _act(self) -> None:
        act, self.act = self.act, None
        if act is not None:
            act()

    def create(self, path: str, data: bytes) -> None:
        if path.startswith(own_path("pending")) and not self.before_lock:
            self._act()
        super().create(path, data)

    def lock(self, timeout_seconds: float) -> AbstractContextManager[Lease]:
        if self.before_lock:
            self._act()
        return super().lock(timeout_seconds)


class UnlockedMeanwhile(NoLocks, Meanwhile):
    """The same without locks."""


def make_store(
    commits: Mapping[str, Sequence[str]],
    *,
    version: int = 6,
    replaced: Mapping[str, Mapping[str, tuple[str, ...]]] = {},
    storage: Storage | None = None,
) -> TimelineStore:
    """Make a timeline. Each word (see `short_timelines`) has the paths of the files that its commit wrote."""
    storage = storage or MemoryStorage()
    properties = {
        "hoodie.table.name": "t",
        "hoodie.table.type": "MERGE_ON_READ",
        "hoodie.table.version": str(version),
        "hoodie.timeline.layout.version": "1" if version == 6 else "2",
    }
    storage.create(".hoodie/hoodie.properties", encode(properties, comments=[]))
    store = TimelineStore(storage)
    for word, paths in commits.items():
        stats: dict[str, tuple[WriteStat, ...]] = {}
        for path in paths:
            folder, _, name = path.rpartition("/")
            stat = WriteStat(name.lstrip(".").split("_")[0], path, folder, None, 1)
            stats[folder] = (*stats.get(folder, ()), stat)
        metadata = CommitMetadata("UPSERT", stats, replaced=replaced.get(word, {}))
        encoded = (encode_commit_json if version == 6 else encode_commit_avro)(metadata, replace=word[0] == "r")
        storage.create(store.path(instant(word)), b"" if word[-1] in "?!" else encoded)
    return store


def base(id_: str, number: int, attempt: int = 0) -> str:
    return str(BaseFileName(id_, f"0-{attempt}-0", hour(number)))


def log(id_: str, number: int, version: int = 1, *, cdc: bool = False) -> str:
    return str(LogFileName(id_, hour(number), version, "0-0-0")) + (".cdc" if cdc else "")


def make_table(
    commits: Mapping[str, str],
    *,
    storage: Storage | None = None,
    version: int = 6,
    replaced: Mapping[str, Mapping[str, tuple[str, ...]]] = {},
) -> TimelineStore:
    """Make a table. Each word (see `short_timelines`) has the partitions to which its commit wrote."""
    paths = {word: [file(number_of(word), of) for of in found.split()] for word, found in commits.items()}
    store = make_store(paths, version=version, replaced=replaced, storage=storage or MemoryStorage(SetClock(NOW)))
    for path in (path for each in paths.values() for path in each):
        store.storage.create(path, b"x")
        store.storage.replace(f"{path.rpartition('/')[0]}/{META}", b"")
    return store


def now_ms() -> int:
    return time.time_ns() // 1_000_000


def number_of(word: str) -> int:
    return int(word[1:].rstrip("!?").partition("-")[0])


def file(number: int, path: str = "p") -> str:
    return f"{path}/{base('f', number)}"


def files_of(store: TimelineStore, path: str = "p") -> list[int]:
    """Return the hours of the base files in a partition."""
    names = [entry.name for entry in store.storage.list(path)]
    return [number for number in range(24) if base("f", number) in names]


def session(
    store: TimelineStore, *, now: int = NOW, deleter: Deleter | None = None, most_files: int = 100, **options: Any
) -> CleanSession:
    context = TableContext(store.storage, SetClock(now), RandomIds(), False)
    return CleanSession(context, resolve(options), deleter, most_files)


def keep(count: int, policy: Policy = Policy.COMMITS) -> Retention:
    return Retention(policy, count)


def last_clean(store: TimelineStore) -> CleanMetadata | None:
    return read_last_clean(TableContext(store.storage, SetClock(NOW), RandomIds(), False), store.load())


def save(store: TimelineStore, number: int, *names: str) -> None:
    """Make a savepoint of files of partition ``p``."""
    store.storage.create(
        store.path(instant(f"s{number}")), encode_savepoint(SavepointMetadata("me", 0, "", {"p": names}))
    )


def a_commit(store: TimelineStore, word: str) -> None:
    """Commit the next base file of partition ``p``."""
    version = 8 if store.layout.has_completion_times else 6
    other = make_store({word: [file(number_of(word))]}, version=version)
    store.storage.create(store.path(instant(word)), other.storage.read(store.path(instant(word))))
    store.storage.create(file(number_of(word)), b"x")


def emptied(storage: Storage, path: str) -> TimelineStore:
    """Return a table whose commit 2 replaced the only file group of a partition."""
    return make_table({"c1": f"{path} p", "r2": "p", "c3": "p"}, storage=storage, replaced={"r2": {path: ("f",)}})


def leave_clean(store: TimelineStore, word: str, plan: CleanPlan | None, *, claim: bool = False) -> None:
    """Leave a clean pending: requested (``n9?``) or inflight (``n9!``)."""
    left = instant(word)
    data = encode_clean_plan(plan, store.storage.location) if plan else b""
    store.storage.create(store.path(left.at(State.REQUESTED)), data)
    if claim:
        claims.claim_plan(store.storage, left.time, token="t")  # noqa: S106
    if left.state is State.INFLIGHT:
        store.storage.create(store.path(left), b"")


def a_plan(*names: str, partitions: tuple[str, ...] = ()) -> CleanPlan:
    return CleanPlan("KEEP_LATEST_COMMITS", (hour(3), "commit"), hour(4), {"p": names}, partitions)
