"""The loop that decides, step by step: lost turns, requests without an answer, leases, and what others do meanwhile."""

from __future__ import annotations

import itertools
import logging
from collections.abc import Callable, Iterator

import pytest

from lakeformat import concurrency
from lakeformat.codec.properties import encode
from lakeformat.codec.timeline_files.commit import decode_commit
from lakeformat.errors import CommitStateUnknownError, LockLostError, StorageError
from lakeformat.locks.lease import TimedLease
from lakeformat.model.commit import CommitMetadata
from lakeformat.storage import MemoryStorage
from lakeformat.storage.port import OutcomeUnknownError, Version, VersionChangedError
from lakeformat.timeline.store import TimelineStore
from lakeformat.timeline.timeline import Timeline
from lakeformat.transaction.order.decisions import (
    STATE_PATH,
    Decision,
    DecisionState,
    Kind,
    aside_path,
    decide,
    encode_void_commit,
    read_state,
    settle,
    warn_of_single_writer,
)
from tests.helpers.bare_table import MemoryWithoutLocks, bare_store, files_of, put_instants
from tests.helpers.faulty import Call, FaultyStorage, once
from tests.helpers.short_timelines import hour
from tests.locks.hours import Hours

#: What the storage does with a request for the state file, or what others do before it arrives.
Answer = str | Callable[[TimelineStore], object]
EMPTY = b'{"partitionToWriteStats": {}}'


class Network(MemoryWithoutLocks):
    """A storage without locks that answers the requests to replace the state file in given ways, and the later ones.

    ``lost`` is neither carried out nor answered, ``late`` is carried out but not answered, ``refused`` is not carried
    out, which the storage says.
    """

    def __init__(self, *answers: Answer) -> None:
        super().__init__()
        self.answers, self.tries, self.reads = list(answers), 0, 0

    def replace_if(self, path: str, data: bytes, version: Version | None) -> Version:
        answer = self.answers.pop(0) if self.answers else "answered"
        self.tries += 1
        if answer == "refused":
            raise StorageError("refused")
        if answer == "lost":
            raise OutcomeUnknownError("no answer")
        if not isinstance(answer, str):  # The requests of others are answered, and do not count.
            before, self.answers = (self.answers, self.tries, self.reads), []
            answer(TimelineStore(self))
            self.answers, self.tries, self.reads = before
        done = super().replace_if(path, data, version)
        if answer == "late":
            raise OutcomeUnknownError("no answer")
        return done

    def read_versioned(self, path: str) -> tuple[bytes, Version]:
        self.reads += path == STATE_PATH
        return super().read_versioned(path)


class AnsweringStorage(Network):
    """A storage that says what a file contains when it refuses to replace it, as object stores do."""

    def replace_if(self, path: str, data: bytes, version: Version | None) -> Version:
        try:
            return super().replace_if(path, data, version)
        except VersionChangedError as error:
            error.found = MemoryStorage.read_versioned(self, path)
            raise


class SameIds:
    """A source of one id."""

    def __init__(self, token: str) -> None:
        self._token = token

    def token(self) -> str:
        return self._token


@pytest.fixture
def hours() -> Iterator[Hours]:
    clock = Hours()
    with concurrency.use_backend(clock):  # type: ignore[arg-type]
        yield clock


def commit(number: int, data: bytes = EMPTY) -> Decision:
    path = f".hoodie/{hour(number)}.commit"
    return Decision(kind=Kind.COMMIT, instant_time=hour(number), path=path, data=data)


UNDO = Decision(kind=Kind.UNDO, instant_time=hour(9), undoes=hour(9))
#: A decision whose file is too large for the state file.
PLAN = Decision(kind=Kind.PLAN, instant_time=hour(8), path=".hoodie/plan", data=b"x" * ((1 << 20) + 1))


def put(store: TimelineStore, *decisions: Decision) -> None:
    for decision in decisions:
        decide(store, lambda *_, decision=decision: decision)


