"""The rollback of dead writers step by step: what it leaves, whatever was done before or others do meanwhile."""

from __future__ import annotations

import json

import pytest

from lakeformat.codec.timeline_files.recovery import (
    RollbackMetadata,
    RollbackPartition,
    RollbackPlan,
    RollbackRequest,
    decode_rollback,
    encode_rollback,
    encode_rollback_plan,
)
from lakeformat.errors import CorruptTableError, WriteConflictError
from lakeformat.file_system_view.file_groups import list_files
from lakeformat.file_system_view.hashing_rings import StoredRings, stored_paths
from lakeformat.files.log_writer import encode_rollback_block
from lakeformat.model.instant import Action, Instant, State
from lakeformat.storage import MemoryStorage
from lakeformat.timeline.store import TimelineStore
from lakeformat.transaction.order.claims import HEARTBEATS, claim_path
from lakeformat.transaction.order.decisions import Decision, Kind, decide, read_state
from lakeformat.transaction.order.written_file import stage_folder
from lakeformat.transaction.undo.rollback import finish_rollback, revert_run, roll_back, was_rolled_back
from lakeformat.transaction.undo.traces import delete_files_of, list_files_of
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
from tests.helpers.faulty import Call, FaultyStorage, SetClock, is_decided, once
from tests.helpers.short_timelines import hour, instant
from tests.helpers.tables import a_batch, a_table

#: The clock's time, which is hour 5. The instants of the tables are older.
NOW = 1_767_225_600_000 + 5 * 3_600_000
WRITE = "0123456789abcdef" * 2
STAGED = f"{stage_folder(WRITE)}/rows"
KEPT = f"p/{base_name('a', hour(1))}"
#: Files of the dead writer: a base file, change data, and a log file of its own slice.
BASE, CHANGES, LOG = (
    f"p/{name}" for name in (base_name("a", hour(2)), f"{log_name('a', hour(2))}.cdc", log_name("b", hour(2)))
)


@pytest.fixture
def clock() -> SetClock:
    return SetClock(NOW)


@pytest.fixture(params=[MemoryStorage, MemoryWithoutLocks])
def store(request: pytest.FixtureRequest, clock: SetClock) -> TimelineStore:
    """Return a table of one commit."""
    return one_commit(request.param(clock))


@pytest.fixture
def unlocked(clock: SetClock) -> TimelineStore:
    return one_commit(MemoryWithoutLocks(clock))


def one_commit(storage: MemoryStorage) -> TimelineStore:
    store = bare_store(storage)
    put_instants(store, "c1", {"c1": commit_of([KEPT])})
    put_files(store, KEPT)
    return store


def marker_of(path: str) -> str:
    return f".hoodie/.temp/{hour(2)}/{path}.marker.CREATE"


def die(store: TimelineStore, word: str, *files: str, claims: bool = True) -> Instant:
    """Leave what a dead writer of hour 2 leaves: its instant, files, markers, staged rows, claim and heartbeat."""
    found = put_instants(store, word)
    put_files(store, *files)
    for file in files:
        store.storage.create(marker_of(file), b"")
    if claims:
        claim(store)
    return found[0] if found else instant("c2!")


def claim(store: TimelineStore) -> None:
    store.storage.create(STAGED, b"")
    store.storage.create(claim_path(hour(2)), json.dumps({"kind": "process", "lakeformat.token": WRITE}).encode())
    store.storage.touch(f"{HEARTBEATS}/{hour(2)}")


def undo(store: TimelineStore, clock: SetClock, victim: Instant, *, keeps_stage: bool = False) -> bool:
    return roll_back(store, store.config(), clock, victim, keeps_stage=keeps_stage)


def plan_of(*requests: RollbackRequest, action: str = "commit") -> bytes:
    return encode_rollback_plan(RollbackPlan(hour(2), action, requests))


