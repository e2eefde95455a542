"""Other programs on the same table: their pending instants, and their actions on ours."""

from __future__ import annotations

import itertools
import json
import os
import time
from collections.abc import Callable
from pathlib import Path

import pytest

import lakeformat
from lakeformat.codec.timeline_files.commit import CHECKSUM_KEY
from lakeformat.codec.timeline_files.recovery import RollbackPlan, RollbackRequest, encode_rollback_plan
from lakeformat.config.resolve import resolve
from lakeformat.errors import WriteConflictError
from lakeformat.model.instant import Action, Instant, State
from lakeformat.storage import LocalStorage
from lakeformat.storage.port import OWN
from lakeformat.timeline.store import TimelineStore
from lakeformat.timeline.timeline_layout import LAYOUT_1
from lakeformat.transaction.order.claims import DEAD_AFTER_MS, FOREIGN_GRACE_MS, Claim, claim_instant
from lakeformat.transaction.undo.rollback import roll_back
from tests.helpers.faulty import Call, FaultyStorage, SteppingClock, UnlockedStorage, once
from tests.helpers.flights import NEXT, SCHEMA, WRITES, Model, Write, copy_of, leftovers, open_at, rows_of

UPSERT = WRITES[0]
#: A conflict is an error, not the beginning of another attempt.
ONCE = {"lakeformat.write.retries": 0}
#: No service reads the timeline after the write.
ALONE = {"hoodie.clean.automatic": False, "hoodie.archive.automatic": False, **ONCE}
FOREIGN = "20250101000001000"  # Later than the table's past, earlier than a real clock shows.
SECOND_MS = 1000


def age(path: Path, age_ms: int) -> None:
    """Set the age of a file."""
    then = time.time() - age_ms / 1000
    os.utime(path, (then, then))


def put_pending(storage: LocalStorage, age_ms: int, heartbeat_age_ms: int | None, *, inflight: bool = True) -> Path:
    """Write the files of a running writer that is not ours. Return its data file."""
    hoodie = Path(storage.root, ".hoodie")
    for name in (f"{FOREIGN}.commit.requested", f"{FOREIGN}.inflight")[: 1 + inflight]:
        (hoodie / name).write_bytes(b"")
        age(hoodie / name, age_ms)
    if heartbeat_age_ms is not None:
        (hoodie / ".heartbeat").mkdir(exist_ok=True)
        (hoodie / ".heartbeat" / FOREIGN).write_bytes(b"")
        age(hoodie / ".heartbeat" / FOREIGN, heartbeat_age_ms)
    data = Path(storage.root, "r0", f"0f-0_1-2-3_{FOREIGN}.parquet")
    data.write_bytes(b"half a file")
    return data


@pytest.mark.parametrize("inflight", [True, False], ids=["inflight", "requested"])
@pytest.mark.parametrize(
    ("age_ms", "heartbeat_age_ms", "is_respected"),
    [
        (6 * SECOND_MS, None, True),
        (FOREIGN_GRACE_MS - 30 * SECOND_MS, None, True),
        (FOREIGN_GRACE_MS + 30 * SECOND_MS, None, False),
        (FOREIGN_GRACE_MS * 10, DEAD_AFTER_MS - 30 * SECOND_MS, True),
        (30 * SECOND_MS, DEAD_AFTER_MS + 30 * SECOND_MS, False),
    ],
    ids=["new", "young", "old", "old but alive", "young but dead"],
)
def test_foreign_pending_write_is_rolled_back_only_once_it_is_dead(
    age_ms: int,
    heartbeat_age_ms: int | None,
    is_respected: bool,
    inflight: bool,
    template: tuple[Path, Model],
    tmp_path: Path,
) -> None:
    path, before = template
    storage = copy_of(path, tmp_path)
    data = put_pending(storage, age_ms, heartbeat_age_ms, inflight=inflight)
    table = lakeformat.Table(storage)
    assert rows_of(storage) == before
    NEXT.run(table)
    assert rows_of(storage) == NEXT.applied(before)
    assert data.exists() == is_respected
    pending = [instant.time for instant in table.snapshot().timeline.pending]
    assert pending == ([FOREIGN] if is_respected else [])
    if not is_respected:
        assert leftovers(storage) == []


def complete_foreign(storage: LocalStorage) -> None:
    """Complete the pending foreign write: it has changed the file groups of the newest commit, but no row."""
    store = TimelineStore(storage)
    same = store.read_commit(store.load().commits[-1])
    store.complete(Instant(FOREIGN, Action.COMMIT, State.INFLIGHT), same, SteppingClock())


