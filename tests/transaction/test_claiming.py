"""How an instant is claimed, given up, taken over and released; what a writer hears about the claims of others."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from lakeformat import concurrency
from lakeformat.errors import StorageError, WriteConflictError
from lakeformat.model.instant import Action, Instant, State
from lakeformat.storage import MemoryStorage
from lakeformat.timeline.store import TimelineStore
from lakeformat.timeline.timeline import Timeline
from lakeformat.transaction.order.claims import (
    DEAD_AFTER_MS,
    HEARTBEAT_MS,
    HEARTBEATS,
    PROCESS,
    Claim,
    HeartbeatThread,
    advise_on_plan,
    advise_to_wait,
    choose_stale_claims,
    claim_instant,
    claim_path,
    claim_plan,
    decide_claimed,
    find_newest_time,
    forget_heartbeats,
    has_process_lock,
    keep_alive,
    list_claimed_times,
    list_claims,
    read_claim,
    release,
    remove_heartbeat,
    renew_heartbeat,
    take_over_claim,
    was_given_up,
)
from lakeformat.transaction.order.conflict import OverlapError
from lakeformat.transaction.order.decisions import Decision, DecisionState, Kind, decide, read_state
from tests.helpers.bare_table import MemoryWithoutLocks, bare_store, files_of, put_instants
from tests.helpers.faulty import Call, Fault, FaultyStorage, Mode, SetClock, once
from tests.helpers.short_timelines import hour, instant, timeline_of
from tests.locks.hours import Hours

#: The clock's time, which is hour 0.
START = 1_767_225_600_000
OTHER = "theirs"
TOKEN = "0123456789abcdef0123456789abcdef"
NOTHING = (DecisionState(), timeline_of(""))


def after(milliseconds: int) -> str:
    return f"{hour(0)[:14]}{milliseconds:03d}"


@pytest.fixture
def clock() -> SetClock:
    return SetClock(START)


@pytest.fixture(params=[MemoryStorage, MemoryWithoutLocks])
def store(request: pytest.FixtureRequest, clock: SetClock) -> TimelineStore:
    return bare_store(request.param(clock))


@pytest.fixture
def unlocked(clock: SetClock) -> TimelineStore:
    return bare_store(MemoryWithoutLocks(clock))


def claim(store: TimelineStore, clock: SetClock, action: Action = Action.COMMIT, **options: Any) -> Instant:
    flags = {name: options.pop(name) for name in ("undoes", "dead_after_ms") if name in options}
    return claim_instant(store, store.config(), clock, action, Claim(PROCESS, TOKEN, **flags), **options)


def marks_of(time: str) -> list[str]:
    """Return the paths of a claim and its heartbeat, in the order of their names."""
    return [f"{HEARTBEATS}/{time}", claim_path(time)]


def test_claimed_instant_has_a_claim_a_heartbeat_and_a_requested_file(store: TimelineStore, clock: SetClock) -> None:
    begun = claim(store, clock, data=b"plan")
    assert begun == Instant(hour(0), Action.COMMIT, State.REQUESTED)
    assert files_of(store.storage) == sorted([*marks_of(hour(0)), store.path(begun)])
    assert store.storage.read(store.path(begun)) == b"plan"
    assert json.loads(store.storage.read(claim_path(begun.time))).keys() == {"kind", "lakeformat.token", "nonce"}
    assert read_claim(store.storage, begun.time) == Claim(PROCESS, TOKEN)
    later = claim(store, clock)
    assert store.storage.read(store.path(later)) == b""
    silent = claim(store, clock, Action.COMPACTION, data=None, undoes=True, dead_after_ms=7)
    assert store.storage.info(store.path(silent)) is None
    assert read_claim(store.storage, silent.time) == Claim(PROCESS, TOKEN, True, True, 7)
    assert [begun.time, later.time, silent.time] == [after(0), after(1), after(2)]


@pytest.mark.parametrize(
    ("text", "state", "newest"),
    [
        ("", DecisionState(), None),
        ("c1 c3-5 c4?", DecisionState(), hour(5)),
        ("c1", DecisionState(archived_to=hour(2)), hour(2)),
        ("c3", DecisionState(archived_to=hour(2), undone=(f"{hour(1)}/w",)), hour(3)),
        ("c3", DecisionState(archived_to=hour(2), undone=(hour(1), f"{hour(4)}/w")), hour(4)),
        ("", DecisionState(undone=(hour(4),)), hour(4)),
    ],
)
def test_new_instant_is_later_than_all_that_ever_were(text: str, state: DecisionState, newest: str | None) -> None:
    assert find_newest_time(state, timeline_of(text)) == newest


def test_time_of_a_new_instant_follows_what_is_stored_or_was_seen(store: TimelineStore, clock: SetClock) -> None:
    put_instants(store, "c1 c2?")
    assert claim(store, clock).time == f"{hour(2)[:-1]}1"
    assert claim(store, clock, seen=(DecisionState(), timeline_of("c5"))).time == f"{hour(5)[:-1]}1"
    if not store.storage.has_lock:
        decide(store, lambda *_: Decision(kind=Kind.REMOVE, instant_time=hour(7), undoes=hour(7)))
        assert claim(store, clock).time == f"{hour(7)[:-1]}1"


def test_time_that_another_has_claimed_is_left_to_it(store: TimelineStore, clock: SetClock) -> None:
    store.storage.create(claim_path(after(0)), b"{}")
    assert claim(store, clock, seen=NOTHING).time == after(1)
    assert store.storage.read(claim_path(after(0))) == b"{}"
    assert store.storage.info(f"{HEARTBEATS}/{after(0)}") is None


def test_time_that_another_program_has_used_is_not_ours(store: TimelineStore, clock: SetClock) -> None:
    """Both were not there when the timeline was seen. Without locks it is listed again, so the second try is enough."""
    for time in (after(0), after(1)):
        store.storage.create(store.path(Instant(time, Action.COMMIT, State.REQUESTED)), b"theirs")
    begun = claim(store, clock, seen=NOTHING)
    assert begun.time == after(2)
    assert list_claimed_times(store.storage) == {after(2)}
    assert store.storage.read(store.path(Instant(after(0), Action.COMMIT, State.REQUESTED))) == b"theirs"
    if not store.storage.has_lock:
        assert [entry.name for entry in store.storage.list(HEARTBEATS)] == [after(2)]


def test_instant_that_another_has_completed_meanwhile_is_passed_by(unlocked: TimelineStore, clock: SetClock) -> None:
    """Also without a requested file of its own, when nothing else would tell."""
    put_instants(unlocked, "c0 c3")
    assert claim(unlocked, clock, data=None, seen=NOTHING).time == f"{hour(3)[:-1]}1"
    assert list_claimed_times(unlocked.storage) == {f"{hour(3)[:-1]}1"}


def test_newer_time_that_was_seen_counts_more_than_the_timeline(unlocked: TimelineStore, clock: SetClock) -> None:
    put_instants(unlocked, "c4")
    clock.at_ms += 4 * 3_600_000
    assert claim(unlocked, clock, seen=NOTHING).time == f"{hour(4)[:-1]}1"


def test_requested_file_of_another_program_takes_the_claim_back(store: TimelineStore, clock: SetClock) -> None:
    """It was created after the timeline was listed for the last time."""
    path = store.path(Instant(after(0), Action.COMMIT, State.REQUESTED))

    def create(_: Call) -> None:
        store.storage.create(path, b"theirs")

    storage = FaultyStorage(store.storage, meanwhile=once(lambda call: call.path == path, create))  # type: ignore[arg-type]
    begun = claim(TimelineStore(storage), clock)
    assert begun.time == after(1)
    assert list_claimed_times(store.storage) == {after(1)}
    assert store.storage.read(path) == b"theirs"


@pytest.mark.parametrize(
    ("state", "is_over"),
    [
        (DecisionState(), False),
        (DecisionState(undone=(hour(1),)), False),
        (DecisionState(undone=(hour(2),)), True),
        (DecisionState(undone=(f"{hour(2)}/run",)), True),
        (DecisionState(archived_to=hour(1)), False),
        (DecisionState(archived_to=hour(2)), True),
        (DecisionState(archived_to=hour(3)), True),
    ],
)
def test_claim_is_given_up_once_it_is_undone_or_archived(
    state: DecisionState, is_over: bool, unlocked: TimelineStore
) -> None:
    assert was_given_up(state, instant("c2?")) is is_over


def test_step_of_a_claimed_instant_is_decided_unless_another_has_given_it_up(
    unlocked: TimelineStore, clock: SetClock
) -> None:
    storage = unlocked.storage
    first, second, third = (claim(unlocked, clock, Action.SAVEPOINT, data=None) for _ in range(3))

    def decision(of: Instant) -> Decision:
        return Decision(kind=Kind.SAVEPOINT, instant_time=of.time, path=unlocked.path(of), data=b"x")

    def refuse(state: DecisionState, timeline: Timeline) -> None:
        raise OverlapError("overlaps")

    decide_claimed(unlocked, first, lambda *_: decision(first))
    assert storage.read(unlocked.path(first)) == b"x"
    with pytest.raises(OverlapError):
        decide_claimed(unlocked, second, refuse)
    decide(unlocked, lambda *_: Decision(kind=Kind.REMOVE, instant_time=third.time, undoes=third.time))
    with pytest.raises(WriteConflictError, match=f"took savepoint {third.time} of .* for dead; run it again"):
        decide_claimed(unlocked, third, lambda *_: decision(third))
    assert storage.info(unlocked.path(third)) is None
    assert list_claimed_times(storage) == {first.time}
    assert [entry.name for entry in storage.list(HEARTBEATS)] == [first.time]
    assert read_state(storage)[0].number == 2


def test_plan_is_claimed_once(store: TimelineStore) -> None:
    claim_plan(store.storage, hour(1), token=TOKEN)
    assert read_claim(store.storage, hour(1)) == Claim(PROCESS, TOKEN, keeps_plan=True)
    assert files_of(store.storage) == marks_of(hour(1))
    with pytest.raises(FileExistsError):
        claim_plan(store.storage, hour(1), token=TOKEN)


@pytest.mark.parametrize(
    ("stored", "age", "is_taken"),
    [
        (b'{"kind": "heartbeat", "undoes": true}', DEAD_AFTER_MS, True),
        (b'{"kind": "heartbeat"}', DEAD_AFTER_MS - 1, False),
        (b'{"kind": "heartbeat", "dead_after_ms": 5}', 5, True),
        (b"[1]", DEAD_AFTER_MS, False),
        (b"torn {", DEAD_AFTER_MS, False),
        (None, DEAD_AFTER_MS, False),
    ],
)
def test_claim_of_a_dead_writer_is_taken_over(
    stored: bytes | None, age: int, is_taken: bool, store: TimelineStore, clock: SetClock
) -> None:
    storage = store.storage
    (begun,) = put_instants(store, "c1?")
    renew_heartbeat(storage, begun.time)
    if stored is not None:
        storage.create(claim_path(begun.time), stored)
    clock.at_ms += age
    assert take_over_claim(store, begun, clock, token=OTHER) is is_taken
    found = storage.info(f"{HEARTBEATS}/{begun.time}")
    assert found is not None
    if is_taken:
        assert stored is not None
        assert json.loads(storage.read(claim_path(begun.time))) == {**json.loads(stored), "taken_over_by": OTHER}
        assert found.modified_ms == clock.at_ms
        assert not take_over_claim(store, begun, clock, token=TOKEN)
    elif stored is not None:
        assert storage.read(claim_path(begun.time)) == stored


def test_only_one_of_two_takes_a_claim_over(unlocked: TimelineStore, clock: SetClock) -> None:
    (begun,) = put_instants(unlocked, "c1?")
    unlocked.storage.create(claim_path(begun.time), b"{}")
    clock.at_ms += 10 * DEAD_AFTER_MS

    def replace(call: Call) -> None:
        unlocked.storage.replace(call.path, b'{"taken_over_by": "them"}')

    meanwhile = once(lambda call: call.name == "replace_if", replace)
    storage = FaultyStorage(unlocked.storage, meanwhile=meanwhile)  # type: ignore[arg-type]
    assert not take_over_claim(TimelineStore(storage), begun, clock, token=OTHER)
    assert unlocked.storage.read(claim_path(begun.time)) == b'{"taken_over_by": "them"}'


def test_claim_that_is_released_meanwhile_is_not_taken_over(unlocked: TimelineStore, clock: SetClock) -> None:
    (begun,) = put_instants(unlocked, "c1?")
    unlocked.storage.create(claim_path(begun.time), b"{}")
    clock.at_ms += 10 * DEAD_AFTER_MS
    is_read = once(lambda call: call.name == "read", lambda call: unlocked.storage.delete(call.path))
    storage = FaultyStorage(unlocked.storage, meanwhile=is_read)  # type: ignore[arg-type]
    assert not take_over_claim(TimelineStore(storage), begun, clock, token=OTHER)
    assert not unlocked.storage.list(HEARTBEATS)


def test_release_removes_the_marks_of_one_instant_with_what_else_is_named(store: TimelineStore) -> None:
    storage = store.storage
    for time in (hour(1), hour(2)):
        claim_plan(storage, time, token=TOKEN)
    for name in "ab":
        storage.create(name, b"")
    release(storage, hour(1), ["a"])
    assert files_of(storage) == [*marks_of(hour(2)), "b"]
    release(storage, hour(1))  # Again, after a crash.
    assert list_claimed_times(storage) == {hour(2)}
    remove_heartbeat(storage, hour(2))
    assert files_of(storage) == [claim_path(hour(2)), "b"]


def test_folders_are_neither_claims_nor_heartbeats(store: TimelineStore, clock: SetClock) -> None:
    for folder in (HEARTBEATS, claim_path("x").rpartition("/")[0]):
        store.storage.create(f"{folder}/folder/{hour(1)}", b"")
    assert list_claims(store.storage) == []
    clock.at_ms += DEAD_AFTER_MS
    forget_heartbeats(store.storage, DecisionState(undone=("folder",)), timeline_of(""), clock)
    assert len(files_of(store.storage)) == 2


def test_claim_that_is_released_while_claims_are_looked_at_is_not_stale(store: TimelineStore, clock: SetClock) -> None:
    for number in (1, 2):
        store.storage.create(claim_path(hour(number)), b'{"kind": "heartbeat"}')
    listed = list_claims(store.storage)
    store.storage.delete(claim_path(hour(1)))
    clock.at_ms += DEAD_AFTER_MS
    found = choose_stale_claims(store.storage, listed, timeline_of(""), clock)
    assert found == {hour(2): Claim("heartbeat", None)}


# --- the thread that shows that a writer lives ------------------------------------------------------------


@pytest.fixture
def hours() -> Iterator[Hours]:
    clock = Hours()
    with concurrency.use_backend(clock):  # type: ignore[arg-type]
        yield clock


def heartbeat(store: TimelineStore, time: str) -> int | None:
    found = store.storage.info(f"{HEARTBEATS}/{time}")
    return None if found is None else found.modified_ms


def test_heartbeat_is_renewed_while_the_block_runs(hours: Hours) -> None:
    storage = MemoryStorage(hours)
    store = TimelineStore(storage)
    claim_plan(storage, hour(1), token=TOKEN)
    with keep_alive(storage, hour(1)):
        assert storage.is_held(claim_path(hour(1)))
        assert [job.period for job in hours.work] == [20] == [HEARTBEAT_MS / 3000]
        hours.pass_seconds(65)
        assert heartbeat(store, hour(1)) == 1_060_000
    assert not storage.is_held(claim_path(hour(1)))
    assert not hours.work
    assert heartbeat(store, hour(1)) == 1_060_000


def test_heartbeat_ends_with_the_claim_and_stays_away(hours: Hours) -> None:
    storage = MemoryStorage(hours)
    store = TimelineStore(storage)
    claim_plan(storage, hour(1), token=TOKEN)
    with HeartbeatThread(storage, hour(1), every_seconds=7) as thread:
        assert isinstance(thread, HeartbeatThread)
        hours.pass_seconds(7)
        release(storage, hour(1))
        renew_heartbeat(storage, hour(1))  # A renewal that was under way.
        hours.pass_seconds(7)
        assert not hours.work
        assert heartbeat(store, hour(1)) == 1_007_000
    assert heartbeat(store, hour(1)) is None


def test_block_that_ends_before_the_first_renewal_leaves_the_heartbeat_alone(hours: Hours) -> None:
    storage = MemoryStorage(hours)
    renew_heartbeat(storage, hour(1))
    with HeartbeatThread(storage, hour(1), every_seconds=7):
        pass
    assert heartbeat(TimelineStore(storage), hour(1)) == 1_000_000


def test_failed_renewal_is_tried_again_and_does_not_fail_the_block(hours: Hours) -> None:
    inner = MemoryStorage(hours)
    claim_plan(inner, hour(1), token=TOKEN)
    storage = FaultyStorage(inner)  # type: ignore[arg-type]
    with HeartbeatThread(storage, hour(1), every_seconds=7):
        storage.fault = Fault(lambda _, call: call.name == "touch", Mode.BEFORE, kills=False, raises=StorageError)
        hours.pass_seconds(7)
        assert heartbeat(TimelineStore(inner), hour(1)) == 1_000_000
        storage.fault = None
        hours.pass_seconds(7)
        assert heartbeat(TimelineStore(inner), hour(1)) == 1_014_000
        storage.fault = Fault(lambda _, call: call.name == "read", Mode.BEFORE, kills=False, raises=StorageError)


# --- what others hear -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "locks", "holds"),
    [(PROCESS, True, True), (PROCESS, False, False), ("heartbeat", True, False), ("heartbeat", False, False)],
)
def test_only_a_process_on_storage_with_locks_locks_its_claim(kind: str, locks: bool, holds: bool) -> None:
    storage = MemoryStorage() if locks else MemoryWithoutLocks()
    claimed = Claim(kind, None)
    assert has_process_lock(storage, claimed) is holds
    advice = "wait for it" if holds else "wait for it (if its process has died, that shows 2 minutes after its last "
    assert advise_to_wait(storage, claimed).startswith(advice)
    assert (advise_to_wait(storage, claimed) == advice) is holds
    assert advise_to_wait(storage, None) == "wait for it"


@pytest.mark.parametrize(
    ("text", "kind", "advice"),
    [
        ("", None, "it is over by now: run the write again"),
        ("r1", None, "it is over by now: run the write again"),
        ("r1?", None, "run or cancel that clustering first"),
        ("r1!", None, "it is running: wait for it, then run the write again"),
        ("r1?", PROCESS, "it is running: wait for it, then run the write again"),
        ("r1!", "heartbeat", "it is running: wait for it (if its process has died, that shows 2 minutes after its last "
         "heartbeat), then run the write again"),
    ],
)  # fmt: skip
def test_writer_hears_what_to_do_about_a_pending_clustering(text: str, kind: str | None, advice: str) -> None:
    store = bare_store()
    put_instants(store, text)
    if kind is not None:
        store.storage.create(claim_path(hour(1)), b'{"kind": "%s"}' % kind.encode())
    assert advise_on_plan(store, hour(1)) == advice
