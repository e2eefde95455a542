"""Hudi's lock file: one holder at a time, leases that end, and contents that Hudi reads."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

import pytest

from lakeformat import concurrency
from lakeformat.config.resolve import resolve
from lakeformat.errors import LockLostError, LockTimeoutError
from lakeformat.locks import lock_table
from lakeformat.locks.file_lock import LOCK_PATH, FileLock
from lakeformat.storage import LocalStorage, MemoryStorage
from lakeformat.storage.port import OutcomeUnknownError, Version
from tests.helpers.faulty import Fault, FaultyStorage, Mode, UnlockedStorage

_PACKAGE = "org.apache.hudi.client.transaction.lock"


class Hours:
    """A clock that a test moves. Background work runs when `pass_seconds` is called."""

    def __init__(self) -> None:
        self.now, self.work = 1_000.0, list[tuple[float, Callable[[], bool]]]()

    def now_ms(self) -> int:
        return int(self.now * 1000)

    def seconds(self) -> float:
        return self.now

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.pass_seconds(seconds)

    def thread_pool(self, threads: int) -> None:
        raise AssertionError("a lock needs no pool")

    @contextmanager
    def every(self, seconds: float, action: Callable[[], bool], name: str) -> Iterator[None]:
        job = (seconds, action)
        self.work.append(job)
        try:
            yield
        finally:
            self.work = [each for each in self.work if each is not job]

    def pass_seconds(self, seconds: float, *, works: bool = True) -> None:
        """Let time pass, with the background work that is due, or without it as if the process were stopped."""
        end = self.now + seconds
        while works and self.work and self.now + self.work[0][0] <= end:
            self.now += self.work[0][0]
            for _, action in list(self.work):
                action()
        self.now = end


@pytest.fixture
def hours() -> Iterator[Hours]:
    clock = Hours()
    with concurrency.use_backend(clock):  # type: ignore[arg-type]
        yield clock


def lock_of(storage: LocalStorage | MemoryStorage | FaultyStorage, hours: Hours) -> FileLock:
    return FileLock(storage, 60, 6, clock=hours)


def content_of(storage: MemoryStorage) -> dict[str, object]:
    return dict(json.loads(storage.read(LOCK_PATH)))


def test_content_is_what_hudi_reads(hours: Hours) -> None:
    storage = MemoryStorage()
    with lock_of(storage, hours).hold(1):
        held = content_of(storage)
    assert set(held) == {"expired", "validUntil", "owner"}
    assert held["expired"] is False
    assert held["validUntil"] == hours.now_ms() + 60_000
    assert content_of(storage) == {**held, "expired": True}


def test_second_holder_waits_and_then_names_the_first(hours: Hours) -> None:
    storage = MemoryStorage()
    with lock_of(storage, hours).hold(1), pytest.raises(LockTimeoutError, match=r"lakeformat-\w+, until \d+ ms"):
        lock_of(storage, hours).hold(20).__enter__()
    with lock_of(storage, hours).hold(1) as lease:
        assert round(lease.remaining()) == 60


def test_renewals_keep_the_lock_longer_than_its_validity(hours: Hours) -> None:
    storage = MemoryStorage()
    with lock_of(storage, hours).hold(1) as lease:
        hours.pass_seconds(300)
        lease.check(50)
        with pytest.raises(LockTimeoutError):
            lock_of(storage, hours).hold(5).__enter__()


def test_lock_of_a_dead_holder_is_taken_half_a_second_after_its_end(hours: Hours) -> None:
    storage = MemoryStorage()
    dead = lock_of(storage, hours).hold(1)
    dead.__enter__()
    hours.work.clear()
    hours.now += 60.5
    with pytest.raises(LockTimeoutError):
        lock_of(storage, hours).hold(0).__enter__()
    hours.now += 0.1
    with lock_of(storage, hours).hold(0) as lease:
        lease.check(30)


def test_holder_that_slept_learns_that_its_lease_is_over(hours: Hours) -> None:
    storage = MemoryStorage()
    with lock_of(storage, hours).hold(1) as lease:
        hours.pass_seconds(61, works=False)
        with lock_of(storage, hours).hold(0):
            hours.pass_seconds(6)
            with pytest.raises(LockLostError, match="run the write again"):
                lease.check(0.1)
            theirs = content_of(storage)
    assert content_of(storage)["owner"] == theirs["owner"], "the release of a lost lock changes nothing"


def test_renewal_after_the_end_does_not_revive_the_lease(hours: Hours) -> None:
    storage = MemoryStorage()
    with lock_of(storage, hours).hold(1) as lease:
        hours.pass_seconds(61, works=False)
        hours.pass_seconds(12)
        assert lease.remaining() == 0


def test_lost_renewal_that_was_carried_out_is_recognised(hours: Hours, tmp_path: object) -> None:
    inner = UnlockedStorage(str(tmp_path))
    calls: list[str] = []

    def is_second(_: int, call: object) -> bool:
        calls.append(getattr(call, "name", ""))
        return calls.count("replace_if") == 2 and calls[-1] == "replace_if"

    storage = FaultyStorage(inner, Fault(is_second, Mode.AFTER, kills=False, raises=OutcomeUnknownError))
    with lock_of(storage, hours).hold(1) as lease:
        hours.pass_seconds(120)
        lease.check(30)


def test_damaged_lock_file_counts_as_free(hours: Hours) -> None:
    storage = MemoryStorage()
    storage.create(LOCK_PATH, b"not json")
    with lock_of(storage, hours).hold(0) as lease:
        lease.check(30)


def test_one_of_two_takers_gets_the_lock(hours: Hours) -> None:
    """Both have read the same version; the second replacement fails."""
    storage = MemoryStorage()

    class Late(FileLock):
        def _grant(self, version: Version | None) -> bool:
            with suppress(LockTimeoutError):
                first.__enter__()
            return super()._grant(version)

    first = lock_of(storage, hours).hold(0)
    with pytest.raises(LockTimeoutError):
        Late(storage, 60, 6, clock=hours).hold(0).__enter__()


@pytest.mark.parametrize(
    ("options", "service", "takes"),
    [
        ({}, False, False),
        ({}, True, True),
        ({"hoodie.write.concurrency.mode": "optimistic_concurrency_control"}, False, True),
        (
            {"hoodie.write.lock.provider": "org.apache.hudi.client.transaction.lock.StorageBasedLockProvider"},
            False,
            True,
        ),
        ({"hoodie.write.lock.provider": "org.apache.hudi.client.transaction.lock.InProcessLockProvider"}, False, False),
    ],
    ids=["writer", "service", "beside Hudi", "provider", "lock of one process"],
)
def test_lock_file_is_taken_by_services_and_beside_hudi(
    options: dict[str, str], service: bool, takes: bool, tmp_path: object
) -> None:
    storage = UnlockedStorage(str(tmp_path))
    with lock_table(storage, resolve(options).lock, service=service):
        assert (storage.info(LOCK_PATH) is not None) == takes


def test_local_disks_need_no_lock_file(tmp_path: object) -> None:
    storage = LocalStorage(str(tmp_path))
    with lock_table(
        storage, resolve({"hoodie.write.concurrency.mode": "OPTIMISTIC_CONCURRENCY_CONTROL"}).lock
    ) as lease:
        lease.check(1e9)
        assert storage.info(LOCK_PATH) is None