@pytest.mark.parametrize("retries", [0, 1])
def test_foreign_write_that_was_pending_at_our_begin_and_completes_first_is_a_conflict(
    retries: int, template: tuple[Path, Model], tmp_path: Path
) -> None:
    """Its instant is earlier than ours. With another attempt we start from it."""
    path, before = template
    storage = copy_of(path, tmp_path)
    put_pending(storage, 0, 0).unlink()
    completing = once(lambda call: call.name == "open_output", lambda _: complete_foreign(storage))
    table = open_at(FaultyStorage(storage, meanwhile=completing), "writer", {"lakeformat.write.retries": retries})
    if retries:
        NEXT.run(table)
    else:
        with pytest.raises(WriteConflictError, match=f"overlaps commit {FOREIGN}"):
            NEXT.run(table)
    assert rows_of(storage) == (NEXT.applied(before) if retries else before)
    assert TimelineStore(storage).load().pending == ()


@pytest.mark.parametrize(
    ("heartbeat_age_ms", "lock", "is_refused"),
    [
        (0, {}, True),
        (DEAD_AFTER_MS + SECOND_MS, {}, False),
        (0, {"hoodie.write.concurrency.mode": "optimistic_concurrency_control"}, False),
    ],
    ids=["alive", "dead", "alive under a common lock"],
)
def test_without_a_common_lock_the_file_groups_of_a_live_foreign_write_are_not_changed(
    heartbeat_age_ms: int, lock: dict[str, str], is_refused: bool, template: tuple[Path, Model], tmp_path: Path
) -> None:
    """A job of Hudi in single-writer mode would not see our commit, and its files would hide ours."""
    path, before = template
    storage = copy_of(path, tmp_path)
    put_pending(storage, 0, heartbeat_age_ms)
    store = TimelineStore(storage)
    newest = store.read_commit(store.load().commits[-1])
    inflight = Path(storage.root, ".hoodie", f"{FOREIGN}.inflight")
    profile = json.loads(LAYOUT_1.encode_commit(newest, replace=False))
    del profile["extraMetadata"][CHECKSUM_KEY]  # A file of lakeformat has one.
    inflight.write_text(json.dumps(profile))
    table = lakeformat.Table(storage, resolve({**ONCE, **lock}))
    if is_refused:
        message = f"{FOREIGN}.inflight.*changing.*in 2 min.*concurrency.mode=optimistic_concurrency_control"
        with pytest.raises(WriteConflictError, match=message):
            NEXT.run(table)
        undone = [i.time for i in TimelineStore(storage).load().instants if i.action is Action.ROLLBACK]
        assert undone == []  # A try that failed leaves no rollback.
    else:
        NEXT.run(table)
    assert rows_of(storage) == (before if is_refused else NEXT.applied(before))


def test_commit_waits_for_a_foreign_write_with_an_earlier_instant_that_has_just_begun(
    template: tuple[Path, Model], tmp_path: Path
) -> None:
    """Hudi does not yet know which commits it is checked against. If it saw ours there, ours would hide its files."""
    path, before = template
    storage = copy_of(path, tmp_path)
    put_pending(storage, 0, 0, inflight=False).unlink()
    inflight = Path(storage.root, ".hoodie", f"{FOREIGN}.inflight")
    order: list[str] = []
    looks = itertools.count(1)

    def act(call: Call) -> None:
        if (call.name, call.path) == ("info", f".hoodie/{inflight.name}") and next(looks) == 2:
            inflight.write_bytes(b"")
            order.append("theirs began")
        elif call.name == "create" and call.path.endswith(".commit"):
            order.append("ours committed")

    NEXT.run(lakeformat.Table(FaultyStorage(storage, meanwhile=act), resolve(ALONE)))
    assert order == ["theirs began", "ours committed"]
    assert rows_of(storage) == NEXT.applied(before)


@pytest.mark.parametrize("is_alive", [True, False], ids=["alive", "dead"])
def test_foreign_rollback_is_finished_only_once_its_process_is_dead(
    is_alive: bool, template: tuple[Path, Model], tmp_path: Path
) -> None:
    path, before = template
    storage = copy_of(path, tmp_path)
    data = put_pending(storage, FOREIGN_GRACE_MS * 2, None)
    rollback = "20250101000002000"
    plan = RollbackPlan(FOREIGN, "commit", (RollbackRequest("r0", files_to_delete=(data.name,)),))
    requested = Path(storage.root, ".hoodie", f"{rollback}.rollback.requested")
    requested.write_bytes(encode_rollback_plan(plan))
    age(requested, 0 if is_alive else FOREIGN_GRACE_MS * 2)
    NEXT.run(lakeformat.Table(storage))
    assert rows_of(storage) == NEXT.applied(before)
    assert data.exists() == is_alive
    assert requested.with_name(f"{rollback}.rollback").exists() != is_alive