def disturbed(store: TimelineStore, when: object, act: object) -> TimelineStore:
    """Return the table as seen by a process that another one disturbs once."""
    return TimelineStore(FaultyStorage(store.storage, meanwhile=once(when, act)))  # type: ignore[arg-type]


# --- the rollback of a write ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("word", "gone"),
    [
        ("c2?", [CHANGES, LOG, BASE]),
        ("c2!", [CHANGES, LOG, BASE]),
        ("d2!", [CHANGES, LOG, BASE]),
        ("r2!", [CHANGES, LOG, BASE]),
        ("k2!", [CHANGES, BASE]),  # Other writers have written the log file to the slice that the plan opened.
    ],
)
def test_rollback_leaves_nothing_of_a_dead_write(
    word: str, gone: list[str], store: TimelineStore, clock: SetClock
) -> None:
    other = f"q/{base_name('c', hour(3))}"
    put_files(store, other)
    before = stored(store)
    assert undo(store, clock, die(store, word, BASE, CHANGES, LOG))
    assert stored(store) == sorted({*before, *names("b5"), LOG} - set(gone))
    assert store.load().commit_times == {hour(1)}
    root, victim = store.storage.location, instant(word)
    bare = tuple(path.rpartition("/")[2] for path in gone)
    plan = store.read_rollback_plan(instant("b5"))
    assert plan == RollbackPlan(
        hour(2), victim.action.value, (RollbackRequest("p", files_to_delete=tuple(f"{root}/{path}" for path in gone)),)
    )
    assert decode_rollback(store.storage.read(names("b5")[0]), name="") == RollbackMetadata(
        hour(5), 0, ((hour(2), victim.action.value),), (RollbackPartition("p", bare),)
    )
    if not store.storage.has_lock:
        assert read_state(store.storage)[0].undone == (f"{hour(2)}/{WRITE}",)


@pytest.mark.parametrize(
    ("word", "claims", "is_marked", "is_listed"),
    [
        ("c2!", True, True, False),
        ("d2!", True, True, False),
        ("c2!", True, False, True),  # It died before its first marker.
        ("c2!", False, True, True),  # It is another program's.
        ("k2!", True, True, True),  # An earlier run of the plan may have left files after its markers had gone.
        ("r2!", True, True, True),
    ],
)
def test_markers_name_the_files_of_our_writes(
    word: str, claims: bool, is_marked: bool, is_listed: bool, store: TimelineStore, clock: SetClock
) -> None:
    """What is listed has the base file of another partition, too, which has no marker."""
    unmarked, unwritten = f"q/{base_name('c', hour(2))}", f"p/{base_name('e', hour(2))}"
    victim = die(store, word, *([BASE] if is_marked else []), claims=claims)
    if is_marked:
        store.storage.create(marker_of(unwritten), b"")
    put_files(store, unmarked)
    assert undo(store, clock, victim)
    plan = store.read_rollback_plan(instant("b5"))
    assert plan is not None
    root = store.storage.location
    named = [path.removeprefix(f"{root}/") for request in plan.requests for path in request.files_to_delete]
    assert named == [*([BASE] if is_marked else []), *([unmarked] if is_listed else [])]
    assert [path for path in stored(store) if path.startswith(("p/", "q/"))] == sorted(
        [KEPT, *([] if is_listed else [unmarked])]
    )


def test_writer_that_undoes_itself_may_keep_its_staged_rows(store: TimelineStore, clock: SetClock) -> None:
    before = stored(store)
    assert undo(store, clock, die(store, "c2!", BASE), keeps_stage=True)
    assert stored(store) == sorted([*before, *names("b5"), STAGED])


@pytest.mark.parametrize("claim", [None, b"{}"])
def test_write_that_names_no_run_is_undone_for_good(claim: bytes | None, store: TimelineStore, clock: SetClock) -> None:
    """It is another program's, or its claim is damaged."""
    before = stored(store)
    victim = die(store, "c2!", BASE, claims=False)
    if claim is not None:
        store.storage.create(claim_path(hour(2)), claim)
    assert undo(store, clock, victim)
    assert stored(store) == sorted([*before, *names("b5")])
    if not store.storage.has_lock:
        assert read_state(store.storage)[0].undone == (hour(2),)


