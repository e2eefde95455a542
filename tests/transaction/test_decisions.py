"""The state of the decisions: what one more decision changes in it, its file, and the loop that replaces the file."""

from __future__ import annotations

import hashlib
import json
from typing import Any

import pytest

from lakeformat.codec.properties import encode
from lakeformat.errors import CorruptTableError, WriteConflictError
from lakeformat.storage import MemoryStorage
from lakeformat.storage.port import EndlessLease
from lakeformat.timeline.store import TimelineStore
from lakeformat.timeline.timeline import Timeline
from lakeformat.transaction.order.decisions import (
    STATE_PATH,
    Decision,
    DecisionState,
    Kind,
    OvertakenError,
    aside_path,
    decide,
    fingerprint,
    prepare_removal,
    read_state,
    settle,
)
from tests.helpers.short_timelines import hour, timeline_of

#: The bytes of a commit without files.
EMPTY = b'{"partitionToWriteStats": {}}'


class UnlockedStorage(MemoryStorage):
    has_lock = False


@pytest.fixture
def store() -> TimelineStore:
    storage = UnlockedStorage()
    storage.create(".hoodie/hoodie.properties", encode({"hoodie.table.version": "6"}, comments=[]))
    return TimelineStore(storage)


def commit(number: int, data: bytes = b"", **parts: object) -> Decision:
    path = f".hoodie/{hour(number)}.commit"
    return Decision(kind=Kind.COMMIT, instant_time=hour(number), path=path, data=data, **parts)  # type: ignore[arg-type]


def undo(text: str) -> Decision:
    return Decision(kind=Kind.UNDO, instant_time=text[:17], undoes=text)


def test_decision_is_added_to_the_state() -> None:
    first = DecisionState().add(commit(1), "a")
    assert first == DecisionState(number=1, last=commit(1), recent=((1, "a"),))
    barrier = Decision(kind=Kind.RESTORE, instant_time=hour(2), is_barrier=True, moving="to 9")
    second = first.add(barrier, "b", is_shared=True)
    assert (second.number, second.barrier, second.moving, second.is_shared) == (2, 2, "to 9", True)
    third = second.add(commit(3), "c")
    assert (third.barrier, third.moving, third.is_shared) == (2, "to 9", True)
    assert third.add(commit(4, moving=""), "d").moving == ""
    assert [third.has_decided(nonce) for nonce in "abcd"] == [True, True, True, False]


def test_undone_writes_are_kept_until_they_are_archived() -> None:
    state = DecisionState().add(undo(hour(1)), "a").add(undo(f"{hour(2)}/w"), "b").add(undo(f"{hour(3)}/w"), "c")
    assert state.undone_times == {hour(1), hour(2), hour(3)}
    assert [state.has_undone(hour(number), "w") for number in range(5)] == [False, True, True, True, False]
    assert [state.has_undone(hour(number), "other") for number in range(4)] == [False, True, False, False]
    archived = state.add(Decision(kind=Kind.ARCHIVE, instant_time=hour(9), archived_to=hour(2)), "d")
    assert (archived.undone, archived.archived_to) == ((f"{hour(3)}/w",), hour(2))
    assert archived.add(
        Decision(kind=Kind.ARCHIVE, instant_time=hour(9), archived_to=hour(1)), "e"
    ).archived_to == hour(2)
    assert not archived.add(undo(hour(2)), "f").has_undone(hour(2), "")


def test_state_keeps_the_newest_nonces_and_undone_writes() -> None:
    state = DecisionState()
    for number in range(600):
        state = state.add(undo(f"{hour(1)}/{number}"), f"n{number}")
    assert state.recent == tuple((number, f"n{number - 1}") for number in range(561, 601))
    assert state.undone == tuple(f"{hour(1)}/{number}" for number in range(100, 600))


