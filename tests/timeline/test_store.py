"""The store of a timeline: where it finds the properties and the instants, what it remembers, and how it creates."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from lakeformat import concurrency
from lakeformat.codec.properties import encode
from lakeformat.codec.timeline_files.clean import CleanMetadata, CleanPartition
from lakeformat.codec.timeline_files.recovery import (
    CompletedRestore,
    RestorePlan,
    RollbackPlan,
    SavepointMetadata,
    encode_restore_plan,
    encode_rollback_plan,
)
from lakeformat.errors import CorruptTableError, StorageError, TableNotFoundError, UnsupportedTableError
from lakeformat.model.instant import Action, Instant, State
from lakeformat.storage import MemoryStorage
from lakeformat.storage.port import OutcomeUnknownError
from lakeformat.timeline.store import MOVED, TimelineStore, put_once
from lakeformat.timeline.timeline_layout import LAYOUT_1, LAYOUT_2, layout_of
from lakeformat.timeline.void_commits import encode_void
from tests.helpers.bare_table import MemoryWithoutLocks, bare_store, commit_of, files_of, names, put_instants
from tests.helpers.faulty import FaultyStorage, SetClock
from tests.helpers.short_timelines import hour, instant
from tests.locks.hours import Hours

PROPERTIES = ".hoodie/hoodie.properties"
VERSION_6 = encode({"hoodie.table.version": "6"}, comments=[])
VERSION_8 = encode({"hoodie.table.version": "8", "hoodie.timeline.layout.version": "2"}, comments=[])


@pytest.fixture
def hours() -> Iterator[Hours]:
    clock = Hours()
    with concurrency.use_backend(clock):  # type: ignore[arg-type]
        yield clock


def store_of(**files: bytes) -> TimelineStore:
    """Return the store of a table with these files in ``.hoodie`` (``_`` means a dot)."""
    storage = MemoryStorage()
    for name, data in files.items():
        storage.create(f".hoodie/{name.replace('_', '.')}", data)
    return TimelineStore(storage)


# --- the properties and the layout ------------------------------------------------------------------------


def test_properties_are_read_from_their_backup_while_they_are_rewritten() -> None:
    """Hudi writes a backup, deletes the file, and writes it again."""
    both = store_of(hoodie_properties=VERSION_8, hoodie_properties_backup=VERSION_6)
    assert both.config().layout_version == 2
    for half in (
        store_of(hoodie_properties_backup=VERSION_8),
        store_of(hoodie_properties=b" \n", hoodie_properties_backup=VERSION_8),
    ):
        assert half.exists()
        assert half.known_config.layout_version == 2
        assert half.layout.folder == LAYOUT_2.folder
    assert half.known_config is half.known_config


def test_path_without_properties_is_no_table() -> None:
    empty = store_of()
    assert not empty.exists()
    with pytest.raises(TableNotFoundError, match=r"no table at memory:\d+ .*; check the path, or write to it first"):
        empty.config()
    empty.storage.create("a.parquet", b"")
    with pytest.raises(TableNotFoundError, match="this is a folder of plain Parquet"):
        empty.config()
    with pytest.raises(CorruptTableError, match="properties is empty; restore it from a copy"):
        store_of(hoodie_properties=b"").config()


def test_unknown_layout_is_refused() -> None:
    store = store_of(hoodie_properties=encode({"hoodie.timeline.layout.version": "3"}, comments=[]))
    with pytest.raises(UnsupportedTableError, match=r"hoodie\.timeline\.layout\.version=3 is not supported"):
        store.load()
    assert layout_of(store.config()) is None
    outside = encode({"hoodie.timeline.layout.version": "2", "hoodie.timeline.path": "../t"}, comments=[])
    with pytest.raises(CorruptTableError, match="leads out of the table"):
        store_of(hoodie_properties=outside).config()


C1 = f"{hour(1)}.commit"
C1_OF_8 = f"timeline/{hour(1)}_{hour(2)}.commit"


@pytest.mark.parametrize(
    ("files", "layout", "times"),
    [
        ({C1: b"{}", "x": b"", "hoodie.properties": VERSION_6}, LAYOUT_1, {hour(1)}),
        ({C1: b"{}"}, LAYOUT_1, {hour(1)}),  # The properties are being rewritten.
        ({}, LAYOUT_1, set()),
        ({C1_OF_8: b"{}", "hoodie.properties": VERSION_8}, LAYOUT_2, {hour(1)}),
        ({C1: b"{}", C1_OF_8: b"{}", "hoodie.properties": VERSION_6}, LAYOUT_1, {hour(1)}),  # A move has begun,
        ({C1: b"{}", C1_OF_8: b"{}", "hoodie.properties": VERSION_8}, LAYOUT_2, {hour(1)}),  # or it has just ended.
    ],
)
def test_first_listing_finds_the_layout(files: dict[str, bytes], layout: object, times: set[str]) -> None:
    store = store_of()
    for name, data in files.items():
        store.storage.create(f".hoodie/{name}", data)
    timeline = store.load()
    assert (store.layout, timeline.layout, timeline.commit_times) == (layout, layout, times)


def test_later_listing_notices_that_the_table_has_moved() -> None:
    store = store_of(hoodie_properties=VERSION_6)
    put_instants(store, "c1")
    assert store.load().commit_times == {hour(1)}
    assert store.is_on_timeline(f".hoodie/{C1}")
    store.storage.replace(PROPERTIES, VERSION_8)
    store.storage.create(f".hoodie/{C1_OF_8}", b"")
    assert store.is_on_timeline(f".hoodie/{C1_OF_8}")
    assert not store.is_on_timeline(f".hoodie/{C1}")
    stale = TimelineStore(store.storage)
    stale.load()
    for gone in (f".hoodie/{C1_OF_8}", None):
        store.storage.replace(PROPERTIES, VERSION_6)
        if gone is None:  # The move back has begun to remove the instants.
            store.storage.create(f".hoodie/timeline/{MOVED}", b"")
        else:
            store.storage.delete(gone)
        assert (stale.load().commit_times, stale.layout) == ({hour(1)}, LAYOUT_1)
        store.storage.replace(PROPERTIES, VERSION_8)
        store.storage.replace(f".hoodie/{C1_OF_8}", b"")
        assert (stale.load().commit_times, stale.layout) == ({hour(1)}, LAYOUT_2)


# --- listings ---------------------------------------------------------------------------------------------


def test_listing_remembers_sizes_and_ages() -> None:
    clock = SetClock(1000)
    store = bare_store(MemoryStorage(clock))
    put_instants(store, "c1")
    clock.at_ms = 4000
    put_instants(store, "c2!")
    assert (store.modified_ms(instant("c1")), store.age_ms(instant("c1"))) == (None, 0)  # Nothing was listed.
    clock.at_ms = 9000
    store.storage.create(".hoodie/archived/x", b"")  # A folder has no age.
    store.load()
    assert [store.modified_ms(instant(word)) for word in ("c1", "c2!", "c3")] == [1000, 4000, None]
    assert [store.age_ms(instant(word)) for word in ("c1", "c2!", "c3")] == [3000, 0, 0]
    assert [store.has_file(path) for path in (*names("c1"), *names("c3"))] == [True] * 3 + [False] * 3
    info = store.info(instant("c1"))
    assert info is not None
    assert info.modified_ms == 1000
    assert store.peek() == TimelineStore(store.storage).load()


def test_archive_is_known_by_its_files() -> None:
    store = bare_store()
    store.storage.create(".hoodie/archived/other", b"")
    assert (store.has_archive(".hoodie/archived"), store.load(".hoodie/archived").archive) == (False, "")
    marks = []
    for data in (b"", b"1"):
        store.storage.replace(".hoodie/archived/.commits_.archive.1_1-0-1", data)
        assert store.has_archive(".hoodie/archived")
        marks.append(store.load(".hoodie/archived").archive)
    assert len({"", *marks}) == 3
    assert store.load().archive is None
    with pytest.raises(CorruptTableError):
        store.has_archive("../archived")


@pytest.mark.parametrize("kind", [MemoryStorage, MemoryWithoutLocks])
def test_void_commits_are_found(kind: type[MemoryStorage]) -> None:
    store = bare_store(kind())
    void = encode_void(LAYOUT_1, commit_of([]), "", is_replace=False)
    put_instants(store, "c1 c2 c3", {"c2": void, "c3": b"x" * len(void)})  # The third one is damaged.
    for _ in range(2):
        timeline = store.load()
        assert (timeline.commit_times, [each.time for each in timeline.voids]) == ({hour(1), hour(3)}, [hour(2)])


def test_commit_that_becomes_a_void_commit_is_noticed_without_locks() -> None:
    store = bare_store(MemoryWithoutLocks())
    (commit,) = put_instants(store, "c1")
    assert store.load().commits == (commit,)
    store.storage.replace(store.path(commit), encode_void(LAYOUT_1, commit_of([]), "", is_replace=False))
    assert (store.load().commits, store.load().voids) == ((), (commit,))


def test_commits_that_a_restore_undoes_are_pending_while_it_is_inflight() -> None:
    plan = encode_restore_plan(RestorePlan(((hour(3), "commit"),), hour(2)))
    for word, commits in (("e4?", {1, 2, 3}), ("e4!", {1, 2}), ("e4", {1, 2, 3})):
        store = bare_store()
        put_instants(store, f"c1 c2 c3 {word} e9!")
        store.storage.replace(store.path(instant("e4?")), plan)
        store.storage.delete(store.path(instant("e9?")))  # Nothing is known about this one.
        assert store.load().commit_times == {hour(number) for number in commits}
        assert store.load(as_stored=True).commit_times == {hour(1), hour(2), hour(3)}


# --- the contents of instants -----------------------------------------------------------------------------


def reads_of(storage: FaultyStorage, path: str) -> int:
    return sum(call.name == "read" and call.path == path for call in storage.calls)


def test_commit_is_read_once_until_it_is_forgotten() -> None:
    inner = MemoryStorage()
    put_instants(bare_store(inner), "c1", {"c1": commit_of(["p/x"])})
    storage = FaultyStorage(inner)  # type: ignore[arg-type]
    store = TimelineStore(storage)
    path = f".hoodie/{C1}"
    for count in (1, 2):
        assert store.read_commit(instant("c1")) == commit_of(["p/x"])
        assert reads_of(storage, path) == count  # Before a listing nothing is known about its size.
    store.load()
    for _ in range(2):
        store.read_commit(instant("c1"))
        assert reads_of(storage, path) == 3
    store.forget([instant("c1"), instant("c2")])
    store.read_commit(instant("c1"))
    assert reads_of(storage, path) == 4


def test_commit_whose_bytes_are_known_is_not_read() -> None:
    data = LAYOUT_1.encode_commit(commit_of(["p/x"]))
    inner = MemoryStorage()
    put_instants(bare_store(inner), "c1 c2", {"c1": data, "c2": data})
    storage = FaultyStorage(inner)  # type: ignore[arg-type]
    store = TimelineStore(storage)
    store.remember_commit(f".hoodie/{C1}", data)  # It is not listed yet.
    store.load()
    store.remember_commit(f".hoodie/{C1}", data)
    store.remember_commit(f".hoodie/{hour(2)}.commit", data + b" ")  # The file has another size.
    store.remember_commit(f".hoodie/{hour(3)}.commit", data)
    assert [store.read_commit(instant(word)) for word in ("c1", "c2")] == [commit_of(["p/x"])] * 2
    assert [reads_of(storage, f".hoodie/{hour(number)}.commit") for number in (1, 2)] == [0, 1]


def test_plans_that_are_empty_or_gone_are_none() -> None:
    store = bare_store()
    put_instants(store, "k1? k2! r3? r4! n5 b6! e7!")
    store.storage.delete(store.path(instant("r4?")))
    for word in ("b6?", "e7?"):
        store.storage.delete(store.path(instant(word)))
    assert [store.read_compaction_plan(instant(word)) for word in ("k1?", "k2!")] == [None, None]
    assert [store.read_requested_replace(instant(word)) for word in ("r3?", "r4!", "c1")] == [None, None, None]
    assert (store.read_rollback_plan(instant("b6!")), store.read_restore_plan(instant("e7!"))) == (None, None)
    timeline = store.load()
    assert (store.read_clustering_groups(timeline), store.read_compaction_groups(timeline)) == ({}, {})
    store.storage.replace(store.path(instant("n5")), b"")
    assert store.read_clean(instant("n5")) is None
    store.storage.create(store.path(instant("e7?")), b"")
    assert store.read_restore_plan(instant("e7!")) is None
    store.storage.create(store.path(instant("b6?")), encode_rollback_plan(RollbackPlan(hour(1), "commit")))
    assert store.read_rollback_plan(instant("b6!")) == RollbackPlan(hour(1), "commit")


# --- steps ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("act", "left"),
    [
        (TimelineStore.undo, "c1!"),
        (TimelineStore.remove, ""),
        (TimelineStore.revert, "c1 without inflight"),
        (TimelineStore.erase, "c1 alone"),
    ],
)
def test_steps_back_delete_files_of_an_instant(act: Callable[[TimelineStore, Instant], None], left: str) -> None:
    store = bare_store()
    put_instants(store, "c1")
    act(store, instant("c1"))
    done, inflight, requested = f".hoodie/{C1}", f".hoodie/{hour(1)}.inflight", f".hoodie/{C1}.requested"
    wanted = {"c1!": {inflight, requested}, "": set(), "c1 without inflight": {done, requested}, "c1 alone": {done}}
    assert set(files_of(store.storage)) == wanted[left]


def test_savepoints_cleans_and_restores_complete_with_their_contents() -> None:
    store = bare_store()
    cleaned = CleanMetadata(hour(3), hour(1), partitions=(CleanPartition("p", ("f",)),))
    (clean,) = put_instants(store, "n3!")
    assert store.read_clean(store.complete(clean, cleaned, SetClock(0))) == cleaned
    saved = SavepointMetadata("ann", 1, "why", {"p": ("f",)})
    (savepoint, restore) = put_instants(store, "s1! e2!")
    assert store.read_savepoint(store.complete(savepoint, saved, SetClock(0))) == saved
    done = store.complete(restore, CompletedRestore(hour(2), 0, RestorePlan((), hour(1)), {}), SetClock(0))
    assert done == instant("e2")
    assert store.read(done).startswith(b"Obj\x01")


# --- requests without an answer ---------------------------------------------------------------------------


class Answers(MemoryStorage):
    """A storage that answers `create` in given ways, and the later calls as always."""

    def __init__(self, *answers: str) -> None:
        super().__init__()
        self.answers, self.tries = list(answers), 0

    def create(self, path: str, data: bytes) -> None:
        answer = self.answers.pop(0) if self.answers else "answered"
        self.tries += 1
        if answer == "refused":
            raise StorageError("refused")
        if answer == "taken":
            super().create(path, b"theirs")
        if answer in ("late", "answered", "taken"):
            super().create(path, data)
        if answer in ("late", "lost"):
            raise OutcomeUnknownError("no answer")


@pytest.mark.parametrize(
    ("answers", "tries", "seconds"),
    [
        ("", 1, 0),
        ("late", 1, 0),  # The file is there.
        ("lost", 2, 0),
        ("lost lost", 3, 0.1),
        ("lost refused lost", 4, 0.4),
        ("lost lost lost late", 4, 0.4),
    ],
)
def test_file_is_created_although_answers_are_lost(answers: str, tries: int, seconds: float, hours: Hours) -> None:
    began, storage = hours.now, Answers(*answers.split())
    put_once(storage, "x", b"ours")
    assert (storage.read("x"), storage.tries, hours.now - began) == (b"ours", tries, pytest.approx(seconds))


@pytest.mark.parametrize(
    ("answers", "error"),
    [
        ("refused", "^refused$"),
        ("lost lost lost lost", "no answer"),
        ("lost refused refused refused", "no answer"),
        ("taken", "x"),
        ("lost taken", "x"),
    ],
)
def test_file_that_is_not_ours_or_not_known_is_an_error(answers: str, error: str, hours: Hours) -> None:
    storage = Answers(*answers.split(), "answered")
    with pytest.raises((StorageError, FileExistsError), match=error):
        put_once(storage, "x", b"ours")
    assert storage.answers == ["answered"]


def test_client_that_has_tried_for_seconds_is_not_asked_again(hours: Hours) -> None:
    class Slow(Answers):
        def create(self, path: str, data: bytes) -> None:
            hours.pass_seconds(4)
            super().create(path, data)

    storage = Slow(*["lost"] * 4)
    with pytest.raises(OutcomeUnknownError):
        put_once(storage, "x", b"ours")
    assert storage.tries == 3  # After 4 and after 8 seconds it is asked again, after 12 it is not.


def test_same_file_counts_as_created(hours: Hours) -> None:
    storage = MemoryStorage()
    for _ in range(2):
        put_once(storage, "x", b"ours")
    with pytest.raises(FileExistsError):
        put_once(storage, "x", b"other")
    store = bare_store(Answers("answered", "lost"))
    store.request(Instant(hour(1), Action.COMMIT, State.REQUESTED), b"plan")
    assert store.storage.read(names("c1?")[0]) == b"plan"
