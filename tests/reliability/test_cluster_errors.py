"""Clusterings whose calls to storage fail, or beside which other processes act at a critical moment."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest

import lakeformat
from lakeformat.errors import LockTimeoutError, StorageError, WriteConflictError
from lakeformat.file_system_view.context import TableContext
from lakeformat.model.instant import State
from lakeformat.services.cluster.local_rewriter import Group, rewrite_in_process
from lakeformat.services.cluster.run import ClusterSession, make_cluster_request
from lakeformat.services.cluster.settings import RewriteSettings
from lakeformat.storage import LocalStorage
from lakeformat.timeline.store import TimelineStore
from lakeformat.timeline.timeline_layout import LAYOUT_1
from lakeformat.transaction.order.written_file import WrittenFile
from lakeformat.transaction.undo.rollback import revert_run
from tests.helpers.faulty import Call, Crash, Fault, FaultyStorage, Mode, at, once
from tests.helpers.flights import NEXT, Model, copy_of, grow_old, leftovers, open_at, rows_of

_COMPLETED = re.compile(r"\.hoodie/\d{17}\.replacecommit")


def cluster(table: lakeformat.Table) -> None:
    table.cluster("v")


def run_plan(table: lakeformat.Table) -> None:
    table.run_clustering()


def completes(call: Call) -> bool:
    return call.name == "create" and _COMPLETED.fullmatch(call.path) is not None


def make_planned(template: Path, folder: Path) -> tuple[Path, str]:
    """Return the path of a copy of the table with a plan on its timeline, and the plan's instant time."""
    storage = copy_of(template, folder)
    time = open_at(storage, "planner").schedule_clustering("v")
    assert time is not None
    return Path(storage.root), time


@pytest.mark.slow
@pytest.mark.parametrize("raises", [KeyboardInterrupt, MemoryError, StorageError])
@pytest.mark.parametrize("act", [cluster, run_plan])
def test_failure_after_the_commit_does_not_undo_the_clustering(
    act: Callable[[lakeformat.Table], None], raises: type[BaseException], template: tuple[Path, Model], tmp_path: Path
) -> None:
    path, before = template
    start, _ = make_planned(path, tmp_path) if act is run_plan else (path, "")
    recording = FaultyStorage(copy_of(start, tmp_path))
    act(open_at(recording, "clusterer"))
    completed = next(number for number, call in enumerate(recording.calls) if completes(call))
    cases = [(completed, Mode.AFTER), *((number, Mode.BEFORE) for number in range(completed + 1, len(recording.calls)))]
    assert len(cases) > 5
    for number, mode in cases:
        storage = copy_of(start, tmp_path)
        fault = Fault(at(number), mode, kills=False, raises=raises)
        with suppress(raises):
            act(open_at(FaultyStorage(storage, fault), "clusterer"))
        assert rows_of(storage) == before, recording.calls[number]
        assert open_at(storage, "reader").history()[0].operation == "cluster"
        grow_old(Path(storage.root))
        NEXT.run(open_at(storage, "next"))
        assert rows_of(storage) == NEXT.applied(before), recording.calls[number]
        assert leftovers(storage) == [], recording.calls[number]


def starts(call: Call) -> bool:
    return call.name == "create" and call.path.endswith(".replacecommit.inflight")


@pytest.mark.parametrize("act", [cluster, run_plan])
def test_clustering_with_a_claim_is_not_taken_for_dead(
    act: Callable[[lakeformat.Table], None], template: tuple[Path, Model], tmp_path: Path
) -> None:
    """The process pauses after its claim. The instant that it puts on the timeline later still has a claim."""
    path, before = template
    storage = copy_of(make_planned(path, tmp_path)[0] if act is run_plan else path, tmp_path)
    refused = []

    def intrude(_: Call) -> None:
        grow_old(Path(storage.root))
        try:
            NEXT.run(open_at(storage, "other", {"hoodie.write.lock.wait_time_ms": 1}))
        except LockTimeoutError as error:
            refused.append(error)

    act(open_at(FaultyStorage(storage, meanwhile=once(starts, intrude)), "clusterer"))
    assert len(refused) == 1
    assert rows_of(storage) == before
    NEXT.run(open_at(storage, "next"))
    assert rows_of(storage) == NEXT.applied(before)
    assert leftovers(storage) == []


@pytest.mark.parametrize("act", [cluster, run_plan])
def test_plan_started_by_another_program_is_left_to_it(
    act: Callable[[lakeformat.Table], None], template: tuple[Path, Model], tmp_path: Path
) -> None:
    path, before = template
    storage = copy_of(make_planned(path, tmp_path)[0] if act is run_plan else path, tmp_path)
    begun = once(starts, lambda call: storage.create(call.path, b""))
    with pytest.raises(WriteConflictError, match="runs in another process"):
        act(open_at(FaultyStorage(storage, meanwhile=begun), "clusterer"))
    store = TimelineStore(storage)
    (pending,) = store.load().pending
    assert pending.state is State.INFLIGHT
    requested = store.read_requested_replace(pending)
    assert requested is not None
    assert requested.file_groups
    assert leftovers(storage) == [LAYOUT_1.file_name(pending)]
    assert rows_of(storage) == before


@pytest.mark.slow
def test_rollback_of_a_run_spares_the_next_run(template: tuple[Path, Model], tmp_path: Path) -> None:
    """Two processes undo a dead run without a lock. One of them is slow, and the plan runs again beside it."""
    path, before = template
    root, time = make_planned(path, tmp_path)
    dying = FaultyStorage(LocalStorage(str(root)), Fault(lambda _, call: completes(call), Mode.BEFORE))
    with pytest.raises(Crash):
        run_plan(open_at(dying, "dead"))
    (dead,) = TimelineStore(LocalStorage(str(root))).load().pending
    recording = FaultyStorage(copy_of(root, tmp_path))
    revert_run(TimelineStore(recording), dead)
    for number, call in enumerate(recording.calls):
        storage = copy_of(root, tmp_path)
        numbers = itertools.count()

        def others(_: Call, storage: LocalStorage = storage) -> None:
            revert_run(TimelineStore(storage), dead)
            open_at(storage, "again").run_clustering(time)

        slow = FaultyStorage(storage, meanwhile=once(lambda _, n=number, numbers=numbers: next(numbers) == n, others))
        revert_run(TimelineStore(slow), dead)
        assert rows_of(storage) == before, call
        assert open_at(storage, "reader").history()[0].instant_time == time
        NEXT.run(open_at(storage, "next"))
        assert rows_of(storage) == NEXT.applied(before), call


def test_attempts_at_one_group_write_different_files(template: tuple[Path, Model], tmp_path: Path) -> None:
    """A task and its copy may run at the same time. Neither may write to the files of the other."""
    storage = FaultyStorage(copy_of(template[0], tmp_path))
    table = open_at(storage, "clusterer", {"lakeformat.clustering.buffer.bytes": 1})
    written: list[set[str]] = []

    def twice(context: TableContext, groups: Sequence[Group], settings: RewriteSettings) -> Sequence[WrittenFile]:
        for token in ("0-1-1", "0-1-2"):
            seen = len(storage.calls)
            files = rewrite_in_process(context, groups, replace(settings, write_token=token))
            written.append({call.path for call in storage.calls[seen:] if call.name == "open_output"})
        return files

    ClusterSession(table.context, table.options, twice).cluster(make_cluster_request(table.options, "v"))
    assert any("spill" in path for path in written[0])
    assert written[0].isdisjoint(written[1])