def test_no_write_starts_while_a_foreign_rollback_takes_back_a_completed_commit(
    template: tuple[Path, Model], tmp_path: Path
) -> None:
    path, before = template
    storage = copy_of(path, tmp_path)
    victim = TimelineStore(storage).load().commits[-1].time
    plan = RollbackPlan(victim, "commit", ())
    Path(storage.root, ".hoodie", f"{FOREIGN}.rollback.requested").write_bytes(encode_rollback_plan(plan))
    with pytest.raises(WriteConflictError, match=f"{FOREIGN}.rollback.requested is pending.*10 minutes after it died"):
        NEXT.run(open_at(storage, "writer", ONCE))
    assert rows_of(storage) == before


def test_foreign_clustering_plan_is_never_rolled_back(template: tuple[Path, Model], tmp_path: Path) -> None:
    path, before = template
    storage = copy_of(path, tmp_path)
    plan = Path(storage.root, ".hoodie", f"{FOREIGN}.replacecommit.requested")
    plan.write_bytes(b"")
    age(plan, FOREIGN_GRACE_MS * 10)
    NEXT.run(lakeformat.Table(storage))
    assert rows_of(storage) == NEXT.applied(before)
    assert plan.exists()


def roll_back_pending(storage: LocalStorage) -> None:
    """Roll back our pending write, like another program that takes its writer for dead and knows no stage folder."""
    store = TimelineStore(storage)
    for instant in store.load().pending:
        roll_back(store, store.config(), SteppingClock(), instant, keeps_stage=True)


def last_look() -> Callable[[Call], bool]:
    """Return a condition for the listing from which the commit is decided: the first one after inflight."""
    seen: list[Call] = []

    def when(call: Call) -> bool:
        if call.path.endswith("inflight"):
            seen.append(call)
        return bool(seen) and (call.name, call.path) == ("list", ".hoodie")

    return when


MOMENTS: dict[str, Callable[[], Callable[[Call], bool]]] = {
    "before inflight": lambda: lambda call: call.name == "create" and call.path.endswith("inflight"),
    "before the first file": lambda: lambda call: call.name == "touch" and "/.temp/" in call.path,
    "during the first file": lambda: lambda call: call.name in {"open_output", "move"},
    "before the commit": last_look,
}


@pytest.mark.parametrize(
    ("moment", "write"),
    [(moment, write) for moment in MOMENTS for write in WRITES if write.writes_files or "file" not in moment],
    ids=lambda value: getattr(value, "operation", value),
)
def test_foreign_rollback_of_our_pending_instant_fails_our_write(
    moment: str, write: Write, template: tuple[Path, Model], tmp_path: Path
) -> None:
    """No reader sees half of the write, and files written after the rollback do not stay."""
    path, before = template
    storage = copy_of(path, tmp_path)
    faulty = FaultyStorage(storage, meanwhile=once(MOMENTS[moment](), lambda _: roll_back_pending(storage)))
    with pytest.raises(WriteConflictError, match=r"another writer.*concurrency\.mode=optimistic_concurrency_control"):
        write.run(open_at(faulty, "writer", ONCE))
    assert rows_of(storage) == before
    assert leftovers(storage) == []
    NEXT.run(open_at(storage, "next"))
    assert rows_of(storage) == NEXT.applied(before)


def test_foreign_rollback_of_the_first_write_fails_it(tmp_path: Path) -> None:
    """Files older than the first commit count as archived ones, so none may stay."""
    path = tmp_path / "new"
    lakeformat.create(path, SCHEMA, record_key="id", partition_by="region")
    storage = LocalStorage(str(path))
    faulty = FaultyStorage(
        storage, meanwhile=once(lambda call: call.name == "open_output", lambda _: roll_back_pending(storage))
    )
    with pytest.raises(WriteConflictError):
        UPSERT.run(open_at(faulty, "writer", ONCE))
    NEXT.run(open_at(storage, "next"))
    assert rows_of(storage) == NEXT.applied({})
    assert leftovers(storage) == []


def test_instant_time_taken_by_a_foreign_writer_is_not_used(template: tuple[Path, Model], tmp_path: Path) -> None:
    """We take the next instant. Nothing makes the foreign instant look like a dead write of ours."""
    path, before = template
    storage = copy_of(path, tmp_path)
    taken: list[Path] = []

    def take_first(call: Call) -> None:
        taken.append(Path(storage.root, call.path))
        taken[0].write_bytes(b"")
        age(taken[0], 6 * SECOND_MS)

    is_request = once(lambda call: call.path.endswith(".commit.requested"), take_first)
    UPSERT.run(lakeformat.Table(FaultyStorage(storage, meanwhile=is_request)))
    assert rows_of(storage) == UPSERT.applied(before)
    NEXT.run(lakeformat.Table(storage))
    assert rows_of(storage) == NEXT.applied(UPSERT.applied(before))
    assert taken[0].exists()