def test_completed_write_is_not_rolled_back(store: TimelineStore, clock: SetClock) -> None:
    victim = die(store, "c2", BASE)
    before = files_of(store.storage)
    assert not undo(store, clock, victim.at(State.INFLIGHT))
    assert files_of(store.storage) == before


@pytest.mark.parametrize(
    ("word", "of", "is_done"),
    [
        ("b3?", 2, False),
        ("b3!", 2, False),
        ("b3?", 1, True),  # It undoes another write.
        ("b3", 2, True),  # The write has begun anew.
    ],
)
def test_write_that_another_process_is_undoing_is_left_to_it(
    word: str, of: int, is_done: bool, store: TimelineStore, clock: SetClock
) -> None:
    (rollback,) = put_instants(store, word, {"b3": encode_rollback(RollbackMetadata(hour(3), 0, ()))})
    store.storage.replace(
        store.path(rollback.at(State.REQUESTED)), encode_rollback_plan(RollbackPlan(hour(of), "commit"))
    )
    victim = die(store, "c2!", BASE)
    before = files_of(store.storage)
    assert undo(store, clock, victim) is is_done
    assert (store.load().find(hour(2)) is None) is is_done
    assert is_done or files_of(store.storage) == before


def test_pending_rollback_without_a_plan_undoes_nothing(store: TimelineStore, clock: SetClock) -> None:
    (lost,) = put_instants(store, "b3!")
    store.storage.delete(store.path(lost.at(State.REQUESTED)))
    assert undo(store, clock, die(store, "c2!", BASE))
    assert store.storage.info(BASE) is None


def is_claimed(call: Call) -> bool:
    """Tell whether the call claims the rollback, after the first look at the timeline."""
    return call.name == "create" and call.path == claim_path(hour(5))


@pytest.mark.parametrize("event", ["completed", "gone", "undone by another"])
def test_rollback_looks_again_before_it_decides(event: str, store: TimelineStore, clock: SetClock) -> None:
    victim = die(store, "c2!", BASE)

    def act(_: Call) -> None:
        if event == "completed":
            store.storage.create(store.path(instant("c2")), b"")
        elif event == "gone":
            store.erase(victim)
        else:
            store.storage.create(store.path(instant("b4?")), plan_of())
        before.extend(files_of(store.storage))

    before: list[str] = []
    assert not undo(disturbed(store, is_claimed, act), clock, victim)
    assert before
    assert files_of(store.storage) == before


def test_rollback_that_was_taken_for_dead_does_not_begin(unlocked: TimelineStore, clock: SetClock) -> None:
    victim = die(unlocked, "c2!", BASE)

    def give_up(_: Call) -> None:
        decide(unlocked, lambda *_: Decision(kind=Kind.REMOVE, instant_time=hour(5), undoes=hour(5)))
        before.extend(stored(unlocked))

    before: list[str] = []
    assert not undo(disturbed(unlocked, is_decided, give_up), clock, victim)
    assert stored(unlocked) == [path for path in before if hour(5) not in path]
    assert BASE in before


# --- log files that others have begun ---------------------------------------------------------------------

SHARED = f"p/{log_name('a', hour(1))}"
CANCEL = f"p/.a-0_{hour(1)}.log.2_1-0-1"


