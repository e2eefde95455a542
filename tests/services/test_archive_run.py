"""An archiving from its choice to its end: which files leave the timeline, what is in the archive, what stops it.

The tables here have a timeline and files without rows, as in test_clean_run.py.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

import pytest

from lakeformat.codec.timeline_files.clean import CleanMetadata, encode_clean
from lakeformat.codec.timeline_files.recovery import (
    RollbackMetadata,
    RollbackPlan,
    encode_rollback,
    encode_rollback_plan,
)
from lakeformat.config.resolve import resolve
from lakeformat.errors import LockTimeoutError, UnsupportedTableError
from lakeformat.file_system_view.context import TableContext
from lakeformat.locks.file_lock import LOCK_PATH
from lakeformat.model.commit import CommitMetadata, WriteStat
from lakeformat.model.table_config import PROPERTIES_PATH
from lakeformat.services.archive.run import ArchiveResult, ArchiveSession
from lakeformat.services.clean.plan import Policy, Retention
from lakeformat.storage import MemoryStorage
from lakeformat.storage.port import RandomIds, Version
from lakeformat.timeline.store import TimelineStore
from lakeformat.timeline.void_commits import encode_void
from lakeformat.transaction.order import claims
from lakeformat.transaction.order.decisions import LATEST_REQUEST_MS, STATE_PATH, prepare_removal
from tests.helpers import cleaned_tables
from tests.helpers.bare_table import MemoryWithoutLocks
from tests.helpers.cleaned_tables import META, MINUTE, NOW, a_commit, base, file, log, make_store, make_table, save
from tests.helpers.faulty import SetClock
from tests.helpers.short_timelines import hour, instant, timeline_of

SIX: Final = {f"c{number}": "p" for number in range(1, 7)}
#: No automatic cleaning, which would keep ten commits on the timeline.
PLAIN: Final[Mapping[str, Any]] = {"hoodie.clean.automatic": False}


def session(store: TimelineStore, *, now: int = NOW, **options: Any) -> ArchiveSession:
    return ArchiveSession(TableContext(store.storage, SetClock(now), RandomIds(), False), resolve({**PLAIN, **options}))


def hours(instants: object) -> list[int]:
    assert isinstance(instants, (tuple, list))
    return [int(each.time[8:10]) for each in instants]


def archived(store: TimelineStore) -> list[int]:
    return [int(time[8:10]) for time in store.read_archived().columns["time"].to_pylist()]


def put(store: TimelineStore, *words: str) -> None:
    """Put empty files on the timeline."""
    for word in words:
        store.storage.create(store.path(instant(word)), b"")


@pytest.mark.parametrize("version", [6, 8])
def test_oldest_commits_leave_the_timeline_with_all_their_files(version: int) -> None:
    words = SIX if version == 6 else {f"c{number}-{number}": "p" for number in range(1, 7)}
    store = make_table(words, version=version)
    put(store, "c1?", "c1!", "k2?", "k2!", "c4?")
    result = session(store).archive(3, 4)
    assert result == ArchiveResult(tuple(map(instant, [*words][:3])))
    assert hours(store.load().commits) == [4, 5, 6]
    assert archived(store) == [1, 2, 3]
    if version == 8:
        ends = store.read_archived().columns["completion_time"].to_pylist()
        assert ends == list(map(hour, (1, 2, 3)))
    names = [entry.name for entry in store.storage.list(store.layout.folder) if not entry.is_folder]
    assert [name for name in names if name.startswith(tuple(map(hour, (1, 2, 3))))] == []
    assert store.layout.file_name(instant("c4?")) in names
    commits = store.read_archived().commits(map(instant, [*words][:3]))
    assert [stat.path for _, metadata in commits for stat in metadata.all_stats()] == [file(1), file(2), file(3)]
    assert session(store).archive(3, 4) == ArchiveResult((), "nothing is old enough to archive")


@pytest.mark.parametrize(
    ("result", "text"),
    [
        (ArchiveResult((), "nothing is old enough to archive"), "archive: nothing is old enough to archive"),
        (ArchiveResult((instant("c1"), instant("n2"))), "archived 2 instants"),
    ],
)
def test_result_of_an_archiving_is_one_line(result: ArchiveResult, text: str) -> None:
    assert str(result) == text


def test_lock_is_needed_only_if_something_is_due() -> None:
    store = make_table(SIX)
    options: Any = {"hoodie.write.lock.wait_time_ms": 0}
    with store.storage.lock(0):
        assert session(store, **options).archive(5, 6, checks_first=True).skipped == "nothing is old enough to archive"
        for checks_first in (True, False):
            with pytest.raises(LockTimeoutError):
                session(store, **options).archive(4, 5, checks_first=checks_first)
        with pytest.raises(LockTimeoutError):
            session(store, **options).archive(5, 6)
    assert archived(store) == []


def test_table_of_an_unknown_version_is_not_archived() -> None:
    store = make_table(SIX)
    properties = store.storage.read(PROPERTIES_PATH).replace(b"version=6", b"version=60")
    store.storage.replace(PROPERTIES_PATH, properties)
    with pytest.raises(UnsupportedTableError, match="60"):
        session(store).archive(1, 2)


@pytest.mark.parametrize(("word", "blocks"), [("b9?", True), ("e9!", True), ("n9?", False), ("k9?", False)])
def test_archiving_waits_for_rollbacks_and_restores(word: str, blocks: bool) -> None:
    store = make_table(SIX)
    put(store, word)
    result = session(store).archive(3, 4)
    assert result.skipped == (f"{store.path(instant(word))} is pending" if blocks else "")
    assert hours(result.instants) == ([] if blocks else [1, 2, 3])


@pytest.mark.parametrize(("left", "gone"), [(True, [1]), (False, [1, 2, 3])])
def test_commit_stays_as_long_as_files_that_it_replaced_exist(left: bool, gone: list[int]) -> None:
    """A reader of the listing would show them again, if the commit were not on the timeline."""
    words = {"c1": "p", "r2": "", "c3": "q", "c4": "q", "c5": "q", "c6": "q"}
    store = make_table(words, replaced={"r2": {"p": ("f",), "empty": ()}})
    for name in ("note.txt", base("g", 1)):
        store.storage.create(f"p/{name}", b"x")
    if not left:
        store.storage.delete(file(1))
    assert hours(session(store).archive(3, 4).instants) == gone


@pytest.mark.parametrize(("cleans", "gone"), [(True, [1, 2]), (False, [1, 2, 3])])
def test_commits_that_automatic_cleaning_keeps_stay(cleans: bool, gone: list[int]) -> None:
    """Three commits stay readable, and one before them."""
    store = make_table(SIX)
    options: Any = {"hoodie.clean.automatic": cleans, "hoodie.cleaner.commits.retained": 3}
    assert hours(session(store, **options).archive(3, 4).instants) == gone


def test_commits_after_the_last_clean_may_have_to_stay() -> None:
    store = make_table(SIX)
    cleaned_tables.session(store).clean(Retention(Policy.COMMITS, 4))
    options: Any = {"hoodie.archive.block.on.latest.clean.ectr": True}
    assert hours(session(store, **options).archive(1, 2).instants) == [1, 2], "the clean kept commit 3"
    assert hours(session(store).archive(1, 2).instants) == [3, 4, 5]


@pytest.mark.parametrize("claimed", [True, False])
def test_claimed_instants_that_are_not_on_the_timeline_yet_hold_older_commits(claimed: bool) -> None:
    store = make_table(SIX)
    for number in ([3] if claimed else []) + [5]:
        time = hour(number)[:-1] + "1" if number == 3 else hour(number)  # A claim of commit 5 is a leftover.
        claims.claim_plan(store.storage, time, token="t")  # noqa: S106
    assert hours(session(store).archive(1, 2).instants) == ([1, 2] if claimed else [1, 2, 3, 4, 5])


@pytest.mark.parametrize(
    ("text", "due_after", "gone"),
    [
        ("d1 d2 d3 d4 d5 d6", 3, [1, 2, 3]),  # The last three make a compaction due.
        ("d1 d2 d3 d4 d5 d6", 4, [1, 2]),
        ("d1 d2 d3 d4 d5 d6", 7, []),  # None is due: all of them count.
        ("d1 c2 d3 d4 d5 d6", 9, [1]),  # Those since the last compaction count, and it decides where they begin.
        ("d1 c2 d3 c4 d5 d6", 9, [1, 2, 3]),
        ("d1 d2 c3 d4 d5 d6", 2, [1, 2, 3, 4]),
        ("d1 d2 c3 d4 d5 d6", 4, [1, 2]),
        ("c1 d2 d3 d4 d5 d6", 5, [1]),
        ("d1 c2 d3 r4 d5 d6", 3, [1, 2]),  # Deltacommits alone count.
        ("c1 c2 c3 c4 c5 c6", 2, [1, 2, 3, 4, 5]),
    ],
)
def test_deltacommits_that_decide_when_a_compaction_is_due_stay(text: str, due_after: int, gone: list[int]) -> None:
    store = make_table(dict.fromkeys(text.split(), ""))
    options: Any = {"hoodie.compact.inline.max.delta.commits": due_after}
    assert hours(session(store, **options).archive(1, 2).instants) == gone


def test_deltacommits_of_a_copy_on_write_table_decide_nothing() -> None:
    store = make_table({f"d{number}": "" for number in range(1, 7)})
    properties = store.storage.read(PROPERTIES_PATH).replace(b"MERGE_ON_READ", b"COPY_ON_WRITE")
    store.storage.replace(PROPERTIES_PATH, properties)
    assert hours(session(store).archive(1, 2).instants) == [1, 2, 3, 4, 5]


@pytest.mark.parametrize("version", [6, 8])
def test_small_archive_files_are_merged(version: int) -> None:
    store = make_table({"c0" if version == 6 else "c0-0": "p"}, version=version)
    for number in range(1, 24):
        a_commit(store, f"c{number}" if version == 6 else f"c{number}-{number}")
        session(store).archive(1, 2 if number == 1 else None)
    assert archived(store) + hours(store.load().commits) == list(range(24))
    names = [entry.name for entry in store.storage.list(store.config().archive_folder)]
    assert len(names) < 5 if version == 6 else any(name.endswith("_1.parquet") for name in names)


def test_cleans_older_than_running_writes_are_archived_beside_them() -> None:
    """Only commits must be older than each running write."""
    clock = SetClock(NOW)
    held = Meanwhile(clock)
    store = make_table({f"c{number}": "p" for number in (1, 2, 6, 7)}, storage=held)
    for word in ("n4", "n5"):
        store.storage.create(store.path(instant(word)), encode_clean(CleanMetadata(instant(word).time, hour(1))))
    clock.at_ms += LATEST_REQUEST_MS + MINUTE
    put(store, "c8")
    held.act = lambda: put(store, "d3?")
    assert hours(session(store).archive(3, 4).instants) == [1, 2, 4]


def test_files_of_undone_writes_are_waited_for_an_hour_without_locks() -> None:
    """A late request may create a file of an undone write, which must not be older than the timeline then."""
    gone = {}
    for age in (0, LATEST_REQUEST_MS - 1, LATEST_REQUEST_MS):
        clock = SetClock(NOW)
        store = make_table({f"c{number}": "p" for number in (1, 2, 4, 5)}, storage=MemoryWithoutLocks(clock))
        clock.at_ms = NOW + LATEST_REQUEST_MS
        plan = encode_rollback_plan(RollbackPlan(hour(3), "commit"))
        store.storage.create(store.path(instant("b7?")), plan)
        done = RollbackMetadata(hour(7), 0, ((hour(3), "commit"),))
        store.storage.create(store.path(instant("b7")), encode_rollback(done))
        clock.at_ms += age
        put(store, "c8", "c9")
        gone[age] = hours(session(store, now=clock.at_ms).archive(1, 2).instants)
    assert gone == {0: [1], LATEST_REQUEST_MS - 1: [1], LATEST_REQUEST_MS: [1, 2, 4, 5, 7]}


# --- storage without locks -----------------------------------------------------------------------------------------


def test_instants_whose_files_late_requests_may_still_create_stay() -> None:
    """On storage without locks a request counts as late for an hour, by the times of two files of one listing."""
    clock = SetClock(NOW)
    store = make_table({"c1": "p", "c2": "p"}, storage=MemoryWithoutLocks(clock))
    clock.at_ms += 1
    put(store, "c3")
    clock.at_ms = NOW + LATEST_REQUEST_MS
    put(store, "c4", "c5", "c6")
    assert hours(session(store).archive(1, 2).instants) == [1, 2]


@pytest.mark.parametrize(
    ("storage", "text", "age", "due"),
    [
        (MemoryStorage, "c1 c2 c3", 0, False),
        (MemoryStorage, "c1 c2 c3 c4", 0, True),
        (MemoryWithoutLocks, "c1 c2 c3 c4", LATEST_REQUEST_MS - 1, False),
        (MemoryWithoutLocks, "c1 c2 c3 c4", LATEST_REQUEST_MS, True),
        (MemoryWithoutLocks, "c0? c1 c2 c3", LATEST_REQUEST_MS, True),  # The oldest completed instant counts,
        (MemoryWithoutLocks, "c0? c2 c3 c4", LATEST_REQUEST_MS, False),
        (MemoryWithoutLocks, "c1? c2? c3? c4?", LATEST_REQUEST_MS, False),  # and there must be one.
    ],
)
def test_archiving_may_be_due_by_the_timeline_alone(
    storage: type[MemoryStorage], text: str, age: int, due: bool
) -> None:
    store = make_table({}, storage=storage(SetClock(NOW)))
    store.storage.replace(
        PROPERTIES_PATH, store.storage.read(PROPERTIES_PATH) + b"hoodie.table.timeline.timezone=UTC\n"
    )
    store.config()
    first = 1_767_229_200_000  # The first hour of 2026, as `short_timelines` has it.
    options: Any = {"hoodie.keep.min.commits": 2, "hoodie.keep.max.commits": 3}
    assert session(store, now=first + age, **options).may_be_due(timeline_of(text)) == due


# --- other processes between the choice and the decision ---------------------------------------------------------


class Meanwhile(MemoryWithoutLocks):
    """A storage in memory on which another process acts once, after instants were chosen and before it is decided."""

    act: Callable[[], object] | None = None

    def read_versioned(self, path: str) -> tuple[bytes, Version]:
        if self.act is not None and path == STATE_PATH:
            act, self.act = self.act, None
            act()
        return super().read_versioned(path)


def remove(store: TimelineStore, number: int) -> None:
    store.storage.delete(store.path(instant(f"c{number}")))


OTHERS: Final[Mapping[str, tuple[Callable[[TimelineStore], object], bool]]] = {
    "a newer write": (lambda store: put(store, "c9?"), True),
    "a newer commit": (lambda store: put(store, "c9"), True),
    "a clean": (lambda store: put(store, "n9?"), True),
    "an older write": (lambda store: put(store, "d2?"), False),
    "a write of the same time as the newest": (lambda store: put(store, "d3?"), False),
    "a rollback": (lambda store: put(store, "b9?"), False),
    "a restore": (lambda store: put(store, "e9?"), False),
    "a savepoint": (lambda store: save(store, 2), False),
    "another archiving": (lambda store: remove(store, 1), False),
}


@pytest.mark.parametrize("name", OTHERS)
def test_archiving_beside_others_is_decided_only_if_nothing_older_has_changed(name: str) -> None:
    act, goes_on = OTHERS[name]
    clock = SetClock(NOW)
    held = Meanwhile(clock)
    store = make_table(SIX, storage=held)
    clock.at_ms += LATEST_REQUEST_MS + MINUTE
    put(store, "c7")
    held.act = lambda: act(store)
    result = session(store).archive(4, 5)
    assert held.act is None
    assert result.skipped == ("" if goes_on else "another process has changed the timeline meanwhile")
    assert hours(result.instants) == ([1, 2, 3] if goes_on else [])
    assert archived(store) == ([1, 2, 3] if goes_on else [])


def a_void(store: TimelineStore, *logs: str) -> bytes:
    """Return the void commit of an undone commit that had written log files."""
    stats = tuple(WriteStat("f", f"p/{name}", "p", None, 1) for name in logs)
    return encode_void(store.layout, CommitMetadata("UPSERT", {"p": stats}), "", is_replace=False)


def test_void_commits_leave_the_timeline_with_the_files_of_late_requests_and_are_not_archived() -> None:
    """Names of log files do not show the commit in layout 1: one that another commit wrote, too, stays."""
    clock = SetClock(NOW)
    late, shared = log("f", 1, 7), log("f", 1, 2)
    words = {"c1": ["p/a"], "d4": [f"p/{shared}"], "d5": [], "d6": []}
    store = make_store(words, storage=MemoryWithoutLocks(clock))
    store.storage.create(store.path(instant("d3")), a_void(store, late, shared))
    for name in (META, late, shared, base("g", 3), base("g", 4)):
        store.storage.create(f"p/{name}", b"x")
    clock.at_ms += LATEST_REQUEST_MS
    a_commit(store, "c7")
    assert hours(store.load(store.config().archive_folder).voids) == [3]
    result = session(store).archive(2, 3)
    assert hours(result.instants) == [1, 3, 4, 5]
    assert archived(store) == [1, 4, 5]
    assert [entry.name for entry in store.storage.list("p")] == sorted([META, shared, base("g", 4), base("f", 7)])


def test_late_files_of_undone_writes_that_the_timeline_leaves_behind_are_deleted() -> None:
    """Readers would take them for files of archived commits. A run that was undone may have completed again since."""
    clock = SetClock(NOW)
    store = make_table({f"c{number}": "p" for number in (1, 2, 4, 6, 7, 9)}, storage=MemoryWithoutLocks(clock))
    for number in (0, 1, 2, 3, 5, 6, 8):
        prepare_removal(store, hour(number))
        store.storage.create(f"p/{base('late', number)}", b"x")
    clock.at_ms += LATEST_REQUEST_MS
    put(store, "d9")

    def left() -> list[int]:
        names = [entry.name for entry in store.storage.list("p")]
        return [number for number in range(10) if base("late", number) in names]

    assert hours(session(store).archive(6, 7).instants) == []
    assert hours(session(store).archive(5, 6).instants) == [1, 2]
    assert left() == [1, 2, 5, 6, 8], "what is older than commit 4, and no commit's"
    assert hours(session(store).archive(2, 3).instants) == [4, 6, 7]
    assert left() == [1, 2, 6]


def test_files_of_a_commit_that_a_program_without_decisions_has_archived_stay() -> None:
    """A run of commit 2 was undone, and a later one has completed. No run of commit 5 has."""
    clock = SetClock(NOW)
    held = MemoryWithoutLocks(clock)
    store = make_table({f"c{number}": "p" for number in (1, 2, 3, 6, 7, 8)}, storage=held)
    for number in (2, 5):
        prepare_removal(store, hour(number))
    held.create(file(5), b"x")
    held.has_lock = True  # As Hudi, which archives under a lock.
    assert hours(session(store).archive(4, 5).instants) == [1, 2]
    held.has_lock = False
    clock.at_ms += LATEST_REQUEST_MS
    put(store, "d9")
    assert hours(session(store).archive(2, 3).instants) == [3, 6, 7]
    assert held.info(file(2)) is not None
    assert held.info(file(5)) is None


def test_services_without_locks_exclude_each_other_by_a_lock_file() -> None:
    clock = SetClock(NOW)
    held = Meanwhile(clock)
    store = make_table(SIX, storage=held)
    clock.at_ms += LATEST_REQUEST_MS + MINUTE
    put(store, "c7")
    contents: list[bytes] = []
    held.act = lambda: contents.append(held.read(LOCK_PATH))
    assert session(store).archive(4, 5).instants
    assert b'"expired":false' in contents[0]


class Overtaken(MemoryWithoutLocks):
    """A storage in memory on which another process deletes the first commit as soon as an archiving is decided."""

    def replace_if(self, path: str, data: bytes, version: Version | None) -> Version:
        written = super().replace_if(path, data, version)
        if path == STATE_PATH:
            self.delete(f".hoodie/{hour(1)}.commit")
        return written


def test_instants_that_another_process_has_archived_meanwhile_are_left_to_it() -> None:
    clock = SetClock(NOW)
    store = make_table(SIX, storage=Overtaken(clock))
    clock.at_ms += LATEST_REQUEST_MS + MINUTE
    put(store, "c7")
    result = session(store).archive(4, 5)
    assert (result.instants, result.skipped) == ((), "another process has archived the instants meanwhile")
    assert archived(store) == []
