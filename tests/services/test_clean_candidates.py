"""Where a clean searches, how it sorts a folder's files into slices, and what it must keep."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from lakeformat.codec.timeline_files.clean import CleanMetadata
from lakeformat.codec.timeline_files.service_plans import encode_compaction_plan
from lakeformat.config.resolve import resolve
from lakeformat.file_system_view.context import TableContext
from lakeformat.model.files import FileGroupId
from lakeformat.model.service_plans import CompactionOperation, CompactionPlan
from lakeformat.services.clean.candidates import (
    SAVEPOINTS,
    LastSearch,
    find_changed_partitions,
    list_partition_files,
    read_delete_constraints,
    read_last_search,
    write_search_note,
)
from lakeformat.services.clean.plan import Policy, Retention
from lakeformat.services.clean.run import CleanSession
from lakeformat.storage import LocalStorage, MemoryStorage
from lakeformat.storage.port import RandomIds, SystemClock
from lakeformat.timeline.store import TimelineStore
from tests.helpers.cleaned_tables import META, base, log, make_store
from tests.helpers.faulty import UnlockedStorage
from tests.helpers.flights import open_at
from tests.helpers.short_timelines import hour, instant, timeline_of
from tests.helpers.tables import a_batch, a_schema, a_table

TEN = Retention(Policy.COMMITS, 10)


WRITES = {f"c{at}": [f"{path}/{base('f', at)}"] for at, path in ((1, "a"), (2, "b"), (3, "c"), (5, "e"))}


@pytest.mark.parametrize(
    ("earliest", "last", "changed"),
    [
        (None, LastSearch(), None),  # By versions: all partitions,
        (None, LastSearch(commits=frozenset({hour(1), hour(2)})), "cde"),  # or those of the commits since.
        (None, LastSearch(commits=frozenset({hour(1)})), "bcde"),
        (None, LastSearch(commits=frozenset({hour(0)})), None),  # Commits since may have been archived.
        (None, LastSearch(commits=frozenset(map(hour, range(6)))), ""),
        (4, LastSearch(), None),
        (4, LastSearch(hour(0)), None),  # Commits since may have been archived.
        (4, LastSearch(hour(1)), "abc"),
        (4, LastSearch(hour(2)), "bc"),
        (5, LastSearch(hour(2)), "bcd"),
        (2, LastSearch(hour(2)), ""),
        (4, LastSearch(hour(2), frozenset(map(hour, range(1, 6)))), "bc"),
        (4, LastSearch(hour(3), frozenset(map(hour, (2, 3)))), "ac"),  # Commit 1 completed late.
        (4, LastSearch(hour(2), savepoints=frozenset({hour(3)})), None),  # A savepoint was deleted.
        (4, LastSearch(hour(2), savepoints=frozenset({hour(5)})), "bc"),
    ],
)
def test_only_changed_partitions_are_searched(earliest: int | None, last: LastSearch, changed: str | None) -> None:
    store = make_store({**WRITES, "r4": []}, replaced={"r4": {"d": ("f",)}})
    store.storage.create(store.path(instant("s5")), b"")
    found = find_changed_partitions(store, store.load(), None if earliest is None else hour(earliest), last)
    assert found == (None if changed is None else frozenset(changed))


def test_search_note_is_read_back_for_the_same_retention() -> None:
    storage, search = MemoryStorage(), LastSearch(hour(3), frozenset({hour(1), hour(2)}), frozenset({hour(2)}))
    assert read_last_search(storage, None, TEN) == LastSearch()
    write_search_note(storage, search, TEN)
    assert read_last_search(storage, None, TEN) == search
    assert read_last_search(storage, None, Retention(Policy.COMMITS, 9)) == LastSearch(hour(3), None, search.savepoints)
    assert read_last_search(storage, None, Retention(Policy.HOURS, 10)).commits is None
    write_search_note(storage, search, TEN, searches_all=True)
    assert read_last_search(storage, None, TEN) == LastSearch()


@pytest.mark.parametrize(
    "damage",
    [
        b"",
        b"{",
        b"[]",
        b"{}",
        b'{"earliest": 1, "kept": "", "commits": [], "savepoints": [], "again": false}',
        b'{"earliest": "1", "kept": "", "commits": [], "savepoints": [], "again": 0}',
    ],
)
def test_damaged_search_note_counts_as_none(damage: bytes) -> None:
    storage = MemoryStorage()
    storage.create(".hoodie/.lakeformat/cleaned", damage)
    assert read_last_search(storage, None, TEN) == LastSearch()


@pytest.mark.parametrize(
    ("noted", "cleaned", "found"),
    [
        (None, 2, LastSearch(hour(2), None, frozenset({hour(1), hour(2)}))),
        (3, 2, LastSearch(hour(3), frozenset({hour(3)}), frozenset({hour(9)}))),
        (3, 3, LastSearch(hour(3), frozenset({hour(3)}), frozenset({hour(9)}))),
        (3, 4, LastSearch(hour(4), frozenset({hour(3)}), frozenset({hour(1), hour(2), hour(9)}))),  # Another's clean.
    ],
)
def test_search_is_that_of_the_note_or_of_a_later_clean(noted: int | None, cleaned: int, found: LastSearch) -> None:
    storage = MemoryStorage()
    if noted is not None:
        write_search_note(storage, LastSearch(hour(noted), frozenset({hour(3)}), frozenset({hour(9)})), TEN)
    clean = CleanMetadata(
        start_time=hour(9), earliest_commit_to_retain=hour(cleaned), last_completed="", time_taken_ms=0,
        policy=TEN.policy.value, partitions=(), extra={SAVEPOINTS: f"{hour(1)},{hour(2)}"},
    )  # fmt: skip
    assert read_last_search(storage, clean, TEN) == found


def slices_of(store: TimelineStore, names: Sequence[str]) -> tuple[dict[str, dict[int, list[str]]], int]:
    """Return the slices of partition ``p`` by file id and hour, and the number of files that belong to none."""
    for name in names:
        store.storage.replace(f"p/{name}", b"x")
    (found,) = list_partition_files(store, store.load(), frozenset({"p"}))
    assert all(
        list(slices) == sorted(slices, key=lambda each: each.instant, reverse=True) for slices in found.groups.values()
    )
    slices = {
        id_: {int(each.instant[8:10]): sorted(file.name for file in each.files) for each in of_group}
        for id_, of_group in found.groups.items()
    }
    return slices, found.others


@pytest.mark.parametrize("partitions", [None, frozenset({""})])
def test_a_file_on_a_disk_is_looked_at_when_asked(tmp_path: Path, partitions: frozenset[str] | None) -> None:
    """A commit cleans: were each file of the folder looked at, small commits into large folders would become slow."""
    table = a_table(tmp_path / "t", rows=a_batch(id=["a"], v=["x"]))
    store = table.context.store
    [listed] = list_partition_files(store, store.load(), partitions)
    [[newest]] = listed.groups.values()
    [file] = newest.files
    with (tmp_path / "t" / file.path).open("ab") as stored:
        stored.write(b"more")
    assert file.size_bytes == (tmp_path / "t" / file.path).stat().st_size


def test_files_of_layout_1_are_sorted_by_the_instants_in_their_names() -> None:
    f, g = [base("f", 3), log("f", 3), base("f", 0)], [log("g", 4), log("g", 4, 2)]
    store = make_store({"c3": [f"p/{f[0]}"], "d4": [], "k5?": [], "c6!": []})
    opened, pending = log("f", 5), log("h", 6)
    stray = [base("f", 3, attempt=1), base("f", 6), pending, "other"]
    slices, others = slices_of(store, [META, f".{f[0]}.crc", *f, *g, opened, *stray])
    assert slices == {"f": {0: [f[2]], 3: sorted(f[:2]), 5: [opened]}, "g": {4: sorted(g)}}
    assert others == len(stray)


def test_files_of_layout_2_are_sorted_by_the_completion_of_their_commits() -> None:
    """A log file is in the slice of the newest base file that began before the log file's commit completed."""
    f, logs = [base("f", 3), base("f", 6)], [log("f", 2), log("f", 5), log("f", 7), log("f", 1)]
    store = make_store(
        {"d1-2": [], "d2-4": [], "c3-4": [f"p/{f[0]}"], "d5-7": [], "c6-7": [f"p/{f[1]}"], "d7-8": [], "d9!": []},
        version=8,
    )
    alone, pending = [log("g", 5), log("g", 7)], log("g", 9)
    slices, others = slices_of(store, [META, *f, *logs, *alone, pending])
    assert slices == {
        "f": {1: [logs[3]], 3: sorted([f[0], logs[0]]), 6: sorted([f[1], logs[1], logs[2]])},
        "g": {5: sorted(alone)},
    }
    assert others == 1