@pytest.mark.parametrize(
    ("claims", "is_marked", "has_block", "is_cancelled"),
    [
        (True, True, False, True),  # Our writers name each log file in a marker first.
        (True, False, True, False),
        (False, True, False, False),  # The log files of other programs are read.
        (False, False, True, True),
    ],
)
def test_blocks_in_a_log_file_of_an_older_slice_are_cancelled(
    claims: bool, is_marked: bool, has_block: bool, is_cancelled: bool, store: TimelineStore, clock: SetClock
) -> None:
    victim = die(store, "d2!", BASE, claims=claims)
    put_files(store, SHARED)
    data = encode_rollback_block(instant_time=hour(2 if has_block else 1), target=hour(0))
    store.storage.replace(SHARED, data)
    if is_marked:
        store.storage.create(f".hoodie/.temp/{hour(2)}/{SHARED}.marker.APPEND", b"")
    assert undo(store, clock, victim)
    block = encode_rollback_block(instant_time=hour(5), target=hour(2))
    assert [path for path in stored(store) if not path.startswith(".hoodie")] == sorted(
        [KEPT, SHARED, *([CANCEL] if is_cancelled else [])]
    )
    (done,) = decode_rollback(store.storage.read(names("b5")[0]), name="").partitions
    assert done.deleted_files == (BASE.rpartition("/")[2],)
    if is_cancelled:
        assert store.storage.read(CANCEL) == block
        assert done.rollback_log_files == {CANCEL.rpartition("/")[2]: len(block)}
        assert done.log_files_of_failed_commit == {SHARED.rpartition("/")[2]: len(data)}


def test_layout_with_completion_times_cancels_no_blocks(clock: SetClock) -> None:
    """There each log file has the instant of its writer."""
    store = bare_store(MemoryStorage(clock), hoodie_table_version="8", hoodie_timeline_layout_version="2")
    victim = die(store, "d2!", SHARED)
    store.storage.create(f".hoodie/.temp/{hour(2)}/{SHARED}.marker.APPEND", b"")
    assert undo(store, clock, victim)
    assert [path for path in stored(store) if not path.startswith(".hoodie")] == [SHARED]


# --- a write that is no longer on the timeline ------------------------------------------------------------


@pytest.mark.parametrize("keeps_stage", [False, True])
@pytest.mark.parametrize("rolled_back", [False, True])
def test_late_files_of_a_rolled_back_write_are_deleted(
    rolled_back: bool, keeps_stage: bool, store: TimelineStore, clock: SetClock
) -> None:
    """On storage without locks an upgrade may have removed the write, so they are deleted there in any case."""
    if rolled_back:
        (done,) = put_instants(store, "b3", {"b3": encode_rollback(RollbackMetadata(hour(3), 0, ()))})
        store.storage.replace(store.path(done.at(State.REQUESTED)), plan_of())
    before = stored(store)
    victim = die(store, "", BASE, CHANGES)
    assert undo(store, clock, victim, keeps_stage=keeps_stage)
    late = [] if rolled_back or not store.storage.has_lock else [BASE, CHANGES, marker_of(BASE), marker_of(CHANGES)]
    assert stored(store) == sorted([*before, *late, *([STAGED] if keeps_stage else [])])
    if not store.storage.has_lock:
        assert read_state(store.storage)[0].undone == (hour(2),)


@pytest.mark.parametrize(
    ("word", "of", "found"),
    [("b3", 2, True), ("b3!", 2, True), ("b3?", 2, True), ("b3", 4, False), ("b1", 2, False), ("", 0, False)],
)
def test_write_was_rolled_back_if_a_later_rollback_names_it(word: str, of: int, found: bool) -> None:
    store = bare_store()
    for rollback in put_instants(store, word):
        store.storage.replace(
            store.path(rollback.at(State.REQUESTED)), encode_rollback_plan(RollbackPlan(hour(of), "commit"))
        )
    put_instants(store, "b9")
    store.storage.delete(store.path(instant("b9?")))
    assert was_rolled_back(store, store.load(), hour(2)) is found


# --- the run of a plan ------------------------------------------------------------------------------------


