"""When a writer counts as alive, and which claims and heartbeats are left over."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from lakeformat.codec.properties import encode
from lakeformat.storage import MemoryStorage
from lakeformat.timeline.store import TimelineStore
from lakeformat.transaction.order.claims import (
    DEAD_AFTER_MS,
    FOREIGN_GRACE_MS,
    HEARTBEAT_MS,
    Claim,
    choose_stale_claims,
    claim_path,
    forget_heartbeats,
    has_live_heartbeat,
    is_alive,
    list_claims,
    list_fresh_heartbeats,
    read_claim,
    renew_heartbeat,
)
from lakeformat.transaction.order.decisions import DecisionState
from tests.helpers.faulty import SetClock
from tests.helpers.short_timelines import hour, instant, timeline_of

START = 1_767_225_600_000


@pytest.fixture
def clock() -> SetClock:
    return SetClock(START)


@pytest.fixture
def store(clock: SetClock) -> TimelineStore:
    storage = MemoryStorage(clock)
    storage.create(".hoodie/hoodie.properties", encode({"hoodie.table.version": "6"}, comments=[]))
    return TimelineStore(storage)


def ages(alive: Mapping[int, bool]) -> list[int]:
    return [age for age, is_alive_then in alive.items() if is_alive_then]


def test_limits_are_hudis() -> None:
    """Hudi beats every minute and tolerates two misses. An instant without a heartbeat may belong to a late process."""
    assert (HEARTBEAT_MS, DEAD_AFTER_MS, FOREIGN_GRACE_MS) == (60_000, 120_000, 600_000)


@pytest.mark.parametrize("limit", [DEAD_AFTER_MS, 5_000])
def test_writer_is_dead_once_its_heartbeat_has_the_full_age(limit: int, store: TimelineStore, clock: SetClock) -> None:
    beating = instant("c1?")
    renew_heartbeat(store.storage, beating.time)
    claim = Claim("heartbeat", None, dead_after_ms=limit)
    alive = {}
    for age in (0, limit - 1, limit, limit + 1):
        clock.at_ms = START + age
        alive[age] = is_alive(store, beating, claim, clock)
    assert ages(alive) == [0, limit - 1]


def test_instant_without_a_heartbeat_lives_for_a_while_after_it_was_requested(
    store: TimelineStore, clock: SetClock
) -> None:
    silent = instant("c1?")
    assert not has_live_heartbeat(store, silent, clock, grace_ms=FOREIGN_GRACE_MS)  # There is no such instant.
    store.storage.create(store.path(silent), b"")
    alive = {}
    for age in (0, 599_999, 600_000):
        clock.at_ms = START + age
        alive[age] = has_live_heartbeat(store, silent, clock, grace_ms=FOREIGN_GRACE_MS)
    assert ages(alive) == [0, 599_999]


def test_process_lives_as_long_as_it_locks_its_claim(store: TimelineStore, clock: SetClock) -> None:
    claimed = instant("c1?")
    store.storage.create(claim_path(claimed.time), b"{}")
    clock.at_ms = START + 10 * DEAD_AFTER_MS
    claim = Claim("process", None)
    with store.storage.hold(claim_path(claimed.time)):
        assert is_alive(store, claimed, claim, clock)
    renew_heartbeat(store.storage, claimed.time)
    assert not is_alive(store, claimed, claim, clock)


def test_only_very_recent_heartbeats_are_fresh(store: TimelineStore, clock: SetClock) -> None:
    for number, age in enumerate((5_000, 4_999, 0)):
        clock.at_ms = START - age
        renew_heartbeat(store.storage, hour(number))
    clock.at_ms = START
    assert list_fresh_heartbeats(store.storage, clock) == {hour(1), hour(2)}


@pytest.mark.parametrize(
    ("stored", "claim"),
    [
        (b'{"kind": "process", "lakeformat.token": "0123456789abcdef0123456789abcdef"}',
         Claim("process", "0123456789abcdef0123456789abcdef")),
        (b'{"kind": "process", "lakeformat.token": "no id", "keeps_plan": true, "undoes": true, "dead_after_ms": 7}',
         Claim("process", None, True, True, 7)),
        (b'{"keeps_plan": 1, "undoes": "x", "dead_after_ms": "7"}', Claim("heartbeat", None)),
        (b"torn {", Claim("heartbeat", None)),
        (b"[1]", Claim("heartbeat", None)),
    ],
)  # fmt: skip
def test_claims_are_read_and_damaged_ones_count_as_those_of_several_processes(
    stored: bytes, claim: Claim, store: TimelineStore
) -> None:
    assert read_claim(store.storage, hour(1)) is None
    store.storage.create(claim_path(hour(1)), stored)
    assert read_claim(store.storage, hour(1)) == claim


def test_stale_claims_are_those_of_completed_instants_and_of_dead_writers(
    store: TimelineStore, clock: SetClock
) -> None:
    """The writers of 3 and 4 are processes. The one of 4 still locks its claim."""
    storage, timeline = store.storage, timeline_of("c1 c2?")
    kinds = {1: "heartbeat", 2: "process", 3: "process", 4: "process", 5: "heartbeat"}
    for number, kind in kinds.items():
        storage.create(claim_path(hour(number)), b'{"kind": "%s"}' % kind.encode())
    stale = {}
    with storage.hold(claim_path(hour(4))):
        for age in (0, DEAD_AFTER_MS - 1, DEAD_AFTER_MS):
            clock.at_ms = START + age
            stale[age] = sorted(choose_stale_claims(storage, list_claims(storage), timeline, clock))
    young = [hour(1), hour(3)]
    assert stale == {0: young, DEAD_AFTER_MS - 1: young, DEAD_AFTER_MS: [*young, hour(4), hour(5)]}


def test_forgotten_heartbeats_are_old_or_of_instants_that_are_over(store: TimelineStore, clock: SetClock) -> None:
    storage, timeline = store.storage, timeline_of("c1 c2? n3")
    state = DecisionState(undone=(hour(4), hour(2)))
    for number in range(1, 6):
        renew_heartbeat(storage, hour(number))
    clock.at_ms = START + DEAD_AFTER_MS - 1
    forget_heartbeats(storage, state, timeline, clock)
    assert [entry.name for entry in storage.list(".hoodie/.heartbeat")] == [hour(2), hour(5)]
    clock.at_ms += 1
    forget_heartbeats(storage, state, timeline, clock)
    assert [entry.name for entry in storage.list(".hoodie/.heartbeat")] == [hour(2)]