def undo_often(number: int) -> Callable[[TimelineStore], object]:
    """Return the action of others that decide this number of times."""
    return lambda store: put(store, *[UNDO] * number)


def between(inner: MemoryStorage, when: Callable[[Call], bool], act: Callable[[], object]) -> TimelineStore:
    """Return the table as seen by a process that another one disturbs once."""
    return TimelineStore(FaultyStorage(inner, meanwhile=once(when, lambda _: act())))  # type: ignore[arg-type]


def is_read_of_aside(call: Call) -> bool:
    return call.name == "read" and "/decided-" in call.path


def asides_of(storage: MemoryStorage) -> list[str]:
    """Return the paths of the files of decisions that were too large for the state file."""
    return [path for path in files_of(storage) if "/decided-" in path]


# --- requests without an answer ---------------------------------------------------------------------------


@pytest.mark.parametrize("earlier", [0, 1])
@pytest.mark.parametrize(
    ("answers", "tries"),
    [
        ([], 1),
        (["lost"], 2),
        (["late"], 2),
        (["lost", "refused"], 3),
        (["lost", "late", "lost"], 4),
        (["lost", "lost", "lost"], 4),
    ],
)
def test_request_without_an_answer_is_sent_again(answers: list[Answer], tries: int, earlier: int) -> None:
    store = bare_store(Network())
    put(store, *[UNDO] * earlier)
    network = store.storage
    assert isinstance(network, Network)
    network.answers, network.tries = list(answers), 0
    put(store, commit(1))
    assert network.tries == tries
    assert store.load().commit_times == {hour(1)}
    state, _ = read_state(network)
    assert (state.number, state.last) == (earlier + 1, commit(1))


@pytest.mark.parametrize("answers", [["lost"] * 4, ["lost", "refused", "refused", "refused"]])
@pytest.mark.parametrize(
    ("decision", "said"),
    [(commit(1), rf"commit {hour(1)} .*/\.hoodie/{hour(1)}\.commit "), (UNDO, f"undo {hour(9)} .*/{STATE_PATH} ")],
)
def test_outcome_is_unknown_after_four_tries_without_an_answer(
    answers: list[Answer], decision: Decision, said: str
) -> None:
    network = Network(*answers, "refused")
    store = bare_store(network)
    with pytest.raises(CommitStateUnknownError, match=f"cannot tell whether {said}"):
        put(store, decision)
    assert network.answers == ["refused"]


def test_request_that_the_storage_refuses_decides_nothing() -> None:
    network = Network("refused")
    with pytest.raises(StorageError, match=r"^refused$"):
        put(bare_store(network), commit(1))
    assert network.tries == 1
    assert files_of(network) == []


@pytest.mark.parametrize(
    ("answer", "others", "number"),
    [("late", 39, 1), ("late", 40, None), ("lost", 40, 41), ("lost", 41, None)],
)
def test_decision_without_an_answer_is_found_among_the_last_forty(answer: str, others: int, number: int | None) -> None:
    """A decision that was made is not made again. ``number`` is its number, None if it cannot be known."""
    network = Network(answer, undo_often(others))
    store = bare_store(network)
    seen: list[int] = []

    def check(state: DecisionState, _: Timeline) -> Decision:
        seen.append(state.number + 1)
        return commit(1)

    if number is None:
        with pytest.raises(CommitStateUnknownError, match=r"\(no answer\)"):
            decide(store, check)
        assert seen == [1]
        return
    decide(store, check)
    assert seen[-1] == number
    assert store.load().commit_times == {hour(1)}


# --- lost turns -------------------------------------------------------------------------------------------


def test_state_that_was_deleted_meanwhile_begins_anew() -> None:
    """The user deletes a state file that is damaged."""
    network = Network()
    store = bare_store(network)
    put(store, UNDO)
    network.answers = [lambda _: network.delete(STATE_PATH)]
    put(store, commit(1))
    assert (read_state(network)[0].number, store.load().commit_times) == (1, {hour(1)})