def test_plan_stays_when_its_run_is_undone(store: TimelineStore) -> None:
    plan = instant("k2?")
    before = sorted([*stored(store), LOG, *names("k2?")])
    revert_run(store, die(store, "k2!", BASE, CHANGES, LOG))
    assert stored(store) == before
    assert store.load().find(hour(2)) == plan
    if not store.storage.has_lock:
        assert read_state(store.storage)[0].undone == (f"{hour(2)}/{WRITE}",)


def test_run_that_has_completed_leaves_only_its_files(store: TimelineStore) -> None:
    before = sorted([*stored(store), BASE, *names("k2!"), f".hoodie/{hour(2)}.commit"])
    run = die(store, "k2!", BASE)
    store.storage.create(store.path(instant("c2")), b"")
    revert_run(store, run)
    assert files_of(store.storage) == before


def test_run_without_a_claim_has_been_undone_already(store: TimelineStore) -> None:
    run = die(store, "k2!", BASE, claims=False)
    before = files_of(store.storage)
    revert_run(store, run)
    assert files_of(store.storage) == before


def test_run_of_another_kind_of_claim_is_undone(unlocked: TimelineStore) -> None:
    """A claim that another release has written names no write."""
    before = sorted([*stored(unlocked), *names("k2?")])
    run = die(unlocked, "k2!", BASE, claims=False)
    unlocked.storage.create(claim_path(hour(2)), b"{}")
    revert_run(unlocked, run)
    assert stored(unlocked) == before
    assert read_state(unlocked.storage)[0].undone == (f"{hour(2)}/",)


def is_listing_of_files(call: Call) -> bool:
    return call.name == "list" and call.path == ""


@pytest.mark.parametrize("event", ["a new run", "completed", "gone"])
def test_files_of_a_new_run_are_not_deleted(event: str, unlocked: TimelineStore) -> None:
    """Another process undoes the run and begins a new one, or the plan ends, when the files of the run are listed."""
    run = die(unlocked, "k2!", BASE)

    def act(_: Call) -> None:
        if event == "a new run":
            unlocked.storage.replace(claim_path(hour(2)), b'{"kind": "process"}')
        elif event == "completed":
            unlocked.storage.create(store_path, b"")
        else:
            unlocked.erase(run)

    store_path = unlocked.path(instant("c2"))
    revert_run(disturbed(unlocked, is_listing_of_files, act), run)
    left = stored(unlocked)
    assert BASE in left
    assert (claim_path(hour(2)) in left, marker_of(BASE) in left) == (
        (True, True) if event == "a new run" else (False, False)
    )


@pytest.mark.parametrize("is_completed", [True, False])
def test_run_that_ends_before_its_undo_is_decided_keeps_all(is_completed: bool, unlocked: TimelineStore) -> None:
    run = die(unlocked, "k2!", BASE)

    def act(_: Call) -> None:
        if is_completed:
            unlocked.storage.create(unlocked.path(instant("c2")), b"")
        else:
            unlocked.erase(run)
        decide(unlocked, lambda *_: Decision(kind=Kind.PLAN, instant_time=hour(4)))
        before.extend(stored(unlocked))

    before: list[str] = []
    revert_run(disturbed(unlocked, is_decided, act), run)
    assert {BASE, marker_of(BASE), STAGED, claim_path(hour(2))} < set(before)
    assert stored(unlocked) == before


# --- a rollback that has begun ----------------------------------------------------------------------------


def begun(store: TimelineStore, word: str = "b4?", plan: bytes | None = None) -> Instant:
    """Store the plan of a rollback of hour 2 that deletes the base file."""
    (rollback,) = put_instants(store, word)
    request = RollbackRequest("p", files_to_delete=(f"s3://elsewhere/q/{BASE.rpartition('/')[2]}",))
    store.storage.replace(store.path(rollback.at(State.REQUESTED)), plan_of(request) if plan is None else plan)
    return rollback


