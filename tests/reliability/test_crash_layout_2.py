"""Writers of tables of version 9 die at every call: requested, inflight and completed files of timeline layout 2."""

from __future__ import annotations

from pathlib import Path

import pytest

from lakeformat.storage import LocalStorage, Storage
from tests.helpers import hudi_rs
from tests.helpers.crashing import failures_of, worth_it
from tests.helpers.faulty import Crash, Fault, FaultyStorage, Mode, at
from tests.helpers.flights import NEXT, WRITES, Model, Write, copy_of, leftovers, make_template, open_at, rows_of

#: On every run the way of commits, slowly that of replacecommits, by night all.
MARKS = {"upsert": (), "overwrite": (pytest.mark.slow,)}
WAYS = [pytest.param(write, marks=MARKS.get(write.operation, (pytest.mark.nightly,))) for write in WRITES]
#: hudi-rs looks at one case in so many.
HUDI_RS_EVERY = 7


@pytest.fixture(scope="module")
def version_9(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Model]:
    """A table with a past, and its rows."""
    return make_template(tmp_path_factory.mktemp("v9"), version="9")


@pytest.mark.parametrize(
    "mode",
    [
        Mode.AFTER,
        pytest.param(Mode.TORN, marks=pytest.mark.slow),
        pytest.param(Mode.BEFORE, marks=pytest.mark.nightly),
    ],
)
@pytest.mark.parametrize("write", WAYS, ids=lambda write: write.operation)
def test_a_crash_at_every_call_in_layout_2(
    write: Write, mode: Mode, version_9: tuple[Path, Model], tmp_path: Path
) -> None:
    assert failures_of(write, mode, version_9, tmp_path) == []


def cluster(storage: Storage) -> None:
    open_at(storage, "clusterer").cluster(["v", "id"], curve="z-order")


def run_plan(storage: Storage) -> None:
    open_at(storage, "clusterer").run_clustering()


@pytest.mark.slow
@pytest.mark.parametrize("mode", Mode)
def test_a_crash_in_a_clustering_of_layout_2(mode: Mode, version_9: tuple[Path, Model], tmp_path: Path) -> None:
    """Readers see what they saw; the next writer upserts to the files that were being rewritten."""
    path, before = version_9
    recording = FaultyStorage(copy_of(path, tmp_path))
    cluster(recording)
    assert rows_of(recording.inner) == before
    assert leftovers(recording.inner) == []
    for number in worth_it(recording.calls, Mode.AFTER):
        storage: LocalStorage = copy_of(path, tmp_path)
        with pytest.raises(Crash):
            cluster(FaultyStorage(storage, Fault(at(number), mode)))
        assert rows_of(storage) == before, recording.calls[number]
        NEXT.run(open_at(storage, "next"))
        assert rows_of(storage) == NEXT.applied(before), recording.calls[number]
        assert leftovers(storage) == [], recording.calls[number]
        if number % HUDI_RS_EVERY == 0:
            hudi_rs.assert_same_rows(open_at(storage, "reader"))


@pytest.mark.slow
@pytest.mark.parametrize("mode", Mode)
def test_a_crash_in_the_run_of_a_plan_of_layout_2(mode: Mode, version_9: tuple[Path, Model], tmp_path: Path) -> None:
    """The plan is there afterwards, as it was, and can be run; or its run was over."""
    path, before = version_9
    planned_at = copy_of(path, tmp_path)
    planned = open_at(planned_at, "planner").schedule_clustering(["v"])
    recording = FaultyStorage(copy_of(Path(planned_at.root), tmp_path))
    run_plan(recording)
    for number in worth_it(recording.calls, Mode.AFTER):
        storage: LocalStorage = copy_of(Path(planned_at.root), tmp_path)
        with pytest.raises(Crash):
            run_plan(FaultyStorage(storage, Fault(at(number), mode)))
        assert rows_of(storage) == before, recording.calls[number]
        table = open_at(storage, "again")
        done = table.history()[0].operation == "cluster"
        assert bool(table.run_clustering().skipped) == done, recording.calls[number]
        assert table.history()[0].instant_time == planned
        assert rows_of(storage) == before, recording.calls[number]
        assert leftovers(storage) == [], recording.calls[number]
