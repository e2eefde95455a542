"""Hudi's lock file: one holder at a time, leases that end, and contents that Hudi reads."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import suppress

import pytest

from lakeformat import concurrency
from lakeformat.config.resolve import resolve
from lakeformat.errors import LockLostError, LockTimeoutError
from lakeformat.locks import lock_table
from lakeformat.locks.file_lock import LOCK_PATH, FileLock
from lakeformat.storage import LocalStorage, MemoryStorage
from lakeformat.storage.port import OutcomeUnknownError, Version
from tests.helpers.faulty import Call, Fault, FaultyStorage, Mode, UnlockedStorage
from tests.locks.hours import Hours

_PACKAGE = "org.apache.hudi.client.transaction.lock"


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
    with (
        lock_of(storage, hours).hold(1),
        pytest.raises(
            LockTimeoutError,
            match=r"table_lock\.json of lakeformat-\w+, valid until 1970-01-01 00:17:58 UTC; waited 20 s.*raise",
        ),
    ):
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


def nth_replacement(wanted: int) -> Callable[[int, Call], bool]:
    """Return a condition that is true for one of the calls of ``replace_if``, counted from 1."""
    seen: list[Call] = []

    def is_it(_: int, call: Call) -> bool:
        if call.name != "replace_if":
            return False
        seen.append(call)
        return len(seen) == wanted

    return is_it


def test_lost_renewal_that_was_carried_out_is_recognised(hours: Hours, tmp_path: object) -> None:
    fault = Fault(nth_replacement(2), Mode.AFTER, kills=False, raises=OutcomeUnknownError)
    storage = FaultyStorage(UnlockedStorage(str(tmp_path)), fault)
    with lock_of(storage, hours).hold(1) as lease:
        hours.pass_seconds(120)
        lease.check(30)


@pytest.mark.parametrize("mode", [Mode.AFTER, Mode.BEFORE], ids=["carried out", "lost"])
def test_first_request_without_an_answer_does_not_keep_its_own_sender_waiting(
    mode: Mode, hours: Hours, tmp_path: object
) -> None:
    fault = Fault(nth_replacement(1), mode, kills=False, raises=OutcomeUnknownError)
    storage = FaultyStorage(UnlockedStorage(str(tmp_path)), fault)
    with lock_of(storage, hours).hold(5) as lease:
        assert 1_000 < hours.now < 1_005
        lease.check(50)


def test_lock_is_released_although_the_answer_of_a_renewal_was_lost(hours: Hours, tmp_path: object) -> None:
    inner = UnlockedStorage(str(tmp_path))
    fault = Fault(nth_replacement(2), Mode.AFTER, kills=False, blinds=True, raises=OutcomeUnknownError)
    storage = FaultyStorage(inner, fault)
    with lock_of(storage, hours).hold(1):
        hours.pass_seconds(6)
        assert storage.blind, "the renewal has no answer, and nothing can be read"
        storage.blind = False
    assert json.loads(inner.read(LOCK_PATH))["expired"] is True


def test_unknown_fields_of_another_holder_are_dropped(hours: Hours) -> None:
    storage = MemoryStorage()
    storage.create(LOCK_PATH, b'{"expired": true, "validUntil": 5, "owner": "hudi", "audit": {"on": true}}')
    with lock_of(storage, hours).hold(0):
        assert set(content_of(storage)) == {"expired", "validUntil", "owner"}


def test_lock_beside_hudi_outlives_the_lease_of_a_dead_hudi_job(hours: Hours, tmp_path: object) -> None:
    storage = UnlockedStorage(str(tmp_path))
    theirs = {"expired": False, "validUntil": hours.now_ms() + 300_000, "owner": "a dead job"}
    storage.create(LOCK_PATH, json.dumps(theirs).encode())
    settings = resolve({"hoodie.write.concurrency.mode": "OPTIMISTIC_CONCURRENCY_CONTROL"}).lock
    with lock_table(storage, settings, clock=hours):
        assert 300.5 < hours.now - 1_000 < 303
        assert json.loads(storage.read(LOCK_PATH))["validUntil"] == hours.now_ms() + 300_000


def test_contents_of_the_lock_file_never_repeat(hours: Hours) -> None:
    """The clock does not move, so that only the lock itself can make the contents differ."""
    storage, seen = MemoryStorage(), list[bytes]()
    lock = lock_of(storage, hours)
    for _ in range(5):
        with lock.hold(0):
            seen.append(storage.read(LOCK_PATH))
        seen.append(storage.read(LOCK_PATH))
    assert len(set(seen)) == 10


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
