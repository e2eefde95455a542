"""A clean from its plan to its end: what it deletes and records, what stops it, and who finishes it.

The tables here have a timeline and files without rows. A commit writes the next base file of file group ``f`` in one or
more partitions.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import pytest

from lakeformat.codec.timeline_files.clean import CleanMetadata, CleanPartition
from lakeformat.errors import LockTimeoutError, StorageError, UnsupportedTableError
from lakeformat.model.files import join_path
from lakeformat.model.instant import Action, Instant, State
from lakeformat.model.table_config import PROPERTIES_PATH
from lakeformat.services.clean.candidates import SAVEPOINTS, LastSearch, read_last_search
from lakeformat.services.clean.plan import CleanedFile, Policy, Retention
from lakeformat.services.clean.run import CleanResult, CleanSession, delete_in_process
from lakeformat.storage import LocalStorage, MemoryStorage, Storage
from lakeformat.storage.port import NoLocks, own_path
from lakeformat.transaction.order import claims
from tests.helpers.bare_table import MemoryWithoutLocks
from tests.helpers.cleaned_tables import (
    FOUR,
    META,
    NOW,
    a_commit,
    base,
    emptied,
    file,
    files_of,
    keep,
    last_clean,
    make_table,
    save,
    session,
)
from tests.helpers.faulty import SetClock
from tests.helpers.hudi_view import find_disagreements
from tests.helpers.short_timelines import hour, instant
from tests.helpers.tables import a_batch, a_table

# --- what it deletes and records -------------------------------------------------------------------------------


@pytest.mark.parametrize("version", [6, 8])
@pytest.mark.parametrize("storage", [MemoryStorage, MemoryWithoutLocks])
def test_clean_deletes_old_files_and_records_what_it_did(version: int, storage: type[MemoryStorage]) -> None:
    commits = FOUR if version == 6 else {f"c{number}-{number}": "p" for number in range(1, 5)}
    store = make_table(commits, storage=storage(SetClock(NOW)), version=version)
    cleaning = session(store)
    result = cleaning.clean(keep(2))
    assert result == CleanResult(
        result.instant_time, "KEEP_LATEST_COMMITS", hour(3), (CleanedFile(file(1), 1),), partitions=()
    )
    assert files_of(store) == [2, 3, 4], "a reader of commit 3 needs file 2"
    [clean] = store.load().of_action(Action.CLEAN)
    assert (clean.time, clean.state) == (result.instant_time, State.COMPLETED)
    assert last_clean(store) == CleanMetadata(
        start_time=clean.time,
        earliest_commit_to_retain=hour(3),
        last_completed=hour(4),
        policy="KEEP_LATEST_COMMITS",
        partitions=(CleanPartition("p", (base("f", 1),)),),
    )
    assert not store.storage.list(own_path("pending"))
    assert not store.storage.list(claims.HEARTBEATS)
    inflight = store.storage.read(store.path(clean.at(State.INFLIGHT)))
    assert inflight == (store.storage.read(store.path(clean.at(State.REQUESTED))) if version == 6 else b"")
    assert cleaning.clean(keep(2)).skipped == "nothing to delete"
    assert store.load().of_action(Action.CLEAN) == (clean,)


def test_clean_by_versions_records_no_earliest_commit() -> None:
    store = make_table(FOUR)
    result = session(store).clean(keep(3, Policy.VERSIONS))
    assert (result.policy, result.earliest, result.files) == (
        "KEEP_LATEST_FILE_VERSIONS", None, (CleanedFile(file(1), 1),),
    )  # fmt: skip
    found = last_clean(store)
    assert found is not None
    assert (found.policy, found.earliest_commit_to_retain, found.last_completed) == (result.policy, "", hour(4))


def test_clean_keeps_and_records_the_savepoints_that_it_saw() -> None:
    store = make_table(FOUR | {"c5": "p"})
    save(store, 2, base("f", 2))
    result = session(store).clean(keep(1))
    assert {each.path for each in result.files} == {file(1), file(3)}
    found = last_clean(store)
    assert found is not None
    assert found.extra == {SAVEPOINTS: hour(2)}


@pytest.mark.parametrize("storage", [MemoryStorage, MemoryWithoutLocks])
def test_search_without_files_to_delete_is_noted_and_puts_no_plan(storage: type[MemoryStorage]) -> None:
    store = make_table({"c1": "p", "c2": "q", "c3": "p"}, storage=storage(SetClock(NOW)))
    assert session(store).clean(keep(1)).skipped == "nothing to delete", "a reader of commit 3 needs files 2 and 3"
    commits = frozenset(map(hour, (1, 2, 3)))
    assert read_last_search(store.storage, None, keep(1)) == LastSearch(hour(3), commits)
    assert session(store).clean(keep(9, Policy.VERSIONS)).skipped == "nothing to delete"
    assert read_last_search(store.storage, None, keep(9, Policy.VERSIONS)) == LastSearch(hour(3), commits), (
        "a clean by versions keeps what one by commits has noted"
    )
    assert store.load().of_action(Action.CLEAN) == ()


@pytest.mark.parametrize("run", [CleanSession.clean, CleanSession.dry_run])
def test_table_of_an_unknown_version_is_not_cleaned(run: Callable[[CleanSession, Retention], object]) -> None:
    store = make_table(FOUR)
    properties = store.storage.read(PROPERTIES_PATH).replace(b"version=6", b"version=60")
    store.storage.replace(PROPERTIES_PATH, properties)
    with pytest.raises(UnsupportedTableError, match="60"):
        run(session(store), keep(1))
    assert files_of(store) == [1, 2, 3, 4]


def test_dry_run_changes_nothing(tmp_path: Path) -> None:
    store = make_table(FOUR, storage=LocalStorage(str(tmp_path)))
    everything = sorted(tmp_path.rglob("*"))
    cleaning, policy = session(store), "KEEP_LATEST_COMMITS"
    assert cleaning.dry_run(keep(1)) == CleanResult(
        "", policy, hour(4), (CleanedFile(file(2), 1), CleanedFile(file(1), 1))
    )
    assert (
        cleaning.dry_run(keep(3))
        == cleaning.dry_run(keep(4))
        == CleanResult("", policy, None, skipped="nothing to delete")
    )
    assert sorted(tmp_path.rglob("*")) == everything


@pytest.mark.parametrize(
    ("result", "text"),
    [
        (CleanResult("", "", None, skipped="nothing to delete"), "clean: nothing to delete"),
        (
            CleanResult("", "", None, (CleanedFile("a", 1_000), CleanedFile("b", 24))),
            "clean (dry run): 2 files, 1,024 bytes; 0 partitions",
        ),
        (CleanResult("7", "", None, (CleanedFile("a", 5),), ("p", "q")), "clean 7: 1 files, 5 bytes; 2 partitions"),
    ],
)
def test_result_of_a_clean_is_one_line(result: CleanResult, text: str) -> None:
    assert str(result) == text


def test_several_plans_delete_more_files_than_one_plan_may_hold() -> None:
    commits = {"c1": "p q r s", "c2": "p q r s", "c3": "r s", "c4": "s", "c5": "s"}
    store = make_table(commits)
    result = session(store, most_files=2).clean(keep(1))
    plans = [store.read_clean_plan(clean).files for clean in store.load().of_action(Action.CLEAN)]
    # Partition s has three files alone: a partition is never divided.
    assert [{path: len(names) for path, names in plan.items()} for plan in plans] == [
        {"p": 1, "q": 1},
        {"r": 2},
        {"s": 3},
    ]
    assert {each.path for each in result.files} == {
        join_path(path, name) for plan in plans for path, names in plan.items() for name in names
    }
    assert session(store).clean(keep(1)).skipped == "nothing to delete"


def test_last_clean_is_the_newest_completed_one() -> None:
    store = make_table(FOUR)
    assert last_clean(store) is None
    first = session(store).clean(keep(3))
    a_commit(store, "c5")
    second = session(store).clean(keep(1))
    pending = Instant("20280101000000000", Action.CLEAN, State.REQUESTED)
    store.storage.create(store.path(pending), b"")
    found = last_clean(store)
    assert found is not None
    assert first.instant_time < second.instant_time == found.start_time


def test_metadata_table_forgets_deleted_files() -> None:
    table = a_table(rows=a_batch(id=[1, 2], v=[1, 1]), **{"hoodie.metadata.enable": True})
    for number in (2, 3):
        table.upsert(a_batch(id=[1], v=[number]))
    assert len(table.clean(commits=1).files) == 1
    assert find_disagreements(table) == []


# --- when it is done -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("since", "only_if_due", "skipped"), [(1, True, "only 1 commits since the last one"), (2, True, ""), (1, False, "")]
)
def test_clean_is_due_after_a_number_of_commits(since: int, only_if_due: bool, skipped: str) -> None:
    store = make_table(FOUR)
    options: Any = {"hoodie.clean.max.commits": 2}
    assert session(store, **options).clean(keep(2), only_if_due=True).files, "the first one is always due"
    for word in ("c5", "c6")[:since]:
        a_commit(store, word)
    assert session(store, **options).dry_run(keep(2)).files, "a dry run looks at once"
    result = session(store, **options).clean(keep(2), only_if_due=only_if_due)
    assert result.skipped == skipped
    assert bool(result.files) == (not skipped)


@pytest.mark.parametrize("incremental", [True, False])
def test_clean_that_keeps_more_commits_than_the_last_one_deletes_nothing(incremental: bool) -> None:
    store = make_table(FOUR)
    session(store).clean(keep(1))
    for number in (1, 2):
        store.storage.create(file(number), b"x")
    options: Any = {"hoodie.clean.incremental.enabled": incremental}
    assert session(store, **options).clean(keep(2)).skipped == "nothing to delete"
    assert files_of(store) == [1, 2, 3, 4]


def test_commit_that_completes_late_is_cleaned_though_the_same_commits_are_kept() -> None:
    """Commit 2 completes after a clean that kept commit 4. File 1 is no longer needed then."""
    store = make_table({"c0": "p", "c1": "p", "c4": "p"})
    assert session(store).clean(keep(1)).earliest == hour(4)
    a_commit(store, "c2")
    result = session(store).clean(keep(1))
    assert (result.earliest, [each.path for each in result.files]) == (hour(4), [file(1)])


@pytest.mark.parametrize(("incremental", "found"), [(True, []), (False, [file(1, "q")])])
def test_only_a_full_search_finds_old_files_in_a_partition_without_new_commits(
    incremental: bool, found: list[str]
) -> None:
    store = make_table({"c1": "p q", "c2": "p q", "c3": "p"})
    options: Any = {"hoodie.clean.incremental.enabled": incremental}
    session(store, **options).clean(keep(1))
    store.storage.create(file(1, "q"), b"x")
    a_commit(store, "c4")
    a_commit(store, "c5")
    result = session(store, **options).dry_run(keep(1))
    assert [each.path for each in result.files if each.path.startswith("q")] == found


# --- partitions without data ---------------------------------------------------------------------------------------


def test_folders_of_an_emptied_partition_are_removed(tmp_path: Path) -> None:
    store = emptied(LocalStorage(str(tmp_path)), "q/r")
    result = session(store).clean(keep(1))
    assert result.partitions == ("q/r",)
    assert not (tmp_path / "q").exists()
    assert (tmp_path / "p").exists()
    found = last_clean(store)
    assert found is not None
    assert [(each.path, each.is_folder_deleted) for each in found.partitions] == [("p", False), ("q/r", True)]


def test_parent_of_an_emptied_partition_stays_if_another_is_in_it(tmp_path: Path) -> None:
    store = make_table(
        {"c1": "q/r q/s", "r2": "", "c3": "p"}, storage=LocalStorage(str(tmp_path)), replaced={"r2": {"q/r": ("f",)}}
    )
    session(store).clean(keep(1))
    assert [path.name for path in (tmp_path / "q").iterdir()] == ["s"]


@pytest.mark.parametrize(
    ("word", "stray", "storage"),
    [("c4?", "", MemoryStorage), ("n0", "note.txt", MemoryStorage), ("n0", "", MemoryWithoutLocks)],
)
def test_folder_of_an_emptied_partition_stays_for_writers_and_other_files(
    word: str, stray: str, storage: type[MemoryStorage]
) -> None:
    """A pending write may be about to write to it. Without locks a clean cannot know whether there is one."""
    store = emptied(storage(SetClock(NOW)), "q")
    store.storage.create(store.path(instant(word)), b"")
    if stray:
        store.storage.create(f"q/{stray}", b"x")
    result = session(store).clean(keep(1))
    assert file(1, "q") in {each.path for each in result.files}
    assert [entry.name for entry in store.storage.list("q")] == [META, *filter(None, [stray])]
    found = last_clean(store)
    assert found is not None
    assert not any(each.is_folder_deleted for each in found.partitions)


def test_file_that_comes_to_an_emptied_partition_while_it_is_cleaned_stays(tmp_path: Path) -> None:
    store = emptied(LocalStorage(str(tmp_path)), "q")

    def delete(storage: Storage, paths: Sequence[str]) -> Mapping[str, str]:
        storage.create("q/note.txt", b"x")
        return delete_in_process(storage, paths)

    session(store, deleter=delete).clean(keep(1))
    assert sorted(path.name for path in (tmp_path / "q").iterdir()) == [META, "note.txt"]


# --- deleting ------------------------------------------------------------------------------------------------------


class Stubborn(MemoryStorage):
    """A storage in memory that does not delete files 2 and 3, and none of many at once."""

    def delete(self, path: str) -> None:
        if path in {file(2), file(3)}:
            raise StorageError(f"{path} is stuck")
        super().delete(path)

    def delete_all(self, paths: Sequence[str]) -> None:
        raise StorageError("one of many is stuck")


class StubbornUnlocked(NoLocks, Stubborn):
    """The same without locks."""


@pytest.mark.parametrize("storage", [Stubborn, StubbornUnlocked])
def test_files_that_cannot_be_deleted_are_named_and_the_others_deleted(storage: type[MemoryStorage]) -> None:
    store = make_table(FOUR, storage=storage())
    failed = delete_in_process(store.storage, [file(number) for number in (1, 2, 3)])
    assert failed == {file(2): f"{file(2)} is stuck", file(3): f"{file(3)} is stuck"}
    assert files_of(store) == [2, 3, 4]


def test_files_on_storage_without_locks_are_deleted_at_once() -> None:
    class Recorded(MemoryWithoutLocks):
        asked: Sequence[str] = ()

        def delete_all(self, paths: Sequence[str]) -> None:
            self.asked = paths
            super().delete_all(paths)

    storage = Recorded(SetClock(NOW))
    store = make_table(FOUR, storage=storage)
    paths = [file(1), file(2)]
    assert delete_in_process(storage, paths) == {}
    assert (storage.asked, files_of(store)) == (paths, [3, 4])


@pytest.mark.parametrize(("storage", "state"), [(MemoryStorage, State.INFLIGHT), (MemoryWithoutLocks, State.COMPLETED)])
def test_clean_is_completed_under_the_lock_where_there_is_one(storage: type[MemoryStorage], state: State) -> None:
    store = make_table(FOUR, storage=storage(SetClock(NOW)))
    with ExitStack() as other:

        def delete(held: Storage, paths: Sequence[str]) -> Mapping[str, str]:
            other.enter_context(held.lock(0))
            return delete_in_process(held, paths)

        options: Any = {"hoodie.write.lock.wait_time_ms": 0}
        with suppress(LockTimeoutError):
            session(store, deleter=delete, **options).clean(keep(1))
    assert [each.state for each in store.load().of_action(Action.CLEAN)] == [state]
    assert files_of(store) == [3, 4]


def test_clean_that_could_not_delete_a_file_is_continued_by_the_next() -> None:
    store = make_table(FOUR)
    with pytest.raises(StorageError, match=rf"could not delete 2 files, e\.g\. {file(1)} \(no\); it stays pending"):
        session(store, deleter=lambda _, paths: dict.fromkeys(paths, "no")).clean(keep(1))
    [pending] = store.load().of_action(Action.CLEAN)
    assert pending.state is State.INFLIGHT
    assert session(store).clean(keep(1)).skipped == "nothing to delete"
    assert [each.state for each in store.load().of_action(Action.CLEAN)] == [State.COMPLETED]
    assert files_of(store) == [3, 4]
