"""Void commits: a commit that was undone on storage without locks stays undone, whatever late requests create.

The oracle is a dict of the rows without the undone write.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

import lakeformat
from lakeformat.timeline.store import TimelineStore
from lakeformat.transaction.order.decisions import LATEST_REQUEST_MS, Decision, DecisionState, Kind
from tests.helpers.faulty import FaultyStorage, UnlockedStorage
from tests.helpers.flights import NEXT, WRITES, Model, Write, copy_of, leftovers, make_template, open_at, rows_of

UPSERT = WRITES[0]
KINDS = [
    pytest.param((version, kind), id=f"v{version} {kind}")
    for version in ("6", "8", "9")
    for kind in ("COPY_ON_WRITE", "MERGE_ON_READ")
]
#: The writer's own services stay out of the way.
QUIET = {
    "hoodie.clean.automatic": False,
    "hoodie.archive.automatic": False,
    "hoodie.parquet.small.file.limit": 0,
}
_Undo = Callable[[lakeformat.Table, str], object]
UNDOS: Mapping[str, _Undo] = {
    "rollback": lambda table, _: table.rollback(),
    "restore": lambda table, before: table.restore(before),
}


def data_files(storage: UnlockedStorage) -> dict[str, bytes]:
    """Return the data files with their contents."""
    root = Path(storage.root)
    files = (path for path in root.rglob("*") if path.is_file() and ".hoodie" not in path.name)
    return {
        str(path.relative_to(root)): path.read_bytes()
        for path in files
        if not str(path.relative_to(root)).startswith(".hoodie/")
    }


def grow_older(storage: UnlockedStorage) -> None:
    """Let all files of the timeline be older than any late request."""
    store = TimelineStore(storage)
    for entry in storage.list(store.layout.folder):
        if not entry.is_folder:
            path = Path(storage.root, entry.path)
            past = path.stat().st_mtime - LATEST_REQUEST_MS / 1000 - 1
            os.utime(path, (past, past))


class Undone:
    """A table whose last commit was undone, with the files that the commit had written."""

    def __init__(self, past: tuple[Path, Model], folder: Path, undo: _Undo) -> None:
        self.storage = UnlockedStorage(copy_of(past[0], folder).root)
        self.model = past[1]
        before = data_files(self.storage)
        table = self.open("writer")
        last = table.context.store.load().commits[-1].time
        UPSERT.run(table)
        self.instant = self.commits()[-1]
        self.late = {path: data for path, data in data_files(self.storage).items() if path not in before}
        assert self.late
        undo(self.open("undo"), last)
        assert not self.late.keys() & data_files(self.storage).keys()

    def open(self, name: str) -> lakeformat.Table:
        return open_at(self.storage, name, QUIET)

    def commits(self) -> list[str]:
        return sorted(TimelineStore(self.storage).load().commit_times)

    def deliver(self) -> None:
        """Carry out the late requests for data files."""
        for path, data in self.late.items():
            self.storage.replace(path, data)

    def write(self, *writes: Write) -> None:
        for write in writes:
            write.run(self.open(write.v))
            self.model = write.applied(self.model)

    def has_late_files(self) -> bool:
        return bool(self.late.keys() & data_files(self.storage).keys())


@pytest.fixture(scope="module", params=KINDS)
def past(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Model]:
    version, kind = request.param
    return make_template(tmp_path_factory.mktemp("void"), version=version, table_type=kind)


@pytest.fixture(params=list(UNDOS))
def undone(request: pytest.FixtureRequest, past: tuple[Path, Model], tmp_path: Path) -> Undone:
    return Undone(past, tmp_path, UNDOS[request.param])


def test_late_data_files_of_an_undone_commit_are_not_read(undone: Undone) -> None:
    undone.deliver()
    assert rows_of(undone.storage) == undone.model
    undone.write(NEXT)
    undone.deliver()
    assert rows_of(undone.storage) == undone.model
    table = lakeformat.Table(undone.storage)
    assert undone.instant not in [entry.instant_time for entry in table.history()]
    changed = table.changes("earliest").to_arrow(meta_columns=False).to_pylist()
    assert {row["v"] for row in changed} <= {v for _, v in undone.model.values()}
    newest = undone.commits()[-1]
    at_undone = table.to_arrow(as_of=undone.instant, meta_columns=False)
    assert UPSERT.v not in at_undone.column("v").to_pylist()
    assert UPSERT.v not in table.to_arrow(as_of=newest, meta_columns=False).column("v").to_pylist()


def test_void_commit_holds_its_name_and_its_times(undone: Undone) -> None:
    timeline = TimelineStore(undone.storage).load()
    assert [void.time for void in timeline.voids] == [undone.instant]
    assert not timeline.is_committed(undone.instant)
    assert timeline.find(undone.instant) is None
    assert undone.instant in timeline.taken_times
    with pytest.raises(FileExistsError):
        undone.storage.create(TimelineStore(undone.storage).layout.path(timeline.voids[0]), b"")


def test_writers_and_services_go_on_over_late_data_files(undone: Undone) -> None:
    undone.deliver()
    undone.write(NEXT, Write("update", (0, 1, 3), "updated"), Write("delete", (4, 5), "deleted"))
    table = undone.open("services")
    if table.config.takes_logs:
        table.compact()
    else:
        table.cluster(["v"])
    table.clean(commits=1)
    assert rows_of(undone.storage) == undone.model
    undone.deliver()
    assert rows_of(undone.storage) == undone.model


def test_repair_puts_late_data_files_aside(undone: Undone) -> None:
    undone.write(NEXT)
    undone.deliver()
    table = lakeformat.Table(undone.storage)
    if table.config.version == 6 and table.config.takes_logs:
        return  # The names of log files do not have the instants of their writers.
    assert {finding.path for finding in table.check().findings} == set(undone.late)
    table.repair(keep=False)
    assert not undone.has_late_files()
    assert rows_of(undone.storage) == undone.model
    assert leftovers(undone.storage) == []


def test_archiving_removes_late_data_files_with_the_void_commit(undone: Undone) -> None:
    undone.write(*(Write("upsert", (number, 20), f"write {number}") for number in range(4)))
    if (table := undone.open("compact")).config.takes_logs:
        table.compact()
    undone.deliver()
    archived = undone.open("early").archive(min_commits=1, max_commits=2)
    assert undone.instant not in {instant.time for instant in archived.instants}
    assert rows_of(undone.storage) == undone.model

    grow_older(undone.storage)
    undone.write(Write("upsert", (1,), "young"))
    undone.open("late").archive(min_commits=1, max_commits=2)
    timeline = TimelineStore(undone.storage).load()
    assert not timeline.voids
    assert (timeline.oldest_write or "") > undone.instant
    assert rows_of(undone.storage) == undone.model
    assert not undone.has_late_files()
    assert undone.instant not in [entry.instant_time for entry in lakeformat.Table(undone.storage).history()]
    undone.write(NEXT)
    assert rows_of(undone.storage) == undone.model


def test_void_commit_moves_to_another_table_version(undone: Undone) -> None:
    table = undone.open("services")
    if table.config.takes_logs:
        undone.write(NEXT)
        table.compact()
    to = 6 if table.config.version > 6 else 9
    moved = undone.open("move")
    moved.downgrade(to) if to == 6 else moved.upgrade(to)
    undone.deliver()
    assert rows_of(undone.storage) == undone.model
    assert [void.time for void in TimelineStore(undone.storage).load().voids] == [undone.instant]
    undone.write(Write("upsert", (1, 7), "after"))
    assert rows_of(undone.storage) == undone.model


def test_write_of_no_rows_stays_a_commit(past: tuple[Path, Model], tmp_path: Path) -> None:
    storage = UnlockedStorage(copy_of(past[0], tmp_path).root)
    Write("insert_overwrite", (), "empty").run(open_at(storage, "empty", QUIET))
    timeline = TimelineStore(storage).load()
    assert not timeline.voids
    assert len(lakeformat.Table(storage).history()) == len(timeline.commits)


def test_void_commits_cost_readers_no_requests(undone: Undone) -> None:
    """A void commit is read once by a process; a timeline without one is only listed."""
    calls = FaultyStorage(undone.storage)
    store = TimelineStore(calls)
    assert store.load().voids
    before = len(calls.calls)
    assert store.load().voids
    assert [call.name for call in calls.calls[before:]] == ["list"]


def test_undone_run_of_a_plan_is_forgotten_when_its_commit_is_archived() -> None:
    """If not, the next archiving would take the files of the commit for files of an undone write."""
    undone = Decision(kind=Kind.UNDO, instant_time="2", undoes="2/run")
    archived = Decision(kind=Kind.ARCHIVE, instant_time="2", archived_to="2")
    state = DecisionState().add(undone, "a")
    assert state.undone_times == {"2"}
    assert state.add(archived, "b").undone_times == set()


def test_no_ordinary_commit_is_read_to_look_for_void_commits(past: tuple[Path, Model], tmp_path: Path) -> None:
    storage = FaultyStorage(UnlockedStorage(copy_of(past[0], tmp_path).root))
    timeline = TimelineStore(storage).load()
    assert timeline.commits
    assert not [call for call in storage.calls if call.name == "read" and "properties" not in call.path]