def test_decided_file_is_created_and_the_state_is_read_back(store: TimelineStore) -> None:
    assert read_state(store.storage) == (DecisionState(), None)
    assert decide(store, lambda *_: None) is None
    assert store.storage.info(STATE_PATH) is None
    assert decide(store, lambda *_: commit(1, EMPTY, seen="x")) == commit(1, EMPTY, seen="x")
    assert store.storage.read(commit(1).path) == EMPTY
    state, version = read_state(store.storage)
    assert (state.number, state.last, state.aside) == (1, commit(1, EMPTY, seen="x"), "")
    assert version == store.storage.read_versioned(STATE_PATH)[1]


def written(store: TimelineStore) -> dict[str, Any]:
    """Return the head of the state file without its checksum."""
    head = json.loads(store.storage.read(STATE_PATH).partition(b"\n")[0])
    assert isinstance(head, dict)
    return {name: value for name, value in head.items() if name != "checksum"}


def checksum_of(head: dict[str, Any]) -> str:
    return hashlib.blake2b(json.dumps(head).encode(), digest_size=16).hexdigest()


def test_head_of_the_state_file_has_a_checksum_which_older_releases_did_not_write(store: TimelineStore) -> None:
    for decision in (commit(1, EMPTY), undo(hour(1))):
        decide(store, lambda *_, decision=decision: decision)
        data = store.storage.read(STATE_PATH).partition(b"\n")[2]
        head, (state, _) = written(store), read_state(store.storage)
        for line in (
            head,
            {**head, "checksum": checksum_of(head)},
            {**head, "new": 1, "checksum": checksum_of({**head, "new": 1})},
        ):
            store.storage.replace(STATE_PATH, json.dumps(line).encode() + b"\n" + data)
            assert read_state(store.storage)[0] == state
    first = {name: value for name, value in head.items() if name != "last"}
    store.storage.replace(STATE_PATH, json.dumps(first).encode() + b"\n")
    assert read_state(store.storage)[0].last is None


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"n": 7}, "its head does not have its checksum"),
        ({"n": 7, "checksum": None, "new": 1}, "its head has other names than an old one"),
        ({"n": "7", "checksum": None}, "'7' is not of type int"),
    ],
)
def test_changed_head_of_the_state_file_is_damaged(change: dict[str, object], said: str, store: TimelineStore) -> None:
    decide(store, lambda *_: undo(hour(1)))
    head = json.loads(store.storage.read(STATE_PATH))
    store.storage.replace(STATE_PATH, json.dumps({**head, **change}).encode() + b"\n")
    with pytest.raises(CorruptTableError, match=rf"{STATE_PATH} is damaged \({said}\); stop all writers"):
        read_state(store.storage)


def test_fingerprint_is_a_digest_of_the_completed_commits() -> None:
    digest = hashlib.blake2b(f"{hour(1)}\n{hour(2)}".encode(), digest_size=16).hexdigest()
    assert fingerprint(timeline_of("c1 c2 c3! n4")) == digest


def test_missing_file_of_the_last_decision_is_created_by_the_next_writer(store: TimelineStore) -> None:
    decide(store, lambda *_: commit(1, EMPTY))
    store.storage.delete(commit(1).path)
    state, _, timeline = settle(store)
    assert store.storage.read(commit(1).path) == EMPTY
    assert state.last == commit(1, EMPTY)
    assert timeline.commit_times == {hour(1)}


def test_decision_beside_hudi_is_overtaken_by_a_commit_it_was_not_checked_against(store: TimelineStore) -> None:
    for number, lease in ((1, EndlessLease()), (2, None)):
        decision = commit(number, EMPTY, seen=fingerprint(store.load()))
        decide(store, lambda *_, decision=decision: decision, lease=lease)
        store.storage.delete(decision.path)
        assert read_state(store.storage)[0].is_shared
        assert hour(number) in settle(store)[2].commit_times
    last = commit(3, EMPTY, seen=fingerprint(timeline_of("")))
    decide(store, lambda *_: last)
    store.storage.delete(last.path)
    with pytest.raises(OvertakenError, match=hour(3)):
        settle(store)
    assert store.storage.info(last.path) is None