def test_log_files_before_all_base_files_are_one_slice_of_layout_2() -> None:
    """The slice began with the first of their commits. One that ended as the base file began is in the base file's."""
    bases, logs = [base("f", 5), base("f", 7)], [log("f", 1), log("f", 2), log("f", 3)]
    store = make_store(
        {"d1-5": [], "d2-4": [], "d3-4": [], "c5-6": [f"p/{bases[0]}"], "c7-8": [f"p/{bases[1]}"]}, version=8
    )
    slices, _ = slices_of(store, [META, *bases, *logs])
    assert slices == {"f": {2: logs[1:], 5: sorted([bases[0], logs[0]]), 7: [bases[1]]}}


def test_change_data_goes_with_the_slice_that_its_commit_read() -> None:
    f = [base("f", 1), base("f", 4)]
    store = make_store({"c1": [f"p/{f[0]}"], "c3": [], "c4": [f"p/{f[1]}"], "c5!": []})
    changes = [log("f", 3, cdc=True), log("f", 4, cdc=True), log("f", 5, cdc=True), log("f", 0, cdc=True)]
    slices, others = slices_of(store, [META, *f, *changes])
    assert slices == {"f": {1: sorted([f[0], changes[0]]), 4: sorted([f[1], changes[1]])}}
    assert others == 2  # One is of a pending commit, one older than all slices.


