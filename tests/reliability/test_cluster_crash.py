"""The process that clusters dies at every one of its calls to storage. Readers see the rows that they saw before."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from lakeformat.model.instant import State
from lakeformat.storage import LocalStorage, Storage
from tests.helpers import hudi_rs
from tests.helpers.faulty import Call, Crash, Fault, FaultyStorage, Mode, at
from tests.helpers.flights import NEXT, Model, copy_of, leftovers, make_template, open_at, rows_of

HUDI_RS_EVERY = 7
#: One in this many of the calls that only read.
READS_EVERY = 4


NIGHTLY = pytest.mark.nightly
#: Type and version of the table.
KINDS = ("COPY_ON_WRITE 6", "COPY_ON_WRITE 9", pytest.param("MERGE_ON_READ 6", marks=NIGHTLY), "MERGE_ON_READ 9")
PLAN_KINDS = (*KINDS[:3], pytest.param("MERGE_ON_READ 9", marks=NIGHTLY))
#: Scheduling and cancelling write only the timeline, so one kind of copy-on-write table is enough.
SCHEDULE_KINDS = (KINDS[0], *PLAN_KINDS[2:])


@pytest.fixture
def of_kind(kind: str, template: tuple[Path, Model], tmp_path: Path) -> tuple[Path, Model]:
    """Return the small table, of this type and version."""
    type_, version = kind.split()
    return template if kind == KINDS[0] else make_template(tmp_path, version=version, table_type=type_)


def cluster(storage: Storage) -> None:
    open_at(storage, "clusterer").cluster(["v", "id"], curve="z-order")


def join(storage: Storage) -> None:
    result = open_at(storage, "clusterer", {"lakeformat.parquet.row.group.rows": 3}).cluster()
    assert "copied rows" in result.describe()


def run_plan(storage: Storage) -> None:
    open_at(storage, "clusterer").run_clustering()


def cases(calls: list[Call], mode: Mode) -> list[int]:
    return [
        number
        for number, call in enumerate(calls)
        if call.changes or (mode is Mode.BEFORE and number % READS_EVERY == 0)
    ]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("cluster", "kind"),
    [
        *((cluster, kind) for kind in ("COPY_ON_WRITE 6", "COPY_ON_WRITE 9", "MERGE_ON_READ 9")),
        pytest.param(cluster, "MERGE_ON_READ 6", marks=NIGHTLY),
        (join, "COPY_ON_WRITE 9"),
    ],
)
@pytest.mark.parametrize("mode", Mode)
def test_clustering_that_dies_changes_no_row_and_leaves_nothing(
    mode: Mode, cluster: Callable[[Storage], None], of_kind: tuple[Path, Model], tmp_path: Path
) -> None:
    """The next writer upserts into the files that were being rewritten, and nothing of the clustering is left."""
    path, before = of_kind
    recording = FaultyStorage(copy_of(path, tmp_path))
    cluster(recording)
    assert rows_of(recording.inner) == before
    assert leftovers(recording.inner) == []
    for number in cases(recording.calls, mode):
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
@pytest.mark.parametrize("kind", PLAN_KINDS)
@pytest.mark.parametrize("mode", Mode)
def test_clustering_plan_whose_run_dies_is_pending_or_done(
    mode: Mode, of_kind: tuple[Path, Model], tmp_path: Path
) -> None:
    """After the crash the plan is unchanged and can be run, or its run has completed."""
    path, before = of_kind
    planned_at = copy_of(path, tmp_path)
    planned = open_at(planned_at, "planner").schedule_clustering(["v"])
    recording = FaultyStorage(copy_of(Path(planned_at.root), tmp_path))
    run_plan(recording)
    assert rows_of(recording.inner) == before
    assert leftovers(recording.inner) == []
    for number in cases(recording.calls, mode):
        storage: LocalStorage = copy_of(Path(planned_at.root), tmp_path)
        with pytest.raises(Crash):
            run_plan(FaultyStorage(storage, Fault(at(number), mode)))
        assert rows_of(storage) == before, recording.calls[number]
        table = open_at(storage, "again")
        done = table.history()[0].operation == "cluster"
        result = table.run_clustering()
        assert bool(result.skipped) == done, recording.calls[number]
        assert table.history()[0].instant_time == planned
        assert rows_of(storage) == before, recording.calls[number]
        assert leftovers(storage) == [], recording.calls[number]
        if number % HUDI_RS_EVERY == 0:
            hudi_rs.assert_same_rows(open_at(storage, "reader"))


@pytest.mark.slow
@pytest.mark.parametrize("kind", SCHEDULE_KINDS)
@pytest.mark.parametrize("mode", Mode)
def test_clustering_plan_can_be_made_and_cancelled_after_a_crash(
    mode: Mode, of_kind: tuple[Path, Model], tmp_path: Path
) -> None:
    """The plan exists or not. In both cases the next process can make a plan and cancel it."""
    path, before = of_kind

    def schedule(storage: Storage) -> str | None:
        return open_at(storage, "planner").schedule_clustering(["v"])

    def cancel(storage: Storage) -> None:
        table = open_at(storage, "canceller")
        for instant in table.snapshot().timeline.pending:
            if instant.state is State.REQUESTED:
                table.cancel_clustering(instant.time)

    planned_at = copy_of(path, tmp_path)
    schedule(planned_at)
    for act, start in ((schedule, path), (cancel, Path(planned_at.root))):
        recording = FaultyStorage(copy_of(start, tmp_path))
        act(recording)
        for number in cases(recording.calls, mode):
            storage: LocalStorage = copy_of(start, tmp_path)
            with pytest.raises(Crash):
                act(FaultyStorage(storage, Fault(at(number), mode)))
            assert rows_of(storage) == before, recording.calls[number]
            open_at(storage, "third").insert(
                NEXT.rows.slice(0, 0)
            )  # The next writer finishes what the dead process began.
            cancel(storage)
            NEXT.run(open_at(storage, "next"))
            assert rows_of(storage) == NEXT.applied(before), recording.calls[number]
            assert leftovers(storage) == [], recording.calls[number]