@pytest.mark.parametrize(("kind", "reads"), [(Network, 2), (AnsweringStorage, 1)])
def test_lost_turn_reads_the_state_once_or_not_at_all(kind: type[Network], reads: int) -> None:
    network = kind()
    store = bare_store(network)
    put(store, UNDO)
    seen: list[DecisionState] = []

    def check(state: DecisionState, _: Timeline) -> Decision:
        seen.append(state)
        return commit(2)

    network.answers, network.reads = [lambda other: put(other, commit(1))], 0
    decide(store, check)
    assert network.reads == reads
    assert [(state.number, state.last and state.last.instant_time) for state in seen] == [(1, hour(9)), (2, hour(1))]
    assert store.load().commit_times == {hour(1), hour(2)}


def test_lost_turn_against_a_large_decision_that_is_over_reads_the_state_again() -> None:
    """The refusal shows a state whose large file is deleted after one more decision."""
    network = AnsweringStorage()
    put(bare_store(network), UNDO)
    network.answers = [lambda other: put(other, PLAN)]
    store = between(network, is_read_of_aside, lambda: put(TimelineStore(network), UNDO))
    put(store, commit(2))
    assert read_state(network)[0].number == 4
    assert store.load().commit_times == {hour(2)}


def test_large_file_of_a_lost_turn_is_deleted() -> None:
    network = Network(lambda other: put(other, UNDO))
    store = bare_store(network)
    put(store, PLAN)
    assert asides_of(network) == [aside_path(read_state(network)[0].aside)]


def test_writer_that_loses_more_than_two_turns_waits_longer_each_time(hours: Hours) -> None:
    """The random wait is half of the longest one here: of 50 ms, doubled each time, at most of a second."""
    network = Network(*[undo_often(1)] * 9)
    times: list[float] = []

    def check(*_: object) -> Decision:
        times.append(hours.now)
        return commit(1)

    decide(bare_store(network), check, ids=SameIds("80000000" + "f" * 24))
    waits = [after - before for before, after in itertools.pairwise(times)]
    assert waits == pytest.approx([0, 0, 0.025, 0.05, 0.1, 0.2, 0.4, 0.5, 0.5])


# --- the state and the last decision ----------------------------------------------------------------------


def test_state_is_read_again_if_its_large_file_goes_meanwhile() -> None:
    inner = MemoryWithoutLocks()
    put(bare_store(inner), PLAN)
    store = between(inner, is_read_of_aside, lambda: put(TimelineStore(inner), UNDO))
    assert read_state(store.storage) == read_state(inner)
    assert read_state(inner)[0].number == 2


def is_listing(call: Call) -> bool:
    return call.name == "list" and call.path == ".hoodie"


def test_decision_that_others_have_archived_meanwhile_is_not_carried_out_again() -> None:
    """Its file is missing in the listing because newer decisions were made after the state was read."""
    inner = MemoryWithoutLocks()
    bare_store(inner)
    put(TimelineStore(inner), commit(1))

    def archive() -> None:
        put(TimelineStore(inner), commit(2))
        inner.delete(commit(1).path)

    state, version, timeline = settle(between(inner, is_listing, archive))
    assert (state, version) == read_state(inner)
    assert timeline.commit_times == {hour(2)}
    assert inner.info(commit(1).path) is None


def test_decision_on_the_timeline_of_an_earlier_version_is_not_carried_out_again() -> None:
    """The table has moved to version 8, whose timeline is in another folder."""
    storage = MemoryWithoutLocks()
    store = bare_store(storage)
    put(store, commit(1))
    storage.delete(commit(1).path)
    moved = encode({"hoodie.table.version": "8", "hoodie.timeline.layout.version": "2"}, comments=[])
    storage.replace(".hoodie/hoodie.properties", moved)
    there = f".hoodie/timeline/{hour(1)}_{hour(2)}.commit"
    storage.create(there, b"")
    state, version, timeline = settle(store)
    assert ((state, version), timeline.commit_times) == (read_state(storage), {hour(1)})
    assert files_of(storage) == [STATE_PATH, there]


