"""The undo of completed commits step by step: what a rollback or restore leaves, whichever steps were done before."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from lakeformat.codec.avro.container import decode_record
from lakeformat.codec.timeline_files.recovery import (
    RESTORE_METADATA,
    RestorePlan,
    RollbackMetadata,
    RollbackPartition,
    RollbackPlan,
    RollbackRequest,
    decode_rollback,
    encode_restore_plan,
    encode_rollback,
    encode_rollback_plan,
)
from lakeformat.errors import CorruptTableError, UnsupportedTableError, WriteConflictError
from lakeformat.file_system_view.file_groups import list_files
from lakeformat.file_system_view.hashing_rings import StoredRings, stored_paths
from lakeformat.model.commit import CommitMetadata, WriteStat
from lakeformat.model.instant import Action, Instant, State
from lakeformat.storage import MemoryStorage
from lakeformat.storage.port import own_path
from lakeformat.timeline.store import TimelineStore
from lakeformat.timeline.timeline import Timeline
from lakeformat.transaction.order.claims import (
    DEAD_AFTER_MS,
    FOREIGN_GRACE_MS,
    HEARTBEATS,
    PROCESS,
    Claim,
    claim_instant,
    claim_path,
    claim_plan,
    list_claimed_times,
    read_claim,
    release,
    renew_heartbeat,
)
from lakeformat.transaction.order.conflict import OverlapError, PendingActionError
from lakeformat.transaction.order.decisions import (
    LATEST_REQUEST_MS,
    Decision,
    DecisionState,
    Kind,
    decide,
    encode_void_commit,
    read_state,
)
from lakeformat.transaction.undo.commit_undo import (
    CommitUndo,
    files_to_undo,
    finish_restores,
    give_up_or_finish,
    list_remaining_logs,
)
from tests.helpers.bare_table import (
    MemoryWithoutLocks,
    bare_store,
    base_name,
    commit_of,
    files_of,
    log_name,
    names,
    put_files,
    put_instants,
    stored,
)
from tests.helpers.faulty import Call, FaultyStorage, SetClock, once
from tests.helpers.short_timelines import hour, instant
from tests.helpers.tables import a_batch, a_table

#: The clock's time, which is hour 5. The instants of the tables are older.
NOW = 1_767_225_600_000 + 5 * 3_600_000
KEPT = f"p/{base_name('a', hour(1))}"
GONE = f"p/{base_name('a', hour(2))}"
OF_HUDI = {"p": (base_name("a", hour(2)),)}
ROLLBACK = Instant(hour(5), Action.ROLLBACK, State.REQUESTED)


@pytest.fixture
def clock() -> SetClock:
    return SetClock(NOW)


@pytest.fixture(params=[MemoryStorage, MemoryWithoutLocks])
def store(request: pytest.FixtureRequest, clock: SetClock) -> TimelineStore:
    """Return a table of two commits, a clean and a savepoint of the second one, with its markers and its claim."""
    return two_commits(bare_store(request.param(clock)))


@pytest.fixture
def unlocked(clock: SetClock) -> TimelineStore:
    return two_commits(bare_store(MemoryWithoutLocks(clock)))


def two_commits(store: TimelineStore) -> TimelineStore:
    put_instants(store, "c1 c2 n2", {"c1": commit_of([KEPT]), "c2": commit_of([GONE])})
    put_files(store, KEPT, GONE)
    claim_plan(store.storage, hour(2), token="")
    store.storage.create(f".hoodie/.temp/{hour(2)}/MARKERS", b"")
    return store


def undo_of(store: TimelineStore, clock: SetClock) -> CommitUndo:
    return CommitUndo(store, store.config(), clock)


def is_without_locks(store: TimelineStore) -> bool:
    return not store.storage.has_lock


# --- what goes --------------------------------------------------------------------------------------------


def test_files_of_an_undone_commit_are_those_in_its_metadata_and_those_with_its_time() -> None:
    store = bare_store()
    mine = [base_name("x", hour(2)), log_name("x", hour(2)), f"{log_name('x', hour(2))}.cdc"]
    old_log = log_name("y", hour(1), 2)
    put_files(store, *(f"p/{name}" for name in mine), KEPT, f"q/{base_name('z', hour(2))}", f"p/{old_log}")
    stats = (
        WriteStat("y-0", f"p/{old_log}", "p", None, 1, cdc_stats=((f"q/{log_name('y', hour(1), 3)}.cdc", 1), ("", 0))),
        WriteStat("y-0", "", "p", None, 1),
        WriteStat("y-0", "p/no data file", "p", None, 1),
    )
    metadata, listing = CommitMetadata("UPSERT", {"p": stats}), list_files(store.storage)
    by_name = {"p": tuple(sorted(mine)), "q": (base_name("z", hour(2)),)}
    assert files_to_undo(instant("d2"), None, listing, frozenset()) == by_name
    found = files_to_undo(instant("d2"), metadata, listing, frozenset({f"q/{old_log}", KEPT}))
    assert found == {
        "p": tuple(sorted([*mine, old_log])),
        "q": tuple(sorted([*by_name["q"], f"{log_name('y', hour(1), 3)}.cdc"])),
    }
    with pytest.raises(UnsupportedTableError, match=f"commit {hour(2)} has appended to p/{old_log}, which holds rows"):
        files_to_undo(instant("d2"), metadata, listing, frozenset({f"p/{old_log}"}))


def test_logs_that_stay_are_those_of_the_other_commits() -> None:
    store = bare_store()
    logs = {number: f"p/{log_name('a', hour(1), number)}" for number in (1, 2, 3)}
    written = {f"d{number}": commit_of([logs[number], KEPT]) for number in logs}
    put_instants(store, "d1 d2 d3", written)
    assert list_remaining_logs(store, store.load(), frozenset({hour(2)})) == {logs[1], logs[3]}


# --- a rollback -------------------------------------------------------------------------------------------


def test_rollback_begins_with_its_plan(store: TimelineStore, clock: SetClock) -> None:
    before = stored(store)
    seen: list[tuple[DecisionState, Timeline]] = []
    rollback = undo_of(store, clock).begin(instant("c2"), OF_HUDI, lambda *found: seen.append(found))
    assert rollback == ROLLBACK
    request = RollbackRequest("p", "", "", (f"{store.storage.location}/{GONE}",))
    assert store.read_rollback_plan(rollback) == RollbackPlan(hour(2), "commit", (request,))
    assert stored(store) == sorted([*before, *names("b5?"), f"{HEARTBEATS}/{hour(5)}", claim_path(hour(5))])
    assert read_claim(store.storage, hour(5)) == Claim(PROCESS, None, undoes=True)
    assert [each.commit_times for _, each in seen] == [{hour(1), hour(2)}]
    state, _ = read_state(store.storage)
    if is_without_locks(store):
        assert (state.number, state.barrier, state.undone) == (1, 1, (hour(2),))


def test_rollback_that_conflicts_begins_nothing(store: TimelineStore, clock: SetClock) -> None:
    before = stored(store)

    def refuse(state: DecisionState, timeline: Timeline) -> None:
        raise OverlapError("overlaps")

    with pytest.raises(OverlapError):
        undo_of(store, clock).begin(instant("c2"), OF_HUDI, refuse)
    assert stored(store) == before
    assert undo_of(store, clock).begin(instant("c2"), OF_HUDI).state is State.REQUESTED


def test_rollback_leaves_nothing_of_the_commit_but_a_void_commit_without_locks(
    store: TimelineStore, clock: SetClock
) -> None:
    undoing = undo_of(store, clock)
    rollback = undoing.begin(instant("c2"), OF_HUDI)
    metadata = undoing.roll_back(rollback)
    done = RollbackPartition("p", (f"{store.storage.location}/{GONE}",))
    assert metadata == RollbackMetadata(hour(5), 0, ((hour(2), "commit"),), (done,))
    assert decode_rollback(store.storage.read(names("b5")[0]), name="") == metadata
    kept = names("c1 c2 n2 b5" if is_without_locks(store) else "c1 n2 b5")
    assert stored(store) == sorted([*kept, KEPT])
    timeline = store.load()
    assert timeline.commit_times == {hour(1)}
    assert [void.time for void in timeline.voids] == ([hour(2)] if is_without_locks(store) else [])
    undoing.roll_back(rollback.at(State.INFLIGHT))  # Its process did not see that another one has finished it.
    assert stored(store) == sorted([*kept, KEPT])


def test_plan_from_another_machine_deletes_only_below_the_table(store: TimelineStore, clock: SetClock) -> None:
    undoing = undo_of(store, clock)
    rollback = undoing.begin(instant("c2"), {})
    other, root = base_name("b", hour(2)), base_name("c", hour(2))
    paths = (f"s3://elsewhere/q/{base_name('a', hour(2))}", f"p/{other}")
    requests = (RollbackRequest("p", files_to_delete=paths), RollbackRequest("", files_to_delete=(f"/x/{root}",)))
    plan = encode_rollback_plan(RollbackPlan(hour(2), "commit", requests))
    store.storage.replace(store.path(rollback), plan)
    put_files(store, f"q/{base_name('a', hour(2))}", f"p/{other}", root)
    done = undoing.roll_back(rollback)
    assert {part.partition_path: part.deleted_files for part in done.partitions} == {"p": paths, "": (f"/x/{root}",)}
    assert [path for path in stored(store) if not path.startswith(".hoodie")] == [KEPT, f"q/{base_name('a', hour(2))}"]


def test_rollback_of_a_compaction_removes_its_plan(store: TimelineStore, clock: SetClock) -> None:
    (planned,) = put_instants(store, "k4!")
    store.storage.create(store.path(instant("c4")), store.layout.encode_commit(commit_of([])))
    undoing = undo_of(store, clock)
    rollback = undoing.begin(instant("c4"), {})
    assert planned in store.load().plans
    assert not undoing.has_begun(rollback)
    undoing.roll_back(rollback)
    left = store.load()
    assert (left.find(hour(4)), left.plans) == (None, ())
    files = [path for path in stored(store) if hour(4) in path]
    assert files == ([f".hoodie/{hour(4)}.commit"] if is_without_locks(store) else [])


@pytest.mark.parametrize(("word", "stays"), [("r2", [hour(1)]), ("c2", [hour(1), hour(2)])])
def test_rollback_of_a_replacecommit_takes_its_rings_back(word: str, stays: list[str], clock: SetClock) -> None:
    store = bare_store(MemoryStorage(clock))
    put_instants(store, word)
    for time in (hour(1), hour(2)):
        for path in stored_paths(StoredRings("p", (time,), frozenset()), time):
            store.storage.create(path, b"")
    undoing = undo_of(store, clock)
    undoing.roll_back(undoing.begin(instant(word), {}))
    rings = [path for path in stored(store) if path.endswith(".hashing_meta")]
    assert [path.rpartition("/")[2].partition(".")[0] for path in rings] == stays


def test_completed_rollback_lists_all_files_of_a_partition(store: TimelineStore, clock: SetClock) -> None:
    """The plan is another program's, which has one request for each file group."""
    second = base_name("b", hour(2))
    put_files(store, f"p/{second}")
    undoing = undo_of(store, clock)
    rollback = undoing.begin(instant("c2"), OF_HUDI)
    requests = tuple(RollbackRequest("p", files_to_delete=(f"/t/p/{name}",)) for name in (*OF_HUDI["p"], second))
    store.storage.replace(store.path(rollback), encode_rollback_plan(RollbackPlan(hour(2), "commit", requests)))
    undoing.roll_back(rollback)
    assert not {GONE, f"p/{second}"} & set(stored(store))
    (done,) = decode_rollback(store.read(rollback.at(State.COMPLETED)), name="").partitions
    assert done.deleted_files == tuple(f"/t/p/{name}" for name in (*OF_HUDI["p"], second))