@pytest.mark.parametrize("word", ["b4?", "b4!"])
@pytest.mark.parametrize("victim", ["c2!", "c2?", ""])
def test_rollback_that_has_begun_is_finished(word: str, victim: str, store: TimelineStore, clock: SetClock) -> None:
    """Its staged rows stay for a writer that undoes itself. The paths of the plan may be those of another machine."""
    elsewhere = BASE.replace("p/", "q/", 1)
    put_files(store, elsewhere)
    before = stored(store)
    die(store, victim, BASE)
    store.storage.create(claim_path(hour(4)), b"{}")
    finish_rollback(store, begun(store, word), clock)
    assert stored(store) == sorted([*before, STAGED, *names("b4")])
    (done,) = decode_rollback(store.storage.read(names("b4")[0]), name="").partitions
    assert done == RollbackPartition("p", (BASE.rpartition("/")[2],))


def test_dead_writers_rollback_also_removes_the_staged_rows(store: TimelineStore, clock: SetClock) -> None:
    before = stored(store)
    die(store, "c2!", BASE)
    finish_rollback(store, begun(store), clock, deletes_stage=True)
    assert stored(store) == sorted([*before, *names("b4")])


def test_rollback_of_a_write_that_has_completed_since_changes_nothing(store: TimelineStore, clock: SetClock) -> None:
    die(store, "c2", BASE, claims=False)
    before = stored(store)
    finish_rollback(store, begun(store), clock)
    assert stored(store) == sorted([*before, *names("b4")])
    assert decode_rollback(store.storage.read(names("b4")[0]), name="").partitions == ()
    assert store.load().commit_times == {hour(1), hour(2)}


def test_results_of_one_partition_are_joined(store: TimelineStore, clock: SetClock) -> None:
    logs = [f"{path}/{log_name(name, hour(1))}" for path, name in (("p", "x"), ("p", "y"), ("q", "z"))]
    put_files(store, *logs, BASE)
    requests = [
        RollbackRequest(path.partition("/")[0], log_blocks_to_delete={path: size}) for size, path in enumerate(logs)
    ]
    deletion = RollbackRequest("p", files_to_delete=(BASE, f"p/{base_name('absent', hour(2))}"))
    finish_rollback(store, begun(store, plan=plan_of(*requests, deletion)), clock)
    found = decode_rollback(store.storage.read(names("b4")[0]), name="").partitions
    size = len(encode_rollback_block(instant_time=hour(4), target=hour(2)))
    bare = [path.rpartition("/")[2] for path in logs]
    cancelling = [f".{name}-0_{hour(1)}.log.2_1-0-1" for name in "xyz"]
    assert found == (
        RollbackPartition(
            "p",
            (base_name("a", hour(2)), base_name("absent", hour(2))),
            rollback_log_files=dict.fromkeys(cancelling[:2], size),
            log_files_of_failed_commit={bare[0]: 0, bare[1]: 1},
        ),
        RollbackPartition("q", rollback_log_files={cancelling[2]: size}, log_files_of_failed_commit={bare[2]: 2}),
    )


def test_plan_that_leads_out_of_the_table_is_refused(store: TimelineStore, clock: SetClock) -> None:
    plan = plan_of(RollbackRequest("../p", files_to_delete=("x",)))
    with pytest.raises(CorruptTableError, match="leads out of the table"):
        finish_rollback(store, begun(store, plan=plan), clock)


def test_rollback_without_a_plan_is_refused(store: TimelineStore, clock: SetClock) -> None:
    before = [*stored(store), *names("b4?")]
    with pytest.raises(CorruptTableError, match=rf"{hour(4)}\.rollback\.requested is empty; delete it and run again"):
        finish_rollback(store, begun(store, plan=b""), clock)
    assert stored(store) == sorted(before)


