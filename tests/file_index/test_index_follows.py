"""The index says the same as a listing, whatever any program does to the table and to the index."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from lakeformat import Table
from lakeformat.errors import CorruptTableError
from lakeformat.model.instant import Action
from lakeformat.storage import MemoryStorage
from lakeformat.timeline.store import TimelineStore
from lakeformat.timeline.timeline import Timeline
from tests.helpers.examples import examples
from tests.helpers.index_tables import (
    MovedClock,
    archive,
    begin_old,
    compare_with_listing,
    complete,
    copy_table,
    erase,
    index_files,
    new_table,
    open_as_foreign,
    reopen,
    restore,
    rows,
)

IDS = st.lists(st.integers(1, 40), min_size=1, max_size=6, unique=True)
STEPS = st.one_of(
    st.tuples(st.sampled_from(["upsert", "insert", "bulk_insert", "overwrite"]), st.booleans(), IDS),
    st.tuples(st.just("delete"), st.booleans(), IDS),
    st.tuples(st.just("delete_partition"), st.booleans(), st.integers(0, 2)),
    st.tuples(st.just("restore"), st.integers(1, 3)),
    st.tuples(st.just("archive"), st.integers(1, 4)),
    st.tuples(st.just("late")),
    st.tuples(st.sampled_from(["damage", "lose"]), st.integers(0, 30)),
    st.tuples(st.just("savepoint")),
)


def run_step(table: Table, step: tuple[Any, ...]) -> None:
    kind, ours, what = step
    writer = table if ours else open_as_foreign(table)
    match kind:
        case "upsert" | "insert" | "bulk_insert":
            getattr(writer, kind)(rows(*what, bump=len(index_files(table))))
        case "overwrite":
            writer.insert_overwrite(rows(*what))
        case "delete":
            writer.delete(rows(*what))
        case "delete_partition":
            if f"p{what}" in writer.snapshot().by_partition:
                writer.delete_partitions([f"p{what}"])


def damage(table: Table, number: int, *, lose: bool) -> None:
    files, storage = index_files(table), table.context.storage
    if files:
        path = files[number % len(files)]
        data = storage.read(path)
        storage.delete(path)
        if not lose:
            storage.replace(path, data[: len(data) // 2] + b"?" + data[len(data) // 2 + 1 :])


def done(table: Table, step: tuple[Any, ...], late: list[str]) -> None:
    storage, commits = table.context.storage, TimelineStore(table.context.storage).load().commits
    match step:
        case ("restore", count):
            if len(commits) > count:
                restore(table, count)
        case ("archive", count):
            if len(commits) > count and commits[0].action is Action.COMMIT:
                archive(table, count)
        case ("late",):
            if time := begin_old(table):
                late.append(time)
        case ("savepoint",):
            if commits:
                storage.replace(f".hoodie/{commits[-1].time}.savepoint", b"x")
        case ("damage" | "lose" as how, number):
            damage(table, number, lose=how == "lose")
        case _:
            run_step(table, step)


@settings(max_examples=examples(20), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(STEPS, min_size=3, max_size=8))
def test_index_equals_a_listing(steps: list[tuple[Any, ...]]) -> None:
    table = new_table()
    table.upsert(rows(1, 2, 3))
    late: list[str] = []
    for step in steps:
        if late and step[0] in {"upsert", "restore", "archive"}:
            complete(table, late.pop())
            compare_with_listing(table)
        # Writers refuse to overtake a pending instant.
        if not late or step[0] in {"damage", "lose", "late", "savepoint"}:
            done(table, step, late)
        compare_with_listing(table)
        other = copy_table(table)
        compare_with_listing(other)
        for commit in TimelineStore(table.context.storage).load().commits[-3:-1]:
            compare_with_listing(other, as_of=commit.time)


def many(table: Table, count: int = 4) -> None:
    for number in range(count):
        table.upsert(rows(number, number + 3, number + 4, bump=number))


def test_our_own_commits_need_no_listing() -> None:
    table = new_table()
    for number in range(8):
        table.upsert(rows(number, number + 1, number + 20, bump=number))
        assert compare_with_listing(table)
        assert compare_with_listing(copy_table(table))
    table.delete_partitions(["p1"])
    assert compare_with_listing(copy_table(table))
    table.overwrite(rows(1, 2))
    assert compare_with_listing(copy_table(table))
    table.delete(where="id = 1")
    assert compare_with_listing(copy_table(table))


@pytest.mark.parametrize("operation", ["upsert", "insert", "bulk_insert", "insert_overwrite", "overwrite"])
def test_commits_of_other_programs_are_replayed(operation: str) -> None:
    table = new_table()
    many(table)
    getattr(open_as_foreign(table), operation)(rows(1, 2, 50, bump=9))
    assert compare_with_listing(copy_table(table))
    table.upsert(rows(3, bump=10))
    getattr(open_as_foreign(table), operation)(rows(3, 51, bump=11))
    assert compare_with_listing(copy_table(table))
    many(table)
    assert compare_with_listing(copy_table(table))


def test_late_commit_older_than_the_index_is_found() -> None:
    table = new_table()
    many(table)
    time = begin_old(table)
    assert time is not None
    assert compare_with_listing(copy_table(table))
    complete(table, time)
    assert compare_with_listing(copy_table(table))
    assert any(file.name.instant_time == time for file in copy_table(table).snapshot().files)
    many(table)
    assert compare_with_listing(copy_table(table))


@pytest.mark.parametrize("count", [1, 2, 4])
def test_restore_invalidates_the_index_until_the_next_write(count: int) -> None:
    table = new_table()
    many(table, 6)
    restore(table, count)
    compare_with_listing(copy_table(table))
    table.upsert(rows(70))
    assert compare_with_listing(copy_table(table))
    many(table)
    assert compare_with_listing(copy_table(table))


def test_archiving_by_others_invalidates_the_index_until_the_next_write() -> None:
    table = new_table()
    many(table, 3)
    many(open_as_foreign(table), 6)
    assert compare_with_listing(copy_table(table))
    archive(table, 7)  # This archives all commits that the index knows, and others.
    assert not compare_with_listing(copy_table(table))
    table.upsert(rows(70))
    assert compare_with_listing(copy_table(table))


class Archiving(MemoryStorage):
    """A storage in which another program archives once, right after the timeline was listed."""

    def __init__(self) -> None:
        super().__init__()
        self.count = 0

    def list(self, path: str) -> Any:
        found = super().list(path)
        if path == ".hoodie" and self.count:
            count, self.count = self.count, 0
            self.create(".hoodie/archived/.commits_.archive.1_1-0-1", b"#HUDI#")
            for instant in Timeline.of_file_names(entry.name for entry in found).commits[:count]:
                erase(self, instant)
        return found


@pytest.mark.parametrize("use_index", [True, False])
def test_commit_archived_during_a_read_is_still_read(use_index: bool) -> None:
    table = new_table()
    many(table, 3)
    many(open_as_foreign(table), 6)
    storage = Archiving()
    copy_table(table, storage)
    storage.count = 7
    snapshot = reopen(Table(storage), **{"lakeformat.file.index": use_index}).snapshot()
    assert storage.count == 0
    assert [file.name for file in snapshot.files] == [file.name for file in table.snapshot().files]
    assert len(snapshot.timeline.commits) == 2


def test_commits_archived_beyond_a_deleted_savepoint_invalidate_the_index() -> None:
    table = new_table()
    many(table, 3)
    held = TimelineStore(table.context.storage).load().commits
    for commit in held:
        table.context.storage.create(f".hoodie/{commit.time}.savepoint", b"x")
    many(open_as_foreign(table), 6)
    archive(table, 4, held=len(held))
    for commit in held:
        table.context.storage.delete(f".hoodie/{commit.time}.savepoint")
    assert not compare_with_listing(copy_table(table))
    table.upsert(rows(70))
    assert compare_with_listing(copy_table(table))
    many(table)
    assert compare_with_listing(copy_table(table))


def test_archived_late_commit_invalidates_the_index() -> None:
    table = new_table()
    many(table, 4)
    time = begin_old(table, before=0)
    assert time is not None
    complete(table, time)
    archive(table, 1)
    assert not compare_with_listing(copy_table(table))
    assert any(file.name.instant_time == time for file in copy_table(table).snapshot().files)
    table.upsert(rows(70))
    assert compare_with_listing(copy_table(table))


@pytest.mark.parametrize(
    "how", ["flipped", *(pytest.param(name, marks=pytest.mark.slow) for name in ("lost", "cut", "foreign"))]
)
def test_damaged_or_missing_index_file_is_survived(how: str) -> None:
    table = new_table()
    many(table, 5)
    assert {path.rpartition("/")[2].partition("-")[0] for path in index_files(table)} == {"delta", "manifest", "shard"}
    for path in index_files(table):
        other = copy_table(table)
        storage = other.context.storage
        data = storage.read(path)
        storage.delete(path)
        if how == "cut":
            storage.replace(path, data[: len(data) // 2])
        elif how == "flipped":
            storage.replace(path, data[:100] + bytes([data[100] ^ 1]) + data[101:])
        elif how == "foreign":
            storage.replace(path, b"PAR1")
        compare_with_listing(other)
        other.upsert(rows(1, 2, 3, 4, 5, 6, 7, bump=5))
        assert compare_with_listing(copy_table(other))


def test_deleted_index_folder_is_rebuilt_by_the_next_write() -> None:
    table = new_table()
    many(table, 5)
    before = repr(table.to_arrow().to_pylist())
    table.context.storage.delete_folder(".hoodie/.lakeformat/index")
    assert not compare_with_listing(copy_table(table))
    assert repr(copy_table(table).to_arrow().to_pylist()) == before
    table.upsert(rows(1))
    assert compare_with_listing(copy_table(table))
    (portion, *others) = copy_table(table).snapshot().live.portions()
    assert all(not each.files.column("rows").null_count for each in (portion, *others))


def test_an_index_that_is_switched_off_is_not_kept() -> None:
    table = open_as_foreign(new_table())
    many(table)
    assert index_files(table) == []
    assert table.snapshot().live.count == len(table.snapshot().files)


def test_old_snapshots_are_deleted_after_an_hour() -> None:
    clock = MovedClock()
    table = new_table(MemoryStorage(clock), clock=clock)
    many(table, 12)
    kept = index_files(table)
    assert sum("manifest" in path for path in kept) > 2
    clock.ahead_ms += 3_700_000
    many(table, 1)
    many(table, 12)
    left = index_files(table)
    gone = set(kept) - set(left)
    assert any("manifest" in path for path in gone)
    assert any("shard" in path for path in gone)
    assert any("delta" in path for path in gone)
    assert compare_with_listing(copy_table(table))


def test_time_travel_uses_the_index_for_old_instants() -> None:
    table = new_table()
    many(table, 8)
    times = [commit.time for commit in TimelineStore(table.context.storage).load().commits]
    used = Counter(compare_with_listing(copy_table(table), as_of=time) for time in times)
    assert used[True] >= 6


def test_a_missing_file_is_named_when_it_is_opened() -> None:
    table = new_table()
    many(table, 2)
    file = table.snapshot().files[0]
    table.context.storage.delete(file.path)
    with pytest.raises(CorruptTableError, match=str(file.name)):
        table.to_arrow()