@pytest.mark.parametrize(("age", "is_void"), [(LATEST_REQUEST_MS - 1, True), (LATEST_REQUEST_MS, False)])
def test_commit_that_no_late_request_can_create_again_needs_no_void_commit(
    age: int, is_void: bool, unlocked: TimelineStore, clock: SetClock
) -> None:
    clock.at_ms += age
    undoing = undo_of(unlocked, clock)
    undoing.roll_back(undoing.begin(instant("c2"), OF_HUDI))
    timeline = unlocked.load()
    assert bool(timeline.voids) is is_void
    assert timeline.commit_times == {hour(1)}
    assert (unlocked.storage.info(f".hoodie/{hour(2)}.commit") is not None) is is_void


def test_rollback_whose_claim_another_has_removed_leaves_a_void_commit(
    unlocked: TimelineStore, clock: SetClock
) -> None:
    clock.at_ms += 2 * LATEST_REQUEST_MS
    undoing = undo_of(unlocked, clock)
    rollback = undoing.begin(instant("c2"), OF_HUDI)
    release(unlocked.storage, rollback.time)
    undoing.roll_back(rollback)
    assert [void.time for void in unlocked.load().voids] == [hour(2)]


def test_rollback_of_a_void_commit_leaves_it(unlocked: TimelineStore, clock: SetClock) -> None:
    """An earlier run has hidden the commit."""
    undoing = undo_of(unlocked, clock)
    rollback = undoing.begin(instant("c2"), OF_HUDI)
    path = unlocked.path(instant("c2"))
    void = encode_void_commit(unlocked, path, unlocked.storage.read(path))
    unlocked.storage.replace(path, void)
    undoing.roll_back(rollback)
    assert unlocked.storage.read(path) == void
    assert unlocked.storage.info(GONE) is None