def test_commit_that_was_decided_last_is_not_read_from_its_file() -> None:
    inner = MemoryWithoutLocks()
    put(bare_store(inner), commit(1, b'{"partitionToWriteStats": {}, "operationType": "INSERT"}'))
    storage = FaultyStorage(inner)  # type: ignore[arg-type]
    store = TimelineStore(storage)
    _, _, timeline = settle(store)
    assert store.read_commit(timeline.commits[-1]).operation == "INSERT"
    assert [call for call in storage.calls if call.name == "read" and call.path == commit(1).path] == []


# --- leases -----------------------------------------------------------------------------------------------


def lease_of(hours: Hours, seconds: float) -> TimedLease:
    """Return a lease of one hour that ends in these seconds."""
    lease = TimedLease("the lock")
    lease.extend(hours.now - 3600 + seconds, 3600)
    return lease


@pytest.mark.parametrize("kind", [MemoryStorage, MemoryWithoutLocks])
def test_lease_must_last_a_minute_longer(kind: type[MemoryStorage], hours: Hours) -> None:
    store = bare_store(kind())
    with pytest.raises(LockLostError):
        decide(store, lambda *_: PLAN, lease=lease_of(hours, 59.9))
    assert files_of(store.storage) == []
    assert decide(store, lambda *_: PLAN, lease=lease_of(hours, 60)) == PLAN
    assert store.storage.read(PLAN.path) == PLAN.data


def test_lease_that_ends_before_the_next_try_makes_the_outcome_unknown(hours: Hours) -> None:
    def lose(_: TimelineStore) -> None:
        hours.pass_seconds(50)
        raise OutcomeUnknownError("no answer")

    network = Network(lose)
    with pytest.raises(CommitStateUnknownError, match=r"\(no answer\)"):
        decide(bare_store(network), lambda *_: commit(1), lease=lease_of(hours, 100))
    assert network.tries == 1


# --- storage with locks, void commits, the warning --------------------------------------------------------


def test_storage_with_locks_gets_only_the_files_of_decisions() -> None:
    store = bare_store(MemoryStorage())
    assert decide(store, lambda *_: None) is None
    put(store, UNDO, PLAN)
    assert files_of(store.storage) == [PLAN.path]


@pytest.mark.parametrize(("schemas", "wanted"), [(["old", "new", ""], "new"), (["", ""], "")])
def test_void_commit_has_the_newest_schema(schemas: list[str], wanted: str) -> None:
    store = bare_store()
    for number, schema in enumerate(schemas):
        put_instants(
            store, f"c{number}", {f"c{number}": CommitMetadata("UPSERT", {}, {"schema": schema} if schema else {})}
        )
    for action in ("commit", "replacecommit"):
        path = f".hoodie/{hour(9)}.{action}"
        void = decode_commit(encode_void_commit(store, path, EMPTY), name=path)
        assert void.schema_text == wanted


class OneWriterStorage(MemoryWithoutLocks):
    has_versions = False


class LockedStorage(MemoryStorage):
    has_versions = False


@pytest.mark.parametrize(
    ("kind", "warns"),
    [(MemoryStorage, False), (LockedStorage, False), (MemoryWithoutLocks, False), (OneWriterStorage, True)],
)
def test_storage_for_one_writer_only_warns_once(
    kind: type[MemoryStorage], warns: bool, caplog: pytest.LogCaptureFixture
) -> None:
    storage, other = kind(), kind()
    with caplog.at_level(logging.WARNING, "lakeformat.write"):
        for each in (storage, storage, other):
            warn_of_single_writer(each)
    said = [record.getMessage().partition(" ")[0] for record in caplog.records]
    assert said == ([storage.location, other.location] if warns else [])