def test_write_with_a_heartbeat_is_left_alone(template: tuple[Path, Model], tmp_path: Path) -> None:
    """A Spark job holds no lock while its tasks run. Others commit beside it, and it commits after them."""
    path, before = template
    storage = copy_of(path, tmp_path)
    store = TimelineStore(storage)
    table = lakeformat.Table(storage)
    with storage.lock(1):
        job = claim_instant(
            store, table.config, table.context.clock, Action.COMMIT, Claim("heartbeat", table.context.ids.token())
        )
    NEXT.run(table)
    assert rows_of(storage) == NEXT.applied(before)
    assert [instant.time for instant in store.load().pending] == [job.time]

    age(Path(storage.root, ".hoodie/.heartbeat", job.time), DEAD_AFTER_MS + SECOND_MS)
    UPSERT.run(table)
    assert rows_of(storage) == UPSERT.applied(NEXT.applied(before))
    assert leftovers(storage) == []


def test_two_overwrites_from_one_snapshot_conflict(template: tuple[Path, Model], tmp_path: Path) -> None:
    """An overwrite that was planned before another commit would drop rows that it never saw."""
    path, before = template
    storage = copy_of(path, tmp_path)
    overwrite = WRITES[4]
    faulty = FaultyStorage(
        storage, meanwhile=once(lambda call: call.name == "lock", lambda _: NEXT.run(lakeformat.Table(storage)))
    )
    with pytest.raises(WriteConflictError, match="run the write again"):
        overwrite.run(open_at(faulty, "writer", ONCE))
    assert rows_of(storage) == NEXT.applied(before)
    assert leftovers(storage) == []


@pytest.mark.parametrize("operation", ["update", "delete where", "merge"])
def test_foreign_commit_between_planning_and_claim_is_a_conflict(
    operation: str, template: tuple[Path, Model], tmp_path: Path
) -> None:
    """The commit comes after we have read the timeline and before we have an instant: its rows are not lost."""
    path, before = template
    storage = copy_of(path, tmp_path)
    (write,) = (write for write in WRITES if write.operation == operation)
    foreign = once(
        lambda call: call.changes and f"{OWN}/pending/" in call.path,
        lambda _: NEXT.run(lakeformat.Table(UnlockedStorage(storage.root))),
    )
    with pytest.raises(WriteConflictError, match="overlaps commit"):
        write.run(open_at(FaultyStorage(storage, meanwhile=foreign), "writer", ALONE))
    assert rows_of(storage) == NEXT.applied(before)
    assert leftovers(storage) == []


@pytest.mark.parametrize("look", range(1, 9))
@pytest.mark.parametrize("operation", ["upsert", "delete", "overwrite", "update", "delete where", "merge"])
def test_foreign_commit_at_any_listing_loses_no_row(
    operation: str, look: int, template: tuple[Path, Model], tmp_path: Path
) -> None:
    """We conflict with the commit or start from it: its rows are not lost."""
    path, before = template
    storage = copy_of(path, tmp_path)
    (write,) = (write for write in WRITES if write.operation == operation)
    looks, landed = itertools.count(1), []

    def land(_: Call) -> None:
        theirs = lakeformat.Table(UnlockedStorage(storage.root))
        landed.append(len(theirs.snapshot().timeline.commits))
        NEXT.run(theirs)

    foreign = once(lambda call: (call.name, call.path) == ("list", ".hoodie") and next(looks) == look, land)
    try:
        write.run(open_at(FaultyStorage(storage, meanwhile=foreign), "writer", ALONE))
    except WriteConflictError:
        assert rows_of(storage) == NEXT.applied(before)
    else:
        first = len(lakeformat.Table(LocalStorage(str(path))).snapshot().timeline.commits)
        came_first = write.applied(NEXT.applied(before) if landed else before)
        came_last = NEXT.applied(write.applied(before))  # It came after our commit, during our services.
        assert rows_of(storage) == (came_last if landed and landed[0] > first else came_first)
    assert leftovers(storage) == []


def test_pending_actions_other_than_writes_are_ignored(template: tuple[Path, Model], tmp_path: Path) -> None:
    path, before = template
    storage = copy_of(path, tmp_path)
    clean = Instant(FOREIGN, Action.CLEAN, State.REQUESTED)
    Path(storage.root, LAYOUT_1.path(clean)).write_bytes(b"")
    NEXT.run(lakeformat.Table(storage))
    assert rows_of(storage) == NEXT.applied(before)