def test_rollback_that_was_given_up_or_has_begun_does_not_begin(unlocked: TimelineStore, clock: SetClock) -> None:
    """Its process slept while another one took it for dead, or took it over."""
    undoing = undo_of(unlocked, clock)
    given_up = undoing.begin(instant("c2"), OF_HUDI)
    decide(unlocked, lambda *_: Decision(kind=Kind.REMOVE, instant_time=given_up.time, undoes=given_up.time))
    with pytest.raises(WriteConflictError, match=r"took .*rollback\.requested of memory.* for dead; run it again"):
        undoing.roll_back(given_up)
    clock.at_ms += 1
    begun = undoing.begin(instant("c2"), OF_HUDI)
    unlocked.storage.create(unlocked.path(begun.at(State.INFLIGHT)), b"")
    before = stored(unlocked)
    for going in (undoing.roll_back, undoing.give_up):
        with pytest.raises(PendingActionError, match=r"rollback\.requested is running in memory.*; wait for it"):
            going(begun)
    assert stored(unlocked) == before
    assert unlocked.load().commit_times == {hour(1), hour(2)}


def test_rollback_is_given_up_beside_a_completed_one(store: TimelineStore, clock: SetClock) -> None:
    put_instants(store, "b4", {"b4": encode_rollback(RollbackMetadata(hour(4), 0, ()))})
    before = stored(store)
    undoing = undo_of(store, clock)
    rollback = undoing.begin(instant("c2"), OF_HUDI)
    assert not undoing.has_begun(rollback)
    give_up_or_finish(undoing, rollback)
    assert stored(store) == before
    if is_without_locks(store):
        assert read_state(store.storage)[0].undone_times == {hour(2), hour(5)}