@pytest.mark.parametrize("state", [State.INFLIGHT, State.COMPLETED])
def test_rollback_that_another_process_carries_out_is_a_conflict(
    state: State, store: TimelineStore, clock: SetClock
) -> None:
    rollback = begun(store, "b4?" if state is State.INFLIGHT else "b4!")
    store.storage.create(store.path(instant("b4").at(state)), b"theirs")
    with pytest.raises(WriteConflictError, match=rf"another writer is carrying out \.hoodie/{hour(4)}\.rollback"):
        finish_rollback(store, rollback, clock)
    assert store.storage.read(store.path(instant("b4").at(state))) == b"theirs"


@pytest.mark.parametrize(
    ("word", "reverts", "stays"),
    [("r2!", False, [hour(1)]), ("c2!", False, [hour(1), hour(2)]), ("r2!", True, [hour(1)])],
)
def test_rings_of_an_undone_replacecommit_are_taken_back(
    word: str, reverts: bool, stays: list[str], store: TimelineStore, clock: SetClock
) -> None:
    for time in (hour(1), hour(2)):
        for path in stored_paths(StoredRings("p", (time,), frozenset()), time):
            store.storage.create(path, b"")
    victim = die(store, word)
    if reverts:
        revert_run(store, victim)
    else:
        assert undo(store, clock, victim)
    rings = [path for path in stored(store) if path.endswith(".hashing_meta")]
    assert [path.rpartition("/")[2].partition(".")[0] for path in rings] == stays


# --- lists of files ---------------------------------------------------------------------------------------


def test_files_are_found_by_the_instant_in_their_names(store: TimelineStore) -> None:
    put_files(store, BASE, CHANGES, LOG, f"q/{base_name('c', hour(2))}", f"q/{log_name('d', hour(3))}", "p/other")
    bases = {f"q/{base_name('c', hour(2))}"}
    assert {file.path for file in list_files_of(store, {hour(2)}, logs=False)} == {BASE, CHANGES, *bases}
    assert {file.path for file in list_files_of(store, {hour(2)})} == {BASE, CHANGES, LOG, *bases}
    before = stored(store)
    delete_files_of(store, frozenset({hour(2), hour(4)}))
    assert set(before) - set(stored(store)) == {BASE, CHANGES, LOG, *bases}


def put_future(store: TimelineStore, action: Action, number: int) -> Instant:
    """Begin an instant that is later than those of the clock."""
    victim = Instant(f"2099010100000000{number}", action, State.INFLIGHT)
    for state in (State.REQUESTED, State.INFLIGHT):
        store.storage.create(store.path(victim.at(state)), b"")
    return victim


def test_metadata_table_forgets_an_undone_write() -> None:
    table = a_table(rows=[a_batch(id=1)], version=6, **{"hoodie.metadata.enable": True})
    store, clock = table.context.store, table.context.clock
    for number, action in enumerate(("revert", "roll back")):
        victim = put_future(store, Action.COMMIT, number)
        late = f".hoodie/metadata/.hoodie/{victim.time}.deltacommit"
        store.storage.create(late, b"")
        store.storage.create(claim_path(victim.time), b"{}")
        if action == "revert":
            revert_run(store, victim)
        else:
            assert roll_back(store, table.config, clock, victim)
        assert store.storage.info(late) is None


def test_metadata_table_lists_the_log_files_that_stay() -> None:
    """A write has died that had appended to a log file of a commit."""
    batches = [a_batch(id=1, v=number) for number in range(2)]
    options = {"hoodie.metadata.enable": True}
    table = a_table(rows=batches, operation="upsert", version=6, merge_on_read=True, **options)
    store, clock = table.context.store, table.context.clock
    (log,) = list_files(store.storage).logs
    victim = put_future(store, Action.DELTA_COMMIT, 1)
    appended = log.path.replace(".log.1_", ".log.2_")
    store.storage.create(appended, encode_rollback_block(instant_time=victim.time, target=hour(0)))
    assert roll_back(store, table.config, clock, victim)
    assert len(list_files(store.storage).logs) == 3
    assert not table.check()
    assert table.to_arrow(["v"]).to_pylist() == [{"v": 1}]
