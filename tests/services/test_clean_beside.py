"""A clean beside others: it finishes those whose process died, and plans again after what others did meanwhile."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import pytest

from lakeformat.codec.timeline_files.clean import CleanPartition
from lakeformat.codec.timeline_files.service_plans import encode_compaction_plan
from lakeformat.errors import WriteConflictError
from lakeformat.locks.file_lock import LOCK_PATH
from lakeformat.model.instant import Action, State
from lakeformat.model.service_plans import CompactionOperation, CompactionPlan
from lakeformat.services.clean.run import delete_in_process
from lakeformat.storage import LocalStorage, MemoryStorage, Storage
from lakeformat.storage.port import NoLocks, Version, VersionChangedError, own_path
from lakeformat.timeline.store import TimelineStore
from lakeformat.transaction.order import claims
from tests.helpers.bare_table import MemoryWithoutLocks
from tests.helpers.cleaned_tables import (
    FOUR,
    META,
    MINUTE,
    NOW,
    Meanwhile,
    UnlockedMeanwhile,
    a_commit,
    a_plan,
    base,
    emptied,
    file,
    files_of,
    keep,
    last_clean,
    leave_clean,
    make_table,
    now_ms,
    save,
    session,
)
from tests.helpers.faulty import SetClock
from tests.helpers.short_timelines import hour, instant

# --- cleans whose process died -------------------------------------------------------------------------------------


def states(store: TimelineStore) -> dict[int, State]:
    return {int(each.time[8:10]): each.state for each in store.load().of_action(Action.CLEAN)}


@pytest.mark.parametrize("word", ["n9?", "n9!"])
@pytest.mark.parametrize(
    ("storage", "claim", "age", "finished"),
    [
        (MemoryStorage, False, 9 * MINUTE, False),  # Another program has ten minutes.
        (MemoryStorage, False, 10 * MINUTE, True),
        (MemoryStorage, True, 0, True),  # The process of the claim holds no lock.
        (MemoryWithoutLocks, False, 9 * MINUTE, False),
        (MemoryWithoutLocks, False, 10 * MINUTE, True),
        (MemoryWithoutLocks, True, MINUTE, False),
        (MemoryWithoutLocks, True, 2 * MINUTE, True),  # Its heartbeat has stopped.
    ],
)
def test_clean_of_a_dead_process_is_finished(
    word: str, storage: type[MemoryStorage], claim: bool, age: int, finished: bool
) -> None:
    store = make_table(FOUR, storage=storage(SetClock(NOW)))
    leave_clean(store, word, a_plan(base("f", 1)), claim=claim)
    result = session(store, now=NOW + age).clean(keep(4))
    assert result.skipped == ("nothing to delete" if finished else f"{store.path(instant(word))} is pending")
    assert states(store) == {9: State.COMPLETED if finished else instant(word).state}
    assert files_of(store) == ([2, 3, 4] if finished else [1, 2, 3, 4])
    assert bool(store.storage.list(own_path("pending"))) == (claim and not finished)


def test_clean_of_a_living_process_is_left_alone() -> None:
    store = make_table(FOUR)
    leave_clean(store, "n9!", a_plan(base("f", 1)), claim=True)
    with store.storage.hold(claims.claim_path(hour(9))):
        assert "is pending" in session(store, now=NOW + 60 * MINUTE).clean(keep(1)).skipped
    assert states(store) == {9: State.INFLIGHT}


@pytest.mark.parametrize("storage", [MemoryStorage, MemoryWithoutLocks])
def test_clean_is_alive_while_it_deletes(storage: type[MemoryStorage]) -> None:
    store = make_table(FOUR, storage=storage())
    others: list[str] = []

    def delete(_: Storage, paths: Sequence[str]) -> Mapping[str, str]:
        others.append(session(store, now=now_ms() + MINUTE).clean(keep(1)).skipped)
        return delete_in_process(store.storage, paths)

    assert len(session(store, now=now_ms(), deleter=delete).clean(keep(1)).files) == 2
    assert others[0].endswith("clean.inflight is pending")


class TakenOver(MemoryStorage):
    """A storage in memory on which another process takes over each claim a moment before this one."""

    def create(self, path: str, data: bytes) -> None:
        if path.startswith(own_path("pending")):
            raise FileExistsError(path)
        super().create(path, data)

    def replace_if(self, path: str, data: bytes, version: Version | None) -> Version:
        if path.startswith(own_path("pending")):
            raise VersionChangedError(path)
        return super().replace_if(path, data, version)


class TakenOverUnlocked(NoLocks, TakenOver):
    """The same without locks."""


@pytest.mark.parametrize(("storage", "claim"), [(TakenOver, False), (TakenOverUnlocked, True)])
def test_clean_that_another_process_finishes_is_left_to_it(storage: type[MemoryStorage], claim: bool) -> None:
    store = make_table(FOUR, storage=storage(SetClock(NOW)))
    leave_clean(store, "n9!", a_plan(base("f", 1)))
    if claim:
        assert isinstance(store.storage, MemoryStorage)
        MemoryStorage.create(store.storage, claims.claim_path(hour(9)), b'{"kind": "process"}')
    assert "is pending" in session(store, now=NOW + 60 * MINUTE).clean(keep(1)).skipped
    assert files_of(store) == [1, 2, 3, 4]


@pytest.mark.parametrize("claim", [True, False])
def test_clean_without_a_plan_is_taken_off_the_timeline(claim: bool) -> None:
    store = make_table(FOUR)
    leave_clean(store, "n8?", None, claim=claim)
    leave_clean(store, "n9?", a_plan(base("f", 1)), claim=claim)
    session(store, now=NOW + 60 * MINUTE).clean(keep(4))
    assert states(store) == {9: State.COMPLETED}
    assert not store.storage.list(own_path("pending"))
    assert not store.storage.list(claims.HEARTBEATS)


@pytest.mark.parametrize("storage", [MemoryStorage, MemoryWithoutLocks])
def test_all_cleans_of_dead_processes_are_finished_beside_a_completed_and_a_living_one(
    storage: type[MemoryStorage],
) -> None:
    clock = SetClock(NOW - 60 * MINUTE)
    store = make_table(FOUR, storage=storage(clock))
    leave_clean(store, "n6!", a_plan(base("f", 1)))
    store.storage.create(store.path(instant("n6")), b"")
    for word, number in (("n8!", 2), ("n9?", 3)):
        leave_clean(store, word, a_plan(base("f", number)), claim=True)
    clock.at_ms = NOW
    leave_clean(store, "n7!", a_plan(base("f", 1)), claim=True)
    with store.storage.hold(claims.claim_path(hour(7))):
        session(store).clean(keep(4))
    assert states(store) == {6: State.COMPLETED, 7: State.INFLIGHT, 8: State.COMPLETED, 9: State.COMPLETED}
    assert files_of(store) == [1, 4]


def test_clean_of_a_dead_process_deletes_nothing_that_is_needed() -> None:
    """Its plan may be old: since then the newest file may be another, and a savepoint may have been made."""
    store = make_table(FOUR | {"r5": "p"}, replaced={"r5": {"p": ("g",)}})
    for number in (1, 2):
        store.storage.create(f"p/{base('g', number)}", b"x")
    save(store, 2, base("f", 2))
    named = (*(base("f", number) for number in (1, 2, 5)), base("g", 2), META)
    leave_clean(store, "n9?", a_plan(*named), claim=True)
    session(store).clean(keep(5))
    assert files_of(store) == [2, 3, 4, 5]
    assert store.storage.info(f"p/{META}")
    found = last_clean(store)
    assert found is not None
    [partition] = found.partitions
    assert partition.deleted == (base("f", 1), base("g", 2)), "file group g is replaced"
    assert sorted(partition.failed) == sorted({*named} - {*partition.deleted})
    assert (found.earliest_commit_to_retain, found.policy) == (hour(3), "KEEP_LATEST_COMMITS")


def test_partition_in_which_a_dead_clean_deletes_no_file_is_removed(tmp_path: Path) -> None:
    store = make_table(FOUR, storage=LocalStorage(str(tmp_path)))
    (tmp_path / "q").mkdir()
    (tmp_path / "q" / META).touch()
    leave_clean(store, "n9?", a_plan(base("f", 1), partitions=("q",)), claim=True)
    session(store).clean(keep(4))
    assert not (tmp_path / "q").exists()
    found = last_clean(store)
    assert found is not None
    assert found.partitions == (CleanPartition("p", (base("f", 1),)), CleanPartition("q", is_folder_deleted=True))


def test_partition_in_the_plan_of_a_dead_clean_stays_without_locks() -> None:
    """Another process may be about to write the first files into it."""
    store = make_table(FOUR, storage=MemoryWithoutLocks(SetClock(NOW)))
    store.storage.create(f"q/{META}", b"")
    leave_clean(store, "n9?", a_plan(base("f", 1), partitions=("q",)))
    session(store, now=NOW + 60 * MINUTE).clean(keep(4))
    assert store.storage.info(f"q/{META}")
    found = last_clean(store)
    assert found is not None
    assert found.partitions == (CleanPartition("p", (base("f", 1),)),)


# --- other processes between the search and the plan ---------------------------------------------------------------


def a_compaction_plan(store: TimelineStore) -> None:
    plan = CompactionPlan((CompactionOperation("p", "f", hour(2), base("f", 2)),))
    store.storage.create(store.path(instant("k9?")), encode_compaction_plan(plan, missing_partitions=False))


OTHERS: Final[Mapping[str, tuple[Callable[[TimelineStore], object], list[int] | str]]] = {
    "a commit": (lambda store: a_commit(store, "c9"), [3, 4, 9]),
    "a savepoint": (lambda store: save(store, 1, base("f", 1)), [1, 3, 4]),
    "a compaction plan": (a_compaction_plan, [2, 3, 4]),
    "a clean": (lambda store: leave_clean(store, "n9?", a_plan(base("f", 1))), "n9?"),
    "a rollback": (lambda store: store.storage.create(store.path(instant("b9?")), b""), "b9?"),
    "a restore": (lambda store: store.storage.create(store.path(instant("e9?")), b""), "e9?"),
}


@pytest.mark.parametrize("name", OTHERS)
def test_clean_is_planned_again_after(name: str) -> None:
    act, left = OTHERS[name]
    storage = Meanwhile(SetClock(NOW))
    store = make_table(FOUR, storage=storage)
    storage.act = lambda: act(store)
    result = session(store).clean(keep(1))
    assert storage.act is None
    if isinstance(left, str):
        assert result.skipped == f"{store.path(instant(left))} is pending"
        assert files_of(store) == [1, 2, 3, 4]
    else:
        assert files_of(store) == left
        assert result.earliest == hour(4)
    assert not storage.list(own_path("pending"))


@pytest.mark.parametrize("name", [*OTHERS, "a write that begins"])
def test_only_plans_savepoints_and_undos_overtake_the_plan_of_a_clean(name: str) -> None:
    """A clean that may not try again is refused then; commits and writes that begin do not matter."""
    storage = Meanwhile(SetClock(NOW))
    store = make_table(FOUR, storage=storage)
    act = OTHERS[name][0] if name in OTHERS else lambda store: store.storage.create(store.path(instant("c9?")), b"")
    storage.act = lambda: act(store)
    options: Any = {"lakeformat.write.retries": 0}
    if name in {"a commit", "a write that begins"}:
        assert len(session(store, **options).clean(keep(1)).files) == 2
    else:
        with pytest.raises(WriteConflictError, match="run it again"):
            session(store, **options).clean(keep(1))
        assert files_of(store) == [1, 2, 3, 4]


def test_clean_that_another_process_completes_is_not_completed_again() -> None:
    """In layout 2 a second completed file would have another name."""
    store = make_table({f"c{number}-{number}": "p" for number in range(1, 5)}, version=8)
    leave_clean(store, "n9!", a_plan(base("f", 4)))

    def delete(storage: Storage, paths: Sequence[str]) -> Mapping[str, str]:
        storage.create(store.path(instant("n8-9")), b"")
        return delete_in_process(storage, paths)

    leave_clean(store, "n8!", a_plan(base("f", 1)), claim=True)
    session(store, deleter=delete).clean(keep(4))
    completed = [each for each in store.load().of_action(Action.CLEAN) if each.state is State.COMPLETED]
    assert completed == [instant("n8-9")]


def test_commits_that_complete_while_a_clean_waits_for_the_lock_count() -> None:
    storage = Meanwhile(SetClock(NOW))
    storage.before_lock = True
    store = make_table(FOUR, storage=storage)
    storage.act = lambda: a_commit(store, "c9")
    assert session(store).clean(keep(1)).earliest == hour(9)
    assert files_of(store) == [4, 9]


def test_emptied_partition_that_a_running_write_fills_before_the_lock_stays() -> None:
    storage = Meanwhile(SetClock(NOW))
    storage.before_lock = True
    store = emptied(storage, "q")
    storage.create(store.path(instant("c4?")), b"")
    storage.act = lambda: storage.create(file(4, "q"), b"x")
    result = session(store).clean(keep(1))
    assert (result.partitions, {each.path for each in result.files}) == ((), {file(1), file(1, "q")})
    assert files_of(store, "q") == [4]


def test_clean_holds_the_lock_file_of_services_while_it_plans_without_locks() -> None:
    storage = UnlockedMeanwhile(SetClock(NOW))
    store = make_table(FOUR, storage=storage)
    held: list[object] = []
    storage.act = lambda: held.append(storage.read(LOCK_PATH))
    session(store).clean(keep(1))
    assert len(held) == 1
    assert b'"expired":false' in held[0]