def test_rollback_that_has_begun_is_finished(store: TimelineStore, clock: SetClock) -> None:
    undoing = undo_of(store, clock)
    rollback = undoing.begin(instant("c2"), OF_HUDI)
    store.storage.delete(store.path(instant("c2")))
    if is_without_locks(store):
        rollback = store.start(rollback)
    give_up_or_finish(undoing, rollback)
    assert stored(store) == sorted([*names("c1 n2 b5"), KEPT])


@pytest.mark.parametrize("state", [State.REQUESTED, State.INFLIGHT])
@pytest.mark.parametrize("victim", ["visible", "hidden", "void", "gone"])
def test_rollback_has_begun_once_its_commit_is_hidden(
    victim: str, state: State, store: TimelineStore, clock: SetClock
) -> None:
    undoing, path = undo_of(store, clock), store.path(instant("c2"))
    rollback = undoing.begin(instant("c2"), OF_HUDI).at(state)
    if victim == "void":
        store.storage.replace(path, encode_void_commit(store, path, store.storage.read(path)))
    elif victim != "visible":
        for gone in [path] if victim == "hidden" else names("c2"):
            store.storage.delete(gone)
    may_act = is_without_locks(store) and state is State.INFLIGHT
    assert undoing.has_begun(rollback) is (victim != "visible" or may_act)


def test_rollback_without_a_plan_is_refused(store: TimelineStore, clock: SetClock) -> None:
    (lost,) = put_instants(store, "b4!")
    store.storage.delete(store.path(lost.at(State.REQUESTED)))
    with pytest.raises(CorruptTableError, match=rf"{hour(4)}\.rollback\.requested is gone; restore it from a copy"):
        undo_of(store, clock).roll_back(lost)
    assert undo_of(store, clock).has_begun(lost)