def test_folders_that_are_no_partitions_are_left_out(tmp_path: Path) -> None:
    """The partitions of the metadata table are none of the table's."""
    store = make_store({"c1": [f"p/{base('f', 1)}"]}, storage=LocalStorage(str(tmp_path)))
    for path in (f"p/{META}", f"p/{base('f', 1)}", f"p/q/{META}", "x/file", f".hoodie/metadata/files/{META}"):
        store.storage.replace(path, b"x")
    found = {each.path: (list(each.groups), each.others) for each in list_partition_files(store, store.load(), None)}
    assert found == {"p": (["f"], 1), "p/q": ([], 0)}  # A folder in a partition keeps it from being removed.
    assert list(list_partition_files(store, store.load(), frozenset())) == []


def test_replaced_groups_are_those_of_completed_replacecommits() -> None:
    replaced = {"r2": {"a": ("f", "g"), "b": ("f",)}, "r3": {"a": ("f",)}}
    store = make_store({"c1": [], "r2": [], "r3": [], "r4?": []}, replaced=replaced)
    constraints = read_delete_constraints(store, store.load())
    found = {f"{group.partition_path}/{group.file_id}": time for group, time in constraints.replaced.items()}
    assert found == {"a/f": hour(3), "a/g": hour(2), "b/f": hour(2)}
    assert (constraints.saved, constraints.compacting) == ({}, {})


def test_slices_under_compaction_are_those_of_the_oldest_plan_of_a_group() -> None:
    store = make_store({"c1": []})
    for word, bases in (("k5?", (3, 1)), ("l6?", (2, 4)), ("k7?", ())):
        operations = [CompactionOperation("p", id_, hour(number)) for id_, number in zip("fg", bases, strict=False)]
        plan = CompactionPlan(tuple(operations))
        store.storage.create(store.path(instant(word)), encode_compaction_plan(plan, missing_partitions=False))
    compacting = read_delete_constraints(store, store.load()).compacting
    assert compacting == {FileGroupId("p", "f"): hour(2), FileGroupId("p", "g"): hour(1)}


@pytest.mark.parametrize(
    ("has_lock", "text", "retention", "since", "is_due"),
    [
        (True, "c1 c2 c3", Retention(Policy.COMMITS, 2), "~", True),
        (True, "c1 c2 c3", Retention(Policy.COMMITS, 3), "~", False),
        (True, "c1 n2!", Retention(Policy.COMMITS, 3), "~", True),  # A dead clean must be finished.
        (True, "c1", Retention(Policy.VERSIONS, 3), "~", True),
        (True, "c1 n2 c3", Retention(Policy.COMMITS, 1), hour(0), True),
        (False, "c1 n2 c3", Retention(Policy.COMMITS, 1), hour(1), False),  # Planned since the write began,
        (False, "c1 n2! c3", Retention(Policy.COMMITS, 1), hour(1), False),
        (False, "c1 n2 c3 n4 c5", Retention(Policy.COMMITS, 1), hour(3), False),
        (False, "c1 n2 c3", Retention(Policy.COMMITS, 1), hour(2), True),  # and before.
        (False, "c1 n2 c3 c4? c5?", Retention(Policy.VERSIONS, 1), "~", False),  # Fewer commits than running writes,
        (False, "c1 n2 c3 c4? c5? c6", Retention(Policy.VERSIONS, 1), "~", True),  # and as many.
    ],
)
def test_clean_may_be_due_by_the_timeline_alone(
    has_lock: bool, text: str, retention: Retention, since: str, is_due: bool, tmp_path: Path
) -> None:
    table = a_table(tmp_path / "t", schema=a_schema(id="int64"))
    if not has_lock:
        table = open_at(UnlockedStorage(str(tmp_path / "t")), "w")
    session = CleanSession(table.context, table.options)
    session.store.config()
    assert session.may_be_due(retention, timeline_of(text), since) is is_due


@pytest.mark.parametrize(
    ("word", "blocks"),
    [
        ("n9?", True),
        ("n9!", True),
        ("b9?", True),
        ("e9?", True),
        ("c9?", False),
        ("k9?", False),
        ("i9?", False),
        ("s9!", False),
    ],
)
def test_clean_waits_for_cleans_and_undos_only(word: str, blocks: bool) -> None:
    store = make_store({f"c{at}": [f"p/{base('f', at)}"] for at in range(1, 5)} | {word: []})
    for name in (META, *(base("f", at) for at in range(1, 5))):
        store.storage.replace(f"p/{name}", b"x")
    session = CleanSession(TableContext(store.storage, SystemClock(), RandomIds(), False), resolve({}))
    found = session.dry_run(Retention(Policy.COMMITS, 2))
    assert found.skipped == (f"{store.path(instant(word))} is pending" if blocks else "")
    assert [file.name for file in found.files] == ([] if blocks else [base("f", 1)])