def test_decision_without_hudi_is_carried_out_whatever_has_completed_since(store: TimelineStore) -> None:
    last = commit(3, EMPTY, seen="another")
    decide(store, lambda *_: last)
    store.storage.delete(last.path)
    assert settle(store)[2].commit_times == {hour(3)}


def test_large_file_lies_beside_the_state_until_the_next_decision(store: TimelineStore) -> None:
    for size, is_aside in ((1 << 20, False), ((1 << 20) + 1, True)):
        large = Decision(kind=Kind.PLAN, instant_time=hour(1), path=f".hoodie/plan-{size}", data=b"x" * size)
        decide(store, lambda *_, large=large: large)
        state, _ = read_state(store.storage)
        assert (state.last, bool(state.aside)) == (large, is_aside)
    beside = aside_path(state.aside)
    assert store.storage.read(beside) == large.data
    decide(store, lambda *_: undo(hour(1)))
    assert store.storage.info(beside) is None


def test_lost_file_of_a_large_decision_is_said(store: TimelineStore) -> None:
    large = Decision(kind=Kind.PLAN, instant_time=hour(1), path=".hoodie/plan", data=b"x" * ((1 << 20) + 1))
    decide(store, lambda *_: large)
    store.storage.delete(aside_path(read_state(store.storage)[0].aside))
    with pytest.raises(CorruptTableError, match=r"the file of the last decision in .* is missing"):
        read_state(store.storage)


def test_lost_turn_checks_again_with_what_the_other_has_decided(store: TimelineStore) -> None:
    seen: list[tuple[int, frozenset[str]]] = []

    def check(state: DecisionState, timeline: Timeline) -> Decision:
        seen.append((state.number, frozenset(timeline.commit_times)))
        if len(seen) < 5:  # Another writer is quicker.
            decide(store, lambda *_: commit(len(seen), EMPTY))
        return commit(9, EMPTY)

    decide(store, check)
    times = [hour(number) for number in range(1, 5)]
    assert seen == [(number, frozenset(times[:number])) for number in range(5)]
    assert store.load().commit_times == {*times, hour(9)}
    assert read_state(store.storage)[0].number == 5


def test_only_the_end_of_a_move_is_decided_while_a_table_moves(store: TimelineStore) -> None:
    decide(store, lambda *_: Decision(kind=Kind.UPGRADE, instant_time=hour(1), moving="to 9"))
    with pytest.raises(WriteConflictError, match="is being moved to another table version"):
        decide(store, lambda *_: commit(2, EMPTY))
    assert store.storage.info(commit(2).path) is None
    decide(store, lambda *_: Decision(kind=Kind.UPGRADE, instant_time=hour(1), moving=""))
    assert decide(store, lambda *_: commit(2, EMPTY))


def test_removal_is_decided_only_without_locks(store: TimelineStore) -> None:
    checked: list[Timeline] = []
    prepare_removal(store, hour(1), checked.append)
    prepare_removal(store, hour(2))
    assert len(checked) == 1
    assert read_state(store.storage)[0].undone == (hour(1), hour(2))
    prepare_removal(TimelineStore(MemoryStorage()), hour(1), checked.append)
    assert len(checked) == 1


def test_storage_with_locks_has_no_state_file() -> None:
    storage = MemoryStorage()
    storage.create(".hoodie/hoodie.properties", encode({"hoodie.table.version": "6"}, comments=[]))
    store = TimelineStore(storage)
    assert decide(store, lambda *_: undo(hour(1))) == undo(hour(1))
    assert decide(store, lambda *_: commit(1, EMPTY)) == commit(1, EMPTY)
    assert storage.read(commit(1).path) == EMPTY
    assert (storage.info(STATE_PATH), read_state(storage)) == (None, (DecisionState(), None))