def test_rollback_that_cancels_blocks_is_left_to_its_program(store: TimelineStore, clock: SetClock) -> None:
    blocks = {f"p/{log_name('a', hour(1))}": 1}
    requests = (RollbackRequest("p", log_blocks_to_delete=blocks), RollbackRequest("p"))
    (foreign,) = put_instants(store, "b4?", {"b4?": encode_rollback_plan(RollbackPlan(hour(2), "commit", requests))})
    before = stored(store)
    with pytest.raises(UnsupportedTableError, match="is another program's and cancels blocks of log files"):
        undo_of(store, clock).roll_back(foreign)
    assert stored(store) == before


# --- a restore --------------------------------------------------------------------------------------------

RESTORE = RestorePlan(((hour(3), "commit"), (hour(2), "commit")), hour(1))
LATER = f"p/{base_name('a', hour(3))}"


def begin_restore(
    storage: MemoryStorage, word: str = "e4?", plan: RestorePlan | None = RESTORE, kind: str | None = PROCESS
) -> tuple[TimelineStore, Instant]:
    """Make a table of three commits, the last one a compaction, and the files of a restore to the first one."""
    store = bare_store(storage)
    put_instants(store, "c1 c2 k3!", {"c1": commit_of([KEPT]), "c2": commit_of([GONE])})
    store.storage.create(store.path(instant("c3")), store.layout.encode_commit(commit_of([LATER])))
    put_files(store, KEPT, GONE, LATER)
    (restore,) = put_instants(store, word)
    if plan is None:
        store.storage.delete(store.path(restore.at(State.REQUESTED)))
    else:
        store.storage.replace(store.path(restore.at(State.REQUESTED)), encode_restore_plan(plan))
    if kind is not None:
        store.storage.create(claim_path(hour(4)), b'{"kind": "%s"}' % kind.encode())
        renew_heartbeat(store.storage, hour(4))
    return store, restore


def record_of(store: TimelineStore) -> Mapping[str, Any]:
    found = decode_record(store.storage.read(names("e4")[0]), RESTORE_METADATA, name="")
    assert isinstance(found, dict)
    return found


def assert_restored(store: TimelineStore) -> None:
    """Check that only the first commit and the restore are there, and void commits on storage without locks."""
    voids = [*names("c2"), f".hoodie/{hour(3)}.commit"] if is_without_locks(store) else []
    assert stored(store) == sorted([*names("c1 e4"), *voids, KEPT])
    assert store.load().commit_times == {hour(1)}
    record = record_of(store)
    assert (record["startRestoreTime"], record["timeTakenInMillis"]) == (hour(4), 0)
    assert record["instantsToRollback"] == [hour(3), hour(2)]
    done = {time: one[0] for time, one in record["hoodieRestoreMetadata"].items()}
    assert {time: one["instantsRollback"] for time, one in done.items()} == {
        time: [{"commitTime": time, "action": "commit"}] for time in (hour(3), hour(2))
    }
    deleted = {time: one["partitionMetadata"]["p"]["successDeleteFiles"] for time, one in done.items()}
    root = store.storage.location
    assert deleted == {hour(3): [f"{root}/{LATER}"], hour(2): [f"{root}/{GONE}"]}


@pytest.mark.parametrize("kind", [MemoryStorage, MemoryWithoutLocks])
def test_restore_rolls_back_all_that_came_after(kind: type[MemoryStorage], clock: SetClock) -> None:
    store, restore = begin_restore(kind(clock))
    undo_of(store, clock).restore(restore, RESTORE)
    assert_restored(store)
    if is_without_locks(store):
        assert read_state(store.storage)[0].undone_times == {hour(2), hour(3), hour(5), f"{hour(5)[:-1]}1"}
    undo_of(store, clock).restore(restore.at(State.INFLIGHT), RESTORE)  # Its process did not see that it is over.
    assert_restored(store)


@pytest.mark.parametrize("kind", [MemoryStorage, MemoryWithoutLocks])
@pytest.mark.parametrize("carried_out", [False, True])
def test_restore_that_died_goes_on_with_its_rollbacks(
    carried_out: bool, kind: type[MemoryStorage], clock: SetClock
) -> None:
    """The rollback of the last commit is planned or completed, but its claim is still there."""
    store, restore = begin_restore(kind(clock), "e4!")
    undoing = undo_of(store, clock)
    rollback = undoing.begin(instant("c3"), {"p": (base_name("a", hour(3)),)})
    if carried_out:
        undoing.roll_back(rollback, is_recorded=True)
        claim_plan(store.storage, rollback.time, token="")
    undoing.restore(restore, RESTORE)
    assert_restored(store)


def test_restore_leaves_rollbacks_alone_that_are_not_its_own(clock: SetClock) -> None:
    """One is older than the restore, one is of another commit, one has lost its plan."""
    store, restore = begin_restore(MemoryStorage(clock), "e4!")
    plans = {
        "b1": encode_rollback_plan(RollbackPlan(hour(2), "commit")),
        "b6": encode_rollback_plan(RollbackPlan(hour(1), "commit")),
    }
    others = put_instants(store, "b1 b6 b7", dict.fromkeys(("b1", "b6", "b7"), b"x"))
    for each in others:
        path = store.path(each.at(State.REQUESTED))
        store.storage.delete(path)
        word = f"b{int(each.time[8:10])}"
        if word in plans:
            store.storage.create(path, plans[word])
    undo_of(store, clock).restore(restore, RESTORE)
    assert store.load().of_action(Action.ROLLBACK) == others
    assert store.load().commit_times == {hour(1)}


def test_pending_write_that_a_restore_undoes_goes_by_its_names(clock: SetClock) -> None:
    plan = RestorePlan(((hour(2), "commit"),), hour(1))
    store = bare_store(MemoryStorage(clock))
    put_instants(store, "c1 c2! e4!", {"c1": commit_of([KEPT])})
    store.storage.replace(store.path(instant("e4?")), encode_restore_plan(plan))
    put_files(store, KEPT, GONE)
    undo_of(store, clock).restore(instant("e4!"), plan)
    assert stored(store) == sorted([*names("c1 e4"), KEPT])


def test_restore_of_nothing_lists_nothing(clock: SetClock) -> None:
    storage = FaultyStorage(MemoryStorage(clock))  # type: ignore[arg-type]
    store = bare_store(storage)
    plan = RestorePlan(((hour(2), "commit"),), hour(1))
    put_instants(store, "c1 e4!", {"e4!": b""})
    undo_of(store, clock).restore(instant("e4!"), plan)
    assert "" not in [call.path for call in storage.calls if call.name == "list"]


@pytest.mark.parametrize("locks", [True, False])
@pytest.mark.parametrize(
    ("word", "plan", "kind", "age", "target", "outcome"),
    [
        ("e4!", RESTORE, None, FOREIGN_GRACE_MS, None, rf"another program's .*run restore\('{hour(1)}'\) again"),
        ("e4!", RESTORE, None, FOREIGN_GRACE_MS, hour(2), rf"another program's .*run restore\('{hour(1)}'\) again"),
        ("e4?", RestorePlan((), ""), None, FOREIGN_GRACE_MS, hour(1), "another program's .*run the same restore again"),
        ("e4!", None, None, FOREIGN_GRACE_MS, hour(1), "another program's .*run the same restore again"),
        ("e4!", None, None, FOREIGN_GRACE_MS, None, "another program's .*run the same restore again"),
        ("e4!", RESTORE, None, FOREIGN_GRACE_MS - 1, hour(1), "is running in memory.*; wait for it"),
        ("e4!", RESTORE, None, FOREIGN_GRACE_MS, hour(1), "finished"),
        ("e4?", RESTORE, None, FOREIGN_GRACE_MS, hour(1), "finished"),
        ("e4!", RESTORE, "heartbeat", DEAD_AFTER_MS - 1, hour(1), "is running in memory.*; wait for it"),
        ("e4!", RESTORE, "heartbeat", DEAD_AFTER_MS, hour(2), "finished"),
        ("e4!", RESTORE, "heartbeat", DEAD_AFTER_MS, None, "finished"),
        ("e4?", RESTORE, "heartbeat", DEAD_AFTER_MS, None, "given up"),
        ("e4!", None, "heartbeat", DEAD_AFTER_MS, None, "given up"),
    ],
)
def test_restore_whose_process_died_is_finished_or_given_up(
    word: str, plan: RestorePlan | None, kind: str | None, age: int, target: str | None, outcome: str, locks: bool,
    clock: SetClock,
) -> None:  # fmt: skip
    store, restore = begin_restore(MemoryStorage(clock) if locks else MemoryWithoutLocks(clock), word, plan, kind)
    before = stored(store)
    clock.at_ms += age
    if outcome == "finished":
        finish_restores(undo_of(store, clock), [restore], restore_target=target)
        assert_restored(store)
    elif outcome == "given up" and not (is_without_locks(store) and word == "e4!"):
        finish_restores(undo_of(store, clock), [restore], restore_target=target)
        assert stored(store) == [path for path in before if hour(4) not in path]
        if not locks:
            assert read_state(store.storage)[0].undone_times == {hour(4)}
    else:
        with pytest.raises(PendingActionError, match=outcome if outcome != "given up" else "is running in memory"):
            finish_restores(undo_of(store, clock), [restore], restore_target=target)
        assert stored(store) == before


@pytest.mark.parametrize("kind", [None, "heartbeat"])
def test_restore_that_another_process_takes_over_is_left_to_it(kind: str | None, clock: SetClock) -> None:
    inner = MemoryWithoutLocks(clock)
    _, restore = begin_restore(inner, "e4!", kind=kind)
    clock.at_ms += FOREIGN_GRACE_MS

    def take(_: Call) -> None:
        inner.replace(claim_path(hour(4)), b'{"taken_over_by": "them"}')

    meanwhile = once(lambda call: call.name in ("create", "replace_if") and call.path == claim_path(hour(4)), take)
    store = TimelineStore(FaultyStorage(inner, meanwhile=meanwhile))  # type: ignore[arg-type]
    with pytest.raises(PendingActionError, match=r"restore\.inflight is running in memory.*; wait for it"):
        finish_restores(undo_of(store, clock), [restore], restore_target=hour(1))
    assert TimelineStore(inner).load(as_stored=True).commit_times == {hour(1), hour(2), hour(3)}


def test_restore_is_given_up_beside_a_completed_one(unlocked: TimelineStore, clock: SetClock) -> None:
    _, dead = put_instants(unlocked, "e3 e4?", {"e3": b"x"})
    claim_plan(unlocked.storage, dead.time, token="")
    clock.at_ms += DEAD_AFTER_MS
    finish_restores(undo_of(unlocked, clock), [dead])
    assert [each.time for each in unlocked.load().of_action(Action.RESTORE)] == [hour(3)]
    assert list_claimed_times(unlocked.storage) == {hour(2)}


# --- the metadata table -----------------------------------------------------------------------------------


def metadata_times(store: TimelineStore) -> set[str]:
    """Return the times of the deltacommits of the metadata table."""
    folder = store.storage.list(".hoodie/metadata/.hoodie")
    return {entry.name.partition(".")[0] for entry in folder if entry.name.endswith(".deltacommit")}


def test_metadata_table_follows_rollbacks_and_restores() -> None:
    """A restore records what goes once, not for each of its rollbacks."""
    batches = [a_batch(id=range(3), v=number) for number in range(4)]
    table = a_table(rows=batches, operation="upsert", version=6, **{"hoodie.metadata.enable": True})
    store, clock = table.context.store, table.context.clock
    first, second, third, fourth = (each.time for each in store.load().commits)
    assert {first, second, third, fourth} <= metadata_times(store)
    undoing = CommitUndo(store, store.config(), clock)
    last = store.load().commits[-1]
    given_up = undoing.begin(last, {})
    store.storage.create(f".hoodie/metadata/.hoodie/{given_up.time}.deltacommit", b"")
    undoing.give_up(given_up)
    rollback = undoing.begin(last, files_to_undo(last, store.read_commit(last), list_files(store.storage), frozenset()))
    undoing.roll_back(rollback)
    times = metadata_times(store)
    assert fourth not in times
    assert given_up.time not in times
    assert rollback.time in times
    assert not table.check()
    restored = table.restore(first)
    assert metadata_times(store) - times == {restored.instant_time}
    assert not {second, third} & metadata_times(store)
    assert not table.check()
    assert table.to_arrow(["v"]).to_pylist() == [{"v": 0}] * 3
    assert claim_instant(store, store.config(), clock, Action.COMMIT, Claim(PROCESS, None)).time > restored.instant_time
    assert own_path("pending", restored.instant_time) not in files_of(store.storage)
